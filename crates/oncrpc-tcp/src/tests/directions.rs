//! Calls in both directions on one connection, its lifetime, and its local port.

use super::*;
use bytes::Bytes;
use oncrpc::xdr::{Item, Reader};
use oncrpc::{Caller, ConnectionId, Connections, RpcError, Service};
use rpc_serving::ends::End;
use smallvec::smallvec;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

/// Message types (RFC 5531 §9).
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Calls the client back with the word of its call, and answers with what the client says.
struct CallsBack {
    backchannels: Backchannels,
    connections: Connections,
    /// Connections that have ended.
    ended: Arc<Mutex<Vec<ConnectionId>>>,
    told: Arc<Notify>,
    /// How many calls to the client are made for each of its own.
    times: usize,
}

/// Said of a call to the client that got no reply in time.
const UNANSWERED: u32 = 1000;

/// Asks the server to close the connection.
const CLOSE: u32 = 999;

impl Service for CallsBack {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let mut r = Reader::from(&call);
        let (xid, _, word) = (r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap());
        if word == CLOSE {
            assert!(self.connections.close(caller.connection));
            return Answer::Now(Reply::Nothing);
        }
        let client = self.backchannels.get(caller.connection).unwrap();
        let client = client.client_is_ready();
        let times = self.times;
        Answer::Later(Box::pin(async move {
            let mut sum = 0;
            for _ in 0..times {
                // The same XID as the call of the client, which is in flight.
                let reply = client.call(words(xid, CALL, word), ReplyBound::default());
                sum += match reply.await {
                    Ok(reply) => word_of(&reply),
                    Err(TransportError::TimedOut(_)) => UNANSWERED,
                    Err(why) => panic!("{why}"),
                };
            }
            Reply::Message(words(xid, REPLY, sum))
        }))
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.ended.lock().unwrap().push(connection);
        self.told.notify_one();
    }
}

fn words(xid: u32, kind: u32, word: u32) -> Payload {
    let mut w = Writer::new(Buffer::default());
    [xid, kind, word].into_iter().for_each(|word| w.u32(word));
    w.finish()
}

fn word_of(message: &Payload) -> u32 {
    let mut r = Reader::from(message);
    let (_xid, _kind) = (r.u32().unwrap(), r.u32().unwrap());
    r.u32().unwrap()
}

/// Adds one to the word of a call, after `release` if there is one.
#[derive(Default)]
struct AddsOne {
    release: Option<Arc<Notify>>,
    in_service: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Service for AddsOne {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().unwrap();
        let reply = Reply::Message(words(xid, REPLY, word_of(&call) + 1));
        let Some(release) = self.release.clone() else {
            return Answer::Now(reply);
        };
        let now = self.in_service.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        let in_service = Arc::clone(&self.in_service);
        Answer::Later(Box::pin(async move {
            release.notified().await;
            in_service.fetch_sub(1, SeqCst);
            reply
        }))
    }
}

/// A server that calls its clients back.
struct Back {
    addr: SocketAddr,
    ended: Arc<Mutex<Vec<ConnectionId>>>,
    told: Arc<Notify>,
    backchannels: Backchannels,
    connections: Connections,
    _stop: oneshot::Sender<()>,
}

