//! The control socket of a running server, and what it tells.
//!
//! A client connects, sends one line with a JSON document, a [`Request`], and gets one line with a JSON
//! document back: a [`ServerStatus`] or a list of [`ClientStatus`]. Only the user who runs the server, and
//! root, may connect.

use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::printable;
use nfs_server::default_state_dir;
use rpcrdma::IoCounters;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Most bytes of a request.
pub(crate) const MAX_REQUEST: u64 = 1024;

/// Most bytes of a reply: each of the connections that a server may have takes some hundred.
const MAX_REPLY: u64 = 64 << 20;

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where services that systemd starts have their sockets and their state.
const OF_SERVICES: [&str; 3] = ["/run/rpcrdma", "/run/rpcrdma-gateway", "/var/lib/rpcrdma"];

/// What a server is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "get")]
pub(crate) enum Request {
    /// What it did so far: a [`ServerStatus`].
    Stats,
    /// Its connections: a list of [`ClientStatus`].
    Clients,
}

/// What a server did so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ServerStatus {
    /// Version of the server program.
    pub(crate) version: String,
    /// Process id of the server.
    pub(crate) pid: u32,
    /// Where RPC-over-RDMA is served, as `ADDRESS:PORT`.
    pub(crate) listening: String,
    /// Where it is served over each provider: the address above, and those of RDMA devices beside it.
    #[serde(default)]
    pub(crate) listeners: Vec<ListenerStatus>,
    /// Where MOUNT is answered over TCP.
    pub(crate) mount: String,
    /// Where metrics are.
    pub(crate) metrics: Option<String>,
    /// Seconds since the start.
    pub(crate) uptime_seconds: f64,
    /// The exports, in order.
    pub(crate) exports: Vec<ExportStatus>,
    /// Reloads of the file of exports.
    pub(crate) reloads: ReloadStatus,
    /// Connections of RPC-over-RDMA.
    pub(crate) connections: ConnectionCounts,
    /// Calls that clients may have in flight, on all connections together.
    pub(crate) credits_granted: u64,
    /// Calls in flight now.
    pub(crate) credits_in_use: u64,
    /// Calls that were given to threads which may wait for a disk.
    pub(crate) jobs: u64,
    /// Those of them that are not answered yet.
    pub(crate) jobs_in_flight: u64,
    /// Memory for the chunks of calls in flight.
    pub(crate) chunk_memory_bytes: u64,
    /// Files kept open, of all exports.
    pub(crate) open_files: u64,
    /// The duplicate request cache.
    pub(crate) duplicate_requests: DuplicateRequests,
    /// Counters of RPC-over-RDMA by name.
    pub(crate) rdma: BTreeMap<String, u64>,
    /// Work of the queue pairs by name: work requests, doorbells, completions, registrations and copied bytes.
    #[serde(default)]
    pub(crate) work: BTreeMap<String, u64>,
    /// Bytes in and out, with all framing.
    pub(crate) bytes_in: u64,
    /// The same, out.
    pub(crate) bytes_out: u64,
    /// Calls by procedure.
    pub(crate) procedures: Vec<ProcedureStatus>,
}

/// Counts of the work of queue pairs, by the names of [`ServerStatus::work`].
pub(crate) fn work(io: &IoCounters) -> BTreeMap<String, u64> {
    let all = io.work.iter().chain([("bytes_copied", io.bytes_copied)]);
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListenerStatus {
    /// What it listens over: `iwarp` (software iWARP over TCP), `verbs` (RDMA devices), or `tcp` for a gateway's clients
    /// without RDMA.
    pub(crate) provider: String,
    /// Where, as `ADDRESS:PORT`.
    pub(crate) address: String,
    /// Name of the RDMA device that has the address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
}

/// A provider by which a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReachedOver {
    /// `iwarp` (software iWARP over TCP), `verbs` (RDMA devices) or `tcp`.
    pub(crate) provider: String,
    /// Names of the RDMA devices that there are for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<String>,
}

