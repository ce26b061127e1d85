//! The error behind the failure of a transport.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Error that ended a connection or prevented it, shared by all calls that failed with it.
///
/// [`error`](Self::error) returns it for a downcast to the type of the transport. Two causes are
/// equal if their messages are equal, sources included.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// The error itself.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Cause {
    fn from(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The messages of the error and its sources.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Chain(&*self.0))
    }
}

/// An error with its sources, displayed in one line with colons between them: for logs and other
/// messages, since the message of an error does not repeat those of its sources.
///
/// ```
/// use oncrpc::{Chain, TransportError};
/// use std::io;
///
/// let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
/// let error = TransportError::Disconnected(refused.into());
/// assert_eq!(error.to_string(), "the connection ended");
/// assert_eq!(Chain(&error).to_string(), "the connection ended: connection refused");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::TransportError;
    use std::error::Error;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Outer(#[source] io::Error);

    fn refused() -> Outer {
        Outer(io::Error::from(io::ErrorKind::ConnectionRefused))
    }

    #[test]
    fn error_and_its_sources_are_each_said_once_and_keep_their_types() {
        let chain = |error: &dyn Error| {
            let mut said = vec![error.to_string()];
            let mut next = error.source();
            while let Some(source) = next {
                said.push(source.to_string());
                next = source.source();
            }
            said
        };
        let unreachable = TransportError::Unreachable(refused().into());
        assert_eq!(
            chain(&unreachable),
            ["cannot connect", "connection refused"]
        );
        let source = unreachable.source().unwrap();
        assert!(source.downcast_ref::<io::Error>().is_some());

        let ended = TransportError::Disconnected(refused().into());
        let said = [
            "the connection ended",
            "cannot connect",
            "connection refused",
        ];
        assert_eq!(chain(&ended), said);
        assert!(ended.source().unwrap().downcast_ref::<Outer>().is_some());
        assert_eq!(chain(&TransportError::Refused("no")).len(), 1);
    }

    #[test]
    fn causes_are_compared_with_their_sources() {
        let unreachable = |error: io::ErrorKind| {
            TransportError::Unreachable(Outer(io::Error::from(error)).into())
        };
        let refused = unreachable(io::ErrorKind::ConnectionRefused);
        assert_eq!(refused, refused.clone());
        assert_eq!(refused, unreachable(io::ErrorKind::ConnectionRefused));
        assert_ne!(refused, unreachable(io::ErrorKind::TimedOut));
    }
}
