//! Archives in the kernel's initramfs format, cpio "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;

/// The name that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// Writes an archive, everything in it owned by root. Archives may follow each other in one
/// initramfs; a later one adds to or replaces what the earlier ones brought.
pub(crate) struct Cpio<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Cpio<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    pub(crate) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, FOLDER, &[])
    }

    pub(crate) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.entry(name, LINK, target.as_bytes())
    }

    pub(crate) fn file(&mut self, name: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | permissions, content)
    }

    /// Everything below a folder of the host, in the order of names.
    pub(crate) fn tree(&mut self, name: &str, folder: &Path) -> io::Result<()> {
        if !name.is_empty() {
            self.folder(name)?;
        }
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let file_name = entry.file_name();
            let file_name = file_name.to_string_lossy();
            let inside = if name.is_empty() {
                file_name.into_owned()
            } else {
                format!("{name}/{file_name}")
            };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.tree(&inside, &entry.path())?;
            } else if kind.is_symlink() {
                self.link(&inside, &fs::read_link(entry.path())?.to_string_lossy())?;
            } else {
                let permissions = entry.metadata()?.permissions().mode() & 0o777;
                self.file(&inside, permissions, &fs::read(entry.path())?)?;
            }
        }
        Ok(())
    }

    /// Ends the archive, on a boundary at which another may begin.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        write!(self.out, "070701")?;
        // Inode, mode, uid, gid, links, mtime, size, device, special device, name's size, checksum.
        for field in [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(HEADER + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, length: usize) -> io::Result<()> {
        self.out
            .write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

/// Bytes of an entry before its name.
const HEADER: usize = 110;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_laid_out_as_the_kernel_reads_it() {
        let mut archive = Cpio::new(Vec::new());
        archive.file("ab", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000081ed");
        // The size is the seventh field, the name's size, with its zero, the twelfth.
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[94..102], b"00000003");
        assert_eq!(&bytes[HEADER..HEADER + 10], b"ab\0\0\0\0hell");
    }

    #[test]
    fn entries_and_archives_begin_at_multiples_of_four() {
        for name in ["a", "ab", "abc", "abcd"] {
            for size in 0..5 {
                let mut archive = Cpio::new(Vec::new());
                archive.file(name, 0o644, &vec![1; size]).unwrap();
                assert_eq!(archive.finish().unwrap().len() % 4, 0);
            }
        }
    }

    #[test]
    fn tree_holds_folders_files_and_links() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/file"), "content").unwrap();
        std::os::unix::fs::symlink("file", folder.path().join("sub/link")).unwrap();
        let mut archive = Cpio::new(Vec::new());
        archive.tree("top", folder.path()).unwrap();
        let text = String::from_utf8(archive.finish().unwrap()).unwrap();
        let at = |needle: &str| {
            text.find(needle)
                .unwrap_or_else(|| panic!("{needle} is missing"))
        };
        assert!(at("top\0") < at("top/sub\0"));
        assert!(at("top/sub\0") < at("top/sub/file\0"));
        assert!(at("top/sub/file\0") < at("content"));
        assert!(at("content") < at("top/sub/link\0"));
    }
}
