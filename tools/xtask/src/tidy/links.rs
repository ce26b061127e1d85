//! Links in Markdown: a relative link leads to a file, its fragment to a heading, and what a chapter of the book
//! links to is in the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::fault::Fault;

/// The table of contents of the book.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// The folders with pages, beside the root of the work tree.
const FOLDERS: [&str; 5] = ["docs", "crates", "tools", "testing", "contrib"];

/// Every page of Markdown in the work tree, by its path from the root.
pub(crate) struct Pages(BTreeMap<PathBuf, Page>);

/// One page of Markdown.
struct Page {
    links: Vec<Link>,
    /// The fragments that lead to its headings.
    anchors: BTreeSet<String>,
}

/// A link, or an image, without a scheme.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

impl Pages {
    /// Reads the pages below `root`.
    ///
    /// # Errors
    ///
    /// A folder or a page cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut pages = Self(BTreeMap::new());
        pages.enter(root, root, false)?;
        for folder in FOLDERS {
            let path = root.join(folder);
            if path.is_dir() {
                pages.enter(root, &path, true)?;
            }
        }
        Ok(pages)
    }

    /// Reads all pages below a folder, which need not be a work tree.
    ///
    /// # Errors
    ///
    /// A folder or a page cannot be read.
    pub(crate) fn below(root: &Path) -> Result<Self> {
        let mut pages = Self(BTreeMap::new());
        pages.enter(root, root, true)?;
        Ok(pages)
    }

    /// The links that lead nowhere, of pages below `root`, each in a line with its page.
    pub(crate) fn dead_links(&self, root: &Path) -> Vec<String> {
        self.faults(root).iter().map(Fault::to_string).collect()
    }

    /// The links that lead nowhere.
    fn faults(&self, root: &Path) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (path, page) in &self.0 {
            for link in &page.links {
                if let Some(what) = fault_of(self, root, path, &link.target) {
                    faults.push(Fault::new(path, link.line, what));
                }
            }
        }
        faults
    }

    /// Reads the pages of a folder. A symbolic link is not one: its page is read where that is.
    fn enter(&mut self, root: &Path, folder: &Path, deep: bool) -> Result<()> {
        let list = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
        for entry in list {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = entry.path();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if deep && !name.starts_with('.') && name != "target" {
                    self.enter(root, &path, true)?;
                }
            } else if kind.is_file() && name.ends_with(".md") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                self.0.insert(path, Page::parse(&text));
            }
        }
        Ok(())
    }

    /// The files that a page links to, from the root of the work tree, in order.
    pub(crate) fn linked_from(&self, page: &Path) -> Vec<PathBuf> {
        let links = self.0.get(page).map_or(&[][..], |page| &page.links);
        let paths = links.iter().map(|link| link.target.split('#').next());
        paths
            .flatten()
            .filter(|path| !path.is_empty())
            .filter_map(|path| resolve(page, path))
            .collect()
    }
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self {
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. })
                    if !has_scheme(&dest_url) =>
                {
                    page.links.push(Link {
                        line: text[..range.start].matches('\n').count() + 1,
                        target: dest_url.into_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    page.enter_anchor(anchor);
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// A second heading with the same words ends in -1, and so on.
    fn enter_anchor(&mut self, anchor: String) {
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut all = std::iter::once(anchor.clone()).chain(numbered);
        if let Some(free) = all.find(|anchor| !self.anchors.contains(anchor)) {
            self.anchors.insert(free);
        }
    }
}

/// Whether the link leads out of the work tree, as `https://...` and `mailto:...` do.
pub(crate) fn has_scheme(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The fragment that code hosts and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// The path from the root of what a page links to; `None` outside of the work tree.
pub(crate) fn resolve(page: &Path, target: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Checks every link, and that the book has all the pages it needs.
pub(super) fn check(pages: &Pages, root: &Path, faults: &mut Vec<Fault>) {
    faults.extend(pages.faults(root));
    let chapters: BTreeSet<PathBuf> = pages.linked_from(Path::new(SUMMARY)).into_iter().collect();
    for path in pages.0.keys() {
        let is_chapter = chapters.contains(path);
        if path.starts_with("docs") && !is_chapter && path != Path::new(SUMMARY) {
            faults.push(Fault::new(path, 1, format!("{SUMMARY} does not list it")));
        }
        if !is_chapter {
            continue;
        }
        for linked in pages.linked_from(path) {
            if linked.extension().is_some_and(|end| end == "md") && !chapters.contains(&linked) {
                let what = format!("links to {}, which is not in {SUMMARY}", linked.display());
                faults.push(Fault::new(path, 1, what));
            } else if root.join(&linked).is_dir() {
                let what = format!("links to the folder {}", linked.display());
                faults.push(Fault::new(path, 1, what));
            }
        }
    }
}

/// Fault of a link.
fn fault_of(pages: &Pages, root: &Path, page: &Path, target: &str) -> Option<String> {
    let (path, fragment) = match target.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (target, None),
    };
    let linked = match path {
        "" => page.to_owned(),
        path => match resolve(page, path) {
            Some(linked) => linked,
            None => return Some(format!("the link {target} leaves the work tree")),
        },
    };
    if !root.join(&linked).exists() {
        return Some(format!("the link {target} leads to no file"));
    }
    let known = pages.0.get(&linked);
    match (fragment, known) {
        (Some(fragment), Some(known)) if !known.anchors.contains(fragment) => {
            Some(format!("the link {target} leads to no heading"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_faults(files: &[(&str, &str)], expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut faults = Vec::new();
        let pages = Pages::read(dir.path()).unwrap();
        check(&pages, dir.path(), &mut faults);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(faults, expected);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let readme = "# A\n\n[one](docs/a.md#two-words), [gone](docs/b.md),\n[all](#a) `[x](y.md)`\n\n\
            | [cell](docs/a.md#three) |\n|---|\n| [out](https://example.org/a.md) |\n";
        check_faults(
            &[
                ("README.md", readme),
                ("docs/a.md", "# Two words\n\n![plot](../../a.svg)\n"),
                (SUMMARY, "[A](a.md)\n"),
            ],
            &[
                "README.md:3: the link docs/b.md leads to no file",
                "README.md:6: the link docs/a.md#three leads to no heading",
                "docs/a.md:3: the link ../../a.svg leaves the work tree",
            ],
        );
    }

    #[test]
    fn chapters_link_to_chapters_and_files() {
        check_faults(
            &[
                (SUMMARY, "[A](a.md)\n"),
                ("docs/a.md", "[b](b.md) [c](../contrib) [d](../contrib/d)\n"),
                ("docs/b.md", "# B\n"),
                ("contrib/d", ""),
            ],
            &[
                "docs/a.md:1: links to docs/b.md, which is not in docs/SUMMARY.md",
                "docs/a.md:1: links to the folder contrib",
                "docs/b.md:1: docs/SUMMARY.md does not list it",
            ],
        );
    }

    #[test]
    fn linked_page_is_read_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("README.md"), "[a](a)\n").unwrap();
        fs::create_dir_all(dir.path().join("tools/t")).unwrap();
        let link = dir.path().join("tools/t/README.md");
        std::os::unix::fs::symlink("../../README.md", link).unwrap();
        let pages = Pages::read(dir.path()).unwrap();
        let paths: Vec<&PathBuf> = pages.0.keys().collect();
        assert_eq!(paths, [Path::new("README.md")]);
    }

    #[test]
    fn anchors_are_those_of_mdbook() {
        let page = Page::parse("# `serve --config`: a, b\n## Same\n## Same\n## It's §4.1\n");
        let anchors: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["its-41", "same", "same-1", "serve---config-a-b"]);
    }
}
