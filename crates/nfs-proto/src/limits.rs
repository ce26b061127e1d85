//! Limits on all sizes that a peer chooses.

/// Bytes in a file handle (RFC 1813 §2.4, `NFS3_FHSIZE`).
pub const MAX_HANDLE: u32 = 64;

/// Bytes in a name that can be used.
///
/// RFC 1813 sets no limit; this is `NAME_MAX` of every system that serves or mounts us.
pub const MAX_NAME: usize = 255;

/// Bytes in a name as it is read from a message.
///
/// This is more than [`MAX_NAME`], so that a slightly longer name is answered `NFS3ERR_NAMETOOLONG`
/// and not GARBAGE_ARGS.
pub const MAX_FILENAME: u32 = 4096;

/// Bytes in the text of a symbolic link.
pub const MAX_PATH: u32 = 4096;

/// Bytes of data in one READ or WRITE.
pub const MAX_DATA: u32 = 4 << 20;

/// Entries in one reply to READDIR or READDIRPLUS.
pub const MAX_ENTRIES: u32 = 1 << 17;

/// Largest size that a READDIR or READDIRPLUS may request, in bytes.
pub const MAX_DIRECTORY_REPLY: u32 = 1 << 20;

/// Bytes in the path of an export (RFC 1813 §5.1.4, `MNTPATHLEN`).
pub const MAX_EXPORT_PATH: u32 = 1024;

/// Bytes in the name of a host or group (RFC 1813 §5.1.4, `MNTNAMLEN`).
pub const MAX_MOUNT_NAME: u32 = 255;

/// Authentication flavours that a mounted directory lists.
pub const MAX_FLAVORS: u32 = 64;

/// Exports in one list, and mounts in one list.
pub const MAX_MOUNT_ENTRIES: u32 = 4096;

/// Groups that may mount one export.
pub const MAX_GROUPS: u32 = 1024;

/// Bytes reserved for the reply with a list of exports or mounts.
///
/// RFC 1813 has no limit: a longer list cannot be returned over RDMA.
pub const MAX_MOUNT_LIST_REPLY: usize = 64 << 10;

/// Entries of one access control list (`NFS_ACL_MAX_ENTRIES` of Linux).
pub const MAX_ACL_ENTRIES: u32 = 1024;

/// Bytes of data in one READ or WRITE of version 2 (RFC 1094 §3.5, `MAXDATA`).
pub const MAX_V2_DATA: u32 = 8192;

/// Bytes in the text of a symbolic link of version 2 (RFC 1094 §3.5, `MAXPATHLEN`).
pub const MAX_V2_PATH: u32 = 1024;

/// Bytes in a name of version 2 (RFC 1094 §3.5, `MAXNAMLEN`).
pub const MAX_V2_NAME: u32 = 255;

/// DDP-eligible items of one message that a scan finds. Later ones are part of the stream.
pub const MAX_ITEMS: usize = 16;

/// Operations of one COMPOUND that are read.
pub const MAX_OPERATIONS: u32 = 256;

/// Bytes in the tag of a COMPOUND.
pub const MAX_TAG: u32 = 4096;

/// Largest bound of the reply to a COMPOUND, in bytes, eligible results included.
pub const MAX_COMPOUND_REPLY: usize = 8 << 20;

/// Bytes in a file handle of version 4 (RFC 7530 §2.1, `NFS4_FHSIZE`).
pub const MAX_V4_HANDLE: u32 = 128;

/// Bytes in the owner of a state, and in other identifiers of version 4 (RFC 7530 §2.1,
/// `NFS4_OPAQUE_LIMIT`).
pub const MAX_STATE_OWNER: u32 = 1024;

/// Words in a bitmap of version 4. The versions up to 4.2 use three.
pub const MAX_BITMAP: u32 = 8;

/// Bytes in an opaque or a string of version 4 that the protocol does not limit: a scan steps over it.
pub const MAX_OPAQUE: u32 = 4 << 20;

/// Elements of an array of version 4 that the protocol does not limit: a scan steps over it.
pub const MAX_ELEMENTS: u32 = 4096;

/// Bytes in the name of an owner, a group, or the `who` of an ACE.
///
/// The protocol has no limit. Linux has 128 (`IDMAP_NAMESZ`).
pub const MAX_OWNER_NAME: u32 = 512;

/// Bytes in a security label.
///
/// The protocol has no limit. Linux' client has 2048 (`NFS4_MAXLABELLEN`).
pub const MAX_SECURITY_LABEL: u32 = 4096;

/// Bytes in each half of a network address.
pub const MAX_NETWORK_ADDRESS: u32 = 256;

/// Segments of data and holes in the reply to READ_PLUS.
pub const MAX_READ_PLUS_SEGMENTS: u32 = 64;
