//! Newtypes for numbers and verifiers (RFC 1813 §2.5).

use crate::Wire;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl Wire<'_> for $name {
            const MAX: usize = 8;

            fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
                r.u64().map(Self)
            }

            fn write(&self, w: &mut Writer) {
                w.u64(self.0);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! verifier {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; 8]);

        impl Wire<'_> for $name {
            const MAX: usize = 8;

            fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
                r.fixed().map(Self)
            }

            fn write(&self, w: &mut Writer) {
                w.fixed(&self.0);
            }
        }
    };
}

number! {
    /// A file's number within its file system (`fileid3`). Servers avoid 0 (RFC 1813 §3.3.16).
    FileId
}
number! {
    /// Position in a directory (`cookie3`), opaque to clients; 0 is the beginning.
    Cookie
}
verifier! {
    /// Cookie verifier: shows whether the cookies of a directory are still valid (`cookieverf3`);
    /// zero with cookie 0.
    CookieVerifier
}
verifier! {
    /// Makes an exclusive CREATE safe to repeat (`createverf3`).
    CreateVerifier
}
verifier! {
    /// Changes when a server may have lost uncommitted data (`writeverf3`, RFC 1813 §3.3.7).
    WriteVerifier
}

xdr_enum! {
    /// Stability of the data of a WRITE before the reply (RFC 1813 §3.3.7), in ascending order.
    pub enum Stable ("stable_how") {
        /// Not stable; a COMMIT follows.
        Unstable = 0,
        /// The data, and of the metadata what is needed to find it.
        DataSync = 1,
        /// Data and metadata.
        FileSync = 2,
    }
}

macro_rules! wire_flags {
    ($name:ident) => {
        impl Wire<'_> for $name {
            const MAX: usize = 4;

            fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
                r.u32().map(Self::from_bits_retain)
            }

            fn write(&self, w: &mut Writer) {
                w.u32(self.bits());
            }
        }
    };
}

bitflags::bitflags! {
    /// Access rights of a caller to an object (RFC 1813 §3.3.4). Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Read data of a file, or the entries of a directory.
        const READ = 0x0001;
        /// Look up a name in a directory.
        const LOOKUP = 0x0002;
        /// Rewrite existing data of a file, or change entries of a directory.
        const MODIFY = 0x0004;
        /// Write new data, or add entries.
        const EXTEND = 0x0008;
        /// Delete an entry of a directory.
        const DELETE = 0x0010;
        /// Execute a file.
        const EXECUTE = 0x0020;
    }
}
wire_flags!(Access);

bitflags::bitflags! {
    /// Properties of a file system (RFC 1813 §3.3.19). Unknown bits are kept.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsProperties: u32 {
        /// Hard links.
        const LINK = 0x0001;
        /// Symbolic links.
        const SYMLINK = 0x0002;
        /// PATHCONF is the same for every object.
        const HOMOGENEOUS = 0x0008;
        /// SETATTR can set times to those of a client.
        const CANSETTIME = 0x0010;
    }
}
wire_flags!(FsProperties);
