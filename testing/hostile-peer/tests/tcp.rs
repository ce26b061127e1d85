//! Invalid records of RPC over TCP, as MOUNT is served (RFC 5531 §11).

use hostile_peer::rpc::{accept, accepted, call};
use hostile_peer::{as_words, words};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3};
use oncrpc::Programs;
use oncrpc_tcp::{Limits, Server};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const XID: u32 = 0x7c70_0001;
const MOUNT: u32 = 100_005;
const LAST: u32 = 0x8000_0000;

/// A MOUNT server, and a client whose connection is there all the time.
struct Site {
    _runtime: Runtime,
    addr: SocketAddr,
    client: TcpStream,
}

impl Site {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let exports = Exports::new(HandleKey::random().unwrap());
        let fs = Arc::new(MemFs::new(1 << 20));
        let exports = exports.with("/", fs, ExportOptions::default()).unwrap();
        let service = Arc::new(Programs::new().with(Mount3::new(exports)));
        let addr = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = Server::new(listener, service, Limits::default());
            let addr = server.local_addr().unwrap();
            tokio::spawn(server.run(std::future::pending()));
            addr
        });
        Self {
            _runtime: runtime,
            addr,
            client: connect(addr),
        }
    }

    /// Sends these bytes and returns the server's answer until it ends the connection, which it must not do
    /// for us to see, as we end our half of it.
    fn says(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = connect(self.addr);
        // It may have hung up before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        said
    }

    #[track_caller]
    fn assert_serves(&mut self) {
        for stream in [&mut self.client, &mut connect(self.addr)] {
            stream.write_all(&record(&null_call())).unwrap();
            let expected = record(&null_reply());
            let mut reply = vec![0; expected.len()];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply, expected);
        }
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    connect_from(Ipv4Addr::LOCALHOST, addr)
}

/// A connection from this address of 127.0.0.0/8.
fn connect_from(from: Ipv4Addr, addr: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

fn null_call() -> Vec<u32> {
    call(XID, MOUNT, 3, 0)
}

fn null_reply() -> Vec<u32> {
    accepted(XID, accept::SUCCESS, &[])
}

/// One record in one fragment.
fn record(message: &[u32]) -> Vec<u8> {
    let length = u32::try_from(message.len() * 4).unwrap();
    words(&[&[LAST | length], message].concat())
}

#[test]
fn records_that_are_too_long_end_their_connection_before_they_are_read() {
    let mut site = Site::start();
    for mark in [u32::MAX, LAST | 65_537, 0x7fff_ffff, 65_537] {
        assert_eq!(site.says(&words(&[mark])), b"");
        site.assert_serves();
    }
    // In fragments that are each short enough.
    let mut fragments = Vec::new();
    for _ in 0..70 {
        fragments.extend(words(&[1000]));
        fragments.extend([0; 1000]);
    }
    assert_eq!(site.says(&fragments), b"");
    site.assert_serves();
}

#[test]
fn other_protocols_get_no_answer() {
    let mut site = Site::start();
    let request = b"GET /mount HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(site.says(request), b"");
    assert_eq!(
        site.says(b"MPA ID Req Frame\x50\x02\0\x04\0\x01\0\x01"),
        b""
    );
    assert_eq!(site.says(&[0xff; 10_000]), b"");
    site.assert_serves();
}

#[test]
fn records_in_any_fragments_are_read() {
    let mut site = Site::start();
    let message = words(&null_call());
    for size in [1, 3, 4, 7, 39] {
        let mut fragments = Vec::new();
        let mut pieces = message.chunks(size).peekable();
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { LAST } else { 0 };
            fragments.extend(words(&[last | u32::try_from(piece.len()).unwrap()]));
            fragments.extend(piece);
        }
        assert_eq!(site.says(&fragments), record(&null_reply()));
    }
    // Fragments of nothing, before and behind; but not without end.
    for (empty, expected) in [(10, record(&null_reply())), (10_000, Vec::new())] {
        let mut fragments = vec![0; 4 * empty];
        fragments.extend(words(&[40]));
        fragments.extend(&message);
        fragments.extend(words(&[LAST]));
        assert_eq!(site.says(&fragments), expected);
    }
    site.assert_serves();
}

#[test]
fn reply_to_no_call_is_discarded() {
    let mut site = Site::start();
    let mut bytes = record(&accepted(XID, 0, &[]));
    bytes.extend(record(&null_call()));
    assert_eq!(site.says(&bytes), record(&null_reply()));
    site.assert_serves();
}

#[test]
fn record_that_is_no_rpc_message_ends_the_connection() {
    let mut site = Site::start();
    for message in [&[][..], &[XID], &[XID, 7, 2, MOUNT]] {
        let mut bytes = record(message);
        bytes.extend(record(&null_call()));
        assert_eq!(site.says(&bytes), Vec::<u8>::new());
        site.assert_serves();
    }
}

#[test]
fn invalid_calls_are_answered_as_over_rdma() {
    let mut site = Site::start();
    let answer = |message: &[u32]| as_words(&site.says(&record(message)))[1..].to_vec();
    let unavailable = accepted(XID, accept::PROG_UNAVAIL, &[]);
    assert_eq!(answer(&call(XID, 100_003, 3, 0)), unavailable);
    let mismatch = accepted(XID, accept::PROG_MISMATCH, &[3, 3]);
    assert_eq!(answer(&call(XID, MOUNT, 1, 0)), mismatch);
    let unavailable = accepted(XID, accept::PROC_UNAVAIL, &[]);
    assert_eq!(answer(&call(XID, MOUNT, 3, 77)), unavailable);
    let garbage = accepted(XID, accept::GARBAGE_ARGS, &[]);
    assert_eq!(answer(&call(XID, MOUNT, 3, 1)), garbage);
    site.assert_serves();
}

#[test]
fn records_cut_off_anywhere_are_forgotten() {
    let mut site = Site::start();
    let whole = record(&null_call());
    for length in 0..whole.len() {
        assert_eq!(site.says(&whole[..length]), b"");
    }
    site.assert_serves();
}

#[test]
fn silent_connections_leave_others_served() {
    let mut site = Site::start();
    // Connections of three addresses, silent from the beginning or after a call; more than there
    // may be.
    let silent = |last: u8, call: bool| {
        let mut stream = connect_from([127, 0, 0, last].into(), site.addr);
        if call {
            // It may be refused.
            let _ = stream.write_all(&record(&null_call()));
            let _ = stream.read(&mut [0; 28]);
        }
        stream
    };
    let mut held = Vec::new();
    for number in 0..100 {
        for last in 2..5 {
            held.push(silent(last, number % 2 == 0));
        }
    }
    for last in 1..=20 {
        let mut stream = connect_from([127, 0, 1, last].into(), site.addr);
        for _ in 0..2 {
            stream.write_all(&record(&null_call())).unwrap();
            let expected = record(&null_reply());
            let mut reply = vec![0; expected.len()];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply, expected);
        }
        held.push(stream);
    }
    // Its own connection, which was idle for longest, has given way: whoever has lost one makes another.
    site.client = connect(site.addr);
    site.assert_serves();
}
