//! Options of a server and what it serves, once command line and file are put together.

use super::args::{ChangesName, ServeArgs, SquashName};
use super::config::Config;
use super::given::FileOptions;
use crate::failure::{self, Misconfigured, Usage};
use crate::interrupt::CALLS_END_WITHIN;
use crate::log;
use anyhow::bail;
use nfs_server::{Changes, ClientOptions, Network, Squash};
use rpcrdma::ServerConfig;
use rpcrdma_daemon::addresses::{has_host_of, meet};
use rpcrdma_daemon::clients::Clients;
use rpcrdma_daemon::listen::{self, MAX_LISTEN};
use rpcrdma_daemon::server::observed::Observed;
use rpcrdma_daemon::server::plan::{ClientPlan, Plan, Presence};
use rpcrdma_daemon::server::{Administration, Reread, ServerOptions, exports};
use rpcrdma_daemon::systemd;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

/// Options of a server, and what it serves.
pub(super) struct Settings {
    /// With the options of the file, if there is one.
    pub(super) args: ServeArgs,
    pub(super) plans: Vec<Plan>,
    /// The options of the file, without those that need no restart.
    server: FileOptions,
}

impl ServeArgs {
    /// Reads the file, if there is one, and puts all together.
    ///
    /// # Errors
    ///
    /// If something is not understood, or what is to be served is not there.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let (settings, errors) = self.read()?;
        failure::check_none(errors)?;
        Ok(settings)
    }

    /// The same as far as it is understood and there, and what is wrong with the rest.
    ///
    /// # Errors
    ///
    /// If the command line makes no sense, or the file cannot be read or is no TOML.
    pub(super) fn read(&self) -> anyhow::Result<(Settings, Vec<anyhow::Error>)> {
        let Some(file) = &self.config else {
            let mut args = self.clone();
            args.listen_where_activated();
            if let Some(wrong) = args.wrong_with_listeners() {
                bail!(Usage(wrong));
            }
            let plans = args.plans()?;
            let settings = Settings {
                args,
                plans,
                server: FileOptions::default(),
            };
            return Ok((settings, Vec::new()));
        };
        let (config, mut errors) = Config::load(file)?;
        let mut args = self.with_options_of(&config, &mut errors)?;
        args.listen_where_activated();
        // An option that is not understood may have been a port.
        let wrong = match errors.tells_of(&config.file, "server") {
            true => None,
            false => args.wrong_with_listeners(),
        };
        let plans = config.plans(&args.allowed(), &mut errors);
        let settings = Settings {
            args,
            plans,
            server: FileOptions::new(&config.server, &["allow"]),
        };
        let wrong = wrong.map(|wrong| {
            let what = format!("{}: [server]: {wrong}", file.display());
            Misconfigured(what).into()
        });
        Ok((
            settings,
            wrong.into_iter().chain(errors.into_errors()).collect(),
        ))
    }

    /// Listens where sockets do that this process was started with, if there are some.
    fn listen_where_activated(&mut self) {
        if !self.activated.is_empty() {
            self.listen.clone_from(&self.activated);
        }
    }

    /// The addresses of MOUNT.
    fn mount_addresses(&self) -> Vec<SocketAddr> {
        match self.activated_mount.is_empty() {
            true => listen::mount_addresses(&self.listen, self.mount_port),
            false => self.activated_mount.clone(),
        }
    }

    /// An error in words if there are too many listeners, or two of them cannot listen at the same time.
    fn wrong_with_listeners(&self) -> Option<String> {
        if self.listen.len() > MAX_LISTEN {
            return Some(format!("listen has more than {MAX_LISTEN} addresses"));
        }
        let nfs = self.listen.iter().map(|addr| match self.listen.len() {
            1 => ("listen".to_owned(), *addr),
            _ => (format!("listen {addr}"), *addr),
        });
        let mount = self.mount_addresses().into_iter();
        let mount = mount.map(|addr| ("mount_port".to_owned(), addr));
        let metrics = self.reports.metrics.iter();
        let metrics = metrics.map(|addr| ("metrics".to_owned(), *addr));
        let listeners: Vec<_> = nfs.chain(mount).chain(metrics).collect();
        // Sockets that listen already can.
        let held = match self.activated.is_empty() {
            true => 0,
            false => self.activated.len() + self.activated_mount.len(),
        };
        let mut pairs = listeners.iter().enumerate().flat_map(|(at, one)| {
            let others = listeners.get((at + 1).max(held)..).unwrap_or_default();
            others.iter().map(move |other| (one, other))
        });
        let (one, other) = pairs.find(|(one, other)| meet(one.1, other.1))?;
        let are_listened_at = self.listen.contains(&other.1);
        Some(
            match (has_host_of(one.1, other.1), one.1.ip() == other.1.ip()) {
                (true, false) if are_listened_at => is_part_of(&other.0, &one.0),
                (false, false) if are_listened_at => is_part_of(&one.0, &other.0),
                (_, _) => format!(
                    "{} and {} are both port {}: each needs one of its own",
                    one.0,
                    other.0,
                    one.1.port()
                ),
            },
        )
    }

    /// The exports of the command line.
    fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        let allowed = self.allowed();
        if allowed.is_empty() {
            bail!(Usage(format!(
                "listening at {} serves other machines: say which ones with --allow, as in \
                 --allow 192.168.1.0/24",
                self.for_others()
                    .next()
                    .map_or(String::new(), |ip| ip.to_string())
            )));
        }
        let options = ClientOptions {
            read_only: self.read_only,
            squash: match self.squash {
                SquashName::RemoteRoot => Squash::RemoteRoot,
                SquashName::Root => Squash::Root,
                SquashName::All => Squash::All,
                SquashName::None => Squash::None,
            },
            ..ClientOptions::default()
        };
        let clients = allowed.into_iter();
        let clients: Vec<ClientPlan> = clients
            .map(|clients| ClientPlan { clients, options })
            .collect();
        let exports = exports::resolve(&self.exports)?.into_iter();
        let plan = |export| Plan {
            export,
            fsid: None,
            crossmnt: false,
            presence: Presence::Required,
            clients: clients.clone(),
            origin: None,
        };
        Ok(exports.map(plan).collect())
    }

    /// Whom exports without clients of their own are for: nobody, if the server listens for other
    /// machines and is not told for which.
    fn allowed(&self) -> Vec<Clients> {
        match self.allow.is_empty() && self.for_others().next().is_none() {
            true => Network::LOOPBACK.map(Clients::Network).into(),
            false => self.allow.clone(),
        }
    }

    /// The addresses at which other machines connect.
    fn for_others(&self) -> impl Iterator<Item = IpAddr> {
        let all = self.listen.iter().map(|addr| addr.ip());
        all.filter(|ip| !ip.to_canonical().is_loopback())
    }

    /// The options of connections.
    fn transport_config(&self) -> ServerConfig {
        let usual = ServerConfig::default();
        let transport = &self.transport;
        let idle = (!self.idle_timeout.is_zero()).then_some(self.idle_timeout);
        usual
            .clone()
            .with_versions(transport.versions())
            .with_dialect(transport.dialect())
            .with_credits(transport.credits)
            .with_send_size(transport.inline_size_or(usual.send_size))
            .with_receive_size(transport.inline_size_or(usual.receive_size))
            .with_remote_invalidation(transport.remote_invalidation())
            .with_max_connections(self.max_connections.into())
            .with_idle_timeout(idle)
            .with_drain_timeout(CALLS_END_WITHIN)
            .with_strict(self.strict)
            .with_workers(self.threads.map_or(usual.workers, usize::from))
            .with_spin(transport.spin())
            .with_connections_hint(
                "--max-connections, or max_connections of [server], sets the limit",
            )
    }

    /// The addresses that clients connect to, without ports.
    fn hosts(&self) -> Vec<IpAddr> {
        self.listen.iter().map(|addr| addr.ip()).collect()
    }
}

