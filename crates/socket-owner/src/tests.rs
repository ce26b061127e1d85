//! Sockets of this process, of others, and of nobody any more.

use super::*;
use rustix::fs::{Uid, fchown};
use rustix::process::getuid;
use std::net::{Shutdown, UdpSocket};

/// A connection: the server's socket and the client's.
fn connected(server: &str, client: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((server, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((client, port)).unwrap();
    (listener.accept().unwrap().0, client)
}

fn find(users: SocketOwners, server: &TcpStream) -> Result<Origin, LocalUserError> {
    users.find(server.local_addr().unwrap(), server.peer_addr().unwrap())
}

fn me() -> u32 {
    getuid().as_raw()
}

/// Gives a socket to another user, as its owner has it that made it; false if that is not ours to do.
fn give(socket: &TcpStream, uid: u32) -> bool {
    let given = fchown(socket, Some(Uid::from_raw(uid)), None).is_ok();
    if !given {
        eprintln!("skipped: only root can give a socket to another user");
    }
    given
}

#[test]
fn owner_of_a_socket_is_found_by_its_addresses() {
    SocketOwners::check().unwrap();
    for (server, client) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::", "127.0.0.1"),
    ] {
        let (server, _client) = connected(server, client);
        let found = find(SocketOwners::new(), &server).unwrap();
        assert_eq!(found, Origin::User(me()), "{:?}", server.peer_addr());
    }
}

#[test]
fn address_of_this_machine_is_local_and_others_are_not() {
    let check = |addr: &str, local: bool| {
        assert_eq!(is_local(addr.parse().unwrap()), local, "{addr}");
    };
    check("127.0.0.1:1", true);
    check("[::1]:1", true);
    check("[::ffff:127.1.2.3]:1", true);
    check("192.0.2.1:1", false);
    // An address of this machine that is not of its loopback, if it has one.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        assert!(is_local(socket.local_addr().unwrap()));
    }
}

#[test]
fn socket_of_another_user_is_told_apart() {
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    if !give(&client, 4321) {
        return;
    }
    assert_eq!(
        find(SocketOwners::new(), &server).unwrap(),
        Origin::User(4321)
    );
    assert_eq!(
        find(SocketOwners::only(4321), &server).unwrap(),
        Origin::User(4321)
    );
    let refused = find(SocketOwners::only(1234), &server).unwrap_err();
    assert!(matches!(
        refused,
        LocalUserError::OtherUser {
            uid: 4321,
            served: 1234
        }
    ));
    // That of the server says nothing about the client's.
    assert!(give(&server, 1234));
    assert_eq!(
        find(SocketOwners::new(), &server).unwrap(),
        Origin::User(4321)
    );
}

#[test]
fn root_may_connect_to_the_server_of_a_user() {
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    if !give(&client, 0) {
        return;
    }
    assert_eq!(
        find(SocketOwners::only(1234), &server).unwrap(),
        Origin::User(0)
    );
}

#[test]
fn closed_socket_is_refused_and_not_taken_for_root() {
    let gone = |server: &TcpStream| {
        let refused = find(SocketOwners::new(), server);
        matches!(refused, Err(LocalUserError::Gone))
    };
    // Its end was sent, and what it sent before can still be read.
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    client.shutdown(Shutdown::Write).unwrap();
    assert!(gone(&server));
    drop(client);
    assert!(gone(&server));
    // There is no trace of one that was reset: unread data has the kernel do that.
    let (mut server, client) = connected("::1", "::1");
    io::Write::write_all(&mut server, b"unread").unwrap();
    client.peek(&mut [0]).unwrap();
    let ends = (server.local_addr().unwrap(), server.peer_addr().unwrap());
    drop(client);
    let refused = SocketOwners::new().find(ends.0, ends.1);
    assert!(matches!(refused, Err(LocalUserError::Gone)));
}

#[test]
fn listener_at_the_address_of_a_closed_socket_does_not_answer_for_it() {
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    let (local, peer) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
    drop((server, client));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = SocketAddr::new(peer.ip(), listener.local_addr().unwrap().port());
    let refused = SocketOwners::new().find(local, nobody);
    assert!(matches!(refused, Err(LocalUserError::Gone)));
}

#[test]
fn other_machines_are_not_from_here() {
    let check = |local: &str, peer: &str| {
        let found = SocketOwners::new().find(local.parse().unwrap(), peer.parse().unwrap());
        assert_eq!(found.unwrap(), Origin::Remote, "{peer}");
        let found = LocalAddresses.find(local.parse().unwrap(), peer.parse().unwrap());
        assert_eq!(found.unwrap(), Origin::Remote, "{peer}");
    };
    check("203.0.113.1:20049", "203.0.113.2:700");
    check("[::ffff:203.0.113.1]:20049", "[::ffff:203.0.113.2]:700");
    check("[2001:db8::1]:20049", "[2001:db8::2]:700");
}

#[test]
fn every_address_of_this_machine_is_its_own() {
    assert!(route::is_local("127.8.9.10:1".parse().unwrap()));
    assert!(route::is_local("[::1]:1".parse().unwrap()));
    assert!(!route::is_local("203.0.113.2:1".parse().unwrap()));
    // That which packets to others would have, if there is a way to them.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("203.0.113.2:9").is_ok() {
        let own = socket.local_addr().unwrap();
        assert!(route::is_local(own), "{own}");
    }
}

#[test]
fn every_address_of_this_machine_is_one_peer_where_users_are_not_asked_for() {
    for (server, client) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.8.9.10"),
        ("[::1]", "[::1]"),
        ("[::ffff:127.0.0.1]", "[::ffff:127.8.9.10]"),
    ] {
        let addr = |host: &str| format!("{host}:700").parse().unwrap();
        let found = LocalAddresses.find(addr(server), addr(client)).unwrap();
        assert_eq!(found, Origin::ThisMachine, "{client}");
    }
}
