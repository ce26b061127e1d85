//! OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881 §18.16, §18.18, §18.2).

use super::Nfs4;
use super::attributes::{self, Changes, Purpose, Support};
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::{At, Object};
use super::holds::{Place, held_in};
use super::objects::support;
use crate::fs::{
    Abilities, CreateHow, Error, FileKind, Found, HeldFile, Make, Name, OpenAccess, SetAttributes,
    Step,
};
use nfs_proto::v4::delegation::{Delegation, NoDelegation};
use nfs_proto::v4::open::{
    CloseArgs, CreateHow as WireHow, DelegationWish, OpenArgs, OpenClaim, OpenDowngradeArgs,
    OpenFlags, OpenHow, OpenOk, ShareAccess, ShareDeny,
};
use nfs_proto::v4::{AttributeNumber, Bitmap, ChangeId, ChangeInfo, ResOp, StateId, Status};
use nfs4_state::OpenRequest;
use std::sync::Arc;

/// An OPEN that is being executed.
struct Opening {
    /// The open owner.
    owner: Vec<u8>,
    access: ShareAccess,
    deny: ShareDeny,
    reclaims: bool,
    /// The directory, and the name in it; `None` for an OPEN by handle.
    place: Option<(At, Vec<u8>)>,
    how: Option<How>,
    /// The place for the file that is to be held open.
    hold: Option<Place>,
    /// The directory before and after.
    change: ChangeInfo,
    /// The attributes that were set.
    set: Bitmap,
}

/// How a file is to be created.
enum How {
    /// Unless it exists.
    Unchecked(Changes),
    Guarded(Changes),
    /// By a verifier, with what is to be set once the file is there.
    Exclusive([u8; 8], Option<Changes>),
}

impl Nfs4 {
    pub(super) fn open(&self, run: &mut Running, args: &OpenArgs<'_>) -> Ran {
        let mut opening = self.opening(run, args)?;
        self.inner.state.with(|all| {
            let client = run.client()?;
            let now = all.now;
            all.server
                .check_grace(now, client, opening.reclaims)
                .map(drop)
        })?;
        let at = run.file(Status::IsDirectory)?;
        let (export, group) = (run.export(&at), run.caller.group);
        // Before a file is made, as one that is put off now will be asked for again.
        opening.hold = (self.inner.holds).take(export.id(), export.fs.most_held(), group)?;
        match &opening.place {
            None => self.open_found(run, at, opening, false),
            Some(_) => self.find(run, opening),
        }
    }

    /// Checks the arguments.
    fn opening(&self, run: &Running, args: &OpenArgs<'_>) -> Result<Opening, Status> {
        check_access(args.access)?;
        if !ShareDeny::all().contains(args.deny) {
            return Err(Status::Invalid);
        }
        let how = match &args.how {
            OpenHow::NoCreate => None,
            OpenHow::Create(how) => {
                let abilities = match run.object()? {
                    Object::File(at) => run.export(&at).fs.abilities(),
                    Object::Pseudo(_) => Abilities::default(),
                };
                Some(How::of(how, support(&abilities, run.minor))?)
            }
        };
        let (place, reclaims) = match &args.claim {
            OpenClaim::Null(name) => {
                let name = convert::name(name.get())?.bytes().to_vec();
                match run.object()? {
                    Object::File(at) => (Some((at, name)), false),
                    Object::Pseudo(directory) => {
                        // What is in there are directories, and nothing can be made.
                        let known = run.list.pseudo().entry(directory, &name).is_some();
                        return Err(match (known, how.is_some()) {
                            (true, _) => Status::IsDirectory,
                            (false, true) => Status::ReadOnly,
                            (false, false) => Status::NoEntry,
                        });
                    }
                }
            }
            OpenClaim::Handle => (None, false),
            // A delegation that is reclaimed with it is not given again.
            OpenClaim::Previous(_) => (None, true),
            // There are no delegations.
            OpenClaim::DelegateCurrent(_) | OpenClaim::DelegateCurrentHandle(_) => {
                return Err(Status::BadStateId);
            }
            OpenClaim::DelegatePrevious(_) | OpenClaim::DelegatePreviousHandle => {
                return Err(Status::NotSupported);
            }
        };
        if place.is_none() && how.is_some() {
            return Err(Status::Invalid);
        }
        Ok(Opening {
            owner: args.owner.owner.to_vec(),
            access: args.access,
            deny: args.deny,
            reclaims,
            place,
            how,
            hold: None,
            change: ChangeInfo::default(),
            set: Bitmap::default(),
        })
    }

