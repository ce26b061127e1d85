//! Configuration of a server from a command line and a file: its settings and its exports.

use super::exports::{self, ExportArg};
use super::file::{File, ServerFile};
use super::plan::{ClientPlan, Plan, Presence};
use super::running::ServerOptions;
use super::settings::ServerSettings;
use crate::addresses::{has_host_of, meet};
use crate::clients::Clients;
use crate::config::Given;
use crate::config::given::FileOptions;
use crate::config::keys::SettingsTable;
use crate::errors::{Misconfigured, Usage, check_none};
use crate::listen::{self, MAX_LISTEN};
use crate::systemd;
use anyhow::bail;
use nfs_server::{ClientOptions, Network};
use rpcrdma::ServerConfig;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long calls in service may take when a server ends. Their connections are closed then.
const CALLS_END_WITHIN: Duration = Duration::from_secs(7);

/// Settings of `[server]` that need no restart: they are those of exports.
const OF_EXPORTS: [&str; 1] = ["allow"];

/// Source of the configuration of a server.
#[derive(Clone, Debug)]
pub struct Source {
    /// Settings of the command line, or of a program, with their defaults.
    pub settings: ServerSettings,
    /// Those of the settings that go before those of the file.
    pub given: Given,
    /// The exports.
    pub exports: ExportsFrom,
    /// Addresses of sockets of the service manager, which take the place of those to listen at, if there are some.
    pub activated: Vec<SocketAddr>,
    /// The same for TCP without RDMA.
    pub activated_tcp: Vec<SocketAddr>,
    /// The same for MOUNT.
    pub activated_mount: Vec<SocketAddr>,
}

/// Source of exports.
#[derive(Clone, Debug)]
pub enum ExportsFrom {
    /// This file, which has settings too.
    File(PathBuf),
    /// Directories, each with these rights of its clients.
    CommandLine(Vec<ExportArg>, ClientOptions),
}

impl Source {
    /// Reads the configuration, as far as it is understood and there, and returns the errors of the rest.
    ///
    /// # Errors
    ///
    /// If the command line makes no sense, or the file cannot be read or is no TOML.
    pub fn read(self) -> anyhow::Result<(Configuration, Vec<anyhow::Error>)> {
        let mut configuration = Configuration {
            settings: self.settings.clone(),
            exports: Vec::new(),
            in_file: FileOptions::default(),
            source: self,
        };
        let errors = match configuration.source.exports.clone() {
            ExportsFrom::File(path) => configuration.add_file(&path)?,
            ExportsFrom::CommandLine(directories, options) => {
                configuration.add_directories(&directories, options)?;
                Vec::new()
            }
        };
        Ok((configuration, errors))
    }
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Configuration {
    source: Source,
    /// The settings, with the addresses of sockets of the service manager.
    pub settings: ServerSettings,
    /// The exports, with their rules.
    pub exports: Vec<Plan>,
    /// The settings of the file that take effect at a restart.
    in_file: FileOptions,
}

impl Configuration {
    /// Options of the server, with sockets that listen already for TCP without RDMA and for MOUNT.
    pub fn options(
        &self,
        tcp: Vec<(SocketAddr, TcpListener)>,
        mount: Vec<(SocketAddr, TcpListener)>,
    ) -> ServerOptions {
        let settings = &self.settings;
        let is_activated = !self.source.activated.is_empty();
        ServerOptions {
            listen: settings.listen.clone(),
            rdma_socket: is_activated.then_some(systemd::RDMA_SOCKET),
            tcp: self.tcp_addresses(),
            tcp_sockets: tcp,
            mount: self.mount_addresses(),
            mount_sockets: mount,
            exports: self.exports.clone(),
            trust: settings.trust,
            changes: settings.changes,
            state_dir: settings.state_dir.clone(),
            lease: settings.lease,
            rpcbind: settings.rpcbind,
            transport: self.transport(),
            reports: settings.reports.clone(),
            metrics_setting: self
                .source
                .given
                .name_of("metrics", "server", self.file().is_some()),
        }
    }

