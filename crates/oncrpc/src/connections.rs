//! Registry of connections that a service can close.

use crate::ConnectionId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Registry of the open connections of one server or several, for a service that closes some.
///
/// Clones share the registry. The service holds one, and each server is configured with another:
/// it [adds](Self::add) every connection before it passes the first call on.
///
/// ```
/// use oncrpc::{Caller, Connections};
/// use std::sync::mpsc::channel;
///
/// let connections = Connections::default();
/// let caller = Caller::new("192.0.2.1:700".parse()?);
/// // What a server does:
/// let (close, closed) = channel();
/// let open = connections.add(caller.connection, move || close.send(()).unwrap());
///
/// // What a service does:
/// assert!(connections.close(caller.connection));
/// assert_eq!(closed.try_recv(), Ok(()));
/// drop(open);
/// assert!(!connections.close(caller.connection), "it has ended");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Connections {
    open: Arc<Mutex<HashMap<ConnectionId, Close>>>,
}

type Close = Box<dyn FnOnce() + Send>;

/// The entry of an open connection in a registry. Dropping it removes the entry.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Connections,
    connection: ConnectionId,
}

impl Connections {
    /// Adds a connection. `close` is called at most once, on the thread of the service: it must not
    /// wait, and the server then ends the connection. Replies that the service has given are sent
    /// before that, as far as the client accepts them; calls in service are dropped.
    pub fn add(
        &self,
        connection: ConnectionId,
        close: impl FnOnce() + Send + 'static,
    ) -> OpenConnection {
        self.lock().insert(connection, Box::new(close));
        OpenConnection {
            connections: self.clone(),
            connection,
        }
    }

    /// Tells the server to end a connection. Returns false if it has ended, is being closed, or is
    /// none of the registry.
    ///
    /// The service learns of the end as of any other: by
    /// [`Service::connection_ended`](crate::Service::connection_ended).
    pub fn close(&self, connection: ConnectionId) -> bool {
        let close = self.lock().remove(&connection);
        match close {
            Some(close) => {
                close();
                true
            }
            None => false,
        }
    }

    /// Number of open connections that are not being closed.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is no open connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, Close>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("len", &self.len())
            .finish()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        // What the closure holds is dropped without the lock.
        let entry = self.connections.lock().remove(&self.connection);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caller;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn connection_is_closed_once_and_no_other_with_it() {
        let connections = Connections::default();
        let closed = Arc::new(AtomicUsize::new(0));
        let add = || {
            let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
            let closed = Arc::clone(&closed);
            let open = connections.add(connection, move || {
                closed.fetch_add(1, Relaxed);
            });
            (connection, open)
        };
        let ((first, open), (_second, _open)) = (add(), add());
        assert!(connections.close(first));
        assert!(!connections.close(first));
        assert_eq!((closed.load(Relaxed), connections.len()), (1, 1));
        drop(open);
        assert_eq!(connections.len(), 1);
    }

    #[test]
    fn service_may_close_a_connection_whose_closing_uses_the_registry() {
        let connections = Connections::default();
        let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
        let inner = connections.clone();
        let _open = connections.add(connection, move || assert!(inner.is_empty()));
        assert!(connections.close(connection));
    }
}
