//! MOUNT of a server: its address, calls to it, and log lines about both.

use crate::mount_service::MountOutcome;
use crate::transport_kind::TransportKind;
use nfs_proto::{MOUNT_PORT, MOUNT_PROGRAM, NFS_PROGRAM, NFS_V3};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{
    AcceptStatus, Chain, PeerGroup, ReplyBound, ReplyHeader, ReplyStatus, Transport,
    TransportError, plain,
};
use oncrpc_tcp::rpcbind::{self, NetId, Rpcbind};
use oncrpc_tcp::{Client, ClientConfig, ConnectionEnd, LocalPort, ReplyMemory, WarningLog};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time that the server may take for each step: to say where MOUNT is, to accept a connection, to answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// The port of MOUNT of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPort {
    /// This port, as the administrator says.
    Fixed(u16),
    /// The port that rpcbind of the host says, or the [usual one](MOUNT_PORT) if it says none.
    OfHost,
    /// The port that rpcbind of the host says, if it says that NFS is at `nfs_port`: then both are of one server. Otherwise
    /// the port is unknown.
    OfServer {
        /// The transport of NFS.
        transport: TransportKind,
        /// The port of NFS.
        nfs_port: u16,
    },
}

/// MOUNT of a server. Names are looked up, and rpcbind is asked, for each call.
#[derive(Debug)]
pub struct MountServer {
    /// Name or address of the host.
    host: String,
    port: MountPort,
    /// Name of the NFS server in the log.
    nfs_name: String,
    /// Name of the setting that sets another place, in the log.
    setting: String,
    known: Mutex<Known>,
}

/// The state of a server that was logged.
#[derive(Debug, Default)]
struct Known {
    /// The address of its last answer.
    found: Option<Found>,
    outage: Option<Outage>,
}

/// A time in which calls get no answer.
#[derive(Debug)]
struct Outage {
    since: Instant,
    calls: u64,
    /// The reason that was logged last.
    why: String,
}

/// An address of MOUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    addr: SocketAddr,
    by: By,
}

/// The source of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Administrator,
    Rpcbind,
    /// The usual port: there is no rpcbind, or it knows no MOUNT.
    Default,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = self.addr;
        match self.by {
            By::Administrator => write!(f, "{addr}"),
            By::Rpcbind => write!(f, "{addr}, as rpcbind there says"),
            By::Default => write!(f, "{addr}, the usual port, as rpcbind there says none"),
        }
    }
}

/// Reason why a call has no answer.
enum NoAnswer {
    /// MOUNT of the server's host may be that of another server.
    Unknown,
    Failed(Failed),
}

/// A failed call.
struct Failed {
    /// The address that was tried last, if the host has one.
    at: Option<Found>,
    error: CallError,
}

/// Error of a call.
#[derive(Debug)]
enum CallError {
    /// The host has no address.
    NoAddress,
    /// The host is unknown.
    Unresolved { host: String, error: io::Error },
    /// There is no connection, or no reply.
    Transport(TransportError),
}

impl MountServer {
    /// MOUNT of a host, given by its name or address.
    pub fn new(host: impl Into<String>, port: MountPort) -> Self {
        let host = host.into();
        Self {
            nfs_name: host.clone(),
            host,
            port,
            setting: "the configuration".to_owned(),
            known: Mutex::default(),
        }
    }

    /// Sets the name of the NFS server in the log.
    #[must_use]
    pub fn with_nfs_name(mut self, name: String) -> Self {
        self.nfs_name = name;
        self
    }

    /// Sets the name of the setting that sets another place, for advice in the log.
    #[must_use]
    pub fn with_setting(mut self, name: String) -> Self {
        self.setting = name;
        self
    }

