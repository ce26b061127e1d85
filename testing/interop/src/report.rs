//! Progress messages of a run, and its table at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use programs::command::tail;
use programs::parallel::lock;

/// Progress and results of a run.
pub(super) struct Report {
    start: Instant,
    results: Mutex<Vec<TestResult>>,
}

struct TestResult {
    name: &'static str,
    took: Duration,
    failure: Option<Failure>,
}

struct Failure {
    why: String,
    logs: PathBuf,
}

impl Report {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            results: Mutex::default(),
        }
    }

    /// One line of progress.
    pub(super) fn say(&self, who: &str, what: &str) {
        eprintln!(
            "[{:>6.1} s] {who}: {what}",
            self.start.elapsed().as_secs_f64()
        );
    }

    /// Runs one test and keeps its result.
    pub(super) fn test(&self, name: &'static str, logs: &Path, run: impl FnOnce() -> Result<()>) {
        self.say(name, "starts");
        let start = Instant::now();
        let result = run();
        let took = start.elapsed();
        let failure = result.err().map(|error| Failure {
            why: format!("{error:#}"),
            logs: logs.to_owned(),
        });
        match &failure {
            None => self.say(name, &format!("ok, {:.1} s", took.as_secs_f64())),
            Some(Failure { why, .. }) => self.say(name, &format!("FAILED: {why}")),
        }
        lock(&self.results).push(TestResult {
            name,
            took,
            failure,
        });
    }

    /// Prints the ends of failed tests' logs and, below them, the table and why tests failed: where only the end of the
    /// output is kept, the reasons are in it.
    ///
    /// # Errors
    ///
    /// A test failed.
    pub(super) fn summary(&self, kernel: &str) -> Result<()> {
        let results = lock(&self.results);
        let total = self.start.elapsed().as_secs_f64();
        let failures = || {
            results
                .iter()
                .filter_map(|result| Some((result.name, result.failure.as_ref()?)))
        };
        for (name, Failure { logs, .. }) in failures() {
            eprintln!("\n{name} wrote to its logs:");
            show_logs(logs);
        }
        eprintln!("\nInteroperability with Linux {kernel}, {total:.1} s in all:");
        for result in results.iter() {
            let verdict = if result.failure.is_none() {
                "ok"
            } else {
                "FAILED"
            };
            eprintln!(
                "  {:<24}{verdict:<8}{:>7.1} s",
                result.name,
                result.took.as_secs_f64()
            );
        }
        for (name, Failure { why, .. }) in failures() {
            eprintln!("{name}: {why}");
        }
        let failed = failures().count();
        if failed > 0 {
            bail!(
                "{failed} of {} interoperability tests failed",
                results.len()
            );
        }
        Ok(())
    }
}

fn show_logs(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "log"))
    {
        let text = fs::read(path).unwrap_or_default();
        eprintln!("---- the end of {}", path.display());
        eprint!("{}", tail(&String::from_utf8_lossy(&text)));
    }
    eprintln!("----");
}
