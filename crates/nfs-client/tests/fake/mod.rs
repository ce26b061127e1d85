//! An NFS server in memory with the faults that a test asks for, and a transport that calls it
//! directly and holds every reply against its bound.

#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    clippy::result_large_err,
    reason = "each test file uses its part; results are as large as NFS makes them"
)]

mod disk;
mod server;
mod transport;

pub(crate) use disk::ROOT;
pub(crate) use server::{Faults, Server};
pub(crate) use transport::{Carry, Direct};

use nfs_client::{Export, current_user};
use nfs_proto::FileHandle;
use std::sync::Arc;

/// A client of a new server with these faults.
pub(crate) async fn export(faults: Faults, carry: Carry) -> (Arc<Server>, Export<Direct>) {
    let server = Arc::new(Server::new(faults));
    let transport = Direct::new(Arc::clone(&server) as _, carry);
    let root = FileHandle::new(&ROOT.to_be_bytes()).unwrap();
    let export = Export::open(transport, current_user(), root).await.unwrap();
    (server, export)
}

/// Bytes that differ from place to place.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}
