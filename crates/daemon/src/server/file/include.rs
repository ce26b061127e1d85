//! The directory of files with further exports that `include` names, as exports(5) has `/etc/exports.d`.
//!
//! Each file whose name ends in `.toml` and does not begin with a dot is read, in the order of the names. Others, as editors and
//! package managers leave them, and directories are not.

use super::{ExportTable, Included, tables_of_exports};
use crate::config::{ConfigErrors, ConfigFile, Options, Table, Tables};
use serde::Deserialize;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Files of the directory.
const MAX_FILES: usize = 256;

/// Content of an included file. Keys that have their place in the file that includes it are known to be told of.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    include: Option<Spanned<toml::Value>>,
    server: Option<Spanned<Options>>,
    #[serde(default, rename = "export")]
    exports: Vec<Spanned<ExportTable>>,
}

impl Tables for File {
    fn tables() -> Vec<Table> {
        tables_of_exports().into()
    }
}

/// Reads the files of a directory that a file includes. Adds what is wrong with them to the errors.
pub(super) fn read(
    file: &ConfigFile,
    dir: &Spanned<PathBuf>,
    errors: &mut ConfigErrors,
) -> Vec<Included> {
    let beside = file.path().parent().unwrap_or(Path::new(""));
    let path = beside.join(dir.get_ref());
    let mut wrong = |what: String| errors.push(file.error(dir.span(), "include", what));
    let paths = match paths(&path) {
        Ok(paths) if paths.len() > MAX_FILES => {
            wrong(format!(
                "{} has more than {MAX_FILES} files",
                path.display()
            ));
            return Vec::new();
        }
        Ok(paths) => paths,
        Err(error) => {
            wrong(format!(
                "{}: cannot read the directory: {error}",
                path.display()
            ));
            return Vec::new();
        }
    };
    let mut included = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        match ConfigFile::load(path) {
            Ok(one) => included.extend(exports_of(one.numbered(at + 1), errors)),
            Err(error) => errors.push(file.error(dir.span(), "include", format!("{error:#}"))),
        }
    }
    included
}

/// Exports of an included file, as far as they are understood.
fn exports_of(file: ConfigFile, errors: &mut ConfigErrors) -> Option<Included> {
    let (values, wrong) = match file.values::<File>() {
        Ok(read) => read,
        Err(error) => {
            errors.push(error);
            return None;
        }
    };
    errors.append(wrong);
    let File {
        include,
        server,
        exports,
    } = values;
    if let Some(server) = server {
        let what = "an included file has [[export]] tables alone: options stand in the file that includes it";
        errors.push(file.error(server.span(), "server", what));
    }
    if let Some(include) = include {
        let what = "an included file includes no others";
        errors.push(file.error(include.span(), "include", what));
    }
    Some(Included { file, exports })
}

