//! Files on servers by their URL: connecting, and asking for the export a URL lies in.

use crate::connect::ConnectArgs;
use crate::endpoint::Endpoint;
use crate::failure::Usage;
use anyhow::{Context, bail};
use clap::Args;
use nfs_client::{Error, Export, Fault, Mount, NfsUrl, current_user, printable};
use nfs_proto::mount::{MountStatus, Mounted};
use nfs_proto::{FileType, MOUNT_PORT};
use oncrpc::RpcError;
use rpcrdma::Client;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a server may take to take part in the end of a connection.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Options of everything that works on files of a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    /// Port of MOUNT over TCP, for servers that do not answer it over RDMA
    #[arg(long, value_name = "PORT", default_value_t = MOUNT_PORT, help_heading = "Connection")]
    mount_port: u16,

    #[command(flatten)]
    connect: ConnectArgs,
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

/// The servers that one command uses. Each is connected to once.
pub(crate) struct Session {
    args: SessionArgs,
    servers: Vec<Server>,
}

struct Server {
    endpoint: Endpoint,
    addr: SocketAddr,
    client: Client,
    /// Once it is known that MOUNT is not answered over RDMA.
    mount: Option<Mount<oncrpc_tcp::Client>>,
    exports: Vec<Arc<Export<Client>>>,
}

impl Session {
    pub(crate) fn new(args: &SessionArgs) -> Self {
        Self {
            args: args.clone(),
            servers: Vec::new(),
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
        let (mounted, path) = server.mount(&self.args, &url.path).await?;
        let export = server.export(mounted, above(&url.path, &path)).await?;
        Ok(Place {
            export,
            path,
            url: url.clone(),
        })
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
                "{} and {} are not in the same export: copy with `get` and `put`",
                first.url, second.url
            )));
        }
        Ok((first, second))
    }

    /// Ends all connections, in good order if the server takes part in it soon.
    pub(crate) async fn close(self) {
        for server in self.servers {
            // Nothing is lost with a connection on which no call waits.
            let _ = timeout(CLOSED_WITHIN, server.client.close()).await;
        }
    }

    async fn server(&mut self, url: &NfsUrl) -> anyhow::Result<usize> {
        let endpoint = Endpoint {
            host: url.host.clone(),
            port: url.port,
        };
        if let Some(index) = self.servers.iter().position(|s| s.endpoint == endpoint) {
            return Ok(index);
        }
        let (client, addr) = self.args.connect.connect(&endpoint).await?;
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
    /// Root and rest of a path: asked over RDMA first, then over TCP.
    async fn mount(
        &mut self,
        args: &SessionArgs,
        path: &[u8],
    ) -> anyhow::Result<(Mounted, Vec<u8>)> {
        if self.mount.is_none() {
            let over_rdma = Mount::new(self.client.clone(), current_user());
            match over_rdma.mount_above(path).await {
                Err(Error {
                    fault: Fault::Rpc(RpcError::ProgUnavail | RpcError::ProgMismatch { .. }),
                    ..
                }) => {}
                mounted => return self.explain(mounted),
            }
            let addr = SocketAddr::new(self.addr.ip(), args.mount_port);
            let client = oncrpc_tcp::Client::connect(addr, args.connect.timeout)
                .await
                .with_context(|| {
                    format!(
                        "the server at {} does not answer MOUNT over RDMA, and over TCP at port {} \
                         there is nobody: say with --mount-port where it is (`rpcinfo -p` shows it)",
                        self.addr, args.mount_port
                    )
                })?;
            self.mount = Some(Mount::new(client, current_user()));
        }
        let mount = self.mount.as_ref().expect("it was set just now");
        self.explain(mount.mount_above(path).await)
    }

    fn explain<T>(&self, mounted: Result<T, Error>) -> anyhow::Result<T> {
        let addr = self.addr;
        match mounted {
            // The advice of the library has not got this program.
            Err(Error {
                doing,
                path,
                fault: fault @ Fault::Mount(MountStatus::NoEntry | MountStatus::Access),
            }) => {
                let path = printable(&path);
                bail!(
                    "the server at {addr}: cannot {doing} {path}: {fault} (`rpcrdma exports {addr}` lists \
                     its exports and for whom they are)"
                )
            }
            mounted => mounted.with_context(|| format!("the server at {addr}")),
        }
    }

    /// The export of that name.
    async fn export(
        &mut self,
        mounted: Mounted,
        name: Vec<u8>,
    ) -> anyhow::Result<Arc<Export<Client>>> {
        let known = |export: &&Arc<Export<Client>>| export.root().handle == mounted.handle;
        if let Some(export) = self.exports.iter().find(known) {
            return Ok(Arc::clone(export));
        }
        let opened = Export::open(self.client.clone(), current_user(), mounted.handle).await;
        let export = Arc::new(self.explain(opened)?.named(name));
        self.exports.push(Arc::clone(&export));
        Ok(export)
    }
}

/// The name of an export: of a path on a server, what is above the path in the export.
fn above(path: &[u8], below: &[u8]) -> Vec<u8> {
    let names = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        let names = names.filter(|name| !name.is_empty());
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

    /// Whether it is there and a directory, a symbolic link to one included.
    ///
    /// # Errors
    ///
    /// If the server cannot say.
    pub(crate) async fn is_directory(&self) -> anyhow::Result<bool> {
        match self.export.stat(&self.path).await {
            Ok(node) => Ok(node.attributes.file_type == FileType::Directory),
            Err(error) if error.status() == Some(nfs_proto::Status::NoEntry) => Ok(false),
            Err(error) => Err(error.into()),
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
    fn export_is_what_is_above_the_path_in_it() {
        let check = |path: &str, below: &str, name: &str| {
            let above = above(path.as_bytes(), below.as_bytes());
            assert_eq!(String::from_utf8(above).unwrap(), name);
        };
        check("/data/a/b", "a/b", "/data");
        check("/data/", "", "/data");
        check("//srv//data//a/", "a", "/srv/data");
        check("/a", "a", "/");
        check("/", "", "/");
    }
}
