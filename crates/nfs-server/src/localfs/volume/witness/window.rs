//! The time between the looks before and after a change of names by a client, and whether anybody else changed the directory in it.

use super::{Kind, Number, State, Watched, Watches};
use crate::fs::Attributes;
use std::sync::Arc;

/// A change of names by a client that is in flight.
pub(in crate::localfs) struct Window {
    pub(super) watches: Arc<Watches>,
    pub(super) id: u64,
    /// Sequence number of the state before the change.
    pub(super) sequence: u64,
}

impl Window {
    /// Returns the value of the state before the change, valid if nobody else changes the directory in the window: the one that
    /// it has, or the one that is made of its number. `None` if somebody did already.
    pub(in crate::localfs::volume) fn before(
        &self,
        attributes: &Attributes,
        value_of: impl FnOnce(Number) -> u64,
    ) -> Option<u64> {
        let mut state = self.watches.state();
        let watched = state.directories.get(self.id)?;
        let is_same = watched.watch.is_some() && watched.sequence == self.sequence;
        is_same.then(|| watched.tell(attributes, (false, true), value_of))
    }

    /// Reads the events, and returns whether they are exactly those of the `own` change, and it is `certain`, which is asked
    /// afterwards.
    pub(in crate::localfs::volume) fn end(
        self,
        own: &[Kind],
        certain: impl FnOnce() -> bool,
    ) -> bool {
        self.ended(own, certain, |_| ()).is_some()
    }

    /// As [`end`](Self::end), and returns the value of the state after the change, which has these attributes.
    pub(in crate::localfs::volume) fn end_telling(
        self,
        own: &[Kind],
        certain: impl FnOnce() -> bool,
        attributes: &Attributes,
        value_of: impl FnOnce(Number) -> u64,
    ) -> Option<u64> {
        self.ended(own, certain, |watched| {
            watched.tell(attributes, (false, true), value_of)
        })
    }

    fn ended<T>(
        &self,
        own: &[Kind],
        certain: impl FnOnce() -> bool,
        tell: impl FnOnce(&mut Watched) -> T,
    ) -> Option<T> {
        let mut state = self.watches.state();
        state.read_events();
        state.own(self.id, own)?;
        drop(state);
        let is_certain = certain();
        let mut state = self.watches.state();
        // Others may have read more events.
        let watched = state.own(self.id, own)?;
        if !is_certain {
            watched.note(Kind::Other);
            return None;
        }
        watched.foreign = 0;
        watched.attributes = 0;
        Some(tell(watched))
    }
}

impl State {
    /// Returns a directory of which the events in the window are exactly those of a change.
    fn own(&mut self, id: u64, own: &[Kind]) -> Option<&mut Watched> {
        let watched = self.directories.get(id)?;
        let events = watched.window.as_deref()?;
        // A watch that does not tell of a change that was made is none.
        if events.is_empty() && !own.is_empty() {
            self.forget(id);
            return None;
        }
        let is_own = events == own && watched.watch.is_some();
        // Borrowed once more, as one that is forgotten cannot be returned.
        is_own.then(|| self.directories.get(id))?
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(watched) = self.watches.state().directories.get(self.id) {
            watched.window = None;
        }
    }
}
