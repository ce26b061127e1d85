//! Reply sizes and what a transport can carry.

use super::*;
use crate::fs::{
    self, Abilities, Attributes, Changed, CreateHow, DirBudget, DirFrom, DirPage, Linked, Make,
    Name, ReadOut, Renamed, Space, Stability, Step, WriteOut,
};
use oncrpc::ReplyRoom;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

/// Bytes of the file.
const SIZE: u32 = 10_000;

/// Bytes of a reply to READ without its data.
const READ_FRAME: usize = 24 + 4 + 88 + 4 + 4 + 4;

/// A file system with one file, which notes the calls that read it, and how much of a directory they
/// ask for.
struct OneFile {
    inner: MemFs,
    file: FileId,
    /// Its attributes have to be waited for.
    slow: bool,
    reads: AtomicU32,
    listed: AtomicUsize,
}

impl OneFile {
    fn new(slow: bool) -> Self {
        let (inner, who) = (MemFs::new(1 << 20), Identity::root());
        let make = Make::File(CreateHow::Guarded(fs::SetAttributes::default()));
        let made = inner.make(&who, inner.root(), Name::new(b"file").unwrap(), make);
        let file = made.wait().result.unwrap().file;
        let data = Gather::from_elem(Bytes::from(vec![7; SIZE as usize]), 1);
        let wrote = inner.write(&who, file, 0, data, Stability::Unstable);
        wrote.wait().result.unwrap();
        Self {
            inner,
            file,
            slow,
            reads: AtomicU32::new(0),
            listed: AtomicUsize::new(0),
        }
    }
}

/// Nothing else is asked for here.
const UNUSED: &str = "only READ and READDIR are called";

impl FileSystem for OneFile {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    fn write_verifier(&self) -> u64 {
        self.inner.write_verifier()
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        let found = self.inner.attributes(file).wait();
        match self.slow {
            true => Outcome::Slow(Box::new(move || found)),
            false => Outcome::Ready(found),
        }
    }

    fn read(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        self.reads.fetch_add(1, SeqCst);
        self.inner.read(who, file, offset, count)
    }

    fn set_attributes(
        &self,
        _: &Identity,
        _: FileId,
        _: fs::SetAttributes,
        _: Option<fs::Time>,
    ) -> Outcome<Changed<()>> {
        unreachable!("{UNUSED}")
    }

    fn lookup(&self, _: &Identity, _: FileId, _: Step<'_>) -> Outcome<Seen<Found>> {
        unreachable!("{UNUSED}")
    }

    fn access(&self, _: &Identity, _: FileId, _: fs::Access) -> Outcome<Seen<fs::Access>> {
        unreachable!("{UNUSED}")
    }

    fn read_link(&self, _: &Identity, _: FileId) -> Outcome<Seen<Bytes>> {
        unreachable!("{UNUSED}")
    }

    fn write(
        &self,
        _: &Identity,
        _: FileId,
        _: u64,
        _: Gather,
        _: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        unreachable!("{UNUSED}")
    }

    fn commit(&self, _: &Identity, _: FileId, _: u64, _: u32) -> Outcome<Changed<()>> {
        unreachable!("{UNUSED}")
    }

    fn make(&self, _: &Identity, _: FileId, _: Name<'_>, _: Make) -> Outcome<Changed<Found>> {
        unreachable!("{UNUSED}")
    }

    fn remove(&self, _: &Identity, _: FileId, _: Name<'_>) -> Outcome<Changed<()>> {
        unreachable!("{UNUSED}")
    }

    fn remove_directory(&self, _: &Identity, _: FileId, _: Name<'_>) -> Outcome<Changed<()>> {
        unreachable!("{UNUSED}")
    }

