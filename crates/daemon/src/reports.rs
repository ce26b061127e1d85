//! Reports of a running service: metrics over HTTP, and the control socket.

use crate::config::keys::{Key, path};
use crate::control::nfs4::{HeldList, Nfs4ClientStatus, StateAction, StateStatus};
use crate::control::socket::{self, Control};
use crate::listen;
use crate::metrics::{self, Metrics};
use anyhow::{Context, anyhow};
use printing::json;
use prometheus::proto::MetricFamily;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Context of the error of a control socket that cannot be made at a path.
pub(crate) fn no_control_socket_at(path: &Path) -> String {
    format!("{}: cannot make the control socket", path.display())
}

/// The reason, with advice.
fn explain(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "another process has it: another server of this user at that address, or it is no socket (name another place \
             with --control-socket)"
        ),
        _ => error.into(),
    }
}

/// Places where a service reports.
#[derive(Clone, Debug, Default)]
pub struct ReportPlaces {
    /// Address of metrics over HTTP; none without one.
    pub metrics: Option<SocketAddr>,
    /// Path of the control socket, where it is not the usual one.
    pub control_socket: Option<PathBuf>,
}

impl ReportPlaces {
    /// The keys of a table that has them.
    pub(crate) fn keys() -> [Key<Self>; 2] {
        [
            Key::value("metrics", metrics::parse, |places: &mut Self, addr| {
                places.metrics = Some(addr);
            }),
            Key::value("control_socket", path, |places: &mut Self, path| {
                places.control_socket = Some(path);
            }),
        ]
    }
}

/// Error of a service that keeps no state of clients.
const NO_STATE: &str = "this is a gateway: the state of NFSv4 clients is with the server";

/// A running service, as the control socket and metrics show it.
pub(crate) trait Tells: Send + Sync + 'static {
    /// The first address that it listens at, which names the control socket.
    fn listening(&self) -> SocketAddr;

    /// Notes the address of its metrics.
    fn metrics_are_at(&self, addr: SocketAddr);

    /// Its statistics, as one line of JSON.
    fn stats(&self) -> serde_json::Result<String>;

    /// Its connections, as one line of JSON.
    fn clients(&self) -> serde_json::Result<String>;

    /// Its clients of NFS version 4, as one line of JSON: none of a service that keeps no state of them.
    fn nfs4_clients(&self) -> serde_json::Result<String> {
        json::line(&Vec::<Nfs4ClientStatus>::new())
    }

    /// Opens and locks of these, of one or of all, as one line of JSON.
    fn held(&self, _client: Option<&str>) -> serde_json::Result<String> {
        json::line(&HeldList {
            error: Some(NO_STATE.to_owned()),
            ..HeldList::default()
        })
    }

    /// The state of clients of NFS version 4 in numbers, as one line of JSON, after something was done with it.
    fn state(&self, _action: Option<&StateAction>) -> serde_json::Result<String> {
        json::line(&StateStatus {
            error: Some(NO_STATE.to_owned()),
            ..StateStatus::default()
        })
    }

    /// Every metric, with its values of this moment.
    fn metrics(&self) -> Vec<MetricFamily>;
}

/// The reports of a service, until they are dropped.
pub(crate) struct Reports<T> {
    /// The service.
    pub(crate) observed: Arc<T>,
    metrics: Option<Metrics>,
    control: Option<(PathBuf, Control)>,
}

impl<T: Tells> Reports<T> {
    /// Reports on a service from now on. `metrics_option` names the option or key with the address of metrics.
    ///
    /// # Errors
    ///
    /// If it cannot listen where it was told to. Without a control socket in the usual place it goes on.
    pub(crate) async fn start(
        places: &ReportPlaces,
        observed: T,
        state_dir: Option<&Path>,
        metrics_option: &str,
    ) -> anyhow::Result<Self> {
        let observed = Arc::new(observed);
        let metrics = match places.metrics {
            Some(on) => Some(
                Metrics::start(on, Arc::clone(&observed) as Arc<dyn Tells>)
                    .await
                    .map_err(|error| listen::explain(error, on, metrics_option))?,
            ),
            None => None,
        };
        if let Some(metrics) = &metrics {
            observed.metrics_are_at(metrics.addr);
        }
        let start = |path: &Path| {
            let control = Control::start(path, Arc::clone(&observed) as Arc<dyn Tells>)
                .map_err(explain)
                .with_context(|| no_control_socket_at(path))?;
            anyhow::Ok((path.to_owned(), control))
        };
        let usual = socket::default_path(state_dir, observed.listening());
        let control = match (&places.control_socket, usual) {
            (Some(path), _) => Some(start(path)?),
            (None, Some(path)) => start(&path)
                .inspect_err(|error| {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "`rpcrdma stats` and `rpcrdma clients` cannot ask this process: name another place with \
                         --control-socket"
                    );
                })
                .ok(),
            (None, None) => None,
        };
        Ok(Self {
            observed,
            metrics,
            control,
        })
    }

    /// Address of metrics.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.addr)
    }

    /// Path of the control socket.
    pub(crate) fn control(&self) -> Option<&Path> {
        self.control.as_ref().map(|(path, _)| &**path)
    }
}
