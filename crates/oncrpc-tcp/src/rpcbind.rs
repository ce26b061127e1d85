//! Client of rpcbind (RFC 1833): registers and looks up programs by universal address (RFC 5665).

use buffer::Buffer;
use oncrpc::auth::Credential;
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use oncrpc::{MAX_REPLY_HEADER, Procedure, RpcError, read_reply, write_call};
use oncrpc::{ReplyBound, Transport, TransportError};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::UnixStream;

/// Program number of rpcbind and of the port mapper before it.
pub const PROGRAM: u32 = 100_000;

/// TCP port of rpcbind.
pub const PORT: u16 = 111;

/// Local socket of rpcbind. Only over this socket can a program register that does not run as root.
pub const LOCAL_SOCKET: &str = "/run/rpcbind.sock";

/// Most bytes of a universal address: the longest is an IPv6 one in full, with its port.
const MAX_ADDRESS: u32 = 64;

/// Most bytes of each text in a list of registrations: names of transports and users, addresses, and paths of local sockets.
const MAX_TEXT: u32 = 256;

/// The newest version, and the one that is asked first (RFC 1833 §2.2).
const VERSION_4: u32 = 4;
/// The same procedures and arguments as far as used here (RFC 1833 §2.1).
const VERSION_3: u32 = 3;
/// The port mapper: numbers instead of addresses, and TCP over IPv4 only (RFC 1833 §3).
const VERSION_2: u32 = 2;

const SET: u32 = 1;
const UNSET: u32 = 2;
const GETADDR: u32 = 3;
const DUMP: u32 = 4;

/// Bytes that are enough for a list of all registrations: a machine has some dozens, of less than 100 bytes each.
const MAX_LIST: usize = 64 << 10;

/// TCP in a mapping of the port mapper (RFC 1833 §3.1).
const IPPROTO_TCP: u32 = 6;

/// Network identifier of a transport (RFC 5665 §5.1, RFC 8166 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetId {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// RPC-over-RDMA with IPv4 addresses.
    Rdma,
    /// RPC-over-RDMA with IPv6 addresses.
    Rdma6,
}

impl NetId {
    /// TCP over the IP version of `addr`.
    pub fn tcp(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::Tcp,
            IpAddr::V6(_) => Self::Tcp6,
        }
    }

    /// RPC-over-RDMA over the IP version of `addr`.
    pub fn rdma(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::Rdma,
            IpAddr::V6(_) => Self::Rdma6,
        }
    }

    /// Name of the identifier in rpcbind messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
        }
    }
}

impl fmt::Display for NetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The universal address of a port at an address (RFC 5665 §5.2.3.3, §5.2.3.4).
pub fn universal_address(addr: SocketAddr) -> String {
    let [high, low] = addr.port().to_be_bytes();
    format!("{}.{high}.{low}", addr.ip())
}

/// Reads a universal address.
pub fn parse_universal_address(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    let ip = host
        .parse::<Ipv4Addr>()
        .map(IpAddr::from)
        .or_else(|_| host.parse::<Ipv6Addr>().map(IpAddr::from))
        .ok()?;
    Some(SocketAddr::new(ip, port))
}

/// A registered program: its number, version and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Number of the program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Transport of the program.
    pub netid: NetId,
    /// Address of the program. An unspecified one (`0.0.0.0`, `::`) means all addresses of the
    /// machine.
    pub addr: SocketAddr,
}

/// Why a request to rpcbind failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcbindError {
    /// rpcbind cannot be reached, or does not answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// rpcbind answers with an error.
    #[error("rpcbind answered with an error")]
    Rpc(#[from] RpcError),
    /// rpcbind refused: another owner has registered the program, or the caller lacks the right.
    #[error(
        "rpcbind refused program {prog} version {vers} on {netid}: it is registered already, or this user may not register it"
    )]
    Refused {
        /// Number of the program.
        prog: u32,
        /// Version of the program.
        vers: u32,
        /// Network identifier of its transport.
        netid: NetId,
    },
    /// The peer is a port mapper of version 2, which supports only TCP over IPv4.
    #[error("only the old port mapper is running, which cannot register {0}")]
    TooOld(NetId),
    /// The address in its answer cannot be read.
    #[error("rpcbind gave an address that cannot be read")]
    BadAddress,
}

