//! The attributes that Linux asks for with nearly every call, written in one piece.
//!
//! Values one by one, each in a type with room for any attribute, cost more than all else of a GETATTR.

use super::values::{Subject, file_type};
use crate::fs::{self, mode};
use crate::nfs4::owners::Decimal;
use nfs_proto::Wire;
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

/// Most bytes of all values: numbers, and two decimal numbers of 10 digits with their lengths.
const MOST: usize = 4 + 8 + 8 + 16 + 8 + 4 + 4 + 2 * 16 + 8 + 8 + 3 * 12 + 8;

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

    fn decimal(&mut self, id: u32) {
        let text = Decimal::new(id);
        let text = text.as_bytes();
        self.u32(u32::try_from(text.len()).unwrap_or(0));
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        // The rest is zero.
        self.len += padded(text.len());
    }
}

/// Writes a `fattr4` of wanted attributes that are all among these.
pub(super) fn write(w: &mut Writer, wanted: &Bitmap, subject: &Subject<'_>) {
    let file = subject.attributes;
    let mut values = Values {
        bytes: [0; MOST],
        len: 0,
    };
    let has = |number: A| wanted.contains(number as u32);
    for number in USUAL.into_iter().filter(|&number| has(number)) {
        match number {
            A::Type => values.u32(file_type(file.kind) as u32),
            A::Change => values.u64(file.change),
            A::Size => values.u64(file.size),
            A::FsId => {
                values.u64(subject.fsid.major);
                values.u64(subject.fsid.minor);
            }
            A::FileId => values.u64(file.fileid),
            // RFC 8881 §6.2.4: no other bits.
            A::Mode => values.u32(file.mode & mode::ALL),
            A::NumLinks => values.u32(file.links),
            A::Owner => values.decimal(file.uid),
            A::OwnerGroup => values.decimal(file.gid),
            A::RawDev => {
                values.u32(file.device.0);
                values.u32(file.device.1);
            }
            A::SpaceUsed => values.u64(file.used),
            A::TimeAccess => values.time(file.atime),
            A::TimeMetadata => values.time(file.ctime),
            A::TimeModify => values.time(file.mtime),
            A::MountedOnFileId => values.u64(subject.mounted_on),
            _ => {}
        }
    }
    wanted.write(w);
    w.opaque(&values.bytes[..values.len]);
}
