//! The documentation in the Debian package: pages of the work tree, at other places, so that their links are others, too.
//!
//! A link to a file that is in the package leads there. One to a file that is not becomes its words and the path of that file in
//! the sources: the package does not know where they are on the web.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::tidy::{Pages, has_scheme, resolve};

/// Folder of the documentation in the package.
const DOC: &str = "usr/share/doc/rpcrdma";

/// Folders and files of the work tree, and where they are in the package: those that are copied with their links set right.
/// Longer paths count before shorter ones that they begin with.
const COPIED: [(&str, &str); 11] = [
    ("README.md", "README.md"),
    ("ARCHITECTURE.md", "ARCHITECTURE.md"),
    ("docs/README.md", "contents.md"),
    ("docs/guide", "guide"),
    ("docs/design", "design"),
    ("docs/library", "library"),
    ("docs/schemas", "schemas"),
    ("docs/xdr", "xdr"),
    ("contrib/wireshark", "wireshark"),
    ("contrib/rpcrdma.toml", "examples/rpcrdma.toml"),
    ("contrib/gateway.toml", "examples/gateway.toml"),
];

/// Endings of the files that are copied out of folders. Tables that programs read, as those of compliance, are not.
const ENDINGS: [&str; 5] = ["md", "svg", "json", "lua", "x"];

/// Files of the work tree that the package has from elsewhere, from the root of the package.
const ELSEWHERE: [(&str, &str); 7] = [
    ("CHANGELOG.md", "usr/share/doc/rpcrdma/changelog.gz"),
    (
        "contrib/grafana/rpcrdma.json",
        "usr/share/doc/rpcrdma/examples/grafana-dashboard.json",
    ),
    (
        "contrib/prometheus/rpcrdma.rules.yml",
        "usr/share/doc/rpcrdma/examples/rpcrdma.rules.yml",
    ),
    (
        "contrib/man/rpcrdma.toml.5",
        "usr/share/man/man5/rpcrdma.toml.5.gz",
    ),
    (
        "contrib/man/gateway.toml.5",
        "usr/share/man/man5/gateway.toml.5.gz",
    ),
    (
        "contrib/systemd/rpcrdma.service",
        "usr/lib/systemd/system/rpcrdma.service",
    ),
    (
        "contrib/systemd/rpcrdma-gateway.service",
        "usr/lib/systemd/system/rpcrdma-gateway.service",
    ),
];

/// Paths of all files of the documentation in the package, by their paths in the work tree.
struct Places(BTreeMap<PathBuf, PathBuf>);

impl Places {
    /// Those of a work tree.
    ///
    /// # Errors
    ///
    /// A folder cannot be read.
    fn of(root: &Path) -> Result<Self> {
        let mut places = Self(BTreeMap::new());
        for (from, to) in ELSEWHERE {
            places.0.insert(from.into(), to.into());
        }
        for (from, to) in COPIED {
            places.enter(root, Path::new(from), &Path::new(DOC).join(to))?;
        }
        Ok(places)
    }

    fn enter(&mut self, root: &Path, from: &Path, to: &Path) -> Result<()> {
        let path = root.join(from);
        if !path.is_dir() {
            self.0.insert(from.to_owned(), to.to_owned());
            return Ok(());
        }
        let list = fs::read_dir(&path).with_context(|| format!("{}", path.display()))?;
        for entry in list {
            let name = entry?.file_name();
            let (from, to) = (from.join(&name), to.join(&name));
            let ending = from.extension().and_then(|ending| ending.to_str());
            if root.join(&from).is_dir() || ending.is_some_and(|end| ENDINGS.contains(&end)) {
                self.enter(root, &from, &to)?;
            }
        }
        Ok(())
    }

    /// A page with links as they are right where the package has it.
    fn with_links_set(&self, page: &Path, place: &Path, text: &str) -> String {
        let mut set = String::new();
        let mut done = 0;
        let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
        for (event, range) in events {
            let (Event::Start(Tag::Link { dest_url, .. })
            | Event::Start(Tag::Image { dest_url, .. })) = event
            else {
                continue;
            };
            // A link within a picture, or around one, is a part of what is copied.
            if has_scheme(&dest_url) || dest_url.starts_with('#') || range.start < done {
                continue;
            }
            set.push_str(&text[done..range.start]);
            set.push_str(&self.link(page, place, &text[range.clone()], &dest_url));
            done = range.end;
        }
        set.push_str(&text[done..]);
        set
    }

