//! Connections with peers that are scripted byte by byte: old ones, strange ones, silent ones.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use verbs::{
    Buffer, CloseReason, Completion, Connected, Gather, Listener, Loss, Provider, QpOptions,
    QueuePair, SetupError, SharedReceiveQueue, WorkError, WorkRequest, WrId,
};
use verbs_iwarp::{Config, CrcMode, Iwarp};

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

fn impatient() -> Config {
    Config::default()
        .with_linger(Duration::from_millis(50))
        .with_nudge_after(Duration::from_millis(5))
}

fn within(time: u64) -> QpOptions {
    QpOptions::default().with_setup_timeout(Duration::from_millis(time))
}

/// Longer than any test takes.
fn in_time() -> QpOptions {
    QpOptions::default().with_setup_timeout(3 * PATIENCE)
}

fn receive(wr: u64) -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(wr),
        buffer: Buffer::with_capacity(4096),
    }
}

fn send(wr: u64, bytes: &[u8]) -> WorkRequest {
    WorkRequest::Send {
        wr: WrId(wr),
        buffer: Buffer::from(bytes.to_vec()),
        rest: Gather::new(),
        invalidate: None,
    }
}

/// A frame of MPA, made by hand.
fn frame(key: &[u8; 16], flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap().to_be_bytes();
    [&key[..], &[flags, revision], &length, data].concat()
}

const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const REPLY: &[u8; 16] = b"MPA ID Rep Frame";
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// IRD and ORD of 4.
const DEPTHS: [u8; 4] = [0, 4, 0, 4];

/// Without CRC: what is said here by hand has none.
fn plain() -> Iwarp {
    Iwarp::new(impatient().with_crc(CrcMode::Off))
}

/// The same, with all the time that a peer may need to read its last bytes.
fn patient() -> Iwarp {
    Iwarp::new(plain().config().clone().with_linger(2 * PATIENCE))
}

