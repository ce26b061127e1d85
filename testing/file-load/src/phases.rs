//! The phases over a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nfs_client::Export;
use nfs_proto::args::CreateHow;
use nfs_proto::{FileHandle, Name, SetAttributes};
use oncrpc::Transport;
use tokio::task::JoinSet;

use crate::{Amount, file_name, say};

/// Operation on each file.
#[derive(Clone, Copy)]
enum Work {
    /// CREATE, and nothing else.
    Create,
    /// CREATE under a temporary name, WRITE (FILE_SYNC) and RENAME, as `rpcrdma put` does.
    Put,
    /// LOOKUP and READ.
    Get,
    /// REMOVE.
    Remove,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Put => "put",
            Self::Get => "get",
            Self::Remove => "remove",
        }
    }
}

/// A directory on a server, and what is to be done there.
pub(crate) struct Phases<T> {
    directory: Arc<Directory<T>>,
    amount: Amount,
}

struct Directory<T> {
    export: Export<T>,
    name: String,
    handle: FileHandle,
    /// Content of each file.
    data: Bytes,
}

impl<T: Transport + Send + Sync + 'static> Phases<T> {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// It exists, or cannot be made.
    pub(crate) async fn new(export: Export<T>, name: &str, amount: Amount) -> Result<Self> {
        let all = SetAttributes::default();
        let root = export.root().handle;
        export.make_dir(name, all).await?;
        let handle = export.make_dir_in(root, name, all).await?;
        Ok(Self {
            directory: Arc::new(Directory {
                export,
                name: name.to_owned(),
                handle,
                data: vec![0x5a; amount.size].into(),
            }),
            amount,
        })
    }

    /// Runs all phases, and removes the directory.
    ///
    /// # Errors
    ///
    /// A call failed, or what comes back is not what was written.
    pub(crate) async fn run(self) -> Result<()> {
        let Amount {
            files,
            alone,
            depth,
            ..
        } = self.amount;
        self.each(Work::Create, "alone", alone, 1).await?;
        self.each(Work::Remove, "alone", alone, 1).await?;
        self.each(Work::Create, "created", files, depth).await?;
        self.each(Work::Remove, "created", files, depth).await?;
        self.each(Work::Put, "put", files, depth).await?;
        self.list().await?;
        self.each(Work::Get, "put", files, depth).await?;
        self.each(Work::Remove, "put", files, depth).await?;
        let Directory { export, name, .. } = &*self.directory;
        Ok(export.remove_dir(name).await?)
    }

    /// Does something to so many files, of which so many are in flight.
    async fn each(&self, work: Work, prefix: &'static str, files: u32, depth: u32) -> Result<()> {
        let next = Arc::new(AtomicU32::new(0));
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..depth {
            let (directory, next) = (Arc::clone(&self.directory), Arc::clone(&next));
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= files {
                        return anyhow::Ok(());
                    }
                    let name = file_name(prefix, number);
                    directory.work(work, &name).await.context(name)?;
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        say(work.name(), depth, files, begun);
        Ok(())
    }

    /// READDIRPLUS from the beginning to the end.
    async fn list(&self) -> Result<()> {
        let Directory {
            export, name, data, ..
        } = &*self.directory;
        let begun = Instant::now();
        let mut walk = export.walk(name).await?;
        let mut found = 0;
        while let Some(entry) = walk.next().await? {
            ensure!(
                entry.node.attributes.size == data.len() as u64,
                "a file has another size than was written"
            );
            found += 1;
        }
        let files = self.amount.files;
        ensure!(found == files, "{found} files are listed, not {files}");
        say("list", 1, found, begun);
        Ok(())
    }
}

impl<T: Transport + Send + Sync> Directory<T> {
    async fn work(&self, work: Work, file: &str) -> Result<()> {
        let nfs = self.export.nfs();
        let name = Name::new(file.as_bytes())?;
        match work {
            Work::Create => {
                let how = CreateHow::Guarded(SetAttributes {
                    mode: Some(0o644),
                    ..SetAttributes::default()
                });
                nfs.create(self.handle, name, how).await?;
            }
            Work::Put => {
                let path = format!("{}/{file}", self.name);
                let all = SetAttributes::default();
                let mut upload = self.export.upload_in(self.handle, path, all).await?;
                upload
                    .write_last(std::iter::once(self.data.clone()).collect())
                    .await?;
                upload.finish().await?;
            }
            Work::Get => {
                let (handle, _) = nfs.lookup(self.handle, name).await?;
                let count = u32::try_from(self.data.len())?;
                let read = nfs.read(handle, 0, count).await?;
                let same = read.data.iter().flatten().eq(&self.data);
                ensure!(same, "other data is read than was written");
            }
            Work::Remove => nfs.remove(self.handle, name).await?,
        }
        Ok(())
    }
}
