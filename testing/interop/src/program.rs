//! `cargo xtask guest`: any program of the host, in a guest with software RDMA devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::guest::{Boot, Guest};
use super::packages::tool;
use super::report::Report;
use super::series::Series;
use super::{TestRun, empty_folder, image};
use programs::command::output;

/// A software device.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Link {
    /// RoCE
    Rxe,
    /// iWARP
    Siw,
}

impl Link {
    /// The type of the link, as `rdma link add` calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }
}

/// Options of `cargo xtask guest`.
#[derive(Args)]
pub struct Options {
    /// Which of Debian's kernels to boot
    #[arg(long, value_enum, default_value_t)]
    kernel: Series,
    /// The device that the guest has; if given twice, the program runs over one after the other
    #[arg(long = "link", value_enum, required = true)]
    links: Vec<Link>,
    /// How long the program may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// A variable of the program's environment (may be given again)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// A program of this machine
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Parses `NAME=VALUE`, of which a shell can make an assignment.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it has no '='")?;
    if value.contains(['\'', '\n']) {
        return Err("the value must be one line without quotes".into());
    }
    Ok((name.into(), value.into()))
}

/// Boots a guest, runs the program in it as root, and prints what it printed.
///
/// # Errors
///
/// The guest cannot be made, or the program fails.
pub fn run(options: &Options) -> Result<()> {
    let report = Report::start();
    let image = image(options.kernel, false, &report)?;
    let links: Vec<_> = options.links.iter().map(|link| link.name()).collect();
    let folder = format!("{}-program-{}", options.kernel.name(), links.join("-"));
    let run = TestRun {
        name: "guest",
        kernel: options.kernel.name(),
        image: &image,
        program: Path::new(""),
        report: &report,
        package: None,
        keep_captures: false,
        logs: empty_folder("logs", &folder)?,
        work: empty_folder("work", &folder)?,
    };
    let log = log(&run);
    report.say(run.name, &format!("its output is in {}", log.display()));
    let environment: Vec<_> = options
        .environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let runs: Vec<_> = options
        .links
        .iter()
        .map(|link| ProgramRun {
            link: *link,
            program: &options.program,
            arguments: options.arguments.clone(),
        })
        .collect();
    let job = Job {
        runs: &runs,
        environment: &environment,
        limit: Duration::from_secs(options.limit),
    };
    let done = job.run(&run);
    print!("{}", fs::read_to_string(&log)?);
    done.map(drop)
}

/// Path of the guest's log of a run.
fn log(run: &TestRun<'_>) -> PathBuf {
    run.logs.join(format!("{MACHINE}.log"))
}

/// The machine's name in logs.
const MACHINE: &str = "guest";

/// A program to run over a device.
pub(super) struct ProgramRun<'a> {
    pub(super) link: Link,
    pub(super) program: &'a Path,
    pub(super) arguments: Vec<String>,
}

/// Programs to run in a guest of their own.
pub(super) struct Job<'a> {
    /// One after the other.
    pub(super) runs: &'a [ProgramRun<'a>],
    pub(super) environment: &'a [(&'a str, String)],
    pub(super) limit: Duration,
}

impl Job<'_> {
    /// Runs them, and returns the log of the guest with their output.
    ///
    /// # Errors
    ///
    /// The machine does not come up, or a program fails, or they do not end in time.
    pub(super) fn run(&self, run: &TestRun<'_>) -> Result<String> {
        let mut files = Vec::new();
        let mut numbered = Vec::new();
        for (number, one) in self.runs.iter().enumerate() {
            let program = format!("program-{number}");
            files.push((
                program.clone(),
                stripped(one.program, &run.work.join(program))?,
            ));
            let name = format!("arguments-{number}");
            let list = run.work.join(&name);
            let lines: String = one.arguments.iter().map(|one| format!("{one}\n")).collect();
            fs::write(&list, lines)?;
            files.push((name, list));
            numbered.push(format!("{}:{number}", one.link.name()));
        }
        let files: Vec<_> = files
            .iter()
            .map(|(name, file)| (&**name, &**file))
            .collect();
        let mut environment = self.environment.to_vec();
        environment.push(("RUNS", numbered.join(" ")));
        let boot = Boot {
            name: MACHINE,
            script: "run-program.sh",
            environment: &environment,
            files: &files,
            limit: self.limit,
            ..Boot::default()
        };
        Guest::boot(run, &boot)?.finish()?;
        fs::read_to_string(log(run)).context("the guest's log")
    }
}

/// A copy without debug information, which would be most of the guest's memory.
pub(super) fn stripped(program: &Path, copy: &Path) -> Result<PathBuf> {
    output(
        tool("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(copy)
            .arg(program),
    )
    .with_context(|| format!("{} is not a program", program.display()))?;
    Ok(copy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_must_be_assignments_of_a_shell() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".into(), "b=c".into()));
        assert!(variable("A").is_err());
        assert!(variable("A='").is_err());
    }
}
