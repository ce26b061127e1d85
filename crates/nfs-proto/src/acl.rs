//! NFSACL version 3: POSIX access control lists beside NFS version 3.
//!
//! The protocol comes from Solaris and is in no RFC. This is the form that Linux uses: program
//! 100227, with the handles, statuses and attributes of NFS version 3.

use crate::limits::MAX_ACL_ENTRIES;
use crate::{Attributes, FileHandle, Wire};
use oncrpc::xdr::{Error, Reader, Writer};

bitflags::bitflags! {
    /// Selects lists, and their entries or counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AclMask: u32 {
        /// The entries of the access list (`NFS_ACL`).
        const ACCESS = 0x1;
        /// Number of entries of the access list (`NFS_ACLCNT`).
        const ACCESS_COUNT = 0x2;
        /// The entries of the default list of a directory (`NFS_DFACL`).
        const DEFAULT = 0x4;
        /// Number of entries of the default list (`NFS_DFACLCNT`).
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
        /// Subject of the entry: one of the constants `ACL_*`, with [`ACL_DEFAULT`] in default
        /// lists.
        pub tag: u32,
        /// Id of the user or group. In the entries of the owner and the owning group: their ids; in
        /// those of mask and others: 0.
        pub id: u32,
        /// Rights: read (4), write (2), execute (1).
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
/// The mask: upper bound of the rights of all subjects but the owner and others.
pub const ACL_MASK: u32 = 0x10;
/// All others.
pub const ACL_OTHER: u32 = 0x20;
/// Flag in addition to one of these: the entry of a default list.
pub const ACL_DEFAULT: u32 = 0x1000;

/// A list as on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclList {
    /// Number of entries of the list, even if the entries are omitted. The list that is equivalent
    /// to a mode has four.
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
        /// The requested lists.
        pub mask: AclMask,
    }
}

impl GetAcl {
    /// Largest size of the requested lists in bytes.
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
        /// The access list; empty for only a mode.
        pub access: AclList,
        /// The default list; empty for none.
        pub default: AclList,
    }
}

xdr_struct! {
    /// Results of GETACL.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Lists {
        /// Attributes of the file.
        pub attributes: Option<Attributes>,
        /// The lists in these results: those requested.
        pub mask: AclMask,
        /// The access list.
        pub access: AclList,
        /// The default list of a directory, from which new entries inherit theirs.
        pub default: AclList,
    }
}

impl Lists {
    /// Largest size of the results in bytes, without the lists.
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
