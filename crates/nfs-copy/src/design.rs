//! Decisions behind copies, here and in `nfs-client`, with their reasons.
//!
//! - **The copier tells, and prints nothing.** A program gives it `Options`, a receiver of `Events` and a `Stop`, and gets `Ended`.
//!   An event names files by what displays them, so that nothing is formatted that nobody shows. Errors of single files go to
//!   the receiver, and an error that ends the copy is its result; `Error::ends` says which is which. Where a file is named, the
//!   error is in `Error::In`, as `Chain` displays it. Words such as the names of options are the program's.
//! - **A copy does not know the transport** (`connection.rs`). Sources and destination may have different ones, and one kind of tree
//!   stands for all. The price is a box for the future of each call; the reads and writes of `bench` do without.
//! - **Copies traverse a tree in order and copy files in parallel.** `get` and `put` walk a tree one step at a time and
//!   create its directories. Each file is a task, and at most 64 are in flight. Small files are bounded by their number,
//!   others by their bytes, so that one large file has as much memory as it has alone. An interrupt ends the walk, and every
//!   file in flight removes what is incomplete. `cp` from server to server has the same tasks and the uploads of `put`
//!   (`upload.rs`), and no plan.
//! - **A copy has a plan before it changes anything.** A walk through the source, with an eye on what is at the destination
//!   (`walk.rs`), gives steps; the plan (`plan.rs`) counts them for the progress that is shown, and finds what does not go
//!   together. The transfer takes the same steps, from memory, or by walking again where there are too many to keep. Local
//!   files and those of a server are looked at through one type (`tree.rs`), so that both commands decide alike. A copy
//!   into its own source is recognised across the two sides: no two objects with one inode number have the same time of
//!   change to the nanosecond.
//! - **A copy stays in its tree.** A local directory is held open from the moment it is entered, which follows no symbolic
//!   link, and what is made, replaced, read or removed in it is named by its descriptor (`directory.rs`): its path may lead
//!   elsewhere by then, if somebody else can write there. What the list of a source on a server lacks
//!   is looked up before it is removed at the destination, as lists may lack what is renamed meanwhile.
//! - **A copy replaces nothing that it has made.** Where a destination takes two names for one, as exFAT and APFS do, the second
//!   file must not take the place of the first. Few servers say that they do so, so files are compared by their numbers
//!   (`made_names.rs`): locally each time that a file gets its name, which costs no wait; on a server where two names in one
//!   directory differ in a way that file systems may not see, which the crate `unicode-normalization` has the tables for.
//!   Removal spares what a name of the source leads to.
//! - **Access control lists of a server cost calls only where they decide** (`access_lists.rs`): one GETACL for a directory, before its
//!   first new file, and one for each file that is replaced without `-p`, as no attribute of NFSv3 tells of a list. Permissions
//!   of new files are computed from the default list, as SETATTR does not heed it.
//! - **The plan is made with both CPUs.** While the walk goes through one directory, up to eight that come next are listed: on
//!   a server by calls in flight, locally by threads. Conflicts are still found before anything changes, so nothing is
//!   transferred meanwhile. Attributes come with the names (READDIRPLUS; fstatat in the open directory), so that no file
//!   costs a call of its own.
//! - **A directory gets its mode and times with its last file.** Tasks share what holds it open (`directory_completion.rs`); when nobody
//!   does, the copy sets its attributes, those of a directory inside before those of the one around it.
//! - **One thread reads ahead for `put`**, because a thread switch for each small file would cost as much as the file. Of a
//!   large file, the task that sends it reads what is in the page cache right before sending; a thread reads the rest one
//!   piece ahead. `get` writes small files on as many threads as wait for the disk (`get/writers.rs`): two where it answers at
//!   once, and up to 64 where each file waits for its own data.
//! - **The data in flight for a file is bounded by the round-trip time**, which FSINFO measures when an export is opened: 4
//!   MiB up to half a millisecond, 16 MiB from two milliseconds on, and also where calls take 8 ms for another reason. With
//!   more over loopback, data leaves the CPU caches before it is used.
//! - **A small upload is CREATE, WRITE and RENAME.** The CREATE is GUARDED, because EXCLUSIVE needs a SETATTR behind it. If
//!   it is executed twice, the name, which nobody else knows, is removed and another one tried. The WRITE is FILE_SYNC and
//!   needs no COMMIT. Directories are named by the handle that MKDIR returned.
//! - **A copy that is cut off can be continued without a record of it.** With `--resume` the temporary name has a hash of
//!   the source's inode number, size, mtime and ctime, so what is there under it is the beginning of that version or
//!   nothing. All but the last 32 MiB of it is on stable storage, because the copy syncs, or makes a COMMIT, before it goes
//!   further; those bytes are sent again. A record of progress beside the file would have to be synced as often, and a
//!   check by a hash of the content would read the whole file on both sides.
