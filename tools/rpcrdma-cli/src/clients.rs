//! `rpcrdma clients`: shows the connections of a running server.

use crate::control::asking::{self, ControlArgs};
use crate::control::{ClientStatus, Request, Status};
use crate::failure::Ended;
use crate::json;
use crate::output;
use crate::table::Columns;
use crate::units;
use clap::Args;
use nfs_client::printable;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Show the connections of the servers and gateways on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma clients
      of each server and gateway
  rpcrdma clients --json \\
    --socket /run/rpcrdma/control-0.0.0.0:20049.sock

`listen` is where the pair of a gateway, or a server with several addresses, listens that the client is connected to. `over` is the RDMA device of a connection, iwarp for software iWARP, or tcp for a TCP client of a gateway. Of such a client, only calls and bytes (under inline) are counted, and its age begins with its first call. Chunks were read from or written to the client by RDMA. `again` counts retransmitted calls, \
which are not executed twice. Only the user who runs the server, and root, can query it.")]
pub(crate) struct ClientsArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &ClientsArgs) -> anyhow::Result<Ended> {
    let sockets = args.control.sockets().await?;
    if let [socket] = &sockets[..] {
        let (_, clients) = asking::ask::<Vec<ClientStatus>>(socket, Request::Clients).await?;
        print(&shown(&clients, args.json)?)?;
        return Ok(Ended::Well);
    }
    let mut ended = Ended::Well;
    let mut between = "";
    for socket in &sockets {
        match of_one(socket, args.json).await {
            Ok(text) => {
                print(between)?;
                print(&text)?;
                between = if args.json { "" } else { "\n" };
            }
            Err(error) => ended.failed(&error),
        }
    }
    Ok(ended)
}

/// The clients of one of several, with what they are clients of.
async fn of_one(socket: &Path, json: bool) -> anyhow::Result<String> {
    let (_, status) = asking::ask::<Status>(socket, Request::Stats).await?;
    let (_, mut clients) = asking::ask::<Vec<ClientStatus>>(socket, Request::Clients).await?;
    if !json {
        return Ok(asking::heading(&status, socket) + &table(&clients));
    }
    if let Status::Server(server) = &status {
        for client in &mut clients {
            let only = || format!("rdma://{}", server.listening);
            client.listen.get_or_insert_with(only);
        }
    }
    shown(&clients, json)
}

fn print(text: &str) -> io::Result<()> {
    output::stdout().write_all(text.as_bytes())
}

fn shown(clients: &[ClientStatus], json: bool) -> anyhow::Result<String> {
    if !json {
        return Ok(table(clients));
    }
    let mut text = String::new();
    for client in clients {
        text += &json::line(client)?;
        text.push('\n');
    }
    Ok(text)
}

/// The RDMA device, software iWARP, or TCP.
fn over(client: &ClientStatus) -> String {
    let named = client.device.as_ref().or(client.provider.as_ref());
    named.map_or("-".to_owned(), |name| printable(name.as_bytes()))
}

fn table(clients: &[ClientStatus]) -> String {
    // Of a server with one address it would be the same for all.
    let has_listeners = clients.iter().any(|client| client.listen.is_some());
    let mut table = Columns::new(&[0, 1, 14, 15]);
    let mut add = |cells: [String; 15], listen: &str| {
        let listen = has_listeners.then(|| listen.to_owned());
        table.add(cells.into_iter().chain(listen));
    };
    let names = [
        "client",
        "state",
        "v",
        "age",
        "credits",
        "calls",
        "jobs",
        "again",
        "chunks in",
        "and out",
        "RDMA in",
        "and out",
        "inline in",
        "and out",
        "over",
    ];
    add(names.map(str::to_owned), "listen");
    for client in clients {
        let age = Duration::try_from_secs_f64(client.age_seconds).unwrap_or_default();
        let listen = client.listen.as_deref().unwrap_or("-");
        let cells = [
            client.address.clone(),
            client.state.clone(),
            client.version.map_or("-".to_owned(), |v| v.to_string()),
            units::duration(age),
            match client.credits_granted {
                // There are none over TCP.
                0 => format!("{}/-", client.credits_in_use),
                granted => format!("{}/{granted}", client.credits_in_use),
            },
            client.calls.to_string(),
            client.jobs_in_flight.to_string(),
            client.duplicate_request_hits.to_string(),
            client.read_chunks.to_string(),
            (client.write_chunks + client.reply_chunks).to_string(),
            units::size(client.rdma_bytes_in),
            units::size(client.rdma_bytes_out),
            units::size(client.inline_bytes_in),
            units::size(client.inline_bytes_out),
            over(client),
        ];
        add(cells, &printable(listen.as_bytes()));
    }
    table.to_string()
}