/// A zero-length RDMA Write.
const EMPTY_WRITE: [u8; 20] = [
    0, 14, 0xc1, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Turns a queue pair's crank until it has something to say.
async fn next(qp: &mut dyn QueuePair) -> Completion {
    loop {
        while qp.progress() {}
        if let Some(completion) = qp.poll_cq() {
            return completion;
        }
        poll_fn(|cx| qp.poll_ready(cx)).await;
    }
}

/// Turns a queue pair's crank until the connection is over.
async fn over(qp: &mut dyn QueuePair) -> CloseReason {
    loop {
        while qp.progress() {}
        if let Some(reason) = qp.closed() {
            return reason.clone();
        }
        while qp.poll_cq().is_some() {}
        poll_fn(|cx| qp.poll_ready(cx)).await;
    }
}

/// Lets a queue pair work beside a script, until the script ends.
async fn beside<T>(qp: &mut dyn QueuePair, script: impl Future<Output = T>) -> T {
    let mut script = std::pin::pin!(script);
    poll_fn(|cx| {
        loop {
            while qp.progress() {}
            if let Poll::Ready(value) = script.as_mut().poll(cx) {
                return Poll::Ready(value);
            }
            if qp.closed().is_some() || qp.poll_cq().is_none() && qp.poll_ready(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Connects to a script that is given the connections one after the other.
async fn connect_to<F: Future>(
    provider: &Iwarp,
    options: &QpOptions,
    script: impl FnOnce(TcpListener) -> F,
) -> (Result<Connected, SetupError>, F::Output) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let to = listener.local_addr().unwrap();
    tokio::join!(
        provider.connect(to, options, b"hello", vec![receive(1)]),
        script(listener)
    )
}

fn text(result: Result<Connected, SetupError>) -> String {
    match result {
        Ok(_) => panic!("it connected"),
        Err(error) => chain(&error),
    }
}

/// The messages of an error and its sources.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

async fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 20];
    stream.read_exact(&mut header).await.unwrap();
    assert_eq!(header[..16], *REQUEST);
    let mut data = vec![0; usize::from(u16::from_be_bytes([header[18], header[19]]))];
    stream.read_exact(&mut data).await.unwrap();
    [&header[16..18], &data].concat()
}

async fn accept(listener: &TcpListener) -> TcpStream {
    listener.accept().await.unwrap().0
}

#[test]
fn refused_connection_says_what_to_check() {
    run(async {
        // Bound, so that nobody else gets the port meanwhile.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(LOOPBACK).unwrap();
        let to = socket.local_addr().unwrap();
        let error = text(plain().connect(to, &in_time(), b"", vec![]).await);
        assert!(error.contains("nothing listens there"), "{error}");
    });
}

#[test]
fn responder_that_only_closes_is_tried_with_both_revisions() {
    run(async {
        let (result, requests) = connect_to(&plain(), &in_time(), async |listener| {
            let mut requests = Vec::new();
            for _ in 0..2 {
                requests.push(read_request(&mut accept(&listener).await).await);
            }
            requests
        })
        .await;
        let enhanced = [&[ENHANCED, 2, 0, 32, 0, 32][..], b"hello"].concat();
        assert_eq!(requests, [enhanced, [&[0, 1][..], b"hello"].concat()]);
        let error = text(result);
        assert!(error.contains("it does not speak MPA"), "{error}");
        assert!(error.contains("20049"), "{error}");
    });
}

#[test]
fn responder_that_knows_only_revision_one_is_spoken_to_in_it() {
    run(async {
        let (result, ()) = connect_to(&plain(), &in_time(), async |listener| {
            read_request(&mut accept(&listener).await).await;
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            stream
                .write_all(&frame(REPLY, 0, 1, b"welcome"))
                .await
                .unwrap();
        })
        .await;
        let connected = result.unwrap();
        assert_eq!(connected.private_data, b"welcome");
        assert_eq!(connected.qp.limits().outstanding_reads, 1);
        assert!(connected.qp.describe().contains("revision 1"));
    });
}

#[test]
fn rejection_is_final() {
    run(async {
        let (result, ()) = connect_to(&plain(), &in_time(), async |listener| {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            let data = [&DEPTHS[..], b"no"].concat();
            let reply = frame(REPLY, ENHANCED | REJECT, 2, &data);
            stream.write_all(&reply).await.unwrap();
        })
        .await;
        assert!(matches!(result, Err(SetupError::Rejected(reason)) if reason == b"no"));
    });
}

#[test]
fn responder_of_another_protocol_is_reported() {
    run(async {
        let (result, ()) = connect_to(&plain(), &in_time(), async |listener| {
            let mut stream = accept(&listener).await;
            stream.write_all(b"SSH-2.0-something\r\n").await.unwrap();
            read_request(&mut stream).await;
        })
        .await;
        let error = text(result);
        assert!(error.contains("it does not speak MPA"), "{error}");
    });
}

#[test]
fn connecting_to_a_silent_responder_times_out() {
    run(async {
        let (result, _stream) = connect_to(&plain(), &within(50), async |listener| {
            accept(&listener).await
        })
        .await;
        assert!(matches!(result, Err(SetupError::TimedOut(..))));
    });
}

#[test]
fn reply_with_impossible_demands_is_terminated() {
    run(async {
        let (result, terminate) = connect_to(&plain(), &in_time(), async |listener| {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            let reply = frame(REPLY, ENHANCED, 2, &[0, 4, 0x30, 0]);
            stream.write_all(&reply).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            bytes
        })
        .await;
        // Queue 2, first message; layer 2, type 0, code 6.
        assert_eq!(terminate[2..4], [0x41, 0x47]);
        assert_eq!(terminate[20..24], [0x20, 6, 0, 0]);
        assert!(text(result).contains("IRD"));
    });
}

#[test]
fn crc_is_asked_for_unless_it_is_switched_off() {
    for (provider, wanted) in [(Iwarp::default(), CRC), (plain(), 0)] {
        run(async {
            let (_, request) = connect_to(&provider, &in_time(), async |listener| {
                let mut stream = accept(&listener).await;
                let request = read_request(&mut stream).await;
                let reply = frame(REPLY, ENHANCED | REJECT, 2, &DEPTHS);
                stream.write_all(&reply).await.unwrap();
                request
            })
            .await;
            assert_eq!(request[0], ENHANCED | wanted);
        });
    }
}

#[test]
fn local_failure_after_the_reply_sends_a_terminate() {
    run(async {
        // A Receive is posted, and there is a place for none.
        let options = in_time().with_receives(0);
        let (result, bytes) = connect_to(&plain(), &options, async |listener| {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            let reply = frame(REPLY, ENHANCED, 2, &DEPTHS);
            stream.write_all(&reply).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            bytes
        })
        .await;
        assert_eq!(bytes[2..4], [0x41, 0x47], "a Terminate");
        assert_eq!(bytes[20..24], [0x20, 5, 0, 0]);
        assert!(text(result).contains("receive"));
    });
}

#[test]
fn malformed_replies_close_the_connection_without_a_terminate() {
    let enhanced = |revision, data: &[u8]| frame(REPLY, ENHANCED, revision, data);
    let mut key = frame(REPLY, ENHANCED, 2, &DEPTHS);
    key[15] ^= 1;
    let cases = [
        (key, "it does not speak MPA"),
        (frame(REQUEST, ENHANCED, 2, &DEPTHS), "the same role"),
        (enhanced(3, &DEPTHS), "revision 3"),
        (enhanced(2, &DEPTHS[..3]), "IRD and ORD"),
        (enhanced(1, &DEPTHS), "another revision"),
        (frame(REPLY, 0, 2, b""), "not enhanced"),
        (b"MPA ID Rep Frame\x10\x02\x02\x01".to_vec(), "513 bytes"),
    ];
    for (reply, reason) in cases {
        run(async {
            let (result, rest) = connect_to(&plain(), &in_time(), async |listener| {
                let mut stream = accept(&listener).await;
                read_request(&mut stream).await;
                stream.write_all(&reply).await.unwrap();
                let mut rest = Vec::new();
                // Bytes that nobody reads turn the close into a reset.
                let _ = stream.read_to_end(&mut rest).await;
                rest
            })
            .await;
            assert!(rest.is_empty(), "nothing but the request was sent");
            let error = text(result);
            assert!(error.contains(reason), "{error}");
        });
    }
}

#[test]
fn responder_that_overlooks_the_first_message_is_sent_a_zero_length_write() {
    run(async {
        let (result, stream) = connect_to(&plain(), &in_time(), async |listener| {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            let reply = frame(REPLY, ENHANCED, 2, &DEPTHS);
            stream.write_all(&reply).await.unwrap();
            stream
        })
        .await;
        let (mut qp, mut stream) = (result.unwrap().qp, stream);
        qp.post(send(2, b"anybody there?!?")).unwrap();
        beside(&mut *qp, async {
            let mut first = [0; 40];
            stream.read_exact(&mut first).await.unwrap();
            assert_eq!(first[20..36], *b"anybody there?!?");
            for _ in 0..3 {
                let mut nudge = [0; 20];
                stream.read_exact(&mut nudge).await.unwrap();
                assert_eq!(nudge, EMPTY_WRITE);
            }
        })
        .await;
    });
}

/// Listens, lets a script connect, and gives the script's end and the incoming connection.
async fn incoming(provider: &Iwarp) -> (TcpStream, Box<dyn Listener>, Box<dyn verbs::Incoming>) {
    let mut listener = provider.listen(LOOPBACK).await.unwrap();
    let to = listener.local_addr();
    let (stream, incoming) = tokio::join!(TcpStream::connect(to), listener.accept());
    (stream.unwrap(), listener, incoming.unwrap())
}

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    let cases: [(&[u8], &str); 6] = [
        (&[0x80, 0, 0, 0x28, 1, 2, 3, 4], "RPC over plain TCP"),
        (b"GET / HTTP/1.1\r\n", "does not speak MPA"),
        (REPLY, "the same role"),
        (
            b"MPA ID Req Frame\x00\x03\x00\x00",
            "revision 3 is not supported",
        ),
        (b"MPA ID Req Frame\x00\x02\x02\x01", "513 bytes"),
        (b"MPA ID Req Frame\x10\x02\x00\x03abc", "IRD and ORD"),
    ];
    for (bytes, reason) in cases {
        run(async {
            let (mut stream, _listener, mut incoming) = incoming(&plain()).await;
            stream.write_all(bytes).await.unwrap();
            let error = chain(&incoming.request(PATIENCE).await.unwrap_err());
            assert!(error.contains(reason), "{error}");
        });
    }
}

#[test]
fn stalled_request_is_dropped_in_time() {
    for bytes in [&b""[..], b"MPA ID", b"MPA ID Req Frame\x10\x02\x00\x0c1234"] {
        run(async {
            let (mut stream, _listener, mut incoming) = incoming(&plain()).await;
            stream.write_all(bytes).await.unwrap();
            let result = incoming.request(Duration::from_millis(20)).await;
            assert!(matches!(result, Err(SetupError::TimedOut(..))));
            drop(incoming);
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.is_empty());
        });
    }
}

#[test]
fn dropped_incoming_connections_are_rejected_in_the_form_of_their_request() {
    let cases: [(u8, u8, &[u8], &[u8]); 3] = [
        (0, 1, b"hello", b""),
        (0, 2, b"", b""),
        (ENHANCED, 2, &DEPTHS, &[0; 4]),
    ];
    for (flags, revision, data, answer) in cases {
        // It may have spoken before it is dropped, or speak later, and its Request may be read.
        for (spoken, read) in [(true, false), (false, false), (true, true)] {
            run(async {
                let (mut stream, _listener, mut incoming) = incoming(&plain()).await;
                let request = frame(REQUEST, flags, revision, data);
                if spoken {
                    stream.write_all(&request).await.unwrap();
                }
                if read {
                    incoming.request(PATIENCE).await.unwrap();
                }
                drop(incoming);
                if !spoken {
                    stream.write_all(&request).await.unwrap();
                }
                let mut reply = Vec::new();
                stream.read_to_end(&mut reply).await.unwrap();
                assert_eq!(reply, frame(REPLY, flags | REJECT, revision, answer));
            });
        }
    }
}

#[test]
fn number_and_duration_of_refusals_are_bounded() {
    /// As many as wait to be refused.
    const MOST: usize = 64;
    run(async {
        let provider = plain();
        let mut listener = provider.listen(LOOPBACK).await.unwrap();
        let to = listener.local_addr();
        let mut silent = Vec::new();
        for _ in 0..=MOST {
            let (stream, incoming) = tokio::join!(TcpStream::connect(to), listener.accept());
            drop(incoming.unwrap());
            silent.push(stream.unwrap());
        }
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let mut bytes = Vec::new();
        let mut beyond = silent.pop().unwrap();
        // It may be closed before it has spoken.
        let _ = beyond.write_all(&request).await;
        let _ = beyond.read_to_end(&mut bytes).await;
        assert!(bytes.is_empty());
        for mut stream in silent {
            stream.read_to_end(&mut bytes).await.unwrap();
            assert!(bytes.is_empty());
        }
        // There is room again.
        let (stream, incoming) = tokio::join!(TcpStream::connect(to), listener.accept());
        drop(incoming.unwrap());
        let mut stream = stream.unwrap();
        stream.write_all(&request).await.unwrap();
        stream.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, frame(REPLY, ENHANCED | REJECT, 2, &[0; 4]));
    });
}

