//! Files on servers by their URL: connecting, and asking for the export a URL lies in.

use crate::connect::ConnectArgs;
use crate::endpoint::{Endpoint, at_port};
use crate::failure::{self, Usage};
use crate::modes::umask;
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::{Again, Error, Export, ExportedDir, Fault, Mount, NfsUrl, Node, current_user};
use nfs_proto::acl::{AclMask, GetAcl};
use nfs_proto::mount::{MountStatus, Mounted};
use nfs_proto::{FileType, MOUNT_PORT, NFS_RDMA_PORT, SetAttributes, Status};
use oncrpc::{Chain, RpcError};
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

/// What is to be said of a URL that is no text.
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

/// Something on a server: the export it is in, and its path there.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) export: Arc<Export<Client>>,
    /// Names with slashes between them; empty is the root of the export.
    pub(crate) path: Vec<u8>,
    /// As the user wrote it.
    pub(crate) url: NfsUrl,
}

/// A file operation that failed, of the file that a URL names.
#[derive(Debug)]
pub(crate) struct FileError {
    url: NfsUrl,
    /// The operation, as a verb such as `read`.
    doing: &'static str,
    fault: Fault,
}

impl FileError {
    /// The error of an operation at the server of this URL, of the file that its path names.
    pub(crate) fn at(server: &NfsUrl, error: Error) -> Self {
        let Error { doing, path, fault } = error;
        let url = url_at(server, path);
        Self { url, doing, fault }
    }

    /// An error with the URL of the file, if it is one of a file of this server.
    pub(crate) fn name(error: anyhow::Error, server: &NfsUrl) -> anyhow::Error {
        // What has a context already has a name.
        let is_bare = error
            .chain()
            .next()
            .is_some_and(|first| first.is::<Error>());
        match is_bare {
            true => match error.downcast() {
                Ok(error) => Self::at(server, error).into(),
                Err(other) => other,
            },
            false => error,
        }
    }

    /// The same of another operation.
    pub(crate) fn while_doing(self, doing: &'static str) -> Self {
        Self { doing, ..self }
    }

    /// The status that the server returned, if it is the server that refused.
    pub(crate) fn status(&self) -> Option<Status> {
        match self.fault {
            Fault::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.url)?;
        match self.doing {
            // That it is not there, or cannot be reached, says it all.
            "find" | "ask about" | "mount" => {}
            // What follows such a verb is the path, which stands in front here.
            doing => {
                let verb = ["about", "of", "through", "to"]
                    .iter()
                    .find_map(|last| doing.strip_suffix(last));
                write!(f, "cannot {}: ", verb.unwrap_or(doing).trim_end())?;
            }
        }
        write!(f, "{}", Chain(&self.fault))?;
        let not_found = self.status() == Some(Status::NoEntry);
        let unexpanded = || unexpanded(&self.url.path).filter(|_| not_found);
        match self.fault.hint().or_else(unexpanded) {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The message has everything: there is no source to be told after it.
impl std::error::Error for FileError {}

/// The server mounts nothing at a path, or nothing for this client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoExport(String);

/// What there is to say of a path that is not found, if it is a pattern of a shell.
fn unexpanded(path: &[u8]) -> Option<&'static str> {
    let has = |byte| path.contains(&byte);
    let is_pattern = has(b'*') || has(b'?') || has(b'[') && has(b']');
    is_pattern.then_some(
        "the shell does not expand patterns in URLs: `rpcrdma ls` lists the directory; name each file",
    )
}

/// The URL of a path from the root of a server.
fn url_at(server: &NfsUrl, path: Vec<u8>) -> NfsUrl {
    let path = match path.starts_with(b"/") {
        true => path,
        false => [b"/", &path[..]].concat(),
    };
    NfsUrl {
        path,
        ..server.clone()
    }
}

/// Names errors of file operations by their URL.
pub(crate) trait Of<T> {
    /// The error of an operation in the export of this place; its path says on what.
    fn of(self, place: &Place) -> Result<T, FileError>;
}

impl<T> Of<T> for Result<T, Error> {
    fn of(self, place: &Place) -> Result<T, FileError> {
        self.map_err(|error| place.error(error))
    }
}

/// What a symbolic link at the end of a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// For what it leads to.
    Yes,
    /// For itself.
    No,
}

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
    exports: Vec<Arc<Export<Client>>>,
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

