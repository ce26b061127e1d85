//! Files and their data: ACCESS, READ, WRITE, COMMIT, attributes, and handles.

use crate::v4::bitmap::Bitmap;
use crate::v4::fattr::Fattr;
use crate::v4::status::{Outcome, Res, Status};
use crate::v4::types::{Handle, StateId};
use crate::{Data, Stable, Wire, WriteVerifier};
use oncrpc::xdr::{Error, Reader, Writer};

flags! {
    /// Access rights of a caller to an object (RFC 8881 §18.1.1, RFC 8276 §8.5). Unknown bits are
    /// kept.
    pub struct Access {
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
        /// Read extended attributes.
        const XATTR_READ = 0x0040;
        /// Write extended attributes.
        const XATTR_WRITE = 0x0080;
        /// List extended attributes.
        const XATTR_LIST = 0x0100;
    }
}

xdr_struct! {
    /// Arguments of ACCESS (RFC 8881 §18.1.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessArgs {
        /// The rights to check.
        pub access: Access,
    }
}

xdr_struct! {
    /// Result of ACCESS (RFC 8881 §18.1.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessOk {
        /// The rights that the server could check.
        pub supported: Access,
        /// Those that the caller has.
        pub access: Access,
    }
}

xdr_struct! {
    /// Arguments of COMMIT (RFC 8881 §18.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitArgs {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; 0 means to the end of the file.
        pub count: u32,
    }
}

xdr_struct! {
    /// Result of COMMIT (RFC 8881 §18.3.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitOk {
        /// Write verifier: the same as that of the WRITEs if none of their data was lost.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// Arguments of GETATTR (RFC 8881 §18.7.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAttrArgs {
        /// Attributes wanted.
        pub wanted: Bitmap,
    }
}

xdr_struct! {
    /// Result of GETATTR (RFC 8881 §18.7.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GetAttrOk<'a> {
        /// The wanted attributes that the object has.
        pub attributes: Fattr<'a>,
    }
}

xdr_struct! {
    /// Result of GETFH (RFC 8881 §18.8.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetFhOk<'a> {
        /// The current file handle.
        pub handle: Handle<'a>,
    }
}

xdr_struct! {
    /// Arguments of PUTFH (RFC 8881 §18.19.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PutFhArgs<'a> {
        /// The handle that becomes the current one.
        pub handle: Handle<'a>,
    }
}

xdr_struct! {
    /// Arguments of OPENATTR (RFC 8881 §18.17.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenAttrArgs {
        /// Whether to create the directory of named attributes.
        pub create: bool,
    }
}

xdr_struct! {
    /// Arguments of READ (RFC 8881 §18.22.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadArgs {
        /// An open, a delegation, locks, or a special state id.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub count: u32,
    }
}

xdr_struct! {
    /// Result of READ (RFC 8881 §18.22.2).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReadOk<'a> {
        /// Whether the file ends after these bytes.
        pub eof: bool,
        /// The bytes. DDP-eligible (RFC 8267 §6.1).
        pub data: Data<'a>,
    }
}

xdr_struct! {
    /// Arguments of WRITE (RFC 8881 §18.32.1).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WriteArgs<'a> {
        /// An open, a delegation, locks, or a special state id.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Data that must be on stable storage before the reply.
        pub stable: Stable,
        /// The bytes. DDP-eligible (RFC 8267 §6.1).
        pub data: Data<'a>,
    }
}

xdr_struct! {
    /// Result of WRITE (RFC 8881 §18.32.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteOk {
        /// Bytes written; may be fewer than were sent.
        pub count: u32,
        /// Stability of the data, at least as requested.
        pub committed: Stable,
        /// Changes when uncommitted data may have been lost.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// Arguments of SETATTR (RFC 8881 §18.30.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetAttrArgs<'a> {
        /// For the size: as in WRITE. Else all zero.
        pub state: StateId,
        /// The attributes to set.
        pub attributes: Fattr<'a>,
    }
}

/// Result of SETATTR (RFC 8881 §18.30.2): the only one with data beside any status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttrRes {
    /// Status.
    pub status: Res<()>,
    /// The attributes that were set, also where it failed.
    pub set: Bitmap,
}

impl Wire<'_> for SetAttrRes {
    const MAX: usize = 4 + Bitmap::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            status: Wire::parse(r)?,
            set: Wire::parse(r)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        self.status.write(w);
        self.set.write(w);
    }
}

impl Outcome<'_> for SetAttrRes {
    fn status(&self) -> Result<(), Status> {
        self.status
    }

    fn failed(status: Status) -> Self {
        Self {
            status: Err(status),
            set: Bitmap::default(),
        }
    }
}

#[cfg(test)]
impl crate::tests::Sample for SetAttrRes {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        Self {
            status: crate::tests::Sample::sample(rng),
            set: crate::tests::Sample::sample(rng),
        }
    }
}

xdr_struct! {
    /// Arguments of VERIFY and NVERIFY (RFC 8881 §18.31.1, §18.15.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VerifyArgs<'a> {
        /// The attributes to compare.
        pub attributes: Fattr<'a>,
    }
}
