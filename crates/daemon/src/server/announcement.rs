//! The announcement of `serve` when it is ready.

use super::RunningServer;
use super::exports::Export;
use super::live_exports::AbsentExports;
use super::mount_commands;
use super::observed::rule_status;
use super::plan::{self, Plan, Presence};
use crate::config::connections::ConnectionSettings;
use crate::control::{ListenerStatus, RuleStatus};
use crate::listen;
use crate::listening::Listening;
use nfs_client::{NfsUrl, printable};
use printing::json;
use rpcrdma::{Design, Versions};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// All there is to say about a running server.
pub struct Announcement<'a> {
    exports: &'a [Plan],
    /// Those that are not served now, and why.
    absent: &'a AbsentExports,
    /// Addresses of RPC-over-RDMA.
    listening: Listening,
    /// Addresses of MOUNT over TCP: one at least.
    mount: &'a [SocketAddr],
    /// Of RPC-over-RDMA.
    versions: Versions,
    /// By which clients may have their handles invalidated.
    remote_invalidation: Vec<Design>,
    /// The integrity checks of software iWARP, in words.
    crc: &'static str,
    /// As whom files are used.
    user: String,
    limits: String,
    state: String,
    /// Address of the metrics.
    metrics: Option<SocketAddr>,
    /// Socket that `rpcrdma stats` asks.
    control: Option<&'a Path>,
}

/// The line that `--json` prints.
#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Line<'a> {
    /// Address of RPC-over-RDMA: the first of `listen`.
    listening: SocketAddr,
    /// Listeners over each provider: the addresses of `listen`, those of RDMA devices beside them, and those of `tcp`.
    listeners: Vec<ListenerStatus>,
    /// Port of MOUNT over TCP, at the same addresses.
    mount_port: u16,
    /// Each address of MOUNT over TCP.
    mounts: Vec<SocketAddr>,
    /// Address of the metrics over HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    /// The control socket, which `rpcrdma stats` asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<Cow<'a, str>>,
    /// Names of designs.
    remote_invalidation: Vec<&'static str>,
    /// The exports, in order.
    exports: Vec<ExportLine<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
struct ExportLine<'a> {
    /// The path that clients mount.
    name: &'a str,
    /// The directory that is served.
    directory: String,
    /// Whether nobody can change anything.
    read_only: bool,
    /// Its URL for the other commands, with the first address that clients reach.
    url: String,
    /// The command that mounts it on Linux over RDMA, from that address, with NFS version 4.2 unless the client is older.
    mount: String,
    /// The commands that mount it on Linux so, one for each address that clients reach.
    mounts: Vec<String>,
    /// The same over TCP: none if the server does not listen for that.
    mounts_over_tcp: Vec<String>,
    /// The commands that mount it with NFS version 3 over RDMA, one for each address that clients reach.
    mounts_of_version_three: Vec<String>,
    /// Why it is not served now.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<&'a str>,
}

impl<'a> Announcement<'a> {
    /// That of a server with these options of connections.
    pub fn new(server: &'a RunningServer, connections: &ConnectionSettings) -> Self {
        Self {
            exports: server.exports().plans(),
            absent: server.exports().absent(),
            listening: server.listening().clone(),
            mount: server.mount_addrs(),
            versions: connections.version.versions,
            remote_invalidation: connections.remote_invalidation.0.clone(),
            crc: connections.describe_crc(),
            user: server.users().to_owned(),
            limits: server.limits().to_owned(),
            state: server.state().to_owned(),
            metrics: server.metrics(),
            control: server.control(),
        }
    }
}

