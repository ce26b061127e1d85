//! Software iWARP that listens with sockets of the caller.

use crate::Iwarp;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use verbs::{BoxFuture, Listener, Provider, SetupError, WrapProvider};

/// Software iWARP that listens with sockets that listen already, at the addresses for which there are some, with each once: in
/// several VRFs they may have the same address.
pub(super) struct WithSockets {
    inner: Iwarp,
    sockets: Mutex<Vec<(SocketAddr, TcpListener)>>,
}

impl WithSockets {
    /// Software iWARP that listens with these, if there are any.
    pub(super) fn over(inner: Iwarp, sockets: Vec<(SocketAddr, TcpListener)>) -> Arc<dyn Provider> {
        match sockets.is_empty() {
            true => Arc::new(inner),
            false => Arc::new(Self {
                inner,
                sockets: Mutex::new(sockets),
            }),
        }
    }

    /// The next socket at an address, if there is one.
    fn take(&self, on: SocketAddr) -> Option<TcpListener> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let at = sockets.iter().position(|(addr, _)| *addr == on)?;
        Some(sockets.remove(at).1)
    }
}

impl WrapProvider for WithSockets {
    type Inner = Iwarp;

    fn inner(&self) -> &Iwarp {
        &self.inner
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            match self.take(on) {
                Some(socket) => Ok(self.inner.listen_with(socket)?),
                None => self.inner.listen(on).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[tokio::test]
    async fn sockets_with_one_address_are_each_listened_with_once() {
        let socket = |at: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&at.into()).unwrap();
            socket.listen(1).unwrap();
            TcpListener::from(socket)
        };
        let first = socket(([127, 0, 0, 1], 0).into());
        let at = first.local_addr().unwrap();
        let provider = WithSockets {
            inner: Iwarp::default(),
            sockets: Mutex::new(vec![(at, first), (at, socket(at))]),
        };
        for left in [1, 0] {
            let listener = provider.listen(at).await.unwrap();
            assert_eq!(listener.local_addr(), at);
            assert_eq!(provider.sockets.lock().unwrap().len(), left);
        }
        let elsewhere = provider.listen(([127, 0, 0, 1], 0).into()).await;
        assert_ne!(elsewhere.unwrap().local_addr(), at);
    }
}
