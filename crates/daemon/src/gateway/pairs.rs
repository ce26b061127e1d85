//! The running pairs, and how one is started and ended.

use super::advice;
use super::allowed_clients::AllowedClients;
use super::descriptors::{Shares, of_client, refusals};
use super::event_loops::{EventLoops, SharedGateway};
use super::plan::{self, PairPlan};
use super::sockets::Sockets;
use super::transports::Sides;
use super::upstream_connector::UpstreamConnector;
use super::urls::Scheme;
use crate::addresses::meet;
use crate::capacity::raise_limit;
use crate::clients::Addresses;
use crate::control::ListenerStatus;
use crate::guard::{self, Guarded};
use crate::listen;
use crate::listening::{Listening, over_tcp};
use crate::locked_memory;
use crate::names::Names;
use crate::providers::{connections_with_memory, warning};
use crate::registration::{self, Registered};
use anyhow::Context;
use gateway::{
    CALLS_WITHOUT_PORT, Gateway, GatewayConfig, GatewayMonitor, Listen, MountFailures,
    MountForwarder, MountProxy, SourcePorts, Upstream, tcp_limits,
};
use oncrpc::LocalUsers;
use oncrpc_tcp::rpcbind::Registration;
use rpc_serving::admission::Admission;
use rpc_serving::warning_log::WarningLog;
use rpcrdma::any::{DeviceListeners, Over};
use rpcrdma::{ClientConfig, Iwarp, ServerConfig, iwarp};
use socket_owner::{LocalAddresses, SocketOwners};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use verbs::{Provider, SetupError};

/// Advice for a listener that refuses clients as there are too many.
const MORE_CONNECTIONS: &str =
    "--max-connections, or max_connections of [gateway], sets the limit of each pair";

/// Configuration of a gateway beside its pairs.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Users of this machine may claim any uid, as other machines may.
    pub trust_local: bool,
    /// Time for a call to the server.
    pub call_timeout: Duration,
    /// Whether the pairs are of a file, for the names of settings in messages.
    pub in_file: bool,
    /// Configuration of RDMA listeners, of which TCP listeners have connections and times too. The gateway reduces the
    /// connections to those that the process has descriptors for, and sets local users and names.
    pub server: ServerConfig,
    /// Configuration of connections to RDMA servers.
    pub client: ClientConfig,
    /// Configuration of software iWARP.
    pub iwarp: iwarp::Config,
}

/// The pairs of a gateway.
pub(super) struct Pairs {
    pub(super) options: GatewayOptions,
    /// Sockets that listen already.
    pub(super) sockets: Sockets,
    /// Client connections that a pair may have at most.
    connections: usize,
    /// Descriptors that this process may have.
    descriptors: usize,
    /// The last warning of too few descriptors.
    told_of_share: Option<String>,
    pub(super) running: Vec<Pair>,
    /// Tasks of pairs that are ending.
    ending: Vec<JoinHandle<()>>,
    event_loops: EventLoops,
    local_users: Arc<dyn LocalUsers>,
    names: Names,
    /// Addresses of the hosts that may connect.
    addresses: Addresses,
}

/// A running pair.
pub struct Pair {
    /// Its configuration.
    pub plan: PairPlan,
    /// Address of its listener.
    pub listening: SocketAddr,
    /// Its listeners, over each provider.
    pub(super) listeners: Vec<ListenerStatus>,
    /// Addresses of the server.
    pub(super) upstream: Vec<SocketAddr>,
    clients: Arc<AllowedClients>,
    gateway: SharedGateway,
    monitor: GatewayMonitor,
    /// Calls of MOUNT to the server.
    forwarder: MountForwarder,
    mount: Option<MountProxy>,
    /// Name of the socket of the service manager that MOUNT uses, if it uses one.
    pub(super) mount_socket: Option<String>,
    registered: Option<Registered>,
}

/// RDMA devices over which a pair listens.
struct OverDevices {
    /// Those beside software iWARP, if there are any.
    beside: Option<Arc<dyn Provider>>,
    /// A warning about locked memory, for listeners over devices.
    locked_memory: Option<String>,
}