    /// The file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.source.exports {
            ExportsFrom::File(path) => Some(path),
            ExportsFrom::CommandLine(..) => None,
        }
    }

    /// Reads everything again. Names the settings of the file that differ and take effect at a restart.
    ///
    /// # Errors
    ///
    /// If anything is wrong.
    pub(super) fn reread(&self) -> anyhow::Result<(Self, Vec<String>)> {
        let (read, errors) = self.source.clone().read()?;
        check_none(errors)?;
        let changed = read.in_file.changed(&self.in_file);
        Ok((read, changed))
    }

    /// The addresses that clients connect to, without ports.
    pub(super) fn hosts(&self) -> Vec<IpAddr> {
        self.for_nfs().map(|addr| addr.ip()).collect()
    }

    /// Adds settings and exports of the file. Returns its errors.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no TOML, or has two settings that cannot be there together.
    fn add_file(&mut self, path: &Path) -> anyhow::Result<Vec<anyhow::Error>> {
        let (file, mut errors) = ServerFile::load(path)?;
        let keys = ServerSettings::keys();
        let table = SettingsTable::<_, File>::new(&file.file, "server", &file.server, keys);
        table.apply(&mut self.settings, &self.source.given, &mut errors)?;
        self.listen_where_activated();
        // A setting that is not understood may have been a port.
        let wrong = match errors.tells_of(&file.file, "server") {
            true => None,
            false => self.wrong_with_listeners(),
        };
        self.exports = file.plans(&self.allowed(), &mut errors);
        self.in_file = FileOptions::new(&file.server, &OF_EXPORTS);
        let wrong = wrong.map(|wrong| {
            let what = format!("{}: [server]: {wrong}", path.display());
            Misconfigured(what).into()
        });
        Ok(wrong.into_iter().chain(errors.into_errors()).collect())
    }

    /// Adds the exports of the command line.
    ///
    /// # Errors
    ///
    /// If two listeners cannot listen at the same time, a directory is not there, two exports have one name, or nobody is
    /// allowed to connect.
    fn add_directories(
        &mut self,
        directories: &[ExportArg],
        options: ClientOptions,
    ) -> anyhow::Result<()> {
        self.listen_where_activated();
        if let Some(wrong) = self.wrong_with_listeners() {
            bail!(Usage(wrong));
        }
        let allowed = self.allowed();
        if allowed.is_empty() {
            bail!(Usage(format!(
                "listening at {} serves other machines: say which ones with --allow, as in \
                 --allow 192.168.1.0/24",
                self.for_others()
                    .next()
                    .map_or(String::new(), |ip| ip.to_string())
            )));
        }
        let clients = allowed.into_iter();
        let clients: Vec<ClientPlan> = clients
            .map(|clients| ClientPlan { clients, options })
            .collect();
        let plan = |export| Plan {
            export,
            fsid: None,
            crossmnt: false,
            presence: Presence::Required,
            clients: clients.clone(),
            origin: None,
        };
        let exports = exports::resolve(directories)?;
        self.exports = exports.into_iter().map(plan).collect();
        Ok(())
    }

    /// Listens where sockets of the service manager do, if there are some.
    fn listen_where_activated(&mut self) {
        let activated = &self.source.activated;
        if !activated.is_empty() {
            self.settings.listen.clone_from(activated);
        }
    }

    /// The addresses of TCP without RDMA.
    fn tcp_addresses(&self) -> Vec<SocketAddr> {
        match self.source.activated_tcp.is_empty() {
            true => listen::tcp_addresses(&self.settings.tcp, &self.settings.listen),
            false => self.source.activated_tcp.clone(),
        }
    }

    /// The addresses of MOUNT.
    fn mount_addresses(&self) -> Vec<SocketAddr> {
        match self.source.activated_mount.is_empty() {
            true => listen::mount_addresses(&self.settings.listen, self.settings.mount_port),
            false => self.source.activated_mount.clone(),
        }
    }

    /// The listeners but those of RDMA devices beside software iWARP.
    fn listeners(&self) -> Vec<NamedListener> {
        let source = &self.source;
        let of = |key, addrs: Vec<SocketAddr>, is_held| {
            let is_one = addrs.len() == 1 || key == "mount_port";
            let all = addrs.into_iter().map(move |addr| NamedListener {
                key,
                name: match is_one {
                    true => key.to_owned(),
                    false => format!("{key} {addr}"),
                },
                addr,
                is_held,
            });
            all.collect::<Vec<_>>()
        };
        let metrics = self.settings.reports.metrics;
        [
            of(
                "listen",
                self.settings.listen.clone(),
                !source.activated.is_empty(),
            ),
            of(
                "tcp",
                self.tcp_addresses(),
                !source.activated_tcp.is_empty(),
            ),
            of(
                "mount_port",
                self.mount_addresses(),
                !source.activated_mount.is_empty(),
            ),
            of("metrics", metrics.into_iter().collect(), false),
        ]
        .concat()
    }

    /// An error in words if there are too many listeners, or two of them cannot listen at the same time.
    fn wrong_with_listeners(&self) -> Option<String> {
        let (rdma, tcp) = (self.settings.listen.len(), self.tcp_addresses().len());
        for (key, count) in [("listen", rdma), ("tcp", tcp)] {
            if count > MAX_LISTEN {
                return Some(format!("{key} has more than {MAX_LISTEN} addresses"));
            }
        }
        let listeners = self.listeners();
        let mut pairs = listeners.iter().enumerate().flat_map(|(at, one)| {
            let others = listeners[at + 1..].iter();
            others.map(move |other| (one, other))
        });
        // Sockets that listen already can.
        let (one, other) = pairs
            .find(|(one, other)| !(one.is_held && other.is_held) && meet(one.addr, other.addr))?;
        let is_same = one.key == other.key;
        Some(
            match (
                has_host_of(one.addr, other.addr),
                one.addr.ip() == other.addr.ip(),
            ) {
                (true, false) if is_same => is_part_of(&other.name, &one.name),
                (false, false) if is_same => is_part_of(&one.name, &other.name),
                (_, _) => format!(
                    "{} and {} are both port {}: each needs one of its own",
                    one.name,
                    other.name,
                    one.addr.port()
                ),
            },
        )
    }

    /// Whom exports without clients of their own are for: nobody, if the server listens for other
    /// machines and is not told for which. In a reload, addresses that take effect at a restart count.
    fn allowed(&self) -> Vec<Clients> {
        match self.settings.allow.is_empty() && self.for_others().next().is_none() {
            true => Network::LOOPBACK.map(Clients::Network).into(),
            false => self.settings.allow.clone(),
        }
    }

    /// The addresses at which other machines connect.
    fn for_others(&self) -> impl Iterator<Item = IpAddr> {
        let all = self.for_nfs().map(|addr| addr.ip());
        all.filter(|ip| !ip.to_canonical().is_loopback())
    }

    /// The addresses of NFS, whatever it is over.
    fn for_nfs(&self) -> impl Iterator<Item = SocketAddr> {
        let over_rdma = self.settings.listen.iter().copied();
        over_rdma.chain(self.tcp_addresses())
    }

    /// Configuration of the transport.
    fn transport(&self) -> ServerConfig {
        let settings = &self.settings;
        let config = settings.serving.apply(settings.connections.server());
        config
            .with_drain_timeout(CALLS_END_WITHIN)
            .with_strict(settings.strict)
            .with_connections_hint(
                "--max-connections, or max_connections of [server], sets the limit",
            )
    }
}

