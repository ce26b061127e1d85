//! `rpcrdma exports`: lists what a server exports, and for whom; of one on this machine, whether it is there.

use crate::connect::ConnectArgs;
use crate::control_args::OneControlArgs;
use crate::endpoint::{Endpoint, NO_ADDRESS, at_port};
use crate::failure::Ended;
use crate::output;
use crate::session::{has_no_mount, hint_of_gateway, mount_port};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::{Error, ExportedDir, Mount, current_user, printable};
use nfs_proto::{MOUNT_PORT, NFS_RDMA_PORT};
use oncrpc::Chain;
use printing::json;
use printing::table::Columns;
use rpcrdma_daemon::control::{ExportStatus, Status};
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;

/// List a server's exports and who may mount them
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma exports 127.0.0.1
      as clients see them
  rpcrdma exports
      of the server on this machine: also their directories,
      squashing, and absent exports
  rpcrdma exports --tcp files.example.org
      by MOUNT over TCP, as showmount(8) does
  rpcrdma exports --json 192.0.2.1:20049

MOUNT is called over RDMA, and over TCP if the server does not answer it over RDMA and has port 20049, \
or --mount-port is given. Without \
HOST, the control socket of the server is used, as by `rpcrdma stats`; only the user who runs \
the server, and root, can do that.")]
pub(crate) struct ExportsArgs {
    /// Server [default port: 20049; with --tcp, that of --mount-port; default server: the one on this machine]
    #[arg(value_name = "HOST[:PORT]", conflicts_with = "socket")]
    server: Option<Endpoint>,

    /// TCP port of MOUNT [default: that of HOST with --tcp, else 20048; none for another port than 20049 over
    /// RDMA]
    #[arg(long, value_name = "PORT", help_heading = "Connection")]
    mount_port: Option<u16>,

    /// Use MOUNT over TCP only
    #[arg(long, requires = "server")]
    tcp: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: OneControlArgs,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// An export as a program reads it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// The path to mount.
    path: String,
    /// For whom it is: addresses, networks and names. Empty is for everybody.
    clients: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(args: &ExportsArgs) -> anyhow::Result<Ended> {
    let Some(server) = &args.server else {
        return args.show_own().await;
    };
    let exports = match args.tcp {
        true => args.ask_over_tcp(server).await?,
        false => args.ask(server).await?,
    };
    let mut out = output::stdout();
    if args.json {
        for export in &exports {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let line = Line {
                path: text(&export.path),
                clients: export.groups.iter().map(|name| text(name)).collect(),
            };
            writeln!(out, "{}", json::line(&line)?)?;
        }
    } else {
        out.write_all(table(&exports).as_bytes())?;
    }
    Ok(Ended::Well)
}

impl ExportsArgs {
    /// Shows the exports of the server that runs on this machine.
    async fn show_own(&self) -> anyhow::Result<Ended> {
        let status = match self.control.stats().await? {
            Status::Server(status) => status,
            Status::Gateway(_) => bail!(
                "this is a gateway, which has no exports of its own: ask the server with rpcrdma exports HOST"
            ),
        };
        let mut text = String::new();
        for export in &status.exports {
            text += &match self.json {
                true => json::line(export)? + "\n",
                false => own(export),
            };
        }
        output::stdout().write_all(text.as_bytes())?;
        Ok(Ended::Well)
    }

    /// Asks over RDMA, and over TCP if MOUNT is not there.
    async fn ask(&self, server: &Endpoint) -> anyhow::Result<Vec<ExportedDir>> {
        let (client, addr) = self.connect.connect(server).await?;
        let asked = Mount::new(client.clone(), current_user()).exports().await;
        client.close().await;
        match asked {
            Err(error) if has_no_mount(&error, self.mount_port) => {
                let context = "the server does not answer MOUNT over RDMA";
                match mount_port(self.mount_port, addr).context(context) {
                    Ok(port) => self.ask_at(at_port(addr, port)).await,
                    Err(error) => Err(error),
                }
            }
            asked => {
                let hint = asked.as_ref().err().and_then(hint_of_gateway);
                let asked = asked.map_err(unlisted);
                match hint {
                    Some(hint) => asked.context(hint),
                    None => asked,
                }
            }
        }
        .with_context(|| server.to_string())
    }

    async fn ask_over_tcp(&self, server: &Endpoint) -> anyhow::Result<Vec<ExportedDir>> {
        let context = || server.to_string();
        let mut last = anyhow!(NO_ADDRESS);
        let port = self.mount_port_of(server);
        for addr in server.addresses().await.with_context(context)? {
            match self.ask_at(at_port(addr, port)).await {
                Ok(exports) => return Ok(exports),
                Err(error) => last = error,
            }
        }
        Err(last).with_context(context)
    }

    /// The TCP port of MOUNT of a server that is asked over TCP: the port behind its name is that of MOUNT, unless it is the
    /// one of NFS over RDMA, which is also meant if there is none.
    fn mount_port_of(&self, server: &Endpoint) -> u16 {
        let named = (server.port != NFS_RDMA_PORT).then_some(server.port);
        self.mount_port.or(named).unwrap_or(MOUNT_PORT)
    }

    /// Asks over TCP at an address of MOUNT.
    async fn ask_at(&self, addr: SocketAddr) -> anyhow::Result<Vec<ExportedDir>> {
        let port = addr.port();
        let client = oncrpc_tcp::Client::connect(addr, self.connect.timeout).await;
        let client = client.map_err(|_| {
            anyhow!(
                "nobody answers MOUNT over TCP at port {port} (--mount-port says where it is; `rpcinfo -p` \
                 shows it)"
            )
        })?;
        let asked = Mount::new(client, current_user()).exports().await;
        asked.map_err(unlisted)
    }
}

/// Why exports cannot be listed, without the path, which is none.
fn unlisted(error: Error) -> anyhow::Error {
    let hint = error
        .fault
        .hint()
        .map_or(String::new(), |hint| format!(" ({hint})"));
    anyhow!("cannot list the exports: {}{hint}", Chain(&error.fault))
}

/// One line for each export: its path, and for whom it is.
fn table(exports: &[ExportedDir]) -> String {
    let mut table = Columns::with_long_lines(&[0, 1], 2);
    for export in exports {
        let names = export.groups.iter().map(|name| printable(name));
        let clients = match export.groups.is_empty() {
            true => "everybody".to_owned(),
            false => names.collect::<Vec<_>>().join(","),
        };
        table.add([printable(&export.path), clients]);
    }
    table.to_string()
}

/// An export of the server on this machine, with a line for each rule.
fn own(export: &ExportStatus) -> String {
    let shown = |text: &str| printable(text.as_bytes());
    let mut text = format!("{} is {}\n", shown(&export.name), shown(&export.directory));
    for rule in &export.rules {
        text += &format!("  {}\n", rule.describe());
    }
    if let Some(why) = &export.absent {
        text += &format!("  not served now: {}\n", shown(why));
    }
    text
}

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
            export("/文字".as_bytes(), &[b"laptop"]),
            export(b"/a\x1b[2J", &[]),
        ];
        assert_eq!(
            table(&exports),
            "/data      192.0.2.0/24,laptop\n/文字      laptop\n/a\\x1b[2J  everybody\n"
        );
        assert_eq!(table(&[]), "");
    }
}
