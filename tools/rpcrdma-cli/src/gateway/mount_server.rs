//! MOUNT of the server of a pair: where it is, calls to it, and what the log says of both.

use super::mount_place::{MountPlace, at};
use super::plan::PairPlan;
use super::side::{Scheme, UpstreamUrl};
use crate::endpoint::{NO_ADDRESS, at_port};
use crate::failure::plain;
use anyhow::{Context, anyhow};
use gateway::MountOutcome;
use nfs_proto::{MOUNT_PORT, MOUNT_PROGRAM, NFS_PROGRAM, NFS_V3};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{AcceptStatus, PeerGroup, ReplyBound, ReplyHeader, ReplyStatus, Transport};
use oncrpc_tcp::rpcbind::{self, NetId, Rpcbind};
use oncrpc_tcp::{Client, ClientConfig, ConnectionEnd, LocalPort, ReplyMemory, WarningLog};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the server may take for each step: to say where MOUNT is, to accept a connection, to answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// MOUNT of a server.
pub(super) struct MountServer {
    place: MountPlace,
    /// What names another place: a key of the file, or an option.
    place_key: String,
    /// NFS of the server.
    upstream: UpstreamUrl,
    /// Whether MOUNT of the server's host is that of the server, whatever port NFS has.
    is_alone: bool,
    known: Mutex<Known>,
}

/// What was said of it.
#[derive(Default)]
struct Known {
    /// Where it was found last.
    found: Option<Found>,
    outage: Option<Outage>,
}

/// A time in which calls get no answer.
struct Outage {
    since: Instant,
    calls: u64,
    /// Why, as it was said last.
    why: String,
}

/// An address of MOUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    addr: SocketAddr,
    by: By,
}

/// Who says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Administrator,
    Rpcbind,
    /// There is no rpcbind, or it knows no MOUNT.
    Nobody,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addr = self.addr;
        match self.by {
            By::Administrator => write!(f, "{addr}"),
            By::Rpcbind => write!(f, "{addr}, as rpcbind there says"),
            By::Nobody => write!(f, "{addr}, the usual port, as rpcbind there says none"),
        }
    }
}

/// Why a call has no answer.
enum NoAnswer {
    /// MOUNT of the server's host may be that of another server.
    Unknown,
    Failed(Failed),
}

/// What has failed.
struct Failed {
    /// Where it was looked for; nowhere if the host has no address.
    at: Option<Found>,
    error: anyhow::Error,
}

impl MountServer {
    /// MOUNT of the server of a pair; `place_key` names its place, in words.
    pub(super) fn of(plan: &PairPlan, place_key: String) -> Self {
        let upstream = plan.upstream.clone();
        Self {
            place: plan.upstream_mount.clone(),
            place_key,
            // Who passes MOUNT on from a port of its own is told where it is looked for.
            is_alone: plan.mount_port.is_some() || upstream.has_usual_port(),
            upstream,
            known: Mutex::default(),
        }
    }

