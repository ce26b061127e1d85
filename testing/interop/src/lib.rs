//! `cargo xtask interop`: a stock Debian kernel in QEMU and the program on the host, as each
//! other's client and server over software iWARP.
//!
//! How the parts fit together is told in `testing/interop/README.md`.

mod compound;
mod daemon;
pub mod dashboard;
mod debian;
mod gateway;
mod guest;
mod image;
mod messages;
mod mix;
mod namespaces;
mod packages;
mod program;
mod pynfs;
mod random_reads;
mod reframe;
mod relay;
mod report;
mod series;
mod serve;
mod servers;
mod tests;
mod ways;
mod write_log;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use self::image::Image;
use self::image::debian_root::GUEST;
use self::report::Report;
use self::series::Series;
use self::tests::{OF_THE_PACKAGE, Runs, TESTS, Test};
use programs::command::build;
use programs::parallel;

pub use self::image::debian_root::{CHROOT, Purpose};
pub use self::messages::{Options as MessageOptions, run as record_messages};
pub use self::mix::{Options as MixOptions, run as record_mix};
pub use self::program::{Options as GuestOptions, run as run_in_guest};
pub use self::pynfs::{Options as PynfsOptions, run as run_pynfs};
pub use self::random_reads::{RandomReads, time_random_reads};
pub use self::servers::{GuestMachine, ServerTimes, time_servers};
pub use self::ways::{
    MIB as WAY_MIB, STATS as WAY_STATS, WORKS as WAY_WORKS, Way, WayTimes, time_ways,
};

/// Options of `cargo xtask interop`.
#[derive(Args)]
pub struct Options {
    /// Which of Debian's kernels to boot
    #[arg(long, value_enum, default_value_t)]
    kernel: Series,
    /// Run only this test (may be given again)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run also the tests that take minutes or depend on the timing of other implementations
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Capture the traffic of every guest and keep the files beside the logs
    #[arg(long)]
    keep_captures: bool,
    /// First install the Debian packages that are needed (apt-get, as root or with sudo)
    #[arg(long)]
    install: bool,
    /// Test this program instead of building the one in the work tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Tests to run at a time; each boots a machine of 1 GiB, or two
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    /// Say which tests there are
    #[arg(long)]
    list: bool,
}

impl Options {
    /// Options of continuous integration.
    pub fn for_ci(install: bool) -> Self {
        Self {
            kernel: Series::default(),
            only: Vec::new(),
            all: false,
            keep_captures: false,
            install,
            program: None,
            jobs: parallel::one_for_each_cpu(),
            list: false,
        }
    }
}

/// A test as [`tests()`] lists it.
pub struct Listed {
    /// Its name, as `--only` takes it.
    pub name: &'static str,
    /// Part of a run without options.
    pub usual: bool,
    /// Has the program take part, and not only the kernel.
    pub ours: bool,
}

/// Every test.
pub fn tests() -> Vec<Listed> {
    let listed = TESTS.iter().map(|test| Listed {
        name: test.name,
        usual: test.runs == Runs::Usual,
        ours: test.ours,
    });
    listed.collect()
}

/// The kernels that a run can boot.
pub fn kernels() -> Vec<&'static str> {
    let all = Series::value_variants().iter();
    all.map(|series| series.name()).collect()
}

/// Makes the Debian package of the work tree, and returns its path.
pub type MakePackage = fn() -> Result<PathBuf>;

/// One run of one test: what it may use, and where it leaves things.
struct TestRun<'a> {
    name: &'static str,
    /// Version of the kernel that is booted.
    kernel: &'static str,
    image: &'a Image,
    /// The program under test; empty if no test has it take part.
    program: &'a Path,
    report: &'a Report,
    /// The Debian package, or why there is none; for tests of it alone.
    package: Option<&'a Result<PathBuf>>,
    keep_captures: bool,
    /// Logs, and captures that are kept.
    logs: PathBuf,
    /// Exports and other large things; removed after the test.
    work: PathBuf,
}

