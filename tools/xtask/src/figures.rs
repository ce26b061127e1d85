//! Figures of pages: what commands of the lab make, from seeds or from recorded calls, stands in a page between
//! comments that name the commands. So whoever changes what a model says changes the page too, or hears of it.
//!
//! ```text
//! <!-- made by: lab invalidation --markdown --svg docs/design/remote-invalidation.svg -->
//! <!-- compared with: lab invalidation --markdown --chunks 1 -->
//! tables
//! <!-- end of figures -->
//! ```
//!
//! The first command makes all of it, and files beside it. Where that takes long, others make some rows of it, which are
//! compared instead. Rows are found by their cells in the columns of text, values by the heads of their columns.

mod table;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use programs::command::{build_as_tested, output};
use table::{Table, tables};

/// Folder of the pages that may have figures.
const PAGES: &str = "docs/design";

const MADE_BY: &str = "<!-- made by: lab ";
const COMPARED_WITH: &str = "<!-- compared with: lab ";
const END: &str = "<!-- end of figures -->";

/// Option of the program that names a file to draw a plot into.
const PLOT: &str = "--svg";

/// Figures in a page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// Arguments of the program that make all of it.
    made_by: Vec<String>,
    /// Arguments that make some rows of it.
    compared_with: Vec<Vec<String>>,
    /// The line behind the comments, from zero.
    first: usize,
    /// The line of the last comment.
    end: usize,
}

/// Compares the figures of all pages with what the program says now.
///
/// # Errors
///
/// They differ, or a command fails.
pub(crate) fn check() -> Result<()> {
    let program = program()?;
    let mut faults = String::new();
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        for block in blocks(&text).with_context(|| page.display().to_string())? {
            let mut fault = |line: usize, what: &str| {
                let page = page.strip_prefix(programs::root()).unwrap_or(&page);
                let _ = writeln!(faults, "{}:{}: {what}", page.display(), line + 1);
            };
            block.check(&program, &text, &mut fault)?;
        }
    }
    if !faults.is_empty() {
        eprint!("{faults}");
        bail!(
            "figures of pages are not what the program says; `cargo xtask docs --write` writes them"
        );
    }
    Ok(())
}

/// Writes the figures of all pages.
///
/// # Errors
///
/// A command fails, or a page cannot be written.
pub(crate) fn write() -> Result<()> {
    let program = program()?;
    for page in pages()? {
        let text = fs::read_to_string(&page)?;
        let blocks = blocks(&text).with_context(|| page.display().to_string())?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // From the last one on, so that those before stay where they are.
        for block in blocks.iter().rev() {
            eprintln!("docs: lab {}", block.made_by.join(" "));
            let made = run(&program, &block.made_by)?;
            let made = made.trim().lines().map(str::to_owned);
            let blank = || std::iter::once(String::new());
            let made: Vec<String> = blank().chain(made).chain(blank()).collect();
            lines.splice(block.first..block.end, made);
        }
        if !blocks.is_empty() {
            fs::write(&page, lines.join("\n") + "\n")?;
        }
    }
    Ok(())
}

/// The program, built as the tests of the workspace have it.
fn program() -> Result<PathBuf> {
    build_as_tested("testing/lab", "--bin", "lab")
}

fn run(program: &Path, arguments: &[String]) -> Result<String> {
    output(
        Command::new(program)
            .args(arguments)
            .current_dir(programs::root()),
    )
}

fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(programs::root().join(PAGES))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// The figures of a page.
///
/// # Errors
///
/// Figures have no end, or a command nothing to be compared with.
fn blocks(text: &str) -> Result<Vec<Block>> {
    let lines: Vec<&str> = text.lines().collect();
    let command = |line: &str, begin: &str| -> Option<Vec<String>> {
        let arguments = line.strip_prefix(begin)?.strip_suffix(" -->")?;
        Some(arguments.split_whitespace().map(str::to_owned).collect())
    };
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(made_by) = command(lines[at], MADE_BY) else {
            ensure!(
                !lines[at].starts_with(COMPARED_WITH) && lines[at] != END,
                "line {}: figures begin with {MADE_BY}",
                at + 1
            );
            at += 1;
            continue;
        };
        let compared = lines[at + 1..].iter();
        let compared_with: Vec<_> = compared
            .map_while(|line| command(line, COMPARED_WITH))
            .collect();
        let first = at + 1 + compared_with.len();
        let end = lines[first..].iter().position(|line| *line == END);
        let end =
            first + end.with_context(|| format!("line {}: figures without an end", at + 1))?;
        blocks.push(Block {
            made_by,
            compared_with,
            first,
            end,
        });
        at = end + 1;
    }
    Ok(blocks)
}

impl Block {
    fn check(&self, program: &Path, text: &str, fault: &mut dyn FnMut(usize, &str)) -> Result<()> {
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[self.first..self.end];
        if self.compared_with.is_empty() {
            return self.check_all(program, shown, fault);
        }
        let shown = tables(shown);
        for arguments in &self.compared_with {
            let made = run(program, arguments)?;
            let made = made.lines().collect::<Vec<_>>();
            let made = tables(&made);
            ensure!(
                made.iter().any(Table::has_rows),
                "rpcrdma {} makes no rows",
                arguments.join(" ")
            );
            for table in &made {
                for (line, what) in table.differences(&shown) {
                    fault(self.first + line, &what);
                }
            }
        }
        Ok(())
    }

    /// Compares every line, and the plot.
    fn check_all(
        &self,
        program: &Path,
        shown: &[&str],
        fault: &mut dyn FnMut(usize, &str),
    ) -> Result<()> {
        let scratch = tempfile::tempdir()?;
        let drawn = scratch.path().join("plot.svg");
        let mut arguments = self.made_by.clone();
        let plot = arguments.iter().position(|argument| argument == PLOT);
        let plot = plot.and_then(|at| arguments.get_mut(at + 1));
        let plot = plot.map(|file| std::mem::replace(file, drawn.display().to_string()));
        let made = run(program, &arguments)?;
        let made: Vec<&str> = made.trim().lines().collect();
        let shown_text = shown.join("\n");
        let shown_text: Vec<&str> = shown_text.trim().lines().collect();
        let skipped = shown
            .iter()
            .take_while(|line| line.trim().is_empty())
            .count();
        let differs = made
            .iter()
            .zip(&shown_text)
            .position(|(made, shown)| made != shown);
        let lines = made.len().min(shown_text.len());
        if let Some(at) = differs.or((made.len() != shown_text.len()).then_some(lines)) {
            let now = made.get(at).unwrap_or(&"nothing");
            fault(self.first + skipped + at, &format!("this is now: {now}"));
        }
        if let Some(plot) = plot
            && fs::read(programs::root().join(&plot)).ok() != fs::read(&drawn).ok()
        {
            fault(self.first, &format!("{plot} is drawn in another way now"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
text
<!-- made by: lab x --svg x.svg -->
<!-- compared with: lab x --few -->

| a | b |
|---|--:|
| x | 1 |

<!-- end of figures -->
text
";

    #[test]
    fn figures_are_found_with_their_commands() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let expected = Block {
            made_by: words("x --svg x.svg"),
            compared_with: vec![words("x --few")],
            first: 3,
            end: 8,
        };
        assert_eq!(blocks(PAGE).unwrap(), [expected]);
        assert_eq!(blocks("text\n").unwrap(), []);
    }

    #[test]
    fn figures_without_a_beginning_or_an_end_are_errors() {
        let without_end = PAGE.replace(END, "");
        assert!(blocks(&without_end).is_err());
        let without_beginning = PAGE.replace(MADE_BY, "<!-- ");
        assert!(blocks(&without_beginning).is_err());
    }
}