/// The files of a directory that are read, in order.
///
/// # Errors
///
/// If it cannot be read.
fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // A link that leads nowhere is read, which fails: it was to be a file.
        if is_included(&entry.file_name()) && !entry.path().is_dir() {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn is_included(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b".toml") && !name.starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, ServerFile};
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A file that includes `exports.d` beside it, with these files.
    struct Place(tempfile::TempDir);

    impl Place {
        fn with(files: &[(&str, &str)]) -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            place.write("rpcrdma.toml", "include = \"exports.d\"\n");
            fs::create_dir(place.path("exports.d")).unwrap();
            for (name, text) in files {
                place.write(&format!("exports.d/{name}"), text);
            }
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).unwrap();
        }

        /// The exports, and the errors without the path of the place.
        fn read(&self) -> (Vec<Plan>, Vec<String>) {
            let (config, mut errors) = ServerFile::load(&self.path("rpcrdma.toml")).unwrap();
            let plans = config.plans(&["127.0.0.0/8".parse().unwrap()], &mut errors);
            let place = format!("{}/", self.0.path().display());
            let errors = errors.into_vec();
            let errors = errors
                .iter()
                .map(|error| error.to_string().replace(&place, ""));
            (plans, errors.collect())
        }

        fn names(&self) -> Vec<String> {
            let (plans, errors) = self.read();
            assert!(errors.is_empty(), "{errors:?}");
            plans.into_iter().map(|plan| plan.export.name).collect()
        }
    }

    fn export(name: &str) -> String {
        format!("[[export]]\npath = \"/usr\"\nname = \"{name}\"\n")
    }

    #[test]
    fn files_of_the_directory_are_read_by_name_behind_the_exports_of_the_file() {
        let place = Place::with(&[
            ("20-b.toml", &(export("/b") + &export("/c"))),
            ("10-a.toml", &export("/a")),
            ("9.toml", ""),
        ]);
        assert_eq!(place.names(), ["/a", "/b", "/c"]);
        let main = "include = \"exports.d\"\n".to_owned() + &export("/main");
        place.write("rpcrdma.toml", &main);
        assert_eq!(place.names(), ["/main", "/a", "/b", "/c"]);
        fs::remove_file(place.path("exports.d/10-a.toml")).unwrap();
        assert_eq!(place.names(), ["/main", "/b", "/c"]);
        let elsewhere = format!("include = {:?}\n", place.path("exports.d"));
        place.write("rpcrdma.toml", &elsewhere);
        assert_eq!(place.names(), ["/b", "/c"]);
    }

    #[test]
    fn files_that_editors_and_package_managers_leave_are_not_read() {
        let place = Place::with(&[("a.toml", &export("/a"))]);
        for name in [
            ".a.toml",
            ".a.toml.swp",
            "a.toml~",
            "#a.toml#",
            "a.toml.dpkg-new",
            "a.toml.rpmsave",
            "README",
            "a.exports",
        ] {
            place.write(&format!("exports.d/{name}"), "no TOML");
        }
        fs::create_dir(place.path("exports.d/b.toml")).unwrap();
        assert_eq!(place.names(), ["/a"]);
        symlink(
            place.path("exports.d/a.toml"),
            place.path("exports.d/.#a.toml"),
        )
        .unwrap();
        assert_eq!(place.names(), ["/a"]);
    }

    #[test]
    fn errors_name_the_file_and_the_line_in_order_of_the_files() {
        let place = Place::with(&[
            ("a.toml", &(export("/a") + "redonly = true\n")),
            ("b.toml", "[[export]\n"),
            ("c.toml", "[server]\nlisten = \"0.0.0.0\"\n"),
            ("d.toml", "include = \"more\"\n"),
            ("e.toml", &("fsid = 7\n".to_owned() + &export("/e"))),
            ("f.toml", &(export("/f") + "fsid = 7\n" + &export("/a"))),
            ("g.toml", &(export("/g") + "fsid = 7\n")),
        ]);
        place.write("rpcrdma.toml", "\ninclude = \"exports.d\"\n[servr]\n");
        let (_, errors) = place.read();
        let expected = [
            "rpcrdma.toml:3: servr: there is no key servr",
            "exports.d/a.toml:4: export[0].redonly: there is no key redonly",
            "exports.d/b.toml:1: ",
            "exports.d/c.toml:1: server: an included file has [[export]] tables alone",
            "exports.d/d.toml:1: include: an included file includes no others",
            "exports.d/e.toml:1: fsid: there is no key fsid",
            "exports.d/f.toml:7: export[1].name: export[0] of exports.d/a.toml is named /a too",
            "exports.d/g.toml:4: export[0].fsid: export[0] of exports.d/f.toml has this number too",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, says) in errors.iter().zip(expected) {
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn directory_that_cannot_be_read_is_told_with_the_line_that_includes_it() {
        let place = Place::with(&[]);
        let refused = |says: &str| {
            let (_, errors) = place.read();
            assert!(errors[0].starts_with(says), "{errors:?}");
        };
        refused("rpcrdma.toml:1: export: there has to be one at least");
        symlink("/no/such/file", place.path("exports.d/a.toml")).unwrap();
        refused("rpcrdma.toml:1: include: exports.d/a.toml: cannot read: No such file");
        place.write("rpcrdma.toml", "\ninclude = \"none\"\n");
        refused("rpcrdma.toml:2: include: none: cannot read the directory: No such file");
    }

    #[test]
    fn files_and_exports_of_all_files_are_bounded() {
        let place = Place::with(&[]);
        for number in 0..5 {
            let many: String = (0..205)
                .map(|n| export(&format!("/{number}-{n}")))
                .collect();
            place.write(&format!("exports.d/{number}.toml"), &many);
        }
        let (plans, errors) = place.read();
        assert_eq!(plans.len(), 1024);
        assert!(errors[0].contains("and 1024 at most"), "{errors:?}");
        for number in 0..=MAX_FILES {
            place.write(&format!("exports.d/more-{number}.toml"), "");
        }
        let (_, errors) = place.read();
        assert!(errors[0].contains("has more than 256 files"), "{errors:?}");
    }
}
