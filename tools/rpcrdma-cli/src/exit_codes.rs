//! Exit codes of the program, as its help and its manual pages list them.

use std::fmt::Write;

/// The exit code of a command line that was not understood.
pub(crate) const USAGE: u8 = 2;

/// The exit code of a test of which nothing could be carried out, as automake has it.
pub(crate) const UNTESTED: u8 = 77;

/// The exit code for what is wrong in a configuration file: `EX_CONFIG` of sysexits(3).
pub(crate) const CONFIG: u8 = 78;

/// An exit code, what it means, and which commands end with it.
pub(crate) struct ExitCode {
    pub(crate) code: &'static str,
    pub(crate) means: &'static str,
    of: Of,
}

/// Commands that end with a code.
enum Of {
    All,
    /// Those that run until they are told to end.
    Servers,
    /// The others.
    Others,
    /// One of them.
    Only(&'static str),
}

impl ExitCode {
    /// Whether this command ends with it.
    pub(crate) fn is_of(&self, command: &str) -> bool {
        match self.of {
            Of::All => true,
            Of::Servers => SERVERS.contains(&command),
            Of::Others => !SERVERS.contains(&command),
            Of::Only(name) => command == name,
        }
    }
}

/// Commands that run until they are told to end.
const SERVERS: [&str; 2] = ["serve", "gateway"];

/// All exit codes.
pub(crate) const EXIT_CODES: [ExitCode; 6] = [
    ExitCode {
        code: "0",
        means: "Success.",
        of: Of::All,
    },
    ExitCode {
        code: "1",
        means: "Something failed: see standard error.",
        of: Of::All,
    },
    ExitCode {
        code: "2",
        means: "Wrong command line; nothing was done.",
        of: Of::All,
    },
    ExitCode {
        code: "77",
        means: "Nothing could be tested.",
        of: Of::Only("conform"),
    },
    ExitCode {
        code: "78",
        means: "Error in the file of `--config`.",
        of: Of::Servers,
    },
    // A server ends in good order with 0.
    ExitCode {
        code: "129, 130, 143",
        means: "Ended by SIGHUP, SIGINT or SIGTERM.",
        of: Of::Others,
    },
];

/// Text behind the options of the program: examples, and the exit codes.
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
        for code in [USAGE, UNTESTED, CONFIG] {
            assert!(
                EXIT_CODES
                    .iter()
                    .any(|known| known.code == code.to_string())
            );
        }
    }
}
