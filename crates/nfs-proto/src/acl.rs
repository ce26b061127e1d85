//! NFSACL version 3: POSIX access control lists beside NFS version 3.
//!
//! No RFC has it. It comes from Solaris, and is here as Linux speaks it: program 100227, with the
//! handles, statuses and attributes of NFS version 3.

use crate::limits::MAX_ACL_ENTRIES;
use crate::{Attributes, FileHandle, Wire};
use oncrpc::xdr::{Error, Reader, Writer};

bitflags::bitflags! {
    /// Which lists are meant, and what of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AclMask: u32 {
        /// The entries of the access list (`NFS_ACL`).
        const ACCESS = 0x1;
        /// How many there are (`NFS_ACLCNT`).
        const ACCESS_COUNT = 0x2;
        /// The entries of the default list of a directory (`NFS_DFACL`).
        const DEFAULT = 0x4;
        /// How many there are (`NFS_DFACLCNT`).
        const DEFAULT_COUNT = 0x8;
    }
}

impl Wire<'_> for AclMask {
    const MAX: usize = 4;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.u32().map(Self::from_bits_retain)
    }

    fn write(&self, w: &mut Writer) {
        w.u32(self.bits());
    }
}

xdr_struct! {
    /// One entry of a list, with any values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AclEntry {
        /// Whom it is about: one of the numbers `ACL_*` here, with [`ACL_DEFAULT`] in default lists.
        pub tag: u32,
        /// Number of the user or group. The owner's and the owning group's in their own entries, 0 in
        /// those of mask and others.
        pub id: u32,
        /// Read (4), write (2), execute (1).
        pub rights: u32,
    }
}

/// The owner.
pub const ACL_USER_OBJ: u32 = 0x01;
/// A user by number.
pub const ACL_USER: u32 = 0x02;
/// The owning group.
pub const ACL_GROUP_OBJ: u32 = 0x04;
/// A group by number.
pub const ACL_GROUP: u32 = 0x08;
/// The most that all but the owner and others have.
pub const ACL_MASK: u32 = 0x10;
/// All others.
pub const ACL_OTHER: u32 = 0x20;
/// Beside one of these: the entry of a default list.
pub const ACL_DEFAULT: u32 = 0x1000;

/// A list as it stands on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclList {
    /// How many entries the list has, whether they are here or not. The list of nothing but a mode has
    /// four.
    pub count: u32,
    /// The entries, at most [`MAX_ACL_ENTRIES`].
    pub entries: Vec<AclEntry>,
}

impl AclList {
    const NONE: usize = 8;
}

impl Wire<'_> for AclList {
    const MAX: usize = Self::NONE + MAX_ACL_ENTRIES as usize * AclEntry::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            count: r.u32()?,
            entries: r.vec(MAX_ACL_ENTRIES, AclEntry::parse)?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u32(self.count);
        w.length(self.entries.len());
        for entry in &self.entries {
            entry.write(w);
        }
    }
}

/// NULL has no arguments.
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
    /// Arguments of GETACL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAcl {
        /// The file.
        pub file: FileHandle,
        /// What is wanted.
        pub mask: AclMask,
    }
}

impl GetAcl {
    /// Most bytes of the lists that were asked for.
    pub(crate) fn lists(&self) -> usize {
        let list = |wanted| match self.mask.contains(wanted) {
            true => AclList::MAX,
            false => AclList::NONE,
        };
        list(AclMask::ACCESS) + list(AclMask::DEFAULT)
    }
}

xdr_struct! {
    /// Arguments of SETACL.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SetAcl {
        /// The file.
        pub file: FileHandle,
        /// Which of the lists are to be set.
        pub mask: AclMask,
        /// Without entries: nothing but the mode.
        pub access: AclList,
        /// Without entries: none.
        pub default: AclList,
    }
}

xdr_struct! {
    /// Results of GETACL.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Lists {
        /// Attributes of the file.
        pub attributes: Option<Attributes>,
        /// What is here: what was asked for.
        pub mask: AclMask,
        /// Who may do what.
        pub access: AclList,
        /// What is made in a directory gets these.
        pub default: AclList,
    }
}

impl Lists {
    /// Most bytes of the results without the lists.
    pub(crate) const FIXED: usize = Option::<Attributes>::MAX + AclMask::MAX;
}

xdr_struct! {
    /// Results of SETACL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Done {
        /// Attributes of the file after it.
        pub attributes: Option<Attributes>,
    }
}
