//! A netlink request and its answer.

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use std::io;
use std::time::Duration;

/// How long to wait for the kernel. It answers before the request returns, unless it has to load a
/// module first.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest answer in bytes.
pub(crate) const MAX_ANSWER: usize = 8192;

/// Sends a request in the network namespace of the calling thread and returns the answer.
///
/// # Errors
///
/// The error in the kernel's answer, such as `NotFound`; errors of the socket; `TimedOut`;
/// `InvalidData` if the answer cannot be parsed.
pub(crate) fn ask<T>(protocol: Option<Protocol>, request: T) -> io::Result<T>
where
    T: NetlinkSerializable + NetlinkDeserializable,
{
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    // A connected netlink socket receives messages only from the kernel.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(&socket, &bytes, SendFlags::empty())?;
    let mut answer = vec![0; MAX_ANSWER];
    let (len, _) = match recv(&socket, answer.as_mut_slice(), RecvFlags::TRUNC) {
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        received => received?,
    };
    let answer = answer.get(..len).ok_or(io::ErrorKind::InvalidData)?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    match NetlinkMessage::deserialize(answer)
        .map_err(invalid)?
        .payload
    {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
