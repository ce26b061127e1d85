//! Names: CREATE, LOOKUP, LINK, REMOVE, RENAME, READLINK and READDIR.

use crate::limits::MAX_ENTRIES;
use crate::v4::bitmap::Bitmap;
use crate::v4::fattr::Fattr;
use crate::v4::status::Status;
use crate::v4::types::ChangeInfo;
use crate::{Cookie, CookieVerifier, Device, Filename, List, Path, Wire};
use oncrpc::xdr::{Error, Reader, Writer, padded};

/// The object that CREATE makes (`createtype4`, RFC 8881 §18.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateType<'a> {
    /// A directory.
    Directory,
    /// A block device.
    Block(Device),
    /// A character device.
    Character(Device),
    /// A symbolic link with this text, which is DDP-eligible (RFC 8267 §6.1).
    Symlink(Path<'a>),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
    /// Anything else, which CREATE cannot make: `NFS4ERR_BADTYPE`.
    Other(u32),
}

impl CreateType<'_> {
    /// Returns the number of the type.
    fn number(&self) -> u32 {
        match self {
            Self::Directory => 2,
            Self::Block(_) => 3,
            Self::Character(_) => 4,
            Self::Symlink(_) => 5,
            Self::Socket => 6,
            Self::Fifo => 7,
            Self::Other(number) => *number,
        }
    }
}

impl<'a> Wire<'a> for CreateType<'a> {
    const MAX: usize = 4 + Device::MAX;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            2 => Self::Directory,
            3 => Self::Block(Wire::parse(r)?),
            4 => Self::Character(Wire::parse(r)?),
            5 => Self::Symlink(Wire::parse(r)?),
            6 => Self::Socket,
            7 => Self::Fifo,
            number => Self::Other(number),
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u32(self.number());
        match self {
            Self::Block(device) | Self::Character(device) => device.write(w),
            Self::Symlink(text) => text.write(w),
            Self::Directory | Self::Socket | Self::Fifo | Self::Other(_) => {}
        }
    }

    fn hand_over(self, w: &mut Writer) {
        w.u32(self.number());
        match self {
            Self::Block(device) | Self::Character(device) => device.write(w),
            Self::Symlink(text) => text.hand_over(w),
            Self::Directory | Self::Socket | Self::Fifo | Self::Other(_) => {}
        }
    }
}

#[cfg(test)]
impl crate::tests::Sample for CreateType<'_> {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        match rng.below(8) {
            0 => Self::Directory,
            1 => Self::Block(crate::tests::Sample::sample(rng)),
            2 => Self::Character(crate::tests::Sample::sample(rng)),
            3 => Self::Socket,
            4 => Self::Fifo,
            5 => Self::Other(8),
            _ => Self::Symlink(crate::tests::Sample::sample(rng)),
        }
    }
}

xdr_struct! {
    /// Arguments of CREATE (RFC 8881 §18.4.1).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CreateArgs<'a> {
        /// The object.
        pub kind: CreateType<'a>,
        /// Its name in the current directory.
        pub name: Filename<'a>,
        /// Its first attributes.
        pub attributes: Fattr<'a>,
    }
}

xdr_struct! {
    /// Result of CREATE (RFC 8881 §18.4.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CreateOk {
        /// The directory before and after.
        pub change: ChangeInfo,
        /// The attributes that were set.
        pub set: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of LINK (RFC 8881 §18.9.1): of the saved file handle, in the current directory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LinkArgs<'a> {
        /// The additional name.
        pub name: Filename<'a>,
    }
}

xdr_struct! {
    /// Arguments of LOOKUP (RFC 8881 §18.13.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LookupArgs<'a> {
        /// Name in the current directory.
        pub name: Filename<'a>,
    }
}

xdr_struct! {
    /// Arguments of REMOVE (RFC 8881 §18.25.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemoveArgs<'a> {
        /// Name in the current directory.
        pub name: Filename<'a>,
    }
}

xdr_struct! {
    /// Arguments of RENAME (RFC 8881 §18.26.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameArgs<'a> {
        /// Name in the saved directory.
        pub from: Filename<'a>,
        /// Name in the current directory.
        pub to: Filename<'a>,
    }
}

xdr_struct! {
    /// Result of RENAME (RFC 8881 §18.26.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameOk {
        /// The saved directory before and after.
        pub from: ChangeInfo,
        /// The current directory before and after.
        pub to: ChangeInfo,
    }
}

