//! State of NFS version 4: clients that crash, repeat themselves, lie, move and fall silent, and a server that restarts, by seed.
//!
//! There is no network: COMPOUNDs go to the program, and come back at once or as jobs, which the simulation executes when it likes,
//! or drops, as a connection does that ends. It sees each reply when it is made, and tells a model of it ([`reference`]), also where the
//! client does not get it and has to repeat its request.

mod reference;
mod site;
mod wire;

use crate::dice::Dice;
use crate::stage::{Stage, count};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{ClientId, SessionId, StateId, Status};
use nfs_server::Nfs4State;
use oncrpc::Caller;
use oncrpc::xdr::Payload;
use reference::{Circumstances, DIRECTORIES, Reference};
use site::{Answered, COURTESY, Copy, LEASE, Site, advance, is_later, outcome};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use wire::{At, BYTES, Got, Op, Outcome, PARTS};

/// Names of files, and of directories.
const NAMES: usize = 3;

/// Owners of opens of each client. Each has two owners of locks.
const OWNERS: usize = 2;

/// Lines about the last steps that come with a finding.
const LINES: usize = 40;

/// Old state ids that are remembered.
const GRAVEYARD: usize = 16;

/// Attempts to end a request at the end.
const TRIES: usize = 200;

/// Plays a scenario.
pub(crate) fn play(stage: &Stage, local: bool, dice: Dice) {
    let mut sim = Sim::new(stage, local, dice);
    if let Err(what) = sim.run() {
        let lines: Vec<_> = sim.lines.into_iter().collect();
        stage
            .watch
            .finding(format_args!("{what}\n    {}", lines.join("\n    ")));
    }
}

struct Sim<'a> {
    stage: &'a Stage,
    dice: Dice,
    local: bool,
    site: Site,
    free: u64,
    machines: Vec<Machine>,
    /// Requests whose clients have no use for a reply any more.
    orphans: Vec<Request>,
    reference: Reference,
    graveyard: VecDeque<StateId>,
    lines: VecDeque<String>,
    stamp: u8,
}

/// A client's machine.
struct Machine {
    name: String,
    instance: u8,
    callers: Vec<Caller>,
    live: Option<Live>,
    held: Vec<Held>,
    plan: VecDeque<Plan>,
    silent_until: Instant,
}

/// A session, as its client knows it.
struct Live {
    client: ClientId,
    session: SessionId,
    epoch: u32,
    is_complete: bool,
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    sequence: u32,
    request: Option<Request>,
}

/// An open, as its client knows it.
#[derive(Clone, Debug)]
struct Held {
    owner: u8,
    handle: Vec<u8>,
    state: StateId,
    access: u32,
    deny: u32,
    locks: BTreeMap<u8, Locked>,
    epoch: u32,
}

/// Locks of an owner in an open.
#[derive(Clone, Debug)]
struct Locked {
    state: StateId,
    parts: [Option<bool>; PARTS],
}

/// A step on the way back after a restart.
#[derive(Clone, Debug)]
enum Plan {
    Open(u8, Vec<u8>),
    Lock(u8, Vec<u8>, u8, (usize, usize), bool),
    Complete,
}

/// A request that is not ended.
struct Request {
    machine: usize,
    client: ClientId,
    at: At,
    epoch: u32,
    op: Op,
    is_lie: bool,
    graced: bool,
    flat: Vec<u8>,
    copies: Vec<Copy>,
    reply: Option<Vec<u8>>,
    outcome: Option<Outcome>,
}

impl<'a> Sim<'a> {
    fn new(stage: &'a Stage, local: bool, mut dice: Dice) -> Self {
        let site = Site::new(local);
        let (least, most) = stage.scenario.clients;
        let machines = (0..dice.within(least, most)).map(|number| Machine {
            name: format!("machine {number}"),
            instance: 1,
            callers: Vec::new(),
            live: None,
            held: Vec::new(),
            plan: VecDeque::new(),
            silent_until: site.now(),
        });
        Self {
            machines: machines.collect(),
            free: site.free(),
            stage,
            local,
            site,
            dice,
            orphans: Vec::new(),
            reference: Reference::default(),
            graveyard: VecDeque::new(),
            lines: VecDeque::new(),
            stamp: 0,
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line());
    }

