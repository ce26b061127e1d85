//! The tests of an interoperability run, in the order in which they run.

mod both_versions;
mod capture;
mod conform;
mod cut_connection;
mod deb_under_systemd;
mod gateway;
mod idle;
mod in_one_guest;
mod inline_sizes;
mod kept;
mod kernel_calls_back;
mod kernel_reference;
mod kernel_restart;
mod kernel_selftest;
mod kernel_server;
mod linux_mounts_us;
mod linux_mounts_us_v4;
mod linux_serves_us;
mod load;
mod on_host;
mod our_client;
mod power_loss;
mod probe;
mod server_restart;
mod suites;
mod tree;
mod v4_restart;
mod verbs;
mod verbs_counts;
mod verbs_siw;
mod verbs_two_guests;

pub(super) use self::gateway::{GANESHA_PORTS, GANESHA_UPSTREAM, start_ganesha};

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::TestRun;
use programs::command::output;

/// One test.
pub(super) struct Test {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) runs: Runs,
    /// Has the program take part, and not only the kernel.
    pub(super) ours: bool,
    pub(super) run: fn(&TestRun<'_>) -> Result<()>,
}

/// The runs that a test is part of; one that names it runs it in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    /// Every run that names no test, in continuous integration too.
    Usual,
    /// A run with `--all`: it takes minutes, or depends on the timing of another implementation.
    All,
    /// No other: it measures, compares with the kernel alone, or fails for reasons that are not ours.
    Named,
}

/// The test of the Debian package.
pub(super) const OF_THE_PACKAGE: &str = "deb-under-systemd";

