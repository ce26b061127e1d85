//! Requests to the servers and gateways that run on this machine.

use super::{GatewayStatus, Request, ServerStatus, Status};
use anyhow::{Context, anyhow, bail};
use nfs_server::default_state_dir;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Most bytes of a reply: each of the connections that a server may have takes some hundred.
const MAX_REPLY: u64 = 64 << 20;

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Directories in which services of systemd have their sockets and their state.
const OF_SERVICES: [&str; 3] = ["/run/rpcrdma", "/run/rpcrdma-gateway", "/var/lib/rpcrdma"];

/// Control sockets of all servers and gateways that run on this machine and that this user may ask, in order.
///
/// # Errors
///
/// If there is none.
pub async fn all() -> anyhow::Result<Vec<PathBuf>> {
    let dirs = usual_places();
    let (mut found, mut denied) = (BTreeSet::new(), None);
    for path in dirs.iter().flat_map(|dir| sockets_in(dir)) {
        match UnixStream::connect(&path).await {
            Ok(_) => {
                found.insert(path);
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = Some(path),
            // It is left of a server that was killed, or not ours.
            Err(_) => {}
        }
    }
    if !found.is_empty() {
        return Ok(found.into_iter().collect());
    }
    let closed = |dir: &&PathBuf| {
        let read = std::fs::read_dir(dir);
        read.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    if let Some(path) = denied.or_else(|| dirs.iter().find(closed).cloned()) {
        bail!("{}: {DENIED}", path.display());
    }
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    bail!(
        "found no server or gateway that this user may query: there is no control socket in {} (name it with --socket; a \
         server without a state directory needs --control-socket)",
        dirs.join(", ")
    )
}

/// Statistics of the server with this control socket, or of the only server on this machine. Gateways that run beside it do
/// not matter. Without a server, those of a gateway.
///
/// # Errors
///
/// If there is no server, or more than one, or it does not answer.
pub async fn stats_of_one(socket: Option<&Path>) -> anyhow::Result<Status> {
    Ok(one(socket).await?.1)
}

/// The control socket of the server that has this one, or of the only server on this machine, with its statistics. Without a
/// server, it is that of a gateway.
///
/// # Errors
///
/// If there is no server, or more than one, or it does not answer.
pub async fn one(socket: Option<&Path>) -> anyhow::Result<(PathBuf, Status)> {
    let paths = match socket {
        Some(path) => vec![path.to_owned()],
        None => all().await?,
    };
    let mut asked = Vec::new();
    for path in paths {
        let (_, status) = ask::<Status>(&path, Request::Stats).await?;
        asked.push((path, status));
    }
    let is_server = |(_, status): &&(_, _)| matches!(status, Status::Server(_));
    let servers: Vec<_> = asked.iter().filter(is_server).collect();
    if servers.len() > 1 {
        let named = servers
            .iter()
            .map(|(path, status)| format!("{} ({status})", path.display()));
        let named: Vec<String> = named.collect();
        bail!(
            "several servers run here: select one with --socket, of {}",
            named.join(", ")
        );
    }
    let found = asked.iter().position(|asked| is_server(&asked));
    Ok(asked.swap_remove(found.unwrap_or(0)))
}

/// Asks the server with this control socket. Returns the reply as JSON, and parsed.
///
/// # Errors
///
/// If nobody has it, or it does not answer.
pub async fn ask<T: DeserializeOwned>(
    path: &Path,
    request: Request,
) -> anyhow::Result<(String, T)> {
    let stream = connect(path).await?;
    let at = || path.display().to_string();
    let reply = tokio::time::timeout(TIMEOUT, exchange(stream, request)).await;
    let reply = reply.context("the server does not answer").flatten();
    let reply = reply.with_context(at)?;
    let parsed = serde_json::from_str(&reply)
        .context("cannot understand the server: it may be of another version")
        .with_context(at)?;
    Ok((reply, parsed))
}

async fn exchange(mut stream: UnixStream, request: Request) -> anyhow::Result<String> {
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut reply = String::new();
    let len = stream.take(MAX_REPLY).read_to_string(&mut reply).await?;
    if len == 0 {
        bail!("the server has too many to answer: try again");
    }
    reply.truncate(reply.trim_end().len());
    Ok(reply)
}

/// The servers that this user may ask, of those with a control socket in a usual place or in one of these.
pub async fn running(also_in: impl Iterator<Item = &Path>) -> Vec<ServerStatus> {
    let also_in = also_in.map(Path::to_owned);
    let dirs: Vec<PathBuf> = usual_places().into_iter().chain(also_in).collect();
    all_at(dirs.iter().flat_map(|dir| sockets_in(dir)).collect()).await
}

/// The gateways that this user may ask, of those with a control socket in a usual place or at this one.
pub async fn gateways(also: Option<&Path>) -> Vec<GatewayStatus> {
    let dirs = usual_places();
    let sockets = dirs.iter().flat_map(|dir| sockets_in(dir));
    all_at(sockets.chain(also.map(Path::to_owned)).collect()).await
}

/// Replies of those with these control sockets that answer in this form.
async fn all_at<T: DeserializeOwned>(paths: BTreeSet<PathBuf>) -> Vec<T> {
    let mut running = Vec::new();
    for path in paths {
        // Others are left of servers that were killed, or of another version.
        running.extend(ask(&path, Request::Stats).await.map(|(_, status)| status));
    }
    running
}

fn usual_places() -> Vec<PathBuf> {
    let services = OF_SERVICES.iter().map(PathBuf::from);
    services.chain(default_state_dir()).collect()
}

fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.file_type().is_socket())
}

async fn connect(path: &Path) -> anyhow::Result<UnixStream> {
    let connected = UnixStream::connect(path).await;
    connected.map_err(|error| {
        let shown = path.display();
        match error.kind() {
            ErrorKind::PermissionDenied => anyhow!("{shown}: {DENIED}"),
            ErrorKind::NotFound => {
                anyhow!("{shown}: there is no control socket (`serve --json` and `gateway --json` print where it is)")
            }
            ErrorKind::ConnectionRefused if !is_socket(path) => {
                anyhow!("{shown}: it is not a control socket")
            }
            ErrorKind::ConnectionRefused => {
                anyhow!("{shown}: the server that had this control socket has ended")
            }
            _ => anyhow::Error::new(error).context(format!("{shown}: cannot query the server")),
        }
    })
}

/// Message for a server that this user may not ask.
const DENIED: &str = "this user may not query the server (use sudo, or be the user who runs it)";

/// Files in a directory with the name of a control socket, in order.
fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    // Without the directory there are none.
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_control_socket(path))
        .collect();
    paths.sort();
    paths
}

fn is_control_socket(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("control-") && name.ends_with(".sock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::socket_name;

    #[test]
    fn control_sockets_are_told_from_other_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "key",
            "control-127.0.0.1:20049.sock",
            "control.sock",
            "b.sock",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = sockets_in(dir.path());
        assert_eq!(found, [dir.path().join(socket_name("127.0.0.1:20049"))]);
        assert!(sockets_in(&dir.path().join("none")).is_empty());
    }
}
