//! `rpcrdma man-pages`: writes a manual page for each command, made from the definitions of the command line.

use crate::exit_codes::EXIT_CODES;
use crate::failure::Ended;
use crate::version;
use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Heading of the examples in the text behind a command's options.
const EXAMPLES: &str = "Examples:";

/// Pages that belong to a command beside that of the program.
const RELATED: [(&str, (&str, &str)); 1] = [("rpcrdma-serve", ("rpcrdma.toml", "5"))];

/// Write a manual page for each command into a directory
#[derive(Args, Debug)]
#[command(hide = true)]
#[command(after_help = "Examples:
  rpcrdma man-pages /usr/local/share/man/man1")]
pub(crate) struct ManPagesArgs {
    /// Directory for the pages; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the command; `program` is the definition of all commands.
pub(crate) fn run(args: &ManPagesArgs, program: Command) -> anyhow::Result<Ended> {
    let context = || format!("{}: cannot write there", args.dir.display());
    fs::create_dir_all(&args.dir).with_context(context)?;
    let mut program = program.disable_help_subcommand(true);
    program.build();
    write_all(&program, &program, &args.dir).with_context(context)?;
    Ok(Ended::Well)
}

/// Writes the pages of a command of `program` and of those below it.
fn write_all(program: &Command, command: &Command, dir: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    write_page(program, command, &page, &mut text)?;
    fs::write(dir.join(page.get_filename()), text)?;
    let shown = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in shown {
        write_all(program, below, dir)?;
    }
    Ok(())
}

fn write_page(
    program: &Command,
    command: &Command,
    page: &Man,
    out: &mut dyn Write,
) -> io::Result<()> {
    // clap_mangen writes nothing for a date that is not known, so that the rest would take its place.
    writeln!(
        out,
        ".TH {} 1 \"{}\" \"{} {}\" \"NFS over RDMA\"",
        command.get_display_name().unwrap_or(program.get_name()),
        version::date(),
        program.get_name(),
        env!("CARGO_PKG_VERSION")
    )?;
    page.render_name_section(out)?;
    synopsis(command).to_writer(out)?;
    page.render_description_section(out)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        page.render_subcommands_section(out)?;
    }
    page.render_options_section(out)?;
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        // The exit codes have a section of their own.
        let text = text.split("\n\nExit codes:").next().unwrap_or_default();
        after_options(text).to_writer(out)?;
    }
    exit_status(program, command).to_writer(out)?;
    see_also(program, command).to_writer(out)
}

/// How the command is called, in one line: its options have a section of their own.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:");
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut page = Roff::new();
    page.control("SH", ["SYNOPSIS"]);
    for line in usage.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let rest = line.strip_prefix(name);
        page.text([
            bold(if rest.is_some() { name } else { "" }),
            roman(rest.unwrap_or(line)),
        ]);
        page.control("br", []);
    }
    page
}

/// The text behind the options: examples as they are typed, and then what else there is to know.
fn after_options(text: &str) -> Roff {
    let mut page = Roff::new();
    let (examples, notes) = match text.strip_prefix(EXAMPLES) {
        Some(rest) => rest.split_once("\n\n").unwrap_or((rest, "")),
        None => ("", text),
    };
    if !examples.is_empty() {
        page.control("SH", ["EXAMPLES"]);
        page.control("nf", []);
        for line in examples.lines().filter(|line| !line.is_empty()) {
            page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        page.control("fi", []);
    }
    if !notes.is_empty() {
        page.control("SH", ["NOTES"]);
        for paragraph in notes.split("\n\n") {
            page.control("PP", []);
            page.text([roman(paragraph)]);
        }
    }
    page
}

/// The exit codes that a command can end with.
fn exit_status(program: &Command, command: &Command) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    let is_program = command.get_name() == program.get_name();
    for code in EXIT_CODES {
        if is_program || code.is_of(command.get_name()) {
            page.control("TP", []);
            page.text([bold(code.code)]);
            page.text([roman(code.means)]);
        }
    }
    page
}

/// References to other pages.
fn see_also(program: &Command, command: &Command) -> Roff {
    let name = |command: &Command| command.get_display_name().unwrap_or("rpcrdma").to_owned();
    let this = name(command);
    let mut others = Vec::new();
    if this != program.get_name() {
        others.push((program.get_name().to_owned(), "1"));
    }
    let related = RELATED
        .iter()
        .filter(|(of, _)| *of == this || this == program.get_name());
    others.extend(related.map(|(_, (page, section))| ((*page).to_owned(), *section)));
    let mut page = Roff::new();
    page.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (name, section) in others {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.push(bold(name));
        line.push(roman(format!("({section})")));
    }
    page.text(line);
    page
}
