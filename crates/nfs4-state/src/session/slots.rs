//! Slots of a session: its reply cache (RFC 8881 §2.10.6.1), and how many slots it has.

use super::RequestDigest;
use super::budget::{Budget, Recall, Room, counted};
use crate::address::AddressKey;
use crate::limits::MAX_SLOTS;
use bytes::Bytes;
use nfs_proto::v4::session::SequenceArgs;
use nfs_proto::v4::{SequenceId, SlotId, Status};

/// A session that uses all its slots gets so many more at a time.
const GROWTH: u32 = 16;

/// Rounds in which a client uses each slot again that it needs, before those behind the target go. After the first it waits for no
/// reply with another target; in each later one it reads the target once more. Linux may take the first lower target after
/// a higher one for a reply that came late, and believes the second.
const ROUNDS: u32 = 3;

/// Position of a request in its slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is new, and is to be executed.
    New,
    /// It was executed, and this is its reply.
    Replay(Bytes),
    /// It was executed, and its reply was not kept.
    Uncached,
    /// It is being executed.
    InProgress,
}

/// Reply of the last request of a slot.
#[derive(Debug, Default)]
enum Reply {
    /// There was none since the session, or this slot of it, was made: a retry of sequence id 0 is
    /// misordered (RFC 8881 §18.36.4).
    #[default]
    None,
    /// The request is being executed.
    InProgress(RequestDigest),
    /// It was executed. The reply is there if it was kept.
    Done(RequestDigest, Option<Bytes>),
}

#[derive(Debug, Default)]
struct Slot {
    sequence: u32,
    /// The slot had been taken back: the client may go on with its sequence ids or begin with one again.
    was_retired: bool,
    /// Round in which the request came: the client has read its reply once it uses this slot again.
    round: u32,
    reply: Reply,
}

/// The slots of a session.
#[derive(Debug)]
pub(super) struct Slots {
    /// Those in use, and behind them those that were taken back, with their sequence ids alone.
    slots: Vec<Slot>,
    /// The client may use so many.
    active: u32,
    /// The client is asked to use so many.
    target: u32,
    /// Those beyond it.
    recall: Recall,
    /// The client wanted so many.
    wanted: u32,
    /// Counts rounds, of which one begins with each change of the target.
    round: u32,
    /// Rounds since the last change of the target that are over.
    rounds_over: u32,
    in_progress: u32,
}

impl Slots {
    /// Creates the slots of a session, up to those that its client wants.
    pub(super) fn new(wanted: u32, mut room: Room<'_>) -> Self {
        let wanted = wanted.clamp(1, MAX_SLOTS);
        let active = room.grant(wanted);
        room.take(counted(active));
        Self {
            slots: (0..active).map(|_| Slot::default()).collect(),
            active,
            target: active,
            recall: Recall::default(),
            wanted,
            round: 0,
            rounds_over: 0,
            in_progress: 0,
        }
    }

    /// Returns the number of slots that the client may use.
    pub(super) fn active(&self) -> u32 {
        self.active
    }

    /// Returns the number of slots that the client is asked to use.
    pub(super) fn target(&self) -> u32 {
        self.target
    }

    /// Returns whether the request of a slot is being executed.
    pub(super) fn is_in_progress(&self, at: SlotId) -> bool {
        let slot = self.slots.get(at.0 as usize);
        slot.is_some_and(|slot| matches!(slot.reply, Reply::InProgress(_)))
    }

    /// Returns the number of requests that are being executed.
    pub(super) fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// Finds out whether a request is new or a retry (RFC 8881 §2.10.6.1, §18.46.3). An error changes nothing
    /// (RFC 8881 §2.10.6.1.2).
    pub(super) fn check(
        &mut self,
        args: &SequenceArgs,
        digest: RequestDigest,
        budget: &mut Budget,
        address: AddressKey,
    ) -> Result<Step, Status> {
        let (SlotId(at), SequenceId(sequence)) = (args.slot, args.sequence);
        if at >= self.active {
            return Err(Status::BadSlot);
        }
        // A request that comes late may name a slot that was taken back since.
        if args.highest_slot.0 as usize >= self.slots.len() {
            return Err(Status::BadHighSlot);
        }
        let slot = &mut self.slots[at as usize];
        if sequence == slot.sequence && !matches!(slot.reply, Reply::None) {
            return match &slot.reply {
                Reply::None => Err(Status::SequenceMisordered),
                // RFC 8881 §2.10.6.1.3.1: another request, or another user.
                Reply::InProgress(its) | Reply::Done(its, _) if *its != digest => {
                    Err(Status::SequenceFalseRetry)
                }
                Reply::InProgress(_) => Ok(Step::InProgress),
                Reply::Done(_, Some(reply)) => Ok(Step::Replay(reply.clone())),
                Reply::Done(_, None) => Ok(Step::Uncached),
            };
        }
        let is_next = sequence == slot.sequence.wrapping_add(1);
        let begins_again = slot.was_retired && sequence == 1;
        // RFC 8881 §2.10.6.2: a client waits for a reply before it uses the slot again.
        if matches!(slot.reply, Reply::InProgress(_)) || !(is_next || begins_again) {
            return Err(Status::SequenceMisordered);
        }
        slot.sequence = sequence;
        slot.was_retired = false;
        slot.reply = Reply::InProgress(digest);
        self.in_progress += 1;
        let uses = args.highest_slot.0 + 1;
        if uses <= self.active && self.may_change(uses, budget) {
            self.adjust(uses, budget.room(address));
        }
        self.slots[at as usize].round = self.round;
        Ok(Step::New)
    }

