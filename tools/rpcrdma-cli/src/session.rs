//! Files on servers by their URL: connecting, and asking for the export a URL lies in.

use crate::connect::ConnectArgs;
use crate::endpoint::{Endpoint, at_port};
use crate::failure::{self, Usage};
use crate::modes::umask;
use crate::shell_patterns::unexpanded;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::{Error, Export, ExportedDir, Fault, Mount, NfsUrl, current_user};
use nfs_copy::{Connection, FileError, Place, Places, export_path};
use nfs_proto::acl::{AclMask, GetAcl};
use nfs_proto::mount::{MountStatus, Mounted};
use nfs_proto::{MOUNT_PORT, NFS_RDMA_PORT};
use oncrpc::RpcError;
use rpcrdma::Client;
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a server may take to take part in the end of a connection.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// How long a server may leave calls unanswered before the user is told.
const NOT_RESPONDING_AFTER: Duration = Duration::from_secs(5);

/// Message about a URL that is no text.
pub(crate) const NOT_UTF8: &str = "it is not UTF-8: in a URL, write such bytes as %XX";

/// Options of everything that works on files of a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    /// TCP port of MOUNT, for servers that do not answer MOUNT over RDMA [default: 20048 for a server at port
    /// 20049, none for another port]
    #[arg(long, value_name = "PORT", help_heading = "Connection")]
    pub(crate) mount_port: Option<u16>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// The server mounts nothing at a path, or nothing for this client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoExport(String);

/// The servers that one command uses. Each is connected to once.
pub(crate) struct Session {
    args: SessionArgs,
    servers: Vec<Server>,
    /// Tell the user when a server does not answer. They end with the session.
    watches: JoinSet<()>,
}

struct Server {
    endpoint: Endpoint,
    addr: SocketAddr,
    client: Client,
    /// Once it is known that MOUNT is not answered over RDMA.
    mount: Option<Mount<oncrpc_tcp::Client>>,
    exports: Vec<Arc<Export<Connection>>>,
}

/// Parses a URL of a command that takes local paths too.
///
/// # Errors
///
/// [`Usage`] if it is none.
pub(crate) fn parse_url(text: &OsStr) -> anyhow::Result<NfsUrl> {
    let Some(text) = text.to_str() else {
        let text = nfs_client::printable(text.as_bytes());
        bail!(Usage(format!("{text}: {NOT_UTF8}")));
    };
    let url = text.parse();
    Ok(url.map_err(|error| Usage(format!("{text}: {error}")))?)
}

impl Session {
    pub(crate) fn new(args: &SessionArgs) -> Self {
        Self {
            args: args.clone(),
            servers: Vec::new(),
            watches: JoinSet::new(),
        }
    }

    /// Returns the object that a URL names. Whether it exists is not asked.
    ///
    /// # Errors
    ///
    /// If there is no server, or no export there that it lies in.
    pub(crate) async fn place(&mut self, url: &NfsUrl) -> anyhow::Result<Place> {
        let index = self.server(url).await?;
        let server = &mut self.servers[index];
        let (mounted, path) = server.mount(&self.args, url).await?;
        let export = server.export(mounted, url, &path).await?;
        Ok(Place {
            export,
            path,
            url: url.clone(),
        })
    }

    /// The client of the server of a [place](Self::place).
    ///
    /// # Panics
    ///
    /// If it is not a place of this session.
    pub(crate) fn client(&self, place: &Place) -> &Client {
        let mut all = self.servers.iter();
        let server = all.find(|server| server.is_of(&place.url));
        &server.expect("the session has its server").client
    }

    /// The names of the exports of a server of whose root this URL is, in order, if that is none of them and could therefore not
    /// be [placed](Self::place).
    pub(crate) async fn exports_below(
        &self,
        url: &NfsUrl,
        error: &anyhow::Error,
    ) -> Option<Vec<Vec<u8>>> {
        let is_root = url.path.iter().all(|byte| *byte == b'/');
        if !is_root || !error.is::<NoExport>() {
            return None;
        }
        let server = self.servers.iter().find(|server| server.is_of(url))?;
        let exports = server.exports().await.ok()?.into_iter();
        let name = |path: Vec<u8>| path.into_iter().skip_while(|byte| *byte == b'/');
        let mut names: Vec<Vec<u8>> = exports.map(|dir| name(dir.path).collect()).collect();
        names.sort();
        names.dedup();
        // An empty name is the root, which is for others than this client.
        let is_listed = names.first().is_some_and(|name| !name.is_empty());
        is_listed.then_some(names)
    }

