//! The command line of `gateway`.

use super::config::{Config, File, NOT_IN_FILES};
use crate::checks::CheckArgs;
use crate::config_file::of_another_table;
use crate::failure::{self, Usage};
use crate::log::{self, LogFormat};
use crate::serve::Given;
use crate::serve::MAX_THREADS;
use crate::serve::given::{FileOptions, OptionTable, names_of};
use crate::serve::reports::ReportArgs;
use crate::transport::TransportArgs;
use anyhow::bail;
use clap::Args;
use printing::units;
use rpcrdma::{ClientConfig, ServerConfig};
use rpcrdma_daemon::clients::Clients;
use rpcrdma_daemon::gateway::mount_place::MountPlace;
use rpcrdma_daemon::gateway::observed::Observed;
use rpcrdma_daemon::gateway::pairs::GatewayOptions;
use rpcrdma_daemon::gateway::plan::{self, PairPlan};
use rpcrdma_daemon::gateway::urls::{ListenUrl, UpstreamUrl};
use rpcrdma_daemon::gateway::{Administration, Reread};
use rpcrdma_daemon::listen::MAX_LISTEN;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options in the `[gateway]` table of a file.
pub(super) fn names_in_files() -> Vec<String> {
    names_of::<GatewayArgs>(&NOT_IN_FILES)
}

/// Put RDMA in front of an NFS/TCP server, or TCP in front of an NFS/RDMA server
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  rpcrdma gateway --listen rdma://0.0.0.0 \\
    --upstream tcp://filer --allow 192.168.1.0/24
      Linux NFS/RDMA clients to any NFS/TCP server
  rpcrdma gateway --listen tcp://127.0.0.1 \\
    --upstream rdma://filer
      clients without RDMA here to an NFS/RDMA server
  rpcrdma gateway --listen rdma://0.0.0.0 \\
    --upstream tcp://filer --allow 192.168.1.0/24 \\
    --mount-port 20048
      with MOUNT, as mounts of NFS version 3 need it
  rpcrdma gateway --config /etc/rpcrdma/gateway.toml
      many pairs in one process
  rpcrdma gateway --config /etc/rpcrdma/gateway.toml --check
      whether that file can be used, and what it says

A file has a [[pair]] table for each pair, with listen, upstream, allow, mount_port, \
upstream_mount, rpcbind, reserved_port, hide_pnfs, provider and device, and a [gateway] table with the other options \
but --json, --log and --log-format.

Each client connection has an upstream connection of its own. Messages pass unchanged, in NFS of \
any version and in other programs, but for sizes in CREATE_SESSION, which may be reduced, and the step-up of a connection to RDMA, which is not made. SIGTERM or Ctrl-C finishes calls and exits with code 0. SIGHUP \
reads the file of --config again. SIGUSR1 logs statistics.

The upstream sees the address of the gateway, not those of clients: its exports must allow the \
gateway, and --allow says who may use it.")]
pub(crate) struct GatewayArgs {
    /// Address that clients connect to: rdma://ADDR[:PORT] or tcp://ADDR[:PORT]; repeatable, a pair for each [default
    /// ports: 20049, 2049; 0 = any free port]
    #[arg(short, long, value_name = "URL", requires = "upstream")]
    listen: Vec<ListenUrl>,

    /// The server: tcp://HOST[:PORT] or rdma://HOST[:PORT] [default ports: 2049, 20049]
    #[arg(short, long, value_name = "URL", requires = "listen")]
    upstream: Option<UpstreamUrl>,

