//! Options as they were given: on the command line, and in a table of a file.

use super::args::ServeArgs;
use super::config::Config;
use crate::config_file::{ConfigError, ConfigErrors, ConfigFile, Options};
use clap::builder::ValueRange;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::ffi::OsString;
use std::num::ParseIntError;
use toml::Spanned;

/// What stands on the command line of `serve`, option by option.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given(Vec<(String, Vec<OsString>)>);

/// Options that have no place in a file: what it is for, how the command itself behaves, and what
/// each export says.
const NOT_IN_FILES: [&str; 6] = [
    "config",
    "check",
    "json",
    "log-format",
    "read-only",
    "squash",
];

impl Given {
    /// Those of a command line of `A` that was understood.
    pub(crate) fn of<A: Args>(matches: &ArgMatches) -> Self {
        let command = command::<A>();
        let given = command.get_arguments().filter_map(|arg| {
            let id = arg.get_id().as_str();
            let source = matches.value_source(id)?;
            let values = matches.get_raw(id)?.map(OsString::from).collect();
            (source == ValueSource::CommandLine).then(|| (id.to_owned(), values))
        });
        Self(given.collect())
    }

    /// Whether it has this option.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|(given, _)| given == id)
    }

    /// The name of an option, in words: that of the command line if it was given there, or else a key of the table of a file.
    pub(crate) fn name_of(&self, long: &str, table: &str, file: bool) -> String {
        let key = long.replace('-', "_");
        match file && !self.0.iter().any(|(id, _)| *id == key) {
            true => format!("{key} of [{table}]"),
            false => format!("--{long}"),
        }
    }

    fn values(&self, arg: &Arg) -> Option<&[OsString]> {
        let given = self.0.iter().find(|(id, _)| id == arg.get_id().as_str());
        given.map(|(_, values)| &values[..])
    }
}

/// The command, without what is around it.
fn command<A: Args>() -> Command {
    A::augment_args(Command::new("rpcrdma"))
}

/// Options of a file that take effect at a restart, with their values in words.
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

/// A table of a file that has options of a command.
pub(crate) struct OptionTable<'a> {
    pub(crate) file: &'a ConfigFile,
    /// Its name in the file.
    pub(crate) name: &'static str,
    pub(crate) options: &'a Options,
    /// Options that have no place there.
    pub(crate) without: &'static [&'static str],
}

impl OptionTable<'_> {
    /// The arguments of a command with these options, where the command line does not say otherwise. Options that are not
    /// known, or whose values are not understood, are left out and added to the errors.
    ///
    /// # Errors
    ///
    /// If options of the file and of the command line cannot be used together.
    pub(crate) fn under<A: Args>(
        &self,
        given: &Given,
        errors: &mut ConfigErrors,
    ) -> anyhow::Result<A> {
        let command = command::<A>();
        let mut words = vec![OsString::from("rpcrdma")];
        for (key, value) in self.options {
            match self.option(&command, key, value) {
                Ok((arg, option)) if given.values(arg).is_none() => words.extend(option),
                // The command line says otherwise.
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        for arg in command.get_arguments() {
            // The file has taken the place of --config, with which some options cannot be used.
            let values = given.values(arg).filter(|_| arg.get_id() != "config");
            if let Some(values) = values {
                words.extend(options(arg, values));
            }
        }
        let matches = command.try_get_matches_from(words)?;
        Ok(A::from_arg_matches(&matches)?)
    }

    /// An option of the table with its values, as on the command line.
    fn option<'a>(
        &self,
        command: &'a Command,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
    ) -> Result<(&'a Arg, Vec<OsString>), ConfigError> {
        let name = key.get_ref();
        let error = |at, what: String| self.file.error(at, format!("{}.{name}", self.name), what);
        let long = name.replace('_', "-");
        let is_this = |arg: &&Arg| arg.get_long() == Some(&long) && !name.contains('-');
        let arg = command.get_arguments().find(is_this);
        let arg = arg.filter(|_| !self.without.contains(&&*long));
        let arg = arg.ok_or_else(|| error(key.span(), self.unknown(command)))?;
        let values =
            words_of(arg, value.get_ref()).map_err(|what| error(value.span(), what.to_owned()))?;
        let option = options(arg, &values);
        let alone = [OsString::from("rpcrdma")]
            .into_iter()
            .chain(option.clone());
        command
            .clone()
            .try_get_matches_from(alone)
            .map_err(|wrong| error(value.span(), explain(arg, &wrong)))?;
        Ok((arg, option))
    }

    /// What there is to say about an unknown key.
    fn unknown(&self, command: &Command) -> String {
        let known = command.get_arguments().filter_map(Arg::get_long);
        let known = known.filter(|long| !self.without.contains(long));
        let known: Vec<String> = known.map(|long| long.replace('-', "_")).collect();
        format!("there is no such option; there are {}", known.join(", "))
    }
}

impl ServeArgs {
    /// The same with the options of a file, where the command line does not say otherwise. Adds what is wrong with them to
    /// the errors.
    ///
    /// # Errors
    ///
    /// If options of the file and of the command line cannot be used together.
    pub(super) fn with_options_of(
        &self,
        config: &Config,
        errors: &mut ConfigErrors,
    ) -> anyhow::Result<Self> {
        let table = OptionTable {
            file: &config.file,
            name: "server",
            options: &config.server,
            without: &NOT_IN_FILES,
        };
        let mut merged: Self = table.under(&self.given, errors)?;
        merged.given = self.given.clone();
        merged.config = self.config.clone();
        Ok(merged)
    }
}

/// An option with its values, as on the command line.
fn options(arg: &Arg, values: &[OsString]) -> Vec<OsString> {
    let Some(long) = arg.get_long() else {
        return values.to_vec();
    };
    if !takes_values(arg) {
        return vec![format!("--{long}").into()];
    }
    let with = |value: &OsString| {
        let mut option = OsString::from(format!("--{long}="));
        option.push(value);
        option
    };
    values.iter().map(with).collect()
}

fn takes_values(arg: &Arg) -> bool {
    !matches!(arg.get_action(), ArgAction::SetTrue) && arg.get_num_args() != Some(ValueRange::EMPTY)
}

/// The values of an option in a file; of a flag none, or one if it is set.
fn words_of(arg: &Arg, value: &toml::Value) -> Result<Vec<OsString>, &'static str> {
    let word = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        _ => Err("it is a text, a number, or a list of them"),
    };
    match (takes_values(arg), value) {
        (false, toml::Value::Boolean(true)) => Ok(vec!["true".into()]),
        (false, toml::Value::Boolean(false)) => Ok(Vec::new()),
        (false, _) => Err("it is true or false"),
        (true, toml::Value::Array(values)) => {
            let words = values.iter().map(word).collect::<Result<Vec<_>, _>>()?;
            Ok(match arg.get_action() {
                ArgAction::Append => words.into_iter().map(OsString::from).collect(),
                _ => vec![words.join(",").into()],
            })
        }
        (true, value) => Ok(vec![word(value)?.into()]),
    }
}

/// What is wrong with a value, without the words around it that are for a command line.
fn explain(arg: &Arg, error: &clap::Error) -> String {
    match (error.kind(), error.source()) {
        (_, Some(source)) if source.is::<ParseIntError>() => "it is a number".to_owned(),
        (_, Some(source)) => source.to_string(),
        (ErrorKind::InvalidValue, None) => {
            let values = arg.get_possible_values();
            let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            format!("it is one of {}", names.join(", "))
        }
        (_, None) => error.to_string(),
    }
}
