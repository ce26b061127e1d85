//! Arguments of the procedures of NFS version 3 (RFC 1813 §3.3). Each type has the name of its
//! procedure.

use crate::{
    Access, Cookie, CookieVerifier, CreateVerifier, Data, Device, FileHandle, FileType, Filename,
    NfsTime, Path, SetAttributes, Stable, Wire,
};
use oncrpc::xdr::{Error, Reader, Writer};

/// NULL has no arguments (RFC 1813 §3.3.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Null;

impl Wire<'_> for Null {
    const MAX: usize = 0;

    fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }

    fn write(&self, _: &mut Writer) {}
}

xdr_struct! {
    /// A name in a directory (`diropargs3`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Place<'a> {
        /// The directory.
        pub dir: FileHandle,
        /// The name in it.
        pub name: Filename<'a>,
    }
}

xdr_struct! {
    /// GETATTR (RFC 1813 §3.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAttr {
        /// The object.
        pub object: FileHandle,
    }
}

xdr_struct! {
    /// SETATTR (RFC 1813 §3.3.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetAttr {
        /// The object.
        pub object: FileHandle,
        /// The attributes to set.
        pub attributes: SetAttributes,
        /// Guard: the ctime that the object must have.
        pub guard: Option<NfsTime>,
    }
}

xdr_struct! {
    /// LOOKUP (RFC 1813 §3.3.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Lookup<'a> {
        /// The directory and the name to look up.
        pub what: Place<'a>,
    }
}

xdr_struct! {
    /// ACCESS (RFC 1813 §3.3.4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CheckAccess {
        /// The object.
        pub object: FileHandle,
        /// The rights to check.
        pub access: Access,
    }
}

xdr_struct! {
    /// READLINK (RFC 1813 §3.3.5).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadLink {
        /// The symbolic link.
        pub symlink: FileHandle,
    }
}

xdr_struct! {
    /// READ (RFC 1813 §3.3.6).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Read {
        /// The file.
        pub file: FileHandle,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub count: u32,
    }
}

xdr_struct! {
    /// WRITE (RFC 1813 §3.3.7).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Write<'a> {
        /// The file.
        pub file: FileHandle,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes, which equals the length of the data.
        pub count: u32,
        /// Data that must be on stable storage before the reply.
        pub stable: Stable,
        /// The bytes. DDP-eligible.
        pub data: Data<'a>,
    }
}

xdr_struct! {
    /// CREATE (RFC 1813 §3.3.8).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Create<'a> {
        /// The new file's name.
        pub place: Place<'a>,
        /// How to treat an existing file.
        pub how: CreateHow,
    }
}

/// How CREATE treats an existing file (`createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// UNCHECKED: an existing file is used unchanged, except for its size.
    Unchecked(SetAttributes),
    /// GUARDED: an existing file is an error.
    Guarded(SetAttributes),
    /// EXCLUSIVE: an existing file is an error, unless it was created with the same verifier. Safe
    /// to repeat.
    Exclusive(CreateVerifier),
}

impl Wire<'_> for CreateHow {
    const MAX: usize = 4 + SetAttributes::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            0 => SetAttributes::parse(r).map(Self::Unchecked),
            1 => SetAttributes::parse(r).map(Self::Guarded),
            2 => CreateVerifier::parse(r).map(Self::Exclusive),
            value => Err(Error::NotInEnum {
                value,
                of: "createmode3",
            }),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Unchecked(attributes) => {
                w.u32(0);
                attributes.write(w);
            }
            Self::Guarded(attributes) => {
                w.u32(1);
                attributes.write(w);
            }
            Self::Exclusive(verifier) => {
                w.u32(2);
                verifier.write(w);
            }
        }
    }
}

xdr_struct! {
    /// MKDIR (RFC 1813 §3.3.9).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkDir<'a> {
        /// The new directory's name.
        pub place: Place<'a>,
        /// Its first attributes.
        pub attributes: SetAttributes,
    }
}

