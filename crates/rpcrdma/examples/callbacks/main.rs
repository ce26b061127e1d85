//! A client that its server calls: the backward direction (RFC 8167) with a Linux NFS server at the
//! other end.
//!
//!     cargo run -p rpcrdma --example callbacks -- HOST:PORT [FILE...]
//!     cargo run -p rpcrdma --example callbacks -- --deaf HOST:PORT [FILE...]
//!
//! It makes an NFSv4.1 session whose callback channel is the connection itself, and opens each FILE
//! in the server's root with a read delegation. The server wants that back with CB_RECALL when
//! somebody else opens the file for writing: `echo >>/export/FILE` on the server. Then it is returned.
//! Calls of the client's own go on all the while. If the connection is lost the client comes back,
//! finds that the callback channel is down, and binds the new connection to the session.
//!
//! With `--deaf` nothing answers calls of the server, until it says so; then all is returned.
//!
//! What is called is printed as it comes. It ends well if every file was called for and returned, no call
//! failed, and the server has no complaint about the callback channel. Linux does not try that with
//! CB_NULL in a session, as of 6.12; other servers may.

mod callback_program;
mod nfs41;

use callback_program::{CALLBACK_PROGRAM, CallbackProgram, Recalls};
use nfs41::{Delegation, SEQ4_STATUS_BACKCHANNEL_FAULT, SEQ4_STATUS_CB_PATH_DOWN, Session};
use oncrpc::Programs;
use rpcrdma::{Client, ClientConfig};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use verbs_iwarp::Iwarp;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long the server may take for what it does of its own accord.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait for somebody to open the files for writing.
const RECALL_LIMIT: Duration = Duration::from_secs(300);

/// How often the session's state is asked for, which also renews its lease.
const INTERVAL: Duration = Duration::from_millis(100);

/// Calls that are in flight all the time beside those of the session.
const OTHERS: usize = 8;

/// A header without chunks (RFC 8166 §4.3), for which a callback leaves room.
const TRANSPORT_HEADER: usize = 28;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let deaf = arguments.next_if(|argument| argument == "--deaf").is_some();
    let Some(server) = arguments.next() else {
        return Err("usage: callbacks [--deaf] HOST:PORT [FILE...]".into());
    };
    let server = tokio::net::lookup_host(server).await?.next();
    let server = server.ok_or("the host has no address")?;

    let (callbacks, recalls) = CallbackProgram::new();
    let service = Arc::new(Programs::new().with(callbacks.clone()));
    let config = match deaf {
        true => ClientConfig::default(),
        false => ClientConfig::default().with_callbacks(service),
    };
    let client = Client::connect(Arc::new(Iwarp::default()), server, config).await?;
    let info = client.connection().ok_or("the connection is gone")?;
    println!("connected: {}", info.description);

    // RFC 8167 §5.3: a callback and its reply have to fit a Send each.
    let (send, receive) = (info.thresholds.send, info.thresholds.receive);
    let largest = send.bytes().min(receive.bytes()) - TRANSPORT_HEADER;
    let mut session = Session::create(client.clone(), CALLBACK_PROGRAM, largest).await?;
    callbacks.set_session(session.id());
    println!("session: callbacks come over its connection");
    session.reclaim_complete().await?;
    let mut run = Run {
        session,
        recalls,
        held: Vec::new(),
    };
    for file in arguments {
        run.open(file).await?;
    }
    let others = Others::start(&client);
    let all = match deaf {
        true => timeout(RECALL_LIMIT, run.return_all_unasked()).await,
        false => timeout(RECALL_LIMIT, run.return_all()).await,
    };
    all.map_err(|_| format!("not all was recalled within {RECALL_LIMIT:?}"))??;
    let calls = others.stop().await?;
    println!(
        "well: {} calls of the server, {calls} calls of ours meanwhile",
        client.counters().calls_received,
    );
    run.session.destroy().await?;
    client.close().await;
    Ok(())
}

struct Run {
    session: Session,
    recalls: Recalls,
    /// Delegations of files that were not returned yet.
    held: Vec<(String, Delegation)>,
}

impl Run {
    async fn open(&mut self, file: String) -> Result<()> {
        let delegation = self.session.open_with_delegation(&file).await?;
        println!("holds: {file}");
        self.held.push((file, delegation));
        Ok(())
    }

    /// Gives each delegation back when it is recalled, and looks after the callback channel meanwhile.
    async fn return_all(&mut self) -> Result<()> {
        let mut tick = tokio::time::interval(INTERVAL);
        while !self.held.is_empty() {
            tokio::select! {
                Some(stateid) = self.recalls.recv() => {
                    let mut held = self.held.iter();
                    // One that is not there was recalled once more, as our reply was lost.
                    if let Some(at) = held.position(|(_, delegation)| delegation.is(stateid)) {
                        self.give_back(at).await?;
                    }
                }
                _ = tick.tick() => {
                    if self.session.status().await? & SEQ4_STATUS_CB_PATH_DOWN != 0 {
                        println!("status: the callback channel is down");
                        self.bind().await?;
                    }
                }
            }
        }
        self.wait_for(|flags| flags == 0).await
    }

    async fn give_back(&mut self, at: usize) -> Result<()> {
        let (file, delegation) = self.held.swap_remove(at);
        self.session.return_delegation(delegation).await?;
        println!("returned: {file}");
        Ok(())
    }

    /// Makes the present connection, which is not that of the session's beginning, one for
    /// callbacks (RFC 8881 §2.10.3.1).
    async fn bind(&mut self) -> Result<()> {
        self.session.bind_connection().await?;
        self.wait_for(|flags| flags == 0).await?;
        println!("status: the callback channel is up again");
        Ok(())
    }

    /// Gives all back when the server has found out that nothing answers its calls, to which the
    /// transport says PROG_UNAVAIL.
    async fn return_all_unasked(&mut self) -> Result<()> {
        let noticed = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_BACKCHANNEL_FAULT;
        self.wait_for(|flags| flags & noticed != 0).await?;
        println!("status: the server has noticed");
        while !self.held.is_empty() {
            self.give_back(0).await?;
        }
        Ok(())
    }

    /// Waits until the server says this about the session.
    async fn wait_for(&mut self, wanted: impl Fn(u32) -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let flags = self.session.status().await?;
            if wanted(flags) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the server still says {flags:#x} about the session").into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Calls that are made all the time, one after the other by each of [`OTHERS`].
struct Others {
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Result<u64>>>,
}

impl Others {
    fn start(client: &Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let callers = (0..OTHERS).map(|_| {
            let (client, stop) = (client.new_user(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut calls = 0;
                while !stop.load(Relaxed) {
                    nfs41::null(&client).await?;
                    calls += 1;
                }
                Ok(calls)
            })
        });
        Self {
            callers: callers.collect(),
            stop,
        }
    }

    /// How many there were, of which none failed.
    async fn stop(self) -> Result<u64> {
        self.stop.store(true, Relaxed);
        let mut calls = 0;
        for caller in self.callers {
            calls += caller.await??;
        }
        Ok(calls)
    }
}
