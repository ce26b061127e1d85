//! Latency of one client while another address floods the server with calls, over RDMA (software iWARP) and TCP.
//!
//! ```text
//! cargo run --release -p hostile-peer --example flood [SECONDS]
//! ```
//!
//! The server has one event loop and answers NULL. From 127.0.0.1, 256 connections keep calls in flight without a
//! pause; they only copy bytes that were made before, so that the server is the one that is busy. From 127.0.0.2, one
//! connection makes a call now and then. Printed are quantiles of the time that its replies take: without the flood and
//! with it. It needs two CPUs that are otherwise idle.
//!
//! The status is 1 if, over one of the transports, more than one reply in 100 takes longer than the aim of 2 ms during the
//! flood. Where other programs use the CPUs, that says nothing about the server.

use hostile_peer::{PROGRAM, Peer, Segment, opcode, rpc, words};
use oncrpc::{Answer, Call, Program, Programs};
use oncrpc_tcp::Limits;
use rpcrdma::{Server, ServerConfig};
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use verbs_iwarp::Iwarp;

/// Connections of the address that floods.
const CONNECTIONS: usize = 256;

/// Calls in flight on each of them: over RDMA fewer than the credits of the server.
const IN_FLIGHT: usize = 64;

/// Calls that a connection over RDMA makes at most, each with a sequence number of its own.
const CALLS: usize = 200_000;

/// Pause between two calls of the other client.
const PAUSE: Duration = Duration::from_millis(1);

/// Aim for 99 of 100 replies.
const AIM: Duration = Duration::from_millis(2);

const FLOODS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const CALLS_NOW_AND_THEN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Answers NULL.
struct Null;

impl Program for Null {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=2
    }

    fn call(&self, call: Call) -> Answer {
        Answer::Now(match call.proc {
            0 => call.void(),
            _ => call.proc_unavail(),
        })
    }
}

fn null(xid: u32) -> Vec<u32> {
    rpc::call(xid, PROGRAM, 2, 0)
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Counts replies to the flood, and ends it.
#[derive(Default)]
struct Flood {
    replies: AtomicU64,
    is_over: AtomicBool,
}

/// Measurement with each transport.
trait Transport: Copy + Send + Sync + 'static {
    const NAME: &'static str;

    /// A connection with nothing in flight.
    type Connection: Send + 'static;

    fn connect(from: Ipv4Addr, to: SocketAddr) -> Self::Connection;

    /// Makes a call and waits for its reply.
    fn call(connection: &mut Self::Connection, xid: u32);

    /// The stream of a connection, and what it sends: so many calls.
    fn calls(connection: Self::Connection) -> TcpStream;

    /// The bytes of the first calls of any connection, all of the same length.
    fn bytes() -> Vec<u8>;

    /// Bytes of each call, and of each reply.
    const CALL: usize;
    const REPLY: usize;
}

#[derive(Clone, Copy)]
struct Rdma;

#[derive(Clone, Copy)]
struct Tcp;

/// Bytes of MPA and DDP around a Send.
const FRAMING: usize = 2 + 18 + 4;

/// Bytes of a header without chunks (RFC 8166 §4.1).
const HEADER: usize = 28;

impl Transport for Rdma {
    const NAME: &'static str = "RDMA";
    const CALL: usize = (FRAMING + HEADER + 40).next_multiple_of(4);
    const REPLY: usize = (FRAMING + HEADER + 24).next_multiple_of(4);

    type Connection = Peer;

    fn connect(from: Ipv4Addr, to: SocketAddr) -> Peer {
        Peer::connect_from(from, to).expect("it is accepted")
    }

    fn call(peer: &mut Peer, xid: u32) {
        peer.send(&words(&rpc::msg(xid, 1, &null(xid))));
        assert_eq!(peer.answer()[0], xid);
    }

