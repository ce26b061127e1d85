//! Ends of servers whose clients hold up what they can.

use crate::running::Served;
use hostile_peer::Peer;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};

/// Said by a server that ends without waiting for its clients any longer.
pub(crate) const GIVES_UP: &str =
    "ends without some connections, whose clients do not let them be closed";

/// EXPORT of MOUNT in a record of its own, without arguments (RFC 1813 §5.2.5; RFC 5531 §9, §11).
const LIST_EXPORTS: [u32; 11] = [
    0x8000_0028,
    7,
    0,
    2,
    nfs_proto::MOUNT_PROGRAM,
    3,
    5,
    0,
    0,
    0,
    0,
];

/// Makes calls until the server takes no more, as it cannot send their replies, which nobody reads.
fn call_until_it_is_stuck(server: &Served, stream: &mut TcpStream) {
    let call: Vec<u8> = LIST_EXPORTS
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    let calls = call.repeat(100);
    stream.set_nonblocking(true).unwrap();
    let ends = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
    let mut sent = 0;
    // A server that sleeps beside calls that have arrived does not wait for any.
    while !(has_more_to_read(ends) && all_threads_sleep(server) && has_more_to_read(ends)) {
        match stream.write(&calls[sent % call.len()..]) {
            Ok(more) => sent += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("the server ended the connection: {error}"),
        }
    }
}

/// Whether the socket of a server has octets of its client that it has not read; both have addresses of 127.0.0.1
/// (`/proc/net/tcp`).
fn has_more_to_read((server, client): (SocketAddr, SocketAddr)) -> bool {
    let mut ends = String::new();
    for end in [server, client] {
        write!(ends, " 0100007F:{:04X}", end.port()).unwrap();
    }
    ends += " 01 ";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = table.lines().find_map(|line| line.split_once(&ends));
    let (_sending, receiving) = queues
        .and_then(|(_, queues)| queues.split_once(':'))
        .unwrap();
    !receiving.starts_with("00000000 ")
}

/// Whether all threads of a server wait for something (proc_pid_stat(5)).
fn all_threads_sleep(server: &Served) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let mut states = threads.map(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, state)| state.starts_with('S'))
    });
    states.all(|sleeps| sleeps)
}

/// Without its own limit for its end, the server would wait for the limit that MOUNT over TCP has for the end of calls, and
/// not say this. That the limit is less than 10 s is a test of its own.
#[test]
fn server_does_not_wait_for_clients_that_do_not_let_it_end() {
    // A long list, so that a few hundred replies fill any socket.
    let mut served = Served::configured(
        |around| {
            let mut exports = format!("[[export]]\npath = {:?}\n", around.join("stuff"));
            for n in 0..40 {
                let (path, name) = (around.join(n.to_string()), "x".repeat(200));
                std::fs::create_dir(&path).unwrap();
                write!(
                    exports,
                    "[[export]]\npath = {path:?}\nname = \"/{n}{name}\"\n"
                )
                .unwrap();
            }
            exports
        },
        &[],
    );
    let mount = SocketAddr::from(([127, 0, 0, 1], served.mount_port));
    let mut unread = TcpStream::connect(mount).unwrap();
    call_until_it_is_stuck(&served, &mut unread);
    // They never close their end of the connection.
    let listening = served.listening.parse().unwrap();
    let _open = [Peer::connect(listening), Peer::silent(listening)];
    served.signal(Signal::TERM);
    served.hear(GIVES_UP);
    assert_eq!(served.wait().status.code(), Some(0));
}