xdr_struct! {
    /// Result of READLINK (RFC 8881 §18.24.2).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReadLinkOk<'a> {
        /// Text of the link. DDP-eligible (RFC 8267 §6.1).
        pub text: Path<'a>,
    }
}

xdr_struct! {
    /// Arguments of READDIR (RFC 8881 §18.23.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirArgs {
        /// From behind this place.
        pub cookie: Cookie,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
        /// Most bytes of names and cookies, as a hint; 0 is none (RFC 8881 §18.23.4).
        pub dir_count: u32,
        /// Most bytes of the whole result.
        pub max_count: u32,
        /// Attributes wanted of each entry.
        pub wanted: Bitmap,
    }
}

xdr_struct! {
    /// An entry of a directory (`entry4`, RFC 8881 §18.23.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> {
        /// The place behind this entry.
        pub cookie: Cookie,
        /// Its name.
        pub name: Filename<'a>,
        /// Its attributes.
        pub attributes: Fattr<'a>,
    }
}

xdr_struct! {
    /// Result of READDIR (RFC 8881 §18.23.2). A server builds it with [`DirectoryWriter`].
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReadDirOk<'a> {
        /// Cookie verifier to send with the next cookie.
        pub verifier: CookieVerifier,
        /// The entries.
        pub entries: List<Entry<'a>, MAX_ENTRIES>,
        /// Whether the directory ends behind them.
        pub eof: bool,
    }
}

/// Bytes after the last entry: the end of the list, and the end-of-directory flag.
const END: usize = 8;

/// Writes the `resok` of a READDIR, entry by entry until one no longer fits.
#[derive(Debug)]
#[must_use = "the result is complete only when it is finished"]
pub struct DirectoryWriter<'w> {
    writer: &'w mut Writer,
    /// Offset of the structure.
    start: usize,
    /// Most bytes of the structure.
    bytes: usize,
    /// Most bytes of names and cookies.
    names: usize,
    named: usize,
    entries: usize,
}

impl<'w> DirectoryWriter<'w> {
    /// Begins with the verifier. `bytes` is the most that all of `READDIR4resok` may have: `maxcount`,
    /// or less where the reply has less room.
    pub fn new(
        writer: &'w mut Writer,
        args: &ReadDirArgs,
        bytes: usize,
        verifier: CookieVerifier,
    ) -> Self {
        let start = writer.len();
        verifier.write(writer);
        Self {
            writer,
            start,
            bytes: bytes.min(args.max_count as usize),
            // RFC 8881 §18.23.4: zero is no hint.
            names: match args.dir_count {
                0 => usize::MAX,
                count => count as usize,
            },
            named: 0,
            entries: 0,
        }
    }

    /// Adds an entry, whose attributes `write` writes as a [`Fattr`], such as by
    /// [`write_fattr`](crate::v4::fattr::write_fattr); false if it does not fit, and the result has to end before it.
    pub fn push(
        &mut self,
        cookie: Cookie,
        name: Filename<'_>,
        write: impl FnOnce(&mut Writer),
    ) -> bool {
        let named = self.named + Cookie::MAX + 4 + padded(name.len());
        if self.entries > 0 && named > self.names {
            return false;
        }
        let before = self.writer.len();
        self.writer.bool(true);
        cookie.write(self.writer);
        name.write(self.writer);
        write(self.writer);
        if self.len() + END > self.bytes {
            self.writer.truncate(before);
            return false;
        }
        self.named = named;
        self.entries += 1;
        true
    }

    /// Ends the result; `eof` says that the directory ends here.
    ///
    /// # Errors
    ///
    /// `NFS4ERR_TOOSMALL` if there are entries and none fits (RFC 8881 §18.23.3). Nothing is written then.
    pub fn finish(self, eof: bool) -> Result<(), Status> {
        let empty_and_more = self.entries == 0 && !eof;
        if empty_and_more || self.len() + END > self.bytes {
            self.writer.truncate(self.start);
            return Err(Status::TooSmall);
        }
        self.writer.bool(false);
        self.writer.bool(eof);
        Ok(())
    }

    /// Bytes of the structure so far.
    fn len(&self) -> usize {
        self.writer.len() - self.start
    }
}
