//! Metrics of a server in the text format of Prometheus, over HTTP.

pub(crate) mod families;
mod process;

use crate::listen;
use crate::reports::Tells;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use oncrpc::PeerGroup;
use prometheus::{TEXT_FORMAT, TextEncoder};
use rpc_serving::admission::{Admission, Admitted, ConnectionLimits};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Connections at a time. One more takes the place of one that has not sent a request yet, else of the one
/// whose last request is the oldest: who only holds connections open keeps nobody else from metrics.
const MAX_CONNECTIONS: usize = 16;

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may last: longer than some scrapes take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Most bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;

/// How long to wait for evicted connections to end before it is looked at again whether they have.
const LEAVING_PAUSE: Duration = Duration::from_millis(5);

/// After a failure to accept, such as no file descriptor being left, this long nothing is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address of `--metrics`: ADDR:PORT, or a port of this machine alone.
///
/// # Errors
///
/// If it is neither.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    listen::numeric(text)
        .parse()
        .map_err(|_| "it is neither a port nor an address with one, as localhost:9049 is".into())
}

/// A server of metrics, until it is dropped.
pub(crate) struct Metrics {
    /// Its address.
    pub(crate) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Metrics {
    /// Answers there from now on.
    ///
    /// # Errors
    ///
    /// If it cannot listen there.
    pub(crate) async fn start(on: SocketAddr, observed: Arc<dyn Tells>) -> io::Result<Self> {
        let listener = TcpListener::bind(on).await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(serve(listener, observed));
        Ok(Self { addr, task })
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, observed: Arc<dyn Tells>) {
    let limits = ConnectionLimits::new(MAX_CONNECTIONS, MAX_CONNECTIONS);
    let admission = Admission::new(limits.with_idle_giving_way());
    loop {
        while admission.is_crowded() {
            tokio::time::sleep(LEAVING_PAUSE).await;
        }
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (evict, evicted) = oneshot::channel();
        // Without a receiver the connection has ended by itself.
        let evict = || {
            let _ = evict.send(());
        };
        let Ok(admitted) = admission.admit(PeerGroup::of(peer.ip()), evict) else {
            continue;
        };
        let serving = serve_connection(stream, Arc::clone(&observed), admitted);
        tokio::spawn(async move {
            tokio::select! {
                served = tokio::time::timeout(CONNECTION_TIMEOUT, serving) => match served {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics failed"),
                    Err(_) => tracing::debug!("a connection for metrics was closed for its age"),
                },
                Ok(()) = evicted => {
                    tracing::debug!("a connection for metrics gave way to another one");
                }
            }
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    observed: Arc<dyn Tells>,
    admitted: Admitted,
) -> hyper::Result<()> {
    let admitted = Mutex::new(admitted);
    let service = service_fn(move |request| {
        // From now on it is idle for as long as its next request takes.
        let mut admitted = admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.set_up();
        drop(admitted);
        let reply = reply(&request, &*observed);
        async move { Ok::<_, Infallible>(reply) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn reply(request: &Request<Incoming>, observed: &dyn Tells) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "GET is what there is\n");
        let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
        reply.headers_mut().insert(ALLOW, allowed);
        return reply;
    }
    match TextEncoder::new().encode_to_string(&observed.metrics()) {
        Ok(text) => {
            let mut reply = Response::new(Full::from(text));
            let format = hyper::header::HeaderValue::from_static(TEXT_FORMAT);
            reply.headers_mut().insert(CONTENT_TYPE, format);
            reply
        }
        Err(error) => {
            tracing::error!(%error, "cannot write metrics");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot write metrics\n")
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = status;
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_one_of_this_machine() {
        let check = |text, expected: &str| {
            assert_eq!(parse(text).unwrap().to_string(), expected);
        };
        check("9049", "127.0.0.1:9049");
        check("0.0.0.0:9049", "0.0.0.0:9049");
        check("[::]:0", "[::]:0");
        check("localhost:9049", "127.0.0.1:9049");
        for text in ["", "localhost", "127.0.0.1", "70000"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