    /// Looks the name up, and opens or makes the file.
    fn find(&self, run: &mut Running, mut opening: Opening) -> Ran {
        let Some((dir, name)) = opening.place.clone() else {
            return Err(Status::ServerFault);
        };
        if matches!(opening.how, Some(How::Exclusive(..))) {
            // The file system knows whether it is there by this very OPEN.
            return self.make(run, dir, &name, opening);
        }
        let step = Step::Name(Name::new(&name).map_err(convert::status)?);
        let export = run.export(&dir);
        if let Some(crossing) = self.inner.exports.crossing(export, dir.file, &step) {
            crossing.map_err(convert::status)?;
            return Err(Status::IsDirectory);
        }
        let outcome = export.fs.lookup(&run.who(&dir), dir.file, step);
        after(self, run, outcome, move |nfs, run, found| {
            let known = found.attributes.map_or(0, |attributes| attributes.change);
            opening.change = ChangeInfo {
                atomic: false,
                before: ChangeId(known),
                after: ChangeId(known),
            };
            match found.result {
                Ok(_) if matches!(opening.how, Some(How::Guarded(_))) => Err(Status::Exist),
                Ok(found) => nfs.open_existing(run, dir, &found, opening),
                Err(Error::NotFound) if opening.how.is_some() => nfs.make(run, dir, &name, opening),
                Err(error) => nfs.refine(run, &dir, error, found.attributes),
            }
        })
    }

    fn open_existing(&self, run: &mut Running, dir: At, found: &Found, opening: Opening) -> Ran {
        check_kind(found.attributes.kind)?;
        let at = At {
            file: found.file,
            ..dir
        };
        self.open_found(run, at, opening, false)
    }

    /// Makes a file that is not there.
    fn make(&self, run: &mut Running, dir: At, name: &[u8], mut opening: Opening) -> Ran {
        if dir.options.read_only {
            return Err(Status::ReadOnly);
        }
        let how = match &opening.how {
            Some(How::Unchecked(changes) | How::Guarded(changes)) => {
                CreateHow::Guarded(changes.set)
            }
            Some(How::Exclusive(verifier, changes)) => {
                let set = changes.as_ref().map(|changes| changes.set);
                CreateHow::Exclusive(*verifier, set.unwrap_or_default())
            }
            None => return Err(Status::ServerFault),
        };
        let owned = Name::new(name).map_err(convert::status)?;
        let client = run.client()?;
        if self.has_lost_export(run, &dir) {
            return Err(Status::Stale);
        }
        (self.inner.state).with(|all| all.server.check_room(all.now, client))?;
        let outcome = run
            .fs_of_names(&dir)
            .make(&run.who(&dir), dir.file, owned, Make::File(how));
        after(self, run, outcome, move |nfs, run, made| {
            let found = match made.result {
                Ok(found) => found,
                // Somebody else was faster.
                Err(Error::Exists) if matches!(opening.how, Some(How::Unchecked(_))) => {
                    return Err(Status::Delay);
                }
                Err(error) => return nfs.refine(run, &dir, error, made.wcc.after),
            };
            opening.change = convert::change(&made.wcc);
            check_kind(found.attributes.kind)?;
            let at = At {
                file: found.file,
                ..dir
            };
            let changes = match opening.how.take() {
                Some(How::Unchecked(changes) | How::Guarded(changes)) => changes,
                Some(How::Exclusive(_, changes)) => {
                    // The file system keeps the verifier in these: the client is to set them (RFC 8881 §18.16.3).
                    let times = [AttributeNumber::TimeAccess, AttributeNumber::TimeModify];
                    opening.set = Bitmap::of(times.map(|number| number as u32));
                    match changes {
                        Some(changes) => changes,
                        None => return nfs.open_found(run, at, opening, true),
                    }
                }
                None => return Err(Status::ServerFault),
            };
            let with = (changes, &found.attributes);
            nfs.complete_new(run, at, with, move |nfs, run, set| {
                opening.set = opening.set | set;
                nfs.open_found(run, at, opening, true)
            })
        })
    }