impl Pairs {
    /// No pair so far.
    pub(super) fn new(options: GatewayOptions, sockets: Sockets) -> Self {
        if !options.trust_local
            && let Err(error) = SocketOwners::check()
        {
            let cure = match listen::is_out_of_descriptors(&error) {
                true => {
                    "raise the limit of open files, with LimitNOFILE= of the service or `ulimit -n`"
                }
                false => "load the kernel module tcp_diag, or use --trust-local",
            };
            tracing::warn!(
                target: "gateway", %error,
                "cannot identify local users (sock_diag): local connections are refused; {cure}"
            );
        }
        Self {
            sockets,
            connections: options.server.max_connections,
            descriptors: descriptors(),
            told_of_share: None,
            running: Vec::new(),
            ending: Vec::new(),
            event_loops: EventLoops::default(),
            local_users: match options.trust_local {
                true => Arc::new(LocalAddresses),
                false => Arc::new(SocketOwners::new()),
            },
            names: Names::default(),
            addresses: Addresses::new(),
            options,
        }
    }

    /// Hosts that may connect and have no address now, in words.
    pub(super) async fn hosts_without_address(&self, plans: &[PairPlan]) -> Vec<String> {
        let answers = self.names.ask(plan::hosts(plans)).await;
        let without = answers.into_iter().filter_map(|(host, answer)| {
            let error = answer.err()?;
            let host = host.as_str();
            Some(format!(
                "the host {host} has no address now, and would not be served: {error}"
            ))
        });
        without.collect()
    }

    /// Those that run, in order.
    pub(super) fn running(&self) -> &[Pair] {
        &self.running
    }

    /// The event loops of the pairs that run, whichever these are.
    pub(super) fn event_loops(&self) -> EventLoops {
        self.event_loops.clone()
    }

    /// Runs these from now on.
    pub(super) async fn run(&mut self, pairs: Vec<Pair>) {
        self.running = pairs;
        self.are_running().await;
    }

    /// Tells others which pairs run now, and each of them what it may have.
    pub(super) async fn are_running(&mut self) {
        let gateways = self.running.iter().map(|pair| pair.gateway.clone());
        self.event_loops.replace(gateways.collect());
        self.admit();
        self.share_descriptors().await;
    }

    /// Looks up the names of hosts that may connect again, and whether rpcbind still knows the pairs.
    pub(super) async fn refresh(&mut self) {
        let registered = self.running.iter_mut();
        for registered in registered.filter_map(|pair| pair.registered.as_mut()) {
            registered.renew().await;
        }
        let plans: Vec<PairPlan> = self.running.iter().map(|pair| pair.plan.clone()).collect();
        self.look_up_clients(&plans).await;
        self.admit();
    }

    /// Looks up the names of hosts that may connect in these.
    pub(super) async fn look_up_clients(&mut self, plans: &[PairPlan]) {
        self.addresses = plan::addresses(plans, &mut self.names, &self.addresses).await;
    }

    /// Tells every pair who may connect.
    fn admit(&self) {
        for pair in &self.running {
            pair.clients.replace(pair.plan.access(&self.addresses));
        }
    }