    /// Whether the administrator has set the port.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.port, MountPort::Fixed(_))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call. Logs where MOUNT is when that is new, once why it does not answer, and once that it answers again.
    pub(crate) async fn call(
        &self,
        vers: u32,
        call: Payload,
        log: &WarningLog,
        memory: Option<Arc<dyn ReplyMemory>>,
    ) -> MountOutcome {
        match self.exchange(vers, call, memory).await {
            Ok((found, reply)) => {
                self.handle_answer(found, log);
                if is_no_mount(&reply) {
                    self.handle_failure(&self.no_mount(found), log);
                }
                MountOutcome::Answered(reply)
            }
            Err(NoAnswer::Failed(failed)) => {
                self.handle_failure(&self.explain(&failed), log);
                MountOutcome::Unanswered
            }
            Err(NoAnswer::Unknown) => {
                self.handle_failure(&self.unknown(), log);
                MountOutcome::Unanswered
            }
        }
    }

    async fn exchange(
        &self,
        vers: u32,
        call: Payload,
        memory: Option<Arc<dyn ReplyMemory>>,
    ) -> Result<(Found, Payload), NoAnswer> {
        let failed = |at, error| NoAnswer::Failed(Failed { at, error });
        let addresses = self
            .addresses()
            .await
            .map_err(|error| failed(None, error))?;
        // mountd, too, asks for reserved ports, unless an export says `insecure`.
        let mut config = ClientConfig::new(DEADLINE).with_local_port(LocalPort::PreferablyReserved);
        config.reply_memory = memory;
        let (found, client) = connect(&addresses, self.port, vers, &config).await?;
        let reply = client.call(call, ReplyBound::default()).await;
        reply
            .map(|reply| (found, reply))
            .map_err(|error| failed(Some(found), CallError::Transport(error)))
    }

    /// The addresses of the host, with the port of MOUNT that is not asked for.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, CallError> {
        let port = match self.port {
            MountPort::Fixed(port) => port,
            MountPort::OfHost | MountPort::OfServer { .. } => MOUNT_PORT,
        };
        match tokio::net::lookup_host((self.host.as_str(), port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(CallError::Unresolved {
                host: self.host.clone(),
                error,
            }),
        }
    }

    fn handle_answer(&self, found: Found, log: &WarningLog) {
        let listen = log.listener();
        let mut known = self.lock();
        let is_new = known.found.replace(found) != Some(found);
        let outage = known.outage.take();
        drop(known);
        match is_new && may_tell(log) {
            true => tracing::info!(target: "gateway", listen, "MOUNT of the server is at {found}"),
            false => {
                tracing::debug!(target: "gateway", listen, "MOUNT of the server is at {found}");
            }
        }
        if let Some(Outage { since, calls, .. }) = outage
            && may_tell(log)
        {
            let seconds = since.elapsed().as_secs();
            tracing::info!(target: "gateway", listen, "MOUNT of the server answers again after {seconds} s (calls without an answer: {calls})");
        }
    }

    fn handle_failure(&self, why: &str, log: &WarningLog) {
        let listen = log.listener();
        match self.is_new(why) && may_tell(log) {
            true => tracing::warn!(target: "gateway", listen, "{why}"),
            false => tracing::debug!(target: "gateway", listen, "{why}"),
        }
    }

    /// Counts a failure. Returns whether it is the first, or for another reason than the last.
    fn is_new(&self, why: &str) -> bool {
        let mut known = self.lock();
        let outage = known.outage.get_or_insert_with(|| Outage {
            since: Instant::now(),
            calls: 0,
            why: String::new(),
        });
        outage.calls += 1;
        let is_new = outage.why != why;
        if is_new {
            why.clone_into(&mut outage.why);
        }
        is_new
    }

    /// Log line for a failed call, with advice.
    fn explain(&self, failed: &Failed) -> String {
        let key = &self.setting;
        let error = plain(&Chain(&failed.error));
        let Some(at) = failed.at else {
            return format!("MOUNT of the server cannot be reached: {error}");
        };
        let elsewhere = format!("{key} names another place");
        let what = match cause(&failed.error) {
            Cause::Refused => format!("nobody listens there: start it; {elsewhere}"),
            Cause::Closed => format!(
                "it closes the connection: does it allow the address of this gateway, and is it MOUNT ({elsewhere})?"
            ),
            Cause::NoRoute => "check the network, and firewalls, towards it".to_owned(),
            Cause::Other => elsewhere,
        };
        format!("MOUNT of the server cannot be reached at {at}: {error} ({what})")
    }

