//! The rules for Prometheus, the dashboard for Grafana and the guide, against the metrics that there are.

use crate::gateway::Gateway;
use crate::running::Served;
use crate::statistics::{get, said};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

/// A file of the work tree.
fn file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap()
}

/// The names of metrics in a text; not those of recording rules, which have colons.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let names = words.filter(|word| word.starts_with("rpcrdma_") || word.starts_with("process_"));
    names
        .filter(|name| !name.contains(':'))
        .map(|name| {
            let suffixes = ["_bucket", "_sum", "_count"];
            let family = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            family.unwrap_or(name).to_owned()
        })
        .collect()
}

/// The metrics of a server with a client and of a gateway in front of it.
fn metrics() -> BTreeSet<String> {
    let served = Served::new(&["--metrics", "0"]);
    // Without a client, there are no metrics by address.
    let _client = TcpStream::connect(&served.listening).unwrap();
    let of_clients = "rpcrdma_client_connections{";
    let of_server = loop {
        let metrics = get(&said(&served, "metrics"), "/metrics");
        if metrics.contains(of_clients) {
            break metrics;
        }
    };
    let server = format!("rdma://{}", served.listening);
    let gateway = Gateway::between("tcp://127.0.0.1:0", &server, &["--metrics", "0"]);
    let of_gateway = gateway.metrics();
    let all = of_server.lines().chain(of_gateway.lines());
    let families = all.filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    families.map(str::to_owned).collect()
}

/// The rules, each with the name of its group.
fn rules() -> Vec<Yaml> {
    let files = YamlLoader::load_from_str(&file("contrib/prometheus/rpcrdma.rules.yml")).unwrap();
    let [file] = &files[..] else {
        panic!("one document, not {}", files.len())
    };
    let groups = file["groups"].as_vec().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap());
    rules.cloned().collect()
}

#[test]
fn metrics_of_rules_and_dashboard_exist_and_all_are_documented() {
    let exist = metrics();
    let check = |of: &str, names: &BTreeSet<String>| {
        let unknown: Vec<_> = names.difference(&exist).collect();
        assert!(
            unknown.is_empty(),
            "{of} names what is not there: {unknown:?}"
        );
    };
    for rule in rules() {
        let expression = rule["expr"].as_str().unwrap();
        check(expression, &named(expression));
    }
    let dashboard: Value = serde_json::from_str(&file("contrib/grafana/rpcrdma.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let mut shown = BTreeSet::new();
    for target in targets {
        let names = named(target["expr"].as_str().unwrap());
        check("the dashboard", &names);
        shown.extend(names);
    }
    assert!(shown.len() > 40, "{shown:?}");

    let guide = file("docs/guide/metrics.md");
    let (_, tables) = guide.split_once("### Of a server").unwrap();
    let documented = named(tables);
    // What the page calls all metrics of a pair.
    let prefix = "rpcrdma_gateway_";
    let documented: BTreeSet<String> = documented
        .into_iter()
        .filter(|name| name != prefix)
        .collect();
    check("the guide", &documented);
    let missing: Vec<_> = exist.difference(&documented).collect();
    assert!(missing.is_empty(), "not in the guide: {missing:?}");
}

#[test]
fn each_rule_is_an_alert_with_an_explanation_or_a_recording() {
    let guide = file("docs/guide/metrics.md");
    let mut alerts = BTreeSet::new();
    for rule in rules() {
        match (rule["alert"].as_str(), rule["record"].as_str()) {
            (Some(alert), None) => {
                assert!(guide.contains(&format!("| `{alert}` |")), "{alert}");
                assert!(alerts.insert(alert.to_owned()), "{alert} twice");
                let severity = rule["labels"]["severity"].as_str().unwrap();
                assert!(["critical", "warning"].contains(&severity), "{alert}");
                let summary = rule["annotations"]["summary"].as_str().unwrap();
                assert!(summary.contains("{{ $labels."), "{alert}: {summary}");
            }
            (None, Some(record)) => assert!(record.starts_with("rpcrdma:"), "{record}"),
            neither => panic!("{neither:?}"),
        }
    }
    let documented = guide.lines().filter(|line| line.starts_with("| `Rpcrdma"));
    assert_eq!(documented.count(), alerts.len());
}
