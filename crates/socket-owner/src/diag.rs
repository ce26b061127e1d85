//! Looks up a socket by its two addresses with sock_diag(7).

use crate::canonical;
use crate::netlink::ask;
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use rustix::net::netlink::SOCK_DIAG;
use std::io;
use std::net::SocketAddr;

/// `TCP_ESTABLISHED` of Linux.
const ESTABLISHED: u8 = 1;

/// Answer of the kernel about a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The socket is connected and owned by this uid.
    Uid(u32),
    /// The socket is being closed. The kernel then reports it without an owner, as uid 0.
    Closing,
}

/// Looks for the socket at the other end of the connection between `local` and `peer`, in their
/// canonical forms.
///
/// # Errors
///
/// `NotFound` if there is none on this machine, or the kernel has no sock_diag for TCP; others if the
/// kernel cannot be asked.
pub(crate) fn owner(local: SocketAddr, peer: SocketAddr) -> io::Result<Owner> {
    let interface_id = match peer {
        SocketAddr::V4(_) => 0,
        // A socket with a link-local address is bound to its interface.
        SocketAddr::V6(peer) => peer.scope_id(),
    };
    let request = InetRequest {
        family: if peer.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: peer.port(),
            destination_port: local.port(),
            source_address: peer.ip(),
            destination_address: local.ip(),
            interface_id,
            // A wildcard for the socket's cookie.
            cookie: [0xff; 8],
        },
    };
    let SockDiagMessage::InetResponse(found) =
        ask(Some(SOCK_DIAG), SockDiagMessage::InetRequest(request))?
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let id = &found.header.socket_id;
    let ends = [
        (id.source_address, id.source_port),
        (id.destination_address, id.destination_port),
    ];
    // If no connected socket matches, the kernel returns one that listens at the address.
    if ends.map(|end| canonical(end.into()))
        != [peer, local].map(|end| (end.ip(), end.port()).into())
    {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(match found.header.state {
        ESTABLISHED => Owner::Uid(found.header.uid),
        _ => Owner::Closing,
    })
}
