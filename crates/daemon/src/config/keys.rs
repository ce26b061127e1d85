//! The table of settings in a file: its keys, and how the value of each becomes a typed setting.
//!
//! The command line has the same settings, with `-` for `_`. Those that are given there go before those of the file.

use super::given::Given;
use super::{ConfigError, ConfigErrors, ConfigFile, Options, Tables, of_another_table};
use crate::errors::Misconfigured;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use toml::{Spanned, Value};

/// A key of settings of type `T`.
pub(crate) struct Key<T> {
    name: &'static str,
    kind: Kind<T>,
    /// Whether the setting has a value by default.
    has_default: bool,
    /// The key that cannot be there too, and the error.
    excludes: Option<(&'static str, &'static str)>,
}

/// Puts a value that was understood in its place.
type Change<T> = Box<dyn FnOnce(&mut T)>;

/// Parser of one value.
type ParseOne<T> = Box<dyn Fn(&str) -> Result<Change<T>, String>>;

/// Parser of several values: its errors have the text of each value that is not understood.
type ParseSeveral<T> = Box<dyn Fn(&[String]) -> Result<Change<T>, Vec<(String, String)>>>;

/// A key of a table, and the change of its value, if it is one.
type Found<'a, T> = (&'a Key<T>, Option<Change<T>>);

enum Kind<T> {
    /// True or false; false by default.
    Flag(Box<dyn Fn() -> Change<T>>),
    /// One value.
    One(ParseOne<T>),
    /// One value or a list of values.
    Several(ParseSeveral<T>),
}

impl<T: 'static> Key<T> {
    /// A key for true or false.
    pub(crate) fn flag(name: &'static str, set: fn(&mut T)) -> Self {
        Self::new(name, Kind::Flag(Box::new(move || Box::new(set))))
    }

    /// A key with one value.
    pub(crate) fn value<V: 'static>(
        name: &'static str,
        parse: impl Fn(&str) -> Result<V, String> + 'static,
        set: fn(&mut T, V),
    ) -> Self {
        let parse = move |text: &str| -> Result<Change<T>, String> {
            let value = parse(text)?;
            Ok(Box::new(move |settings: &mut T| set(settings, value)))
        };
        Self::new(name, Kind::One(Box::new(parse)))
    }

    /// A key with one value or several.
    pub(crate) fn list<V: 'static>(
        name: &'static str,
        parse: impl Fn(&str) -> Result<V, String> + 'static,
        set: fn(&mut T, Vec<V>),
    ) -> Self {
        let parse = move |texts: &[String]| -> Result<Change<T>, Vec<(String, String)>> {
            let (mut values, mut wrong) = (Vec::new(), Vec::new());
            for text in texts {
                match parse(text) {
                    Ok(value) => values.push(value),
                    Err(what) => wrong.push((text.clone(), what)),
                }
            }
            match wrong.is_empty() {
                true => Ok(Box::new(move |settings: &mut T| set(settings, values))),
                false => Err(wrong),
            }
        };
        Self::new(name, Kind::Several(Box::new(parse)))
    }

    fn new(name: &'static str, kind: Kind<T>) -> Self {
        Self {
            name,
            kind,
            has_default: false,
            excludes: None,
        }
    }

    /// The same for a setting that has a value by default, so that an empty list is an error.
    pub(crate) fn with_default(self) -> Self {
        Self {
            has_default: true,
            ..self
        }
    }

    /// The same for a setting that cannot be there with another one, with the error.
    pub(crate) fn excluding(self, other: &'static str, error: &'static str) -> Self {
        Self {
            excludes: Some((other, error)),
            ..self
        }
    }

    /// The same for settings that have these as a part.
    pub(crate) fn within<S: 'static>(self, part: fn(&mut S) -> &mut T) -> Key<S> {
        let lift = move |change: Change<T>| -> Change<S> {
            Box::new(move |settings: &mut S| change(part(settings)))
        };
        Key {
            name: self.name,
            kind: match self.kind {
                Kind::Flag(set) => Kind::Flag(Box::new(move || lift(set()))),
                Kind::One(parse) => Kind::One(Box::new(move |text| parse(text).map(lift))),
                Kind::Several(parse) => {
                    Kind::Several(Box::new(move |texts| parse(texts).map(lift)))
                }
            },
            has_default: self.has_default,
            excludes: self.excludes,
        }
    }

    /// Whether the command line gives it, or what cannot be there with it.
    fn is_given(&self, given: &Given) -> bool {
        let other = self.excludes.map(|(other, _)| other);
        given.has(self.name) || other.is_some_and(|other| given.has(other))
    }

    /// The change of a value; of a flag that is not set none.
    ///
    /// # Errors
    ///
    /// For each part of the value that is not understood.
    fn change(&self, value: &Value) -> Result<Option<Change<T>>, Vec<String>> {
        if matches!(value, Value::Array(list) if list.is_empty()) && self.has_default {
            let what = "it is empty: name one at least, or leave it out";
            return Err(vec![what.to_owned()]);
        }
        let change = match (&self.kind, value) {
            (Kind::Flag(_), Value::Boolean(false)) => return Ok(None),
            (Kind::Flag(set), Value::Boolean(true)) => set(),
            (Kind::Flag(_), _) => return Err(vec!["it is true or false".to_owned()]),
            (Kind::One(parse), Value::Array(list)) => {
                parse(&texts(list)?.join(",")).map_err(|what| vec![what])?
            }
            (Kind::One(parse), value) => parse(&only_text(value)?).map_err(|what| vec![what])?,
            (Kind::Several(parse), Value::Array(list)) => {
                let named = |(text, what)| format!("'{text}': {what}");
                let wrong = |wrong: Vec<_>| wrong.into_iter().map(named).collect::<Vec<_>>();
                parse(&texts(list)?).map_err(wrong)?
            }
            (Kind::Several(parse), value) => {
                let wrong = |wrong: Vec<(_, String)>| wrong.into_iter().map(|(_, what)| what);
                parse(&[only_text(value)?]).map_err(|all| wrong(all).collect::<Vec<_>>())?
            }
        };
        Ok(Some(change))
    }
}

