//! The command line of `serve`.

use super::exports::ExportArg;
use super::given::Given;
use super::listen;
use super::local_users::Trust;
use super::plan::Clients;
use super::reports::ReportArgs;
use crate::log::LogFormat;
use crate::transport::TransportArgs;
use crate::units;
use clap::{Args, ValueEnum};
use nfs_proto::MOUNT_PORT;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Export directories over NFSv3 on RPC-over-RDMA, to Linux and to the other commands
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  rpcrdma serve .
      the current directory, read-write, to this machine only
  rpcrdma serve /data=/srv/data /music=/home/me/Music --read-only
      two directories under names of their own
  rpcrdma serve /srv/data --listen 0.0.0.0 --allow 192.168.1.0/24
      one directory to everybody in that network
  rpcrdma serve --config /etc/rpcrdma/exports.toml
      what the file says, which is read again at SIGHUP; see rpcrdma.toml(5)
  rpcrdma serve --config /etc/rpcrdma/exports.toml --check
      whether the file can be used, and what would be served
  rpcrdma serve . --remote-invalidation inter_call,per_call,per_connection
      remote invalidation as the client offers it: the first of these, per_connection being usual

An interrupt (Ctrl-C) or SIGTERM lets calls finish and ends with exit code 0; a second one ends at
once. SIGHUP reads the file of --config again, SIGUSR1 logs statistics. The server believes the user
ids that other machines tell it (AUTH_SYS): allow only machines you trust. Of this machine each user
speaks for itself only.")]
pub(crate) struct ServeArgs {
    /// Directories to export; `/NAME=DIR` gives one another name. A single one is also `/`
    #[arg(value_name = "DIR | /NAME=DIR", default_value = ".")]
    pub(super) exports: Vec<ExportArg>,

    /// Take exports and options from a TOML file; an option given here too counts more than there. Not
    /// with --allow, --read-only, --squash or directories: each export in the file says these for itself
    #[arg(short, long, value_name = "FILE",
        conflicts_with_all = ["exports", "allow", "read_only", "squash"])]
    pub(super) config: Option<PathBuf>,

    /// Say what would be served, and whether that is possible, but do not serve
    #[arg(long)]
    pub(super) check: bool,

    /// Where to listen, by address or as localhost; port 20049 if none is given, 0 is any free port
    #[arg(short, long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1",
        value_parser = listen::parse)]
    pub(super) listen: SocketAddr,

    /// Port of MOUNT over TCP, at the same address; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = MOUNT_PORT)]
    pub(super) mount_port: u16,

    /// Who may connect, by address, network or name; may be given several times. Not with --config
    /// [default: this machine]
    #[arg(long, value_name = "ADDR[/BITS] | HOST")]
    pub(super) allow: Vec<Clients>,

    /// Nothing can be changed. Not with --config
    #[arg(long)]
    pub(super) read_only: bool,

    /// Whose requests are treated as those of nobody. Not with --config
    #[arg(long, value_enum, value_name = "WHO", default_value_t)]
    pub(super) squash: SquashName,

    #[command(flatten)]
    pub(super) trust: Trust,

    /// When a change of names and attributes is on the disk: before it is answered, as RFC 1813
    /// demands, or when the system comes to it, which is faster and can lose changes in a crash of
    /// this machine
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub(super) changes: ChangesName,

    /// Where to keep what makes file handles survive a restart [default: in the user's state
    /// directory]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,

    /// Tell rpcbind where the programs are
    #[arg(long)]
    pub(super) rpcbind: bool,

    /// Threads that serve connections [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(super) threads: Option<u16>,

    /// Connections at a time, if there are descriptors and memory for them; one address has half of
    /// them at most
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) max_connections: u16,

    /// Close connections on which no call came for so long; a plain number is in seconds, 0 never does
    #[arg(long, value_name = "DURATION", default_value = "6m", value_parser = units::parse_duration)]
    pub(super) idle_timeout: Duration,

    #[command(flatten)]
    pub(super) reports: ReportArgs,

    /// Say where it listens in one line of JSON
    #[arg(long)]
    pub(super) json: bool,

    /// The form of the log [default: journald where standard error is the journal, text elsewhere]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) log_format: Option<LogFormat>,

    #[command(flatten)]
    pub(super) transport: TransportArgs,

    /// Where a socket listens that this process was started with.
    #[arg(skip)]
    pub(super) activated: Option<SocketAddr>,

    /// What of this was given on the command line.
    #[arg(skip)]
    pub(crate) given: Given,
}

/// Most threads that can be asked for.
const MAX_THREADS: i64 = 256;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum SquashName {
    /// Those of root of other machines: root of this one is root, unless --trust-local
    #[default]
    RemoteRoot,
    /// Those of the user root
    Root,
    /// Everybody's
    All,
    /// Nobody's
    None,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum ChangesName {
    #[default]
    Durable,
    Cached,
}
