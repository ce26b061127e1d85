//! The file of `serve --config`.
//!
//! A `[server]` table has the options of the command line, with `_` for `-`; each `[[export]]` table is
//! a directory. `include` names a directory of files with further exports ([`include`]). What is not known is
//! refused: a rule that is misspelt must not be a rule that is not there.

mod include;

use super::exports::{Export, default_name, normal_name};
use super::plan::{ClientPlan, Clients, Plan, Presence};
use crate::config_file::{ConfigError, ConfigErrors, ConfigFile, Options};
use nfs_server::{Anonymous, ClientOptions, Squash};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Exports of a file.
const MAX_EXPORTS: usize = 1024;

/// Clients of an export.
const MAX_CLIENTS: usize = 1024;

/// A file that was read, with those that it includes.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) file: ConfigFile,
    pub(super) server: Options,
    exports: Vec<Spanned<ExportTable>>,
    /// The files that it includes, in order.
    included: Vec<Included>,
}

/// An included file.
#[derive(Debug)]
struct Included {
    file: ConfigFile,
    exports: Vec<Spanned<ExportTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// A directory of files with exports, beside this file if it is no absolute path.
    include: Option<Spanned<PathBuf>>,
    #[serde(default)]
    server: Options,
    #[serde(default, rename = "export")]
    exports: Vec<Spanned<ExportTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportTable {
    path: Option<Spanned<PathBuf>>,
    name: Option<Spanned<String>>,
    fsid: Option<Spanned<NonZeroU32>>,
    crossmnt: Option<bool>,
    nofail: Option<bool>,
    mountpoint: Option<Spanned<MountPoint>>,
    read_only: Option<bool>,
    squash: Option<SquashWord>,
    anonuid: Option<u32>,
    anongid: Option<u32>,
    #[serde(default, rename = "client")]
    clients: Vec<Spanned<ClientTable>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    read_only: Option<bool>,
    squash: Option<SquashWord>,
    anonuid: Option<u32>,
    anongid: Option<u32>,
}

/// What has to be mounted for a directory to be served.
#[derive(Debug)]
enum MountPoint {
    /// Nothing, or the directory itself.
    Itself(bool),
    Path(PathBuf),
}

impl<'de> Deserialize<'de> for MountPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Value;

        impl Visitor<'_> for Value {
            type Value = MountPoint;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or the path of a mount point")
            }

            fn visit_bool<E>(self, itself: bool) -> Result<MountPoint, E> {
                Ok(MountPoint::Itself(itself))
            }

            fn visit_str<E>(self, path: &str) -> Result<MountPoint, E> {
                Ok(MountPoint::Path(path.into()))
            }
        }

        deserializer.deserialize_any(Value)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SquashWord {
    Root,
    RemoteRoot,
    All,
    None,
}

impl Config {
    /// Reads a file. Tells what it says as far as it is understood, and what is wrong with the rest.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is no TOML.
    pub(super) fn load(path: &Path) -> anyhow::Result<(Self, ConfigErrors)> {
        Ok(Self::of(ConfigFile::load(path)?)?)
    }

    pub(super) fn of(file: ConfigFile) -> Result<(Self, ConfigErrors), ConfigError> {
        let (
            File {
                include,
                server,
                mut exports,
            },
            mut errors,
        ) = file.values()?;
        let included = include.map(|dir| include::read(&file, &dir, &mut errors));
        let mut included = included.unwrap_or_default();
        let of_included: usize = included.iter().map(|file| file.exports.len()).sum();
        let count = exports.len() + of_included;
        if count == 0 && errors.is_empty() || count > MAX_EXPORTS {
            let what = format!("there has to be one at least, and {MAX_EXPORTS} at most");
            errors.push(file.error(0..0, "export", what));
            exports.truncate(MAX_EXPORTS);
            let mut left = MAX_EXPORTS - exports.len();
            for file in &mut included {
                file.exports.truncate(left);
                left -= file.exports.len();
            }
        }
        let config = Self {
            file,
            server,
            exports,
            included,
        };
        Ok((config, errors))
    }

    /// Each file with its exports, in order.
    fn files(&self) -> impl Iterator<Item = (&ConfigFile, &[Spanned<ExportTable>])> {
        let included = self.included.iter();
        let included = included.map(|one| (&one.file, &one.exports[..]));
        [(&self.file, &self.exports[..])]
            .into_iter()
            .chain(included)
    }

