//! The result of an operation: available at once, or computed by a job.

use super::{Attributes, Error, Wcc};

/// A result, or the work that leads to it.
pub enum Outcome<T> {
    /// The result is available.
    Ready(T),
    /// The operation may block on a disk, and has to run on a thread that may.
    Slow(Box<dyn FnOnce() -> T + Send>),
}

impl<T: 'static> Outcome<T> {
    /// Runs the work, if there is any, on this thread.
    pub fn wait(self) -> T {
        match self {
            Self::Ready(value) => value,
            Self::Slow(job) => job(),
        }
    }

    /// The outcome with `then` applied to its result.
    pub fn map<U>(self, then: impl FnOnce(T) -> U + Send + 'static) -> Outcome<U> {
        match self {
            Self::Ready(value) => Outcome::Ready(then(value)),
            Self::Slow(job) => Outcome::Slow(Box::new(move || then(job()))),
        }
    }

    /// Whether it is there.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }
}

/// The result of an operation that changes nothing, and the attributes of the file it was for,
/// where they are known.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// Attributes after the operation.
    pub attributes: Option<Attributes>,
    /// The result.
    pub result: Result<T, Error>,
}

/// The result of an operation that changes one file or directory, and the attributes of that
/// before and after.
#[derive(Clone, Debug)]
pub struct Changed<T> {
    /// Attributes before and after.
    pub wcc: Wcc,
    /// The result.
    pub result: Result<T, Error>,
}

/// The result of renaming.
#[derive(Clone, Debug)]
pub struct Renamed {
    /// The directory the file was in.
    pub from: Wcc,
    /// The directory it is in.
    pub to: Wcc,
    /// The result.
    pub result: Result<(), Error>,
}

/// The result of linking.
#[derive(Clone, Debug)]
pub struct Linked {
    /// Attributes of the file.
    pub attributes: Option<Attributes>,
    /// The directory.
    pub wcc: Wcc,
    /// The result.
    pub result: Result<(), Error>,
}

/// Results that can say that nothing came of it.
pub(crate) trait Failed {
    fn failed(error: Error) -> Self;
}

impl<T> Failed for Result<T, Error> {
    fn failed(error: Error) -> Self {
        Err(error)
    }
}

impl<T> Failed for Seen<T> {
    fn failed(error: Error) -> Self {
        Self {
            attributes: None,
            result: Err(error),
        }
    }
}

impl<T> Failed for Changed<T> {
    fn failed(error: Error) -> Self {
        Self {
            wcc: Wcc::default(),
            result: Err(error),
        }
    }
}

impl Failed for Renamed {
    fn failed(error: Error) -> Self {
        Self {
            from: Wcc::default(),
            to: Wcc::default(),
            result: Err(error),
        }
    }
}

impl Failed for Linked {
    fn failed(error: Error) -> Self {
        Self {
            attributes: None,
            wcc: Wcc::default(),
            result: Err(error),
        }
    }
}
