//! Tables in Markdown: rows found by their text, and values by the heads of their columns.

/// A table. Columns that stand to the right (`--:`) have values; the others together are the key of a row.
#[derive(Debug)]
pub(super) struct Table {
    keys: Vec<String>,
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    /// Line of the row, counted from the first that was looked at.
    line: usize,
    key: Vec<String>,
    values: Vec<String>,
}

/// The tables in these lines.
pub(super) fn tables(lines: &[&str]) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut at = 0;
    while at + 1 < lines.len() {
        let (Some(head), Some(rule)) = (cells(lines[at]), rule(lines[at + 1])) else {
            at += 1;
            continue;
        };
        let rows = lines[at + 2..].iter().map_while(|line| cells(line));
        let mut table = Table::new(head, &rule);
        for (index, row) in rows.enumerate() {
            table.add(at + 2 + index, row, &rule);
        }
        at += 2 + table.rows.len();
        tables.push(table);
    }
    tables
}

/// The cells of a row.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(
        inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect(),
    )
}

/// Which columns have values, if the line is the one below the heads.
fn rule(line: &str) -> Option<Vec<bool>> {
    let cells = cells(line)?;
    let is_rule = |cell: &String| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':'));
    cells
        .iter()
        .all(is_rule)
        .then(|| cells.iter().map(|cell| cell.ends_with(':')).collect())
}

/// Splits cells into those of columns of text and those of values.
fn split(cells: Vec<String>, rule: &[bool]) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (cell, is_value) in cells.into_iter().zip(rule) {
        if *is_value { &mut values } else { &mut keys }.push(cell);
    }
    (keys, values)
}

impl Table {
    fn new(head: Vec<String>, rule: &[bool]) -> Self {
        let (keys, columns) = split(head, rule);
        Self {
            keys,
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row. Empty cells at its beginning are those of the row before.
    fn add(&mut self, line: usize, cells: Vec<String>, rule: &[bool]) {
        let (mut key, values) = split(cells, rule);
        if let Some(before) = self.rows.last() {
            let empty = key
                .iter_mut()
                .zip(&before.key)
                .take_while(|(cell, _)| cell.is_empty());
            empty.for_each(|(cell, before)| cell.clone_from(before));
        }
        self.rows.push(Row { line, key, values });
    }

    pub(super) fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Lines of this table that stand in none of the others, or in another way, with their numbers.
    pub(super) fn differences(&self, others: &[Self]) -> Vec<(usize, String)> {
        let of_kind = others.iter().filter(|other| {
            let has = |column: &String| other.columns.contains(column);
            other.keys == self.keys && self.columns.iter().all(has)
        });
        let of_kind: Vec<&Self> = of_kind.collect();
        let line = of_kind.first().and_then(|table| table.rows.first());
        let line = line.map_or(0, |row| row.line);
        let mut differences = Vec::new();
        for row in &self.rows {
            let found = of_kind.iter().find_map(|table| {
                let row = table.rows.iter().find(|other| other.key == row.key)?;
                Some((table, row))
            });
            let Some((table, other)) = found else {
                differences.push((line, format!("there is no row {}", row.key.join(", "))));
                continue;
            };
            for (column, value) in self.columns.iter().zip(&row.values) {
                let at = table.columns.iter().position(|other| other == column);
                let shown = at.and_then(|at| other.values.get(at));
                if shown != Some(value) {
                    let shown = shown.map_or("nothing", String::as_str);
                    let what = format!("{column} is {value} now, where the page has {shown}");
                    differences.push((other.line, what));
                }
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: [&str; 8] = [
        "",
        "| traffic | design | 512 | 8 KiB |",
        "|---|---|--:|--:|",
        "| alone | none | 20 | 24 |",
        "| | all | 0.8 | 0.9 |",
        "| mixed | none | 30 | 34 |",
        "| | all | 0.7 | 0.6 |",
        "",
    ];

    fn differences(row: &str) -> Vec<(usize, String)> {
        let made = ["| traffic | design | 8 KiB |", "|---|---|--:|", row];
        tables(&made)[0].differences(&tables(&PAGE))
    }

    #[test]
    fn some_rows_and_columns_are_compared_with_the_page() {
        assert_eq!(differences("| alone | none | 24 |"), []);
        assert_eq!(differences("| mixed | all | 0.6 |"), []);
        let expected = "8 KiB is 25 now, where the page has 24".to_owned();
        assert_eq!(differences("| alone | none | 25 |"), [(3, expected)]);
        let expected = "there is no row alone, several".to_owned();
        assert_eq!(differences("| alone | several | 1 |"), [(3, expected)]);
    }

    #[test]
    fn table_of_another_kind_has_none_of_the_rows() {
        let made = [
            "| memory | design | 8 KiB |",
            "|---|---|--:|",
            "| alone | none | 24 |",
        ];
        let differences = tables(&made)[0].differences(&tables(&PAGE));
        assert_eq!(differences, [(0, "there is no row alone, none".to_owned())]);
    }
}