    fn rename(
        &self,
        _: &Identity,
        _: (FileId, Name<'_>),
        _: (FileId, Name<'_>),
    ) -> Outcome<Renamed> {
        unreachable!("{UNUSED}")
    }

    fn link(&self, _: &Identity, _: FileId, _: FileId, _: Name<'_>) -> Outcome<Linked> {
        unreachable!("{UNUSED}")
    }

    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        self.listed.fetch_add(budget.total, SeqCst);
        self.inner.read_directory(who, dir, from, budget, plus)
    }

    fn space(&self, _: FileId) -> Outcome<Seen<Space>> {
        unreachable!("{UNUSED}")
    }
}

/// Makes a call whose reply has this room.
fn ask<'a, A: Arguments<'a>>(peer: &Peer, args: &A, room: ReplyRoom) -> Reply {
    let target = oncrpc::Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    let mut w = Writer::new(Buffer::with_capacity(1024));
    write_call(&mut w, 7, target, &peer.cred);
    args.write(&mut w);
    let caller = Caller {
        reply_room: room,
        ..Caller::new(LOOPBACK.parse().unwrap())
    };
    match peer.programs.call(w.finish(), &caller) {
        Answer::Now(reply) => reply,
        Answer::Blocking(job) => job(),
        Answer::Deferred(job) => Respond::wait(job).unwrap(),
        Answer::Later(_) => panic!("nothing here is a future"),
    }
}

/// Lists the root with as much room as `bytes`, though it asks for more. Returns the size of the reply,
/// and the bytes of entries that the file system was asked for.
#[track_caller]
fn list(bytes: usize, plus: bool) -> (usize, usize) {
    let one = Arc::new(OneFile::new(false));
    let who = Identity::root();
    for number in 0..100 {
        let name = format!("file with number {number}");
        let make = Make::File(CreateHow::Guarded(fs::SetAttributes::default()));
        let name = Name::new(name.as_bytes()).unwrap();
        let made = one.inner.make(&who, one.inner.root(), name, make);
        made.wait().result.unwrap();
    }
    let options = ExportOptions::default().with_squash(Squash::None);
    let peer = Peer::over(Arc::clone(&one) as Arc<dyn FileSystem>, options);
    let (dir, cookie, verifier) = (peer.root(), Cookie(0), CookieVerifier::default());
    let most = 1 << 20;
    let room = ReplyRoom::of_message(bytes).with_chunks([Some(1 << 20)]);
    let reply = match plus {
        false => {
            let args = args::ReadDir {
                dir,
                cookie,
                verifier,
                count: most,
            };
            ask(&peer, &args, room)
        }
        true => {
            let args = args::ReadDirPlus {
                dir,
                cookie,
                verifier,
                dir_count: most,
                max_count: most,
            };
            ask(&peer, &args, room)
        }
    };
    let Reply::Message(reply) = reply else {
        panic!("it is answered");
    };
    (reply.stream_len(), one.listed.load(SeqCst))
}

#[test]
fn directory_is_read_as_far_as_the_reply_has_room_and_no_further() {
    for plus in [false, true] {
        let (all, _) = list(1 << 20, plus);
        assert!(all > 4096);
        for room in [0, 200, 1000, 4096 - 40] {
            let (reply, listed) = list(room, plus);
            assert!(listed <= room, "{plus} {room}: {listed}");
            let too_small = 24 + 4 + 4 + 84;
            assert!(reply <= room.max(too_small), "{plus} {room}: {reply}");
            assert!(reply > room / 2, "what fits is returned: {reply}");
        }
        assert_eq!(list(all + 4096, plus).0, all);
    }
}

/// Reads where the transport can carry this; bytes of data in the reply, or none if the call is
/// refused. The file system is asked to read only if it is not.
#[track_caller]
fn check(room: ReplyRoom, offset: u64, count: u32, read: Option<usize>) {
    for slow in [false, true] {
        let one = Arc::new(OneFile::new(slow));
        let options = ExportOptions::default().with_squash(Squash::None);
        let peer = Peer::over(Arc::clone(&one) as Arc<dyn FileSystem>, options);
        let got = match ask(
            &peer,
            &read_args(peer.handle(one.file), offset, count),
            room,
        ) {
            Reply::Message(payload) => {
                assert_eq!(payload.head().len(), READ_FRAME);
                Some(payload.items().iter().map(xdr::Item::len).sum())
            }
            Reply::TooLarge(size) => {
                // What is said to be missing is missing.
                assert!(!room.carries(&size));
                None
            }
            Reply::Nothing | Reply::Ineligible => {
                panic!("it is a call without arguments in chunks")
            }
        };
        assert_eq!(got, read, "{room:?}");
        assert_eq!(one.reads.load(SeqCst), u32::from(read.is_some()));
    }
}

#[test]
fn read_whose_data_cannot_be_returned_is_refused_before_the_file_is_read() {
    let inline = ReplyRoom::of_message(READ_FRAME + 4000);
    check(inline, 0, 4000, Some(4000));
    check(inline, 0, 4001, None);
    check(inline, 0, u32::MAX, None);
    let chunk = inline.with_chunks([Some(8000)]);
    check(chunk, 0, 8000, Some(8000));
    check(chunk, 0, 8001, None);
    // A Write chunk is used if there is one, however small.
    check(inline.with_chunks([Some(100)]), 0, 101, None);
    check(ReplyRoom::of_message(READ_FRAME - 1), 0, 0, None);
}

#[test]
fn read_beyond_the_end_of_a_file_needs_room_for_what_is_left_only() {
    let inline = ReplyRoom::of_message(READ_FRAME + 4000);
    check(inline, u64::from(SIZE) - 4000, 1 << 20, Some(4000));
    check(inline, u64::from(SIZE) - 4001, 1 << 20, None);
    check(inline, u64::from(SIZE), 1 << 20, Some(0));
    check(inline, u64::MAX, 1 << 20, Some(0));
    let chunk = inline.with_chunks([Some(8000)]);
    check(chunk, 2000, 1 << 20, Some(8000));
    check(chunk, 1999, 1 << 20, None);
    check(ReplyRoom::UNLIMITED, 0, u32::MAX, Some(SIZE as usize));
}

/// The bound that the program gives for a call of which only so many bytes are here.
fn bound<'a, A: Arguments<'a>>(args: &A, here: usize) -> Option<ReplyBound> {
    let peer = Peer::new();
    let mut w = Writer::new(Buffer::with_capacity(1024));
    let target = oncrpc::Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    write_call(&mut w, 7, target, &Credential::None);
    args.write(&mut w);
    let payload = w.finish();
    let head = payload.head();
    peer.programs.reply_bound(ReceivedCall {
        bytes: &head[..head.len().min(here)],
        items: &[],
    })
}

#[test]
fn replies_are_bounded_by_what_is_asked_for_and_by_what_is_ever_returned() {
    let peer = Peer::new();
    let file = peer.root();
    let data = |count| bound(&read_args(file, 0, count), 1000).unwrap().results[0];
    assert_eq!([0, 4096, u32::MAX].map(data), [0, 4096, MAX_READ as usize]);
    let list = |count| {
        let args = args::ReadDir {
            dir: file,
            cookie: Cookie(0),
            verifier: CookieVerifier::default(),
            count,
        };
        bound(&args, 1000).unwrap().fixed
    };
    assert!(list(4096) < 4096 + 200);
    assert!(list(u32::MAX) < (256 << 10) + 200);
}

#[test]
fn bound_is_known_as_soon_as_what_it_depends_on_is_here() {
    let peer = Peer::new();
    let file = peer.root();
    // Of a WRITE everything but its data.
    let write = write_args(file, 0, &[7; 900]);
    assert!(bound(&write, 40).is_some_and(|bound| bound.fixed < 300));
    assert!(bound(&write, 39).is_none(), "half a header");
    assert!(bound(&read_args(file, 0, 10), 60).is_none(), "no count yet");
    assert!(bound(&mount::Null, 1000).is_none(), "MOUNT says nothing");
}