impl Announcement<'_> {
    /// One line of JSON.
    ///
    /// # Errors
    ///
    /// None that is expected: all of it can be written.
    pub fn json(&self) -> serde_json::Result<String> {
        let from = self.listening.mounted_from();
        let over_tcp = self.listening.mounted_from_over_tcp();
        let exports = self.exports.iter().map(|plan| ExportLine {
            name: &plan.export.name,
            directory: plan.export.dir.to_string_lossy().into_owned(),
            read_only: plan.read_only(),
            url: self.url(&plan.export).escaped(),
            mount: mount_commands::over_rdma(&plan.export, self.reached()),
            mounts: from
                .iter()
                .map(|at| mount_commands::over_rdma(&plan.export, *at))
                .collect(),
            mounts_over_tcp: over_tcp
                .iter()
                .map(|at| mount_commands::over_tcp(&plan.export, *at))
                .collect(),
            mounts_of_version_three: from
                .iter()
                .map(|at| self.version_three(&plan.export, *at))
                .collect(),
            absent: self.absent.get(&plan.export.name).map(|why| &**why),
        });
        json::line(&Line {
            listening: self.listening.first(),
            listeners: self.listening.listeners(),
            mount_port: self.mount_port(self.reached()),
            mounts: self.mount.to_vec(),
            metrics: self.metrics,
            control: self.control.map(Path::to_string_lossy),
            remote_invalidation: self.designs(),
            exports: exports.collect(),
        })
    }

    fn designs(&self) -> Vec<&'static str> {
        let designs = self.remote_invalidation.iter();
        designs.map(|design| design.name()).collect()
    }

    /// The first address that clients are to mount from.
    fn reached(&self) -> SocketAddr {
        let from = self.listening.mounted_from();
        from.first().copied().unwrap_or(self.listening.first())
    }

    /// The port of MOUNT that clients of this address are told.
    fn mount_port(&self, at: SocketAddr) -> u16 {
        mount_commands::mount_port(self.mount, at).unwrap_or(0)
    }

    /// URL of the export for our own client.
    fn url(&self, export: &Export) -> NfsUrl {
        let at = self.reached();
        NfsUrl {
            host: mount_commands::host(at),
            port: at.port(),
            path: export.name.clone().into_bytes(),
        }
    }

    /// The command that mounts version 3, over RDMA, from this address.
    fn version_three(&self, export: &Export, at: SocketAddr) -> String {
        mount_commands::version_three("rdma", export, at, self.mount_port(at))
    }

    /// The commands for Linux clients, for each export from each address, and how many more there are than are shown.
    fn mounts(&self) -> (Vec<String>, usize) {
        let from = self.listening.mounted_from();
        let exports = self.exports.iter().map(|plan| &plan.export);
        let all = exports.flat_map(|export| from.iter().map(move |at| (export, *at)));
        let shown = MOST_MOUNTS.max(self.exports.len());
        let more = all.clone().count().saturating_sub(shown);
        let commands = all
            .take(shown)
            .map(|(export, at)| mount_commands::over_rdma(export, at));
        (commands.collect(), more)
    }
}

/// Commands to mount in the text, unless there are more exports.
const MOST_MOUNTS: usize = 16;

impl fmt::Display for Announcement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = match self.versions {
            Versions::One => "version one",
            Versions::Two => "version two",
            Versions::Auto => "versions one and two",
        };
        let and_tcp = match self.listening.tcp.is_empty() {
            true => "",
            false => ", and on TCP",
        };
        writeln!(
            f,
            "serving NFSv4.2, 4.1 and 3 on RPC-over-RDMA {versions} ({}){and_tcp}\n",
            self.listening.provider(self.crc)
        )?;
        let common = plan::common_clients(self.exports);
        for plan in self.exports {
            let also = match self.exports {
                [only] if only.export.name != "/" => ", also as /",
                _ => "",
            };
            let absent = not_there(self.absent, plan);
            let clients = match common {
                Some(_) => String::new(),
                None => format!(", for {}", plan.describe_clients()),
            };
            writeln!(f, "  {} ({}{also}{absent}){clients}", is(plan), how(plan))?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "listening  {}, {} over TCP for MOUNT",
            self.listening.addresses(),
            listen::shown(self.mount)
        )?;
        if let Some(clients) = &common {
            writeln!(f, "allowed    {clients}")?;
        }
        writeln!(f, "users      {}", self.user)?;
        writeln!(f, "limits     {}", self.limits)?;
        match self.designs().as_slice() {
            [] => writeln!(f, "handles    no remote invalidation")?,
            some => writeln!(f, "handles    remote invalidation: {}", some.join(", "))?,
        }
        writeln!(f, "state      {}", self.state)?;
        if let Some(metrics) = self.metrics {
            writeln!(f, "metrics    http://{metrics}/metrics")?;
        }
        let Some(first) = self.exports.first() else {
            return Ok(());
        };
        let over = match self.listening.devices.is_empty() {
            true => "",
            false => ", over InfiniBand or RoCE, or else over iWARP",
        };
        writeln!(f, "\nmount from Linux, as root{over}:")?;
        let (mounts, more) = self.mounts();
        for mount in mounts {
            writeln!(f, "  {mount}")?;
        }
        if more > 0 {
            writeln!(f, "  and {more} more with other addresses (--json has all)")?;
        }
        if self.reached().ip().to_canonical().is_loopback() {
            writeln!(
                f,
                "The software iWARP of Linux (siw) does not work over loopback: to mount this way, on this machine \
                 too, serve on the\naddress of a network card, with --listen ADDR --allow ADDR."
            )?;
        }
        let reached = self.reached();
        match self.listening.mounted_from_over_tcp().first() {
            Some(&at) => writeln!(
                f,
                "or without an RDMA device, over TCP:\n  {}",
                mount_commands::over_tcp(&first.export, at)
            )?,
            None => {
                let mount_port = self.mount_port(reached);
                let [gateway, mount] =
                    mount_commands::by_gateway(&first.export, reached, mount_port);
                writeln!(
                    f,
                    "or without an RDMA device, over TCP (serve with --tcp 2049), or through a gateway on the client:\n  \
                     {gateway}\n  {mount}"
                )?;
            }
        }
        writeln!(
            f,
            "or with version 3 of NFS, whose clients keep their locks to themselves:\n  {}\nor without mounting:\n  \
             rpcrdma ls -l {}",
            self.version_three(&first.export, reached),
            mount_commands::quoted(&self.url(&first.export).to_string())
        )
    }
}