xdr_struct! {
    /// SYMLINK (RFC 1813 §3.3.10).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Symlink<'a> {
        /// The new link's name.
        pub place: Place<'a>,
        /// Its first attributes.
        pub attributes: SetAttributes,
        /// Text of the link. DDP-eligible.
        pub target: Path<'a>,
    }
}

xdr_struct! {
    /// MKNOD (RFC 1813 §3.3.11).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkNod<'a> {
        /// The new object's name.
        pub place: Place<'a>,
        /// The object to create.
        pub what: Node,
    }
}

/// The object that MKNOD creates (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A character device.
    Character(SetAttributes, Device),
    /// A block device.
    Block(SetAttributes, Device),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// A regular file, which MKNOD cannot create: `NFS3ERR_BADTYPE`.
    Regular,
    /// The same.
    Directory,
    /// The same.
    Symlink,
}

impl Wire<'_> for Node {
    const MAX: usize = 4 + SetAttributes::MAX + Device::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match FileType::parse(r)? {
            FileType::Character => Self::Character(Wire::parse(r)?, Wire::parse(r)?),
            FileType::Block => Self::Block(Wire::parse(r)?, Wire::parse(r)?),
            FileType::Socket => Self::Socket(Wire::parse(r)?),
            FileType::Fifo => Self::Fifo(Wire::parse(r)?),
            FileType::Regular => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
        })
    }

    fn write(&self, w: &mut Writer) {
        self.file_type().write(w);
        match self {
            Self::Character(attributes, device) | Self::Block(attributes, device) => {
                attributes.write(w);
                device.write(w);
            }
            Self::Socket(attributes) | Self::Fifo(attributes) => attributes.write(w),
            Self::Regular | Self::Directory | Self::Symlink => {}
        }
    }
}

impl Node {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        match self {
            Self::Character(..) => FileType::Character,
            Self::Block(..) => FileType::Block,
            Self::Socket(_) => FileType::Socket,
            Self::Fifo(_) => FileType::Fifo,
            Self::Regular => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink => FileType::Symlink,
        }
    }
}

xdr_struct! {
    /// REMOVE (RFC 1813 §3.3.12).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Remove<'a> {
        /// The directory and the name to remove.
        pub object: Place<'a>,
    }
}

xdr_struct! {
    /// RMDIR (RFC 1813 §3.3.13).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RmDir<'a> {
        /// The directory and the name to remove.
        pub object: Place<'a>,
    }
}

xdr_struct! {
    /// RENAME (RFC 1813 §3.3.14).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Rename<'a> {
        /// The existing name.
        pub from: Place<'a>,
        /// The new name.
        pub to: Place<'a>,
    }
}

xdr_struct! {
    /// LINK (RFC 1813 §3.3.15).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Link<'a> {
        /// The file.
        pub file: FileHandle,
        /// The additional name.
        pub link: Place<'a>,
    }
}

xdr_struct! {
    /// READDIR (RFC 1813 §3.3.16).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDir {
        /// The directory.
        pub dir: FileHandle,
        /// From behind this place.
        pub cookie: Cookie,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
        /// Most bytes of the result.
        pub count: u32,
    }
}

xdr_struct! {
    /// READDIRPLUS (RFC 1813 §3.3.17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirPlus {
        /// The directory.
        pub dir: FileHandle,
        /// From behind this place.
        pub cookie: Cookie,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
        /// Most bytes of the entries without attributes and handles.
        pub dir_count: u32,
        /// Most bytes of the result.
        pub max_count: u32,
    }
}

xdr_struct! {
    /// FSSTAT (RFC 1813 §3.3.18).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FsStat {
        /// A file on the file system; better its root.
        pub root: FileHandle,
    }
}

xdr_struct! {
    /// FSINFO (RFC 1813 §3.3.19).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FsInfo {
        /// A file on the file system; better its root.
        pub root: FileHandle,
    }
}

xdr_struct! {
    /// PATHCONF (RFC 1813 §3.3.20).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PathConf {
        /// The object.
        pub object: FileHandle,
    }
}

xdr_struct! {
    /// COMMIT (RFC 1813 §3.3.21).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Commit {
        /// The file.
        pub file: FileHandle,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; 0 means to the end of the file.
        pub count: u32,
    }
}
