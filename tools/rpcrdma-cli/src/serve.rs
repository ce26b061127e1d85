//! `rpcrdma serve`: exports directories.

mod args;
mod check;
mod local_users;
pub(crate) mod reports;
pub(crate) mod serving;

use crate::checks::Checked;
use crate::failure::{self, Ended};
use crate::interrupt::{self, Interrupt};
pub(crate) use args::ServeArgs;
use rpcrdma_daemon::server::RunningServer;
use rpcrdma_daemon::server::announcement::Announcement;
use rpcrdma_daemon::server::observed::Observed;
use rpcrdma_daemon::signals::Signals;
use rpcrdma_daemon::systemd::Sockets;
use rpcrdma_daemon::{log, process, systemd};
use std::io::Write;
use verbs_iwarp::Iwarp;

/// Runs the command.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    process::prepare();
    let sockets = Sockets::take()?;
    let checked = args.check.wanted(args.config.as_deref())?;
    let (configuration, errors) = args.source(&sockets).read()?;
    if checked == Some(Checked::All) {
        return check::check_and_print(&configuration, sockets, errors, args.json).await;
    }
    failure::check_none(errors)?;
    if checked == Some(Checked::File) {
        return Ok(Ended::Well);
    }
    let settings = &configuration.settings;
    let connections = &settings.connections;
    let software = Iwarp::new(connections.iwarp());
    let providers =
        connections
            .provider
            .open_to_listen(software, &settings.listen, sockets.rdma)?;
    let options = configuration.options(sockets.tcp, sockets.mount);
    let mut server = RunningServer::start(options, providers).await?;
    let announcement = Announcement::new(&server, connections);
    announce(&announcement, args.json)?;

    tokio::select! {
        () = interrupt.wait() => {}
        () = server.run(signals, &configuration, log_statistics) => {}
    }
    systemd::stopping();
    log::tell("letting calls finish; a second interrupt ends at once");
    interrupt::end_server(server.shutdown()).await;
    Ok(Ended::Well)
}

fn log_statistics(server: &Observed) {
    match log::is_json() {
        true => log::statistics(&server.event()),
        false => server.log(),
    }
}

/// Says on standard output what is served. A server whose output nobody takes serves all the same.
fn announce(announcement: &Announcement<'_>, json: bool) -> anyhow::Result<()> {
    let mut text = match json {
        true => announcement.json()?,
        false => announcement.to_string(),
    };
    text.push('\n');
    let mut out = std::io::stdout();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(%error, "cannot write to standard output");
    }
    Ok(())
}
