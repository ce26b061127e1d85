//! Purpose of each work request, and the queue of those not posted yet.

use std::collections::VecDeque;
use verbs::{Buffer, WorkRequest, WrId};

/// Purpose of a posted work request. Keys are those of calls, which stay in their table until all
/// their work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Receives a message.
    Receive,
    /// Sends a call of this end. Nothing waits for its completion.
    Call,
    /// Sends a part of a call of this end. Nothing waits for its completion.
    CallPart,
    /// Sends credits, and nothing else. Nothing waits for its completion.
    Grant,
    /// Sends a message that is neither call nor reply. Nothing waits for its completion.
    Control,
    /// Invalidates a handle of an outstanding call.
    Invalidate { call: u32 },
    /// Pulls a Read chunk of a call in service.
    Pull { call: u32, chunk: u8 },
    /// Writes or sends the reply to a call in service.
    Reply { call: u32 },
    /// Sends a part of a reply that is not the last.
    ReplyPart { call: u32 },
}

const RECEIVE: u64 = 0;
const CALL: u64 = 1;
const INVALIDATE: u64 = 2;
const PULL: u64 = 3;
const REPLY: u64 = 4;
const CONTROL: u64 = 5;
const REPLY_PART: u64 = 6;
const CALL_PART: u64 = 7;
const GRANT: u64 = 8;

impl Purpose {
    pub(crate) fn wr(self) -> WrId {
        let id = |kind: u64, chunk: u8, call: u32| {
            WrId(kind << 56 | u64::from(chunk) << 32 | u64::from(call))
        };
        match self {
            Self::Receive => id(RECEIVE, 0, 0),
            Self::Call => id(CALL, 0, 0),
            Self::Control => id(CONTROL, 0, 0),
            Self::CallPart => id(CALL_PART, 0, 0),
            Self::Grant => id(GRANT, 0, 0),
            Self::Invalidate { call } => id(INVALIDATE, 0, call),
            Self::Pull { call, chunk } => id(PULL, chunk, call),
            Self::Reply { call } => id(REPLY, 0, call),
            Self::ReplyPart { call } => id(REPLY_PART, 0, call),
        }
    }

    /// # Panics
    ///
    /// If the provider completes work that was never posted.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the fields are taken apart"
    )]
    #[inline]
    pub(crate) fn of(wr: WrId) -> Self {
        let (chunk, call) = ((wr.0 >> 32) as u8, wr.0 as u32);
        match wr.0 >> 56 {
            RECEIVE => Self::Receive,
            CALL => Self::Call,
            CONTROL => Self::Control,
            CALL_PART => Self::CallPart,
            GRANT => Self::Grant,
            INVALIDATE => Self::Invalidate { call },
            PULL => Self::Pull { call, chunk },
            REPLY => Self::Reply { call },
            REPLY_PART => Self::ReplyPart { call },
            _ => panic!("a provider completes only what was posted"),
        }
    }
}

/// Queue of work requests to post, and the number outstanding.
#[derive(Debug)]
pub(crate) struct Posts {
    /// Receives to post first: they wait for nothing, and the peer may need them to make progress
    /// with the rest.
    receives: VecDeque<Buffer>,
    queue: VecDeque<WorkRequest>,
    /// Number of Sends in the queue.
    sends: usize,
    /// Number of outstanding work requests, Receives not counted.
    out: usize,
    limit: usize,
    /// Whether the last Send of the queue was a part of a message that goes on, and the same of the one
    /// before.
    within: [bool; 2],
}

