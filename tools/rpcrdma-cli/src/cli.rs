//! The command line.

use crate::bench::{self, BenchArgs};
use crate::cat::{self, CatArgs};
use crate::chmod::{self, ChmodArgs};
use crate::chown::{self, ChownArgs};
use crate::clients::{self, ClientsArgs};
use crate::completions::{self, CompletionsArgs};
use crate::conform::{self, ConformArgs};
use crate::connection::{self, ConnectionArgs};
use crate::cp::{self, CpArgs};
use crate::devices::{self, DevicesArgs};
use crate::df::{self, DfArgs};
use crate::du::{self, DuArgs};
use crate::exit_codes;
use crate::exports::{self, ExportsArgs};
use crate::failure::{self, Ended};
use crate::gateway::{self, GatewayArgs};
use crate::get::{self, GetArgs};
use crate::given::given;
use crate::ln::{self, LnArgs};
use crate::ls::{self, LsArgs};
use crate::man_pages::{self, ManPagesArgs};
use crate::mkdir::{self, MkdirArgs};
use crate::mv::{self, MvArgs};
use crate::ping::{self, PingArgs};
use crate::probe::{self, ProbeArgs};
use crate::progress::AboveProgress;
use crate::put::{self, PutArgs};
use crate::rm::{self, RmArgs};
use crate::rmdir::{self, RmdirArgs};
use crate::serve::{self, ServeArgs};
use crate::session::NOT_UTF8;
use crate::stat::{self, StatArgs};
use crate::state::{self, StateArgs};
use crate::stats::{self, StatsArgs};
use crate::touch::{self, TouchArgs};
use crate::version;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use rpcrdma_daemon::log::{self, FlushOnDrop, LogFilter, Target};
use std::str::FromStr;

/// NFS over RDMA in userspace, with RDMA devices or without: serve it, access it, inspect it
#[derive(Debug, Parser)]
#[command(
    name = "rpcrdma",
    version = version::short(),
    long_version = version::long(),
    propagate_version = true,
    after_help = exit_codes::after(EXAMPLES)
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Log level: off, error, warn, info, debug (connections) or trace (every work request); per
    /// module as in warn,rpcrdma=debug. Overrides RUST_LOG [default: warn; info for `serve` and
    /// `gateway` themselves]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = LogFilter::from_str)]
    log: Option<LogFilter>,
}

/// Text behind the options of the program.
const EXAMPLES: &str = "Examples:
  rpcrdma serve .
      export the current directory to this machine
  rpcrdma ls -l nfs://127.0.0.1/
      list it
  rpcrdma put -r photos nfs://127.0.0.1/
      copy a directory to it
  rpcrdma probe 127.0.0.1
      describe the peer, whatever it is
  rpcrdma help serve
      all options of `serve`

Durations have units, as in 500ms, 10s and 1m30s; a plain number is in seconds. Units of sizes, as \
in 64k and 1MiB, are powers of 1024; a plain number is in bytes.";

#[derive(Debug, Subcommand)]
enum Command {
    Serve(ServeArgs),
    Gateway(GatewayArgs),
    Stats(StatsArgs),
    Clients(ClientsArgs),
    State(StateArgs),
    Ls(LsArgs),
    Cat(CatArgs),
    Get(GetArgs),
    Put(PutArgs),
    Cp(CpArgs),
    Mkdir(MkdirArgs),
    Rmdir(RmdirArgs),
    Rm(RmArgs),
    Mv(MvArgs),
    Ln(LnArgs),
    Touch(TouchArgs),
    Chmod(ChmodArgs),
    Chown(ChownArgs),
    Stat(StatArgs),
    Du(DuArgs),
    Df(DfArgs),
    Exports(ExportsArgs),
    Ping(PingArgs),
    Probe(ProbeArgs),
    Conform(ConformArgs),
    Devices(DevicesArgs),
    Bench(BenchArgs),
    Connection(ConnectionArgs),
    Completions(CompletionsArgs),
    ManPages(ManPagesArgs),
}

impl Cli {
    /// Parses the command line. One that is not understood ends the process.
    pub(crate) fn from_args() -> Self {
        Self::parse_all().unwrap_or_else(|error| match error.kind() {
            _ if !error.use_stderr() => failure::exit_after(error.print()),
            _ if json_is_asked_for() => failure::exit_with_usage(&error),
            ErrorKind::InvalidUtf8 => Self::command()
                .error(
                    ErrorKind::InvalidUtf8,
                    format!("an argument cannot be used: {NOT_UTF8}"),
                )
                .exit(),
            _ => error.exit(),
        })
    }