impl From<xdr::Error> for RpcbindError {
    fn from(error: xdr::Error) -> Self {
        Self::Rpc(error.into())
    }
}

/// Client of rpcbind over a transport.
#[derive(Debug)]
pub struct Rpcbind<T> {
    transport: T,
    /// The newest version that the peer is known to speak.
    version: AtomicU32,
}

impl Rpcbind<crate::Client> {
    /// Connects to the rpcbind of this machine, over its local socket, or over TCP where there is
    /// none.
    ///
    /// # Errors
    ///
    /// If no rpcbind is running.
    pub async fn local(deadline: Duration) -> Result<Self, TransportError> {
        if let Ok(client) = Self::at_socket(LOCAL_SOCKET.as_ref(), deadline).await {
            return Ok(client);
        }
        let addr = (Ipv4Addr::LOCALHOST, PORT).into();
        crate::Client::connect(addr, deadline).await.map(Self::new)
    }

    /// Connects to the rpcbind that listens at a Unix socket.
    ///
    /// # Errors
    ///
    /// If no rpcbind listens there.
    pub async fn at_socket(path: &Path, deadline: Duration) -> Result<Self, TransportError> {
        let stream = UnixStream::connect(path).await.map_err(|error| {
            let what = format!("rpcbind at {}", path.display());
            TransportError::Unreachable(crate::ConnectError::new(what, error).into())
        })?;
        Ok(Self::new(crate::Client::over(stream, deadline)))
    }
}

impl<T: Transport> Rpcbind<T> {
    /// Makes a client of the rpcbind that this transport reaches.
    pub fn new(transport: T) -> Self {
        Self {
            transport,
            version: AtomicU32::new(VERSION_4),
        }
    }

    /// Registers a program (RPCBPROC_SET).
    ///
    /// # Errors
    ///
    /// [`RpcbindError::Refused`] if another one is registered, among others.
    pub async fn set(&self, registration: &Registration) -> Result<(), RpcbindError> {
        match self.boolean(SET, registration).await? {
            true => Ok(()),
            false => Err(RpcbindError::Refused {
                prog: registration.prog,
                vers: registration.vers,
                netid: registration.netid,
            }),
        }
    }

    /// Removes a registration (RPCBPROC_UNSET); false if there was none, or it is another's.
    ///
    /// # Errors
    ///
    /// If rpcbind cannot be asked.
    pub async fn unset(&self, registration: &Registration) -> Result<bool, RpcbindError> {
        self.boolean(UNSET, registration).await
    }

