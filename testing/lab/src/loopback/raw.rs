//! The baseline: the same bytes, to and fro, over plain TCP, with nothing in between.
//!
//! Both ends have the structure of the real thing (one task, non-blocking I/O on the socket, the
//! same spinning before they park), so that a ratio to it is the price of the protocol and of
//! nothing else.

use super::spinning::Spinning;
use anyhow::{Result, ensure};
use printing::latency::Latencies;
use rustix::io::Errno;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};

/// Shape of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    /// Bytes of a request.
    pub(super) request: usize,
    /// Bytes of the reply to it.
    pub(super) reply: usize,
    /// Requests outstanding at a time.
    pub(super) depth: usize,
}

/// Bytes of the message that begins a connection: request, reply, depth, spinning.
const HELLO: usize = 16;

/// Most bytes of one message, and most messages outstanding: the child trusts nobody.
const MAX_MESSAGE: usize = 4 << 20;
const MAX_DEPTH: usize = 256;

/// How long either end spins before it parks, as the driver does.
const SPIN: Duration = Duration::from_micros(50);

/// A round of spinning in which the processor and the runtime are offered to others, as the driver
/// does.
const YIELD_EACH: u32 = 8;

/// Serves connections, one after the other, until the process ends.
pub(super) async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        if let Err(error) = serve_one(socket).await {
            eprintln!("lab: a connection of plain TCP failed: {error:#}");
        }
    }
}

async fn serve_one(mut socket: TcpStream) -> Result<()> {
    let mut hello = [0; HELLO];
    socket.read_exact(&mut hello).await?;
    let word = |at: usize| {
        u32::from_be_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]) as usize
    };
    let exchange = Exchange {
        request: word(0),
        reply: word(4),
        depth: word(8),
    };
    ensure!(
        (1..=MAX_MESSAGE).contains(&exchange.request),
        "request size out of range"
    );
    ensure!(
        (1..=MAX_MESSAGE).contains(&exchange.reply),
        "reply size out of range"
    );
    ensure!(
        (1..=MAX_DEPTH).contains(&exchange.depth),
        "depth out of range"
    );
    let spinning = if word(12) == 0 {
        Spinning::Park
    } else {
        Spinning::Adaptive
    };
    let mut end = End::new(
        socket,
        exchange.request,
        exchange.reply,
        exchange.depth,
        spinning,
    )?;
    loop {
        let moved = end.read()?;
        end.owe(moved.messages);
        if end.closed {
            return Ok(());
        }
        let wrote = end.write()?;
        if moved.bytes == 0 && !wrote {
            end.wait().await?;
        }
    }
}

/// Results of a run of exchanges.
pub(super) struct Measured {
    /// Wall time of all exchanges.
    pub(super) elapsed: Duration,
    /// From the sending of a request to the end of its reply.
    pub(super) latencies: Latencies,
}

/// Makes `count` exchanges over a connection of its own.
pub(super) async fn run(
    to: std::net::SocketAddr,
    exchange: Exchange,
    spinning: Spinning,
    count: usize,
) -> Result<Measured> {
    let mut socket = connect(to).await?;
    let mut hello = Vec::with_capacity(HELLO);
    for word in [
        exchange.request,
        exchange.reply,
        exchange.depth,
        (spinning == Spinning::Adaptive).into(),
    ] {
        hello.extend_from_slice(&u32::try_from(word)?.to_be_bytes());
    }
    socket.write_all(&hello).await?;
    let mut end = End::new(socket, exchange.reply, exchange.request, 1, spinning)?;
    let mut latencies = Latencies::default();
    let mut sent = std::collections::VecDeque::with_capacity(exchange.depth);
    let (mut started, mut done) = (0, 0);
    let begin = Instant::now();
    while done < count {
        let fresh = (exchange.depth - (started - done)).min(count - started);
        if fresh > 0 {
            let now = Instant::now();
            sent.extend(std::iter::repeat_n(now, fresh));
            end.owe(fresh);
            started += fresh;
        }
        let wrote = end.write()?;
        let moved = end.read()?;
        ensure!(!end.closed, "the raw server closed the connection");
        if moved.messages > 0 {
            let now = Instant::now();
            for at in sent.drain(..moved.messages) {
                latencies.record(now - at);
            }
            done += moved.messages;
        }
        if moved.bytes == 0 && !wrote {
            end.wait().await?;
        }
    }
    Ok(Measured {
        elapsed: begin.elapsed(),
        latencies,
    })
}

/// Socket buffers of the measured connections, the same on both sides of a comparison.
const SOCKET_BUFFER: usize = 4 << 20;

async fn connect(to: std::net::SocketAddr) -> Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(u32::try_from(SOCKET_BUFFER)?)?;
    socket.set_send_buffer_size(u32::try_from(SOCKET_BUFFER)?)?;
    Ok(socket.connect(to).await?)
}

