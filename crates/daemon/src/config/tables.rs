//! Keys that stand in another table than theirs.

use serde::de::DeserializeOwned;

/// A table of a kind of file, and its keys.
pub(crate) struct Table {
    /// As it is written: `[[export]]`.
    name: &'static str,
    keys: Vec<String>,
}

/// A file with tables.
pub(crate) trait Tables {
    /// The tables that have keys of their own.
    fn tables() -> Vec<Table>;
}

/// A key that no table has.
const NO_KEY: &str = "-";

impl Table {
    /// A table with these keys.
    pub(crate) fn new(name: &'static str, keys: impl IntoIterator<Item = String>) -> Self {
        let keys = keys.into_iter().collect();
        Self { name, keys }
    }

    /// The table of a type that refuses unknown keys: serde names all that it knows.
    pub(crate) fn of<T: DeserializeOwned>(name: &'static str) -> Self {
        let none = toml::Table::from_iter([(NO_KEY.to_owned(), true.into())]);
        let known = T::deserialize(none).err();
        let known = known.map(|error| error.message().to_owned());
        let known = known.unwrap_or_default();
        // What is in quotes, after the unknown key.
        let words = known.split('`').skip(3).step_by(2).map(str::to_owned);
        Self::new(name, words)
    }
}

/// Names the table that has a key, in words, if another than this one has it.
pub(super) fn elsewhere(tables: &[Table], here: &str, key: &str) -> Option<String> {
    let others = tables.iter().filter(|table| table.name != here);
    let with = others.filter(|table| table.keys.iter().any(|known| known == key));
    let with: Vec<&str> = with.map(|table| table.name).collect();
    (!with.is_empty()).then(|| {
        let with = with.join(" or ");
        format!("there is no key {key} here: it belongs into {with}")
    })
}

/// The table of a key, such as `export[0].client[1].hosts`: `[[export.client]]`. Without one, nothing.
pub(super) fn table_of(key: &str) -> String {
    let Some((way, _)) = key.rsplit_once('.') else {
        return String::new();
    };
    let is_list = way.ends_with(']');
    let names = way.split('.').map(|part| part.split('[').next());
    let names: Vec<&str> = names.flatten().collect();
    let name = names.join(".");
    match is_list {
        true => format!("[[{name}]]"),
        false => format!("[{name}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its keys count")]
    struct Entry {
        word: Option<String>,
        #[serde(rename = "else")]
        other: Option<u16>,
    }

    #[test]
    fn keys_of_a_table_are_those_of_its_type() {
        assert_eq!(Table::of::<Entry>("[[entry]]").keys, ["word", "else"]);
    }

    #[test]
    fn key_belongs_into_the_other_tables_that_have_it() {
        let tables = [
            Table::of::<Entry>("[[entry]]"),
            Table::new("[server]", ["word".to_owned()]),
        ];
        let said = |here: &str, key: &str| elsewhere(&tables, here, key);
        let text = "there is no key word here: it belongs into [[entry]] or [server]";
        assert_eq!(said("", "word").as_deref(), Some(text));
        let text = "there is no key word here: it belongs into [server]";
        assert_eq!(said("[[entry]]", "word").as_deref(), Some(text));
        assert_eq!(said("[[entry]]", "else"), None);
        assert_eq!(said("", "none"), None);
    }

    #[test]
    fn table_of_a_key_is_written_as_in_the_file() {
        for (key, table) in [
            ("listen", ""),
            ("server.listen", "[server]"),
            ("export[1].path", "[[export]]"),
            ("export[0].client[1].hosts", "[[export.client]]"),
        ] {
            assert_eq!(table_of(key), table);
        }
    }
}
