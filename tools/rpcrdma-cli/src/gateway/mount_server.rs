//! MOUNT of the server of a pair: where it is, calls to it, and what the log says of both.

use super::mount_proxy::MountPlace;
use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::failure::plain;
use anyhow::{Context, anyhow};
use nfs_proto::{MOUNT_PORT, MOUNT_PROGRAM};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{AcceptStatus, PeerGroup, ReplyBound, ReplyHeader, ReplyStatus, Transport};
use oncrpc_tcp::rpcbind::{self, NetId, Rpcbind};
use oncrpc_tcp::{Client, ClientConfig, ConnectionEnd, LocalPort, WarningLog};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the server may take for each step: to say where MOUNT is, to accept a connection, to answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// MOUNT of a server.
pub(super) struct MountServer {
    pub(super) place: MountPlace,
    /// What names another place: a key of the file, or an option.
    pub(super) place_key: String,
    /// The server's host.
    pub(super) host: String,
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
struct Failed {
    /// Where it was looked for; nowhere if the host has no address.
    at: Option<Found>,
    error: anyhow::Error,
}

impl MountServer {
    pub(super) fn new(place: MountPlace, place_key: String, host: String) -> Self {
        Self {
            place,
            place_key,
            host,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call. Logs where MOUNT is when that is new, once why it does not answer, and once that it answers again.
    pub(super) async fn call(&self, vers: u32, call: Payload, log: &WarningLog) -> Option<Payload> {
        match self.exchange(vers, call).await {
            Ok((found, reply)) => {
                self.handle_answer(found, log);
                if is_no_mount(&reply) {
                    self.handle_failure(&self.no_mount(found), log);
                }
                Some(reply)
            }
            Err(failed) => {
                self.handle_failure(&self.explain(&failed), log);
                None
            }
        }
    }

    async fn exchange(&self, vers: u32, call: Payload) -> Result<(Found, Payload), Failed> {
        let (endpoint, by_rpcbind) = match &self.place {
            MountPlace::At(endpoint) => (endpoint.clone(), None),
            MountPlace::Port(port) => (at(&self.host, *port), None),
            MountPlace::ByRpcbind => (at(&self.host, MOUNT_PORT), Some(vers)),
        };
        let addresses = endpoint.addresses().await;
        let addresses = addresses.with_context(|| endpoint.host.clone());
        let addresses = addresses.map_err(|error| Failed { at: None, error })?;
        let (found, client) = connect(&addresses, by_rpcbind).await?;
        let reply = client.call(call, ReplyBound::default()).await;
        let failed = |error| Failed {
            at: Some(found),
            error,
        };
        reply
            .map(|reply| (found, reply))
            .map_err(|error| failed(error.into()))
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

/// Connects to MOUNT at the first of these addresses that answers; at the port that rpcbind there says for a version of
/// MOUNT, if that is given.
async fn connect(
    addresses: &[SocketAddr],
    by_rpcbind: Option<u32>,
) -> Result<(Found, Client), Failed> {
    // mountd, too, asks for reserved ports, unless an export says `insecure`.
    let config = ClientConfig::new(DEADLINE).with_local_port(LocalPort::PreferablyReserved);
    let mut last = Failed {
        at: None,
        error: anyhow!(NO_ADDRESS),
    };
    for &(mut addr) in addresses {
        let by = match by_rpcbind {
            None => By::Administrator,
            Some(vers) => match ask_rpcbind(addr.ip(), vers).await {
                Some(port) => {
                    addr.set_port(port);
                    By::Rpcbind
                }
                None => By::Nobody,
            },
        };
        let found = Found { addr, by };
        match Client::connect_with(addr, &config).await {
            Ok(client) => return Ok((found, client)),
            Err(error) => {
                last = Failed {
                    at: Some(found),
                    error: error.into(),
                }
            }
        }
    }
    Err(last)
}

pub(super) fn at(host: &str, port: u16) -> Endpoint {
    Endpoint {
        host: host.to_owned(),
        port,
    }
}

/// The port that rpcbind says, if it says one.
async fn ask_rpcbind(host: IpAddr, vers: u32) -> Option<u16> {
    let client = Client::connect((host, rpcbind::PORT).into(), DEADLINE)
        .await
        .ok()?;
    let found = Rpcbind::new(client)
        .getaddr(MOUNT_PROGRAM, vers, NetId::tcp(host))
        .await;
    found.ok()?.map(|addr| addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    fn server() -> MountServer {
        let place = "635".parse().unwrap();
        MountServer::new(place, "--upstream-mount".to_owned(), "filer".to_owned())
    }

    #[tokio::test]
    async fn mount_is_sought_at_each_address_of_the_server() {
        let listen = || TcpListener::bind("127.0.0.1:0");
        let (gone, there) = (listen().await.unwrap(), listen().await.unwrap());
        let addresses = [gone, there].map(|listener| (listener.local_addr().unwrap(), listener));
        let [(nobody, gone), (somebody, _there)] = addresses;
        drop(gone);
        let (found, _client) = connect(&[nobody, somebody], None).await.ok().unwrap();
        assert_eq!(found.addr, somebody);
        let failed = connect(&[nobody], None).await.err().unwrap();
        let said = server().explain(&failed);
        assert!(said.contains(&format!("at {nobody}: ")), "{said}");
        assert!(said.contains("nobody listens there"), "{said}");
        assert!(
            said.ends_with("--upstream-mount names another place)"),
            "{said}"
        );
        assert!(connect(&[], None).await.is_err());
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
