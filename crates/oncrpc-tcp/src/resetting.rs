//! Output of a connection that is reset at its end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;

/// The half of a socket for output, whose drop ends nothing.
///
/// Otherwise it would end its direction gracefully, before the socket is closed: the peer may answer
/// that in between, and the local port is reserved in spite of the reset.
pub(crate) struct Resetting(Option<OwnedWriteHalf>);

impl Resetting {
    pub(crate) fn new(output: OwnedWriteHalf) -> Self {
        Self(Some(output))
    }

    fn half(&mut self) -> io::Result<Pin<&mut OwnedWriteHalf>> {
        let half = self.0.as_mut().map(Pin::new);
        half.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        if let Some(half) = self.0.take() {
            half.forget();
        }
    }
}

impl AsyncWrite for Resetting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.half()?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.half()?.poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_shutdown(cx)
    }
}
