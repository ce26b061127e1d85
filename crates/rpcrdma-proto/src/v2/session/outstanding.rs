//! Control messages of this end that may still occupy a Receive of the peer.

use crate::limits::MAX_CONTROL_MESSAGES;
use crate::v2::characteristics::XcharId;

/// Messages sent and not acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Outstanding {
    /// The messages, in the order of sending.
    sent: Vec<Sent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    xid: u32,
    what: What,
}

/// Messages that an answer acknowledges.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) what: What,
    /// Whether it acknowledges an earlier UPDXCH.
    pub(super) updates: bool,
}

/// Kind of a message of this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// INITXCH, answered with the same.
    Initial,
    /// REQXCH, answered with RESPXCH: the characteristics it names, in this order.
    Request(Vec<XcharId>),
    /// UPDXCH, which has no answer.
    Update,
}

impl What {
    /// Whether the message has an answer.
    pub(super) fn has_answer(&self) -> bool {
        match self {
            Self::Initial | Self::Request(_) => true,
            Self::Update => false,
        }
    }
}

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    pub(super) fn xids(&self) -> impl Iterator<Item = u32> {
        self.sent.iter().map(|sent| sent.xid)
    }

    /// Whether the peer has a Receive for a further message.
    pub(super) fn has_room(&self) -> bool {
        self.len() < MAX_CONTROL_MESSAGES
    }

    pub(super) fn updates(&self) -> usize {
        let updates = self.sent.iter().filter(|sent| sent.what == What::Update);
        updates.count()
    }

    pub(super) fn has_update(&self) -> bool {
        self.updates() > 0
    }

    pub(super) fn has_request(&self) -> bool {
        let mut sent = self.sent.iter();
        sent.any(|sent| matches!(sent.what, What::Request(_)))
    }

    pub(super) fn push(&mut self, xid: u32, what: What) {
        assert!(
            self.has_room(),
            "control messages are sent only as far as the peer has Receives for them"
        );
        self.sent.push(Sent { xid, what });
    }

    /// Gives up waiting for the answer to an INITXCH.
    pub(super) fn forget_initial(&mut self) {
        self.sent.retain(|sent| sent.what != What::Initial);
    }

    /// Acknowledges the message with this XID, if `is` accepts it, and each UPDXCH sent before it:
    /// messages are processed in order.
    pub(super) fn answered(&mut self, xid: u32, is: impl Fn(&What) -> bool) -> Option<Answered> {
        let mut sent = self.sent.iter();
        let at = sent.position(|sent| sent.xid == xid && is(&sent.what))?;
        let later = self.sent.split_off(at + 1);
        let what = self.sent.pop()?.what;
        self.sent.retain(|sent| sent.what != What::Update);
        let updates = self.sent.len() < at;
        self.sent.extend(later);
        Some(Answered { what, updates })
    }
}
