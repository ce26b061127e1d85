//! A small work tree with one fault at a time.

use std::fs;

use super::fault::Fault;
use super::sources::Sources;
use super::{compliance, house, limits};

const IDS: &str = "RFC1-2.1-1\nRFC1-2.1-2\n";
const HEADER: &str = "id\tlevel\tsection\trequirement\tstatus\twhere\ttests\tnote\n";
const ROW_1: &str =
    "RFC1-2.1-1\tMUST\t2.1\tdo it\tdone\tcrates/a/src/lib.rs\tcrates/a/src/lib.rs::it_is_done\t\n";
const ROW_2: &str = "RFC1-2.1-2\tSHOULD\t2.1\tleave it\tdeparture\t\t\tit costs too much\n";
const SOURCE: &str =
    "//! A crate.\n\nconst MAX: usize = 4 << 10;\nfn helper() {}\n\n#[test]\nfn it_is_done() {}\n";
const LIMITS: &str = "| limit | value | unit | where | past it |\n|---|---|---|---|---|\n\
    | `MAX` | 4 | KiB | `crates/a/src/lib.rs` | it is refused |\n";
const MANIFEST: &str = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";

struct Tree {
    ids: String,
    table: String,
    limits: String,
    source: String,
    manifest: String,
}

impl Tree {
    fn good() -> Self {
        Self {
            ids: IDS.to_owned(),
            table: [HEADER, ROW_1, ROW_2].concat(),
            limits: LIMITS.to_owned(),
            source: SOURCE.to_owned(),
            manifest: MANIFEST.to_owned(),
        }
    }

    fn faults(&self) -> (String, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (file, text) in [
            ("docs/design/compliance/ids/rfc1.txt", &self.ids),
            ("docs/design/compliance/rfc1.tsv", &self.table),
            ("docs/design/limits.md", &self.limits),
            ("crates/a/src/lib.rs", &self.source),
            ("crates/a/Cargo.toml", &self.manifest),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = Sources::read(root).unwrap();
        let mut faults = Vec::new();
        let counts = compliance::check(root, &sources, &mut faults).unwrap();
        limits::check(root, &sources, &mut faults).unwrap();
        house::check(root, &sources, &mut faults).unwrap();
        assert!(counts.of("rfc1", "done") <= 1);
        let faults = faults.iter().map(Fault::to_string).collect();
        (counts.to_string(), faults)
    }
}

/// The one fault of the good tree after a change to it.
#[track_caller]
fn check(change: impl FnOnce(&mut Tree), expected: &str) {
    let mut tree = Tree::good();
    change(&mut tree);
    let (_, faults) = tree.faults();
    assert_eq!(faults, [expected]);
}

#[track_caller]
fn check_row(from: &str, to: &str, expected: &str) {
    check(
        |tree| tree.table = tree.table.replacen(from, to, 1),
        expected,
    );
}

#[test]
fn valid_tree_has_no_fault_and_is_counted() {
    let (counts, faults) = Tree::good().faults();
    assert_eq!(faults, [""; 0]);
    let rows: Vec<Vec<&str>> = counts
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1], ["rfc1", "2", "1", "0", "1", "0", "1"]);
    assert_eq!(rows[2], ["all", "2", "1", "0", "1", "0", "1"]);
}

#[test]
fn ids_are_all_there_and_there_once() {
    check(
        |tree| tree.table = [HEADER, ROW_1].concat(),
        "docs/design/compliance/rfc1.tsv:1: RFC1-2.1-2 is missing",
    );
    check(
        |tree| tree.table.push_str(ROW_2),
        "docs/design/compliance/rfc1.tsv:4: RFC1-2.1-2 is in line 3 already",
    );
    check(
        |tree| tree.ids = "RFC1-2.1-1\n".to_owned(),
        "docs/design/compliance/rfc1.tsv:3: \"RFC1-2.1-2\" is not in ids/rfc1.txt",
    );
    check(
        |tree| tree.ids.push_str("RFC1-2.1-2\n"),
        "docs/design/compliance/ids/rfc1.txt:3: RFC1-2.1-2 is here twice",
    );
    check(
        |tree| tree.ids.push_str("RFC2-2.1-2\n"),
        "docs/design/compliance/ids/rfc1.txt:3: \"RFC2-2.1-2\" is no id of rfc1",
    );
}

