//! The tables of `docs/design/compliance`: complete, and true as far as a program can see.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::fault::Fault;
use super::sources::{Named, Sources};
use programs::tsv;

/// Folder of the tables; the ids they must have are below, in `ids`.
pub(super) const FOLDER: &str = "docs/design/compliance";

/// The columns of a table.
const COLUMNS: [&str; 8] = [
    "id",
    "level",
    "section",
    "requirement",
    "status",
    "where",
    "tests",
    "note",
];

/// Levels of requirement: those of BCP 14, and rules that a document states without capitals.
const LEVELS: [&str; 10] = [
    "MUST",
    "MUST NOT",
    "REQUIRED",
    "SHOULD",
    "SHOULD NOT",
    "RECOMMENDED",
    "must",
    "must not",
    "should",
    "should not",
];

/// Status of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Done,
    NotApplicable,
    Departure,
    NotBuilt,
}

impl Status {
    const ALL: [Self; 4] = [
        Self::Done,
        Self::NotApplicable,
        Self::Departure,
        Self::NotBuilt,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NotApplicable => "not applicable",
            Self::Departure => "departure",
            Self::NotBuilt => "not built",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// How many requirements of each document have which status, and how many tests their rows name.
#[derive(Default)]
pub(super) struct Counts {
    documents: BTreeMap<String, Count>,
}

#[derive(Clone, Default)]
struct Count {
    statuses: BTreeMap<Status, usize>,
    tests: HashSet<String>,
}

impl Counts {
    #[cfg(test)]
    pub(super) fn of(&self, document: &str, status: &str) -> usize {
        let status = Status::parse(status).expect("tests name one that there is");
        let count = &self.documents[document];
        count.statuses.get(&status).copied().unwrap_or(0)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}{:>6}", "document", "all")?;
        for status in Status::ALL {
            write!(f, "{:>16}", status.name())?;
        }
        write!(f, "{:>8}", "tests")?;
        let mut total = Count::default();
        for (document, count) in &self.documents {
            write_row(f, document, count)?;
            for (status, rows) in &count.statuses {
                *total.statuses.entry(*status).or_default() += rows;
            }
            total.tests.extend(count.tests.iter().cloned());
        }
        write_row(f, "all", &total)
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, count: &Count) -> fmt::Result {
    let all: usize = count.statuses.values().sum();
    write!(f, "\n{name:<16}{all:>6}")?;
    for status in Status::ALL {
        let rows = count.statuses.get(&status).copied().unwrap_or(0);
        write!(f, "{rows:>16}")?;
    }
    write!(f, "{:>8}", count.tests.len())
}

/// A row of a table, as far as patches that break its rule need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    /// The files in which the code decides.
    pub(super) files: Vec<String>,
    /// The tests, as `file.rs::function`.
    pub(super) tests: Vec<String>,
}

/// Reads the rows of all tables. Lines that are no rows are left out: [`check`] tells of them.
pub(super) fn rows(root: &Path) -> Result<Vec<Row>> {
    let words = |cell: &str| cell.split_whitespace().map(str::to_owned).collect();
    let mut rows = Vec::new();
    for file in list(root, Path::new(FOLDER), "tsv")?.values() {
        let text = fs::read_to_string(root.join(file))?;
        for row in tsv::reader(&text).into_records().skip(1) {
            let row = row?;
            if let (Some(id), Some(files), Some(tests)) = (row.get(0), row.get(5), row.get(6)) {
                rows.push(Row {
                    id: id.to_owned(),
                    files: words(files),
                    tests: words(tests),
                });
            }
        }
    }
    Ok(rows)
}

/// Checks every table against its list of ids and against the work tree.
pub(super) fn check(root: &Path, sources: &Sources, faults: &mut Vec<Fault>) -> Result<Counts> {
    let folder = Path::new(FOLDER);
    let tables = list(root, folder, "tsv")?;
    let ids = list(root, &folder.join("ids"), "txt")?;
    let mut counts = Counts::default();
    for (name, file) in &ids {
        let wanted = read_ids(root, name, file, faults)?;
        match tables.get(name) {
            Some(table) => {
                let mut table = Table {
                    root,
                    sources,
                    name,
                    file: table,
                    faults,
                };
                counts.documents.insert(name.clone(), table.check(&wanted)?);
            }
            None => faults.push(Fault::new(file, 1, format!("{name}.tsv is missing"))),
        }
    }
    for (name, file) in &tables {
        if !ids.contains_key(name) {
            let what = format!("ids/{name}.txt is missing: nothing says which rows there must be");
            faults.push(Fault::new(file, 1, what));
        }
    }
    Ok(counts)
}

/// The files of one kind in a folder: their paths from the root, by name.
pub(super) fn list(
    root: &Path,
    folder: &Path,
    extension: &str,
) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let path = root.join(folder);
    for entry in fs::read_dir(&path).with_context(|| format!("{}", path.display()))? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|found| found == extension) {
            let stem = name.file_stem().unwrap_or_default().to_string_lossy();
            found.insert(stem.into_owned(), folder.join(&name));
        }
    }
    Ok(found)
}

