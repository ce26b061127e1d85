//! Size of this end's Receives: current, announced, and how it changes (xcharext §3.1).

use crate::v2::characteristics::ReceiveSize;
use crate::v2::operations::Outcome;

/// Our Receive Buffer Size.
#[derive(Clone, Debug)]
pub(super) struct ReceiveSizes {
    /// Size that the peer was told last. Every Receive that is posted holds as much, unless the size is
    /// being lowered.
    announced: ReceiveSize,
    /// Size that the peer is known to have heard.
    heard: ReceiveSize,
    /// While it is being raised: what every Receive holds that is posted.
    ready: ReceiveSize,
    /// The largest it may become.
    most: ReceiveSize,
    change: Change,
}

/// A change that the peer does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// New Receives hold `to` bytes; smaller ones are still posted before them.
    Raising {
        to: ReceiveSize,
        /// Size that the peer asked for, as far as we go along, if it asked.
        asked: Option<ReceiveSize>,
    },
    /// The peer asked for smaller Receives. Replies to calls of this end may still need the old
    /// size.
    Draining {
        to: ReceiveSize,
    },
    /// No such call is left, and new Receives hold `to` bytes.
    Lowered {
        to: ReceiveSize,
    },
}

/// Why the size of Receives cannot be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// This end does not support ROPT_UPDXCH.
    #[error("this end does not support ROPT_UPDXCH, which would tell the peer (xcharext §4)")]
    Unsupported,
    /// The size exceeds the configured maximum.
    #[error("a Receive may have {most} bytes at most")]
    TooLarge {
        /// Largest possible size.
        most: ReceiveSize,
    },
    /// The size is below the current one, which is lowered only on request of the peer (xcharext
    /// §3.1).
    #[error("Receives have {now} bytes, and are made smaller only if the peer asks for it")]
    Smaller {
        /// Current size of new Receives.
        now: ReceiveSize,
    },
    /// A request of the peer for a smaller size is pending.
    #[error("the peer asked for smaller Receives, which is not done yet")]
    BeingLowered,
    /// No further notification is possible.
    #[error("{CANNOT_TELL}")]
    NotTold,
}

/// Why the peer of an end that supports ROPT_UPDXCH hears of no change.
pub(super) const CANNOT_TELL: &str = "the peer has refused ROPT_UPDXCH, or has been sent as many as \
                                      it has Receives for, where no ROPT_REQXCH shows that it took them in";

impl ReceiveSizes {
    pub(super) fn new(now: ReceiveSize, most: ReceiveSize) -> Self {
        Self {
            announced: now,
            heard: now,
            ready: now,
            most: most.max(now),
            change: Change::None,
        }
    }

    /// The largest there will be, which is also the largest message that we send.
    pub(super) fn most(&self) -> ReceiveSize {
        self.most
    }

    /// Size that the peer was told last.
    pub(super) fn announced(&self) -> ReceiveSize {
        self.announced
    }

    /// Bytes of the next Receive to be posted.
    pub(super) fn next(&self) -> ReceiveSize {
        match self.change {
            Change::None | Change::Draining { .. } => self.announced,
            Change::Raising { to, .. } | Change::Lowered { to } => to,
        }
    }

    /// Size that calls sent now may count on for their replies: a size that the peer may not have
    /// taken note of is not yet counted on (xcharext §4.1), and one that it wants lower not any more.
    pub(super) fn for_replies(&self) -> ReceiveSize {
        match self.change {
            Change::None | Change::Raising { .. } => self.heard,
            Change::Draining { to } | Change::Lowered { to } => self.heard.min(to),
        }
    }

    /// Whether it is awaited that calls are answered which were sent before the size was to be
    /// lowered.
    pub(super) fn draining(&self) -> bool {
        matches!(self.change, Change::Draining { .. })
    }

    /// Whether it is awaited that Receives are used up which are smaller than the next ones.
    pub(super) fn raising(&self) -> bool {
        matches!(self.change, Change::Raising { to, .. } if self.ready < to)
    }

    /// Whether there is a change that the peer is still to be told.
    pub(super) fn is_changing(&self) -> bool {
        self.change != Change::None
    }