    fn run(&mut self) -> Result<(), String> {
        let (least, most) = self.stage.scenario.calls;
        let steps = self.dice.within(least, most);
        let (few, many) = self.stage.scenario.restarts;
        let restarts = self.dice.within(few, many);
        let restarts: Vec<_> = (0..restarts).map(|_| self.dice.below(steps)).collect();
        for step in 0..steps {
            if restarts.contains(&step) {
                self.restart()?;
            }
            self.step()?;
        }
        self.end()
    }

    fn step(&mut self) -> Result<(), String> {
        self.site
            .pass(Duration::from_millis(self.dice.below(1500) as u64));
        if self.dice.once_in(200) {
            self.site
                .pass(Duration::from_secs(self.dice.within(10, 60) as u64));
        }
        if self.dice.once_in(3) {
            self.work();
        }
        let at = self.dice.below(self.machines.len());
        if self.dice.once_in(80) {
            let silence = Duration::from_secs(self.dice.within(30, 250) as u64);
            self.machines[at].silent_until = self.site.now() + silence;
        }
        if !self.orphans.is_empty() && self.dice.once_in(6) {
            let orphan = self.dice.below(self.orphans.len());
            let mut request = self.orphans.swap_remove(orphan);
            self.advance_one(&mut request)?;
            if !request.copies.is_empty() {
                self.orphans.push(request);
            }
        }
        if self.machines[at].silent_until <= self.site.now() {
            self.act(at)?;
        }
        self.check_usage()
    }

    fn work(&mut self) {
        self.site.work();
        if !self.site.is_in_grace() {
            self.reference.end_grace();
        }
    }

    fn check_usage(&mut self) -> Result<(), String> {
        let usage = self.site.nfs().state().usage();
        let expected = self.reference.usage();
        let is_uncertain = self.reference.is_uncertain(self.site.now());
        let is = (usage.states, usage.locks);
        let is_good = match is_uncertain {
            true => is.0 <= expected.0 && is.1 <= expected.1,
            false => is == expected,
        };
        match is_good {
            true => Ok(()),
            false => Err(format!(
                "the server has {is:?} states and locks, not {expected:?}"
            )),
        }
    }

    /// A step of one machine.
    fn act(&mut self, at: usize) -> Result<(), String> {
        if self.dice.once_in(150) {
            self.crash(at);
        }
        let Some(live) = &self.machines[at].live else {
            return self.connect(at);
        };
        let slot = self.dice.below(live.slots.len());
        match live.slots[slot].request {
            Some(_) => self.go_on(at, slot),
            None if self.dice.once_in(12) => self.lie_about_session(at, slot),
            None => self.begin(at, slot),
        }
    }

    /// A machine starts anew: what it had on its way may still be executed.
    fn crash(&mut self, at: usize) {
        self.note(|| format!("{at} crashes"));
        let machine = &mut self.machines[at];
        machine.instance += 1;
        machine.held.clear();
        machine.plan.clear();
        self.leave_session(at);
    }

    fn leave_session(&mut self, at: usize) {
        if let Some(live) = self.machines[at].live.take() {
            let requests = live.slots.into_iter().filter_map(|slot| slot.request);
            self.orphans
                .extend(requests.filter(|request| !request.copies.is_empty()));
        }
    }

    fn caller(&mut self, at: usize) -> Caller {
        let machine = &mut self.machines[at];
        if machine.callers.is_empty() || self.dice.once_in(20) {
            let host = u8::try_from(at).expect("a few machines") + 1;
            machine
                .callers
                .push(Caller::new(([127, 0, 0, host], 700).into()));
            count(&self.stage.counts.connections);
        }
        if machine.callers.len() > 3 {
            let gone = machine.callers.remove(0);
            self.site.disconnect(&gone);
        }
        let callers = &self.machines[at].callers;
        callers[self.dice.below(callers.len())]
    }