/// Name and directory of an export.
fn is(plan: &Plan) -> String {
    let name = printable(plan.export.name.as_bytes()).to_string();
    format!("{name} is {}", shown_path(&plan.export.dir))
}

/// A local path for a terminal.
fn shown_path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// Why it is not served now, if it is not.
fn not_there(absent: &AbsentExports, plan: &Plan) -> String {
    match absent.get(&plan.export.name) {
        Some(why) => format!("; not served now: {}", printable(why.as_bytes())),
        None => String::new(),
    }
}

fn how(plan: &Plan) -> &'static str {
    match plan.read_only() {
        true => "read-only",
        false => "read-write",
    }
}

/// Output of `--check`.
pub struct Described<'a> {
    /// The exports.
    pub plans: &'a [Plan],
    /// Those that would not be served now, and why.
    pub absent: &'a AbsentExports,
    /// Warnings about options that the administrator may not have meant.
    pub warnings: &'a [String],
    /// Addresses of NFS.
    pub listening: Listening,
    /// Addresses of MOUNT over TCP.
    pub mount: &'a [SocketAddr],
}

/// The line that `--check --json` prints.
#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CheckLine<'a> {
    /// Address of RPC-over-RDMA: the first of `listen`.
    listen: SocketAddr,
    /// Listeners over each provider: the addresses of `listen`, those of RDMA devices beside them, and those of `tcp`.
    listeners: Vec<ListenerStatus>,
    /// Port of MOUNT over TCP.
    mount_port: u16,
    /// Each address of MOUNT over TCP.
    mounts: &'a [SocketAddr],
    /// The exports, in order.
    exports: Vec<CheckedExport<'a>>,
    /// Warnings about options that an administrator may not have meant.
    warnings: &'a [String],
}

#[derive(Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
struct CheckedExport<'a> {
    /// The path that clients mount.
    name: &'a str,
    /// The directory that would be served.
    directory: String,
    /// Its number in file handles, if the file gives one.
    fsid: Option<NonZeroU32>,
    /// Whether what is mounted below is served with it.
    crossmnt: bool,
    /// Whether the others are served without it.
    nofail: bool,
    /// Directory at which something has to be mounted.
    mountpoint: Option<String>,
    /// Why it would not be served now.
    absent: Option<&'a str>,
    /// The rules: the first with the address of a client counts.
    clients: Vec<RuleStatus>,
}

