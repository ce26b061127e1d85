//! Numbers of programs, versions, procedures and ports.

/// NFS (RFC 1813 §3).
pub const NFS_PROGRAM: u32 = 100_003;

/// NFS version 2 (RFC 1094), which is scanned and not served.
pub const NFS_V2: u32 = 2;

/// The supported version of NFS.
pub const NFS_V3: u32 = 3;

/// NFS version 4 (RFC 7530), of which 4.1 and 4.2 are minor versions.
pub const NFS_V4: u32 = 4;

/// MOUNT (RFC 1813 §5.1.2).
pub const MOUNT_PROGRAM: u32 = 100_005;

/// The version of MOUNT that returns NFS version 3 handles.
pub const MOUNT_V3: u32 = 3;

/// NFSACL, which Linux calls on the connection of NFS.
pub const NFSACL_PROGRAM: u32 = 100_227;

/// The version of NFSACL that goes with NFS version 3.
pub const NFSACL_V3: u32 = 3;

/// Port of NFS over TCP (RFC 1813 §2.2).
pub const NFS_PORT: u16 = 2049;

/// Port of NFS over RDMA (RFC 8267 §9).
pub const NFS_RDMA_PORT: u16 = 20049;

/// The usual port of MOUNT.
pub const MOUNT_PORT: u16 = 20048;

xdr_enum! {
    /// Procedures of NFS version 3 (RFC 1813 §3).
    pub enum Procedure ("NFS version 3 procedures") {
        /// Nothing.
        Null = 0,
        /// Attributes of a file.
        GetAttr = 1,
        /// Set attributes.
        SetAttr = 2,
        /// Handle of a name.
        Lookup = 3,
        /// Access rights of the caller.
        Access = 4,
        /// Text of a symbolic link.
        ReadLink = 5,
        /// Read from a file.
        Read = 6,
        /// Write to a file.
        Write = 7,
        /// Create a file.
        Create = 8,
        /// Create a directory.
        MkDir = 9,
        /// Create a symbolic link.
        Symlink = 10,
        /// Create a device, socket or pipe.
        MkNod = 11,
        /// Remove a file.
        Remove = 12,
        /// Remove a directory.
        RmDir = 13,
        /// Rename.
        Rename = 14,
        /// Create a hard link.
        Link = 15,
        /// Names in a directory.
        ReadDir = 16,
        /// Names, attributes and handles in a directory.
        ReadDirPlus = 17,
        /// How full a file system is.
        FsStat = 18,
        /// Abilities of a file system.
        FsInfo = 19,
        /// POSIX limits.
        PathConf = 20,
        /// Put written data on stable storage.
        Commit = 21,
    }
}

xdr_enum! {
    /// Procedures of MOUNT version 3 (RFC 1813 §5.2).
    pub enum MountProcedure ("MOUNT version 3 procedures") {
        /// Nothing.
        Null = 0,
        /// Handle of an exported directory.
        Mount = 1,
        /// Mounts of all clients.
        Dump = 2,
        /// A mount is no longer used.
        Unmount = 3,
        /// No mount of this caller is used any longer.
        UnmountAll = 4,
        /// Exports and their clients.
        Export = 5,
    }
}

xdr_enum! {
    /// Procedures of NFSACL version 3.
    pub enum AclProcedure ("NFSACL version 3 procedures") {
        /// Nothing.
        Null = 0,
        /// Access control lists of a file.
        GetAcl = 1,
        /// Set access control lists.
        SetAcl = 2,
    }
}
