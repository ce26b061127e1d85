//! The tree of files of the image: the static program, and the few files that it reads.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::facts::{self, Progress};
use super::licenses;
use programs::command::{SHIPPED, build_with, output};

/// Files of the work tree in the image.
const COPIED: [(&str, &str); 5] = [
    ("contrib/container/group", "etc/group"),
    ("contrib/container/nsswitch.conf", "etc/nsswitch.conf"),
    ("contrib/container/passwd", "etc/passwd"),
    (
        "contrib/debian/copyright",
        "usr/share/doc/rpcrdma/copyright",
    ),
    ("LICENSE-APACHE", "usr/share/doc/rpcrdma/LICENSE-APACHE"),
];

/// Directories with rights of their own.
const FOLDERS: [(&str, u32); 3] = [
    ("export", 0o755),
    ("tmp", 0o1777),
    ("var/lib/rpcrdma", 0o700),
];

/// Something in the image; what has no content is a directory.
struct Entry {
    path: PathBuf,
    mode: u32,
    content: Option<Vec<u8>>,
}

/// Files and directories in order, each directory before what is in it. All belong to root.
#[derive(Default)]
pub(super) struct Tree(Vec<Entry>);

/// Builds the program, with the C library in it, and puts the tree together.
///
/// # Errors
///
/// The program does not build, needs a library after all, or a file cannot be read.
pub(super) fn tree(progress: &Progress) -> Result<Tree> {
    progress.say("the static program, with cargo build --profile=dist --target");
    let program = static_program()?;
    let mut tree = Tree::default();
    for (path, mode) in FOLDERS {
        tree.folder(path, mode);
    }
    tree.file("usr/bin/rpcrdma", 0o755, stripped(&program)?);
    for (from, to) in COPIED {
        let content = fs::read(programs::root().join(from)).with_context(|| from.to_owned())?;
        tree.file(to, 0o644, content);
    }
    let licenses = licenses::text().context("licenses of libraries")?;
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(licenses.as_bytes())?;
    tree.file(
        "usr/share/doc/rpcrdma/third-party-licenses.gz",
        0o644,
        packed.finish()?,
    );
    tree.0.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(tree)
}

/// Flags of the compiler for a static program. The other one has random numbers come from the kernel by
/// getrandom(2): looked up at run time, as by default, it is not found in a static program, and then `/dev` is
/// needed.
const FLAGS: &str = "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

/// Builds the program with the C library of GNU in it. It resolves names and users by `files` and `dns`
/// itself; other modules of nsswitch.conf would have to be loaded.
fn static_program() -> Result<PathBuf> {
    let target = facts::host()?;
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{given} {FLAGS}");
    // With --target, cargo does not use the flags for what it runs itself while it builds.
    let arguments = [SHIPPED, "--package=rpcrdma-cli", "--target", &target];
    let program = build_with(&arguments, "rpcrdma", &[("RUSTFLAGS", flags.trim())])?;
    let headers = output(
        Command::new("readelf")
            .args(["--wide", "--program-headers"])
            .arg(&program),
    )?;
    if headers.contains(" INTERP ") {
        bail!("{} is not static", program.display());
    }
    Ok(program)
}

/// A program without its symbols.
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let made = folder.path().join("rpcrdma");
    output(Command::new("strip").arg("-o").arg(&made).arg(program))?;
    Ok(fs::read(made)?)
}

impl Tree {
    fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        self.add(path, mode, Some(content));
    }

    fn folder(&mut self, path: &str, mode: u32) {
        self.add(path, mode, None);
    }

    /// Adds something, and the directories above it that are missing.
    fn add(&mut self, path: &str, mode: u32, content: Option<Vec<u8>>) {
        let path = Path::new(path);
        for above in path
            .ancestors()
            .skip(1)
            .filter(|above| *above != Path::new(""))
        {
            if !self.0.iter().any(|entry| entry.path == above) {
                self.0.push(Entry {
                    path: above.into(),
                    mode: 0o755,
                    content: None,
                });
            }
        }
        self.0.push(Entry {
            path: path.into(),
            mode,
            content,
        });
    }

    /// The archive of it, with this time for everything.
    ///
    /// # Errors
    ///
    /// A path is too long.
    pub(super) fn archive(&self, time: u64) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for entry in &self.0 {
            let content = entry.content.as_deref().unwrap_or_default();
            let mut header = Header::new_ustar();
            header.set_mode(entry.mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(time);
            header.set_size(content.len().try_into()?);
            header.set_entry_type(match entry.content {
                Some(_) => EntryType::Regular,
                None => EntryType::Directory,
            });
            archive.append_data(&mut header, &entry.path, content)?;
        }
        Ok(archive.into_inner()?)
    }

    /// Writes it to a directory.
    ///
    /// # Errors
    ///
    /// Something cannot be made.
    pub(super) fn write_to(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for Entry {
            path,
            mode,
            content,
        } in &self.0
        {
            let path = folder.join(path);
            match content {
                Some(content) => fs::write(&path, content)?,
                None => fs::create_dir_all(&path)?,
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Tree {
        let mut tree = Tree::default();
        tree.folder("tmp", 0o1777);
        tree.file("usr/bin/program", 0o755, b"content".to_vec());
        tree.file("usr/bin/other", 0o644, Vec::new());
        tree.0.sort_by(|a, b| a.path.cmp(&b.path));
        tree
    }

    #[test]
    fn archive_has_each_directory_once_before_what_is_in_it() {
        let bytes = small().archive(7).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 7);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            (
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
            )
        });
        let expected = [
            ("tmp", 0o1777),
            ("usr", 0o755),
            ("usr/bin", 0o755),
            ("usr/bin/other", 0o644),
            ("usr/bin/program", 0o755),
        ];
        let entries: Vec<_> = entries.collect();
        let entries: Vec<_> = entries
            .iter()
            .map(|(path, mode)| (path.as_str(), *mode))
            .collect();
        assert_eq!(entries, expected);
    }

    #[test]
    fn same_tree_is_the_same_archive_and_the_same_directory() {
        let tree = small();
        assert_eq!(tree.archive(1).unwrap(), small().archive(1).unwrap());
        let folder = tempfile::tempdir().unwrap();
        tree.write_to(folder.path()).unwrap();
        let program = folder.path().join("usr/bin/program");
        assert_eq!(fs::read(&program).unwrap(), b"content");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&program), 0o755);
        assert_eq!(mode(&folder.path().join("tmp")), 0o1777);
    }
}
