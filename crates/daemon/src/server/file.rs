//! The file of `serve --config`.
//!
//! A `[server]` table has settings; each `[[export]]` table is a directory. `include` names a directory of files with further exports ([`include`]). What is not known is
//! refused: a rule that is misspelt must not be a rule that is not there.

mod include;
#[cfg(test)]
mod tests;

use super::exports::{Export, default_name, normal_name};
use super::plan::{ClientPlan, Plan, Presence};
use super::settings::ServerSettings;
use crate::clients::Clients;
use crate::config::words::{Word, word};
use crate::config::{ConfigError, ConfigErrors, ConfigFile, Options, Table, Tables, keys};
use nfs_server::{Anonymous, ClientOptions, Squash};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
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
pub(super) struct ServerFile {
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
pub(super) struct File {
    /// A directory of files with exports, beside this file if it is no absolute path.
    include: Option<Spanned<PathBuf>>,
    #[serde(default)]
    server: Options,
    #[serde(default, rename = "export")]
    exports: Vec<Spanned<ExportTable>>,
}

impl Tables for File {
    fn tables() -> Vec<Table> {
        let server = Table::new("[server]", keys::names(&ServerSettings::keys()));
        [server].into_iter().chain(tables_of_exports()).collect()
    }
}

fn tables_of_exports() -> [Table; 2] {
    [
        Table::of::<ExportTable>("[[export]]"),
        Table::of::<ClientTable>("[[export.client]]"),
    ]
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
    #[serde(default, deserialize_with = "by_word")]
    squash: Option<Squash>,
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
    #[serde(default, deserialize_with = "by_word")]
    squash: Option<Squash>,
    anonuid: Option<u32>,
    anongid: Option<u32>,
}

/// Condition on mounts for a directory to be served.
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

/// Reads a value by its word.
fn by_word<'de, T: Word, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    word(&text).map(Some).map_err(D::Error::custom)
}

impl ServerFile {
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

    /// Condition for a directory to be served.
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
    (read_only, squash, uid, gid): (Option<bool>, Option<Squash>, Option<u32>, Option<u32>),
) -> ClientOptions {
    let Anonymous {
        uid: old_uid,
        gid: old_gid,
    } = options.anonymous;
    options.read_only = read_only.unwrap_or(options.read_only);
    options.squash = squash.unwrap_or(options.squash);
    options.anonymous = Anonymous {
        uid: uid.unwrap_or(old_uid),
        gid: gid.unwrap_or(old_gid),
    };
    options
}
