//! Handling of received control messages.

use super::agreement::NoDesign;
use super::outstanding::What;
use super::{Answer, Opening, Session};
use crate::limits::CONTROL_RECEIVES;
use crate::v2::header::{Direction, RdmaError};
use crate::v2::operations::{InitXch, OperationError, ReqXch, RespXch, UpdXch, Update};

impl Session {
    /// Handles an answer to the message with this XID, if `is` accepts it.
    pub(super) fn answered(&mut self, xid: u32, is: impl Fn(&What) -> bool) -> Option<What> {
        let answered = self.outstanding.answered(xid, is)?;
        if answered.updates {
            self.unanswered = false;
            self.own.handle_heard();
        }
        Some(answered.what)
    }

    pub(super) fn refuse(&mut self, xid: u32, direction: Direction, error: OperationError) {
        match (direction, error) {
            (Direction::Reply, _) => self.handle_unreadable_reply(xid),
            (Direction::Call, OperationError::Unsupported(_)) => {
                self.counters.inval_option += 1;
                let error = RdmaError::InvalOption;
                self.answer(Answer::Error { xid, error });
            }
            (Direction::Call, OperationError::Malformed { .. }) => {
                self.counters.bad_header += 1;
                let error = RdmaError::BadHeader;
                self.answer(Answer::Error { xid, error });
            }
        }
    }

    /// Queues an answer. One too many ends the connection, and the peer is told by an error for the
    /// operation that was one too many: no error code says so, and this one is for messages that
    /// are not processed.
    fn answer(&mut self, answer: Answer) {
        if self.answers.len() < CONTROL_RECEIVES {
            self.answers.push_back(answer);
        } else if !std::mem::replace(&mut self.flooded, true) {
            let xid = match answer {
                Answer::Initial { xid }
                | Answer::Response { xid, .. }
                | Answer::Error { xid, .. } => xid,
            };
            let error = RdmaError::BadHeader;
            self.answers.push_back(Answer::Error { xid, error });
        }
    }

    /// Handles an INITXCH of the peer that is no answer. Each one is answered with this end's. It
    /// proves version two to a client that still waits for an answer: the server may send none
    /// (xcharext §2.3, §4.1).
    pub(super) fn take_initial(&mut self, xid: u32, init: &InitXch, first: bool) {
        self.counters.taken += 1;
        self.be_cautious();
        if self.peer.has_said() {
            self.counters.ignored += init.start.len() as u64;
        } else {
            self.peer.handle_initial(init, self.own.registry());
            match self.agreement.handle_offer(init, first) {
                Ok(Some(design)) => self.own.say_design(design),
                Ok(None) => {}
                Err(_) => self.counters.no_design += 1,
            }
        }
        self.answer(Answer::Initial { xid });
    }

    /// Handles the INITXCH by which the peer answers.
    pub(super) fn take_initial_answer(&mut self, xid: u32, init: &InitXch, first: bool) {
        let ours = |what: &What| *what == What::Initial;
        if self.answered(xid, ours).is_none() {
            return self.take_stray_initial(init);
        }
        self.counters.taken += 1;
        self.opening = Opening::Done;
        self.unanswered = false;
        let chosen = self.agreement.handle_choice(init, first);
        self.take_choice(chosen);
        if self.peer.has_said() {
            self.counters.ignored += init.start.len() as u64;
            return;
        }
        self.peer.handle_initial(init, self.own.registry());
    }

    /// Handles an INITXCH that claims to answer a message that was not sent. It counts if it is the
    /// first.
    fn take_stray_initial(&mut self, init: &InitXch) {
        if self.peer.has_said() {
            self.counters.stray_replies += 1;
            return;
        }
        self.counters.taken += 1;
        self.be_cautious();
        self.peer.handle_initial(init, self.own.registry());
    }

    /// Ends a client's wait for the answer to its INITXCH before anything else: the server has shown
    /// that it has version two.
    fn be_cautious(&mut self) {
        if self.opening == Opening::Exchanging {
            self.opening = Opening::Cautious;
        }
    }

    /// Handles the design that a server has chosen of the offered ones.
    pub(super) fn take_choice(&mut self, chosen: Result<(), NoDesign>) {
        if chosen.is_err() {
            self.counters.no_design += 1;
            self.unclear_design = true;
        }
    }

    pub(super) fn take_request(&mut self, xid: u32, request: &ReqXch) {
        self.counters.taken += 1;
        let response = self.own.handle_request(request, &mut self.events);
        self.answer(Answer::Response { xid, response });
    }

    pub(super) fn take_response(&mut self, xid: u32, response: RespXch) {
        let request = |what: &What| matches!(what, What::Request(_));
        let Some(What::Request(ids)) = self.answered(xid, request) else {
            self.counters.stray_replies += 1;
            return;
        };
        self.counters.taken += 1;
        self.counters.odd_responses += u64::from(!response.is_answer_to(ids.len()));
        self.peer.handle_response(&ids, response, &mut self.events);
    }

    pub(super) fn take_update(&mut self, update: UpdXch) {
        self.counters.taken += 1;
        let registry = self.own.registry();
        match self.peer.handle_update(update, registry, &mut self.events) {
            None => self.counters.ignored += 1,
            Some(Update::Stray) => self.counters.stray_ends += 1,
            Some(Update::Unsolicited | Update::Intermediate | Update::Final) => {}
        }
    }
}