    /// A machine makes a session.
    fn connect(&mut self, at: usize) -> Result<(), String> {
        let caller = self.caller(at);
        let machine = &self.machines[at];
        let (name, instance) = (machine.name.clone(), machine.instance);
        let known = self.call(wire::exchange(name.as_bytes(), instance), &caller)?;
        let (id, sequence) = match (known.status, known.got) {
            (Ok(()), Got::Client(id, sequence)) => (id, sequence),
            (Err(Status::Delay), _) => return Ok(()),
            other => return Err(format!("EXCHANGE_ID: {other:?}")),
        };
        let slots = self.dice.of(&[1, 2, 2, 4, 8]);
        let call = wire::create_session(id, sequence, slots);
        let repeated = Payload::new(wire::flat(&call), 0);
        let reply = self.site.call_now(call, &caller);
        if self.dice.coin() {
            let again = self.site.call_now(repeated, &caller);
            if body(&again) != body(&reply) {
                return Err("CREATE_SESSION that was repeated has another answer".into());
            }
        }
        let created = outcome(&reply)?;
        let Got::Session(session, granted) = created.got else {
            return match created.status {
                Err(Status::Delay | Status::StaleClientId) => Ok(()),
                other => Err(format!("CREATE_SESSION: {other:?}")),
            };
        };
        if granted > slots {
            return Err(format!("{granted} slots where {slots} were asked for"));
        }
        for other in self.reference.of_machine(at) {
            if other != id {
                match self.is_crashed(at, other) {
                    true => self.reference.end(other),
                    false => self.reference.lose(other, self.site.now())?,
                }
            }
        }
        self.reference.enter(id, at, self.site.now());
        let epoch = self.site.epoch;
        self.note(|| format!("{at} has {id:?} in epoch {epoch}"));
        let is_complete = self.reference.is_complete(id);
        let machine = &mut self.machines[at];
        machine.live = Some(Live {
            client: id,
            session,
            epoch,
            is_complete,
            slots: (0..granted).map(|_| Slot::default()).collect(),
        });
        machine.plan = match is_complete {
            true => VecDeque::new(),
            false => machine.way_back(),
        };
        Ok(())
    }

    /// Whether the machine made a client id before it crashed: at a crash it forgets what it had.
    fn is_crashed(&self, at: usize, _client: ClientId) -> bool {
        self.machines[at].instance > 1 && self.machines[at].held.is_empty()
    }

    fn call(&mut self, call: Payload, caller: &Caller) -> Result<Outcome, String> {
        outcome(&self.site.call_now(call, caller))
    }

    /// A machine sends a new request.
    fn begin(&mut self, at: usize, slot: usize) -> Result<(), String> {
        let Some(live) = &self.machines[at].live else {
            return Ok(());
        };
        let (is_complete, epoch) = (live.is_complete, live.epoch);
        let plan = match is_complete {
            true => None,
            // One step after the other.
            false if live.slots.iter().any(|slot| slot.request.is_some()) => return Ok(()),
            false => self.machines[at].plan.front().cloned(),
        };
        let (op, is_lie) = match plan {
            Some(plan) => match self.machines[at].follow(&plan, epoch) {
                Some(op) => (op, false),
                None => {
                    self.machines[at].plan.pop_front();
                    return Ok(());
                }
            },
            None if !is_complete => (Op::Complete, false),
            None => self.choose(at),
        };
        let Some(live) = &mut self.machines[at].live else {
            return Ok(());
        };
        live.slots[slot].sequence = live.slots[slot].sequence.wrapping_add(1);
        let highest = (live.slots.iter().enumerate())
            .filter(|(number, its)| *number == slot || its.request.is_some())
            .map(|(number, _)| number)
            .max();
        let place = At {
            session: live.session,
            slot: u32::try_from(slot).expect("a few slots"),
            sequence: live.slots[slot].sequence,
            highest: u32::try_from(highest.unwrap_or(slot)).expect("a few slots"),
            keep: true,
        };
        let message = wire::request(place, &op);
        let mut request = Request {
            machine: at,
            client: live.client,
            at: place,
            epoch: live.epoch,
            op,
            is_lie,
            graced: false,
            flat: wire::flat(&message).to_vec(),
            copies: Vec::new(),
            reply: None,
            outcome: None,
        };
        count(&self.stage.counts.calls);
        let caller = self.caller(at);
        self.send(&mut request, message, &caller)?;
        self.put_back(at, slot, request);
        Ok(())
    }