    /// The exports, without those that cannot be served. Those without clients of their own are for `allow`. Adds what is
    /// wrong to the `errors` that are known: a directory that is not there, a name or number that two exports have, an
    /// export for nobody.
    pub(super) fn plans(&self, allow: &[Clients], errors: &mut ConfigErrors) -> Vec<Plan> {
        let (mut names, mut fsids) = (HashMap::new(), HashMap::new());
        let mut plans = Vec::new();
        let knows_allow = !errors.tells_of(&self.file, "server");
        let all = self.files().flat_map(|(file, exports)| {
            let numbered = exports.iter().enumerate();
            numbered.map(move |(index, table)| (ExportsFile(file), index, table))
        });
        for (file, index, table) in all {
            let plan = file.plan(index, table, (allow, knows_allow), errors);
            let (at, table) = (table.span(), table.get_ref());
            let key = |name: &str| format!("export[{index}].{name}");
            // The export before this one, in words.
            let of = |(other, before): (ExportsFile<'_>, usize)| match other.0.path() {
                path if path == file.0.path() => format!("export[{before}]"),
                path => format!("export[{before}] of {}", path.display()),
            };
            if let Some(fsid) = &table.fsid
                && let Some(before) = fsids.insert(*fsid.get_ref(), (file, index))
            {
                let what = format!("{} has this number too", of(before));
                errors.push(file.error(fsid.span(), key("fsid"), what));
            }
            let Some(plan) = plan else {
                continue;
            };
            if let Some(before) = names.insert(plan.export.name.clone(), (file, index)) {
                let named = table.name.as_ref().map(Spanned::span);
                let at = named
                    .or(table.path.as_ref().map(Spanned::span))
                    .unwrap_or(at);
                let what = format!("{} is named {} too", of(before), plan.export.name);
                errors.push(file.error(at, key("name"), what));
            } else {
                plans.push(plan);
            }
        }
        plans
    }
}

/// A file whose exports are read.
#[derive(Clone, Copy)]
struct ExportsFile<'a>(&'a ConfigFile);

