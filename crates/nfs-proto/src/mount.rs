//! MOUNT version 3 (RFC 1813 §5): from the path of an export to its file handle.

use crate::limits::{MAX_EXPORT_PATH, MAX_FLAVORS, MAX_GROUPS, MAX_MOUNT_ENTRIES, MAX_MOUNT_NAME};
use crate::{Bytes, FileHandle, List, Wire};
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;

/// Path of a directory on the server (`dirpath`): any bytes.
pub type DirPath<'a> = Bytes<'a, MAX_EXPORT_PATH>;

/// Name of a host or a group of hosts (`name`): any bytes.
pub type HostName<'a> = Bytes<'a, MAX_MOUNT_NAME>;

xdr_enum! {
    /// An error of `mountstat3`. `MNT3_OK` is not among them: that is `Ok`.
    pub enum MountStatus ("mountstat3") {
        /// `MNT3ERR_PERM`: not allowed.
        Perm = 1,
        /// `MNT3ERR_NOENT`: no such directory.
        NoEntry = 2,
        /// `MNT3ERR_IO`: a hard error of the device.
        Io = 5,
        /// `MNT3ERR_ACCES`: not exported, or not to this caller.
        Access = 13,
        /// `MNT3ERR_NOTDIR`: not a directory.
        NotDirectory = 20,
        /// `MNT3ERR_INVAL`: an invalid argument.
        Invalid = 22,
        /// `MNT3ERR_NAMETOOLONG`: the path is too long.
        NameTooLong = 63,
        /// `MNT3ERR_NOTSUPP`: not supported.
        NotSupported = 10004,
        /// `MNT3ERR_SERVERFAULT`: an error without a code of its own.
        ServerFault = 10006,
    }
}

impl MountStatus {
    /// Description for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Perm => "not permitted",
            Self::NoEntry => "no such export",
            Self::Io => "input/output error on the server",
            Self::Access => "not exported to this client",
            Self::NotDirectory => "not a directory",
            Self::Invalid => "invalid argument",
            Self::NameTooLong => "path too long",
            Self::NotSupported => "not supported by the server",
            Self::ServerFault => "the server failed",
        }
    }
}

impl fmt::Display for MountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for MountStatus {}

macro_rules! no_arguments {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name;

        impl Wire<'_> for $name {
            const MAX: usize = 0;

            fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
                Ok(Self)
            }

            fn write(&self, _: &mut Writer) {}
        }
    };
}

no_arguments! {
    /// Arguments of NULL (RFC 1813 §5.2.0).
    Null
}
no_arguments! {
    /// Arguments of DUMP (RFC 1813 §5.2.2).
    Dump
}
no_arguments! {
    /// Arguments of UMNTALL (RFC 1813 §5.2.4).
    UnmountAll
}
no_arguments! {
    /// Arguments of EXPORT (RFC 1813 §5.2.5).
    Export
}

xdr_struct! {
    /// Arguments of MNT (RFC 1813 §5.2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mount<'a> {
        /// Path of the export.
        pub path: DirPath<'a>,
    }
}

xdr_struct! {
    /// Arguments of UMNT (RFC 1813 §5.2.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Unmount<'a> {
        /// Path of the export.
        pub path: DirPath<'a>,
    }
}

/// Result of MNT (`mountres3_ok`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Handle of the directory.
    pub handle: FileHandle,
    /// Authentication flavours that can be used with it, best first.
    pub flavors: Vec<u32>,
}

impl Wire<'_> for Mounted {
    const MAX: usize = FileHandle::MAX + 4 + 4 * MAX_FLAVORS as usize;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            handle: FileHandle::parse(r)?,
            flavors: r.vec(MAX_FLAVORS, Reader::u32)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        self.handle.write(w);
        w.length(self.flavors.len());
        for flavor in &self.flavors {
            w.u32(*flavor);
        }
    }
}

/// The union `mountres3`.
impl Wire<'_> for Result<Mounted, MountStatus> {
    const MAX: usize = 4 + Mounted::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            0 => Mounted::parse(r).map(Ok),
            status => Ok(Err(status.try_into()?)),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Ok(mounted) => {
                w.u32(0);
                mounted.write(w);
            }
            Err(status) => status.write(w),
        }
    }
}

xdr_struct! {
    /// A directory that somebody has mounted (`mountbody`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MountEntry<'a> {
        /// The client.
        pub host: HostName<'a>,
        /// The path.
        pub path: DirPath<'a>,
    }
}

/// Result of DUMP (`mountlist`).
pub type MountList<'a> = List<MountEntry<'a>, MAX_MOUNT_ENTRIES>;

xdr_struct! {
    /// A directory that can be mounted (`exportnode`).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ExportEntry<'a> {
        /// The path.
        pub path: DirPath<'a>,
        /// Names of the allowed clients; empty if every client is allowed.
        pub groups: List<HostName<'a>, MAX_GROUPS>,
    }
}

/// Result of EXPORT (`exports`).
pub type ExportList<'a> = List<ExportEntry<'a>, MAX_MOUNT_ENTRIES>;