    /// Makes new Receives larger, if the peer can be told.
    pub(super) fn raise(&mut self, to: ReceiveSize, can_tell: bool) -> Result<(), RaiseError> {
        if to > self.most {
            return Err(RaiseError::TooLarge { most: self.most });
        }
        let asked = match self.change {
            Change::None => None,
            Change::Raising { asked, .. } => asked,
            Change::Draining { .. } | Change::Lowered { .. } => {
                return Err(RaiseError::BeingLowered);
            }
        };
        let now = self.next();
        if to < now {
            return Err(RaiseError::Smaller { now });
        }
        if to > now {
            if !can_tell {
                return Err(RaiseError::NotTold);
            }
            self.raise_to(to, asked);
        }
        Ok(())
    }

    /// The peer asks for a size; `updates` is whether it can be told of it later.
    pub(super) fn request(&mut self, wanted: ReceiveSize, updates: bool) -> Outcome {
        match self.change {
            Change::None | Change::Raising { asked: None, .. } => {}
            Change::Raising { .. } | Change::Draining { .. } | Change::Lowered { .. } => {
                return Outcome::Rejected;
            }
        }
        if wanted == self.announced {
            self.change = Change::None;
            return Outcome::Done;
        }
        // cel-01 §2.3: everybody takes 4096 bytes.
        if !updates || wanted < ReceiveSize::DEFAULT {
            return Outcome::Rejected;
        }
        if wanted < self.announced {
            self.change = Change::Draining { to: wanted };
            return Outcome::Pending;
        }
        let to = wanted.min(self.most);
        if to == self.announced {
            return Outcome::Rejected;
        }
        self.raise_to(to, Some(to));
        Outcome::Pending
    }

    /// Receives that were ready for another size may be so for this one, as far as both go.
    fn raise_to(&mut self, to: ReceiveSize, asked: Option<ReceiveSize>) {
        self.ready = match self.change {
            Change::Raising { .. } => self.ready.min(to),
            Change::None | Change::Draining { .. } | Change::Lowered { .. } => self.announced,
        };
        self.change = Change::Raising { to, asked };
    }

    /// The smallest Receive that is posted holds so many bytes.
    pub(super) fn handle_receives(&mut self, smallest: usize) {
        let smallest = u32::try_from(smallest).unwrap_or(u32::MAX);
        if let (Change::Raising { to, .. }, Some(size)) = (self.change, ReceiveSize::new(smallest))
        {
            // Those that are posted from now on hold no more than that.
            self.ready = self.ready.max(size.min(to));
        }
    }

    /// Every call is answered that was sent before the size was to be lowered.
    pub(super) fn handle_drained(&mut self) {
        if let Change::Draining { to } = self.change {
            self.change = Change::Lowered { to };
        }
    }

    /// Update that the peer can be told now: the size, and whether that is all it asked for.
    pub(super) fn update(&self) -> Option<(ReceiveSize, bool)> {
        match self.change {
            Change::None | Change::Draining { .. } => None,
            Change::Raising { asked, .. } => {
                let complete = asked.is_some_and(|asked| self.ready >= asked);
                (self.ready > self.announced).then_some((self.ready, complete))
            }
            Change::Lowered { to } => Some((to, true)),
        }
    }

    /// The peer was told so.
    pub(super) fn handle_told(&mut self, size: ReceiveSize) {
        self.announced = size;
        self.heard = self.heard.min(size);
        match &mut self.change {
            Change::None | Change::Draining { .. } => {}
            Change::Raising { to, asked } => {
                *asked = asked.filter(|&asked| size < asked);
                if size == *to {
                    self.change = Change::None;
                }
            }
            Change::Lowered { .. } => self.change = Change::None,
        }
    }

    /// It has heard all that it was told.
    pub(super) fn handle_heard(&mut self) {
        self.heard = self.announced;
    }

    /// It took no note of what it was told: what it takes the size for.
    pub(super) fn handle_ignored(&mut self) -> ReceiveSize {
        self.announced = self.heard;
        // What was to be less than the peer had been told is more than it took note of: that is to be
        // raised, once Receives hold as much.
        if let Change::Draining { to } | Change::Lowered { to } = self.change
            && to > self.heard
        {
            self.raise_to(to, Some(to));
        }
        self.heard
    }
}
