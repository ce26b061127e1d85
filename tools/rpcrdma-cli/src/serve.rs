//! `rpcrdma serve`: exports directories.

mod announce;
mod args;
mod check;
mod config;
pub(crate) mod given;
mod local_users;
pub(crate) mod reports;
mod settings;

use crate::checks::Checked;
use crate::failure::{self, Ended};
use crate::interrupt::{self, Interrupt};
use crate::log;
use announce::Announcement;
#[cfg(test)]
pub(crate) use announce::{CheckLine, Line};
pub(crate) use args::{MAX_THREADS, ServeArgs};
pub(crate) use given::Given;
use rpcrdma_daemon::server::RunningServer;
use rpcrdma_daemon::signals::Signals;
use rpcrdma_daemon::systemd::Sockets;
use rpcrdma_daemon::{process, systemd};
use settings::CommandLine;
use std::io::Write;

/// Runs the command.
pub(crate) async fn run(mut args: ServeArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    process::prepare();
    let sockets = Sockets::take()?;
    let rdma = &sockets.rdma;
    args.activated = rdma.iter().map(|(addr, _)| *addr).collect();
    args.activated_mount = sockets.mount.iter().map(|(addr, _)| *addr).collect();
    let checked = args.check.wanted(args.config.as_deref())?;
    let (settings, errors) = args.read()?;
    if checked == Some(Checked::All) {
        return check::check_and_print(&settings, sockets.mount, errors, args.json).await;
    }
    failure::check_none(errors)?;
    if checked == Some(Checked::File) {
        return Ok(Ended::Well);
    }
    let transport = &settings.args.transport;
    let setting = transport.provider().setting();
    let providers =
        setting.open_to_listen(transport.iwarp(), &settings.args.listen, sockets.rdma)?;
    let options = settings.options(sockets.mount);
    let mut server = RunningServer::start(options, providers).await?;
    let announcement = Announcement::new(&server, transport);
    announce(&announcement, args.json)?;

    let command_line = CommandLine {
        args: &args,
        settings: &settings,
    };
    tokio::select! {
        () = interrupt.wait() => {}
        () = server.run(signals, &command_line) => {}
    }
    systemd::stopping();
    log::tell("letting calls finish; a second interrupt ends at once");
    interrupt::end_server(server.shutdown()).await;
    Ok(Ended::Well)
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
