//! Running other programs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

/// How many lines of a failed program's output an error carries.
const TAIL_LINES: usize = 25;

/// Argument of cargo for the profile of packages and measurements.
pub const SHIPPED: &str = "--profile=dist";

/// Cargo in the root of the work tree.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::root());
    cargo
}

/// Builds what these arguments select, and says where the program of this name is.
///
/// # Errors
///
/// It does not build, or there is no such program.
pub fn build(arguments: &[&str], name: &str) -> Result<PathBuf> {
    build_with(arguments, name, &[])
}

/// The same with variables in cargo's environment.
///
/// # Errors
///
/// Those of [`build`].
pub fn build_with(arguments: &[&str], name: &str, environment: &[(&str, &str)]) -> Result<PathBuf> {
    let mut build = cargo();
    build.arg("build").args(arguments);
    build.envs(environment.iter().copied());
    program(&messages(build)?, |target| target["name"] == name)
        .with_context(|| format!("cargo built no program named {name}"))
}

/// Arguments of `cargo build` for the features that `cargo test --workspace` builds with: those that all crates and their
/// tests ask for. A target of a single package has fewer, and all that it uses is built for it once more.
pub const AS_TESTED: [&str; 2] = ["--workspace", "--examples"];

/// Builds a target of the crate in this folder, for tests, and says where its program is. Nothing is built that
/// `cargo test --workspace` has built.
///
/// `kind` is cargo's option for such a target, such as `--test`.
///
/// # Errors
///
/// Those of [`build`].
pub fn build_as_tested(folder: &str, kind: &str, name: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.arg("build").args(AS_TESTED).args([kind, name]);
    let folder = crate::root().join(folder);
    // Other crates may have a target of that name too.
    let is_wanted = |target: &Value| {
        let source = target["src_path"].as_str().unwrap_or_default();
        target["name"] == name && Path::new(source).starts_with(&folder)
    };
    program(&messages(build)?, is_wanted).with_context(|| {
        format!(
            "cargo built no program named {name} in {}",
            folder.display()
        )
    })
}

/// Runs a build and returns what cargo says of it, in JSON.
fn messages(mut build: Command) -> Result<String> {
    let built = build
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the program does not build");
    }
    Ok(String::from_utf8_lossy(&built.stdout).into_owned())
}

/// The program of the first target that is wanted.
fn program(messages: &str, is_wanted: impl Fn(&Value) -> bool) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| is_wanted(&message["target"]))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Runs a program to its end and returns what it wrote to its standard output.
///
/// # Errors
///
/// It cannot be started, or it fails; the error shows the end of its output.
pub fn output(command: &mut Command) -> Result<String> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", line(command)))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if !done.status.success() {
        let errors = String::from_utf8_lossy(&done.stderr);
        bail!(
            "{} failed ({}):\n{}{}",
            line(command),
            done.status,
            tail(&text),
            tail(&errors)
        );
    }
    Ok(text)
}

/// Outcome of a program within its time.
pub struct Finished {
    /// Its standard output.
    pub stdout: String,
    /// Time from its start to its end.
    pub took: Duration,
}

/// How a program ended, and its output.
pub struct Ended {
    /// `None` if it had to be killed when its time was up.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Time from its start to its end.
    pub took: Duration,
}

impl Ended {
    /// Whether it ended by itself, with status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs a program to its end, but not longer than `limit`; its output passes through `scratch`.
///
/// # Errors
///
/// It cannot be started, fails, or has to be killed when its time is up.
pub fn within(command: &mut Command, limit: Duration, scratch: &Path) -> Result<Finished> {
    let ended = ended_within(command, limit, scratch)?;
    if ended.is_success() {
        let Ended { stdout, took, .. } = ended;
        return Ok(Finished { stdout, took });
    }
    let how = match ended.status {
        Some(status) => status.to_string(),
        None => format!("killed after {} s", limit.as_secs()),
    };
    bail!(
        "{} failed ({how}):\n{}{}",
        line(command),
        tail(&ended.stdout),
        tail(&ended.stderr)
    );
}

/// The same for a program that may fail.
///
/// # Errors
///
/// It cannot be started.
pub fn ended_within(command: &mut Command, limit: Duration, scratch: &Path) -> Result<Ended> {
    let mut stdout = scratch_file(scratch, "stdout")?;
    let mut stderr = scratch_file(scratch, "stderr")?;
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot run {}", line(command)))?;
    let status = wait_within(&mut child, start, limit);
    let took = start.elapsed();
    Ok(Ended {
        status: status?,
        stdout: read_back(&mut stdout)?,
        stderr: read_back(&mut stderr)?,
        took,
    })
}

/// Waits for the end of a process that began at `start`; `None` if it had to be killed.
fn wait_within(child: &mut Child, start: Instant, limit: Duration) -> Result<Option<ExitStatus>> {
    let ended = ends_within(child, start, limit);
    if !matches!(ended, Ok(true)) {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(ended?.then_some(status))
}

fn ends_within(child: &Child, start: Instant, limit: Duration) -> Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())
        .context("cannot wait for a process (pidfd_open)")?;
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let timeout = Timespec::try_from(left).context("a limit that is too long")?;
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn scratch_file(scratch: &Path, name: &str) -> Result<File> {
    let path = scratch.join(name);
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .with_context(|| format!("cannot create {}", path.display()))
}

fn read_back(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The last lines of a text, each ended.
pub fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(TAIL_LINES);
    lines[first..]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_the_end_of_the_output() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("why") && text.contains("exit status: 3"),
            "{text}"
        );
    }

    #[test]
    fn program_is_killed_when_its_time_is_up() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str, limit| {
            within(
                Command::new("sh").args(["-c", script]),
                limit,
                folder.path(),
            )
        };
        let done = run("echo said", Duration::from_secs(60)).unwrap();
        assert_eq!(done.stdout, "said\n");
        let error = run("echo begun; exec sleep 1000", Duration::ZERO).err();
        let text = error.unwrap().to_string();
        assert!(text.contains("killed after 0 s"), "{text}");
    }

    #[test]
    fn tail_keeps_only_the_last_lines() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        let kept = tail(&text);
        assert_eq!(kept.lines().count(), TAIL_LINES);
        assert!(kept.ends_with("99\n"));
    }
}
