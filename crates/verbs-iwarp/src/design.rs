//! Decisions behind `verbs`, `iwarp-proto` and this crate, with their reasons.
//!
//! - **The cores use the types of `verbs` directly.** Types of their own would have to be translated for each work request
//!   and each completion, without a benefit.
//! - **Registering memory has no completion, and fails immediately.** In software there is nothing to wait for, and the
//!   peer depends on the order of the queue.
//! - **Memory has an address.** `register` returns handle and address, as hardware with virtual addresses needs. Software
//!   iWARP starts at 0; the simulation does not, so that no upper layer relies on it.
//! - **A shared receive queue uses no memory before a message arrives.** `verbs::SharedReceiveQueue` lends a bounded number
//!   of blocks to the messages of many connections, up to a share for each connection. The software RNIC takes a block when
//!   the first FPDU of a message arrives. When all blocks are lent it does not read the socket, so that TCP flow control
//!   holds the peer back. Waiting connections are served in order, and each returned block wakes one.
//!   `Limits::holds_peer_back` says whether a provider can do that. If so, a server grants more credits than it has blocks
//!   (a departure from RFC 8166 §3.3.1). Hardware cannot: it posts the blocks in advance, and each credit needs one.
//! - **Where each connection posts its own Receives, its grant grows with use.** It begins with 8 credits. A client that uses
//!   them gets twice as many, up to the configured ones, and the Receives are posted before the grant goes out. Addresses
//!   share the memory for this. Why that, and no shared receive queue of a device:
//!   Receives over devices (`docs/design/receives.md`).
//! - **An address gets a quarter of the Receives.** The queue pairs of one address share one part of the shared receive
//!   queue (`server/addresses.rs`). When its calls hold as many blocks as allowed, for example while they wait for a thread,
//!   its connections wait for blocks of their own part, and other connections continue. Parts that wait for the rest take
//!   turns. An overdraft of a part counts in addition to the blocks of the queue. Otherwise Reads that are never answered
//!   would bypass the quarter.
//! - **A connection with outstanding Reads may overdraw the queue, up to its share.** Calls that hold all blocks may wait
//!   for Read Responses, which are behind other calls in the stream. Waiting for a block would be waiting for something
//!   behind it. A server's share for a connection has a block for each tolerated call, twice the credits, because a client
//!   that gives up a call may already send the next. A peer with more calls than that is disconnected.
//! - **An idle connection has no provider memory.** A pool lends staging and framing memory, as much as a read is offered.
//!   The memory returns when there is nothing to receive or to send. It is zeroed when first allocated and never again.
//!   `cargo run -p verbs-iwarp --example idle` prints what an idle connection costs.
//! - **One turn handles a bounded number of FPDUs.** An FPDU without payload costs its sender 20 bytes. One call of
//!   `progress` handles at most 1,024 of them. The rest stays staged, and the queue pair stays ready.
//! - **Small FPDUs are staged, large payload is placed directly.** A small FPDU goes through staging memory into its
//!   Receive. Payload of 8 KiB or more goes from the socket to its place. A peer that cuts FPDUs to TCP segments, as Linux'
//!   `siw` does, stays below that size, and its payload is copied once.
//! - **Data is placed before its CRC is checked.** RFC 5044 §6 requires a receiver to check an FPDU before passing it up. We
//!   place payload while its CRC is still in transit. A corrupt header can reach only memory that the same connection
//!   exposed, and a wrong CRC ends the connection and fails every call on it. `--crc=strict` checks first, at the cost of a
//!   copy.
//! - **A provider wrapper overrides only what it changes.** `WrapQueuePair` and `WrapProvider` forward the rest.
