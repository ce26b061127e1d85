//! `rpcrdma probe`: examines a server.
//!
//! It looks and changes nothing. Most of it is one connection and some calls of procedures that do
//! nothing, one at a time. A second connection tells what a first one cannot: what the peer makes
//! of a message of version two, which must be the first one, and whether it insists on CRCs. Where
//! nobody speaks MPA, one call goes over plain TCP. A peer may say anything: all of it is shown as
//! it is.

mod answer;
mod conversation;
mod report;
mod text;
mod version_two;

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::failure::Ended;
use crate::json;
use crate::latency::{Latencies, milliseconds};
use crate::ping;
use crate::transport::{self, Invalidation};
use crate::units::parse_duration;
use answer::Answer;
use anyhow::Context;
use clap::Args;
use conversation::{Conversation, NoAnswer};
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3};
use oncrpc::{Chain, Procedure};
pub(crate) use report::Report;
use report::{
    FirstBytes, Inline, Mpa, PrivateDataSeen, ProgramAnswer, RoundTrip, RpcRdma, Verdict,
};
use rpcrdma::ClientConfig;
use rpcrdma_proto::v2::characteristics::DesignBits;
use rpcrdma_proto::{Design, PrivateData};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use verbs::{Connected, QpOptions, SetupError};
use verbs_iwarp::{Config, CrcMode, Iwarp, Startup};
use version_two::VersionTwo;

/// Addresses of a host that are tried, until one takes a TCP connection.
const MAX_ADDRESSES: usize = 8;

/// Credits to ask for: the most that can be asked for on the command line. Asking costs nothing, and
/// no more than one is used.
const CREDITS: u32 = 1024;

/// Most calls whose time is taken.
const MAX_CALLS: i64 = 1000;

/// What is called: the version that everybody has comes first.
const PROGRAMS: [(&str, u32, u32); 4] = [
    ("NFS", NFS_PROGRAM, NFS_V3),
    ("NFS", NFS_PROGRAM, 2),
    ("NFS", NFS_PROGRAM, NFS_V4),
    ("MOUNT", MOUNT_PROGRAM, MOUNT_V3),
];

/// The version of NFS that has minor versions.
const NFS_V4: u32 = 4;

/// The minor versions that there are.
const MINOR_VERSIONS: [u32; 3] = [0, 1, 2];

/// The one procedure of NFS version 4 that does something, if it is given operations.
const COMPOUND: Procedure = Procedure {
    prog: NFS_PROGRAM,
    vers: NFS_V4,
    proc: 1,
};

/// The procedure that does nothing, of any program.
const fn null(prog: u32, vers: u32) -> Procedure {
    Procedure {
        prog,
        vers,
        proc: 0,
    }
}

/// Describe the peer at an address: MPA, private data, versions, credits, programs, times
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma probe 127.0.0.1
  rpcrdma probe files.example.org:20049
  rpcrdma probe --json --timeout 2s 192.0.2.7 | jq .verdict
  rpcrdma probe --invalidation fixed,per_call 127.0.0.1

It changes nothing at the peer: it makes two connections and calls procedures that do nothing. \
docs/guide/probe.md describes the members of --json. The verdict is one of: rpcrdma, mpa_only, \
rejected, bad_mpa, not_mpa, closed, silent, refused, unreachable.

Exit codes: 0 the peer speaks RPC-over-RDMA, 1 it does not, 2 wrong command line.")]
pub(crate) struct ProbeArgs {
    /// Peer [default port: 20049]
    #[arg(value_name = "HOST[:PORT]")]
    server: Endpoint,

    /// Number of calls to measure the round-trip time
    #[arg(short, long, default_value_t = 10, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=MAX_CALLS))]
    count: u16,

    /// Time to wait for each answer
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = parse_duration)]
    timeout: Duration,

    /// Remote invalidation designs to offer in version two (comma-separated): fixed, per_call,
    /// per_call_several, inter_call. The answer shows which one the server selects. Experimental,
    /// so nothing is offered by default
    #[arg(long, visible_alias = "invalidation", value_name = "DESIGN[,DESIGN...]",
        value_parser = offer)]
    remote_invalidation: Option<Invalidation>,

    /// Print only one JSON object
    #[arg(long)]
    json: bool,
}

