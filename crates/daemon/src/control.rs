//! The control socket of a running server or gateway: its requests and replies.
//!
//! A client connects, sends one line with a JSON document, a [`Request`], and gets one line with a JSON
//! document back: a [`ServerStatus`], a list of [`ClientStatus`], or one of those in [`nfs4`]. Only the user who runs the server, and
//! root, may connect.

pub mod asking;
pub mod nfs4;
pub(crate) mod socket;

use nfs_client::printable;
use nfs4::StateAction;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

/// Most bytes of a request.
pub const MAX_REQUEST: u64 = 8192;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "get")]
pub enum Request {
    /// Statistics: a [`ServerStatus`] or [`GatewayStatus`].
    Stats,
    /// Its connections: a list of [`ClientStatus`].
    Clients,
    /// Clients of NFS version 4: a list of [`Nfs4ClientStatus`](nfs4::Nfs4ClientStatus).
    Nfs4Clients,
    /// Opens and locks of these: a [`HeldList`](nfs4::HeldList).
    Held {
        /// That of one client alone, named by its id or its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<String>,
    },
    /// The state of clients of NFS version 4 in numbers: a [`StateStatus`](nfs4::StateStatus).
    State {
        /// Something that is to be done with it before.
        #[serde(default, rename = "do", skip_serializing_if = "Option::is_none")]
        action: Option<StateAction>,
    },
}

/// Status of a server, with its exports.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// Its numbers.
    #[serde(flatten)]
    pub statistics: ServerStatistics,
    /// Listeners over each provider: the addresses of `listen`, those of RDMA devices beside them, and those of `tcp`.
    #[serde(default)]
    pub listeners: Vec<ListenerStatus>,
    /// Address of MOUNT over TCP, the first of `mounts`.
    pub mount: String,
    /// Each address where MOUNT is answered over TCP.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// Name of the sockets of the service manager that MOUNT uses, if it uses any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_socket: Option<String>,
    /// Address of the metrics.
    pub metrics: Option<String>,
    /// The exports, in order.
    pub exports: Vec<ExportStatus>,
    /// Reloads of the file of exports.
    pub reloads: ReloadStatus,
}

impl Deref for ServerStatus {
    type Target = ServerStatistics;

    fn deref(&self) -> &ServerStatistics {
        &self.statistics
    }
}

impl ServerStatus {
    /// The sockets of the service manager that it uses, in words.
    pub fn describe_sockets(&self) -> Option<String> {
        let listeners = self.listeners.iter();
        let listeners = listeners.map(|listener| (&listener.socket, &*listener.address));
        let mounts = self.mounts.iter();
        let mounts = mounts.map(|address| (&self.mount_socket, &**address));
        describe_sockets(listeners.chain(mounts))
    }
}

/// Statistics of a server, in numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ServerStatistics {
    /// Version of the server program.
    pub version: String,
    /// Process id of the server.
    pub pid: u32,
    /// Address of RPC-over-RDMA, as `ADDRESS:PORT`: the first of `listen`.
    pub listening: String,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// Connections, over RDMA and over TCP.
    pub connections: ConnectionCounts,
    /// Calls that clients may have in flight, on all connections together.
    pub credits_granted: u64,
    /// Calls in flight now.
    pub credits_in_use: u64,
    /// Calls that were given to threads which may wait for a disk.
    pub jobs: u64,
    /// Those of them that are not answered yet.
    pub jobs_in_flight: u64,
    /// Memory for the chunks of calls in flight.
    pub chunk_memory_bytes: u64,
    /// Files kept open, of all exports.
    pub open_files: u64,
    /// The duplicate request cache.
    pub duplicate_requests: DuplicateRequests,
    /// Counters of RPC-over-RDMA by name.
    pub rdma: BTreeMap<String, u64>,
    /// Work of the queue pairs by name: work requests, doorbells, completions, registrations and copied bytes.
    #[serde(default)]
    pub work: BTreeMap<String, u64>,
    /// Bytes in and out, with all framing.
    pub bytes_in: u64,
    /// The same, out.
    pub bytes_out: u64,
    /// Calls by procedure. In the log, procedures that were not called are left out.
    pub procedures: Vec<ProcedureStatus>,
}

