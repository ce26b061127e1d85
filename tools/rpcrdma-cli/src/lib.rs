//! The `rpcrdma` program as a library, whose tests run in one process.
//!
//! Each command is a module with its arguments and a `run`. What they share is what a user sees: how
//! servers and files are named (`endpoint`, `session`), how connections are made (`transport`,
//! `connect`), how many files are worked on at a time (`in_flight`), how they are changed (`modes`, `change`)
//! and shown (`show`, `times`, `owners`), how copies of the library `nfs-copy` are shown (`copying`, `progress`), and how a
//! command ends (`failure`, `interrupt`). Here, and nowhere else, a provider is chosen.

mod bench;
mod cat;
mod change;
mod checks;
mod chmod;
mod chown;
mod cli;
mod clients;
mod completions;
mod conform;
mod connect;
mod connection;
mod control_args;
mod copying;
mod cp;
#[cfg(doc)]
pub mod design;
mod devices;
mod df;
mod du;
mod endpoint;
mod exit_codes;
mod exports;
mod failure;
mod gateway;
mod get;
mod given;
mod in_flight;
mod interrupt;
mod ln;
mod ls;
mod man_pages;
mod mkdir;
mod modes;
mod mv;
#[cfg(test)]
mod options;
mod output;
mod owners;
mod ping;
mod probe;
mod progress;
mod provider;
mod put;
mod rm;
mod rmdir;
#[cfg(test)]
mod schemas;
mod serve;
mod session;
mod shell_patterns;
mod show;
mod stat;
mod state;
mod stats;
mod times;
mod touch;
mod transport;
mod version;
mod words;

use std::process::ExitCode;
use std::time::Duration;

/// Longest wait for threads that still work on files when a command has ended.
const THREADS_END_WITHIN: Duration = Duration::from_secs(3);

/// Runs the command that the arguments of the process name.
pub fn main() -> ExitCode {
    let cli = cli::Cli::from_args();
    let flushes = match cli.start_log() {
        Ok(flushes) => flushes,
        Err(error) => return failure::exit_code(Err(error)),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return failure::exit_code(Err(
                anyhow::Error::new(error).context("cannot start the event loop")
            ));
        }
    };
    let ended = runtime.block_on(cli.run());
    // A file that a thread is writing is completed or removed, but a thread that reads a pipe may wait for ever.
    runtime.shutdown_timeout(THREADS_END_WITHIN);
    let signal = failure::ended_by(&ended);
    let code = failure::exit_code(output::close(ended));
    if let Some(signal) = signal {
        drop(flushes);
        interrupt::end_by(signal);
    }
    code
}
