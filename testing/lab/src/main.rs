//! The experiments behind `docs/design`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::main(None)
}
