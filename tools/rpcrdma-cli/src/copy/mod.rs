//! Code that `get` and `put` share: which files are in flight, and how a copy ends.
//!
//! A copy finds files in order, one after the other, and copies a bounded number of them at a time:
//! each is a task of its own, so that a small file costs its share of the bandwidth and not its
//! round trips.

pub(crate) mod resume;
pub(crate) mod sparse;

use crate::failure::{self, Ended};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::session::SessionArgs;
use anyhow::anyhow;
use clap::Args;
use nfs_proto::Status;
use resume::{Kept, RESUME_WINDOW, Version};
use sparse::Sparse;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// Files that are copied at a time.
pub(crate) const FILES_IN_FLIGHT: usize = 64;

/// Size of the largest small file, in bytes: it is copied whenever it comes, and is in memory as a
/// whole.
pub(crate) const SMALL_FILE: u64 = 64 << 10;

/// Bytes of other files that are copied at a time; a larger one is copied alone among those.
const BYTES_IN_FLIGHT: u32 = 32 << 20;

/// Bytes that a file counts at least, if it is not small.
const LEAST_COUNTED: u32 = 2 << 20;

/// Options of copies.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// When copies have holes, ranges of zeros that take no space: where the source has them, wherever there
    /// are zeros, or nowhere
    ///
    /// `put` finds holes of local files without reading them. NFS version 3 cannot tell where holes are: `get`
    /// reads all of a file, and leaves out blocks of zeros if it takes less space on the server than its size.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    sparse: Sparse,

    /// Keep a large file that is cut off, and go on with what an earlier run with this option has kept
    ///
    /// It is under a name like .NAME.rpcrdma-NUMBER beside the file. Only the same version of the source, by inode,
    /// size and times, is gone on with; the last 32 MiB are copied again, as a crash may have damaged them, and 1
    /// MiB before those is compared. If the source is changed while it is copied, the copy fails. Files up to 32
    /// MiB are copied as a whole.
    #[arg(long)]
    resume: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// A copy: what it is to do, the files in flight, and how it went so far.
pub(crate) struct Copy {
    pub(crate) recursive: bool,
    pub(crate) shared: Shared,
    ended: Ended,
    in_flight: JoinSet<anyhow::Result<()>>,
    /// Names of what the user named; none for what has no name of its own.
    named: HashSet<Option<OsString>>,
}

/// What each file of a copy needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) interrupt: Interrupt,
    pub(crate) progress: Progress,
    pub(crate) sparse: Sparse,
    /// Whether large files that are cut off are kept, and continued.
    resume: bool,
    /// Files that were cut off and are kept.
    kept: Arc<AtomicUsize>,
    bytes: Arc<Semaphore>,
    /// Incomplete files that could not be removed.
    left: Arc<AtomicUsize>,
}

impl Copy {
    /// A copy that begins. From now on an interrupt does not end the process by itself.
    pub(crate) fn new(args: &CopyArgs) -> anyhow::Result<Self> {
        let shared = Shared {
            interrupt: Interrupt::of_copy()?,
            progress: Progress::new(!args.quiet, false),
            sparse: args.sparse,
            resume: args.resume,
            kept: Arc::default(),
            bytes: Arc::new(Semaphore::new(BYTES_IN_FLIGHT as usize)),
            left: Arc::default(),
        };
        Ok(Self::with(shared, args.recursive))
    }

    fn with(shared: Shared, recursive: bool) -> Self {
        Self {
            recursive,
            shared,
            ended: Ended::Well,
            in_flight: JoinSet::new(),
            named: HashSet::new(),
        }
    }

    /// As [`Ended::check`], and counts what failed.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        match &part {
            Ok(()) => return part,
            // Nothing else can be copied there either.
            Err(error) if is_read_only(error) => return part,
            Err(_) => {}
        }
        let checked = self.ended.check(part);
        if checked.is_ok() {
            self.shared.progress.failed();
        }
        checked
    }

    /// Begins with a file when fewer than [`FILES_IN_FLIGHT`] are in flight.
    ///
    /// # Errors
    ///
    /// Those of earlier files that concern the whole command; the file is then not begun.
    pub(crate) async fn begin(
        &mut self,
        file: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> anyhow::Result<()> {
        while let Some(copied) = self.in_flight.try_join_next() {
            self.check(returned(copied))?;
        }
        while self.in_flight.len() >= FILES_IN_FLIGHT
            && let Some(copied) = self.in_flight.join_next().await
        {
            self.check(returned(copied))?;
        }
        self.in_flight.spawn(file);
        Ok(())
    }

    /// Whether what the user named may get the name of something he named before, so that it has to
    /// wait until that is copied: the last one is to stay.
    pub(crate) fn is_named_again(&mut self, name: Option<&OsStr>) -> bool {
        let all = self.named.contains(&None);
        let again = !self.named.insert(name.map(OsStr::to_owned));
        all || again || name.is_none() && self.named.len() > 1
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// The first of those that concern the whole command.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        let mut settled = Ok(());
        while let Some(copied) = self.in_flight.join_next().await {
            let checked = self.check(returned(copied));
            settled = settled.and(checked);
        }
        settled
    }

    /// Finds all that is to be copied, unless the user asks for the end, and waits until nothing is in
    /// flight: what is not complete removes itself.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) async fn all(
        mut self,
        find: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Ended> {
        let interrupt = self.shared.interrupt.clone();
        let found = interrupt.unless(find(&mut self)).await;
        let settled = self.settle().await;
        self.shared.progress.finish();
        let left = self.shared.left.load(Relaxed);
        if left > 0 {
            self.ended.failed(&anyhow!(
                "incomplete files are left on the server, which does not let them be removed: {left}, each \
                 with a name like .NAME.rpcrdma-NUMBER"
            ));
        }
        let kept = self.shared.kept.load(Relaxed);
        if kept > 0 {
            failure::note(&format!(
                "incomplete files are kept: {kept}; the same command goes on with them"
            ));
        }
        found.and(settled)?;
        Ok(self.ended)
    }
}

