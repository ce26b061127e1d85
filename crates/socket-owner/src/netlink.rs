//! Netlink requests and their answers.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_ALIGNTO, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long to wait for the kernel. It answers before the request returns, unless it has to load a
/// module first.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest answer in bytes. Those of a list are at most a page of memory, or this.
pub(crate) const MAX_ANSWER: usize = 8192;

/// Answers that a list may have.
pub(crate) const MAX_LIST_ANSWERS: usize = 4096;

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
    let socket = request_by(protocol, NLM_F_REQUEST, request)?;
    let mut answer = vec![0; MAX_ANSWER];
    let answer = receive(&socket, &mut answer)?;
    match parse(answer)?.payload {
        NetlinkPayload::InnerMessage(answer) => Ok(answer),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sends a request for a list in the network namespace of the calling thread, and hands out each of
/// its entries.
///
/// # Errors
///
/// Those of [`ask`]; `Interrupted` if the list changed meanwhile, so that it may lack entries.
pub(crate) fn list<T>(
    protocol: Option<Protocol>,
    request: T,
    mut entry: impl FnMut(T),
) -> io::Result<()>
where
    T: NetlinkSerializable + NetlinkDeserializable,
{
    let socket = request_by(protocol, NLM_F_REQUEST | NLM_F_DUMP, request)?;
    let mut answer = vec![0; MAX_ANSWER];
    for _ in 0..MAX_LIST_ANSWERS {
        let mut rest = receive(&socket, &mut answer)?;
        while !rest.is_empty() {
            let message = parse(rest)?;
            if message.header.flags & NLM_F_DUMP_INTR != 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match message.payload {
                NetlinkPayload::InnerMessage(found) => entry(found),
                NetlinkPayload::Done(done) if done.code == 0 => return Ok(()),
                NetlinkPayload::Done(done) => {
                    return Err(io::Error::from_raw_os_error(-done.code));
                }
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
            let len = message.header.length.next_multiple_of(NLMSG_ALIGNTO.into());
            rest = rest.get(len as usize..).unwrap_or_default();
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Sends a request on a socket of its own.
fn request_by<T>(protocol: Option<Protocol>, flags: u16, request: T) -> io::Result<OwnedFd>
where
    T: NetlinkSerializable,
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
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    send(&socket, &bytes, SendFlags::empty())?;
    Ok(socket)
}

fn receive<'a>(socket: &OwnedFd, answer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let (len, _) = match recv(socket, &mut *answer, RecvFlags::TRUNC) {
        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
        received => received?,
    };
    answer.get(..len).ok_or(io::ErrorKind::InvalidData.into())
}

fn parse<T: NetlinkDeserializable>(answer: &[u8]) -> io::Result<NetlinkMessage<T>> {
    NetlinkMessage::deserialize(answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
