//! Options of a server and what it serves, once command line and file are put together.

use super::args::{ChangesName, ServeArgs, SquashName};
use super::config::Config;
use super::exports;
use super::given::FileOptions;
use super::plan::{ClientPlan, Clients, Plan, Presence};
use super::served::HowToOpen;
use crate::failure::{self, Misconfigured, Usage, plain};
use crate::interrupt::CALLS_END_WITHIN;
use crate::provider::ServerProviders;
use anyhow::bail;
use buffer::Pool;
use nfs_server::{
    Changes, ClientOptions, HandleKey, KeyError, LocalFsOptions, Network, Squash, default_state_dir,
};
use printing::units;
use rpcrdma::ServerConfig;
use rpcrdma_daemon::addresses::{has_host_of, meet};
use rpcrdma_daemon::capacity::Capacity;
use rpcrdma_daemon::listen::{self, MAX_LISTEN};
use rpcrdma_daemon::systemd;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

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
    pub(super) fn mount_addresses(&self) -> Vec<SocketAddr> {
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

    /// The addresses that clients connect to, without ports.
    pub(super) fn hosts(&self) -> Vec<IpAddr> {
        self.listen.iter().map(|addr| addr.ip()).collect()
    }
}

impl Settings {
    /// Takes what was read again, but for the options that need a restart: those of the start are in force.
    pub(super) fn read_again(&mut self, read: Self) {
        let server = std::mem::take(&mut self.server);
        *self = Self { server, ..read };
    }

    /// Names the options that differ and take effect at a restart.
    pub(super) fn changed_options(&self, other: &Self) -> Vec<String> {
        self.server.changed(&other.server)
    }

    /// The option or key that says where metrics are, in words.
    pub(super) fn metrics_option(&self) -> String {
        let has_file = self.args.config.is_some();
        self.args.given.name_of("metrics", "server", has_file)
    }

    /// Where state is to be kept, if anywhere.
    pub(super) fn state_dir(&self) -> Option<PathBuf> {
        self.given_state_dir().or_else(default_state_dir)
    }

    /// Where the administrator has state kept.
    pub(super) fn given_state_dir(&self) -> Option<PathBuf> {
        let given = self.args.state_dir.clone();
        given.or_else(systemd::state_dir)
    }

    /// Where state is kept, if anywhere, and the key of file handles there. The usual place, which
    /// nobody asked for, need not be usable.
    ///
    /// # Errors
    ///
    /// If the key cannot be used.
    pub(super) fn state(&self) -> Result<(Option<PathBuf>, HandleKey), KeyError> {
        if let Some(dir) = self.given_state_dir() {
            let key = HandleKey::load_or_create(&dir)?;
            return Ok((Some(dir), key));
        }
        let missing = match default_state_dir() {
            None => NO_HOME.to_owned(),
            Some(dir) => match HandleKey::load_or_create(&dir) {
                Ok(key) => return Ok((Some(dir), key)),
                Err(error) => unusable(&error).ok_or(error)?,
            },
        };
        tracing::warn!(target: "serve", "{}", without_state(&missing));
        Ok((None, HandleKey::random()?))
    }

    /// How directories are opened.
    pub(super) fn how_to_open(
        &self,
        state_dir: Option<PathBuf>,
        pool: Pool,
        capacity: &Capacity,
    ) -> HowToOpen {
        HowToOpen {
            options: LocalFsOptions::default()
                .with_state_dir(state_dir)
                .with_pool(pool)
                .with_changes(match self.args.changes {
                    ChangesName::Durable => Changes::Durable,
                    ChangesName::Cached => Changes::Cached,
                }),
            open_files: capacity.open_files,
        }
    }

    /// How the server behaves, with as many connections as it can have, all of them over any of these providers.
    pub(super) fn config(&self, providers: &ServerProviders) -> (ServerConfig, Capacity) {
        let usual = ServerConfig::default();
        let mut config = usual
            .clone()
            .with_versions(self.args.transport.versions())
            .with_dialect(self.args.transport.dialect())
            .with_credits(self.args.transport.credits)
            .with_send_size(self.args.transport.inline_size_or(usual.send_size))
            .with_receive_size(self.args.transport.inline_size_or(usual.receive_size))
            .with_remote_invalidation(self.args.transport.remote_invalidation())
            .with_max_connections(self.args.max_connections.into())
            .with_idle_timeout(
                (!self.args.idle_timeout.is_zero()).then_some(self.args.idle_timeout),
            )
            .with_drain_timeout(CALLS_END_WITHIN)
            .with_strict(self.args.strict)
            .with_workers(self.args.threads.map_or(usual.workers, usize::from))
            .with_spin(self.args.transport.spin());
        let with_memory = providers.connections_with_memory(&config);
        let capacity = Capacity::find(
            self.args.max_connections.into(),
            providers.use_devices(),
            self.args.listen.len(),
            (with_memory, config.receive_memory),
        );
        config.max_connections = capacity.connections;
        config.connections_hint =
            Some("--max-connections, or max_connections of [server], sets the limit");
        config.max_connections_per_address = capacity.connections.div_ceil(2);
        (config, capacity)
    }
}

/// An error in words for an address to listen at that another one has.
fn is_part_of(part: &str, all: &str) -> String {
    format!("{part} is a part of {all}: leave it out, or give it a port of its own")
}

/// Why there is no usual place for state.
pub(super) const NO_HOME: &str = "this user has no home";

/// Why there is no place for a key, unless one that is there cannot be used.
pub(super) fn unusable(error: &KeyError) -> Option<String> {
    let KeyError::File { path, error } = error else {
        return None;
    };
    let no_place = matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::ReadOnlyFilesystem
    );
    no_place.then(|| plain(&format_args!("{}: {error}", path.display())))
}

/// What it means that there is no place for state, and why there is none.
pub(super) fn without_state(why: &str) -> String {
    format!(
        "file handles will not survive a restart: {why} (--state-dir names a directory for the key)"
    )
}

/// Where state is kept, in words.
pub(super) fn describe_state(dir: Option<&Path>) -> String {
    match dir {
        Some(dir) => format!("{} (file handles survive a restart)", dir.display()),
        None => "none: file handles are lost at exit (--state-dir)".to_owned(),
    }
}

/// The limits of the server, in words.
pub(super) fn describe_limits(config: &ServerConfig, capacity: &Capacity) -> String {
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
