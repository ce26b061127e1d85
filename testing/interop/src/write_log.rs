//! The log of a disk's writes that the kernel's device mapper target `log-writes` makes
//! (`Documentation/admin-guide/device-mapper/log-writes.rst`), and what was on the disk at any point of it.
//!
//! A write is in the log when a flush has put it on the disk, or its own FUA bit has. So the entries before a
//! point are what is left when the power fails there and the cache of the disk with it. Marks are put in by
//! programs, and are entries too.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// Number in the first sector, from the kernel's source.
const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;

/// Bytes of a sector, which is what the log counts in for disks that do.
const SECTOR: usize = 512;

/// Flags of an entry.
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// The mark that the kernel makes when the target is removed: without it the log is not whole.
const END: &str = "dm-log-writes-end";

/// Bytes that are looked at together when what is not zero is looked for.
const PIECE: usize = 64 << 10;

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry<'a> {
    /// Data at a position of the disk.
    Write { at: u64, data: &'a [u8] },
    /// So many bytes from a position on were given up.
    Discard { at: u64, bytes: u64 },
    /// Mark of a program.
    Mark(&'a str),
}

/// Reads all entries of a log, without the mark at its end.
///
/// # Errors
///
/// It is no log, or not whole.
pub(super) fn read(log: &[u8]) -> Result<Vec<Entry<'_>>> {
    let mut rest = Sectors(log);
    let head = rest.take(1).context("no first sector")?;
    ensure!(
        word(head, 0) == MAGIC && word(head, 1) == VERSION,
        "no log of writes"
    );
    let sector = u32::from_le_bytes(head[24..28].try_into()?);
    ensure!(
        sector as usize == SECTOR,
        "a log in sectors of {sector} bytes"
    );
    let count = usize::try_from(word(head, 2))?;
    let mut entries = Vec::new();
    for number in 0..count {
        let entry = entry(&mut rest).with_context(|| format!("entry {number} of {count}"))?;
        entries.push(entry);
    }
    match entries.pop() {
        Some(Entry::Mark(END)) => Ok(entries),
        _ => bail!("the log has no end: was its disk too small?"),
    }
}

fn entry<'a>(rest: &mut Sectors<'a>) -> Result<Entry<'a>> {
    let head = rest.take(1).context("the log is too short")?;
    let (at, sectors, flags, length) = (word(head, 0), word(head, 1), word(head, 2), word(head, 3));
    let at = at * SECTOR as u64;
    if flags & MARK != 0 {
        let text = head.get(32..32 + usize::try_from(length)?);
        let text = text.context("a mark longer than its sector")?;
        return Ok(Entry::Mark(str::from_utf8(text)?));
    }
    if flags & DISCARD != 0 {
        let bytes = sectors * SECTOR as u64;
        return Ok(Entry::Discard { at, bytes });
    }
    let data = rest.take(usize::try_from(sectors)?);
    let data = data.context("the log is too short")?;
    Ok(Entry::Write { at, data })
}

/// A little-endian word of 64 bits of a sector, by its number.
fn word(sector: &[u8], number: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&sector[8 * number..8 * number + 8]);
    u64::from_le_bytes(word)
}

/// Rest of a log to read.
struct Sectors<'a>(&'a [u8]);

impl<'a> Sectors<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count.checked_mul(SECTOR)?)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Content of a disk: all that is not zero, by position.
pub(super) struct Content {
    size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Content {
    /// Reads the image of a disk.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn read(disk: &Path) -> Result<Self> {
        let mut file = File::open(disk)?;
        let size = file.metadata()?.len();
        let mut pieces = Vec::new();
        let mut piece = vec![0; PIECE];
        for at in (0..size).step_by(PIECE) {
            let length = usize::try_from(size - at)?.min(PIECE);
            file.read_exact(&mut piece[..length])?;
            if piece[..length].iter().any(|&byte| byte != 0) {
                pieces.push((at, piece[..length].to_vec()));
            }
        }
        Ok(Self { size, pieces })
    }

