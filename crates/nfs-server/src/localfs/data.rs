//! Reading, writing and syncing data.

use super::node::Node;
use super::sys::{Pace, Stop, Try};
use super::turns::lock_at;
use super::{INLINE_WRITE, INLINE_WRITE_IN_MEMORY, Inner, LocalFs};
use crate::fs::{
    Attributes, Changed, Error, FileId, Identity, Outcome, ReadOut, Seen, Stability, Wcc, WriteOut,
};
use crate::permission;
use buffer::Buffer;
use oncrpc::xdr::{Gather, gather_len};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};

/// Fewest bytes that a disk is asked for as a whole.
const ASK_AHEAD: usize = 128 << 10;

/// A read that was begun.
pub(super) struct Reading {
    node: Arc<Node>,
    attributes: Attributes,
    offset: u64,
    /// Bytes to be had, by the size of the file.
    want: usize,
    /// It was found to end here, though its attributes said otherwise.
    ended: bool,
    buffer: Buffer,
}

impl LocalFs {
    pub(super) fn read_data(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        let begin = || {
            if !self.inner.local {
                return Err(Stop::WouldBlock);
            }
            let mut reading = self
                .inner
                .begin_read(who, file, offset, count, Pace::Quick)?;
            let done = self.inner.read_on(&mut reading, Pace::Quick)?;
            Ok((reading, done))
        };
        let begun = begin();
        self.inner.shed_if_exhausted();
        match begun {
            Ok((reading, true)) => Outcome::Ready(reading.finish()),
            Ok((mut reading, false)) => self.slow(file, move |inner| {
                inner.read_on(&mut reading, Pace::Patient)?;
                Ok(reading.finish())
            }),
            Err(Stop::Fail(error)) => Outcome::Ready(Seen::failed(error)),
            Err(Stop::WouldBlock) => {
                let who = who.clone();
                self.slow(file, move |inner| {
                    let mut reading = inner.begin_read(&who, file, offset, count, Pace::Patient)?;
                    inner.read_on(&mut reading, Pace::Patient)?;
                    Ok(reading.finish())
                })
            }
        }
    }

    pub(super) fn write_data(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        let len = gather_len(&data);
        let (most, stability) = match self.inner.memory {
            // Its data gets no more stable than it is now, so the client need not keep it until a COMMIT.
            // Smaller writes leave the file open for the next one.
            true if len > INLINE_WRITE => (INLINE_WRITE_IN_MEMORY, Stability::FileSync),
            true | false => (INLINE_WRITE, stability),
        };
        let quick = len <= most
            && match self.inner.memory {
                // There the kernel cannot be asked not to wait.
                true => self.inner.changes_at_once(),
                false => {
                    stability == Stability::Unstable
                        && self.inner.local
                        && self.inner.quick_writes.load(Relaxed)
                }
            };
        let mut written = 0;
        if quick {
            match self.inner.write(
                who,
                file,
                (offset, &data),
                &mut written,
                stability,
                Pace::Quick,
            ) {
                Ok(changed) => return Outcome::Ready(changed),
                Err(Stop::Fail(error)) => return Outcome::Ready(Changed::failed(error)),
                Err(Stop::WouldBlock) => {}
            }
        }
        let who = who.clone();
        self.slow(file, move |inner| {
            let mut written = written;
            inner.write(
                &who,
                file,
                (offset, &data),
                &mut written,
                stability,
                Pace::Patient,
            )
        })
    }
}

impl Reading {
    pub(super) fn finish(self) -> Seen<ReadOut> {
        let end = self.offset.saturating_add(self.buffer.len() as u64);
        let mut data = Gather::new();
        if !self.buffer.is_empty() {
            data.push(self.buffer.freeze());
        }
        Seen {
            attributes: Some(self.attributes),
            result: Ok(ReadOut {
                data,
                eof: self.ended || end >= self.attributes.size,
            }),
        }
    }
}

