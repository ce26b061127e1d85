//! Options as they were given: on the command line, and in a table of a file.

use super::args::ServeArgs;
use super::config::{Config, File};
use crate::config_file::{ConfigError, ConfigErrors, ConfigFile, Options, of_another_table};
use crate::failure::Misconfigured;
use clap::builder::ValueRange;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::ffi::OsString;
use std::num::ParseIntError;
use toml::Spanned;

/// Options on the command line of `serve`, one by one.
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

    /// The name of an option, in words: that of the command line if it was given there, or else a key of the table of a file.
    pub(crate) fn name_of(&self, long: &str, table: &str, file: bool) -> String {
        let key = long.replace('-', "_");
        match file && !self.0.iter().any(|(id, _)| *id == key) {
            true => format!("{key} of [{table}]"),
            false => format!("--{long}"),
        }
    }

    /// Whether it has an option, or one that cannot be used with it.
    fn overrides(&self, command: &Command, arg: &Arg) -> bool {
        let conflict = |one: &Arg, other: &Arg| {
            let all = command.get_arg_conflicts_with(one);
            all.iter().any(|with| with.get_id() == other.get_id())
        };
        // The file has taken the place of --config.
        let given = command
            .get_arguments()
            .filter(|other| self.values(other).is_some() && other.get_id().as_str() != "config");
        given.into_iter().any(|given| {
            given.get_id() == arg.get_id() || conflict(arg, given) || conflict(given, arg)
        })
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
    /// Advice about a key of another table.
    pub(crate) elsewhere: fn(here: &str, key: &str) -> Option<String>,
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
                Ok((arg, option)) if !given.overrides(&command, arg) => words.extend(option),
                // The command line says otherwise.
                Ok(_) => {}
                Err(wrong) => wrong.into_iter().for_each(|error| errors.push(error)),
            }
        }
        for arg in command.get_arguments() {
            // The file has taken the place of --config, with which some options cannot be used.
            let values = given.values(arg).filter(|_| arg.get_id() != "config");
            if let Some(values) = values {
                words.extend(options(arg, values));
            }
        }
        // The command line was understood by itself.
        let matches = command.try_get_matches_from(words);
        let matches = matches.map_err(|error| self.cannot_be_together(&error))?;
        Ok(A::from_arg_matches(&matches)?)
    }

    /// The error of options of the table that cannot be used together.
    fn cannot_be_together(&self, error: &clap::Error) -> Misconfigured {
        let said = error.to_string();
        let said = said.lines().next().unwrap_or_default();
        let said = said.strip_prefix("error: ").unwrap_or(said);
        let file = self.file.path().display();
        Misconfigured(format!("{file}: [{}]: {said}", self.name))
    }

    /// An option of the table with its values, as on the command line.
    ///
    /// # Errors
    ///
    /// If it is not known, or with each value that is not understood.
    fn option<'a>(
        &self,
        command: &'a Command,
        key: &Spanned<String>,
        value: &Spanned<toml::Value>,
    ) -> Result<(&'a Arg, Vec<OsString>), Vec<ConfigError>> {
        let name = key.get_ref();
        let error = |at, what: String| self.file.error(at, format!("{}.{name}", self.name), what);
        let of_value = |what: String| error(value.span(), what);
        let long = name.replace('_', "-");
        let is_this = |arg: &&Arg| arg.get_long() == Some(&long) && !name.contains('-');
        let arg = command.get_arguments().find(is_this);
        let arg = arg.filter(|_| !self.without.contains(&&*long));
        let arg = arg.ok_or_else(|| vec![error(key.span(), self.unknown(command, name))])?;
        if let toml::Value::Array(list) = value.get_ref()
            && list.is_empty()
            && !arg.get_default_values().is_empty()
        {
            let what = "it is empty: name one at least, or leave it out".to_owned();
            return Err(vec![of_value(what)]);
        }
        let values = words_of(arg, value.get_ref());
        let values = values.map_err(|wrong| wrong.into_iter().map(of_value).collect::<Vec<_>>())?;
        let tried = |option: &[OsString]| {
            let alone = [OsString::from("rpcrdma")];
            let alone = alone.iter().chain(option).cloned();
            let tried = command.clone().try_get_matches_from(alone);
            tried.map(drop).map_err(|error| explain(arg, &error))
        };
        // A flag that is not set.
        if values.is_empty() && !takes_values(arg) {
            return Ok((arg, Vec::new()));
        }
        let option = options(arg, &values);
        let Err(what) = tried(&option) else {
            return Ok((arg, option));
        };
        Err(match (arg.get_action(), value.get_ref()) {
            (ArgAction::Append, toml::Value::Array(_)) => {
                let each = option.chunks(1).zip(&values);
                let wrong = each.filter_map(|(option, value)| Some((value, tried(option).err()?)));
                wrong
                    .map(|(value, what)| of_value(format!("'{}': {what}", value.display())))
                    .collect()
            }
            _ => vec![of_value(what)],
        })
    }

    /// Advice about an unknown key.
    fn unknown(&self, command: &Command, key: &str) -> String {
        if let Some(elsewhere) = (self.elsewhere)(&format!("[{}]", self.name), key) {
            return elsewhere;
        }
        let known = names(command, self.without).join(", ");
        format!("there is no such option; there are {known}")
    }
}

