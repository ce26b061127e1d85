//! MOUNT over TCP, passed on to the server: mounts of NFS version 3 ask it for the first file handle.

use super::side::UpstreamUrl;
use crate::endpoint::Endpoint;
use crate::endpoint::NO_ADDRESS;
use crate::peer_warnings::PeerWarnings;
use crate::serve::null::NullOnly;
use anyhow::{Context, anyhow};
use nfs_proto::{MOUNT_PORT, MOUNT_PROGRAM};
use oncrpc::admission::Admission;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    AcceptStatus, Answer, Call, Caller, LocalUsers, Programs, Reply, ReplyBound, ReplyHeader,
    ReplyStatus, Service, Transport,
};
use oncrpc_tcp::rpcbind::{self, NetId, Rpcbind};
use oncrpc_tcp::{Client, ClientConfig, Limits, LocalPort, Server};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long the server may take for each step: to say where MOUNT is, to accept a connection, to answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Where MOUNT of a server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MountPlace {
    /// At the port that rpcbind of the server's host says, or the usual one if there is no rpcbind.
    #[default]
    ByRpcbind,
    /// At this port of the server's host.
    Port(u16),
    /// Elsewhere.
    At(Endpoint),
}

impl FromStr for MountPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return match port {
                0 => Err("port 0 is none".to_owned()),
                port => Ok(Self::Port(port)),
            };
        }
        let has_port = text.rsplit_once(']').map_or(text, |(_, behind)| behind);
        if !has_port.contains(':') {
            return Err("it is a port, or a host and a port, as filer:20048".to_owned());
        }
        text.parse()
            .map(Self::At)
            .map_err(|error| format!("{error}"))
    }
}

impl fmt::Display for MountPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByRpcbind => f.write_str("the port that rpcbind says"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::At(endpoint) => endpoint.fmt(f),
        }
    }
}

/// Who may connect.
pub(super) type Admits = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// MOUNT of a server over TCP.
pub(super) struct MountProxy {
    pub(super) addr: SocketAddr,
    admission: Admission,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl MountProxy {
    /// Passes calls on that come to this socket.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used.
    pub(super) fn start(
        listener: std::net::TcpListener,
        place: MountPlace,
        upstream: &UpstreamUrl,
        admits: Admits,
        local_users: Arc<dyn LocalUsers>,
    ) -> anyhow::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let addr = listener.local_addr().context("cannot listen")?;
        let service = Forward {
            place,
            host: upstream.server.host.clone(),
            warnings: Arc::default(),
        };
        let admission = Admission::new(Limits::default().of_connections());
        let server = Server::new(listener, Arc::new(service), Limits::default())
            .admit(move |addr| admits(addr))
            .admission(admission.clone())
            .local_users(Some(local_users));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            // A dropped sender means the same: nobody needs it any more.
            let _ = stopped.await;
        }));
        Ok(Self {
            addr,
            admission,
            stop,
            task,
        })
    }

    /// Limits the connections of clients, and those of one address to half of them.
    pub(super) fn limit_connections(&self, connections: usize) {
        let usual = Limits::default();
        let limits = Limits {
            connections,
            connections_of_address: usual.connections_of_address.min(connections.div_ceil(2)),
            ..usual
        };
        self.admission.set_limits(limits.of_connections());
    }

    /// Answers what was begun, and ends.
    pub(super) async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// Passes calls of MOUNT on, each over a connection of its own: they are rare, and the server sees each as
/// from a client that comes for the first time.
struct Forward {
    place: MountPlace,
    /// The server's host.
    host: String,
    warnings: Arc<PeerWarnings>,
}

impl Service for Forward {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        // Calls are small, and this one is passed on as it came.
        let copy = Payload::new(call.head().to_vec().into(), 0);
        let (xid, prog, vers) = match Call::parse(copy, caller) {
            Ok(call) => (call.xid, call.prog, call.vers),
            Err(reply) => return Answer::Now(reply),
        };
        if prog != MOUNT_PROGRAM {
            return Programs::new().with(NullOnly).call(call, caller);
        }
        let (place, host) = (self.place.clone(), self.host.clone());
        let (peer, group, warnings) = (caller.addr, caller.group, Arc::clone(&self.warnings));
        Answer::Later(Box::pin(async move {
            match exchange(&place, &host, vers, call).await {
                Ok(reply) => Reply::Message(reply),
                Err(error) => {
                    if warnings.may_warn(group) {
                        let error = format!("{error:#}");
                        tracing::warn!(target: "gateway", %peer, error, "MOUNT of the server cannot be reached: --upstream-mount names its place");
                    }
                    Reply::Message(system_err(xid))
                }
            }
        }))
    }
}

fn system_err(xid: u32) -> Payload {
    let mut w = Writer::default();
    let status = ReplyStatus::accepted(AcceptStatus::SystemErr);
    ReplyHeader { xid, status }.write(&mut w);
    w.finish()
}

async fn exchange(
    place: &MountPlace,
    host: &str,
    vers: u32,
    call: Payload,
) -> anyhow::Result<Payload> {
    let addr = find(place, host, vers).await?;
    // mountd, too, asks for reserved ports, unless an export says `insecure`.
    let config = ClientConfig::new(DEADLINE).with_local_port(LocalPort::PreferablyReserved);
    let client = Client::connect_with(addr, &config).await?;
    Ok(client.call(call, ReplyBound::default()).await?)
}

/// Where MOUNT of the server is now.
async fn find(place: &MountPlace, host: &str, vers: u32) -> anyhow::Result<SocketAddr> {
    let (endpoint, ask) = match place {
        MountPlace::At(endpoint) => (endpoint.clone(), false),
        MountPlace::Port(port) => (at(host, *port), false),
        MountPlace::ByRpcbind => (at(host, MOUNT_PORT), true),
    };
    let addresses = endpoint.addresses().await?;
    let mut addr = *addresses.first().ok_or_else(|| anyhow!(NO_ADDRESS))?;
    if ask && let Some(port) = ask_rpcbind(addr.ip(), vers).await {
        addr.set_port(port);
    }
    Ok(addr)
}

fn at(host: &str, port: u16) -> Endpoint {
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

    #[test]
    fn place_of_mount_is_a_port_with_or_without_a_host() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<MountPlace>().unwrap().to_string(), expected);
        };
        check("635", "port 635");
        check("filer:635", "filer:635");
        check("[::1]:635", "[::1]:635");
        for bad in ["", "0", "filer", "70000", "[::1]"] {
            assert!(bad.parse::<MountPlace>().is_err(), "{bad}");
        }
    }
}
