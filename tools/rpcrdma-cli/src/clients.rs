//! `rpcrdma clients`: shows the connections of a running server, and its NFSv4 clients.

use crate::control_args::{self, ControlArgs};
use crate::failure::Ended;
use crate::output;
use crate::show::{Units, size_in};
use crate::stats::rows::number;
use anyhow::bail;
use clap::Args;
use nfs_client::printable;
use printing::json;
use printing::table::Columns;
use printing::units;
use rpcrdma_daemon::control::asking;
use rpcrdma_daemon::control::nfs4::{self, HeldList};
use rpcrdma_daemon::control::{ClientStatus, Request, Status};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// Show the connections and NFSv4 clients of the servers and gateways on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma clients
      of each server and gateway
  rpcrdma clients -l
      all columns, in long lines
  rpcrdma clients --locks
      which files NFSv4 clients have open and locked
  rpcrdma clients --json \\
    --socket /run/rpcrdma/control-0.0.0.0:20049.sock

`calls` are those so far, `busy` those in flight and how many may be (credits); `in` and `out` are bytes, by RDMA and inline, \
in units of 1024. `over` is iwarp for software iWARP, verbs for an RDMA device, or tcp for a client over TCP. The clients \
of a gateway, and of a server with several addresses, stand below the address that they came to.

With -l, `over` names the RDMA device, `listen` is that address, chunks were read from or written to the \
client by RDMA, and `again` counts retransmitted calls, which are not executed twice. Of a client over TCP, only calls and bytes \
(under inline) are counted; the age of one of a gateway begins with its first call.

NFSv4 clients stand below the connections: `renewed` is the time since their last call, `reclaims` a client that has come back \
after a restart of the server, `courtesy` one that has not been heard of for its lease, whose locks go when others want them. \
With --json, --nfs4 and --locks print these.

Only the user who runs the server, and root, can query it.")]
pub(crate) struct ClientsArgs {
    /// Show all columns, with exact numbers, in lines of any length
    #[arg(short, long, conflicts_with = "json")]
    long: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    /// Show NFSv4 clients alone
    #[arg(long, conflicts_with_all = ["long", "locks"])]
    nfs4: bool,

    /// Show which files NFSv4 clients have open and locked: up to 10,000 opens and owners of locks
    #[arg(long, conflicts_with = "long")]
    locks: bool,

    /// With --locks: those of one client, named by its id or its name
    #[arg(long, value_name = "CLIENT", requires = "locks")]
    of: Option<String>,

    #[command(flatten)]
    control: ControlArgs,
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Lines that fit 80 columns.
    Short,
    /// All columns.
    Long,
    /// An object for each client.
    Json,
}

impl ClientsArgs {
    fn about(&self) -> About {
        match (self.nfs4, self.locks) {
            (true, _) => About::Nfs4,
            (false, true) => About::Locks(self.of.clone()),
            (false, false) => About::Connections,
        }
    }