    /// Returns the objects that two URLs name, which must be in the same export.
    ///
    /// # Errors
    ///
    /// As [`place`](Self::place); if they are not.
    pub(crate) async fn places(
        &mut self,
        first: &NfsUrl,
        second: &NfsUrl,
    ) -> anyhow::Result<(Place, Place)> {
        let (first, second) = (self.place(first).await?, self.place(second).await?);
        if !Arc::ptr_eq(&first.export, &second.export) {
            bail!(Usage(format!(
                "{} and {} are not in the same export: copy with `rpcrdma cp`",
                first.url, second.url
            )));
        }
        Ok((first, second))
    }

    /// Ends all connections, in good order if the server takes part in it soon.
    pub(crate) async fn close(self) {
        drop(self.watches);
        for server in self.servers {
            // Nothing is lost with a connection on which no call waits.
            let _ = timeout(CLOSED_WITHIN, server.client.close()).await;
        }
    }

    async fn server(&mut self, url: &NfsUrl) -> anyhow::Result<usize> {
        if let Some(index) = self.servers.iter().position(|server| server.is_of(url)) {
            return Ok(index);
        }
        let endpoint = Endpoint {
            host: url.host.clone(),
            port: url.port,
        };
        let connected = self.args.connect.connect_for(&endpoint, url);
        let (client, addr) = said_if_late(&endpoint, connected).await?;
        self.watches.spawn(watch(client.clone(), endpoint.clone()));
        self.servers.push(Server {
            endpoint,
            addr,
            client,
            mount: None,
            exports: Vec::new(),
        });
        Ok(self.servers.len() - 1)
    }
}

/// An error of connecting to a server, on its way through the copy.
#[derive(Debug)]
pub(crate) struct Unreached(pub(crate) anyhow::Error);

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Unreached {}

impl From<Unreached> for nfs_copy::Error {
    fn from(error: Unreached) -> Self {
        match error.0.is::<Usage>() {
            true => Self::Places(Box::new(error)),
            false => Self::Place(Box::new(error)),
        }
    }
}

impl Places for Session {
    async fn place(&mut self, url: &NfsUrl) -> nfs_copy::Result<Place> {
        let place = Self::place(self, url).await;
        place.map_err(|error| Unreached(error).into())
    }
}

impl Server {
    fn is_of(&self, url: &NfsUrl) -> bool {
        (&self.endpoint.host, self.endpoint.port) == (&url.host, url.port)
    }

    /// Its exports, from where it answers MOUNT.
    async fn exports(&self) -> Result<Vec<ExportedDir>, Error> {
        match &self.mount {
            Some(mount) => said_if_late(&self.endpoint, mount.exports()).await,
            None => {
                let mount = Mount::new(self.client.clone(), current_user());
                mount.exports().await
            }
        }
    }

    /// Root and rest of a path: asked over RDMA first, then over TCP.
    async fn mount(
        &mut self,
        args: &SessionArgs,
        url: &NfsUrl,
    ) -> anyhow::Result<(Mounted, Vec<u8>)> {
        if self.mount.is_none() {
            let over_rdma = Mount::new(self.client.clone(), current_user());
            match over_rdma.mount_above(&url.path).await {
                Err(error) if has_no_mount(&error, args.mount_port) => {}
                mounted => {
                    let hint = mounted.as_ref().err().and_then(hint_of_gateway);
                    let mounted = self.explain(url, mounted);
                    return match hint {
                        Some(hint) => mounted.context(hint),
                        None => mounted,
                    };
                }
            }
            let port = mount_port(args.mount_port, self.addr)
                .with_context(|| format!("{url}: the server does not answer MOUNT over RDMA"))?;
            let addr = at_port(self.addr, port);
            let connected = oncrpc_tcp::Client::connect(addr, args.connect.timeout);
            let client = said_if_late(&self.endpoint, connected)
                .await
                .with_context(|| {
                    format!(
                        "{url}: the server does not answer MOUNT over RDMA, and nobody does over TCP at \
                         port {port} (--mount-port says where it is; `rpcinfo -p` shows it)"
                    )
                })?;
            self.mount = Some(Mount::new(client, current_user()));
        }
        let mount = self.mount.as_ref().expect("it was set just now");
        let mounted = said_if_late(&self.endpoint, mount.mount_above(&url.path)).await;
        self.explain(url, mounted)
    }

    fn explain<T>(&self, url: &NfsUrl, mounted: Result<T, Error>) -> anyhow::Result<T> {
        let addr = self.addr;
        mounted.map_err(|Error { doing, fault, .. }| match fault {
            // The advice of the library has not got this program.
            Fault::Mount(MountStatus::NoEntry | MountStatus::Access) => {
                let unexpanded = unexpanded(&url.path).map_or(String::new(), |hint| format!("; {hint}"));
                anyhow::Error::new(NoExport(format!(
                    "{url}: {fault} (`rpcrdma exports {addr}` lists the server's exports and for whom they are{unexpanded})"
                )))
            }
            fault => {
                FileError::new(url.clone(), doing, fault).into()
            }
        })
    }