/// The ids a table must have, with the line of each.
fn read_ids(
    root: &Path,
    name: &str,
    file: &Path,
    faults: &mut Vec<Fault>,
) -> Result<Vec<(String, usize)>> {
    let mut ids: Vec<(String, usize)> = Vec::new();
    let mut seen = HashSet::new();
    for (line, id) in (1..).zip(fs::read_to_string(root.join(file))?.lines()) {
        if section_of(name, id).is_none() {
            faults.push(Fault::new(file, line, format!("{id:?} is no id of {name}")));
        } else if seen.insert(id.to_owned()) {
            ids.push((id.to_owned(), line));
        } else {
            faults.push(Fault::new(file, line, format!("{id} is here twice")));
        }
    }
    if ids.is_empty() {
        faults.push(Fault::new(file, 1, "no ids"));
    }
    Ok(ids)
}

/// The section in an id of a document: `RFC8166-4.5.2-1` of `rfc8166` is of `4.5.2`.
fn section_of<'a>(name: &str, id: &'a str) -> Option<&'a str> {
    let rest = id.strip_prefix(&name.to_uppercase())?.strip_prefix('-')?;
    let (section, number) = rest.rsplit_once('-')?;
    let numbered = number.parse::<u32>().is_ok_and(|number| number > 0);
    (numbered && !section.is_empty()).then_some(section)
}

/// A table while it is checked.
struct Table<'a> {
    root: &'a Path,
    sources: &'a Sources,
    name: &'a str,
    file: &'a Path,
    faults: &'a mut Vec<Fault>,
}

impl Table<'_> {
    fn fault(&mut self, line: usize, what: impl Into<String>) {
        self.faults.push(Fault::new(self.file, line, what));
    }

    fn check(&mut self, wanted: &[(String, usize)]) -> Result<Count> {
        let text = fs::read_to_string(self.root.join(self.file))?;
        let known: HashSet<&str> = wanted.iter().map(|(id, _)| id.as_str()).collect();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut count = Count::default();
        let mut rows = tsv::reader(&text).into_records();
        let header = rows.next().transpose()?.unwrap_or_default();
        if !header.iter().eq(COLUMNS) {
            let what = format!("the columns are not {}", COLUMNS.join(", "));
            self.fault(1, what);
            return Ok(count);
        }
        for row in rows {
            let row = row?;
            let line = tsv::line(&row);
            let cells: Vec<&str> = row.iter().collect();
            let Ok(cells) = <[&str; 8]>::try_from(cells) else {
                self.fault(line, "a row has eight cells, with a tab between each");
                continue;
            };
            let id = cells[0];
            if !known.contains(id) {
                let what = format!("{id:?} is not in ids/{}.txt", self.name);
                self.fault(line, what);
            }
            if let Some(before) = seen.insert(id.to_owned(), line) {
                self.fault(line, format!("{id} is in line {before} already"));
            }
            self.row(line, cells, &mut count);
        }
        for (id, _) in wanted {
            if !seen.contains_key(id.as_str()) {
                self.fault(1, format!("{id} is missing"));
            }
        }
        Ok(count)
    }

    fn row(&mut self, line: usize, cells: [&str; 8], count: &mut Count) {
        let [id, level, section, requirement, status, files, tests, note] = cells;
        if section_of(self.name, id).is_some_and(|wanted| wanted != section) {
            self.fault(line, format!("{id} is not of section {section:?}"));
        }
        if !LEVELS.contains(&level) {
            self.fault(line, format!("no level: {level:?}"));
        }
        if requirement.trim().is_empty() {
            self.fault(line, "what is required?");
        }
        let files: Vec<&str> = files.split_whitespace().collect();
        let tests: Vec<&str> = tests.split_whitespace().collect();
        let noted = !note.trim().is_empty();
        match Status::parse(status) {
            Some(status) => {
                *count.statuses.entry(status).or_default() += 1;
                if status == Status::Done && files.is_empty() {
                    self.fault(line, "done, but where?");
                }
                if status == Status::Done && tests.is_empty() && !noted {
                    self.fault(line, "done, but no test, and no note why there can be none");
                }
                if status != Status::Done && !noted {
                    let what = format!("{}, but no note why", status.name());
                    self.fault(line, what);
                }
            }
            None => self.fault(line, format!("no status: {status:?}")),
        }
        for file in files {
            if !self.root.join(file).is_file() {
                self.fault(line, format!("there is no file {file}"));
            }
        }
        for test in tests {
            self.test(line, test);
            count.tests.insert(test.to_owned());
        }
    }

    fn test(&mut self, line: usize, test: &str) {
        let Some((file, function)) = test.split_once("::") else {
            self.fault(line, format!("a test is file.rs::function, not {test}"));
            return;
        };
        let path = Path::new(file);
        if self.sources.get(path).is_none() {
            self.fault(line, format!("there is no source {file}"));
            return;
        }
        match self.sources.named(path, function) {
            Named::Test => {}
            Named::Ignored => self.fault(line, format!("{test} is ignored")),
            Named::Function => self.fault(line, format!("{test} is no test")),
            Named::Nothing => self.fault(line, format!("{file} has no function {function}")),
        }
    }
}