    /// What a URL names. Whether it exists is not asked.
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

    /// What two URLs name, which must be in the same export.
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
                let url = url.clone();
                FileError { url, doing, fault }.into()
            }
        })
    }

    /// The export that a URL lies in, at this path.
    async fn export(
        &mut self,
        mounted: Mounted,
        url: &NfsUrl,
        path: &[u8],
    ) -> anyhow::Result<Arc<Export<Client>>> {
        let known = |export: &&Arc<Export<Client>>| export.root().handle == mounted.handle;
        if let Some(export) = self.exports.iter().find(known) {
            return Ok(Arc::clone(export));
        }
        let opened = Export::open(self.client.clone(), current_user(), mounted.handle).await;
        let name = above(&url.path, path);
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

/// The name of an export: of a path on a server, what is above the path in the export.
fn above(path: &[u8], below: &[u8]) -> Vec<u8> {
    let names = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        let names = names.filter(|name| !matches!(*name, b"" | b"."));
        names.map(<[u8]>::to_vec).collect()
    };
    let mut all = names(path);
    all.truncate(all.len().saturating_sub(names(below).len()));
    [b"/", &all.join(&b'/')[..]].concat()
}

impl Place {
    /// The last name of the path; none for the root of the export.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let mut names = self.path.split(|byte| *byte == b'/');
        names
            .rfind(|name| !name.is_empty())
            .filter(|name| !matches!(*name, b"." | b".."))
    }

    /// The directory that it is in; none for the root of the export.
    pub(crate) fn parent(&self) -> Option<Self> {
        self.name()?;
        let above = |path: &[u8]| {
            let end = path.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
            let slash = path[..end].iter().rposition(|byte| *byte == b'/');
            path[..slash.unwrap_or(0)].to_vec()
        };
        let mut url = self.url.clone();
        url.path = above(&url.path);
        Some(Self {
            export: Arc::clone(&self.export),
            path: above(&self.path),
            url,
        })
    }

    /// Handle and attributes, if there is something.
    ///
    /// # Errors
    ///
    /// If the server cannot say.
    pub(crate) async fn find(&self, follow: Follow) -> Result<Option<Node>, FileError> {
        let found = match follow {
            Follow::Yes => self.export.stat(&self.path).await,
            Follow::No => self.export.lstat(&self.path).await,
        };
        match found {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.status() == Some(Status::NoEntry) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// The permissions that a new file or directory at this place is to lack: those of the umask,
    /// which does not count where the directory has a default access control list (acl(5)).
    pub(crate) async fn umask(&self) -> u32 {
        let lists = async {
            let file = self.export.parent(&self.path).await.ok()?;
            let mask = AclMask::DEFAULT_COUNT;
            let reply = self.export.nfs().call(&GetAcl { file, mask }).await;
            reply.ok()?.results().ok()?.ok()
        };
        match (umask(), lists.await) {
            // A server without NFSACL has no such lists.
            (_, Some(lists)) if lists.default.count > 0 => 0,
            (umask, _) => umask,
        }
    }

    /// As [`find`](Self::find), where there was something.
    ///
    /// # Errors
    ///
    /// If there is nothing, or the server cannot say.
    pub(crate) async fn look_again(&self, follow: Follow) -> Result<Node, FileError> {
        let found = self.find(follow).await?;
        found.ok_or_else(|| self.fault("find", Status::NoEntry))
    }

    /// Sets attributes of what was found here, or of what has its place by then.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call.
    pub(crate) async fn set_attributes(
        &self,
        node: &Node,
        follow: Follow,
        attributes: SetAttributes,
    ) -> Result<(), FileError> {
        let (mut node, mut again) = (*node, Again::default());
        loop {
            let set = self.export.nfs();
            let set = set.set_attributes(node.handle, attributes, None).await;
            match set {
                Err(fault) if again.after(&fault) => node = self.look_again(follow).await?,
                set => return set.map_err(|fault| self.fault("change attributes of", fault)),
            }
        }
    }

    /// Whether this and something else that was found are one file of one server, as far as can be told.
    pub(crate) fn is_same(&self, node: &Node, other: &Self, other_node: &Node) -> bool {
        let id = |node: &Node| (node.attributes.fsid, node.attributes.file_id);
        let server = |place: &Self| (place.url.host.clone(), place.url.port);
        node.handle == other_node.handle
            || server(self) == server(other) && id(node) == id(other_node)
    }

    /// The URL of the root of the export.
    pub(crate) fn export_url(&self) -> NfsUrl {
        NfsUrl {
            path: above(&self.url.path, &self.path),
            ..self.url.clone()
        }
    }

    /// Whether it is there and a directory, a symbolic link to one included.
    ///
    /// # Errors
    ///
    /// If the server cannot say.
    pub(crate) async fn is_directory(&self) -> anyhow::Result<bool> {
        let found = self.find(Follow::Yes).await?;
        Ok(found.is_some_and(|node| node.attributes.file_type == FileType::Directory))
    }

    /// The error of an operation in the same export, of the file that its path names.
    pub(crate) fn error(&self, error: Error) -> FileError {
        FileError::at(&self.url, error)
    }

    /// The URL of something in the same export, by its path from the root of the server: as errors have it.
    pub(crate) fn url_of(&self, path: Vec<u8>) -> NfsUrl {
        url_at(&self.url, path)
    }

    /// The error of an operation on this.
    pub(crate) fn fault(&self, doing: &'static str, fault: impl Into<Fault>) -> FileError {
        FileError {
            url: self.url.clone(),
            doing,
            fault: fault.into(),
        }
    }

    /// What a walk from here has found at a path, which begins with that of this place.
    pub(crate) fn found(&self, path: &[u8]) -> Self {
        let below = path.strip_prefix(&self.path[..]).unwrap_or(path);
        let begin = below.iter().position(|byte| *byte != b'/');
        match &below[begin.unwrap_or(below.len())..] {
            b"" => self.clone(),
            below => self.join(below),
        }
    }

    /// What is called `name` in this directory.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let path = if self.path.is_empty() {
            name.to_vec()
        } else {
            [&self.path, &b"/"[..], name].concat()
        };
        Self {
            export: Arc::clone(&self.export),
            path,
            url: self.url.join(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_the_url_once_and_what_could_not_be_done() {
        let check = |doing, fault: Fault, text: &str| {
            let url = "nfs://h/a%20b".parse().unwrap();
            let shown = FileError { url, doing, fault }.to_string();
            assert!(shown.starts_with(text), "{shown}");
            assert_eq!(shown.matches("a%20b").count(), 1);
        };
        let denied = || Fault::from(Status::Access);
        check("find", denied(), "nfs://h/a%20b: permission denied (check");
        check(
            "remove",
            denied(),
            "nfs://h/a%20b: cannot remove: permission",
        );
        let attributes = "nfs://h/a%20b: cannot change attributes: permission";
        check("change attributes of", denied(), attributes);
        let shown = |url: &str| {
            let (url, fault) = (url.parse().unwrap(), Status::NoEntry.into());
            let doing = "find";
            FileError { url, doing, fault }.to_string()
        };
        assert!(shown("nfs://h/%C3%BC").starts_with("nfs://h/ü: "));
        assert!(shown("nfs://h/*.txt").ends_with("name each file)"));
        let gone = Status::NoEntry.into();
        check(
            "rename to",
            gone,
            "nfs://h/a%20b: cannot rename: no such file",
        );
    }

    #[test]
    fn export_is_what_is_above_the_path_in_it() {
        let check = |path: &str, below: &str, name: &str| {
            let above = above(path.as_bytes(), below.as_bytes());
            assert_eq!(String::from_utf8(above).unwrap(), name);
        };
        check("/data/a/b", "a/b", "/data");
        check("/data/", "", "/data");
        check("//srv//data//a/", "a", "/srv/data");
        check("/a", "a", "/");
        check("/data/a/.", "a", "/data");
        check("/", "", "/");
    }
}