    /// The descriptors that these pairs share.
    fn shares<'a>(&self, plans: impl Iterator<Item = &'a PairPlan> + Clone) -> Shares {
        Shares {
            descriptors: self.descriptors,
            pairs: plans.clone().count(),
            with_mount: plans
                .clone()
                .filter(|plan| plan.mount_port.is_some())
                .count(),
            of_clients: plans.map(of_client).sum(),
        }
    }

    /// A warning if these pairs would have fewer connections than they may have.
    pub(super) fn describe_share_of(&self, plans: &[PairPlan]) -> Option<String> {
        describe_share(&self.shares(plans.iter()), self.connections)
    }

    /// Divides the descriptors among the pairs.
    async fn share_descriptors(&mut self) {
        let shares = self.shares(self.running.iter().map(|pair| &pair.plan));
        let each = shares.connections();
        let warning = describe_share(&shares, self.connections);
        if warning != self.told_of_share {
            if let Some(warning) = &warning {
                tracing::warn!(target: "gateway", "{warning}");
            }
            self.told_of_share = warning;
        }
        for pair in &self.running {
            let connections = each.min(self.connections);
            pair.gateway.limit_connections(connections).await;
            match &pair.mount {
                Some(mount) => mount.limit_connections(shares.mount_connections()),
                None => pair.forwarder.limit_calls(CALLS_WITHOUT_PORT),
            }
        }
    }

    /// Ends all pairs.
    pub(super) async fn end(mut self) {
        let running = std::mem::take(&mut self.running);
        self.begin_end(running);
        self.ended().await;
    }

    /// Begins to end pairs, side by side.
    pub(super) fn begin_end(&mut self, pairs: Vec<Pair>) {
        let pairs = pairs.into_iter();
        self.ending
            .extend(pairs.map(|pair| tokio::spawn(pair.end())));
    }

    /// Waits until all pairs have ended that are ending. If this is dropped, they go on.
    pub(super) async fn ended(&mut self) {
        while let Some(one) = self.ending.last_mut() {
            // One that has panicked has ended, too.
            let _ = one.await;
            self.ending.pop();
        }
    }

    /// Starts a pair.
    ///
    /// # Errors
    ///
    /// If it cannot be. Nothing is left of it then.
    pub(super) async fn start(
        &self,
        plan: PairPlan,
        upstream: Vec<SocketAddr>,
    ) -> anyhow::Result<Pair> {
        let clients = Arc::new(AllowedClients::new(plan.access(&self.addresses)));
        let log = Arc::<WarningLog>::default();
        let (listen, over_devices) = self.listen(&plan, &clients, &log)?;
        let upstream_side = self.upstream(&plan, upstream.clone())?;
        let mount_server = plan.mount_server(self.key(&plan, "upstream_mount"));
        let forwarder = MountForwarder::new(mount_server);
        let config = self
            .config(&plan)
            .with_mount(Some(Arc::new(forwarder.clone())));
        let gateway = Gateway::bind(listen, upstream_side, config);
        let gateway = gateway.await;
        let gateway = gateway.map_err(|error| self.cannot_listen(error, &plan))?;
        let mut pair = Pair {
            listening: gateway.local_addr(),
            listeners: over_devices.listen(&gateway, &plan).await,
            plan,
            upstream,
            clients,
            monitor: gateway.monitor(),
            gateway: SharedGateway::new(gateway),
            forwarder,
            mount: None,
            mount_socket: None,
            registered: None,
        };
        if let (Some(first), Some(name)) = (
            pair.listeners.first_mut(),
            self.sockets.name(pair.plan.listen.addr),
        ) {
            first.socket = Some(name.to_owned());
        }
        log.name_listener(|| pair.url());
        pair.forwarder.name_listener(|| pair.url());
        match self.complete(&mut pair).await {
            Ok(()) => {
                pair.log_sockets();
                advice::log(&pair.plan);
                advice::log_mount_host(&pair.plan);
                Ok(pair)
            }
            Err(error) => {
                // The ports are free then for the pair that was there before.
                pair.end().await;
                Err(error)
            }
        }
    }

    /// Passes MOUNT on too, and tells rpcbind, where that is to be.
    async fn complete(&self, pair: &mut Pair) -> anyhow::Result<()> {
        let plan = &pair.plan;
        let Some(on) = plan.mount_addr() else {
            return Ok(());
        };
        let listener = self.tcp_listener(on, &self.key(plan, "mount_port"))?;
        let clients = Arc::clone(&pair.clients);
        let mount = MountProxy::start(
            listener,
            pair.forwarder.clone(),
            move |addr| clients.admits(addr),
            Arc::clone(&self.local_users),
        )
        .context("cannot listen")?;
        let mount = pair.mount.insert(mount);
        pair.mount_socket = self.sockets.name(on).map(str::to_owned);
        if plan.rpcbind {
            let entries = entries(plan.listen.scheme, pair.listening, mount.addr());
            pair.registered = Some(Registered::of(&entries).await?);
        }
        Ok(())
    }

    /// A socket that listens at an address: that of the service manager, if there is one.
    fn tcp_listener(&self, addr: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
        match self.sockets.at(addr)? {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(addr).map_err(|error| listen::explain(error, addr, key)),
        }
    }

    /// The listener of a pair, and its RDMA devices.
    fn listen(
        &self,
        plan: &PairPlan,
        clients: &Arc<AllowedClients>,
        log: &Arc<WarningLog>,
    ) -> anyhow::Result<(Listen, OverDevices)> {
        let (options, addr) = (&self.options, plan.listen.addr);
        let connections = self.connections;
        Ok(match plan.listen.scheme {
            Scheme::Rdma => {
                let mut config = options
                    .server
                    .clone()
                    .with_listener_name(format!(
                        "{}://{}",
                        plan.listen.scheme.name(),
                        self.sockets.listening_at(addr)
                    ))
                    .with_connections_hint(MORE_CONNECTIONS);
                let refusals = refusals(self.descriptors);
                let software = Iwarp::new(options.iwarp.clone().with_refusals(refusals));
                let socket = self.sockets.at(addr)?.map(|socket| (addr, socket));
                let sockets = socket.into_iter().collect();
                let providers = plan.provider.open_to_listen(software, &[addr], sockets)?;
                config.max_connections = connections;
                config.max_connections = connections_with_memory(&providers, &config);
                config.max_connections_per_address = config.max_connections.div_ceil(2);
                config.local_users = Some(Arc::clone(&self.local_users));
                let locked_memory = match providers.use_devices() {
                    true => locked_memory::warning(&config),
                    false => None,
                };
                let providers = providers.wrapped(|over, provider| {
                    let guarded = self.guarded(provider, over == Over::Devices, clients);
                    Arc::new(guarded.with_log(Arc::clone(log)))
                });
                let over_devices = OverDevices {
                    beside: providers.devices_beside().cloned(),
                    locked_memory,
                };
                let main = Arc::clone(providers.main());
                (Listen::rdma(main, addr, config), over_devices)
            }
            Scheme::Tcp => {
                let listener = self.tcp_listener(addr, &self.key(plan, "listen"))?;
                let mut limits = tcp_limits();
                limits.connections = connections;
                limits.connections_of_address = connections.div_ceil(2);
                limits.connections_hint = Some(MORE_CONNECTIONS);
                limits.idle = options.server.idle_timeout.unwrap_or(Duration::MAX);
                let clients = Arc::clone(clients);
                let listen = Listen::Tcp {
                    listener,
                    limits,
                    admit: Some(Arc::new(move |addr| clients.admits(addr))),
                    local_users: Some(Arc::clone(&self.local_users)),
                };
                let over_devices = OverDevices {
                    beside: None,
                    locked_memory: None,
                };
                (listen, over_devices)
            }
        })
    }

    /// A provider that takes in the clients of a pair. Those of this machine are left to software iWARP, unless local
    /// users are trusted: the server believes the gateway, also of who a local user is.
    fn guarded(
        &self,
        provider: Arc<dyn Provider>,
        is_devices: bool,
        clients: &Arc<AllowedClients>,
    ) -> Guarded {
        let (clients, leaves_local) =
            (Arc::clone(clients), is_devices && !self.options.trust_local);
        Guarded::new(provider, move |addr| match clients.admits(addr.ip()) {
            true if leaves_local => guard::check_not_local(addr),
            true => Ok(()),
            false => Err("the address is not allowed (allow)"),
        })
    }

    /// A key of a pair, in words: of the file, or as the option of the command line.
    pub(super) fn key(&self, plan: &PairPlan, key: &str) -> String {
        plan.key(key, self.options.in_file)
    }

    /// Error of a pair that cannot listen.
    pub(super) fn cannot_listen(&self, error: SetupError, plan: &PairPlan) -> anyhow::Error {
        let addr = plan.listen.addr;
        match error {
            SetupError::Io(error) => listen::explain(error, addr, &self.key(plan, "listen")),
            other => anyhow::Error::new(other).context(format!("cannot listen at {addr}")),
        }
    }

    fn upstream(&self, plan: &PairPlan, addrs: Vec<SocketAddr>) -> anyhow::Result<Upstream> {
        Ok(match plan.upstream.scheme {
            Scheme::Tcp => Upstream::Tcp {
                addrs,
                source_ports: match plan.reserved_port {
                    true => SourcePorts::Reserved,
                    false => SourcePorts::Any,
                },
            },
            Scheme::Rdma => {
                let software = Iwarp::new(self.options.iwarp.clone());
                let options = plan.provider.options(software)?;
                Upstream::Rdma {
                    connect: Arc::new(UpstreamConnector::new(options)),
                    addrs,
                    config: Box::new(self.options.client.clone()),
                }
            }
        })
    }

    fn config(&self, plan: &PairPlan) -> GatewayConfig {
        GatewayConfig::default()
            .with_call_timeout(self.options.call_timeout)
            .with_upstream_name(Some(plan.upstream.to_string()))
            .with_hide_pnfs(plan.hide_pnfs)
    }
}