/// Designs of which a server can take one.
fn offer(text: &str) -> Result<Invalidation, String> {
    let offered = |design: &Design| DesignBits::answer(*design) != DesignBits::default();
    let designs = transport::invalidation(text).ok();
    designs
        .filter(|Invalidation(all)| !all.is_empty() && all.iter().all(offered))
        .ok_or_else(|| {
            "there are fixed, per_call, per_call_several and inter_call to offer; per_connection is \
             announced in any case, and per_version never"
                .into()
        })
}

/// Runs the command.
pub(crate) async fn run(args: &ProbeArgs) -> anyhow::Result<Ended> {
    let context = || args.server.to_string();
    let addrs = args.server.addresses().await.with_context(context)?;
    let mut found = None;
    for addr in addrs.into_iter().take(MAX_ADDRESSES) {
        let report = args.look_at(addr).await;
        let somebody = !matches!(report.verdict, Verdict::Refused | Verdict::Unreachable);
        found = Some(report);
        if somebody {
            break;
        }
    }
    let report = found.context(NO_ADDRESS).with_context(context)?;
    let mut out = std::io::stdout();
    if args.json {
        writeln!(out, "{}", json::line(&report)?)?;
    } else {
        write!(out, "{}", text::Text(&report))?;
    }
    Ok(match report.verdict {
        Verdict::Rpcrdma => Ended::Well,
        _ => Ended::Partly,
    })
}

impl ProbeArgs {
    async fn look_at(&self, addr: SocketAddr) -> Report {
        let (startup, connected) = self.connect(addr, CrcMode::On).await;
        let exchanges = &startup.exchanges;
        let mut report = Report::new(self.server.to_string(), addr);
        report.tcp_connect_ms = exchanges.first().map(|first| milliseconds(first.connected));
        report.mpa = Mpa::new(exchanges);
        match connected {
            Ok(connected) => self.look_closer(addr, connected, &mut report).await,
            Err(error) => {
                report.verdict = Verdict::of_failure(exchanges, &error);
                if let SetupError::Rejected(received) = &error {
                    report.private_data = Some(PrivateDataSeen::new(received));
                }
                let received = exchanges.last().map(|last| last.received.as_slice());
                if report.verdict == Verdict::NotMpa {
                    report.first_bytes = received.and_then(FirstBytes::new);
                }
                if matches!(report.verdict, Verdict::Closed | Verdict::Silent) {
                    report.plain_tcp = self.call_over_tcp(addr).await;
                }
                report.explanation = text::explain(&report, &text::why(&error));
            }
        }
        report
    }

    /// Over a connection that was made.
    async fn look_closer(&self, addr: SocketAddr, connected: Connected, report: &mut Report) {
        report.private_data = Some(PrivateDataSeen::new(&connected.private_data));
        report.inline = Some(Inline::new(ours(), &connected.private_data));
        let mut found = RpcRdma {
            credits_asked: CREDITS,
            ..RpcRdma::default()
        };
        let mut talk = self.conversation(connected);
        if let Err(error) = self.converse(&mut talk, report, &mut found).await {
            found.ended = Some(Chain(&error).to_string());
        }
        found.stray_messages = talk.strays;
        talk.close().await;
        report.programs.sort_by_key(|p| (p.program, p.version));
        report.nfs_versions = (report.programs.iter())
            .filter(|p| p.program == NFS_PROGRAM && p.answer == Answer::Success)
            .map(|p| p.version)
            .collect();
        if report.verdict == Verdict::Rpcrdma {
            found.version_two = Some(self.look_at_version_two(addr, report).await);
        }
        let first = report.programs.first().and_then(|p| p.answer.detail());
        let why = found.ended.as_deref().or(first).unwrap_or_default();
        report.explanation = text::explain(report, why);
        report.rpcrdma = Some(found);
    }

