//! The file that is measured: one of the user's, or a temporary one.

use super::progress::Progress;
use super::workload::Workload;
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nfs_client::{Export, Fault, NfsUrl, temporary_name};
use nfs_copy::Place;
use nfs_proto::args::CreateHow;
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status};
use oncrpc::xdr::Gather;
use printing::units;
use rpcrdma::Client;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// First part of the names of temporary files, before the part that differs.
const NAME: &[u8] = b"bench";

/// Bytes of a temporary file, unless the user says.
const TEMPORARY_SIZE: u64 = 256 << 20;

/// Permissions of a temporary file: it is the user's.
const MODE: u32 = 0o600;

/// How long a temporary file may take to be created after an interrupt, and to be removed.
const REMOVED_WITHIN: Duration = Duration::from_secs(3);

/// A file on a server.
pub(super) struct Subject {
    pub(super) export: Arc<Export<Client>>,
    pub(super) handle: FileHandle,
    /// Bytes from its beginning that are used.
    pub(super) size: u64,
    pub(super) url: NfsUrl,
    /// Its path in the export.
    pub(super) path: Vec<u8>,
    temporary: Option<Temporary>,
}

/// Place of a temporary file.
struct Temporary {
    dir: FileHandle,
    name: Vec<u8>,
}

impl Subject {
    /// The file that a path names, or a new one in the directory that it names.
    ///
    /// # Errors
    ///
    /// It does not exist, is neither, is too small, or must not be written to; or the server takes no
    /// blocks of this size.
    pub(super) async fn new(
        (place, client): (&Place, &Client),
        workload: &Workload,
        overwrite: bool,
        size: Option<u64>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        check_block_size(place, workload)?;
        let url = &place.url;
        let node = interrupt
            .unless(async { Ok(place.export.stat(&place.path).await?) })
            .await?;
        let bs = u64::from(workload.bs);
        match node.attributes.file_type {
            FileType::Regular => {
                if workload.pattern.writes() && !overwrite {
                    bail!(Usage(format!(
                        "{url} exists: --overwrite lets --rw {} write to it, which destroys its content; a \
                         directory is measured with a temporary file",
                        workload.pattern.name()
                    )));
                }
                let has = node.attributes.size;
                let size = size.unwrap_or(has);
                if size > has || size < bs {
                    let (has, needs) = (units::size(has), units::size(size.max(bs)));
                    bail!("{url} has {has}, and {needs} are to be used: change --size or --bs");
                }
                Ok(Self {
                    export: Arc::new(place.export.over(client.clone())),
                    handle: node.handle,
                    size,
                    url: url.clone(),
                    path: place.path.clone(),
                    temporary: None,
                })
            }
            FileType::Directory => {
                let size = size.unwrap_or(TEMPORARY_SIZE);
                if size < bs {
                    bail!(Usage(format!(
                        "--size {} is less than --bs {}",
                        units::size(size),
                        units::size(bs)
                    )));
                }
                let creating = Self::create((place, client), node.handle, size);
                interrupt.unless_late(REMOVED_WITHIN, creating).await
            }
            _ => bail!("{url} is neither a file nor a directory"),
        }
    }

    async fn create(
        (place, client): (&Place, &Client),
        dir: FileHandle,
        size: u64,
    ) -> Result<Self> {
        let name = temporary_name(NAME, fastrand::u64(..));
        let place = place.join(&name);
        let how = CreateHow::Guarded(SetAttributes {
            mode: Some(MODE),
            ..SetAttributes::default()
        });
        let nfs = place.export.nfs();
        let created = async {
            let name = Name::new(&name)?;
            match nfs.create(dir, name, how).await?.handle {
                Some(handle) => Ok(handle),
                None => Ok::<_, Fault>(nfs.lookup(dir, name).await?.0),
            }
        };
        let handle = created
            .await
            .map_err(|fault| fault.at("create", &place.url.path))?;
        Ok(Self {
            handle,
            size,
            temporary: Some(Temporary { dir, name }),
            export: Arc::new(place.export.over(client.clone())),
            url: place.url,
            path: place.path,
        })
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// The client that calls are made with.
    pub(super) fn client(&self) -> &Client {
        self.export.nfs().transport()
    }

    /// Fills a temporary file with this data, again and again.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub(super) async fn fill(&self, data: &Bytes, progress: &Progress) -> Result<()> {
        if !self.is_temporary() {
            return Ok(());
        }
        let mut stream = self.export.write_at(self.handle, 0, &self.path);
        while stream.offset() < self.size {
            progress.filled(stream.offset(), self.size);
            let left = usize::try_from(self.size - stream.offset()).unwrap_or(usize::MAX);
            let piece = data.slice(..left.min(data.len()));
            stream.write(Gather::from_elem(piece, 1)).await?;
        }
        stream
            .finish()
            .await
            .context("cannot fill the temporary file")
    }

    /// Has the server put all written data on stable storage: how long that took.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub(super) async fn commit(&self) -> Result<Duration> {
        let begin = Instant::now();
        let committed = self.export.nfs().commit(self.handle, 0, 0).await;
        committed.map_err(|fault| fault.at("commit", &self.url.path))?;
        Ok(begin.elapsed())
    }

    /// Removes a temporary file.
    ///
    /// # Errors
    ///
    /// The server does not let us, or does not answer: the file is left.
    pub(super) async fn remove(&self) -> Result<()> {
        let Some(Temporary { dir, name }) = &self.temporary else {
            return Ok(());
        };
        let left = || format!("the temporary file {} is left on the server", self.url);
        let removing = async {
            let removed = self.export.nfs().remove(*dir, Name::new(name)?).await;
            match removed {
                // The call came a second time to a server that has forgotten the first.
                Err(Fault::Status(Status::NoEntry)) => Ok(()),
                removed => removed,
            }
        };
        let removed = timeout(REMOVED_WITHIN, removing).await;
        removed.with_context(left)?.with_context(left)
    }
}

/// Whether the server takes READs and WRITEs of this size.
fn check_block_size(place: &Place, workload: &Workload) -> Result<()> {
    let info = place.export.info();
    let limits = [
        (workload.pattern.reads(), "READ", info.read_max),
        (workload.pattern.writes(), "WRITE", info.write_max),
    ];
    for (used, call, most) in limits {
        // None is given where it is 0.
        if used && most > 0 && workload.bs > most {
            let (bs, most) = (units::size(workload.bs.into()), units::size(most.into()));
            bail!("--bs {bs}: the server takes no {call} of more than {most}");
        }
    }
    Ok(())
}
