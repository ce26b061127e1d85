//! State of NFS version 4: clients that crash, repeat themselves, lie, move and fall silent, and a server that restarts, by seed.
//!
//! There is no network: COMPOUNDs go to the program, and come back at once or as jobs, which the simulation executes when it likes,
//! or drops, as a connection does that ends. It sees each reply when it is made, and tells a model of it ([`reference`]), also where the
//! client does not get it and has to repeat its request.

mod back;
mod choices;
mod ends;
mod lines;
mod machine;
mod reference;
mod site;
mod targets;
mod wire;

use crate::dice::Dice;
use crate::stage::{Stage, count};
use back::Back;
use machine::{Live, Machine, Slot};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{ClientId, StateId, Status};
use oncrpc::Caller;
use oncrpc::xdr::Payload;
use reference::{Circumstances, Reference};
use site::{Answered, Copy, Site, advance, outcome};
use std::collections::VecDeque;
use std::time::Duration;
use targets::Targets;
use wire::{At, Got, Op, Outcome};

/// Names of files, and of directories.
const NAMES: [u8; 3] = [0, 1, 2];

/// Owners of opens of each client. Each has two owners of locks.
const OWNERS: [u8; 2] = [0, 1];

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
    back: Back,
    graveyard: VecDeque<StateId>,
    lines: VecDeque<String>,
    stamp: u8,
}

/// A request that is not ended.
struct Request {
    machine: usize,
    client: ClientId,
    at: At,
    epoch: u32,
    op: Op,
    is_lie: bool,
    /// That of the slots when it was first sent.
    generation: u32,
    graced: bool,
    /// It was not sent as yet.
    is_new: bool,
    flat: Vec<u8>,
    /// Each with whether it is the first, which is executed.
    copies: Vec<(bool, Copy)>,
    reply: Option<Vec<u8>>,
    outcome: Option<Outcome>,
}

impl<'a> Sim<'a> {
    fn new(stage: &'a Stage, local: bool, mut dice: Dice) -> Self {
        let site = Site::new(local);
        let (least, most) = stage.scenario.clients;
        let machines = (0..dice.within(least, most))
            .map(|number| Machine::new(format!("machine {number}"), site.now()));
        Self {
            machines: machines.collect(),
            free: site.free(),
            stage,
            local,
            site,
            dice,
            orphans: Vec::new(),
            reference: Reference::default(),
            back: Back::default(),
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
            if self.dice.coin() {
                self.answer_call(at)?;
            }
        }
        self.check_usage()
    }

    fn work(&mut self) {
        self.site.work();
        self.reference.is_ending = false;
        if !self.site.is_in_grace() {
            self.reference.end_grace();
        }
    }

    fn check_usage(&mut self) -> Result<(), String> {
        let usage = self.site.nfs().state().usage();
        let expected = self.reference.usage();
        if self.reference.is_ending {
            return Ok(());
        }
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
        let mut slot = self.dice.below(live.slots.len());
        if live.slots[slot].request.is_some() {
            return self.go_on(at, slot);
        }
        if self.dice.once_in(12) {
            return self.lie_about_session(at, slot);
        }
        if self.dice.once_in(40) {
            return self.bind(at);
        }
        if !self.dice.once_in(4) {
            // As Linux does.
            let lowest = live.slots.iter().position(|slot| slot.request.is_none());
            slot = lowest.unwrap_or(slot);
        }
        match live.targets.allow(slot) {
            true => self.begin(at, slot),
            false => Ok(()),
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
            let caller = Caller::new(([127, 0, 0, host], 700).into());
            machine.callers.push(caller);
            self.site.lines.connect(&caller);
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
        let slots = self.dice.of(&[1, 2, 2, 4, 8, 16, 32]);
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
            targets: Targets::new(granted),
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

    /// A machine is called, if there is a call for it.
    fn answer_call(&mut self, at: usize) -> Result<(), String> {
        let machine = &mut self.machines[at];
        let mut callers = machine.callers.iter();
        let Some(call) = callers.find_map(|caller| self.site.lines.take(caller)) else {
            return Ok(());
        };
        let live = machine.live.as_mut();
        let live = live.map(|live| (live.session, &mut live.targets));
        let executed = self.back.answer(&mut self.dice, live, call)?;
        if let Some(what) = executed {
            count(&self.stage.counts.called_back);
            self.note(|| format!("{at} is called: {what:?}"));
        }
        Ok(())
    }

    /// A machine binds one of its connections to its session.
    fn bind(&mut self, at: usize) -> Result<(), String> {
        let caller = self.caller(at);
        let Some(live) = &self.machines[at].live else {
            return Ok(());
        };
        let (client, session, epoch) = (live.client, live.session, live.epoch);
        let bound = self.call(wire::bind(session), &caller)?;
        self.note(|| {
            format!(
                "{at} binds a connection: {:?} {:?}",
                bound.status, bound.got
            )
        });
        match (bound.status, bound.got) {
            (Ok(()), Got::Bound(_)) => Ok(()),
            (Err(Status::BadSession), _) if epoch != self.site.epoch => Ok(()),
            (Err(Status::BadSession), _) => self.reference.lose(client, self.site.now()),
            other => Err(format!("BIND_CONN_TO_SESSION: {other:?}")),
        }
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
            generation: live.targets.generation,
            graced: false,
            is_new: true,
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
        let is_first = std::mem::replace(&mut request.is_new, false);
        let answer = self.site.call(message, caller);
        let was_taken = match &answer {
            Answered::Later(_) => is_first,
            Answered::Reply(reply) => outcome(reply)?.in_session,
            Answered::Nothing => false,
        };
        if was_taken {
            self.reference.renew(request.client, self.site.now());
        }
        self.take(request, answer, is_first)
    }

    /// Takes an answer to a copy of a request.
    fn take(
        &mut self,
        request: &mut Request,
        answer: Answered,
        is_first: bool,
    ) -> Result<(), String> {
        match answer {
            Answered::Later(copy) => {
                request.copies.push((is_first, copy));
            }
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
            if let (Op::Lock { locker, kind, .. }, Err(Status::Denied)) = (&request.op, what.status)
                && matches!(kind, LockType::ReadWait | LockType::WriteWait)
            {
                self.back.waits.insert((request.client, *locker));
            }
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
        let job = |(_, copy): &(bool, Copy)| matches!(copy, Copy::Job(_));
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
        let (is_first, copy) = request.copies.swap_remove(place);
        request.graced |= self.site.is_in_grace();
        let mut answer = advance(copy);
        // The model is told of what is executed in its order.
        if self.local && is_first && !matches!(request.op, Op::Complete) {
            answer = site::settle(answer);
        }
        self.take(request, answer, is_first)
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
        if let (Some(slots), Some(live)) = (what.slots, &mut machine.live)
            && live.session == request.at.session
        {
            live.take_slots(&request, slots);
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
}

/// A reply without its id.
fn body(reply: &Payload) -> Vec<u8> {
    wire::flat(reply).to_vec().split_off(4)
}
