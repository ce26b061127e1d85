//! The layers of an export, from the volume up to the file handles.

use super::durability::Durability;
use super::handles::FileHandles;
use super::jobs_in_progress::JobsInProgress;
use super::open::Opening;
use super::open_files::OpenFiles;
use super::operations::listing_parts::Parts;
use super::operations::turns::Turns;
use super::rights::Rights;
use super::sys::Try;
use super::volume::Volume;
use crate::fs::{Failed, FileId, Outcome};
use buffer::Pool;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

/// The layers below the operations, and state that operations share. Each layer has references to
/// those below it that it may call, and to none above.
pub(super) struct Layers {
    pub(super) volume: Arc<Volume>,
    pub(super) files: Arc<OpenFiles>,
    pub(super) rights: Arc<Rights>,
    pub(super) durability: Arc<Durability>,
    pub(super) handles: FileHandles,
    pub(super) jobs: JobsInProgress,
    /// Calls in service that change the names in a directory, or the data or attributes of a file.
    pub(super) turns: Arc<Turns>,
    pub(super) listed: Parts,
    /// Memory for data that is read.
    pub(super) pool: Pool,
    /// Whether the file system supports writes that fail instead of waiting (`RWF_NOWAIT`).
    pub(super) quick_writes: AtomicBool,
}

impl Layers {
    /// Builds the layers on an opened directory.
    pub(super) fn over(opening: Opening) -> Self {
        let volume = Arc::new(opening.volume);
        let files = Arc::new(OpenFiles::new(
            Arc::clone(&volume),
            opening.root,
            opening.verifier.clone(),
            opening.open_files,
        ));
        let rights = Rights::new(Arc::clone(&volume), Arc::clone(&files), opening.process);
        let rights = Arc::new(rights);
        let turns = Turns::of(opening.device, volume.changes.in_flight());
        Self {
            durability: Arc::new(Durability::new(
                Arc::clone(&volume),
                Arc::clone(&files),
                Arc::clone(&rights),
                opening.verifier,
                opening.changes,
            )),
            handles: FileHandles::new(
                Arc::clone(&volume),
                Arc::clone(&files),
                opening.resolver,
                opening.device,
            ),
            volume,
            files,
            rights,
            jobs: JobsInProgress::default(),
            turns,
            listed: Parts::new(),
            pool: opening.pool,
            quick_writes: AtomicBool::new(true),
        }
    }

    /// Makes a job that works on a file.
    pub(super) fn slow<T, F>(self: &Arc<Self>, file: FileId, op: F) -> Outcome<T>
    where
        T: Failed + 'static,
        F: FnOnce(&Self) -> Try<T> + Send + 'static,
    {
        let layers = Arc::clone(self);
        Outcome::Slow(Box::new(move || {
            let begun = layers.jobs.begin(file);
            let result = begun.and_then(|_work| op(&layers));
            let result = result.unwrap_or_else(|stop| T::failed(stop.into()));
            layers.files.shed_if_exhausted();
            result
        }))
    }

    /// Makes the handles of created and moved files durable, where changes are to be.
    pub(super) fn persist_places(&self) -> Try<()> {
        match self.durability.is_demanded() {
            true => self.handles.sync(),
            false => Ok(()),
        }
    }

    /// Starts the thread that ends rounds.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(super) fn start_rounds(self: &Arc<Self>) -> io::Result<()> {
        let sweeper = Arc::clone(self.files.sweeper());
        let layers = Arc::downgrade(self);
        let run = move || {
            while let Some(round) = sweeper.next_round() {
                let Some(layers) = Weak::upgrade(&layers) else {
                    return;
                };
                layers.end_round();
                // The one who closes the export waits for the round, and then has the last reference.
                drop(layers);
                drop(round);
            }
        };
        let thread = std::thread::Builder::new().name("nfs-sweeper".into());
        thread.spawn(run).map(drop)
    }

    /// Ends a round: closes files that were not used in the last complete one.
    pub(super) fn end_round(&self) {
        let round = self.files.begin_round();
        self.handles.begin_round(round.number);
        self.listed.begin_round(round.number);
        self.volume.look_who_can_reach();
        drop(round.lost);
        self.volume.changes.end_round();
        for gone in round.gone {
            self.handles.forget(&gone);
        }
        self.durability.close_idle_writers(round.number);
        for node in round.idle {
            if self.files.sweeper().is_ending() {
                return;
            }
            if let Some(gone) = self.files.close_idle(&node, round.number) {
                self.handles.forget(&gone);
            }
        }
        self.files.end_round();
    }
}
