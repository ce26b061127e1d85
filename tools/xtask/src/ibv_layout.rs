//! `cargo xtask ibv-layout`: whether the bindings of `verbs-ibv` have the layout of the headers that are installed.
//!
//! The table of sizes and offsets, and the constants, become assertions in C, which a compiler checks.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The bindings, from the root of the work tree.
const BINDINGS: &str = "crates/verbs-ibv/src/sys";

/// Types that are unions in C.
const UNIONS: [&str; 1] = ["ibv_gid"];

/// Compares the bindings with `infiniband/verbs.h` and `rdma/rdma_cma.h`.
///
/// # Errors
///
/// The bindings differ, or there is no C compiler or no headers.
pub(crate) fn run() -> Result<()> {
    let folder = programs::root().join(BINDINGS);
    let mut assertions = layout(&read(&folder.join("layout.rs"))?)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "layout.rs") {
            assertions.extend(constants(&read(&path)?));
        }
    }
    ensure!(!assertions.is_empty(), "{BINDINGS} has no bindings");
    compile(&program(&assertions))?;
    println!(
        "{} sizes, offsets and constants are those of the headers",
        assertions.len()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Conditions in C for the table of sizes and offsets.
fn layout(text: &str) -> Result<Vec<String>> {
    let (_, table) = text
        .split_once("\nlayout! {")
        .context("there is no table")?;
    let (table, _) = table.split_once("\n}").context("the table has no end")?;
    let mut conditions = Vec::new();
    for entry in table
        .split(';')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let (head, fields) = entry.split_once(':').context("an entry has no fields")?;
        let mut head = head.split_whitespace();
        let name = head.next().context("an entry has no name")?;
        let kind = if UNIONS.contains(&name) {
            "union"
        } else {
            "struct"
        };
        if let Some(size) = head.next() {
            conditions.push(format!("sizeof({kind} {name}) == {size}"));
        }
        for field in fields.split(',') {
            let (field, offset) = field
                .trim()
                .split_once(char::is_whitespace)
                .with_context(|| format!("a field of {name} has no offset"))?;
            let field = field.trim_start_matches("r#");
            let offset = offset.trim();
            conditions.push(format!("offsetof({kind} {name}, {field}) == {offset}"));
        }
    }
    Ok(conditions)
}

/// Conditions in C for constants, whose values are written alike in both languages.
fn constants(text: &str) -> Vec<String> {
    let constant = |line: &str| {
        let (name, rest) = line.strip_prefix("pub(crate) const ")?.split_once(": ")?;
        let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
        Some(format!("{name} == ({value})"))
    };
    text.lines().filter_map(constant).collect()
}

fn program(conditions: &[String]) -> String {
    let includes =
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n";
    let assertions = conditions.iter().map(|condition| {
        let text = condition.replace(['"', '\\'], "");
        format!("_Static_assert({condition}, \"{text}\");\n")
    });
    includes
        .chars()
        .chain(assertions.collect::<String>().chars())
        .collect()
}

/// Has the C compiler check a program, without an output.
fn compile(program: &str) -> Result<()> {
    let mut compiler = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run cc: a C compiler is needed")?;
    let mut input = compiler.stdin.take().context("the compiler's input")?;
    input.write_all(program.as_bytes())?;
    drop(input);
    if !compiler.wait()?.success() {
        bail!(
            "the bindings in {BINDINGS} are not those of the headers, or there are none (Debian: libibverbs-dev, \
             librdmacm-dev)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_constants_become_conditions_in_c() {
        let table = "layout! {}\n\nlayout! {\n    ibv_gid 16: raw 0;\n    ibv_mw: rkey\n        16, r#type 24;\n}\n";
        assert_eq!(
            layout(table).expect("a table"),
            [
                "sizeof(union ibv_gid) == 16",
                "offsetof(union ibv_gid, raw) == 0",
                "offsetof(struct ibv_mw, rkey) == 16",
                "offsetof(struct ibv_mw, type) == 24",
            ]
        );
        let source = "pub(crate) const A: u8 = 1 << 2;\nconst B: u8 = 3;\n";
        assert_eq!(constants(source), ["A == (1 << 2)"]);
    }
}
