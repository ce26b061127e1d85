//! The JSON Schemas of docs/schemas: one for each command that has `--json`, made from its types.

use crate::cli::Cli;
use crate::{bench, devices, df, du, exports, failure, gateway, ls, ping, probe};
use clap::{Command, CommandFactory};
use rpcrdma_daemon::control;
use rpcrdma_daemon::log;
use rpcrdma_daemon::server::announcement;
use schemars::{JsonSchema, Schema, schema_for};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Set to have the files written instead of compared.
const WRITE: &str = "WRITE_SCHEMAS";

/// The schemas by the names of their files, without what those end in.
fn schemas() -> BTreeMap<&'static str, Schema> {
    let mut all = BTreeMap::new();
    let mut add = |name: &'static str, mut schema: Schema, title: &str| {
        schema.insert("title".to_owned(), title.into());
        assert!(all.insert(name, schema).is_none(), "{name} is there twice");
    };
    let line = |command: &str| format!("One line of rpcrdma {command}");
    let document = |command: &str| format!("The output of rpcrdma {command}");
    add(
        "clients",
        of::<control::ClientStatus>(),
        &line("clients --json"),
    );
    add(
        "clients-nfs4",
        of::<control::nfs4::Nfs4ClientStatus>(),
        &line("clients --nfs4 --json"),
    );
    add(
        "clients-locks",
        of::<control::nfs4::HeldStatus>(),
        &line("clients --locks --json"),
    );
    add(
        "conform",
        of::<::conform::Report>(),
        &document("conform --json"),
    );
    add("devices", of::<devices::Line>(), &line("devices --json"));
    add("df", of::<df::Line>(), &line("df --json"));
    add(
        "error",
        of::<failure::Report>(),
        "What a command with --json writes to standard error when it fails",
    );
    add(
        "exports",
        of::<exports::Line>(),
        &line("exports --json HOST"),
    );
    add(
        "exports-local",
        of::<control::ExportStatus>(),
        &line("exports --json"),
    );
    add(
        "gateway",
        of::<gateway::Line<'_>>(),
        &line("gateway --json"),
    );
    add(
        "gateway-check",
        of::<gateway::CheckLine<'_>>(),
        &document("gateway --check --json"),
    );
    add(
        "gateway-stats",
        of::<control::GatewayStatus>(),
        &line("stats --json on a gateway"),
    );
    add(
        "gateway-log-statistics",
        of::<log::StatisticsEvent<control::PairEvent>>(),
        "What SIGUSR1 logs of each pair of rpcrdma gateway --log-format json",
    );
    add("ls", of::<ls::Line>(), &line("ls --json"));
    add("ping", of::<ping::Report<'_>>(), &document("ping --json"));
    add("probe", of::<probe::Report>(), &document("probe --json"));
    add(
        "serve",
        of::<announcement::Line<'_>>(),
        &line("serve --json"),
    );
    add(
        "serve-check",
        of::<announcement::CheckLine<'_>>(),
        &document("serve --check --json"),
    );
    add(
        "serve-log-statistics",
        of::<log::StatisticsEvent<control::ServerEvent>>(),
        "What SIGUSR1 logs of rpcrdma serve --log-format json",
    );
    add("stat", of::<ls::Line>(), &line("stat --json"));
    add(
        "state",
        of::<control::nfs4::StateStatus>(),
        &document("state --json"),
    );
    add(
        "stats",
        of::<control::ServerStatus>(),
        &line("stats --json"),
    );
    add("du", of::<du::Line>(), &line("du --json"));
    add("bench", of::<bench::Report>(), &document("bench --json"));
    all
}

/// The schema of a type (draft 2020-12).
fn of<T: JsonSchema>() -> Schema {
    schema_for!(T)
}

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/schemas")
        .join(format!("{name}.schema.json"))
}

#[test]
fn schemas_in_docs_are_those_of_the_types() {
    for (name, schema) in schemas() {
        let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = path(name);
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

#[test]
fn every_file_in_docs_is_a_schema_that_is_made() {
    let schemas = schemas();
    for entry in fs::read_dir(path("x").parent().unwrap()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = name
            .strip_suffix(".schema.json")
            .map(|name| schemas.contains_key(name));
        assert!(name == "README.md" || known == Some(true), "{name}");
    }
}

#[test]
fn every_command_with_json_has_a_schema() {
    fn visit(command: &Command, path: &str, schemas: &BTreeMap<&str, Schema>, found: &mut usize) {
        if command.get_arguments().any(|arg| arg.get_id() == "json") {
            assert!(schemas.contains_key(path), "`{path} --json` has no schema");
            *found += 1;
        }
        for below in command.get_subcommands() {
            let name = below.get_name();
            let path = match path.is_empty() {
                true => name.to_owned(),
                false => format!("{path}-{name}"),
            };
            visit(below, &path, schemas, found);
        }
    }
    let mut found = 0;
    visit(&Cli::command(), "", &schemas(), &mut found);
    assert!(found > 10, "{found}");
}

#[test]
fn every_member_is_described() {
    fn visit(value: &serde_json::Value, at: &str, missing: &mut Vec<String>) {
        if let Some(members) = value.get("properties").and_then(|all| all.as_object()) {
            // A variant with one member has its description.
            let is_variant = members.len() == 1 && value.get("description").is_some();
            for (name, member) in members.iter().filter(|_| !is_variant) {
                let described = ["description", "$ref", "const"]
                    .iter()
                    .any(|key| member.get(key).is_some());
                if !described {
                    missing.push(format!("{at}.{name}"));
                }
            }
        }
        match value {
            serde_json::Value::Object(all) => {
                for (name, inner) in all {
                    let at = format!("{at}.{name}");
                    // Its keys are names of members, whatever they are.
                    match inner.as_object().filter(|_| name == "properties") {
                        Some(members) => members.values().for_each(|of| visit(of, &at, missing)),
                        None => visit(inner, &at, missing),
                    }
                }
            }
            serde_json::Value::Array(all) => {
                for inner in all {
                    visit(inner, at, missing);
                }
            }
            _ => {}
        }
    }
    let mut missing = Vec::new();
    for (name, schema) in schemas() {
        visit(schema.as_value(), name, &mut missing);
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
