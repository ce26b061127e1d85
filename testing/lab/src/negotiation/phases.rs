//! One run: calls before, during and after a change of the sizes.

use super::NegotiationArgs;
use super::cases::{Agreement, Calls, Load, Phase};
use super::report::Row;
use crate::median::median;
use crate::model::{self, Order, Simulated, Snapshot, Traffic};
use anyhow::{Result, ensure};
use rpcrdma_proto::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use rpcrdma_proto::{Characteristics, Config, Design, InlineThreshold, PrivateData, Role};
use std::cell::Cell;

/// Calls within which new sizes are in use, if they ever are: each uses a Receive, of which there are far fewer.
const MOST_DURING: u64 = 10_000;

type Run = Traffic<Simulated, Load>;

/// Runs the calls, and returns a row for each phase.
///
/// # Errors
///
/// If the connection fails, or the sizes do not change.
pub(super) fn measure(
    args: &NegotiationArgs,
    calls: Calls,
    agreement: Agreement,
) -> Result<Vec<Row>> {
    let payload = args.payload as usize;
    let wanted = calls.largest_message(payload).next_power_of_two();
    let [client, server] = [Role::Client, Role::Server].map(|role| config(role, agreement, wanted));
    let ends = Simulated::connect(args.model.costs(0), 1, &client, &server)?;
    let load = Load {
        calls,
        payload,
        depth: args.depth.into(),
        service: args.model.service,
    };
    let design = Some(Design::PerConnection);
    let mut run = Traffic::new(ends, [&client, &server], design, Order::Arrival, load);
    // The first calls wait for the characteristics.
    let warm = 8 * u64::from(args.depth);
    run.until(u64::MAX, |run| run.ended() >= warm)?;
    let mut rows = Vec::new();
    let mut phase = |run: &mut Run, phase, done: &dyn Fn(&Run) -> bool| -> Result<()> {
        run.take_latencies();
        let before = run.snapshot();
        run.until(u64::MAX, done)?;
        let times = run.take_latencies();
        let times = times.iter().map(|(_, time)| time.as_secs_f64() * 1e6);
        let receives = [run.client(), run.server()].map(|end| {
            let session = end.session();
            session.map_or(0, |session| session.announced_receive_size())
        });
        let (after, median) = (run.snapshot(), median(times.collect()));
        rows.push(row(
            (calls, agreement, phase),
            (&before, &after),
            median,
            receives,
        ));
        Ok(())
    };
    let many = u64::from(args.calls);
    let more = |run: &Run| {
        let last = run.ended() + many;
        move |run: &Run| run.ended() >= last
    };
    let done = more(&run);
    phase(&mut run, Phase::Before, &done)?;
    if matches!(agreement, Agreement::Fixed | Agreement::Larger) {
        return Ok(rows);
    }
    let asked = ask(&mut run, agreement, wanted)?;
    if asked {
        let most = run.ended() + MOST_DURING;
        let changed = |run: &Run| is_in_use(run, agreement, wanted);
        let seen = Cell::new(None);
        phase(&mut run, Phase::During, &|run: &Run| {
            if seen.get().is_none() && changed(run) {
                seen.set(Some(run.ended()));
            }
            // Calls in flight then were made before.
            let last = seen.get().map_or(most, |at| at + u64::from(args.depth));
            run.ended() >= last
        })?;
        ensure!(seen.get().is_some(), "the sizes of Receives did not change");
        let done = more(&run);
        phase(&mut run, Phase::After, &done)?;
    }
    Ok(rows)
}

/// Asks for larger Receives, and returns whether there was a reason to.
fn ask(run: &mut Run, agreement: Agreement, wanted: usize) -> Result<bool> {
    let of = |bytes: usize| {
        let size = u32::try_from(bytes).ok().and_then(ReceiveSize::new);
        let size = size.unwrap_or(ReceiveSize::DEFAULT);
        vec![XcharVal::of::<ReceiveBufferSize>(&size)]
    };
    if agreement == Agreement::Both {
        run.client_mut().request_peer(of(wanted))?;
        run.server_mut().request_peer(of(wanted))?;
        return Ok(true);
    }
    // As `serve` finds out.
    let needed = run.server_mut().take_largest_reply();
    let now = run
        .server()
        .session()
        .map(|session| session.peer::<ReceiveBufferSize>().bytes());
    let is_larger = now.is_some_and(|now| needed > now);
    if is_larger {
        let wanted = needed.next_power_of_two();
        run.server_mut().request_peer(of(wanted))?;
    }
    Ok(is_larger)
}

