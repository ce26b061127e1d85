//! Code that `get`, `put` and `cp` share: which files are in flight, and how a copy ends.
//!
//! A copy finds files in order, one after the other, and copies a bounded number of them at a time:
//! each is a task of its own, so that a small file costs its share of the bandwidth and not its
//! round trips. What there is to copy is known by then: a `plan` was made of it, which found what does
//! not go together. Both sides, local files and those of a server, are looked at in the same way (`tree`), so that
//! what is decided about a file is the same both ways.

pub(crate) mod attributes;
pub(crate) mod decide;
pub(crate) mod delete;
pub(crate) mod directory;
pub(crate) mod entry;
mod exclude;
mod held;
pub(crate) mod links;
mod listing;
pub(crate) mod lists;
pub(crate) mod made;
mod options;
mod plan;
pub(crate) mod replaced;
pub(crate) mod resume;
mod root;
pub(crate) mod sparse;
pub(crate) mod tree;
pub(crate) mod unfinished;
pub(crate) mod unkept;
pub(crate) mod upload;
mod walk;
mod way;

pub(crate) use held::{Held, Last};
pub(crate) use options::{CopyArgs, Options};
pub(crate) use plan::Plan;
pub(crate) use root::{Root, Target};
pub(crate) use walk::{Inside, Other, Step};
pub(crate) use way::Way;

use crate::failure::{self, Ended};
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{self, Progress};
use crate::session::FileError;
use anyhow::{Context, anyhow};
use lists::Lists;
use made::Made;
use nfs_client::{Nfs3, NfsUrl};
use nfs_proto::{FileHandle, Status};
use resume::{Kept as KeptFile, RESUME_WINDOW, Version};
use rpcrdma::Client;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// What stands for standard input or output.
pub(crate) const STREAM: &str = "-";

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
    ended: Ended,
    in_flight: JoinSet<anyhow::Result<()>>,
    /// Directories that have all that is to be in them.
    ends: UnboundedReceiver<Last>,
}

/// What each file of a copy needs.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) interrupt: Interrupt,
    pub(crate) progress: Progress,
    /// Files that were cut off and are kept.
    kept: Arc<AtomicUsize>,
    bytes: Arc<Semaphore>,
    /// Incomplete files that could not be removed.
    left: Arc<AtomicUsize>,
    ends: UnboundedSender<Last>,
    /// What goes into the directory that the user named.
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
    /// A copy that begins, of files on this server, if it is one. From now on an interrupt does not end the
    /// process by itself.
    pub(crate) fn new(options: Options, server: Option<NfsUrl>) -> anyhow::Result<Self> {
        let (ends, ended) = unbounded_channel();
        let shared = Shared {
            interrupt: Interrupt::of_copy()?,
            progress: Progress::new(
                !options.quiet && !options.dry_run,
                options.verbose && !options.dry_run,
            ),
            options: Arc::new(options),
            kept: Arc::default(),
            bytes: Arc::new(Semaphore::new(BYTES_IN_FLIGHT as usize)),
            left: Arc::default(),
            ends,
            made: Arc::new(Made::new()),
            lists: Arc::default(),
        };
        Ok(Self {
            shared,
            server,
            ended: Ended::Well,
            in_flight: JoinSet::new(),
            ends: ended,
        })
    }

    /// Whether nothing has failed so far.
    pub(crate) fn is_well(&self) -> bool {
        self.ended == Ended::Well
    }

    /// As [`Ended::check`], and counts what failed.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        let is_over = match &part {
            Ok(()) => return part,
            // Nothing else can be copied there either.
            Err(error) => is_read_only(error),
        };
        let part = part.map_err(|error| self.named(error));
        if is_over {
            return part;
        }
        let checked = self.ended.check(part);
        if checked.is_ok() {
            self.shared.progress.failed();
        }
        checked
    }

    fn named(&self, error: anyhow::Error) -> anyhow::Error {
        match &self.server {
            Some(server) => FileError::name(error, server),
            None => error,
        }
    }

    /// Begins with a file when fewer than [`FILES_IN_FLIGHT`] are in flight.
    ///
    /// # Errors
    ///
    /// Those of earlier files that concern the whole command; the file is then not begun.
    pub(crate) fn begin(
        &mut self,
        file: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> impl Future<Output = anyhow::Result<()>> {
        // At once: it has some KiB, which each function on its way would copy.
        let file = Box::pin(file);
        async move {
            while let Ok(last) = self.ends.try_recv() {
                self.spawn(last).await?;
            }
            self.spawn(file).await
        }
    }

    async fn spawn(&mut self, file: Last) -> anyhow::Result<()> {
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
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
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
        let found = found.map_err(|error| self.named(error));
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
    /// Says what was done, or would be done in a dry run, if the user wants to know.
    ///
    /// # Errors
    ///
    /// Nobody reads the output any more.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) -> anyhow::Result<()> {
        let options = &self.options;
        if !options.verbose && !options.dry_run {
            return Ok(());
        }
        let line = nfs_client::printable(line().as_bytes());
        // Standard output may be what is copied to.
        let said = progress::suspend(|| match options.to_stdout {
            true => writeln!(io::stderr(), "{line}"),
            false => writeln!(output::stdout(), "{line}"),
        });
        Ok(said?)
    }

    /// Holds a directory in another one open for changes, and has this done at its end, if anything.
    pub(crate) fn hold(&self, above: Option<Arc<Held>>, last: Option<Last>) -> Arc<Held> {
        Held::new(above, last, self.made.beside(), &self.ends)
    }

    /// What the copy has made in a directory; without one, in that which the user named.
    pub(crate) fn made_in(&self, held: Option<&Arc<Held>>) -> Arc<Made> {
        Arc::clone(held.map_or(&self.made, |held| &held.made))
    }

    /// Permissions that new files in a directory of a server may have, as is found out for the first of them. With
    /// `--preserve` that does not matter.
    ///
    /// # Errors
    ///
    /// The user wants the copy to end, or the server does not tell.
    pub(crate) async fn permitted(
        &self,
        nfs: &Nfs3<Client>,
        dir: FileHandle,
        known: &Permitted,
    ) -> anyhow::Result<u32> {
        let umask = self.options.umask;
        if self.options.preserves {
            return Ok(0o777 & !umask);
        }
        let ask = async {
            let permitted = self.lists.permitted(nfs, dir, umask).await;
            permitted.context("cannot read the default access control list of the directory")
        };
        let ask = || self.interrupt.unless(ask);
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
    /// [`Collision`](made::Collision): it is already, as another name led to it.
    pub(crate) async fn enter_once(
        &self,
        above: Option<&Arc<Held>>,
        is_contents: bool,
        (id, name): (made::FileId, &[u8]),
        is_listed: impl AsyncFnOnce() -> bool,
        to: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let made = self.made_in(above);
        // What is in several directories may go into one.
        if !is_contents {
            let may_collide = made.may_have(name);
            if made.has(id) || (may_collide && !is_listed().await) {
                return Err(anyhow!(made::Collision).context(to()));
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
        let options = Options {
            quiet: true,
            ..Options::default()
        };
        Copy::new(options, None).unwrap()
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
                        7 => Err(anyhow!("expected by a test")),
                        _ => Ok(()),
                    }
                })
                .await?;
            }
            Ok(())
        };
        assert_eq!(copy().all(find).await.unwrap(), Ended::Partly);
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 202);
        assert_eq!(order[200..], ["deep", "top"]);
    }
}
