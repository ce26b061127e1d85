//! A copy under way: the files in flight, and how it ends.
//!
//! A copy finds files in order, one after the other, and copies a bounded number of them at a time:
//! each is a task of its own, so that a small file costs its share of the bandwidth and not its
//! round trips. What there is to copy is known by then: a `plan` was made of it, which found what does
//! not go together. Both sides, local files and those of a server, are looked at in the same way (`tree`), so that
//! what is decided about a file is the same both ways.

use crate::access_lists::Lists;
use crate::connection::Connection;
use crate::directory_completion::{Held, Last};
use crate::error::{Context, Error, Result};
use crate::events::{Event, Events};
use crate::file_error::FileError;
use crate::made_names::{Collision, FileId, Made};
use crate::options::Options;
use crate::resume::{Kept as KeptFile, RESUME_WINDOW, Version};
use crate::stop::Stop;
use nfs_client::{Nfs3, NfsUrl};
use nfs_proto::FileHandle;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
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

/// A copy: the files in flight, and how it went so far.
pub(crate) struct Copy {
    pub(crate) shared: Shared,
    /// The server, if all files are on one: errors of its files have their URL.
    server: Option<NfsUrl>,
    /// Parts that failed, and were told.
    failed: usize,
    in_flight: JoinSet<Result<()>>,
    /// Directories that have all that is to be in them.
    ends: UnboundedReceiver<Last>,
}

/// Means of the caller to watch and to end a copy.
#[derive(Clone)]
pub struct Control {
    /// Receives events.
    pub events: Arc<dyn Events>,
    /// Ends the copy early.
    pub stop: Stop,
}

/// Outcome of a copy.
#[derive(Debug)]
#[must_use]
pub struct Ended {
    /// The error that ended the copy early, if one did. It was not passed to [`Events::failed`].
    pub result: Result<()>,
    /// Number of calls of [`Events::failed`].
    pub failed: usize,
    /// Incomplete files that are left on the server, each with a name like `.NAME.rpcrdma-NUMBER`: it did not let them be
    /// removed.
    pub left: usize,
    /// Incomplete files that are kept, so that the same copy goes on with them.
    pub kept: usize,
}

/// State of a copy that each of its files needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) stop: Stop,
    pub(crate) events: Arc<dyn Events>,
    /// Files that were cut off and are kept.
    kept: Arc<AtomicUsize>,
    bytes: Arc<Semaphore>,
    /// Incomplete files that could not be removed.
    left: Arc<AtomicUsize>,
    ends: UnboundedSender<Last>,
    /// Things made in the directory that was named.
    made: Arc<Made>,
    /// Access control lists on the server that is copied to.
    pub(crate) lists: Arc<Lists>,
}

/// Permissions that new files in a directory of a server may have, once they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permitted(Arc<OnceCell<u32>>);

/// The server of all URLs, if it is one.
pub(crate) fn server(urls: &[NfsUrl]) -> Option<NfsUrl> {
    let (first, others) = urls.split_first()?;
    let is_the_same = |url: &NfsUrl| (&url.host, url.port) == (&first.host, first.port);
    others.iter().all(is_the_same).then(|| first.clone())
}

impl Copy {
    /// A copy that begins, of files on this server, if it is one.
    pub(crate) fn new(options: Options, control: Control, server: Option<NfsUrl>) -> Self {
        let (ends, ended) = unbounded_channel();
        let shared = Shared {
            stop: control.stop,
            events: control.events,
            options: Arc::new(options),
            kept: Arc::default(),
            bytes: Arc::new(Semaphore::new(BYTES_IN_FLIGHT as usize)),
            left: Arc::default(),
            ends,
            made: Arc::new(Made::new()),
            lists: Arc::default(),
        };
        Self {
            shared,
            server,
            failed: 0,
            in_flight: JoinSet::new(),
            ends: ended,
        }
    }

    /// Whether nothing has failed so far.
    pub(crate) fn is_well(&self) -> bool {
        self.failed == 0
    }

    /// Tells and counts what failed.
    ///
    /// # Errors
    ///
    /// Those that [end](Error::ends) the copy.
    pub(crate) fn check(&mut self, part: Result<()>) -> Result<()> {
        let Err(error) = part else {
            return Ok(());
        };
        let ends = error.ends();
        let error = self.named(error);
        if ends {
            return Err(error);
        }
        self.failed += 1;
        self.shared.events.failed(error);
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        match (&self.server, error) {
            (Some(server), Error::Nfs(error)) => FileError::at(server, error).into(),
            (_, error) => error,
        }
    }

    /// Begins with a file when fewer than [`FILES_IN_FLIGHT`] are in flight.
    ///
    /// # Errors
    ///
    /// Those of earlier files that concern the whole command; the file is then not begun.
    pub(crate) fn begin(
        &mut self,
        file: impl Future<Output = Result<()>> + Send + 'static,
    ) -> impl Future<Output = Result<()>> {
        // At once: it has some KiB, which each function on its way would copy.
        let file = Box::pin(file);
        async move {
            while let Ok(last) = self.ends.try_recv() {
                self.spawn(last).await?;
            }
            self.spawn(file).await
        }
    }

    async fn spawn(&mut self, file: Last) -> Result<()> {
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

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    ///
    /// The first of those that concern the whole command.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let mut settled = Ok(());
        loop {
            while self.in_flight.len() < FILES_IN_FLIGHT
                && let Ok(last) = self.ends.try_recv()
            {
                self.in_flight.spawn(last);
            }
            let Some(copied) = self.in_flight.join_next().await else {
                return settled;
            };
            let checked = self.check(returned(copied));
            settled = settled.and(checked);
        }
    }