/// Event with the statistics of a server, for the log.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ServerEvent {
    /// Exports that are served.
    pub exports_served: usize,
    /// Exports that are not there.
    pub exports_absent: usize,
    /// The numbers of `rpcrdma stats --json`.
    #[serde(flatten)]
    pub statistics: ServerStatistics,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ListenerStatus {
    /// Provider of a listener: `iwarp` (software iWARP over TCP), `verbs` (RDMA devices), or `tcp` for clients without RDMA.
    pub provider: String,
    /// Where, as `ADDRESS:PORT`.
    pub address: String,
    /// Name of the RDMA device that has the address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Name of the socket of the service manager that it uses (`FileDescriptorName=`), if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
}

/// The sockets of the service manager among listeners, each with its name and its address.
fn describe_sockets<'a>(
    listeners: impl Iterator<Item = (&'a Option<String>, &'a str)>,
) -> Option<String> {
    let named = listeners.filter_map(|(name, address)| {
        let socket = format!("{} at {address}", name.as_ref()?);
        Some(printable(socket.as_bytes()))
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// A provider by which a server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ReachedOver {
    /// `iwarp` (software iWARP over TCP), `verbs` (RDMA devices) or `tcp`.
    pub provider: String,
    /// Names of the RDMA devices that there are for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// Status of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct GatewayStatus {
    /// Version of the program.
    pub version: String,
    /// Process id of the gateway.
    pub pid: u32,
    /// Address of the metrics.
    pub metrics: Option<String>,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// The pairs of a listening address and a server, in order.
    pub pairs: Vec<PairStatus>,
    /// Pairs of the file that could not be started at the last reload, nor since.
    #[serde(default)]
    pub failed: Vec<FailedPairStatus>,
    /// Addresses of the service manager's sockets, also those of pairs that a reload removed.
    #[serde(default)]
    pub sockets: Vec<String>,
    /// Reloads of the file.
    pub reloads: ReloadStatus,
}

impl GatewayStatus {
    /// The sockets of the service manager that its pairs use, in words.
    pub fn describe_sockets(&self) -> Option<String> {
        let listeners = self.pairs.iter().flat_map(|pair| {
            let listeners = pair.listeners.iter();
            let listeners = listeners.map(|listener| (&listener.socket, &*listener.address));
            let mount = pair.mount.as_deref();
            listeners.chain(mount.map(|mount| (&pair.mount_socket, mount)))
        });
        describe_sockets(listeners)
    }
}

/// A listening address and its server, with what passed between them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PairStatus {
    /// Its numbers.
    #[serde(flatten)]
    pub statistics: PairStatistics,
    /// Address at which MOUNT is passed on over TCP.
    pub mount: Option<String>,
    /// Name of the socket of the service manager that MOUNT uses, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_socket: Option<String>,
    /// Place of the server's MOUNT, if it is passed on over TCP or the place is configured: `rpcbind` for the port that
    /// rpcbind of the server's host says, else 20048; or `HOST:PORT`.
    #[serde(default)]
    pub upstream_mount: Option<String>,
    /// Addresses over each provider: the address above, and those of RDMA devices beside it.
    #[serde(default)]
    pub listeners: Vec<ListenerStatus>,
    /// Addresses that may connect.
    pub allow: Vec<String>,
}

impl Deref for PairStatus {
    type Target = PairStatistics;

    fn deref(&self) -> &PairStatistics {
        &self.statistics
    }
}

/// Statistics of a listening address and its server, in numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PairStatistics {
    /// Address to which clients connect, as a URL.
    pub listen: String,
    /// The server, as a URL.
    pub upstream: String,
    /// The connections to the server of now, by what they are over.
    #[serde(default)]
    pub upstream_over: Vec<UpstreamStatus>,
    /// Counters by name: `connections` is a number of now, the others are totals.
    pub counters: BTreeMap<String, u64>,
    /// Seconds that the oldest call of a client without a reply has waited; 0 without one.
    #[serde(default)]
    pub oldest_call_seconds: f64,
}

/// Event with the statistics of a pair, for the log.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PairEvent {
    /// Version of the program.
    pub version: &'static str,
    /// Process id of the gateway.
    pub pid: u32,
    /// Seconds since the start of the gateway.
    pub uptime_seconds: f64,
    /// The numbers of `rpcrdma stats --json`.
    #[serde(flatten)]
    pub statistics: PairStatistics,
}

