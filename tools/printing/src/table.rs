//! Tables for people: columns without rules between them, no wider than the terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Row, Table};
use console::Term;
use std::fmt::{self, Display, Formatter};

/// Columns that a terminal has that does not say how many.
const USUAL_WIDTH: u16 = 80;

/// The columns of the terminal that standard output is; none if it is none, where lines have no end.
pub fn terminal_width() -> Option<u16> {
    let terminal = Term::stdout();
    let size = terminal.size_checked();
    terminal
        .is_term()
        .then(|| size.map_or(USUAL_WIDTH, |(_, columns)| columns))
}

/// A table. Numbers stand to the right, and the columns that are named as text to the left. On a terminal, cells
/// that would make a line too long are wrapped.
pub struct Columns {
    table: Table,
    /// Which columns are text.
    text: &'static [usize],
    /// Spaces between columns.
    gap: u16,
}

impl Columns {
    /// A table without a row.
    pub fn new(text: &'static [usize]) -> Self {
        Self::within(text, 2, terminal_width())
    }

    /// One whose lines are as long as it takes, on terminals too.
    pub fn with_long_lines(text: &'static [usize], gap: u16) -> Self {
        Self::within(text, gap, None)
    }

    /// One whose lines fit the terminal or, without one, the usual terminal, also for readers of a file or a mail. `indent`
    /// columns are left for what the user puts in front of each line.
    pub fn fitting(text: &'static [usize], gap: u16, indent: u16) -> Self {
        let width = terminal_width().unwrap_or(USUAL_WIDTH);
        Self::within(text, gap, Some(width.saturating_sub(indent)))
    }

    fn within(text: &'static [usize], gap: u16, width: Option<u16>) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING);
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
        }
        Self { table, text, gap }
    }

    /// Adds a row.
    pub fn add(&mut self, row: impl Into<Row>) {
        self.table.add_row(row);
        for (index, column) in self.table.column_iter_mut().enumerate() {
            column.set_padding((if index == 0 { 0 } else { self.gap }, 0));
            column.set_cell_alignment(match self.text.contains(&index) {
                true => CellAlignment::Left,
                false => CellAlignment::Right,
            });
        }
    }
}

impl Display for Columns {
    /// Each row in a line of its own, or several where cells are wrapped.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.table.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}", self.table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: Option<u16>) -> String {
        let mut columns = Columns::within(&[0, 2], 2, width);
        columns.add(["name", "calls", "note"]);
        columns.add(["READ", "10", "one that is rather long"]);
        columns.to_string()
    }

    #[test]
    fn numbers_stand_to_the_right_and_text_to_the_left() {
        let expected = "name  calls  note\nREAD     10  one that is rather long\n";
        assert_eq!(shown(None), expected);
        assert_eq!(shown(Some(80)), expected);
        assert_eq!(Columns::new(&[]).to_string(), "");
    }

    #[test]
    fn cells_are_wrapped_where_the_terminal_ends() {
        let narrow = shown(Some(30));
        assert!(narrow.lines().all(|line| line.len() <= 30), "{narrow}");
        assert_eq!(narrow.lines().count(), 3, "{narrow}");
    }
}