    /// A link that is written `[words](target)`, as it is right in the package.
    fn link(&self, page: &Path, place: &Path, written: &str, target: &str) -> String {
        let (path, fragment) = match target.split_once('#') {
            Some((path, fragment)) => (path, format!("#{fragment}")),
            None => (target, String::new()),
        };
        let Some(linked) = resolve(page, path) else {
            return written.to_owned();
        };
        let Some((words, _)) = written.rsplit_once("](") else {
            return written.to_owned();
        };
        match self.0.get(&linked) {
            Some(to) => format!("{words}]({}{fragment})", relative(place, to)),
            None => {
                let words = words.trim_start_matches(['!', '[']);
                format!("{words} (`{}` of the sources)", linked.display())
            }
        }
    }
}

/// The way from a page to a file.
fn relative(page: &Path, file: &Path) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    let common = folder
        .components()
        .zip(file.components())
        .take_while(|(one, other)| one == other)
        .count();
    let up = folder
        .components()
        .skip(common)
        .map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(file.components().skip(common)).collect();
    way.display().to_string()
}

/// Makes the documentation of a work tree below `share`: in the folder `doc` what the package has in `usr/share/doc/rpcrdma`,
/// and beside it the changelog of the program as `changelog`.
///
/// # Errors
///
/// A file cannot be read or written.
pub(super) fn make(root: &Path, share: &Path) -> Result<()> {
    let places = Places::of(root)?;
    for (from, place) in &places.0 {
        let is_changelog = from == Path::new("CHANGELOG.md");
        let to = match place.strip_prefix(DOC) {
            _ if is_changelog => share.join("changelog"),
            Ok(_) if ELSEWHERE.iter().any(|(other, _)| from == Path::new(other)) => continue,
            Ok(below) => share.join("doc").join(below),
            Err(_) => continue,
        };
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        let text =
            fs::read_to_string(root.join(from)).with_context(|| format!("{}", from.display()))?;
        let text = match from.extension().is_some_and(|ending| ending == "md") {
            true => places.with_links_set(from, place, &text),
            false => text,
        };
        fs::write(&to, text).with_context(|| format!("{}", to.display()))?;
    }
    Ok(())
}

