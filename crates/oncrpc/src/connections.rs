//! Registry of connections that a service can close.

use crate::ConnectionId;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Registry of the open connections of one server or several, for a service that closes some.
///
/// Clones share the registry. The service holds one, and each server is configured with another:
/// it [adds](Self::add) every connection before it passes the first call on.
///
/// ```
/// use oncrpc::{Caller, Closing, Connections};
/// use std::sync::mpsc::channel;
///
/// let connections = Connections::default();
/// let caller = Caller::new("192.0.2.1:700".parse()?);
/// // What a server does:
/// let (close, closed) = channel();
/// let open = connections.add(caller.connection, move |when| close.send(when).unwrap());
///
/// // What a service does:
/// assert!(connections.close(caller.connection));
/// assert_eq!(closed.try_recv(), Ok(Closing::AfterReplies));
/// drop(open);
/// assert!(!connections.close(caller.connection), "it has ended");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Connections {
    open: Arc<Mutex<HashMap<ConnectionId, Entry>>>,
}

/// When a server ends a connection that its service closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closing {
    /// Once the client has accepted the replies that the service has given, or its time for that is
    /// over.
    AfterReplies,
    /// At once. What the client has not accepted is lost.
    AtOnce,
}

type Close = Arc<dyn Fn(Closing) + Send + Sync>;

/// Number of bytes that the client has accepted.
type Accepted = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Takes queries about the replies on a connection.
type Ask = Arc<dyn Fn(DeliveryQuery) + Send + Sync>;

/// A query whether the client of a connection has received all replies that the service gave before
/// the query. The server [answers](Self::delivered) it, or drops it when it does not know in time or
/// the connection has ended.
pub struct DeliveryQuery(Option<Box<dyn FnOnce(bool) + Send>>);

impl DeliveryQuery {
    /// Reports that the client has received the replies.
    pub fn delivered(mut self) {
        if let Some(then) = self.0.take() {
            then(true);
        }
    }
}

impl Drop for DeliveryQuery {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(false);
        }
    }
}

impl fmt::Debug for DeliveryQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryQuery").finish_non_exhaustive()
    }
}

struct Entry {
    close: Close,
    accepted: Option<Accepted>,
    ask: Option<Ask>,
    /// The client, if it is known.
    peer: Option<SocketAddr>,
    /// The last order to the server.
    told: Option<Closing>,
}

/// The entry of an open connection in a registry. Dropping it removes the entry.
#[derive(Debug)]
pub struct OpenConnection {
    connections: Connections,
    connection: ConnectionId,
}

impl Connections {
    /// Adds a connection. `close` is called at most once for each way of closing, on the thread of
    /// the service: it must not wait, and the server then ends the connection. Calls in service are
    /// dropped with it.
    pub fn add(
        &self,
        connection: ConnectionId,
        close: impl Fn(Closing) + Send + Sync + 'static,
    ) -> OpenConnection {
        let entry = Entry {
            close: Arc::new(close),
            accepted: None,
            ask: None,
            peer: None,
            told: None,
        };
        self.lock().insert(connection, entry);
        OpenConnection {
            connections: self.clone(),
            connection,
        }
    }

    /// Tells the server to end a connection behind its replies. Returns false if it has ended, is
    /// being closed, or is none of the registry.
    ///
    /// The service learns of the end as of any other: by
    /// [`Service::connection_ended`](crate::Service::connection_ended).
    pub fn close(&self, connection: ConnectionId) -> bool {
        self.tell(connection, Closing::AfterReplies)
    }

    /// Tells the servers to end the connections of these clients behind their replies. Returns how many are not being closed
    /// already. Connections whose servers do not [name their clients](OpenConnection::of_peer) stay.
    pub fn close_those_of(&self, is_one: impl Fn(SocketAddr) -> bool) -> usize {
        let open = self.lock();
        let peers = open
            .iter()
            .filter_map(|(id, entry)| Some((*id, entry.peer?)));
        let those: Vec<ConnectionId> = peers
            .filter(|(_, peer)| is_one(*peer))
            .map(|(id, _)| id)
            .collect();
        drop(open);
        those.into_iter().filter(|id| self.close(*id)).count()
    }

    /// Tells the server to end a connection at once, also if it is being closed behind its replies.
    /// Returns false if it has ended, was told so before, or is none of the registry.
    pub fn abort(&self, connection: ConnectionId) -> bool {
        self.tell(connection, Closing::AtOnce)
    }

    fn tell(&self, connection: ConnectionId, what: Closing) -> bool {
        let mut open = self.lock();
        let entry = open.get_mut(&connection);
        let Some(entry) = entry.filter(|entry| entry.told < Some(what)) else {
            return false;
        };
        entry.told = Some(what);
        let close = Arc::clone(&entry.close);
        drop(open);
        close(what);
        true
    }

    /// Number of bytes that the client of a connection has accepted so far; `None` if the connection has
    /// ended, or its server does not [count](OpenConnection::counting_accepted) them.
    pub fn accepted(&self, connection: ConnectionId) -> Option<u64> {
        let counted = self.lock().get(&connection)?.accepted.clone();
        counted.map(|accepted| accepted())
    }

