//! Parses the exports of the command line.

use crate::errors::Usage;
use anyhow::{Context, bail};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A directory as given on the command line: `DIR` or `/NAME=DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportArg {
    /// The path clients know it by, if one was given.
    name: Option<String>,
    dir: PathBuf,
}

impl FromStr for ExportArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Only what begins with a slash can be a name, so that a directory may have a `=` in its
        // name: it is then written `./a=b`, or in full with its own name before it.
        let (name, dir) = match text.split_once('=') {
            Some((name, dir)) if name.starts_with('/') => (Some(normal_name(name)?), dir),
            Some(_) | None => (None, text),
        };
        if dir.is_empty() {
            return Err("there is no directory; exports are written DIR or /NAME=DIR".to_owned());
        }
        Ok(Self {
            name,
            dir: dir.into(),
        })
    }
}

/// The name with single slashes and none at the end.
pub fn normal_name(name: &str) -> Result<String, String> {
    let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(format!("`{name}` cannot be the name of an export"));
    }
    Ok(format!("/{}", parts.join("/")))
}

/// A directory to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The path clients mount, beginning with `/`.
    pub name: String,
    /// The path of the directory as it was given, but absolute.
    pub path: PathBuf,
    /// The directory, absolute and without symbolic links; as it was given while it is not there.
    pub dir: PathBuf,
}

/// The exports for the arguments, each with a name of its own.
///
/// # Errors
///
/// If a directory is not there, or two exports have the same name.
pub fn resolve(args: &[ExportArg]) -> anyhow::Result<Vec<Export>> {
    let mut names = HashSet::new();
    let mut exports = Vec::new();
    for arg in args {
        let dir = directory(&arg.dir)?;
        let name = match &arg.name {
            Some(name) => name.clone(),
            None => default_name(&arg.dir, &dir)?,
        };
        if !names.insert(name.clone()) {
            bail!(Usage(format!(
                "two exports would be named {name}: give them different names with /NAME=DIR"
            )));
        }
        let path = dir.clone();
        exports.push(Export { name, path, dir });
    }
    Ok(exports)
}

/// The directory at a path, absolute and without symbolic links.
///
/// # Errors
///
/// If it is not there, or no directory.
pub(super) fn directory(dir: &Path) -> anyhow::Result<PathBuf> {
    let found = dir
        .canonicalize()
        .with_context(|| format!("{}: cannot be served", dir.display()))?;
    if !found.is_dir() {
        bail!("{}: cannot be served: it is not a directory", dir.display());
    }
    Ok(found)
}

/// `/` and the last name of a path as it was given, or else, as for `.`, of the directory that it leads to;
/// `/` alone for the root.
pub fn default_name(given: &Path, dir: &Path) -> anyhow::Result<String> {
    match given.file_name().or(dir.file_name()) {
        None => Ok("/".to_owned()),
        Some(name) => match name.to_str() {
            Some(name) => Ok(format!("/{name}")),
            None => bail!(Usage(format!(
                "the name of {} is not UTF-8: give it one with /NAME=DIR",
                dir.display()
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(text: &str) -> ExportArg {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_taken_off_directories() {
        let check = |text: &str, name: Option<&str>, dir: &str| {
            let expected = ExportArg {
                name: name.map(str::to_owned),
                dir: dir.into(),
            };
            assert_eq!(arg(text), expected, "{text}");
        };
        check(".", None, ".");
        check("a=b", None, "a=b");
        check("/data=/srv/data", Some("/data"), "/srv/data");
        check("//a//b/=x", Some("/a/b"), "x");
        check("/=x", Some("/"), "x");
        check("/name=a=b", Some("/name"), "a=b");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for text in ["/..=x", "/a/../b=x", "/a/./b=x", "/name=", ""] {
            assert!(text.parse::<ExportArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn directory_is_named_as_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("stuff");
        std::fs::create_dir(&inner).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        let exports = resolve(&[arg(link.to_str().unwrap())]).unwrap();
        assert_eq!(exports[0].name, "/link");
        assert_eq!(exports[0].dir, inner.canonicalize().unwrap());
        let below = link.join("deep/..");
        std::fs::create_dir(inner.join("deep")).unwrap();
        let exports = resolve(&[arg(below.to_str().unwrap())]).unwrap();
        assert_eq!(exports[0].name, "/stuff");
    }

    #[test]
    fn missing_directories_and_files_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = resolve(&[arg(missing.to_str().unwrap())]).unwrap_err();
        assert!(format!("{error:#}").contains("No such file"), "{error:#}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = resolve(&[arg(file.to_str().unwrap())]).unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
    }

    #[test]
    fn two_exports_of_one_name_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let args = [arg(&format!("/a={path}")), arg(&format!("/a/={path}"))];
        let error = resolve(&args).unwrap_err();
        assert!(error.downcast_ref::<Usage>().is_some(), "{error}");
        let args = [arg(&format!("/a={path}")), arg(&format!("/b={path}"))];
        assert_eq!(resolve(&args).unwrap().len(), 2);
    }
}
