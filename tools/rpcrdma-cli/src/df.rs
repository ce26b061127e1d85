//! `rpcrdma df`: shows the free space of file systems.

use crate::failure::Ended;
use crate::output;
use crate::session::{Session, SessionArgs};
use crate::show::{self, Units};
use clap::{ArgAction, Args};
use nfs_client::NfsUrl;
use nfs_copy::Of;
use nfs_proto::results::FsStat;
use printing::json;
use printing::table::Columns;
use serde::Serialize;
use std::io::Write;

/// Show the space of a server's file systems
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma df -h nfs://127.0.0.1/
  rpcrdma df -i nfs://127.0.0.1/data
  rpcrdma df --json nfs://127.0.0.1/a nfs://127.0.0.1/b

As with df(1), sizes are in blocks of 1024 bytes by default, and Use% is the share of the space \
that users can have: space reserved for root does not count.

--json prints one object per line, with sizes in bytes."
)]
pub(crate) struct DfArgs {
    /// nfs://HOST[:PORT]/PATH of anything in the file system
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Print sizes in units of 1024, such as 1.5M
    #[arg(short = 'h', long, overrides_with_all = ["si", "kibibytes"])]
    human_readable: bool,

    /// Print sizes in units of 1000, such as 1.5M
    #[arg(short = 'H', long, overrides_with = "kibibytes")]
    si: bool,

    /// Print sizes in blocks of 1024 bytes, the default
    #[arg(short)]
    kibibytes: bool,

    /// Show inodes instead of space
    #[arg(short, long)]
    inodes: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    session: SessionArgs,
}

/// A file system as a program reads it; sizes in bytes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// The URL that was asked about.
    url: String,
    /// Size of the file system in bytes.
    total: u64,
    /// Bytes in use.
    used: u64,
    /// Bytes that this user can still use.
    available: u64,
    /// Files that there can be.
    files: u64,
    /// Files that there can still be.
    files_free: u64,
}

/// Runs the command.
pub(crate) async fn run(args: &DfArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    let mut lines = Vec::new();
    for url in &args.urls {
        let asked = async {
            let place = session.place(url).await?;
            let stat = place.export.fs_stat(&place.path).await.of(&place)?;
            lines.push(line(url, &stat));
            Ok(())
        };
        ended.check(asked.await)?;
    }
    session.close().await;
    ended.check(print(&lines, args))?;
    Ok(ended)
}

fn print(lines: &[Line], args: &DfArgs) -> anyhow::Result<()> {
    let mut out = output::stdout();
    if args.json {
        for line in lines {
            writeln!(out, "{}", json::line(line)?)?;
        }
    } else if !lines.is_empty() {
        out.write_all(args.text(lines).as_bytes())?;
    }
    Ok(())
}

fn line(url: &NfsUrl, stat: &FsStat) -> Line {
    Line {
        url: url.escaped(),
        total: stat.total_bytes,
        used: stat.total_bytes.saturating_sub(stat.free_bytes),
        available: stat.available_bytes,
        files: stat.total_files,
        files_free: stat.free_files,
    }
}

impl DfArgs {
    /// The units of sizes; none for blocks.
    fn units(&self) -> Option<Units> {
        Units::wanted(self.human_readable, self.si)
    }

    fn text(&self, lines: &[Line]) -> String {
        let size = |bytes: u64| match self.units() {
            Some(units) => show::size_in(bytes, units),
            None => bytes.div_ceil(1024).to_string(),
        };
        let count = |files: u64| match self.units() {
            Some(units) => show::size_in(files, units),
            None => files.to_string(),
        };
        let head = match (self.inodes, self.units()) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
            (false, Some(_)) => ["Size", "Used", "Avail", "Use%"],
            (false, None) => ["1K-blocks", "Used", "Available", "Use%"],
        };
        let mut table = Columns::with_long_lines(&[0], 1);
        table.add(["Filesystem"].into_iter().chain(head));
        for line in lines {
            let cells = match self.inodes {
                true => {
                    let used = line.files.saturating_sub(line.files_free);
                    let free = line.files_free;
                    [
                        count(line.files),
                        count(used),
                        count(free),
                        percent(used, free),
                    ]
                }
                false => {
                    let (used, available) = (line.used, line.available);
                    [
                        size(line.total),
                        size(used),
                        size(available),
                        percent(used, available),
                    ]
                }
            };
            table.add([line.url.clone()].into_iter().chain(cells));
        }
        table.to_string()
    }
}

/// The share that is used of what users can have.
fn percent(used: u64, available: u64) -> String {
    match u128::from(used) + u128::from(available) {
        // A file system that does not count them.
        0 => "-".to_owned(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: DfArgs,
    }

    #[test]
    fn tables_are_those_of_df() {
        let stat = FsStat {
            total_bytes: 1000 << 30,
            free_bytes: 500 << 30,
            available_bytes: 400 << 30,
            total_files: 1000,
            free_files: 999,
            ..FsStat::default()
        };
        let url: NfsUrl = "nfs://h/".parse().unwrap();
        let lines = [line(&url, &stat)];
        let check = |options: &[&str], expected: &str| {
            let all = [&["df", "nfs://h/"], options].concat();
            let text = Program::parse_from(all).args.text(&lines);
            assert_eq!(text, expected);
        };
        check(
            &["-h"],
            "Filesystem  Size Used Avail Use%\nnfs://h/   1000G 500G  400G  56%\n",
        );
        check(
            &[],
            "Filesystem  1K-blocks      Used Available Use%\nnfs://h/   1048576000 524288000 419430400  56%\n",
        );
        check(
            &["-hH"],
            "Filesystem Size Used Avail Use%\nnfs://h/   1.1T 537G  430G  56%\n",
        );
        check(
            &["-hi"],
            "Filesystem Inodes IUsed IFree IUse%\nnfs://h/     1000     1   999    1%\n",
        );
    }

    #[test]
    fn file_system_that_counts_nothing_has_no_share() {
        assert_eq!((percent(0, 0), percent(0, 7)), ("-".into(), "0%".into()));
    }
}