    /// Log line for a server whose port of MOUNT is unknown.
    fn unknown(&self) -> String {
        format!(
            "a client asks for MOUNT, which {} does not answer, and MOUNT of {} may be that of another server: {} names the \
             place",
            self.nfs_name, self.host, self.setting
        )
    }

    /// Log line for a server that has no MOUNT.
    fn no_mount(&self, found: Found) -> String {
        format!(
            "MOUNT of the server is not at {found}: another program answers there ({} names another place)",
            self.setting
        )
    }
}

/// Whether to log one more line: a server that answers every other call could fill the log.
fn may_tell(log: &WarningLog) -> bool {
    log.may_warn(PeerGroup::THIS_MACHINE)
}

/// Whether a reply says that the program is another one.
fn is_no_mount(reply: &Payload) -> bool {
    let header = ReplyHeader::parse(&mut Reader::from(reply));
    matches!(
        header.map(|header| header.status),
        Ok(ReplyStatus::Accepted {
            status: AcceptStatus::ProgUnavail,
            ..
        })
    )
}

/// A kind of failure, by what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Refused,
    Closed,
    NoRoute,
    Other,
}

fn cause(error: &CallError) -> Cause {
    let kind = |error: &(dyn Error + 'static)| match error.downcast_ref() {
        Some(ConnectionEnd::Io(error)) => Some(error.kind()),
        Some(ConnectionEnd::ByPeer) => Some(ErrorKind::ConnectionReset),
        _ => error.downcast_ref::<io::Error>().map(io::Error::kind),
    };
    let mut sources = std::iter::successors(error.source(), |&error| error.source());
    match sources.find_map(kind) {
        Some(ErrorKind::ConnectionRefused) => Cause::Refused,
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted) => {
            Cause::Closed
        }
        Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::TimedOut) => {
            Cause::NoRoute
        }
        _ => Cause::Other,
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("this host has no address"),
            Self::Unresolved { host, error } => {
                let text = error.to_string();
                let why = text.strip_prefix("failed to lookup address information: ");
                let why = why.unwrap_or(&text);
                write!(f, "{host}: cannot find this host: {why} (check the name)")
            }
            Self::Transport(error) => error.fmt(f),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoAddress | Self::Unresolved { .. } => None,
            Self::Transport(error) => error.source(),
        }
    }
}

impl MountPort {
    /// The place of a version of MOUNT at an address; `None` if it is unknown.
    async fn at(self, mut addr: SocketAddr, vers: u32) -> Option<Found> {
        let ip = addr.ip();
        let port = match self {
            Self::Fixed(_) => {
                return Some(Found {
                    addr,
                    by: By::Administrator,
                });
            }
            Self::OfHost => ask_rpcbind(addr, MOUNT_PROGRAM, vers, NetId::tcp(ip)).await,
            Self::OfServer {
                transport,
                nfs_port,
            } => {
                let netid = match transport {
                    TransportKind::Tcp => NetId::tcp(ip),
                    TransportKind::Rdma => NetId::rdma(ip),
                };
                let said = ask_rpcbind(addr, NFS_PROGRAM, NFS_V3, netid).await;
                if said != Some(nfs_port) {
                    return None;
                }
                Some(ask_rpcbind(addr, MOUNT_PROGRAM, vers, NetId::tcp(ip)).await?)
            }
        };
        let by = match port {
            Some(port) => {
                addr.set_port(port);
                By::Rpcbind
            }
            None => By::Default,
        };
        Some(Found { addr, by })
    }
}

