//! The parts of the program that a filter of the log can name.

/// Targets of lines in the log: those of `serve` and `gateway`, and the crates that log.
const PARTS: [&str; 12] = [
    "serve",
    "gateway",
    "iwarp_proto",
    "nfs_server",
    "oncrpc_tcp",
    "rpc_serving",
    "rpcrdma",
    "rpcrdma_cli",
    "rpcrdma_daemon",
    "rpcrdma_proto",
    "verbs_ibv",
    "verbs_iwarp",
];

/// Warnings about parts that a filter names and this program has not: crates of others may log, so that this is no
/// error.
pub(super) fn warnings(filter: &str) -> impl Iterator<Item = String> {
    let unknown = named(filter).filter(|part| !is_known(part));
    unknown.map(|part| {
        format!(
            "nothing in this program logs as '{part}'; its parts are {}",
            PARTS.join(", ")
        )
    })
}

/// The parts in directives such as `part[span{field=value}]=level`.
fn named(filter: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let directives = filter.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    // One without these is a level.
    let directives = directives.filter(|directive| directive.contains(['=', '[', ':']));
    directives
        .filter_map(|directive| directive.split(['=', '[']).next())
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Whether there are lines for a part. It stands for all of which the names begin with it, and may be a module of one.
fn is_known(part: &str) -> bool {
    let is_module = |of: &str| {
        part.strip_prefix(of)
            .is_some_and(|rest| rest.starts_with("::"))
    };
    PARTS
        .iter()
        .any(|known| known.starts_with(part) || is_module(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    #[test]
    fn parts_that_there_are_not_are_told_with_those_that_there_are() {
        let check = |filter: &str, unknown: &[&str]| {
            let said: Vec<String> = warnings(filter).collect();
            assert_eq!(said.len(), unknown.len(), "{filter}: {said:?}");
            for (said, part) in said.iter().zip(unknown) {
                let says = format!("logs as '{part}'; its parts are serve, gateway, iwarp_proto, ");
                assert!(said.contains(&says), "{filter}: {said}");
            }
        };
        check("warn,serve=info,gateway=info", &[]);
        check("gatway=debug", &["gatway"]);
        check(
            "warn, gatway=debug ,rpcrdma::client=trace,sever=off",
            &["gatway", "sever"],
        );
        check("debug", &[]);
        check("verbs=debug", &[]);
        check("rpcrdma_client=debug", &["rpcrdma_client"]);
        check("[call{a=1,b=2}]=trace,nfs_server[call{a=1,b=2}]=trace", &[]);
        check("hyper::client", &["hyper::client"]);
    }

    /// Every file of source below a directory.
    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false if path.extension().is_some_and(|end| end == "rs") => found.push(path),
                false => {}
            }
        }
    }

    /// Targets of a crate's lines: its own name if it depends on `tracing`, and what it gives as `target`.
    fn parts_of(package: &Path, parts: &mut BTreeSet<String>) {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        if !manifest["dependencies"]
            .as_table()
            .unwrap()
            .contains_key("tracing")
        {
            return;
        }
        let lib = manifest.get("lib").and_then(|lib| lib.get("name"));
        let name = lib.unwrap_or(&manifest["package"]["name"]);
        parts.insert(name.as_str().unwrap().replace('-', "_"));
        let mut files = Vec::new();
        sources(&package.join("src"), &mut files);
        // In two pieces, so that it is not found here.
        let target = ["target", ": \""].concat();
        for file in files {
            let text = fs::read_to_string(file).unwrap();
            let given = text.split(&target).skip(1);
            parts.extend(given.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }

    #[test]
    fn parts_are_those_that_the_sources_log_as() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut parts = BTreeSet::new();
        parts_of(&here.join("../../tools/rpcrdma-cli"), &mut parts);
        for entry in fs::read_dir(here.join("../../crates")).unwrap() {
            parts_of(&entry.unwrap().path(), &mut parts);
        }
        let known: BTreeSet<String> = PARTS.map(str::to_owned).into();
        assert_eq!(known, parts);
    }
}