impl Shared {
    /// Notes an incomplete file that could not be removed.
    pub(crate) fn leave_incomplete(&self) {
        self.left.fetch_add(1, Relaxed);
    }

    /// The version of a file of this size, if a copy of it is kept when it is cut off; counted as kept until
    /// it is done.
    pub(crate) fn resumes(
        &self,
        size: u64,
        version: impl Into<Version>,
    ) -> Option<(Version, Kept)> {
        let resumes = self.resume && size > RESUME_WINDOW;
        resumes.then(|| (version.into(), Kept::new(&self.kept)))
    }

    /// Waits until there is room for a file of this size; of small ones only their number counts.
    pub(crate) async fn room(&self, size: u64) -> Option<OwnedSemaphorePermit> {
        if size <= SMALL_FILE {
            return None;
        }
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let bytes = bytes.clamp(LEAST_COUNTED, BYTES_IN_FLIGHT);
        let room = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        Some(room.expect("the semaphore is never closed"))
    }
}

/// Whether the server said that nothing can be changed there.
fn is_read_only(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<nfs_client::Error>();
    error.is_some_and(|error| error.status() == Some(Status::ReadOnly))
}

/// What came of a task.
fn returned(copied: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    copied.expect("a copy does not panic, and nobody aborts it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupted;
    use rustix::process::Signal;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    fn copy() -> Copy {
        let shared = Shared {
            interrupt: Interrupt::listen().unwrap(),
            progress: Progress::new(false, false),
            sparse: Sparse::default(),
            resume: false,
            kept: Arc::default(),
            bytes: Arc::new(Semaphore::new(BYTES_IN_FLIGHT as usize)),
            left: Arc::default(),
        };
        Copy::with(shared, true)
    }

    #[tokio::test]
    async fn number_of_files_in_flight_is_bounded() {
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let find = async |copy: &mut Copy| {
            for turns in 0..10 * FILES_IN_FLIGHT {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                copy.begin(async move {
                    most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                    for _ in 0..1 + turns % 7 {
                        tokio::task::yield_now().await;
                    }
                    running.fetch_sub(1, Relaxed);
                    Ok(())
                })
                .await?;
            }
            Ok(())
        };
        assert_eq!(copy().all(find).await.unwrap(), Ended::Well);
        assert_eq!(most.load(Relaxed), FILES_IN_FLIGHT);
        assert_eq!(running.load(Relaxed), 0, "all of them have ended");
    }

    #[tokio::test]
    async fn file_that_fails_does_not_keep_others_from_being_copied() {
        let copied = Arc::new(AtomicUsize::new(0));
        let find = async |copy: &mut Copy| {
            for number in 0..200 {
                let copied = Arc::clone(&copied);
                copy.begin(async move {
                    tokio::task::yield_now().await;
                    if number == 100 {
                        return Err(anyhow!("expected by a test"));
                    }
                    copied.fetch_add(1, Relaxed);
                    Ok(())
                })
                .await?;
            }
            Ok(())
        };
        assert_eq!(copy().all(find).await.unwrap(), Ended::Partly);
        assert_eq!(copied.load(Relaxed), 199);
    }

    #[tokio::test]
    async fn error_of_the_whole_command_lets_files_in_flight_end() {
        let ended = Arc::new(AtomicUsize::new(0));
        let find = async |copy: &mut Copy| {
            let others = Arc::clone(&ended);
            copy.begin(async move {
                for _ in 0..1000 {
                    tokio::task::yield_now().await;
                }
                others.fetch_add(1, Relaxed);
                Ok(())
            })
            .await?;
            loop {
                copy.begin(async { Err(Interrupted(Signal::INT).into()) })
                    .await?;
            }
        };
        let error = copy().all(find).await.unwrap_err();
        assert!(error.downcast_ref::<Interrupted>().is_some());
        assert_eq!(ended.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn large_files_share_the_bytes_in_flight() {
        let shared = copy().shared;
        let first = shared.room(u64::MAX).await;
        let mut second = pin!(shared.room(SMALL_FILE + 1));
        let waits = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        assert!(shared.room(SMALL_FILE).await.is_none(), "small ones do not");
        drop(first);
        assert!(second.await.is_some());
    }

    #[tokio::test]
    async fn what_may_replace_something_named_before_is_told() {
        let mut copy = copy();
        let mut again = |name: Option<&str>| copy.is_named_again(name.map(OsStr::new));
        assert!(!again(Some("a")) && !again(Some("b")));
        assert!(again(Some("a")));
        assert!(again(None), "what is in it may have any name");
        assert!(again(Some("c")));
    }
}
