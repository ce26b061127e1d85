//! Retransmitted calls.

use super::*;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

impl Peer {
    fn send<'a, A: Arguments<'a>>(&self, xid: u32, args: &A) -> Answer {
        self.send_message(self.message(xid, args))
    }

    fn message<'a, A: Arguments<'a>>(&self, xid: u32, args: &A) -> Payload {
        let mut w = Writer::new(Buffer::with_capacity(4096));
        let target = oncrpc::Procedure {
            prog: A::PROGRAM,
            vers: A::VERSION,
            proc: A::PROCEDURE,
        };
        write_call(&mut w, xid, target, &self.cred);
        args.write(&mut w);
        w.finish()
    }

    fn send_message(&self, message: Payload) -> Answer {
        self.send_on(&self.connect(), message)
    }

    /// A new connection.
    fn connect(&self) -> Caller {
        Caller::new(self.from.parse().unwrap())
    }

    fn send_on(&self, connection: &Caller, message: Payload) -> Answer {
        self.programs.call(message, connection)
    }

    /// The same as [`remove`](Self::remove) on this connection.
    fn remove_on(&self, connection: &Caller, xid: u32) -> Option<Status> {
        let object = place(self.root(), "f");
        match self.send_on(connection, self.message(xid, &args::Remove { object })) {
            Answer::Now(reply) => status_of(&reply, xid),
            Answer::Blocking(job) => status_of(&job(), xid),
            Answer::Deferred(job) => status_of(&Respond::wait(job).unwrap(), xid),
            Answer::Later(_) => panic!("nobody else is executing it"),
        }
    }

    /// Status of a REMOVE of `f` with this transaction id, on a connection of its own.
    fn remove(&self, xid: u32) -> Option<Status> {
        self.remove_on(&self.connect(), xid)
    }
}

/// The call with all its data in the stream, as a transport brings it that moved nothing.
fn inline(call: &Payload) -> Payload {
    let mut whole = Buffer::default();
    call.copy_stream_into(&mut whole);
    Payload::new(whole, 0)
}

/// The status of a failure, none for success.
fn status_of(reply: &Reply, xid: u32) -> Option<Status> {
    let Reply::Message(payload) = reply else {
        panic!("{reply:?}")
    };
    let status = read_reply(payload, xid).unwrap().u32().unwrap();
    (status != 0).then(|| Status::try_from(status).unwrap())
}

fn poll(future: &mut Pin<Box<dyn Future<Output = Reply> + Send>>) -> Poll<Reply> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// A peer of a file system whose changes are jobs.
fn slow() -> (Peer, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"").unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    (Peer::over(Arc::new(local), options), dir)
}

#[test]
fn retransmitted_call_gets_the_same_results() {
    let mut peer = Peer::new();
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    assert_eq!(peer.remove(100), None);
    peer.from = "127.0.0.1:999";
    assert_eq!(peer.remove(100), None, "from another port");
    assert_eq!(peer.remove(101), Some(Status::NoEntry));
    // The failure is remembered as well.
    create(&peer, "f");
    assert_eq!(peer.remove(101), Some(Status::NoEntry));
}

#[test]
fn retransmitted_write_does_not_undo_a_later_one() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let write = |xid, data| match peer.send(xid, &write_args(file, 0, data)) {
        Answer::Now(reply) => assert_eq!(status_of(&reply, xid), None),
        Answer::Blocking(_) | Answer::Deferred(_) | Answer::Later(_) => {
            panic!("memory does not wait")
        }
    };
    write(100, b"first");
    write(101, b"later");
    // A copy that stood still on a connection that is lost by now.
    write(100, b"first");
    let Answer::Now(Reply::Message(read)) = peer.send(102, &read_args(file, 0, 9)) else {
        panic!("memory does not wait")
    };
    assert!(
        inline(&read)
            .head()
            .windows(5)
            .any(|bytes| bytes == b"later")
    );
}

