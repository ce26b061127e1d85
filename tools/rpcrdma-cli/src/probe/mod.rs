//! `rpcrdma probe`: examines a server.
//!
//! It looks and changes nothing. Most of it is one connection and some calls of procedures that do
//! nothing, one at a time. A second connection tells what a first one cannot: what the peer makes
//! of a message of version two, which must be the first one, and whether it insists on CRCs. Where
//! nobody speaks MPA, one call goes over plain TCP. A peer may say anything: all of it is shown as
//! it is. Over RDMA devices there is no MPA, and what the connection manager tells takes its place.

mod answer;
mod conversation;
mod ietf07;
mod nfs4;
mod report;
mod text;
mod version_two;

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::failure::Ended;
use crate::ping;
use crate::provider::ProviderArgs;
use crate::transport::{self, Invalidation};
use answer::Answer;
use anyhow::Context;
use clap::{Args, ValueEnum};
use conversation::{Conversation, NoAnswer};
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3, NFS_V4};
use oncrpc::{Chain, Procedure};
use printing::json;
use printing::latency::{Latencies, milliseconds};
use printing::units::parse_duration;
pub(crate) use report::Report;
use report::{
    FirstBytes, Inline, Mpa, PrivateDataSeen, ProgramAnswer, RoundTrip, RpcRdma, Verdict,
};
use rpcrdma::ClientConfig;
use rpcrdma::any::{self, Providers};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::DesignBits;
use rpcrdma_proto::{Design, PrivateData};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use verbs::{Connected, Provider, QpOptions, SetupError};
use verbs_iwarp::{Config, CrcMode, Iwarp, Startup};
use version_two::VersionTwo;

/// Addresses of a host that are tried, until one takes a TCP connection.
const MAX_ADDRESSES: usize = 8;

/// Credits to ask for: the most that can be asked for on the command line. Asking costs nothing, and
/// no more than one is used.
const CREDITS: u32 = 1024;

/// Most calls whose time is taken.
const MAX_CALLS: i64 = 1000;

/// Programs and versions that are called: the version that everybody has comes first.
const PROGRAMS: [(&str, u32, u32); 4] = [
    ("NFS", NFS_PROGRAM, NFS_V3),
    ("NFS", NFS_PROGRAM, 2),
    ("NFS", NFS_PROGRAM, NFS_V4),
    ("MOUNT", MOUNT_PROGRAM, MOUNT_V3),
];

/// The minor versions that there are.
const MINOR_VERSIONS: [u32; 3] = [0, 1, 2];

/// The procedure that does nothing, of any program.
const fn null(prog: u32, vers: u32) -> Procedure {
    Procedure {
        prog,
        vers,
        proc: 0,
    }
}

/// Describe the peer at an address: MPA or RDMA, private data, versions, credits, programs, times
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma probe 127.0.0.1
  rpcrdma probe files.example.org:20049
  rpcrdma probe --json --timeout 2s 192.0.2.7 | jq .verdict
  rpcrdma probe --invalidation fixed,per_call 127.0.0.1
  rpcrdma probe --rpcrdma-version 2:ietf-07 192.0.2.7
  rpcrdma probe --provider verbs 192.0.2.7

It changes no files at the peer: it makes two connections and calls procedures that do nothing; with \
NFS version 4 it makes a session, and takes it away again. \
docs/guide/probe.md describes the members of --json. The verdict is one of: rpcrdma, mpa_only, \
rdma_only, rejected, bad_mpa, not_mpa, closed, silent, refused, unreachable.

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
    /// per_call_several, inter_call, per_call_all. The answer shows which one the server selects. Experimental,
    /// so nothing is offered by default
    #[arg(long, visible_alias = "invalidation", value_name = "DESIGN[,DESIGN...]",
        value_parser = offer)]
    remote_invalidation: Option<Invalidation>,

    /// Draft of version two to ask for [default: the one that the peer announces, or else cel-01]
    #[arg(
        long,
        value_enum,
        value_name = "VERSION",
        conflicts_with = "remote_invalidation"
    )]
    rpcrdma_version: Option<Draft>,

    /// Print only one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    provider: ProviderArgs,
}

