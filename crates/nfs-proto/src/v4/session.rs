//! Client ids and sessions: EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, SEQUENCE and others.

use crate::Bytes;
use crate::v4::array::Array;
use crate::v4::bitmap::Bitmap;
use crate::v4::limits::{MAX_ALGORITHMS, MAX_GSS_HANDLES, MAX_SSV};
use crate::v4::security::{CallbackSecurities, GssHandle, Oid};
use crate::v4::types::{ClientId, Identifier, SequenceId, SessionId, SlotId, Time, Verifier};

xdr_struct! {
    /// Name of a client (`client_owner4`, RFC 8881 §2.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ClientOwner<'a> {
        /// Changes when the client restarts.
        pub verifier: Verifier,
        /// The same for all instances of the client.
        pub owner: Identifier<'a>,
    }
}

xdr_struct! {
    /// Name of a server (`server_owner4`, RFC 8881 §2.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ServerOwner<'a> {
        /// Addresses with the same minor id may share sessions, if the major id is equal, too.
        pub minor: u64,
        /// Addresses with the same major id may share client ids.
        pub major: Identifier<'a>,
    }
}

xdr_struct! {
    /// Implementation of a client or server (`nfs_impl_id4`, RFC 8881 §3.3.21): for diagnosis only.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ImplementationId<'a> {
        /// Domain of its maker.
        pub domain: Identifier<'a>,
        /// Name and version.
        pub name: Identifier<'a>,
        /// When it was made.
        pub date: Time,
    }
}

flags! {
    /// Flags of EXCHANGE_ID (`EXCHGID4_FLAG_*`, RFC 8881 §18.35.3).
    pub struct ExchangeFlags {
        /// Referrals by `NFS4ERR_MOVED`.
        const SUPP_MOVED_REFER = 0x0000_0001;
        /// Migration.
        const SUPP_MOVED_MIGR = 0x0000_0002;
        /// State ids belong to the principal that made them.
        const BIND_PRINC_STATEID = 0x0000_0100;
        /// No pNFS.
        const USE_NON_PNFS = 0x0001_0000;
        /// Metadata server of pNFS.
        const USE_PNFS_MDS = 0x0002_0000;
        /// Data server of pNFS.
        const USE_PNFS_DS = 0x0004_0000;
        /// The call updates a confirmed client id.
        const UPD_CONFIRMED_REC_A = 0x4000_0000;
        /// The client id of the reply is confirmed.
        const CONFIRMED_R = 0x8000_0000;
    }

    /// Flags of CREATE_SESSION (`CREATE_SESSION4_FLAG_*`, RFC 8881 §18.36.3).
    pub struct CreateSessionFlags {
        /// The reply cache survives a restart of the server.
        const PERSIST = 0x1;
        /// The connection is for callbacks, too.
        const CONN_BACK_CHAN = 0x2;
        /// The connection steps up to RDMA.
        const CONN_RDMA = 0x4;
    }

    /// Status of the client and its session in each SEQUENCE (`SEQ4_STATUS_*`, RFC 8881 §18.46.3).
    pub struct SequenceStatus {
        /// No session of the client has a way for callbacks.
        const CB_PATH_DOWN = 0x0001;
        /// The contexts of RPCSEC_GSS for callbacks expire soon.
        const CB_GSS_CONTEXTS_EXPIRING = 0x0002;
        /// They have expired.
        const CB_GSS_CONTEXTS_EXPIRED = 0x0004;
        /// The lease ran out, and all state is gone.
        const EXPIRED_ALL_STATE_REVOKED = 0x0008;
        /// The lease ran out, and some state is gone.
        const EXPIRED_SOME_STATE_REVOKED = 0x0010;
        /// An administrator revoked state.
        const ADMIN_STATE_REVOKED = 0x0020;
        /// Delegations or layouts were revoked.
        const RECALLABLE_STATE_REVOKED = 0x0040;
        /// A file system has moved.
        const LEASE_MOVED = 0x0080;
        /// The server has restarted, and state is to be reclaimed.
        const RESTART_RECLAIM_NEEDED = 0x0100;
        /// This session has no way for callbacks.
        const CB_PATH_DOWN_SESSION = 0x0200;
        /// The server lost its sequence ids of the back channel.
        const BACKCHANNEL_FAULT = 0x0400;
        /// Device ids have changed.
        const DEVID_CHANGED = 0x0800;
        /// Device ids are gone.
        const DEVID_DELETED = 0x1000;
    }
}

