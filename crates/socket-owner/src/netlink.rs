//! One request to the kernel over netlink, and its answer.

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

/// How long the kernel may take to answer. It has answered when the request is sent, unless what
/// answers is still to be loaded.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Most bytes of an answer about one thing.
pub(crate) const MAX_ANSWER: usize = 8192;

/// Sends one request, in the network namespace of the calling thread, and returns the message that
/// answers it.
///
/// # Errors
///
/// That with which the kernel answers, as `NotFound`; those of the socket; `TimedOut`;
/// `InvalidData` if the answer is not understood.
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
    // Connected to the kernel, it takes messages of nobody else.
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