impl OverDevices {
    /// Has a pair listen over devices beside software iWARP, and says over what it listens in all.
    async fn listen(self, gateway: &Gateway, plan: &PairPlan) -> Vec<ListenerStatus> {
        let at = gateway.local_addr();
        if plan.listen.scheme == Scheme::Tcp {
            return vec![over_tcp(at, None)];
        }
        let beside = match self.beside {
            Some(devices) => {
                let listen = async |at| gateway.listen_also(Arc::clone(&devices), at).await;
                DeviceListeners::listen(&[at], listen).await
            }
            None => DeviceListeners::default(),
        };
        let first_is_devices = plan.listens_over_devices_alone();
        let mut warnings: Vec<_> = beside.missing.iter().map(warning).collect();
        if first_is_devices || !beside.listening.is_empty() {
            warnings.extend(self.locked_memory);
        }
        for warning in &warnings {
            tracing::warn!(target: "gateway", listen = %plan.listen, "{warning}");
        }
        Listening::new(vec![at], first_is_devices, beside.listening).listeners()
    }
}

impl Pair {
    /// Its listener, as a URL.
    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.plan.listen.scheme.name(), self.listening)
    }

    /// Says which sockets of the service manager it uses.
    fn log_sockets(&self) {
        let first = self.listeners.first();
        let nfs = first.and_then(|first| Some((self.listening, first.socket.as_deref()?)));
        let mount = self.mount_addr().zip(self.mount_socket.as_deref());
        for (address, socket) in nfs.into_iter().chain(mount) {
            tracing::info!(
                target: "gateway", listen = self.url(), configured = %self.plan.listen, socket, %address,
                "listens at a socket of the service manager"
            );
        }
    }

    /// The transports of both sides.
    pub fn sides(&self) -> Sides {
        Sides::new(&self.plan, self.listeners.clone(), &self.upstream)
    }

    pub(super) fn monitor(&self) -> GatewayMonitor {
        self.monitor.clone()
    }

    pub(super) fn clients(&self) -> Arc<AllowedClients> {
        Arc::clone(&self.clients)
    }

    /// Counters of calls of MOUNT without an answer of the server.
    pub(super) fn mount_failures(&self) -> Arc<MountFailures> {
        self.forwarder.failures()
    }

    /// Address of its listener for MOUNT, if that is passed on.
    pub fn mount_addr(&self) -> Option<SocketAddr> {
        self.mount.as_ref().map(MountProxy::addr)
    }

    /// Admission of clients of MOUNT, if it is passed on.
    pub(super) fn mount_admission(&self) -> Option<Admission> {
        self.mount.as_ref().map(MountProxy::admission)
    }

    /// Closes the connections of clients that are not allowed any more, behind the replies to their calls. Returns how many
    /// there are, without those of MOUNT.
    pub(super) async fn close_those_not_allowed(&self) -> usize {
        let is_one = |addr: SocketAddr| !self.clients.allows(addr.ip());
        if let Some(mount) = &self.mount {
            mount.close_clients(is_one);
        }
        self.gateway.close_clients(is_one).await
    }

    /// Whether nobody else can listen there as long as it runs.
    pub(super) fn has(&self, addr: SocketAddr) -> bool {
        let mine = [Some(self.listening), self.mount_addr()];
        mine.into_iter().flatten().any(|mine| meet(mine, addr))
    }

    /// Finishes calls, and ends.
    async fn end(self) {
        if let Some(registered) = self.registered {
            registered.remove().await;
        }
        if let Some(mount) = self.mount {
            mount.stop().await;
        }
        let stats = self.gateway.shutdown().await;
        tracing::debug!(target: "gateway", listen = %self.plan.listen, ?stats, "pair ended");
    }
}