impl Settings {
    /// The option or key that says where metrics are, in words.
    fn metrics_option(&self) -> String {
        let has_file = self.args.config.is_some();
        self.args.given.name_of("metrics", "server", has_file)
    }

    /// The server that they describe; `mount` are sockets for MOUNT that listen already.
    pub(super) fn options(&self, mount: Vec<(SocketAddr, TcpListener)>) -> ServerOptions {
        let args = &self.args;
        ServerOptions {
            listen: args.listen.clone(),
            rdma_socket: (!args.activated.is_empty()).then_some(systemd::RDMA_SOCKET),
            mount: args.mount_addresses(),
            mount_sockets: mount,
            exports: self.plans.clone(),
            trust: args.trust.trust(),
            changes: match args.changes {
                ChangesName::Durable => Changes::Durable,
                ChangesName::Cached => Changes::Cached,
            },
            state_dir: args.state_dir.clone(),
            rpcbind: args.rpcbind,
            transport: args.transport_config(),
            reports: args.reports.places(),
            metrics_setting: self.metrics_option(),
        }
    }

    /// The file read again, compared with the options of the start.
    fn reread(&self, read: &Self) -> Reread {
        Reread {
            exports: read.plans.clone(),
            listen: read.args.hosts(),
            changed: read.server.changed(&self.server),
        }
    }
}

/// The command line of a running server, and its log.
pub(super) struct CommandLine<'a> {
    pub(super) args: &'a ServeArgs,
    /// As they were at the start.
    pub(super) settings: &'a Settings,
}

impl Administration for CommandLine<'_> {
    fn file(&self) -> Option<&Path> {
        self.args.config.as_deref()
    }

    fn reread(&self) -> anyhow::Result<Reread> {
        let read = self.args.settings()?;
        Ok(self.settings.reread(&read))
    }

    fn log_statistics(&self, server: &Observed) {
        match log::is_json() {
            true => log::statistics(&server.event()),
            false => server.log(),
        }
    }
}

/// An error in words for an address to listen at that another one has.
fn is_part_of(part: &str, all: &str) -> String {
    format!("{part} is a part of {all}: leave it out, or give it a port of its own")
}
