//! Results of the procedures of NFS version 3 (RFC 1813 §3.3). Each type has the name of its
//! procedure.
//!
//! The structures are the `resok` of the RFC. The complete result is [`Res`]: the status, then such
//! a structure or `resfail`, which usually has attributes or [`WccData`].

use crate::limits::MAX_ENTRIES;
use crate::{
    Attributes, Cookie, CookieVerifier, Data, Failed, FileHandle, FileId, Filename, FsProperties,
    List, NfsTime, Path, Stable, WccData, WriteVerifier,
};

/// Result of a procedure: `resok`, or a status with `resfail`.
pub type Res<T, F> = Result<T, Failed<F>>;

xdr_struct! {
    /// GETATTR (RFC 1813 §3.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAttr {
        /// The attributes.
        pub attributes: Attributes,
    }
}

xdr_struct! {
    /// SETATTR (RFC 1813 §3.3.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetAttr {
        /// The object before and after.
        pub wcc: WccData,
    }
}

xdr_struct! {
    /// LOOKUP (RFC 1813 §3.3.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Lookup {
        /// Handle of the named object.
        pub object: FileHandle,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Attributes of the directory.
        pub dir_attributes: Option<Attributes>,
    }
}

xdr_struct! {
    /// ACCESS (RFC 1813 §3.3.4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CheckAccess {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// The requested rights that the caller has.
        pub access: crate::Access,
    }
}

xdr_struct! {
    /// READLINK (RFC 1813 §3.3.5).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReadLink<'a> {
        /// Attributes of the link.
        pub attributes: Option<Attributes>,
        /// Text of the link. DDP-eligible.
        pub target: Path<'a>,
    }
}

xdr_struct! {
    /// READ (RFC 1813 §3.3.6).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Read<'a> {
        /// Attributes of the file after reading.
        pub attributes: Option<Attributes>,
        /// Number of bytes read, which equals the length of the data.
        pub count: u32,
        /// Whether the file ends after these bytes.
        pub eof: bool,
        /// The bytes. DDP-eligible.
        pub data: Data<'a>,
    }
}

xdr_struct! {
    /// WRITE (RFC 1813 §3.3.7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Write {
        /// The file before and after.
        pub wcc: WccData,
        /// Bytes written; may be fewer than were sent.
        pub count: u32,
        /// Stability of the data, at least as requested.
        pub committed: Stable,
        /// Changes when uncommitted data may have been lost.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8 to §3.3.11).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Create {
        /// Handle of the new object.
        pub object: Option<FileHandle>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// The directory before and after.
        pub dir_wcc: WccData,
    }
}

xdr_struct! {
    /// REMOVE and RMDIR (RFC 1813 §3.3.12, §3.3.13).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Remove {
        /// The directory before and after.
        pub dir_wcc: WccData,
    }
}

xdr_struct! {
    /// RENAME (RFC 1813 §3.3.14), whether it succeeded or not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Rename {
        /// The source directory, before and after.
        pub from_wcc: WccData,
        /// The target directory, before and after.
        pub to_wcc: WccData,
    }
}

xdr_struct! {
    /// LINK (RFC 1813 §3.3.15), whether it succeeded or not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Link {
        /// Attributes of the file.
        pub attributes: Option<Attributes>,
        /// The directory of the new name, before and after.
        pub dir_wcc: WccData,
    }
}

xdr_struct! {
    /// An entry of READDIR (`entry3`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Entry<'a> {
        /// Number of the file.
        pub file_id: FileId,
        /// Its name in this directory.
        pub name: Filename<'a>,
        /// The place behind this entry.
        pub cookie: Cookie,
    }
}

xdr_struct! {
    /// READDIR (RFC 1813 §3.3.16). A server builds it with [`DirectoryWriter`](crate::DirectoryWriter).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReadDir<'a> {
        /// Attributes of the directory.
        pub dir_attributes: Option<Attributes>,
        /// Cookie verifier to send with the next cookie.
        pub verifier: CookieVerifier,
        /// The entries.
        pub entries: List<Entry<'a>, MAX_ENTRIES>,
        /// Whether the directory ends behind them.
        pub eof: bool,
    }
}

xdr_struct! {
    /// An entry of READDIRPLUS (`entryplus3`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EntryPlus<'a> {
        /// Number of the file.
        pub file_id: FileId,
        /// Its name in this directory.
        pub name: Filename<'a>,
        /// The place behind this entry.
        pub cookie: Cookie,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Its handle.
        pub handle: Option<FileHandle>,
    }
}

xdr_struct! {
    /// READDIRPLUS (RFC 1813 §3.3.17). A server builds it with
    /// [`DirectoryWriter`](crate::DirectoryWriter).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ReadDirPlus<'a> {
        /// Attributes of the directory.
        pub dir_attributes: Option<Attributes>,
        /// Cookie verifier to send with the next cookie.
        pub verifier: CookieVerifier,
        /// The entries.
        pub entries: List<EntryPlus<'a>, MAX_ENTRIES>,
        /// Whether the directory ends behind them.
        pub eof: bool,
    }
}

xdr_struct! {
    /// FSSTAT (RFC 1813 §3.3.18).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FsStat {
        /// Attributes of the object asked about.
        pub attributes: Option<Attributes>,
        /// Size of the file system in bytes.
        pub total_bytes: u64,
        /// Bytes free.
        pub free_bytes: u64,
        /// Bytes free to the caller.
        pub available_bytes: u64,
        /// Largest number of files.
        pub total_files: u64,
        /// Number of files that can still be created.
        pub free_files: u64,
        /// Number of files that the caller can still create.
        pub available_files: u64,
        /// Number of seconds for which these values are expected not to change.
        pub invariant_seconds: u32,
    }
}

xdr_struct! {
    /// FSINFO (RFC 1813 §3.3.19).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FsInfo {
        /// Attributes of the object asked about.
        pub attributes: Option<Attributes>,
        /// Most bytes of one READ.
        pub read_max: u32,
        /// Bytes a READ should have.
        pub read_preferred: u32,
        /// Suggested multiple for the size of a READ.
        pub read_multiple: u32,
        /// Most bytes of one WRITE.
        pub write_max: u32,
        /// Bytes a WRITE should have.
        pub write_preferred: u32,
        /// Suggested multiple for the size of a WRITE.
        pub write_multiple: u32,
        /// Bytes a READDIR should ask for.
        pub dir_preferred: u32,
        /// Most bytes of a file.
        pub max_file_size: u64,
        /// Resolution of the server's times.
        pub time_delta: NfsTime,
        /// Properties of the file system.
        pub properties: FsProperties,
    }
}

xdr_struct! {
    /// PATHCONF (RFC 1813 §3.3.20).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PathConf {
        /// Attributes of the object asked about.
        pub attributes: Option<Attributes>,
        /// Most names of a file.
        pub link_max: u32,
        /// Most bytes of a name.
        pub name_max: u32,
        /// Whether a name that is too long is refused, and not cut.
        pub no_trunc: bool,
        /// Whether only a privileged user may change an owner.
        pub chown_restricted: bool,
        /// Whether names that differ in case only are the same.
        pub case_insensitive: bool,
        /// Whether the case of names is kept.
        pub case_preserving: bool,
    }
}

xdr_struct! {
    /// COMMIT (RFC 1813 §3.3.21).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Commit {
        /// The file before and after.
        pub wcc: WccData,
        /// Write verifier: the same as that of the WRITEs if none of their data was lost.
        pub verifier: WriteVerifier,
    }
}
