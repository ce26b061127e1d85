//! Configuration as text: files in TOML with their errors (file, line, key, and what to write instead), and the settings that
//! a file and a command line have.

pub mod connections;
pub(crate) mod given;
pub(crate) mod keys;
pub mod serving;
mod tables;
mod understood;
mod wording;
pub mod words;

use crate::errors::Misconfigured;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use understood::Wrong;

pub use given::Given;
pub(crate) use tables::{Table, Tables};

/// Bytes of a file.
pub(crate) const MAX_FILE: u64 = 1 << 20;

/// A table of settings.
pub(crate) type Options = BTreeMap<Spanned<String>, Spanned<toml::Value>>;

/// A file that was read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    text: String,
    /// Its place among the files that are read together.
    number: usize,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or has too many bytes.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        use std::io::Read;
        let cannot = |error: std::io::Error| {
            Misconfigured(format!("{}: cannot read: {error}", path.display()))
        };
        let file = std::fs::File::open(path).map_err(cannot)?;
        let mut text = String::new();
        file.take(MAX_FILE + 1)
            .read_to_string(&mut text)
            .map_err(cannot)?;
        if text.len() as u64 > MAX_FILE {
            let path = path.display();
            let what = format!("{path} has more than {MAX_FILE} bytes");
            return Err(Misconfigured(what).into());
        }
        Ok(Self::new(path, text))
    }

    /// A file with this text.
    pub(crate) fn new(path: &Path, text: String) -> Self {
        Self {
            path: path.to_owned(),
            text,
            number: 0,
        }
    }

    /// The same in this place among the files that are read together.
    pub(crate) fn numbered(self, number: usize) -> Self {
        Self { number, ..self }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Values of the file as far as it is understood, and faults of the rest.
    ///
    /// # Errors
    ///
    /// If it is no TOML.
    pub(crate) fn values<T: DeserializeOwned + Default + Tables>(
        &self,
    ) -> Result<(T, ConfigErrors), ConfigError> {
        let error = |Wrong { at, key, what }| self.error(at..at, key, what);
        let (values, wrong) = understood::values(&self.text, &T::tables()).map_err(error)?;
        let errors = wrong.into_iter().map(error).collect();
        Ok((values, ConfigErrors(errors)))
    }

    /// Fault at a place of the file.
    pub(crate) fn error(
        &self,
        at: Range<usize>,
        key: impl Into<String>,
        what: impl fmt::Display,
    ) -> ConfigError {
        ConfigError {
            file: self.path.clone(),
            number: self.number,
            line: line(&self.text, at.start),
            key: key.into(),
            what: what.to_string(),
            of_machine: false,
        }
    }
}

/// Advice about a key that this table, as `[server]`, does not have, if another one has it.
pub(crate) fn of_another_table<T: Tables>(here: &str, key: &str) -> Option<String> {
    tables::elsewhere(&T::tables(), here, key)
}

/// Fault of a file, with its place.
#[derive(Debug)]
pub(crate) struct ConfigError {
    file: PathBuf,
    /// The place of the file among those that are read together.
    number: usize,
    line: usize,
    /// The way to the key, as in `export[0].name`; empty if the file is no TOML there.
    key: String,
    what: String,
    /// Whether the file may be right, and this machine is not as it should be.
    pub(crate) of_machine: bool,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // toml's messages may have several lines.
        let what = self.what.trim_end().replace('\n', ", ");
        write!(f, "{}: {what}", self.place())
    }
}

impl ConfigError {
    /// File, line and key.
    pub(crate) fn place(&self) -> String {
        let (file, line, key) = (self.file.display(), self.line, &self.key);
        match key.is_empty() {
            true => format!("{file}:{line}"),
            false => format!("{file}:{line}: {key}"),
        }
    }

    /// The same, when the file may be right.
    pub(crate) fn of_machine(mut self) -> Self {
        self.of_machine = true;
        self
    }
}

impl From<ConfigError> for anyhow::Error {
    fn from(error: ConfigError) -> Self {
        match error.of_machine {
            true => Self::msg(error),
            false => Self::new(Misconfigured(error.to_string())),
        }
    }
}

/// All that is wrong with a file, and with those that are read with it.
#[derive(Debug, Default)]
pub(crate) struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    pub(crate) fn push(&mut self, error: ConfigError) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds what is wrong with another file.
    pub(crate) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Whether something is wrong at a key of a file or below it. What follows from that is not said as well.
    pub(crate) fn tells_of(&self, file: &ConfigFile, key: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        let of_key = |error: &ConfigError| error.key.strip_prefix(key).is_some_and(below);
        let of_file = self.0.iter().filter(|error| error.number == file.number);
        of_file.into_iter().any(of_key)
    }

    /// In the order of the files.
    pub(crate) fn into_vec(mut self) -> Vec<ConfigError> {
        self.0.sort_by_key(|error| (error.number, error.line));
        self.0
    }

    /// In the order of the files, as errors of a command.
    pub(crate) fn into_errors(self) -> Vec<anyhow::Error> {
        self.into_vec()
            .into_iter()
            .map(anyhow::Error::from)
            .collect()
    }
}

/// The number of the line with this byte, from 1.
fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}
