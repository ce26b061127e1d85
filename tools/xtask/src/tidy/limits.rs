//! The page of limits: each is where it says, and has that value.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::fault::Fault;
use super::sources::Sources;

const PAGE: &str = "docs/design/limits.md";

/// Compares the page with the sources.
pub(super) fn check(root: &Path, sources: &Sources, faults: &mut Vec<Fault>) -> Result<()> {
    let text = fs::read_to_string(root.join(PAGE))?;
    let mut fault = |line, what| faults.push(Fault::new(Path::new(PAGE), line, what));
    for (line, row) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", limit, value, unit, file, _, ""] = cells[..] else {
            continue;
        };
        let Some((limit, _)) = limit.strip_prefix('`').and_then(|l| l.split_once('`')) else {
            continue;
        };
        let name = limit.rsplit("::").next().unwrap_or(limit);
        let file = file.trim_matches('`');
        let Some(source) = sources.get(Path::new(file)) else {
            fault(line, format!("there is no source {file}"));
            continue;
        };
        let values = values_of(source, name);
        if values.is_empty() {
            fault(line, format!("{file} has no {name}"));
            continue;
        }
        // Of a range or a sum nothing is compared.
        let known: Vec<u64> = values.into_iter().filter_map(evaluate).collect();
        if let Some(stated) = stated(value, unit)
            && !known.is_empty()
            && !known.contains(&stated)
        {
            fault(line, format!("{name} is not {value} {unit}"));
        }
    }
    Ok(())
}

/// Values of a constant, or of a field of that name, in a source.
fn values_of<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let of_line = |line: &'a str| {
        let line = line.trim();
        if let Some((_, after)) = line.split_once(&format!("const {name}: ")) {
            return after.split_once(" = ")?.1.strip_suffix(';');
        }
        line.strip_prefix(name)?
            .strip_prefix(": ")?
            .strip_suffix(',')
    };
    source.lines().filter_map(of_line).collect()
}

/// The value of a simple expression; times are in milliseconds.
fn evaluate(expression: &str) -> Option<u64> {
    let inside = |prefix: &str| expression.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(inner) = inside("Some(") {
        return evaluate(inner);
    }
    if let Some(seconds) = inside("Duration::from_secs(") {
        return Some(evaluate(seconds)? * 1000);
    }
    if let Some(milliseconds) = inside("Duration::from_millis(") {
        return evaluate(milliseconds);
    }
    if let Some((number, bits)) = expression.split_once(" << ") {
        return Some(evaluate(number)? << evaluate(bits)?);
    }
    expression.replace('_', "").parse().ok()
}

/// The value that the page states.
fn stated(value: &str, unit: &str) -> Option<u64> {
    let number: u64 = value.parse().ok()?;
    let times = match unit.split(' ').next()? {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "s" => 1000,
        _ => 1,
    };
    Some(number * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_compared() {
        let source = "pub const MAX: usize = 4 << 20;\n  idle: Some(Duration::from_secs(3)),\n";
        let check = |name, value, unit| {
            let known = values_of(source, name);
            assert_eq!(evaluate(known[0]), stated(value, unit), "{name}");
        };
        check("MAX", "4", "MiB");
        check("MAX", "4096", "KiB a file");
        check("idle", "3", "s");
        assert_ne!(evaluate("1_024"), stated("1", "MiB"));
        assert_eq!(evaluate("1_024"), stated("1024", "in all"));
        assert!(values_of(source, "MOST").is_empty());
        assert_eq!(evaluate("64..=16_384"), None);
    }
}
