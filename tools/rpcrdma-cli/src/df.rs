//! `rpcrdma df`: shows the free space of file systems.

use crate::failure::Ended;
use crate::session::{Session, SessionArgs};
use crate::show;
use clap::Args;
use nfs_client::NfsUrl;
use nfs_proto::results::FsStat;
use serde::Serialize;
use std::io::{self, Write};

/// Show how full the file systems of a server are
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma df nfs://127.0.0.1/
  rpcrdma df --json nfs://127.0.0.1/data nfs://127.0.0.1/music")]
pub(crate) struct DfArgs {
    /// nfs://HOST[:PORT]/PATH of something in the file system
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// One JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// A file system as a program reads it; sizes in bytes.
#[derive(Serialize)]
struct Line {
    url: String,
    total: u64,
    used: u64,
    available: u64,
    files: u64,
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
            let stat = place.export.fs_stat(&place.path).await?;
            lines.push(line(url, &stat));
            Ok(())
        };
        ended.check(asked.await)?;
    }
    session.close().await;
    ended.check(print(&lines, args.json))?;
    Ok(ended)
}

fn print(lines: &[Line], json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        for line in lines {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        }
    } else if !lines.is_empty() {
        out.write_all(table(lines).as_bytes())?;
    }
    Ok(())
}

fn line(url: &NfsUrl, stat: &FsStat) -> Line {
    Line {
        url: url.to_string(),
        total: stat.total_bytes,
        used: stat.total_bytes.saturating_sub(stat.free_bytes),
        available: stat.available_bytes,
        files: stat.total_files,
        files_free: stat.free_files,
    }
}

fn table(lines: &[Line]) -> String {
    let mut text = String::from("  Size   Used  Avail  Use%  URL\n");
    for line in lines {
        // Of what users can have, as df counts: what is kept for root is not theirs to use.
        let all = u128::from(line.used) + u128::from(line.available);
        let percent = (u128::from(line.used) * 100).div_ceil(all.max(1));
        text += &format!(
            "{:>6} {:>6} {:>6} {:>4}%  {}\n",
            show::size(line.total),
            show::size(line.used),
            show::size(line.available),
            percent,
            line.url
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_in_use_is_of_what_users_can_have() {
        let stat = FsStat {
            total_bytes: 1000 << 30,
            free_bytes: 500 << 30,
            available_bytes: 400 << 30,
            ..FsStat::default()
        };
        let url: NfsUrl = "nfs://h/".parse().unwrap();
        assert_eq!(
            table(&[line(&url, &stat)]),
            "  Size   Used  Avail  Use%  URL\n 1000G   500G   400G   56%  nfs://h/\n"
        );
        let empty = line(&url, &FsStat::default());
        assert!(table(&[empty]).contains(" 0%"));
    }
}