/// Connections of a gateway to a server, over one provider and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct UpstreamStatus {
    /// `iwarp` (software iWARP over TCP), `verbs` (an RDMA device) or `tcp`.
    pub provider: String,
    /// Name of the RDMA device, if they use one.
    pub device: Option<String>,
    /// How many there are.
    pub connections: u64,
    /// Handles of memory that the server has invalidated on them; 0 over TCP.
    pub remote_invalidations: u64,
}

/// A pair of the file that could not be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct FailedPairStatus {
    /// Address at which it would listen, as a URL.
    pub listen: String,
    /// The server, as a URL.
    pub upstream: String,
    /// Why it could not be started.
    pub error: String,
    /// Address at which the pair that it was to replace still listens, as a URL; null if nothing is served.
    pub kept: Option<String>,
    /// Attempts to start it since the reload: every 30 s, unless another pair is kept in its place.
    #[serde(default)]
    pub attempts: u64,
}

/// A running command that tells of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Status {
    /// A gateway.
    Gateway(GatewayStatus),
    /// A server.
    Server(Box<ServerStatus>),
}

impl fmt::Display for Status {
    /// Program, address and process.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => {
                let at = printable(server.listening.as_bytes());
                write!(f, "server at {at}, process {}", server.pid)
            }
            Self::Gateway(gateway) => {
                match &gateway.pairs[..] {
                    [pair] => write!(f, "gateway at {}", printable(pair.listen.as_bytes()))?,
                    pairs => write!(f, "gateway of {} pairs", pairs.len())?,
                }
                write!(f, ", process {}", gateway.pid)
            }
        }
    }
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ExportStatus {
    /// The path that clients mount.
    pub name: String,
    /// The directory that is served.
    pub directory: String,
    /// Whether nobody can change anything.
    pub read_only: bool,
    /// For whom it is, as rules name them.
    pub clients: Vec<String>,
    /// Rights of clients: the first rule with the address of a client counts.
    #[serde(default)]
    pub rules: Vec<RuleStatus>,
    /// Why it is not served now, if it is not.
    pub absent: Option<String>,
}

/// Rights of some clients on an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct RuleStatus {
    /// Address, network or host name.
    pub clients: String,
    /// Whether they can change nothing.
    pub read_only: bool,
    /// Users whose requests are treated as those of nobody: `root`, `remote-root`, `all` or `none`.
    pub squash: String,
    /// The user and the group that nobody is.
    pub anonuid: u32,
    /// The group that nobody is.
    pub anongid: u32,
}

impl RuleStatus {
    /// A rule in one line.
    pub fn describe(&self) -> String {
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
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ReloadStatus {
    /// Reloads after which the exports were those of the file.
    pub succeeded: u64,
    /// Reloads that changed nothing, as the file had an error.
    pub failed: u64,
    /// Time since the last one.
    pub last_seconds: Option<f64>,
    /// Why that failed, if it did: the exports are still those from before.
    pub last_error: Option<String>,
}

/// Connections of a server now, and so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ConnectionCounts {
    /// Connections that are being set up.
    pub setup: u64,
    /// Connections without a call in flight.
    pub idle: u64,
    /// Connections with calls in flight.
    pub active: u64,
    /// Connections that end once their calls are answered.
    pub draining: u64,
    /// Connections that speak version one of RPC-over-RDMA.
    pub version_one: u64,
    /// Connections that speak version two.
    pub version_two: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections refused since the start.
    pub refused: u64,
    /// Connections closed to make room for others.
    pub evicted: u64,
    /// Connections closed because the client did not answer.
    pub unanswered: u64,
}

impl ConnectionCounts {
    /// Connections there are now.
    pub fn now(&self) -> u64 {
        self.setup + self.idle + self.active + self.draining
    }
}

/// The duplicate request cache.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct DuplicateRequests {
    /// Repeated calls that were answered from the cache.
    pub hits: u64,
    /// Calls that were not repetitions.
    pub misses: u64,
    /// Calls that were not executed for want of room in the cache.
    pub refused: u64,
    /// Results dropped to make room.
    pub evicted: u64,
    /// Results dropped as they grew old.
    pub expired: u64,
    /// Results kept now.
    pub entries: u64,
}