    /// Has the image of a disk hold this content with these writes behind it, and nothing else.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the disk is smaller than a write says.
    pub(super) fn restore(&self, disk: &Path, writes: &[Entry<'_>]) -> Result<()> {
        let file = File::options().write(true).open(disk)?;
        file.set_len(0)?;
        file.set_len(self.size)?;
        let put = |at: u64, data: &[u8]| -> Result<()> {
            ensure!(
                at + data.len() as u64 <= self.size,
                "a write behind the end"
            );
            Ok(file.write_all_at(data, at)?)
        };
        for (at, piece) in &self.pieces {
            put(*at, piece)?;
        }
        for write in writes {
            match write {
                Entry::Write { at, data } => put(*at, data)?,
                Entry::Discard { at, bytes } => put(*at, &vec![0; usize::try_from(*bytes)?])?,
                Entry::Mark(_) => {}
            }
        }
        Ok(())
    }
}

/// Makes an empty image of a disk, or empties one.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn blank(disk: &Path, bytes: u64) -> Result<()> {
    // Another machine may have it open: it stays the same file.
    fs::write(disk, "")?;
    Ok(File::options().write(true).open(disk)?.set_len(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(words: &[u64], text: &str) -> Vec<u8> {
        let mut sector: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        sector.extend_from_slice(text.as_bytes());
        sector.resize(SECTOR, 0);
        sector
    }

    /// A log with a write of two sectors, a mark and a discard.
    fn log() -> Vec<u8> {
        [
            sector(&[MAGIC, VERSION, 4, SECTOR as u64], ""),
            sector(&[3, 2, 1, 0], ""),
            vec![7; 2 * SECTOR],
            sector(&[0, 0, MARK, 5], "a,b,c"),
            sector(&[4, 2, DISCARD, 0], ""),
            sector(&[0, 0, MARK, END.len() as u64], END),
        ]
        .concat()
    }

    #[test]
    fn log_is_read_to_its_end() {
        let expected = [
            Entry::Write {
                at: 3 * 512,
                data: &[7; 1024],
            },
            Entry::Mark("a,b,c"),
            Entry::Discard {
                at: 4 * 512,
                bytes: 1024,
            },
        ];
        assert_eq!(read(&log()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_whole_log_is_refused() {
        let log = log();
        for length in [0, 511, 512, 3 * 512, log.len() - 1] {
            assert!(read(&log[..length]).is_err(), "{length}");
        }
        let mut fewer = log.clone();
        fewer[16] = 3;
        assert!(read(&fewer).is_err());
        for byte in [0, 8, 24] {
            let mut other = log.clone();
            other[byte] ^= 1;
            assert!(read(&other).is_err(), "{byte}");
        }
    }

    #[test]
    fn disk_is_what_was_on_it_and_the_writes_before_a_point() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let size = PIECE + 3 * SECTOR;
        blank(&disk, size as u64).unwrap();
        let file = File::options().write(true).open(&disk).unwrap();
        file.write_all_at(&[1], PIECE as u64 + 5).unwrap();
        let content = Content::read(&disk).unwrap();
        let log = log();
        let log = read(&log).unwrap();
        file.write_all_at(&[9; 4096], 0).unwrap();
        for writes in 0..=log.len() {
            content.restore(&disk, &log[..writes]).unwrap();
            let mut expected = vec![0; size];
            expected[PIECE + 5] = 1;
            if writes >= 1 {
                expected[3 * 512..5 * 512].fill(7);
            }
            if writes >= 3 {
                expected[4 * 512..6 * 512].fill(0);
            }
            assert!(fs::read(&disk).unwrap() == expected, "{writes}");
        }
        let outside = Entry::Write {
            at: size as u64 - 1,
            data: &[1; 2],
        };
        assert!(content.restore(&disk, &[outside]).is_err());
    }
}
