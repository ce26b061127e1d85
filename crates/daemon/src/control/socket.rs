//! The control socket of a running service, which answers requests of this machine.

use super::{MAX_REQUEST, Request, socket_name};
use crate::reports::Tells;
use crate::systemd;
use printing::json;
use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Requests that are answered at a time; further ones wait in the socket.
const MAX_REQUESTS: usize = 8;

/// How long a client may take to ask, and to read the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that wait for their turn.
const BACKLOG: i32 = 16;

/// After a failure to accept, such as no file descriptor being left, this long nothing is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The control socket of a server that listens there: in the runtime directory that systemd made, or else
/// where the state is.
pub(crate) fn default_path(state_dir: Option<&Path>, listening: SocketAddr) -> Option<PathBuf> {
    let dir = systemd::runtime_dir().or_else(|| state_dir.map(Path::to_owned))?;
    Some(dir.join(socket_name(&listening.to_string())))
}

/// A control socket, gone when this is dropped.
pub(crate) struct Control {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Control {
    /// Answers there from now on.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made, or another server has it.
    pub(crate) fn start(path: &Path, observed: Arc<dyn Tells>) -> io::Result<Self> {
        let listener = listen(path)?;
        Ok(Self {
            path: path.to_owned(),
            task: tokio::spawn(serve(listener, observed)),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens at a path that only this user can connect to.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux gives the file the mode of the socket: it never has another one (unix(7), bind).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    if let Err(error) = socket.bind(&address) {
        if error.kind() != io::ErrorKind::AddrInUse || BlockingUnixStream::connect(path).is_ok() {
            return Err(error);
        }
        // A server was killed that had it, if it is a socket.
        if !path.symlink_metadata()?.file_type().is_socket() {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(
        std::os::fd::OwnedFd::from(socket),
    ))
}

async fn serve(listener: UnixListener, observed: Arc<dyn Tells>) {
    let places = Arc::new(Semaphore::new(MAX_REQUESTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to the control socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let observed = Arc::clone(&observed);
        tokio::spawn(async move {
            let answered = tokio::time::timeout(TIMEOUT, answer(stream, observed)).await;
            let answered = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if let Err(error) = answered {
                tracing::debug!(%error, "a request to the control socket was not answered");
            }
            drop(place);
        });
    }
}

async fn answer(mut stream: UnixStream, observed: Arc<dyn Tells>) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = Vec::new();
    BufReader::new(read.take(MAX_REQUEST))
        .read_until(b'\n', &mut line)
        .await?;
    let mut reply = match serde_json::from_slice(&line) {
        Ok(Request::Stats) => observed.stats(),
        Ok(Request::Clients) => observed.clients(),
        Ok(Request::Nfs4Clients) => observed.nfs4_clients(),
        Ok(Request::Held { client }) => {
            // The paths of files may have to be read from a disk.
            let held = move || observed.held(client.as_deref());
            let held = tokio::task::spawn_blocking(held);
            held.await.map_err(io::Error::other)?
        }
        Ok(Request::State { action }) => observed.state(action.as_ref()),
        Err(error) => json::line(&serde_json::json!({ "error": error.to_string() })),
    }?;
    reply.push('\n');
    write.write_all(reply.as_bytes()).await?;
    write.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn only_the_user_of_the_server_may_connect_and_left_sockets_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(socket_name("127.0.0.1:1"));
        for _ in 0..2 {
            // Dropped, the listener leaves its file, as a server that was killed.
            let listener = listen(&path).unwrap();
            let about = path.metadata().unwrap();
            assert!(about.file_type().is_socket());
            assert_eq!(about.permissions().mode() & 0o777, 0o600);
            let taken = listen(&path).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            drop(listener);
        }
    }

    #[tokio::test]
    async fn file_that_is_no_socket_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, "data").unwrap();
        let taken = listen(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }
}
