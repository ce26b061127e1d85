//! The rules of credits that count messages, and of messages in parts (ietf-07 §4.2.1, §6.6.2).

use super::Rules;
use crate::call::{Kind, Message};
use rpcrdma_proto::Direction;
use rpcrdma_proto::v2::Dialect;

/// Messages of one end, by number.
#[derive(Debug)]
pub(super) struct Messages {
    sent: u32,
    received: u32,
    /// The last message that the peer accepts.
    limit: u32,
    /// Rest of a message of which parts were sent.
    open: Option<(Direction, u32, usize)>,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            sent: 0,
            received: 0,
            limit: 1,
            open: None,
        }
    }
}

impl Rules {
    /// Checks a message that is about to be posted.
    pub(super) fn judge_number(&self, message: &Message) {
        if message.dialect != Dialect::Ietf07 {
            return;
        }
        let Messages {
            sent,
            received,
            limit,
            open,
        } = &self.messages;
        // One that carries nothing but credits may go beyond, if the one before did not.
        let beyond = u32::from(matches!(message.kind, Kind::Grant));
        let number = sent.wrapping_add(1);
        let ahead = number.wrapping_sub(*limit);
        if ahead != 0 && ahead < 1 << 31 && ahead > beyond {
            self.found(format_args!(
                "{message} is message {number}, and the peer accepts {limit}"
            ));
        }
        let may_come = message.credits.wrapping_sub(*received) as usize;
        if may_come + 1 > self.receives {
            let receives = self.receives;
            self.found(format_args!(
                "{message}: {may_come} messages may come with {receives} Receives"
            ));
        }
        let len = message.len;
        match (&message.kind, open) {
            (Kind::Part(direction, remaining, bytes), Some(open)) => {
                let (next, left) = ((*direction, message.xid), open.2);
                if (open.0, open.1) != next || remaining + bytes != left {
                    self.found(format_args!("{message} of {len} does not follow {open:?}"));
                }
            }
            (Kind::Call(_), Some((Direction::Call, xid, _)))
            | (Kind::Reply(_), Some((Direction::Reply, xid, _)))
                if *xid == message.xid => {}
            (Kind::Grant | Kind::Error, _) | (_, None) => {}
            (_, Some(open)) => self.found(format_args!("{message} does not follow {open:?}")),
        }
    }

    /// Follows a message that was posted.
    pub(super) fn count_sent(&mut self, message: &Message) {
        self.messages.sent = self.messages.sent.wrapping_add(1);
        match message.kind {
            Kind::Part(direction, remaining, _) => {
                self.messages.open = Some((direction, message.xid, remaining));
            }
            Kind::Call(_) | Kind::Reply(_) => self.messages.open = None,
            Kind::Error | Kind::Control(..) | Kind::Properties(_) | Kind::Grant | Kind::Other => {}
        }
    }

    /// Follows a message that came.
    pub(super) fn count_received(&mut self, message: &Message) {
        self.messages.received = self.messages.received.wrapping_add(1);
        if message.dialect == Dialect::Ietf07 {
            self.messages.limit = message.credits;
        }
    }
}
