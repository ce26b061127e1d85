//! Control messages of the peer about characteristics, valid and mutated.

use crate::rpcrdma_v2::operations::made_up;
use crate::script::Script;
use buffer::Buffer;
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, DesignBits, InvalidationDesigns, ReceiveBufferSize,
    ReceiveSize, RequesterRemoteInvalidation, XcharSpec, XcharVal,
};
use rpcrdma_proto::v2::header::{self, Optional, RdmaError, VERSION};
use rpcrdma_proto::v2::operations::{InitXch, Operation, Outcome, ReqXch, RespXch, UpdXch, code};
use rpcrdma_proto::{Designs, Direction, Role};

/// XIDs of its messages are few.
const XIDS: usize = 24;

/// Messages of ours that it remembers, to answer them.
const REMEMBERED: usize = 8;

/// The peer's part in agreeing about characteristics.
pub(super) struct Control {
    /// Which end we are.
    role: Role,
    /// Messages of ours that have no answer yet: XID and operation.
    asked: Vec<(u32, u32)>,
}

impl Control {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            asked: Vec::new(),
        }
    }

    /// Something of ours.
    pub(super) fn heard(&mut self, xid: u32, optional: &Optional) {
        if optional.direction == Direction::Call && self.asked.len() < REMEMBERED {
            self.asked.push((xid, optional.operation));
        }
    }

    /// First message of a good peer, or its answer to our offer.
    pub(super) fn introduction(&mut self, script: &mut Script<'_>) -> Buffer {
        let init = Operation::InitXch(self.initial(script));
        let mut message = Buffer::default();
        match self.asked.pop() {
            Some((xid, _)) => init.emit(&mut message, xid, 8, Direction::Reply),
            None => init.emit(&mut message, 1, 8, Direction::Call),
        }
        message
    }

    pub(super) fn say(&mut self, script: &mut Script<'_>) -> Buffer {
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let credits = script.pick(&[8, 1, 0, u32::MAX]);
        let choice = script.below(12);
        let mut message = Buffer::default();
        match choice {
            0..5 if !self.asked.is_empty() => {
                let at = script.below(self.asked.len());
                let (xid, operation) = self.asked.remove(at);
                self.answer(script, &mut message, xid, credits, operation);
            }
            0..6 => {
                let direction = match (self.role, script.one_in(8)) {
                    (Role::Server, false) | (Role::Client, true) => Direction::Call,
                    (Role::Client, false) | (Role::Server, true) => Direction::Reply,
                };
                let init = Operation::InitXch(self.initial(script));
                init.emit(&mut message, xid, credits, direction);
            }
            6 | 7 => {
                let mut want = XcharSpec::default();
                if !script.one_in(4) {
                    want.set::<ReceiveBufferSize>(&size(script));
                }
                if script.one_in(4) {
                    want.set::<BackwardRequestSupport>(&backward(script));
                }
                let request = Operation::ReqXch(ReqXch { want });
                request.emit(&mut message, xid, credits, Direction::Call);
            }
            8 | 9 => {
                let now = XcharVal::of::<ReceiveBufferSize>(&size(script));
                let pendclr = script.flag();
                let update = Operation::UpdXch(UpdXch { now, pendclr });
                let direction = script.pick(&[Direction::Call, Direction::Call, Direction::Reply]);
                update.emit(&mut message, xid, credits, direction);
            }
            10 => self.refuse(script, &mut message, xid, credits),
            _ => {
                let operation = script.pick(&[1, 2, 3, 4, 5]);
                let direction = script.pick(&[Direction::Call, Direction::Reply]);
                let len = script.byte().into();
                let info = made_up(&mut Script::new(script.take(len)), operation);
                header::emit_optional(&mut message, xid, credits, direction, operation, &info);
            }
        }
        message
    }

    /// An answer to a message of ours.
    fn answer(
        &self,
        script: &mut Script<'_>,
        message: &mut Buffer,
        xid: u32,
        credits: u32,
        operation: u32,
    ) {
        let answer = match operation {
            code::INITXCH if !script.one_in(8) => Operation::InitXch(self.initial(script)),
            code::REQXCH if !script.one_in(8) => {
                let outcomes = [Outcome::Done, Outcome::Pending, Outcome::Rejected];
                let mut response: RespXch = [script.pick(&outcomes)].into_iter().collect();
                if script.one_in(6) {
                    response.done.insert(script.below(3));
                }
                Operation::RespXch(response)
            }
            _ => return self.refuse(script, message, xid, credits),
        };
        answer.emit(message, xid, credits, Direction::Reply);
    }

    /// An error for a message of ours, or for something else.
    fn refuse(&self, script: &mut Script<'_>, message: &mut Buffer, xid: u32, credits: u32) {
        let asked = self.asked.last().filter(|_| script.flag());
        let xid = asked.map_or(xid, |(xid, _)| *xid);
        let range = |low, high| RdmaError::Version { low, high };
        let error = script.pick(&[
            RdmaError::InvalOption,
            RdmaError::BadHeader,
            range(1, 1),
            range(1, 2),
            range(2, 2),
            range(3, 7),
            range(2, 1),
            range(0, u32::MAX),
        ]);
        let version = script.pick(&[VERSION, VERSION, 1, 3]);
        header::emit_error(message, xid, version, credits, error);
    }

    fn initial(&self, script: &mut Script<'_>) -> InitXch {
        let mut init = InitXch::default();
        if !script.one_in(4) {
            init = init.with::<ReceiveBufferSize>(&size(script));
        }
        if script.one_in(8) {
            init.nochg.insert(0);
        }
        if script.flag() {
            init = init.with::<RequesterRemoteInvalidation>(&script.flag());
        }
        if script.flag() {
            init = init.with::<BackwardRequestSupport>(&backward(script));
        }
        if script.flag() {
            // Any bits there are; a server nearly always has one of them.
            let bits = match (self.role, script.byte()) {
                (Role::Client, byte @ 0..224) => 4 << (byte % 4),
                (Role::Client, byte @ 224..) | (Role::Server, byte) => byte.into(),
            };
            let bits = DesignBits::offer(Designs::from_bits(bits));
            init = init.with::<InvalidationDesigns>(&bits);
        }
        init
    }
}

fn size(script: &mut Script<'_>) -> ReceiveSize {
    let bytes = match script.byte() {
        few @ 0..192 => [4096, 8192, 5000, 1024, 16 << 10, 4097][usize::from(few % 6)],
        192.. => 1024 + script.number() % (u32::MAX - 1024),
    };
    ReceiveSize::new(bytes).expect("not too small")
}

fn backward(script: &mut Script<'_>) -> BackwardSupport {
    script.pick(&[
        BackwardSupport::General,
        BackwardSupport::Inline,
        BackwardSupport::None,
    ])
}