    fn form(&self) -> Form {
        match (self.long, self.json) {
            (_, true) => Form::Json,
            (true, false) => Form::Long,
            (false, false) => Form::Short,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: &ClientsArgs) -> anyhow::Result<Ended> {
    let sockets = args.control.sockets().await?;
    if let [socket] = &sockets[..] {
        let text = match args.about() {
            About::Connections => {
                let clients: Vec<ClientStatus> = asking::ask(socket, Request::Clients).await?.1;
                shown(&clients, args.form())? + &with_nfs4(socket, args.form()).await?
            }
            about => about.text(socket, args.json).await?,
        };
        print(&text)?;
        return Ok(Ended::Well);
    }
    let mut ended = Ended::Well;
    let mut between = "";
    for socket in &sockets {
        match of_one(socket, args).await {
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
async fn of_one(socket: &Path, args: &ClientsArgs) -> anyhow::Result<String> {
    let form = args.form();
    let (_, status) = asking::ask::<Status>(socket, Request::Stats).await?;
    match (args.about(), form) {
        (About::Connections, _) => {}
        (about, Form::Json) => return about.text(socket, true).await,
        (about, _) => {
            let text = about.text(socket, false).await?;
            return Ok(control_args::heading(&status, socket) + &text);
        }
    }
    let (_, mut clients) = asking::ask::<Vec<ClientStatus>>(socket, Request::Clients).await?;
    if form != Form::Json {
        let heading = control_args::heading(&status, socket);
        return Ok(heading + &shown(&clients, form)? + &with_nfs4(socket, form).await?);
    }
    if let Status::Server(server) = &status {
        for client in &mut clients {
            let only = || format!("rdma://{}", server.listening);
            client.listen.get_or_insert_with(only);
        }
    }
    shown(&clients, form)
}

/// Subject of the output.
enum About {
    Connections,
    Nfs4,
    /// Opens and locks, of one client or of all.
    Locks(Option<String>),
}

impl About {
    /// NFSv4 clients, or their opens and locks.
    async fn text(self, socket: &Path, json: bool) -> anyhow::Result<String> {
        let client = match self {
            Self::Locks(client) => client,
            Self::Connections | Self::Nfs4 => {
                let (_, clients) = asking::ask::<Vec<_>>(socket, Request::Nfs4Clients).await?;
                return match json {
                    true => lines(&clients),
                    false if clients.is_empty() => Ok("no NFSv4 clients\n".to_owned()),
                    false => Ok(nfs4::describe_clients(&clients)),
                };
            }
        };
        let (_, list) = asking::ask::<HeldList>(socket, Request::Held { client }).await?;
        match (&list.error, json) {
            (Some(error), _) => bail!("{error}"),
            (None, true) => lines(&list.held),
            (None, false) => Ok(nfs4::describe_held(&list)),
        }
    }
}

/// NFSv4 clients below the connections, in text.
async fn with_nfs4(socket: &Path, form: Form) -> anyhow::Result<String> {
    if form == Form::Json {
        return Ok(String::new());
    }
    let (_, clients) = asking::ask::<Vec<_>>(socket, Request::Nfs4Clients).await?;
    let text = nfs4::describe_clients(&clients);
    Ok(match text.is_empty() {
        true => text,
        false => format!("\n{text}"),
    })
}

/// A line of JSON for each.
fn lines<T: Serialize>(all: &[T]) -> anyhow::Result<String> {
    let mut text = String::new();
    for one in all {
        text += &json::line(one)?;
        text.push('\n');
    }
    Ok(text)
}

fn print(text: &str) -> io::Result<()> {
    output::stdout().write_all(text.as_bytes())
}

fn shown(clients: &[ClientStatus], form: Form) -> anyhow::Result<String> {
    match form {
        Form::Short => Ok(short(clients)),
        Form::Long => Ok(table(clients)),
        Form::Json => lines(clients),
    }
}

/// Columns of an address: IPv4, with a port.
const ADDRESS: usize = 21;

/// A line for each client. A longer address than those of IPv4 has a line of its own above the rest.
fn short(clients: &[ClientStatus]) -> String {
    if clients.is_empty() {
        return "no clients\n".to_owned();
    }
    let row = |[address, state, age, calls, busy, received, sent, over]: [&str; 8]| {
        let long = address.width() > ADDRESS;
        let (above, address) = match long {
            true => (format!("{address}\n"), ""),
            false => (String::new(), address),
        };
        format!(
            "{above}{address:ADDRESS$}  {state:8}  {age:>6}  {calls:>7}  {busy:>9}  {received:>5}  {sent:>5}  {over}\n"
        )
    };
    let names = [
        "client", "state", "age", "calls", "busy", "in", "out", "over",
    ];
    let mut text = String::new();
    let mut by_listener: Vec<_> = clients.iter().collect();
    by_listener.sort_by(|a, b| a.listen.cmp(&b.listen));
    let mut listener = &None;
    for client in by_listener {
        if client.listen != *listener || text.is_empty() {
            if let Some(listen) = &client.listen {
                let between = if text.is_empty() { "" } else { "\n" };
                text += &format!("{between}at {}\n", printable(listen.as_bytes()));
            }
            listener = &client.listen;
            text += &row(names);
        }
        let bytes = |rdma: u64, inline| size_in(rdma.saturating_add(inline), Units::Binary);
        let over = client.provider.as_deref().unwrap_or("-");
        text += &row([
            &printable(client.address.as_bytes()).to_string(),
            &client.state,
            &age(client.age_seconds),
            &number(client.calls),
            &busy(client),
            &bytes(client.rdma_bytes_in, client.inline_bytes_in),
            &bytes(client.rdma_bytes_out, client.inline_bytes_out),
            &printable(over.as_bytes()).to_string(),
        ]);
    }
    text
}

/// Calls in flight and how many there may be.
fn busy(client: &ClientStatus) -> String {
    match client.credits_granted {
        // There are none over TCP.
        0 => format!("{}/-", client.credits_in_use),
        granted => format!("{}/{granted}", client.credits_in_use),
    }
}

/// An age in the largest unit of which it has two or, if it is short, in seconds.
fn age(seconds: f64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400, "d"), (3600, "h"), (60, "m")];
    let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let whole = whole.as_secs();
    let unit = UNITS.iter().find(|(one, _)| whole >= 2 * one);
    let (one, name) = unit.unwrap_or(&(1, "s"));
    format!("{}{name}", whole / one)
}

/// The RDMA device, software iWARP, or TCP.
fn over(client: &ClientStatus) -> String {
    let named = client.device.as_ref().or(client.provider.as_ref());
    named.map_or("-".to_owned(), |name| printable(name.as_bytes()))
}

/// A line for each client, with all columns.
fn table(clients: &[ClientStatus]) -> String {
    // Of a server with one address it would be the same for all.
    let has_listeners = clients.iter().any(|client| client.listen.is_some());
    let mut table = Columns::with_long_lines(&[0, 1, 14, 15], 2);
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
            busy(client),
            client.calls.to_string(),
            client.jobs_in_flight.to_string(),
            client.duplicate_request_hits.to_string(),
            client.read_chunks.to_string(),
            client
                .write_chunks
                .saturating_add(client.reply_chunks)
                .to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose numbers are the largest there can be.
    fn client(address: &str, listen: Option<&str>) -> ClientStatus {
        ClientStatus {
            address: address.to_owned(),
            listen: listen.map(str::to_owned),
            provider: Some("iwarp".to_owned()),
            state: "draining".to_owned(),
            version: Some(2),
            age_seconds: 3e9,
            credits_granted: 1024,
            credits_in_use: 1024,
            calls: u64::MAX,
            jobs: u64::MAX,
            rdma_bytes_in: u64::MAX,
            rdma_bytes_out: u64::MAX,
            inline_bytes_in: u64::MAX,
            inline_bytes_out: u64::MAX,
            write_chunks: u64::MAX,
            reply_chunks: u64::MAX,
            ..ClientStatus::default()
        }
    }

    /// The longest address: of IPv6, with an interface.
    const LONGEST: &str = "[2001:db8:1234:5678:9abc:def0:1234:5678%4294967295]:65535";

    #[test]
    fn lines_of_clients_fit_80_columns_whatever_their_numbers_are() {
        let pair = format!("rdma://{LONGEST}");
        let mut clients = Vec::new();
        for listen in [None, Some(&*pair), Some("tcp://192.0.2.1:2049")] {
            clients.push(client("255.255.255.255:65535", listen));
            clients.push(client(LONGEST, listen));
            clients.extend((0..1000).map(|port| client(&format!("[::1]:{port}"), listen)));
        }
        let text = short(&clients);
        let widest = text.lines().max_by_key(|line| line.width()).unwrap();
        assert!(widest.width() <= 80, "{}: {widest}", widest.width());
        // Three headings, two pairs with a blank line between, and three addresses with lines of their own.
        assert_eq!(text.lines().count(), 3 * 1002 + 3 + 2 + 2 + 3);
        for said in ["19E", "1024/1024", "16E", "34722d", "draining", "iwarp"] {
            assert!(text.contains(said), "{said} is not in {widest}");
        }
    }

    #[test]
    fn clients_of_each_listener_stand_below_it() {
        let text = short(&[
            client("192.0.2.7:1023", Some("rdma://192.0.2.1:20049")),
            client("192.0.2.8:1023", Some("tcp://192.0.2.1:2049")),
            client("192.0.2.9:1023", Some("rdma://192.0.2.1:20049")),
        ]);
        let first: Vec<_> = text
            .lines()
            .map(|line| line.split("  ").next().unwrap())
            .collect();
        let expected = [
            "at rdma://192.0.2.1:20049",
            "client",
            "192.0.2.7:1023",
            "192.0.2.9:1023",
            "",
            "at tcp://192.0.2.1:2049",
            "client",
            "192.0.2.8:1023",
        ];
        assert_eq!(first, expected);
        assert_eq!(short(&[]), "no clients\n");
    }

    #[test]
    fn ages_are_in_one_unit() {
        let check = |seconds, expected: &str| assert_eq!(age(seconds), expected);
        check(0.9, "0s");
        check(119.0, "119s");
        check(120.0, "2m");
        check(7200.0, "2h");
        check(172_800.0, "2d");
    }
}
