//! Delegations: as OPEN grants them, WANT_DELEGATION, GET_DIR_DELEGATION, and their return.

use crate::v4::acl::Ace;
use crate::v4::bitmap::Bitmap;
use crate::v4::types::{ClientId, StateId, Time, Verifier};

xdr_enum! {
    /// Kind of a delegation (`open_delegation_type4`, RFC 8881 §18.16.2, RFC 9754 §5).
    pub enum DelegationType ("open_delegation_type4") {
        /// None.
        None = 0,
        /// For reading.
        Read = 1,
        /// For writing.
        Write = 2,
        /// None, with the reason.
        NoneExt = 3,
        /// For reading, with times.
        ReadAttributes = 4,
        /// For writing, with times.
        WriteAttributes = 5,
    }
}

xdr_struct! {
    /// A delegation for reading (`open_read_delegation4`, RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReadDelegation<'a> {
        /// State id of the delegation.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recall: bool,
        /// Users that need no ACCESS.
        pub permissions: Ace<'a>,
    }
}

xdr_struct! {
    /// A number of blocks (`nfs_modified_limit4`, RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BlockLimit {
        /// Blocks.
        pub blocks: u32,
        /// Bytes of a block.
        pub bytes_per_block: u32,
    }
}

xdr_union! {
    /// Space for which a client need not ask (`nfs_space_limit4`, RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SpaceLimit ("limit_by4") {
        /// Size of the file.
        Size(u64) = 1,
        /// Blocks.
        Blocks(BlockLimit) = 2,
    }
}

xdr_struct! {
    /// A delegation for writing (`open_write_delegation4`, RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteDelegation<'a> {
        /// State id of the delegation.
        pub state: StateId,
        /// Whether it is recalled already.
        pub recall: bool,
        /// Space up to which the client may keep data back at a CLOSE.
        pub space_limit: SpaceLimit,
        /// Users that need no ACCESS.
        pub permissions: Ace<'a>,
    }
}

xdr_union! {
    /// Why there is no delegation (`open_none_delegation4`, RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NoDelegation ("why_no_delegation4") {
        /// None was wanted.
        NotWanted = 0,
        /// Others use the file. Whether the server will offer one later by CB_PUSH_DELEG.
        Contention(bool) = 1,
        /// Resources are short. Whether the server will tell when they are there.
        Resource(bool) = 2,
        /// Not for files of this type.
        NotSupportedFileType = 3,
        /// Not for writing files of this type.
        WriteNotSupportedFileType = 4,
        /// It cannot be upgraded.
        NotSupportedUpgrade = 5,
        /// It cannot be downgraded.
        NotSupportedDowngrade = 6,
        /// The wish is withdrawn.
        Cancelled = 7,
        /// It is a directory.
        IsDirectory = 8,
    }
}

xdr_union! {
    /// A delegation, or none (`open_delegation4`, RFC 8881 §18.16.2, RFC 9754 §5).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Delegation<'a> ("open_delegation_type4") {
        /// None.
        None = 0,
        /// For reading.
        Read(ReadDelegation<'a>) = 1,
        /// For writing.
        Write(WriteDelegation<'a>) = 2,
        /// None, with the reason.
        NoneExt(NoDelegation) = 3,
        /// For reading, with times.
        ReadAttributes(ReadDelegation<'a>) = 4,
        /// For writing, with times.
        WriteAttributes(WriteDelegation<'a>) = 5,
    }
}

xdr_struct! {
    /// Arguments of DELEGPURGE (RFC 8881 §18.5.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DelegPurgeArgs {
        /// The client. A server ignores it where there is a session.
        pub client: ClientId,
    }
}

xdr_struct! {
    /// Arguments of DELEGRETURN (RFC 8881 §18.6.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DelegReturnArgs {
        /// The delegation.
        pub state: StateId,
    }
}

xdr_union! {
    /// Right to a delegation (`deleg_claim4`, RFC 8881 §18.49.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DelegationClaim ("open_claim_type4") {
        /// One from before the server's restart.
        Previous(DelegationType) = 1,
        /// A new one.
        Handle = 4,
        /// One from before the client's restart.
        DelegatePrevious = 6,
    }
}

xdr_struct! {
    /// Arguments of WANT_DELEGATION (RFC 8881 §18.49.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WantDelegationArgs {
        /// Kind of the delegation, and when it is wanted, as in `share_access` of OPEN.
        pub want: u32,
        /// Right to it.
        pub claim: DelegationClaim,
    }
}

xdr_struct! {
    /// Arguments of GET_DIR_DELEGATION (RFC 8881 §18.39.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDirDelegationArgs {
        /// Whether to tell when a delegation can be had.
        pub signal_available: bool,
        /// Wanted notifications.
        pub notifications: Bitmap,
        /// Delay of those about entries.
        pub child_delay: Time,
        /// Delay of those about the directory.
        pub dir_delay: Time,
        /// Attributes of entries to notify about.
        pub child_attributes: Bitmap,
        /// Attributes of the directory to notify about.
        pub dir_attributes: Bitmap,
    }
}

xdr_struct! {
    /// A delegation of a directory (`GET_DIR_DELEGATION4resok`, RFC 8881 §18.39.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirDelegation {
        /// Cookie verifier of the directory.
        pub verifier: Verifier,
        /// The delegation.
        pub state: StateId,
        /// Notifications.
        pub notifications: Bitmap,
        /// Attributes of entries that are notified about.
        pub child_attributes: Bitmap,
        /// Attributes of the directory that are notified about.
        pub dir_attributes: Bitmap,
    }
}

xdr_union! {
    /// Result of GET_DIR_DELEGATION (`GET_DIR_DELEGATION4res_non_fatal`, RFC 8881 §18.39.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GetDirDelegationOk ("gddrnf4_status") {
        /// A delegation.
        Granted(DirDelegation) = 0,
        /// None now. Whether the server will tell when there is one.
        Unavailable(bool) = 1,
    }
}
