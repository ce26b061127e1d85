//! The file of `gateway --config`: a `[gateway]` table with settings, and a `[[pair]]` table for each
//! pair.

use super::mount_place::MountPlace;
use super::plan::{self, PairPlan};
use super::settings::GatewaySettings;
use super::urls::{ListenUrl, UpstreamUrl};
use crate::clients::Clients;
use crate::config::words::word;
use crate::config::{ConfigError, ConfigErrors, ConfigFile, Options, Table, Tables, keys};
use crate::listen::MAX_LISTEN;
use crate::providers::{ProviderKind, ProviderSetting};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use toml::Spanned;

/// Pairs of a file.
const MAX_PAIRS: usize = 256;

/// Clients of a pair.
const MAX_CLIENTS: usize = 1024;

/// A file that was read.
#[derive(Debug)]
pub(super) struct GatewayFile {
    pub(super) file: ConfigFile,
    pub(super) options: Options,
    pairs: Vec<Spanned<PairTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    gateway: Options,
    #[serde(default, rename = "pair")]
    pairs: Vec<Spanned<PairTable>>,
}

impl Tables for File {
    fn tables() -> Vec<Table> {
        vec![
            Table::new("[gateway]", keys::names(&GatewaySettings::keys())),
            Table::of::<PairTable>("[[pair]]"),
        ]
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairTable {
    listen: Option<Spanned<ListenAt>>,
    upstream: Option<Spanned<String>>,
    #[serde(default)]
    allow: Vec<Spanned<String>>,
    mount_port: Option<u16>,
    upstream_mount: Option<Spanned<String>>,
    #[serde(default)]
    rpcbind: bool,
    #[serde(default)]
    reserved_port: bool,
    #[serde(default)]
    hide_pnfs: bool,
    provider: Option<Spanned<String>>,
    device: Option<Spanned<String>>,
}

/// One address to listen at, or several.
#[derive(Debug)]
enum ListenAt {
    One(String),
    Several(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for ListenAt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;

        impl<'de> Visitor<'de> for Value {
            type Value = ListenAt;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, in quotes, or a list of them")
            }

            fn visit_str<E>(self, text: &str) -> Result<ListenAt, E> {
                Ok(ListenAt::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ListenAt, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(ListenAt::Several(texts))
            }
        }

        deserializer.deserialize_any(Value)
    }
}

impl GatewayFile {
    /// Reads a file. Tells what it says as far as it is understood, and what is wrong with the rest.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no TOML.
    pub(super) fn load(path: &Path) -> anyhow::Result<(Self, ConfigErrors)> {
        Ok(Self::of(ConfigFile::load(path)?)?)
    }

    fn of(file: ConfigFile) -> Result<(Self, ConfigErrors), ConfigError> {
        let (File { gateway, mut pairs }, mut errors) = file.values()?;
        if pairs.is_empty() && errors.is_empty() {
            let what = "no [[pair]]: add one with listen and upstream";
            errors.push(file.error(0..0, "", what));
        }
        if pairs.len() > MAX_PAIRS {
            let what = format!("there are more than {MAX_PAIRS}");
            errors.push(file.error(0..0, "pair", what));
            pairs.truncate(MAX_PAIRS);
        }
        let config = Self {
            file,
            options: gateway,
            pairs,
        };
        Ok((config, errors))
    }

    /// The pairs, without those of which the sides are not known. Those without clients of their own are for `allow`, and
    /// those that name neither provider nor device use this provider. Adds what is wrong to the `errors` that are known.
    pub(super) fn pairs(
        &self,
        allow: &[Clients],
        provider: &ProviderSetting,
        errors: &mut ConfigErrors,
    ) -> Vec<PairPlan> {
        let tables = self.pairs.iter().enumerate();
        let (indices, mut pairs): (Vec<usize>, Vec<PairPlan>) = tables
            .flat_map(|(index, table)| {
                let pairs = self.pairs_of(index, table, allow, provider, errors);
                pairs.into_iter().map(move |pair| (index, pair))
            })
            .unzip();
        if pairs.len() > MAX_PAIRS {
            let what = format!("there are more than {MAX_PAIRS} with all addresses of listen");
            errors.push(self.file.error(0..0, "pair", what));
            pairs.truncate(MAX_PAIRS);
        }
        for (at, what) in plan::ports_given_twice(&pairs) {
            let index = indices[at];
            let at = self.pairs[index].get_ref().listen.as_ref();
            let at = at.map_or(0..0, Spanned::span);
            errors.push(self.file.error(at, format!("pair[{index}]"), what));
        }
        pairs
    }

    /// The pairs of a table: one for each address to listen at.
    fn pairs_of(
        &self,
        index: usize,
        table: &Spanned<PairTable>,
        allow: &[Clients],
        provider: &ProviderSetting,
        errors: &mut ConfigErrors,
    ) -> Vec<PairPlan> {
        let whole = format!("pair[{index}]");
        let key = |name: &str| format!("{whole}.{name}");
        let (at, table) = (table.span(), table.get_ref());
        // A key that is not known may be the one that is missing.
        if !errors.tells_of(&self.file, &whole) {
            for (name, is_there) in [
                ("listen", table.listen.is_some()),
                ("upstream", table.upstream.is_some()),
            ] {
                if !is_there {
                    let what = format!("{name} is missing");
                    errors.push(self.file.error(at.clone(), &whole, what));
                }
            }
        }
        let listen = self.listen(table, &key("listen"), errors);
        let upstream: Option<UpstreamUrl> =
            self.parsed(&table.upstream, || key("upstream"), errors);
        let listen_at = table.listen.as_ref().map_or(at, Spanned::span);
        let own = self.own_clients(table, &key, &listen_at, errors);
        let upstream_mount: Option<MountPlace> =
            self.parsed(&table.upstream_mount, || key("upstream_mount"), errors);
        let provider_name = |text: &str| {
            word::<ProviderKind>(text).map_err(|_| "write auto, iwarp or verbs".to_owned())
        };
        let kind = table.provider.as_ref();
        let kind =
            kind.and_then(|text| self.parse_with(provider_name, text, || key("provider"), errors));
        let device = table.device.as_ref().map(|name| name.get_ref().clone());
        let provider = match kind.is_some() || device.is_some() {
            true => ProviderSetting { kind, device },
            false => provider.clone(),
        };
        let (Some(&first), Some(upstream)) = (listen.first(), upstream) else {
            return Vec::new();
        };
        let pair = PairPlan {
            allow: Vec::new(),
            listen: first,
            upstream,
            mount_port: table.mount_port,
            upstream_mount: upstream_mount.unwrap_or_default(),
            rpcbind: table.rpcbind,
            reserved_port: table.reserved_port,
            hide_pnfs: table.hide_pnfs,
            provider,
        };
        let pairs = plan::at_each(&pair, &listen, |listen| match own.is_empty() {
            true => plan::clients_of_all(allow, listen),
            false => own.clone(),
        });
        // What contradicts a value that is not understood may not contradict the right one.
        if !errors.tells_of(&self.file, &whole) {
            for (option, what) in plan::contradictions(&pairs) {
                let at = match (option, &table.upstream, &table.device) {
                    ("upstream", Some(upstream), _) => upstream.span(),
                    ("device", _, Some(device)) => device.span(),
                    _ => listen_at.clone(),
                };
                if option != "allow" || !errors.tells_of(&self.file, "gateway") {
                    errors.push(self.file.error(at, key(option), what));
                }
            }
        }
        let knows_provider = ["provider", "device"]
            .iter()
            .all(|name| !errors.tells_of(&self.file, &key(name)));
        match knows_provider {
            true => pairs,
            false => Vec::new(),
        }
    }

    /// The addresses at which a pair listens, as far as they are understood.
    fn listen(&self, table: &PairTable, key: &str, errors: &mut ConfigErrors) -> Vec<ListenUrl> {
        let Some(listen) = &table.listen else {
            return Vec::new();
        };
        let texts = match listen.get_ref() {
            ListenAt::One(text) => {
                let text = Spanned::new(listen.span(), text.clone());
                let url = self.parse(&text, || key.to_owned(), errors);
                return url.into_iter().collect();
            }
            ListenAt::Several(texts) => texts,
        };
        if texts.is_empty() || texts.len() > MAX_LISTEN {
            let what = format!("there has to be one address at least, and {MAX_LISTEN} at most");
            errors.push(self.file.error(listen.span(), key, what));
            return Vec::new();
        }
        let numbered = texts.iter().enumerate();
        numbered
            .filter_map(|(at, text)| self.parse(text, || format!("{key}[{at}]"), errors))
            .collect()
    }

    /// The clients that a pair has itself.
    fn own_clients(
        &self,
        table: &PairTable,
        key: &impl Fn(&str) -> String,
        listen: &Range<usize>,
        errors: &mut ConfigErrors,
    ) -> Vec<Clients> {
        if table.allow.len() > MAX_CLIENTS {
            let what = format!("it has more than {MAX_CLIENTS} clients");
            errors.push(self.file.error(listen.clone(), key("allow"), what));
            return Vec::new();
        }
        let own = table.allow.iter().enumerate();
        own.filter_map(|(at, text)| self.parse(text, || key(&format!("allow[{at}]")), errors))
            .collect()
    }

    /// The value of a key, if it is there and understood.
    fn parsed<T: FromStr<Err = String>>(
        &self,
        text: &Option<Spanned<String>>,
        key: impl Fn() -> String,
        errors: &mut ConfigErrors,
    ) -> Option<T> {
        self.parse(text.as_ref()?, key, errors)
    }

    fn parse<T: FromStr<Err = String>>(
        &self,
        text: &Spanned<String>,
        key: impl Fn() -> String,
        errors: &mut ConfigErrors,
    ) -> Option<T> {
        self.parse_with(str::parse, text, key, errors)
    }

    fn parse_with<T>(
        &self,
        parse: impl Fn(&str) -> Result<T, String>,
        text: &Spanned<String>,
        key: impl Fn() -> String,
        errors: &mut ConfigErrors,
    ) -> Option<T> {
        let value = text.get_ref();
        let wrong = |error: String| {
            let what = format!("'{value}': {error}");
            errors.push(self.file.error(text.span(), key(), what));
        };
        parse(value).map_err(wrong).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_server::Network;

    fn setting(kind: Option<ProviderKind>, device: Option<String>) -> ProviderSetting {
        ProviderSetting { kind, device }
    }

    fn read(text: &str) -> (Vec<PairPlan>, Vec<String>) {
        let file = ConfigFile::new(Path::new("gateway.toml"), text.to_owned());
        let usual = setting(Some(ProviderKind::Iwarp), None);
        let (config, mut errors) = GatewayFile::of(file).unwrap();
        let allow = ["192.0.2.0/24".parse().unwrap()];
        let pairs = config.pairs(&allow, &usual, &mut errors);
        let errors = errors.into_vec();
        (pairs, errors.iter().map(ToString::to_string).collect())
    }

    fn pairs(text: &str) -> Vec<PairPlan> {
        let (pairs, errors) = read(text);
        assert!(errors.is_empty(), "{errors:?}");
        pairs
    }

    /// Checks that nothing is wrong but this.
    #[track_caller]
    fn refused(text: &str, says: &str) {
        let (_, errors) = read(text);
        let [error] = &errors[..] else {
            panic!("{errors:?}");
        };
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
    fn each_address_of_a_pair_is_a_pair() {
        let listen =
            |list: &str| format!("[[pair]]\nlisten = {list}\nupstream = \"tcp://filer\"\n");
        let found = pairs(&listen("[\"rdma://192.0.2.1\", \"rdma://127.0.0.1:7\"]"));
        let [first, second] = &found[..] else {
            panic!("two pairs");
        };
        assert_eq!(first.listen.to_string(), "rdma://192.0.2.1:20049");
        assert_eq!(second.listen.to_string(), "rdma://127.0.0.1:7");
        assert_eq!(first.upstream, second.upstream);
        let [here, too] = Network::LOOPBACK;
        assert_eq!(first.describe_clients(), "192.0.2.0/24");
        assert_eq!(
            second.describe_clients(),
            format!("192.0.2.0/24, {here}, {too}")
        );
        refused(
            &listen("[\"rdma://192.0.2.1\", \"here\"]"),
            "gateway.toml:2: pair[0].listen[1]: 'here': it must begin with rdma:// or tcp://",
        );
        refused(
            &listen("[]"),
            "gateway.toml:2: pair[0].listen: there has to be one address at least",
        );
        refused(
            &listen("7"),
            "gateway.toml:2: pair[0].listen: 7 does not fit: it is a text, in quotes, or a list of them",
        );
        refused(
            &listen("[\"rdma://192.0.2.1\", 7]"),
            "gateway.toml:2: pair[0].listen[1]: 7 does not fit: it is a text, in quotes",
        );
        refused(
            &listen("[\"rdma://192.0.2.1\", \"rdma://0.0.0.0\"]"),
            "gateway.toml:2: pair[0]: rdma://192.0.2.1:20049 and rdma://0.0.0.0:20049 have the same port",
        );
        // What holds of each is said once.
        refused(
            &listen("[\"tcp://192.0.2.1\", \"tcp://192.0.2.2\"]"),
            "gateway.toml:3: pair[0].upstream: both sides are TCP",
        );
        let many = "\"rdma://192.0.2.1\", ".repeat(MAX_LISTEN + 1);
        refused(
            &listen(&format!("[{many}]")),
            "gateway.toml:2: pair[0].listen: there has to be",
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
        );
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
            let pairs = pairs(&text);
            pairs
                .into_iter()
                .map(|pair| pair.provider)
                .collect::<Vec<_>>()
        };
        let usual = setting(Some(ProviderKind::Iwarp), None);
        let device = || Some("rxe0".to_owned());
        assert_eq!(
            with(
                "; provider = \"auto\"; device = \"rxe0\"; provider = \"verbs\"\ndevice = \"rxe0\""
            ),
            [
                usual,
                setting(Some(ProviderKind::Auto), None),
                setting(None, device()),
                setting(Some(ProviderKind::Verbs), device()),
            ]
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_in_order_and_nothing_that_follows_from_it() {
        let (pairs, errors) = read(
            r#"
            [gateway]
            alow = ["192.0.2.1"]

            [[pair]]
            listen = "rdma://0.0.0.0:1"
            upstrem = "tcp://filer"

            [[pair]]
            listen = "rdma://0.0.0.0:2"
            upstream = "udp://filer"
            allow = ["*", "192.0.2.1/24", "laptop"]

            [[pair]]
            listen = "rdma://0.0.0.0:3"
            upstream = "tcp://filer"
            mount_port = "20048"
            rpcbind = true

            [[pair]]

            [[pair]]
            listen = "tcp://0.0.0.0:3"
            upstream = "tcp://filer"
            upstream_mount = "635"

            [[pair]]
            listen = "rdma://0.0.0.0:4"
            upstream = "tcp://filer"
            provider = "hardware"
            "#,
        );
        let expected = [
            "gateway.toml:7: pair[0].upstrem: there is no key upstrem",
            "gateway.toml:11: pair[1].upstream: 'udp://filer': there is no transport udp",
            "gateway.toml:12: pair[1].allow[0]: '*': for everybody",
            "gateway.toml:12: pair[1].allow[1]: '192.0.2.1/24': ",
            "gateway.toml:17: pair[2].mount_port: \"20048\" does not fit",
            "gateway.toml:20: pair[3]: listen is missing",
            "gateway.toml:20: pair[3]: upstream is missing",
            "gateway.toml:23: pair[4]: rdma://0.0.0.0:3 and tcp://0.0.0.0:3 have the same port",
            "gateway.toml:24: pair[4].upstream: both sides are TCP",
            "gateway.toml:30: pair[5].provider: 'hardware'",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, says) in errors.iter().zip(expected) {
            assert!(error.starts_with(says), "{error}");
        }
        // What is known of them can be looked at: the sides of two.
        let known: Vec<u16> = pairs.iter().map(|pair| pair.listen.addr.port()).collect();
        assert_eq!(known, [3, 3]);
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
            &with("threads = 2"),
            "gateway.toml:4: pair[0].threads: there is no key threads here: it belongs into [gateway]",
        );
        refused(
            &format!("mount_port = 20048\n{}", with("")),
            "gateway.toml:1: mount_port: there is no key mount_port here: it belongs into [[pair]]",
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
