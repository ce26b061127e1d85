//! Options of connections for experiments and tuning, which help of the commands leaves out and `rpcrdma help connection`
//! explains.

use crate::connect::ConnectArgs;
use crate::failure::Ended;
use crate::output;
use clap::{Args, Command};
use std::io::Write;

/// Name of the command.
const NAME: &str = "connection";

/// The options that help leaves out, as clap names them.
const LEFT_OUT: [&str; 9] = [
    "crc",
    "no_crc",
    "rpcrdma_version",
    "credits",
    "inline_size",
    "remote_invalidation",
    "spin",
    "persistent_memory",
    "one_region",
];

/// Those of them that administrators use to limit what clients take.
const OF_SERVERS: &str = "credits";

/// Commands with clients.
const SERVERS: [&str; 2] = ["serve", "gateway"];

/// The sentence that stands for the options.
const POINTER: &str =
    "More options of connections, for experiments and tuning: rpcrdma help connection";

/// Explain all options of connections
#[derive(Args, Debug)]
#[command(
    hide = true,
    override_usage = "rpcrdma COMMAND [CONNECTION OPTIONS] ..."
)]
#[command(after_help = "Examples:
  rpcrdma ping --spin always 127.0.0.1
  rpcrdma bench --crc off --inline-size 16k 127.0.0.1
  rpcrdma ls --rpcrdma-version 1 nfs://127.0.0.1/

Every command that connects to a server has these options. `serve` and `gateway` have those that are not of a client alone: \
--timeout, --nconnect, --persistent-memory and --one-region are. Few are worth changing: docs/guide/connection.md says when.")]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    _options: ConnectArgs,
}

/// Runs the command: prints its help. `program` is the definition of all commands.
pub(crate) fn run(program: &mut Command) -> anyhow::Result<Ended> {
    program.build();
    let help = program
        .find_subcommand_mut(NAME)
        .map(|command| command.render_long_help().to_string());
    output::stdout().write_all(help.unwrap_or_default().as_bytes())?;
    Ok(Ended::Well)
}

/// The program with the options left out of the help of its commands. They are understood all the same.
pub(crate) fn left_out(program: Command) -> Command {
    program.mut_subcommands(|command| {
        if command.get_name() == NAME {
            return command;
        }
        let is_server = SERVERS.contains(&command.get_name());
        let is_left_out = |id: &str| LEFT_OUT.contains(&id) && !(is_server && id == OF_SERVERS);
        let has_any = command
            .get_arguments()
            .any(|arg| is_left_out(arg.get_id().as_str()));
        if !has_any {
            return command;
        }
        let text = command.get_after_help().map(ToString::to_string);
        let text = with_pointer(&text.unwrap_or_default());
        let command = command.mut_args(|arg| match is_left_out(arg.get_id().as_str()) {
            true => arg.hide(true),
            false => arg,
        });
        command.after_help(text)
    })
}

/// A text behind options with one more paragraph, in front of the exit codes.
fn with_pointer(text: &str) -> String {
    const EXIT_CODES: &str = "\n\nExit codes";
    match text.find(EXIT_CODES) {
        Some(at) => format!("{}\n\n{POINTER}.{}", &text[..at], &text[at..]),
        None => format!("{text}\n\n{POINTER}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    /// The help of a command that users see.
    fn help(program: Command, name: &str) -> String {
        let mut program = program;
        program.build();
        let command = program.find_subcommand_mut(name).unwrap();
        command.render_long_help().to_string()
    }

    fn long(id: &str) -> String {
        format!("--{}", id.replace('_', "-"))
    }

    #[test]
    fn commands_leave_options_of_experiments_out_and_say_where_they_are() {
        for name in [
            "ls", "get", "put", "ping", "probe", "bench", "serve", "gateway",
        ] {
            let short = help(left_out(Cli::command()), name);
            assert!(short.contains(POINTER), "{name}");
            for id in LEFT_OUT {
                let is_shown = short.contains(&format!("{} <", long(id)));
                let is_kept = SERVERS.contains(&name) && id == OF_SERVERS;
                assert_eq!(is_shown, is_kept, "{name} {id}");
            }
        }
        let devices = help(left_out(Cli::command()), "devices");
        assert!(!devices.contains(POINTER));
    }

    #[test]
    fn all_options_of_connections_are_explained_by_help_and_guide() {
        let guide = include_str!("../../../docs/guide/connection.md");
        let help = help(left_out(Cli::command()), NAME);
        let program = Cli::command();
        let ls = program.find_subcommand("ls").unwrap();
        let mut explained = 0;
        for option in ls.get_arguments() {
            let is_of_connections = option.get_help_heading() == Some("Connection");
            let long = option.get_long().unwrap_or_default();
            // Where MOUNT is depends on the command.
            if is_of_connections && long != "mount-port" {
                assert!(help.contains(&format!("--{long}")), "{long}");
                assert!(guide.contains(&format!("`--{long}")), "{long}");
                explained += 1;
            }
        }
        assert!(explained > LEFT_OUT.len());
    }
}