impl Inner {
    /// Attributes are those from before: were they from after, a client could take old data for
    /// that of a newer file.
    pub(super) fn begin_read(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
        pace: Pace,
    ) -> Try<Reading> {
        let node = self.node(file, pace)?;
        permission::check_regular(node.kind)?;
        let attributes = self.attributes(&node)?;
        self.check_read(who, &node, &attributes, pace)?;
        let left = attributes.size.saturating_sub(offset);
        let want = usize::try_from(left.min(u64::from(count))).unwrap_or(usize::MAX);
        let buffer = if want == 0 {
            Buffer::default()
        } else {
            self.open_reader(&node, pace)?;
            self.pool.take(want)
        };
        Ok(Reading {
            node,
            attributes,
            offset,
            want,
            ended: false,
            buffer,
        })
    }

    /// Reads on; says whether all is there. In haste it takes what is in the page cache.
    pub(super) fn read_on(&self, reading: &mut Reading, pace: Pace) -> Try<bool> {
        let flags = match pace {
            Pace::Quick => self.haste,
            Pace::Patient => ReadWriteFlags::empty(),
        };
        let left = reading.want - reading.buffer.len();
        if pace == Pace::Patient && left >= ASK_AHEAD {
            // The disk is asked for all of it at once, and not for what the kernel guesses from
            // reads that come in any order. If it cannot be asked, reading goes on as it may.
            let begin = reading.offset + reading.buffer.len() as u64;
            let len = NonZeroU64::new(left as u64);
            let fd = self.open_reader(&reading.node, pace)?;
            let _ = rustix::fs::fadvise(fd, begin, len, Advice::WillNeed);
        }
        while reading.buffer.len() < reading.want {
            let fd = self.open_reader(&reading.node, pace)?;
            let have = reading.buffer.len();
            let space = &mut reading.buffer.memory_mut()[have..reading.want];
            let at = reading.offset + have as u64;
            match rustix::io::preadv2(fd, &mut [IoSliceMut::new(space)], at, flags) {
                // It became shorter meanwhile.
                Ok(0) if pace == Pace::Patient => {
                    reading.ended = true;
                    break;
                }
                Ok(0) => return Ok(false),
                Ok(n) => reading.buffer.set_len(have + n),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL) if pace == Pace::Quick => {
                    return Ok(false);
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    fn open_reader<'a>(&self, node: &'a Node, pace: Pace) -> Try<&'a OwnedFd> {
        if let Some(fd) = node.reader() {
            return Ok(fd);
        }
        let fd = self.open_as_owner(node, OFlags::RDONLY, pace)?;
        Ok(node.reader_or(fd))
    }

    /// A descriptor to write through.
    pub(super) fn writer(&self, node: &Node, pace: Pace) -> Try<Arc<OwnedFd>> {
        let open = node.writer().clone();
        if let Some(fd) = open {
            self.wrote(node);
            return Ok(fd);
        }
        // Not under the lock: whoever sets a mode takes it behind the one of modes, which may be needed
        // here.
        let fd = Arc::new(self.open_as_owner(node, OFlags::WRONLY, pace)?);
        Ok(self.keep_writer(node, fd))
    }

    /// Opens a file. Its owner may, whatever its mode: a client that opened it before the mode was
    /// taken away goes on using it (RFC 1813 §4.4). To the kernel it is a new open, so the mode is
    /// given back for a moment.
    fn open_as_owner(&self, node: &Node, flags: OFlags, pace: Pace) -> Try<OwnedFd> {
        match self.proc.reopen(node.path.as_fd(), flags) {
            // A change of a mode may have to wait for a disk.
            Err(Errno::ACCESS) if !self.as_root && pace == Pace::Quick => Err(Stop::WouldBlock),
            Err(Errno::ACCESS) if !self.as_root => {
                let _modes = self.turns.modes(node.ino);
                let attributes = self.attributes(node)?;
                if attributes.uid != self.me.uid {
                    return Err(Error::Access.into());
                }
                self.proc
                    .chmod(node.path.as_fd(), attributes.mode | 0o600)?;
                let opened = self.proc.reopen(node.path.as_fd(), flags);
                self.proc.chmod(node.path.as_fd(), attributes.mode)?;
                Ok(opened?)
            }
            opened => Ok(opened?),
        }
    }

    /// Writes what is not `written` yet.
    fn write(
        &self,
        who: &Identity,
        file: FileId,
        (offset, data): (u64, &Gather),
        written: &mut usize,
        stability: Stability,
        pace: Pace,
    ) -> Try<Changed<WriteOut>> {
        let node = self.node(file, pace)?;
        permission::check_regular(node.kind)?;
        let _unguarded = self.turns.unguarded(node.ino, pace)?;
        let changing = self.turns.begin(node.ino, false);
        let before = self.attributes(&node)?;
        let result = self
            .check_write(who, &node, &before, pace)
            .and_then(|()| check_end(offset, gather_len(data)))
            .and_then(|()| self.write_pieces(who, &node, (offset, data), written, stability, pace));
        let result = match result {
            Err(Stop::WouldBlock) => return Err(Stop::WouldBlock),
            // What was written is told of; the client comes back for the rest and the error.
            Err(Stop::Fail(_)) if *written > 0 => Ok(()),
            Err(Stop::Fail(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        let after = self.attributes(&node).ok();
        Ok(Changed {
            wcc: Wcc {
                // Others may be writing, too: then nobody is told that it was alone.
                before: changing.is_alone().then(|| before.before()),
                after,
            },
            result: result.map(|()| WriteOut {
                count: u32::try_from(*written).unwrap_or(u32::MAX),
                committed: stability,
            }),
        })
    }

    /// Writes as the caller: the kernel takes the rights of its owner from a program before somebody else
    /// writes to it, and counts the space as the caller's.
    fn write_pieces(
        &self,
        who: &Identity,
        node: &Node,
        (offset, data): (u64, &Gather),
        written: &mut usize,
        stability: Stability,
        pace: Pace,
    ) -> Try<()> {
        let len = gather_len(data);
        if len == 0 {
            return Ok(());
        }
        let flags = match (pace, stability) {
            (Pace::Quick, _) => self.haste,
            (Pace::Patient, Stability::Unstable) => ReadWriteFlags::empty(),
            (Pace::Patient, Stability::DataSync) => ReadWriteFlags::DSYNC,
            (Pace::Patient, Stability::FileSync) => ReadWriteFlags::SYNC,
        };
        let _turn = self.turn_to_write(node, stability, pace)?;
        let fd = self.writer(node, pace)?;
        while *written < len {
            let pieces = slices(data, *written);
            let at = offset + *written as u64;
            match self.as_writer(who, || rustix::io::pwritev2(&*fd, &pieces, at, flags)) {
                Ok(0) => return Err(Error::Io.into()),
                Ok(n) => *written += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::INVAL) if pace == Pace::Quick => {
                    self.quick_writes.store(false, Relaxed);
                    return Err(Stop::WouldBlock);
                }
                Err(errno) => {
                    if stability == Stability::Unstable && *written > 0 {
                        self.wrote_unstably(node);
                    }
                    // No room, or no quota, to write may be none to write back what was written.
                    let lost = match errno {
                        Errno::IO => true,
                        Errno::NOSPC | Errno::DQUOT if stability != Stability::Unstable => {
                            let again = ReadWriteFlags::empty();
                            self.as_writer(who, || rustix::io::pwritev2(&*fd, &pieces, at, again))
                                .is_ok()
                        }
                        _ => false,
                    };
                    if lost {
                        self.note_loss(errno, stability);
                    }
                    return Err(errno.into());
                }
            }
        }
        drop(fd);
        match stability {
            Stability::Unstable => self.wrote_unstably(node),
            Stability::DataSync | Stability::FileSync => self.close_writer(node),
        }
        Ok(())
    }

    /// The kernel writes to a file one at a time, and whoever waits for that spins. With a sync to a disk
    /// the next one may write meanwhile. A task that serves connections does not wait.
    fn turn_to_write<'a>(
        &self,
        node: &'a Node,
        stability: Stability,
        pace: Pace,
    ) -> Try<Option<MutexGuard<'a, ()>>> {
        if pace == Pace::Patient && stability != Stability::Unstable && !self.memory {
            return Ok(None);
        }
        lock_at(&node.writing, pace).map(Some)
    }

    /// Sets the size. A writer that was not open before is not left open.
    pub(super) fn truncate(&self, who: &Identity, node: &Node, size: u64) -> Try<()> {
        // Data that goes takes time, and who writes to the file waits for it in the kernel.
        let _turn = lock_at(&node.writing, Pace::Patient)?;
        let fd = match node.writer().clone() {
            Some(fd) => fd,
            None => Arc::new(self.open_as_owner(node, OFlags::WRONLY, Pace::Patient)?),
        };
        self.as_writer(who, || rustix::fs::ftruncate(&*fd, size))?;
        Ok(())
    }

    /// Makes all data of a file durable.
    pub(super) fn commit(&self, who: &Identity, file: FileId, pace: Pace) -> Try<Changed<()>> {
        let node = self.node(file, pace)?;
        permission::check_regular(node.kind)?;
        let before = self.attributes(&node)?;
        self.check_write(who, &node, &before, pace)?;
        let open = node.writer().clone();
        // What is written from now on is not in it.
        node.uncommitted.store(0, Relaxed);
        let synced = match &open {
            Some(fd) => rustix::fs::fdatasync(&**fd),
            None => match self.open_reader(&node, pace) {
                Ok(fd) => rustix::fs::fdatasync(fd),
                // One may be let write to a file that it is not let read.
                Err(Stop::Fail(Error::Access)) => {
                    rustix::fs::fdatasync(self.open_as_owner(&node, OFlags::WRONLY, pace)?)
                }
                Err(stop) => return Err(stop),
            },
        };
        drop(open);
        if let Err(errno) = synced {
            self.note_loss(errno, Stability::FileSync);
        }
        self.close_writer(&node);
        // Syncing changes no attributes: what others changed meanwhile is not taken for the caller's doing
        // if both are the same.
        let now = self.attributes(&node).ok();
        Ok(Changed {
            wcc: Wcc {
                before: now.as_ref().map(Attributes::before),
                after: now,
            },
            result: synced.map_err(Error::from),
        })
    }

    /// The kernel tells of a failed write-back once, and what was to be written may be gone: with a
    /// new verifier clients send again what they have not committed (RFC 1813 §4.8).
    pub(super) fn note_loss(&self, errno: Errno, stability: Stability) {
        if stability != Stability::Unstable && errno != Errno::AGAIN {
            tracing::warn!(
                directory = %self.path.display(),
                error = %io::Error::from(errno),
                "data of an export could not be written to its disk, and may be lost: clients that still \
                 have it send it again"
            );
            self.verifier.fetch_add(1, Relaxed);
        }
    }
}

/// Whether a file can be as long as it would be.
fn check_end(offset: u64, len: usize) -> Try<()> {
    match offset.checked_add(len as u64) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Error::TooLarge.into()),
    }
}

/// The data behind the first `skip` bytes.
fn slices(data: &Gather, mut skip: usize) -> SmallVec<[IoSlice<'_>; 8]> {
    let mut slices = SmallVec::new();
    for piece in data {
        let cut = skip.min(piece.len());
        skip -= cut;
        if cut < piece.len() {
            slices.push(IoSlice::new(&piece[cut..]));
        }
    }
    slices
}
