//! Reads and writes with special state ids, while they are executed.

use super::state::{FileKey, Nfs4State};

/// A read or write with a special state id that is being executed: until this is dropped, nobody is granted a denial of it (RFC 8881
/// §9.1.2).
pub(super) struct SpecialIo {
    pub(super) state: Nfs4State,
    pub(super) key: FileKey,
    pub(super) writes: bool,
}

impl Drop for SpecialIo {
    fn drop(&mut self) {
        (self.state).with(|all| all.server.end_special_io(&self.key, self.writes));
    }
}
