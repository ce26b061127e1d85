//! A look at latency and throughput over loopback, beside raw TCP with the same pump.
//!
//!     cargo run --release -p verbs-iwarp --example pingpong
//!
//! Each end has its own thread and runtime and spins; the numbers are a hint, not a measurement:
//! `lab self` does that.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use verbs::{
    Buffer, Completion, Gather, Handle, IoCounters, Memory, Provider, QpOptions, QueuePair,
    RemoteAddress, WorkRequest, WrId,
};
use verbs_iwarp::{Config, CrcMode, Iwarp};

const ROUNDS: usize = 20_000;
const MESSAGE: usize = 76;
const BULK: usize = 1 << 20;
const BULKS: usize = 2_000;
const DEPTH: usize = 8;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    for _ in 0..2 {
        println!("raw TCP            {}", raw()?);
        for crc in [CrcMode::Off, CrcMode::On, CrcMode::Strict] {
            println!("iWARP, CRC {crc:<7?} {}", iwarp(crc)?);
        }
    }
    Ok(())
}

struct Numbers {
    median: Duration,
    gigabytes: f64,
    counters: IoCounters,
}

impl std::fmt::Display for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_mib = |n: u64| n as f64 / BULKS as f64;
        write!(
            f,
            "round trip {:>8.2?}   1 MiB writes {:.2} GB/s, received with {:.1} reads and {:.0} bytes copied each",
            self.median,
            self.gigabytes,
            per_mib(self.counters.reads),
            per_mib(self.counters.bytes_copied),
        )
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

/// Spins until `step` says something.
fn spin<T>(mut step: impl FnMut() -> Option<T>) -> T {
    let mut round = 0_u32;
    loop {
        if let Some(done) = step() {
            return done;
        }
        round += 1;
        if round.is_multiple_of(8) {
            thread::yield_now();
        }
    }
}

fn raw() -> Result<Numbers> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    set_buffers(&socket2::SockRef::from(&listener))?;
    let addr = listener.local_addr()?;
    let server = thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        prepare(&stream)?;
        let mut message = [0; MESSAGE];
        for _ in 0..ROUNDS {
            exactly(&mut stream, &mut message);
            stream.write_all(&message)?;
        }
        let mut bulk = vec![0; BULK];
        for _ in 0..BULKS {
            exactly(&mut stream, &mut bulk);
            if let Err(error) = stream.write_all(&[1]) {
                return Err(error.into());
            }
        }
        Ok(())
    });
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    set_buffers(&socket2::SockRef::from(&socket))?;
    socket.connect(&addr.into())?;
    let mut stream = TcpStream::from(socket);
    prepare(&stream)?;
    let mut message = [0; MESSAGE];
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        stream.write_all(&message)?;
        exactly(&mut stream, &mut message);
        times.push(begin.elapsed());
    }
    let bulk = vec![7; BULK];
    let begin = Instant::now();
    let (mut sent, mut acked, mut at) = (0, 0, 0);
    while acked < BULKS {
        if sent < BULKS && sent < acked + DEPTH {
            match stream.write(&bulk[at..]) {
                Ok(n) => at += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if at == BULK {
                (sent, at) = (sent + 1, 0);
            }
        }
        let mut acks = [0; DEPTH];
        if let Ok(n) = stream.read(&mut acks) {
            acked += n;
        }
    }
    let gigabytes = rate(BULK * BULKS, begin.elapsed());
    server.join().expect("the server ends")?;
    Ok(Numbers {
        median: median(times),
        gigabytes,
        counters: IoCounters::default(),
    })
}

fn set_buffers(socket: &socket2::SockRef<'_>) -> Result<()> {
    socket.set_send_buffer_size(4 << 20)?;
    socket.set_recv_buffer_size(4 << 20)?;
    Ok(())
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(())
}

fn exactly(stream: &mut TcpStream, mut place: &mut [u8]) {
    while !place.is_empty() {
        let read = spin(|| stream.read(place).ok());
        place = &mut place[read..];
    }
}

