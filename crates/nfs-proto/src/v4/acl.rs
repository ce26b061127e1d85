//! Access control lists (RFC 8881 §6.2.1 to §6.2.3).

use crate::limits::MAX_ACL_ENTRIES;
use crate::v4::array::Array;
use crate::v4::types::Principal;

flags! {
    /// Kinds of entries that a server supports (`aclsupport`, RFC 8881 §6.2.1.2).
    pub struct AclSupport {
        /// Entries that allow.
        const ALLOW = 0x1;
        /// Entries that deny.
        const DENY = 0x2;
        /// Entries that log.
        const AUDIT = 0x4;
        /// Entries that alarm.
        const ALARM = 0x8;
    }

    /// Flags of an entry (`aceflag4`, RFC 8881 §6.2.1.4).
    pub struct AceFlags {
        /// New files inherit it.
        const FILE_INHERIT = 0x01;
        /// New directories inherit it.
        const DIRECTORY_INHERIT = 0x02;
        /// Those who inherit it do not pass it on.
        const NO_PROPAGATE_INHERIT = 0x04;
        /// It is there to be inherited, and does not apply to the directory.
        const INHERIT_ONLY = 0x08;
        /// Log or alarm where access is granted.
        const SUCCESSFUL_ACCESS = 0x10;
        /// Log or alarm where access is denied.
        const FAILED_ACCESS = 0x20;
        /// The subject is a group.
        const IDENTIFIER_GROUP = 0x40;
        /// It was inherited.
        const INHERITED = 0x80;
    }

    /// Rights that an entry is about (`acemask4`, RFC 8881 §6.2.1.3).
    pub struct AceMask {
        /// Read a file, or list a directory.
        const READ_DATA = 0x0000_0001;
        /// Write a file, or add files to a directory.
        const WRITE_DATA = 0x0000_0002;
        /// Append to a file, or add directories to a directory.
        const APPEND_DATA = 0x0000_0004;
        /// Read named attributes.
        const READ_NAMED_ATTRS = 0x0000_0008;
        /// Write named attributes.
        const WRITE_NAMED_ATTRS = 0x0000_0010;
        /// Execute a file, or look up names in a directory.
        const EXECUTE = 0x0000_0020;
        /// Delete entries of a directory.
        const DELETE_CHILD = 0x0000_0040;
        /// Read attributes.
        const READ_ATTRIBUTES = 0x0000_0080;
        /// Set times.
        const WRITE_ATTRIBUTES = 0x0000_0100;
        /// Set retention.
        const WRITE_RETENTION = 0x0000_0200;
        /// Set a hold on retention.
        const WRITE_RETENTION_HOLD = 0x0000_0400;
        /// Delete the object.
        const DELETE = 0x0001_0000;
        /// Read the list.
        const READ_ACL = 0x0002_0000;
        /// Write the list and the mode.
        const WRITE_ACL = 0x0004_0000;
        /// Set owner and group.
        const WRITE_OWNER = 0x0008_0000;
        /// Access the file with synchronous I/O.
        const SYNCHRONIZE = 0x0010_0000;
    }

    /// Flags of a list (`aclflag4`, RFC 8881 §6.4.3.2).
    pub struct AclFlags {
        /// Inheritance is automatic.
        const AUTO_INHERIT = 0x1;
        /// Except for this list.
        const PROTECTED = 0x2;
        /// The list was made by default.
        const DEFAULTED = 0x4;
    }
}

numbers! {
    /// Kind of an entry (`acetype4`, RFC 8881 §6.2.1.1): 0 allows, 1 denies, 2 logs, 3 alarms. Any
    /// value.
    pub struct AceType(u32);
}

xdr_struct! {
    /// An entry of an access control list (`nfsace4`, RFC 8881 §6.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Ace<'a> {
        /// Its kind.
        pub kind: AceType,
        /// Inheritance, and kind of the subject.
        pub flags: AceFlags,
        /// The rights.
        pub mask: AceMask,
        /// Its subject, such as `OWNER@` (RFC 8881 §6.2.1.5).
        pub who: Principal<'a>,
    }
}

/// Entries of a list, in order (`fattr4_acl`).
pub type Acl<'a> = Array<'a, Ace<'a>, MAX_ACL_ENTRIES>;

xdr_struct! {
    /// A list with flags (`nfsacl41`, RFC 8881 §6.2.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Acl41<'a> {
        /// Flags of the list.
        pub flags: AclFlags,
        /// Entries.
        pub entries: Acl<'a>,
    }
}
