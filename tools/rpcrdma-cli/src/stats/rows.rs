//! Text of `stats` that fits a terminal: rows of a name and what there is to say, and numbers of any size in few columns.

use crate::show::{Units, size_in};
use nfs_client::printable;
use printing::table::Columns;
use std::fmt::{self, Display, Formatter};

/// Spaces between the name of a row and its value.
const GAP: u16 = 2;

/// Rows of a name and a value, of which long ones are wrapped.
pub(super) struct Rows {
    table: Columns,
    indent: u16,
}

impl Rows {
    /// No rows, with this many spaces in front of each line.
    pub(super) fn indented(indent: u16) -> Self {
        Self {
            table: Columns::fitting(&[0, 1], GAP, indent),
            indent,
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.table.add([name, &value.into()]);
    }

    /// Adds a row of values, unless there are none.
    pub(super) fn add_list(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            self.add(name, values.join(", "));
        }
    }
}

impl Display for Rows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let indent = usize::from(self.indent);
        let text = self.table.to_string();
        text.lines()
            .try_for_each(|line| writeln!(f, "{:indent$}{line}", ""))
    }
}

/// A line of text, in several lines if it is too long for one.
pub(super) fn wrapped(text: &str) -> String {
    let mut table = Columns::fitting(&[0], 0, 0);
    table.add([text]);
    table.to_string()
}

/// Text from elsewhere as it can be printed.
pub(super) fn shown(text: &str) -> String {
    printable(text.as_bytes()).to_string()
}

/// A number that takes seven columns at most: exact below ten million, and with a unit of 1000 above.
pub(crate) fn number(count: u64) -> String {
    match count {
        0..10_000_000 => count.to_string(),
        _ => size_in(count, Units::Decimal),
    }
}

/// How many there are, with what they are called.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", number(count)),
    }
}

/// The same, if there are any.
pub(super) fn some(count: u64, one: &str, many: &str) -> Option<String> {
    (count > 0).then(|| counted(count, one, many))
}

/// A rate, rounded.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are far below the largest number, and none is negative"
)]
pub(super) fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_seven_columns_at_most() {
        assert_eq!(number(9_999_999), "9999999");
        assert_eq!(number(10_000_000), "10M");
        assert_eq!(number(u64::MAX), "19E");
    }

    #[test]
    fn nothing_is_said_of_what_there_is_none_of() {
        let said = [0, 1, 2].map(|count| some(count, "job", "jobs"));
        assert_eq!(said, [None, Some("1 job".into()), Some("2 jobs".into())]);
    }
}
