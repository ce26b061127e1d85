//! Limits on the sizes that a peer chooses in NFS version 4, beside those of
//! [`limits`](crate::limits).

/// Bytes of the values of one set of attributes (`attrlist4`).
///
/// The protocol has no limit. An access control list of the most entries fits.
pub const MAX_ATTRIBUTE_VALUES: u32 = 1 << 20;

/// State ids that one TEST_STATEID asks about.
pub const MAX_STATEIDS: u32 = 4096;

/// Bytes of the value of an extended attribute as it is read from a message.
///
/// This is more than a file system of Linux stores (64 KiB), so that a larger value is answered
/// `NFS4ERR_XATTR2BIG` and not `NFS4ERR_BADXDR`.
pub const MAX_XATTR_VALUE: u32 = 1 << 20;

/// Names of extended attributes in one reply to LISTXATTRS.
pub const MAX_XATTR_NAMES: u32 = 4096;

/// Bytes of an object identifier (`sec_oid4`).
pub const MAX_OID: u32 = 256;

/// Algorithms that a client offers for its secret state verifier (`SP4_SSV`), in each list.
pub const MAX_ALGORITHMS: u32 = 64;

/// Bytes of a handle of RPCSEC_GSS (`gsshandle4_t`): the body of a credential has no room for more.
pub const MAX_GSS_HANDLE: u32 = 400;

/// Handles of RPCSEC_GSS in the reply to EXCHANGE_ID.
pub const MAX_GSS_HANDLES: u32 = 64;

/// Bytes of a secret state verifier, and of a digest (RFC 8881 §18.47).
pub const MAX_SSV: u32 = 1024;

/// Servers in one COPY or COPY_NOTIFY.
pub const MAX_COPY_SERVERS: u32 = 64;

/// Bytes of the pattern of a WRITE_SAME.
pub const MAX_PATTERN: u32 = 1 << 20;

/// Bytes of a part of a layout, or of the address of a device, whose form the layout type decides.
pub const MAX_LAYOUT_BODY: u32 = 1 << 16;

/// Layouts in one reply to LAYOUTGET.
pub const MAX_LAYOUTS: u32 = 64;

/// Devices in one reply to GETDEVICELIST.
pub const MAX_DEVICES: u32 = 4096;

/// Errors that one LAYOUTERROR reports.
pub const MAX_LAYOUT_ERRORS: u32 = 256;

/// Layout types of a file system.
pub const MAX_LAYOUT_TYPES: u32 = 64;

/// Components of a path (`pathname4`).
pub const MAX_COMPONENTS: u32 = 128;

/// Locations of a file system, and servers of one location.
pub const MAX_LOCATIONS: u32 = 64;

/// Sessions, and calls of each, that a CB_SEQUENCE refers to.
pub const MAX_REFERRING_CALLS: u32 = 64;

/// Changes that one CB_NOTIFY or CB_NOTIFY_DEVICEID reports.
pub const MAX_NOTIFICATIONS: u32 = 256;
