//! Operations of minor version 0 that later versions must not implement (RFC 8881 §17): they are
//! read, and answered `NFS4ERR_NOTSUPP`.

use crate::v4::status::{Refused, Status};
use crate::v4::types::{ClientId, Identifier, NetAddress, StateId, StateOwner, Verifier};

xdr_struct! {
    /// Arguments of OPEN_CONFIRM (RFC 7530 §16.18.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenConfirmArgs {
        /// The open.
        pub state: StateId,
        /// Number of the owner's request.
        pub seqid: u32,
    }
}

xdr_struct! {
    /// Arguments of RENEW (RFC 7530 §16.28.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenewArgs {
        /// The client.
        pub client: ClientId,
    }
}

xdr_struct! {
    /// Arguments of SETCLIENTID (RFC 7530 §16.33.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetClientIdArgs<'a> {
        /// Changes when the client restarts.
        pub verifier: Verifier,
        /// The client.
        pub id: Identifier<'a>,
        /// Program number of the callbacks.
        pub callback_program: u32,
        /// Address for them.
        pub callback_address: NetAddress<'a>,
        /// Value that each callback repeats.
        pub callback_ident: u32,
    }
}

xdr_struct! {
    /// Result of SETCLIENTID, and arguments of SETCLIENTID_CONFIRM (RFC 7530 §16.33.3, §16.34.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ConfirmClientId {
        /// The client.
        pub client: ClientId,
        /// Verifier of this confirmation.
        pub confirm: Verifier,
    }
}

/// Result of SETCLIENTID: `NFS4ERR_CLID_INUSE` names the client that is in the way (RFC 7530 §16.33.3).
pub type SetClientIdRes<'a> =
    Result<ConfirmClientId, Refused<NetAddress<'a>, { Status::ClientIdInUse as u32 }>>;

xdr_struct! {
    /// Arguments of RELEASE_LOCKOWNER (RFC 7530 §16.37.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReleaseLockOwnerArgs<'a> {
        /// The owner.
        pub owner: StateOwner<'a>,
    }
}