/// Large WRITEs that differ only behind what one may be tempted to compare.
#[test]
fn large_write_is_another_call_if_one_byte_of_its_data_is_another() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let write = |xid, data: &[u8], by_reference: bool| {
        let mut message = peer.message(xid, &write_args(file, 0, data));
        if !by_reference {
            message = inline(&message);
        }
        match peer.send_message(message) {
            Answer::Now(reply) => assert_eq!(status_of(&reply, xid), None),
            Answer::Blocking(_) | Answer::Deferred(_) | Answer::Later(_) => {
                panic!("memory does not wait")
            }
        }
    };
    let read = |xid| {
        let Answer::Now(Reply::Message(read)) = peer.send(xid, &read_args(file, 0, 1 << 16)) else {
            panic!("memory does not wait")
        };
        inline(&read).head().to_vec()
    };
    let first = vec![7; 1 << 16];
    for (xid, at) in [(100, 1024), (200, 5000), (300, (1 << 16) - 1)] {
        let mut second = first.clone();
        second[at] = 8;
        write(xid, &first, true);
        write(xid, &second, true);
        assert!(read(500).ends_with(&second), "byte {at} was written");
        // Both are remembered, whichever way they come.
        write(xid, &first, false);
        assert!(read(500).ends_with(&second), "nothing was undone");
        write(xid + 1, &first, true);
        write(xid, &second, false);
        assert!(read(500).ends_with(&first), "nothing was undone");
    }
}

#[test]
fn same_xid_from_another_client_is_another_call() {
    let mut peer = Peer::new();
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    peer.from = "127.0.0.2:700";
    assert_eq!(peer.remove(100), Some(Status::NoEntry));
    peer.from = LOOPBACK;
    peer.cred = user(1);
    assert_eq!(peer.remove(100), Some(Status::NoEntry));
}

/// Several machines share an address behind a translating router.
#[test]
fn same_xid_from_another_machine_of_an_address_is_another_call() {
    let named = |name: &[u8], stamp| {
        Credential::Sys(AuthSys {
            machine_name: name.into(),
            stamp,
            ..AuthSys::default()
        })
    };
    let mut peer = Peer::new();
    create(&peer, "f");
    peer.cred = named(b"one", 1);
    assert_eq!(peer.remove(100), None);
    peer.cred = named(b"two", 1);
    assert_eq!(peer.remove(100), Some(Status::NoEntry));
    peer.cred = named(b"one", 2);
    assert_eq!(peer.remove(100), None, "it came at another time");
}

#[test]
fn call_comes_again_from_another_address_of_its_64() {
    let mut peer = Peer::over(
        Arc::new(MemFs::new(1 << 20)),
        ExportOptions::default()
            .with_squash(Squash::None)
            .with_allow(AccessList::new(["2001:db8::/32".parse().unwrap()])),
    );
    peer.from = "[2001:db8::1]:700";
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    peer.from = "[2001:db8::2]:701";
    assert_eq!(peer.remove(100), None);
    peer.from = "[2001:db8:0:1::1]:700";
    assert_eq!(peer.remove(100), Some(Status::NoEntry));
}

#[test]
fn same_xid_with_other_arguments_is_another_call() {
    let peer = Peer::new();
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    let object = place(peer.root(), "g");
    let Answer::Now(reply) = peer.send(100, &args::Remove { object }) else {
        panic!("memory does not wait")
    };
    assert_eq!(status_of(&reply, 100), Some(Status::NoEntry));
}

#[test]
fn call_retransmitted_during_execution_waits_for_the_results() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let Answer::Deferred(job) = peer.send(100, &args::Remove { object }) else {
        panic!("a change is a job")
    };
    let Answer::Later(mut again) = peer.send(100, &args::Remove { object }) else {
        panic!("the results are not there yet")
    };
    assert!(poll(&mut again).is_pending());
    assert_eq!(status_of(&Respond::wait(job).unwrap(), 100), None);
    let Poll::Ready(reply) = poll(&mut again) else {
        panic!("the results are there")
    };
    assert_eq!(status_of(&reply, 100), None);
}

#[test]
fn call_is_the_same_whether_its_data_came_in_a_chunk_or_in_the_stream() {
    let peer = Peer::new();
    let status = |xid, text: &[u8], by_reference: bool| {
        let call = args::Symlink {
            place: place(peer.root(), "link"),
            attributes: SetAttributes::default(),
            target: Path::from(text),
        };
        let mut message = peer.message(xid, &call);
        assert_eq!(message.items().len(), 1);
        if !by_reference {
            message = inline(&message);
        }
        match peer.send_message(message) {
            Answer::Now(reply) => status_of(&reply, xid),
            Answer::Blocking(_) | Answer::Deferred(_) | Answer::Later(_) => {
                panic!("memory does not wait")
            }
        }
    };
    assert_eq!(status(100, b"one", true), None);
    assert_eq!(status(100, b"one", false), None);
    assert_eq!(status(100, b"two", true), Some(Status::Exist));
    assert_eq!(status(101, b"one", false), Some(Status::Exist));
}

