//! `rpcrdma completions`: prints the completions of a shell, made from the definitions of the command line.

use crate::failure::Ended;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::{self, Write};

/// Print a shell's completions of commands and options
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma completions bash > ~/.local/share/bash-completion/completions/rpcrdma
  rpcrdma completions zsh > /usr/local/share/zsh/site-functions/_rpcrdma
  rpcrdma completions fish > ~/.config/fish/completions/rpcrdma.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command; `program` is the definition of all commands.
pub(crate) fn run(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<Ended> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    io::stdout().write_all(&script)?;
    Ok(Ended::Well)
}