/// What a gateway did so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GatewayStatus {
    /// Version of the program.
    pub(crate) version: String,
    /// Process id of the gateway.
    pub(crate) pid: u32,
    /// Where metrics are.
    pub(crate) metrics: Option<String>,
    /// Seconds since the start.
    pub(crate) uptime_seconds: f64,
    /// The pairs of a listening address and a server, in order.
    pub(crate) pairs: Vec<PairStatus>,
    /// Pairs of the file that could not be started at the last reload, nor since.
    #[serde(default)]
    pub(crate) failed: Vec<FailedPairStatus>,
    /// Where sockets of the service manager listen, also those of pairs that a reload removed.
    #[serde(default)]
    pub(crate) sockets: Vec<String>,
    /// Reloads of the file.
    pub(crate) reloads: ReloadStatus,
}

/// A listening address and its server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PairStatus {
    /// Where clients connect, as a URL.
    pub(crate) listen: String,
    /// The server, as a URL.
    pub(crate) upstream: String,
    /// Where MOUNT is passed on over TCP.
    pub(crate) mount: Option<String>,
    /// Where MOUNT of the server is, if it is passed on: `rpcbind` for the port that rpcbind of the server's host says, else
    /// 20048; or `HOST:PORT`.
    #[serde(default)]
    pub(crate) upstream_mount: Option<String>,
    /// Where it listens over each provider: the address above, and those of RDMA devices beside it.
    #[serde(default)]
    pub(crate) listeners: Vec<ListenerStatus>,
    /// The connections to the server of now, by what they are over.
    #[serde(default)]
    pub(crate) upstream_over: Vec<UpstreamStatus>,
    /// Who may connect.
    pub(crate) allow: Vec<String>,
    /// Counters by name: `connections` is a number of now, the others are totals.
    pub(crate) counters: BTreeMap<String, u64>,
    /// Seconds that the oldest call of a client without a reply has waited; 0 without one.
    #[serde(default)]
    pub(crate) oldest_call_seconds: f64,
}

/// Connections of a gateway to a server, over one provider and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UpstreamStatus {
    /// `iwarp` (software iWARP over TCP), `verbs` (an RDMA device) or `tcp`.
    pub(crate) provider: String,
    /// Name of the RDMA device, if they use one.
    pub(crate) device: Option<String>,
    /// How many there are.
    pub(crate) connections: u64,
    /// Handles of memory that the server has invalidated on them; 0 over TCP.
    pub(crate) remote_invalidations: u64,
}

/// A pair of the file that could not be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FailedPairStatus {
    /// Where it would listen, as a URL.
    pub(crate) listen: String,
    /// The server, as a URL.
    pub(crate) upstream: String,
    /// Why it could not be started.
    pub(crate) error: String,
    /// Where the pair that it was to replace still listens, as a URL; null if nothing is served.
    pub(crate) kept: Option<String>,
    /// Attempts to start it since the reload: every 30 s, unless another pair is kept in its place.
    #[serde(default)]
    pub(crate) attempts: u64,
}

/// A running command that tells of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Status {
    Gateway(GatewayStatus),
    Server(Box<ServerStatus>),
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExportStatus {
    /// The path that clients mount.
    pub(crate) name: String,
    /// The directory that is served.
    pub(crate) directory: String,
    /// Whether nobody can change anything.
    pub(crate) read_only: bool,
    /// For whom it is, as rules name them.
    pub(crate) clients: Vec<String>,
    /// What each of them may do: the first rule with the address of a client counts.
    #[serde(default)]
    pub(crate) rules: Vec<RuleStatus>,
    /// Why it is not served now, if it is not.
    pub(crate) absent: Option<String>,
}

/// What some clients may do with an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RuleStatus {
    /// Address, network or host name.
    pub(crate) clients: String,
    /// Whether they can change nothing.
    pub(crate) read_only: bool,
    /// Whose requests are treated as those of nobody: `root`, `remote-root`, `all` or `none`.
    pub(crate) squash: String,
    /// The user and the group that nobody is.
    pub(crate) anonuid: u32,
    /// The group that nobody is.
    pub(crate) anongid: u32,
}

