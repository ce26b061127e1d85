//! State of a server of NFS versions 4.1 and 4.2 (RFC 8881), as a value: client ids, sessions with their reply caches,
//! leases, opens with share reservations, byte-range locks, and reclaims after a restart.
//!
//! A [`Server`] opens nothing, waits for nothing and knows no time but what it is told. Each operation of the protocol is
//! a method; errors are status codes of the protocol. What the caller has to do is asked for by [`Server::poll_demand`]:
//! records of clients on stable storage, callbacks to those who wait for locks, and the release of what is kept for opens that
//! are gone. [`Server::poll_timeout`] tells when [`Server::handle_timeout`] is due.
//!
//! # What holds
//!
//! - A request that a session has seen is not executed again: its retry gets the reply that was kept, or is told that none was
//!   (RFC 8881 §2.10.6).
//! - Client ids, session ids and state ids have 64 or 96 bits from a [`Random`] source. State of a client is changed or
//!   ended only by who knows its ids, by its own principal, or after its lease has run out.
//! - Nothing of a client is lost while its lease lives. After that its state stays until it is in the way of others, or for
//!   [`Config::courtesy`]; then its record on stable storage goes first, so that it cannot reclaim after a restart what
//!   others had (RFC 8881 §8.4.3). Whoever wants what is in the way is told `Delay` until then.
//! - All tables have [`limits`], and of each an address has at most as much as it leaves free.
//!
//! SEQUENCE and the check of a state id, which are on the path of each call, allocate nothing and search nothing but hash tables.
//!
//! # What is left to the caller
//!
//! The current state id of a COMPOUND (RFC 8881 §16.2.3.1.2), the order of its operations, file handles and attributes,
//! permissions, credentials of callbacks, delegations and layouts.
//!
//! # Example
//!
//! A client gets a client id and a session, opens a file and locks some of it:
//!
//! ```
//! use nfs_proto::v4::lock::LockType;
//! use nfs_proto::v4::open::{ShareAccess, ShareDeny};
//! use nfs_proto::v4::session::{
//!     ChannelAttributes, CreateSessionArgs, CreateSessionFlags, ExchangeFlags, SequenceArgs,
//! };
//! use nfs_proto::v4::{SequenceId, SlotId, Status, Verifier};
//! use nfs4_state::lock::{LockKind, Range};
//! use nfs4_state::{
//!     AddressKey, ChannelLimits, Completed, Config, ConnectionId, CreateCall, Demand, ExchangeCall, LockRequest, Locker,
//!     OpenRequest, RequestDigest, SequenceCall, Sequenced, Server, limits::Limits,
//! };
//! use std::time::{Duration, Instant};
//!
//! # fn main() -> Result<(), Status> {
//! let channel = ChannelLimits {
//!     max_request: 1 << 20,
//!     max_response: 1 << 20,
//!     max_response_cached: 4096,
//!     max_operations: 16,
//!     max_requests: 64,
//!     min_message: 512,
//! };
//! let config = Config {
//!     lease: Duration::from_secs(90),
//!     courtesy: Duration::from_secs(24 * 3600),
//!     grace: Duration::from_secs(90),
//!     limits: Limits::default(),
//!     fore: channel,
//!     back: channel,
//! };
//! let now = Instant::now();
//! let mut random = |bytes: &mut [u8]| fastrand::fill(bytes); // a program takes what nobody can guess
//! let mut server = Server::new(now, config, []);
//!
//! let exchange = ExchangeCall {
//!     owner: b"client.example",
//!     verifier: Verifier([7; 8]),
//!     principal: &"root@client.example",
//!     address: AddressKey(1),
//!     flags: ExchangeFlags::empty(),
//!     protection: None,
//! };
//! let known = server.exchange_id(now, &mut random, &exchange)?;
//!
//! let attributes = ChannelAttributes {
//!     max_request: 1 << 20,
//!     max_response: 1 << 20,
//!     max_response_cached: 4096,
//!     max_operations: 8,
//!     max_requests: 30,
//!     ..ChannelAttributes::default()
//! };
//! let args = CreateSessionArgs {
//!     client: known.client,
//!     sequence: known.sequence,
//!     flags: CreateSessionFlags::CONN_BACK_CHAN,
//!     fore: attributes,
//!     back: attributes,
//!     callback_program: 0x4000_0000,
//!     callback_security: Default::default(),
//! };
//! let connection = ConnectionId(1);
//! let principal = exchange.principal;
//! let call = CreateCall { args: &args, principal, connection, can_call: true, minor_version: 2 };
//! let session = server.create_session(now, &mut random, &call)?;
//!
//! let args = SequenceArgs {
//!     session: session.session,
//!     sequence: SequenceId(1),
//!     slot: SlotId(0),
//!     highest_slot: SlotId(0),
//!     cache_this: true,
//! };
//! let call = SequenceCall { args: &args, connection, digest: RequestDigest(0x5eed), operations: 4, size: 300 };
//! let Sequenced::New(request) = server.sequence(now, &call)? else { panic!() };
//!
//! // It has nothing to reclaim. The answer comes once the client stands on stable storage.
//! let completed = server.reclaim_complete(request.client(), false)?;
//! assert!(matches!(completed, Completed::AfterRecord(_)));
//! let Some(Demand::Record(ticket, client)) = server.poll_demand() else { panic!() };
//! assert_eq!(*client.owner, *b"client.example");
//! server.handle_recorded(ticket, true).unwrap()?;
//!
//! let open = server.open(now, &mut random, &OpenRequest {
//!     client: request.client(),
//!     owner: b"process 1",
//!     file: &"/export/file",
//!     access: ShareAccess::READ | ShareAccess::WRITE,
//!     deny: ShareDeny::empty(),
//!     reclaims: false,
//! })?;
//! let locked = server.lock(now, &mut random, &LockRequest {
//!     client: request.client(),
//!     file: &"/export/file",
//!     range: Range::new(0, 100)?,
//!     kind: LockType::Write,
//!     locker: Locker::New { open, owner: b"process 1" },
//!     reclaims: false,
//! });
//! assert_eq!(locked.unwrap().seqid, 1);
//! server.finish(now, request, Some(bytes::Bytes::from_static(b"the reply")));
//!
//! // A retry is not executed.
//! assert!(matches!(server.sequence(now, &call)?, Sequenced::Replay(_)));
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
#[cfg(doc)]
pub mod design;
mod event;
mod grace;
mod lease;
pub mod limits;
pub mod lock;
mod server;
mod session;
mod state;
mod steady_map;
mod steady_slab;
#[cfg(test)]
mod tests;

pub use address::AddressKey;
pub use client::{ExchangeCall, Exchanged};
pub use event::{ClientEnd, Event, GraceEnd, Limit};
pub use grace::{Recorded, Ticket};
pub use server::{
    CallbackPath, ClientStage, ClientView, Completed, Config, CreateCall, Demand, GraceView,
    Listing, LockError, LockRequest, MAX_LISTED_CONNECTIONS, MAX_LISTED_LOCKS, OpenRequest,
    Request, Revoked, SequenceCall, Sequenced, Server, StateKind, StateView, StatesPage, Usage,
};
pub use session::{
    CallbackCredential, CallbackResult, CallbackSlot, ChannelLimits, ConnectionId, RequestDigest,
    SysCallbackCredential,
};
pub use state::{Denied, Locker};
pub use steady_map::SteadyMap;

/// A source of bytes that nobody can guess: client ids, session ids and state ids are made of them.
pub trait Random {
    /// Fills a buffer.
    fn fill(&mut self, bytes: &mut [u8]);
}

impl<T: FnMut(&mut [u8])> Random for T {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}