/// Connects to MOUNT at the first of these addresses that answers.
async fn connect(
    addresses: &[SocketAddr],
    port: MountPort,
    vers: u32,
    config: &ClientConfig,
) -> Result<(Found, Client), NoAnswer> {
    let mut last = match addresses {
        [] => NoAnswer::Failed(Failed {
            at: None,
            error: CallError::NoAddress,
        }),
        _ => NoAnswer::Unknown,
    };
    for &addr in addresses {
        let Some(found) = port.at(addr, vers).await else {
            continue;
        };
        match Client::connect_with(found.addr, config).await {
            Ok(client) => return Ok((found, client)),
            Err(error) => {
                last = NoAnswer::Failed(Failed {
                    at: Some(found),
                    error: CallError::Transport(error),
                });
            }
        }
    }
    Err(last)
}

/// The port that rpcbind of a host says for a program, if it says one.
async fn ask_rpcbind(mut host: SocketAddr, program: u32, vers: u32, netid: NetId) -> Option<u16> {
    host.set_port(rpcbind::PORT);
    let client = Client::connect(host, DEADLINE).await.ok()?;
    let found = Rpcbind::new(client).getaddr(program, vers, netid).await;
    found.ok()?.map(|addr| addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn server() -> MountServer {
        MountServer::new("192.0.2.1", MountPort::OfHost).with_setting("--upstream-mount".to_owned())
    }

    async fn connect_to(addresses: &[SocketAddr]) -> Result<Found, Failed> {
        let config = ClientConfig::new(DEADLINE);
        match connect(addresses, MountPort::Fixed(1), 3, &config).await {
            Ok((found, _)) => Ok(found),
            Err(NoAnswer::Failed(failed)) => Err(failed),
            Err(NoAnswer::Unknown) => panic!("the place is named"),
        }
    }

    #[tokio::test]
    async fn mount_is_sought_at_each_address_of_the_server() {
        let listen = || TcpListener::bind("127.0.0.1:0");
        let (gone, there) = (listen().await.unwrap(), listen().await.unwrap());
        let addresses = [gone, there].map(|listener| (listener.local_addr().unwrap(), listener));
        let [(closed, gone), (open, _there)] = addresses;
        drop(gone);
        let found = connect_to(&[closed, open]).await.ok().unwrap();
        assert_eq!(found.addr, open);
        let failed = connect_to(&[closed]).await.err().unwrap();
        let said = server().explain(&failed);
        assert!(said.contains(&format!("at {closed}: ")), "{said}");
        assert!(said.contains("nobody listens there"), "{said}");
        assert!(
            said.ends_with("--upstream-mount names another place)"),
            "{said}"
        );
        assert!(connect_to(&[]).await.is_err());
    }

    #[test]
    fn each_cause_has_its_own_advice() {
        let found = Found {
            addr: ([192, 0, 2, 1], 635).into(),
            by: By::Rpcbind,
        };
        let check = |kind: ErrorKind, says: &str| {
            let error = TransportError::Disconnected(io::Error::from(kind).into());
            let error = CallError::Transport(error);
            let said = server().explain(&Failed {
                at: Some(found),
                error,
            });
            assert!(said.contains(says), "{said}");
            assert!(
                said.contains("192.0.2.1:635, as rpcbind there says"),
                "{said}"
            );
        };
        check(ErrorKind::ConnectionReset, "does it allow the address");
        check(ErrorKind::TimedOut, "check the network");
        check(ErrorKind::Other, "names another place");
        let nameless = Failed {
            at: None,
            error: CallError::Unresolved {
                host: "filer".to_owned(),
                error: io::Error::other("no such name"),
            },
        };
        let said = server().explain(&nameless);
        let end = "filer: cannot find this host: no such name (check the name)";
        assert!(said.ends_with(end), "{said}");
    }

    #[test]
    fn failure_is_said_once_for_each_reason_until_mount_answers() {
        let server = server();
        assert!(server.is_new("one") && !server.is_new("one"));
        assert!(server.is_new("other") && !server.is_new("other"));
        assert_eq!(server.lock().outage.as_ref().unwrap().calls, 4);
        let found = Found {
            addr: ([192, 0, 2, 1], 635).into(),
            by: By::Administrator,
        };
        server.handle_answer(found, &WarningLog::default());
        assert!(server.lock().outage.is_none());
        assert!(server.is_new("one"), "it is another one");
    }
}
