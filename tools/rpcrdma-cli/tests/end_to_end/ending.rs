//! Ends of servers whose clients hold up what they can.

use crate::running::Served;
use hostile_peer::Peer;
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

/// Said by a server that ends without waiting for its clients any longer.
pub(crate) const GIVES_UP: &str =
    "ends without some connections, whose clients do not let them be closed";

/// Octets of replies that a client does not let come: more than its socket has room for.
const UNREAD: u64 = 64 << 10;

/// A record with a call of NULL over TCP (RFC 5531 §9, §11).
fn null(program: u32) -> Vec<u8> {
    let call = [0x8000_0028, 7, 0, 2, program, 3, 0, 0, 0, 0, 0];
    call.iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect()
}

/// A connection over TCP that has made calls until the server could not send its replies, and reads none of them.
pub(crate) fn reads_nothing(server: SocketAddr, program: u32) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_nonblocking(true).unwrap();
    let call = null(program);
    let calls = call.repeat(1000);
    let mut sent = 0;
    while unsent(server, stream.local_addr().unwrap()) < UNREAD {
        match stream.write(&calls[sent % call.len()..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("the server ended the connection: {error}"),
        }
    }
    stream
}

/// Octets in the socket of a server that its client has not taken, of 127.0.0.1 both (proc_net_tcp in the kernel's
/// documentation).
fn unsent(server: SocketAddr, client: SocketAddr) -> u64 {
    let ends = format!(
        " 0100007F:{:04X} 0100007F:{:04X} 01 ",
        server.port(),
        client.port()
    );
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = table.lines().find_map(|line| line.split_once(&ends));
    let queue = queues.and_then(|(_, queues)| queues.split_once(':'));
    queue.map_or(0, |(sending, _)| u64::from_str_radix(sending, 16).unwrap())
}

/// Without its own limit for its end, the server would wait for the limit that MOUNT over TCP has for the end of calls, and
/// not say this. That the limit is less than 10 s is a test of its own.
#[test]
fn server_does_not_wait_for_clients_that_do_not_let_it_end() {
    let mut served = Served::new(&[]);
    let mount = SocketAddr::from(([127, 0, 0, 1], served.mount_port));
    let _unread: Vec<_> = (0..3)
        .map(|_| reads_nothing(mount, nfs_proto::MOUNT_PROGRAM))
        .collect();
    // They never close their end of the connection.
    let listening = served.listening.parse().unwrap();
    let _open = [Peer::connect(listening), Peer::silent(listening)];
    served.signal(Signal::TERM);
    served.hear(GIVES_UP);
    assert_eq!(served.wait().status.code(), Some(0));
}