/// Builds what is missing, runs the tests, as many at a time as is asked for, and prints a table.
///
/// # Errors
///
/// A tool is missing, the guest or the program cannot be built, or a test failed.
pub fn run(options: &Options, debian_package: MakePackage) -> Result<()> {
    if options.list {
        for test in &TESTS {
            let when = match test.runs {
                Runs::Usual => "",
                Runs::All => " (with --all)",
                Runs::Named => " (only when named)",
            };
            println!("{:<26}{}{when}", test.name, test.about);
        }
        return Ok(());
    }
    let selected = select(options)?;
    let report = Report::start();
    provide_packages(options.install, &report)?;
    let tests_package = selected.iter().any(|test| test.name == OF_THE_PACKAGE);
    // All is built before the first test: those depend on the time. What is fetched is waited for beside the compiler.
    let (image, program, package) = thread::scope(|scope| {
        let image = scope.spawn(|| {
            let image = image::ready(&lab(), options.kernel, &report);
            if tests_package {
                // If it cannot be made, the test tries again, and says why.
                let _ = clean_debian(&GUEST, |what| report.say("build", what));
            }
            image
        });
        let program = match &options.program {
            Some(program) => program.canonicalize().context("no such program"),
            None if selected.iter().any(|test| test.ours) => {
                report.say("build", "the program, with cargo build --release");
                build_program()
            }
            None => Ok(PathBuf::new()),
        };
        let package = tests_package.then(debian_package);
        let image = image.join().expect("the guest's builder does not panic");
        (image, program, package)
    });
    let (image, program) = (image?, program?);
    let kernel = options.kernel.name();
    parallel::each(options.jobs, selected, |test| {
        let folder = format!("{kernel}-{}", test.name);
        let logs = lab().join("logs").join(&folder);
        report.test(test.name, &logs, || {
            let run = TestRun {
                name: test.name,
                kernel,
                image: &image,
                program: &program,
                report: &report,
                package: package.as_ref(),
                keep_captures: options.keep_captures,
                logs: empty_folder("logs", &folder)?,
                work: empty_folder("work", &folder)?,
            };
            let ran = (test.run)(&run);
            fs::remove_dir_all(&run.work)?;
            ran
        });
    });
    report.summary(kernel)
}

/// The guest, after a look whether all is there that it takes.
fn image(kernel: Series, install: bool, report: &Report) -> Result<Image> {
    provide_packages(install, report)?;
    image::ready(&lab(), kernel, report)
}

/// Verifies that everything a run needs is there, after installing what is missing if that is wanted.
fn provide_packages(install: bool, report: &Report) -> Result<()> {
    if install {
        packages::install(report)?;
    }
    packages::check()
}

/// Measures something in a guest of Debian 12's kernel.
///
/// # Errors
///
/// The guest cannot be built, or what is measured fails.
fn timed<T>(
    name: &'static str,
    program: &Path,
    install: bool,
    measure: impl FnOnce(&TestRun<'_>) -> Result<T>,
) -> Result<T> {
    let report = Report::start();
    let kernel = Series::V6_1;
    let image = image(kernel, install, &report)?;
    let folder = format!("{}-{name}", kernel.name());
    let run = TestRun {
        name,
        kernel: kernel.name(),
        image: &image,
        program,
        report: &report,
        package: None,
        keep_captures: false,
        logs: empty_folder("logs", &folder)?,
        work: empty_folder("work", &folder)?,
    };
    let measured =
        measure(&run).with_context(|| format!("there is more in {}", run.logs.display()));
    fs::remove_dir_all(&run.work)?;
    measured
}

/// The archive (tar) of a Debian without anything of ours, made if need be.
///
/// # Errors
///
/// It cannot be made.
pub fn clean_debian(purpose: &Purpose, say: impl Fn(&str)) -> Result<PathBuf> {
    image::debian_root::ready(&lab(), purpose, say)
}

/// The tests that these options select.
fn select(options: &Options) -> Result<Vec<&'static Test>> {
    let names = &options.only;
    if names.is_empty() {
        let runs = |test: &&Test| match test.runs {
            Runs::Usual => true,
            Runs::All => options.all,
            Runs::Named => false,
        };
        return Ok(TESTS.iter().filter(runs).collect());
    }
    let by_name = |name: &String| match TESTS.iter().find(|test| test.name == name) {
        Some(test) => Ok(test),
        None => bail!("there is no test {name}; cargo xtask interop --list names them"),
    };
    names.iter().map(by_name).collect()
}

/// Folder in which the guest is built and kept.
fn lab() -> PathBuf {
    match std::env::var_os("RPCRDMA_LAB") {
        Some(folder) => programs::root().join(folder),
        None => programs::root().join("target/interop"),
    }
}

fn empty_folder(kind: &str, name: &str) -> Result<PathBuf> {
    let path = lab().join(kind).join(name);
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("cannot empty {}", path.display()))?;
    }
    fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

/// Builds the program under test and says where it is.
fn build_program() -> Result<PathBuf> {
    build(&["--release", "--package=rpcrdma-cli"], "rpcrdma")
}
