//! Decisions behind this crate, with their reasons.
//!
//! - **Version one is independent of version two.** The two roles and the planner know one value, `Agreed`: the header
//!   codec, the largest message, whether each direction has chunks, and which handles may be invalidated remotely. For
//!   version one, private data determines it. `v2::Connection` wraps the connection of version one: it negotiates the
//!   version, keeps a `Session`, handles messages that neither role accepts, and replaces `Agreed` when the session
//!   changes. A header is parsed once per message. Credits and the Receives behind them are in `FlowControl`, separate from
//!   the roles.
//! - **A call has one entry in the core for its whole life**: its request, its XID, its plan until it is sent, its regions,
//!   and a value of the driver. That value is the slot shared with the caller's future, with its waker and its outcome.
//!   Nothing else refers to the call. A call waits for a credit in the driver's queue, where users take turns, and for room
//!   for its regions in the core, in order. It is planned again only if the agreement has changed. The core knows the
//!   driver as an `Owner`: one type for its calls and one for memory leases.
//! - **A dialect of version two is a value.** The text is one of several drafts that nothing in a message distinguishes, so
//!   each of the two dialects has its own header (`v2::header` for cel-01, `v2::ietf07`) and its own exchange of what an end
//!   announces (`Session`; `Exchange` in `v2/connection/ietf07.rs`), and both ends are configured with it. The roles are the same.
//!   In ietf-07 credits count messages: `MessageCredits` in `FlowControl` stamps each header when it is posted. Messages in
//!   several parts are cut in `Shared` and put together before a role sees them. A server announces its dialect in
//!   private data, and a client that has a choice offers version two to such a server only. The decisions are in Version   two (`docs/design/version-two.md`). A characteristic is a type that implements a trait; standard ones and those that a
//!   library user adds work the same way.
//! - **The version is negotiated before a client hands out its connection.** This costs one round trip at setup and none
//!   later. A client that remembers that a server lacks version two asks again when that server turns out to lack version
//!   one.
//! - **One list of designs configures remote invalidation** at each end. A design that is not in the list is neither
//!   announced, offered nor accepted. R of version one is one of the designs, and the only one by default.
//! - **What a provider can beyond RFC 5040 is a number in its limits**: parts of a region under one handle, each with its own
//!   access right (`Limits::parts`), and handles that one Send invalidates (`Limits::invalidations`). Both are off towards
//!   hardware. Each chunk of a call has an entry of its own in the core, also where several have one handle.
//! - **A Read work request covers a whole chunk**: several remote segments, one sink. Both cores count segments against the
//!   read depth; no layer reassembles buffers.
//! - **A message that fits a Send is copied; data that moves by chunk is not.** An outgoing RPC message is written behind
//!   its transport header. Data of 1 KiB or more at its end, as in a READ reply, follows by reference.
