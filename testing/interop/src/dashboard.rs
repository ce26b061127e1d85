//! `cargo xtask dashboard`: whether the dashboard for Grafana and the rules for Prometheus fit a server and a gateway.
//!
//! A real Prometheus, of Debian's package, scrapes a real `rpcrdma serve`, and an `rpcrdma gateway` in front of it, that are
//! used meanwhile; then each expression of each panel must have data, and `promtool check metrics` nothing to say.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use yaml_rust2::YamlLoader;

use programs::command::{build, output, tail};
use programs::gateway::Gateway;
use programs::server::Server;

/// Path of the dashboard, from the root of the work tree.
const DASHBOARD: &str = "contrib/grafana/rpcrdma.json";

/// The alerts and recording rules, from the root of the work tree.
const RULES: &str = "contrib/prometheus/rpcrdma.rules.yml";

/// How often Prometheus asks the server.
const SCRAPE_INTERVAL: &str = "1s";

/// Value for Grafana's `$__rate_interval`.
const RATE_INTERVAL: &str = "10s";

/// How long everything may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How long to wait before Prometheus is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Most bytes of an answer of Prometheus or of the server.
const MAX_ANSWER: u64 = 16 << 20;

/// Options of `cargo xtask dashboard`.
#[derive(Args)]
pub struct Options {
    /// Test this program instead of building the one in the work tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Scrapes a server and a gateway under load and asks for every expression of the dashboard.
///
/// # Errors
///
/// Prometheus is missing, an expression has no data, or `promtool` finds fault with the metrics or the rules.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => build(&["--release", "--package=rpcrdma-cli"], "rpcrdma")?,
    };
    let scratch = tempfile::tempdir()?;
    let asked = check(&program, scratch.path())?;
    println!("each of {asked} expressions of the dashboard has data, and the rules are understood");
    Ok(())
}

/// The same with this program and a folder for what it leaves; how many expressions were asked for.
///
/// # Errors
///
/// Those of [`run`].
pub fn check(program: &Path, scratch: &Path) -> Result<usize> {
    let expressions = expressions(&programs::root().join(DASHBOARD))?;
    let metrics = free_address()?;
    let to = metrics.to_string();
    let serve = ["--squash", "none", "--metrics", &to];
    let server = Server::start(program, &scratch.join("export"), scratch, &serve)?;
    let gateway = Gateway::start(program, server.addr, scratch)?;
    let mut load = Load::start(program, gateway.addr, scratch)?;
    let targets = [metrics, gateway.metrics];
    let prometheus = Prometheus::start(&targets, scratch)?;
    let start = Instant::now();
    let mut waiting = expressions.clone();
    loop {
        load.goes_on(program, &[server.addr, gateway.addr])?;
        let mut without_data = Vec::new();
        for expression in waiting {
            if !prometheus.has_data(&expression)? {
                without_data.push(expression);
            }
        }
        waiting = without_data;
        if waiting.is_empty() {
            break;
        }
        if start.elapsed() > LIMIT {
            bail!("no data for:\n{}{}", waiting.join("\n"), prometheus.log());
        }
        std::thread::sleep(PAUSE);
    }
    for rule in rules()? {
        // Whether an alert fires does not matter.
        prometheus.has_data(&rule)?;
    }
    promtool(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(programs::root().join(RULES)),
    )?;
    for target in targets {
        lint(target, scratch)?;
    }
    Ok(expressions.len())
}

/// The expressions of all panels, as Prometheus takes them.
fn expressions(dashboard: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(dashboard)
        .with_context(|| format!("cannot read {}", dashboard.display()))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions: Vec<String> = targets
        .map(|target| {
            let expression = target["expr"].as_str().context("a target without expr")?;
            let plain = expression
                .replace("$__rate_interval", RATE_INTERVAL)
                .replace("$instance", ".*");
            match plain.contains('$') {
                true => bail!("a variable that is not known: {plain}"),
                false => Ok(plain),
            }
        })
        .collect::<Result<_>>()?;
    if expressions.is_empty() {
        bail!("the dashboard has no expressions");
    }
    Ok(expressions)
}

/// The expressions of all alerts and recording rules.
fn rules() -> Result<Vec<String>> {
    let text = fs::read_to_string(programs::root().join(RULES))?;
    let files = YamlLoader::load_from_str(&text).context(RULES)?;
    let groups = files.iter().filter_map(|file| file["groups"].as_vec());
    let rules = groups
        .flatten()
        .filter_map(|group| group["rules"].as_vec())
        .flatten();
    let expressions: Vec<String> = rules
        .map(|rule| rule["expr"].as_str().map(str::to_owned))
        .collect::<Option<_>>()
        .context("a rule without expr")?;
    match expressions.is_empty() {
        true => bail!("{RULES} has no rules"),
        false => Ok(expressions),
    }
}

/// Our client at work.
struct Load {
    /// Keeps a connection, so that there is one to be seen.
    ping: Child,
    file: PathBuf,
}

