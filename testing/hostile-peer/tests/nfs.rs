//! NFS and MOUNT calls with invalid arguments (RFC 1813).

use buffer::Pool;
use hostile_peer::rpc::{accept, accepted, call, call_with, msg, opaque};
use hostile_peer::{Peer, Target, words};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3, NfsAcl3};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, ConnectionId, Programs, ReceivedCall, Reply, ReplyBound, Service};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const XID: u32 = 0x0004_0f55;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFSACL: u32 = 100_227;

mod nfs {
    pub(crate) const GETATTR: u32 = 1;
    pub(crate) const SETATTR: u32 = 2;
    pub(crate) const LOOKUP: u32 = 3;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const READ: u32 = 6;
    pub(crate) const WRITE: u32 = 7;
    pub(crate) const CREATE: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const SYMLINK: u32 = 10;
    pub(crate) const REMOVE: u32 = 12;
    pub(crate) const RMDIR: u32 = 13;
    pub(crate) const RENAME: u32 = 14;
    pub(crate) const LINK: u32 = 15;
    pub(crate) const READDIR: u32 = 16;
    pub(crate) const READDIRPLUS: u32 = 17;
    pub(crate) const COMMIT: u32 = 21;
}

const MNT: u32 = 1;

const GETACL: u32 = 1;
const SETACL: u32 = 2;

const OK: u32 = 0;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const NOTDIR: u32 = 20;
const INVAL: u32 = 22;
const NAMETOOLONG: u32 = 63;
const STALE: u32 = 70;
const BADHANDLE: u32 = 10_001;
const BAD_COOKIE: u32 = 10_003;
const TOOSMALL: u32 = 10_005;

/// An empty `sattr3`.
const NO_ATTRIBUTES: [u32; 6] = [0; 6];

/// One file system, served and attacked.
struct Site {
    target: Target,
    peer: Peer,
    root: Vec<u8>,
    refused: Arc<AtomicU32>,
}

/// The programs, and how many calls they have not executed as their chunks do not do.
struct Watched {
    programs: Programs,
    refused: Arc<AtomicU32>,
}

impl Service for Watched {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let answer = self.programs.call(call, caller);
        if matches!(answer, Answer::Now(Reply::Ineligible | Reply::TooLarge(_))) {
            self.refused.fetch_add(1, SeqCst);
        }
        answer
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        self.programs.reply_bound(call)
    }

    fn closed_in_order(&self, caller: &Caller) {
        self.programs.closed_in_order(caller);
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.programs.connection_ended(connection);
    }
}

impl Site {
    fn start() -> Self {
        let exports = Exports::new(HandleKey::random().unwrap());
        let fs = Arc::new(MemFs::new(8 << 20));
        let exports = exports
            .with("/export", fs, ExportOptions::default())
            .unwrap();
        let nfs = Nfs3::new(exports.clone(), Pool::new(1 << 20));
        let programs = Programs::new()
            .with(NfsAcl3::new(&nfs))
            .with(nfs)
            .with(Mount3::new(exports));
        let refused = Arc::new(AtomicU32::new(0));
        let service = Watched {
            programs,
            refused: Arc::clone(&refused),
        };
        let target = Target::of(service, NFS, 3);
        let mut site = Self {
            peer: Peer::connect(target.addr()),
            target,
            root: Vec::new(),
            refused,
        };
        let mounted = site.results(MOUNT, MNT, &opaque(b"/export"));
        site.root = site.handle(&mounted);
        site
    }

    /// Words behind the status of a good reply to a good call.
    fn results(&mut self, program: u32, procedure: u32, arguments: &[u32]) -> Vec<u32> {
        let reply = self.reply(&call_with(XID, [program, 3, procedure], arguments));
        let header = accepted(XID, accept::SUCCESS, &[OK]);
        assert_eq!(reply[..header.len()], header);
        reply[header.len()..].to_vec()
    }

    fn reply(&mut self, call: &[u32]) -> Vec<u32> {
        self.peer.send(&words(&msg(XID, 4, call)));
        let answer = self.peer.answer();
        assert_eq!(answer[..7], [XID, 1, 4, 0, 0, 0, 0]);
        answer[7..].to_vec()
    }

    /// The handle at the beginning of results.
    fn handle(&self, results: &[u32]) -> Vec<u8> {
        words(&results[1..])[..results[0] as usize].to_vec()
    }

