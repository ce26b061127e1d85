//! The guest: Debian's kernel, siw built for it, and an initramfs with what the tests call.
//!
//! Kernel and userland are made once and kept; each lies in a folder whose name holds a hash of
//! everything it was made from, so that a change of the recipe makes a new one.

mod cpio;
pub(super) mod debian_root;
mod kernel;
mod siw;
mod userland;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Series;
use super::report::Report;

pub(super) use self::cpio::Cpio;

/// Files that QEMU boots.
pub(super) struct Image {
    pub(super) kernel: PathBuf,
    /// Everything but `/init` and the scripts, which [`super::guest`] appends.
    pub(super) initramfs: PathBuf,
    /// The file of `testing/interop/guest` that is `/init`.
    pub(super) init: &'static str,
}

/// Folders of the guest that no package brings.
const FOLDERS: [&str; 18] = [
    "dev",
    "etc",
    "export",
    "lab",
    "mnt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/sbin",
    "var",
    "var/lib",
    "var/lib/nfs",
    "var/lib/nfs/rpc_pipefs",
];

/// Links of the guest that no package brings.
const LINKS: [(&str, &str); 7] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/sbin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("var/run", "../run"),
    ("var/tmp", "../tmp"),
    ("etc/mtab", "../proc/self/mounts"),
];

/// Configuration of the guest. Everything else in `/etc` comes from packages.
const FILES: [(&str, &str); 10] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         _rpc:x:101:65534::/run/rpcbind:/usr/sbin/nologin\n\
         statd:x:102:65534::/var/lib/nfs:/usr/sbin/nologin\n\
         user:x:1000:1000::/tmp:/bin/bash\n\
         tests:x:1001:1001::/tmp:/usr/sbin/nologin\n\
         pjdfstest:x:1002:1002::/tmp:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "etc/group",
        "root:x:0:\nuser:x:1000:\ntests:x:1001:\npjdfstest:x:1002:\nnogroup:x:65534:\n",
    ),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\nrpc: files\n",
    ),
    (
        "etc/hosts",
        "127.0.0.1 localhost guest\n10.0.2.15 guest0\n10.0.2.2 host\n",
    ),
    ("etc/fstab", ""),
    ("etc/exports", ""),
    ("etc/nfs.conf", "[nfsd]\nthreads=4\n"),
    ("var/lib/nfs/etab", ""),
    ("var/lib/nfs/rmtab", ""),
    ("var/lib/nfs/state", ""),
];

/// Builds what is missing of the guest below `lab`.
///
/// # Errors
///
/// A package cannot be got, or siw does not build.
pub(super) fn ready(lab: &Path, series: Series, report: &Report) -> Result<Image> {
    let folder = lab.join(series.name());
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let kernel = kernel::ready(&folder, series, report)?;
    let userland = userland::ready(lab, report)?;
    let initramfs = folder.join("initramfs.cpio");
    pack(&initramfs, &kernel, &userland)
        .with_context(|| format!("cannot write {}", initramfs.display()))?;
    Ok(Image {
        kernel: kernel.join(kernel::IMAGE),
        initramfs,
        init: "init",
    })
}

fn pack(path: &Path, kernel: &Path, userland: &Path) -> Result<()> {
    let mut archive = Cpio::new(BufWriter::new(fs::File::create(path)?));
    for folder in FOLDERS {
        archive.folder(folder)?;
    }
    for (link, target) in LINKS {
        archive.link(link, target)?;
    }
    for (name, content) in FILES {
        archive.file(name, 0o644, content.as_bytes())?;
    }
    archive.tree("", userland)?;
    archive.tree("usr/lib/modules", &kernel.join(kernel::MODULES))?;
    archive.finish()?;
    Ok(())
}

/// A folder `NAME-HASH` in `parent`, made by `build` unless it is there; older ones of that name
/// are removed. An interrupted build leaves nothing that would be taken for a finished one.
fn cached(
    parent: &Path,
    name: &str,
    inputs: impl Hash,
    build: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    inputs.hash(&mut hasher);
    let made = parent.join(format!("{name}-{:016x}", hasher.finish()));
    if made.exists() {
        return Ok(made);
    }
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-"))
        {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let scratch = parent.join(format!("{name}-scratch"));
    let making = parent.join(format!("{name}-unfinished"));
    fs::create_dir_all(&scratch)?;
    fs::create_dir_all(&making)?;
    build(&scratch, &making)?;
    fs::remove_dir_all(&scratch)?;
    fs::rename(&making, &made)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_made_anew_only_when_inputs_change() {
        let parent = tempfile::tempdir().unwrap();
        let make = |inputs: &str| {
            let mut built = false;
            let path = cached(parent.path(), "thing", inputs, |_, made| {
                built = true;
                Ok(fs::write(made.join("inputs"), inputs)?)
            });
            assert_eq!(
                fs::read_to_string(path.unwrap().join("inputs")).unwrap(),
                inputs
            );
            built
        };
        assert!(make("one"));
        assert!(!make("one"));
        assert!(make("two"));
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn interrupted_build_is_not_mistaken_for_a_finished_one() {
        let parent = tempfile::tempdir().unwrap();
        let failed = cached(parent.path(), "thing", 1, |_, _| {
            anyhow::bail!("interrupted")
        });
        assert!(failed.is_err());
        let path = cached(parent.path(), "thing", 1, |_, made| {
            Ok(fs::write(made.join("f"), "")?)
        });
        assert!(path.unwrap().join("f").exists());
    }
}
