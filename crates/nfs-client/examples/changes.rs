//! Prints how many files a second a server makes, writes, renames and removes, with one call and with
//! several in flight.
//!
//!     cargo run --release -p nfs-client --example changes -- ADDR:PORT EXPORT [UID [FILES]]
//!
//! Files are of 4 KiB, and each WRITE is FILE_SYNC. They go to the root of the export. `strace -c -f` of
//! the server then tells the system calls of each step.

use bytes::Bytes;
use nfs_client::{Fault, Mount, Nfs3, current_user};
use nfs_proto::args::CreateHow;
use nfs_proto::{FileHandle, Name, SetAttributes, Stable};
use oncrpc::Credential;
use oncrpc::xdr::Gather;
use rpcrdma::{Client, ClientConfig};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tokio::task::JoinSet;
use verbs_iwarp::{Config, Iwarp};

/// Calls in flight.
const DEPTHS: [usize; 2] = [1, 32];

const FILES: usize = 2000;

/// Bytes of a file.
const SIZE: usize = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create,
    Write,
    Rename,
    Remove,
}

/// State shared by all tasks.
struct Run {
    nfs: Nfs3<Client>,
    dir: FileHandle,
    /// Handles of the files, once they are made.
    files: Vec<std::sync::OnceLock<FileHandle>>,
}

impl Run {
    async fn step(&self, step: Step, number: usize) -> std::result::Result<(), Fault> {
        let (old, new) = (format!("old-{number}"), format!("new-{number}"));
        let (old, new) = (Name::new(old.as_bytes())?, Name::new(new.as_bytes())?);
        match step {
            Step::Create => {
                let how = CreateHow::Guarded(SetAttributes {
                    mode: Some(0o644),
                    ..SetAttributes::default()
                });
                let made = self.nfs.create(self.dir, old, how).await?;
                let handle = made
                    .handle
                    .ok_or(Fault::Nonsense("CREATE gives no handle"))?;
                let _ = self.files[number].set(handle);
            }
            Step::Write => {
                let file = self.files[number]
                    .get()
                    .ok_or(Fault::Nonsense("the file was not made"))?;
                let data = Gather::from_elem(Bytes::from(vec![1; SIZE]), 1);
                self.nfs.write(*file, 0, data, Stable::FileSync).await?;
            }
            Step::Rename => self.nfs.rename((self.dir, old), (self.dir, new)).await?,
            Step::Remove => self.nfs.remove(self.dir, new).await?,
        }
        Ok(())
    }

    async fn measure(self: &Arc<Self>, step: Step, depth: usize) -> Result<()> {
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..depth {
            let (run, next) = (Arc::clone(self), Arc::clone(&next));
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= run.files.len() {
                        return Ok(());
                    }
                    run.step(step, number).await?;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended?.map_err(|fault: Fault| format!("{step:?}: {fault}"))?;
        }
        let rate = self.files.len() as f64 / start.elapsed().as_secs_f64();
        println!("depth {depth:2}  {:8} {rate:8.0}/s", format!("{step:?}"));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "ADDR:PORT EXPORT [UID [FILES]]";
    let addr: SocketAddr = args.next().ok_or(usage)?.parse()?;
    let export = args.next().ok_or(usage)?;
    let uid: Option<u32> = args.next().map(|uid| uid.parse()).transpose()?;
    let files = args.next().map_or(Ok(FILES), |files| files.parse())?;
    let mut credential = current_user();
    if let (Credential::Sys(sys), Some(uid)) = (&mut credential, uid) {
        (sys.uid, sys.gid) = (uid, uid);
        sys.gids.clear();
    }
    let provider = Arc::new(Iwarp::new(Config::default()));
    let client = Client::connect(provider, addr, ClientConfig::default()).await?;
    let mounted = Mount::new(client.clone(), credential.clone())
        .mount(&export)
        .await?;
    for depth in DEPTHS {
        let run = Arc::new(Run {
            nfs: Nfs3::new(client.clone(), credential.clone()),
            dir: mounted.handle,
            files: (0..files).map(|_| Default::default()).collect(),
        });
        for step in [Step::Create, Step::Write, Step::Rename, Step::Remove] {
            run.measure(step, depth).await?;
        }
    }
    Ok(())
}