    /// Asserts that a call is executed and fails with this status.
    #[track_caller]
    fn fails(&mut self, procedure: u32, arguments: &[Vec<u32>], status: u32) {
        let reply = self.reply(&call_with(XID, [NFS, 3, procedure], &arguments.concat()));
        let expected = accepted(XID, accept::SUCCESS, &[status]);
        assert_eq!(reply[..7], expected, "procedure {procedure}");
    }

    /// Asserts that arguments cannot be decoded.
    #[track_caller]
    fn garbage(&mut self, program: u32, procedure: u32, arguments: &[u32]) {
        let reply = self.reply(&call_with(XID, [program, 3, procedure], arguments));
        assert_eq!(reply, accepted(XID, accept::GARBAGE_ARGS, &[]));
    }

    /// A handle of a new file.
    fn create(&mut self, name: &[u8]) -> Vec<u8> {
        let arguments = [
            opaque(&self.root),
            opaque(name),
            vec![0],
            NO_ATTRIBUTES.into(),
        ];
        let created = self.results(NFS, nfs::CREATE, &arguments.concat());
        assert_eq!(created[0], 1, "the handle follows");
        self.handle(&created[1..])
    }

    #[track_caller]
    fn check(self) {
        self.target.assert_serves();
    }
}

/// Every procedure that begins with a handle, with good arguments behind it.
fn procedures(handle: &[u8], root: &[u8]) -> Vec<(u32, Vec<Vec<u32>>)> {
    let handle = opaque(handle);
    let name = opaque(b"name");
    let none = NO_ATTRIBUTES.to_vec();
    let to = opaque(root);
    vec![
        (nfs::GETATTR, vec![handle.clone()]),
        (nfs::SETATTR, vec![handle.clone(), none.clone(), vec![0]]),
        (nfs::LOOKUP, vec![handle.clone(), name.clone()]),
        (4, vec![handle.clone(), vec![1]]),
        (nfs::READLINK, vec![handle.clone()]),
        (nfs::READ, vec![handle.clone(), vec![0, 0, 512]]),
        (nfs::WRITE, vec![handle.clone(), vec![0, 0, 4, 2, 4, 7]]),
        (
            nfs::CREATE,
            vec![handle.clone(), name.clone(), vec![0], none.clone()],
        ),
        (nfs::MKDIR, vec![handle.clone(), name.clone(), none.clone()]),
        (
            nfs::SYMLINK,
            vec![handle.clone(), name.clone(), none.clone(), name.clone()],
        ),
        (11, vec![handle.clone(), name.clone(), vec![7], none]),
        (nfs::REMOVE, vec![handle.clone(), name.clone()]),
        (nfs::RMDIR, vec![handle.clone(), name.clone()]),
        (
            nfs::RENAME,
            vec![handle.clone(), name.clone(), to.clone(), name.clone()],
        ),
        (nfs::LINK, vec![handle.clone(), to, name]),
        (nfs::READDIR, vec![handle.clone(), vec![0, 0, 0, 0, 4096]]),
        (
            nfs::READDIRPLUS,
            vec![handle.clone(), vec![0, 0, 0, 0, 4096, 8192]],
        ),
        (18, vec![handle.clone()]),
        (19, vec![handle.clone()]),
        (20, vec![handle.clone()]),
        (nfs::COMMIT, vec![handle, vec![0, 0, 0]]),
    ]
}

#[test]
fn forged_handles_are_refused_wherever_they_were_changed() {
    let mut site = Site::start();
    for at in 0..site.root.len() {
        let mut forged = site.root.clone();
        forged[at] ^= 1;
        // With another number of its format it is none of any server of ours.
        let status = if at < 3 { BADHANDLE } else { STALE };
        site.fails(nfs::GETATTR, &[opaque(&forged)], status);
    }
    site.check();
}

#[test]
fn no_procedure_takes_a_forged_handle() {
    let mut site = Site::start();
    let mut forged = site.root.clone();
    forged[20] ^= 0x80;
    for (procedure, arguments) in procedures(&forged, &site.root) {
        site.fails(procedure, &arguments, STALE);
    }
    site.check();
}

