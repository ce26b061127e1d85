//! TCP connections in memory and in virtual time, which are delayed, split, stalled and cut.

use crate::dice::Dice;
use crate::faults::{FaultRates, Sizes};
use crate::records::{Lane, Records};
use oncrpc_tcp::{IncomingStream, Stream};
use rpcrdma_watch::Watch;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf,
};
use tokio::sync::{mpsc, watch};

/// Connections that wait to be accepted.
const BACKLOG: usize = 16;

/// Most bytes that are forwarded at once, and fewest of a connection that splits much.
const PIECE: usize = 1 << 16;
const LEAST_PIECE: usize = 50;

/// Largest number of bytes before a connection is cut.
const CUT: usize = 400_000;

/// Largest number of pieces before a direction stalls.
const STALL_AFTER: usize = 60;

/// Longest stall in milliseconds that a connection survives.
const STALL: usize = 4000;

/// How long TCP sends again before it gives up.
const GIVES_UP: Duration = Duration::from_secs(45);

/// How long an attempt to connect takes that nobody answers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A network. Clones share it.
#[derive(Clone)]
pub(crate) struct Wires {
    shared: Arc<Shared>,
}

struct Shared {
    watch: Watch,
    faults: FaultRates,
    sizes: Sizes,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    listeners: BTreeMap<SocketAddr, mpsc::Sender<IncomingStream>>,
    connections: u64,
    /// The connections that exist.
    open: BTreeMap<u64, mpsc::Sender<Disturbance>>,
}

/// Event from outside at a connection.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Cut,
    /// Nothing goes through in one direction for some time.
    Stall(Lane, Duration),
    /// Nothing goes through any more.
    Silence,
}

impl Wires {
    pub(crate) fn new(watch: Watch, faults: FaultRates, sizes: Sizes, dice: Dice) -> Self {
        Self {
            shared: Arc::new(Shared {
                watch,
                faults,
                sizes,
                state: Mutex::new(State {
                    dice,
                    listeners: BTreeMap::new(),
                    connections: 0,
                    open: BTreeMap::new(),
                }),
            }),
        }
    }

    /// Connections to this address come from the receiver, until it is dropped.
    pub(crate) fn listen(&self, at: SocketAddr) -> mpsc::Receiver<IncomingStream> {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        self.shared.lock().listeners.insert(at, sender);
        receiver
    }

