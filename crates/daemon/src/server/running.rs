//! A running server: its start, its parts and its end.

use super::advice;
use super::allowed;
use super::clients4;
use super::live_exports::{HowToOpen, LiveExports};
use super::local_users::Trust;
use super::mount_server::MountServer;
use super::observed::{CountedPrograms, Observed};
use super::plan::Plan;
use super::state;
use super::state_report::Administered4;
use super::tcp_server::{TcpServer, Terms};
use super::users;
use crate::capacity::Capacity;
use crate::guard::Guarded;
use crate::listen;
use crate::listening::Listening;
use crate::locked_memory;
use crate::providers::{connections_with_memory, warning};
use crate::registration::{self, Registered};
use crate::reports::{ReportPlaces, Reports};
use crate::systemd;
use buffer::Pool;
use nfs_server::{Changes, Exports, LocalFs, LocalFsOptions, Mount3, Nfs3, Nfs4, NfsAcl3};
use oncrpc::{Connections, Programs, Service};
use printing::units;
use rpc_serving::backchannels::Backchannels;
use rpc_serving::warnings::WARNING_PERIOD;
use rpcrdma::any::{ListenError, Listeners, Over, Providers};
use rpcrdma::{Server, ServerConfig};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Bytes of memory for file data that are kept for reuse.
const POOL_KEEP: usize = 64 << 20;

/// Configuration of a server.
#[derive(Debug)]
pub struct ServerOptions {
    /// Addresses of RPC-over-RDMA: one at least.
    pub listen: Vec<SocketAddr>,
    /// Name of the sockets of the service manager at these addresses, if the provider listens with such.
    pub rdma_socket: Option<&'static str>,
    /// Addresses of TCP without RDMA.
    pub tcp: Vec<SocketAddr>,
    /// Sockets of the service manager for that, each with its address. If there are any, they take the place of `tcp`.
    pub tcp_sockets: Vec<(SocketAddr, TcpListener)>,
    /// Addresses of MOUNT over TCP: one at least. Port 0 is any free port, the same at all of them.
    pub mount: Vec<SocketAddr>,
    /// Sockets of the service manager for MOUNT, each with its address. If there are any, they take the place of `mount`.
    pub mount_sockets: Vec<(SocketAddr, TcpListener)>,
    /// The exports, with their rules.
    pub exports: Vec<Plan>,
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
    /// Configuration of the transport. The server reduces its connections to those that the process has descriptors and memory
    /// for, and sets what identifies local users.
    pub transport: ServerConfig,
    /// Places of metrics and of the control socket.
    pub reports: ReportPlaces,
    /// Name of the setting with the address of metrics, for errors.
    pub metrics_setting: String,
}

impl ServerOptions {
    /// The hosts that clients connect to.
    pub(super) fn hosts(&self) -> Vec<IpAddr> {
        let all = self.listen.iter().chain(&self.tcp);
        all.map(SocketAddr::ip).collect()
    }

    /// Connections and open files that a server can have, with all connections over any of these providers.
    pub(super) fn capacity(&self, providers: &Providers) -> Capacity {
        let config = &self.transport;
        Capacity::find(
            config.max_connections,
            providers.use_devices(),
            self.listen.len() + self.tcp.len(),
            (
                connections_with_memory(providers, config),
                config.receive_memory,
            ),
        )
    }
}

/// A running server. [`run`](Self::run) serves it, and [`shutdown`](Self::shutdown) ends it.
pub struct RunningServer {
    pub(super) server: Server,
    pub(super) exports: LiveExports,
    pub(super) mount_service: Mount3,
    pub(super) reports: Reports<Observed>,
    pub(super) tcp: Option<TcpServer>,
    mount: MountServer,
    registered: Option<Registered>,
    _callbacks: AbortOnDrop,
    listening: Listening,
    users: String,
    limits: String,
    state: String,
}

