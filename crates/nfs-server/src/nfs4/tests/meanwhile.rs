//! Changes that come while an operation waits for the file system.

use super::*;
use crate::fs::{
    Attributes, Changed, DirBudget, DirFrom, DirPage, Error, FileId, Found, HeldFile, Identity,
    Make, Name, OpenAccess, Outcome, ReadOut, Seen, Stability, Step, WriteOut,
};
use nfs_proto::v4::StateId;
use nfs_proto::v4::file::{ReadArgs, WriteArgs};
use nfs_proto::v4::open::CloseArgs;
use oncrpc::PeerGroup;
use oncrpc::xdr::Gather;
use std::sync::Mutex;

/// A call to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Lookup,
    Make,
    Open,
    Read,
    Write,
}

type Change = Box<dyn FnOnce() + Send>;

/// Files whose next call of one kind waits, and meanwhile something happens.
struct Waiting {
    inner: MemFs,
    next: Mutex<Option<(Point, Change)>>,
    /// The call of this kind that panics.
    fault: Mutex<Option<Point>>,
}

impl Waiting {
    fn site() -> (Arc<Self>, Site) {
        let fs = Arc::new(Self {
            inner: MemFs::new(1 << 20),
            next: Mutex::default(),
            fault: Mutex::default(),
        });
        let site = Site::over(Arc::clone(&fs) as _, None);
        (fs, site)
    }

    fn meanwhile(&self, point: Point, change: impl FnOnce() + Send + 'static) {
        *self.next.lock().unwrap() = Some((point, Box::new(change)));
    }

    fn pass<T: Send + 'static>(&self, point: Point, outcome: Outcome<T>) -> Outcome<T> {
        let fault = self.fault.lock().unwrap().take_if(|at| *at == point);
        assert_eq!(fault, None, "a fault that a test makes");
        let mut next = self.next.lock().unwrap();
        match next.take_if(|(at, _)| *at == point) {
            Some((_, change)) => Outcome::Slow(Box::new(move || {
                change();
                outcome.wait()
            })),
            None => outcome,
        }
    }
}

impl FileSystem for Waiting {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        self.inner.attributes(file)
    }

    fn lookup(&self, who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>> {
        self.pass(Point::Lookup, self.inner.lookup(who, dir, step))
    }

    fn open(
        &self,
        who: &Identity,
        file: FileId,
        access: OpenAccess,
        holder: PeerGroup,
    ) -> Outcome<Result<Arc<dyn HeldFile>, Error>> {
        self.pass(Point::Open, self.inner.open(who, file, access, holder))
    }

    fn read(&self, who: &Identity, file: FileId, at: u64, count: u32) -> Outcome<Seen<ReadOut>> {
        self.pass(Point::Read, self.inner.read(who, file, at, count))
    }

    fn write(
        &self,
        who: &Identity,
        file: FileId,
        at: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        let written = self.inner.write(who, file, at, data, stability);
        self.pass(Point::Write, written)
    }

    fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
        what: Make,
    ) -> Outcome<Changed<Found>> {
        self.pass(Point::Make, self.inner.make(who, dir, name, what))
    }

    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        self.inner.read_directory(who, dir, from, budget, plus)
    }
}

fn write(state: StateId) -> ArgOp<'static> {
    ArgOp::Write(WriteArgs {
        state,
        offset: 0,
        stable: nfs_proto::Stable::Unstable,
        data: nfs_proto::Data::from(&b"hello"[..]),
    })
}

fn read(state: StateId) -> ArgOp<'static> {
    ArgOp::Read(ReadArgs {
        state,
        offset: 0,
        count: 10,
    })
}

/// Sends a COMPOUND on a file that will wait; returns it.
fn begin(client: &Client<'_>, operation: ArgOp<'_>) -> Answer {
    client.sequence.set(client.sequence.get() + 1);
    let operations = vec![
        client.sequence(client.sequence.get(), true),
        ArgOp::PutRootFh,
        lookup("srv"),
        lookup("data"),
        lookup("f"),
        operation,
    ];
    let call = compound_of(2, &root(), operations);
    client.site.programs.call(call, &client.caller)
}