    /// Finds all that is to be copied, unless the caller asks for the end, and waits until nothing is in
    /// flight: what is not complete removes itself.
    pub(crate) async fn all(mut self, find: impl AsyncFnOnce(&mut Self) -> Result<()>) -> Ended {
        let stop = self.shared.stop.clone();
        let found = stop.unless(find(&mut self)).await;
        let found = found.map_err(|error| self.named(error));
        let settled = self.settle().await;
        Ended {
            result: found.and(settled),
            failed: self.failed,
            left: self.shared.left.load(Relaxed),
            kept: self.shared.kept.load(Relaxed),
        }
    }
}

impl Shared {
    /// Tells what was done, or would be done in a dry run.
    ///
    /// # Errors
    ///
    /// It cannot be told.
    pub(crate) fn tell(&self, event: &Event<'_>) -> Result<()> {
        self.events.event(event).map_err(Error::Event)
    }

    /// Holds a directory in another one open for changes, and has this done at its end, if anything.
    pub(crate) fn hold(&self, above: Option<Arc<Held>>, last: Option<Last>) -> Arc<Held> {
        Held::new(above, last, self.made.beside(), &self.ends)
    }

    /// Things that the copy has made in a directory; without one, in that which was named.
    pub(crate) fn made_in(&self, held: Option<&Arc<Held>>) -> Arc<Made> {
        Arc::clone(held.map_or(&self.made, |held| &held.made))
    }

    /// Permissions that new files in a directory of a server may have, as is found out for the first of them. If
    /// attributes are kept, that does not matter.
    ///
    /// # Errors
    ///
    /// The caller wants the copy to end, or the server does not tell.
    pub(crate) async fn permitted(
        &self,
        nfs: &Nfs3<Connection>,
        dir: FileHandle,
        known: &Permitted,
    ) -> Result<u32> {
        let umask = self.options.umask;
        if self.options.preserves {
            return Ok(0o777 & !umask);
        }
        let ask = async {
            let permitted = self.lists.permitted(nfs, dir, umask).await;
            permitted.context("cannot read the default access control list of the directory")
        };
        let ask = || self.stop.unless(ask);
        known.0.get_or_try_init(ask).await.copied()
    }

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
    ) -> Option<(Version, KeptFile)> {
        let resumes = self.options.resumes && size > RESUME_WINDOW;
        resumes.then(|| (version.into(), KeptFile::new(&self.kept)))
    }

    /// Notes that a directory of this name and these numbers, which is in a directory that is held, is filled.
    /// `is_listed` says whether that directory lists the very name.
    ///
    /// # Errors
    ///
    /// [`Collision`](crate::made_names::Collision): it is already, as another name led to it.
    pub(crate) async fn enter_once(
        &self,
        above: Option<&Arc<Held>>,
        is_contents: bool,
        (id, name): (FileId, &[u8]),
        is_listed: impl AsyncFnOnce() -> bool,
        to: impl FnOnce() -> String,
    ) -> Result<()> {
        let made = self.made_in(above);
        // What is in several directories may go into one.
        if !is_contents {
            let may_collide = made.may_have(name);
            if made.has(id) || (may_collide && !is_listed().await) {
                return Err(Collision).with_context(to);
            }
        }
        made.note(id);
        Ok(())
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

/// The result of a task.
fn returned(copied: Result<Result<()>, JoinError>) -> Result<()> {
    copied.expect("a copy does not panic, and nobody aborts it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io;
    use std::pin::pin;
    use std::task::Poll;

    /// Takes note of nothing.
    struct Unheard;

    impl Events for Unheard {
        fn failed(&self, _: Error) {}
    }

    fn copy() -> Copy {
        let control = Control {
            events: Arc::new(Unheard),
            stop: Stop::new(),
        };
        Copy::new(Options::default(), control, None)
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
        let ended = copy().all(find).await;
        assert!(ended.result.is_ok() && ended.failed == 0);
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
                        return Err(io::Error::other("expected by a test").into());
                    }
                    copied.fetch_add(1, Relaxed);
                    Ok(())
                })
                .await?;
            }
            Ok(())
        };
        let ended = copy().all(find).await;
        assert!(ended.result.is_ok() && ended.failed == 1);
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
                copy.begin(async { Err(Error::Stopped) }).await?;
            }
        };
        let error = copy().all(find).await.result.unwrap_err();
        assert!(matches!(error, Error::Stopped));
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
    async fn directories_end_after_what_is_in_them_whether_it_was_copied_or_not() {
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let find = async |copy: &mut Copy| {
            let ends = |name: &'static str| -> Option<Last> {
                let order = Arc::clone(&order);
                Some(Box::pin(async move {
                    order.lock().unwrap().push(name);
                    Ok(())
                }))
            };
            let top = copy.shared.hold(None, ends("top"));
            let deep = copy.shared.hold(Some(Arc::clone(&top)), ends("deep"));
            for number in 0..200 {
                let (held, order) = (Arc::clone(&deep), Arc::clone(&order));
                copy.begin(async move {
                    tokio::task::yield_now().await;
                    order.lock().unwrap().push("file");
                    drop(held);
                    match number {
                        7 => Err(io::Error::other("expected by a test").into()),
                        _ => Ok(()),
                    }
                })
                .await?;
            }
            Ok(())
        };
        let ended = copy().all(find).await;
        assert!(ended.result.is_ok() && ended.failed == 1);
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 202);
        assert_eq!(order[200..], ["deep", "top"]);
    }
}