/// A text or a number, as a text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn only_text(value: &Value) -> Result<String, Vec<String>> {
    let what = "it is a text, a number, or a list of them";
    text(value).ok_or_else(|| vec![what.to_owned()])
}

/// The texts of a list.
///
/// # Errors
///
/// For each entry that is none.
fn texts(list: &[Value]) -> Result<Vec<String>, Vec<String>> {
    let (mut texts, mut wrong) = (Vec::new(), Vec::new());
    for value in list {
        match text(value) {
            Some(text) => texts.push(text),
            None => wrong.push(format!("'{value}': it is a text or a number")),
        }
    }
    match wrong.is_empty() {
        true => Ok(texts),
        false => Err(wrong),
    }
}

/// Parser of a number in a range.
pub(crate) fn number<N: TryFrom<i64>>(
    range: RangeInclusive<i64>,
) -> impl Fn(&str) -> Result<N, String> {
    move |text| {
        let number: i64 = text.parse().map_err(|_| "it is a number".to_owned())?;
        let within = range.contains(&number).then_some(number);
        within.and_then(|n| N::try_from(n).ok()).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("{number} is not in {least}..={most}")
        })
    }
}

/// Parser of a path.
pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() {
        true => Err("it is empty".to_owned()),
        false => Ok(text.into()),
    }
}

/// The names of keys, in order.
pub(crate) fn names<T>(keys: &[Key<T>]) -> impl Iterator<Item = String> {
    keys.iter().map(|key| key.name.to_owned())
}

/// A table of settings of type `T` in a file with tables `F`.
pub(crate) struct SettingsTable<'a, T, F> {
    file: &'a ConfigFile,
    /// Its name in the file.
    name: &'static str,
    values: &'a Options,
    keys: Vec<Key<T>>,
    of: PhantomData<F>,
}

impl<'a, T: 'static, F: Tables> SettingsTable<'a, T, F> {
    /// The table of this name, with these values.
    pub(crate) fn new(
        file: &'a ConfigFile,
        name: &'static str,
        values: &'a Options,
        keys: Vec<Key<T>>,
    ) -> Self {
        let of = PhantomData;
        Self {
            file,
            name,
            values,
            keys,
            of,
        }
    }

    /// Puts the values in place of settings that the command line does not give. Those whose keys are not known, or that are
    /// not understood, are left out and added to the errors.
    ///
    /// # Errors
    ///
    /// If two keys cannot be there together.
    pub(crate) fn apply(
        &self,
        settings: &mut T,
        given: &Given,
        errors: &mut ConfigErrors,
    ) -> anyhow::Result<()> {
        let mut applied: Vec<&Key<T>> = Vec::new();
        for (name, value) in self.values {
            match self.change(name, value) {
                Ok((key, Some(change))) if !key.is_given(given) => {
                    change(settings);
                    applied.push(key);
                }
                Ok(_) => {}
                Err(wrong) => wrong.into_iter().for_each(|error| errors.push(error)),
            }
        }
        let is_applied = |name: &str| applied.iter().any(|key| key.name == name);
        let mut excluded = applied.iter().filter_map(|key| key.excludes);
        match excluded.find(|(other, _)| is_applied(other)) {
            None => Ok(()),
            Some((_, what)) => {
                let file = self.file.path().display();
                Err(Misconfigured(format!("{file}: [{}]: {what}", self.name)).into())
            }
        }
    }

    /// A key of the table, and the change of its value.
    ///
    /// # Errors
    ///
    /// If the key is not known, or for each part of the value that is not understood.
    fn change(
        &self,
        name: &Spanned<String>,
        value: &Spanned<Value>,
    ) -> Result<Found<'_, T>, Vec<ConfigError>> {
        let error = |at, what: String| {
            let key = format!("{}.{}", self.name, name.get_ref());
            self.file.error(at, key, what)
        };
        let key = self.keys.iter().find(|key| key.name == name.get_ref());
        let key = key.ok_or_else(|| vec![error(name.span(), self.unknown(name.get_ref()))])?;
        let change = key.change(value.get_ref());
        let change = change.map_err(|wrong| {
            let wrong = wrong.into_iter().map(|what| error(value.span(), what));
            wrong.collect::<Vec<_>>()
        })?;
        Ok((key, change))
    }

    /// Advice about an unknown key.
    fn unknown(&self, key: &str) -> String {
        if let Some(elsewhere) = of_another_table::<F>(&format!("[{}]", self.name), key) {
            return elsewhere;
        }
        let known: Vec<String> = names(&self.keys).collect();
        format!("there is no such option; there are {}", known.join(", "))
    }
}