    fn put_back(&mut self, at: usize, slot: usize, request: Request) {
        match &mut self.machines[at].live {
            Some(live) if live.session == request.at.session => {
                live.slots[slot].request = Some(request);
            }
            _ => self.orphans.push(request),
        }
    }

    fn send(
        &mut self,
        request: &mut Request,
        message: Payload,
        caller: &Caller,
    ) -> Result<(), String> {
        request.graced |= self.site.is_in_grace();
        let is_first = request.reply.is_none() && request.copies.is_empty();
        let answer = self.site.call(message, caller);
        let was_taken = match &answer {
            Answered::Later(_) => is_first,
            Answered::Reply(reply) => outcome(reply)?.in_session,
            Answered::Nothing => false,
        };
        if was_taken {
            self.reference.renew(request.client, self.site.now());
        }
        self.take(request, answer)
    }

    /// Takes an answer to a copy of a request.
    fn take(&mut self, request: &mut Request, answer: Answered) -> Result<(), String> {
        match answer {
            Answered::Later(copy) => request.copies.push(copy),
            Answered::Nothing => {}
            Answered::Reply(reply) => self.replied(request, &reply)?,
        }
        Ok(())
    }

    /// The server has made a reply to a copy of a request.
    fn replied(&mut self, request: &mut Request, reply: &Payload) -> Result<(), String> {
        let body = body(reply);
        let (at, op) = (request.machine, &request.op);
        let is_first = match &request.outcome {
            // The session ended while another copy was executed.
            Some(first) => !first.in_session && outcome(reply)?.in_session,
            None => true,
        };
        if let (Some(first), false) = (&request.reply, is_first) {
            let what = outcome(reply)?;
            self.note(|| format!("{at}: again {op:?}: {:?}", what.status));
            // One that comes late is told that the slot has gone on, or that the session is gone.
            return match *first == body || !what.in_session {
                true => Ok(()),
                false => Err(format!(
                    "another reply to the same request: {what:?} after {:?}",
                    request.outcome
                )),
            };
        }
        let what = outcome(reply)?;
        self.note(|| format!("{at}: {op:?}: {:?} {:?}", what.status, what.got));
        if what.in_session {
            let is_in_grace = self.site.is_in_grace();
            let when = Circumstances {
                now: self.site.now(),
                client: request.client,
                in_grace: request.graced || is_in_grace,
                is_in_grace,
                is_lie: request.is_lie,
            };
            self.reference.apply(when, &request.op, &what)?;
            if what.status.is_ok() {
                count(&self.stage.counts.answered);
            }
        } else {
            self.refused(request, &what)?;
        }
        request.reply = Some(body);
        request.outcome = Some(what);
        Ok(())
    }

    /// SEQUENCE has failed.
    fn refused(&mut self, request: &Request, what: &Outcome) -> Result<(), String> {
        let session = request.at.session;
        let live = self.machines[request.machine].live.as_ref();
        let is_current = live.is_some_and(|live| live.session == session);
        match what.status {
            Err(Status::BadSession) if request.epoch != self.site.epoch => Ok(()),
            Err(Status::BadSession) if is_current => {
                self.reference.lose(request.client, self.site.now())
            }
            // Its client has another session by now.
            Err(Status::BadSession) if !is_current => Ok(()),
            other => Err(format!("SEQUENCE of {:?}: {other:?}", request.op)),
        }
    }