/// The calls of one procedure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ProcedureStatus {
    /// `nfs`, `nfs4` (its procedures are the operations of NFS version 4), `nfsacl` or `mount`.
    pub program: String,
    /// The procedure, such as `READ`.
    pub name: String,
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed, by kind of failure; kinds without any are left out.
    pub errors: BTreeMap<String, u64>,
    /// Calls in buckets of latency: up to 1 µs, 2 µs, 4 µs and so on, and beyond all bounds.
    pub latency_buckets: Vec<u64>,
    /// Sum of the latencies in the buckets, in seconds.
    pub latency_sum_seconds: f64,
}

/// A procedure in a list of those of all programs.
pub fn shown(program: &str, procedure: &str) -> String {
    match program {
        "nfs" => procedure.to_owned(),
        other => format!("{other}/{procedure}"),
    }
}

/// One connection of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct ClientStatus {
    /// Address and port of the client.
    pub address: String,
    /// Listener that it is connected to, as a URL: the address of a pair of a gateway; of a server that has several addresses,
    /// that of them; or, if `clients` shows several servers, the address of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Provider of the connection: `iwarp` (software iWARP over TCP), `verbs` (an RDMA device) or, of a gateway, `tcp`; null
    /// during setup.
    #[serde(default)]
    pub provider: Option<String>,
    /// Name of the RDMA device, if it uses one.
    #[serde(default)]
    pub device: Option<String>,
    /// Provider of the connection to the server, of a gateway that has made it: `tcp`, `iwarp` or `verbs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_provider: Option<String>,
    /// Name of the RDMA device of that connection, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_device: Option<String>,
    /// `setup`, `idle`, `active` or `draining`.
    pub state: String,
    /// Version of RPC-over-RDMA, once that is settled.
    pub version: Option<u32>,
    /// Seconds since the connection was made; over `tcp`, since the first call.
    pub age_seconds: f64,
    /// Calls that the client may have in flight; 0 over `tcp`, which has no credits.
    pub credits_granted: u32,
    /// Calls in flight now.
    pub credits_in_use: u64,
    /// Calls so far.
    pub calls: u64,
    /// Calls that were given to threads which may wait for a disk.
    pub jobs: u64,
    /// Those of them that are not answered yet.
    pub jobs_in_flight: u64,
    /// Calls that came again and were not executed twice.
    pub duplicate_request_hits: u64,
    /// Read chunks pulled from the client.
    pub read_chunks: u64,
    /// Write chunks filled at the client.
    pub write_chunks: u64,
    /// Reply chunks filled at the client.
    pub reply_chunks: u64,
    /// Bytes pulled by RDMA Read.
    pub rdma_bytes_in: u64,
    /// Bytes moved by RDMA Write.
    pub rdma_bytes_out: u64,
    /// Bytes that came in Sends, or over `tcp`.
    pub inline_bytes_in: u64,
    /// Bytes that went in Sends, or over `tcp`.
    pub inline_bytes_out: u64,
    /// Registrations of memory of the server.
    pub registrations: u64,
    /// Handles that the server invalidated itself.
    pub local_invalidations: u64,
    /// Handles that the client invalidated.
    pub remote_invalidations: u64,
    /// Handles of the client that went with replies.
    pub invalidations_sent: u64,
    /// Memory for the chunks of calls in flight.
    pub chunk_memory_bytes: u64,
}

/// The name of the control socket of the server that listens there.
pub fn socket_name(listening: &str) -> String {
    format!("control-{listening}.sock")
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
        check(Request::Nfs4Clients, r#"{"get":"nfs4_clients"}"#);
        let client = Some("a client".to_owned());
        check(
            Request::Held { client },
            r#"{"get":"held","client":"a client"}"#,
        );
        check(Request::State { action: None }, r#"{"get":"state"}"#);
        let release = |export: &str| Request::State {
            action: Some(StateAction::Release(export.to_owned())),
        };
        check(
            release("/data"),
            r#"{"get":"state","do":{"release":"/data"}}"#,
        );
        let end = Request::State {
            action: Some(StateAction::EndGrace),
        };
        check(end, r#"{"get":"state","do":"end_grace"}"#);
    }
}
