//! Largest number of calls in flight in each direction, for a number of Receives.

use rpcrdma_proto::limits::{MAX_CREDITS, PART_RECEIVES, RECEIVE_SLACK};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{Version, Versions};

/// Divisor for backward calls: if Receives are scarce, at most one in this many is for calls of the
/// server.
const BACKWARD_SHARE: usize = 4;

/// Returns the Receives for parts of messages, where this may be spoken.
pub(crate) fn for_parts(dialect: Dialect, versions: Versions) -> usize {
    match dialect == Dialect::Ietf07 && versions.speak(Version::Two) {
        true => PART_RECEIVES as usize,
        false => 0,
    }
}

/// Returns the credits for calls of the client and of the server, given those wanted and the number
/// of Receives: each call and each reply needs one (RFC 8166 §3.3.1, RFC 8167 §4.1). `None` if
/// there is no room for one call in each direction in use.
pub(crate) fn share(receives: usize, forward: u32, backward: u32) -> Option<(u32, u32)> {
    let room = receives.checked_sub(RECEIVE_SLACK)?;
    let most =
        |wanted: u32, room: usize| u32::try_from(room).map_or(wanted, |room| wanted.min(room));
    let forward = forward.clamp(1, MAX_CREDITS);
    let left = room.saturating_sub(forward as usize);
    let share = left.max(room / BACKWARD_SHARE).max(1);
    let backward = most(backward.min(MAX_CREDITS), share);
    match most(forward, room.checked_sub(backward as usize)?) {
        0 => None,
        forward => Some((forward, backward)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_as_wanted_where_there_is_room() {
        assert_eq!(share(256, 128, 16), Some((128, 16)));
        assert_eq!(share(RECEIVE_SLACK + 144, 128, 16), Some((128, 16)));
        assert_eq!(share(RECEIVE_SLACK + 9, 5, 4), Some((5, 4)));
        assert_eq!(share(RECEIVE_SLACK + 8, 1, 16), Some((1, 7)));
        assert_eq!(share(usize::MAX, 0, 0), Some((1, 0)));
        assert_eq!(share(usize::MAX, u32::MAX, u32::MAX), Some((16384, 16384)));
    }

    #[test]
    fn few_receives_are_shared_and_each_direction_has_one() {
        assert_eq!(share(RECEIVE_SLACK + 40, 128, 16), Some((30, 10)));
        assert_eq!(share(RECEIVE_SLACK + 40, 128, 1), Some((39, 1)));
        assert_eq!(share(RECEIVE_SLACK + 2, 128, 16), Some((1, 1)));
        assert_eq!(share(RECEIVE_SLACK + 1, 128, 0), Some((1, 0)));
    }

    #[test]
    fn too_few_receives_are_no_connection() {
        assert_eq!(share(RECEIVE_SLACK + 1, 128, 1), None);
        assert_eq!(share(RECEIVE_SLACK, 1, 0), None);
        assert_eq!(share(0, 1, 0), None);
    }
}
