//! Looks up a socket by its two addresses with sock_diag(7).

use crate::ends::{Ends, canonical};
use crate::netlink::{ask, list};
use crate::route::is_vrf;
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags,
};
use rustix::net::netlink::SOCK_DIAG;
use std::io;

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

/// Looks for the socket at the other end of a connection.
///
/// # Errors
///
/// `NotFound` if there is none on this machine, or the kernel has no sock_diag for TCP; others if the
/// kernel cannot be asked.
pub(crate) fn owner(ends: &Ends) -> io::Result<Owner> {
    let socket_id = SocketId {
        source_port: ends.peer.port(),
        destination_port: ends.local.port(),
        source_address: ends.peer.ip(),
        destination_address: ends.local.ip(),
        interface_id: ends.interface,
        // A wildcard for the socket's cookie.
        cookie: [0xff; 8],
    };
    let family = if ends.peer.is_ipv4() {
        AF_INET
    } else {
        AF_INET6
    };
    let request = request(family, StateFlags::all(), socket_id);
    let SockDiagMessage::InetResponse(found) =
        ask(Some(SOCK_DIAG), SockDiagMessage::InetRequest(request))?
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if !is_at(ends, &found.header.socket_id) {
        return Err(io::ErrorKind::NotFound.into());
    }
    // The kernel takes a socket that is not bound for one at each interface. One of another VRF may
    // have the same addresses.
    if found.header.socket_id.interface_id != ends.interface && is_vrf(ends.interface)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(judge(&found.header))
}

/// Whether a socket has the two addresses. If no connected socket matches, the kernel returns one that
/// listens at the address.
fn is_at(ends: &Ends, id: &SocketId) -> bool {
    let found = [
        (id.source_address, id.source_port),
        (id.destination_address, id.destination_port),
    ];
    found.map(|end| canonical(end.into()))
        == [ends.peer, ends.local].map(|end| (end.ip(), end.port()).into())
}

/// Returns who owns a socket.
fn judge(found: &InetResponseHeader) -> Owner {
    match (found.state, found.inode) {
        // A socket with an owner has an inode, also one of the kernel. One without was closed, or not
        // accepted yet: an established connection of MPTCP outlives its socket until its data is sent,
        // and the uid is 0 up to Linux 6.12.
        (_, 0) => Owner::Closing,
        (ESTABLISHED, _) => Owner::Uid(found.uid),
        _ => Owner::Closing,
    }
}

/// Returns whether the kernel can look up sockets of TCP at all.
///
/// # Errors
///
/// The kernel cannot be asked.
pub(crate) fn knows_tcp() -> io::Result<bool> {
    // In no state there is no socket, so the kernel looks at none.
    let request = request(AF_INET, StateFlags::empty(), SocketId::new_v4());
    match list(
        Some(SOCK_DIAG),
        SockDiagMessage::InetRequest(request),
        |_| {},
    ) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        listed => listed.map(|()| true),
    }
}

fn request(family: u8, states: StateFlags, socket_id: SocketId) -> InetRequest {
    InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states,
        socket_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_without_an_inode_is_closing_and_not_of_root() {
        let of = |state, uid, inode| {
            judge(&InetResponseHeader {
                family: AF_INET,
                state,
                timer: None,
                socket_id: SocketId::new_v4(),
                recv_queue: 0,
                send_queue: 0,
                uid,
                inode,
            })
        };
        assert_eq!(of(ESTABLISHED, 0, 0), Owner::Closing);
        assert_eq!(of(ESTABLISHED, 1000, 0), Owner::Closing);
        for state in 2..=12 {
            assert_eq!(of(state, 0, 7), Owner::Closing, "state {state}");
        }
        assert_eq!(of(ESTABLISHED, 1000, 7), Owner::Uid(1000));
        assert_eq!(of(ESTABLISHED, 0, 7), Owner::Uid(0));
    }
}
