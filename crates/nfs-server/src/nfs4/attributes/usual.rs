//! The attributes that Linux asks for with nearly every call, written in one piece.
//!
//! Values one by one, each in a type with room for any attribute, cost more than all else of a GETATTR.

use super::values::{Subject, file_type};
use crate::fs::{self, mode};
use nfs_proto::v4::AttributeNumber as A;
use nfs_proto::v4::Bitmap;
use oncrpc::xdr::{Writer, padded};

/// These attributes. Every file has them.
const USUAL: [A; 15] = [
    A::Type,
    A::Change,
    A::Size,
    A::FsId,
    A::FileId,
    A::Mode,
    A::NumLinks,
    A::Owner,
    A::OwnerGroup,
    A::RawDev,
    A::SpaceUsed,
    A::TimeAccess,
    A::TimeMetadata,
    A::TimeModify,
    A::MountedOnFileId,
];

/// Their numbers as the first two words of a bitmap.
const WORDS: [u32; 2] = {
    let mut words = [0; 2];
    let mut at = 0;
    while at < USUAL.len() {
        let number = USUAL[at] as u32;
        words[number as usize / 32] |= 1 << (number % 32);
        at += 1;
    }
    words
};

/// Whether none but these attributes are wanted.
pub(super) fn covers(wanted: &Bitmap) -> bool {
    let mut words = wanted.words().iter().enumerate();
    words.all(|(at, &word)| word & !WORDS.get(at).copied().unwrap_or(0) == 0)
}

/// Most bytes of a `fattr4`: bitmap, length, numbers, and two decimal numbers of 10 digits with their lengths.
const MOST: usize =
    (1 + WORDS.len()) * 4 + 4 + 4 + 8 + 8 + 16 + 8 + 4 + 4 + 2 * 16 + 8 + 8 + 3 * 12 + 8;

/// Values that are collected.
struct Values {
    bytes: [u8; MOST],
    len: usize,
}

impl Values {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
    }

    fn u32(&mut self, value: u32) {
        self.put(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.put(value.to_be_bytes());
    }

    fn time(&mut self, time: fs::Time) {
        self.u64(time.seconds.cast_unsigned());
        self.u32(time.nanos);
    }

    /// Writes a number as a string.
    fn decimal(&mut self, mut id: u32) {
        let digits = id.checked_ilog10().map_or(1, |last| last + 1);
        self.u32(digits);
        let start = self.len;
        self.len += padded(digits as usize);
        // The padding is zero.
        for digit in self.bytes[start..start + digits as usize].iter_mut().rev() {
            *digit = b'0' + (id % 10).to_le_bytes()[0];
            id /= 10;
        }
    }
}

/// Writes a `fattr4` of wanted attributes that are all among these.
pub(super) fn write(w: &mut Writer, wanted: &Bitmap, subject: &Subject<'_>) {
    let file = subject.attributes;
    let mut values = Values {
        bytes: [0; MOST],
        len: 0,
    };
    let words = wanted.words();
    values.u32(u32::try_from(words.len()).unwrap_or(0));
    words.iter().for_each(|&word| values.u32(word));
    // Their length is written when it is known.
    values.u32(0);
    let start = values.len;
    let has = |number: A| wanted.contains(number as u32);
    // In the order of their numbers.
    if has(A::Type) {
        values.u32(file_type(file.kind) as u32);
    }
    if has(A::Change) {
        values.u64(file.change);
    }
    if has(A::Size) {
        values.u64(file.size);
    }
    if has(A::FsId) {
        values.u64(subject.fsid.major);
        values.u64(subject.fsid.minor);
    }
    if has(A::FileId) {
        values.u64(file.fileid);
    }
    if has(A::Mode) {
        // RFC 8881 §6.2.4: no other bits.
        values.u32(file.mode & mode::ALL);
    }
    if has(A::NumLinks) {
        values.u32(file.links);
    }
    if has(A::Owner) {
        values.decimal(file.uid);
    }
    if has(A::OwnerGroup) {
        values.decimal(file.gid);
    }
    if has(A::RawDev) {
        values.u32(file.device.0);
        values.u32(file.device.1);
    }
    if has(A::SpaceUsed) {
        values.u64(file.used);
    }
    if has(A::TimeAccess) {
        values.time(file.atime);
    }
    if has(A::TimeMetadata) {
        values.time(file.ctime);
    }
    if has(A::TimeModify) {
        values.time(file.mtime);
    }
    if has(A::MountedOnFileId) {
        values.u64(subject.mounted_on);
    }
    let len = u32::try_from(values.len - start).unwrap_or(0);
    values.bytes[start - 4..start].copy_from_slice(&len.to_be_bytes());
    w.fixed(&values.bytes[..values.len]);
}