/// A listener for [`serve`] on a free port of the loopback.
pub(super) fn listen() -> Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(u32::try_from(SOCKET_BUFFER)?)?;
    socket.set_send_buffer_size(u32::try_from(SOCKET_BUFFER)?)?;
    socket.bind((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
    Ok(socket.listen(16)?)
}

/// One end of a raw connection: messages of one size in, of another out.
struct End {
    socket: TcpStream,
    incoming: Ring,
    outgoing: Ring,
    /// Bytes still to be written.
    owed: usize,
    spinning: Spinning,
    idle_since: Option<Instant>,
    round: u32,
    parked: bool,
    closed: bool,
}

/// Memory for messages, used in turn. What is taken in goes to the same place again and again,
/// which is the best that a receiver can do; what is sent comes from as many places as ours does.
struct Ring {
    memory: Vec<u8>,
    message: usize,
    at: usize,
}

/// Bytes of memory for `count` messages of `len` bytes; small ones are read and written many at a
/// time.
pub(super) fn memory(len: usize, count: usize) -> usize {
    let len = len.max(1);
    (len * count).max(256 << 10) / len * len
}

struct Moved {
    bytes: usize,
    messages: usize,
}

impl Ring {
    fn new(message: usize, count: usize) -> Self {
        let memory = vec![0x5a; memory(message, count)];
        Self {
            memory,
            message,
            at: 0,
        }
    }

    fn advance(&mut self, bytes: usize) -> usize {
        let before = self.at / self.message;
        self.at += bytes;
        let messages = self.at / self.message - before;
        if self.at == self.memory.len() {
            self.at = 0;
        }
        messages
    }
}

impl End {
    fn new(
        socket: TcpStream,
        incoming: usize,
        outgoing: usize,
        sources: usize,
        spinning: Spinning,
    ) -> Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            incoming: Ring::new(incoming, 1),
            outgoing: Ring::new(outgoing, sources),
            owed: 0,
            spinning,
            idle_since: None,
            round: 0,
            parked: false,
            closed: false,
        })
    }

    fn owe(&mut self, messages: usize) {
        self.owed += messages * self.outgoing.message;
    }

    /// The result of one system call, or nothing if it would have waited. After parking it goes
    /// through tokio, so that a readiness that is no longer true is forgotten.
    fn attempt(
        &mut self,
        interest: Interest,
        io: impl FnOnce(&TcpStream) -> Result<usize, Errno>,
    ) -> Result<Option<usize>> {
        let result = if std::mem::take(&mut self.parked) {
            let socket = &self.socket;
            socket.try_io(interest, || Ok(io(socket)?))
        } else {
            io(&self.socket).map_err(Into::into)
        };
        match result {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self) -> Result<Moved> {
        let mut incoming = std::mem::replace(
            &mut self.incoming,
            Ring {
                memory: Vec::new(),
                message: 1,
                at: 0,
            },
        );
        let at = incoming.at;
        let result = self.attempt(Interest::READABLE, |socket| {
            rustix::io::read(socket, &mut incoming.memory[at..])
        });
        self.incoming = incoming;
        Ok(match result? {
            Some(0) => {
                self.closed = true;
                Moved {
                    bytes: 0,
                    messages: 0,
                }
            }
            Some(bytes) => {
                self.idle_since = None;
                Moved {
                    bytes,
                    messages: self.incoming.advance(bytes),
                }
            }
            None => Moved {
                bytes: 0,
                messages: 0,
            },
        })
    }

    fn write(&mut self) -> Result<bool> {
        let mut wrote = false;
        while self.owed > 0 {
            let at = self.outgoing.at;
            let len = self.owed.min(self.outgoing.memory.len() - at);
            let outgoing = std::mem::take(&mut self.outgoing.memory);
            let result = self.attempt(Interest::WRITABLE, |socket| {
                rustix::io::write(socket, &outgoing[at..at + len])
            });
            self.outgoing.memory = outgoing;
            let Some(bytes) = result? else { break };
            self.outgoing.advance(bytes);
            self.owed -= bytes;
            wrote = true;
            self.idle_since = None;
        }
        Ok(wrote)
    }

    /// Spins as the policy says, then parks.
    async fn wait(&mut self) -> Result<()> {
        if self.spinning == Spinning::Adaptive {
            let now = Instant::now();
            if now - *self.idle_since.get_or_insert(now) < SPIN {
                self.round = self.round.wrapping_add(1);
                if self.round.is_multiple_of(YIELD_EACH) {
                    std::thread::yield_now();
                    tokio::task::yield_now().await;
                } else {
                    std::hint::spin_loop();
                }
                return Ok(());
            }
        }
        let interest = if self.owed > 0 {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        self.socket.ready(interest).await?;
        self.parked = true;
        self.idle_since = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanges(exchange: Exchange) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = listen().unwrap();
            let to = listener.local_addr().unwrap();
            let server = tokio::spawn(serve(listener));
            let measured = run(to, exchange, Spinning::Park, 50).await.unwrap();
            assert_eq!(measured.latencies.count(), 50);
            server.abort();
        });
    }

    #[test]
    fn every_request_is_answered() {
        exchanges(Exchange {
            request: 92,
            reply: 76,
            depth: 1,
        });
        exchanges(Exchange {
            request: 100,
            reply: 70_001,
            depth: 8,
        });
        exchanges(Exchange {
            request: 70_001,
            reply: 100,
            depth: 3,
        });
    }
}