/// The options of a command in a table of a file, without these.
fn names(command: &Command, without: &[&str]) -> Vec<String> {
    let known = command.get_arguments().filter_map(Arg::get_long);
    let known = known.filter(|long| !without.contains(long));
    known.map(|long| long.replace('-', "_")).collect()
}

/// The same by the type of its arguments.
pub(crate) fn names_of<A: Args>(without: &[&str]) -> Vec<String> {
    names(&command::<A>(), without)
}

/// The options in the `[server]` table of a file.
pub(super) fn names_in_files() -> Vec<String> {
    names_of::<ServeArgs>(&NOT_IN_FILES)
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
            elsewhere: of_another_table::<File>,
        };
        let mut merged: Self = table.under(&self.given, errors)?;
        merged.given = self.given.clone();
        merged.config = self.config.clone();
        merged.activated.clone_from(&self.activated);
        merged.activated_mount.clone_from(&self.activated_mount);
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
///
/// # Errors
///
/// If they are none, with each entry of a list that is none.
fn words_of(arg: &Arg, value: &toml::Value) -> Result<Vec<OsString>, Vec<String>> {
    let word = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        _ => Err("it is a text, a number, or a list of them"),
    };
    match (takes_values(arg), value) {
        (false, toml::Value::Boolean(true)) => Ok(vec!["true".into()]),
        (false, toml::Value::Boolean(false)) => Ok(Vec::new()),
        (false, _) => Err(vec!["it is true or false".to_owned()]),
        (true, toml::Value::Array(values)) => {
            let (mut words, mut wrong) = (Vec::new(), Vec::new());
            for value in values {
                match word(value) {
                    Ok(word) => words.push(word),
                    Err(_) => wrong.push(format!("'{value}': it is a text or a number")),
                }
            }
            match (wrong.is_empty(), arg.get_action()) {
                (false, _) => Err(wrong),
                (true, ArgAction::Append) => Ok(words.into_iter().map(OsString::from).collect()),
                (true, _) => Ok(vec![words.join(",").into()]),
            }
        }
        (true, value) => match word(value) {
            Ok(word) => Ok(vec![word.into()]),
            Err(what) => Err(vec![what.to_owned()]),
        },
    }
}

