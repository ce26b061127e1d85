//! Settings of a gateway: those of the command line, and of the table `[gateway]` of a file.

use crate::clients::Clients;
use crate::config::connections::ConnectionSettings;
use crate::config::keys::Key;
use crate::config::serving::ServingSettings;
use crate::reports::ReportPlaces;
use printing::units;
use std::time::Duration;

/// Settings of a gateway, beside its pairs.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Clients of pairs that name none.
    pub allow: Vec<Clients>,
    /// Users of this machine may claim any uid, as other machines may.
    pub trust_local: bool,
    /// Settings of threads and client connections.
    pub serving: ServingSettings,
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
            serving: ServingSettings::default(),
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
        ];
        let call_timeout = Key::value(
            "call_timeout",
            units::parse_duration,
            |settings: &mut Self, time| {
                settings.call_timeout = time;
            },
        )
        .with_default();
        let serving =
            ServingSettings::keys().map(|key| key.within(|all: &mut Self| &mut all.serving));
        let reports = ReportPlaces::keys().map(|key| key.within(|all: &mut Self| &mut all.reports));
        let connections = ConnectionSettings::keys();
        let connections = connections.map(|key| key.within(|all: &mut Self| &mut all.connections));
        own.into_iter()
            .chain(serving)
            .chain([call_timeout])
            .chain(reports)
            .chain(connections)
            .collect()
    }
}