    /// Returns whether there is something to [`adjust`](Self::adjust): nearly never.
    fn may_change(&self, uses: u32, budget: &Budget) -> bool {
        let wants_more = uses >= self.active && self.active < self.wanted;
        wants_more || self.target != self.active || budget.is_pressed()
    }

    /// Changes the number of slots (RFC 8881 §2.10.6.1): a client that uses all of them gets more, and while slots are few, a
    /// session with more than its part is asked to use fewer.
    ///
    /// Slots are taken back only from a client that has read the target and waits for no reply with another one, as it has used
    /// all slots again that it needs ([`ROUNDS`]), and then has no request on them, as its highest slot says: no request that it
    /// sends can find its slot gone. A callback that told of the target does not replace that: a request may have been sent before
    /// the client read it, and come later, by another connection.
    fn adjust(&mut self, uses: u32, mut room: Room<'_>) {
        let more = |most: u32| match uses >= self.active {
            true => (self.active + room.grant_more(self.active, GROWTH))
                .min(most)
                .max(self.active),
            false => self.active,
        };
        let target = match room.is_pressed() {
            false => more(self.wanted),
            true if self.target < self.active || self.active >= room.part() => self.lowered(&room),
            true => more(self.wanted.min(room.part())),
        };
        if target != self.target {
            self.set_target(target, &mut room);
        } else if target < self.active && uses <= target && self.is_round_over(uses) {
            match self.rounds_over + 1 < ROUNDS {
                true => {
                    self.rounds_over += 1;
                    self.round = self.round.wrapping_add(1);
                }
                false => self.retire(&mut room),
            }
        }
    }

    /// Returns whether the client has read the replies of all requests from before this round: those on slots beyond the ones that it
    /// uses, as it says, and on the others as it has used them again.
    fn is_round_over(&self, uses: u32) -> bool {
        let mut used = self.slots[..uses as usize].iter();
        used.all(|slot| slot.round == self.round || matches!(slot.reply, Reply::None))
    }

    /// Asks for slots beyond the part of the session if others lack some. Returns whether the client is to be told so.
    pub(super) fn recall(&mut self, mut room: Room<'_>) -> bool {
        let target = self.lowered(&room);
        let is_lower = target < self.target;
        if is_lower {
            self.set_target(target, &mut room);
        }
        is_lower
    }

    /// Returns the target while slots are few.
    fn lowered(&self, room: &Room<'_>) -> u32 {
        match room.is_lacking() {
            true => self.target.min(room.part()),
            false => self.target,
        }
    }

    fn set_target(&mut self, target: u32, room: &mut Room<'_>) {
        if target > self.active {
            room.take(counted(target) - counted(self.active));
            let slots = (target as usize).max(self.slots.len());
            self.slots.resize_with(slots, Slot::default);
            self.active = target;
        }
        self.target = target;
        self.round = self.round.wrapping_add(1);
        self.rounds_over = 0;
        room.recall(&mut self.recall, self.active - self.target);
    }

    /// Takes slots behind the target back. Their sequence ids stay, if they were used: whether the client goes on with them when it
    /// gets the slots again depends on whether it has read that they were taken back.
    fn retire(&mut self, room: &mut Room<'_>) {
        let behind = &mut self.slots[self.target as usize..self.active as usize];
        let is_busy = |slot: &Slot| matches!(slot.reply, Reply::InProgress(_));
        if behind.iter().any(is_busy) {
            return;
        }
        for slot in behind {
            slot.reply = Reply::None;
            slot.was_retired = true;
        }
        room.recall(&mut self.recall, 0);
        room.give_back(counted(self.active) - counted(self.target));
        self.active = self.target;
        let used = self.slots.iter().rposition(|slot| slot.sequence != 0);
        let kept = used.map_or(0, |last| last + 1).max(self.active as usize);
        self.slots.truncate(kept);
        self.slots.shrink_to_fit();
    }

