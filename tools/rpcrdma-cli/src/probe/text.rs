//! The report of a probe as text.

use super::answer::Answer;
use super::conversation::NoAnswer;
use super::nfs4::Nfs4Seen;
use super::report::{
    Inline, LimitsSeen, Mpa, PrivateDataSeen, ProgramAnswer, Report, RoundTrip, RpcRdma, Verdict,
};
use super::version_two::{Spoken, VersionTwo};
use crate::failure::plain;
use nfs_client::printable;
use nfs_proto::{MOUNT_PROGRAM, NFS_PROGRAM};
use oncrpc::Chain;
use printing::table::Columns;
use printing::units;
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};
use verbs::SetupError;

/// A report, on one screen.
pub(super) struct Text<'a>(pub(super) &'a Report);

/// Bytes of private data that are shown.
const SHOWN: usize = 32;

/// Why no connection was made, without what the verdict says.
pub(super) fn why(error: &SetupError) -> String {
    match error {
        SetupError::TimedOut(_, after) => format!("no answer within {}", units::duration(*after)),
        SetupError::Io(error) if UNREACHABLE.contains(&error.kind()) => {
            format!("{}; check the address", io::Error::from(error.kind()))
        }
        other => plain(&Chain(other)),
    }
}

/// Errors whose text in full says what the verdict says.
const UNREACHABLE: [ErrorKind; 2] = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];

/// The verdict in a sentence. `why` is what the last attempt said.
pub(super) fn explain(report: &Report, why: &str) -> String {
    let tcp = "it accepts TCP connections but does not speak MPA";
    let rdma_port = "NFS/RDMA usually is at port 20049";
    match (report.verdict, &report.plain_tcp) {
        (Verdict::Closed | Verdict::Silent, Some(plain)) => {
            let what = match plain.answer {
                Answer::Success => "NFS",
                _ => "RPC",
            };
            format!("{tcp}: this is a port of {what} over plain TCP; {rdma_port}")
        }
        (Verdict::Closed, None) => {
            format!("{tcp}: it closes the connection without an answer; {rdma_port}")
        }
        (Verdict::Silent, None) => {
            format!("{tcp}: {why}; {rdma_port}")
        }
        (Verdict::NotMpa, _) => {
            let said = report.first_bytes.as_ref().map(|first| &*first.text);
            format!(
                "{tcp}: it said \"{}\"; {rdma_port}",
                said.unwrap_or_default()
            )
        }
        (Verdict::Rpcrdma, _) if report.nfs_versions.is_empty() => {
            "it answers RPC-over-RDMA, but has no NFS that is known here".to_owned()
        }
        (Verdict::Rpcrdma, _) => "it answers NFS over RPC-over-RDMA".to_owned(),
        (Verdict::MpaOnly, _) => {
            format!("it accepts iWARP connections but does not answer {}", unanswered(report, why))
        }
        (Verdict::RdmaOnly, _) => {
            format!("it accepts RDMA connections but does not answer {}", unanswered(report, why))
        }
        (Verdict::Rejected, _) if report.is_over_devices() => format!(
            "it has an RDMA device and refused the connection: this address is not allowed, the server takes no \
             connections of its own machine over devices, it has too many connections, or it does not accept what \
             was offered ({why})"
        ),
        (Verdict::Rejected, _) => {
            "it speaks MPA and refused the connection: this address is not allowed, the server runs as \
             another user of this machine, it has too many connections, or it does not accept what was offered"
                .to_owned()
        }
        (Verdict::BadMpa, _) => format!("its MPA reply cannot be accepted: {why}"),
        (Verdict::Refused, _) if report.is_over_devices() => {
            "nothing listens there over RDMA devices: does the server run with --provider auto or verbs, and is this \
             its port?"
                .to_owned()
        }
        (Verdict::Refused, _) => {
            "nothing listens there: is the server running, and is this its port?".to_owned()
        }
        (Verdict::Unreachable, _) => format!("it cannot be reached: {why}"),
    }
}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(f, "{}: {}", report.server, report.explanation)?;
        let rows = &mut Columns::new(&[0, 1]);
        if report.server != report.address {
            row(rows, "address", &report.address);
        }
        if report.is_over_devices() {
            device_rows(rows, report);
        }
        if let Some(time) = report.tcp_connect_ms {
            row(rows, "TCP", &format!("connected in {time:.3} ms"));
        }
        if let Some(mpa) = &report.mpa {
            mpa_rows(rows, mpa);
        }
        if let Some(private_data) = &report.private_data {
            private_data_rows(rows, private_data);
        }
        if let Some(Inline { to_peer, from_peer }) = report.inline {
            let shown = format!("{to_peer} bytes to it, {from_peer} bytes from it");
            row(rows, "inline", &shown);
        }
        if let Some(found) = &report.rpcrdma {
            let announced = report.private_data.as_ref();
            let announced = announced.and_then(|seen| seen.remote_invalidation);
            rpcrdma_rows(rows, found, announced.unwrap_or(false));
        }
        for (name, program) in [("NFS", NFS_PROGRAM), ("MOUNT", MOUNT_PROGRAM)] {
            program_rows(
                rows,
                name,
                report.programs.iter().filter(|p| p.program == program),
            );
        }
        if !report.nfs4_minor_versions.is_empty() {
            let minors = report.nfs4_minor_versions.iter().map(|m| format!("4.{m}"));
            row(
                rows,
                "NFS version 4",
                &minors.collect::<Vec<_>>().join(", "),
            );
        }
        if let Some(seen) = &report.nfs4 {
            nfs4_rows(rows, seen);
        }
        if let Some(RoundTrip {
            calls,
            min,
            median,
            max,
        }) = report.rtt_ms
        {
            let shown = format!("min/median/max = {min:.3}/{median:.3}/{max:.3} ms, {calls} calls");
            row(rows, "round trip", &shown);
        }
        rows.fmt(f)
    }
}