    /// Connects from an address to another.
    pub(crate) async fn connect(
        &self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<Box<dyn Stream>> {
        let Shared { faults, .. } = &*self.shared;
        let (mut dice, listener) = {
            let mut state = self.shared.lock();
            (state.dice.split(), state.listeners.get(&to).cloned())
        };
        tokio::time::sleep(dice.milliseconds(faults.latency)).await;
        if dice.once_in(faults.setups) {
            tokio::time::sleep(match dice.coin() {
                true => CONNECT_TIMEOUT,
                false => Duration::ZERO,
            })
            .await;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let place = listener.ok_or_else(refused)?.reserve_owned().await;
        let place = place.map_err(|_| refused())?;
        let (client, server) = self.shared.lay(&mut dice, from, to);
        place.send(IncomingStream::new(server, from));
        Ok(Box::new(client))
    }

    /// Cuts, stalls or silences a connection.
    pub(crate) fn disturb(&self, dice: &mut Dice) {
        let state = self.shared.lock();
        let Some(many) = state.open.len().checked_sub(1) else {
            return;
        };
        let what = match dice.below(4) {
            0 | 1 => Disturbance::Cut,
            2 => Disturbance::Stall(
                dice.of(&[Lane::There, Lane::Back]),
                dice.milliseconds(STALL),
            ),
            _ => Disturbance::Silence,
        };
        if let Some(open) = state.open.values().nth(dice.within(0, many)) {
            // One that is disturbed already has enough.
            let _ = open.try_send(what);
        }
    }

    /// Number of connections so far, and of those that exist.
    pub(crate) fn connections(&self) -> (u64, usize) {
        let state = self.shared.lock();
        (state.connections, state.open.len())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays a wire with faults of its own, and returns its ends.
    fn lay(self: &Arc<Self>, dice: &mut Dice, from: SocketAddr, to: SocketAddr) -> (End, End) {
        let window = match self.sizes {
            Sizes::Usual => PIECE,
            Sizes::Tiny => dice.of(&[300, 5000, PIECE]),
        };
        let reset = Arc::new(AtomicBool::new(false));
        let end = |stream| End {
            stream,
            reset: Arc::clone(&reset),
        };
        let (client, left) = tokio::io::duplex(window);
        let (server, right) = tokio::io::duplex(window);
        let (disturb, disturbances) = mpsc::channel(1);
        let number = {
            let mut state = self.lock();
            state.connections += 1;
            let number = state.connections;
            state.open.insert(number, disturb);
            number
        };
        let records = Records::new(self.watch.clone(), format!("TCP {number}, {from} to {to}"));
        let wire = Wire {
            records: Arc::new(Mutex::new(records)),
            disturbances,
            reset: dice.coin().then(|| Arc::clone(&reset)),
            there: Faults::draw(&self.faults, Lane::There, dice),
            back: Faults::draw(&self.faults, Lane::Back, dice),
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            wire.carry(left, right).await;
            shared.lock().open.remove(&number);
        });
        (end(client), end(server))
    }
}

/// One connection.
struct Wire {
    records: Arc<Mutex<Records>>,
    disturbances: mpsc::Receiver<Disturbance>,
    /// To be set if a cut resets the connection. Otherwise it ends it in order.
    reset: Option<Arc<AtomicBool>>,
    there: Faults,
    back: Faults,
}

/// Faults of one direction.
struct Faults {
    lane: Lane,
    /// Longest delay of a piece in milliseconds.
    latency: usize,
    /// Bytes of a piece, at most.
    piece: usize,
    /// Bytes after which the connection is cut.
    cut: Option<usize>,
    /// Pieces after which nothing goes through for this time, or any more.
    stall: Option<(usize, Option<Duration>)>,
    dice: Dice,
}

/// The connection is cut.
struct Cut;

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Wire {
    async fn carry(self, left: DuplexStream, right: DuplexStream) {
        let (left_read, left_write) = tokio::io::split(left);
        let (right_read, right_write) = tokio::io::split(right);
        let (stall, stalled) = watch::channel(None);
        let Self {
            records,
            mut disturbances,
            reset,
            there,
            back,
        } = self;
        let there = there.carry(
            left_read,
            right_write,
            Arc::clone(&records),
            stalled.clone(),
        );
        let back = back.carry(right_read, left_write, records, stalled);
        let both = async { tokio::try_join!(biased; there, back) };
        let disturbed = async {
            while let Some(what) = disturbances.recv().await {
                match what {
                    Disturbance::Cut => break,
                    Disturbance::Stall(lane, time) => {
                        stall.send_replace(Some(lane));
                        tokio::time::sleep(time).await;
                        stall.send_replace(None);
                    }
                    Disturbance::Silence => {
                        stall.send_replace(Some(Lane::There));
                        tokio::time::sleep(GIVES_UP).await;
                        break;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            done = both => {
                if done.is_ok() {
                    return;
                }
            }
            () = disturbed => {}
        }
        if let Some(reset) = reset {
            reset.store(true, Relaxed);
        }
    }
}

impl Faults {
    fn draw(rates: &FaultRates, lane: Lane, dice: &mut Dice) -> Self {
        let mut dice = dice.split();
        Self {
            lane,
            latency: rates.latency,
            piece: match dice.once_in(3) {
                true => LEAST_PIECE + dice.magnitude(PIECE - LEAST_PIECE),
                false => PIECE,
            },
            cut: { dice.once_in(rates.cuts) }.then(|| 1 + dice.magnitude(CUT)),
            stall: { dice.once_in(rates.stalls) }.then(|| {
                let lasting = (!dice.once_in(8)).then(|| dice.milliseconds(STALL));
                (dice.magnitude(STALL_AFTER), lasting)
            }),
            dice,
        }
    }

    /// Forwards one direction until its end, or until it is cut.
    async fn carry(
        mut self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        records: Arc<Mutex<Records>>,
        mut stalled: watch::Receiver<Option<Lane>>,
    ) -> Result<(), Cut> {
        let mut buffer = vec![0; self.piece];
        let mut pieces = 0;
        loop {
            let len = from.read(&mut buffer).await?;
            if len == 0 {
                return Ok(to.shutdown().await?);
            }
            let through = len.min(self.cut.unwrap_or(len));
            { records.lock().unwrap_or_else(PoisonError::into_inner) }
                .sent(self.lane, &buffer[..through]);
            tokio::time::sleep(self.dice.milliseconds(self.latency)).await;
            if let Some((after, lasting)) = self.stall
                && pieces == after
            {
                tokio::time::sleep(lasting.unwrap_or(GIVES_UP)).await;
                if lasting.is_none() {
                    return Err(Cut);
                }
            }
            pieces += 1;
            // The sender is there as long as the wire.
            let _ = stalled
                .wait_for(|stalled| *stalled != Some(self.lane))
                .await;
            to.write_all(&buffer[..through]).await?;
            if let Some(left) = &mut self.cut {
                *left -= through;
                if *left == 0 {
                    return Err(Cut);
                }
            }
        }
    }
}

/// One end of a connection.
struct End {
    stream: DuplexStream,
    /// The connection was reset.
    reset: Arc<AtomicBool>,
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, space);
        match read {
            Poll::Ready(Ok(())) if space.filled().len() == before && self.reset.load(Relaxed) => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            read => read,
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