impl Back {
    async fn new(times: usize, limits: Limits) -> Self {
        let (backchannels, connections) = (Backchannels::default(), Connections::default());
        let (ended, told) = (Arc::default(), Arc::new(Notify::new()));
        let service = CallsBack {
            backchannels: backchannels.clone(),
            connections: connections.clone(),
            ended: Arc::clone(&ended),
            told: Arc::clone(&told),
            times,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = Server::new(listener, Arc::new(service), limits)
            .backchannels(backchannels.clone())
            .connections(connections.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            addr,
            ended,
            told,
            backchannels,
            connections,
            _stop: stop,
        }
    }

    async fn client(&self, config: ClientConfig) -> Client {
        Client::connect_with(self.addr, &config).await.unwrap()
    }
}

fn answering(service: AddsOne) -> ClientConfig {
    ClientConfig::new(DEADLINE).with_callbacks(Arc::new(service))
}

async fn say(client: &impl Transport, word: u32) -> Result<u32, TransportError> {
    let call = words(client.next_xid(), CALL, word);
    let reply = client.call(call, ReplyBound::default()).await?;
    Ok(word_of(&reply))
}

#[tokio::test]
async fn server_calls_its_client_with_the_xid_of_a_call_in_flight() {
    let back = Back::new(3, Limits::default()).await;
    let client = back.client(answering(AddsOne::default())).await;
    assert_eq!(say(&client, 5).await, Ok(18));
}

#[tokio::test]
async fn reply_behind_more_calls_than_are_served_gets_through() {
    let limits = Limits {
        calls: 1,
        ..Limits::default()
    };
    let back = Back::new(2, limits).await;
    let release = Arc::new(Notify::new());
    let service = AddsOne {
        release: Some(Arc::clone(&release)),
        ..AddsOne::default()
    };
    let in_service = Arc::clone(&service.in_service);
    let client = back.client(answering(service)).await;
    let releasing = async {
        while in_service.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // The second call is ahead of the replies of the client.
        let second = say(&client, 2);
        let others = async {
            loop {
                release.notify_waiters();
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            sum = second => sum,
            () = others => unreachable!("it goes on for ever"),
        }
    };
    let (first, second) = tokio::join!(say(&client, 1), releasing);
    assert_eq!((first, second), (Ok(4), Ok(6)));
}

#[tokio::test]
async fn server_that_calls_too_much_waits() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let release = Arc::new(Notify::new());
    let service = AddsOne {
        release: Some(Arc::clone(&release)),
        ..AddsOne::default()
    };
    let most = Arc::clone(&service.most);
    let mut config = answering(service);
    config.callbacks_in_flight = 2;
    let _client = Client::over_with(ours, &config);
    let mut calls = Buffer::default();
    for xid in 0..50 {
        record::encode(&words(xid, CALL, xid), &mut calls);
    }
    theirs.write_all(&calls).await.unwrap();
    let answered = async {
        for _ in 0..50 {
            let mut reply = [0; 16];
            theirs.read_exact(&mut reply).await.unwrap();
            assert_eq!(reply[7] + 1, reply[15], "{reply:?}");
        }
    };
    let releasing = async {
        loop {
            release.notify_waiters();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = answered => {}
        () = releasing => unreachable!("it goes on for ever"),
    }
    assert_eq!(most.load(SeqCst), 2);
}

#[tokio::test]
async fn client_without_a_service_answers_prog_unavail() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let _client = Client::over(ours, DEADLINE);
    let mut call = Buffer::default();
    record::encode(&message(7, 1, 2), &mut call);
    theirs.write_all(&call).await.unwrap();
    let mut reply = [0; 28];
    theirs.read_exact(&mut reply).await.unwrap();
    let reply = Payload::new(Buffer::from(reply[4..].to_vec()), 0);
    assert_eq!(read_reply(&reply, 7).err(), Some(RpcError::ProgUnavail));
}

#[tokio::test]
async fn service_learns_of_each_end_once_and_can_cause_it() {
    let back = Back::new(0, Limits::default()).await;
    let client = back.client(ClientConfig::new(DEADLINE)).await;
    assert_eq!(say(&client, 5).await, Ok(0));
    assert_eq!((back.backchannels.len(), back.connections.len()), (1, 1));
    let ended = client.ended();
    let closed = say(&client, CLOSE).await;
    assert!(matches!(closed, Err(TransportError::Disconnected(_))));
    back.told.notified().await;
    assert_eq!(back.ended.lock().unwrap().len(), 1);
    let why = ended.await;
    let why = why.error().downcast_ref::<ConnectionEnd>();
    assert!(matches!(why, Some(ConnectionEnd::ByPeer)), "{why:?}");
    assert!(back.backchannels.is_empty() && back.connections.is_empty());

    // One that is there without a word, and goes.
    drop(TcpStream::connect(back.addr).await.unwrap());
    back.told.notified().await;
    let mut all = back.ended.lock().unwrap().clone();
    all.dedup();
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn dropped_client_ends_its_calls_and_its_connection() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let client = Client::over(ours, DEADLINE);
    let ended = client.ended();
    drop(client);
    let why = ended.await;
    let why = why.error().downcast_ref::<ConnectionEnd>();
    assert!(
        matches!(why, Some(ConnectionEnd::ByThisEnd(End::Closed))),
        "{why:?}"
    );
    assert_eq!(theirs.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn xid_in_flight_is_refused_and_its_call_unharmed() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let client = Client::over(ours, DEADLINE);
    let both = async {
        let first = client.call(words(7, CALL, 1), ReplyBound::default());
        let second = client.call(words(7, CALL, 2), ReplyBound::default());
        tokio::join!(biased; first, second)
    };
    let answering = async {
        let mut call = [0; 16];
        theirs.read_exact(&mut call).await.unwrap();
        assert_eq!(call[15], 1);
        call[11] = 1;
        theirs.write_all(&call).await.unwrap();
    };
    let ((first, second), ()) = tokio::join!(both, answering);
    assert_eq!(word_of(&first.unwrap()), 1);
    assert_eq!(second.err(), Some(TransportError::XidInUse(7)));
    let mut nothing = [0; 16];
    let more = theirs.read_exact(&mut nothing);
    drop(client);
    assert!(more.await.is_err(), "nothing else was sent");
}

#[tokio::test]
async fn client_that_takes_no_replies_is_closed_in_time() {
    let limits = Limits {
        write: Duration::from_millis(10),
        ..Limits::default()
    };
    let served = Served::new(limits).await;
    let mut deaf = TcpStream::connect(served.addr).await.unwrap();
    let mut record = Buffer::default();
    record::encode(&message(1, AT_ONCE, 1), &mut record);
    let calls = record.repeat(1000);
    while deaf.write_all(&calls).await.is_ok() {}
    let client = served.client().await;
    assert_eq!(ask(&client, AT_ONCE, 2).await, Ok(2));
}

#[tokio::test]
async fn client_that_does_not_answer_costs_one_call_and_no_more() {
    let limits = Limits {
        backward: Duration::from_millis(10),
        ..Limits::default()
    };
    let back = Back::new(1, limits).await;
    // It takes the call, and never answers.
    let service = AddsOne {
        release: Some(Arc::new(Notify::new())),
        ..AddsOne::default()
    };
    let client = back.client(answering(service)).await;
    assert_eq!(say(&client, 5).await, Ok(UNANSWERED));
    assert_eq!(say(&client, 5).await, Ok(UNANSWERED));
}

/// The end of a client whose server says this.
async fn end_after(bytes: &[u8], config: ClientConfig) -> String {
    let (ours, mut theirs): (_, DuplexStream) = tokio::io::duplex(4096);
    let client = Client::over_with(ours, &config);
    theirs.write_all(bytes).await.unwrap();
    client.ended().await.to_string()
}

#[tokio::test]
async fn client_ends_with_a_server_that_does_not_speak_rpc() {
    let config = ClientConfig::new(DEADLINE).with_max_record(1000);
    let end = end_after(b"SSH-2.0-OpenSSH_9.9\r\n", config.clone()).await;
    assert!(
        end.contains("bytes or more exceeds the limit of 1000; does the peer speak RPC?"),
        "{end}"
    );
    let end = end_after(&[0x80, 0, 3, 0xe9], config.clone()).await;
    assert_eq!(
        end,
        "a record of 1001 bytes or more exceeds the limit of 1000"
    );
    let end = end_after(&[0x80, 0, 0, 4, 0, 0, 0, 1], config.clone()).await;
    assert_eq!(end, "a record is neither a call nor a reply");
    let end = end_after(&[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 2], config).await;
    assert_eq!(end, "a record is neither a call nor a reply");
}

#[tokio::test]
async fn client_ends_with_a_server_whose_call_is_too_large() {
    let config = answering(AddsOne::default()).with_callback_limits(1, 12);
    let (ours, mut theirs): (_, DuplexStream) = tokio::io::duplex(4096);
    let client = Client::over_with(ours, &config);
    let (mut call, mut larger) = (Buffer::default(), Buffer::default());
    record::encode(&words(1, CALL, 1), &mut call);
    theirs.write_all(&call).await.unwrap();
    theirs.read_exact(&mut [0; 16]).await.unwrap();
    record::encode(&message(2, AT_ONCE, 1), &mut larger);
    theirs.write_all(&larger).await.unwrap();
    let end = client.ended().await.to_string();
    assert!(end.contains("exceeds the limit of 12"), "{end}");
}

#[tokio::test]
async fn warnings_about_a_server_are_limited_over_all_connections_to_it() {
    let config = ClientConfig::new(DEADLINE);
    let group = Caller::new("0.0.0.0:0".parse().unwrap()).group;
    for _ in 0..rpc_serving::warnings::MAX_WARNINGS {
        end_after(&[0x80, 0, 0, 4, 0, 0, 0, 1], config.clone()).await;
    }
    assert!(!config.log.may_warn(group));
}

#[tokio::test]
async fn client_that_resets_does_not_end_its_direction_before() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig::new(DEADLINE).with_reset_at_end(true);
    let addr = listener.local_addr().unwrap();
    for _ in 0..20 {
        let client = Client::connect_with(addr, &config).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(client);
        let end = stream.read(&mut [0; 8]).await;
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn reply_to_no_call_is_dropped() {
    let (ours, mut theirs) = tokio::io::duplex(4096);
    let client = Client::over(ours, DEADLINE);
    let answering = async {
        let mut call = [0; 16];
        theirs.read_exact(&mut call).await.unwrap();
        call[11] = 1;
        let mut other = call;
        other[4] ^= 1;
        theirs.write_all(&other).await.unwrap();
        theirs.write_all(&call).await.unwrap();
    };
    let (answer, ()) = tokio::join!(say(&client, 9), answering);
    assert_eq!(answer, Ok(9));
}

#[tokio::test]
async fn large_messages_pass_whole_through_small_writes_and_reads() {
    let (ours, theirs) = tokio::io::duplex(3000);
    let client = Client::over(ours, DEADLINE);
    let data: Vec<u8> = (0..1_000_001_u32).map(|at| at.to_le_bytes()[1]).collect();
    let mut echo = theirs;
    let echoing = async {
        let mut record = vec![0; 4 + 8 + 1_000_004];
        echo.read_exact(&mut record).await.unwrap();
        record[11] = 1;
        echo.write_all(&record).await.unwrap();
    };
    let head = Buffer::from([7_u32.to_be_bytes(), CALL.to_be_bytes()].concat());
    let items = smallvec![Item {
        at: 8,
        data: smallvec![Bytes::from(data.clone())],
    }];
    let call = client.call(Payload::with_items(head, 0, items), ReplyBound::default());
    let (reply, ()) = tokio::join!(call, echoing);
    let reply = reply.unwrap();
    assert!(reply.head()[8..][..data.len()] == data[..]);
    assert_eq!(reply.head().len(), 8 + 1_000_004);
}

/// Answers with the length of the call, when released.
struct Length(Arc<Notify>, Arc<AtomicUsize>);

impl Service for Length {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        self.1.fetch_add(1, SeqCst);
        let release = Arc::clone(&self.0);
        Answer::Later(Box::pin(async move {
            release.notified().await;
            let xid = Reader::from(&call).u32().unwrap();
            let len = u32::try_from(call.head().len()).unwrap();
            Reply::Message(words(xid, REPLY, len))
        }))
    }
}

#[tokio::test]
async fn large_calls_wait_for_memory_and_small_ones_do_not() {
    const LARGE: usize = 300_000;
    let (release, begun) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let service = Arc::new(Length(Arc::clone(&release), Arc::clone(&begun)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let limits = Limits {
        record: LARGE,
        memory: 3 * LARGE,
        ..Limits::default()
    };
    let server = Server::new(listener, service, limits);
    tokio::spawn(server.run(std::future::pending()));
    let large = |xid: u32| {
        let mut call = words(xid, CALL, 0).head().to_vec();
        call.resize(LARGE, 7);
        Payload::new(Buffer::from(call), 0)
    };
    let mut calls = JoinSet::new();
    for xid in 0..4 {
        let client = Client::connect(addr, DEADLINE).await.unwrap();
        let call = large(xid);
        calls.spawn(async move { client.call(call, ReplyBound::default()).await });
    }
    // An address holds half of the memory at most, which is one call.
    let small = Client::connect(addr, DEADLINE).await.unwrap();
    let others = async {
        while begun.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(SeqCst), 2);
        release.notify_waiters();
    };
    let (len, ()) = tokio::join!(say(&small, 1), others);
    assert_eq!(len, Ok(12));
    let all = async {
        let mut lens = Vec::new();
        while let Some(reply) = calls.join_next().await {
            lens.push(word_of(&reply.unwrap().unwrap()) as usize);
        }
        assert_eq!(lens, [LARGE; 4]);
    };
    let releasing = async {
        loop {
            release.notify_waiters();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = all => {}
        () = releasing => unreachable!("it goes on for ever"),
    }
}

#[tokio::test]
async fn client_keeps_a_local_port_where_it_can() {
    let back = Back::new(0, Limits::default()).await;
    let config = ClientConfig::new(DEADLINE);
    let first = back.client(config.clone()).await;
    let local = first.local_addr().unwrap();
    let same = config.clone().with_local_port(LocalPort::Exactly(local));
    let error = Client::connect_with(back.addr, &same).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable(_)), "{error}");
    let preferred = config.clone().with_local_port(LocalPort::Preferably(local));
    let other = back.client(preferred).await;
    assert_ne!(other.local_addr(), Some(local));
    assert_eq!(say(&other, 1).await, Ok(0));
    // Another process may take a port as soon as it is free.
    for _ in 0..5 {
        if is_port_kept(&back, &config).await {
            return;
        }
    }
    panic!("it never has the port that it prefers");
}

/// Whether a client that connects again has the port of a connection that the server has closed.
async fn is_port_kept(back: &Back, config: &ClientConfig) -> bool {
    let first = back.client(config.clone()).await;
    let local = first.local_addr().unwrap();
    // The server closes first, so that its end keeps the memory of the connection.
    let ended = first.ended();
    assert!(say(&first, CLOSE).await.is_err());
    ended.await;
    let preferred = config.clone().with_local_port(LocalPort::Preferably(local));
    // The system may still be closing the first connection.
    for _ in 0..100 {
        let again = back.client(preferred.clone()).await;
        assert_eq!(say(&again, 2).await, Ok(0));
        if again.local_addr() == Some(local) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn reserved_port_is_taken_or_known_to_need_a_privilege() {
    let served = Served::new(Limits::default()).await;
    let config = ClientConfig::new(DEADLINE);
    let reserved = config.clone().with_local_port(LocalPort::Reserved);
    match Client::connect_with(served.addr, &reserved).await {
        Ok(client) => assert!(client.local_addr().unwrap().port() < 1024),
        Err(error) => assert!(error.to_string().contains("cannot connect"), "{error}"),
    }
    let preferred = config.with_local_port(LocalPort::PreferablyReserved);
    let client = Client::connect_with(served.addr, &preferred).await.unwrap();
    assert_eq!(ask(&client, AT_ONCE, 2).await, Ok(2));
}