/// A line, with the name of what it is about, or none if the line before it had it.
fn row(rows: &mut Columns, name: &str, shown: &str) {
    rows.add([&format!("  {name}"), shown]);
}

fn nfs4_rows(rows: &mut Columns, seen: &Nfs4Seen) {
    if let (Some(owner), Some(scope)) = (&seen.server_owner, &seen.server_scope) {
        let scope = match scope == owner {
            true => "the same".to_owned(),
            false => printable(scope.as_bytes()),
        };
        let minor = seen.server_owner_minor.unwrap_or_default();
        let shown = format!("{}/{minor}, scope {scope}", printable(owner.as_bytes()));
        row(rows, "server owner", &shown);
    }
    if let Some(name) = &seen.implementation {
        row(rows, "implementation", &printable(name.as_bytes()));
    }
    if let Some(lease) = seen.lease_seconds {
        row(rows, "lease", &format!("{lease} s"));
    }
    if let Some(session) = seen.session {
        let sizes = [
            session.max_request_bytes,
            session.max_response_bytes,
            session.max_response_cached_bytes,
        ];
        let [request, response, cached] = sizes.map(|size| units::size(size.into()));
        let shown = format!(
            "{} slots, {} operations, calls of {request}, replies of {response}, {cached} kept",
            session.max_requests, session.max_operations
        );
        row(rows, "session", &shown);
    }
}

fn device_rows(rows: &mut Columns, report: &Report) {
    if let Some(transport) = &report.transport {
        row(rows, "RDMA", transport);
    }
    if let Some(LimitsSeen {
        outstanding_reads,
        inbound_reads,
        max_message_bytes,
    }) = report.limits
    {
        let most = units::size(max_message_bytes.into());
        let shown = format!(
            "{outstanding_reads} Reads outstanding, {inbound_reads} served at a time, messages of up to {most}"
        );
        row(rows, "limits", &shown);
    }
}

