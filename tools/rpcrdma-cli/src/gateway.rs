//! `rpcrdma gateway`: passes NFS on between RDMA and TCP.

mod announce;
mod args;
mod check;

use crate::checks::Checked;
use crate::failure::{self, Ended};
use crate::interrupt::{self, Interrupt};
use announce::Announcement;
#[cfg(test)]
pub(crate) use announce::{CheckLine, Line};
pub(crate) use args::GatewayArgs;
use rpcrdma_daemon::gateway::RunningGateway;
use rpcrdma_daemon::gateway::observed::Observed;
use rpcrdma_daemon::gateway::sockets::Sockets;
use rpcrdma_daemon::signals::Signals;
use rpcrdma_daemon::{log, systemd};
use std::io::{self, Write};

/// Runs the command.
pub(crate) async fn run(args: GatewayArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    let checked = args.check.wanted(args.config.as_deref())?;
    let (configuration, errors) = args.source()?.read()?;
    if checked == Some(Checked::All) {
        return check::check_and_print(&configuration, errors, args.json).await;
    }
    failure::check_none(errors)?;
    if checked == Some(Checked::File) {
        return Ok(Ended::Well);
    }
    let sockets = Sockets::take()?;
    let settings = &configuration.settings;
    let mut gateway = RunningGateway::start(
        configuration.options(),
        configuration.pairs.clone(),
        sockets,
        &settings.reports,
        &configuration.metrics_setting(),
    )
    .await?;
    let announcement = Announcement {
        pairs: gateway.pairs(),
        crc: settings.connections.describe_crc(),
        metrics: gateway.metrics(),
        control: gateway.control(),
    };
    announce(&announcement, args.json)?;

    let ended = async {
        let end = interrupt.wait();
        gateway
            .run(signals, &configuration, log_statistics, end)
            .await;
        systemd::stopping();
        log::tell("letting calls finish; a second interrupt ends at once");
        interrupt::end_server(gateway.shutdown()).await;
    };
    interrupt.end_in_time(ended).await;
    tracing::info!(target: "gateway", "ended");
    Ok(Ended::Well)
}

fn log_statistics(gateway: &Observed) {
    match log::is_json() {
        true => gateway.events().iter().for_each(log::statistics),
        false => gateway.log(),
    }
}

/// Prints the announcement. A gateway whose output is closed runs all the same.
fn announce(announcement: &Announcement<'_>, json: bool) -> anyhow::Result<()> {
    let mut text = match json {
        true => announcement.json()?,
        false => announcement.to_string(),
    };
    text.push('\n');
    let mut out = io::stdout();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(target: "gateway", %error, "cannot write to standard output");
    }
    Ok(())
}