fn iwarp(crc: CrcMode) -> Result<Numbers> {
    let provider = Iwarp::new(Config::default().with_crc(crc));
    let options = QpOptions::default();
    let (send, address) = std::sync::mpsc::channel();
    let server = {
        let (provider, options) = (provider.clone(), options.clone());
        thread::spawn(move || {
            runtime()?.block_on(async {
                let mut listener = provider
                    .listen(SocketAddr::from(([127, 0, 0, 1], 0)))
                    .await?;
                send.send(listener.local_addr())?;
                let incoming = listener.accept().await?;
                serve(incoming.accept(&options, &[], receives()).await?).await
            })
        })
    };
    let (median, gigabytes) = runtime()?.block_on(async {
        let to = address.recv()?;
        let connected = provider.connect(to, &options, &[], receives()).await?;
        ask(connected.qp).await
    })?;
    Ok(Numbers {
        median,
        gigabytes,
        counters: server.join().expect("the server ends")?,
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

fn receives() -> Vec<WorkRequest> {
    (0..64)
        .map(|n| receive(n, Buffer::with_capacity(4096)))
        .collect()
}

fn receive(wr: u64, buffer: Buffer) -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(wr),
        buffer,
    }
}

fn send(bytes: &[u8]) -> WorkRequest {
    let mut buffer = Buffer::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    WorkRequest::Send {
        wr: WrId(0),
        buffer,
        rest: Gather::new(),
        invalidate: None,
    }
}

/// The next message, whose buffer is posted again.
fn next_message(qp: &mut dyn QueuePair) -> Result<Vec<u8>> {
    loop {
        match spin(|| {
            qp.progress();
            qp.poll_cq()
        }) {
            Completion::Receive { buffer, .. } => {
                let message = buffer.to_vec();
                qp.post(receive(0, buffer))
                    .map_err(|error| error.to_string())?;
                return Ok(message);
            }
            Completion::Failed { error, .. } => return Err(error.into()),
            _ => {}
        }
    }
}

async fn serve(mut qp: Box<dyn QueuePair>) -> Result<IoCounters> {
    for _ in 0..ROUNDS {
        let message = next_message(&mut *qp)?;
        qp.post(send(&message)).map_err(|error| error.to_string())?;
    }
    let sink = Memory::Sink(Buffer::with_capacity(BULK));
    let at = qp.register(sink).map_err(|error| error.to_string())?;
    let address = [&at.handle.0.to_be_bytes()[..], &at.offset.to_be_bytes()[..]];
    qp.post(send(&address.concat()))
        .map_err(|error| error.to_string())?;
    let before = qp.io_counters();
    for _ in 0..BULKS {
        let message = next_message(&mut *qp)?;
        qp.post(send(&message)).map_err(|error| error.to_string())?;
    }
    let after = qp.io_counters();
    end(qp).await;
    Ok(IoCounters {
        reads: after.reads - before.reads,
        bytes_copied: after.bytes_copied - before.bytes_copied,
        ..after
    })
}

async fn ask(mut qp: Box<dyn QueuePair>) -> Result<(Duration, f64)> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        qp.post(send(&[1; MESSAGE]))
            .map_err(|error| error.to_string())?;
        next_message(&mut *qp)?;
        times.push(begin.elapsed());
    }
    let address = next_message(&mut *qp)?;
    let to = RemoteAddress {
        handle: Handle(u32::from_be_bytes(address[..4].try_into()?)),
        offset: u64::from_be_bytes(address[4..12].try_into()?),
    };
    let bulk: Gather = [bytes::Bytes::from(vec![7; BULK])].into_iter().collect();
    let begin = Instant::now();
    let mut asked = 0;
    for answered in 0..BULKS {
        while asked < BULKS && asked < answered + DEPTH {
            let write = WorkRequest::Write {
                wr: WrId(0),
                source: bulk.clone(),
                to,
            };
            qp.post(write).map_err(|error| error.to_string())?;
            qp.post(send(b"done")).map_err(|error| error.to_string())?;
            asked += 1;
        }
        next_message(&mut *qp)?;
    }
    let gigabytes = rate(BULK * BULKS, begin.elapsed());
    end(qp).await;
    Ok((median(times), gigabytes))
}

async fn end(mut qp: Box<dyn QueuePair>) {
    qp.close();
    while qp.closed().is_none() {
        while qp.progress() {}
        if qp.closed().is_none() {
            std::future::poll_fn(|cx| qp.poll_ready(cx)).await;
        }
    }
}