#[test]
fn handles_of_another_length_are_stale_bad_or_garbage() {
    let mut site = Site::start();
    // A handle has 25 to 64 bytes.
    for (length, status) in [
        (0, BADHANDLE),
        (1, BADHANDLE),
        (4, BADHANDLE),
        (24, BADHANDLE),
        (25, STALE),
        (47, STALE),
        (49, STALE),
        (64, STALE),
    ] {
        let mut other = site.root.clone();
        other.resize(length, 0);
        site.fails(nfs::GETATTR, &[opaque(&other)], status);
    }
    // RFC 1813 §2.4: no handle is longer than 64 bytes.
    for length in [65, 400] {
        site.garbage(NFS, nfs::GETATTR, &opaque(&vec![0; length]));
    }
    site.garbage(NFS, nfs::GETATTR, &[u32::MAX]);
    site.check();
}

#[test]
fn handle_of_a_file_that_is_gone_is_stale() {
    let mut site = Site::start();
    let gone = site.create(b"soon gone");
    let name = [opaque(&site.root), opaque(b"soon gone")].concat();
    site.results(NFS, nfs::REMOVE, &name);
    let root = site.root.clone();
    for (procedure, arguments) in procedures(&gone, &root) {
        site.fails(procedure, &arguments, STALE);
    }
    site.check();
}

#[test]
fn names_that_cannot_be_are_refused_in_every_procedure() {
    let mut site = Site::start();
    let root = opaque(&site.root);
    let long = [b'x'; 256];
    let longer = [b'x'; 1000];
    let names: [(&[u8], u32); 9] = [
        (b"", ACCES),
        (b"/", ACCES),
        (b"a/b", ACCES),
        (b"../../etc/passwd", ACCES),
        (b"/etc/passwd", ACCES),
        (b"nul\0", ACCES),
        (b"\0", ACCES),
        (&long, NAMETOOLONG),
        (&longer, NAMETOOLONG),
    ];
    let good = opaque(b"good");
    let none = NO_ATTRIBUTES.to_vec();
    for (name, status) in names {
        let place = [root.clone(), opaque(name)].concat();
        let checks = [
            (nfs::LOOKUP, vec![]),
            (nfs::CREATE, [vec![0], none.clone()].concat()),
            (nfs::MKDIR, none.clone()),
            (nfs::SYMLINK, [none.clone(), good.clone()].concat()),
            (nfs::REMOVE, vec![]),
            (nfs::RMDIR, vec![]),
            (nfs::RENAME, [root.clone(), good.clone()].concat()),
        ];
        for (procedure, rest) in checks {
            site.fails(procedure, &[place.clone(), rest], status);
        }
        let from = [root.clone(), good.clone()].concat();
        site.fails(nfs::RENAME, &[from, place.clone()], status);
        site.fails(nfs::LINK, &[root.clone(), place], status);
    }
    // What is longer than anybody's limit is no argument at all.
    let endless = [root.clone(), vec![u32::MAX, 0]].concat();
    site.garbage(NFS, nfs::LOOKUP, &endless);
    site.check();
}

#[test]
fn dots_do_not_lead_out_and_cannot_be_made_or_removed() {
    let mut site = Site::start();
    let root = site.root.clone();
    for dots in [&b"."[..], b".."] {
        let place = [opaque(&root), opaque(dots)].concat();
        let found = site.results(NFS, nfs::LOOKUP, &place);
        assert_eq!(site.handle(&found), root);
        for procedure in [nfs::REMOVE, nfs::RMDIR] {
            let reply = site.reply(&call_with(XID, [NFS, 3, procedure], &place));
            assert_ne!(reply[6], OK, "procedure {procedure} took {dots:?}");
        }
    }
    site.check();
}

#[test]
fn write_data_of_the_wrong_length_is_refused() {
    let mut site = Site::start();
    let file = opaque(&site.create(b"file"));
    // The count differs from the length of the data.
    for [count, length] in [[5, 4], [3, 4], [0, 4], [u32::MAX, 4]] {
        let arguments = vec![0, 0, count, 0, length, 7];
        site.fails(nfs::WRITE, &[file.clone(), arguments], INVAL);
    }
    // No such stability; data that is not there.
    site.garbage(NFS, nfs::WRITE, &[&file[..], &[0, 0, 4, 3, 4, 7]].concat());
    site.garbage(
        NFS,
        nfs::WRITE,
        &[&file[..], &[0, 0, 400, 0, 400, 7]].concat(),
    );
    // A place beyond any file.
    let beyond = vec![u32::MAX, u32::MAX, 4, 0, 4, 7];
    let reply = site.reply(&call_with(
        XID,
        [NFS, 3, nfs::WRITE],
        &[file.clone(), beyond].concat(),
    ));
    assert_ne!(reply[6], OK);
    // To read there is no error: there is nothing (RFC 1813 §3.3.6).
    let beyond = [&file[..], &[u32::MAX, u32::MAX, u32::MAX]].concat();
    let read = site.results(NFS, nfs::READ, &beyond);
    assert_eq!(read[read.len() - 3..], [0, 1, 0]);
    site.check();
}