/// Descriptors that this process may have; they are raised to that.
fn descriptors() -> usize {
    let limit = raise_limit().and_then(|limit| usize::try_from(limit).ok());
    limit.unwrap_or(usize::MAX)
}

/// A warning if the connections of a pair are fewer than it may have.
fn describe_share(shares: &Shares, wanted: usize) -> Option<String> {
    let each = shares.connections();
    let connections = match each {
        1 => "1 client connection".to_owned(),
        many => format!("{many} client connections"),
    };
    (each < wanted).then(|| {
        format!(
            "each pair has no more than {connections} instead of {wanted} (max_connections), as the limit of open files is \
             {}: raise it to {}, with LimitNOFILE= of the service or `ulimit -n`",
            shares.descriptors,
            shares.needed(wanted)
        )
    })
}

/// Registrations of a pair: NFS version 3 with its access control lists, and MOUNT.
pub(super) fn entries(scheme: Scheme, nfs: SocketAddr, mount: SocketAddr) -> Vec<Registration> {
    match scheme {
        // MOUNT is passed on over RDMA too.
        Scheme::Rdma => registration::entries(&[nfs], &[], &[mount]),
        Scheme::Tcp => registration::entries(&[], &[nfs], &[mount]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_said_with_what_to_do() {
        let shares = |descriptors| Shares {
            descriptors,
            pairs: 1,
            with_mount: 1,
            of_clients: 2,
        };
        let one = describe_share(&shares(16), 1024).unwrap();
        assert!(one.contains("1 client connection instead of 1024"), "{one}");
        assert!(one.contains("LimitNOFILE="), "{one}");
        let needed = shares(16).needed(1024);
        assert!(
            one.contains(&format!("is 16: raise it to {needed},")),
            "{one}"
        );
        assert_eq!(describe_share(&shares(needed), 1024), None);
    }
}