/// Opens the file, and closes it again.
fn open_and_close(client: &Client<'_>, access: ShareAccess, deny: ShareDeny) -> Result<(), Status> {
    let opened = client.at(&[], vec![open("f", access, deny)]);
    if let ResOp::Open(Ok(opened)) = opened.last() {
        let (seqid, state) = (0, opened.state);
        let close = ArgOp::Close(CloseArgs { seqid, state });
        client.at(&["f"], vec![close]).ok();
    }
    opened.status()
}

fn end(answer: Answer) -> Results {
    match answer {
        Answer::Deferred(job) => Results::of(Respond::wait(job).expect("a reply")),
        _ => panic!("it waits"),
    }
}

#[test]
fn nothing_is_denied_while_it_is_being_done_without_an_open() {
    let (fs, site) = Waiting::site();
    let (one, two) = (site.client(b"one"), site.client(b"two"));
    open_and_close(&one, ShareAccess::READ, ShareDeny::empty()).unwrap();
    let special = StateId::default();
    for (point, operation, deny, other) in [
        (
            Point::Write,
            write(special),
            ShareDeny::WRITE,
            ShareDeny::READ,
        ),
        (
            Point::Read,
            read(special),
            ShareDeny::READ,
            ShareDeny::WRITE,
        ),
    ] {
        let denied = |deny| open_and_close(&two, ShareAccess::READ, deny);
        for is_dropped in [false, true] {
            fs.meanwhile(point, || {});
            let waiting = begin(&one, operation.clone());
            assert_eq!(denied(deny), Err(Status::Delay));
            assert_eq!(denied(other), Ok(()));
            match is_dropped {
                false => end(waiting).ok(),
                true => drop(waiting),
            }
            assert_eq!(denied(deny), Ok(()));
        }
    }
}

#[test]
fn open_of_an_export_that_is_removed_meanwhile_is_not_granted() {
    for point in [Point::Lookup, Point::Make, Point::Open] {
        let (fs, site) = Waiting::site();
        let client = site.client(b"one");
        if point == Point::Open {
            open_and_close(&client, ShareAccess::READ, ShareDeny::empty()).unwrap();
        }
        let nfs = site.nfs.clone();
        fs.meanwhile(point, move || {
            let exports = &nfs.inner.exports;
            let before = exports.before();
            exports.replace(&exports.none());
            assert_eq!(nfs.exports_replaced(&before), 0);
        });
        let opened = client.at(&[], vec![open("f", ShareAccess::READ, ShareDeny::empty())]);
        assert_eq!(opened.status(), Err(Status::Stale), "{point:?}");
        assert_eq!(site.nfs.state().usage().states, 0, "{point:?}");
        let root = fs.inner.root();
        let f = Step::Name(Name::new(b"f").unwrap());
        let found = fs.inner.lookup(&Identity::default(), root, f).wait();
        assert_eq!(found.result.is_ok(), point != Point::Lookup, "{point:?}");
    }
}

#[test]
fn client_that_has_ended_meanwhile_opens_and_makes_nothing() {
    for point in [Point::Lookup, Point::Make, Point::Open] {
        let (fs, site) = Waiting::site();
        let client = site.client(b"one");
        let (nfs, id) = (site.nfs.clone(), client.client);
        fs.meanwhile(point, move || nfs.state().expire_client(id).unwrap());
        let opened = client.at(&[], vec![open("f", ShareAccess::READ, ShareDeny::empty())]);
        // RFC 8881 §15.2: NFS4ERR_STALE_CLIENTID is none of OPEN.
        assert_eq!(opened.status(), Err(Status::Expired), "{point:?}");
        assert_eq!(site.nfs.state().usage().states, 0, "{point:?}");
        let root = fs.inner.root();
        let f = Step::Name(Name::new(b"f").unwrap());
        let found = fs.inner.lookup(&Identity::default(), root, f).wait();
        assert_eq!(found.result.is_ok(), point != Point::Lookup, "{point:?}");
    }
}

#[test]
fn request_that_panics_is_over_for_its_slot() {
    let (fs, site) = Waiting::site();
    let client = site.client(b"one");
    client.open("f", ShareAccess::READ);
    *fs.fault.lock().unwrap() = Some(Point::Read);
    let call = || begin(&client, read(StateId::default()));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    assert!(panicked.is_err());
    client.sequence.set(client.sequence.get() - 1);
    let Answer::Now(retry) = call() else {
        panic!("it waits for the request that panicked");
    };
    assert_eq!(Results::of(retry).status(), Err(Status::ServerFault));
    client.at(&["f"], vec![read(StateId::default())]).ok();
}