#[test]
fn directories_are_listed_only_with_room_and_a_good_cookie() {
    let mut site = Site::start();
    let root = opaque(&site.root);
    for name in [b"a", b"b", b"c"] {
        site.create(name);
    }
    site.fails(nfs::READDIR, &[root.clone(), vec![0, 0, 0, 0, 0]], TOOSMALL);
    site.fails(
        nfs::READDIRPLUS,
        &[root.clone(), vec![0, 0, 0, 0, 8, 8]],
        TOOSMALL,
    );
    // A cookie with a verifier that was never given out.
    let cookie = vec![0, 2, 0xdead, 0xbeef, 4096];
    site.fails(nfs::READDIR, &[root.clone(), cookie], BAD_COOKIE);
    let file = opaque(&site.create(b"file"));
    site.fails(
        nfs::READDIR,
        &[file.clone(), vec![0, 0, 0, 0, 4096]],
        NOTDIR,
    );
    site.fails(nfs::LOOKUP, &[file.clone(), opaque(b"x")], NOTDIR);
    site.fails(nfs::READLINK, &[file], INVAL);
    site.check();
}

#[test]
fn arguments_cut_off_anywhere_are_garbage() {
    let mut site = Site::start();
    let root = site.root.clone();
    for (procedure, arguments) in procedures(&root, &root) {
        let whole = arguments.concat();
        for length in 0..whole.len() {
            site.garbage(NFS, procedure, &whole[..length]);
        }
        site.garbage(NFS, procedure, &[&whole[..], &[0]].concat());
    }
    site.check();
}

#[test]
fn paths_out_of_the_export_cannot_be_mounted() {
    let mut site = Site::start();
    let mut status = |path: &[u8]| {
        let reply = site.reply(&call_with(XID, [MOUNT, 3, MNT], &opaque(path)));
        assert_eq!(reply[..6], accepted(XID, accept::SUCCESS, &[]));
        reply[6]
    };
    for path in [
        &b"/exportx"[..],
        b"/export/missing",
        b"/etc",
        b"export",
        b"",
    ] {
        assert_eq!(status(path), NOENT, "{}", path.escape_ascii());
    }
    for path in [
        &b"/export/.."[..],
        b"/export/../etc",
        b"/../etc",
        b"/export/\0",
        b"/export/./../../etc",
    ] {
        assert_ne!(status(path), OK, "{}", path.escape_ascii());
    }
    let long = [&b"/export/"[..], &[b'x'; 1016]].concat();
    assert_ne!(status(&long), OK);
    site.garbage(MOUNT, MNT, &opaque(&[b'/'; 1025]));
    site.check();
}

#[test]
fn unserved_programs_and_versions_are_reported() {
    let mut site = Site::start();
    let mut says = |program, version, procedure, status, rest: &[u32]| {
        let reply = site.reply(&call(XID, program, version, procedure));
        assert_eq!(reply, accepted(XID, status, rest));
    };
    for version in [0, 1, 2, 4] {
        says(NFS, version, 0, accept::PROG_MISMATCH, &[3, 3]);
        says(MOUNT, version, 0, accept::PROG_MISMATCH, &[3, 3]);
    }
    for procedure in [22, 23, 99, u32::MAX] {
        says(NFS, 3, procedure, accept::PROC_UNAVAIL, &[]);
    }
    says(MOUNT, 3, 6, accept::PROC_UNAVAIL, &[]);
    for version in [0, 2, 4] {
        says(NFSACL, version, 0, accept::PROG_MISMATCH, &[3, 3]);
    }
    for procedure in [3, 4, 22, u32::MAX] {
        says(NFSACL, 3, procedure, accept::PROC_UNAVAIL, &[]);
    }
    says(100_228, 3, 0, accept::PROG_UNAVAIL, &[]);
    site.check();
}

