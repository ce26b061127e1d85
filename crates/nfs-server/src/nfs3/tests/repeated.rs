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
        let caller = Caller::new(self.from.parse().unwrap());
        self.programs.call(message, &caller)
    }

    /// Status of a REMOVE of `f` with this transaction id.
    fn remove(&self, xid: u32) -> Option<Status> {
        let object = place(self.root(), "f");
        match self.send(xid, &args::Remove { object }) {
            Answer::Now(reply) => status_of(&reply, xid),
            Answer::Blocking(job) => status_of(&job(), xid),
            Answer::Later(_) => panic!("nobody else is executing it"),
        }
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
    let options = ExportOptions {
        squash: Squash::None,
        ..ExportOptions::default()
    };
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
        Answer::Blocking(_) | Answer::Later(_) => panic!("memory does not wait"),
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
    let Answer::Blocking(job) = peer.send(100, &args::Remove { object }) else {
        panic!("a change is a job")
    };
    let Answer::Later(mut again) = peer.send(100, &args::Remove { object }) else {
        panic!("the results are not there yet")
    };
    assert!(poll(&mut again).is_pending());
    assert_eq!(status_of(&job(), 100), None);
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
            Answer::Blocking(_) | Answer::Later(_) => panic!("memory does not wait"),
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
    let Answer::Blocking(job) = peer.send(100, &args::Remove { object }) else {
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
    assert_eq!(status_of(&job(), 100), None);
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
    let Answer::Blocking(job) = send() else {
        panic!("a change is a job")
    };
    assert!(matches!(send(), Answer::Now(Reply::Nothing)));
    assert_eq!(status_of(&job(), 100), None);
    let Answer::Now(reply) = send() else {
        panic!("the results are there")
    };
    assert_eq!(status_of(&reply, 100), None);
}

#[test]
fn more_calls_in_flight_than_can_be_remembered_are_answered_with_jukebox() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let in_flight: Vec<Answer> = (0..1024)
        .map(|xid| peer.send(xid, &args::Remove { object }))
        .collect();
    assert_eq!(peer.remove(5000), Some(Status::Jukebox));
    drop(in_flight);
    assert_eq!(peer.remove(5000), None, "none of those was executed");
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
    assert_eq!(peer.remove(100), None);
    for xid in 1000..3000 {
        assert_eq!(peer.remove(xid), Some(Status::NoEntry));
    }
    assert_eq!(peer.remove(100), Some(Status::NoEntry), "it was forgotten");
}

#[test]
fn busy_client_does_not_evict_replies_to_other_clients() {
    let mut peer = Peer::new();
    create(&peer, "f");
    assert_eq!(peer.remove(100), None);
    peer.from = "127.0.0.2:700";
    for xid in 1000..10_000 {
        assert_eq!(peer.remove(xid), Some(Status::NoEntry));
    }
    peer.from = LOOPBACK;
    assert_eq!(peer.remove(100), None);
}

#[test]
fn call_in_execution_is_not_evicted() {
    let (peer, _dir) = slow();
    let object = place(peer.root(), "f");
    let first = peer.send(100, &args::Remove { object });
    for xid in 1000..3000 {
        let none = place(peer.root(), "none");
        let Answer::Blocking(job) = peer.send(xid, &args::Remove { object: none }) else {
            panic!("a change is a job")
        };
        assert_eq!(status_of(&job(), xid), Some(Status::NoEntry));
    }
    let again = peer.send(100, &args::Remove { object });
    assert!(matches!(again, Answer::Later(_)));
    drop(first);
}
