//! RPC client over a byte stream.

use crate::config::ClientConfig;
use crate::dispatch::Dispatch;
use crate::driver::{Driver, TimeLimits};
use crate::input::Input;
use crate::keepalive;
use crate::record::Decoder;
use crate::resetting::Resetting;
use crate::shared::Shared;
use oncrpc::xdr::Payload;
use oncrpc::{Caller, Cause, ConnectionId, ReplyBound, Transport, TransportError};
use rpc_serving::ends::Stop;
use rpc_serving::jobs::{Jobs, MAX_BLOCKING};
use socket2::SockRef;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// One connection to a server, over which any number of calls are in flight at once, in both
/// directions: the server's calls go to the [service](ClientConfig::with_callbacks) of the client.
///
/// It does not reconnect: once the connection has ended, every call fails with
/// [`TransportError::Disconnected`].
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    local: Option<SocketAddr>,
    task: AbortHandle,
}

/// A failed connection to a server. Its source is the error of the system.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {what}")]
pub struct ConnectError {
    what: String,
    source: io::Error,
}

impl ConnectError {
    /// `what` is the address of the server, or the path of its socket.
    pub(crate) fn new(what: String, source: io::Error) -> Self {
        Self { what, source }
    }
}

impl Client {
    /// Connects to a TCP server. `deadline` is the time limit for connecting and for each call.
    ///
    /// # Errors
    ///
    /// [`TransportError::Unreachable`] if nobody answers at that address.
    pub async fn connect(addr: SocketAddr, deadline: Duration) -> Result<Self, TransportError> {
        Self::connect_with(addr, &ClientConfig::new(deadline)).await
    }

    /// Connects to a TCP server.
    ///
    /// # Errors
    ///
    /// [`TransportError::Unreachable`] if nobody answers at that address, or the
    /// [local port](ClientConfig::with_local_port) cannot be had.
    pub async fn connect_with(
        addr: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Self, TransportError> {
        let unreachable = |source| {
            let error = ConnectError::new(addr.to_string(), source);
            TransportError::Unreachable(error.into())
        };
        let connecting = config.local_port.connect(addr);
        let stream = tokio::time::timeout(config.connect_timeout, connecting)
            .await
            .map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?
            .map_err(unreachable)?;
        keepalive::prepare(&stream).map_err(unreachable)?;
        if config.reset_at_end {
            let options = SockRef::from(&stream);
            let reset = options.set_linger(Some(Duration::ZERO));
            reset.map_err(unreachable)?;
        }
        let local = stream.local_addr().ok();
        let (input, output) = stream.into_split();
        let output: Box<dyn AsyncWrite + Send + Unpin> = match config.reset_at_end {
            true => Box::new(Resetting::new(output)),
            false => Box::new(output),
        };
        let halves = (Box::new(input) as _, output);
        Ok(Self::run(halves, addr, local, config))
    }

    /// Makes a client over a connected stream, such as a Unix socket. `deadline` is the time limit
    /// of each call.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn over<S>(stream: S, deadline: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::over_with(stream, &ClientConfig::new(deadline))
    }

    /// Makes a client over a connected stream. The service for calls of the server sees the
    /// unspecified address as that of the caller.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn over_with<S>(stream: S, config: &ClientConfig) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (input, output) = tokio::io::split(stream);
        let halves = (Box::new(input) as _, Box::new(output) as _);
        Self::run(halves, (Ipv4Addr::UNSPECIFIED, 0).into(), None, config)
    }

    fn run(
        (input, output): (
            Box<dyn AsyncRead + Send + Unpin>,
            Box<dyn AsyncWrite + Send + Unpin>,
        ),
        peer: SocketAddr,
        local: Option<SocketAddr>,
        config: &ClientConfig,
    ) -> Self {
        let ends = Stop::default().join();
        let shared = Arc::new(Shared::new(
            output,
            Caller::new(peer),
            config.call_timeout,
            None,
            &ends,
        ));
        let decoder = Decoder::new(config.max_record).with_pool(config.pool.clone());
        let dispatch = Dispatch::new(
            Arc::clone(&shared),
            Arc::clone(&config.callbacks),
            &Jobs::new(MAX_BLOCKING),
            config.callbacks_in_flight,
            None,
            Arc::clone(&config.log),
        )
        .with_max_call(config.max_callback);
        let input = match &config.reply_memory {
            Some(memory) => Input::for_replies(input, decoder, Arc::clone(memory)),
            None => Input::new(input, decoder, None),
        };
        let driver = Driver::new(
            Arc::clone(&shared),
            input,
            dispatch,
            TimeLimits::default(),
            ends,
            false,
            || {},
        );
        Self {
            shared,
            local,
            task: tokio::spawn(driver).abort_handle(),
        }
    }

    /// Makes a call whose caller can take no larger reply than of so many bytes. A larger one above 64
    /// KiB is skipped as it arrives, if the client has a [budget](ClientConfig::with_reply_memory).
    ///
    /// # Errors
    ///
    /// As [`Transport::call`]; [`TransportError::TooLarge`] if the reply is skipped.
    pub async fn call_within(
        &self,
        call: Payload,
        max_reply: usize,
    ) -> Result<Payload, TransportError> {
        self.shared.exchange_in_time(call, max_reply).await
    }

    /// Waits for the end of the connection, and returns its cause: a
    /// [`ConnectionEnd`](crate::ConnectionEnd). The future does not keep the client alive.
    pub fn ended(&self) -> impl Future<Output = Cause> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move { shared.calls.ended().await }
    }

    /// Identifier of the connection in the calls that its
    /// [service](ClientConfig::with_callbacks) gets.
    pub fn connection(&self) -> ConnectionId {
        self.shared.caller.connection
    }

    /// Local address of a TCP connection.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }
}

impl Transport for Client {
    fn next_xid(&self) -> u32 {
        self.shared.calls.next_xid()
    }

    async fn call(&self, call: Payload, _: ReplyBound) -> Result<Payload, TransportError> {
        self.shared.exchange_in_time(call, usize::MAX).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}
