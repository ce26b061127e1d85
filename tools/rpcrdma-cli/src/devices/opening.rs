//! Why programs cannot open an RDMA device, and what to do.

use crate::failure::plain;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Advice where libibverbs does not know a device of the kernel.
pub(super) const NO_DRIVER: &str = "libibverbs has no driver for it (install ibverbs-providers on Debian and Ubuntu, \
                         libibverbs on Fedora and RHEL)";

/// Advice where the file of a device cannot be opened.
const NO_PERMISSION: &str =
    "`ls -l /dev/infiniband` shows whom it permits; rdma_cm beside it is needed too";
const NO_FILE: &str =
    "`modprobe ib_uverbs` and udev make it; a container has to be given it, and rdma_cm beside it";

/// Why libibverbs does not list a device of the kernel.
pub(super) fn why_unlisted(name: &str) -> String {
    explain_unlisted(device_file(name).as_deref())
}

fn explain_unlisted(file: Option<&Path>) -> String {
    match file {
        Some(file) if !file.exists() => format!("there is no {} ({NO_FILE})", file.display()),
        _ => NO_DRIVER.to_owned(),
    }
}

/// Why a device cannot be opened, and what to do.
pub(super) fn why_not_open(name: &str, error: &io::Error) -> String {
    explain_not_open(device_file(name).as_deref(), error)
}

/// The file by which programs use a device.
fn device_file(name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/infiniband_verbs").ok()?;
    let of_device = |entry: &DirEntry| {
        let device = fs::read_to_string(entry.path().join("ibdev"));
        device.is_ok_and(|device| device.trim_end() == name)
    };
    let entry = entries.flatten().find(of_device)?;
    Some(Path::new("/dev/infiniband").join(entry.file_name()))
}

/// The error of libibverbs is another one if there is no permission for the file, so the file is opened.
fn explain_not_open(file: Option<&Path>, error: &io::Error) -> String {
    let opened = file.map(|file| (file, File::options().read(true).write(true).open(file)));
    match opened {
        Some((file, Err(error))) if error.kind() == ErrorKind::PermissionDenied => {
            let error = plain(&error);
            format!("{}: {error} ({NO_PERMISSION})", file.display())
        }
        _ => format!("cannot open it: {}", plain(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_without_its_file_is_reported_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, there) = (dir.path().join("uverbs0"), dir.path().join("uverbs1"));
        File::create(&there).unwrap();
        let text = explain_unlisted(Some(&missing));
        let expected = format!("there is no {} (`modprobe ib_uverbs`", missing.display());
        assert!(text.starts_with(&expected), "{text}");
        assert_eq!(explain_unlisted(Some(&there)), NO_DRIVER);
        assert_eq!(explain_unlisted(None), NO_DRIVER);
        let error = io::Error::from_raw_os_error(12);
        for file in [None, Some(&*there)] {
            let text = explain_not_open(file, &error);
            assert_eq!(text, "cannot open it: Cannot allocate memory");
        }
    }
}
