//! A whole Debian in which packages are installed, also with systemd for its init.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use tar::{Archive, EntryType};

use super::{Cpio, Image, cached, kernel};
use crate::packages::tool;
use programs::command::output;

/// Purpose of a Debian.
pub struct Purpose {
    name: &'static str,
    /// Packages beside those that every Debian has.
    packages: &'static [&'static str],
    /// Files that nobody needs there, and that a guest would have in its memory.
    left_out: &'static [&'static str],
}

/// To be booted in the guest.
pub(crate) const GUEST: Purpose = Purpose {
    name: "debian-guest",
    packages: &[
        "iproute2",
        "kmod",
        "netbase",
        "nfs-common",
        "procps",
        "systemd",
        "systemd-sysv",
    ],
    left_out: &[
        "usr/lib/python3*",
        "usr/lib/x86_64-linux-gnu/gconv",
        "usr/share/doc",
        "usr/share/i18n",
        "usr/share/info",
        "usr/share/locale",
        "usr/share/man",
        "var/cache/apt",
        "var/lib/apt",
    ],
};

/// To install a package and look at it.
pub const CHROOT: Purpose = Purpose {
    name: "debian-chroot",
    packages: &["man-db"],
    left_out: &[],
};

/// Paths of apt's own sources, of which the first that is there is used.
const SOURCES: [&str; 2] = [
    "/etc/apt/sources.list.d/debian.sources",
    "/etc/apt/sources.list",
];

/// The archive in the folder that [`ready`] returns.
const ARCHIVE: &str = "root.tar";

/// To be changed when the code here makes something else of the same lists.
const RECIPE: u32 = 1;

/// The archive (tar) of a Debian of the same release as this machine's, made below `parent` if need be.
///
/// # Errors
///
/// `mmdebstrap` fails, as when the archive cannot be reached.
pub(crate) fn ready(parent: &Path, purpose: &Purpose, say: impl Fn(&str)) -> Result<PathBuf> {
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("this machine's release has no code name")?;
    let Purpose {
        name,
        packages,
        left_out,
    } = purpose;
    let inputs = (RECIPE, suite, packages, left_out);
    let folder = cached(parent, name, inputs, |_, made| {
        say("a clean Debian, with mmdebstrap");
        let mut make = tool("mmdebstrap");
        make.args(["--quiet", "--variant=minbase"])
            .arg(format!("--include={}", packages.join(",")));
        for path in *left_out {
            make.arg(format!("--customize-hook=rm -rf \"$1\"/{path}"));
        }
        make.arg(suite).arg(made.join(ARCHIVE));
        make.args(SOURCES.iter().find(|path| Path::new(path).exists()));
        output(&mut make)?;
        Ok(())
    })?;
    Ok(folder.join(ARCHIVE))
}

/// Makes the files that QEMU boots to have that Debian with the kernel of `image`, in `folder`.
///
/// # Errors
///
/// Something cannot be read or written.
pub(crate) fn image(root: &Path, image: &Image, folder: &Path) -> Result<Image> {
    let initramfs = folder.join("debian.cpio");
    let mut archive = Cpio::new(BufWriter::new(File::create(&initramfs)?));
    add(&mut archive, root).with_context(|| format!("cannot pack {}", root.display()))?;
    let modules = image.kernel.with_file_name(kernel::MODULES);
    archive.tree("usr/lib/modules", &modules)?;
    archive.folder("lab")?;
    archive.finish()?;
    Ok(Image {
        kernel: image.kernel.clone(),
        initramfs,
        init: "init-systemd",
    })
}

/// Copies an archive to another. All belongs to root then, and a further name of a file is a link to it.
fn add<W: Write>(to: &mut Cpio<W>, tar: &Path) -> Result<()> {
    let mut archive = Archive::new(BufReader::new(File::open(tar)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?);
        if path.is_empty() {
            continue;
        }
        let target = entry
            .link_name()?
            .map(|target| target.to_string_lossy().into_owned());
        let target = || target.clone().context("a link to nothing");
        match entry.header().entry_type() {
            EntryType::Directory => to.folder(&path)?,
            EntryType::Symlink => to.link(&path, &target()?)?,
            EntryType::Link => to.link(&path, &format!("/{}", inside(Path::new(&target()?))))?,
            EntryType::Regular => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content)?;
                let mode = entry.header().mode()? & 0o777;
                to.file(&path, mode, &content)?;
            }
            // The guest has a /dev of its own.
            EntryType::Char | EntryType::Block => {}
            other => bail!("{path} is a {other:?}"),
        }
    }
    Ok(())
}

/// A path as archives for the kernel have it: without what stands for the root.
fn inside(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_copied_without_devices_and_with_links_for_further_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.tar");
        let mut tar = tar::Builder::new(File::create(&path).unwrap());
        let mut entry = |kind, name: &str, target: Option<&str>, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o4755);
            header.set_size(content.len() as u64);
            match target {
                Some(target) => tar.append_link(&mut header, name, target).unwrap(),
                None => tar.append_data(&mut header, name, content).unwrap(),
            }
        };
        entry(EntryType::Directory, "./usr/", None, b"");
        entry(EntryType::Regular, "./usr/perl", None, b"content");
        entry(EntryType::Link, "./usr/perl5", Some("./usr/perl"), b"");
        entry(EntryType::Symlink, "./bin", Some("usr/bin"), b"");
        entry(EntryType::Char, "./dev/null", None, b"");
        tar.finish().unwrap();
        drop(tar);
        let mut cpio = Cpio::new(Vec::new());
        add(&mut cpio, &path).unwrap();
        let text = String::from_utf8(cpio.finish().unwrap()).unwrap();
        for part in [
            "usr/perl\0",
            "content",
            "usr/perl5\0",
            "/usr/perl",
            "bin\0",
            "usr/bin",
        ] {
            assert!(text.contains(part), "{part}");
        }
        // A file without the bits that would have it run as its owner.
        assert!(text.contains("000081ed") && !text.contains("dev/null"));
    }
}