/// Fault of a value, without the words around it that are for a command line.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;
    use std::path::Path;

    /// The arguments of this command line, with these lines in the table of a file.
    fn merged(words: &[&str], lines: &str) -> anyhow::Result<ServeArgs> {
        let text = format!("[server]\n{lines}\n[[export]]\npath = \"/usr\"\n");
        let file = ConfigFile::new(Path::new("exports.toml"), text);
        let (config, mut errors) = Config::of(file).unwrap();
        let words = [&["rpcrdma", "--config=exports.toml"], words].concat();
        let matches = command::<ServeArgs>().get_matches_from(words);
        let mut args = ServeArgs::from_arg_matches(&matches).unwrap();
        args.given = Given::of::<ServeArgs>(&matches);
        let merged = args.with_options_of(&config, &mut errors);
        assert!(errors.into_vec().is_empty());
        merged
    }

    #[test]
    fn key_of_an_export_is_told_where_it_belongs() {
        let text = "[server]\nfsid = 1\n[[export]]\npath = \"/usr\"\n";
        let file = ConfigFile::new(Path::new("exports.toml"), text.to_owned());
        let (config, mut errors) = Config::of(file).unwrap();
        let words = ["rpcrdma", "--config=exports.toml"];
        let matches = command::<ServeArgs>().get_matches_from(words);
        let args = ServeArgs::from_arg_matches(&matches).unwrap();
        args.with_options_of(&config, &mut errors).unwrap();
        let errors: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let says =
            "exports.toml:2: server.fsid: there is no key fsid here: it belongs into [[export]]";
        assert_eq!(errors, [says]);
    }

    #[test]
    fn flag_of_a_file_is_as_the_file_says() {
        let without = format!("{:?}", merged(&[], "").unwrap());
        let command = command::<ServeArgs>();
        let flags = command.get_arguments().filter(|arg| !takes_values(arg));
        let flags = flags.filter_map(Arg::get_long);
        let mut found = 0;
        for flag in flags.filter(|flag| !NOT_IN_FILES.contains(flag)) {
            let said = |value: &str| {
                let line = format!("{} = {value}", flag.replace('-', "_"));
                format!("{:?}", merged(&[], &line).unwrap())
            };
            assert_eq!(said("false"), without, "{flag}");
            assert_ne!(said("true"), without, "{flag}");
            found += 1;
        }
        assert!(found > 3);
    }

    #[test]
    fn option_of_the_command_line_goes_before_those_of_the_file_that_conflict_with_it() {
        for (word, line) in [
            ("--no-crc", "crc = \"strict\""),
            ("--crc=strict", "no_crc = true"),
        ] {
            let both = merged(&[word], line).unwrap();
            let alone = merged(&[word], "").unwrap();
            assert_eq!(
                both.transport.describe_crc(),
                alone.transport.describe_crc()
            );
        }
        let error = merged(&[], "crc = \"strict\"\nno_crc = true").unwrap_err();
        let says =
            "exports.toml: [server]: the argument '--crc <WHEN>' cannot be used with '--no-crc'";
        assert_eq!(error.to_string(), says);
        assert!(error.is::<Misconfigured>());
    }

    #[test]
    fn every_value_of_a_list_that_is_not_understood_is_told() {
        let text = r#"
            [server]
            allow = ["*", "192.0.2.0/24", "192.0.2.1/24", "laptop", "@trusted"]
            listen = "here"
            state_dir = [true, "x", 1979-05-27]
            remote_invalidation = ["x", "off", "y"]
            [[export]]
            path = "/usr"
            "#;
        let file = ConfigFile::new(Path::new("exports.toml"), text.to_owned());
        let (config, mut errors) = Config::of(file).unwrap();
        let command = command::<ServeArgs>();
        let args = ServeArgs::from_arg_matches(&command.get_matches_from(["rpcrdma"])).unwrap();
        args.with_options_of(&config, &mut errors).unwrap();
        let errors: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let expected = [
            "exports.toml:3: server.allow: '*': for everybody, write",
            "exports.toml:3: server.allow: '192.0.2.1/24': ",
            "exports.toml:3: server.allow: '@trusted': netgroups",
            "exports.toml:4: server.listen: it is not an address",
            "exports.toml:5: server.state_dir: 'true': it is a text",
            "exports.toml:5: server.state_dir: '1979-05-27': it is a text",
            "exports.toml:6: server.remote_invalidation: 'x': ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, says) in errors.iter().zip(expected) {
            assert!(error.starts_with(says), "{error}");
        }
        assert!(errors[6].contains("; 'y': "), "{}", errors[6]);
    }
}