impl ExportsFile<'_> {
    /// An error at a place of the file.
    fn error(
        &self,
        at: Range<usize>,
        key: impl Into<String>,
        what: impl fmt::Display,
    ) -> ConfigError {
        self.0.error(at, key, what)
    }

    /// An export. One without clients of its own is for those that `[server]` allows, if what it says of them is understood.
    fn plan(
        &self,
        index: usize,
        table: &Spanned<ExportTable>,
        (allow, knows_allow): (&[Clients], bool),
        errors: &mut ConfigErrors,
    ) -> Option<Plan> {
        let whole = format!("export[{index}]");
        let key = |name: &str| format!("{whole}.{name}");
        let (at, table) = (table.span(), table.get_ref());
        // A key that is not understood may be the one that is missing, or the one that says for whom it is.
        let is_understood = !errors.tells_of(self.0, &whole);
        if table.path.is_none() && is_understood {
            errors.push(self.error(at.clone(), &whole, "path is missing"));
        }
        let at = table.path.as_ref().map_or(at, Spanned::span);
        let directory = self.directory(table, &key, errors);
        let name = match &table.name {
            Some(name) => self.name(name, key("name"), errors),
            None => directory.as_ref().and_then(|(export, _)| {
                let default = default_name(&export.path, &export.dir);
                let wrong =
                    |error| errors.push(self.error(at.clone(), key("path"), format!("{error:#}")));
                default.map_err(wrong).ok()
            }),
        };
        let clients = self.clients(&whole, table, allow, errors);
        let has_rules = !table.clients.is_empty();
        if clients.is_empty() && !has_rules && is_understood && knows_allow {
            let what = "it is for nobody: say for whom with [[export.client]], or for all exports with \
                        allow in [server]";
            errors.push(self.error(at.clone(), key("client"), what));
        }
        if clients.len() > MAX_CLIENTS {
            let what = format!("it has more than {MAX_CLIENTS} clients");
            errors.push(self.error(at.clone(), key("client"), what));
        }
        let (mut export, presence) = directory?;
        export.name = name?;
        Some(Plan {
            export,
            fsid: table.fsid.as_ref().map(|fsid| *fsid.get_ref()),
            crossmnt: table.crossmnt.unwrap_or(false),
            presence,
            clients,
            origin: Some(self.error(at, key("path"), "").place()),
        })
    }

    /// The directory of an export, which has no name yet, if it is there or need not be.
    fn directory(
        &self,
        table: &ExportTable,
        key: &impl Fn(&str) -> String,
        errors: &mut ConfigErrors,
    ) -> Option<(Export, Presence)> {
        let path = table.path.as_ref()?;
        let (path, at) = (path.get_ref(), path.span());
        if !path.is_absolute() {
            errors.push(self.error(at, key("path"), "it does not begin with /"));
            return None;
        }
        let presence = match self.presence(table, path, key) {
            Ok(presence) => presence,
            Err(error) => {
                errors.push(error);
                return None;
            }
        };
        let mut export = Export {
            name: String::new(),
            path: path.clone(),
            dir: path.clone(),
        };
        match (presence.locate(&export), &presence) {
            (Ok(dir), _) => export.dir = dir,
            (Err(error), Presence::Required) => {
                // It may be one that need not be there.
                let tells_of = |name| errors.tells_of(self.0, &key(name));
                if !tells_of("nofail") && !tells_of("mountpoint") {
                    let error = self.error(at, key("path"), format!("{error:#}"));
                    errors.push(error.of_machine());
                }
                return None;
            }
            (Err(_), Presence::Optional | Presence::Mounted(_)) => {}
        }
        Some((export, presence))
    }

    /// The name that an export is given.
    fn name(
        &self,
        name: &Spanned<String>,
        key: String,
        errors: &mut ConfigErrors,
    ) -> Option<String> {
        let normal = match name.get_ref().starts_with('/') {
            true => normal_name(name.get_ref()),
            false => Err("it does not begin with /".to_owned()),
        };
        let wrong = |what| errors.push(self.error(name.span(), key, what));
        normal.map_err(wrong).ok()
    }

    /// The clients of an export by its rules, or else `allow`.
    fn clients(
        &self,
        export: &str,
        table: &ExportTable,
        allow: &[Clients],
        errors: &mut ConfigErrors,
    ) -> Vec<ClientPlan> {
        let options = options(
            ClientOptions::default(),
            (table.read_only, table.squash, table.anonuid, table.anongid),
        );
        if table.clients.is_empty() {
            let all = allow.iter().cloned();
            return all.map(|clients| ClientPlan { clients, options }).collect();
        }
        let mut clients: Vec<ClientPlan> = Vec::new();
        for (index, rule) in table.clients.iter().enumerate() {
            let whole = format!("{export}.client[{index}]");
            let key = format!("{whole}.hosts");
            let (at, rule) = (rule.span(), rule.get_ref());
            let given = (rule.read_only, rule.squash, rule.anonuid, rule.anongid);
            let options = self::options(options, given);
            let Some(hosts) = &rule.hosts else {
                if !errors.tells_of(self.0, &whole) {
                    errors.push(self.error(at, whole, "hosts is missing"));
                }
                continue;
            };
            if hosts.get_ref().is_empty() {
                let what = "it is empty: this rule would be for nobody";
                errors.push(self.error(hosts.span(), &key, what));
            }
            for host in hosts.get_ref() {
                match host.get_ref().parse() {
                    Ok(host) => clients.push(ClientPlan {
                        clients: host,
                        options,
                    }),
                    Err(error) => {
                        let what = format!("'{}': {error}", host.get_ref());
                        errors.push(self.error(host.span(), &key, what));
                    }
                }
            }
        }
        clients
    }

    /// What has to be there for a directory to be served.
    fn presence(
        &self,
        table: &ExportTable,
        path: &Path,
        key: &impl Fn(&str) -> String,
    ) -> Result<Presence, ConfigError> {
        let mounted = table.mountpoint.as_ref();
        Ok(match mounted.map(|at| (at.get_ref(), at.span())) {
            Some((MountPoint::Itself(true), _)) => Presence::Mounted(path.to_owned()),
            Some((MountPoint::Path(at), _)) if at.is_absolute() => Presence::Mounted(at.clone()),
            Some((MountPoint::Path(_), at)) => {
                return Err(self.error(at, key("mountpoint"), "it does not begin with /"));
            }
            Some((MountPoint::Itself(false), _)) | None => match table.nofail {
                Some(true) => Presence::Optional,
                Some(false) | None => Presence::Required,
            },
        })
    }
}

