//! Output of `--json` against the schemas.

use crate::running::ok;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Runs the program, which must succeed, and holds the document that it prints against a schema.
#[track_caller]
pub(crate) fn prints(name: &str, args: &[&str]) -> Value {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let schema = fs::read_to_string(folder.join(format!("{name}.schema.json"))).unwrap();
    let schema = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let document = serde_json::from_slice(&ok(args)).unwrap();
    let wrong: Vec<_> = validator.iter_errors(&document).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?} in {document}");
    document
}

#[test]
fn results_are_what_the_schemas_say() {
    prints("thresholds", &["thresholds", "--json", "--threshold=8k"]);
    prints("negotiation", &["negotiation", "--json", "--calls=16"]);
    let few = ["--runs=1", "--calls=20", "--payload=4k"];
    prints(
        "invalidation",
        &[&["invalidation", "--json"][..], &few].concat(),
    );
    let brief = ["--only=null", "--repetitions=1", "--run-time=10ms"];
    prints("self", &[&["self", "--json"][..], &brief].concat());
}