#[test]
fn message_that_stops_half_way_does_not_keep_its_block() {
    run(async {
        let provider = Iwarp::new(
            plain()
                .config()
                .clone()
                .with_message_timeout(Duration::from_millis(30)),
        );
        let queue = SharedReceiveQueue::new(1, 4096);
        let options = QpOptions::default().with_shared_receives(queue.clone());
        let (mut stream, _listener, mut incoming) = incoming(&provider).await;
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        stream.write_all(&request).await.unwrap();
        incoming.request(PATIENCE).await.unwrap();
        let mut qp = incoming.accept(&options, b"", vec![]).await.unwrap();
        // A Send of one segment, and another of which only the first segment ever comes.
        let segment = |control, sequence| {
            let header = [
                0, 18, control, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sequence,
            ];
            [&header[..], &[0; 8]].concat()
        };
        stream.write_all(&segment(0x41, 1)).await.unwrap();
        assert!(matches!(next(&mut *qp).await, Completion::Receive { .. }));
        assert_eq!(queue.stats().lent, 0);
        stream.write_all(&segment(0x01, 2)).await.unwrap();
        let reason = over(&mut *qp).await;
        assert_eq!(reason, CloseReason::TimedOut("the rest of a message"));
        assert_eq!(queue.stats().lent, 0);
    });
}