#[test]
fn only_the_last_of_several_retransmissions_gets_the_results() {
    let (mut peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let Answer::Deferred(job) = peer.send(100, &args::Remove { object }) else {
        panic!("a change is a job")
    };
    let mut again = |from| {
        peer.from = from;
        match peer.send(100, &args::Remove { object }) {
            Answer::Later(reply) => reply,
            _ => panic!("it is being executed"),
        }
    };
    let mut second = again("127.0.0.1:701");
    assert!(poll(&mut second).is_pending());
    let mut third = again("127.0.0.1:702");
    assert!(matches!(poll(&mut second), Poll::Ready(Reply::Nothing)));
    assert!(poll(&mut third).is_pending());
    assert_eq!(status_of(&Respond::wait(job).unwrap(), 100), None);
    let Poll::Ready(reply) = poll(&mut third) else {
        panic!("the results are there")
    };
    assert_eq!(status_of(&reply, 100), None);
}

#[test]
fn call_retransmitted_on_the_same_connection_is_dropped() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let caller = Caller::new(peer.from.parse().unwrap());
    let send = || {
        let message = peer.message(100, &args::Remove { object });
        peer.programs.call(message, &caller)
    };
    let Answer::Deferred(job) = send() else {
        panic!("a change is a job")
    };
    assert!(matches!(send(), Answer::Now(Reply::Nothing)));
    assert_eq!(status_of(&Respond::wait(job).unwrap(), 100), None);
    let Answer::Now(reply) = send() else {
        panic!("the results are there")
    };
    assert_eq!(status_of(&reply, 100), None);
}

#[test]
fn call_whose_execution_never_began_is_executed_when_retransmitted() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let first = peer.send(100, &args::Remove { object });
    let Answer::Later(mut again) = peer.send(100, &args::Remove { object }) else {
        panic!("the results are not there yet")
    };
    // The connection ended before a thread was free.
    drop(first);
    let Poll::Ready(reply) = poll(&mut again) else {
        panic!("nobody is executing it any more")
    };
    assert_eq!(status_of(&reply, 100), Some(Status::Jukebox));
    assert_eq!(peer.remove(100), None);
    assert_eq!(peer.remove(101), Some(Status::NoEntry));
}

#[test]
fn number_of_cached_replies_is_bounded() {
    let peer = Peer::new();
    create(&peer, "f");
    let connection = peer.connect();
    assert_eq!(peer.remove_on(&connection, 100), None);
    for xid in 1000..3000 {
        assert_eq!(peer.remove_on(&connection, xid), Some(Status::NoEntry));
    }
    assert_eq!(peer.remove(100), Some(Status::NoEntry), "it was forgotten");
}

#[test]
fn busy_client_does_not_evict_replies_to_other_clients() {
    let mut peer = Peer::new();
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    peer.from = "127.0.0.2:700";
    let connection = peer.connect();
    for xid in 1000..10_000 {
        assert_eq!(peer.remove_on(&connection, xid), Some(Status::NoEntry));
    }
    peer.from = LOOPBACK;
    assert_eq!(peer.remove(100), None);
}

#[test]
fn call_in_execution_is_not_evicted() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let connection = peer.connect();
    let first = peer.send_on(&connection, peer.message(100, &args::Remove { object }));
    for xid in 1000..3000 {
        let object = place(peer.root(), "none");
        let message = peer.message(xid, &args::Remove { object });
        let Answer::Deferred(job) = peer.send_on(&connection, message) else {
            panic!("a change is a job")
        };
        assert_eq!(
            status_of(&Respond::wait(job).unwrap(), xid),
            Some(Status::NoEntry)
        );
    }
    let again = peer.send(100, &args::Remove { object });
    assert!(matches!(again, Answer::Later(_)));
    drop(first);
}