#[test]
fn tables_have_the_agreed_shape() {
    check(
        |tree| tree.table.insert(0, 'x'),
        "docs/design/compliance/rfc1.tsv:1: the columns are not id, level, section, requirement, \
         status, where, tests, note",
    );
    check(
        |tree| tree.table.push_str("RFC1-2.1-2\tMUST\n"),
        "docs/design/compliance/rfc1.tsv:4: a row has eight cells, with a tab between each",
    );
    let prefix = "docs/design/compliance/rfc1.tsv";
    check_row("MUST", "OUGHT", &format!("{prefix}:2: no level: \"OUGHT\""));
    check_row(
        "\tdone\t",
        "\tready\t",
        &format!("{prefix}:2: no status: \"ready\""),
    );
    check_row("do it", " ", &format!("{prefix}:2: what is required?"));
    check_row(
        "MUST\t2.1",
        "MUST\t2.2",
        &format!("{prefix}:2: RFC1-2.1-1 is not of section \"2.2\""),
    );
}

#[test]
fn rows_name_files_and_tests_that_exist() {
    let prefix = "docs/design/compliance/rfc1.tsv:2";
    check_row(
        "\tcrates/a/src/lib.rs\t",
        "\tcrates/b/src/lib.rs\t",
        &format!("{prefix}: there is no file crates/b/src/lib.rs"),
    );
    check_row(
        "lib.rs::it_is_done",
        "lib.rs::it_is_half_done",
        &format!("{prefix}: crates/a/src/lib.rs has no function it_is_half_done"),
    );
    check_row(
        "lib.rs::it_is_done",
        "lib.rs::helper",
        &format!("{prefix}: crates/a/src/lib.rs::helper is no test"),
    );
    check_row(
        "src/lib.rs::it_is_done",
        "src/main.rs::it_is_done",
        &format!("{prefix}: there is no source crates/a/src/main.rs"),
    );
    check_row(
        "crates/a/src/lib.rs::it_is_done",
        "it_is_done",
        &format!("{prefix}: a test is file.rs::function, not it_is_done"),
    );
}

#[test]
fn rows_say_where_and_why() {
    check_row(
        "\tcrates/a/src/lib.rs\t",
        "\t\t",
        "docs/design/compliance/rfc1.tsv:2: done, but where?",
    );
    check_row(
        "crates/a/src/lib.rs::it_is_done",
        "",
        "docs/design/compliance/rfc1.tsv:2: done, but no test, and no note why there can be none",
    );
    check_row(
        "it costs too much",
        "",
        "docs/design/compliance/rfc1.tsv:3: departure, but no note why",
    );
    let mut noted = Tree::good();
    noted.table = noted
        .table
        .replace("crates/a/src/lib.rs::it_is_done\t", "\tthe type says so");
    assert_eq!(noted.faults().1, [""; 0]);
}

#[test]
fn limits_are_where_the_page_says_and_have_that_value() {
    let check = |from: &str, to: &str, expected: &str| {
        check(|tree| tree.limits = tree.limits.replace(from, to), expected);
    };
    check("4", "5", "docs/design/limits.md:3: MAX is not 5 KiB");
    check(
        "MAX",
        "MOST",
        "docs/design/limits.md:3: crates/a/src/lib.rs has no MOST",
    );
    check(
        "crates/a",
        "crates/b",
        "docs/design/limits.md:3: there is no source crates/b/src/lib.rs",
    );
}

#[test]
fn sources_keep_the_rules_of_the_house() {
    check(
        |tree| tree.source = tree.source.replace("//! A crate.", "// A crate."),
        "crates/a/src/lib.rs:1: no //! says what this file is for",
    );
    check(
        |tree| tree.source = tree.source.replacen("{}", "{ None.unwrap() }", 1),
        "crates/a/src/lib.rs:4: unwrap() outside of a test",
    );
    let odd = ["RFC", "8166, section 4.5.2"].join(" ");
    check(
        |tree| tree.source.push_str(&format!("// See {odd}\n")),
        &format!(
            "crates/a/src/lib.rs:8: {odd:?} is cited as in RFC 8166 §4.5.2, so that a search finds it"
        ),
    );
    let word = ["TO", "DO"].concat();
    check(
        |tree| tree.source.push_str(&format!("// {word}\n")),
        &format!("crates/a/src/lib.rs:8: {word} is not finished"),
    );
    check(
        |tree| tree.source.push_str("#[test]\n#[ignore]\nfn later() {}\n"),
        "crates/a/src/lib.rs:9: a test that does not run",
    );
    check(
        |tree| tree.source.push_str(&"const _: () = ();\n".repeat(797)),
        "crates/a/src/lib.rs:1: 801 lines of code, more than 800",
    );
    check(
        |tree| tree.manifest = "[package]\n".to_owned(),
        "crates/a/Cargo.toml:1: the lints are not those of the workspace",
    );
}