    /// Asks whether the client of a connection has received all replies that the service gave
    /// before. `then` is called once, on any thread and under no lock, and must not wait: with false
    /// if the connection has ended, its server does not
    /// [answer](OpenConnection::answering_queries), or it does not know within its time limit.
    pub fn ask_delivery(&self, connection: ConnectionId, then: impl FnOnce(bool) + Send + 'static) {
        let query = DeliveryQuery(Some(Box::new(then)));
        let open = self.lock();
        let ask = open.get(&connection).and_then(|entry| entry.ask.clone());
        drop(open);
        if let Some(ask) = ask {
            ask(query);
        }
    }

    /// Whether a connection is open.
    pub fn is_open(&self, connection: ConnectionId) -> bool {
        self.lock().contains_key(&connection)
    }

    /// Number of open connections that are not being closed.
    pub fn len(&self) -> usize {
        let open = self.lock();
        open.values().filter(|entry| entry.told.is_none()).count()
    }

    /// Whether there is no open connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionId, Entry>> {
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

impl OpenConnection {
    /// Has the registry know how many bytes the client has accepted. `accepted` must not wait.
    #[must_use]
    pub fn counting_accepted(self, accepted: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        if let Some(entry) = self.connections.lock().get_mut(&self.connection) {
            entry.accepted = Some(Arc::new(accepted));
        }
        self
    }

    /// Has the server answer queries whether the client has received its replies. `ask` must not
    /// wait.
    #[must_use]
    pub fn answering_queries(self, ask: impl Fn(DeliveryQuery) + Send + Sync + 'static) -> Self {
        if let Some(entry) = self.connections.lock().get_mut(&self.connection) {
            entry.ask = Some(Arc::new(ask));
        }
        self
    }

    /// Has the registry know the address of the client.
    #[must_use]
    pub fn of_peer(self, peer: SocketAddr) -> Self {
        if let Some(entry) = self.connections.lock().get_mut(&self.connection) {
            entry.peer = Some(peer);
        }
        self
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
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn connection_is_closed_once_and_no_other_with_it() {
        let connections = Connections::default();
        let closed = Arc::new(AtomicUsize::new(0));
        let add = || {
            let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
            let closed = Arc::clone(&closed);
            let open = connections.add(connection, move |_| {
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
    fn connection_that_is_being_closed_can_still_be_ended_at_once() {
        let connections = Connections::default();
        let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let _open = connections.add(connection, move |when| {
            tell.lock().expect("nobody panics").push(when);
        });
        assert!(connections.close(connection) && connections.abort(connection));
        assert!(!connections.abort(connection) && !connections.close(connection));
        let told = told.lock().expect("nobody panics");
        assert_eq!(*told, [Closing::AfterReplies, Closing::AtOnce]);
    }

    #[test]
    fn accepted_bytes_are_known_while_the_connection_is_open_if_its_server_counts_them() {
        let connections = Connections::default();
        let add = || {
            let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
            (connection, connections.add(connection, |_| ()))
        };
        let ((counted, open), (other, _open)) = (add(), add());
        let open = open.counting_accepted(|| 7);
        assert_eq!(connections.accepted(counted), Some(7));
        assert_eq!(connections.accepted(other), None);
        drop(open);
        assert_eq!(connections.accepted(counted), None);
    }

    #[test]
    fn query_about_replies_has_one_answer() {
        let connections = Connections::default();
        let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
        let answers = Arc::new(Mutex::new(Vec::new()));
        let ask = || {
            let answers = Arc::clone(&answers);
            connections.ask_delivery(connection, move |is| answers.lock().unwrap().push(is));
        };
        ask();
        assert!(!connections.is_open(connection));
        let open = connections.add(connection, |_| ());
        ask();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let queries = Arc::clone(&asked);
        let open = open.answering_queries(move |query| queries.lock().unwrap().push(query));
        ask();
        ask();
        assert!(connections.is_open(connection));
        assert_eq!(*answers.lock().unwrap(), [false; 2], "no server knew");
        asked.lock().unwrap().remove(0).delivered();
        drop((open, asked));
        assert_eq!(*answers.lock().unwrap(), [false, false, true, false]);
    }

    #[test]
    fn connections_of_some_clients_are_closed_and_no_others() {
        let connections = Connections::default();
        let add = |last| {
            let peer = ([192, 0, 2, last], 700).into();
            let open = connections.add(Caller::new(peer).connection, |_| ());
            open.of_peer(peer)
        };
        let _open = [add(1), add(1), add(2)];
        let _nameless = connections.add(Caller::new(([192, 0, 2, 1], 1).into()).connection, |_| ());
        let close = || connections.close_those_of(|peer| peer.ip() == IpAddr::from([192, 0, 2, 1]));
        assert_eq!((close(), connections.len()), (2, 2));
        assert_eq!(close(), 0, "they are being closed");
    }

    #[test]
    fn service_may_close_a_connection_whose_closing_uses_the_registry() {
        let connections = Connections::default();
        let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
        let inner = connections.clone();
        let _open = connections.add(connection, move |_| assert!(inner.is_empty()));
        assert!(connections.close(connection));
    }
}
