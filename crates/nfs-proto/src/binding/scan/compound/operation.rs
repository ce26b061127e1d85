//! Numbers of the operations of NFS version 4 (RFC 7531, RFC 5662, RFC 7863, RFC 8276).

macro_rules! operations {
    ($($name:ident = $number:literal,)*) => {
        $(pub(in crate::binding::scan) const $name: u32 = $number;)*

        /// Every operation with a table entry.
        #[cfg(test)]
        pub(in crate::binding::scan) const ALL: &[u32] = &[$($name),*];
    };
}

operations! {
    ACCESS = 3,
    CLOSE = 4,
    COMMIT = 5,
    CREATE = 6,
    DELEGPURGE = 7,
    DELEGRETURN = 8,
    GETATTR = 9,
    GETFH = 10,
    LINK = 11,
    LOCK = 12,
    LOCKT = 13,
    LOCKU = 14,
    LOOKUP = 15,
    LOOKUPP = 16,
    NVERIFY = 17,
    OPEN = 18,
    OPENATTR = 19,
    OPEN_CONFIRM = 20,
    OPEN_DOWNGRADE = 21,
    PUTFH = 22,
    PUTPUBFH = 23,
    PUTROOTFH = 24,
    READ = 25,
    READDIR = 26,
    READLINK = 27,
    REMOVE = 28,
    RENAME = 29,
    RENEW = 30,
    RESTOREFH = 31,
    SAVEFH = 32,
    SECINFO = 33,
    SETATTR = 34,
    SETCLIENTID = 35,
    SETCLIENTID_CONFIRM = 36,
    VERIFY = 37,
    WRITE = 38,
    RELEASE_LOCKOWNER = 39,
    BACKCHANNEL_CTL = 40,
    BIND_CONN_TO_SESSION = 41,
    EXCHANGE_ID = 42,
    CREATE_SESSION = 43,
    DESTROY_SESSION = 44,
    FREE_STATEID = 45,
    GET_DIR_DELEGATION = 46,
    GETDEVICEINFO = 47,
    GETDEVICELIST = 48,
    LAYOUTCOMMIT = 49,
    LAYOUTGET = 50,
    LAYOUTRETURN = 51,
    SECINFO_NO_NAME = 52,
    SEQUENCE = 53,
    SET_SSV = 54,
    TEST_STATEID = 55,
    WANT_DELEGATION = 56,
    DESTROY_CLIENTID = 57,
    RECLAIM_COMPLETE = 58,
    ALLOCATE = 59,
    COPY = 60,
    COPY_NOTIFY = 61,
    DEALLOCATE = 62,
    IO_ADVISE = 63,
    LAYOUTERROR = 64,
    LAYOUTSTATS = 65,
    OFFLOAD_CANCEL = 66,
    OFFLOAD_STATUS = 67,
    READ_PLUS = 68,
    SEEK = 69,
    WRITE_SAME = 70,
    CLONE = 71,
    GETXATTR = 72,
    SETXATTR = 73,
    LISTXATTRS = 74,
    REMOVEXATTR = 75,
}

/// Returns the last operation of a minor version that is known: 4.2 with the extended attributes of
/// RFC 8276.
pub(super) fn last(minor_version: u32) -> Option<u32> {
    match minor_version {
        0 => Some(RELEASE_LOCKOWNER),
        1 => Some(RECLAIM_COMPLETE),
        2 => Some(REMOVEXATTR),
        _ => None,
    }
}

/// Whether an operation changes nothing, so that it can be repeated (RFC 8267 §3.1).
pub(super) fn changes_nothing(operation: u32) -> bool {
    matches!(
        operation,
        ACCESS
            | GETATTR
            | GETFH
            | LOOKUP
            | LOOKUPP
            | NVERIFY
            | PUTFH
            | PUTPUBFH
            | PUTROOTFH
            | READ
            | READDIR
            | READLINK
            | RESTOREFH
            | SAVEFH
            | SECINFO
            | VERIFY
    )
}
