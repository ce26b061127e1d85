//! Restarts of the server, and the end of a run, after which nothing may be left.

use super::machine::Machine;
use super::site::{Answered, COURTESY, Copy, LEASE, advance, is_later};
use super::wire::{self, At, Op};
use super::{Request, Sim, TRIES};
use crate::stage::count;
use nfs_server::Nfs4State;
use std::time::Duration;

impl Sim<'_> {
    /// The server is killed and comes back.
    pub(super) fn restart(&mut self) -> Result<(), String> {
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
        for (_, copy) in std::mem::take(&mut request.copies) {
            if let copy @ Copy::Waits(_) = copy
                && let Answered::Reply(reply) = advance(copy)
            {
                self.replied(request, &reply)?;
            }
        }
        Ok(())
    }

    /// All clients leave, in order or by their silence; then nothing is left.
    pub(super) fn end(&mut self) -> Result<(), String> {
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
                generation: live.targets.generation,
                graced: self.site.is_in_grace(),
                is_new: true,
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
        let last = Machine::new("the last".into(), self.site.now());
        self.machines.push(last);
        self.connect(at)?;
        self.ask(at, Op::Complete)?;
        for name in self.reference.names() {
            self.ask(at, Op::Remove { name })?;
            if self.reference.has_name(name) {
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
