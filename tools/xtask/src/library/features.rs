//! `cargo xtask features`: builds the library with each set of features that means something.

use anyhow::{Result, bail};

use programs::command::{cargo, line};

/// The sets, as they are given to cargo. All features together are built with the work tree.
const SETS: [&str; 6] = ["", "iwarp", "nfs", "iwarp,nfs", "verbs", "iwarp,verbs"];

/// Checks the library with each set of features alone, without warnings.
///
/// # Errors
///
/// One does not build.
pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    for set in SETS {
        let mut check = cargo();
        check.args(["clippy", "--package=rpcrdma", "--lib"]);
        check.args(["--no-default-features", "--features", set]);
        check.args(["--", "-D", "warnings"]);
        eprintln!("{}", line(&check));
        if !check.status()?.success() {
            failed.push(match set {
                "" => "none",
                set => set,
            });
        }
    }
    if !failed.is_empty() {
        bail!(
            "rpcrdma does not build with features: {}",
            failed.join("; ")
        );
    }
    Ok(())
}
