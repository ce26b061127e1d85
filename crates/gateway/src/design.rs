//! Decisions behind this crate, with their reasons.
//!
//! - **A gateway is stateless, and one upstream connection belongs to one client connection.** Whatever a server binds to a
//!   connection (sessions, locks, replies kept) then holds for the client. Both connections end together, and nothing is
//!   repeated by the gateway: only the client knows what may be.
//! - **XIDs pass**, because verifiers of RPCSEC_GSS cover them. Messages of the protocol core itself skip XIDs in flight.
//! - **The program chooses a provider for each upstream connection**, by the trait `ConnectRdma`; the gateway itself knows
//!   none. So it reaches a server as our clients do, and has no opinion of its own about devices.
//! - **Messages are scanned, not decoded.** The scan says where data is, so that it moves from socket to chunk and from chunk
//!   to socket without a copy, and how large a reply can be. The decisions are in The gateway (`docs/design/gateway.md`).
//! - **A client that does not read does not hold what others need.** Memory for replies is shared by address, and comes back
//!   from a connection that takes nothing while others wait: it is closed. `oncrpc::Connections` ends it at once, and not behind
//!   its replies.
