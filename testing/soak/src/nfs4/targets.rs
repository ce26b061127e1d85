//! Slots that a client may use, as Linux finds them out.

/// Slots of a session that its client may use.
#[derive(Debug)]
pub(super) struct Targets {
    /// Highest slot for new requests.
    max: u32,
    target: u32,
    /// Highest slot that the server has.
    server: u32,
    /// First and second derivative of the target.
    change: i64,
    change_of_change: i64,
    /// Counts changes of the target. A request has that of the time when it was first sent.
    pub(super) generation: u32,
}

impl Targets {
    pub(super) fn new(slots: u32) -> Self {
        let highest = slots - 1;
        Self {
            max: highest,
            target: highest,
            server: highest,
            change: 0,
            change_of_change: 0,
            generation: 0,
        }
    }

    /// Returns whether a new request may use a slot.
    pub(super) fn allow(&self, slot: usize) -> bool {
        slot <= self.max as usize
    }

    /// Takes the slots in the result of a SEQUENCE, while `used` is the highest slot in use. Returns the number of slots that are kept,
    /// if the server may have fewer or more of them now.
    pub(super) fn result(
        &mut self,
        generation: u32,
        used: u32,
        (highest, target): (u32, u32),
    ) -> Option<usize> {
        if !self.is_outlier(target) {
            self.set_target(target);
        }
        let mut kept = None;
        if self.generation == generation && self.server != highest && used <= highest {
            kept = Some(highest as usize + 1);
            self.server = highest;
        }
        self.set_max(target);
        kept
    }

    /// Takes the target of a CB_RECALL_SLOT.
    pub(super) fn recalled(&mut self, target: u32) {
        self.set_target(target);
        (self.change, self.change_of_change) = (0, 0);
        self.set_max(target);
    }

    fn set_target(&mut self, target: u32) {
        if self.target != target {
            self.target = target;
            self.generation += 1;
        }
    }

    fn set_max(&mut self, target: u32) {
        self.max = target.min(self.server).min(self.target);
    }

    /// Whether a target looks like one of a reply that comes late: the first against the trend.
    fn is_outlier(&mut self, target: u32) -> bool {
        let half = |difference: i64| (difference + difference.signum()) >> 1;
        let is_trend = |one: i64, other: i64| one * other >= 0;
        let change = half(i64::from(target) - i64::from(self.target));
        let change_of_change = half(change - self.change);
        let is_outlier =
            !is_trend(change, self.change) && !is_trend(change_of_change, self.change_of_change);
        (self.change, self.change_of_change) = (change, change_of_change);
        is_outlier
    }
}
