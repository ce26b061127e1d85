//! Fuzz targets: properties of each parser and state machine that hold for any input of a peer.
//!
//! Each target is a function of bytes, which it takes for a message or for a script of what
//! happens. It panics if the property does not hold. Targets have names, by which `cargo xtask fuzz`
//! calls them; their tests are in `targets.rs`.
//!
//! | target | what is fed | what must hold |
//! |---|---|---|
//! | [`mpa`] | MPA frames in pieces, private data | the cut does not matter; what is read can be sent again; both parts agree |
//! | [`ddp`] | DDP and RDMAP headers, Terminates | what is read can be sent again, byte by byte |
//! | [`rpcrdma_header`] | transport headers | what is valid keeps to the limits and can be sent again |
//! | [`rpcrdma_v2_header`] | transport headers of version two, in each layout | the same; nobody is answered who does not call |
//! | [`rpcrdma_v2_ietf07`] | transport headers of version two as ietf-07 has them | the same; nobody is answered whose message is a reply |
//! | [`rpcrdma_v2_operations`] | what is in RDMA2_OPTIONAL | the same; all or nothing; what is unknown is skipped |
//! | [`rpcrdma_v2_session`] | one end that agrees about characteristics, its user, a peer that says anything | every call is answered, no reply is; messages fit what the peer has for them; each request has its end |
//! | [`rpc`] | calls, replies, credentials, records, rpcbind | the same |
//! | [`nfs`] | arguments and results of NFS and MOUNT | the same, by reference too |
//! | [`nfs4`] | operations, attributes and callbacks of NFS versions 4.1 and 4.2 | the same; reading arguments allocates nothing; replies are whole; the scan of passing messages finds the same items |
//! | [`nfs_scan`] | calls and replies of NFS versions 2 to 4.2 that pass by | the cut does not matter; items lie in order and inside; what is moved beside a message comes back to its place |
//! | [`text`] | URLs, universal addresses, networks | the same |
//! | [`iwarp_stream`] | one end of iWARP, its user, a peer that says anything | work completes once; memory is touched where it was named; bytes out are in order |
//! | [`iwarp_pair`] | two ends of iWARP that keep to the rules; damage in the end | everything arrives as it was, or not at all |
//! | [`rpcrdma_client`], [`rpcrdma_server`] | either end of RPC-over-RDMA, in either version, its user, a peer that says anything, work that completes in any order | credits and Receives; no answer while its call is read; each call ends once and with nothing exposed; nothing is invalidated that is needed or was not offered |
//! | [`nfs_dispatch`] | calls of the NFS, NFSACL and MOUNT programs over a file system in memory | a reply has results of its procedure and keeps to its bound; a call that comes again is executed once |
//! | [`nfs4_compound`] | operations behind a SEQUENCE, of a server of NFS version 4 over a file system in memory | the reply says how far each COMPOUND got; its slot is free afterwards; a retry gets the same reply |
//! | [`nfs4_state`] | events of clients, leases, restarts and stable storage, for the state of version 4 | no table grows beyond its limit; in the end nothing is left |
//! | [`nfs_client`] | a client of files, a server whose replies change on their way | everything ends; no name leads elsewhere; errors can be shown |
//!
//! Everything is bounded: the peak of what a target allocates is compared with what its input
//! allows, and in the end nothing is left.

mod ddp;
mod hand;
mod iwarp_pair;
mod iwarp_stream;
mod ledger;
mod memory;
mod mpa;
mod nfs;
mod nfs4;
mod nfs4_compound;
mod nfs4_state;
mod nfs_client;
mod nfs_dispatch;
mod nfs_scan;
mod rpc;
mod rpcrdma;
mod rpcrdma_header;
mod rpcrdma_v2;
mod script;
mod site;
mod text;

pub use ddp::ddp;
pub use iwarp_pair::iwarp_pair;
pub use iwarp_stream::iwarp_stream;
pub use mpa::mpa;
pub use nfs::nfs;
pub use nfs_client::nfs_client;
pub use nfs_dispatch::nfs_dispatch;
pub use nfs_scan::nfs_scan;
pub use nfs4::nfs4;
pub use nfs4_compound::nfs4_compound;
pub use nfs4_state::nfs4_state;
pub use rpc::rpc;
pub use rpcrdma::ietf07::{rpcrdma_ietf07_client, rpcrdma_ietf07_server};
pub use rpcrdma::{rpcrdma_client, rpcrdma_server};
pub use rpcrdma_header::rpcrdma_header;
pub use rpcrdma_v2::header::rpcrdma_v2_header;
pub use rpcrdma_v2::ietf07::rpcrdma_v2_ietf07;
pub use rpcrdma_v2::operations::rpcrdma_v2_operations;
pub use rpcrdma_v2::session::rpcrdma_v2_session;
pub use text::text;
