//! Formats paths, modes, sizes and times for display.

use nfs_client::printable;
use nfs_proto::{Attributes, FileType, NfsTime};
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
    let mut shown = String::from(kind);
    // For each of user, group and others: where the bits are, the bit that changes the letter of
    // execution, and the letters with and without execution.
    for (shift, special, with, without) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = attributes.mode >> shift;
        shown.push(if bits & 4 != 0 { 'r' } else { '-' });
        shown.push(if bits & 2 != 0 { 'w' } else { '-' });
        shown.push(match (bits & 1 != 0, attributes.mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => with,
            (false, true) => without,
        });
    }
    shown
}

/// What a file is, in one or two words.
pub(crate) fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symlink",
        FileType::Socket => "socket",
        FileType::Fifo => "fifo",
    }
}

/// Bytes in the unit that leaves at most four digits, such as `1.5M`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    if unit == 0 || tenths >= 100 {
        format!("{}{}", tenths.div_ceil(10), UNITS[unit])
    } else {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    }
}

/// A time of day and its date, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Calendar {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

/// A time as `2026-11-20 10:34`, in UTC.
pub(crate) fn time(time: NfsTime) -> String {
    let at = calendar(time.seconds);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}",
        at.year, at.month, at.day, at.hour, at.minute
    )
}

/// A time in full (RFC 3339), in UTC.
pub(crate) fn time_in_full(time: NfsTime) -> String {
    let at = calendar(time.seconds);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z",
        at.year, at.month, at.day, at.hour, at.minute, at.second, time.nanoseconds
    )
}

/// The Gregorian calendar, counted year by year and month by month from 1970.
fn calendar(seconds: u32) -> Calendar {
    let leap = |year: u32| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let mut month = 1;
    for length in [
        31,
        if leap(year) { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    Calendar {
        year,
        month,
        day: days + 1,
        hour: second_of_day / 3600,
        minute: second_of_day / 60 % 60,
        second: second_of_day % 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::{Device, FileId};

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
        let check = |bytes, expected: &str| assert_eq!(size(bytes), expected);
        check(0, "0");
        check(1023, "1023");
        check(1024, "1.0K");
        check(1025, "1.1K");
        check(10 * 1024, "10K");
        check(1023 * 1024, "1023K");
        check((1 << 20) * 3 / 2, "1.5M");
        check(u64::MAX, "16E");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |seconds, expected: &str| {
            let at = NfsTime {
                seconds,
                nanoseconds: 5,
            };
            assert_eq!(time_in_full(at), expected);
        };
        check(0, "1970-01-01T00:00:00.000000005Z");
        check(951_782_399, "2000-02-28T23:59:59.000000005Z");
        check(951_782_400, "2000-02-29T00:00:00.000000005Z");
        check(1_735_689_599, "2024-12-31T23:59:59.000000005Z");
        check(u32::MAX, "2106-02-07T06:28:15.000000005Z");
        assert_eq!(
            time(NfsTime {
                seconds: 1_735_689_599,
                nanoseconds: 0
            }),
            "2024-12-31 23:59"
        );
    }
}
