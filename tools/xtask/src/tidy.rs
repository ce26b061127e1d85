//! `cargo xtask tidy`: what the compiler does not check. The compliance tables name what exists, the
//! page of limits is true, links in Markdown lead somewhere, the page of what works names tests that exist, and the
//! sources keep the rules of the house.

mod breaks;
mod compliance;
mod exceptions;
mod fault;
mod house;
mod imports;
mod layers;
mod limits;
mod links;
mod sources;
#[cfg(test)]
mod tests;
mod tokens;
mod unused;
mod upper_half;
mod what_works;

use anyhow::{Result, bail};
use clap::Args;
use exceptions::EXCEPTIONS;

pub(crate) use links::{Pages, SUMMARY, has_scheme, resolve};

/// Choice of checks.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// List the public items that no other file uses, and check nothing
    #[arg(long)]
    unused: bool,
    /// Break the rules of the compliance tables, each by its patch, and run the tests that must fail then: all
    /// rows that have a patch, or those whose ids begin so. Takes long
    #[arg(long = "break", value_name = "ID", num_args = 0.., conflicts_with = "unused")]
    breaks: Option<Vec<String>>,
    /// List the rows that have a patch, and break nothing
    #[arg(long, requires = "breaks")]
    list: bool,
    /// Run also the tests in other packages than the one that a patch changes
    #[arg(long, requires = "breaks")]
    all: bool,
}

/// Checks the work tree, prints the counts of the compliance tables and every fault.
///
/// # Errors
///
/// There is a fault, or a file cannot be read.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = programs::root();
    if let Some(chosen) = &options.breaks {
        return breaks::run(root, chosen, options.list, options.all);
    }
    let sources = sources::Sources::read(root)?;
    let names = unused::Names::read(&sources);
    if options.unused {
        for item in names.kept_to_their_file() {
            println!("{item}");
        }
        return Ok(());
    }
    let mut faults = Vec::new();
    let counts = compliance::check(root, &sources, &mut faults)?;
    breaks::check(root, &compliance::rows(root)?, &mut faults)?;
    limits::check(root, &sources, &mut faults)?;
    links::check(&Pages::read(root)?, root, &mut faults);
    let (tests, kernels) = (interop::tests(), interop::kernels());
    what_works::check(root, &sources, &tests, &kernels, &mut faults)?;
    house::check(root, &sources, &mut faults)?;
    imports::check(&sources, EXCEPTIONS, &mut faults);
    layers::check(&sources, EXCEPTIONS, &mut faults);
    layers::check_dependencies(&mut faults)?;
    unused::check(&names, EXCEPTIONS, &mut faults);
    upper_half::check(&sources, EXCEPTIONS, &mut faults);
    println!("{counts}");
    for fault in &faults {
        eprintln!("{fault}");
    }
    if !faults.is_empty() {
        bail!("tidy: {} to put right", faults.len());
    }
    Ok(())
}