pub(super) const TESTS: [Test; 61] = [
    // First, as none takes longer: at the end it would run alone.
    Test {
        name: OF_THE_PACKAGE,
        about: "the service of our Debian package, in a Debian with systemd, serves the kernel's client",
        runs: Runs::Usual,
        ours: true,
        run: deb_under_systemd::run,
    },
    Test {
        name: "kernel-selftest",
        about: "the guest by itself: the kernel's client and server",
        runs: Runs::Usual,
        ours: false,
        run: kernel_selftest::run,
    },
    Test {
        name: "verbs-devices",
        about: "the guest's software devices, rxe and siw: ibv_devinfo, rping, and our `devices`",
        runs: Runs::Usual,
        ours: true,
        run: verbs::devices,
    },
    Test {
        name: "verbs-conformance",
        about: "the tests that every provider passes, by our provider for hardware over rxe",
        runs: Runs::Usual,
        ours: true,
        run: verbs::conformance,
    },
    Test {
        name: "verbs-stack",
        about: "the stack over rxe: end to end, a hostile peer, 1,000 connections, the device removed",
        runs: Runs::Named,
        ours: false,
        run: verbs::stack,
    },
    Test {
        name: "verbs-removal",
        about: "the RDMA device of our server is removed under our client and the kernel's, and comes back",
        runs: Runs::All,
        ours: true,
        run: verbs::removal,
    },
    Test {
        name: "verbs-v4",
        about: "the kernel's client, version 4.2 and 4.1, at work on our server over rxe",
        runs: Runs::All,
        ours: true,
        run: verbs::version_4,
    },
    Test {
        name: "verbs-siw",
        about: "our provider for hardware over siw: with our software iWARP, and under the kernel's client",
        runs: Runs::Usual,
        ours: true,
        run: verbs_siw::run,
    },
    Test {
        name: "verbs-counts",
        about: "what calls cost our client and our server over rxe, beside the kernel's client",
        runs: Runs::Named,
        ours: true,
        run: verbs_counts::run,
    },
    Test {
        name: "verbs-two-guests",
        about: "rxe between two guests: our server under clients in another machine, which loses its power",
        runs: Runs::All,
        ours: true,
        run: verbs_two_guests::run,
    },
    Test {
        name: "linux-mounts-us",
        about: "the kernel's client at work on our server",
        runs: Runs::Usual,
        ours: true,
        run: linux_mounts_us::run,
    },
    Test {
        name: "linux-mounts-us-v4",
        about: "the kernel's client, version 4.1 and 4.2, at work on our server over RDMA and over TCP",
        runs: Runs::Usual,
        ours: true,
        run: linux_mounts_us_v4::run,
    },
    Test {
        name: "v4-restart",
        about: "our server is killed under two clients of version 4 that hold locks and write, and comes back",
        runs: Runs::All,
        ours: true,
        run: v4_restart::few,
    },
    Test {
        name: "v4-restart-many",
        about: "the same, 12 times",
        runs: Runs::Named,
        ours: true,
        run: v4_restart::many,
    },
    Test {
        name: "both-versions",
        about: "the kernel's client, of version one, and ours, of version two, on our server at a time",
        runs: Runs::Usual,
        ours: true,
        run: both_versions::run,
    },
    Test {
        name: "linux-serves-us",
        about: "our client at work on the kernel's server",
        runs: Runs::Usual,
        ours: true,
        run: linux_serves_us::run,
    },
    Test {
        name: "probe",
        about: "what our probe sees in the kernel's server",
        runs: Runs::Usual,
        ours: true,
        run: probe::run,
    },
    Test {
        name: "conform-knfsd",
        about: "`rpcrdma conform` on the kernel's server, beside the baseline of its version",
        runs: Runs::Named,
        ours: true,
        run: conform::run,
    },
    Test {
        name: "conform-ganesha",
        about: "`rpcrdma conform` on nfs-ganesha behind our gateway, beside its baseline",
        runs: Runs::Named,
        ours: true,
        run: on_host::conform_ganesha,
    },
    Test {
        name: "server-restart",
        about: "our server ends and is killed under the kernel's client at work, and comes back",
        runs: Runs::All,
        ours: true,
        run: server_restart::run,
    },
    Test {
        name: "power-loss",
        about: "the power fails under our server at many points: what was acknowledged is on the disk",
        runs: Runs::Usual,
        ours: true,
        run: power_loss::usual,
    },
    Test {
        name: "power-loss-v4",
        about: "the same under a client of version 4.2, and under one that holds a lock and reclaims it",
        runs: Runs::All,
        ours: true,
        run: power_loss::usual_v4,
    },
    Test {
        name: "cut-connection",
        about: "the connection of the kernel's client at work is cut in every way there is",
        runs: Runs::All,
        ours: true,
        run: cut_connection::run,
    },
    Test {
        name: "inline-sizes",
        about: "our server comes back with other inline sizes, invalidation, credits and CRC",
        runs: Runs::Usual,
        ours: true,
        run: inline_sizes::run,
    },
    Test {
        name: "idle",
        about: "our server closes a connection that the kernel's client does not use, and then does",
        runs: Runs::Usual,
        ours: true,
        run: idle::server_closes,
    },
    Test {
        name: "quotas",
        about: "limits of users and of a disk, hit by the kernel's client on our server",
        runs: Runs::Usual,
        ours: true,
        run: in_one_guest::quotas,
    },
    Test {
        name: "moved",
        about: "what the kernel's client has open is moved on our server, which ends and comes back",
        runs: Runs::Usual,
        ours: true,
        run: in_one_guest::moved,
    },
    Test {
        name: "two-mounts",
        about: "two mounts of our server change one file and one directory in turns",
        runs: Runs::Usual,
        ours: true,
        run: in_one_guest::two_mounts,
    },
    Test {
        name: "nested-mounts",
        about: "file systems mounted below our exports, with crossmnt and without; lists of exports",
        runs: Runs::Usual,
        ours: true,
        run: in_one_guest::nested_mounts,
    },
    Test {
        name: "sync-costs",
        about: "times of WRITEs on stable storage and COMMITs, on our server and the kernel's on one ext4",
        runs: Runs::Named,
        ours: true,
        run: in_one_guest::sync_costs,
    },
    Test {
        name: "layers",
        about: "overlayfs over two file systems, FUSE and subvolumes of btrfs, served and copied by our program",
        runs: Runs::Usual,
        ours: true,
        run: on_host::layers,
    },
    Test {
        name: "local-users",
        about: "users of one machine at our server and gateway: closed sockets, MPTCP, VRFs, the kernel's own mounts",
        runs: Runs::Usual,
        ours: true,
        run: in_one_guest::local_users,
    },
    Test {
        name: "kernel-restart",
        about: "the kernel's server ends and comes back under our client at work",
        runs: Runs::Named,
        ours: true,
        run: kernel_restart::run,
    },
    Test {
        name: "kernel-calls-back",
        about: "the kernel's server calls our client, also when their connection was lost meanwhile",
        runs: Runs::Usual,
        ours: false,
        run: kernel_calls_back::run,
    },
    Test {
        name: "tshark",
        about: "Wireshark's view of the kernel's client on our server",
        runs: Runs::Usual,
        ours: true,
        run: capture::run,
    },
    Test {
        name: "tshark-version-two",
        about: "Wireshark's view of our client on our server in version two, with our dissector",
        runs: Runs::Usual,
        ours: true,
        run: dissector,
    },
    Test {
        name: "dashboard",
        about: "a real Prometheus scrapes our server at work: the dashboard for Grafana has its data",
        runs: Runs::Usual,
        ours: true,
        run: dashboard,
    },
    Test {
        name: "posix-suite",
        about: "pjdfstest by the kernel's client, with the same results on ours and the kernel's server",
        runs: Runs::Named,
        ours: true,
        run: suites::posix,
    },
    Test {
        name: "posix-suite-v4",
        about: "the same over version 4.2",
        runs: Runs::Named,
        ours: true,
        run: suites::posix_v4,
    },
    Test {
        name: "nfs-conformance",
        about: "the programs of nfs-conformance, with the same results on ours and the kernel's server of version 4.2",
        runs: Runs::Named,
        ours: true,
        run: suites::conformance,
    },
    Test {
        name: "cthon04",
        about: "cthon04's basic tests and locks of two processes, in the same way",
        runs: Runs::Named,
        ours: true,
        run: suites::cthon,
    },
    Test {
        name: "power-loss-all",
        about: "the same on each file system, without handles of the kernel, and without syncs",
        runs: Runs::Named,
        ours: true,
        run: power_loss::all,
    },
    Test {
        name: "verbs-conformance-siw",
        about: "the same over siw",
        runs: Runs::Named,
        ours: true,
        run: verbs::conformance_siw,
    },
    Test {
        name: "verbs-programs",
        about: "our server and our client with the kernel's, over rxe",
        runs: Runs::Usual,
        ours: true,
        run: verbs::programs,
    },
    Test {
        name: "idle-client",
        about: "the kernel's client closes an idle connection, after 5 minutes",
        runs: Runs::Named,
        ours: true,
        run: idle::client_closes,
    },
    Test {
        name: "reference-mount",
        about: "linux-mounts-us with the kernel's server in our place",
        runs: Runs::Named,
        ours: false,
        run: kernel_reference::mounts,
    },
    Test {
        name: "reference-tshark",
        about: "tshark with the kernel's server in our place",
        runs: Runs::Named,
        ours: false,
        run: kernel_reference::tshark,
    },
    Test {
        name: "gateway-chain",
        about: "libnfs through two of our gateways, TCP to RDMA to TCP, on nfs-ganesha",
        runs: Runs::Usual,
        ours: true,
        run: gateway::chain,
    },
    Test {
        name: "gateway-ganesha",
        about: "the kernel's client on nfs-ganesha, both ends come and go",
        runs: Runs::All,
        ours: true,
        run: gateway::ganesha,
    },
    Test {
        name: "gateway-knfsd",
        about: "the kernel's client on its server through our gateway: delegations and copies in the background",
        runs: Runs::Usual,
        ours: true,
        run: gateway::callbacks,
    },
    Test {
        name: "gateway-to-rdma",
        about: "clients without RDMA on the kernel's server over RDMA, through our gateway",
        runs: Runs::All,
        ours: true,
        run: gateway::to_rdma,
    },
    Test {
        name: "gateway-to-rdma-knfsd",
        about: "gateway-knfsd the other way: the kernel's client over TCP, its server over RDMA",
        runs: Runs::Named,
        ours: true,
        run: gateway::callbacks_to_rdma,
    },
    Test {
        name: "gateway-compounds",
        about: "COMPOUNDs of several READs, READLINK and READDIR on the kernel's server over RDMA, through our gateway",
        runs: Runs::Usual,
        ours: true,
        run: gateway::compounds,
    },
    Test {
        name: "gateway-over-rxe",
        about: "our gateway over rxe, between the kernel's client and its server, both ways",
        runs: Runs::Usual,
        ours: true,
        run: gateway::over_rxe,
    },
    Test {
        name: "gateway-kerberos",
        about: "the kernel's client on nfs-ganesha through our gateway, with Kerberos",
        runs: Runs::Named,
        ours: true,
        run: gateway::kerberos,
    },
    Test {
        name: "reference-gateway",
        about: "gateway-ganesha over TCP, without a gateway",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_ganesha,
    },
    Test {
        name: "reference-gateway-knfsd",
        about: "gateway-knfsd over TCP, without a gateway",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_callbacks,
    },
    Test {
        name: "reference-gateway-to-rdma",
        about: "gateway-to-rdma over TCP, without a gateway",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_to_rdma,
    },
    Test {
        name: "reference-compounds",
        about: "gateway-compounds over TCP, without a gateway",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_compounds,
    },
    Test {
        name: "reference-gateway-kerberos",
        about: "gateway-kerberos over TCP, without a gateway",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_kerberos,
    },
    Test {
        name: "reference-gateway-chain",
        about: "gateway-chain without gateways",
        runs: Runs::Named,
        ours: false,
        run: gateway::reference_chain,
    },
];

