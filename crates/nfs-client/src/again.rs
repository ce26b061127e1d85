//! Files that are replaced while they are used: their paths are looked up again.

use crate::Fault;
use nfs_proto::Status;

/// Times that a path is looked up again, as what it led to is gone by then. A file that is replaced all the time is given
/// up after that.
const MAX_LOOKUPS: u32 = 32;

/// A count of how often a path was looked up again for one operation.
///
/// A file that is replaced by renaming another one is gone between its LOOKUP and what follows: the server then says
/// [`Status::Stale`], although the path leads to a file at all times. Linux looks it up again too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Again {
    lookups: u32,
}

impl Again {
    /// Returns whether the path is to be looked up, and the operation done, once more after it failed like this.
    pub fn after(&mut self, fault: &Fault) -> bool {
        let is_gone = *fault == Fault::Status(Status::Stale);
        self.lookups += 1;
        is_gone && self.lookups <= MAX_LOOKUPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_what_is_gone_is_looked_up_again_a_number_of_times() {
        let stale = Fault::from(Status::Stale);
        let mut again = Again::default();
        assert!(!again.after(&Status::NoEntry.into()));
        let mut lookups = 0;
        let mut again = Again::default();
        while again.after(&stale) {
            lookups += 1;
        }
        assert_eq!(lookups, MAX_LOOKUPS);
    }
}
