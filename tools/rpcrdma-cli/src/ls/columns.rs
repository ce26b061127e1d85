//! The columns of `ls -l`, as wide as their widest cell, by the width that a terminal shows.
//!
//! Other commands have the tables of `table`. Names can end with spaces, which are kept here, and a directory can
//! have a million of them.

use unicode_width::UnicodeWidthStr;

/// To which side of its column a cell goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows in lines, with `gap` spaces between columns and none behind the last cell. A row may have fewer
/// cells than there are columns.
pub(super) fn table<'a, R>(rows: &'a [R], columns: &[Align], gap: usize) -> String
where
    R: AsRef<[String]> + 'a,
{
    let mut widths = vec![0; columns.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = (*width).max(cell.width());
        }
    }
    let mut text = String::new();
    for row in rows {
        // Spaces that are due before the next cell.
        let mut due = 0;
        for (index, cell) in row.as_ref().iter().enumerate() {
            let padding = widths[index] - cell.width();
            let (before, behind) = match columns[index] {
                Align::Left => (0, padding),
                Align::Right => (padding, 0),
            };
            text.extend(std::iter::repeat_n(' ', due + before));
            text.push_str(cell);
            due = behind + gap;
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_the_width_that_a_terminal_shows() {
        let rows = [&["a", "1", "x "][..], &["müll", "10"], &["文字", "5", "yy"]];
        let rows = rows.map(|row| row.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
        let columns = [Align::Left, Align::Right, Align::Left];
        assert_eq!(
            table(&rows, &columns, 2),
            "a      1  x \nmüll  10\n文字   5  yy\n"
        );
        assert_eq!(table::<Vec<String>>(&[], &columns, 1), "");
    }
}
