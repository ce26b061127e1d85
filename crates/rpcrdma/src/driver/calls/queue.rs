//! Round-robin queue of calls, by user.

use crate::driver::owner::CallRequest;
use std::collections::VecDeque;

/// Calls that wait for one connection. Each user has its own queue, and users are served
/// round-robin, one call each, so that a user with a thousand calls holds up nobody.
///
/// Unbounded: a waiting call is a future that its caller holds, with its bytes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    users: Vec<VecDeque<CallRequest>>,
    /// Round-robin queue of users with calls.
    turns: VecDeque<usize>,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the call in `request` without moving it twice, because it is large.
    pub(super) fn push(&mut self, user: usize, request: &mut Option<CallRequest>) {
        debug_assert!(request.is_some(), "there is a call to append");
        let queue = self.of(user);
        let was_empty = queue.is_empty();
        if let Some(request) = request.take() {
            queue.push_back(request);
        }
        self.len += 1;
        if was_empty {
            self.turns.push_back(user);
        }
    }

    /// Puts a call before all others of its user. A user without calls gets the next turn.
    pub(super) fn push_front(&mut self, user: usize, request: CallRequest) {
        let queue = self.of(user);
        let was_empty = queue.is_empty();
        queue.push_front(request);
        self.len += 1;
        if was_empty {
            self.turns.push_front(user);
        }
    }

    /// Takes the next call.
    pub(super) fn pop(&mut self) -> Option<CallRequest> {
        let user = self.turns.pop_front()?;
        let queue = &mut self.users[user];
        let request = queue.pop_front();
        if !queue.is_empty() {
            self.turns.push_back(user);
        }
        self.len -= 1;
        request
    }

    /// Takes all calls into `into`, which is empty. Calls of a single user are not moved, because a
    /// call is large.
    pub(super) fn take_all(&mut self, into: &mut VecDeque<CallRequest>) {
        debug_assert!(into.is_empty(), "what is there would be lost");
        while let Some(user) = self.turns.pop_front() {
            let queue = &mut self.users[user];
            if into.is_empty() {
                std::mem::swap(queue, into);
            } else {
                into.append(queue);
            }
        }
        self.len = 0;
    }

    /// Returns all calls, in no order between users.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CallRequest> {
        self.users.iter().flatten()
    }

    /// Removes the calls that `keep` rejects.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&CallRequest) -> bool) {
        self.users
            .iter_mut()
            .for_each(|queue| queue.retain(&mut keep));
        self.turns.retain(|&user| !self.users[user].is_empty());
        self.len = self.users.iter().map(VecDeque::len).sum();
    }

    fn of(&mut self, user: usize) -> &mut VecDeque<CallRequest> {
        if user >= self.users.len() {
            self.users.resize_with(user + 1, VecDeque::new);
        }
        &mut self.users[user]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::calls::CallHandle;
    use oncrpc::ReplyBound;
    use oncrpc::xdr;
    use proptest::prelude::*;

    fn request(xid: u32) -> CallRequest {
        let mut w = xdr::Writer::default();
        w.u32(xid);
        w.u32(0);
        CallRequest::new(CallHandle::of_nobody(), w.finish(), ReplyBound::default())
    }

    fn queue(calls: &[(usize, u32)]) -> Queue {
        let mut queue = Queue::default();
        for &(user, xid) in calls {
            queue.push(user, &mut Some(request(xid)));
        }
        queue
    }

    fn taken(queue: &mut Queue) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop())
            .map(|request| request.xid())
            .collect()
    }

    #[test]
    fn calls_of_one_user_keep_their_order() {
        assert_eq!(taken(&mut queue(&[(3, 1), (3, 2), (3, 3)])), [1, 2, 3]);
    }

    #[test]
    fn users_take_turns_however_many_calls_each_has() {
        let mut queue = queue(&[(0, 1), (0, 2), (0, 3), (0, 4), (1, 11), (2, 21), (1, 12)]);
        assert_eq!(taken(&mut queue), [1, 11, 21, 2, 12, 3, 4]);
    }

    #[test]
    fn call_that_is_put_back_is_the_next_of_its_user() {
        let mut queue = queue(&[(0, 1), (0, 2), (1, 11)]);
        let first = queue.pop().expect("there are three");
        queue.push_front(0, first);
        assert_eq!(taken(&mut queue), [11, 1, 2]);
        let mut alone = self::queue(&[(1, 11)]);
        alone.push_front(0, request(1));
        assert_eq!(taken(&mut alone), [1, 11]);
    }

    #[test]
    fn all_are_taken_at_once_with_those_of_each_user_in_order() {
        let mut queue = queue(&[(0, 1), (1, 11), (0, 2), (1, 12)]);
        let mut all = VecDeque::new();
        queue.take_all(&mut all);
        let all: Vec<u32> = all.iter().map(CallRequest::xid).collect();
        assert_eq!(all, [1, 2, 11, 12]);
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    proptest! {
        /// Between two calls of a user no other user has more than one of its own.
        #[test]
        fn nobody_is_passed_over(calls in prop::collection::vec((0..4_usize, 0..8_u32), 0..60)) {
            let mut queue = queue(&calls);
            let mut waiting = [0_usize; 4];
            calls.iter().for_each(|&(user, _)| waiting[user] += 1);
            let mut passed = [0_usize; 4];
            while let Some(&user) = queue.turns.front() {
                queue.pop();
                waiting[user] -= 1;
                for other in (0..4).filter(|&other| other != user && waiting[other] > 0) {
                    passed[other] += 1;
                    prop_assert!(passed[other] <= 3, "user {other} waits in vain");
                }
                passed[user] = 0;
            }
            prop_assert_eq!(queue.len(), 0);
            prop_assert_eq!(waiting, [0; 4]);
        }

        #[test]
        fn length_is_that_of_what_is_there(
            steps in prop::collection::vec((0..5_u8, 0..3_usize), 0..80),
        ) {
            let mut queue = Queue::default();
            for (xid, (step, user)) in (0..).zip(steps) {
                match step {
                    0 | 1 => queue.push(user, &mut Some(request(xid))),
                    2 => queue.push_front(user, request(xid)),
                    3 => drop(queue.pop()),
                    _ => queue.retain(|call| call.xid() % 2 == 0),
                }
                prop_assert_eq!(queue.len(), queue.iter().count());
                prop_assert_eq!(queue.is_empty(), queue.turns.is_empty());
            }
        }
    }
}