fn mpa_rows(rows: &mut Columns, mpa: &Mpa) {
    let mut shown = format!("revision {}", mpa.revision);
    if mpa.enhanced {
        shown += " enhanced";
    }
    if mpa.rejected {
        shown += ", rejected";
    }
    shown += match (mpa.crc, mpa.crc_required) {
        (_, Some(true)) => ", CRC32C always",
        (true, Some(false)) => ", CRC32C when asked for",
        (true, None) => ", CRC32C",
        (false, _) => ", CRC32C not asked for",
    };
    shown += if mpa.markers {
        ", markers"
    } else {
        ", no markers"
    };
    if mpa.peer_to_peer {
        shown += ", peer to peer";
    }
    row(rows, "MPA", &shown);
    if mpa.fell_back {
        row(
            rows,
            "",
            "it closed the connection when it was offered revision 2",
        );
    }
    let depth = |depth: Option<u16>| depth.map_or("not negotiated".into(), |d| d.to_string());
    if mpa.enhanced {
        let shown = format!(
            "IRD {}, ORD {} (offered: {}, {})",
            depth(mpa.ird),
            depth(mpa.ord),
            depth(mpa.offered_ird),
            depth(mpa.offered_ord)
        );
        row(rows, "", &shown);
    }
}

fn private_data_rows(rows: &mut Columns, seen: &PrivateDataSeen) {
    let digits = seen.bytes.len().min(2 * SHOWN);
    let shown = match seen.bytes.len() {
        0 => "none".to_owned(),
        all if all == digits => seen.bytes.clone(),
        all => format!("{}... ({} bytes)", &seen.bytes[..digits], all / 2),
    };
    row(rows, "private data", &shown);
    let Some(offset) = seen.offset else {
        return match seen.bytes.len() {
            0 => {}
            _ => row(rows, "", "no RPC-over-RDMA in it (RFC 8797)"),
        };
    };
    let place = match offset {
        0 => "at the head".to_owned(),
        offset => format!("behind {offset} other bytes"),
    };
    let format = seen.format.unwrap_or("unknown");
    row(rows, "", &format!("{format}, {place}"));
    match (seen.send_size, seen.receive_size, seen.version) {
        (Some(send), Some(receive), _) => {
            let mut shown = format!("sends up to {send} bytes, receives up to {receive}");
            if seen.reserved_bits.is_some_and(|bits| bits != 0) {
                shown += "; reserved bits are set";
            }
            row(rows, "", &shown);
        }
        (_, _, Some(version)) => row(
            rows,
            "",
            &format!("its version {version} is not known: ignored"),
        ),
        (_, _, None) => {}
    }
    if let Some(dialect) = seen.version_two {
        row(rows, "", &format!("it announces version 2 ({dialect})"));
    }
}

/// Message about calls that are not answered, with the reason.
fn unanswered(report: &Report, why: &str) -> String {
    match announces(report) {
        true => format!("RPC-over-RDMA, which it announces: {why}"),
        false => format!("RPC-over-RDMA: {why}"),
    }
}

/// Possible cause of the lack of an answer. A peer whose private data is that of RPC-over-RDMA speaks it: it may be a
/// gateway, which cannot say so.
pub(super) fn hint(report: &Report, error: &NoAnswer) -> &'static str {
    match error {
        _ if !announces(report) => "",
        NoAnswer::TimedOut(_) => "; a gateway is silent like that while its server is away",
        NoAnswer::Closed(_) => "; if it is a gateway, its log says why",
        NoAnswer::OtherDraft(_) => "",
    }
}

fn announces(report: &Report) -> bool {
    report.private_data.as_ref().is_some_and(|seen| seen.valid)
}