impl Described<'_> {
    /// One line of JSON.
    ///
    /// # Errors
    ///
    /// None that is expected: all of it can be written.
    pub fn json(&self) -> serde_json::Result<String> {
        let exports = self.plans.iter().map(|plan| CheckedExport {
            name: &plan.export.name,
            directory: plan.export.dir.to_string_lossy().into_owned(),
            fsid: plan.fsid,
            crossmnt: plan.crossmnt,
            nofail: plan.presence != Presence::Required,
            mountpoint: match &plan.presence {
                Presence::Mounted(at) => Some(at.to_string_lossy().into_owned()),
                Presence::Required | Presence::Optional => None,
            },
            absent: self.absent.get(&plan.export.name).map(|why| &**why),
            clients: plan.clients.iter().map(rule_status).collect(),
        });
        json::line(&CheckLine {
            listen: self.listening.first(),
            listeners: self.listening.listeners(),
            mount_port: self.mount.first().map_or(0, SocketAddr::port),
            mounts: self.mount,
            exports: exports.collect(),
            warnings: self.warnings,
        })
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "would serve NFSv4.2, 4.1 and 3 at {}, and listen at {} over TCP for MOUNT",
            self.listening.addresses(),
            listen::shown(self.mount)
        )?;
        for plan in self.plans {
            let fsid = plan
                .fsid
                .map_or(String::new(), |fsid| format!(", fsid {fsid}"));
            let mounts = match plan.crossmnt {
                true => ", with what is mounted below it",
                false => "",
            };
            let presence = match &plan.presence {
                Presence::Required => String::new(),
                Presence::Optional => ", nofail".to_owned(),
                Presence::Mounted(at) => format!(", while {} is mounted", shown_path(at)),
            };
            let absent = not_there(self.absent, plan);
            writeln!(f, "\n{}{fsid}{mounts}{presence}{absent}", is(plan))?;
            for rule in &plan.clients {
                writeln!(f, "  {}", rule_status(rule).describe())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::plan::ClientPlan;
    use super::*;
    use crate::listen::mount_addresses;
    use nfs_server::ClientOptions;
    use std::collections::BTreeMap;

    fn announce(exports: &[Plan], listening: &str, check: impl FnOnce(&mut Announcement<'_>)) {
        announce_at(exports, &[listening], check);
    }

    fn announce_at(
        exports: &[Plan],
        listening: &[&str],
        check: impl FnOnce(&mut Announcement<'_>),
    ) {
        let asked: Vec<SocketAddr> = listening.iter().map(|at| at.parse().unwrap()).collect();
        check(&mut Announcement {
            exports,
            absent: &AbsentExports::from([("/gone".to_owned(), "no disk".to_owned())]),
            mount: &mount_addresses(&asked, 815),
            listening: Listening {
                asked,
                asked_are_devices: false,
                devices: Vec::new(),
                socket: None,
                tcp: Vec::new(),
                tcp_socket: None,
                names: BTreeMap::new(),
            },
            versions: Versions::Auto,
            remote_invalidation: vec![Design::PerCall, Design::PerConnection],
            crc: "CRC on",
            user: "somebody".to_owned(),
            limits: "few".to_owned(),
            state: "nowhere".to_owned(),
            metrics: None,
            control: None,
        });
    }

    fn export(name: &str) -> Plan {
        let read_only = ClientOptions {
            read_only: true,
            ..ClientOptions::default()
        };
        Plan {
            export: Export {
                name: name.to_owned(),
                path: "/srv/data".into(),
                dir: "/srv/data".into(),
            },
            fsid: None,
            crossmnt: false,
            presence: Presence::Required,
            origin: None,
            clients: vec![ClientPlan {
                clients: "192.0.2.0/24".parse().unwrap(),
                options: read_only,
            }],
        }
    }

    #[test]
    fn each_address_that_clients_reach_has_a_command_to_mount() {
        let at = ["127.0.0.1:20049", "192.0.2.1:4711", "[2001:db8::1]:20049"];
        announce_at(&[export("/a"), export("/b")], &at, |announcement| {
            let text = announcement.to_string();
            let mounts = text.lines().filter(|line| line.contains("proto=rdma"));
            let mounts: Vec<&str> = mounts.map(str::trim).collect();
            let expected = |name: &str| {
                [
                    format!("mount -t nfs -o proto=rdma,port=4711 192.0.2.1:{name} /mnt"),
                    format!("mount -t nfs -o proto=rdma6,port=20049 '[2001:db8::1]:{name}' /mnt"),
                ]
            };
            let version_three = "mount -t nfs -o vers=3,nolock,proto=rdma,port=4711,mountproto=tcp,mountport=815 192.0.2.1:/a /mnt";
            let [a, b] = [expected("/a"), expected("/b")];
            let expected_lines = a.iter().chain(&b).map(String::as_str);
            assert_eq!(
                mounts,
                expected_lines.chain([version_three]).collect::<Vec<_>>()
            );
            assert!(!text.contains("--listen ADDR --allow ADDR"), "{text}");
            let listening = "listening  127.0.0.1:20049, 192.0.2.1:4711, [2001:db8::1]:20049 over RDMA, \
                             127.0.0.1:815, 192.0.2.1:815, [2001:db8::1]:815 over TCP for MOUNT\n";
            assert!(text.contains(listening), "{text}");
            let said: serde_json::Value =
                serde_json::from_str(&announcement.json().unwrap()).unwrap();
            assert_eq!(said["listening"], "127.0.0.1:20049");
            assert_eq!(said["exports"][1]["url"], "nfs://192.0.2.1:4711/b");
            assert_eq!(
                said["exports"][1]["mounts"],
                serde_json::json!(expected("/b"))
            );
            assert_eq!(
                said["exports"][0]["mounts_of_version_three"][0],
                version_three
            );
            assert_eq!(said["mounts"][2], "[2001:db8::1]:815");
        });
    }

    #[test]
    fn server_over_tcp_is_mounted_without_a_gateway_from_where_others_reach_it() {
        announce(&[export("/data")], "192.0.2.1:20049", |announcement| {
            let over_tcp = ["127.0.0.1:2049", "[2001:db8::1]:7"];
            announcement.listening.tcp = over_tcp.map(|at| at.parse().unwrap()).into();
            let expected = "mount -t nfs -o port=7 '[2001:db8::1]:/data' /mnt";
            let text = announcement.to_string();
            assert!(
                text.contains(&format!("over TCP:\n  {expected}\n")),
                "{text}"
            );
            assert!(text.contains("), and on TCP\n"), "{text}");
            assert!(
                text.contains("127.0.0.1:2049, [2001:db8::1]:7 over TCP, "),
                "{text}"
            );
            assert!(!text.contains("rpcrdma gateway"), "{text}");
            let said = announcement.json().unwrap();
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert_eq!(
                said["exports"][0]["mounts_over_tcp"],
                serde_json::json!([expected])
            );
            assert_eq!(said["listeners"][2]["provider"], "tcp");
        });
    }

    #[test]
    fn commands_to_mount_are_bounded() {
        let at: Vec<String> = (1..=MOST_MOUNTS)
            .map(|n| format!("192.0.2.{n}:1"))
            .collect();
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        announce_at(&[export("/a"), export("/b")], &at, |announcement| {
            let text = announcement.to_string();
            assert_eq!(text.matches("-o proto=rdma").count(), MOST_MOUNTS);
            assert!(
                text.contains("  and 16 more with other addresses"),
                "{text}"
            );
        });
    }

    #[test]
    fn names_are_escaped_for_urls_and_quoted_for_shells() {
        let exports = [export("/it's a %"), export("/tab\t'")];
        announce(&exports, "0.0.0.0:20049", |announcement| {
            let [first, second] = announcement.exports else {
                panic!("two exports");
            };
            assert_eq!(
                announcement.url(&first.export).to_string(),
                "nfs://THIS-HOST/it%27s%20a%20%25"
            );
            let mount = mount_commands::over_rdma(&first.export, announcement.reached());
            assert!(
                mount.ends_with(r" 'THIS-HOST:/it'\''s a %' /mnt"),
                "{mount}"
            );
            let mount = mount_commands::over_rdma(&second.export, announcement.reached());
            assert!(mount.ends_with(r" $'THIS-HOST:/tab\x09\'' /mnt"), "{mount}");
            assert!(announcement.to_string().contains(r"/tab\x09' is /srv/data"));
        });
    }

    #[test]
    fn announcement_on_loopback_explains_siw() {
        announce(&[export("/data")], "127.0.0.1:4711", |announcement| {
            let text = announcement.to_string();
            assert!(text.contains("--listen ADDR --allow ADDR"), "{text}");
        });
        announce(&[export("/data")], "192.0.2.1:4711", |announcement| {
            assert!(!announcement.to_string().contains("--allow"));
        });
    }

    #[test]
    fn line_for_programs_is_one_object() {
        announce(&[export("/data")], "127.0.0.1:4711", |announcement| {
            let line = announcement.json().unwrap();
            assert!(!line.contains('\n'));
            let said: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(said["listening"], "127.0.0.1:4711");
            let listener = serde_json::json!({"provider": "iwarp", "address": "127.0.0.1:4711"});
            assert_eq!(said["listeners"], serde_json::json!([listener]));
            assert_eq!(said["mount_port"], 815);
            let designs = serde_json::json!(["per_call", "per_connection"]);
            assert_eq!(said["remote_invalidation"], designs);
            assert_eq!(said["exports"][0]["name"], "/data");
            assert_eq!(said["exports"][0]["read_only"], true);
            assert_eq!(said["exports"][0]["url"], "nfs://127.0.0.1:4711/data");
        });
    }

    #[test]
    fn single_export_is_also_the_root() {
        announce(&[export("/data")], "127.0.0.1:1", |announcement| {
            let text = announcement.to_string();
            assert!(
                text.contains("/data is /srv/data (read-only, also as /)"),
                "{text}"
            );
        });
        announce(
            &[export("/a"), export("/b")],
            "127.0.0.1:1",
            |announcement| {
                let text = announcement.to_string();
                assert!(text.contains("/b is /srv/data (read-only)"), "{text}");
                assert!(!text.contains("also as"), "{text}");
            },
        );
    }

    #[test]
    fn export_that_is_not_there_is_announced_as_such() {
        let exports = [export("/data"), export("/gone")];
        announce(&exports, "127.0.0.1:1", |announcement| {
            let text = announcement.to_string();
            let says = "/gone is /srv/data (read-only; not served now: no disk)";
            assert!(text.contains(says), "{text}");
            assert!(text.contains("/data is /srv/data (read-only)"), "{text}");
            let said: serde_json::Value =
                serde_json::from_str(&announcement.json().unwrap()).unwrap();
            assert_eq!(said["exports"][1]["absent"], "no disk");
            assert!(said["exports"][0].get("absent").is_none());
        });
    }

    #[test]
    fn announcement_says_for_whom_each_export_is_where_they_differ() {
        let mut exports = [export("/data"), export("/other")];
        announce(&exports, "127.0.0.1:1", |announcement| {
            let text = announcement.to_string();
            assert!(text.contains("\nallowed    192.0.2.0/24\n"), "{text}");
        });
        exports[1].clients[0].clients = "laptop".parse().unwrap();
        announce(&exports, "127.0.0.1:1", |announcement| {
            let text = announcement.to_string();
            assert!(!text.contains("allowed"), "{text}");
            let data = "/data is /srv/data (read-only), for 192.0.2.0/24\n";
            assert!(text.contains(data), "{text}");
            assert!(text.contains("(read-only), for laptop\n"), "{text}");
        });
    }

    #[test]
    fn check_says_what_each_client_may_do() {
        let plans = [export("/data")];
        let described = Described {
            plans: &plans,
            absent: &AbsentExports::new(),
            warnings: &["careful".to_owned()],
            listening: Listening {
                asked: vec!["192.0.2.1:20049".parse().unwrap()],
                asked_are_devices: true,
                devices: Vec::new(),
                socket: None,
                tcp: Vec::new(),
                tcp_socket: None,
                names: BTreeMap::new(),
            },
            mount: &["192.0.2.1:20048".parse().unwrap()],
        };
        let text = described.to_string();
        assert!(text.contains("\n/data is /srv/data\n"), "{text}");
        let rule = "  192.0.2.0/24: read-only, squash root, nobody is 65534:65534\n";
        assert!(text.contains(rule), "{text}");
        let said: serde_json::Value = serde_json::from_str(&described.json().unwrap()).unwrap();
        assert_eq!(said["warnings"][0], "careful");
        assert_eq!(said["listeners"][0]["provider"], "verbs");
        let client = &said["exports"][0]["clients"][0];
        assert_eq!(
            (&client["read_only"], &client["squash"]),
            (&true.into(), &"root".into())
        );
    }
}
