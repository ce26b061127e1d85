//! Building the targets with libFuzzer and with what it needs to see.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use programs::command::{cargo, output};
use programs::debian;

/// Folder of everything about fuzzing, below the root of the work tree.
pub(super) const FOLDER: &str = "target/fuzz";

/// How LLVM instruments the code: it counts the edges taken, and shows libFuzzer what is compared.
const INSTRUMENTED: [&str; 8] = [
    "--cfg fuzzing",
    "--cfg fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
];

/// The Debian package of the C++ compiler.
const PACKAGE: &str = "g++";

/// Verifies that there is a C++ compiler, and installs one if told to.
///
/// # Errors
///
/// There is none; the error says how to come by one.
pub(super) fn provide_compiler(install: bool) -> Result<()> {
    if has_compiler() {
        return Ok(());
    }
    if !install {
        bail!(
            "libFuzzer is built from source, which needs a C++ compiler.\n\
             Install one (or run cargo xtask fuzz --install):\n  {}",
            debian::by_hand(PACKAGE)
        );
    }
    debian::install(PACKAGE, "c++")?;
    if !has_compiler() {
        bail!("there is no C++ compiler, though {PACKAGE} is installed");
    }
    Ok(())
}

/// The same that the build script of libFuzzer looks for.
fn has_compiler() -> bool {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(compiler);
    command.arg("--version").stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Builds the targets and says where they are.
///
/// # Errors
///
/// They cannot be built.
pub(super) fn program() -> Result<PathBuf> {
    let host = host()?;
    let mut build = cargo();
    build
        .args(["test", "--no-run", "--package", "fuzz", "--test", "targets"])
        .args([
            "--profile",
            "fuzz",
            "--message-format",
            "json-render-diagnostics",
        ])
        // With a target, build scripts and macros are not instrumented.
        .args(["--target", &host, "--target-dir", FOLDER])
        .env("RUSTFLAGS", INSTRUMENTED.join(" "))
        .env("BOLERO_FUZZER", "libfuzzer")
        .stderr(Stdio::inherit());
    let built = build.output().context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the fuzz targets cannot be built");
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo names no program")
}

/// The triple that this machine's programs are built for.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}