    /// Goes on with a request that is on its way.
    fn go_on(&mut self, at: usize, slot: usize) -> Result<(), String> {
        let Some(live) = &mut self.machines[at].live else {
            return Ok(());
        };
        let Some(mut request) = live.slots[slot].request.take() else {
            return Ok(());
        };
        let has_reply = request.reply.is_some();
        match self.dice.below(10) {
            0..7 if has_reply => {
                self.receive(at, request);
                return Ok(());
            }
            _ if request.copies.is_empty() => self.repeat(&mut request)?,
            0..7 => self.advance_one(&mut request)?,
            7 | 8 => self.repeat(&mut request)?,
            _ => self.cancel(&mut request),
        }
        self.put_back(at, slot, request);
        Ok(())
    }

    /// The client sends a request again, on any connection.
    fn repeat(&mut self, request: &mut Request) -> Result<(), String> {
        let caller = self.caller(request.machine);
        let message = Payload::new(buffer::Buffer::from(request.flat.clone()), 0);
        self.send(request, message, &caller)
    }

    /// A connection ends with a job that was not begun.
    fn cancel(&mut self, request: &mut Request) {
        let job = |copy: &Copy| matches!(copy, Copy::Job(_));
        if let Some(place) = request.copies.iter().position(job) {
            count(&self.stage.counts.cancelled);
            let (at, op) = (request.machine, &request.op);
            self.note(|| format!("{at}: cancelled {op:?}"));
            request.copies.remove(place);
        }
    }

    fn advance_one(&mut self, request: &mut Request) -> Result<(), String> {
        if request.copies.is_empty() {
            return Ok(());
        }
        let place = self.dice.below(request.copies.len());
        let copy = request.copies.swap_remove(place);
        request.graced |= self.site.is_in_grace();
        let is_first = request.reply.is_none();
        let mut answer = advance(copy);
        // The model is told of what is executed in its order.
        let waits_for_another = request
            .copies
            .iter()
            .any(|copy| matches!(copy, Copy::Job(_)));
        if self.local && is_first && !waits_for_another && !matches!(request.op, Op::Complete) {
            answer = site::settle(answer);
        }
        self.take(request, answer)
    }

    /// The client gets the reply.
    fn receive(&mut self, at: usize, request: Request) {
        let epoch = self.site.epoch;
        let machine = &mut self.machines[at];
        let Some(what) = request.outcome.clone() else {
            return;
        };
        if !what.in_session {
            self.note(|| format!("{at} has lost its session"));
            if request.epoch == epoch {
                self.machines[at].held.clear();
            }
            self.leave_session(at);
            return;
        }
        let buried = machine.learn(&request.op, request.epoch, &what);
        if let Some(buried) = buried {
            if self.graveyard.len() == GRAVEYARD {
                self.graveyard.pop_front();
            }
            self.graveyard.push_back(buried);
        }
        if !request.copies.is_empty() {
            self.orphans.push(request);
        }
    }