    /// Parses the command line, and notes what stands there for `serve`, whose file may say the rest.
    fn parse_all() -> clap::error::Result<Self> {
        let mut command = connection::left_out(Self::command());
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut cli =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        match (&mut cli.command, matches.subcommand()) {
            (Command::Serve(args), Some((_, matches))) => {
                args.given = given::<ServeArgs>(matches);
            }
            (Command::Gateway(args), Some((_, matches))) => {
                args.given = given::<GatewayArgs>(matches);
            }
            _ => {}
        }
        failure::print_as_json(says_json(&matches));
        Ok(cli)
    }

    /// Logs from now on, above the progress of a copy.
    ///
    /// # Errors
    ///
    /// Those of [`log::start`].
    pub(crate) fn start_log(&self) -> anyhow::Result<FlushOnDrop> {
        let (format, target) = match &self.command {
            Command::Serve(args) => (args.log_format, Target::Serve),
            Command::Gateway(args) => (args.log_format, Target::Gateway),
            _ => (None, Target::Serve),
        };
        log::start(self.log.clone(), format, target, AboveProgress)
    }

    /// Carries out the command.
    pub(crate) async fn run(self) -> anyhow::Result<Ended> {
        match self.command {
            Command::Serve(args) => serve::run(args).await,
            Command::Gateway(args) => gateway::run(args).await,
            Command::Stats(args) => stats::run(&args).await,
            Command::Clients(args) => clients::run(&args).await,
            Command::State(args) => state::run(&args).await,
            Command::Ls(args) => ls::run(&args).await,
            Command::Cat(args) => cat::run(&args).await,
            Command::Get(args) => get::run(&args).await,
            Command::Put(args) => put::run(&args).await,
            Command::Cp(args) => cp::run(&args).await,
            Command::Mkdir(args) => mkdir::run(&args).await,
            Command::Rmdir(args) => rmdir::run(&args).await,
            Command::Rm(args) => rm::run(&args).await,
            Command::Mv(args) => mv::run(&args).await,
            Command::Ln(args) => ln::run(&args).await,
            Command::Touch(args) => touch::run(&args).await,
            Command::Chmod(args) => chmod::run(&args).await,
            Command::Chown(args) => chown::run(&args).await,
            Command::Stat(args) => stat::run(&args).await,
            Command::Du(args) => du::run(&args).await,
            Command::Df(args) => df::run(&args).await,
            Command::Exports(args) => exports::run(&args).await,
            Command::Ping(args) => ping::run(&args).await,
            Command::Probe(args) => probe::run(&args).await,
            Command::Conform(args) => conform::run(args).await,
            Command::Devices(args) => devices::run(&args),
            Command::Bench(args) => bench::run(&args).await,
            Command::Connection(_) => connection::run(&mut Self::command()),
            Command::Completions(args) => completions::run(&args, &Self::command()),
            Command::ManPages(args) => man_pages::run(&args, Self::command()),
        }
    }
}

/// Whether a command that was understood is to print JSON.
fn says_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>("json");
    let below = matches
        .subcommand()
        .is_some_and(|(_, below)| says_json(below));
    here.is_ok_and(|json| json == Some(&true)) || below
}

/// Whether a command line that was not understood has --json.
fn json_is_asked_for() -> bool {
    let options = std::env::args_os().take_while(|arg| arg != "--");
    options.into_iter().any(|arg| arg == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The columns of the narrowest terminal for which help is written.
    const NARROW: usize = 60;

    /// Checks the texts behind the options of a command and of those below it: lists, such as examples, fit a
    /// narrow terminal, and each paragraph is one line, which is wrapped for the terminal.
    fn check_layout(command: &clap::Command) {
        let text = command.get_after_help().map(ToString::to_string);
        for part in text.iter().flat_map(|text| text.split("\n\n")) {
            let mut lines = part.lines();
            let first = lines.next().unwrap();
            let name = command.get_name();
            for line in lines {
                assert!(
                    first.ends_with(':') && line.starts_with("  "),
                    "{name}: {line}"
                );
                assert!(line.chars().count() <= NARROW, "{name}: too long: {line}");
            }
        }
        command.get_subcommands().for_each(check_layout);
    }

    #[test]
    fn texts_behind_options_fit_terminals_of_any_width() {
        check_layout(&connection::left_out(Cli::command()));
    }
}
