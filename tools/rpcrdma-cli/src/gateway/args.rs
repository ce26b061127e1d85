//! The command line of `gateway`.

use crate::checks::CheckArgs;
use crate::failure::Usage;
use crate::serve::reports::ReportArgs;
use crate::serve::serving::ServingArgs;
use crate::transport::TransportArgs;
use crate::words::word;
use anyhow::bail;
use clap::Args;
use printing::units;
use rpcrdma_daemon::clients::Clients;
use rpcrdma_daemon::config::Given;
use rpcrdma_daemon::gateway::GatewaySettings;
use rpcrdma_daemon::gateway::configuration::{PairsFrom, Source};
use rpcrdma_daemon::gateway::mount_place::MountPlace;
use rpcrdma_daemon::gateway::plan::PairPlan;
use rpcrdma_daemon::gateway::urls::{ListenUrl, UpstreamUrl};
use rpcrdma_daemon::log::LogFormat;
use std::path::PathBuf;
use std::time::Duration;

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
    trust_local: bool,

    #[command(flatten)]
    serving: ServingArgs,

    /// Close a connection whose call the server does not answer for this long
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::parse_duration)]
    call_timeout: Duration,

    #[command(flatten)]
    reports: ReportArgs,

    /// Print the pairs as one line of JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Format of the log [default: journald if standard error is the journal, otherwise text]
    #[arg(long, value_name = "FORM", value_parser = word::<LogFormat>())]
    pub(crate) log_format: Option<LogFormat>,

    #[command(flatten)]
    transport: TransportArgs,

    /// Options of this that were given on the command line.
    #[arg(skip)]
    pub(crate) given: Given,
}

impl GatewayArgs {
    /// The source of the configuration that they name.
    ///
    /// # Errors
    ///
    /// If they name neither a file nor a pair.
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        let pairs = match (&self.config, self.listen.first(), &self.upstream) {
            (Some(file), _, _) => PairsFrom::File(file.clone()),
            (None, Some(&first), Some(upstream)) => {
                let pair = self.pair(first, upstream);
                PairsFrom::CommandLine(self.listen.clone(), Box::new(pair))
            }
            (None, _, _) => bail!(Usage(
                "a gateway needs --listen and --upstream, or --config".to_owned()
            )),
        };
        Ok(Source {
            settings: self.settings(),
            given: self.given.clone(),
            pairs,
        })
    }

    fn settings(&self) -> GatewaySettings {
        GatewaySettings {
            allow: self.allow.clone(),
            trust_local: self.trust_local,
            serving: self.serving.settings(),
            call_timeout: self.call_timeout,
            reports: self.reports.places(),
            connections: self.transport.settings(),
        }
    }

    /// The pair that listens at one of the addresses, without its clients.
    fn pair(&self, listen: ListenUrl, upstream: &UpstreamUrl) -> PairPlan {
        PairPlan {
            allow: Vec::new(),
            listen,
            upstream: upstream.clone(),
            mount_port: self.mount_port,
            upstream_mount: self.upstream_mount.clone().unwrap_or_default(),
            rpcbind: self.rpcbind,
            reserved_port: self.reserved_port,
            hide_pnfs: self.hide_pnfs,
            provider: self.transport.provider().setting(),
        }
    }
}