#[test]
fn lists_of_too_many_entries_or_cut_off_are_garbage() {
    let mut site = Site::start();
    let handle = opaque(&site.root);
    let list = |len: u32, entries: usize| [vec![len, len], vec![1; 3 * entries]].concat();
    let set = |access: Vec<u32>| [handle.clone(), vec![1], access, list(0, 0)].concat();
    // One more than there may be, and far more than are here.
    for len in [1025, u32::MAX] {
        site.garbage(NFSACL, SETACL, &set(list(len, 3)));
    }
    site.garbage(NFSACL, SETACL, &set(list(1024, 3)));
    let whole = set(list(5, 5));
    for words in 0..whole.len() {
        site.garbage(NFSACL, SETACL, &whole[..words]);
    }
    site.garbage(NFSACL, GETACL, &handle);
    let mut forged = site.root.clone();
    forged[20] ^= 1;
    let get = [opaque(&forged), vec![15]].concat();
    let reply = site.reply(&call_with(XID, [NFSACL, 3, GETACL], &get));
    assert_eq!(reply, accepted(XID, accept::SUCCESS, &[STALE, 0]));
    site.check();
}

#[test]
fn data_by_reference_where_none_is_eligible_is_refused() {
    let mut site = Site::start();
    site.peer.memory.insert(9, vec![b'x'; 4096]);
    // A name, and a handle, in a Read chunk (RFC 8267 §4: only the data of a WRITE may be).
    let arguments = [opaque(&site.root), vec![8]].concat();
    let lookup = call_with(XID, [NFS, 3, nfs::LOOKUP], &arguments);
    let position = u32::try_from(lookup.len() * 4).unwrap();
    for position in [position, 44, 4] {
        let header = [XID, 1, 4, 0, 1, position, 9, 8, 0, 0, 0, 0, 0];
        site.peer.send(&words(&[&header[..], &lookup].concat()));
        assert_eq!(site.peer.answer(), [XID, 1, 4, 4, 2]);
    }
    site.check();
}

#[test]
fn data_of_another_length_than_the_write_says_is_garbage() {
    let mut site = Site::start();
    site.peer.memory.insert(9, vec![b'x'; 4096]);
    let garbage = accepted(XID, accept::GARBAGE_ARGS, &[]);
    let file = opaque(&site.create(b"file"));
    for length in [1, 7, 99] {
        let arguments = [&file[..], &[0, 0, 8, 2, 8]].concat();
        let write = call_with(XID, [NFS, 3, nfs::WRITE], &arguments);
        let position = u32::try_from(write.len() * 4).unwrap();
        let header = [XID, 1, 4, 0, 1, position, 9, length, 0, 0, 0, 0, 0];
        site.peer.send(&words(&[&header[..], &write].concat()));
        assert_eq!(site.peer.answer(), msg(XID, 4, &garbage));
    }
    site.check();
}

#[test]
fn read_is_refused_whose_data_fits_neither_inline_nor_the_chunk_that_is_offered() {
    const CHUNK: u32 = 1000;
    let mut site = Site::start();
    let file = site.create(b"file");
    let data = vec![7; 3000];
    let written = [opaque(&file), vec![0, 0, 3000, 2], opaque(&data)].concat();
    site.results(NFS, nfs::WRITE, &written);
    // A Write chunk of 1000 bytes, or none; what comes back for a READ of so many bytes from there.
    let mut read = |chunk: bool, offset: u32, count: u32| {
        let arguments = [opaque(&file), vec![0, offset, count]].concat();
        let call = call_with(XID, [NFS, 3, nfs::READ], &arguments);
        let writes: &[u32] = match chunk {
            true => &[1, 1, 0x77, CHUNK, 0, 0, 0],
            false => &[0],
        };
        let header = [&[XID, 1, 4, 0, 0][..], writes, &[0]].concat();
        site.peer.memory.insert(0x77, vec![0; CHUNK as usize]);
        site.peer.send(&words(&[header, call].concat()));
        let answer = site.peer.answer();
        // RDMA_MSG, or RDMA_ERROR with ERR_CHUNK.
        match answer[3] {
            0 => true,
            4 => {
                assert_eq!(answer[4], 2);
                false
            }
            other => panic!("procedure {other}"),
        }
    };
    assert!(read(true, 0, CHUNK));
    assert!(!read(true, 0, CHUNK + 1));
    assert!(read(true, 2000, 1 << 20), "so much is left");
    assert!(!read(true, 1999, 1 << 20));
    assert!(read(false, 0, 3000));
    // NFS said so, before it read.
    assert_eq!(site.refused.load(SeqCst), 2);
    site.check();
}