impl Posts {
    /// Creates a queue with at most `limit` outstanding work requests, Receives not counted.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            receives: VecDeque::new(),
            queue: VecDeque::new(),
            sends: 0,
            out: 0,
            limit,
            within: [false; 2],
        }
    }

    /// Frees empty queues.
    pub(crate) fn trim(&mut self) {
        if self.receives.is_empty() {
            self.receives = VecDeque::new();
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Appends a Receive into this buffer.
    #[inline]
    pub(crate) fn push_receive(&mut self, buffer: Buffer) {
        self.receives.push_back(buffer);
    }

    #[inline]
    pub(crate) fn push(&mut self, work: WorkRequest) {
        match work {
            WorkRequest::Receive { buffer, .. } => self.push_receive(buffer),
            work => {
                self.sends += usize::from(is_send(&work));
                self.queue.push_back(work);
            }
        }
    }

    /// Whether the next Send of the queue continues a message of which parts were posted.
    pub(crate) fn is_within_message(&self) -> bool {
        self.within[0]
    }

    /// Returns the number of Sends that wait to be posted.
    pub(crate) fn sends(&self) -> usize {
        self.sends
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<WorkRequest> {
        if let Some(buffer) = self.receives.pop_front() {
            let wr = Purpose::Receive.wr();
            return Some(WorkRequest::Receive { wr, buffer });
        }
        if self.out == self.limit {
            return None;
        }
        self.take(0)
    }

    /// Whether [`next`](Self::next) returns something.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        !self.receives.is_empty() || self.peek().is_some()
    }

    /// Looks at what [`next`](Self::next) returns, if that is no Receive.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&WorkRequest> {
        let has_turn = self.receives.is_empty() && self.out < self.limit;
        self.queue.front().filter(|_| has_turn)
    }

    /// Takes a work request out of the queue, to be posted.
    #[inline]
    fn take(&mut self, at: usize) -> Option<WorkRequest> {
        let work = self.queue.get(at)?;
        self.out += 1;
        if is_send(work) {
            self.within = [is_part(work), self.within[0]];
        }
        self.remove(at)
    }

    #[inline]
    fn remove(&mut self, at: usize) -> Option<WorkRequest> {
        self.sends -= usize::from(self.queue.get(at).is_some_and(is_send));
        match at {
            0 => self.queue.pop_front(),
            at => self.queue.remove(at),
        }
    }

    /// Returns the next work request like [`next`](Self::next), if `may_go` lets it go. Where a Send may
    /// not go, what is none goes before it: nobody waits for a Send to read, write or invalidate.
    pub(crate) fn next_if(
        &mut self,
        may_go: impl FnOnce(&mut WorkRequest) -> bool,
    ) -> Option<WorkRequest> {
        if !self.receives.is_empty() || self.out == self.limit {
            return self.next();
        }
        match may_go(self.queue.front_mut()?) {
            true => self.take(0),
            false => self.take(self.queue.iter().position(|work| !is_send(work))?),
        }
    }

    /// Counts a work request that goes before those that wait. Returns false if none can be posted.
    pub(crate) fn pass(&mut self) -> bool {
        let has_room = self.out < self.limit;
        self.out += usize::from(has_room);
        has_room
    }

    /// Whether nothing waits and a work request could be posted, Receives not counted.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.is_empty() && self.out < self.limit
    }

    pub(crate) fn put_back(&mut self, work: WorkRequest) {
        match work {
            WorkRequest::Receive { buffer, .. } => self.receives.push_front(buffer),
            work => {
                self.completed();
                if is_send(&work) {
                    self.sends += 1;
                    self.within = [self.within[1], false];
                }
                self.queue.push_front(work);
            }
        }
    }

    /// Takes back the last Send of a call that was not posted.
    pub(crate) fn recall(&mut self) -> Option<WorkRequest> {
        let call = Purpose::Call.wr();
        let is_call =
            |work: &WorkRequest| matches!(work, WorkRequest::Send { wr, .. } if *wr == call);
        let at = self.queue.iter().rposition(is_call)?;
        self.remove(at)
    }

    /// Returns the number of matching work requests that were not posted.
    pub(crate) fn count(&self, is_it: impl Fn(&WorkRequest) -> bool) -> usize {
        self.queue.iter().filter(|work| is_it(work)).count()
    }

    /// Drops the last matching work request that was not posted. Returns whether there was one.
    pub(crate) fn forget(&mut self, is_it: impl Fn(&WorkRequest) -> bool) -> bool {
        let at = self.queue.iter().rposition(is_it);
        at.and_then(|at| self.remove(at)).is_some()
    }

    pub(crate) fn completed(&mut self) {
        self.out = self.out.saturating_sub(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.receives.is_empty() && self.queue.is_empty() && self.out == 0
    }
}

fn is_send(work: &WorkRequest) -> bool {
    matches!(work, WorkRequest::Send { .. })
}

/// Whether this is a Send of a part that is not the last of its message.
fn is_part(work: &WorkRequest) -> bool {
    let WorkRequest::Send { wr, .. } = work else {
        return false;
    };
    match Purpose::of(*wr) {
        Purpose::CallPart | Purpose::ReplyPart { .. } => true,
        Purpose::Receive
        | Purpose::Call
        | Purpose::Grant
        | Purpose::Control
        | Purpose::Invalidate { .. }
        | Purpose::Pull { .. }
        | Purpose::Reply { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{Buffer, Handle};

    #[test]
    fn every_purpose_survives_the_round_trip() {
        let check = |purpose: Purpose| assert_eq!(Purpose::of(purpose.wr()), purpose);
        check(Purpose::Receive);
        check(Purpose::Call);
        check(Purpose::Control);
        check(Purpose::CallPart);
        check(Purpose::Grant);
        check(Purpose::Invalidate { call: u32::MAX });
        check(Purpose::Pull {
            call: u32::MAX,
            chunk: u8::MAX,
        });
        check(Purpose::Reply { call: 1 });
        check(Purpose::ReplyPart { call: 2 });
    }

    #[test]
    fn work_waits_while_as_much_as_possible_is_out() {
        let mut posts = Posts::new(1);
        for _ in 0..2 {
            posts.push(WorkRequest::Invalidate {
                wr: Purpose::Call.wr(),
                handle: Handle(1),
            });
        }
        assert!(posts.next().is_some());
        assert!(posts.next().is_none());
        posts.completed();
        assert!(posts.next().is_some());
    }

    #[test]
    fn receive_does_not_wait_behind_work_that_does() {
        let mut posts = Posts::new(0);
        posts.push(WorkRequest::Invalidate {
            wr: Purpose::Call.wr(),
            handle: Handle(1),
        });
        posts.push(WorkRequest::Receive {
            wr: Purpose::Receive.wr(),
            buffer: Buffer::default(),
        });
        let receive = posts.next().expect("a receive does not wait");
        assert!(posts.next().is_none());
        posts.put_back(receive);
        assert!(matches!(posts.next(), Some(WorkRequest::Receive { .. })));
    }
}
