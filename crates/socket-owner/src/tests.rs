//! Sockets of this process, of others, and of nobody any more.

use super::*;
use rustix::fs::{Uid, fchown};
use rustix::process::getuid;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::Write;
use std::net::{Shutdown, UdpSocket};
use std::os::fd::AsFd;

/// A connection: the server's socket and the client's.
fn connected(server: &str, client: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((server, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((client, port)).unwrap();
    (listener.accept().unwrap().0, client)
}

fn find(users: SocketOwners, server: &TcpStream) -> Result<Origin, LocalUserError> {
    users.find(server.as_fd(), server.peer_addr().unwrap())
}

/// The ends of a connection that is not there.
fn ends(local: &str, peer: &str) -> Ends {
    Ends::new(local.parse().unwrap(), peer.parse().unwrap())
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
        matches!(refused, Err(LocalUserError::Closed))
    };
    // Its end was sent, and what it sent before can still be read.
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    client.shutdown(Shutdown::Write).unwrap();
    assert!(gone(&server));
    drop(client);
    assert!(gone(&server));
    // There is no trace of one that was reset: unread data has the kernel do that.
    let (mut server, client) = connected("::1", "::1");
    server.write_all(b"unread").unwrap();
    client.peek(&mut [0]).unwrap();
    let peer = server.peer_addr().unwrap();
    drop(client);
    let refused = SocketOwners::new().find(server.as_fd(), peer);
    assert!(matches!(refused, Err(LocalUserError::Closed)));
}

#[test]
fn user_of_a_later_connection_with_the_same_addresses_is_not_taken_for_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().into();
    // Of an address that nobody else uses, so that its port stays free between the two.
    let own: SocketAddr = "127.0.0.77:0".parse().unwrap();
    let first = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    first.bind(&own.into()).unwrap();
    first.connect(&at).unwrap();
    let mut first = TcpStream::from(first);
    let from = first.local_addr().unwrap();
    first.write_all(b"a call").unwrap();
    // The connection is reset, and its addresses are free again.
    SockRef::from(&first)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(first);
    let second = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    second.set_reuse_address(true).unwrap();
    second.bind(&from.into()).unwrap();
    second.connect(&at).unwrap();

    let (reset, peer) = listener.accept().unwrap();
    assert_eq!(peer, from);
    let refused = SocketOwners::new().find(reset.as_fd(), peer);
    assert!(
        matches!(refused, Err(LocalUserError::Closed)),
        "{refused:?}"
    );
    let (alive, peer) = listener.accept().unwrap();
    assert_eq!(peer, from);
    let found = SocketOwners::new().find(alive.as_fd(), peer).unwrap();
    assert_eq!(found, Origin::User(me()));
}

#[test]
fn listener_at_the_address_of_a_closed_socket_does_not_answer_for_it() {
    let (server, client) = connected("127.0.0.1", "127.0.0.1");
    drop(client);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = SocketOwners::new().find(server.as_fd(), listener.local_addr().unwrap());
    assert!(matches!(refused, Err(LocalUserError::Gone)));
}

#[test]
fn kernel_says_whether_it_knows_sockets_of_tcp() {
    assert!(diag::knows_tcp().unwrap());
}

#[test]
fn other_machines_are_not_from_here() {
    let check = |local: &str, peer: &str| {
        let ends = ends(local, peer);
        let error = diag::owner(&ends).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{peer}");
        assert!(!is_of_this_machine(&ends).unwrap(), "{peer}");
    };
    check("203.0.113.1:20049", "203.0.113.2:700");
    check("[::ffff:203.0.113.1]:20049", "[::ffff:203.0.113.2]:700");
    check("[2001:db8::1]:20049", "[2001:db8::2]:700");
}

#[test]
fn every_address_of_this_machine_is_its_own() {
    let is_local = |addr: &str| route::is_local(addr.parse().unwrap(), 0).unwrap();
    assert!(is_local("127.8.9.10:1"));
    assert!(is_local("[::1]:1"));
    assert!(!is_local("203.0.113.2:1"));
    // That which packets to others would have, if there is a way to them.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("203.0.113.2:9").is_ok() {
        let own = socket.local_addr().unwrap();
        assert!(route::is_local(own, 0).unwrap(), "{own}");
    }
}

#[test]
fn every_address_of_this_machine_is_one_peer_where_users_are_not_asked_for() {
    for (server, client) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::", "127.0.0.1"),
    ] {
        let (server, _client) = connected(server, client);
        let peer = server.peer_addr().unwrap();
        let found = LocalAddresses.find(server.as_fd(), peer).unwrap();
        assert_eq!(found, Origin::ThisMachine, "{client}");
    }
    assert!(is_of_this_machine(&ends("127.0.0.1:20049", "127.8.9.10:700")).unwrap());
}