/// Sends of nothing on a connection without CRC: queue 0, the first message.
const EMPTY_SEND: [u8; 24] = [
    0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Segments that one call of `progress` handles at most: it has four rounds.
const A_TURN: usize = 4 * iwarp_proto::FPDUS_PER_TURN;

#[test]
fn segments_without_payload_take_turns() {
    const FLOOD: usize = 20_000;
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (mut stream, mut qp, _) = accepted(&plain(), &request).await;
        let mut flood = EMPTY_WRITE.repeat(FLOOD);
        flood.extend(EMPTY_SEND);
        stream.write_all(&flood).await.unwrap();
        let mut turns = 0;
        loop {
            while qp.progress() {
                turns += 1;
            }
            if qp.poll_cq().is_some() {
                break;
            }
            poll_fn(|cx| qp.poll_ready(cx)).await;
        }
        assert!(turns >= FLOOD / A_TURN, "{turns} turns");
    });
}

#[test]
fn flooding_connections_delay_another_by_one_turn_each() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let mut flood = EMPTY_WRITE.repeat(3 * A_TURN);
        flood.extend(EMPTY_SEND);
        let mut flooding = Vec::new();
        for _ in 0..64 {
            let (mut stream, qp, _) = accepted(&plain(), &request).await;
            stream.write_all(&flood).await.unwrap();
            flooding.push((stream, qp));
        }
        let (mut stream, mut honest, _) = accepted(&plain(), &request).await;
        stream.write_all(&EMPTY_SEND).await.unwrap();
        // Each has two turns. By then the honest one has its message, and no flood is over.
        for _ in 0..2 {
            for (_, qp) in &mut flooding {
                assert!(qp.progress(), "there is something to do");
                assert!(qp.poll_cq().is_none(), "all of a flood in two turns");
            }
            honest.progress();
        }
        assert!(honest.poll_cq().is_some());
        // Nothing of what is left is forgotten.
        for (_, qp) in &mut flooding {
            assert!(matches!(next(&mut **qp).await, Completion::Receive { .. }));
        }
    });
}

