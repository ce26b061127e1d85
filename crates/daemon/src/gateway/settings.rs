//! Settings of a gateway: those of the command line, and of the table `[gateway]` of a file.

use crate::clients::Clients;
use crate::config::connections::ConnectionSettings;
use crate::config::keys::{Key, number};
use crate::reports::ReportPlaces;
use crate::server::settings::MAX_THREADS;
use printing::units;
use std::time::Duration;

/// Settings of a gateway, beside its pairs.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Clients of pairs that name none.
    pub allow: Vec<Clients>,
    /// Users of this machine may claim any uid, as other machines may.
    pub trust_local: bool,
    /// Threads that serve connections of RDMA clients; by default one for each CPU.
    pub threads: Option<u16>,
    /// Most client connections of each pair.
    pub max_connections: u16,
    /// Time after which a client connection without a call is closed; 0 is never.
    pub idle_timeout: Duration,
    /// Time for a call to the server.
    pub call_timeout: Duration,
    /// Places of metrics and of the control socket.
    pub reports: ReportPlaces,
    /// Settings of connections.
    pub connections: ConnectionSettings,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            trust_local: false,
            threads: None,
            max_connections: 1024,
            idle_timeout: Duration::from_secs(360),
            call_timeout: Duration::from_secs(300),
            reports: ReportPlaces::default(),
            connections: ConnectionSettings::default(),
        }
    }
}

impl GatewaySettings {
    /// The keys of `[gateway]`, in order.
    pub(crate) fn keys() -> Vec<Key<Self>> {
        let own = [
            Key::list("allow", str::parse, |settings: &mut Self, allow| {
                settings.allow = allow;
            }),
            Key::flag("trust_local", |settings: &mut Self| {
                settings.trust_local = true;
            }),
            Key::value(
                "threads",
                number(1..=MAX_THREADS),
                |settings: &mut Self, n| {
                    settings.threads = Some(n);
                },
            ),
            Key::value(
                "max_connections",
                number(1..=65_535),
                |settings: &mut Self, n| {
                    settings.max_connections = n;
                },
            )
            .with_default(),
            Key::value(
                "idle_timeout",
                units::parse_duration,
                |settings: &mut Self, time| {
                    settings.idle_timeout = time;
                },
            )
            .with_default(),
            Key::value(
                "call_timeout",
                units::parse_duration,
                |settings: &mut Self, time| {
                    settings.call_timeout = time;
                },
            )
            .with_default(),
        ];
        let reports = ReportPlaces::keys().map(|key| key.within(|all: &mut Self| &mut all.reports));
        let connections = ConnectionSettings::keys();
        let connections = connections.map(|key| key.within(|all: &mut Self| &mut all.connections));
        own.into_iter().chain(reports).chain(connections).collect()
    }
}
