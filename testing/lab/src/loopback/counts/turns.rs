//! Turns of the two processes that are counted: one runs until it would sleep, and then the other.
//!
//! A runtime calls [`Turns::hand_over`] when it is about to sleep: it wakes the other process, and waits until that is about to
//! sleep, too. So an end never runs while the other one works, and finds what the other has sent whenever it looks: how often it
//! looks in vain does not depend on which end is faster, on the number of CPUs, or on other work of the machine.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Longest turn of the other process, after which this one goes on by itself: only if both wait for something else than each
/// other, it is so long.
const LONGEST: Duration = Duration::from_secs(5);

/// Turns of this process and the other, by a socket that both have as their standard input.
#[derive(Debug)]
pub(super) struct Turns {
    other: UnixStream,
    /// Whether it is the turn of this process.
    is_ours: AtomicBool,
    is_over: AtomicBool,
}

impl Turns {
    /// Sockets for the standard input of both processes.
    pub(super) fn pair() -> Result<(UnixStream, UnixStream)> {
        UnixStream::pair().context("cannot make a pair of sockets")
    }

    /// Turns of this process, with the first one or not.
    pub(super) fn new(is_first: bool) -> Result<Arc<Self>> {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        Self::with(socket.into(), is_first)
    }

    fn with(other: UnixStream, is_first: bool) -> Result<Arc<Self>> {
        other.set_read_timeout(Some(LONGEST))?;
        Ok(Arc::new(Self {
            other,
            is_ours: AtomicBool::new(is_first),
            is_over: AtomicBool::new(false),
        }))
    }

    /// A runtime that hands over instead of sleeping.
    pub(super) fn runtime(self: &Arc<Self>) -> Result<Runtime> {
        let turns = Arc::clone(self);
        let mut builder = Builder::new_current_thread();
        builder
            .enable_all()
            .on_thread_park(move || turns.hand_over());
        builder.build().context("cannot start a runtime")
    }

    /// Waits until the other process has ended, on a thread that sleeps till then.
    pub(super) async fn over(self: &Arc<Self>) -> Result<()> {
        let turns = Arc::clone(self);
        let ended = tokio::task::spawn_blocking(move || {
            let mut other = [PollFd::new(&turns.other, PollFlags::RDHUP)];
            retry_on_intr(|| poll(&mut other, None))
        });
        ended.await?.context("cannot wait for the other process")?;
        Ok(())
    }

    /// Ends the turn of this process, and waits for the next one.
    fn hand_over(&self) {
        if self.is_over.load(Relaxed) {
            return;
        }
        // It fails if the other has ended, which reading tells.
        if self.is_ours.swap(false, Relaxed) {
            let _ = (&self.other).write(&[1]);
        }
        let mut turn = [0];
        loop {
            match (&self.other).read(&mut turn) {
                Ok(1) => return self.is_ours.store(true, Relaxed),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // The other may be asleep, and hands over later.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => break,
            }
        }
        self.is_over.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use tokio::net::UnixStream as Stream;

    /// Sends one byte and waits for one, this many times, and reports each time.
    async fn exchange(socket: UnixStream, first: bool, mut report: impl FnMut()) {
        socket.set_nonblocking(true).expect("a socket");
        // Tokio would first wait until it takes something.
        let to_peer = socket.try_clone().expect("a socket");
        let socket = Stream::from_std(socket).expect("a runtime");
        for round in 0..4 {
            if round > 0 || !first {
                let mut byte = [0];
                while socket.try_read(&mut byte).is_err() {
                    socket.readable().await.expect("a socket");
                }
            }
            report();
            (&to_peer).write_all(&[1]).expect("there is room");
            // Others could run now.
            std::thread::yield_now();
            report();
        }
    }

    #[test]
    fn one_end_works_while_the_other_does_not() {
        let (ours, other) = Turns::pair().expect("sockets");
        let (here, there) = UnixStream::pair().expect("sockets");
        // They are open until both ends have said all.
        let _open = [&here, &there].map(|socket| socket.try_clone().expect("a socket"));
        let (report, reports) = channel();
        let ends = [(ours, here, true), (other, there, false)];
        let threads = ends.map(|(turns, socket, first)| {
            let report = report.clone();
            let turns = Turns::with(turns, first).expect("a socket");
            std::thread::spawn(move || {
                let runtime = turns.runtime().expect("a runtime");
                if !first {
                    // As a server that waits for its client.
                    turns.hand_over();
                }
                let report = || report.send(first).expect("someone listens");
                runtime.block_on(exchange(socket, first, report));
            })
        });
        drop(report);
        let reports: Vec<_> = reports.iter().collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let alternating = [true, true, false, false];
        let expected: Vec<_> = alternating.into_iter().cycle().take(16).collect();
        assert_eq!(reports, expected);
    }

    #[test]
    fn end_of_the_other_is_heard_by_one_whose_turn_it_is() {
        let (ours, other) = Turns::pair().expect("sockets");
        let turns = Turns::with(ours, false).expect("a socket");
        // It hands over, and ends.
        (&other).write_all(&[1]).expect("there is room");
        drop(other);
        let runtime = turns.runtime().expect("a runtime");
        let over = async { tokio::time::timeout(Duration::from_secs(60), turns.over()).await };
        let over = runtime.block_on(over).expect("it is heard");
        over.expect("the system tells");
    }
}
