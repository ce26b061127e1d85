//! A proxy for TCP that cuts, delays and splits what goes through it.

use crate::dice::Dice;
use crate::faults::FaultRates;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Most bytes that are forwarded at once.
const PIECE: usize = 1 << 16;

/// Longest delay of one piece in milliseconds.
const DELAY: usize = 4;

/// Largest number of bytes before a connection is cut.
const CUT: usize = 2_000_000;

/// Forwards connections until it is dropped.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    faults: FaultRates,
    dice: Mutex<Dice>,
    /// Of each connection that was carried.
    cuts: Mutex<Vec<Arc<Notify>>>,
}

/// Faults of one direction.
struct Lane {
    /// Bytes after which everything ends.
    cut: Option<usize>,
    /// Bytes of a piece, at most.
    piece: usize,
    /// One piece in so many is late.
    late: u32,
    dice: Dice,
}

/// How a connection is cut: with FIN or with RST.
#[derive(Clone, Copy)]
enum CutMethod {
    Fin,
    Reset,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    pub(crate) fn new(faults: FaultRates, dice: Dice) -> Self {
        Self {
            shared: Arc::new(Shared {
                faults,
                dice: Mutex::new(dice),
                cuts: Mutex::default(),
            }),
            tasks: Mutex::default(),
        }
    }

    /// Forwards connections from the returned address to this one.
    pub(crate) async fn lead_to(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let shared = Arc::clone(&self.shared);
        lock(&self.tasks).spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                carried.spawn(Arc::clone(&shared).carry(from, to));
                while carried.try_join_next().is_some() {}
            }
        });
        Ok(at)
    }

    /// Cuts a connection.
    pub(crate) fn cut(&self, dice: &mut Dice) {
        let cuts = lock(&self.shared.cuts);
        // Of the last ones, as the first ones are over.
        if let Some(cut) = cuts.iter().rev().take(3).nth(dice.below(3)) {
            cut.notify_one();
        }
    }

    /// Ends everything.
    pub(crate) async fn end(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
    }
}

impl Shared {
    fn lane(&self) -> Lane {
        let mut dice = lock(&self.dice).split();
        Lane {
            cut: { dice.once_in(self.faults.cuts) }.then(|| dice.magnitude(CUT)),
            piece: match dice.once_in(3) {
                true => 1 + dice.magnitude(PIECE - 1),
                false => PIECE,
            },
            late: dice.of(&[0, 0, 50, 400]),
            dice,
        }
    }

    async fn carry(self: Arc<Self>, from: TcpStream, to: SocketAddr) {
        let Ok(to) = TcpStream::connect(to).await else {
            return;
        };
        // Pieces are to arrive as such.
        if from.set_nodelay(true).and(to.set_nodelay(true)).is_err() {
            return;
        }
        let cut = Arc::new(Notify::new());
        lock(&self.cuts).push(Arc::clone(&cut));
        let (mut there, mut back) = (self.lane(), self.lane());
        let method = lock(&self.dice).of(&[CutMethod::Fin, CutMethod::Reset, CutMethod::Reset]);
        let (mut from_read, mut from_write) = from.into_split();
        let (mut to_read, mut to_write) = to.into_split();
        let both = async {
            tokio::try_join!(
                there.carry(&mut from_read, &mut to_write),
                back.carry(&mut to_read, &mut from_write)
            )
        };
        tokio::select! {
            done = both => {
                if done.is_ok() {
                    return;
                }
            }
            () = cut.notified() => {}
        }
        if let CutMethod::Reset = method {
            for stream in [from_read.as_ref(), to_read.as_ref()] {
                // One that is over already needs no end.
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
            }
        }
    }
}

/// The connection is cut.
struct Ended;

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Lane {
    /// Forwards one direction until its end of stream, or until it is cut.
    async fn carry(
        &mut self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
    ) -> Result<(), Ended> {
        let mut buffer = vec![0; self.piece];
        loop {
            let len = from.read(&mut buffer).await?;
            if len == 0 {
                return Ok(to.shutdown().await?);
            }
            if self.dice.once_in(self.late) {
                tokio::time::sleep(self.dice.milliseconds(DELAY)).await;
            }
            let through = len.min(self.cut.unwrap_or(len));
            to.write_all(&buffer[..through]).await?;
            if let Some(left) = &mut self.cut {
                *left -= through;
                if *left == 0 {
                    return Err(Ended);
                }
            }
        }
    }
}
