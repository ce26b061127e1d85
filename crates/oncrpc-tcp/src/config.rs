//! Configuration of a client.

use crate::{LocalPort, ReplyMemory, WarningLog};
use buffer::Pool;
use oncrpc::{Programs, Service};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Largest size of a record from the server: above the largest NFS READ in use, with room for its
/// header.
const MAX_REPLY: usize = (4 << 20) + 4096;

/// Calls of the server in service at a time. Further ones wait in the socket.
const CALLBACKS_IN_FLIGHT: usize = 64;

/// Configuration of a [`Client`](crate::Client).
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// Time limit of each call.
    pub call_timeout: Duration,
    /// Largest size of a record from the server in bytes, a reply or a call. A larger one ends the
    /// connection.
    pub max_record: usize,
    /// Service for calls of the server, on the same connection (RFC 8881 §2.10.3.1). Without one
    /// they are answered with PROG_UNAVAIL (RFC 5531 §9).
    pub callbacks: Arc<dyn Service>,
    /// Largest number of calls of the server in service at a time. Further ones wait in the socket,
    /// unless the reply to a call of the client may be behind them: then as many are taken and wait.
    pub callbacks_in_flight: usize,
    /// Largest size of a call of the server in bytes. A larger one ends the connection.
    pub max_callback: usize,
    /// Local address and port.
    pub local_port: LocalPort,
    /// Whether the end of the client resets its connection. What is not sent by then is lost, and the
    /// local port can be used again at once; after a graceful end it is reserved for a minute (RFC
    /// 9293 §3.6.1).
    pub reset_at_end: bool,
    /// Pool for the memory of large records; without one they are allocated one by one.
    pub pool: Option<Pool>,
    /// Budget for the replies; without one they are read as they come.
    pub reply_memory: Option<Arc<dyn ReplyMemory>>,
    /// Limits the warnings about servers, of all clients with a clone of the configuration together.
    pub log: Arc<WarningLog>,
}

impl ClientConfig {
    /// Creates a configuration with one time limit for connecting and for each call.
    pub fn new(deadline: Duration) -> Self {
        Self {
            connect_timeout: deadline,
            call_timeout: deadline,
            max_record: MAX_REPLY,
            callbacks: Arc::new(Programs::new()),
            callbacks_in_flight: CALLBACKS_IN_FLIGHT,
            max_callback: usize::MAX,
            local_port: LocalPort::Any,
            reset_at_end: false,
            pool: None,
            reply_memory: None,
            log: Arc::default(),
        }
    }

    /// Sets the [time limit of each call](Self::call_timeout).
    #[must_use]
    pub fn with_call_timeout(self, call_timeout: Duration) -> Self {
        Self {
            call_timeout,
            ..self
        }
    }

    /// Sets the [largest record](Self::max_record) in bytes.
    #[must_use]
    pub fn with_max_record(self, max_record: usize) -> Self {
        Self { max_record, ..self }
    }

    /// Sets the [service for calls of the server](Self::callbacks).
    #[must_use]
    pub fn with_callbacks(self, callbacks: Arc<dyn Service>) -> Self {
        Self { callbacks, ..self }
    }

    /// Sets how many calls of the server may be [in service](Self::callbacks_in_flight), and the
    /// [largest](Self::max_callback) in bytes.
    #[must_use]
    pub fn with_callback_limits(self, in_flight: usize, max_callback: usize) -> Self {
        Self {
            callbacks_in_flight: in_flight,
            max_callback,
            ..self
        }
    }

    /// Sets the [local address and port](Self::local_port).
    #[must_use]
    pub fn with_local_port(self, local_port: LocalPort) -> Self {
        Self { local_port, ..self }
    }

    /// Sets whether the end [resets the connection](Self::reset_at_end).
    #[must_use]
    pub fn with_reset_at_end(self, reset_at_end: bool) -> Self {
        Self {
            reset_at_end,
            ..self
        }
    }

    /// Sets [what limits warnings](Self::log).
    #[must_use]
    pub fn with_log(self, log: Arc<WarningLog>) -> Self {
        Self { log, ..self }
    }

    /// Sets the [budget for replies](Self::reply_memory).
    #[must_use]
    pub fn with_reply_memory(self, memory: Arc<dyn ReplyMemory>) -> Self {
        Self {
            reply_memory: Some(memory),
            ..self
        }
    }

    /// Sets the [pool](Self::pool).
    #[must_use]
    pub fn with_pool(self, pool: Pool) -> Self {
        Self {
            pool: Some(pool),
            ..self
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("max_record", &self.max_record)
            .field("callbacks_in_flight", &self.callbacks_in_flight)
            .field("max_callback", &self.max_callback)
            .field("local_port", &self.local_port)
            .field("reset_at_end", &self.reset_at_end)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
