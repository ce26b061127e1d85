//! `rpcrdma serve`: exports directories.

mod announce;
mod capacity;
mod exports;
mod guard;
mod listen;
mod memory;
mod null;
mod registration;

use crate::connect::seconds;
use crate::failure::{Ended, Usage};
use crate::interrupt::Interrupt;
use crate::log;
use crate::transport::TransportArgs;
use announce::Announcement;
use anyhow::{Context, bail};
use buffer::Pool;
use capacity::Capacity;
use clap::{Args, ValueEnum};
use exports::{Export, ExportArg};
use guard::Guarded;
use nfs_proto::MOUNT_PORT;
use nfs_server::{
    AccessList, Changes, ExportOptions, Exports, HandleKey, LocalFs, LocalFsOptions, Mount3,
    Network, Nfs3, Squash, default_state_dir,
};
use null::NullOnly;
use oncrpc::Programs;
use registration::Registered;
use rpcrdma::{Server, ServerConfig};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use verbs::SetupError;

/// Memory for file data that is kept for reuse, in bytes.
const POOL_KEEP: usize = 64 << 20;

/// Export directories over NFSv3 on RPC-over-RDMA, to Linux and to the other commands
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma serve .
      the current directory, read-write, to this machine only
  rpcrdma serve /data=/srv/data /music=/home/me/Music --read-only
      two directories under names of their own
  rpcrdma serve /srv/data --listen 0.0.0.0 --allow 192.168.1.0/24
      one directory to everybody in that network
  rpcrdma serve . --remote-invalidation inter_call,per_call,per_connection
      remote invalidation as the client offers it: the first of these, per_connection being usual

An interrupt (Ctrl-C) or SIGTERM lets calls finish and ends with exit code 0; a second one ends at
once. The server believes the user ids it is told (AUTH_SYS): allow only machines you trust.")]
pub(crate) struct ServeArgs {
    /// Directories to export; `/NAME=DIR` gives one another name. A single one is also `/`
    #[arg(value_name = "DIR | /NAME=DIR", default_value = ".")]
    exports: Vec<ExportArg>,

    /// Where to listen; port 20049 if none is given, 0 is any free port
    #[arg(short, long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1",
        value_parser = listen::parse)]
    listen: SocketAddr,

    /// Port of MOUNT over TCP, at the same address; 0 is any free port
    #[arg(long, value_name = "PORT", default_value_t = MOUNT_PORT)]
    mount_port: u16,

    /// Who may connect; may be given several times [default: this machine]
    #[arg(long, value_name = "ADDR[/BITS]")]
    allow: Vec<Network>,

    /// Nothing can be changed
    #[arg(long)]
    read_only: bool,

    /// Whose requests are treated as those of nobody
    #[arg(long, value_enum, value_name = "WHO", default_value_t)]
    squash: SquashName,

    /// When a change of names and attributes is on the disk: before it is answered, as RFC 1813
    /// demands, or when the system comes to it, which is faster and can lose changes in a crash of
    /// this machine
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    changes: ChangesName,

    /// Where to keep what makes file handles survive a restart [default: in the user's state
    /// directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Tell rpcbind where the programs are
    #[arg(long)]
    rpcbind: bool,

    /// Threads that serve connections [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: Option<u16>,

    /// Connections at a time, if there are descriptors and memory for them; one address has half of
    /// them at most
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,

    /// Close connections on which no call came for so long; 0 never does
    #[arg(long, value_name = "SECONDS", default_value = "360", value_parser = seconds)]
    idle_timeout: Duration,

    /// Say where it listens in one line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    transport: TransportArgs,
}

/// Most threads that can be asked for.
const MAX_THREADS: i64 = 256;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SquashName {
    /// Those of the user root
    #[default]
    Root,
    /// Everybody's
    All,
    /// Nobody's
    None,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ChangesName {
    #[default]
    Durable,
    Cached,
}

/// Runs the command.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let allow = args.access_list()?;
    let exports = exports::resolve(&args.exports)?;
    let (config, capacity) = args.config();
    let pool = Pool::new(POOL_KEEP);
    let files = args.open(&exports, &allow, &pool, &capacity)?;
    let mount_service = Mount3::new(files.exports.clone());

    let programs = Programs::new()
        .with(Nfs3::new(files.exports.clone(), pool))
        .with(mount_service.clone());
    let provider = Arc::new(Guarded {
        inner: args.transport.provider(),
        allowed: allow.clone(),
    });
    let limits = describe_limits(&config, &capacity);
    let server = Server::bind(provider, args.listen, Arc::new(programs), config)
        .await
        .map_err(|error| match error {
            SetupError::Io(error) => listen::explain(error, args.listen, "--listen ADDR:PORT"),
            other => anyhow::Error::new(other).context(format!("cannot listen at {}", args.listen)),
        })?;
    let mount = MountServer::start(&args, mount_service, &allow).await?;
    let registered = match args.rpcbind {
        true => Some(Registered::new(server.local_addr(), mount.addr).await?),
        false => None,
    };

    let announcement = Announcement {
        exports: &exports,
        listening: server.local_addr(),
        mount_port: mount.addr.port(),
        read_only: args.read_only,
        versions: args.transport.versions(),
        remote_invalidation: &args.transport.remote_invalidation(),
        provider: args.transport.describe(),
        allowed: describe_networks(&allow),
        user: args.describe_user(files.for_callers),
        limits,
        state: files.state,
    };
    let mut out = std::io::stdout();
    match args.json {
        true => writeln!(out, "{}", announcement.json()?)?,
        false => writeln!(out, "{announcement}")?,
    }
    out.flush()?;

    tokio::select! {
        () = interrupt.wait() => {}
        () = memory::return_what_is_free(&server) => {}
    }
    log::tell("rpcrdma: letting calls finish; a second interrupt ends at once");
    if let Some(registered) = registered {
        registered.remove().await;
    }
    let (stats, ()) = tokio::join!(server.shutdown(), mount.stop());
    tracing::debug!(?stats, "served");
    Ok(Ended::Well)
}