impl RuleStatus {
    /// A rule in one line.
    pub(crate) fn describe(&self) -> String {
        let Self {
            clients,
            squash,
            anonuid,
            anongid,
            ..
        } = self;
        let how = match self.read_only {
            true => "read-only",
            false => "read-write",
        };
        let clients = printable(clients.as_bytes());
        format!("{clients}: {how}, squash {squash}, nobody is {anonuid}:{anongid}")
    }
}

/// How often the file of exports was read again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReloadStatus {
    /// Reloads after which the exports were those of the file.
    pub(crate) succeeded: u64,
    /// Reloads that changed nothing, as the file had an error.
    pub(crate) failed: u64,
    /// Time since the last one.
    pub(crate) last_seconds: Option<f64>,
    /// Why that failed, if it did: the exports are still those from before.
    pub(crate) last_error: Option<String>,
}

/// Connections of a server now, and so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConnectionCounts {
    /// Connections that are being set up.
    pub(crate) setup: u64,
    /// Connections without a call in flight.
    pub(crate) idle: u64,
    /// Connections with calls in flight.
    pub(crate) active: u64,
    /// Connections that end once their calls are answered.
    pub(crate) draining: u64,
    /// Connections that speak version one of RPC-over-RDMA.
    pub(crate) version_one: u64,
    /// Connections that speak version two.
    pub(crate) version_two: u64,
    /// Connections accepted since the start.
    pub(crate) accepted: u64,
    /// Connections refused since the start.
    pub(crate) refused: u64,
    /// Connections closed to make room for others.
    pub(crate) evicted: u64,
    /// Connections closed because the client did not answer.
    pub(crate) unanswered: u64,
}

impl ConnectionCounts {
    pub(crate) fn now(&self) -> u64 {
        self.setup + self.idle + self.active + self.draining
    }
}

/// The duplicate request cache.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DuplicateRequests {
    /// Repeated calls that were answered from the cache.
    pub(crate) hits: u64,
    /// Calls that were not repetitions.
    pub(crate) misses: u64,
    /// Calls that were not executed for want of room in the cache.
    pub(crate) refused: u64,
    /// Results dropped to make room.
    pub(crate) evicted: u64,
    /// Results dropped as they grew old.
    pub(crate) expired: u64,
    /// Results kept now.
    pub(crate) entries: u64,
}

/// The calls of one procedure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProcedureStatus {
    /// `nfs`, `nfsacl` or `mount`.
    pub(crate) program: String,
    /// The procedure, such as `READ`.
    pub(crate) name: String,
    /// Calls that were answered.
    pub(crate) calls: u64,
    /// Calls that failed, by kind of failure; kinds without any are left out.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Calls in buckets of latency: up to 1 µs, 2 µs, 4 µs and so on, and beyond all bounds.
    pub(crate) latency_buckets: Vec<u64>,
    /// Sum of the latencies in the buckets, in seconds.
    pub(crate) latency_sum_seconds: f64,
}

/// A procedure in a list of those of all programs.
pub(crate) fn shown(program: &str, procedure: &str) -> String {
    match program {
        "nfs" => procedure.to_owned(),
        other => format!("{other}/{procedure}"),
    }
}

