//! Messages to send: answers, and this end's own messages as far as the peer has Receives for them.

use super::outstanding::What;
use super::{Answer, Message, Session};
use crate::v2::header::Direction;
use crate::v2::operations::{Operation, ReqXch};

impl Session {
    /// Returns the client's first message.
    pub(super) fn poll_initial(&mut self, next_xid: &mut dyn FnMut() -> u32) -> Option<Message> {
        if self.outstanding.len() > 0 {
            return None;
        }
        let xid = next_xid();
        self.outstanding.push(xid, What::Initial);
        self.introduced = true;
        Some(call(xid, Operation::InitXch(self.own.initial())))
    }

    pub(super) fn poll_answer(&mut self) -> Option<Message> {
        let (xid, operation) = match self.answers.pop_front()? {
            Answer::Initial { xid } => {
                self.agreement.handle_answered();
                self.introduced = true;
                (xid, Operation::InitXch(self.own.initial()))
            }
            Answer::Response { xid, response } => (xid, Operation::RespXch(response)),
            Answer::Error { xid, error } => return Some(Message::Error { xid, error }),
        };
        let optional = operation.to_optional(Direction::Reply);
        Some(Message::Optional { xid, optional })
    }

    /// Returns an update, a request, or an empty request whose answer acknowledges an update.
    pub(super) fn poll_own(&mut self, next_xid: &mut dyn FnMut() -> u32) -> Option<Message> {
        if !(self.peer.has_said() && self.outstanding.has_room()) {
            return None;
        }
        let requests = self.supported.requests();
        let update = self.peer.takes_updates() && self.own.has_update();
        if update && !(requests && self.outstanding.has_update()) {
            let update = self.own.poll_update()?;
            let xid = next_xid();
            self.outstanding.push(xid, What::Update);
            return Some(call(xid, Operation::UpdXch(update)));
        }
        if !requests || self.outstanding.has_request() {
            return None;
        }
        let want = self.peer.poll_request();
        if want.is_empty() && !self.outstanding.has_update() {
            return None;
        }
        let xid = next_xid();
        let ids = want.values().iter().map(|value| value.which).collect();
        self.outstanding.push(xid, What::Request(ids));
        Some(call(xid, Operation::ReqXch(ReqXch { want })))
    }
}

fn call(xid: u32, operation: Operation) -> Message {
    let optional = operation.to_optional(Direction::Call);
    Message::Optional { xid, optional }
}
