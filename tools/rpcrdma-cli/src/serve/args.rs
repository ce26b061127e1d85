//! The command line of `serve`.

use super::local_users::TrustArgs;
use super::reports::ReportArgs;
use super::serving::ServingArgs;
use crate::checks::CheckArgs;
use crate::transport::TransportArgs;
use crate::words::word;
use clap::Args;
use nfs_proto::MOUNT_PORT;
use nfs_server::{Changes, ClientOptions, Squash};
use rpcrdma_daemon::clients::Clients;
use rpcrdma_daemon::config::Given;
use rpcrdma_daemon::listen::{self, TcpAddress};
use rpcrdma_daemon::log::LogFormat;
use rpcrdma_daemon::server::ServerSettings;
use rpcrdma_daemon::server::configuration::{ExportsFrom, Source};
use rpcrdma_daemon::server::exports::ExportArg;
use rpcrdma_daemon::server::settings::lease;
use rpcrdma_daemon::systemd::Sockets;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Export directories over NFSv3 on RPC-over-RDMA, to Linux clients and to this program
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  rpcrdma serve .
      the current directory, read-write, to this machine
  rpcrdma serve /data=/srv/data /music=/home/me --read-only
      two directories under other names
  rpcrdma serve . --listen 0.0.0.0 --allow 192.168.1.0/24
      one directory to a network
  rpcrdma serve . --listen 192.168.1.1 --listen 10.0.0.1 \\
    --allow 192.168.1.0/24 --allow 10.0.0.0/8
      one directory to two networks
  rpcrdma serve . --tcp 2049
      the same over TCP too, for clients without RDMA
  rpcrdma serve --config /etc/rpcrdma/rpcrdma.toml
      exports and options from a file: see rpcrdma.toml(5)
  rpcrdma serve --config /etc/rpcrdma/rpcrdma.toml --check
      whether that file can be served, and what it exports

SIGTERM or Ctrl-C finishes calls and exits with code 0; a second one exits at once. SIGHUP reads \
the file of --config again. SIGUSR1 logs statistics.

The server trusts the user ids that other machines send (AUTH_SYS): allow only machines you \
trust. Local users can act only as themselves.")]
pub(crate) struct ServeArgs {
    /// Directories to export, each under its last name or as /NAME=DIR. A single export is also /
    #[arg(value_name = "DIR | /NAME=DIR", default_value = ".")]
    exports: Vec<ExportArg>,

    /// Read exports and options from a TOML file; the command line overrides its options. Excludes
    /// directories, --allow, --read-only and --squash, which the file has for each export
    #[arg(short, long, value_name = "FILE",
        conflicts_with_all = ["exports", "allow", "read_only", "squash"])]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) check: CheckArgs,

    /// Address to listen on, or localhost; repeatable [default port: 20049; 0 = any free port]
    #[arg(short, long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1",
        value_parser = listen::parse)]
    listen: Vec<SocketAddr>,

    /// Port of NFS over TCP, at the same addresses, or an address; repeatable [default: none; 0 = any
    /// free port]
    #[arg(long, value_name = "[ADDR:]PORT")]
    tcp: Vec<TcpAddress>,

    /// TCP port of MOUNT, at the same addresses (0 = any free port)
    #[arg(long, value_name = "PORT", default_value_t = MOUNT_PORT)]
    mount_port: u16,

    /// Address, network or host name that may connect; repeatable [default: this machine]
    #[arg(long, value_name = "ADDR[/BITS] | HOST")]
    allow: Vec<Clients>,

    /// Export read-only
    #[arg(long)]
    read_only: bool,

    /// Users that are treated as nobody
    #[arg(long, value_name = "WHO", value_parser = word::<Squash>(), default_value = "remote-root")]
    squash: Squash,

    #[command(flatten)]
    trust: TrustArgs,

    /// When changes of names and attributes reach the disk
    #[arg(long, value_name = "WHEN", value_parser = word::<Changes>(), default_value = "durable")]
    changes: Changes,

    /// Directory for the state that keeps file handles valid across restarts, outside of all
    /// exports [default: rpcrdma in the user's state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Time in which NFSv4 clients renew their lease: what one that died holds is in nobody's way after it
    #[arg(long, value_name = "TIME", value_parser = lease, default_value = "90s")]
    lease: Duration,

    /// Register NFS and MOUNT with rpcbind
    #[arg(long)]
    rpcbind: bool,

    #[command(flatten)]
    serving: ServingArgs,

    /// Close the connection of a client whose message is longer than this server has announced
    /// that it receives, as other servers do, instead of logging it
    #[arg(long)]
    strict: bool,

    #[command(flatten)]
    reports: ReportArgs,

    /// Print the listening addresses and exports as one line of JSON
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

impl ServeArgs {
    /// The source of the configuration that they name, with sockets that listen already.
    pub(crate) fn source(&self, sockets: &Sockets) -> Source {
        let addrs = |sockets: &[(SocketAddr, TcpListener)]| {
            let addrs = sockets.iter().map(|(addr, _)| *addr);
            addrs.collect::<Vec<_>>()
        };
        Source {
            settings: self.settings(),
            given: self.given.clone(),
            exports: match &self.config {
                Some(file) => ExportsFrom::File(file.clone()),
                None => ExportsFrom::CommandLine(
                    self.exports.clone(),
                    ClientOptions {
                        read_only: self.read_only,
                        squash: self.squash,
                        ..ClientOptions::default()
                    },
                ),
            },
            activated: addrs(&sockets.rdma),
            activated_tcp: addrs(&sockets.tcp),
            activated_mount: addrs(&sockets.mount),
        }
    }

    fn settings(&self) -> ServerSettings {
        ServerSettings {
            listen: self.listen.clone(),
            tcp: self.tcp.clone(),
            mount_port: self.mount_port,
            allow: self.allow.clone(),
            trust: self.trust.trust(),
            changes: self.changes,
            state_dir: self.state_dir.clone(),
            lease: self.lease,
            rpcbind: self.rpcbind,
            serving: self.serving.settings(),
            strict: self.strict,
            reports: self.reports.places(),
            connections: self.transport.settings(),
        }
    }
}
