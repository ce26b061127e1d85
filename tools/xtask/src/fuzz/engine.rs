//! One target under libFuzzer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::build::FOLDER;
use programs::command::{output, tail};

/// Folder of the crate's committed inputs: bolero looks for them there.
const COMMITTED: &str = "testing/fuzz/__fuzz__";

/// Bytes of an input at most.
const INPUT_LEN: usize = 4096;

/// Seconds after which an input has taken too long.
const TIMEOUT: u64 = 20;

/// Bytes of an input that is worth committing.
const COMMITTED_LEN: u64 = 1024;

/// The names of all targets.
///
/// # Errors
///
/// The program does not say.
pub(super) fn targets(program: &Path) -> Result<Vec<String>> {
    let list = output(Command::new(program).args(["--list", "--format", "terse"]))?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// A target and its folders, named from the root of the work tree.
pub(super) struct Run<'a> {
    program: &'a Path,
    target: &'a str,
    /// Inputs that cover more than those that were there before.
    found: PathBuf,
    committed: PathBuf,
    crashes: PathBuf,
    log: PathBuf,
}

impl<'a> Run<'a> {
    pub(super) fn new(program: &'a Path, target: &'a str) -> Self {
        let folder = Path::new(FOLDER);
        let committed = Path::new(COMMITTED).join(target);
        Self {
            program,
            target,
            found: folder.join("found").join(target),
            committed: committed.join("corpus"),
            crashes: committed.join("crashes"),
            log: folder.join(format!("{target}.log")),
        }
    }

    /// Fuzzes for so long; what is found on the way is kept.
    ///
    /// # Errors
    ///
    /// The target found something: the error shows it and says where the input is.
    pub(super) fn fuzz(&self, seconds: u64, minimise: bool) -> Result<()> {
        for folder in [&self.found, &self.committed, &self.crashes] {
            fs::create_dir_all(programs::root().join(folder))?;
        }
        let begun = Instant::now();
        let passed = self.engine(&[
            shown(&self.found),
            shown(&self.committed),
            format!("-artifact_prefix={}/", shown(&self.crashes)),
            format!("-max_total_time={seconds}"),
            format!("-max_len={INPUT_LEN}"),
            format!("-timeout={TIMEOUT}"),
            "-print_final_stats=1".to_owned(),
        ])?;
        let log = self.read_log()?;
        if !passed {
            let crashes = self.crashes.display();
            bail!(
                "{}\nthe input is in {crashes}: cargo test fails on it now",
                why(&log)
            );
        }
        // It is empty, and there is nothing to commit.
        let _ = fs::remove_dir(programs::root().join(&self.crashes));
        eprintln!("{:<16} {}", self.target, summary(&log, begun.elapsed()));
        if minimise {
            self.minimise()?;
        }
        Ok(())
    }

    /// Replaces the committed inputs by as few as cover the same, and what was found.
    fn minimise(&self) -> Result<()> {
        let root = programs::root();
        let fewest = Path::new(FOLDER).join("fewest").join(self.target);
        if root.join(&fewest).exists() {
            fs::remove_dir_all(root.join(&fewest))?;
        }
        fs::create_dir_all(root.join(&fewest))?;
        let merged = self.engine(&[
            "-merge=1".to_owned(),
            // Which edges are taken counts, not how often.
            "-use_counters=0".to_owned(),
            format!("-max_len={COMMITTED_LEN}"),
            shown(&fewest),
            shown(&self.committed),
            shown(&self.found),
        ])?;
        if !merged {
            bail!("{}\nthe corpus cannot be minimised", why(&self.read_log()?));
        }
        let committed = root.join(&self.committed);
        fs::remove_dir_all(&committed)?;
        fs::create_dir_all(&committed)?;
        let (mut inputs, mut bytes) = (0, 0);
        for input in fs::read_dir(root.join(&fewest))? {
            let input = input?;
            bytes += fs::copy(input.path(), committed.join(input.file_name()))?;
            inputs += 1;
        }
        eprintln!("{:<16} {inputs} inputs of {bytes} bytes", self.target);
        Ok(())
    }

    /// Runs the target with arguments for libFuzzer; whether it came to its end.
    fn engine(&self, arguments: &[String]) -> Result<bool> {
        let log = programs::root().join(&self.log);
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let status = Command::new(self.program)
            .current_dir(programs::root())
            .args([self.target, "--exact", "--nocapture", "--quiet"])
            .args(["--test-threads", "1"])
            .env("BOLERO_TEST_NAME", self.target)
            .env("BOLERO_LIBTEST_HARNESS", "1")
            .env("BOLERO_LIBFUZZER_ARGS", arguments.join(" "))
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(status.success())
    }

    fn read_log(&self) -> Result<String> {
        let log = fs::read(programs::root().join(&self.log))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }
}

/// A path as libFuzzer gets it: relative to the root, so that there is no blank in it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Executions, coverage and corpus, from what libFuzzer says at its end.
fn summary(log: &str, took: Duration) -> String {
    let runs = log
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
        .map_or("?", str::trim);
    let last = log.lines().rfind(|line| line.contains("cov: "));
    let mut words = last.unwrap_or_default().split_whitespace();
    let mut after = |name: &str| words.by_ref().skip_while(|word| *word != name).nth(1);
    let coverage = after("cov:").unwrap_or("?");
    let corpus = after("corp:").unwrap_or("?");
    format!(
        "{runs} executions in {} s, {coverage} edges, {corpus} inputs",
        took.as_secs()
    )
}

/// The panic of a target, or whatever it said last.
fn why(log: &str) -> String {
    match log.find("Error: \n") {
        Some(at) => log[at..]
            .lines()
            .skip(1)
            .take(6)
            .map(|line| format!("{line}\n"))
            .collect(),
        None => tail(log),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_what_libfuzzer_said_last() {
        let log = "#2\tINITED cov: 9 ft: 9 corp: 1/1b\n\
                   #4096\tDONE   cov: 253 ft: 575 corp: 96/4585b lim: 4 exec/s: 0 rss: 30Mb\n\
                   ###### End of recommended dictionary. ######\n\
                   stat::number_of_executed_units: 568551\n";
        assert_eq!(
            summary(log, Duration::from_secs(5)),
            "568551 executions in 5 s, 253 edges, 96/4585b inputs"
        );
    }

    #[test]
    fn finding_is_shown_by_its_panic() {
        let log = "test failed; shrinking input...\nInput: \n[1]\n\nError: \n\
                   panicked at testing/fuzz/src/mpa.rs:40:5:\nassertion failed\n";
        assert_eq!(
            why(log),
            "panicked at testing/fuzz/src/mpa.rs:40:5:\nassertion failed\n"
        );
    }
}