/// The directories, opened.
struct Files {
    exports: Exports,
    /// Whether callers act with their own rights.
    for_callers: bool,
    /// Where state is kept, in words.
    state: String,
}

impl ServeArgs {
    fn access_list(&self) -> anyhow::Result<AccessList> {
        if !self.allow.is_empty() {
            return Ok(AccessList::new(self.allow.iter().copied()));
        }
        if !self.listen.ip().to_canonical().is_loopback() {
            bail!(Usage(format!(
                "listening at {} serves other machines: say which ones with --allow, as in \
                 --allow 192.168.1.0/24",
                self.listen.ip()
            )));
        }
        Ok(AccessList::default())
    }

    fn open(
        &self,
        exports: &[Export],
        allow: &AccessList,
        pool: &Pool,
        capacity: &Capacity,
    ) -> anyhow::Result<Files> {
        let state_dir = self.state_dir.clone().or_else(default_state_dir);
        let key = match &state_dir {
            Some(dir) => HandleKey::load_or_create(dir)?,
            None => HandleKey::random()?,
        };
        let options = ExportOptions {
            read_only: self.read_only,
            squash: match self.squash {
                SquashName::Root => Squash::Root,
                SquashName::All => Squash::All,
                SquashName::None => Squash::None,
            },
            allow: allow.clone(),
        };
        let mut files = Files {
            exports: Exports::new(key),
            for_callers: false,
            state: match &state_dir {
                Some(dir) => format!("{} (file handles survive a restart)", dir.display()),
                None => "none: file handles are good until the end (--state-dir)".to_owned(),
            },
        };
        for export in exports {
            let fs = LocalFs::open(
                &export.dir,
                LocalFsOptions {
                    state_dir: state_dir.clone(),
                    pool: pool.clone(),
                    changes: match self.changes {
                        ChangesName::Durable => Changes::Durable,
                        ChangesName::Cached => Changes::Cached,
                    },
                    open_files: Some(capacity.open_files.div_ceil(exports.len())),
                },
            )?;
            files.for_callers = fs.acts_for_callers();
            files.exports = files
                .exports
                .with(&export.name, Arc::new(fs), options.clone())?;
        }
        Ok(files)
    }

    /// How the server behaves, with as many connections as it can have.
    fn config(&self) -> (ServerConfig, Capacity) {
        let usual = ServerConfig::default();
        let mut config = ServerConfig {
            versions: self.transport.versions(),
            credits: self.transport.credits,
            send_size: self.transport.inline_size_or(usual.send_size),
            receive_size: self.transport.inline_size_or(usual.receive_size),
            remote_invalidation: self.transport.remote_invalidation(),
            max_connections: self.max_connections.into(),
            idle_timeout: (!self.idle_timeout.is_zero()).then_some(self.idle_timeout),
            workers: self.threads.map_or(usual.workers, usize::from),
            spin: self.transport.spin(),
            ..usual
        };
        let with_memory = config.connections_with_memory(&self.transport.provider().limits());
        let capacity = Capacity::find(
            self.max_connections.into(),
            (with_memory, config.receive_memory),
        );
        config.max_connections = capacity.connections;
        config.max_connections_per_address = capacity.connections.div_ceil(2);
        (config, capacity)
    }

    /// As whom files are used, in words.
    fn describe_user(&self, for_callers: bool) -> String {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        match (for_callers, self.squash) {
            (false, _) => format!(
                "all files are used as uid {uid}, gid {gid}, which runs this; run by root, it \
                 acts for each caller"
            ),
            (true, SquashName::Root) => {
                "each caller as itself, root as nobody (--squash none has root be root)".to_owned()
            }
            (true, SquashName::All) => "every caller as nobody".to_owned(),
            (true, SquashName::None) => "each caller as itself, root as root".to_owned(),
        }
    }
}

fn describe_networks(allow: &AccessList) -> String {
    let networks: Vec<String> = allow.networks().iter().map(Network::to_string).collect();
    networks.join(", ")
}

fn describe_limits(config: &ServerConfig, capacity: &Capacity) -> String {
    format!(
        "{}, each with {} calls at a time; messages of {} bytes, READ and WRITE of {} KiB; {} MiB for \
         data in flight; {} threads",
        capacity.describe(),
        config.credits,
        config.receive_size,
        nfs_server::MAX_READ.min(nfs_server::MAX_WRITE) >> 10,
        config.chunk_memory >> 20,
        config.workers
    )
}

/// MOUNT over TCP.
struct MountServer {
    addr: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl MountServer {
    async fn start(args: &ServeArgs, mount: Mount3, allow: &AccessList) -> anyhow::Result<Self> {
        let wanted = SocketAddr::new(args.listen.ip(), args.mount_port);
        let listener = TcpListener::bind(wanted)
            .await
            .map_err(|error| listen::explain(error, wanted, "--mount-port"))?;
        let addr = listener.local_addr().context("cannot listen")?;
        let programs = Programs::new().with(mount).with(NullOnly);
        let allow = allow.clone();
        let server =
            oncrpc_tcp::Server::new(listener, Arc::new(programs), oncrpc_tcp::Limits::default())
                .admit(move |addr| allow.allows(addr));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            // A dropped sender means the same: nobody needs it any more.
            let _ = stopped.await;
        }));
        Ok(Self { addr, stop, task })
    }

    /// Answers what was begun, and ends.
    async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
