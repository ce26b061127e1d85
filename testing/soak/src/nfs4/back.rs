//! Clients that answer the calls of the server, and check them.

use super::lines::Call;
use super::targets::Targets;
use super::wire::{self, Called};
use crate::dice::Dice;
use nfs_proto::v4::{ClientId, SessionId, Status};
use oncrpc::TransportError;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Calls as the clients know them.
#[derive(Debug, Default)]
pub(super) struct Back {
    /// Sequence ids of the last calls.
    executed: HashMap<SessionId, u32>,
    /// Sessions with a call that was not answered.
    lost: HashSet<SessionId>,
    /// Owners that were told to wait.
    pub(super) waits: HashSet<(ClientId, u8)>,
}

impl Back {
    /// Answers a call to a machine, or does not. Returns the call if the machine has executed it.
    pub(super) fn answer(
        &mut self,
        dice: &mut Dice,
        live: Option<(SessionId, &mut Targets)>,
        call: Call,
    ) -> Result<Option<Called>, String> {
        let Some((session, sequence, what)) = wire::called(&call.bytes)? else {
            // CB_NULL.
            call.answer(Ok(wire::accepted()));
            return Ok(None);
        };
        let last = self.executed.get(&session).copied().unwrap_or(0);
        if sequence != last.wrapping_add(1) {
            return Err(format!("a call with sequence id {sequence} after {last}"));
        }
        if self.lost.contains(&session) {
            return Err("a call in a back channel that is lost".into());
        }
        match dice.below(10) {
            0 => {
                self.lost.insert(session);
                let patience = Duration::from_secs(9);
                call.answer(Err(TransportError::TimedOut(patience)));
                return Ok(None);
            }
            1 => {
                let reply = wire::called_back(&call.bytes, Err(Status::Delay))?;
                call.answer(Ok(reply));
                return Ok(None);
            }
            _ => {}
        }
        self.executed.insert(session, sequence);
        match what {
            Called::Lock(client, locker) if !self.waits.contains(&(client, locker)) => {
                return Err("an owner is told of a lock for which it does not wait".into());
            }
            Called::Lock(..) => {}
            Called::Slots(target) => {
                if let Some((_, targets)) = live.filter(|(its, _)| *its == session) {
                    targets.recalled(target);
                }
            }
        }
        let reply = wire::called_back(&call.bytes, Ok(()))?;
        call.answer(Ok(reply));
        Ok(Some(what))
    }
}
