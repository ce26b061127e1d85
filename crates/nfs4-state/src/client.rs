//! Client ids: records of clients, confirmed and not (RFC 8881 §18.35.4), and the reply cache of CREATE_SESSION
//! (RFC 8881 §18.36.4).

use crate::Random;
use crate::address::{AddressKey, may_grow};
use nfs_proto::v4::session::{CreateSessionOk, ExchangeFlags, ProtectedOperations};
use nfs_proto::v4::{ClientId, SequenceId, Status, Verifier};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Arguments of EXCHANGE_ID, with what the connection and the credential say.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeCall<'a, P> {
    /// Name of the client.
    pub owner: &'a [u8],
    /// Its instance.
    pub verifier: Verifier,
    /// The caller, as its credential says.
    pub principal: &'a P,
    /// From where.
    pub address: AddressKey,
    /// Flags of the arguments.
    pub flags: ExchangeFlags,
    /// The operations that the server protects for the client by its machine credential (SP4_MACH_CRED); `None` for
    /// SP4_NONE.
    pub protection: Option<ProtectedOperations>,
}

/// Result of EXCHANGE_ID: what of it is state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchanged {
    /// The client id.
    pub client: ClientId,
    /// Sequence id for the first CREATE_SESSION.
    pub sequence: SequenceId,
    /// `CONFIRMED_R`, if the client id is confirmed, and no other flag.
    pub flags: ExchangeFlags,
    /// The protection that was agreed on when the client id was made.
    pub protection: Option<ProtectedOperations>,
}

/// Stage in the life of a client id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has no session as yet.
    Unconfirmed,
    /// It is confirmed.
    Confirmed,
    /// Its lease ran out. Its state stays until it is in the way of others, or for long (RFC 8881 §8.4.3).
    Courtesy,
    /// Its state is in the way of others, and ends once its record is gone from stable storage: if others had
    /// locks before, and the server restarted, it could reclaim what they have. It is no longer found.
    Leaving,
}

/// Whether a client may still reclaim (RFC 8881 §18.51.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaims {
    /// It has sent no RECLAIM_COMPLETE, and cannot make new state.
    Open,
    /// It has, and is being recorded.
    Recording,
    /// It has, and stands on stable storage.
    Complete,
}

/// The reply cache of CREATE_SESSION.
#[derive(Clone, Copy, Debug)]
struct CreateSlot {
    sequence: u32,
    reply: Result<CreateSessionOk, Status>,
}

/// A client id.
#[derive(Debug)]
pub(crate) struct Client<P> {
    pub(crate) id: ClientId,
    pub(crate) owner: Arc<[u8]>,
    verifier: Verifier,
    pub(crate) principal: P,
    pub(crate) address: AddressKey,
    pub(crate) protection: Option<ProtectedOperations>,
    pub(crate) stage: Stage,
    slot: CreateSlot,
    /// When its lease was last renewed, or the client id was made.
    pub(crate) renewed: Instant,
    /// It had state before the server's restart, and may reclaim it.
    pub(crate) may_reclaim: bool,
    pub(crate) reclaims: Reclaims,
}

/// Phase of a CREATE_SESSION.
#[derive(Debug)]
pub(crate) enum Creation {
    /// It was executed before.
    Replay(Result<CreateSessionOk, Status>),
    /// It is new.
    New,
}

impl<P: Eq> Client<P> {
    /// Begins a CREATE_SESSION (RFC 8881 §18.36.4, phases two and three).
    ///
    /// # Errors
    ///
    /// - `ClientIdInUse`: another principal calls. It learns nothing and changes nothing, so this comes before the sequence id.
    /// - `SequenceMisordered`: it is neither the last one nor the next.
    pub(crate) fn begin_create(
        &self,
        principal: &P,
        sequence: SequenceId,
    ) -> Result<Creation, Status> {
        // RFC 8881 §18.36.4: it is the confirmation that is for the principal of the EXCHANGE_ID. Later sessions are for who knows
        // the client id, unless its state is protected.
        if (!self.is_confirmed() || self.protection.is_some()) && self.principal != *principal {
            return Err(Status::ClientIdInUse);
        }
        if sequence.0 == self.slot.sequence {
            return Ok(match self.slot.reply {
                // A retry finds its arguments too small again. A client that believes that the failure did not count may have others.
                Err(Status::TooSmall) => Creation::New,
                reply => Creation::Replay(reply),
            });
        }
        if sequence.0 != self.slot.sequence.wrapping_add(1) {
            return Err(Status::SequenceMisordered);
        }
        Ok(Creation::New)
    }

