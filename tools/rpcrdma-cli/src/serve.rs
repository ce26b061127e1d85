//! `rpcrdma serve`: exports directories.

mod allowed;
mod announce;
mod args;
pub(crate) mod beside;
pub(crate) mod check;
mod config;
mod exports;
pub(crate) mod families;
pub(crate) mod given;
mod hints;
pub(crate) mod listening;
mod local_users;
mod mount_server;
mod mounts;
pub(crate) mod observed;
pub(crate) mod operate;
pub(crate) mod plan;
mod process_metrics;
mod replaced;
pub(crate) mod reports;
mod served;
mod settings;
pub(crate) mod terminal;
mod users;

use crate::checks::Checked;
use crate::failure::{self, Ended};
use crate::guard::Guarded;
use crate::interrupt::{self, Interrupt};
use crate::log;
use announce::Announcement;
#[cfg(test)]
pub(crate) use announce::{CheckLine, Line};
use anyhow::bail;
pub(crate) use args::{MAX_THREADS, ServeArgs};
use beside::Beside;
use buffer::Pool;
pub(crate) use given::Given;
use listening::Listening;
use mount_server::MountServer;
use nfs_server::{Exports, LocalFs, Mount3, Nfs3, NfsAcl3};
use observed::{CountedPrograms, Observed};
use oncrpc::{Connections, Programs, Service};
use operate::{Operation, Signals};
use registration::Registered;
use reports::Reports;
use rpc_serving::warnings::WARNING_PERIOD;
use rpcrdma::{Server, ServerConfig};
use rpcrdma_daemon::{heap, listen, locked_memory, process, registration, systemd};
use served::Served;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use systemd::Sockets;
use verbs::Provider;

/// Memory for file data that is kept for reuse, in bytes.
const POOL_KEEP: usize = 64 << 20;

