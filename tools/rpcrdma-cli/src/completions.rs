//! `rpcrdma completions`: prints the completions of a shell, made from the definitions of the command line.

use crate::failure::Ended;
use crate::output;
use crate::version;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write;

/// Generate shell completions
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma completions bash \\
    > ~/.local/share/bash-completion/completions/rpcrdma
  rpcrdma completions zsh \\
    > /usr/local/share/zsh/site-functions/_rpcrdma
  rpcrdma completions fish \\
    > ~/.config/fish/completions/rpcrdma.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command; `program` is the definition of all commands.
pub(crate) fn run(args: &CompletionsArgs, program: &Command) -> anyhow::Result<Ended> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(program), name, &mut script);
    output::stdout().write_all(&script)?;
    Ok(Ended::Well)
}

/// A command without what is hidden from its users: scripts for some shells have all there is.
fn visible(command: &Command) -> Command {
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    Command::new(kept(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .version(version::short())
        .disable_help_flag(command.is_disable_help_flag_set())
        .visible_aliases(command.get_visible_aliases().map(kept))
        .args(args.cloned())
        .subcommands(below.map(visible))
}

/// A name for as long as the process: definitions take no others, and this one prints them and ends.
fn kept(name: &str) -> &'static str {
    Box::leak(name.into())
}