    /// The export that a URL lies in, at this path.
    async fn export(
        &mut self,
        mounted: Mounted,
        url: &NfsUrl,
        path: &[u8],
    ) -> anyhow::Result<Arc<Export<Connection>>> {
        let known = |export: &&Arc<Export<Connection>>| export.root().handle == mounted.handle;
        if let Some(export) = self.exports.iter().find(known) {
            return Ok(Arc::clone(export));
        }
        let connection = Connection::new(self.client.clone());
        let opened = Export::open(connection, current_user(), mounted.handle).await;
        let name = export_path(&url.path, path);
        let export = Arc::new(self.explain(url, opened)?.named(name));
        self.exports.push(Arc::clone(&export));
        Ok(export)
    }
}

/// Whether MOUNT of a server that was asked over RDMA is to be asked over TCP: it has none there or, at a port that was given,
/// it does not know where it is, as gateways say.
pub(crate) fn has_no_mount(error: &Error, given: Option<u16>) -> bool {
    match error.fault {
        Fault::Rpc(RpcError::ProgUnavail | RpcError::ProgMismatch { .. }) => true,
        Fault::Rpc(RpcError::SystemErr) => given.is_some(),
        _ => false,
    }
}

/// Advice for a call of MOUNT to what may be a gateway.
pub(crate) fn hint_of_gateway(error: &Error) -> Option<&'static str> {
    matches!(error.fault, Fault::Rpc(RpcError::SystemErr)).then_some(
        "MOUNT fails at the server, or at a gateway that does not reach MOUNT of its server (its log has the reason; \
         upstream_mount of the gateway or --mount-port here names the place)",
    )
}

/// The TCP port of MOUNT of a server that does not answer it over RDMA: the one that was given, or the usual one.
///
/// # Errors
///
/// If none was given and the port of the server is not the usual one: MOUNT at the usual port may then be that of another
/// server of the host, whose file handles could lead to other files here.
pub(crate) fn mount_port(given: Option<u16>, server: SocketAddr) -> anyhow::Result<u16> {
    match (given, server.port()) {
        (Some(port), _) => Ok(port),
        (None, NFS_RDMA_PORT) => Ok(MOUNT_PORT),
        (None, port) => Err(anyhow!(
            "MOUNT over TCP at port {MOUNT_PORT} is not asked, as it may be that of another server than the one at port \
             {port} (--mount-port says where it is; for a server behind a gateway, the gateway's upstream_mount does)"
        )),
    }
}

/// Tells the user when a server does not answer, and when it does again, in the words of the kernel's NFS
/// client.
async fn watch(client: Client, server: Endpoint) {
    loop {
        client.unresponsive(NOT_RESPONDING_AFTER).await;
        say_not_responding(&server);
        client.responsive().await;
        say_ok(&server);
    }
}

/// The same around something that the server is asked by other means.
async fn said_if_late<T, E>(
    server: &Endpoint,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut asked = std::pin::pin!(asked);
    match timeout(NOT_RESPONDING_AFTER, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => {
            say_not_responding(server);
            let answer = asked.await?;
            say_ok(server);
            Ok(answer)
        }
    }
}

fn say_not_responding(server: &Endpoint) {
    failure::note(&format!("server {server} not responding, still trying"));
}

fn say_ok(server: &Endpoint) {
    failure::note(&format!("server {server} OK"));
}

/// An error with the URL of the file, if it is one of a file of this server.
pub(crate) fn with_url(error: anyhow::Error, server: &NfsUrl) -> anyhow::Error {
    // What has a context already has a name.
    let is_bare = error
        .chain()
        .next()
        .is_some_and(|first| first.is::<Error>());
    match is_bare {
        true => match error.downcast() {
            Ok(error) => FileError::at(server, error).into(),
            Err(other) => other,
        },
        false => error,
    }
}

/// The permissions that a new file or directory at this place is to lack: those of the umask,
/// which does not count where the directory has a default access control list (acl(5)).
pub(crate) async fn umask_at(place: &Place) -> u32 {
    let lists = async {
        let file = place.export.parent(&place.path).await.ok()?;
        let mask = AclMask::DEFAULT_COUNT;
        let reply = place.export.nfs().call(&GetAcl { file, mask }).await;
        reply.ok()?.results().ok()?.ok()
    };
    match (umask(), lists.await) {
        // A server without NFSACL has no such lists.
        (_, Some(lists)) if lists.default.count > 0 => 0,
        (umask, _) => umask,
    }
}
