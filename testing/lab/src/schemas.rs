//! The JSON Schemas of `schemas/`: one for each experiment, made from the types of its result.

use crate::{invalidation, loopback, negotiation, thresholds};
use schemars::{Schema, schema_for};
use std::fs;
use std::path::PathBuf;

/// Set to have the files written instead of compared.
const WRITE: &str = "WRITE_SCHEMAS";

/// Schemas by the names of their files, with the command whose output they describe.
fn schemas() -> [(&'static str, Schema, &'static str); 6] {
    [
        ("self", schema_for!(loopback::Report), "self --json"),
        (
            "self-profile",
            schema_for!(loopback::ProfileReport),
            "self --profile --json",
        ),
        ("count", schema_for!(loopback::CountReport), "count --json"),
        (
            "invalidation",
            schema_for!(invalidation::Report),
            "invalidation --json",
        ),
        (
            "thresholds",
            schema_for!(thresholds::Report),
            "thresholds --json",
        ),
        (
            "negotiation",
            schema_for!(negotiation::Report),
            "negotiation --json",
        ),
    ]
}

#[test]
fn schemas_are_those_of_the_types() {
    for (name, mut schema, command) in schemas() {
        let title = format!("The output of lab {command}");
        schema.insert("title".to_owned(), title.into());
        let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let path = folder.join(format!("{name}.schema.json"));
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, &made).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == made,
            "{} is not what the types say: run the test with {WRITE}=1",
            path.display()
        );
    }
}