    /// Read pairs and options from a TOML file; the command line overrides its options. Excludes
    /// --listen, --upstream, --mount-port, --upstream-mount, --rpcbind, --reserved-port and --hide-pnfs, which
    /// the file has for each pair
    #[arg(short, long, value_name = "FILE", conflicts_with_all =
        ["listen", "upstream", "mount_port", "upstream_mount", "rpcbind", "reserved_port", "hide_pnfs"])]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) check: CheckArgs,

    /// Address, network or host name that may connect; repeatable [default: this machine]
    #[arg(long, value_name = "ADDR[/BITS] | HOST")]
    allow: Vec<Clients>,

    /// Pass MOUNT on, from this TCP port at the same address (0 = any free port)
    #[arg(long, value_name = "PORT")]
    mount_port: Option<u16>,

    /// Place of the server's MOUNT [default: at its NFS port; else as rpcbind of its host says, else port
    /// 20048]
    #[arg(long, value_name = "[HOST:]PORT")]
    upstream_mount: Option<MountPlace>,

    /// Register NFS and MOUNT with rpcbind of this machine
    #[arg(long, requires = "mount_port")]
    rpcbind: bool,

    /// Connect to a TCP server from ports below 1024, as the export option `secure` wants. Who may
    /// use the gateway then has what the server grants to such ports
    #[arg(long)]
    reserved_port: bool,

    /// Tell clients that the server does not support pNFS, so that they do not read and write at its data servers,
    /// past the gateway. Not under krb5i and krb5p
    #[arg(long)]
    hide_pnfs: bool,

    /// Trust local users to claim any uid, as other machines are trusted
    #[arg(long)]
    pub(super) trust_local: bool,

    /// Number of threads that serve connections of RDMA clients [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(super) threads: Option<u16>,

    /// Maximum number of client connections of each pair; one address gets at most half
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) max_connections: u16,

    /// Close client connections without a call for this long (0 = never)
    #[arg(long, value_name = "DURATION", default_value = "6m", value_parser = units::parse_duration)]
    pub(super) idle_timeout: Duration,

    /// Close a connection whose call the server does not answer for this long
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::parse_duration)]
    pub(super) call_timeout: Duration,

    #[command(flatten)]
    pub(super) reports: ReportArgs,

    /// Print the pairs as one line of JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Format of the log [default: journald if standard error is the journal, otherwise text]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) log_format: Option<LogFormat>,

    #[command(flatten)]
    pub(super) transport: TransportArgs,

    /// Options of this that were given on the command line.
    #[arg(skip)]
    pub(crate) given: Given,
}

/// Options of a file that are those of its pairs, so that they need no restart.
const OF_PAIRS: [&str; 3] = ["allow", "provider", "device"];

/// Options of a gateway, and its pairs.
pub(super) struct Settings {
    /// With the options of the file, if there is one.
    pub(super) args: GatewayArgs,
    pub(super) pairs: Vec<PairPlan>,
    /// The options of the file, without those that need no restart.
    options: FileOptions,
}