/// Checks the documentation of an unpacked package: every link leads to a file and a heading, every path of the documentation
/// that a unit or a file of configuration names is there, and each schema of the work tree is.
///
/// # Errors
///
/// All faults, or a file cannot be read.
pub(super) fn check(unpacked: &Path, work_tree: &Path) -> Result<()> {
    let doc = unpacked.join(DOC);
    let changelog = doc.join("changelog.gz");
    let mut text = String::new();
    let packed = File::open(&changelog).with_context(|| format!("{}", changelog.display()))?;
    GzDecoder::new(packed).read_to_string(&mut text)?;
    fs::write(doc.join("changelog.md"), text)?;
    let pages = Pages::below(unpacked)?;
    let mut faults = pages.dead_links(unpacked);
    for folder in ["etc", "usr/lib/systemd"] {
        name_missing(unpacked, &unpacked.join(folder), &mut faults)?;
    }
    for schema in fs::read_dir(work_tree.join("docs/schemas"))? {
        let name = schema?.file_name();
        if !doc.join("schemas").join(&name).exists() {
            faults.push(format!("the schema {} is missing", name.display()));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => bail!(
            "the documentation of the package:\n  {}",
            faults.join("\n  ")
        ),
    }
}

/// Adds the paths of the documentation that files of a folder name and that are not there.
fn name_missing(unpacked: &Path, folder: &Path, faults: &mut Vec<String>) -> Result<()> {
    let list = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in list {
        let path = entry?.path();
        if path.is_dir() {
            name_missing(unpacked, &path, faults)?;
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        let named = text.split("/usr/share/doc/rpcrdma").skip(1).map(|behind| {
            let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            let end = behind.find(|c| !is_of_path(c)).unwrap_or(behind.len());
            behind[..end].trim_end_matches('.').trim_matches('/')
        });
        for named in named.filter(|named| !unpacked.join(DOC).join(named).exists()) {
            let file = path.strip_prefix(unpacked).unwrap_or(&path);
            faults.push(format!(
                "{} names /{DOC}/{named}, which is not there",
                file.display()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn write(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A package as it is unpacked, with the documentation of a work tree.
    fn unpacked(work_tree: &Path) -> tempfile::TempDir {
        let share = tempfile::tempdir().unwrap();
        make(work_tree, share.path()).unwrap();
        let package = tempfile::tempdir().unwrap();
        let doc = package.path().join(DOC);
        fs::create_dir_all(doc.parent().unwrap()).unwrap();
        copy(&share.path().join("doc"), &doc);
        let changelog = fs::read(share.path().join("changelog")).unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&changelog).unwrap();
        write(&doc.join("changelog.gz"), &packed.finish().unwrap());
        for (from, to) in &ELSEWHERE[1..] {
            write(
                &package.path().join(to),
                &fs::read(work_tree.join(from)).unwrap(),
            );
        }
        for unit in fs::read_dir(work_tree.join("contrib/systemd")).unwrap() {
            let unit = unit.unwrap();
            let to = package
                .path()
                .join("usr/lib/systemd/system")
                .join(unit.file_name());
            write(&to, &fs::read(unit.path()).unwrap());
        }
        for name in ["rpcrdma.toml", "gateway.toml"] {
            let to = package.path().join("etc/rpcrdma").join(name);
            write(
                &to,
                &fs::read(work_tree.join("contrib").join(name)).unwrap(),
            );
        }
        package
    }

    fn copy(from: &Path, to: &Path) {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            match entry.path().is_dir() {
                true => copy(&entry.path(), &to),
                false => write(&to, &fs::read(entry.path()).unwrap()),
            }
        }
    }

    #[test]
    fn documentation_of_the_package_has_no_dead_links_and_every_schema() {
        let package = unpacked(programs::root());
        check(package.path(), programs::root()).unwrap();
        let doc = package.path().join(DOC);
        let exports = fs::read_to_string(doc.join("guide/exports.md")).unwrap();
        for link in [
            "(../examples/rpcrdma.toml)",
            "(../../../man/man5/rpcrdma.toml.5.gz)",
        ] {
            assert!(exports.contains(link), "{link} is not in {exports}");
        }
    }

    #[test]
    fn dead_links_missing_schemas_and_paths_are_told() {
        let package = unpacked(programs::root());
        let doc = package.path().join(DOC);
        fs::remove_file(doc.join("guide/users.md")).unwrap();
        fs::remove_file(doc.join("schemas/df.schema.json")).unwrap();
        fs::remove_file(doc.join("guide/gateway.md")).unwrap();
        let said = check(package.path(), programs::root())
            .unwrap_err()
            .to_string();
        for part in [
            "usr/share/doc/rpcrdma/README.md:",
            "the link guide/users.md leads to no file",
            "the schema df.schema.json is missing",
            "rpcrdma-gateway.service names /usr/share/doc/rpcrdma/guide/gateway.md, which is not there",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }

    #[test]
    fn links_lead_to_where_the_package_has_what_they_mean() {
        let places = Places(
            [
                ("README.md", "usr/share/doc/x/README.md"),
                ("docs/a.md", "usr/share/doc/x/guide/a.md"),
                ("docs/a.svg", "usr/share/doc/x/guide/a.svg"),
                ("man/a.5", "usr/share/man/a.5.gz"),
            ]
            .map(|(from, to)| (PathBuf::from(from), PathBuf::from(to)))
            .into(),
        );
        let set = |page: &str, text: &str| {
            let place = &places.0[Path::new(page)];
            places.with_links_set(Path::new(page), place, text)
        };
        let page = "See [A](docs/a.md#b), [the\nmanual](man/a.5), `[x](y)`, [out](https://example.org),\n[here](#c), \
                    [code `f`](crates/f.rs), ![plot](docs/a.svg).\n";
        assert_eq!(
            set("README.md", page),
            "See [A](guide/a.md#b), [the\nmanual](../../man/a.5.gz), `[x](y)`, [out](https://example.org),\n[here](#c), \
             code `f` (`crates/f.rs` of the sources), ![plot](guide/a.svg).\n"
        );
        assert_eq!(set("docs/a.md", "[up](../README.md)"), "[up](../README.md)");
        assert_eq!(
            set("docs/a.md", "![gone](../x.svg)"),
            "gone (`x.svg` of the sources)"
        );
    }
}