    /// Looks up the address of a program (RPCBPROC_GETADDR); `None` if it is not registered.
    ///
    /// # Errors
    ///
    /// If rpcbind cannot be asked, or its answer cannot be read.
    pub async fn getaddr(
        &self,
        prog: u32,
        vers: u32,
        netid: NetId,
    ) -> Result<Option<SocketAddr>, RpcbindError> {
        let ip = match netid {
            NetId::Tcp | NetId::Rdma => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            NetId::Tcp6 | NetId::Rdma6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let question = Registration {
            prog,
            vers,
            netid,
            addr: SocketAddr::new(ip, 0),
        };
        let args = |w: &mut Writer, version| write_args(w, version, &question);
        self.ask(GETADDR, args, MAX_ADDRESS as usize, |r, version| {
            if version == VERSION_2 {
                let port = u16::try_from(r.u32()?).map_err(|_| RpcbindError::BadAddress)?;
                return Ok((port != 0).then(|| SocketAddr::new(ip, port)));
            }
            match r.string(MAX_ADDRESS)? {
                [] => Ok(None),
                text => std::str::from_utf8(text)
                    .ok()
                    .and_then(parse_universal_address)
                    .map(Some)
                    .ok_or(RpcbindError::BadAddress),
            }
        })
        .await
    }

    /// Looks for exactly this version of a program in the list of all registrations (RPCBPROC_DUMP). [`getaddr`](Self::getaddr)
    /// may tell the address of another version, and rpcbind takes the transport that it is asked over for the one that is
    /// meant (RFC 1833 §2.2.1), so that it finds nothing over RDMA.
    ///
    /// # Errors
    ///
    /// If rpcbind cannot be asked, or its answer cannot be read.
    pub async fn find(
        &self,
        prog: u32,
        vers: u32,
        netid: NetId,
    ) -> Result<Option<SocketAddr>, RpcbindError> {
        self.ask(
            DUMP,
            |_, _| Ok(()),
            MAX_LIST,
            |r, version| {
                let mut found = None;
                // A pointer to the next entry, or to none. The reply ends in any case.
                while r.bool()? {
                    let (entry, addr) = match version {
                        VERSION_2 => read_mapping(r)?,
                        _ => read_entry(r)?,
                    };
                    if found.is_none() && entry == (prog, vers, netid.as_str()) {
                        found = Some(addr.ok_or(RpcbindError::BadAddress)?);
                    }
                }
                Ok(found)
            },
        )
        .await
    }

    async fn boolean(&self, proc: u32, what: &Registration) -> Result<bool, RpcbindError> {
        let args = |w: &mut Writer, version| write_args(w, version, what);
        self.ask(proc, args, 4, |r, _| Ok(r.bool()?)).await
    }

    /// Calls one procedure in the newest version that both sides speak. Its results are no longer than `results_len`, without
    /// the length before a text.
    async fn ask<R>(
        &self,
        proc: u32,
        args: impl Fn(&mut Writer, u32) -> Result<(), RpcbindError>,
        results_len: usize,
        results: impl Fn(&mut Reader<'_>, u32) -> Result<R, RpcbindError>,
    ) -> Result<R, RpcbindError> {
        loop {
            let vers = self.version.load(Relaxed);
            let xid = self.transport.next_xid();
            let mut w = Writer::new(Buffer::default());
            let target = Procedure {
                prog: PROGRAM,
                vers,
                proc,
            };
            write_call(&mut w, xid, target, &Credential::None);
            args(&mut w, vers)?;
            let bound = ReplyBound {
                fixed: MAX_REPLY_HEADER + 4 + results_len,
                ..ReplyBound::default()
            };
            let reply = self.transport.call(w.finish(), bound).await?;
            match read_reply(&reply, xid) {
                Ok(mut r) => return results(&mut r, vers),
                Err(RpcError::ProgMismatch { high, .. }) if vers > VERSION_2 => {
                    let older = if high >= VERSION_3 {
                        vers - 1
                    } else {
                        VERSION_2
                    };
                    self.version.store(older, Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Key of an entry of a list: program, version and netid.
type Key<'a> = (u32, u32, &'a str);

/// An entry of a list: a `rpcb` (RFC 1833 §2.1). One whose address is not of IP has none here.
fn read_entry<'a>(r: &mut Reader<'a>) -> Result<(Key<'a>, Option<SocketAddr>), RpcbindError> {
    let (prog, vers) = (r.u32()?, r.u32()?);
    let netid = std::str::from_utf8(r.string(MAX_TEXT)?).unwrap_or_default();
    let addr = std::str::from_utf8(r.string(MAX_TEXT)?).unwrap_or_default();
    r.string(MAX_TEXT)?;
    Ok(((prog, vers, netid), parse_universal_address(addr)))
}

/// An entry of a list: a `mapping` of the port mapper (RFC 1833 §3.1).
fn read_mapping<'a>(r: &mut Reader<'a>) -> Result<(Key<'a>, Option<SocketAddr>), RpcbindError> {
    let (prog, vers, protocol, port) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let netid = match protocol {
        IPPROTO_TCP => NetId::Tcp.as_str(),
        _ => "",
    };
    let port = u16::try_from(port).map_err(|_| RpcbindError::BadAddress)?;
    let addr = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    Ok(((prog, vers, netid), Some(addr)))
}

/// The arguments of SET, UNSET and GETADDR: a `rpcb`, or a `mapping` of the port mapper.
fn write_args(w: &mut Writer, vers: u32, what: &Registration) -> Result<(), RpcbindError> {
    w.u32(what.prog);
    w.u32(what.vers);
    if vers > VERSION_2 {
        w.opaque(what.netid.as_str().as_bytes());
        w.opaque(universal_address(what.addr).as_bytes());
        // The owner is left empty: rpcbind takes the user of the local socket.
        w.opaque(b"");
        return Ok(());
    }
    if what.netid != NetId::Tcp {
        return Err(RpcbindError::TooOld(what.netid));
    }
    w.u32(IPPROTO_TCP);
    w.u32(what.addr.port().into());
    Ok(())
}

#[cfg(test)]
mod tests;