xdr_struct! {
    /// Operations under the protection of state (`state_protect_ops4`, RFC 8881 §18.35.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ProtectedOperations {
        /// Those that must have the machine credential or that of the secret state verifier.
        pub must_enforce: Bitmap,
        /// Those that may.
        pub must_allow: Bitmap,
    }
}

xdr_struct! {
    /// Wishes for a secret state verifier (`ssv_sp_parms4`, RFC 8881 §18.35.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SsvParameters<'a> {
        /// Operations.
        pub operations: ProtectedOperations,
        /// Hash algorithms.
        pub hash_algorithms: Array<'a, Oid<'a>, MAX_ALGORITHMS>,
        /// Encryption algorithms.
        pub encryption_algorithms: Array<'a, Oid<'a>, MAX_ALGORITHMS>,
        /// Versions of the verifier that stay valid.
        pub window: u32,
        /// Handles wanted.
        pub handles: u32,
    }
}

xdr_union! {
    /// Protection of state that a client asks for (`state_protect4_a`, RFC 8881 §18.35.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProtectArgs<'a> ("state_protect_how4") {
        /// `SP4_NONE`.
        None = 0,
        /// `SP4_MACH_CRED`: by the machine's credential.
        MachineCredential(ProtectedOperations) = 1,
        /// `SP4_SSV`: by a secret state verifier.
        Ssv(SsvParameters<'a>) = 2,
    }
}

xdr_struct! {
    /// The secret state verifier of a client id (`ssv_prot_info4`, RFC 8881 §18.35.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SsvInfo<'a> {
        /// Operations.
        pub operations: ProtectedOperations,
        /// Index of the hash algorithm in the client's list.
        pub hash_algorithm: u32,
        /// Index of the encryption algorithm.
        pub encryption_algorithm: u32,
        /// Bytes of the verifier.
        pub length: u32,
        /// Versions of the verifier that stay valid.
        pub window: u32,
        /// Handles for RPCSEC_GSS.
        pub handles: Array<'a, GssHandle<'a>, MAX_GSS_HANDLES>,
    }
}

xdr_union! {
    /// Protection of state (`state_protect4_r`, RFC 8881 §18.35.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProtectRes<'a> ("state_protect_how4") {
        /// `SP4_NONE`.
        None = 0,
        /// `SP4_MACH_CRED`: by the machine's credential.
        MachineCredential(ProtectedOperations) = 1,
        /// `SP4_SSV`: by a secret state verifier.
        Ssv(SsvInfo<'a>) = 2,
    }
}

xdr_struct! {
    /// Arguments of EXCHANGE_ID (RFC 8881 §18.35.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExchangeIdArgs<'a> {
        /// The client.
        pub owner: ClientOwner<'a>,
        /// Flags.
        pub flags: ExchangeFlags,
        /// Protection of state.
        pub protect: ProtectArgs<'a>,
        /// Implementation, if the client tells it.
        pub implementation: Option<ImplementationId<'a>>,
    }
}

xdr_struct! {
    /// Result of EXCHANGE_ID (RFC 8881 §18.35.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExchangeIdOk<'a> {
        /// The client id.
        pub client: ClientId,
        /// Sequence id for the first CREATE_SESSION.
        pub sequence: SequenceId,
        /// Flags.
        pub flags: ExchangeFlags,
        /// Protection of state.
        pub protect: ProtectRes<'a>,
        /// The server.
        pub owner: ServerOwner<'a>,
        /// Scope in which client ids, handles and state ids are unique.
        pub scope: Identifier<'a>,
        /// Implementation, if the server tells it.
        pub implementation: Option<ImplementationId<'a>>,
    }
}

xdr_struct! {
    /// Limits of a channel (`channel_attrs4`, RFC 8881 §18.36.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChannelAttributes {
        /// Bytes of padding before data in a message over RDMA.
        pub header_pad: u32,
        /// Most bytes of a request.
        pub max_request: u32,
        /// Most bytes of a reply.
        pub max_response: u32,
        /// Most bytes of a reply that is kept for a retry.
        pub max_response_cached: u32,
        /// Most operations of a request.
        pub max_operations: u32,
        /// Requests at a time: slots.
        pub max_requests: u32,
        /// RDMA Reads at a time, if the sender tells it.
        pub rdma_ird: Option<u32>,
    }
}