/// Whether messages of the new size are sent.
fn is_in_use(run: &Run, agreement: Agreement, wanted: usize) -> bool {
    let sent = |end: InlineThreshold| end.bytes() >= wanted;
    let (client, server) = (run.client().thresholds(), run.server().thresholds());
    match agreement {
        Agreement::Both => sent(client.send) && sent(client.receive) && sent(server.send),
        Agreement::Fixed | Agreement::Server | Agreement::Larger => sent(server.send),
    }
}

fn config(role: Role, agreement: Agreement, wanted: usize) -> Config {
    let inline = match agreement {
        Agreement::Fixed | Agreement::Server | Agreement::Both => InlineThreshold::DEFAULT,
        Agreement::Larger => InlineThreshold::at_most(wanted),
    };
    let asked = match (agreement, role) {
        (Agreement::Fixed | Agreement::Larger, _) | (Agreement::Server, Role::Server) => {
            InlineThreshold::MIN
        }
        (Agreement::Server, Role::Client) | (Agreement::Both, _) => InlineThreshold::MAX,
    };
    let plain = model::config(role, inline, 1 << 20);
    Config {
        own: PrivateData {
            remote_invalidation: true,
            ..plain.own
        },
        characteristics: Characteristics {
            largest: asked,
            largest_sent: InlineThreshold::MAX,
            ..Characteristics::default()
        },
        ..plain
    }
}

fn row(
    (calls, agreement, phase): (Calls, Agreement, Phase),
    (before, after): (&Snapshot, &Snapshot),
    time_us: f64,
    [client_receives, server_receives]: [usize; 2],
) -> Row {
    let ended = after.ended - before.ended;
    let of_both = |count: fn(&Snapshot, usize) -> u64| {
        let counted = [0, 1].map(|end| count(after, end) - count(before, end));
        counted.iter().sum::<u64>() as f64 / ended.max(1) as f64
    };
    Row {
        workload: calls,
        agreement,
        phase,
        calls: ended,
        calls_per_second: ended as f64 / (after.now - before.now).as_secs_f64(),
        time_us,
        rdma_operations: of_both(|at, end| at.io[end].work.rdma_reads + at.io[end].work.writes),
        registrations: of_both(|at, end| at.counts[end].registrations),
        wakeups: of_both(|at, end| at.wakeups[end]),
        client_receives,
        server_receives,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NegotiationArgs,
    }

    fn rows(calls: Calls, agreement: Agreement) -> Vec<Row> {
        let line = Line::parse_from(["negotiation", "--calls", "32"]);
        measure(&line.args, calls, agreement).unwrap()
    }

    fn operations(rows: &[Row]) -> Vec<(Phase, f64, f64)> {
        let shown = |row: &Row| (row.phase, row.rdma_operations, row.registrations);
        rows.iter()
            .map(shown)
            .filter(|(phase, ..)| *phase != Phase::During)
            .collect()
    }

    #[test]
    fn messages_larger_than_fixed_receives_need_rdma() {
        for calls in Calls::ALL {
            let before = [(Phase::Before, 1.0, 1.0)];
            assert_eq!(operations(&rows(calls, Agreement::Fixed)), before);
            let before = [(Phase::Before, 0.0, 0.0)];
            assert_eq!(operations(&rows(calls, Agreement::Larger)), before);
        }
    }

    #[test]
    fn ends_that_ask_each_other_need_no_rdma_afterwards() {
        for calls in Calls::ALL {
            let rows = rows(calls, Agreement::Both);
            let expected = [(Phase::Before, 1.0, 1.0), (Phase::After, 0.0, 0.0)];
            assert_eq!(operations(&rows), expected, "{calls:?}");
            assert!(rows[2].time_us < rows[0].time_us, "{rows:?}");
            assert_eq!(rows[2].client_receives, 16 << 10);
        }
    }

    #[test]
    fn server_that_asks_saves_the_write_of_a_long_reply_and_not_its_registration() {
        let rows = rows(Calls::Directory, Agreement::Server);
        let expected = [(Phase::Before, 1.0, 1.0), (Phase::After, 0.0, 1.0)];
        assert_eq!(operations(&rows), expected);
    }
}
