//! The directories above the exports, as NFSv4 shows them: the pseudo file system (RFC 8881 §7.3).
//!
//! They exist only here, have no files but what leads to exports, and cannot be changed. Their numbers are hashes of their paths,
//! so that handles of them stay valid over restarts and reloads for as long as an export is below.

use siphasher::sip::SipHasher24;

/// Number in the handles of these directories. No export has it.
pub(crate) const PSEUDO_EXPORT: u32 = 0;

/// All directories above exports. The first is the root, unless an export is the root itself.
#[derive(Debug)]
pub(crate) struct PseudoTree {
    directories: Vec<Directory>,
}

impl Default for PseudoTree {
    /// A root without entries.
    fn default() -> Self {
        Self::of(std::iter::empty())
    }
}

#[derive(Debug)]
struct Directory {
    path: String,
    number: u64,
    parent: usize,
    entries: Vec<(String, Below)>,
}

/// Entry of a directory above exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below {
    /// One more such directory.
    Directory(usize),
    /// The export with this number.
    Export(u32),
}

impl PseudoTree {
    /// Returns the directories above these exports, which are given with their numbers. What is below an export is for that
    /// export to show.
    pub(super) fn of<'n>(exports: impl Iterator<Item = (&'n str, u32)>) -> Self {
        let mut exports: Vec<_> = exports.collect();
        // An export comes before what is below it.
        exports.sort_unstable();
        let mut tree = Self {
            directories: Vec::new(),
        };
        if exports.first().is_some_and(|(name, _)| *name == "/") {
            return tree;
        }
        tree.add("/", 0);
        for (name, number) in exports {
            tree.insert(name, number);
        }
        tree
    }

    fn add(&mut self, path: &str, parent: usize) -> usize {
        self.directories.push(Directory {
            path: path.to_owned(),
            number: number_of(path),
            parent,
            entries: Vec::new(),
        });
        self.directories.len() - 1
    }

    fn insert(&mut self, name: &str, number: u32) {
        let mut at = 0;
        let mut end = 0;
        for part in name.split('/').skip(1) {
            end += 1 + part.len();
            let path = &name[..end];
            let known = self.entry(at, part.as_bytes());
            at = match known {
                // An export is above.
                Some(Below::Export(_)) => return,
                Some(Below::Directory(directory)) => directory,
                None => {
                    let below = match end == name.len() {
                        true => Below::Export(number),
                        false => Below::Directory(self.add(path, at)),
                    };
                    self.directories[at].entries.push((part.to_owned(), below));
                    match below {
                        Below::Directory(directory) => directory,
                        Below::Export(_) => return,
                    }
                }
            };
        }
    }

    /// Returns the root; `None` if an export is the root.
    pub(crate) fn root(&self) -> Option<usize> {
        (!self.directories.is_empty()).then_some(0)
    }

    /// Returns the directory with a number.
    pub(crate) fn find(&self, number: u64) -> Option<usize> {
        let is_it = |directory: &Directory| directory.number == number;
        self.directories.iter().position(is_it)
    }

    /// Returns the number of a directory.
    pub(crate) fn number(&self, directory: usize) -> u64 {
        self.directories[directory].number
    }

    /// Returns the directory above; the root is above itself.
    pub(crate) fn parent(&self, directory: usize) -> usize {
        self.directories[directory].parent
    }

    /// Returns the entry with a name.
    pub(crate) fn entry(&self, directory: usize, name: &[u8]) -> Option<Below> {
        let mut entries = self.directories[directory].entries.iter();
        let found = entries.find(|(other, _)| other.as_bytes() == name);
        found.map(|(_, below)| *below)
    }

    /// Returns the entries in order, with the number that each has as a file of this directory.
    pub(crate) fn entries(&self, directory: usize) -> impl Iterator<Item = (&str, u64, Below)> {
        let above = &self.directories[directory];
        above.entries.iter().map(move |(name, below)| {
            let path = match above.path.as_str() {
                "/" => format!("/{name}"),
                path => format!("{path}/{name}"),
            };
            (name.as_str(), number_of(&path), *below)
        })
    }

    /// Returns the exports below a directory.
    pub(crate) fn exports_below(&self, directory: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let mut left = vec![directory];
        while let Some(at) = left.pop() {
            for (_, below) in &self.directories[at].entries {
                match *below {
                    Below::Directory(directory) => left.push(directory),
                    Below::Export(number) => found.push(number),
                }
            }
        }
        found
    }

    /// Returns the directory that has an export as an entry.
    pub(crate) fn above(&self, export: u32) -> Option<usize> {
        let has = |directory: &Directory| {
            let mut entries = directory.entries.iter();
            entries.any(|(_, below)| *below == Below::Export(export))
        };
        self.directories.iter().position(has)
    }
}

/// Returns the number of a directory, or of an export as an entry of one: never zero.
pub(crate) fn number_of(path: &str) -> u64 {
    SipHasher24::new().hash(path.as_bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> PseudoTree {
        PseudoTree::of(names.iter().copied().zip(1..))
    }

    #[test]
    fn directories_lead_to_exports() {
        let tree = tree(&["/home/alice", "/data", "/home/bob"]);
        let root = tree.root().unwrap();
        let Some(Below::Directory(home)) = tree.entry(root, b"home") else {
            panic!("a directory");
        };
        assert_eq!(tree.entry(root, b"data"), Some(Below::Export(2)));
        assert_eq!(tree.entry(home, b"bob"), Some(Below::Export(3)));
        assert_eq!(tree.entry(home, b"carol"), None);
        assert_eq!((tree.parent(home), tree.above(1)), (root, Some(home)));
        assert_eq!(tree.find(tree.number(home)), Some(home));
        let names: Vec<_> = tree.entries(root).map(|(name, ..)| name).collect();
        assert_eq!(names, ["data", "home"]);
        let mut below = tree.exports_below(root);
        below.sort_unstable();
        assert_eq!(below, [1, 2, 3]);
    }

    #[test]
    fn export_of_the_root_has_no_directories_above() {
        assert_eq!(tree(&["/", "/data"]).root(), None);
    }

    #[test]
    fn export_shows_what_is_below_it_itself() {
        let tree = tree(&["/data", "/data/old/x", "/data.old/y"]);
        let root = tree.root().unwrap();
        assert_eq!(tree.entry(root, b"data"), Some(Below::Export(1)));
        assert_eq!(tree.entries(root).count(), 2);
    }
}