xdr_struct! {
    /// Arguments of CREATE_SESSION (RFC 8881 §18.36.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateSessionArgs<'a> {
        /// The client.
        pub client: ClientId,
        /// Sequence id: makes the operation safe to repeat.
        pub sequence: SequenceId,
        /// Flags.
        pub flags: CreateSessionFlags,
        /// Limits for requests.
        pub fore: ChannelAttributes,
        /// Limits for callbacks.
        pub back: ChannelAttributes,
        /// Program number of the callbacks.
        pub callback_program: u32,
        /// Credentials for them.
        pub callback_security: CallbackSecurities<'a>,
    }
}

xdr_struct! {
    /// Result of CREATE_SESSION (RFC 8881 §18.36.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CreateSessionOk {
        /// The session.
        pub session: SessionId,
        /// The sequence id of the arguments.
        pub sequence: SequenceId,
        /// Flags.
        pub flags: CreateSessionFlags,
        /// Limits for requests.
        pub fore: ChannelAttributes,
        /// Limits for callbacks.
        pub back: ChannelAttributes,
    }
}

xdr_enum! {
    /// Channels that a client wants on a connection (`channel_dir_from_client4`, RFC 8881 §18.34.1).
    pub enum ClientDirection ("channel_dir_from_client4") {
        /// Requests.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Requests, and callbacks if possible.
        ForeOrBoth = 3,
        /// Callbacks, and requests if possible.
        BackOrBoth = 7,
    }
}

xdr_enum! {
    /// Channels of a connection (`channel_dir_from_server4`, RFC 8881 §18.34.2).
    pub enum ServerDirection ("channel_dir_from_server4") {
        /// Requests.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Both.
        Both = 3,
    }
}

xdr_struct! {
    /// Arguments of BIND_CONN_TO_SESSION (RFC 8881 §18.34.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BindConnToSessionArgs {
        /// The session.
        pub session: SessionId,
        /// The channels.
        pub direction: ClientDirection,
        /// Whether the connection steps up to RDMA.
        pub use_rdma: bool,
    }
}

xdr_struct! {
    /// Result of BIND_CONN_TO_SESSION (RFC 8881 §18.34.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BindConnToSessionOk {
        /// The session.
        pub session: SessionId,
        /// The channels.
        pub direction: ServerDirection,
        /// Whether the connection steps up to RDMA.
        pub use_rdma: bool,
    }
}

xdr_struct! {
    /// Arguments of DESTROY_SESSION (RFC 8881 §18.37.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DestroySessionArgs {
        /// The session.
        pub session: SessionId,
    }
}

xdr_struct! {
    /// Arguments of DESTROY_CLIENTID (RFC 8881 §18.50.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DestroyClientIdArgs {
        /// The client.
        pub client: ClientId,
    }
}

xdr_struct! {
    /// Arguments of RECLAIM_COMPLETE (RFC 8881 §18.51.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReclaimCompleteArgs {
        /// Whether reclaims are complete for the file system of the current file handle only.
        pub one_fs: bool,
    }
}

xdr_struct! {
    /// Arguments of SEQUENCE (RFC 8881 §18.46.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SequenceArgs {
        /// The session.
        pub session: SessionId,
        /// Sequence id of the slot.
        pub sequence: SequenceId,
        /// The slot.
        pub slot: SlotId,
        /// Highest slot with a request that waits for its reply.
        pub highest_slot: SlotId,
        /// Whether the reply has to be kept for a retry.
        pub cache_this: bool,
    }
}

xdr_struct! {
    /// Result of SEQUENCE (RFC 8881 §18.46.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SequenceOk {
        /// The session.
        pub session: SessionId,
        /// Sequence id of the slot.
        pub sequence: SequenceId,
        /// The slot.
        pub slot: SlotId,
        /// Highest slot that the server takes.
        pub highest_slot: SlotId,
        /// Highest slot that the client should use.
        pub target_highest_slot: SlotId,
        /// Status of client and session.
        pub status: SequenceStatus,
    }
}

xdr_struct! {
    /// Arguments of SET_SSV (RFC 8881 §18.47.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetSsvArgs<'a> {
        /// Change of the secret state verifier.
        pub ssv: Bytes<'a, MAX_SSV>,
        /// Digest of the SEQUENCE before it.
        pub digest: Bytes<'a, MAX_SSV>,
    }
}

xdr_struct! {
    /// Result of SET_SSV (RFC 8881 §18.47.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetSsvOk<'a> {
        /// Digest of the result of the SEQUENCE before it.
        pub digest: Bytes<'a, MAX_SSV>,
    }
}