    /// Requests that no honest client sends: nothing comes of them.
    fn lie_about_session(&mut self, at: usize, slot: usize) -> Result<(), String> {
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

    fn choose(&mut self, at: usize) -> (Op, bool) {
        let dice = &mut self.dice;
        let held = &self.machines[at].held;
        let name = dice.below(NAMES) as u8;
        let owner = dice.below(OWNERS) as u8;
        let access = dice.of(&[1, 2, 3, 3]);
        let deny = dice.of(&[0, 0, 0, 0, 0, 1, 2, 3]);
        let open = Op::Open {
            owner,
            name,
            access,
            deny,
            guarded: dice.once_in(4),
        };
        let kind = dice.below(20);
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
                    kind: match dice.once_in(12) {
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
                to: dice.below(NAMES) as u8,
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

    /// The server is killed and comes back.
    fn restart(&mut self) -> Result<(), String> {
        self.note(|| "the server restarts".into());
        count(&self.stage.counts.restarts);
        let mut requests: Vec<Request> = std::mem::take(&mut self.orphans);
        // What has been answered was executed.
        for machine in 0..self.machines.len() {
            let slots = match &mut self.machines[machine].live {
                Some(live) => live.slots.len(),
                None => 0,
            };
            for slot in 0..slots {
                let Some(live) = &mut self.machines[machine].live else {
                    continue;
                };
                if let Some(mut request) = live.slots[slot].request.take() {
                    self.drain(&mut request)?;
                    self.put_back(machine, slot, request);
                }
            }
        }
        for request in &mut requests {
            self.drain(request)?;
        }
        drop(requests);
        let was_in_grace = self.site.is_in_grace();
        self.site.start();
        self.reference.restart(self.site.now(), was_in_grace);
        for machine in &mut self.machines {
            machine.callers.clear();
        }
        Ok(())
    }

    /// Takes the replies that there are, and drops the other copies of a request.
    fn drain(&mut self, request: &mut Request) -> Result<(), String> {
        for copy in std::mem::take(&mut request.copies) {
            if let copy @ Copy::Waits(_) = copy
                && let Answered::Reply(reply) = advance(copy)
            {
                self.replied(request, &reply)?;
            }
        }
        Ok(())
    }

    /// All clients leave, in order or by their silence; then nothing is left.
    fn end(&mut self) -> Result<(), String> {
        self.note(|| "the end".into());
        for at in 0..self.machines.len() {
            self.end_requests(at)?;
            if self.dice.coin() {
                self.leave(at)?;
            }
        }
        for _ in 0..TRIES {
            for mut request in std::mem::take(&mut self.orphans) {
                self.advance_one(&mut request)?;
                if !request.copies.is_empty() {
                    self.orphans.push(request);
                }
            }
            self.work();
        }
        if !self.orphans.is_empty() {
            return Err("a request never ends".into());
        }
        for _ in 0..4 {
            self.site.pass(LEASE + COURTESY);
            self.work();
        }
        for at in 0..self.machines.len() {
            for client in self.reference.of_machine(at) {
                self.reference.lose(client, self.site.now())?;
            }
        }
        self.check_nothing(self.site.nfs().state())?;
        self.clean_up()
    }

    fn check_nothing(&self, state: &Nfs4State) -> Result<(), String> {
        match state.usage() == Default::default() {
            true => Ok(()),
            false => Err(format!("left: {:?}", state.usage())),
        }
    }

    /// Lets what is on its way end.
    fn end_requests(&mut self, at: usize) -> Result<(), String> {
        for _ in 0..TRIES {
            let Some(live) = &self.machines[at].live else {
                return Ok(());
            };
            let busy = live.slots.iter().position(|slot| slot.request.is_some());
            match busy {
                Some(slot) => self.go_on(at, slot)?,
                None => return Ok(()),
            }
            self.work();
        }
        Err("a request never ends".into())
    }

    /// A machine closes all that it has, and says that it goes.
    fn leave(&mut self, at: usize) -> Result<(), String> {
        while let Some(held) = self.machines[at].held.pop() {
            if self.machines[at].live.is_none() || held.epoch != self.site.epoch {
                continue;
            }
            self.machines[at].held.push(held.clone());
            let op = Op::Close {
                handle: held.handle.clone(),
                state: held.state,
            };
            if !self.ask(at, op)? {
                return Ok(());
            }
        }
        let Some(live) = self.machines[at].live.take() else {
            return Ok(());
        };
        let caller = self.caller(at);
        self.call(wire::destroy_session(live.session), &caller)?;
        self.call(wire::destroy_client(live.client), &caller)?;
        Ok(())
    }

    /// A machine makes a request, and waits for its reply. Returns whether it has a session, and the request was executed.
    fn ask(&mut self, at: usize, op: Op) -> Result<bool, String> {
        for _ in 0..TRIES {
            let Some(live) = &mut self.machines[at].live else {
                return Ok(false);
            };
            live.slots[0].sequence = live.slots[0].sequence.wrapping_add(1);
            let place = At {
                session: live.session,
                slot: 0,
                sequence: live.slots[0].sequence,
                highest: 0,
                keep: false,
            };
            let message = wire::request(place, &op);
            let mut request = Request {
                machine: at,
                client: live.client,
                at: place,
                epoch: live.epoch,
                op: op.clone(),
                is_lie: false,
                graced: self.site.is_in_grace(),
                flat: Vec::new(),
                copies: Vec::new(),
                reply: None,
                outcome: None,
            };
            let caller = self.caller(at);
            let reply = self.site.call_now(message, &caller);
            self.replied(&mut request, &reply)?;
            let status = request.outcome.as_ref().map(|what| what.status);
            self.receive(at, request);
            match status {
                Some(Ok(())) => return Ok(true),
                Some(status) if is_later(status) => {
                    self.site.pass(Duration::from_secs(1));
                    self.work();
                }
                _ => return Ok(false),
            }
        }
        Err("asked too often".into())
    }

    /// One more client removes all names: then nothing is held.
    fn clean_up(&mut self) -> Result<(), String> {
        let at = self.machines.len();
        self.machines.push(Machine {
            name: "the last".into(),
            instance: 1,
            callers: Vec::new(),
            live: None,
            held: Vec::new(),
            plan: VecDeque::new(),
            silent_until: self.site.now(),
        });
        self.connect(at)?;
        self.ask(at, Op::Complete)?;
        for name in self.reference.names() {
            if !self.ask(at, Op::Remove { name })? {
                return Err(format!("name {name} cannot be removed"));
            }
        }
        self.leave(at)?;
        self.work();
        self.check_nothing(self.site.nfs().state())?;
        match self.local || self.site.free() == self.free {
            true => Ok(()),
            false => Err(format!(
                "{} bytes free, not {}",
                self.site.free(),
                self.free
            )),
        }
    }
}

impl Machine {
    /// Steps to have again what it had.
    fn way_back(&self) -> VecDeque<Plan> {
        let mut plan = VecDeque::new();
        for held in &self.held {
            plan.push_back(Plan::Open(held.owner, held.handle.clone()));
            for (&locker, locked) in &held.locks {
                let mut part = 0;
                while part < PARTS {
                    let first = part;
                    while part < PARTS && locked.parts[part] == locked.parts[first] {
                        part += 1;
                    }
                    if let Some(exclusive) = locked.parts[first] {
                        plan.push_back(Plan::Lock(
                            held.owner,
                            held.handle.clone(),
                            locker,
                            (first, part - 1),
                            exclusive,
                        ));
                    }
                }
            }
        }
        plan.push_back(Plan::Complete);
        plan
    }

    fn held(&mut self, owner: u8, handle: &[u8]) -> Option<&mut Held> {
        let mut held = self.held.iter_mut();
        held.find(|held| held.owner == owner && held.handle == handle)
    }

    fn follow(&mut self, plan: &Plan, epoch: u32) -> Option<Op> {
        match plan {
            Plan::Complete => Some(Op::Complete),
            Plan::Open(owner, handle) => {
                let held = self.held(*owner, handle)?;
                Some(Op::OpenHandle {
                    owner: *owner,
                    handle: handle.clone(),
                    access: held.access,
                    deny: held.deny,
                    reclaims: true,
                })
            }
            Plan::Lock(owner, handle, locker, range, exclusive) => {
                let held = self.held(*owner, handle)?;
                if held.epoch != epoch {
                    return None;
                }
                let locked = held.locks.get(locker)?;
                Some(Op::Lock {
                    handle: handle.clone(),
                    open: held.state,
                    known: (locked.state != StateId::default()).then_some(locked.state),
                    locker: *locker,
                    range: *range,
                    kind: match exclusive {
                        true => LockType::Write,
                        false => LockType::Read,
                    },
                    reclaims: true,
                })
            }
        }
    }

    /// Learns from a reply. Returns a state id that is gone.
    fn learn(&mut self, op: &Op, epoch: u32, what: &Outcome) -> Option<StateId> {
        let is_put_off = is_later(what.status);
        match op {
            Op::Complete if matches!(what.status, Ok(()) | Err(Status::CompleteAlready)) => {
                if let Some(live) = &mut self.live {
                    live.is_complete = true;
                }
                self.plan.clear();
                // What was not reclaimed is lost.
                self.held.retain(|held| held.epoch == epoch);
            }
            Op::Open {
                owner,
                access,
                deny,
                ..
            }
            | Op::OpenHandle {
                owner,
                access,
                deny,
                ..
            } => {
                let reclaims = matches!(op, Op::OpenHandle { reclaims: true, .. });
                if let (Ok(()), Got::Opened(state, handle)) = (what.status, &what.got) {
                    self.opened((*owner, *access, *deny), *state, handle, epoch);
                } else if let (Op::OpenHandle { handle, .. }, true, false) =
                    (op, reclaims, is_put_off)
                {
                    let lost = |held: &Held| held.owner == *owner && held.handle == *handle;
                    self.held.retain(|held| !lost(held) || held.epoch == epoch);
                }
                if reclaims && !is_put_off {
                    self.plan.pop_front();
                }
            }
            Op::Close { state, .. } if what.status.is_ok() => {
                self.held.retain(|held| held.state.other != state.other);
                return Some(*state);
            }
            Op::Lock {
                handle,
                open,
                locker,
                range,
                kind,
                reclaims,
                ..
            } => {
                if *reclaims && !is_put_off {
                    self.plan.pop_front();
                }
                let mut held = self.held.iter_mut();
                let held =
                    held.find(|held| held.handle == *handle && held.state.other == open.other)?;
                if let (Ok(()), Got::State(state)) = (what.status, &what.got) {
                    let locked = held.locks.entry(*locker).or_insert(Locked {
                        state: *state,
                        parts: [None; PARTS],
                    });
                    locked.state = newest(locked.state, *state);
                    let exclusive = matches!(kind, LockType::Write | LockType::WriteWait);
                    locked.parts[range.0..=range.1].fill(Some(exclusive));
                } else if *reclaims
                    && !is_put_off
                    && let Some(locked) = held.locks.get_mut(locker)
                {
                    locked.parts[range.0..=range.1].fill(None);
                }
            }
            Op::Unlock { state, range, .. } => {
                if let (Ok(()), Got::State(new)) = (what.status, &what.got) {
                    let mut all = self
                        .held
                        .iter_mut()
                        .flat_map(|held| held.locks.values_mut());
                    let locked = all.find(|locked| locked.state.other == state.other)?;
                    locked.state = newest(locked.state, *new);
                    locked.parts[range.0..=range.1].fill(None);
                }
            }
            _ => {}
        }
        None
    }

    fn opened(
        &mut self,
        (owner, access, deny): (u8, u32, u32),
        state: StateId,
        handle: &[u8],
        epoch: u32,
    ) {
        match self.held(owner, handle) {
            Some(held) if held.state.other == state.other => {
                held.state = newest(held.state, state);
                held.access |= access;
                held.deny |= deny;
            }
            Some(held) => {
                // It is open again: its locks have new states.
                (held.state, held.epoch) = (state, epoch);
                for locked in held.locks.values_mut() {
                    locked.state = StateId::default();
                }
            }
            None => self.held.push(Held {
                owner,
                handle: handle.to_vec(),
                state,
                access,
                deny,
                locks: BTreeMap::new(),
                epoch,
            }),
        }
    }
}

/// The newer of two ids of one state; replies may come in any order.
fn newest(one: StateId, other: StateId) -> StateId {
    match one.other == other.other && one.seqid > other.seqid {
        true => one,
        false => other,
    }
}

/// A reply without its id.
fn body(reply: &Payload) -> Vec<u8> {
    wire::flat(reply).to_vec().split_off(4)
}
