//! The result of an operation: available at once, or computed by a job.

use super::{Attributes, Error, Wcc};

/// A result, or the work that computes it.
pub enum Outcome<T> {
    /// The result is available.
    Ready(T),
    /// The operation may block on a disk, and must run on a thread that may wait.
    Slow(Box<dyn FnOnce() -> T + Send>),
    /// Like [`Slow`](Self::Slow), but the result comes later, for instance after a sync that is
    /// shared with others. The thread is free meanwhile.
    Deferred(Deferred<T>),
}

/// An operation that passes its result on later, from any thread.
pub type Deferred<T> = Box<dyn FnOnce(Then<T>) + Send>;

/// Consumer of the result of an operation; dropped if the operation panics.
pub type Then<T> = Box<dyn FnOnce(T) + Send>;

impl<T: Send + 'static> Outcome<T> {
    /// Runs the work, if there is any, on this thread.
    ///
    /// # Panics
    ///
    /// If the work panics.
    pub fn wait(self) -> T {
        match self {
            Self::Ready(value) => value,
            Self::Slow(job) => job(),
            Self::Deferred(job) => {
                let (done, result) = std::sync::mpsc::channel();
                job(Box::new(move |value| drop(done.send(value))));
                result
                    .recv()
                    .expect("an operation that does not panic has a result")
            }
        }
    }

    /// Applies `then` to the result.
    pub fn map<U: 'static>(self, then: impl FnOnce(T) -> U + Send + 'static) -> Outcome<U> {
        match self {
            Self::Ready(value) => Outcome::Ready(then(value)),
            Self::Slow(job) => Outcome::Slow(Box::new(move || then(job()))),
            Self::Deferred(job) => Outcome::Deferred(Box::new(move |next| {
                job(Box::new(move |value| next(then(value))));
            })),
        }
    }

    /// Whether the result is available.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }
}

/// Result of a read-only operation, with the attributes of its file, if known.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// Attributes after the operation.
    pub attributes: Option<Attributes>,
    /// The result.
    pub result: Result<T, Error>,
}

impl<T> Seen<T> {
    /// A result, with the attributes of the file that it is about.
    pub fn new(attributes: Attributes, result: T) -> Self {
        Self {
            attributes: Some(attributes),
            result: Ok(result),
        }
    }

    /// A failure, without attributes.
    pub fn failed(error: Error) -> Self {
        Self {
            attributes: None,
            result: Err(error),
        }
    }
}

impl<T> Changed<T> {
    /// A failure, without attributes.
    pub fn failed(error: Error) -> Self {
        Self {
            wcc: Wcc::default(),
            result: Err(error),
        }
    }
}

/// Result of an operation that changes one file or directory, with its attributes before and after.
#[derive(Clone, Debug)]
pub struct Changed<T> {
    /// Attributes before and after.
    pub wcc: Wcc,
    /// The result.
    pub result: Result<T, Error>,
}

/// Result of a rename.
#[derive(Clone, Debug)]
pub struct Renamed {
    /// The source directory.
    pub from: Wcc,
    /// The target directory.
    pub to: Wcc,
    /// The result.
    pub result: Result<(), Error>,
}

/// Result of a link operation.
#[derive(Clone, Debug)]
pub struct Linked {
    /// Attributes of the file.
    pub attributes: Option<Attributes>,
    /// The directory.
    pub wcc: Wcc,
    /// The result.
    pub result: Result<(), Error>,
}

/// A result that can be a failure.
pub(crate) trait Failed {
    fn failed(error: Error) -> Self;
}

/// The result of a change. A change that was made fails too if it cannot be made durable.
pub(crate) trait Change: Failed {
    /// Returns the result with this error, unless it has one already.
    fn but(self, error: Error) -> Self;
}

impl<T> Change for Changed<T> {
    fn but(self, error: Error) -> Self {
        Self {
            result: self.result.and(Err(error)),
            ..self
        }
    }
}

impl Change for Renamed {
    fn but(self, error: Error) -> Self {
        Self {
            result: self.result.and(Err(error)),
            ..self
        }
    }
}

impl Change for Linked {
    fn but(self, error: Error) -> Self {
        Self {
            result: self.result.and(Err(error)),
            ..self
        }
    }
}

impl<T> Failed for Result<T, Error> {
    fn failed(error: Error) -> Self {
        Err(error)
    }
}

impl<T> Failed for Seen<T> {
    fn failed(error: Error) -> Self {
        Self::failed(error)
    }
}

impl<T> Failed for Changed<T> {
    fn failed(error: Error) -> Self {
        Self::failed(error)
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