    /// Opens a file that is there.
    fn open_found(&self, run: &mut Running, at: At, mut opening: Opening, is_new: bool) -> Ran {
        if at.options.read_only && opening.access.contains(ShareAccess::WRITE) {
            return Err(Status::ReadOnly);
        }
        let mut access = OpenAccess::empty();
        access.set(OpenAccess::READ, opening.access.contains(ShareAccess::READ));
        access.set(
            OpenAccess::WRITE,
            opening.access.contains(ShareAccess::WRITE),
        );
        let outcome = (run.fs(&at)).open(&run.who(&at), at.file, access, run.caller.group);
        after(self, run, outcome, move |nfs, run, held| {
            let held = match held {
                Ok(held) => held_in(opening.hold.take(), held),
                Err(error @ (Error::Invalid | Error::NotDirectory)) => {
                    return nfs.refine(run, &at, error, None);
                }
                Err(error) => return Err(convert::status(error)),
            };
            let state = nfs.enter_state(run, &at, &opening, held)?;
            // RFC 8881 §18.16.3: of the attributes only the size counts for a file that is there, if it is zero.
            let cuts = match &opening.how {
                Some(How::Unchecked(changes)) => !is_new && changes.set.size == Some(0),
                _ => false,
            };
            if !cuts {
                return answer(run, at, state, &opening);
            }
            let size = SetAttributes::size(0);
            let outcome = run
                .fs(&at)
                .set_attributes(&run.who(&at), at.file, size, None);
            after(nfs, run, outcome, move |nfs, run, done| {
                if let Err(error) = done.result {
                    nfs.take_back(run, &at, state)?;
                    return Err(convert::status(error));
                }
                opening.set = Bitmap::of([AttributeNumber::Size as u32]);
                answer(run, at, state, &opening)
            })
        })
    }

    fn enter_state(
        &self,
        run: &Running,
        at: &At,
        opening: &Opening,
        held: Arc<dyn HeldFile>,
    ) -> Result<StateId, Status> {
        let (client, file) = (run.client()?, run.key(at));
        let request = OpenRequest {
            client,
            owner: &opening.owner,
            file: &file,
            access: opening.access & (ShareAccess::READ | ShareAccess::WRITE),
            deny: opening.deny,
            reclaims: opening.reclaims,
        };
        let state = &self.inner.state;
        // A reload replaces the list before it revokes what is in exports that are gone: whoever has the lock and finds the export in the
        // list is not too late.
        let entered = state.with(|all| match self.has_lost_export(run, at) {
            true => Err(held),
            false => Ok(all.open(&request, held)),
        });
        entered.unwrap_or_else(|held| {
            state.release_held(vec![held]);
            Err(Status::Stale)
        })
    }

    /// Returns whether a reload has removed the export of a COMPOUND, which has the exports as they were when it began.
    fn has_lost_export(&self, run: &Running, at: &At) -> bool {
        let now = self.inner.exports.current();
        !Arc::ptr_eq(&now, &run.list) && now.has_lost(run.export(at))
    }

    /// Closes what an OPEN that fails after all has opened. If it only added to an open of its owner, that stays with what was added:
    /// what was there before is not known any more, and the owner will close it.
    fn take_back(&self, run: &Running, at: &At, state: StateId) -> Result<(), Status> {
        if state.seqid != 1 {
            return Ok(());
        }
        let (client, key) = (run.client()?, run.key(at));
        (self.inner.state).with(|all| {
            let now = all.now;
            all.server.close(now, client, &key, state).map(drop)
        })
    }