impl Load {
    /// Calls a gateway from now on, which calls its server for it.
    fn start(program: &Path, gateway: SocketAddrV4, scratch: &Path) -> Result<Self> {
        let file = scratch.join("file");
        fs::write(&file, vec![7; 4 << 20])?;
        let ping = Command::new(program)
            .args(["ping", &gateway.to_string()])
            .args(["--count", "1000000", "--interval", "0.01"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { ping, file })
    }

    /// Does something of everything at each of these.
    fn goes_on(&mut self, program: &Path, addrs: &[SocketAddrV4]) -> Result<()> {
        if let Some(status) = self.ping.try_wait()? {
            bail!("rpcrdma ping ended: {status}");
        }
        addrs
            .iter()
            .try_for_each(|addr| self.use_files(program, *addr))
    }

    fn use_files(&self, program: &Path, addr: SocketAddrV4) -> Result<()> {
        let url = |path: &str| format!("nfs://{addr}/{path}");
        output(
            Command::new(program)
                .arg("put")
                .arg(&self.file)
                .arg(url("")),
        )?;
        output(Command::new(program).args(["cat", &url("file")]))?;
        output(Command::new(program).args(["ls", "-l", &url("")]))?;
        // A failure, to be counted.
        let missing = Command::new(program)
            .args(["stat", &url("missing")])
            .stdin(Stdio::null())
            .output()?;
        if missing.status.success() {
            bail!("a file that is not there was found");
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.ping.kill();
        let _ = self.ping.wait();
    }
}

/// A running Prometheus. Dropped, it is killed.
struct Prometheus {
    child: Child,
    addr: SocketAddr,
    log: PathBuf,
}

impl Prometheus {
    fn start(targets: &[SocketAddr], scratch: &Path) -> Result<Self> {
        let config = scratch.join("prometheus.yml");
        let targets: Vec<String> = targets.iter().map(|addr| format!("'{addr}'")).collect();
        let targets = targets.join(", ");
        fs::write(
            &config,
            format!(
                "global:\n  scrape_interval: {SCRAPE_INTERVAL}\nscrape_configs:\n  - job_name: \
                 rpcrdma\n    static_configs:\n      - targets: [{targets}]\n"
            ),
        )?;
        let addr = free_address()?;
        let log = scratch.join("prometheus.log");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                scratch.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={addr}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot run prometheus, of Debian's package prometheus")?;
        let mut prometheus = Self { child, addr, log };
        let start = Instant::now();
        while get(addr, "/-/ready").is_err() {
            if let Some(status) = prometheus.child.try_wait()? {
                bail!("prometheus ended ({status}):{}", prometheus.log());
            }
            if start.elapsed() > LIMIT {
                bail!("prometheus is not ready:{}", prometheus.log());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(prometheus)
    }

    /// Whether an expression has values now.
    fn has_data(&self, expression: &str) -> Result<bool> {
        let path = format!("/api/v1/query?query={}", escaped(expression));
        let answer: Value = serde_json::from_str(&get(self.addr, &path)?)?;
        if answer["status"] != "success" {
            bail!("{expression}: {}", answer["error"]);
        }
        let result = answer["data"]["result"].as_array();
        Ok(result.is_some_and(|result| !result.is_empty()))
    }

    fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        format!("\n{}", tail(&log))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has `promtool` look at the metrics themselves.
fn lint(metrics: SocketAddr, scratch: &Path) -> Result<()> {
    let text = get(metrics, "/metrics")?;
    let path = scratch.join("metrics");
    fs::write(&path, text)?;
    let said = promtool(
        Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(fs::File::open(&path)?),
    )?;
    match said.trim() {
        "" => Ok(()),
        said => bail!("promtool check metrics says:\n{said}"),
    }
}

/// Runs `promtool`; what it says, if it finds no fault.
fn promtool(command: &mut Command) -> Result<String> {
    let done = command
        .output()
        .context("cannot run promtool, of Debian's package prometheus")?;
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    match done.status.success() {
        true => Ok(said),
        false => bail!("promtool says:\n{said}"),
    }
}

/// An address of this machine where nobody listens.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns the answer of an HTTP server, which must be a success.
fn get(addr: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    // Of version 1.0, so that the answer ends with the connection and has no chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer of HTTP")?;
    let status = head.split_whitespace().nth(1);
    if status != Some("200") {
        bail!("{path}: {}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// Text as a part of a URL.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn dashboard_has_expressions_that_prometheus_understands() {
        let expressions = expressions(&programs::root().join(DASHBOARD)).unwrap();
        assert!(expressions.len() > 20);
        assert!(expressions.iter().any(|e| e.contains("rpcrdma_gateway_")));
        assert!(
            expressions
                .iter()
                .all(|e| e.contains("rpcrdma_") || e.contains("process_"))
        );
    }

    #[test]
    fn panels_have_names_and_places_of_their_own() {
        let text = fs::read_to_string(programs::root().join(DASHBOARD)).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let mut places = BTreeMap::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let place = panel["gridPos"].to_string();
            let before = places.insert(place, panel["title"].clone());
            assert_eq!(before, None, "{}", panel["title"]);
            assert!(panel["description"].is_string());
        }
    }

    #[test]
    fn rules_have_expressions() {
        let rules = rules().unwrap();
        assert!(rules.len() > 20);
        assert!(rules.iter().any(|rule| rule.contains("rpcrdma_gateway_")));
    }

    #[test]
    fn expressions_are_escaped_in_urls() {
        assert_eq!(
            escaped("a{b=~\".*\"} > 0"),
            "a%7Bb%3D~%22.%2A%22%7D%20%3E%200"
        );
    }
}