    /// Whether the administrator has named the place.
    pub(super) fn is_named(&self) -> bool {
        self.place != MountPlace::ByRpcbind
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call. Logs where MOUNT is when that is new, once why it does not answer, and once that it answers again.
    pub(super) async fn call(
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
        let host = &self.upstream.server.host;
        let (endpoint, seek) = match &self.place {
            MountPlace::At(endpoint) => (endpoint.clone(), Seek::Here),
            MountPlace::Port(port) => (at(host, *port), Seek::Here),
            MountPlace::ByRpcbind if self.is_alone => (at(host, MOUNT_PORT), Seek::OfHost { vers }),
            MountPlace::ByRpcbind => {
                let (scheme, nfs) = (self.upstream.scheme, self.upstream.server.port);
                (at(host, MOUNT_PORT), Seek::Beside { vers, scheme, nfs })
            }
        };
        let failed = |at, error| NoAnswer::Failed(Failed { at, error });
        let addresses = endpoint.addresses().await;
        let addresses = addresses.with_context(|| endpoint.host.clone());
        let addresses = addresses.map_err(|error| failed(None, error))?;
        // mountd, too, asks for reserved ports, unless an export says `insecure`.
        let mut config = ClientConfig::new(DEADLINE).with_local_port(LocalPort::PreferablyReserved);
        config.reply_memory = memory;
        let (found, client) = connect(&addresses, seek, &config).await?;
        let reply = client.call(call, ReplyBound::default()).await;
        reply
            .map(|reply| (found, reply))
            .map_err(|error| failed(Some(found), error.into()))
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

    /// Why a call has no answer, and what to do about it.
    fn explain(&self, failed: &Failed) -> String {
        let key = &self.place_key;
        let error = plain(&format_args!("{:#}", failed.error));
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

    /// What there is to say of a server of which it is not known where its MOUNT is.
    fn unknown(&self) -> String {
        format!(
            "a client asks for MOUNT, which {} does not answer, and MOUNT of {} may be that of another server: {} names the \
             place",
            self.upstream, self.upstream.server.host, self.place_key
        )
    }

    /// What there is to say of a server that has no MOUNT.
    fn no_mount(&self, found: Found) -> String {
        format!(
            "MOUNT of the server is not at {found}: another program answers there ({} names another place)",
            self.place_key
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

fn cause(error: &anyhow::Error) -> Cause {
    let kind = |error: &(dyn std::error::Error + 'static)| match error.downcast_ref() {
        Some(ConnectionEnd::Io(error)) => Some(error.kind()),
        Some(ConnectionEnd::ByPeer) => Some(ErrorKind::ConnectionReset),
        _ => error.downcast_ref::<io::Error>().map(io::Error::kind),
    };
    match error.chain().find_map(kind) {
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

/// Where MOUNT is sought at an address.
#[derive(Clone, Copy, Debug)]
enum Seek {
    /// At the port of the address.
    Here,
    /// At the port that rpcbind there says for a version of MOUNT, or at that of the address.
    OfHost { vers: u32 },
    /// At the port that rpcbind there says, if it says this port for NFS: then both are of one server.
    Beside { vers: u32, scheme: Scheme, nfs: u16 },
}

impl Seek {
    /// The place at an address; `None` if it is not known.
    async fn at(self, mut addr: SocketAddr) -> Option<Found> {
        let ip = addr.ip();
        let port = match self {
            Self::Here => {
                return Some(Found {
                    addr,
                    by: By::Administrator,
                });
            }
            Self::OfHost { vers } => ask_rpcbind(addr, MOUNT_PROGRAM, vers, NetId::tcp(ip)).await,
            Self::Beside { vers, scheme, nfs } => {
                let netid = match scheme {
                    Scheme::Tcp => NetId::tcp(ip),
                    Scheme::Rdma => NetId::rdma(ip),
                };
                let said = ask_rpcbind(addr, NFS_PROGRAM, NFS_V3, netid).await;
                if said != Some(nfs) {
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
            None => By::Nobody,
        };
        Some(Found { addr, by })
    }
}

/// Connects to MOUNT at the first of these addresses that answers.
async fn connect(
    addresses: &[SocketAddr],
    seek: Seek,
    config: &ClientConfig,
) -> Result<(Found, Client), NoAnswer> {
    let mut last = match addresses {
        [] => NoAnswer::Failed(Failed {
            at: None,
            error: anyhow!(NO_ADDRESS),
        }),
        _ => NoAnswer::Unknown,
    };
    for &addr in addresses {
        let Some(found) = seek.at(addr).await else {
            continue;
        };
        match Client::connect_with(found.addr, config).await {
            Ok(client) => return Ok((found, client)),
            Err(error) => {
                last = NoAnswer::Failed(Failed {
                    at: Some(found),
                    error: error.into(),
                });
            }
        }
    }
    Err(last)
}

/// The port that rpcbind of a host says for a program, if it says one.
async fn ask_rpcbind(host: SocketAddr, program: u32, vers: u32, netid: NetId) -> Option<u16> {
    let client = Client::connect(at_port(host, rpcbind::PORT), DEADLINE)
        .await
        .ok()?;
    let found = Rpcbind::new(client).getaddr(program, vers, netid).await;
    found.ok()?.map(|addr| addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;
    use tokio::net::TcpListener;

    fn server() -> MountServer {
        let (plan, _) = plan("rdma://127.0.0.1", "tcp://192.0.2.1:2049");
        MountServer::of(&plan, "--upstream-mount".to_owned())
    }

    async fn connect_to(addresses: &[SocketAddr]) -> Result<Found, Failed> {
        let config = ClientConfig::new(DEADLINE);
        match connect(addresses, Seek::Here, &config).await {
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
        let [(nobody, gone), (somebody, _there)] = addresses;
        drop(gone);
        let found = connect_to(&[nobody, somebody]).await.ok().unwrap();
        assert_eq!(found.addr, somebody);
        let failed = connect_to(&[nobody]).await.err().unwrap();
        let said = server().explain(&failed);
        assert!(said.contains(&format!("at {nobody}: ")), "{said}");
        assert!(said.contains("nobody listens there"), "{said}");
        assert!(
            said.ends_with("--upstream-mount names another place)"),
            "{said}"
        );
        assert!(connect_to(&[]).await.is_err());
    }

    #[test]
    fn mount_of_a_host_is_that_of_the_server_only_for_the_usual_port_or_where_that_is_announced() {
        let check = |upstream: &str, mount_port, is_alone: bool| {
            let (mut plan, _) = plan("rdma://127.0.0.1", upstream);
            plan.mount_port = mount_port;
            let server = MountServer::of(&plan, "--upstream-mount".to_owned());
            assert_eq!((server.is_alone, server.is_named()), (is_alone, false));
        };
        check("tcp://192.0.2.1:2049", None, true);
        check("rdma://192.0.2.1:20049", None, true);
        check("tcp://192.0.2.1:20049", None, false);
        check("tcp://192.0.2.1:2050", None, false);
        check("tcp://192.0.2.1:2050", Some(20048), true);
    }

    #[test]
    fn each_cause_has_its_own_advice() {
        let found = Found {
            addr: ([192, 0, 2, 1], 635).into(),
            by: By::Rpcbind,
        };
        let check = |kind: ErrorKind, says: &str| {
            let error = anyhow::Error::new(io::Error::from(kind));
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
            error: anyhow!("cannot find this host").context("filer"),
        };
        let said = server().explain(&nameless);
        assert!(said.ends_with("filer: cannot find this host"), "{said}");
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
