//! Tables by client id.

use nfs_proto::v4::ClientId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table by client id.
pub(crate) type ClientMap<T> = HashMap<ClientId, T, BuildHasherDefault<ClientIdHasher>>;

/// Hasher of client ids: the id itself. They are random numbers that the server makes, so that no client can choose them to collide.
#[derive(Debug, Default)]
pub(crate) struct ClientIdHasher(u64);

impl Hasher for ClientIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
