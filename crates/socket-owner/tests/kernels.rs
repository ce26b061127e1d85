//! Users of sockets that are closed or in a VRF. Kernels differ in what they tell of those: `cargo xtask interop` runs
//! these tests on several.

use oncrpc::{LocalUserError, LocalUsers, Origin};
use rustix::process::{Uid, getuid};
use rustix::thread::set_thread_res_uid;
use socket_owner::{LocalAddresses, SocketOwners, is_local};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;

fn find(server: &TcpStream) -> Result<Origin, LocalUserError> {
    let peer = server.peer_addr().unwrap();
    SocketOwners::new().find(server.as_fd(), peer)
}

/// Does it as a user that is not root, whose uid it returns.
fn as_user<T: Send>(does: impl FnOnce() -> T + Send) -> (T, u32) {
    let does = || {
        if getuid().is_root() {
            let uid = Uid::from_raw(4321);
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
        (does(), getuid().as_raw())
    };
    thread::scope(|scope| scope.spawn(does).join().unwrap())
}

/// Does it on a thread in a network namespace of its own, after these commands of ip(8). A kernel may
/// lack an interface that they make.
fn in_namespace(commands: &[&str], does: impl FnOnce() + Send) {
    if !getuid().is_root() {
        return eprintln!("skipped: only root can make a network namespace");
    }
    let does = || {
        #[expect(
            deprecated,
            reason = "the one that is not is unsafe, for what other namespaces do to memory"
        )]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).unwrap();
        for command in commands {
            let done = Command::new("ip").args(command.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                return eprintln!("skipped: ip {command}");
            }
        }
        does();
    };
    thread::scope(|scope| scope.spawn(does).join().unwrap());
}

/// An interface of a VRF, with an address.
const VRF: [&str; 7] = [
    "link set lo up",
    "link add red type vrf table 10",
    "link set red up",
    "link add port type dummy",
    "link set port master red",
    "addr add 192.0.2.1/24 dev port",
    "link set port up",
];

/// A listener that is bound to no VRF and takes in connections of all.
fn listener_of_all_vrfs() -> TcpListener {
    std::fs::write("/proc/sys/net/ipv4/tcp_l3mdev_accept", "1").unwrap();
    TcpListener::bind("0.0.0.0:0").unwrap()
}

/// A client at an interface.
fn client(device: &str, to: &TcpListener) -> Socket {
    client_from(device, 0, to)
}

/// The same with this port, or any if it is 0.
fn client_from(device: &str, port: u16, to: &TcpListener) -> Socket {
    let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    client.bind_device(Some(device.as_bytes())).unwrap();
    if port != 0 {
        let from = SocketAddr::from(([192, 0, 2, 1], port));
        client.bind(&from.into()).unwrap();
    }
    let to = SocketAddr::from(([192, 0, 2, 1], to.local_addr().unwrap().port()));
    client.connect(&to.into()).unwrap();
    client
}

/// A client that is not found is refused. One that is found is the user that it is.
fn check_not_another(server: &TcpStream, user: u32) {
    match find(server) {
        Err(LocalUserError::Closed | LocalUserError::Gone) => {}
        found => assert_eq!(found.unwrap(), Origin::User(user)),
    }
}

/// A client closes before it is accepted, with more underway than is received.
fn check_closed_before_it_is_accepted(protocol: Protocol) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().into();
    let (made, user) = as_user(|| {
        let client = match Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)) {
            Err(error) if protocol == Protocol::MPTCP => {
                eprintln!("skipped: the kernel has no MPTCP: {error}");
                return false;
            }
            client => client.unwrap(),
        };
        client.connect(&to).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut client = TcpStream::from(client);
        let noise = [0; 65536];
        let blocked = loop {
            if let Err(error) = client.write(&noise) {
                break error;
            }
        };
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        true
    });
    if made {
        let (server, _) = listener.accept().unwrap();
        check_not_another(&server, user);
    }
}

#[test]
fn client_that_closes_before_it_is_accepted_is_not_root() {
    check_closed_before_it_is_accepted(Protocol::TCP);
}

#[test]
fn client_of_mptcp_that_closes_before_it_is_accepted_is_not_root() {
    check_closed_before_it_is_accepted(Protocol::MPTCP);
}

#[test]
fn client_of_mptcp_is_the_user_who_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().into();
    let (client, user) = as_user(|| {
        let client = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).ok()?;
        client.connect(&to).unwrap();
        Some(client)
    });
    let Some(_client) = client else {
        return eprintln!("skipped: the kernel has no MPTCP");
    };
    let (server, _) = listener.accept().unwrap();
    assert_eq!(find(&server).unwrap(), Origin::User(user));
}

#[test]
fn address_of_an_interface_without_a_route_is_one_of_this_machine() {
    let commands = [
        "link set lo up",
        "addr add 198.51.100.1/32 dev lo",
        "route del local 198.51.100.1 dev lo table local",
    ];
    in_namespace(&commands, || {
        assert!(is_local("198.51.100.1:700".parse().unwrap()));
        assert!(!is_local("198.51.100.2:700".parse().unwrap()));
    });
}

#[test]
fn client_in_a_vrf_is_found_and_is_no_other_machine() {
    in_namespace(&VRF, || {
        let listener = listener_of_all_vrfs();
        let (_client, user) = as_user(|| client("red", &listener));
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), std::net::Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(find(&server).unwrap(), Origin::User(user));
        let found = LocalAddresses.find(server.as_fd(), peer).unwrap();
        assert_eq!(found, Origin::ThisMachine);
        assert!(is_local(peer), "without the interface");
    });
}

#[test]
fn client_at_an_interface_of_a_vrf_is_no_other_machine() {
    in_namespace(&VRF, || {
        let listener = listener_of_all_vrfs();
        let (_client, user) = as_user(|| client("port", &listener));
        let (server, _) = listener.accept().unwrap();
        check_not_another(&server, user);
    });
}

#[test]
fn clients_of_one_address_and_port_in_two_vrfs_are_each_their_own_user() {
    let blue = VRF.map(|command| {
        let command = command
            .replace("red", "blue")
            .replace("table 10", "table 11");
        command.replace("port", "other")
    });
    let both: Vec<&str> = VRF
        .into_iter()
        .chain(blue.iter().map(String::as_str))
        .collect();
    in_namespace(&both, || {
        let listener = listener_of_all_vrfs();
        // The namespace is new: the port is free in it.
        let (_client, user) = as_user(|| client_from("blue", 7000, &listener));
        let (server, peer) = listener.accept().unwrap();
        let _of_root = client_from("red", 7000, &listener);
        let (other, same) = listener.accept().unwrap();
        assert_eq!(peer, same);
        assert_eq!(find(&server).unwrap(), Origin::User(user));
        assert_eq!(find(&other).unwrap(), Origin::User(0));
    });
}