/// A draft of version two, by the names that other commands have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Draft {
    /// draft-cel-nfsv4-rpcrdma-version-two-01
    #[value(name = "2")]
    Cel01,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07
    #[value(name = "2:ietf-07")]
    Ietf07,
}

/// Provider over which a peer is looked at.
#[derive(Clone, Copy)]
enum Over<'a> {
    Software,
    /// RDMA devices, with so much time for connection setup.
    Devices(&'a Arc<dyn Provider>, Duration),
}

/// Designs of which a server can take one.
fn offer(text: &str) -> Result<Invalidation, String> {
    let offered = |design: &Design| DesignBits::answer(*design) != DesignBits::default();
    let designs = transport::invalidation(text).ok();
    designs
        .filter(|Invalidation(all)| !all.is_empty() && all.iter().all(offered))
        .ok_or_else(|| {
            "there are fixed, per_call, per_call_several, inter_call and per_call_all to offer; per_connection is \
             announced in any case, and per_version never"
                .into()
        })
}

/// Runs the command.
pub(crate) async fn run(args: &ProbeArgs) -> anyhow::Result<Ended> {
    let context = || args.server.to_string();
    let software = args.software(CrcMode::On);
    let providers = args.provider.setting().open(software)?;
    let addrs = args.server.addresses().await.with_context(context)?;
    let mut found = None;
    for addr in addrs.into_iter().take(MAX_ADDRESSES) {
        let report = args.look_at(&providers, addr).await;
        let somebody = !matches!(report.verdict, Verdict::Refused | Verdict::Unreachable);
        found = Some(report);
        if somebody {
            break;
        }
    }
    let report = found.context(NO_ADDRESS).with_context(context)?;
    let mut out = crate::output::stdout();
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
    /// Over devices, if there are any for the address, or else over software iWARP.
    async fn look_at(&self, providers: &Providers, addr: SocketAddr) -> Report {
        if providers.over() == any::Over::Devices {
            let report = self.look_over_devices(addr, providers.main(), self.timeout);
            return report.await.0;
        }
        let Some(devices) = providers.devices_first(addr) else {
            return self.look_over_software(addr).await;
        };
        let limit = self.timeout.min(any::DEVICE_SETUP);
        let (report, error) = self.look_over_devices(addr, devices, limit).await;
        let Some(error) = error.filter(|error| any::try_software(addr, error)) else {
            return report;
        };
        let mut report = self.look_over_software(addr).await;
        let nothing_there = matches!(error, SetupError::NoDevice(_));
        if !nothing_there && report.verdict != Verdict::Rpcrdma {
            let why = text::why(&error);
            report.explanation += &format!("; over an RDMA device: {why}");
        }
        report
    }

    /// Over devices; why there was no connection, if there was none.
    async fn look_over_devices(
        &self,
        addr: SocketAddr,
        devices: &Arc<dyn Provider>,
        limit: Duration,
    ) -> (Report, Option<SetupError>) {
        let over = Over::Devices(devices, limit);
        let mut report = Report::new(self.server.to_string(), addr, true);
        let error = match self.connect(over, addr, CrcMode::On).await.1 {
            Ok(connected) => {
                self.look_closer(over, addr, connected, &mut report).await;
                return (report, None);
            }
            Err(error) => error,
        };
        report.verdict = Verdict::of_failure_over_devices(&error);
        if let SetupError::Rejected(received) = &error {
            report.private_data = Some(PrivateDataSeen::new(received));
        }
        report.explanation = text::explain(&report, &text::why(&error));
        (report, Some(error))
    }

    async fn look_over_software(&self, addr: SocketAddr) -> Report {
        let over = Over::Software;
        let (startup, connected) = self.connect(over, addr, CrcMode::On).await;
        let exchanges = &startup.exchanges;
        let mut report = Report::new(self.server.to_string(), addr, false);
        report.tcp_connect_ms = exchanges.first().map(|first| milliseconds(first.connected));
        report.mpa = Mpa::new(exchanges);
        match connected {
            Ok(connected) => self.look_closer(over, addr, connected, &mut report).await,
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
    async fn look_closer(
        &self,
        over: Over<'_>,
        addr: SocketAddr,
        connected: Connected,
        report: &mut Report,
    ) {
        report.connected(&*connected.qp);
        report.private_data = Some(PrivateDataSeen::new(&connected.private_data));
        report.inline = Some(Inline::new(ours(), &connected.private_data));
        let mut found = RpcRdma {
            credits_asked: CREDITS,
            ..RpcRdma::default()
        };
        let mut talk = self.conversation(connected);
        let mut hint = "";
        if let Err(error) = self.converse(&mut talk, report, &mut found).await {
            hint = text::hint(report, &error);
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
            found.version_two = Some(self.look_at_version_two(over, addr, report).await);
        }
        let first = report.programs.first().and_then(|p| p.answer.detail());
        let why = found.ended.as_deref().or(first).unwrap_or_default();
        report.explanation = text::explain(report, &format!("{why}{hint}"));
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
                let heard = talk.call(nfs4::COMPOUND, &[0, minor, 0]).await?;
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
        // Minor version 0 has no sessions.
        if let Some(&minor @ 1..) = report.nfs4_minor_versions.last() {
            report.nfs4 = Some(nfs4::look(talk, minor).await?);
        }
        Ok(())
    }

    /// Looks at the peer's answer to version two in the first message, and to a request without
    /// CRCs.
    async fn look_at_version_two(
        &self,
        over: Over<'_>,
        addr: SocketAddr,
        report: &mut Report,
    ) -> VersionTwo {
        let (startup, connected) = self.connect(over, addr, CrcMode::Off).await;
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
        let announced = report
            .private_data
            .as_ref()
            .and_then(|seen| seen.version_two);
        // Designs for remote invalidation are of cel-01.
        let is_later = match self.rpcrdma_version {
            Some(draft) => draft == Draft::Ietf07,
            None => designs.is_empty() && announced == Some(Dialect::Ietf07.name()),
        };
        let found = match is_later {
            true => ietf07::look(&mut talk, ours()).await,
            false => version_two::look(&mut talk, ours(), designs).await,
        };
        talk.close().await;
        found
    }

    fn software(&self, crc: CrcMode) -> Iwarp {
        let usual = Config::default();
        let linger = usual.linger.min(self.timeout);
        let designs = self.remote_invalidation.as_ref();
        let several = designs.is_some_and(Invalidation::needs_several);
        let config = usual.with_crc(crc).with_linger(linger);
        Iwarp::new(config.with_several_invalidations(several))
    }

    /// Connects. What was said over software iWARP comes with it; devices tell nothing.
    async fn connect(
        &self,
        over: Over<'_>,
        addr: SocketAddr,
        crc: CrcMode,
    ) -> (Startup, Result<Connected, SetupError>) {
        let receive_size = ours().receive.bytes();
        let options = QpOptions::default().with_receive_size(receive_size);
        let receives = conversation::receives(receive_size);
        let private_data = ours().emit();
        match over {
            Over::Software => {
                let options = options.with_setup_timeout(self.timeout);
                let software = self.software(crc);
                let observed = software.connect_observed(addr, &options, &private_data, receives);
                observed.await
            }
            Over::Devices(devices, limit) => {
                let options = options.with_setup_timeout(limit);
                let connected = devices.connect(addr, &options, &private_data, receives);
                (Startup::default(), connected.await)
            }
        }
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

/// Private data that we send: the same as all commands.
fn ours() -> PrivateData {
    let usual = ClientConfig::default();
    PrivateData {
        send: usual.send_size,
        receive: usual.receive_size,
        remote_invalidation: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Nfs3};
    use oncrpc::Programs;
    use rpcrdma::{Server, ServerConfig};

    fn args(more: &[&str]) -> ProbeArgs {
        let command = ProbeArgs::augment_args(Command::new("probe"));
        let words = [&["probe", "192.0.2.1"], more].concat();
        let matches = command.try_get_matches_from(words).unwrap();
        ProbeArgs::from_arg_matches(&matches).unwrap()
    }

    /// A provider that connects elsewhere than it is told, in the place of RDMA devices; without a place to connect to
    /// it refuses.
    struct Devices(Iwarp, Option<SocketAddr>);

    impl verbs::WrapProvider for Devices {
        type Inner = Iwarp;

        fn inner(&self) -> &Iwarp {
            &self.0
        }

        fn wrap_connect<'a>(
            &'a self,
            _: SocketAddr,
            options: &'a QpOptions,
            private_data: &'a [u8],
            receives: Vec<verbs::WorkRequest>,
        ) -> verbs::BoxFuture<'a, Result<Connected, SetupError>> {
            match self.1 {
                Some(to) => self.0.connect(to, options, private_data, receives),
                None => Box::pin(async { Err(SetupError::Rejected(b"no".to_vec())) }),
            }
        }
    }

    fn iwarp() -> Iwarp {
        Iwarp::new(Config::default())
    }

    async fn server() -> Server {
        let exports = Exports::new(HandleKey::random().unwrap())
            .with(
                "/x",
                Arc::new(MemFs::new(1 << 20)),
                ExportOptions::default(),
            )
            .unwrap();
        let programs = Programs::new().with(Nfs3::new(exports, buffer::Pool::new(1 << 20)));
        let here = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::default();
        let bound = Server::bind(Arc::new(iwarp()), here, Arc::new(programs), config);
        bound.await.unwrap()
    }

    fn providers(to: Option<SocketAddr>) -> Providers {
        let devices = Arc::new(Devices(iwarp(), to));
        Providers::new(Arc::new(iwarp()), Some(devices))
    }

    const ELSEWHERE: &str = "192.0.2.1:20049";

    #[tokio::test]
    async fn peer_is_looked_at_over_devices_first_and_nothing_of_mpa_is_told() {
        let server = server().await;
        let to = Some(server.local_addr());
        let args = args(&["-c2"]);
        let report = args
            .look_at(&providers(to), ELSEWHERE.parse().unwrap())
            .await;
        assert_eq!(report.verdict, Verdict::Rpcrdma, "{}", report.explanation);
        assert_eq!((report.provider, report.mpa.is_none()), ("verbs", true));
        assert!(report.tcp_connect_ms.is_none() && report.plain_tcp.is_none());
        assert_eq!(report.nfs_versions, [3]);
        assert!(report.private_data.as_ref().is_some_and(|seen| seen.valid));
        let limits = report.limits.unwrap();
        assert!(limits.outstanding_reads > 0 && limits.max_message_bytes > 0);
        let found = report.rpcrdma.as_ref().unwrap();
        assert!(found.version_one && found.credits_granted.is_some());
        assert!(matches!(found.version_two, Some(VersionTwo::Spoken(_))));
        let shown = text::Text(&report).to_string();
        assert!(shown.contains("limits"), "{shown}");
    }

    #[tokio::test]
    async fn peer_that_refuses_over_devices_is_described_with_its_private_data() {
        let report = args(&[])
            .look_at(&providers(None), ELSEWHERE.parse().unwrap())
            .await;
        assert_eq!(
            (report.verdict, report.provider),
            (Verdict::Rejected, "verbs")
        );
        let seen = report.private_data.unwrap();
        assert_eq!((seen.bytes.as_str(), seen.valid), ("6e6f", false));
        assert!(report.explanation.contains("not allowed"));
        // Loopback is left to software.
        let server = server().await;
        let report = args(&["-c1"])
            .look_at(&providers(None), server.local_addr())
            .await;
        assert_eq!(
            (report.verdict, report.provider),
            (Verdict::Rpcrdma, "iwarp")
        );
        assert!(report.mpa.is_some());
    }

    #[test]
    fn failure_over_devices_is_a_verdict() {
        use std::io::ErrorKind;
        let check = |error: SetupError, verdict| {
            assert_eq!(Verdict::of_failure_over_devices(&error), verdict, "{error}");
        };
        let io = |kind: ErrorKind| SetupError::Io(kind.into());
        check(SetupError::Rejected(Vec::new()), Verdict::Rejected);
        let reason = verbs::RejectReason::NoResources;
        check(SetupError::Refused(reason.into()), Verdict::Rejected);
        check(io(ErrorKind::ConnectionRefused), Verdict::Refused);
        check(io(ErrorKind::HostUnreachable), Verdict::Unreachable);
        let no_device = SetupError::NoDevice(ErrorKind::NotFound.into());
        check(no_device, Verdict::Unreachable);
        let timed_out = SetupError::TimedOut("the answer", Duration::from_secs(1));
        check(timed_out, Verdict::Unreachable);
    }
}
