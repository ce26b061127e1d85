//! `gateway --check`: whether a gateway could start, or a running one be told to read its file again.

use super::announce::Described;
use crate::failure::Ended;
use crate::output;
use rpcrdma_daemon::gateway::{Configuration, check};

/// Prints what would be done, or all that speaks against a start, also what is wrong with the file.
///
/// # Errors
///
/// If the file is wrong, or a gateway could not start, in the words of one that does not.
pub(super) async fn check_and_print(
    configuration: &Configuration,
    of_file: Vec<anyhow::Error>,
    json: bool,
) -> anyhow::Result<Ended> {
    let settings = &configuration.settings;
    let options = configuration.options();
    let places = (&settings.reports, &*configuration.metrics_setting());
    let checked = check::check(options, &configuration.pairs, places, of_file).await?;
    let described = Described {
        pairs: &configuration.pairs,
        found: &checked.found,
        warnings: &checked.warnings,
    };
    output::print(json, || described.json(), &described)?;
    Ok(Ended::Well)
}