/// One connection of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ClientStatus {
    /// Address and port of the client.
    pub(crate) address: String,
    /// Where the pair listens that it is connected to, as a URL, of a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
    /// What the connection uses: `iwarp` (software iWARP over TCP), `verbs` (an RDMA device) or, of a gateway, `tcp`; null
    /// during setup.
    #[serde(default)]
    pub(crate) provider: Option<String>,
    /// Name of the RDMA device, if it uses one.
    #[serde(default)]
    pub(crate) device: Option<String>,
    /// What the connection to the server uses, of a gateway that has made it: `tcp`, `iwarp` or `verbs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_provider: Option<String>,
    /// Name of the RDMA device of that connection, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) upstream_device: Option<String>,
    /// `setup`, `idle`, `active` or `draining`.
    pub(crate) state: String,
    /// Version of RPC-over-RDMA, once that is settled.
    pub(crate) version: Option<u32>,
    /// Seconds since the connection was made; over `tcp`, since the first call.
    pub(crate) age_seconds: f64,
    /// Calls that the client may have in flight; 0 over `tcp`, which has no credits.
    pub(crate) credits_granted: u32,
    /// Calls in flight now.
    pub(crate) credits_in_use: u64,
    /// Calls so far.
    pub(crate) calls: u64,
    /// Calls that were given to threads which may wait for a disk.
    pub(crate) jobs: u64,
    /// Those of them that are not answered yet.
    pub(crate) jobs_in_flight: u64,
    /// Calls that came again and were not executed twice.
    pub(crate) duplicate_request_hits: u64,
    /// Read chunks pulled from the client.
    pub(crate) read_chunks: u64,
    /// Write chunks filled at the client.
    pub(crate) write_chunks: u64,
    /// Reply chunks filled at the client.
    pub(crate) reply_chunks: u64,
    /// Bytes pulled by RDMA Read.
    pub(crate) rdma_bytes_in: u64,
    /// Bytes moved by RDMA Write.
    pub(crate) rdma_bytes_out: u64,
    /// Bytes that came in Sends, or over `tcp`.
    pub(crate) inline_bytes_in: u64,
    /// Bytes that went in Sends, or over `tcp`.
    pub(crate) inline_bytes_out: u64,
    /// Registrations of memory of the server.
    pub(crate) registrations: u64,
    /// Handles that the server invalidated itself.
    pub(crate) local_invalidations: u64,
    /// Handles that the client invalidated.
    pub(crate) remote_invalidations: u64,
    /// Handles of the client that went with replies.
    pub(crate) invalidations_sent: u64,
    /// Memory for the chunks of calls in flight.
    pub(crate) chunk_memory_bytes: u64,
}

/// Which server is asked.
#[derive(Args, Debug)]
pub(crate) struct ControlArgs {
    /// Control socket of the server [default: that of the only server on this machine]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ControlArgs {
    /// The server with this control socket, or the only one on this machine.
    pub(crate) fn of(socket: Option<PathBuf>) -> Self {
        Self { socket }
    }

    /// Asks the server; its reply, as JSON and parsed.
    ///
    /// # Errors
    ///
    /// If there is no server, or more than one, or it does not answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: Request,
    ) -> anyhow::Result<(String, T)> {
        let stream = match &self.socket {
            Some(path) => connect(path).await?,
            None => only_one().await?,
        };
        let reply = tokio::time::timeout(TIMEOUT, exchange(stream, request)).await;
        let reply = reply.context("the server does not answer")??;
        let parsed = serde_json::from_str(&reply)
            .context("cannot understand the server: it may be of another version")?;
        Ok((reply, parsed))
    }
}

async fn exchange(mut stream: UnixStream, request: Request) -> anyhow::Result<String> {
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut reply = String::new();
    let len = stream.take(MAX_REPLY).read_to_string(&mut reply).await?;
    if len == 0 {
        bail!("the server has too many to answer: try again");
    }
    reply.truncate(reply.trim_end().len());
    Ok(reply)
}

/// The servers that this user may ask, of those with a control socket in a usual place or in one of these.
pub(crate) async fn running(also_in: impl Iterator<Item = &Path>) -> Vec<ServerStatus> {
    let also_in = also_in.map(Path::to_owned);
    let dirs: Vec<PathBuf> = usual_places().into_iter().chain(also_in).collect();
    all_at(dirs.iter().flat_map(|dir| sockets_in(dir)).collect()).await
}

