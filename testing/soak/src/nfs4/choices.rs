//! Steps of clients, and lies that nobody is to believe.

use super::machine::Held;
use super::reference::DIRECTORIES;
use super::wire::{self, At, BYTES, Op, PARTS};
use super::{NAMES, OWNERS, Sim};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{StateId, Status};

impl Sim<'_> {
    /// Requests that no honest client sends: nothing comes of them.
    pub(super) fn lie_about_session(&mut self, at: usize, slot: usize) -> Result<(), String> {
        let Some(live) = &self.machines[at].live else {
            return Ok(());
        };
        let mut place = At {
            session: live.session,
            slot: u32::try_from(slot).expect("a few slots"),
            sequence: live.slots[slot].sequence,
            highest: 0,
            keep: true,
        };
        place.highest = place.slot;
        let its = &live.slots[slot];
        if !live.targets.allow(slot) || (its.was_freed && its.sequence == 0) {
            // It does not know what would be a lie.
            return Ok(());
        }
        let is_old = live.epoch != self.site.epoch;
        let (lie, expected) = match self.dice.below(5) {
            0 => ("ahead", Status::SequenceMisordered),
            1 => ("behind", Status::SequenceMisordered),
            2 => ("no slot", Status::BadSlot),
            3 => ("no highest slot", Status::BadHighSlot),
            _ => ("no session", Status::BadSession),
        };
        match lie {
            "ahead" => place.sequence = place.sequence.wrapping_add(2),
            "behind" => place.sequence = place.sequence.wrapping_sub(1),
            "no slot" => place.slot = 5000,
            "no highest slot" => {
                place.sequence = place.sequence.wrapping_add(1);
                place.highest = 5000;
            }
            _ => place.session.0[15] ^= 1,
        }
        let client = live.client;
        let call = wire::request(place, &Op::Remove { name: 0 });
        let caller = self.caller(at);
        let told = self.call(call, &caller)?.status;
        self.note(|| format!("{at} lies, {lie}: {told:?}"));
        match told {
            Err(status) if status == expected => Ok(()),
            // It has lost its session, and does not know as yet.
            Err(Status::BadSession) if is_old => Ok(()),
            Err(Status::BadSession) => self.reference.lose(client, self.site.now()),
            other => Err(format!("a SEQUENCE that lies, {lie}: {other:?}")),
        }
    }

    pub(super) fn choose(&mut self, at: usize) -> (Op, bool) {
        let dice = &mut self.dice;
        let held = &self.machines[at].held;
        let name = dice.of(&NAMES);
        let owner = dice.of(&OWNERS);
        let access = dice.of(&[1, 2, 3, 3]);
        let deny = dice.of(&[0, 0, 0, 0, 0, 1, 2, 3]);
        let open = Op::Open {
            owner,
            name,
            access,
            deny,
            guarded: dice.once_in(4),
        };
        let kind = dice.below(21);
        if held.is_empty() || kind < 3 {
            return (open, false);
        }
        let of = held[dice.below(held.len())].clone();
        let handle = of.handle.clone();
        let locked = of.locks.iter().next();
        let first = dice.below(PARTS);
        let range = (first, dice.within(first, PARTS - 1));
        let state = match (locked, dice.below(6)) {
            (_, 0) => StateId::default(),
            (Some((_, locked)), 1..3) => locked.state,
            _ => of.state,
        };
        let op = match kind {
            3 => Op::Renew,
            4 => Op::OpenHandle {
                owner,
                handle,
                access,
                deny,
                reclaims: false,
            },
            5 | 6 => Op::Close {
                handle,
                state: of.state,
            },
            7..10 => {
                let locker = of.owner * 2 + u8::from(dice.coin());
                let kinds = [LockType::Read, LockType::Write, LockType::Write];
                Op::Lock {
                    handle,
                    open: of.state,
                    known: of.locks.get(&locker).map(|locked| locked.state),
                    locker,
                    range,
                    kind: match dice.once_in(4) {
                        true => LockType::WriteWait,
                        false => dice.of(&kinds),
                    },
                    reclaims: false,
                }
            }
            10 | 11 => match locked {
                Some((_, locked)) => Op::Unlock {
                    handle,
                    state: locked.state,
                    range,
                },
                None => open,
            },
            12 | 13 => {
                self.stamp = self.stamp.wrapping_add(1);
                let offset = dice.below(BYTES);
                let len = dice.within(1, 2 * BYTES);
                Op::Write {
                    handle,
                    state,
                    offset,
                    data: vec![self.stamp; len],
                }
            }
            14 => Op::Read { handle, state },
            15 => Op::Rename {
                from: name,
                to: dice.of(&NAMES),
            },
            16 => match dice.coin() {
                true => Op::Remove { name },
                false => Op::Remove {
                    name: DIRECTORIES + name,
                },
            },
            17 => Op::MakeDirectory {
                name: DIRECTORIES + name,
            },
            18 => {
                let mut states: Vec<_> = self.graveyard.iter().copied().collect();
                states.push(of.state);
                Op::Test { states }
            }
            19 => Op::Downgrade {
                handle,
                state: of.state,
                access: dice.of(&[1, 2, 3]),
                deny,
            },
            _ => return (self.lie(at, &of), true),
        };
        (op, false)
    }

    /// A use of a state id that the client does not have.
    fn lie(&mut self, at: usize, of: &Held) -> Op {
        let dice = &mut self.dice;
        let others = self.machines.iter().enumerate();
        let others = others.filter(|(other, _)| *other != at);
        let others: Vec<_> = others
            .flat_map(|(_, machine)| machine.held.iter().map(|held| held.state))
            .collect();
        let mut state = match others.is_empty() {
            true => of.state,
            false => dice.of(&others),
        };
        if others.is_empty() || dice.coin() {
            state = of.state;
            match dice.coin() {
                true => state.other[dice.below(12)] ^= 1 << dice.below(8),
                false => state.seqid = state.seqid.wrapping_add(1000),
            }
        }
        let handle = of.handle.clone();
        match dice.below(5) {
            0 => Op::Close { handle, state },
            1 => Op::Unlock {
                handle,
                state,
                range: (0, PARTS - 1),
            },
            2 => Op::Lock {
                handle,
                open: state,
                known: None,
                locker: 9,
                range: (0, PARTS - 1),
                kind: LockType::Write,
                reclaims: false,
            },
            3 => Op::OpenHandle {
                owner: 0,
                handle,
                access: 3,
                deny: 0,
                reclaims: true,
            },
            _ => Op::Write {
                handle,
                state,
                offset: 0,
                data: vec![255; BYTES],
            },
        }
    }
}
