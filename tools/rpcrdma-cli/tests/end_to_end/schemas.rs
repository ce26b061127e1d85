//! Output of `--json` is as docs/schemas says, and has no noise.

use crate::running::{PROGRAM, Running, Served, free_port, ok, run, text};
use serde_json::{Deserializer, Value};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Digits of a number with a fraction.
const MOST_DIGITS: usize = 7;

/// Holds what was printed, one document after the other, against a schema; what it was.
#[track_caller]
fn valid(name: &str, printed: &str) -> Vec<Value> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join(format!("docs/schemas/{name}.schema.json"));
    let schema = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let documents = Deserializer::from_str(printed).into_iter::<Value>();
    let documents: Vec<Value> = documents.map(Result::unwrap).collect();
    assert!(!documents.is_empty(), "{name}: nothing was printed");
    for document in &documents {
        let wrong: Vec<_> = validator
            .iter_errors(document)
            .map(|error| error.to_string())
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?} in {document}");
    }
    documents
        .iter()
        .for_each(|document| no_noise(name, document));
    documents
}

/// No number has more digits than are known.
#[track_caller]
fn no_noise(name: &str, value: &Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            let mantissa = text.split('e').next().unwrap_or(&text);
            let mantissa = mantissa.trim_start_matches(['0', '.', '-']);
            let digits = mantissa
                .trim_end_matches(".0")
                .matches(|c: char| c.is_ascii_digit());
            assert!(digits.count() <= MOST_DIGITS, "{name}: {text} has noise");
        }
        Value::Array(all) => all.iter().for_each(|value| no_noise(name, value)),
        Value::Object(all) => all.values().for_each(|value| no_noise(name, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Runs the program, which must succeed, and holds what it prints against a schema.
#[track_caller]
pub(crate) fn prints(name: &str, args: &[&str]) -> Vec<Value> {
    valid(name, &text(&ok(args)))
}

fn control(served: &Served) -> String {
    let said: Value = serde_json::from_str(&served.said).unwrap();
    said["control"].as_str().unwrap().to_owned()
}

#[test]
fn output_about_files_is_what_the_schemas_say() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("file", served.dir.join("link")).unwrap();
    let url = |path| served.url(path);
    assert_eq!(prints("ls", &["ls", "--json", &url("")]).len(), 2);
    prints("ls", &["ls", "--json", "-l", &url("")]);
    prints("stat", &["stat", "--json", &url("file"), &url("link")]);
    prints("df", &["df", "--json", &url("")]);
    prints("du", &["du", "--json", "-a", "-c", &url("")]);
}

#[test]
fn output_about_a_server_is_what_the_schemas_say() {
    let served = Served::new(&[]);
    valid("serve", &served.said);
    let (socket, host) = (control(&served), &*served.listening);
    prints("exports", &["exports", "--json", host]);
    prints("exports-local", &["exports", "--json", "--socket", &socket]);
    prints("ping", &["ping", "--json", "-c3", "-i0", host]);
    prints("probe", &["probe", "--json", host]);
    let closed = format!("127.0.0.1:{}", free_port());
    let nobody = run(&["probe", "--json", &closed]);
    valid("probe", &text(&nobody.stdout));
    prints("stats", &["stats", "--json", "--socket", &socket]);
    let dir = served.dir.to_str().unwrap();
    let check = [
        "serve",
        "--check",
        "--json",
        "--listen=127.0.0.1:0",
        "--mount-port=0",
    ];
    prints(
        "serve-check",
        &[&check[..], &["--state-dir", &served.beside("state"), dir]].concat(),
    );

    let ping = ["ping", "-i", "1h", host];
    let mut connected = Running::spawn(Command::new(PROGRAM).args(ping).stdout(Stdio::piped()));
    let mut out = BufReader::new(connected.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("seq=") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let clients = prints("clients", &["clients", "--json", "--socket", &socket]);
    assert!(clients.iter().all(|client| client["address"].is_string()));
}

#[test]
fn output_of_measurements_is_what_the_schemas_say() {
    let served = Served::new(&[]);
    let brief = ["bench", "--json", "--time=100ms"];
    let stats = format!("--server-stats={}", control(&served));
    prints("bench", &[&brief[..], &[&served.listening]].concat());
    let documents = prints(
        "bench",
        &[&brief[..], &[&stats, &served.listening]].concat(),
    );
    assert!(documents[0]["server_work"].is_object(), "{documents:?}");
}

#[test]
fn failures_are_json_objects_where_output_is() {
    let failed = |args: &[&str], code: i32| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let errors = valid("error", &text(&output.stderr));
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0]["exit_code"], code);
        errors[0]["error"].as_str().unwrap().to_owned()
    };
    let url = format!("nfs://127.0.0.1:{}/", free_port());
    let error = failed(&["ls", "--json", &url], 1);
    assert!(
        error.starts_with(&format!("{url}: no server there")),
        "{error}"
    );
    let error = failed(&["ls", "--json", "http://host/"], 2);
    assert!(error.contains("nfs://HOST/PATH"), "{error}");
    assert!(!error.contains('\n'), "{error}");
    failed(&["serve", "--check", "--json", "--config", "/no/such"], 78);
    failed(&["stats", "--json", "--socket", "/no/such"], 1);
    // Help is asked for, and is for people.
    assert!(text(&ok(&["ls", "--json", "--help"])).contains("Usage:"));
    assert!(!Path::new("/no/such").exists());
}
