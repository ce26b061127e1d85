//! Client and server over loopback: deadlines, limits, closing.

use super::*;
use buffer::Buffer;
use oncrpc::auth::Credential;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Answer, AuthSys, Reply};
use oncrpc::{Call, LocalUserError, LocalUsers, Origin, Program, Programs};
use oncrpc::{Procedure, read_reply, write_call};
use oncrpc::{ReplyBound, Transport, TransportError};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

const DEADLINE: Duration = Duration::from_secs(20);

const AT_ONCE: u32 = 0;
const BLOCKING: u32 = 1;
const HELD: u32 = 2;
const NEVER: u32 = 3;
const WHO: u32 = 4;
const PANICS: u32 = 5;

/// Returns the word of its argument: at once, from a thread, when released, or never; or the user of
/// this machine that calls. Or panics, in the way of its argument.
struct Echo {
    /// A held call has arrived.
    arrived: Arc<Notify>,
    release: Arc<Notify>,
}

impl Program for Echo {
    fn number(&self) -> u32 {
        9
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn call(&self, call: Call) -> Answer {
        match call.proc {
            AT_ONCE => echo(call).into(),
            BLOCKING => Answer::Blocking(Box::new(|| echo(call))),
            HELD => {
                self.arrived.notify_one();
                let release = Arc::clone(&self.release);
                Answer::Later(Box::pin(async move {
                    release.notified().await;
                    echo(call)
                }))
            }
            WHO => {
                let uid = call.caller.local_uid.unwrap_or(u32::MAX);
                let mut w = call.into_success();
                w.u32(uid);
                Reply::Message(w.finish()).into()
            }
            PANICS => match call.decode(|r| r.u32()) {
                Ok(0) => Answer::Blocking(Box::new(|| panic!("as a job may"))),
                Ok(1) => Answer::Deferred(Box::new(drop)),
                Ok(2) => Answer::Later(Box::pin(async { panic!("as a future may") })),
                _ => Answer::Later(Box::pin(async {
                    tokio::task::yield_now().await;
                    panic!("as a future may")
                })),
            },
            _ => Reply::Nothing.into(),
        }
    }
}

fn echo(call: Call) -> Reply {
    match call.decode(|r| r.u32()) {
        Ok(word) => {
            let mut w = call.into_success();
            w.u32(word);
            Reply::Message(w.finish())
        }
        Err(error) => call.unreadable(error),
    }
}

/// A running server, and the ends by which a test holds it.
struct Served {
    addr: SocketAddr,
    arrived: Arc<Notify>,
    release: Arc<Notify>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Served {
    async fn new(limits: Limits) -> Self {
        Self::admitting(limits, true).await
    }

    async fn admitting(limits: Limits, admitted: bool) -> Self {
        Self::identifying(limits, admitted, None).await
    }

    async fn identifying(
        limits: Limits,
        admitted: bool,
        users: Option<Arc<dyn LocalUsers>>,
    ) -> Self {
        let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let program = Echo {
            arrived: Arc::clone(&arrived),
            release: Arc::clone(&release),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = Server::new(listener, Arc::new(Programs::new().with(program)), limits)
            .admit(move |_| admitted)
            .local_users(users);
        let server = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            arrived,
            release,
            stop,
            server,
        }
    }

    async fn client(&self) -> Client {
        Client::connect(self.addr, DEADLINE).await.unwrap()
    }
}

fn message(xid: u32, proc: u32, word: u32) -> Payload {
    message_by(&Credential::None, xid, proc, word)
}

fn message_by(cred: &Credential, xid: u32, proc: u32, word: u32) -> Payload {
    let mut w = Writer::new(Buffer::default());
    let target = Procedure {
        prog: 9,
        vers: 1,
        proc,
    };
    write_call(&mut w, xid, target, cred);
    w.u32(word);
    w.finish()
}

async fn ask(client: &Client, proc: u32, word: u32) -> Result<u32, TransportError> {
    let xid = client.next_xid();
    let reply = client
        .call(message(xid, proc, word), ReplyBound::default())
        .await?;
    Ok(read_reply(&reply, xid).unwrap().u32().unwrap())
}

/// Whether the server has closed this connection without a word.
async fn closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn replies_find_their_calls_in_whatever_order_they_come() {
    let served = Served::new(Limits::default()).await;
    let client = served.client().await;
    let held = ask(&client, HELD, 1);
    let others = async {
        served.arrived.notified().await;
        let (a, b) = tokio::join!(ask(&client, BLOCKING, 2), ask(&client, AT_ONCE, 3));
        served.release.notify_one();
        (a, b)
    };
    let (held, others) = tokio::join!(held, others);
    assert_eq!((held, others), (Ok(1), (Ok(2), Ok(3))));
}

#[tokio::test]
async fn more_calls_than_are_answered_at_a_time_are_all_answered() {
    let limits = Limits {
        calls: 2,
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let client = Arc::new(served.client().await);
    let calls: Vec<_> = (0..100)
        .map(|word| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { ask(&client, BLOCKING, word).await })
        })
        .collect();
    for (word, call) in (0..).zip(calls) {
        assert_eq!(call.await.unwrap(), Ok(word));
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_a_reply_ends_at_its_deadline() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let client = Client::over(ours, DEADLINE);
    assert_eq!(
        ask(&client, AT_ONCE, 1).await,
        Err(TransportError::TimedOut(DEADLINE))
    );
    // The reply that comes after all is nobody's, and the next call gets its own.
    let mut record = vec![0; 48];
    theirs.read_exact(&mut record).await.unwrap();
    let late = reply_to(&record);
    theirs.write_all(&late).await.unwrap();
    let answering = async {
        theirs.read_exact(&mut record).await.unwrap();
        theirs.write_all(&reply_to(&record)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(&client, AT_ONCE, 2), answering);
    assert_eq!(answer, Ok(2));
}

/// The record of the reply to a call to [`Echo`] in a record of its own.
fn reply_to(record: &[u8]) -> Vec<u8> {
    let xid = &record[4..8];
    let word = &record[44..48];
    [
        &[0x80, 0, 0, 28][..],
        xid,
        &1u32.to_be_bytes(),
        &[0; 16],
        word,
    ]
    .concat()
}

#[tokio::test]
async fn calls_fail_when_the_server_closes() {
    let (ours, theirs) = tokio::io::duplex(4096);
    let client = Client::over(ours, DEADLINE);
    let closing = async { drop(theirs) };
    let (first, ()) = tokio::join!(ask(&client, AT_ONCE, 1), closing);
    assert!(matches!(first, Err(TransportError::Disconnected(_))));
    let second = ask(&client, AT_ONCE, 1).await;
    assert!(matches!(second, Err(TransportError::Disconnected(_))));
}

#[tokio::test]
async fn refused_connection_is_reported_with_the_address() {
    // Bound, so that nobody else gets the port meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    let error = Client::connect(addr, DEADLINE).await.unwrap_err();
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}

#[tokio::test]
async fn oversized_record_ends_its_connection_and_no_other() {
    let served = Served::new(Limits::default()).await;
    let client = served.client().await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    // What an MPA initiator sends to a port that speaks RPC over TCP.
    stream.write_all(b"MPA ID Req Frame").await.unwrap();
    assert!(closed(&mut stream).await);
    assert_eq!(ask(&client, AT_ONCE, 4).await, Ok(4));
}

#[tokio::test]
async fn connections_past_the_limit_or_not_admitted_are_closed() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    check_that_one_more_is_closed(limits).await;
    let limits = Limits {
        connections_of_address: 1,
        ..Limits::default()
    };
    check_that_one_more_is_closed(limits).await;

    let nobody = Served::admitting(Limits::default(), false).await;
    let mut stream = TcpStream::connect(nobody.addr).await.unwrap();
    assert!(closed(&mut stream).await);
}

/// With one connection that has a call in flight.
async fn check_that_one_more_is_closed(limits: Limits) {
    let served = Served::new(limits).await;
    let client = served.client().await;
    let another = async {
        served.arrived.notified().await;
        let mut second = TcpStream::connect(served.addr).await.unwrap();
        assert!(closed(&mut second).await);
        served.release.notify_one();
    };
    let (held, ()) = tokio::join!(ask(&client, HELD, 4), another);
    assert_eq!(held, Ok(4));
}

/// A connection from an address of this machine.
async fn connect_from(last: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 1, last], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn silent_connections_from_many_addresses_close_the_server_to_nobody() {
    let limits = Limits::default();
    let served = Served::new(limits).await;
    let mut silent = Vec::new();
    for last in 1..=u8::try_from(limits.connections).unwrap() {
        let client = Client::over(connect_from(last, served.addr).await, DEADLINE);
        assert_eq!(ask(&client, AT_ONCE, 1).await, Ok(1));
        silent.push(client);
        // Some never say anything.
        silent.push(Client::over(
            connect_from(last, served.addr).await,
            DEADLINE,
        ));
    }
    for last in 200..210 {
        let client = Client::over(connect_from(last, served.addr).await, DEADLINE);
        assert_eq!(ask(&client, AT_ONCE, 2).await, Ok(2), "{last} is served");
    }
    // Nor to others at the same address.
    let crowd: Vec<_> = (0..limits.connections_of_address)
        .map(|_| connect_from(220, served.addr))
        .collect();
    for stream in crowd {
        let client = Client::over(stream.await, DEADLINE);
        assert_eq!(ask(&client, AT_ONCE, 3).await, Ok(3));
        silent.push(client);
    }
    let client = Client::over(connect_from(220, served.addr).await, DEADLINE);
    assert_eq!(ask(&client, AT_ONCE, 4).await, Ok(4));
}

#[tokio::test]
async fn client_that_takes_no_replies_gives_way() {
    let limits = Limits {
        connections: 1,
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let mut deaf = TcpStream::connect(served.addr).await.unwrap();
    let mut record = Buffer::default();
    record::encode(&message(1, AT_ONCE, 1), &mut record);
    let calls = record.repeat(1000);
    let call_on = async { while deaf.write_all(&calls).await.is_ok() {} };
    let other = async {
        loop {
            // Refused as long as replies are taken.
            let client = served.client().await;
            if ask(&client, AT_ONCE, 2).await == Ok(2) {
                return;
            }
        }
    };
    // The first ends with its eviction.
    tokio::join!(call_on, other);
}

#[tokio::test]
async fn system_asks_whether_a_silent_client_is_there() {
    let served = Served::new(Limits::default()).await;
    let client = TcpStream::connect(served.addr).await.unwrap();
    let ports = (served.addr.port(), client.local_addr().unwrap().port());
    let asked = async {
        while !has_keepalive_timer(ports) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.unwrap();
}

/// Whether the socket of 127.0.0.1 with this port and peer's port has a keepalive timer, as
/// /proc/net/tcp tells: the digit before the time of the timer is 2.
fn has_keepalive_timer((port, peer): (u16, u16)) -> bool {
    let ends = format!(" 0100007F:{port:04X} 0100007F:{peer:04X} 01 ");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let socket = table.lines().find(|line| line.contains(&ends));
    let timer = socket.and_then(|line| line.split_whitespace().nth(5));
    timer.is_some_and(|timer| timer.starts_with("02:"))
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let limits = Limits {
        idle: Duration::from_millis(10),
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    assert!(closed(&mut stream).await);
}

#[tokio::test]
async fn connection_on_which_a_call_does_not_come_to_its_end_is_closed() {
    let limits = Limits {
        receive: Duration::from_millis(10),
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let client = served.client().await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    // Forty bytes are promised, and one of them comes.
    stream.write_all(&[0x80, 0, 0, 40, 1]).await.unwrap();
    let closed = tokio::time::timeout(DEADLINE, closed(&mut stream)).await;
    assert_eq!(closed, Ok(true));
    assert_eq!(
        ask(&client, AT_ONCE, 4).await,
        Ok(4),
        "whole calls are served"
    );
}

#[tokio::test]
async fn shutdown_answers_calls_that_have_begun() {
    let served = Served::new(Limits::default()).await;
    let client = served.client().await;
    let stopping = async {
        served.arrived.notified().await;
        served.stop.send(()).unwrap();
        // The listener is closed first; only then is the call released.
        while TcpStream::connect(served.addr).await.is_ok() {}
        served.release.notify_one();
    };
    let (held, ()) = tokio::join!(ask(&client, HELD, 6), stopping);
    assert_eq!(held, Ok(6));
    served.server.await.unwrap();
    assert!(ask(&client, AT_ONCE, 7).await.is_err());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_clients_that_have_gone() {
    let limits = Limits {
        calls: 1,
        drain: 100 * DEADLINE,
        half_close: false,
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    let mut calls = Buffer::default();
    for xid in 0..4 {
        let mut call = Writer::default();
        let held = Procedure {
            prog: 9,
            vers: 1,
            proc: HELD,
        };
        write_call(&mut call, xid, held, &Credential::None);
        call.u32(xid);
        record::encode(&call.finish(), &mut calls);
    }
    stream.write_all(&calls).await.unwrap();
    served.arrived.notified().await;
    served.stop.send(()).unwrap();
    // Its end is behind calls that are not begun any more.
    drop(stream);
    let ended = tokio::time::timeout(DEADLINE, served.server).await;
    ended.expect("it does not wait for the call").unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_ever_for_a_call() {
    let served = Served::new(Limits::default()).await;
    let client = served.client().await;
    let call = tokio::spawn(async move { ask(&client, HELD, 4).await });
    served.arrived.notified().await;
    let begun = tokio::time::Instant::now();
    served.stop.send(()).unwrap();
    served.server.await.unwrap();
    assert!(begun.elapsed() >= Limits::default().drain);
    let lost = call.await.unwrap();
    assert!(matches!(lost, Err(TransportError::Disconnected(_))));
}

#[tokio::test]
async fn unanswered_call_does_not_delay_others() {
    let served = Served::new(Limits::default()).await;
    let client = served.client().await;
    let never = ask(&client, NEVER, 1);
    let answered = ask(&client, AT_ONCE, 2);
    tokio::select! {
        biased;
        _ = never => panic!("the server does not answer it"),
        answer = answered => assert_eq!(answer, Ok(2)),
    }
}

#[tokio::test]
async fn call_on_which_the_service_fails_costs_its_connection_and_no_other() {
    let served = Served::new(Limits::default()).await;
    let other = served.client().await;
    for way in 0..4 {
        let client = served.client().await;
        let failed = ask(&client, PANICS, way).await;
        assert!(
            matches!(failed, Err(TransportError::Disconnected(_))),
            "{way}: {failed:?}"
        );
        assert_eq!(ask(&other, BLOCKING, way).await, Ok(way));
    }
}

#[tokio::test]
async fn replies_to_calls_before_one_on_which_the_service_fails_are_sent() {
    let served = Served::new(Limits::default()).await;
    for way in 0..4 {
        let mut calls = Buffer::default();
        for (xid, proc, word) in [(1, AT_ONCE, 7), (2, PANICS, way)] {
            let mut call = Writer::default();
            let called = Procedure {
                prog: 9,
                vers: 1,
                proc,
            };
            write_call(&mut call, xid, called, &Credential::None);
            call.u32(word);
            record::encode(&call.finish(), &mut calls);
        }
        let mut stream = TcpStream::connect(served.addr).await.unwrap();
        stream.write_all(&calls).await.unwrap();
        let mut received = Vec::new();
        let ended = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut received)).await;
        ended.expect("the connection ends").unwrap();
        assert_eq!(received.get(4..8), Some(&[0, 0, 0, 1][..]), "{way}");
    }
}

mod directions;
mod jobs;
mod listeners;
mod replies;
mod turns;

/// Takes clients for this user of this machine, or refuses them.
#[derive(Debug)]
struct Everybody(Option<u32>);

impl LocalUsers for Everybody {
    fn find(&self, _: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        assert!(peer.ip().is_loopback());
        self.0.ok_or(LocalUserError::Gone).map(Origin::User)
    }
}

#[tokio::test]
async fn user_behind_a_connection_is_known_to_the_service() {
    for (users, known) in [
        (None, u32::MAX),
        (Some(Arc::new(Everybody(Some(7))) as Arc<dyn LocalUsers>), 7),
    ] {
        let served = Served::identifying(Limits::default(), true, users).await;
        let client = served.client().await;
        let cred = Credential::Sys(AuthSys {
            uid: 7,
            ..AuthSys::default()
        });
        let call = message_by(&cred, 5, WHO, 0);
        let reply = client.call(call, ReplyBound::default()).await.unwrap();
        assert_eq!(read_reply(&reply, 5).unwrap().u32().unwrap(), known);
    }
}

#[tokio::test]
async fn connection_from_this_machine_whose_user_is_not_found_is_closed() {
    let users = Some(Arc::new(Everybody(None)) as Arc<dyn LocalUsers>);
    let served = Served::identifying(Limits::default(), true, users).await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    assert!(closed(&mut stream).await);
}

#[tokio::test]
async fn user_of_this_machine_is_one_client_whatever_address_it_uses() {
    let limits = Limits {
        connections: 8,
        connections_of_address: 2,
        ..Limits::default()
    };
    let users = Some(Arc::new(Everybody(Some(7))) as Arc<dyn LocalUsers>);
    let served = Served::identifying(limits, true, users).await;
    let mut first = connect_from(1, served.addr).await;
    let mut others = Vec::new();
    for last in 2..=3 {
        others.push(connect_from(last, served.addr).await);
    }
    assert!(closed(&mut first).await, "it has given way to the third");
}