    pub(super) fn downgrade(&self, run: &mut Running, args: &OpenDowngradeArgs) -> Ran {
        let at = run.file(Status::BadStateId)?;
        let state = run.state_id(args.state)?;
        // RFC 8881 §18.18.3: a wish about a delegation means nothing here.
        check_access(args.access)?;
        let (client, key) = (run.client()?, run.key(&at));
        let state = (self.inner.state).with(|all| {
            all.server
                .downgrade(client, &key, state, args.access, args.deny)
        })?;
        run.state = Some(state);
        run.push(ResOp::OpenDowngrade(Ok(state)))
    }

    pub(super) fn close(&self, run: &mut Running, args: &CloseArgs) -> Ran {
        let at = run.file(Status::BadStateId)?;
        let state = run.state_id(args.state)?;
        let (client, key) = (run.client()?, run.key(&at));
        let closed = (self.inner.state).with(|all| {
            let now = all.now;
            all.server.close(now, client, &key, state)
        })?;
        run.state = Some(closed);
        run.push(ResOp::Close(Ok(closed)))
    }
}

impl How {
    fn of(how: &WireHow<'_>, support: Support) -> Result<Self, Status> {
        let changes =
            |fattr, purpose| attributes::changes(fattr, purpose, FileKind::Regular, support);
        Ok(match how {
            WireHow::Unchecked(fattr) => Self::Unchecked(changes(fattr, Purpose::Create)?),
            WireHow::Guarded(fattr) => Self::Guarded(changes(fattr, Purpose::Create)?),
            WireHow::Exclusive(verifier) => Self::Exclusive(verifier.0, None),
            WireHow::Exclusive41(exclusive) => {
                let changes = changes(&exclusive.attributes, Purpose::ExclusiveCreate)?;
                Self::Exclusive(exclusive.verifier.0, Some(changes))
            }
        })
    }
}

/// Checks that access is reading or writing, beside wishes that are defined (RFC 8881 §18.16.4).
fn check_access(access: ShareAccess) -> Result<(), Status> {
    let both = ShareAccess::READ | ShareAccess::WRITE;
    let flags = access.with_wish(DelegationWish::NoPreference);
    match access.intersects(both) && access.wish().is_some() && ShareAccess::all().contains(flags) {
        true => Ok(()),
        false => Err(Status::Invalid),
    }
}

/// Checks that an object can be opened (RFC 8881 §18.16.3).
fn check_kind(kind: FileKind) -> Result<(), Status> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::IsDirectory),
        FileKind::Symlink => Err(Status::Symlink),
        FileKind::BlockDevice | FileKind::CharacterDevice | FileKind::Socket | FileKind::Fifo => {
            Err(Status::WrongType)
        }
    }
}

fn answer(run: &mut Running, at: At, state: StateId, opening: &Opening) -> Ran {
    run.set_object(Object::File(at));
    run.state = Some(state);
    // RFC 8881 §18.16.3: the reason is for those who have said what they want.
    let says_more = opening.access.bits() & !(ShareAccess::READ | ShareAccess::WRITE).bits() != 0;
    let delegation = match opening.access.wish() {
        _ if !says_more => Delegation::None,
        Some(DelegationWish::NoDelegation) => Delegation::NoneExt(NoDelegation::NotWanted),
        Some(DelegationWish::Cancel) => Delegation::NoneExt(NoDelegation::Cancelled),
        Some(_) | None => Delegation::NoneExt(NoDelegation::Resource(false)),
    };
    run.push(ResOp::Open(Ok(OpenOk {
        state,
        change: opening.change,
        flags: OpenFlags::LOCKTYPE_POSIX | OpenFlags::MAY_NOTIFY_LOCK,
        set: opening.set,
        delegation,
    })))
}
