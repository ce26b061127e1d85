//! Operations on the measured server, as many at a time as the measurement says.

use super::child::{Child, Usage};
use super::raw::{self, Measured};
use super::report::Idle;
use super::session::Session;
use super::spinning::Spinning;
use anyhow::{Context, Result};
use bytes::Bytes;
use nfs_client::{Export, Mount, Nfs3, current_user};
use nfs_proto::{FileHandle, SetAttributes, Stable};
use oncrpc::xdr;
use oncrpc::xdr::Gather;
use printing::latency::Latencies;
use rpcrdma::{Client, ClientConfig};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::task::JoinSet;
use verbs::IoCounters;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Operation, with bytes of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Null,
    GetAttr,
    Read(u32),
    Write(u32),
    /// SEQUENCE, PUTFH, GETATTR of version 4.1.
    GetAttr4,
    /// SEQUENCE, PUTFH, READ of version 4.1.
    Read4(u32),
}

impl Operation {
    /// Bytes of data.
    pub(super) fn data(self) -> u32 {
        match self {
            Self::Null | Self::GetAttr | Self::GetAttr4 => 0,
            Self::Read(len) | Self::Write(len) | Self::Read4(len) => len,
        }
    }

    fn is_of_version_4(self) -> bool {
        matches!(self, Self::GetAttr4 | Self::Read4(_))
    }
}

/// Operations whose latency is taken, of as many as are done at a time: plain TCP looks at the clock
/// once for all that come with one read, which is as often.
const TIMED_OF_DEPTH: usize = 4;

/// Bytes of the file that is read and written.
const FILE: usize = 8 << 20;

/// A connection to the measured server, and the file on it.
pub(super) struct Load {
    client: Client,
    nfs: Arc<Nfs3<Client>>,
    /// For operations of version 4.
    session: Option<Arc<Session>>,
    file: FileHandle,
    operation: Operation,
    depth: usize,
    data: Bytes,
}

impl Load {
    pub(super) async fn connect(
        to: SocketAddr,
        operation: Operation,
        depth: usize,
        crc: bool,
        spinning: Spinning,
    ) -> Result<Self> {
        let client = connect(to, crc, spinning).await?;
        let credential = current_user();
        let mounted = Mount::new(client.clone(), credential.clone())
            .mount("/")
            .await?;
        let nfs = Nfs3::new(client.clone(), credential.clone());
        let export = Export::open(client.clone(), credential.clone(), mounted.handle).await?;
        let data = Bytes::from(vec![0xa5; FILE]);
        export
            .write_all("measured", data.clone(), SetAttributes::default())
            .await?;
        let file = export.stat("measured").await?.handle;
        let data = data.slice(..operation.data() as usize);
        let session = match operation.is_of_version_4() {
            true => Some(
                Session::open(client.clone(), &credential, file)
                    .await?
                    .into(),
            ),
            false => None,
        };
        Ok(Self {
            client,
            nfs: Arc::new(nfs),
            session,
            file,
            operation,
            depth,
            data,
        })
    }

    /// Input and output of the connection so far.
    pub(super) fn io(&self) -> IoCounters {
        self.client.io_counters()
    }

    pub(super) async fn close(self) {
        self.client.close().await;
    }

    /// Does the operation `count` times.
    pub(super) async fn run(&self, count: usize) -> Result<Measured> {
        let taken = Arc::new(AtomicUsize::new(0));
        // One for all workers, which are on one thread: each of its own would not fit the cache.
        let latencies = Arc::new(Mutex::new(Latencies::default()));
        // The latency of one in so many is taken.
        let timed = self.depth.div_ceil(TIMED_OF_DEPTH);
        let mut workers = JoinSet::new();
        let begin = Instant::now();
        for _ in 0..self.depth {
            let (nfs, taken) = (Arc::clone(&self.nfs), Arc::clone(&taken));
            let (latencies, data) = (Arc::clone(&latencies), self.data.clone());
            let (file, operation, session) = (self.file, self.operation, self.session.clone());
            // Caches shall help plain TCP and us alike.
            let range = raw::memory(data.len(), self.depth).min(FILE);
            workers.spawn(async move {
                // The end of one is the beginning of the next, if both are timed.
                let mut ended = None;
                loop {
                    let number = taken.fetch_add(1, Relaxed);
                    if number >= count {
                        return anyhow::Ok(());
                    }
                    let offset = (number * data.len() % range) as u64;
                    let is_timed = number.is_multiple_of(timed);
                    let begin = is_timed.then(|| ended.unwrap_or_else(Instant::now));
                    let session = session.as_deref();
                    once(&nfs, session, operation, file, offset, &data).await?;
                    let Some(begin) = begin else { continue };
                    let now = Instant::now();
                    ended = (timed == 1).then_some(now);
                    let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
                    latencies.record(now - begin);
                }
            });
        }
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        let elapsed = begin.elapsed();
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Measured {
            elapsed,
            latencies: std::mem::take(&mut latencies),
        })
    }
}

async fn once(
    nfs: &Nfs3<Client>,
    session: Option<&Session>,
    operation: Operation,
    file: FileHandle,
    offset: u64,
    data: &Bytes,
) -> Result<()> {
    match operation {
        Operation::Null => nfs.null().await?,
        Operation::GetAttr => drop(nfs.get_attributes(file).await?),
        Operation::Read(len) => {
            let read = nfs.read(file, offset, len).await?;
            anyhow::ensure!(xdr::gather_len(&read.data) == len as usize, "a short read");
        }
        Operation::Write(len) => {
            let data = Gather::from_elem(data.clone(), 1);
            let written = nfs.write(file, offset, data, Stable::Unstable).await?;
            anyhow::ensure!(written.count == len as usize, "a short write");
        }
        Operation::GetAttr4 => session.context(NO_SESSION)?.get_attributes().await?,
        Operation::Read4(len) => session.context(NO_SESSION)?.read(offset, len).await?,
    }
    Ok(())
}

const NO_SESSION: &str = "there is no session";

async fn connect(to: SocketAddr, crc: bool, spinning: Spinning) -> Result<Client> {
    let crc = if crc { CrcMode::On } else { CrcMode::Off };
    let provider = Arc::new(Iwarp::new(Config::default().with_crc(crc)));
    let config = ClientConfig::default().with_spin(spinning.policy());
    Ok(Client::connect(provider, to, config).await?)
}

/// Connections that are made to see what one takes.
const IDLE: u64 = 32;

/// Bytes of resident memory that one idle connection takes after a call: at the client, and at
/// the server.
pub(super) async fn idle_connection(child: &mut Child) -> Result<Idle> {
    let to = child.server(true, Spinning::Park);
    let resident = |child: &mut Child| -> Result<(u64, u64)> {
        let ours = Usage::of_this_process(IoCounters::default());
        Ok((ours.resident, child.usage()?.resident))
    };
    let before = resident(child)?;
    let mut clients = Vec::new();
    for _ in 0..IDLE {
        let client = connect(to, true, Spinning::Park).await?;
        Nfs3::new(client.clone(), current_user()).null().await?;
        clients.push(client);
    }
    let after = resident(child)?;
    for client in clients {
        client.close().await;
    }
    let each = |before: u64, after: u64| after.saturating_sub(before) / IDLE;
    Ok(Idle {
        client: each(before.0, after.0),
        server: each(before.1, after.1),
    })
}
