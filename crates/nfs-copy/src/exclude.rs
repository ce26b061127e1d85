//! Patterns of names that are left out.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A text that is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", .pattern.as_ref().map(|pattern| format!("{pattern}: ")).unwrap_or_default())]
pub struct PatternError {
    /// The text; none if the patterns are too much together.
    pub pattern: Option<String>,
    /// The reason.
    pub why: String,
}

/// Patterns of names that are left out, with the rules of rsync(1).
///
/// A pattern is compared with the end of a path, whole names at a time; with a slash at its beginning, with
/// the whole path from the name of what was named on. `*` and `?` stop at slashes, `**` does not. A
/// slash at the end is for directories alone. What is in a directory that is left out is left out too.
#[derive(Clone, Debug, Default)]
pub struct Exclude {
    any: GlobSet,
    /// Those that are for directories alone.
    directories: GlobSet,
}

impl Exclude {
    /// Parses patterns.
    ///
    /// # Errors
    ///
    /// One of them is none.
    pub fn new(patterns: &[String]) -> Result<Self, PatternError> {
        let (mut any, mut directories) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let bad = |why: &dyn std::fmt::Display| PatternError {
                pattern: Some(pattern.clone()),
                why: why.to_string(),
            };
            let (name, set) = match pattern.strip_suffix('/') {
                Some(name) => (name, &mut directories),
                None => (&pattern[..], &mut any),
            };
            let glob = match name.strip_prefix('/') {
                Some(anchored) => anchored.to_owned(),
                None => format!("**/{name}"),
            };
            if name.trim_matches('/').is_empty() {
                return Err(bad(&"there is no name in this pattern"));
            }
            let glob = GlobBuilder::new(&glob).literal_separator(true).build();
            set.add(glob.map_err(|error| bad(error.kind()))?);
        }
        let set = |set: GlobSetBuilder| {
            set.build().map_err(|error| PatternError {
                pattern: None,
                why: error.to_string(),
            })
        };
        Ok(Self {
            any: set(any)?,
            directories: set(directories)?,
        })
    }

    /// Whether this is left out: a path that begins with the name of what was named. The empty path, for what
    /// has no name, is not.
    pub(crate) fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let path = Path::new(OsStr::from_bytes(path));
        self.any.is_match(path) || is_directory && self.directories.is_match(path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.any.is_empty() && self.directories.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let exclude = Exclude::new(&[pattern.to_owned()]).unwrap();
        for path in yes {
            let dir = path.ends_with('/');
            let path = path.trim_end_matches('/');
            assert!(exclude.matches(path.as_bytes(), dir), "{pattern} {path}");
        }
        for path in no {
            let dir = path.ends_with('/');
            let path = path.trim_end_matches('/');
            assert!(!exclude.matches(path.as_bytes(), dir), "{pattern} {path}");
        }
    }

    #[test]
    fn pattern_is_compared_with_the_end_of_a_path() {
        check(
            "*.o",
            &["x.o", "a/b/x.o", ".o", "a/x.o/"],
            &["x.c", "x.o.d", "x.o/c"],
        );
        check("b/c", &["b/c", "a/b/c"], &["c", "ab/c", "b/c/d"]);
        check("a/*/c", &["a/b/c", "x/a/b/c"], &["a/c", "a/b/b/c"]);
        check("a/**/c", &["a/b/c", "a/b/b/c", "a/c"], &["b/c"]);
        check("[ab]?", &["ax", "d/by"], &["cx", "a/x"]);
    }

    #[test]
    fn slash_at_the_beginning_is_where_the_copy_begins() {
        check("/tree/a", &["tree/a"], &["a", "x/tree/a", "tree/b/a"]);
    }

    #[test]
    fn slash_at_the_end_is_for_directories() {
        check("cache/", &["cache/", "a/cache/"], &["cache", "a/cache"]);
        check(
            "/tree/**/tmp/",
            &["tree/a/b/tmp/", "tree/tmp/"],
            &["tree/tmp"],
        );
    }

    #[test]
    fn star_is_any_name_but_not_none() {
        check("*", &["a", "a/b", "a/"], &[""]);
        check("**/", &["a/"], &["", "a"]);
    }

    #[test]
    fn names_that_are_no_text_are_matched() {
        let exclude = Exclude::new(&["*.o".to_owned()]).unwrap();
        assert!(exclude.matches(b"odd-\xff\xfe.o", false));
    }

    #[test]
    fn pattern_without_a_name_is_refused() {
        for bad in ["", "/", "//", "[a", "{a"] {
            assert!(Exclude::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(Exclude::new(&[]).unwrap().is_empty());
    }
}
