//! Tables of tab-separated values: one row a line, without quotes.

use csv::{Position, QuoteStyle, Reader, ReaderBuilder, StringRecord, Writer, WriterBuilder};

/// Reads the rows of a table, its head among them. Empty lines are left out; rows need not have equally many
/// cells.
pub fn reader(text: &str) -> Reader<&[u8]> {
    builder().from_reader(text.as_bytes())
}

/// The same without lines that begin with `#`.
pub fn reader_without_comments(text: &str) -> Reader<&[u8]> {
    builder().comment(Some(b'#')).from_reader(text.as_bytes())
}

fn builder() -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder
        .delimiter(b'\t')
        .quoting(false)
        .flexible(true)
        .has_headers(false);
    builder
}

/// Writes a table behind what is there already.
pub fn writer(text: Vec<u8>) -> Writer<Vec<u8>> {
    WriterBuilder::new()
        .delimiter(b'\t')
        .quote_style(QuoteStyle::Never)
        .from_writer(text)
}

/// The line that a row is in, from 1 on; behind comments and empty lines, the first of those.
pub fn line(row: &StringRecord) -> usize {
    let line = row.position().map_or(0, Position::line);
    usize::try_from(line).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_lines_and_quotes_mean_nothing() {
        let text = "# comment\na\t\"b\n\nc\n";
        let rows = |reader: Reader<&[u8]>| {
            let rows = reader.into_records().map(|row| {
                let row = row.unwrap();
                (
                    line(&row),
                    row.iter().map(str::to_owned).collect::<Vec<_>>(),
                )
            });
            rows.collect::<Vec<_>>()
        };
        let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
        let without = [(1, cells(&["a", "\"b"])), (3, cells(&["c"]))];
        assert_eq!(rows(reader_without_comments(text)), without);
        assert_eq!(rows(reader(text))[0], (1, cells(&["# comment"])));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut writer = writer(b"# head\n".to_vec());
        writer.write_record(["a \"b\"", "", "c"]).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(text, "# head\na \"b\"\t\tc\n");
        let row = reader_without_comments(&text)
            .into_records()
            .next()
            .unwrap()
            .unwrap();
        assert_eq!(row.iter().collect::<Vec<_>>(), ["a \"b\"", "", "c"]);
    }
}