/// Options with what is given in place of what there was.
fn options(
    mut options: ClientOptions,
    (read_only, squash, uid, gid): (Option<bool>, Option<SquashWord>, Option<u32>, Option<u32>),
) -> ClientOptions {
    let Anonymous {
        uid: old_uid,
        gid: old_gid,
    } = options.anonymous;
    options.read_only = read_only.unwrap_or(options.read_only);
    options.squash = match squash {
        None => options.squash,
        Some(SquashWord::Root) => Squash::Root,
        Some(SquashWord::RemoteRoot) => Squash::RemoteRoot,
        Some(SquashWord::All) => Squash::All,
        Some(SquashWord::None) => Squash::None,
    };
    options.anonymous = Anonymous {
        uid: uid.unwrap_or(old_uid),
        gid: gid.unwrap_or(old_gid),
    };
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file says, or what is wrong with it.
    fn read(text: &str) -> Result<Vec<Plan>, Vec<ConfigError>> {
        let file = ConfigFile::new(Path::new("exports.toml"), text.to_owned());
        let (config, mut errors) = Config::of(file).map_err(|error| vec![error])?;
        let plans = config.plans(&["127.0.0.0/8".parse().unwrap()], &mut errors);
        match errors.is_empty() {
            true => Ok(plans),
            false => Err(errors.into_vec()),
        }
    }

    fn plans(text: &str) -> Result<Vec<Plan>, ConfigError> {
        read(text).map_err(|mut errors| {
            assert_eq!(errors.len(), 1, "{errors:?}");
            errors.remove(0)
        })
    }

    /// Checks that nothing is wrong but this.
    #[track_caller]
    fn refused(text: &str, says: &str) {
        let error = plans(text).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn export_has_rules_for_its_clients() {
        let plans = plans(
            r#"
            [[export]]
            path = "/usr"
            name = "/data"
            read_only = true
            fsid = 7
            crossmnt = true
            anonuid = 99

            [[export.client]]
            hosts = ["192.0.2.7", "laptop"]
            read_only = false
            squash = "none"

            [[export.client]]
            hosts = ["192.0.2.0/24"]
            anongid = 98

            [[export]]
            path = "/tmp"
            "#,
        )
        .unwrap();
        let [data, tmp] = plans.as_slice() else {
            panic!("two exports");
        };
        assert_eq!(data.export.name, "/data");
        assert_eq!(data.export.dir, Path::new("/usr"));
        assert_eq!(data.fsid, NonZeroU32::new(7));
        assert!(data.crossmnt && !tmp.crossmnt);
        let rules: Vec<_> = data
            .clients
            .iter()
            .map(|rule| {
                let options = rule.options;
                let anonymous = (options.anonymous.uid, options.anonymous.gid);
                (
                    rule.clients.to_string(),
                    options.read_only,
                    options.squash,
                    anonymous,
                )
            })
            .collect();
        assert_eq!(
            rules,
            [
                ("192.0.2.7/32".to_owned(), false, Squash::None, (99, 65_534)),
                ("laptop".to_owned(), false, Squash::None, (99, 65_534)),
                ("192.0.2.0/24".to_owned(), true, Squash::Root, (99, 98)),
            ]
        );
        assert_eq!(tmp.export.name, "/tmp");
        assert_eq!(tmp.clients.len(), 1, "those of the server");
        assert!(!tmp.read_only());
    }

    #[test]
    fn export_that_need_not_be_there_is_planned_all_the_same() {
        let plan = |more: &str| {
            let text = format!("[[export]]\npath = \"/no/such\"\n{more}\n");
            plans(&text).map(|mut plans| plans.remove(0))
        };
        let optional = plan("nofail = true").unwrap();
        assert_eq!(optional.presence, Presence::Optional);
        assert_eq!(optional.export.name, "/such");
        assert!(optional.locate().is_err());
        let mounted = plan("mountpoint = true").unwrap();
        assert_eq!(mounted.presence, Presence::Mounted("/no/such".into()));
        // It is there, but nothing is mounted.
        let usr = plans("[[export]]\npath = \"/usr/lib\"\nmountpoint = \"/usr/lib\"").unwrap();
        let why = usr[0].locate().unwrap_err().to_string();
        assert_eq!(why, "nothing is mounted at /usr/lib");
        let proc = plans("[[export]]\npath = \"/usr\"\nmountpoint = \"/proc\"").unwrap();
        assert_eq!(proc[0].locate().unwrap(), Path::new("/usr"));
        for required in ["", "nofail = false", "mountpoint = false"] {
            let error = plan(required).unwrap_err();
            assert!(error.of_machine, "{error}");
        }
        let error = plan("mountpoint = \"such\"").unwrap_err().to_string();
        assert!(
            error.ends_with("mountpoint: it does not begin with /"),
            "{error}"
        );
        let error = plan("mountpoint = 1").unwrap_err().to_string();
        let says = "1 does not fit: it is true, false, or the path of a mount point";
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let export = "[[export]]\npath = \"/usr\"\n";
        let with = |rest: &str| format!("{export}{rest}\n");
        refused(
            &with("redonly = true"),
            "exports.toml:3: export[0].redonly: there is no key redonly: write read_only = true",
        );
        refused(
            &with("read_only = 1"),
            "exports.toml:3: export[0].read_only: 1 does not fit: it is true or false",
        );
        refused(
            &with("squash = \"rot\""),
            "exports.toml:3: export[0].squash: it is \"root\"",
        );
        refused(
            &with("fsid = 0"),
            "exports.toml:3: export[0].fsid: 0 does not fit: it is a number, 1 to",
        );
        refused(
            &with("anonuid = -1"),
            "exports.toml:3: export[0].anonuid: -1 does not fit: it is a number, 0 to",
        );
        refused(
            &with("name = \"x\""),
            "exports.toml:3: export[0].name: it does not begin with /",
        );
        refused(&with("name = \"/..\""), "exports.toml:3: export[0].name: ");
        refused(
            &with("[[export.client]]\nhosts = [\"10.1.2.3/8\"]"),
            "exports.toml:4: export[0].client[0].hosts: '10.1.2.3/8': 10.1.2.3/8 has bits",
        );
        refused(
            &with("[[export.client]]\n"),
            "exports.toml:3: export[0].client[0]: hosts is missing",
        );
        refused(
            &with("[[export.client]]\nhosts = []"),
            "exports.toml:4: export[0].client[0].hosts: it is empty: this rule would be for nobody",
        );
        refused(
            &with("[[exports]]"),
            "exports.toml:3: exports: there is no key exports: write [[export]]",
        );
        refused(&with("read_only true"), "exports.toml:3: ");
        refused(
            "[[export]]\nname = \"/x\"\n",
            "exports.toml:1: export[0]: path is missing",
        );
        refused(
            "[[export]]\npath = \"usr\"",
            "exports.toml:2: export[0].path: it does not begin",
        );
        refused(
            "[[export]]\npath = \"/no/such\"",
            "exports.toml:2: export[0].path: /no/such: cannot be served: ",
        );
        refused("", "exports.toml:1: export: there has to be one");
        refused(
            &export.repeat(2),
            "exports.toml:4: export[1].name: export[0] is named /usr too",
        );
        refused(
            &format!("{export}fsid = 7\n[[export]]\npath = \"/tmp\"\nfsid = 7"),
            "exports.toml:6: export[1].fsid: export[0] has this number too",
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_in_order_and_nothing_that_follows_from_it() {
        let errors = read(
            r#"
            [server]
            listen = "0.0.0.0"

            [[export]]
            pth = "/usr"

            [[export]]
            path = "/no/such"
            fsid = 7
            read_only = "yes"

            [[export]]
            path = "/no/such"
            nofail = 1

            [[export]]
            path = "/usr"
            name = "data"
            fsid = 7
            [[export.client]]
            hosts = ["@trusted", "laptop", "*"]
            [[export.client]]
            host = "laptop"
            [[export.client]]

            [[export]]
            path = "/usr"

            [[export]]
            path = "/usr"
            mountpoint = "usr"
            "#,
        );
        let expected = [
            "exports.toml:6: export[0].pth: there is no key pth",
            "exports.toml:9: export[1].path: /no/such: cannot be served",
            "exports.toml:11: export[1].read_only: \"yes\" does not fit",
            "exports.toml:15: export[2].nofail: 1 does not fit",
            "exports.toml:19: export[3].name: it does not begin with /",
            "exports.toml:20: export[3].fsid: export[1] has this number too",
            "exports.toml:22: export[3].client[0].hosts: '@trusted'",
            "exports.toml:22: export[3].client[0].hosts: '*'",
            "exports.toml:24: export[3].client[1].host: there is no key host",
            "exports.toml:25: export[3].client[2]: hosts is missing",
            "exports.toml:32: export[5].mountpoint: it does not begin with /",
        ];
        let errors = errors.unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, says) in errors.iter().zip(expected) {
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }

    #[test]
    fn directory_that_is_not_there_does_not_hide_that_it_is_for_nobody() {
        let text = "[[export]]\npath = \"/no/such\"\n".to_owned();
        let file = ConfigFile::new(Path::new("exports.toml"), text);
        let (config, mut errors) = Config::of(file).unwrap();
        assert!(config.plans(&[], &mut errors).is_empty());
        let errors: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let [path, client] = &errors[..] else {
            panic!("{errors:?}");
        };
        assert!(
            path.starts_with("exports.toml:2: export[0].path: "),
            "{path}"
        );
        assert!(
            client.starts_with("exports.toml:2: export[0].client: it is for nobody"),
            "{client}"
        );
    }

    #[test]
    fn errors_say_what_to_write_instead() {
        let check = |rest: &str, says: &str| {
            let text = format!("[[export]]\npath = \"/usr\"\n{rest}\n");
            let error = plans(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{rest}: {error}");
        };
        check("read_only = yes", "exports.toml:3: ");
        for word in ["yes", "no", "True", "OFF # not yet"] {
            check(&format!("read_only = {word}"), ": write true or false");
        }
        check("read_only = 1", ": 1 does not fit: it is true or false");
        check(
            "read_only = \"yes\"",
            "\"yes\" does not fit: it is true or false",
        );
        check("path = \"/x\"", "exports.toml:3: path is there twice");
        check(
            "[server]\n[server]",
            "exports.toml:4: [server] is there twice",
        );
        check("name = /data", "a text has quotes: write name = \"/data\"");
        check("squash = none", "write squash = \"none\"");
        check(
            "squash = true",
            "squash: it is \"root\", \"remote-root\", \"all\" or \"none\"",
        );
        check("[server]\nlisten = 0.0.0.0", "write listen = \"0.0.0.0\"");
        let with = |hosts: &str| format!("[[export.client]]\nhosts = {hosts}");
        check(
            &with("\"x\""),
            "hosts: \"x\" does not fit: write hosts = [\"x\"]",
        );
        check(
            &with("[10.0.0.0/8, laptop]"),
            "write hosts = [\"10.0.0.0/8\", \"laptop\"]",
        );
        check(
            &with("[1]"),
            "client[0].hosts[0]: 1 does not fit: it is a text, in quotes",
        );
        check(
            &with("[\"*\"]"),
            "for everybody, write 0.0.0.0/0 (IPv4) and ::/0 (IPv6)",
        );
        let wildcard = "wildcards are not supported: list hosts, or networks as 192.0.2.0/24";
        check(&with("[\"*.example.org\"]"), wildcard);
        check(&with("[\"192.168.1.*\"]"), wildcard);
        check(
            &with("[\"@trusted\"]"),
            "netgroups are not supported: list hosts or networks",
        );
        let mask = "10.1.0.0/255.255.0.0";
        check(&with(&format!("[\"{mask}\"]")), "write 10.1.0.0/16");
        check(
            "[export.client]\nhosts = [\"x\"]",
            "write [[export.client]], in two brackets",
        );
        check("anonuid = \"nobody\"", "it is a number, 0 to 4294967295");
        check("anongid = 4294967296", "it is a number, 0 to 4294967295");
        check("fsid = 0", "it is a number, 1 to 4294967295");
        check("ro = true", "there is no key ro: write read_only = true");
        check("no_root_squash = true", "write squash = \"none\"");
        check(
            "[[export.clients]]",
            "there is no key clients: write [[export.client]]",
        );
        check(
            "colour = 1",
            "there is no key colour; there are path, name, ",
        );
        refused(
            "[export]\npath = \"/usr\"",
            "exports.toml:1: export: a table does not fit: write [[export]], in two brackets",
        );
        refused(
            "[[export]]\npath = [\"/usr\"]",
            "exports.toml:2: export[0].path: a list does not fit: it is the path of a directory, in quotes",
        );
    }

    #[test]
    fn exports_and_clients_are_bounded() {
        let many: String = (0..=MAX_EXPORTS)
            .map(|n| format!("[[export]]\npath = \"/usr\"\nname = \"/{n}\"\n"))
            .collect();
        refused(
            &many,
            "exports.toml:1: export: there has to be one at least, and 1024",
        );
        let hosts = "\"a\",".repeat(MAX_CLIENTS + 1);
        let many = format!("[[export]]\npath = \"/usr\"\n[[export.client]]\nhosts = [{hosts}]");
        refused(
            &many,
            "exports.toml:2: export[0].client: it has more than 1024",
        );
    }

    #[test]
    fn file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(crate::config_file::MAX_FILE + 1).unwrap();
        let error = Config::load(&path).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        let error = Config::load(&dir.path().join("missing")).unwrap_err();
        assert!(format!("{error:#}").contains("No such file"), "{error:#}");
    }
}
