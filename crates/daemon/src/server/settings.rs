//! Settings of a server: those of the command line, and of the table `[server]` of a file.

use super::local_users::Trust;
use crate::clients::Clients;
use crate::config::connections::ConnectionSettings;
use crate::config::keys::{Key, number, path};
use crate::config::serving::ServingSettings;
use crate::config::words::word;
use crate::listen::{self, TcpAddress};
use crate::reports::ReportPlaces;
use nfs_proto::{MOUNT_PORT, NFS_RDMA_PORT};
use nfs_server::Changes;
use printing::units;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Shortest lease, in seconds: shorter ones would run out while a client waits for its network.
const MIN_LEASE: u64 = 5;

/// Longest lease, in seconds.
const MAX_LEASE: u64 = 3600;

/// Reads the time in which clients of NFS version 4 renew their lease.
///
/// # Errors
///
/// If it is no time in whole seconds between 5 seconds and an hour.
pub fn lease(text: &str) -> Result<Duration, String> {
    let lease = units::parse_duration(text).map_err(|error| error.to_string())?;
    match lease.subsec_nanos() == 0 && (MIN_LEASE..=MAX_LEASE).contains(&lease.as_secs()) {
        true => Ok(lease),
        false => Err("a lease has whole seconds, from 5s to 1h".to_owned()),
    }
}

/// Settings of a server, beside its exports.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Addresses of RPC-over-RDMA.
    pub listen: Vec<SocketAddr>,
    /// Addresses of TCP without RDMA.
    pub tcp: Vec<TcpAddress>,
    /// TCP port of MOUNT, at the same hosts; 0 is any free port.
    pub mount_port: u16,
    /// Clients of exports that name none; this machine if there are none, and no other one can connect.
    pub allow: Vec<Clients>,
    /// Trust in callers.
    pub trust: Trust,
    /// Time at which changes of names and attributes reach the disk.
    pub changes: Changes,
    /// Directory for state. By default that of the service manager, or else that of the user.
    pub state_dir: Option<PathBuf>,
    /// Time in which clients of NFS version 4 renew their lease.
    pub lease: Duration,
    /// Whether rpcbind of this machine is told.
    pub rpcbind: bool,
    /// Settings of threads and connections.
    pub serving: ServingSettings,
    /// Whether a connection ends whose client sends more than it may.
    pub strict: bool,
    /// Places of metrics and of the control socket.
    pub reports: ReportPlaces,
    /// Settings of connections.
    pub connections: ConnectionSettings,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_RDMA_PORT))],
            tcp: Vec::new(),
            mount_port: MOUNT_PORT,
            allow: Vec::new(),
            trust: Trust::default(),
            changes: Changes::Durable,
            state_dir: None,
            lease: Duration::from_secs(90),
            rpcbind: false,
            serving: ServingSettings::default(),
            strict: false,
            reports: ReportPlaces::default(),
            connections: ConnectionSettings::default(),
        }
    }
}

impl ServerSettings {
    /// The keys of `[server]`, in order.
    pub(crate) fn keys() -> Vec<Key<Self>> {
        let own = [
            Key::list("listen", listen::parse, |settings: &mut Self, listen| {
                settings.listen = listen;
            })
            .with_default(),
            Key::list("tcp", str::parse, |settings: &mut Self, tcp| {
                settings.tcp = tcp;
            }),
            Key::value(
                "mount_port",
                number(0..=65_535),
                |settings: &mut Self, port| {
                    settings.mount_port = port;
                },
            )
            .with_default(),
            Key::list("allow", str::parse, |settings: &mut Self, allow| {
                settings.allow = allow;
            }),
            Key::flag("trust_local", |settings: &mut Self| {
                settings.trust.trust_local = true;
            }),
            Key::flag("manage_gids", |settings: &mut Self| {
                settings.trust.manage_gids = true;
            }),
            Key::value("changes", word, |settings: &mut Self, changes| {
                settings.changes = changes;
            })
            .with_default(),
            Key::value("state_dir", path, |settings: &mut Self, dir| {
                settings.state_dir = Some(dir);
            }),
            Key::value("lease", lease, |settings: &mut Self, lease| {
                settings.lease = lease;
            })
            .with_default(),
            Key::flag("rpcbind", |settings: &mut Self| settings.rpcbind = true),
        ];
        let serving =
            ServingSettings::keys().map(|key| key.within(|all: &mut Self| &mut all.serving));
        let strict = Key::flag("strict", |settings: &mut Self| settings.strict = true);
        let reports = ReportPlaces::keys().map(|key| key.within(|all: &mut Self| &mut all.reports));
        let connections = ConnectionSettings::keys();
        let connections = connections.map(|key| key.within(|all: &mut Self| &mut all.connections));
        own.into_iter()
            .chain(serving)
            .chain([strict])
            .chain(reports)
            .chain(connections)
            .collect()
    }
}
