//! The values of a file as far as they are understood. Each that is not is left out, so that what is wrong behind it is
//! found, too.

use super::tables::Table;
use super::wording;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Errors of one file; behind so many it is not read on.
const MAX_ERRORS: usize = 100;

/// Key that `toml::Spanned` adds to the way to a key.
const SPANNED: &str = "$__serde_spanned_private_value";

/// Fault at a byte of the file.
pub(super) struct Wrong {
    pub(super) at: usize,
    /// The way to the key, as in `export[0].name`; empty if there is none.
    pub(super) key: String,
    pub(super) what: String,
}

impl Wrong {
    fn new(at: usize, key: String, error: &toml::de::Error, tables: &[Table]) -> Self {
        let what = wording::of_value(&key, error.message(), tables);
        Self { at, key, what }
    }
}

/// Values of a text, without the keys that are not understood, and the faults of these.
///
/// # Errors
///
/// What is wrong if it is no TOML.
pub(super) fn values<T: DeserializeOwned + Default>(
    text: &str,
    tables: &[Table],
) -> Result<(T, Vec<Wrong>), Wrong> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = place(&error);
        Wrong {
            at,
            key: String::new(),
            what: wording::of_syntax(text, at, error.message()),
        }
    })?;
    let mut file = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let mut wrong = Vec::new();
    loop {
        let understood = serde_path_to_error::deserialize(ValueDeserializer::from(file.clone()));
        let error = match understood {
            Ok(values) => return Ok((values, wrong)),
            Err(error) => error,
        };
        let path = error.path().clone();
        let at = place(error.inner());
        wrong.push(Wrong::new(at, key(&path, 0), error.inner(), tables));
        further::<T>(&file, &path, &mut wrong, tables);
        if wrong.len() == MAX_ERRORS {
            let (key, what) = (String::new(), "there may be more errors".to_owned());
            wrong.push(Wrong { at, key, what });
            return Ok((T::default(), wrong));
        }
        if leave_out(file.get_mut(), &path).is_none() {
            return Ok((T::default(), wrong));
        }
    }
}

/// Adds what else is wrong with a list, if what is wrong at the end of a way is an entry of one: the list is left out as a
/// whole then.
fn further<T: DeserializeOwned>(
    file: &Spanned<DeValue<'_>>,
    way: &Path,
    wrong: &mut Vec<Wrong>,
    tables: &[Table],
) {
    let mut file = file.clone();
    let (mut way, mut before) = (way.clone(), 0);
    while wrong.len() < MAX_ERRORS {
        let segments: Vec<&Segment> = way.iter().filter(|segment| !is_added(segment)).collect();
        let Some((Segment::Seq { index }, to_list)) = segments.split_last() else {
            return;
        };
        let Some(DeValue::Array(list)) = find(file.get_mut(), to_list) else {
            return;
        };
        // What stands before this entry, and itself, need not be looked at again.
        *list = list.iter().skip(index + 1).cloned().collect();
        before += index + 1;
        let understood = serde_path_to_error::deserialize(ValueDeserializer::from(file.clone()));
        let Err(error) = understood.map(|_: T| ()) else {
            return;
        };
        let is_of_list = |other: &Path| {
            let mut other = other.iter().filter(|segment| !is_added(segment));
            let same = to_list.iter().all(|segment| {
                let other = other.next().map(ToString::to_string);
                other == Some(segment.to_string())
            });
            same && matches!(other.next(), Some(Segment::Seq { .. })) && other.next().is_none()
        };
        if !is_of_list(error.path()) {
            return;
        }
        way = error.path().clone();
        let key = key(&way, before);
        let at = place(error.inner());
        wrong.push(Wrong::new(at, key, error.inner(), tables));
    }
}

fn place(error: &toml::de::Error) -> usize {
    error.span().map_or(0, |span| span.start)
}

/// The way to a key, in words. If it ends at an entry of a list, so many entries of that are left out before it.
fn key(path: &Path, before: usize) -> String {
    let key = match path.to_string().replace(&format!(".{SPANNED}"), "") {
        all if all == "." => String::new(),
        key => key,
    };
    let entry = key.strip_suffix(']').and_then(|key| key.rsplit_once('['));
    let entry = entry.and_then(|(list, index)| Some((list, index.parse::<usize>().ok()?)));
    match entry {
        Some((list, index)) => format!("{list}[{}]", index + before),
        None => key,
    }
}

