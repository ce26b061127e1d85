//! Leases, the end of clients, and the grace period.

use super::listing::GraceView;
use super::{Completed, Demand, Server};
use crate::address::AddressKey;
use crate::client::{Reclaims, Stage};
use crate::event::{ClientEnd, Event, GraceEnd};
use crate::grace::{Purpose, Recorded, Ticket};
use crate::limits::{MAX_ENDED_AT_ONCE, MAX_LOOKS};
use crate::state::UsageOfClient;
use nfs_proto::v4::{ClientId, Status};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

impl<P: Clone + Eq, F: Clone + Eq + Hash> Server<P, F> {
    /// Returns when [`handle_timeout`](Self::handle_timeout) is to be called next. There may be nothing to do then.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ending = self.ending.front().map(|&(since, _)| since);
        let deadlines = [self.leases.next(), self.grace.deadline(), ending];
        deadlines.into_iter().flatten().min()
    }

    /// Ends leases and the grace period, if it is time, and some of what clients had that have ended. There may be more to do:
    /// [`poll_timeout`](Self::poll_timeout) tells.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.grace.deadline().is_some_and(|until| until <= now) {
            self.finish_grace(GraceEnd::TimeUp);
        }
        for _ in 0..MAX_LOOKS {
            let Some(client) = self.leases.pop(now) else {
                break;
            };
            self.look_at(now, client);
        }
        if let Some((since, client)) = self.ending.pop_front() {
            self.end(now, (since, client));
        }
    }

    /// Looks whether the lease of a client has run out, and plans the next look.
    fn look_at(&mut self, now: Instant, id: ClientId) {
        let Ok(client) = self.clients.usable(id) else {
            return;
        };
        let lease_ends = client.renewed + self.config.lease;
        let state_ends = lease_ends + self.config.courtesy;
        let has_state = self.states.has_any(id);
        let next = match client.stage {
            Stage::Leaving => return,
            Stage::Unconfirmed | Stage::Confirmed if now < lease_ends => lease_ends,
            // RFC 8881 §18.35.4: one that is not confirmed within a lease is removed.
            Stage::Unconfirmed => return self.purge(now, id),
            // A request that is being executed renewed the lease when it came, and may still make state.
            Stage::Confirmed if self.sessions.is_busy(id) => now + self.config.lease,
            Stage::Confirmed if has_state && now < state_ends => {
                client.stage = Stage::Courtesy;
                self.leases.expire(now, id);
                state_ends
            }
            Stage::Courtesy if now < state_ends => state_ends,
            Stage::Confirmed | Stage::Courtesy => {
                return self.leave(now, id, Some(ClientEnd::Expired));
            }
        };
        self.leases.look_at(next, id);
    }

    /// Ends the time for reclaims, if it is not over: records of clients that have not completed theirs are removed, and then
    /// grace is over. It happens when the time is up; an administrator may do so before.
    pub fn end_grace(&mut self) {
        self.finish_grace(GraceEnd::Administrator);
    }

    fn finish_grace(&mut self, why: GraceEnd) {
        if !self.grace.takes_reclaims() {
            return;
        }
        let lost = self.grace.end();
        let event = Event::GraceEnded {
            why,
            lost: lost.len(),
        };
        self.events.push(event);
        for owner in lost {
            self.remove_record(owner, Purpose::EndOfGrace);
        }
    }

    fn remove_record(&mut self, owner: Arc<[u8]>, purpose: Purpose) {
        let ticket = self.grace.begin_removal(&owner, purpose);
        self.demands.push_back(Demand::Remove(ticket, owner));
    }

    /// Notes that the removal of a record is durable.
    ///
    /// # Panics
    ///
    /// If the ticket is that of a record that was to be made.
    pub fn handle_removed(&mut self, now: Instant, ticket: Ticket) {
        match self.grace.end_removal(ticket) {
            Some(Purpose::Leave(client)) => self.purge(now, client),
            Some(Purpose::EndOfGrace) => self.grace.removed_one(),
            Some(Purpose::Tidy | Purpose::Complete(_)) | None => {}
        }
    }

    /// Returns the grace period, while clients reclaim.
    pub fn grace(&self) -> Option<GraceView> {
        let awaited = self.grace.awaited();
        let until = self.grace.deadline()?;
        Some(GraceView { until, awaited })
    }

    /// Returns whether new opens and locks are refused, as clients reclaim theirs.
    pub fn is_in_grace(&self) -> bool {
        self.grace.is_on()
    }

    /// Executes RECLAIM_COMPLETE (RFC 8881 §18.51). For one file system it means nothing here, as none comes from another
    /// server (RFC 8881 §18.51.4).
    ///
    /// # Errors
    ///
    /// - `StaleClientId`: the client id is unknown.
    /// - `CompleteAlready`: the client has said so before.
    /// - `Delay`: it has, and is being recorded.
    pub fn reclaim_complete(
        &mut self,
        client: ClientId,
        one_fs: bool,
    ) -> Result<Completed, Status> {
        let record = self.clients.usable(client)?;
        if one_fs {
            return Ok(Completed::Done);
        }
        match record.reclaims {
            Reclaims::Open => {}
            Reclaims::Recording => return Err(Status::Delay),
            Reclaims::Complete => return Err(Status::CompleteAlready),
        }
        if self.grace.is_durable(&record.owner) {
            record.reclaims = Reclaims::Complete;
            let owner = Arc::clone(&record.owner);
            self.complete_reclaims(&owner);
            return Ok(Completed::Done);
        }
        record.reclaims = Reclaims::Recording;
        let owner = Arc::clone(&record.owner);
        let ticket = self.grace.begin_record(client, &owner);
        let principal = record.principal.clone();
        let recorded = Recorded { owner, principal };
        self.demands.push_back(Demand::Record(ticket, recorded));
        Ok(Completed::AfterRecord(ticket))
    }

    /// Notes that an owner has reclaimed all it will.
    fn complete_reclaims(&mut self, owner: &[u8]) {
        let was_on = self.grace.takes_reclaims();
        self.grace.complete(owner);
        if was_on && !self.grace.takes_reclaims() {
            let why = GraceEnd::Complete;
            self.events.push(Event::GraceEnded { why, lost: 0 });
        }
    }

    /// Notes that a record was made, or that it was not. Returns the answer to the RECLAIM_COMPLETE that waits for it.
    ///
    /// # Panics
    ///
    /// If the ticket is that of a removal.
    pub fn handle_recorded(
        &mut self,
        ticket: Ticket,
        is_durable: bool,
    ) -> Option<Result<(), Status>> {
        let (client, owner) = self.grace.end_record(ticket, is_durable)?;
        let answer = match self.clients.usable(client) {
            Ok(client) if is_durable => {
                client.reclaims = Reclaims::Complete;
                self.complete_reclaims(&owner);
                Ok(())
            }
            Ok(client) => {
                client.reclaims = Reclaims::Open;
                Err(Status::Delay)
            }
            Err(gone) => Err(gone),
        };
        self.tidy(&owner);
        Some(answer)
    }

    /// Checks whether a client may make state: in the grace period only what it had before, and later only after it
    /// has said that this is complete (RFC 8881 §8.4.2.1, §18.51.3). Returns its address.
    ///
    /// # Errors
    ///
    /// - `Grace`: not now.
    /// - `NoGrace`: the client cannot reclaim, or no longer.
    pub fn check_grace(
        &mut self,
        now: Instant,
        client: ClientId,
        reclaims: bool,
    ) -> Result<AddressKey, Status> {
        let client = self.clients.usable(client)?;
        let may_reclaim = client.may_reclaim && client.reclaims == Reclaims::Open;
        let is_complete = client.reclaims == Reclaims::Complete;
        match reclaims {
            true if may_reclaim && self.grace.takes_reclaims() => {
                self.grace.reclaims(now);
                Ok(client.address)
            }
            true => Err(Status::NoGrace),
            false if self.grace.is_on() || !is_complete => Err(Status::Grace),
            false => Ok(client.address),
        }
    }

    /// Ends a client whose lease has not to be waited for, as an administrator does.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: the client id is unknown.
    pub fn expire_client(&mut self, now: Instant, client: ClientId) -> Result<(), Status> {
        self.clients.usable(client)?;
        self.leave(now, client, Some(ClientEnd::Administrator));
        Ok(())
    }

    /// Ends a client: its sessions now, its state once its record is gone. Without a reason, it is the client that wants it.
    pub(super) fn leave(&mut self, now: Instant, id: ClientId, why: Option<ClientEnd>) {
        self.sessions.destroy_all(id);
        let client = self.clients.usable(id).expect("the client was found");
        let owner = Arc::clone(&client.owner);
        if let Some(why) = why
            && self.states.has_any(id)
        {
            let usage = UsageOfClient::of(&self.states, id);
            self.events.push(Event::ClientEnded {
                client: id,
                owner: Arc::clone(&owner),
                why,
                opens: usage.opens,
                locks: usage.locks,
            });
        }
        self.clients.leave(id);
        self.leases.forget(id);
        match self.grace.may_be_recorded(&owner) {
            true => self.remove_record(owner, Purpose::Leave(id)),
            false => self.purge(now, id),
        }
    }

    /// Ends a client with all it has: at once, or in steps if that is much.
    pub(super) fn purge(&mut self, now: Instant, id: ClientId) {
        self.sessions.destroy_all(id);
        self.clients.leave(id);
        self.leases.forget(id);
        self.end(now, (now, id));
    }

    /// Ends some of the state of a client, and the client with the last of it.
    fn end(&mut self, now: Instant, (since, id): (Instant, ClientId)) {
        match self.states.remove_some(now, id, MAX_ENDED_AT_ONCE) {
            true => {
                let client = self.clients.remove(id);
                self.tidy(&client.owner);
            }
            false => self.ending.push_back((since, id)),
        }
        self.pass_on();
    }

    /// Removes the record of an owner that has no client id and is not awaited.
    pub(super) fn tidy(&mut self, owner: &Arc<[u8]>) {
        let is_needed = self.clients.confirmed(owner).is_some() || self.grace.awaits(owner);
        // One that is being made is looked at when it is there.
        if self.grace.may_be_recorded(owner) && !is_needed && !self.grace.is_recording(owner) {
            self.remove_record(Arc::clone(owner), Purpose::Tidy);
        }
    }

    /// Ends the client whose lease ran out first, as there is no room for what others want.
    pub(super) fn relieve(&mut self, now: Instant) {
        if let Some(client) = self.leases.first_expired() {
            self.leave(now, client, Some(ClientEnd::NoRoom));
        }
    }

    /// Demands what changes of state have brought.
    pub(super) fn pass_on(&mut self) {
        for (file, state) in self.states.drain_released() {
            self.demands.push_back(Demand::Release { file, state });
        }
        for (file, client, owner) in self.states.drain_told() {
            self.demands.push_back(Demand::NotifyLock {
                client,
                owner,
                file,
            });
        }
    }
}
