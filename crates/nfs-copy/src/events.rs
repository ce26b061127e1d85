//! Events of a copy, for programs that show them.

use crate::decide::Skip;
use crate::error::Error;
use std::fmt;
use std::io;

/// Receives the events of a copy. Several tasks call it, and wait for it: it must return soon.
///
/// All methods but [`failed`](Self::failed) do nothing unless they are implemented.
pub trait Events: Send + Sync {
    /// Counts what the plan has found: files, symbolic links included, and bytes of the files. What is
    /// [begun](Self::begun) is not told again.
    fn planned(&self, files: u64, bytes: u64) {
        let _ = (files, bytes);
    }

    /// One more file of this size, in bytes, is in flight.
    fn begun(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Bytes of files in flight were copied, holes included.
    fn transferred(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Bytes of files in flight need not be copied, as they are there already.
    fn already_there(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Something was done or, in a [dry run](crate::Options::dry_run), would be.
    ///
    /// # Errors
    ///
    /// The event cannot be shown. It counts as a failure of what it is about, and ends the copy if it is
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe): nobody reads of it any more.
    fn event(&self, event: &Event<'_>) -> io::Result<()> {
        let _ = event;
        Ok(())
    }

    /// Something could not be done. The copy goes on with the rest.
    fn failed(&self, error: Error);
}

/// An action of a copy. Files are displayed as local paths or URLs.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A file, symbolic link or special file was copied.
    Copied {
        /// The source.
        from: &'a dyn fmt::Display,
        /// The copy.
        to: &'a dyn fmt::Display,
    },
    /// A directory is made, and filled next.
    DirectoryMade {
        /// The source.
        from: &'a dyn fmt::Display,
        /// The copy.
        to: &'a dyn fmt::Display,
    },
    /// A file was left out, as the options have it.
    Skipped {
        /// The source.
        from: &'a dyn fmt::Display,
        /// The reason.
        why: Skip,
    },
    /// Something was removed at the destination with all that was in it, as the source lacks it.
    Removed {
        /// It.
        what: &'a dyn fmt::Display,
    },
    /// Something in a directory that the source lacks was removed, and the directory was not.
    NotRemoved {
        /// The directory, in which something is excluded.
        what: &'a dyn fmt::Display,
    },
}
