//! Parts shared by `chmod` and `chown`: their common options, and their lines for each file.

use crate::failure::Usage;
use crate::output;
use crate::session::{Session, SessionArgs};
use anyhow::bail;
use clap::{ArgAction, Args};
use nfs_client::NfsUrl;
use nfs_copy::{Follow, Place};
use nfs_proto::{Attributes, Status};
use std::io::{self, Write};

/// Options of both commands.
#[derive(Args, Debug)]
pub(crate) struct ChangeArgs {
    /// Change directories and their contents
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) report: ReportArgs,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// Which files are named in the output.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ReportArgs {
    /// Print every file
    #[arg(short, long)]
    verbose: bool,

    /// Print files that change
    #[arg(short, long)]
    changes: bool,
}

impl ReportArgs {
    /// Prints what became of a file, if that is wanted.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written.
    pub(crate) fn tell(self, place: &Place, before: &str, now: &str) -> io::Result<()> {
        if now != before && (self.changes || self.verbose) {
            writeln!(output::stdout(), "{}: {before} changed to {now}", place.url)
        } else if self.verbose {
            writeln!(output::stdout(), "{}: {now} kept", place.url)
        } else {
            Ok(())
        }
    }
}

/// All files, if there is a reference: then the first argument is one of them too.
///
/// # Errors
///
/// [`Usage`]: the first argument is not a URL.
pub(crate) fn all_files(first: &str, others: &[NfsUrl]) -> Result<Vec<NfsUrl>, Usage> {
    let first = first
        .parse()
        .map_err(|error| Usage(format!("{first:?}: {error}")))?;
    Ok([&[first], others].concat())
}

/// Attributes of the file whose mode or owner others get.
///
/// # Errors
///
/// It is not there, or cannot be asked for.
pub(crate) async fn of_reference(
    session: &mut Session,
    reference: &NfsUrl,
) -> anyhow::Result<Attributes> {
    let place = session.place(reference).await?;
    match place.find(Follow::Yes).await? {
        Some(node) => Ok(node.attributes),
        None => bail!(place.fault("find", Status::NoEntry)),
    }
}