/// Leaves out the last key of a way, with its value: entries of lists keep their numbers.
fn leave_out(file: &mut DeValue<'_>, path: &Path) -> Option<()> {
    let segments: Vec<&Segment> = path.iter().filter(|segment| !is_added(segment)).collect();
    let is_key = |segment: &&Segment| matches!(segment, Segment::Map { .. });
    let last = segments.iter().rposition(is_key)?;
    remove(file, &segments[..=last])
}

/// Removes the key at the end of a way.
fn remove(file: &mut DeValue<'_>, way: &[&Segment]) -> Option<()> {
    match way.split_last()? {
        (Segment::Map { key }, above) => match find(file, above)? {
            DeValue::Table(table) => table.remove(&**key).map(drop),
            _ => None,
        },
        _ => None,
    }
}

/// The value at the end of a way.
fn find<'a, 'de>(value: &'a mut DeValue<'de>, way: &[&Segment]) -> Option<&'a mut DeValue<'de>> {
    match (way, value) {
        ([], value) => Some(value),
        ([Segment::Map { key }, rest @ ..], DeValue::Table(table)) => {
            find(table.get_mut(&**key)?.get_mut(), rest)
        }
        ([Segment::Seq { index }, rest @ ..], DeValue::Array(list)) => {
            find(list.get_mut(*index)?.get_mut(), rest)
        }
        _ => None,
    }
}

fn is_added(segment: &Segment) -> bool {
    matches!(segment, Segment::Map { key } if key == SPANNED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        entry: Vec<Spanned<Entry>>,
        number: Option<u16>,
        #[serde(default)]
        any: BTreeMap<String, u16>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        word: Option<Spanned<String>>,
        list: Option<Vec<Spanned<String>>>,
    }

    fn wrong(text: &str) -> (File, Vec<String>) {
        let (file, wrong) = values(text, &[]).ok().expect("it is TOML");
        let keys = wrong.into_iter().map(|wrong| wrong.key);
        (file, keys.collect())
    }

    #[test]
    fn every_key_that_is_not_understood_is_told_and_the_rest_is_kept() {
        let (file, keys) = wrong(
            "number = \"x\"\nnone = 1\nany = { a = 1, b = \"2\" }\n\
             [[entry]]\nword = 1\nlist = [\"a\", 2, \"b\", 3]\nother = 3\n[[entry]]\nword = \"b\"\nlist = 4\n",
        );
        let mut sorted = keys.clone();
        sorted.sort();
        assert_eq!(
            sorted,
            [
                "any.b",
                "entry[0].list[1]",
                "entry[0].list[3]",
                "entry[0].other",
                "entry[0].word",
                "entry[1].list",
                "none",
                "number"
            ]
        );
        let [first, second] = &file.entry[..] else {
            panic!("two entries");
        };
        assert!(first.get_ref().word.is_none() && first.get_ref().list.is_none());
        let word = second.get_ref().word.as_ref().unwrap();
        assert_eq!(word.get_ref(), "b");
        assert_eq!((file.any["a"], file.number), (1, None));
    }

    #[test]
    fn list_whose_entries_are_no_tables_is_left_out() {
        let (file, keys) = wrong("entry = [1, 2]\nnumber = 3\n");
        assert_eq!(keys, ["entry[0]", "entry[1]"]);
        assert_eq!((file.entry.len(), file.number), (0, Some(3)));
    }

    #[test]
    fn errors_are_bounded() {
        let many: String = (0..10 * MAX_ERRORS)
            .map(|number| format!("k{number} = 1\n"))
            .collect();
        let (_, keys) = wrong(&many);
        assert_eq!(keys.len(), MAX_ERRORS + 1);
        let (_, keys) = wrong(&format!("entry = {:?}", [0; 10 * MAX_ERRORS]));
        assert_eq!(keys.len(), MAX_ERRORS + 1);
    }
}
