//! LOCK, LOCKT, LOCKU, TEST_STATEID and FREE_STATEID (RFC 8881 §18.10 to §18.12, §18.48, §18.38).

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::At;
use super::holds::locks_in;
use crate::fs::{Error, LockFile, OpenAccess};
use nfs_proto::v4::lock::{
    FreeStateIdArgs, LockArgs, LockDenied, LockTArgs, LockType, LockUArgs, Locker as WireLocker,
    TestStateIdArgs, TestStateIdOk,
};
use nfs_proto::v4::{Array, ClientId, Identifier, Refused, ResOp, StateId, StateOwner, Status};
use nfs4_state::lock::{LockKind, Range};
use nfs4_state::{Denied, LockError, LockRequest, Locker};
use std::sync::Arc;

/// A LOCK, with the names in memory of its own.
struct Locking {
    at: At,
    range: Range,
    kind: LockType,
    reclaims: bool,
    locker: OwnedLocker,
}

enum OwnedLocker {
    New { open: StateId, owner: Vec<u8> },
    Existing(StateId),
}

impl OwnedLocker {
    fn get(&self) -> Locker<'_> {
        match self {
            Self::New { open, owner } => Locker::New { open: *open, owner },
            Self::Existing(state) => Locker::Existing(*state),
        }
    }
}

impl Nfs4 {
    pub(super) fn lock(&self, run: &mut Running, args: &LockArgs<'_>) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        let range = Range::new(args.offset, args.length)?;
        let locker = match &args.locker {
            WireLocker::New(new) => OwnedLocker::New {
                open: run.state_id(new.open)?,
                owner: new.owner.owner.to_vec(),
            },
            WireLocker::Existing(existing) => OwnedLocker::Existing(run.state_id(existing.state)?),
        };
        let locking = Locking {
            at,
            range,
            kind: args.kind,
            reclaims: args.reclaim,
            locker,
        };
        let client = run.client()?;
        let key = run.key(&at);
        let held = (self.inner.state).with(|all| match locking.locker.get() {
            locker @ Locker::New { open, .. } if all.needs_lock_file(client, &key, locker) => {
                all.held(open)
            }
            Locker::New { .. } | Locker::Existing(_) => None,
        });
        let Some(held) = held else {
            return self.enter_lock(run, &locking, None);
        };
        let (export, group) = (run.export(&at), run.caller.group);
        let most = export.fs.most_lock_owners();
        let place = (self.inner.holds).take(export.id(), most, group)?;
        let outcome = held.open_for_locks();
        after(self, run, outcome, move |nfs, run, file| {
            let file = locks_in(place, file.map_err(convert::status)?);
            nfs.enter_lock(run, &locking, Some(file))
        })
    }

    fn enter_lock(
        &self,
        run: &mut Running,
        locking: &Locking,
        file: Option<Arc<dyn LockFile>>,
    ) -> Ran {
        let (client, key) = (run.client()?, run.key(&locking.at));
        let request = LockRequest {
            client,
            file: &key,
            range: locking.range,
            kind: locking.kind,
            locker: locking.locker.get(),
            reclaims: locking.reclaims,
        };
        let locked = self.inner.state.with(|all| all.lock(&request, file));
        match locked {
            Ok(state) => {
                run.state = Some(state);
                run.push(ResOp::Lock(Ok(state)))
            }
            Err(LockError::Status(status)) => Err(status),
            Err(LockError::Denied(denied)) => {
                let denied = wire(&denied)?;
                run.push(ResOp::Lock(Err(Refused::Explained(denied))))
            }
        }
    }

    pub(super) fn test_lock(&self, run: &mut Running, args: &LockTArgs<'_>) -> Ran {
        let at = run.file(Status::IsDirectory)?;
        let range = Range::new(args.offset, args.length)?;
        let kind = LockKind::from(args.kind);
        let (client, key) = (run.client()?, run.key(&at));
        let owner = args.owner.owner.to_vec();
        let (of_whom, what) = ((client, key), (range, kind));
        let tested = (self.inner.state).with(|all| all.test_lock(client, &key, what, &owner, None));
        if tested.is_err() {
            return answer_test(run, tested);
        }
        // No client is in the way; a program of this machine may be.
        let (who, group) = (run.who(&at), run.caller.group);
        let outcome = (run.fs(&at)).open(&who, at.file, OpenAccess::READ, group);
        after(self, run, outcome, move |nfs, run, held| {
            let held = match held {
                Ok(held) => held,
                // Who may not look is told of none.
                Err(Error::Access) => return run.push(ResOp::LockT(Ok(()))),
                Err(error) => return nfs.refine(run, &at, error, None),
            };
            let outcome = held.open_for_locks();
            after(nfs, run, outcome, move |nfs, run, file| {
                let file = file.map_err(convert::status)?;
                let (client, key) = of_whom;
                let tested = (nfs.inner.state)
                    .with(|all| all.test_lock(client, &key, what, &owner, Some(&*file)));
                answer_test(run, tested)
            })
        })
    }

    pub(super) fn unlock(&self, run: &mut Running, args: &LockUArgs) -> Ran {
        // RFC 8881 §15.2: there is no state of a directory.
        let at = run.file(Status::BadStateId)?;
        let range = Range::new(args.offset, args.length)?;
        let state = run.state_id(args.state)?;
        let (client, key) = (run.client()?, run.key(&at));
        let state = (self.inner.state).with(|all| all.unlock(client, &key, state, range))?;
        run.state = Some(state);
        run.push(ResOp::LockU(Ok(state)))
    }

    pub(super) fn test_states(&self, run: &mut Running, args: &TestStateIdArgs<'_>) -> Ran {
        let client = run.client()?;
        run.check_room(12 + 4 * args.states.len(), None)?;
        let statuses: Vec<_> = (self.inner.state).with(|all| {
            let states = args.states.iter();
            let statuses = states.map(|state| all.server.test_state(client, state));
            statuses.collect()
        });
        let statuses = Array::new(&statuses).ok_or(Status::ServerFault)?;
        run.push(ResOp::TestStateId(Ok(TestStateIdOk { statuses })))
    }

    pub(super) fn free_state(&self, run: &mut Running, args: &FreeStateIdArgs) -> Ran {
        let client = run.client()?;
        let state = run.state_id(args.state)?;
        (self.inner.state).with(|all| all.server.free_state(client, state))?;
        run.push(ResOp::FreeStateId(Ok(())))
    }
}

fn answer_test(run: &mut Running, tested: Result<(), LockError>) -> Ran {
    match tested {
        Ok(()) => run.push(ResOp::LockT(Ok(()))),
        Err(LockError::Status(status)) => Err(status),
        Err(LockError::Denied(denied)) => {
            let denied = wire(&denied)?;
            run.push(ResOp::LockT(Err(Refused::Explained(denied))))
        }
    }
}

/// Tells of a lock that is in the way.
fn wire(denied: &Denied) -> Result<LockDenied<'_>, Status> {
    let owner = Identifier::new(&denied.owner).ok_or(Status::ServerFault)?;
    let client: ClientId = denied.client;
    Ok(LockDenied {
        offset: denied.range.first(),
        length: denied.range.length(),
        kind: denied.kind.into(),
        owner: StateOwner { client, owner },
    })
}
