//! `rpcrdma exports`: lists what a server exports, and for whom.

use crate::connect::ConnectArgs;
use crate::endpoint::Endpoint;
use crate::failure::Ended;
use anyhow::Context;
use clap::Args;
use nfs_client::{Error, ExportedDir, Fault, Mount, current_user, printable};
use nfs_proto::MOUNT_PORT;
use oncrpc::RpcError;
use serde::Serialize;
use std::io::{self, Write};
use std::net::SocketAddr;

/// List what a server exports, and for whom
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma exports 127.0.0.1
  rpcrdma exports --tcp files.example.org
      by MOUNT over TCP, as `showmount -e` asks
  rpcrdma exports --json 192.0.2.1:20049

A server is asked over RDMA, and over TCP where it does not answer MOUNT over RDMA.")]
pub(crate) struct ExportsArgs {
    /// HOST or HOST:PORT of the server
    #[arg(value_name = "HOST[:PORT]")]
    server: Endpoint,

    /// Port of MOUNT over TCP
    #[arg(long, value_name = "PORT", default_value_t = MOUNT_PORT, help_heading = "Connection")]
    mount_port: u16,

    /// Ask over TCP only
    #[arg(long)]
    tcp: bool,

    /// One JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// An export as a program reads it.
#[derive(Serialize)]
struct Line {
    path: String,
    clients: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(args: &ExportsArgs) -> anyhow::Result<Ended> {
    let exports = match args.tcp {
        true => args.ask_over_tcp().await?,
        false => args.ask().await?,
    };
    let mut out = io::stdout();
    if args.json {
        for export in &exports {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let line = Line {
                path: text(&export.path),
                clients: export.groups.iter().map(|name| text(name)).collect(),
            };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
    } else {
        out.write_all(table(&exports).as_bytes())?;
    }
    Ok(Ended::Well)
}

impl ExportsArgs {
    /// Asks over RDMA, and over TCP if MOUNT is not there.
    async fn ask(&self) -> anyhow::Result<Vec<ExportedDir>> {
        let (client, addr) = self.connect.connect(&self.server).await?;
        let asked = Mount::new(client.clone(), current_user()).exports().await;
        client.close().await;
        match asked {
            Err(Error {
                fault: Fault::Rpc(RpcError::ProgUnavail | RpcError::ProgMismatch { .. }),
                ..
            }) => {
                self.ask_at(SocketAddr::new(addr.ip(), self.mount_port))
                    .await
            }
            asked => asked.with_context(|| format!("the server at {addr}")),
        }
    }

    async fn ask_over_tcp(&self) -> anyhow::Result<Vec<ExportedDir>> {
        let host = &self.server.host;
        let addrs = self.server.resolve().await;
        let addrs = addrs.with_context(|| format!("cannot find the host {host}"))?;
        let mut last = anyhow::anyhow!("the host {host} has no address");
        for addr in addrs {
            match self
                .ask_at(SocketAddr::new(addr.ip(), self.mount_port))
                .await
            {
                Ok(exports) => return Ok(exports),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_at(&self, addr: SocketAddr) -> anyhow::Result<Vec<ExportedDir>> {
        let client = oncrpc_tcp::Client::connect(addr, self.connect.timeout)
            .await
            .with_context(|| {
                format!(
                    "nobody answers MOUNT over TCP at {addr}: say with --mount-port where it is \
                     (`rpcinfo -p` shows it)"
                )
            })?;
        let asked = Mount::new(client, current_user()).exports().await;
        asked.with_context(|| format!("the server at {addr}"))
    }
}

/// One line for each export: its path, and for whom it is.
fn table(exports: &[ExportedDir]) -> String {
    let paths: Vec<String> = exports
        .iter()
        .map(|export| printable(&export.path).to_string())
        .collect();
    let width = paths.iter().map(|path| path.chars().count()).max();
    let width = width.unwrap_or(0).min(MAX_WIDTH);
    let mut text = String::new();
    for (path, export) in paths.iter().zip(exports) {
        let names = export.groups.iter();
        let names: Vec<String> = names.map(|name| printable(name).to_string()).collect();
        let clients = match names.is_empty() {
            true => "everybody".to_owned(),
            false => names.join(","),
        };
        text += &format!("{path:width$}  {clients}\n");
    }
    text
}

/// Columns for paths; longer ones push their clients to the right.
const MAX_WIDTH: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn export(path: &[u8], groups: &[&[u8]]) -> ExportedDir {
        ExportedDir {
            path: path.to_vec(),
            groups: groups.iter().map(|group| group.to_vec()).collect(),
        }
    }

    #[test]
    fn table_shows_paths_and_clients_and_no_control_characters() {
        let exports = [
            export(b"/data", &[b"192.0.2.0/24", b"laptop"]),
            export(b"/a\x1b[2J", &[]),
        ];
        assert_eq!(
            table(&exports),
            "/data      192.0.2.0/24,laptop\n/a\\x1b[2J  everybody\n"
        );
        assert_eq!(table(&[]), "");
    }
}