/// A listener, as errors name it.
#[derive(Clone)]
struct NamedListener {
    key: &'static str,
    /// The key, with the address if there are several.
    name: String,
    addr: SocketAddr,
    /// Whether it is a socket of the service manager, which listens already.
    is_held: bool,
}

/// An error in words for an address to listen at that another one has.
fn is_part_of(part: &str, all: &str) -> String {
    format!("{part} is a part of {all}: leave it out, or give it a port of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configuration of a file with these lines in its table, or the error of reading it.
    fn read(lines: &str) -> anyhow::Result<(Configuration, Vec<String>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exports.toml");
        let text = format!("[server]\n{lines}\n[[export]]\npath = \"/usr\"\n");
        std::fs::write(&path, text).unwrap();
        let source = Source {
            settings: ServerSettings::default(),
            given: Given::default(),
            exports: ExportsFrom::File(path),
            activated: Vec::new(),
            activated_tcp: Vec::new(),
            activated_mount: Vec::new(),
        };
        let place = format!("{}/", dir.path().display());
        let without_place = |error: anyhow::Error| error.to_string().replace(&place, "");
        match source.read() {
            Ok((configuration, errors)) => {
                let errors = errors.into_iter().map(without_place);
                Ok((configuration, errors.collect()))
            }
            Err(error) => {
                assert!(error.is::<Misconfigured>());
                Err(anyhow::Error::msg(without_place(error)))
            }
        }
    }

    #[test]
    fn key_of_an_export_is_told_where_it_belongs() {
        let (_, errors) = read("fsid = 1").unwrap();
        let says =
            "exports.toml:2: server.fsid: there is no key fsid here: it belongs into [[export]]";
        assert_eq!(errors, [says]);
    }

    #[test]
    fn settings_that_exclude_each_other_are_refused() {
        let error = read("crc = \"strict\"\nno_crc = true").unwrap_err();
        let says =
            "exports.toml: [server]: the argument '--crc <WHEN>' cannot be used with '--no-crc'";
        assert_eq!(error.to_string(), says);
        assert!(
            read("crc = \"strict\"\nno_crc = false")
                .unwrap()
                .1
                .is_empty()
        );
    }

    #[test]
    fn ports_of_tcp_are_at_the_hosts_of_rdma_and_are_in_nobodys_way() {
        let hosts = "allow = \"192.0.2.0/24\"\nlisten = [\"192.0.2.1\", \"192.0.2.2\"]";
        let tcp = |tcp: &str| read(&format!("{hosts}\ntcp = {tcp}")).unwrap();
        let (configuration, errors) = tcp("[2049, \"127.0.0.1:7\"]");
        assert!(errors.is_empty(), "{errors:?}");
        let addrs = ["192.0.2.1:2049", "192.0.2.2:2049", "127.0.0.1:7"];
        let addrs = addrs.map(|addr| addr.parse().unwrap());
        assert_eq!(configuration.options(Vec::new(), Vec::new()).tcp, addrs);
        for (value, says) in [
            (
                "20049",
                "listen 192.0.2.1:20049 and tcp 192.0.2.1:20049 are both port 20049",
            ),
            (
                "\"192.0.2.2:20048\"",
                "tcp and mount_port are both port 20048",
            ),
            (
                "[2049, \"0.0.0.0:2049\"]",
                "tcp 192.0.2.1:2049 is a part of tcp 0.0.0.0:2049: leave it out",
            ),
        ] {
            let (_, errors) = tcp(value);
            let says = format!("exports.toml: [server]: {says}");
            assert!(
                errors.len() == 1 && errors[0].starts_with(&says),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn server_that_others_reach_over_tcp_has_to_be_told_for_whom_it_is() {
        let (_, errors) = read("tcp = \"0.0.0.0\"").unwrap();
        assert!(errors[0].contains("it is for nobody"), "{errors:?}");
        assert!(read("tcp = 2049").unwrap().1.is_empty());
    }

    #[test]
    fn every_value_of_a_list_that_is_not_understood_is_told() {
        let (_, errors) = read(
            r#"allow = ["*", "192.0.2.0/24", "192.0.2.1/24", "laptop", "@trusted"]
            listen = "here"
            state_dir = [true, "x", 1979-05-27]
            remote_invalidation = ["x", "off", "y"]"#,
        )
        .unwrap();
        let expected = [
            "exports.toml:2: server.allow: '*': for everybody, write",
            "exports.toml:2: server.allow: '192.0.2.1/24': ",
            "exports.toml:2: server.allow: '@trusted': netgroups",
            "exports.toml:3: server.listen: it is not an address",
            "exports.toml:4: server.state_dir: 'true': it is a text",
            "exports.toml:4: server.state_dir: '1979-05-27': it is a text",
            "exports.toml:5: server.remote_invalidation: 'x': ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, says) in errors.iter().zip(expected) {
            assert!(error.starts_with(says), "{error}");
        }
        assert!(errors[6].contains("; 'y': "), "{}", errors[6]);
    }

    #[test]
    fn value_that_is_not_understood_is_told_what_it_can_be() {
        for (line, says) in [
            ("credits = 5000", "credits: 5000 is not in 1..=1024"),
            (
                "tcp = \"no\"",
                "tcp: it is neither a port nor an address, as 2049, 0.0.0.0:2049 and [::]:2049 are",
            ),
            ("mount_port = -1", "mount_port: -1 is not in 0..=65535"),
            ("threads = \"two\"", "threads: it is a number"),
            ("credits = 1.5", "credits: it is a number"),
            ("strict = 1", "strict: it is true or false"),
            ("spin = \"no\"", "spin: it is one of park, adaptive, always"),
            ("provider = []", "provider: it is one of auto, iwarp, verbs"),
            ("state_dir = \"\"", "state_dir: it is empty"),
            ("rpcbind = []", "rpcbind: it is true or false"),
            (
                "allow = true",
                "allow: it is a text, a number, or a list of them",
            ),
            (
                "listen = []",
                "listen: it is empty: name one at least, or leave it out",
            ),
            (
                "credits = []",
                "credits: it is empty: name one at least, or leave it out",
            ),
        ] {
            let (_, errors) = read(line).unwrap();
            assert_eq!(errors, [format!("exports.toml:2: server.{says}")], "{line}");
        }
    }
}
