//! OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881 §18.16, §18.18, §18.2).

use crate::Filename;
use crate::v4::bitmap::Bitmap;
use crate::v4::delegation::{Delegation, DelegationType};
use crate::v4::fattr::Fattr;
use crate::v4::types::{ChangeInfo, StateId, StateOwner, Verifier};

flags! {
    /// Access, and wishes about a delegation (`share_access`, RFC 8881 §18.16.3, RFC 9754 §4, §5).
    pub struct ShareAccess {
        /// Reading.
        const READ = 0x1;
        /// Writing.
        const WRITE = 0x2;
        /// Tell when resources for a delegation are there.
        const WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL = 0x1_0000;
        /// Offer a delegation when others no longer use the file.
        const WANT_PUSH_DELEG_WHEN_UNCONTENDED = 0x2_0000;
        /// A delegation with times.
        const WANT_DELEG_TIMESTAMPS = 0x10_0000;
        /// A delegation without an open, or an open without a delegation.
        const WANT_OPEN_XOR_DELEGATION = 0x20_0000;
    }

    /// Access that others are denied (`share_deny`, RFC 8881 §18.16.3).
    pub struct ShareDeny {
        /// Reading.
        const READ = 0x1;
        /// Writing.
        const WRITE = 0x2;
    }

    /// Flags of the result (`OPEN4_RESULT_*`, RFC 8881 §18.16.2, RFC 9754 §4).
    pub struct OpenFlags {
        /// OPEN_CONFIRM has to follow; not in minor version 1 and later.
        const CONFIRM = 0x02;
        /// Locks are those of POSIX.
        const LOCKTYPE_POSIX = 0x04;
        /// A file that is removed stays until it is closed.
        const PRESERVE_UNLINKED = 0x08;
        /// There is only a delegation; the state id of the open is not valid.
        const NO_OPEN_STATEID = 0x10;
        /// CB_NOTIFY_LOCK may come.
        const MAY_NOTIFY_LOCK = 0x20;
    }
}

xdr_enum! {
    /// Wish about a delegation: the bits `OPEN4_SHARE_ACCESS_WANT_DELEG_MASK` of `share_access`
    /// (RFC 8881 §18.16.3).
    pub enum DelegationWish ("OPEN4_SHARE_ACCESS_WANT_DELEG_MASK") {
        /// None.
        NoPreference = 0x000,
        /// For reading.
        Read = 0x100,
        /// For writing.
        Write = 0x200,
        /// Any.
        Any = 0x300,
        /// No delegation.
        NoDelegation = 0x400,
        /// Earlier wishes for this file are withdrawn.
        Cancel = 0x500,
    }
}

impl ShareAccess {
    /// The bits of the wish (`OPEN4_SHARE_ACCESS_WANT_DELEG_MASK`).
    const WISH: u32 = 0xff00;

    /// Returns the wish about a delegation. `None` for a value that is not defined: `NFS4ERR_INVAL`
    /// (RFC 8881 §18.16.3).
    pub fn wish(self) -> Option<DelegationWish> {
        DelegationWish::try_from(self.bits() & Self::WISH).ok()
    }

    /// Returns these flags with a wish about a delegation.
    #[must_use]
    pub fn with_wish(self, wish: DelegationWish) -> Self {
        Self::from_bits_retain(self.bits() & !Self::WISH | wish as u32)
    }
}

xdr_struct! {
    /// Verifier and attributes of an exclusive creation (`creatverfattr`, RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExclusiveCreate<'a> {
        /// Makes the creation safe to repeat.
        pub verifier: Verifier,
        /// Attributes, of those in `suppattr_exclcreat`.
        pub attributes: Fattr<'a>,
    }
}

xdr_union! {
    /// How OPEN treats an existing file (`createhow4`, RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CreateHow<'a> ("createmode4") {
        /// UNCHECKED4: an existing file is used unchanged, except for its size.
        Unchecked(Fattr<'a>) = 0,
        /// GUARDED4: an existing file is an error.
        Guarded(Fattr<'a>) = 1,
        /// EXCLUSIVE4: an existing file is an error, unless it was created with the same verifier.
        Exclusive(Verifier) = 2,
        /// EXCLUSIVE4_1: the same, with attributes.
        Exclusive41(ExclusiveCreate<'a>) = 3,
    }
}

xdr_union! {
    /// Whether to create the file (`openflag4`, RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OpenHow<'a> ("opentype4") {
        /// No.
        NoCreate = 0,
        /// Yes, in this way.
        Create(CreateHow<'a>) = 1,
    }
}

xdr_struct! {
    /// A delegation, and a name (`open_claim_delegate_cur4`, RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ClaimDelegateCurrent<'a> {
        /// The delegation.
        pub state: StateId,
        /// The file, in the current directory.
        pub file: Filename<'a>,
    }
}

xdr_union! {
    /// The file, and the right to open it (`open_claim4`, RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OpenClaim<'a> ("open_claim_type4") {
        /// CLAIM_NULL: a name in the current directory.
        Null(Filename<'a>) = 0,
        /// CLAIM_PREVIOUS: the current file handle, opened before the server's restart, with this
        /// delegation.
        Previous(DelegationType) = 1,
        /// CLAIM_DELEGATE_CUR: a name, by a delegation.
        DelegateCurrent(ClaimDelegateCurrent<'a>) = 2,
        /// CLAIM_DELEGATE_PREV: a name, by a delegation from before the client's restart.
        DelegatePrevious(Filename<'a>) = 3,
        /// CLAIM_FH: the current file handle.
        Handle = 4,
        /// CLAIM_DELEG_CUR_FH: the current file handle, by a delegation.
        DelegateCurrentHandle(StateId) = 5,
        /// CLAIM_DELEG_PREV_FH: the current file handle, by a delegation from before the client's restart.
        DelegatePreviousHandle = 6,
    }
}

xdr_struct! {
    /// Arguments of OPEN (RFC 8881 §18.16.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenArgs<'a> {
        /// Ignored where there is a session.
        pub seqid: u32,
        /// Access, and wishes about a delegation.
        pub access: ShareAccess,
        /// Access that others are denied.
        pub deny: ShareDeny,
        /// The owner.
        pub owner: StateOwner<'a>,
        /// Whether to create the file.
        pub how: OpenHow<'a>,
        /// The file, and the right to open it.
        pub claim: OpenClaim<'a>,
    }
}

xdr_struct! {
    /// Result of OPEN (RFC 8881 §18.16.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenOk<'a> {
        /// State id of the open.
        pub state: StateId,
        /// The directory before and after.
        pub change: ChangeInfo,
        /// Flags.
        pub flags: OpenFlags,
        /// Attributes that were set for a new file.
        pub set: Bitmap,
        /// Delegation.
        pub delegation: Delegation<'a>,
    }
}

xdr_struct! {
    /// Arguments of OPEN_DOWNGRADE (RFC 8881 §18.18.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenDowngradeArgs {
        /// The open.
        pub state: StateId,
        /// Ignored where there is a session.
        pub seqid: u32,
        /// Access that is left.
        pub access: ShareAccess,
        /// Access that others are still denied.
        pub deny: ShareDeny,
    }
}

xdr_struct! {
    /// Arguments of CLOSE (RFC 8881 §18.2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloseArgs {
        /// Ignored where there is a session.
        pub seqid: u32,
        /// The open.
        pub state: StateId,
    }
}
