//! The table of attacks names existing tests.

use hostile_peer::{ATTACKS, ATTACKS_OF_IETF07};
use std::collections::BTreeSet;
use std::path::Path;

/// Every test of this folder, by file and name.
fn tests() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        while lines.any(|line| line == "#[test]") {
            let line = lines.next().unwrap();
            let test = line.strip_prefix("fn ").unwrap();
            let test = test.split('(').next().unwrap();
            found.insert(format!("{name}::{test}"));
        }
    }
    found
}

#[test]
fn every_attack_names_existing_tests() {
    let tests = tests();
    for attack in ATTACKS.iter().chain(ATTACKS_OF_IETF07) {
        assert!(!attack.tests.is_empty(), "{attack:?}");
        for test in attack.tests {
            assert!(tests.contains(*test), "no test {test}");
        }
    }
}

#[test]
fn every_applicable_section_of_rfc_5042_has_an_attack() {
    for section in [
        "6.1.1", "6.2.1", "6.2.2", "6.2.3", "6.3.1", "6.3.3", "6.3.5", "6.4.1", "6.4.2", "6.4.3.1",
        "6.4.3.3", "6.4.4", "6.4.5", "6.4.6",
    ] {
        let source = format!("RFC 5042 §{section}");
        assert!(
            ATTACKS.iter().any(|attack| attack.source == source),
            "{source}"
        );
    }
}