impl GatewayArgs {
    /// Reads the file, if there is one, and puts all together.
    ///
    /// # Errors
    ///
    /// If something is not understood or makes no sense.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let (settings, errors) = self.read()?;
        failure::check_none(errors)?;
        Ok(settings)
    }

    /// The same as far as it is understood, and what is wrong with the rest.
    ///
    /// # Errors
    ///
    /// If the command line makes no sense, or the file cannot be read or is no TOML.
    pub(super) fn read(&self) -> anyhow::Result<(Settings, Vec<anyhow::Error>)> {
        let Some(path) = &self.config else {
            let pairs = self.pairs()?;
            let twice = plan::ports_given_twice(&pairs).into_iter();
            let twice = twice.map(|(_, what)| Usage(what).into());
            failure::check_none(twice.collect())?;
            let settings = Settings {
                args: self.clone(),
                pairs,
                options: FileOptions::default(),
            };
            return Ok((settings, Vec::new()));
        };
        let (config, mut errors) = Config::load(path)?;
        let table = OptionTable {
            file: &config.file,
            name: "gateway",
            options: &config.options,
            without: &NOT_IN_FILES,
            elsewhere: of_another_table::<File>,
        };
        let mut args: Self = table.under(&self.given, &mut errors)?;
        args.given = self.given.clone();
        args.config = self.config.clone();
        let pairs = config.pairs(
            &args.allow,
            &args.transport.provider().setting(),
            &mut errors,
        );
        let settings = Settings {
            args,
            pairs,
            options: FileOptions::new(&config.options, &OF_PAIRS),
        };
        Ok((settings, errors.into_errors()))
    }

    /// An option of the gateway, in words: a key of the file, or as it is on the command line.
    pub(super) fn option(&self, long: &str) -> String {
        self.given.name_of(long, "gateway", self.config.is_some())
    }

    /// The pairs of the command line: one for each address to listen at.
    fn pairs(&self) -> anyhow::Result<Vec<PairPlan>> {
        let (Some(&listen), Some(upstream)) = (self.listen.first(), self.upstream.clone()) else {
            bail!(Usage(
                "a gateway needs --listen and --upstream, or --config".to_owned()
            ));
        };
        if self.listen.len() > MAX_LISTEN {
            bail!(Usage(format!(
                "there are more than {MAX_LISTEN} addresses to listen at"
            )));
        }
        let pair = PairPlan {
            allow: Vec::new(),
            listen,
            upstream,
            mount_port: self.mount_port,
            upstream_mount: self.upstream_mount.clone().unwrap_or_default(),
            rpcbind: self.rpcbind,
            reserved_port: self.reserved_port,
            hide_pnfs: self.hide_pnfs,
            provider: self.transport.provider().setting(),
        };
        let allow = |listen: &ListenUrl| plan::clients_or_local(&self.allow, listen);
        let pairs = plan::at_each(&pair, &self.listen, allow);
        let contradictions = plan::contradictions(&pairs).into_iter();
        let contradictions = contradictions.map(|(option, what)| {
            let option = option.replace('_', "-");
            Usage(format!("--{option}: {what}")).into()
        });
        failure::check_none(contradictions.collect())?;
        Ok(pairs)
    }
}

impl Settings {
    /// The options beside the pairs.
    pub(super) fn options(&self) -> GatewayOptions {
        let (args, transport) = (&self.args, &self.args.transport);
        let (server, client) = (ServerConfig::default(), ClientConfig::default());
        GatewayOptions {
            trust_local: args.trust_local,
            max_connections: args.max_connections.into(),
            idle_timeout: (!args.idle_timeout.is_zero()).then_some(args.idle_timeout),
            call_timeout: args.call_timeout,
            in_file: args.config.is_some(),
            server: server
                .clone()
                .with_versions(transport.versions())
                .with_dialect(transport.dialect())
                .with_credits(transport.credits)
                .with_send_size(transport.inline_size_or(server.send_size))
                .with_receive_size(transport.inline_size_or(server.receive_size))
                .with_remote_invalidation(transport.remote_invalidation())
                .with_workers(args.threads.map_or(server.workers, usize::from))
                .with_spin(transport.spin()),
            client: client
                .clone()
                .with_versions(transport.versions())
                .with_dialect(transport.dialect())
                .with_credits(transport.credits)
                .with_send_size(transport.inline_size_or(client.send_size))
                .with_receive_size(transport.inline_size_or(client.receive_size))
                .with_remote_invalidation(transport.remote_invalidation())
                .with_spin(transport.spin()),
            iwarp: transport.iwarp_config(),
        }
    }
}

/// The command line of a running gateway, and its log.
pub(super) struct CommandLine<'a> {
    pub(super) args: &'a GatewayArgs,
    /// As they were at the start.
    pub(super) settings: &'a Settings,
}

impl Administration for CommandLine<'_> {
    fn file(&self) -> Option<&Path> {
        self.args.config.as_deref()
    }

    fn reread(&self) -> anyhow::Result<Reread> {
        let read = self.args.settings()?;
        Ok(Reread {
            changed: read.options.changed(&self.settings.options),
            pairs: read.pairs,
        })
    }

    fn log_statistics(&self, gateway: &Observed) {
        match log::is_json() {
            true => gateway.events().iter().for_each(log::statistics),
            false => gateway.log(),
        }
    }
}
