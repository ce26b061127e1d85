//! Decisions behind this crate, with their reasons.
//!
//! - **A job looks up groups in the user database**, which may be on a remote server. The answer is cached, also a negative
//!   one, and put into the credential of the call. The layers below see one list of groups.
//! - **Access control lists are those of the file system.** NFSACL, which no RFC describes, reads and sets the extended
//!   attributes in which Linux keeps lists. The server does not evaluate them.
//! - **A local file system is a stack of five layers** (`localfs.rs`): `Volume` has the properties of the exported file
//!   system, `OpenFiles` the descriptors, `Rights` acts as the caller and asks the kernel for rights, `Durability` has the
//!   write verifier and the syncs, and `FileHandles` finds the file of a handle. Each is a type that has references to
//!   layers below it only, and no notion of a protocol; operations of NFS are functions on top. An opened directory
//!   (`Opening`) has all facts before the first layer is built, and tests change them there.
//! - **Kernel file handles, where available.** `name_to_handle_at` and `open_by_handle_at` find a file from its handle
//!   without a table: no state, no search, and neither renames by others nor restarts matter. They need
//!   `CAP_DAC_READ_SEARCH` and a file system with export operations. An export tries both on its root when it is opened,
//!   and uses one method for all its files. A kernel handle also opens files outside of the export, so a directory must be
//!   verified below the root once a second: its path in `/proc/self/fd` says where to look, and the same directory must be
//!   found there from the root. For a file there is no such proof: a file that was moved out is served by its handle.
//! - **Idle files are closed.** An open descriptor keeps the space of a removed file, and one for writing prevents a program
//!   from being executed. A thread for each export closes what was not used for a second, and sleeps when nothing is open.
//!   A file with uncommitted data stays open for reading for a minute: the kernel reports lost data only to those who have
//!   the file open, and the write verifier must change then. With the handle table, where nothing else may lead to an open
//!   file, only files without a name are closed, and those of which the kernel cannot tell: a file system in another
//!   process refuses to tell of a removed file, and an error never counts as "still there".
//! - **The handle table**, where there are no kernel handles. A handle contains the inode number, a hash of the birth time,
//!   and the directory where the file was first seen, under a keyed code. That finds a file that stayed in its place. For
//!   directories, moved files and files with several names (up to 16), a row in an embedded store has the place. Inode
//!   number and birth time must match at each place, so a wrong row costs time and never leads to another file. A directory
//!   that must be searched is read once for each of its changes (by its ctime, when that is more than 20 ms old); the inode
//!   numbers and cookies of its entries then answer for all of them, and for what is not among them. Rows are committed
//!   within 100 ms, and removed when their file is found to be gone. While they cannot be committed, MKDIR, LINK and moves
//!   are refused before anything is changed, and the store is reopened every five seconds. Limits: on file systems without
//!   birth times, a reused inode number has the same handle; a file that was moved out of the export is served while it is
//!   open; directories are created at most 510 levels deep.
//! - **A file is identified by no less than what identifies it.** An inode number does within a device, and only where the
//!   file system keeps to POSIX. In an overlayfs over layers on several file systems, and in FUSE, the number of a file is a
//!   hash of the path at which it was first seen, beside the inode number if that stays (`handles/by_path.rs`); the table has the
//!   names that clients give it later. `fileid` is the inode number, mixed with the subvolume on btrfs, whose kernel handles
//!   contain it, and the number from the path on such an overlayfs (`volume/fileid.rs`).
//! - **Listings** use the positions of the kernel as cookies where they stay. On overlayfs and in FUSE they shift while
//!   entries are removed; there the cookie is a hash of the name, and entries are listed in that order (`operations/by_name.rs`). That
//!   takes a pass over the directory, of which 4 MiB are kept for the next pages; no descriptor and no state is needed for
//!   a listing to be complete.
//! - **The root of an export** is the directory that was opened, whatever is mounted at its path later. If it is gone, the
//!   next MOUNT takes the one at its path, if it is of the same kind (`operations/root.rs`).
//! - **A duplicate request cache keeps replies to calls that must not be executed twice** (REMOVE, RENAME, CREATE, WRITE,
//!   ...). The key is the client, the XID, and a keyed hash of all bytes of the call, which are the same inline and in
//!   chunks. For a WRITE of 1 MiB that is nine tenths of the server's instructions in user space (`lab count`), and 20 to 40 µs:
//!   no more than to read the memory, so another hash would not be faster (docs/design/performance.md). With a hash of
//!   samples, a WRITE with the XID of another could be taken for it and its data be dropped. A client is an address without
//!   port (an IPv6 /64 counts as one) and the machine name of AUTH_SYS. Credits determine how much a connection may keep: a
//!   client with all of them in flight has received the replies to all earlier calls. So each connection keeps the results
//!   of twice as many calls, and for two minutes after it is closed, however busy the next one is. The total is 65,536; an
//!   address gets as many as it leaves free, and evicts its own. Calls in flight are never evicted. A retransmitted call
//!   that is in flight is not executed again: on the same connection it is dropped, on others the last one waits for the
//!   results. A result whose client has received the reply answers no call on another connection, so that two clients of an
//!   address, or a client that begins each connection with the same XID, may use an XID twice
//!   (`duplicate_requests.rs` says how that is known). The cache is lost when the server restarts.
//! - **An absent export keeps its place.** Where a directory or disk that need not exist is missing (`nofail`,
//!   `mountpoint`), the list of exports still has its name, number and rules. No other export gets them, and a single export
//!   beside it is not `/`. Calls with its handles get NFS3ERR_JUKEBOX (retry later) rather than a stale handle, so that a
//!   client waits for the disk as it does for a server.
//! - **Statistics are values of the library with a snapshot**, without a global registry. `Nfs3` counts calls, failures and
//!   latencies by procedure in sixteen parts, one for each thread: one addition per call. The clock is read for one in
//!   sixteen calls that are answered at once, at random, and for every job. Operations, errors and bytes of each export are counted
//!   in the same way, in a slot that the call finds with its handle: no reference count is taken. A connection counts for itself and publishes
//!   its `ConnectionStats` ten times a second, where `ServerMonitor` finds them. Metrics, `rpcrdma stats` and the log are
//!   three views of one snapshot.
//! - **`--changes durable` is the default**: a change of names or attributes is synced before the reply, and so is the row
//!   that leads to what was created or moved, as RFC 1813 §4.7 demands. `cached` leaves it to the kernel and is several
//!   times as fast with many small files; a crash of the machine can lose acknowledged changes.
//! - **Calls that may block run on another thread.** GETATTR, LOOKUP, ACCESS and READ are tried on the connection's own task
//!   where the kernel can guarantee not to block. So is a WRITE that is unstable and at most 64 KiB, if the file system can
//!   report that it would block (XFS, btrfs) or is in memory; on ext4 every WRITE runs on another thread. So does whatever
//!   changes or reads directories, syncs, allocates space or needs the handle table, and everything on file systems that
//!   are not known to be local.
//! - **On a file system in memory, changes run on the connection's task**, if no other local user can reach the export
//!   (`localfs/volume/other_users.rs`). Anyone who has a file or directory open there can lock it for any time, by a write(2) or
//!   getdents(2) with memory whose page never arrives, and tmpfs cannot be asked not to block. Where a parent directory is
//!   closed to others, a thread would cost more than the change. Answered at once are: a LOOKUP of a name that the kernel
//!   has not cached, as before each new file; and, while the table has no rows of files and nobody else changes names, a
//!   CREATE of a file, a COMMIT, a RENAME within a directory that replaces nothing, and a REMOVE of a small file. Each can
//!   still become a job until it has changed something. A WRITE of up to 1 MiB is answered at once too: its data was just
//!   read from the socket. A WRITE of more than 64 KiB is answered as FILE_SYNC, because nothing there becomes more stable,
//!   so that the client need not keep the data for a COMMIT.
//! - **A file is created in one step**, as the caller, with all its permissions. The descriptor of that CREATE, which is
//!   read-only, represents the file from then on. Attributes come from `fstat` where birth time and mount are known.
//! - **Names of a directory change one call at a time**, and its attributes before and after a call are read under the same
//!   lock: a client attributes any difference between them to its own call. Locks are per directory, in stripes, so that a
//!   name lookup on a slow disk delays that directory alone. RENAME takes two locks in order.
//! - **Local programs that change names are seen, and not kept out** (`localfs/volume/witness.rs`). A client forgets what it knows of a
//!   directory after each change that it is not told to be atomic, and looks every name up again. Only the kernel could make the
//!   change and both looks one step; inotify tells afterwards whether anybody came between, for one read(2) of a change.
//! - **Concurrent writers are reported by omitting the attributes before a call.** A change of a file registers before it
//!   reads the attributes and deregisters after it has read them again. The reply has the attributes before the call only
//!   if no other change was in flight. No lock is held while data is written. A SETATTR with a guard has the file for
//!   itself: other SETATTRs and WRITEs of that file wait.
//! - **One sync per CREATE, one shared sync per directory.** On ext4, XFS and btrfs, a sync of a new file also stores its
//!   name (`FsKind::syncs_names` says why; the interop tests `power-loss` and `power-loss-all` cut the power), and the
//!   journal commits many files at once. Syncs of a directory after REMOVE and RENAME are shared. A waiting call leaves its
//!   reply to the sync and releases its thread. Without a journal there is one sync at a time, and one thread that waits to
//!   do the next (`group_commit.rs`). With a journal, as on XFS and most ext4 (`FsKind::has_journal`), two are in flight at
//!   a time, each in a step of the journal (`journal_commit.rs`), and CREATE shares them, because they store new files too. For root,
//!   on ext4 and with kernel handles, a CREATE is six system calls, a RENAME seven and a REMOVE eight, including the sync
//!   (`strace -f` beside `cargo run --release -p nfs-client --example changes`). Acting as a user adds eight small ones to
//!   each, and two to check the directory's permissions.
//! - **A file is written by one call at a time.** The kernel serialises writes anyway, and makes the waiting threads spin. A
//!   WRITE that could be answered at once becomes a job if another is active, so that a connection's task does not wait for
//!   a SETATTR that truncates gigabytes.
//! - **Root acts as the caller, one system call at a time.** Changes are made with the fsuid, fsgid and groups of the caller
//!   and without `CAP_SYS_RESOURCE` (`syscalls::ActingAs`, used by `Rights::as_caller` alone). The kernel thus enforces access
//!   control lists, quotas, reserved blocks, sticky and set-group-id bits. The guard belongs to its thread, so that no
//!   future can hold it across a wait, and a thread that cannot restore its own identity ends the process. On a virtual
//!   machine where a small system call takes 0.27 µs, switching there and back takes 3.5 µs for a write, which needs the
//!   user alone, 7 µs with a group and 13 µs with 16 more; for root it is 20 ns (`cargo run --release -p rpcrdma-syscalls
//!   --example identity`). Keeping the identity between calls would save that, but everything else that the thread does,
//!   including logging, would run as the caller. A process that has acted for others leaves no core dump, as prctl(2) says
//!   of `PR_SET_DUMPABLE`.
//! - **Read operations ask the kernel once per file.** READ, LOOKUP, ACCESS and READDIR use descriptors that all callers
//!   share. `faccessat2` as the caller tells whether access is allowed. The answer is kept beside the open file while its
//!   ctime is the same, if that is older than two clock ticks. For the owner, and where a file has no access control list
//!   (one cheap call tells), the mode decides as in the kernel, because the ctime of a directory in use is never old. Owner
//!   override and reading by execute permission (RFC 1813 §4.4) are the only permissions that the process adds.
//! - **A server that is not root does everything as its own user**, and the kernel checks. The same holds for root of a user
//!   namespace without other users.
//! - **The list of exports is replaced as a whole.** Each call uses one version of the list (`arc-swap`, without a counter
//!   that threads share). A reload makes a new list with the file systems of exports that stay. Host names become addresses
//!   when the list is made, so that a rule compares addresses. With `crossmnt`, a file system mounted below an export is an
//!   export in the list too, with a number derived from that of its parent and its path. LOOKUP finds it by directory and
//!   name before it asks the parent file system, so that file systems know nothing of mounts. When the kernel reports that
//!   mounts have changed, the list is rebuilt.
//! - **State of NFSv4 clients is a value under one lock** (`nfs4/state.rs`). Nothing waits under it: a thread makes records and closes
//!   files, and a task of the program calls clients. A lock of bytes is made on the file when nothing in the table is in its way,
//!   and before the table changes; locks on files go under the same lock before a client hears that they are free.
//! - **An owner of locks has one descriptor for a file**, also through several opens: open file descriptions exclude each other. When one
//!   of its opens ends, all is unlocked that the table does not have any more.
//! - **A client that waits for a lock of a local program polls.** Nobody tells the server when that is gone, and a place in the queue
//!   would keep others from what they could have.
//! - **Records of clients are a list of changes in one file**, and not in the embedded store: a batch is one write and one sync,
//!   the file is a hundred bytes for a client, and what a loss of power can leave is what a prefix can be. Only the last batch can be
//!   incomplete. After an error of the disk nothing is appended, and the file is made anew.
//! - **A callback uses slot 0 alone.** It is sent again, over another connection of the session, only if its connection broke (RFC
//!   8881 §2.10.6.2). Where nobody knows whether the client executed it, the back channel is lost, and the client makes another
//!   session. A way is checked by CB_NULL (RFC 8881 §19.1.3), which takes no slot.