/// Sets a connection up with a scripted initiator.
async fn accepted(provider: &Iwarp, request: &[u8]) -> (TcpStream, Box<dyn QueuePair>, Vec<u8>) {
    let (mut stream, _listener, mut incoming) = incoming(provider).await;
    stream.write_all(request).await.unwrap();
    incoming.request(PATIENCE).await.unwrap();
    let options = QpOptions::default();
    let qp = incoming
        .accept(&options, b"hi", vec![receive(1)])
        .await
        .unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).await.unwrap();
    let mut data = vec![0; usize::from(u16::from_be_bytes([reply[18], reply[19]]))];
    stream.read_exact(&mut data).await.unwrap();
    (stream, qp, [&reply[16..18], &data].concat())
}

#[test]
fn each_form_of_mpa_request_is_answered_in_the_same_form() {
    let cases: [(u8, u8, &[u8], &[u8]); 3] = [
        (0, 1, b"", b"\x00\x01hi"),
        (0, 2, b"", b"\x00\x02hi"),
        // Linux's client: it serves 128, and asks for none.
        (ENHANCED, 2, &[0, 128, 0, 0], b"\x10\x02\x00\x20\x00\x20hi"),
    ];
    for (flags, revision, data, expected) in cases {
        run(async {
            let request = frame(REQUEST, flags, revision, data);
            let (_stream, qp, reply) = accepted(&plain(), &request).await;
            assert_eq!(reply, expected);
            let reads = if revision == 2 && flags != 0 { 32 } else { 1 };
            assert_eq!(qp.limits().outstanding_reads, reads);
        });
    }
}

#[test]
fn markers_are_inserted_if_the_peer_asks() {
    run(async {
        let request = frame(REQUEST, ENHANCED | MARKERS, 2, &DEPTHS);
        let (mut stream, mut qp, _) = accepted(&plain(), &request).await;
        stream.write_all(&EMPTY_WRITE).await.unwrap();
        qp.post(send(2, &[7; 600])).unwrap();
        let bytes = beside(&mut *qp, async {
            let mut bytes = [0; 4 + 20 + 600 + 4 + 4];
            stream.read_exact(&mut bytes).await.unwrap();
            bytes
        })
        .await;
        assert_eq!(bytes[..8], [0, 0, 0, 0, 2, 0x6a, 0x41, 0x43]);
        assert_eq!(bytes[512..516], [0, 0, 0x01, 0xfc]);
    });
}

#[test]
fn peer_that_resets_is_lost() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (stream, mut qp, _) = accepted(&plain(), &request).await;
        socket2::SockRef::from(&stream)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(stream);
        let lost = over(&mut *qp).await;
        assert!(matches!(lost, CloseReason::Lost(reason) if reason.kind() == Loss::Reset));
    });
}

