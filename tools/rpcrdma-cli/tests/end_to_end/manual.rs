//! Manual pages and completions, made from the definitions of the command line.

use crate::contrib::tool;
use crate::running::{fails, ok, text};
use std::fs;
use std::path::{Path, PathBuf};

/// The commands that `rpcrdma --help` lists.
fn commands() -> Vec<String> {
    let help = text(&ok(&["--help"]));
    let listed = help.split("Commands:\n").nth(1).unwrap();
    let listed = listed.split("\n\n").next().unwrap();
    // A name begins two columns to the right; what does not fit its line goes on further in.
    let names = listed.lines().filter_map(|line| line.strip_prefix("  "));
    names
        .filter(|line| !line.starts_with(' '))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

/// Writes the pages to `dir` and returns them, in order.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let dir = dir.join("man1");
    ok(&["man-pages", dir.to_str().unwrap()]);
    let mut pages: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    pages.sort();
    pages
}

#[test]
fn every_command_has_a_manual_page_with_its_options_and_examples() {
    let dir = tempfile::tempdir().unwrap();
    let pages = pages(dir.path());
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        let path = dir.path().join(format!("man1/rpcrdma-{command}.1"));
        let page = fs::read_to_string(&path).unwrap();
        for part in [
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH EXAMPLES",
            ".SH \"EXIT STATUS\"",
            ".SH \"SEE ALSO\"",
        ] {
            assert!(page.contains(part), "{part} is not in {}", path.display());
        }
        // Roff has hyphens escaped.
        let help = text(&ok(&[command, "--help"]));
        let long_only = help
            .lines()
            .filter_map(|line| line.strip_prefix("      --"));
        for option in long_only.filter_map(|line| line.split([' ', '[']).next()) {
            let option = format!("--{option}").replace('-', "\\-");
            assert!(
                page.contains(&option),
                "{option} is not in {}",
                path.display()
            );
        }
    }
    // And the program's own.
    assert_eq!(pages.len(), commands.len() + 1);
}

#[test]
fn manual_pages_have_no_errors_and_a_line_for_whatis() {
    let dir = tempfile::tempdir().unwrap();
    for page in pages(dir.path()) {
        let page = page.to_str().unwrap();
        let lint = ["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", page];
        let Some(output) = tool("man", &lint) else {
            return;
        };
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{page}: {}",
            text(&output.stderr)
        );
        let Some(output) = tool("lexgrog", &[page]) else {
            return;
        };
        assert!(output.status.success(), "{page}: {}", text(&output.stdout));
    }
}

#[test]
fn manual_pages_that_cannot_be_written_are_an_error_with_the_directory() {
    fails(&["man-pages", "/proc/version"], 1, "/proc/version");
}

#[test]
fn completions_know_every_command_and_are_understood_by_their_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rpcrdma");
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = text(&ok(&["completions", shell]));
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
        for hidden in ["man-pages", "count-allocations"] {
            assert!(!script.contains(hidden), "{shell} offers {hidden}");
        }
        assert!(script.contains("remote-invalidation"), "{shell}");
        fs::write(&path, script).unwrap();
        if let Some(output) = tool(shell, &[check, path.to_str().unwrap()]) {
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(
                output.status.success() && said.is_empty(),
                "{shell}: {said}"
            );
        }
    }
    fails(&["completions", "cmd.exe"], 2, "possible values");
}