fn rpcrdma_rows(rows: &mut Columns, found: &RpcRdma, announced: bool) {
    let invalidation = match (announced, found.invalidates) {
        (true, Some(true)) => "announced and used",
        (true, Some(false)) => "announced, but not used in a reply to a call with one handle",
        (true, None) => "announced",
        (false, Some(true)) => "not announced, but used",
        (false, Some(false) | None) => "not announced",
    };
    row(rows, "invalidation", invalidation);
    let one = match (found.version_one, &found.ended) {
        (true, _) => "version 1",
        (false, Some(_)) => "no answer in version 1",
        (false, None) => "not version 1",
    };
    let two = match &found.version_two {
        None => String::new(),
        Some(VersionTwo::ErrVers { low, high }) => {
            format!("; version 2 is refused (ERR_VERS, {low} to {high})")
        }
        Some(VersionTwo::Spoken(spoken)) => format!(", version 2 ({})", spoken.dialect),
        Some(VersionTwo::OtherDraft { detail, .. }) => {
            format!("; another draft of version 2: {detail}")
        }
        Some(VersionTwo::Error { detail } | VersionTwo::Nothing { detail }) => {
            format!("; to version 2: {detail}")
        }
    };
    row(rows, "RPC-over-RDMA", &format!("{one}{two}"));
    if let Some(VersionTwo::Spoken(spoken)) = &found.version_two {
        version_two_rows(rows, spoken);
    }
    if let Some(granted) = found.credits_granted {
        let shown = format!("{granted} granted, {} asked for", found.credits_asked);
        row(rows, "credits", &shown);
    }
    if found.stray_messages > 0 {
        let shown = format!("{} messages that answer no call", found.stray_messages);
        row(rows, "unasked", &shown);
    }
    if let Some(why) = &found.ended {
        row(rows, "ended early", why);
    }
}

fn version_two_rows(rows: &mut Columns, spoken: &Spoken) {
    if let Some(properties) = &spoken.properties {
        let credits = spoken.credits_granted;
        row(rows, "", &format!("credits for {credits} messages"));
        for seen in properties {
            let name = (seen.name).map_or_else(|| format!("property {}", seen.id), str::to_owned);
            row(
                rows,
                "",
                &format!("{name}: {}", value(&seen.value, &seen.bytes)),
            );
        }
    } else {
        let operations = match &spoken.operations[..] {
            [] => "none".to_owned(),
            some => some.join(", "),
        };
        row(rows, "", &format!("its operations: {operations}"));
    }
    for seen in spoken.characteristics.iter().flatten() {
        let name = match seen.name {
            Some(name) => name.to_owned(),
            None => format!("characteristic {}", seen.id),
        };
        let value = value(&seen.value, &seen.bytes);
        let fixed = if seen.fixed { " (fixed)" } else { "" };
        row(rows, "", &format!("{name}: {value}{fixed}"));
    }
    if !spoken.designs_offered.is_empty() && spoken.design_selected.is_none() {
        let offered = spoken.designs_offered.join(", ");
        row(
            rows,
            "",
            &format!("it selects none of these designs: {offered}"),
        );
    }
    if let Some(odd) = &spoken.odd {
        row(rows, "", odd);
    }
}

/// A value as it was read, or its bytes.
fn value(read: &Option<Value>, bytes: &str) -> String {
    match read {
        Some(Value::String(word)) => word.clone(),
        Some(value) => value.to_string(),
        None => bytes.to_owned(),
    }
}

/// One line for what is there, and one for each version of which something is to be said.
fn program_rows<'a>(
    rows: &mut Columns,
    name: &str,
    answers: impl Iterator<Item = &'a ProgramAnswer>,
) {
    let (there, not): (Vec<_>, Vec<_>) = answers.partition(|p| p.answer == Answer::Success);
    let mut name = name;
    if !there.is_empty() {
        let versions: Vec<_> = there.iter().map(|p| p.version.to_string()).collect();
        let plural = if versions.len() > 1 { "s" } else { "" };
        row(
            rows,
            name,
            &format!("version{plural} {}", versions.join(", ")),
        );
        name = "";
    }
    for other in not {
        let what = match &other.answer {
            Answer::Success => continue,
            // What it has is on the line above.
            Answer::ProgMismatch { .. } if !there.is_empty() => continue,
            Answer::ProgMismatch { low, high } => format!("not there; it has {low} to {high}"),
            Answer::ProgUnavail => "not there: no such program".to_owned(),
            Answer::Error { detail } | Answer::Nothing { detail } => detail.clone(),
        };
        row(rows, name, &format!("version {}: {what}", other.version));
        name = "";
    }
}