#[test]
fn peer_that_never_closes_does_not_hold_up_the_end() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (_stream, mut qp, _) = accepted(&plain(), &request).await;
        qp.close();
        assert_eq!(over(&mut *qp).await, CloseReason::Local);
    });
}

#[test]
fn close_is_seen_at_once_and_waits_for_the_peer_to_close_too() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (mut stream, mut qp, _) = accepted(&patient(), &request).await;
        stream.write_all(&EMPTY_WRITE).await.unwrap();
        qp.post(send(2, b"bye")).unwrap();
        while qp.progress() {}
        qp.close();
        let bytes = beside(&mut *qp, async {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            bytes
        })
        .await;
        assert_eq!(bytes[20..23], *b"bye");
        assert_eq!(qp.closed(), None, "the peer may still be reading");
        drop(stream);
        assert_eq!(over(&mut *qp).await, CloseReason::Local);
    });
}

#[test]
fn garbage_after_setup_is_terminated_and_fails_the_work() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (mut stream, mut qp, _) = accepted(&patient(), &request).await;
        stream.write_all(&EMPTY_WRITE).await.unwrap();
        stream.write_all(&[0; 100]).await.unwrap();
        assert!(matches!(
            next(&mut *qp).await,
            Completion::Failed {
                wr: WrId(1),
                error: WorkError::Flushed
            }
        ));
        let bytes = beside(&mut *qp, async {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            bytes
        })
        .await;
        assert_eq!(bytes[2..4], [0x41, 0x47], "a Terminate");
        drop(stream);
        assert!(matches!(over(&mut *qp).await, CloseReason::PeerError(_)));
    });
}

#[test]
fn terminate_is_reported_in_words_though_the_peer_leaves_at_once() {
    run(async {
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (mut stream, mut qp, _) = accepted(&plain(), &request).await;
        // From siw: nibbles in the other order.
        let mut terminate = vec![0, 22, 0x41, 0x47];
        terminate.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
        terminate.extend_from_slice(&[0x21, 2, 0, 0, 0, 0, 0, 0]);
        stream.write_all(&terminate).await.unwrap();
        drop(stream);
        let reason = chain(&over(&mut *qp).await);
        assert!(reason.contains("no buffer available"), "{reason}");
    });
}

#[test]
fn incoming_connection_can_be_accepted_on_another_thread() {
    let (to_owner, from_acceptor) = std::sync::mpsc::channel();
    let owner = std::thread::spawn(move || {
        let mut incoming: Box<dyn verbs::Incoming> = from_acceptor.recv().unwrap();
        run(async {
            let private_data = incoming.request(PATIENCE).await.unwrap();
            assert_eq!(private_data, b"hello");
            let options = QpOptions::default();
            let mut qp = incoming
                .accept(&options, b"", vec![receive(1)])
                .await
                .unwrap();
            let Completion::Receive { buffer, .. } = next(&mut *qp).await else {
                panic!("a message was sent");
            };
            qp.post(send(2, &buffer)).unwrap();
            qp.close();
            over(&mut *qp).await
        })
    });
    run(async {
        let provider = Iwarp::default();
        let mut listener = provider.listen(LOOPBACK).await.unwrap();
        let to = listener.local_addr();
        let options = QpOptions::default();
        let (connected, ()) = tokio::join!(
            provider.connect(to, &options, b"hello", vec![receive(1)]),
            async { to_owner.send(listener.accept().await.unwrap()).unwrap() }
        );
        let mut qp = connected.unwrap().qp;
        qp.post(send(2, b"echo")).unwrap();
        loop {
            if let Completion::Receive { buffer, .. } = next(&mut *qp).await {
                assert_eq!(&*buffer, b"echo");
                break;
            }
        }
        assert_eq!(over(&mut *qp).await, CloseReason::Peer);
    });
    assert_eq!(owner.join().unwrap(), CloseReason::Local);
}

#[test]
fn description_says_what_was_agreed() {
    run(async {
        let provider = Iwarp::new(Config::default().with_crc(CrcMode::Strict));
        let request = frame(REQUEST, ENHANCED, 2, &DEPTHS);
        let (_stream, qp, _) = accepted(&provider, &request).await;
        assert_eq!(
            qp.describe(),
            "iWARP over TCP, MPA revision 2 enhanced, CRC32C strict, IRD 32, ORD 4, \
             ULPDU up to 61714"
        );
    });
}