impl RunningServer {
    /// Opens the exports and listens. Warnings are logged.
    ///
    /// # Errors
    ///
    /// If an export that has to be there cannot be served, or an address, a socket or rpcbind cannot be used.
    pub async fn start(options: ServerOptions, providers: Providers) -> anyhow::Result<Self> {
        let (state_dir, key) = state::open(options.state_dir.as_deref())?;
        let hosts = options.hosts();
        let capacity = options.capacity(&providers);
        let mut config = limited(options.transport, &capacity);
        if let Some(warning) = capacity.warning() {
            tracing::warn!(target: "serve", "{warning}");
        }
        let pool = Pool::new(POOL_KEEP);
        let how = HowToOpen {
            options: LocalFsOptions::default()
                .with_state_dir(state_dir.clone())
                .with_pool(pool.clone())
                .with_changes(options.changes),
            open_files: capacity.open_files,
        };
        let live = LiveExports::open(Exports::new(key), options.exports, how).await?;
        let exports = live.exports.clone();
        advice::warn(live.plans(), live.addresses(), &hosts);

        // Of exports that are not there it is not known.
        let for_callers = LocalFs::acts_for_callers();
        let local_users = options.trust.local_users(for_callers);
        config.local_users = Some(Arc::clone(&local_users));
        let connections = Connections::default();
        config.connections = Some(connections.clone());
        let backchannels = Backchannels::default();
        config.backchannels = Some(backchannels.clone());
        let (clients, records) = clients4::open(state_dir.as_deref(), options.lease)?;
        let callbacks = clients.callbacks(backchannels.clone(), &exports);
        let callbacks = AbortOnDrop(tokio::spawn(callbacks));
        let programs = programs(&exports, options.trust, pool.clone(), connections);
        let nfs4 = Nfs4::new(exports.clone(), pool.clone(), clients)
            .with_users(options.trust.groups())
            .with_backchannels(backchannels);
        let service = Programs::new()
            .with(programs.acl.clone())
            .with(programs.nfs.clone())
            .with(nfs4.clone())
            .with(programs.mount.clone());
        let service: Arc<dyn Service> = Arc::new(service);
        let of_tcp = (Terms::from(&config), pool);
        let limits = describe_limits(&config, &capacity);
        let over_devices = providers.over() == Over::Devices;
        let Listeners {
            server,
            addrs,
            devices,
        } = listen_over(
            providers,
            &options.listen,
            (Arc::clone(&service), config),
            (&exports, options.trust),
        )
        .await?;
        let tcp = TcpServer::start(
            &options.tcp,
            options.tcp_sockets,
            of_tcp,
            &server,
            service,
            exports.clone(),
        )?;
        let mount_service = programs.mount.clone();
        let mount = MountServer::start(
            &options.mount,
            options.mount_sockets,
            mount_service.clone(),
            exports,
            Some(local_users),
        )
        .await?;
        let over_tcp = tcp.as_ref().map_or(Vec::new(), |tcp| tcp.addrs.clone());
        let tcp_is_adopted = tcp.as_ref().is_some_and(|tcp| tcp.is_adopted);
        let registrable = options.rpcbind.then(|| (addrs.clone(), over_tcp.clone()));
        let listening = Listening::new(addrs, over_devices, devices.listening)
            .with_socket(options.rdma_socket)
            .with_tcp(over_tcp, tcp_is_adopted.then_some(systemd::TCP_SOCKET));
        let mount_socket = mount.is_adopted.then_some(systemd::MOUNT_SOCKET);
        log_sockets(&listening, (&mount.addrs, mount_socket));
        let observed = Observed::new(
            (
                server.monitor(),
                tcp.as_ref().map(|tcp| tcp.monitor.clone()),
            ),
            (
                programs,
                Administered4 {
                    nfs: nfs4,
                    records: records.clone(),
                },
            ),
            listening.clone(),
            (mount.addrs.clone(), mount_socket),
        );
        observed.set_exports(&live);
        let reports = Reports::start(
            &options.reports,
            observed,
            state_dir.as_deref(),
            &options.metrics_setting,
        )
        .await?;
        // Last of all: registrations of a server that does not start would stay.
        let registered = match registrable {
            Some((rdma, tcp)) => Some(register(&rdma, &tcp, &mount.addrs).await?),
            None => None,
        };
        Ok(Self {
            users: users::describe(live.plans(), for_callers, &options.trust),
            state: state::describe(state_dir.as_deref(), records.is_some())
                + &live.describe_handles(),
            limits,
            server,
            exports: live,
            mount_service,
            reports,
            tcp,
            mount,
            registered,
            _callbacks: callbacks,
            listening,
        })
    }

    /// The exports.
    pub fn exports(&self) -> &LiveExports {
        &self.exports
    }

    /// The listeners for RPC-over-RDMA.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Addresses of MOUNT over TCP: one at least.
    pub fn mount_addrs(&self) -> &[SocketAddr] {
        &self.mount.addrs
    }

    /// The users with whose rights files are used, in words.
    pub fn users(&self) -> &str {
        &self.users
    }

    /// The limits, in words.
    pub fn limits(&self) -> &str {
        &self.limits
    }

    /// The directory of the state, and the kind of file handles, in words.
    pub fn state(&self) -> &str {
        &self.state
    }