    /// Keeps the reply of a request that was executed, if there is one to keep.
    pub(super) fn finish(&mut self, at: SlotId, sequence: SequenceId, reply: Option<Bytes>) {
        let slot = &mut self.slots[at.0 as usize];
        match slot.reply {
            Reply::InProgress(digest) if slot.sequence == sequence.0 => {
                slot.reply = Reply::Done(digest, reply);
                self.in_progress -= 1;
            }
            _ => unreachable!("a request that is being executed keeps its slot"),
        }
    }

    /// Returns all slots to the budget.
    pub(super) fn give_back(mut self, mut room: Room<'_>) {
        room.recall(&mut self.recall, 0);
        room.give_back(counted(self.active));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MIN_SLOTS;

    const ADDRESS: AddressKey = AddressKey(1);

    struct Table {
        slots: Slots,
        budget: Budget,
    }

    impl Table {
        fn new(wanted: u32, total: u32) -> Self {
            let mut budget = Budget::new(total);
            budget.begin_session(ADDRESS);
            Self {
                slots: Slots::new(wanted, budget.room(ADDRESS)),
                budget,
            }
        }

        /// Another address takes so many slots.
        fn others_take(&mut self, slots: u32) {
            let other = AddressKey(2);
            if self.budget.sessions_of(other) == 0 {
                self.budget.begin_session(other);
            }
            self.budget.room(other).take(slots);
        }

        fn check(&mut self, slot: u32, sequence: u32, highest: u32) -> Result<Step, Status> {
            self.check_digest(slot, sequence, highest, 1)
        }

        fn check_digest(
            &mut self,
            slot: u32,
            sequence: u32,
            highest: u32,
            digest: u64,
        ) -> Result<Step, Status> {
            let args = SequenceArgs {
                sequence: SequenceId(sequence),
                slot: SlotId(slot),
                highest_slot: SlotId(highest),
                ..SequenceArgs::default()
            };
            let digest = RequestDigest(digest);
            (self.slots).check(&args, digest, &mut self.budget, ADDRESS)
        }

        fn done(&mut self, slot: u32, sequence: u32, reply: Option<&'static [u8]>) {
            let reply = reply.map(Bytes::from_static);
            self.slots.finish(SlotId(slot), SequenceId(sequence), reply);
        }

        fn run(&mut self, slot: u32, sequence: u32, highest: u32) {
            assert_eq!(self.check(slot, sequence, highest), Ok(Step::New));
            self.done(slot, sequence, None);
        }
    }

    #[test]
    fn request_is_executed_once() {
        let mut table = Table::new(4, 100);
        let misordered = Err(Status::SequenceMisordered);
        assert_eq!(table.check(0, 0, 0), misordered, "a retry of nothing");
        assert_eq!(table.check(0, 2, 0), misordered);
        assert_eq!(table.check(0, 1, 0), Ok(Step::New));
        assert_eq!(table.check(0, 1, 0), Ok(Step::InProgress));
        assert_eq!(
            table.check(0, 2, 0),
            misordered,
            "it did not wait for its reply"
        );
        table.done(0, 1, Some(b"reply"));
        let replay = Ok(Step::Replay(Bytes::from_static(b"reply")));
        assert_eq!(table.check(0, 1, 0), replay);
        assert_eq!(table.check(0, 1, 0), replay, "as often as it likes");
        assert_eq!(table.check(0, 0, 0), misordered);
        assert_eq!(table.check(0, 3, 0), misordered);
        table.run(0, 2, 0);
        assert_eq!(table.check(0, 2, 0), Ok(Step::Uncached));
        assert_eq!(table.check(0, 1, 0), misordered);
    }

    #[test]
    fn other_request_on_the_same_sequence_id_is_a_false_retry() {
        let mut table = Table::new(4, 100);
        let false_retry = Err(Status::SequenceFalseRetry);
        assert_eq!(table.check_digest(0, 1, 0, 7), Ok(Step::New));
        assert_eq!(table.check_digest(0, 1, 0, 8), false_retry);
        table.done(0, 1, Some(b"reply"));
        assert_eq!(table.check_digest(0, 1, 0, 8), false_retry);
        assert!(matches!(
            table.check_digest(0, 1, 0, 7),
            Ok(Step::Replay(_))
        ));
    }

    #[test]
    fn sequence_ids_wrap_around() {
        let mut table = Table::new(1, 100);
        table.slots.slots[0].sequence = u32::MAX - 1;
        table.run(0, u32::MAX, 0);
        table.run(0, 0, 0);
        assert_eq!(table.check(0, 0, 0), Ok(Step::Uncached));
        assert_eq!(table.check(0, u32::MAX, 0), Err(Status::SequenceMisordered));
        table.run(0, 1, 0);
    }

    #[test]
    fn slots_that_were_not_granted_are_refused() {
        let mut table = Table::new(4, 100);
        assert_eq!(table.slots.active(), 4);
        assert_eq!(table.check(4, 1, 0), Err(Status::BadSlot));
        assert_eq!(table.check(0, 1, 4), Err(Status::BadHighSlot));
        assert_eq!(table.check(3, 1, 3), Ok(Step::New));
        assert_eq!(Table::new(u32::MAX, 10_000).slots.active(), MAX_SLOTS);
        assert_eq!(Table::new(0, 100).slots.active(), 1);
        assert_eq!(Table::new(64, 0).slots.active(), MIN_SLOTS);
    }

    #[test]
    fn session_that_uses_all_its_slots_gets_more() {
        let mut table = Table::new(64, 400);
        table.others_take(320);
        table.slots.give_back(table.budget.room(ADDRESS));
        table.slots = Slots::new(64, table.budget.room(ADDRESS));
        let first = MIN_SLOTS + 40;
        assert_eq!(table.slots.active(), first, "it leaves as many");
        table.budget.room(AddressKey(2)).give_back(300);
        table.run(3, 1, first - 2);
        assert_eq!(table.slots.active(), first);
        table.run(39, 1, first - 1);
        assert_eq!(table.slots.active(), first + GROWTH);
        for sequence in 2..9 {
            let highest = table.slots.active() - 1;
            table.run(39, sequence, highest);
        }
        assert_eq!((table.slots.active(), table.budget.used()), (64, 20 + 60));
    }

    #[test]
    fn session_below_its_part_grows_up_to_it_while_slots_are_few() {
        let mut table = Table::new(64, 200);
        table.others_take(200 - 64);
        table.slots.give_back(table.budget.room(ADDRESS));
        table.slots = Slots::new(8, table.budget.room(ADDRESS));
        table.slots.wanted = 300;
        table.others_take(40);
        assert!(table.budget.is_pressed());
        // Others give some back, and still have more than is left.
        for sequence in 1..20 {
            table.budget.room(AddressKey(2)).give_back(8);
            table.others_take(1);
            let highest = table.slots.active() - 1;
            table.run(0, sequence, highest);
            assert!(
                table.slots.active() <= MIN_SLOTS + 87,
                "seven eighths for two addresses"
            );
        }
        assert!(table.slots.active() > 40);
    }

    #[test]
    fn slots_are_taken_back_from_a_client_that_has_read_so() {
        let mut table = Table::new(64, 200);
        table.run(0, 1, 0);
        table.run(40, 1, 40);
        table.others_take(116);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert_eq!(table.check(0, 2, 40), Ok(Step::New));
        let counted = 175 / 2 / 7;
        let part = MIN_SLOTS + counted;
        assert_eq!((table.slots.target(), table.slots.active()), (part, 64));
        assert_eq!(table.budget.recalled(), 64 - part);
        table.run(41, 1, 41);
        table.done(0, 2, None);
        for sequence in 3..9 {
            table.run(0, sequence, 41);
        }
        assert_eq!(table.slots.active(), 64, "it still waits on slot 41");
        for sequence in 9..12 {
            assert_eq!(table.slots.active(), 64, "request {sequence}");
            table.run(0, sequence, 0);
        }
        assert_eq!(
            (table.slots.active(), table.budget.used()),
            (part, 116 + counted)
        );
        assert_eq!(table.budget.recalled(), 0);
        assert_eq!(table.check(40, 2, 1), Err(Status::BadSlot));

        table.budget.room(AddressKey(2)).give_back(100);
        // They come again, and the client may have read that they were gone, or not.
        table.run(11, 1, part - 1);
        table.run(11, 2, part - 1);
        assert_eq!(table.slots.active(), part + GROWTH);
        for sequence in 3..8 {
            let highest = table.slots.active() - 1;
            table.run(11, sequence, highest);
        }
        assert_eq!(table.check(40, 1, 40), Ok(Step::New), "it begins again");
        assert_eq!(table.check(41, 2, 41), Ok(Step::New), "it goes on");
        assert_eq!(table.check(42, 1, 42), Ok(Step::New), "it never used it");
    }

    #[test]
    fn kept_replies_go_with_the_slots_that_are_taken_back() {
        let mut table = Table::new(64, 200);
        assert_eq!(table.check(40, 1, 40), Ok(Step::New));
        table.done(40, 1, Some(b"reply"));
        table.others_take(116);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert!(table.slots.recall(table.budget.room(ADDRESS)));
        assert!(!table.slots.recall(table.budget.room(ADDRESS)), "once");
        for sequence in 1..=ROUNDS {
            table.run(0, sequence, 0);
            let replay = Ok(Step::Replay(Bytes::from_static(b"reply")));
            assert_eq!(table.check(40, 1, 40), replay, "it may still ask for it");
        }
        table.run(0, ROUNDS + 1, 0);
        let reply = &table.slots.slots[40].reply;
        assert!(matches!(reply, Reply::None), "{reply:?}");
        assert_eq!(table.check(40, 1, 40), Err(Status::BadSlot));
    }

    #[test]
    fn slots_are_kept_while_a_reply_with_another_target_may_be_on_its_way() {
        let mut table = Table::new(64, 200);
        assert_eq!(table.check(1, 1, 1), Ok(Step::New));
        table.run(2, 1, 2);
        table.others_take(116);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert!(table.slots.recall(table.budget.room(ADDRESS)));
        for sequence in 1..9 {
            table.run(0, sequence, 1);
        }
        table.done(1, 1, None);
        for sequence in 9..18 {
            table.run(0, sequence, 2);
            assert_eq!(table.slots.active(), 64, "slots 1 and 2");
        }
        let slots = |table: &mut Table, sequence| {
            for (slot, sequence) in [(1, sequence), (2, sequence), (0, 16 + sequence)] {
                table.run(slot, sequence, 2);
            }
            table.slots.active()
        };
        let rounds: Vec<u32> = (2..5).map(|sequence| slots(&mut table, sequence)).collect();
        assert_eq!(rounds, [64, 64, table.slots.target()]);
    }

    #[test]
    fn no_more_are_asked_back_than_others_lack() {
        let mut table = Table::new(64, 200);
        table.others_take(116);
        let mut other = Recall::default();
        table.budget.room(AddressKey(2)).recall(&mut other, 20);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert!(!table.slots.recall(table.budget.room(ADDRESS)));
        table.run(0, 1, 0);
        assert_eq!(table.slots.target(), 64);
    }

    #[test]
    fn request_that_comes_late_may_name_a_slot_that_was_taken_back() {
        let mut table = Table::new(64, 200);
        table.run(40, 1, 40);
        table.others_take(116);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert!(table.slots.recall(table.budget.room(ADDRESS)));
        for sequence in 1..=ROUNDS + 1 {
            table.run(0, sequence, 1);
        }
        let active = table.slots.active();
        assert!(active < 40);
        // Sent when slot 40 was in use.
        table.run(1, 1, 40);
        assert_eq!(table.slots.active(), active, "it is not asking for more");
        assert_eq!(table.check(0, ROUNDS + 2, 64), Err(Status::BadHighSlot));
    }

    #[test]
    fn slots_that_were_never_used_leave_nothing_behind() {
        let mut table = Table::new(64, 200);
        table.run(20, 1, 20);
        table.others_take(116);
        for _ in 0..6 {
            table.budget.begin_session(ADDRESS);
        }
        assert!(table.slots.recall(table.budget.room(ADDRESS)));
        for sequence in 1..=ROUNDS + 1 {
            table.run(0, sequence, 0);
        }
        assert!(table.slots.active() < 20);
        assert_eq!(table.slots.slots.len(), 21);
    }

    #[test]
    fn session_does_not_grow_beyond_its_part_into_what_is_kept_for_others() {
        let mut table = Table::new(64, 800);
        for _ in 0..15 {
            table.budget.begin_session(ADDRESS);
        }
        table.others_take(620);
        table.slots.wanted = MAX_SLOTS;
        for sequence in 1..20 {
            let highest = table.slots.active() - 1;
            table.run(0, sequence, highest);
            assert!(!table.budget.is_pressed());
        }
        let most = MIN_SLOTS + 80;
        assert_eq!((table.slots.active(), table.slots.target()), (most, most));
    }
}
