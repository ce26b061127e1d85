//! Exit codes of the program, as its help and its manual pages list them.

use std::fmt::Write;

/// The exit code of a command line that was not understood.
pub(crate) const USAGE: u8 = 2;

/// The exit code for what is wrong in a file of exports: `EX_CONFIG` of sysexits(3).
pub(crate) const CONFIG: u8 = 78;

/// An exit code, what it means, and the one command that ends with it, if it is one.
pub(crate) struct ExitCode {
    pub(crate) code: &'static str,
    pub(crate) means: &'static str,
    pub(crate) of: Option<&'static str>,
}

const fn of_all(code: &'static str, means: &'static str) -> ExitCode {
    ExitCode {
        code,
        means,
        of: None,
    }
}

/// All exit codes.
pub(crate) const EXIT_CODES: [ExitCode; 5] = [
    of_all("0", "Success."),
    of_all("1", "Something failed: see standard error."),
    of_all("2", "Wrong command line; nothing was done."),
    ExitCode {
        code: "78",
        means: "Error in the file of `serve --config`.",
        of: Some("serve"),
    },
    of_all("129, 130, 143", "Ended by SIGHUP, SIGINT or SIGTERM."),
];

/// What stands behind the options of the program: examples, and the exit codes.
pub(crate) fn after(examples: &str) -> String {
    let mut text = format!("{examples}\n\nExit codes:");
    for ExitCode { code, means, .. } in EXIT_CODES {
        // A string takes all that is written.
        let _ = write!(text, "\n  {code:<13}  {means}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_documentation() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let page = std::fs::read_to_string(format!("{root}/docs/guide/exit-codes.md")).unwrap();
        for ExitCode { code, .. } in EXIT_CODES {
            assert!(
                page.contains(&format!("| {code} |")),
                "{code} is not in the page"
            );
        }
        for code in [USAGE, CONFIG] {
            assert!(
                EXIT_CODES
                    .iter()
                    .any(|known| known.code == code.to_string())
            );
        }
    }
}