    /// Address of metrics, if they are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.reports.metrics()
    }

    /// Path of the control socket, if there is one.
    pub fn control(&self) -> Option<&Path> {
        self.reports.control()
    }

    /// Answers the calls in progress, and ends.
    pub async fn shutdown(self) {
        let _summary = SummaryOnDrop(self.mount_service);
        if let Some(registered) = self.registered {
            registered.remove().await;
        }
        let tcp = async {
            if let Some(tcp) = self.tcp {
                tcp.stop().await;
            }
        };
        let (stats, (), ()) = tokio::join!(self.server.shutdown(), tcp, self.mount.stop());
        tracing::debug!(?stats, "served");
    }
}

/// A task that ends when this is dropped.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Logs the numbers of warnings that MOUNT has left out when it is dropped, also by a program that does not wait for the end.
struct SummaryOnDrop(Mount3);

impl Drop for SummaryOnDrop {
    fn drop(&mut self) {
        self.0.summarise(Instant::now() + WARNING_PERIOD);
    }
}

/// Listens at these addresses over the main provider, and over devices beside it.
async fn listen_over(
    providers: Providers,
    at: &[SocketAddr],
    (service, config): (Arc<dyn Service>, ServerConfig),
    (exports, trust): (&Exports, Trust),
) -> anyhow::Result<Listeners> {
    let over_devices = providers.over() == Over::Devices;
    let locked_memory = match providers.use_devices() {
        true => locked_memory::warning(&config),
        false => None,
    };
    let providers = providers.wrapped(|over, inner| {
        let exports = exports.clone();
        let beside = over == Over::Devices && !over_devices;
        let leaves_local = beside && !trust.trust_local;
        Arc::new(Guarded::new(inner, move |addr| {
            allowed::check(&exports, leaves_local, addr)
        }))
    });
    let listeners = providers.listen(at, service, config).await;
    let listeners = listeners.map_err(|error| match error {
        ListenError::Setup { at, source } => listen::cannot(source, at),
        error => error.into(),
    })?;
    let missing = &listeners.devices.missing;
    let mut warnings: Vec<_> = missing.iter().map(warning).collect();
    if over_devices || !listeners.devices.listening.is_empty() {
        warnings.extend(locked_memory);
    }
    for warning in &warnings {
        tracing::warn!(target: "serve", "{warning}");
    }
    Ok(listeners)
}

/// The programs that serve these exports.
fn programs(
    exports: &Exports,
    trust: Trust,
    pool: Pool,
    connections: Connections,
) -> CountedPrograms {
    let users = trust.groups();
    let mount = Mount3::new(exports.clone()).with_users(users.clone());
    let nfs = Nfs3::new(exports.clone(), pool)
        .with_users(users)
        .with_connections(connections);
    CountedPrograms {
        acl: NfsAcl3::new(&nfs),
        nfs,
        mount,
    }
}

/// Registers with rpcbind.
async fn register(
    rdma: &[SocketAddr],
    tcp: &[SocketAddr],
    mount: &[SocketAddr],
) -> anyhow::Result<Registered> {
    for warning in registration::ports_not_registered(rdma, tcp) {
        tracing::warn!(target: "serve", "{warning}");
    }
    Registered::of(&registration::entries(rdma, tcp, mount)).await
}

/// Logs the sockets of the service manager that are used.
fn log_sockets(listening: &Listening, (mount, mount_socket): (&[SocketAddr], Option<&str>)) {
    let rdma = listening.asked.iter();
    let rdma = rdma.map(|address| (listening.socket, address));
    let tcp = listening.tcp.iter();
    let tcp = tcp.map(|address| (listening.tcp_socket, address));
    let mount = mount.iter().map(|address| (mount_socket, address));
    for (socket, address) in rdma.chain(tcp).chain(mount) {
        if let Some(socket) = socket {
            tracing::info!(target: "serve", socket, %address, "listens at a socket of the service manager");
        }
    }
}

/// The configuration with no more connections than the process can have.
fn limited(mut config: ServerConfig, capacity: &Capacity) -> ServerConfig {
    config.max_connections = capacity.connections;
    config.max_connections_per_address = capacity.connections.div_ceil(2);
    config
}

/// The limits of a server, in words.
fn describe_limits(config: &ServerConfig, capacity: &Capacity) -> String {
    format!(
        "{}, each with {} calls at a time; messages of {}, READ and WRITE of {}; {} for \
         data in flight; {} threads",
        capacity.describe(),
        config.credits,
        units::size(config.receive_size.bytes() as u64),
        units::size(nfs_server::MAX_READ.min(nfs_server::MAX_WRITE).into()),
        units::size(config.chunk_memory as u64),
        config.workers
    )
}