    fn calls(peer: Peer) -> TcpStream {
        peer.into_stream()
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CALLS * Self::CALL);
        for sequence in 1..=u32::try_from(CALLS).expect("a word") {
            let message = words(&rpc::msg(sequence, 32, &null(sequence)));
            let place = [0, sequence, 0];
            let segment = Segment::untagged(opcode::SEND, 0, place, &message);
            bytes.extend(hostile_peer::framed(&segment.emit()));
        }
        assert_eq!(bytes.len(), CALLS * Self::CALL);
        bytes
    }
}

impl Transport for Tcp {
    const NAME: &'static str = "TCP";
    const CALL: usize = 4 + 40;
    const REPLY: usize = 4 + 24;

    type Connection = TcpStream;

    fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::from((from, 0));
        socket.bind(&from.into()).expect("an address of loopback");
        socket.connect(&to.into()).expect("the server listens");
        socket.set_tcp_nodelay(true).expect("it is TCP");
        let mut stream = socket.into();
        // Until its first call the connection is in setup, of which a server takes few from an address.
        Self::call(&mut stream, 0);
        stream
    }

    fn call(stream: &mut TcpStream, xid: u32) {
        let mut reply = [0; Self::REPLY];
        stream.write_all(&record(xid)).expect("it is sent");
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply[4..8], xid.to_be_bytes());
    }

    fn calls(stream: TcpStream) -> TcpStream {
        stream
    }

    fn bytes() -> Vec<u8> {
        let calls = 1..=u32::try_from(CALLS).expect("a word");
        calls.flat_map(record).collect()
    }
}

/// A call as a record of one fragment.
fn record(xid: u32) -> Vec<u8> {
    let call = words(&null(xid));
    let mark = u32::try_from(call.len()).expect("it is short") | 1 << 31;
    [&mark.to_be_bytes()[..], &call].concat()
}

/// Keeps calls in flight on one connection, until the flood is over or there are no more.
async fn flood<T: Transport>(
    stream: TcpStream,
    calls: Arc<Vec<u8>>,
    flood: Arc<Flood>,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    let mut space = vec![0; 64 << 10];
    let (mut sent, mut received) = (0, 0);
    while !flood.is_over.load(Relaxed) {
        let most = (received / T::REPLY + IN_FLIGHT) * T::CALL;
        let next = &calls[sent..most.min(calls.len())];
        stream.write_all(next).await?;
        sent += next.len();
        let before = received / T::REPLY;
        received += match stream.read(&mut space).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => bytes,
        };
        let replies = received / T::REPLY - before;
        flood.replies.fetch_add(replies as u64, Relaxed);
        if sent == calls.len() && received >= sent / T::CALL * T::REPLY {
            println!("a connection has made all its calls: measure for a shorter time");
            break;
        }
    }
    Ok(())
}

/// Times of replies to calls that are made now and then, in order of their length.
fn times<T: Transport>(to: SocketAddr, during: Duration) -> Vec<Duration> {
    let mut connection = T::connect(CALLS_NOW_AND_THEN, to);
    let (mut times, begin) = (Vec::new(), Instant::now());
    for xid in 1.. {
        let before = Instant::now();
        T::call(&mut connection, xid);
        times.push(before.elapsed());
        if begin.elapsed() > during {
            break;
        }
        thread::sleep(PAUSE);
    }
    times.sort_unstable();
    times
}

fn print(what: &str, times: &[Duration]) {
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    let quantiles = [500, 900, 990, 999, 1000]
        .map(|per_mille| format!("{:>9.0}", at(per_mille).as_secs_f64() * 1e6));
    println!("{what:<22} {:>6} {}", times.len(), quantiles.join(" "));
}

