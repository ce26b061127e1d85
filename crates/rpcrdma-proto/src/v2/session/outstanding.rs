//! Control messages of this end that may still occupy a Receive of the peer.

use crate::limits::MAX_CONTROL_MESSAGES;
use crate::v2::characteristics::XcharId;

/// What was sent, and is not known to have been taken in.
#[derive(Clone, Debug, Default)]
pub(super) struct Outstanding {
    /// In the order in which they were sent.
    sent: Vec<Sent>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    xid: u32,
    what: What,
}

/// What is not outstanding any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) what: What,
    /// Whether an UPDXCH before it is known to have arrived.
    pub(super) updates: bool,
}

/// A message of ours.
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
    /// Whether the peer says something to it if nothing is wrong.
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

    /// Whether the peer has a Receive for one more.
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

    /// The message with this XID, if it is one that `is` meant, is answered. So each UPDXCH that was
    /// sent before it has arrived: messages are taken in in their order.
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