/// [`dissector`], as part of a run.
fn dissector(run: &TestRun<'_>) -> Result<()> {
    let say = |done: &str| run.report.say(run.name, done);
    let captures = if run.keep_captures {
        &run.logs
    } else {
        &run.work
    };
    dissector::check(run.program, &run.work, captures, say)
}

/// [`crate::dashboard`], as part of a run.
fn dashboard(run: &TestRun<'_>) -> Result<()> {
    let asked = crate::dashboard::check(run.program, &run.work)?;
    let done = format!("{asked} expressions have data");
    run.report.say(run.name, &done);
    Ok(())
}

/// The inline sizes that the kernel must have negotiated: those of both sides. Had it not understood
/// our private data, they would be 1024 (RFC 8797 §4.2).
const INLINE: &str = "4096/4096";

/// Entries of the large directory.
const ENTRIES: usize = 3_000;

const MIB: usize = 1 << 20;

/// A file's SHA-256 in hexadecimal.
fn sha256(path: &Path) -> Result<String> {
    let line = output(Command::new("sha256sum").arg(path))?;
    line.split_whitespace()
        .next()
        .map(str::to_owned)
        .context("sha256sum said nothing")
}

/// Makes a file of this many bytes that no compression or repetition makes easy.
fn write_noise(path: &Path, bytes: usize) -> Result<()> {
    // Xorshift: quick, and the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    Ok(fs::write(path, noise)?)
}
