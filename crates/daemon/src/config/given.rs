//! Settings as they were given: on the command line, and in a table of a file.

use super::Options;
use std::collections::{BTreeMap, BTreeSet};

/// Settings that the command line gives, by their keys: they go before those of a file.
#[derive(Clone, Debug, Default)]
pub struct Given(BTreeSet<String>);

impl FromIterator<String> for Given {
    fn from_iter<I: IntoIterator<Item = String>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl Given {
    /// Whether a setting is given.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// The name of a setting, in words: that of the command line if it is given there or there is no file, or else the key of
    /// a table of the file.
    pub(crate) fn name_of(&self, key: &str, table: &str, in_file: bool) -> String {
        match in_file && !self.has(key) {
            true => format!("{key} of [{table}]"),
            false => format!("--{}", key.replace('_', "-")),
        }
    }
}

/// Settings of a file that take effect at a restart, with their values in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileOptions(BTreeMap<String, String>);

impl FileOptions {
    /// Those of a table, without those that need no restart.
    pub(crate) fn new(options: &Options, without: &[&str]) -> Self {
        let all = options.iter();
        let all = all.map(|(key, value)| (key.get_ref().clone(), value.get_ref().to_string()));
        Self(all.filter(|(key, _)| !without.contains(&&**key)).collect())
    }

    /// The names of those that are not the same in both, in order.
    pub(crate) fn changed(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let changed = names
            .into_iter()
            .filter(|&name| self.0.get(name) != other.0.get(name));
        changed.cloned().collect()
    }
}