/// Runs the command.
pub(crate) async fn run(mut args: ServeArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    process::prepare();
    let sockets = Sockets::take()?;
    let rdma = &sockets.rdma;
    args.activated = rdma.iter().map(|(addr, _)| *addr).collect();
    args.activated_mount = sockets.mount.iter().map(|(addr, _)| *addr).collect();
    let checked = args.check.wanted(args.config.as_deref())?;
    let (settings, errors) = args.read()?;
    if checked == Some(Checked::All) {
        return check::check(&settings, errors, args.json).await;
    }
    failure::check_none(errors)?;
    if checked == Some(Checked::File) {
        return Ok(Ended::Well);
    }
    let listen = settings.args.listen.clone();
    let rdma_socket = sockets.rdma.first().map(|_| systemd::RDMA_SOCKET);
    let mount_socket = sockets.mount.first().map(|_| systemd::MOUNT_SOCKET);
    let transport = &settings.args.transport;
    let providers = transport.server_providers(&listen, sockets.rdma)?;
    let (state_dir, key) = settings.state()?;
    let (mut config, capacity) = settings.config(&providers);
    if let Some(warning) = capacity.warning() {
        tracing::warn!(target: "serve", "{warning}");
    }
    let pool = Pool::new(POOL_KEEP);
    let how = settings.how_to_open(state_dir.clone(), pool.clone(), &capacity);
    let served = Served::open(Exports::new(key), settings.plans.clone(), how).await?;
    let exports = served.exports.clone();
    hints::warn(served.plans(), served.addresses(), &settings.args.hosts());

    let trust = &settings.args.trust;
    // Of exports that are not there nobody can be asked.
    let for_callers = LocalFs::acts_for_callers();
    config.local_users = Some(trust.local_users(for_callers));
    let local_users = config.local_users.clone();
    let users = trust.groups();
    let mount_service = Mount3::new(exports.clone()).with_users(users.clone());
    let connections = Connections::default();
    config.connections = Some(connections.clone());
    let nfs = Nfs3::new(exports.clone(), pool)
        .with_users(users)
        .with_connections(connections);
    let acl = NfsAcl3::new(&nfs);
    let programs = Programs::new()
        .with(acl.clone())
        .with(nfs.clone())
        .with(mount_service.clone());
    let guarded = |inner, leaves_local| -> Arc<dyn Provider> {
        let exports = exports.clone();
        Arc::new(Guarded::new(inner, move |addr| {
            allowed::check(&exports, leaves_local, addr)
        }))
    };
    let limits = settings::describe_limits(&config, &capacity);
    let locked_memory = match providers.use_devices() {
        true => locked_memory::warning(&config),
        false => None,
    };
    let first = guarded(providers.first, false);
    let (server, listens_at) = bind(first, &listen, Arc::new(programs), config).await?;
    let mut beside = match providers.beside {
        Some(devices) => {
            let devices = guarded(devices, !trust.trusts_local());
            let listen = async |at| server.listen_also(Arc::clone(&devices), at).await;
            Beside::listen(&listens_at, listen).await
        }
        None => Beside::default(),
    };
    if providers.first_is_devices || !beside.listening.is_empty() {
        beside.warnings.extend(locked_memory);
    }
    for warning in &beside.warnings {
        tracing::warn!(target: "serve", "{warning}");
    }
    let mount_at = settings.args.mount_addresses();
    let held = sockets.mount;
    let mount = mount_service.clone();
    let mount = MountServer::start(&mount_at, held, mount, exports, local_users).await?;
    let registered = match settings.args.rpcbind {
        true => {
            if let Some(warning) = registration::ports_not_registered(&listens_at) {
                tracing::warn!(target: "serve", "{warning}");
            }
            let entries = registration::entries(&listens_at, &mount.addrs);
            Some(Registered::of(&entries).await?)
        }
        false => None,
    };

    let listening = Listening::new(listens_at, providers.first_is_devices, beside.listening)
        .with_socket(rdma_socket);
    let rdma_used = listening.asked.iter().map(|address| (rdma_socket, address));
    let mount_used = mount.addrs.iter().map(|address| (mount_socket, address));
    for (socket, address) in rdma_used.chain(mount_used) {
        if let Some(socket) = socket {
            tracing::info!(target: "serve", socket, %address, "listens at a socket of the service manager");
        }
    }
    let counted = CountedPrograms {
        nfs,
        acl,
        mount: mount_service.clone(),
    };
    let observed = Observed::new(
        server.monitor(),
        counted,
        listening.clone(),
        (mount.addrs.clone(), mount_socket),
    );
    observed.serves(&served);
    let (places, metrics) = (settings.args.reports.places(), settings.metrics_option());
    let reports = Reports::start(&places, observed, state_dir.as_deref(), &metrics).await?;

    let announcement = Announcement {
        exports: served.plans(),
        absent: served.absent(),
        listening,
        mount: &mount.addrs,
        versions: settings.args.transport.versions(),
        remote_invalidation: &settings.args.transport.remote_invalidation(),
        crc: settings.args.transport.describe_crc(),
        user: users::describe(served.plans(), for_callers, trust),
        limits,
        state: settings::describe_state(state_dir.as_deref()) + &served.describe_handles(),
        metrics: reports.metrics(),
        control: reports.control(),
    };
    announce(&announcement, args.json)?;

    systemd::ready(&served.status());
    let operation = Operation {
        args: &args,
        settings,
        served,
        observed: &reports.observed,
        mount: &mount_service,
    };
    tokio::select! {
        () = interrupt.wait() => {}
        () = operation.run(signals) => {}
        () = heap::trim_heap(|| server.stats().connections) => {}
        () = systemd::feed_watchdog(async || server.workers_respond().await) => {}
    }
    systemd::stopping();
    log::tell("letting calls finish; a second interrupt ends at once");
    interrupt::end_server(async {
        if let Some(registered) = registered {
            registered.remove().await;
        }
        let (stats, ()) = tokio::join!(server.shutdown(), mount.stop());
        tracing::debug!(?stats, "served");
    })
    .await;
    mount_service.summarise(Instant::now() + WARNING_PERIOD);
    Ok(Ended::Well)
}

/// Listens at each of these addresses, and says where.
///
/// # Errors
///
/// If it cannot at one of them: then the server has ended.
async fn bind(
    provider: Arc<dyn Provider>,
    at: &[SocketAddr],
    service: Arc<dyn Service>,
    config: ServerConfig,
) -> anyhow::Result<(Server, Vec<SocketAddr>)> {
    let [first, others @ ..] = at else {
        bail!("there is no address to listen at");
    };
    let cannot = |at: SocketAddr| move |error| listen::cannot(error, at);
    let server = Server::bind(Arc::clone(&provider), *first, service, config)
        .await
        .map_err(cannot(*first))?;
    let mut listens_at = vec![server.local_addr()];
    for &at in others {
        let listening = server.listen_also(Arc::clone(&provider), at).await;
        listens_at.push(listening.map_err(cannot(at))?);
    }
    Ok((server, listens_at))
}

/// Says on standard output what is served. A server whose output nobody takes serves all the same.
fn announce(announcement: &Announcement<'_>, json: bool) -> anyhow::Result<()> {
    let mut text = match json {
        true => announcement.json()?,
        false => announcement.to_string(),
    };
    text.push('\n');
    let mut out = std::io::stdout();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    Ok(())
}