    /// Keeps the reply of a CREATE_SESSION that is done.
    pub(crate) fn end_create(
        &mut self,
        sequence: SequenceId,
        reply: Result<CreateSessionOk, Status>,
    ) {
        self.slot = CreateSlot {
            sequence: sequence.0,
            reply,
        };
    }

    /// Returns whether a client has a confirmed client id that is found.
    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(self.stage, Stage::Confirmed | Stage::Courtesy)
    }

    fn exchanged(&self) -> Exchanged {
        let flags = match self.is_confirmed() {
            true => ExchangeFlags::CONFIRMED_R,
            false => ExchangeFlags::empty(),
        };
        Exchanged {
            client: self.id,
            sequence: SequenceId(self.slot.sequence.wrapping_add(1)),
            flags,
            protection: self.protection,
        }
    }
}

/// Records of one owner.
#[derive(Clone, Copy, Debug, Default)]
struct OfOwner {
    confirmed: Option<ClientId>,
    unconfirmed: Option<ClientId>,
}

/// Decision about an EXCHANGE_ID.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The client id is known.
    Known(Exchanged),
    /// A client id is to be made, after one that is not confirmed was forgotten, and the state of one of another
    /// principal given up.
    New {
        forgets: Option<ClientId>,
        gives_up: Option<ClientId>,
    },
}

/// All client ids.
#[derive(Debug)]
pub(crate) struct Clients<P> {
    clients: foldhash::HashMap<ClientId, Client<P>>,
    owners: HashMap<Arc<[u8]>, OfOwner>,
    addresses: foldhash::HashMap<AddressKey, usize>,
    max: usize,
}

