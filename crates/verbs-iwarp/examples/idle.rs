//! Resident memory of an end of an idle connection, without what the kernel holds.
//!
//! ```text
//! cargo run --release -p verbs-iwarp --example idle [connections] [bytes]
//! ```
//!
//! Clients in a process of their own connect, send one message of so many bytes, get it back, and
//! say nothing more. The server process prints what each connection has added to its VmRSS: right
//! after that message, and when it has been idle for two seconds.

use std::env;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;
use verbs::{
    Buffer, Completion, Gather, Provider as _, QpOptions, QueuePair, SharedReceiveQueue,
    WorkRequest, WrId,
};
use verbs_iwarp::Iwarp;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// How long to wait for each connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Blocks of the server, and bytes of each.
const BLOCKS: usize = 256;
const BLOCK: usize = 64 << 10;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        let given = args.get(at).map(|arg| arg.parse());
        given.unwrap_or(Ok(default))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match args.first().map(String::as_str) {
        Some("client") => {
            let (connections, bytes) = (number(2, 0)?, number(3, 0)?);
            runtime.block_on(clients(args[1].parse()?, connections, bytes))
        }
        _ => runtime.block_on(server(number(0, 1000)?, number(1, 100)?)),
    }
}

async fn server(connections: usize, bytes: usize) -> Result<()> {
    let provider = Iwarp::default();
    let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listener = provider.listen(on).await?;
    let mut clients = Command::new(env::current_exe()?)
        .args(["client", &listener.local_addr().to_string()])
        .args([connections.to_string(), bytes.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let options = QpOptions::default()
        .with_receives(132)
        .with_receive_size(BLOCK)
        .with_shared_receives(SharedReceiveQueue::new(BLOCKS, BLOCK));
    let answered = Arc::new(AtomicUsize::new(0));
    let begin = resident()?;
    for _ in 0..connections {
        let mut incoming = listener.accept().await?;
        incoming.request(PATIENCE).await?;
        let mut qp = incoming.accept(&options, &[], Vec::new()).await?;
        let answered = Arc::clone(&answered);
        tokio::spawn(async move {
            while let Ok(message) = receive(&mut *qp).await {
                send(&mut *qp, &message).await;
                answered.fetch_add(1, SeqCst);
            }
        });
    }
    // The clients say when all have their answer.
    let said = clients.stdout.take().ok_or("its output is piped")?;
    let waiting = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).map(|_| line)
    });
    let line = waiting.await??;
    let each = |now: usize| now.saturating_sub(begin) as f64 / connections as f64 / 1024.0;
    let count = answered.load(SeqCst);
    println!("{count} connections, after {bytes} bytes each way: {line}");
    println!("{:7.1} KiB each at once", each(resident()?));
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{:7.1} KiB each when idle", each(resident()?));
    println!("{:?}", provider.memory());
    drop(clients.stdin.take());
    clients.wait()?;
    Ok(())
}

async fn clients(to: SocketAddr, connections: usize, bytes: usize) -> Result<()> {
    let provider = Iwarp::default();
    let options = QpOptions::default();
    let mut open = Vec::new();
    for _ in 0..connections {
        let receive_one = WorkRequest::Receive {
            wr: WrId(0),
            buffer: Buffer::with_capacity(bytes),
        };
        let connected = provider
            .connect(to, &options, &[], vec![receive_one])
            .await?;
        let mut qp = connected.qp;
        send(&mut *qp, &vec![7; bytes]).await;
        receive(&mut *qp).await?;
        open.push(qp);
    }
    println!("answered");
    // Until the server has looked at itself.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

async fn send(qp: &mut dyn QueuePair, message: &[u8]) {
    let mut buffer = Buffer::with_capacity(message.len());
    buffer.extend_from_slice(message);
    let sent = qp.post(WorkRequest::Send {
        wr: WrId(1),
        buffer,
        rest: Gather::new(),
        invalidate: None,
    });
    sent.expect("there is room for one");
    while qp.progress() {}
}

async fn receive(qp: &mut dyn QueuePair) -> Result<Buffer> {
    std::future::poll_fn(|cx| {
        loop {
            while let Some(completion) = qp.poll_cq() {
                if let Completion::Receive { buffer, .. } = completion {
                    return Poll::Ready(Ok(buffer));
                }
            }
            if let Some(reason) = qp.closed() {
                return Poll::Ready(Err(reason.clone().into()));
            }
            if !qp.progress() && qp.poll_ready(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Bytes of this process in memory.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS")?.parse::<usize>()? * 1024)
}
