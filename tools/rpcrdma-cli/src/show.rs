//! Formats paths, modes and sizes for display.

pub(crate) use nfs_copy::file_type;

use nfs_client::printable;
use nfs_proto::{Attributes, FileType};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A local path for a terminal, as [`printable`] shows it: below a copy, its names may be those of
/// a server.
pub(crate) fn path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// Type and permissions as `ls -l` shows them.
pub(crate) fn mode(attributes: &Attributes) -> String {
    let kind = match attributes.file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Block => 'b',
        FileType::Character => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    };
    format!("{kind}{}", permissions(attributes.mode))
}

/// Permission bits as `ls -l` shows them, without the type.
pub(crate) fn permissions(mode: u32) -> String {
    let mut shown = String::new();
    // For each of user, group and others: where the bits are, the bit that changes the letter of
    // execution, and the letters with and without execution.
    for (shift, special, with, without) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        shown.push(if bits & 4 != 0 { 'r' } else { '-' });
        shown.push(if bits & 2 != 0 { 'w' } else { '-' });
        shown.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => with,
            (false, true) => without,
        });
    }
    shown
}

/// Powers of which a unit of bytes is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// `1.5M` is 1.5 * 1024 * 1024.
    Binary,
    /// `1.5M` is 1.5 * 1000 * 1000.
    Decimal,
}

impl Units {
    /// The units that the user wants, if any.
    pub(crate) fn wanted(binary: bool, decimal: bool) -> Option<Self> {
        match (binary, decimal) {
            (true, _) => Some(Self::Binary),
            (_, true) => Some(Self::Decimal),
            (false, false) => None,
        }
    }
}

/// A number of bytes, or of anything, in the unit that leaves at most four digits, rounded up as `ls -h`
/// does.
pub(crate) fn size_in(bytes: u64, units: Units) -> String {
    let (base, names) = match units {
        Units::Binary => (1024, ["", "K", "M", "G", "T", "P", "E"]),
        Units::Decimal => (1000, ["", "k", "M", "G", "T", "P", "E"]),
    };
    // Rounded once, and in the unit that is left then: 9.96K is 10K and not 10.0K.
    let mut one = 1_u128;
    for (index, name) in names.iter().enumerate() {
        let tenths = (u128::from(bytes) * 10).div_ceil(one);
        let whole = u128::from(bytes).div_ceil(one);
        let last = index + 1 == names.len();
        match index {
            0 if whole < base => return whole.to_string(),
            1.. if tenths < 100 => return format!("{}.{}{name}", tenths / 10, tenths % 10),
            1.. if whole < base || last => return format!("{whole}{name}"),
            _ => one *= base,
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::{Device, FileId, NfsTime};

    fn attributes(file_type: FileType, mode: u32) -> Attributes {
        Attributes {
            file_type,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 0,
            file_id: FileId(1),
            atime: NfsTime::default(),
            mtime: NfsTime::default(),
            ctime: NfsTime::default(),
        }
    }

    #[test]
    fn modes_are_those_of_ls() {
        let check = |file_type, bits, expected: &str| {
            assert_eq!(mode(&attributes(file_type, bits)), expected);
        };
        check(FileType::Regular, 0o644, "-rw-r--r--");
        check(FileType::Directory, 0o1777, "drwxrwxrwt");
        check(FileType::Directory, 0o1770, "drwxrwx--T");
        check(FileType::Regular, 0o4755, "-rwsr-xr-x");
        check(FileType::Regular, 0o2644, "-rw-r-Sr--");
        check(FileType::Symlink, 0o777, "lrwxrwxrwx");
        check(FileType::Fifo, 0, "p---------");
        check(FileType::Block, 0, "b---------");
        check(FileType::Character, 0, "c---------");
        check(FileType::Socket, 0, "s---------");
    }

    #[test]
    fn sizes_are_rounded_up_in_the_unit_that_fits() {
        let check = |bytes, expected: &str| assert_eq!(size_in(bytes, Units::Binary), expected);
        check(0, "0");
        check(1023, "1023");
        check(1024, "1.0K");
        check(1025, "1.1K");
        check(10 * 1024, "10K");
        check(1023 * 1024, "1023K");
        check((1 << 20) * 3 / 2, "1.5M");
        check(9 * 1024 + 1024 * 9 / 10, "9.9K");
        check(9 * 1024 + 1000, "10K");
        check(u64::MAX, "16E");
        let check = |bytes, expected: &str| assert_eq!(size_in(bytes, Units::Decimal), expected);
        check(999, "999");
        check(1000, "1.0k");
        check(1_500_001, "1.6M");
        check(999_001, "1.0M");
        check(u64::MAX, "19E");
    }
}