/// The gateways that this user may ask, of those with a control socket in a usual place or at this one.
pub(crate) async fn gateways(also: Option<&Path>) -> Vec<GatewayStatus> {
    let dirs = usual_places();
    let sockets = dirs.iter().flat_map(|dir| sockets_in(dir));
    all_at(sockets.chain(also.map(Path::to_owned)).collect()).await
}

/// What has these control sockets and tells of itself in this way.
async fn all_at<T: DeserializeOwned>(paths: BTreeSet<PathBuf>) -> Vec<T> {
    let mut running = Vec::new();
    for path in paths {
        let asked = ControlArgs { socket: Some(path) };
        // Others are left of servers that were killed, or of another version.
        running.extend(asked.ask(Request::Stats).await.map(|(_, status)| status));
    }
    running
}

fn usual_places() -> Vec<PathBuf> {
    let services = OF_SERVICES.iter().map(PathBuf::from);
    services.chain(default_state_dir()).collect()
}

fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.file_type().is_socket())
}

async fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let connected = UnixStream::connect(path).await;
    connected.map_err(|error| {
        let shown = path.display();
        match error.kind() {
            ErrorKind::PermissionDenied => anyhow!("{shown}: {DENIED}"),
            ErrorKind::NotFound => {
                anyhow!("{shown}: there is no control socket (`serve --json` and `gateway --json` print where it is)")
            }
            ErrorKind::ConnectionRefused if !is_socket(path) => {
                anyhow!("{shown}: it is not a control socket")
            }
            ErrorKind::ConnectionRefused => {
                anyhow!("{shown}: the server that had this control socket has ended")
            }
            _ => anyhow::Error::new(error).context(format!("{shown}: cannot query the server")),
        }
    })
}

/// What there is to say where a server may not be asked.
const DENIED: &str = "this user may not query the server (use sudo, or be the user who runs it)";

/// The socket of the one server that runs.
async fn only_one() -> anyhow::Result<UnixStream> {
    let dirs = usual_places();
    let (mut found, mut denied) = (Vec::new(), None);
    for path in dirs.iter().flat_map(|dir| sockets_in(dir)) {
        match UnixStream::connect(&path).await {
            Ok(stream) => found.push((path, stream)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = Some(path),
            // It is left of a server that was killed, or not ours.
            Err(_) => {}
        }
    }
    let closed = |dir: &&PathBuf| {
        let read = std::fs::read_dir(dir);
        read.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    let denied = denied.or_else(|| dirs.iter().find(closed).cloned());
    match (found.len(), denied) {
        (1, _) => Ok(found.remove(0).1),
        (0, Some(path)) => bail!("{}: {DENIED}", path.display()),
        (0, None) => {
            let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            bail!(
                "found no server that this user may query: there is no control socket in {} (name it with \
                 --socket; a server without a state directory needs --control-socket)",
                dirs.join(", ")
            )
        }
        (_, _) => {
            let paths: Vec<_> = found
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect();
            bail!(
                "several servers run here: select one with --socket, of {}",
                paths.join(", ")
            )
        }
    }
}

/// What looks like a control socket in a directory, in order.
fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    // Without the directory there are none.
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_control_socket(path))
        .collect();
    paths.sort();
    paths
}

/// The name of the control socket of the server that listens there.
pub(crate) fn socket_name(listening: &str) -> String {
    format!("control-{listening}.sock")
}

fn is_control_socket(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("control-") && name.ends_with(".sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_small_documents() {
        let check = |request, text: &str| {
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(line, text);
            assert!(line.len() < usize::try_from(MAX_REQUEST).unwrap());
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        };
        check(Request::Stats, r#"{"get":"stats"}"#);
        check(Request::Clients, r#"{"get":"clients"}"#);
    }

    #[test]
    fn control_sockets_are_told_from_other_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "key",
            "control-127.0.0.1:20049.sock",
            "control.sock",
            "b.sock",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = sockets_in(dir.path());
        assert_eq!(found, [dir.path().join(socket_name("127.0.0.1:20049"))]);
        assert!(sockets_in(&dir.path().join("none")).is_empty());
    }
}