/// Measures a server that listens there, and prints the times. Returns whether they are within the aim.
fn measure<T: Transport>(to: SocketAddr, during: Duration) -> bool {
    println!(
        "{:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
        T::NAME,
        "calls",
        "p50 (us)",
        "p90",
        "p99",
        "p99.9",
        "max"
    );
    print("alone", &times::<T>(to, during / 4));
    let state = Arc::new(Flood::default());
    let calls = Arc::new(T::bytes());
    let streams: Vec<_> = (0..CONNECTIONS)
        .map(|_| T::calls(T::connect(FLOODS, to)))
        .collect();
    let of_flood = Arc::clone(&state);
    let flooding = thread::spawn(move || {
        runtime().block_on(async {
            let mut all = JoinSet::new();
            for stream in streams {
                all.spawn(flood::<T>(
                    stream,
                    Arc::clone(&calls),
                    Arc::clone(&of_flood),
                ));
            }
            while let Some(ended) = all.join_next().await {
                ended.expect("no panic").expect("the server serves it");
            }
        });
    });
    // Until all have begun.
    thread::sleep(Duration::from_millis(500));
    let (before, begin) = (state.replies.load(Relaxed), Instant::now());
    let times = times::<T>(to, during);
    let rate = (state.replies.load(Relaxed) - before) as f64 / begin.elapsed().as_secs_f64();
    state.is_over.store(true, Relaxed);
    flooding.join().expect("no panic");
    print(&format!("{CONNECTIONS} connections flood"), &times);
    let late = times.iter().filter(|&&time| time > AIM).count();
    let is_met = is_met(&times);
    println!(
        "the flood has {rate:.0} replies a second; {late} of {} replies took more than {AIM:?}: the aim is {}\n",
        times.len(),
        if is_met { "met" } else { "missed" }
    );
    is_met
}

/// Whether 99 of 100 times, which are in order, are within the aim.
fn is_met(times: &[Duration]) -> bool {
    times[(times.len() - 1) * 99 / 100] <= AIM
}

fn over_rdma(during: Duration) -> bool {
    let runtime = runtime();
    let server = runtime.block_on(async {
        let config = ServerConfig::default()
            .with_workers(1_usize)
            .with_max_connections(2 * CONNECTIONS)
            .with_max_connections_per_address(2 * CONNECTIONS);
        let service = Arc::new(Programs::new().with(Null));
        Server::bind(
            Arc::new(Iwarp::default()),
            (FLOODS, 0).into(),
            service,
            config,
        )
        .await
    });
    let server = server.expect("it listens");
    measure::<Rdma>(server.local_addr(), during)
}

fn over_tcp(during: Duration) -> bool {
    let listener = std::net::TcpListener::bind((FLOODS, 0)).expect("it listens");
    let to = listener.local_addr().expect("it is bound");
    listener.set_nonblocking(true).expect("it is a socket");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = thread::spawn(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let limits = Limits {
                connections: 2 * CONNECTIONS,
                connections_of_address: 2 * CONNECTIONS,
                ..Limits::default()
            };
            let service = Arc::new(Programs::new().with(Null));
            let server = oncrpc_tcp::Server::new(listener, service, limits);
            server.run(async { drop(stopped.await) }).await;
        });
    });
    let is_met = measure::<Tcp>(to, during);
    drop(stop);
    serving.join().expect("no panic");
    is_met
}

fn main() -> ExitCode {
    let seconds = std::env::args().nth(1);
    let seconds = seconds.map_or(10, |given| given.parse().expect("a number of seconds"));
    let during = Duration::from_secs(seconds);
    let are_met = [over_rdma(during), over_tcp(during)];
    match are_met == [true; 2] {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[test]
fn aim_is_missed_if_more_than_one_reply_in_100_is_late() {
    let late = AIM + Duration::from_nanos(1);
    let of = |late_ones: usize| [vec![AIM; 1000 - late_ones], vec![late; late_ones]].concat();
    for (late_ones, expected) in [(0, true), (10, true), (11, false), (1000, false)] {
        assert_eq!(is_met(&of(late_ones)), expected, "{late_ones}");
    }
}