impl<P: Clone + Eq> Clients<P> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            clients: foldhash::HashMap::default(),
            owners: HashMap::new(),
            addresses: foldhash::HashMap::default(),
            max,
        }
    }

    /// Number of client ids.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns all client ids.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// Finds a client id, in whatever stage.
    pub(crate) fn get(&self, id: ClientId) -> Option<&Client<P>> {
        self.clients.get(&id)
    }

    /// Finds a client id that may be used.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: it is unknown, or is leaving.
    pub(crate) fn usable(&mut self, id: ClientId) -> Result<&mut Client<P>, Status> {
        let client = self.clients.get_mut(&id);
        let client = client.filter(|client| client.stage != Stage::Leaving);
        client.ok_or(Status::StaleClientId)
    }

    /// Returns the confirmed client id of an owner.
    pub(crate) fn confirmed(&self, owner: &[u8]) -> Option<ClientId> {
        self.owners.get(owner)?.confirmed
    }

    /// Decides what an EXCHANGE_ID does (RFC 8881 §18.35.4; the numbers are of its cases). `is_in_use` says whether a
    /// client id has state or sessions under a lease that has not run out.
    pub(crate) fn decide(
        &self,
        call: &ExchangeCall<'_, P>,
        is_in_use: impl Fn(&Client<P>) -> bool,
    ) -> Result<Decision, Status> {
        check_flags(call.flags)?;
        let of_owner = self.owners.get(call.owner).copied().unwrap_or_default();
        let confirmed = of_owner.confirmed.map(|id| &self.clients[&id]);
        if call.flags.contains(ExchangeFlags::UPD_CONFIRMED_REC_A) {
            return match confirmed {
                None => Err(Status::NoEntry), // 7
                Some(record) if record.verifier != call.verifier => Err(Status::NotSame), // 8
                Some(record) if record.principal != *call.principal => Err(Status::Perm), // 9
                // Nothing of a record that an update changes is kept here.
                Some(record) => Ok(Decision::Known(record.exchanged())), // 6
            };
        }
        let gives_up = match confirmed {
            Some(record) if record.principal != *call.principal => match is_in_use(record) {
                true => return Err(Status::ClientIdInUse), // 3
                false => Some(record.id),                  // 3
            },
            Some(record) if record.verifier == call.verifier => {
                return Ok(Decision::Known(record.exchanged())); // 2
            }
            // 5: the state of the old instance stays until the new one is confirmed.
            Some(_) => None,
            None => None, // 1
        };
        // 4: and where there is a confirmed record, too, 5.
        let forgets = of_owner.unconfirmed;
        let its = self.addresses.get(&call.address).copied().unwrap_or(0);
        let frees_own = forgets.is_some_and(|id| self.clients[&id].address == call.address);
        if !frees_own && !may_grow(its, self.clients.len(), self.max) {
            return Err(Status::Delay);
        }
        Ok(Decision::New { forgets, gives_up })
    }

    /// Makes a client id that is not confirmed.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        call: &ExchangeCall<'_, P>,
    ) -> Exchanged {
        let id = loop {
            let mut bytes = [0; 8];
            random.fill(&mut bytes);
            let id = ClientId(u64::from_ne_bytes(bytes));
            // Zero stands for owners of other protocols.
            if id.0 != 0 && !self.clients.contains_key(&id) {
                break id;
            }
        };
        let known = self.owners.get_key_value(call.owner);
        let owner = known.map_or_else(|| call.owner.into(), |(owner, _)| Arc::clone(owner));
        self.owners
            .entry(Arc::clone(&owner))
            .or_default()
            .unconfirmed = Some(id);
        *self.addresses.entry(call.address).or_default() += 1;
        let client = Client {
            id,
            owner,
            verifier: call.verifier,
            principal: call.principal.clone(),
            address: call.address,
            protection: call.protection,
            stage: Stage::Unconfirmed,
            slot: CreateSlot {
                sequence: FIRST_SEQUENCE.wrapping_sub(1),
                // RFC 8881 §18.36.4.
                reply: Err(Status::SequenceMisordered),
            },
            renewed: now,
            may_reclaim: false,
            reclaims: Reclaims::Open,
        };
        let exchanged = client.exchanged();
        self.clients.insert(id, client);
        exchanged
    }

    /// Confirms a client id. Returns that of the earlier instance of the client, which ends now.
    pub(crate) fn confirm(&mut self, id: ClientId) -> Option<ClientId> {
        let client = self.clients.get_mut(&id).expect("the client id is known");
        client.stage = Stage::Confirmed;
        let of_owner = self.owners.get_mut(&client.owner);
        let of_owner = of_owner.expect("an owner with a client id");
        of_owner.unconfirmed = None;
        of_owner.confirmed.replace(id)
    }

    /// Sets a client id apart, so that its owner can have a new one.
    pub(crate) fn leave(&mut self, id: ClientId) {
        let client = self.clients.get_mut(&id).expect("the client id is known");
        client.stage = Stage::Leaving;
        let owner = Arc::clone(&client.owner);
        self.forget_of_owner(&owner, id);
    }

    /// Forgets a client id.
    pub(crate) fn remove(&mut self, id: ClientId) -> Client<P> {
        let client = self.clients.remove(&id).expect("the client id is known");
        self.forget_of_owner(&client.owner, id);
        let of_address = self.addresses.get_mut(&client.address);
        let of_address = of_address.expect("an address with a client id");
        *of_address -= 1;
        if *of_address == 0 {
            self.addresses.remove(&client.address);
        }
        client
    }

    fn forget_of_owner(&mut self, owner: &Arc<[u8]>, id: ClientId) {
        let Some(of_owner) = self.owners.get_mut(owner) else {
            return;
        };
        of_owner.confirmed = of_owner.confirmed.filter(|&its| its != id);
        of_owner.unconfirmed = of_owner.unconfirmed.filter(|&its| its != id);
        if of_owner.confirmed.is_none() && of_owner.unconfirmed.is_none() {
            self.owners.remove(owner);
        }
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.clients.len() + self.owners.len() + self.addresses.len()
    }
}

/// Sequence id of the first CREATE_SESSION of a client id. Any would do (RFC 8881 §18.35.4); others have this one too.
const FIRST_SEQUENCE: u32 = 1;

/// Checks the flags of an EXCHANGE_ID. `EXCHGID4_FLAG_SUPP_FENCE_OPS` (RFC 7862 §14.1) means nothing here: there are no copies between
/// servers that could be fenced.
///
/// # Errors
///
/// `Invalid`: a flag that means nothing, or that only a reply has (RFC 8881 §18.35.3).
fn check_flags(flags: ExchangeFlags) -> Result<(), Status> {
    let known = ExchangeFlags::all().difference(ExchangeFlags::CONFIRMED_R);
    match known.contains(flags) {
        true => Ok(()),
        false => Err(Status::Invalid),
    }
}
