//! The file of `gateway --config`: a `[gateway]` table with options of the command line, and a `[[pair]]`
//! table for each pair.

use super::mount_proxy::MountPlace;
use super::plan::{self, PairPlan};
use super::side::{ListenUrl, UpstreamUrl};
use crate::config_file::{ConfigError, ConfigFile, Options};
use crate::provider::{ProviderArgs, ProviderName};
use crate::serve::plan::Clients;
use serde::Deserialize;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;

/// Pairs of a file.
const MAX_PAIRS: usize = 256;

/// Clients of a pair.
const MAX_CLIENTS: usize = 1024;

/// Options that have no place in the `[gateway]` table: what it is for, how the command itself behaves, and
/// what each pair says.
pub(super) const NOT_IN_FILES: [&str; 10] = [
    "config",
    "check",
    "json",
    "log-format",
    "listen",
    "upstream",
    "mount-port",
    "upstream-mount",
    "rpcbind",
    "reserved-port",
];

/// A file that was read.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) file: ConfigFile,
    pub(super) options: Options,
    pairs: Vec<PairTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    gateway: Options,
    #[serde(default, rename = "pair")]
    pairs: Vec<PairTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairTable {
    listen: Spanned<String>,
    upstream: Spanned<String>,
    #[serde(default)]
    allow: Vec<Spanned<String>>,
    mount_port: Option<u16>,
    upstream_mount: Option<Spanned<String>>,
    #[serde(default)]
    rpcbind: bool,
    #[serde(default)]
    reserved_port: bool,
    provider: Option<Spanned<String>>,
    device: Option<Spanned<String>>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or something in it is not understood.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        Ok(Self::of(ConfigFile::load(path)?)?)
    }

    fn of(file: ConfigFile) -> Result<Self, ConfigError> {
        let File { gateway, pairs } = file.values()?;
        Ok(Self {
            file,
            options: gateway,
            pairs,
        })
    }

    /// The pairs. Those without clients of their own are for `allow`, and those that name neither provider nor device
    /// use this provider.
    ///
    /// # Errors
    ///
    /// If a value is not understood or makes no sense.
    pub(super) fn pairs(
        &self,
        allow: &[Clients],
        provider: &ProviderArgs,
    ) -> Result<Vec<PairPlan>, ConfigError> {
        if self.pairs.is_empty() {
            let what = "no [[pair]]: add one with listen and upstream";
            return Err(self.file.error(0..0, "", what));
        }
        if self.pairs.len() > MAX_PAIRS {
            let what = format!("there are more than {MAX_PAIRS}");
            return Err(self.file.error(0..0, "pair", what));
        }
        let tables = self.pairs.iter().enumerate();
        let pairs: Vec<PairPlan> = tables
            .map(|(index, table)| self.pair(index, table, allow, provider))
            .collect::<Result<_, _>>()?;
        match plan::port_given_twice(&pairs) {
            Some((index, what)) => {
                let at = self.pairs[index].listen.span();
                Err(self.file.error(at, format!("pair[{index}]"), what))
            }
            None => Ok(pairs),
        }
    }

    fn pair(
        &self,
        index: usize,
        table: &PairTable,
        allow: &[Clients],
        provider: &ProviderArgs,
    ) -> Result<PairPlan, ConfigError> {
        let key = |name: &str| format!("pair[{index}].{name}");
        let listen: ListenUrl = self.parsed(&table.listen, || key("listen"))?;
        let upstream: UpstreamUrl = self.parsed(&table.upstream, || key("upstream"))?;
        if table.allow.len() > MAX_CLIENTS {
            let what = format!("it has more than {MAX_CLIENTS} clients");
            return Err(self.file.error(table.listen.span(), key("allow"), what));
        }
        let own = table.allow.iter().enumerate();
        let own: Vec<Clients> = own
            .map(|(at, text)| self.parsed(text, || key(&format!("allow[{at}]"))))
            .collect::<Result<_, _>>()?;
        let allow = match own.is_empty() {
            true => plan::clients_of_all(allow, &listen),
            false => own,
        };
        let upstream_mount: Option<MountPlace> = match &table.upstream_mount {
            Some(place) => Some(self.parsed(place, || key("upstream_mount"))?),
            None => None,
        };
        let name: Option<ProviderName> = match &table.provider {
            Some(name) => Some(self.parsed(name, || key("provider"))?),
            None => None,
        };
        let device = table.device.as_ref().map(|name| name.get_ref().clone());
        let provider = match name.is_some() || device.is_some() {
            true => ProviderArgs::new(name, device),
            false => provider.clone(),
        };
        let pair = PairPlan {
            allow,
            listen,
            upstream,
            mount_port: table.mount_port,
            upstream_mount: upstream_mount.unwrap_or_default(),
            rpcbind: table.rpcbind,
            reserved_port: table.reserved_port,
            provider,
        };
        match pair.contradiction() {
            Some((option, what)) => {
                let at = match (option, &table.device) {
                    ("upstream", _) => table.upstream.span(),
                    ("device", Some(device)) => device.span(),
                    _ => table.listen.span(),
                };
                Err(self.file.error(at, key(option), what))
            }
            None => Ok(pair),
        }
    }

    fn parsed<T: FromStr<Err = String>>(
        &self,
        text: &Spanned<String>,
        key: impl Fn() -> String,
    ) -> Result<T, ConfigError> {
        let value = text.get_ref();
        value.parse().map_err(|error: String| {
            let what = format!("'{value}': {error}");
            self.file.error(text.span(), key(), what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_server::Network;

    fn pairs(text: &str) -> Result<Vec<PairPlan>, ConfigError> {
        let file = ConfigFile::new(Path::new("gateway.toml"), text.to_owned());
        let usual = ProviderArgs::new(Some(ProviderName::Iwarp), None);
        Config::of(file)?.pairs(&["192.0.2.0/24".parse().unwrap()], &usual)
    }

    #[track_caller]
    fn refused(text: &str, says: &str) {
        let error = pairs(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn second_pair_at_a_port_is_told_with_its_line() {
        let pair = "[[pair]]\nlisten = \"rdma://127.0.0.1:7\"\nupstream = \"tcp://filer\"\n";
        refused(
            &pair.repeat(2),
            "gateway.toml:5: pair[1]: rdma://127.0.0.1:7 and rdma://127.0.0.1:7 have the same port",
        );
    }

    #[test]
    fn pairs_have_clients_of_their_own_or_those_of_all() {
        let pairs = pairs(
            r#"
            [gateway]
            idle_timeout = "1m"

            [[pair]]
            listen = "rdma://0.0.0.0"
            upstream = "tcp://filer"
            allow = ["198.51.100.0/24", "laptop"]
            mount_port = 20048
            upstream_mount = "635"
            reserved_port = true

            [[pair]]
            listen = "rdma://0.0.0.0:20050"
            upstream = "rdma://other"

            [[pair]]
            listen = "tcp://127.0.0.1"
            upstream = "rdma://other"
            allow = ["127.0.0.1"]

            [[pair]]
            listen = "rdma://[::1]:20051"
            upstream = "rdma://other"
            "#,
        )
        .unwrap();
        let [first, second, third, fourth] = &pairs[..] else {
            panic!("four pairs");
        };
        assert_eq!(first.describe_clients(), "198.51.100.0/24, laptop");
        assert_eq!(first.mount_port, Some(20048));
        assert!(first.reserved_port);
        assert_eq!(second.describe_clients(), "192.0.2.0/24");
        assert_eq!(third.upstream.to_string(), "rdma://other:20049");
        assert_eq!(third.describe_clients(), "127.0.0.1/32");
        let [here, too] = Network::LOOPBACK;
        assert_eq!(
            fourth.describe_clients(),
            format!("192.0.2.0/24, {here}, {too}")
        );
    }

    #[test]
    fn pairs_have_a_provider_of_their_own_or_that_of_all() {
        let with = |lines: &str| {
            let mut text = String::new();
            for (port, line) in lines.split(';').enumerate() {
                text += &format!(
                    "[[pair]]\nlisten = \"rdma://127.0.0.1:{}\"\nupstream = \"tcp://filer\"\n{line}\n",
                    port + 1
                );
            }
            let pairs = pairs(&text).unwrap();
            pairs
                .into_iter()
                .map(|pair| pair.provider)
                .collect::<Vec<_>>()
        };
        let usual = ProviderArgs::new(Some(ProviderName::Iwarp), None);
        let device = || Some("rxe0".to_owned());
        assert_eq!(
            with(
                "; provider = \"auto\"; device = \"rxe0\"; provider = \"verbs\"\ndevice = \"rxe0\""
            ),
            [
                usual,
                ProviderArgs::new(Some(ProviderName::Auto), None),
                ProviderArgs::new(None, device()),
                ProviderArgs::new(Some(ProviderName::Verbs), device()),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_key() {
        refused(
            "",
            "gateway.toml:1: no [[pair]]: add one with listen and upstream",
        );
        refused(
            "[pair]\nlisten = \"rdma://0.0.0.0\"",
            "gateway.toml:1: pair: a table does not fit: write [[pair]], in two brackets",
        );
        refused(
            "[[pair]]\nlisten = \"rdma://0.0.0.0\"",
            "gateway.toml:1: pair[0]: upstream is missing",
        );
        let with = |line: &str| {
            format!("[[pair]]\nlisten = \"rdma://0.0.0.0\"\nupstream = \"tcp://filer\"\n{line}")
        };
        refused(
            &with("alow = []"),
            "gateway.toml:4: pair[0].alow: there is no key alow",
        );
        refused(
            &with("allow = \"filer\""),
            "gateway.toml:4: pair[0].allow: \"filer\" does not fit: write allow = [\"filer\"]",
        );
        refused(
            &with("allow = [\"*\"]"),
            "gateway.toml:4: pair[0].allow[0]: '*': for everybody, write 0.0.0.0/0",
        );
        refused(
            &with("rpcbind = true"),
            "gateway.toml:2: pair[0].rpcbind: it registers MOUNT too",
        );
        refused(
            &with("provider = \"hardware\""),
            "gateway.toml:4: pair[0].provider: 'hardware': write auto, iwarp or verbs",
        );
        refused(
            &with("provider = \"iwarp\"\ndevice = \"rxe0\""),
            "gateway.toml:5: pair[0].device: it names an RDMA device",
        );
        refused(
            &with("upstream_mount = \"filer:0\"\nmount_port = 20048"),
            "gateway.toml:4: pair[0].upstream_mount: 'filer:0'",
        );
        refused(
            "[[pair]]\nlisten = \"tcp://127.0.0.1\"\nupstream = \"tcp://filer\"",
            "gateway.toml:3: pair[0].upstream: both sides are TCP",
        );
        refused(
            "[[pair]]\nlisten = \"rdma://somewhere\"\nupstream = \"tcp://filer\"",
            "gateway.toml:2: pair[0].listen: 'rdma://somewhere': it is not an address",
        );
    }
}
