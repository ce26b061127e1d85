//! `gateway --check`: whether a gateway could start, or a running one be told to read its file again.

use super::announce::Described;
use super::args::Settings;
use crate::failure::Ended;
use crate::output;
use rpcrdma_daemon::gateway::check;
use std::io::Write;

/// Prints what would be done, or all that speaks against a start, also what is wrong with the file.
///
/// # Errors
///
/// If the file is wrong, or a gateway could not start, in the words of one that does not.
pub(super) async fn check_and_print(
    settings: &Settings,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let options = settings.options();
    let places = settings.args.reports.places();
    let metrics = settings.args.option("metrics");
    let checked = check::check(options, &settings.pairs, (&places, &metrics), of_file).await?;
    let described = Described {
        pairs: &settings.pairs,
        found: &checked.found,
        warnings: &checked.warnings,
    };
    let mut out = output::stdout();
    match json {
        true => writeln!(out, "{}", described.json()?)?,
        false => write!(out, "{described}")?,
    }
    out.flush()?;
    Ok(Ended::Well)
}