    /// Asks all that can be asked in version one, and fills in what the answers tell, up to the first
    /// question without an answer.
    async fn converse(
        &self,
        talk: &mut Conversation,
        report: &mut Report,
        found: &mut RpcRdma,
    ) -> Result<(), NoAnswer> {
        for (name, program, version) in PROGRAMS {
            let heard = talk.call(null(program, version), &[]).await;
            let answer = Answer::new(&heard);
            report.programs.push(ProgramAnswer {
                name,
                program,
                version,
                answer,
            });
            let heard = heard?;
            if answer::is_rpcrdma(&heard) {
                report.verdict = Verdict::Rpcrdma;
            }
            found.version_one |= answer::is_version_one(&heard);
            found.credits_granted = answer::credits(&heard).or(found.credits_granted);
        }
        let has = |p: &ProgramAnswer| p.version == NFS_V4 && p.answer == Answer::Success;
        if report.programs.iter().any(has) {
            for minor in MINOR_VERSIONS {
                // No tag, and no operations (RFC 8881 §16.2).
                let heard = talk.call(COMPOUND, &[0, minor, 0]).await?;
                if answer::is_compound_done(&heard) {
                    report.nfs4_minor_versions.push(minor);
                }
            }
        }
        let mut latencies = Latencies::default();
        for _ in 0..self.count {
            let heard = talk.call(null(NFS_PROGRAM, NFS_V3), &[]).await;
            if let Ok(heard) = &heard {
                latencies.record(heard.took);
            }
            report.rtt_ms = RoundTrip::new(&latencies);
            heard?;
        }
        found.invalidates = talk
            .call_with_reply_chunk(null(NFS_PROGRAM, NFS_V3))
            .await?;
        Ok(())
    }

    /// What the peer makes of version two, as the first thing it hears, and of not being asked for
    /// CRCs.
    async fn look_at_version_two(&self, addr: SocketAddr, report: &mut Report) -> VersionTwo {
        let (startup, connected) = self.connect(addr, CrcMode::Off).await;
        let connected = match connected {
            Ok(connected) => connected,
            Err(error) => {
                return VersionTwo::Nothing {
                    detail: format!("no second connection: {}", Chain(&error)),
                };
            }
        };
        if let (Some(mpa), Some(agreed)) = (&mut report.mpa, startup.agreed) {
            mpa.crc_required = Some(agreed.crc);
        }
        let mut talk = self.conversation(connected);
        let designs = self
            .remote_invalidation
            .as_ref()
            .map_or(&[][..], |all| &all.0);
        let found = version_two::look(&mut talk, ours(), designs).await;
        talk.close().await;
        found
    }

    async fn connect(
        &self,
        addr: SocketAddr,
        crc: CrcMode,
    ) -> (Startup, Result<Connected, SetupError>) {
        let usual = Config::default();
        let linger = usual.linger.min(self.timeout);
        let provider = Iwarp::new(usual.with_crc(crc).with_linger(linger));
        let receive_size = ours().receive.bytes();
        let options = QpOptions::default()
            .with_receive_size(receive_size)
            .with_setup_timeout(self.timeout);
        let receives = conversation::receives(receive_size);
        let private_data = ours().emit();
        provider
            .connect_observed(addr, &options, &private_data, receives)
            .await
    }

    fn conversation(&self, connected: Connected) -> Conversation {
        let receive_size = ours().receive.bytes();
        Conversation::new(connected.qp, receive_size, CREDITS, self.timeout)
    }

    /// NFS version 3 over plain TCP. None where nothing comes back.
    async fn call_over_tcp(&self, addr: SocketAddr) -> Option<ProgramAnswer> {
        let client = oncrpc_tcp::Client::connect(addr, self.timeout).await.ok()?;
        Some(ProgramAnswer {
            name: "NFS",
            program: NFS_PROGRAM,
            version: NFS_V3,
            answer: Answer::from_rpc(ping::null(&client).await.ok()?),
        })
    }
}

/// What we say about ourselves: the same as all commands.
fn ours() -> PrivateData {
    let usual = ClientConfig::default();
    PrivateData {
        send: usual.send_size,
        receive: usual.receive_size,
        remote_invalidation: true,
    }
}
