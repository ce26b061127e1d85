//! The NFSACL version 3 program: access control lists beside NFS version 3, as Linux uses it on the
//! NFS connection.

use super::{Nfs3, Operation, PostOp, finish, jukebox, refused, seen, tally, write};
use crate::client_options::denial;
use crate::fs::{Acl, AclEntry, AclWho, Acls, Attributes, Outcome, SetAcl, SetAcls};
use crate::metrics::{Counted, Metrics, ProgramStats, Sample, nfs_failure};
use nfs_proto::acl::{
    ACL_DEFAULT, ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclList,
    AclMask, Done, Lists,
};
use nfs_proto::limits::MAX_ACL_ENTRIES;
use nfs_proto::results::Res;
use nfs_proto::{
    AclProcedure, Failed, NFSACL_PROGRAM, NFSACL_V3, Status, Wire, acl, acl_reply_bound,
};
use oncrpc::xdr::Reader;
use oncrpc::{Answer, Call, Program, ReplyBound};
use std::ops::RangeInclusive;

/// The NFSACL version 3 program.
///
/// GETACL returns the lists of a file to any caller with its handle, as GETATTR returns its mode. A
/// file without lists has the one that its mode implies. SETACL applies each list that the mask
/// selects.
#[derive(Clone)]
pub struct NfsAcl3 {
    nfs: Nfs3,
    metrics: Metrics<PROCEDURES>,
}

/// Procedures of NFSACL version 3.
const PROCEDURES: usize = AclProcedure::SetAcl as usize + 1;

const COUNTED: Counted = Counted {
    program: "nfsacl",
    procedure: |number| {
        Some(match AclProcedure::try_from(number).ok()? {
            AclProcedure::Null => "NULL",
            AclProcedure::GetAcl => "GETACL",
            AclProcedure::SetAcl => "SETACL",
        })
    },
    failure: |_, status| Some(nfs_failure(status)),
};

impl NfsAcl3 {
    /// Creates the program for the exports of `nfs`, within the same limits.
    pub fn new(nfs: &Nfs3) -> Self {
        Self {
            nfs: nfs.clone(),
            metrics: Metrics::new(COUNTED),
        }
    }

    /// Returns the statistics of all calls.
    pub fn stats(&self) -> ProgramStats {
        self.metrics.stats()
    }

    fn get(&self, call: &Operation<'_>, args: &acl::GetAcl) -> Outcome<Res<Lists, PostOp>> {
        let (target, _) = match self.nfs.open(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let mask = args.mask;
        if !AclMask::all().contains(mask) {
            return refused(Status::Invalid);
        }
        let id = target.export.id();
        let found = target.export.fs.acls(target.file);
        found.map(move |found| {
            let owner = found.attributes;
            let results = seen(id, found, |attributes, acls| {
                lists(mask, &acls, owner.as_ref(), attributes)
            })?;
            let fits = [&results.access, &results.default].map(|list| list.count);
            match fits.iter().all(|&count| count <= MAX_ACL_ENTRIES) {
                true => Ok(results),
                false => Err(Failed::new(Status::TooBig, results.attributes)),
            }
        })
    }

    fn set(&self, call: &Operation<'_>, args: &acl::SetAcl) -> Outcome<Res<Done, PostOp>> {
        let (target, who) = match self.nfs.open_to_change(call, &args.file) {
            Ok(opened) => opened,
            Err(status) => return refused(status),
        };
        let Some(set) = wanted(args) else {
            return refused(Status::Invalid);
        };
        let id = target.export.id();
        let done = target.export.fs.set_acls(&who, target.file, set);
        done.map(move |done| seen(id, done, |attributes, ()| Done { attributes }))
    }

    /// Executes a call once the groups of its caller are known.
    fn execute(&self, procedure: AclProcedure, mut call: Call) -> Answer {
        if self.nfs.users.settle(&mut call) {
            return self.execute_as_is(procedure, call);
        }
        let Some(counted) = self.nfs.in_flight.enter(&call.caller) else {
            return Answer::Now(jukebox::reply(call));
        };
        let this = self.clone();
        Answer::Deferred(Box::new(move |respond| {
            if !this.nfs.users.look_up(&mut call) {
                return respond.with(jukebox::reply(call));
            }
            // The call needs a place for a job.
            drop(counted);
            finish(this.execute_as_is(procedure, call), respond);
        }))
    }

    fn execute_as_is(&self, procedure: AclProcedure, mut call: Call) -> Answer {
        match procedure {
            AclProcedure::Null => Answer::Now(match call.decode(acl::Null::parse) {
                Ok(acl::Null) => call.void(),
                Err(error) => call.unreadable(error),
            }),
            AclProcedure::GetAcl => match call.decode(acl::GetAcl::parse) {
                Ok(args) => {
                    let operation = Operation::new(&call);
                    let outcome = self.get(&operation, &args);
                    let export = operation.export();
                    self.nfs.respond(&mut call, export, outcome, tally, write)
                }
                Err(error) => Answer::Now(call.unreadable(error)),
            },
            AclProcedure::SetAcl => match call.decode(acl::SetAcl::parse) {
                Ok(args) => {
                    let operation = Operation::new(&call);
                    let outcome = self.set(&operation, &args);
                    let export = operation.export();
                    self.nfs.respond(&mut call, export, outcome, tally, write)
                }
                Err(error) => Answer::Now(call.unreadable(error)),
            },
        }
    }
}

impl Program for NfsAcl3 {
    fn number(&self) -> u32 {
        NFSACL_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFSACL_V3..=NFSACL_V3
    }

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        acl_reply_bound(AclProcedure::try_from(procedure.proc).ok()?, args)
    }

    fn call(&self, call: Call) -> Answer {
        let Ok(procedure) = AclProcedure::try_from(call.proc) else {
            return Answer::Now(call.proc_unavail());
        };
        let sample = Sample::take();
        let answer = self.answer(procedure, call);
        self.metrics.count(procedure as u32, answer, sample)
    }
}

impl NfsAcl3 {
    fn answer(&self, procedure: AclProcedure, call: Call) -> Answer {
        if let Some(stat) = denial(&call) {
            return Answer::Now(call.denied(stat));
        }
        if procedure == AclProcedure::Null {
            return self.execute_as_is(procedure, call);
        }
        match procedure {
            // A late copy would undo later changes.
            AclProcedure::SetAcl => {
                let execute = |call| self.execute(procedure, call);
                self.nfs.duplicates.once(call, execute, || {
                    let this = self.clone();
                    Box::new(move |call| this.execute(procedure, call))
                })
            }
            AclProcedure::Null | AclProcedure::GetAcl => self.execute(procedure, call),
        }
    }
}

/// Encodes the results of GETACL.
fn lists(mask: AclMask, acls: &Acls, owner: Option<&Attributes>, attributes: PostOp) -> Lists {
    let (uid, gid) = owner.map_or((0, 0), |owner| (owner.uid, owner.gid));
    let list = |list: Option<&Acl>, flag, count, entries| {
        let Some(list) = list.filter(|_| mask.intersects(count | entries)) else {
            return AclList::default();
        };
        let all = to_wire(list, flag, (uid, gid));
        AclList {
            // The number of entries is at most a few thousand, since they are stored in one
            // extended attribute.
            count: u32::try_from(all.len()).unwrap_or(u32::MAX),
            entries: match mask.contains(entries) {
                true => all,
                false => Vec::new(),
            },
        }
    };
    Lists {
        attributes,
        mask,
        access: list(
            Some(&acls.access),
            0,
            AclMask::ACCESS_COUNT,
            AclMask::ACCESS,
        ),
        default: list(
            acls.default.as_ref(),
            ACL_DEFAULT,
            AclMask::DEFAULT_COUNT,
            AclMask::DEFAULT,
        ),
    }
}

/// Encodes the entries of a list. Those of the owner and the owning group contain their ids, and
/// there is always a mask: if the list has none, that of the owning group.
fn to_wire(list: &Acl, flag: u32, (uid, gid): (u32, u32)) -> Vec<acl::AclEntry> {
    let mut entries = list.entries().to_vec();
    if list.rights(AclWho::Mask).is_none()
        && let Some(rights) = list.rights(AclWho::OwningGroup)
    {
        entries.push(AclEntry {
            who: AclWho::Mask,
            rights,
        });
        entries.sort_by_key(|entry| entry.who);
    }
    let wire = |AclEntry { who, rights }| {
        let (tag, id) = match who {
            AclWho::Owner => (ACL_USER_OBJ, uid),
            AclWho::User(id) => (ACL_USER, id),
            AclWho::OwningGroup => (ACL_GROUP_OBJ, gid),
            AclWho::Group(id) => (ACL_GROUP, id),
            AclWho::Mask => (ACL_MASK, 0),
            AclWho::Other => (ACL_OTHER, 0),
        };
        acl::AclEntry {
            tag: tag | flag,
            id,
            rights,
        }
    };
    entries.into_iter().map(wire).collect()
}

/// Decodes the lists of a SETACL; `None` if they are invalid.
fn wanted(args: &acl::SetAcl) -> Option<SetAcls> {
    if !AclMask::all().contains(args.mask) {
        return None;
    }
    let set = |mask, list: &AclList| match args.mask.contains(mask) {
        true => from_wire(list),
        false => Some(SetAcl::Keep),
    };
    Some(SetAcls {
        access: set(AclMask::ACCESS, &args.access)?,
        default: set(AclMask::DEFAULT, &args.default)?,
    })
}

fn from_wire(list: &AclList) -> Option<SetAcl> {
    if usize::try_from(list.count) != Ok(list.entries.len()) {
        return None;
    }
    let mut entries = list
        .entries
        .iter()
        .map(|&acl::AclEntry { tag, id, rights }| {
            let (who, rights) = match tag & !ACL_DEFAULT {
                ACL_USER_OBJ => (AclWho::Owner, rights),
                ACL_USER => (AclWho::User(id), rights),
                ACL_GROUP_OBJ => (AclWho::OwningGroup, rights),
                ACL_GROUP => (AclWho::Group(id), rights),
                // Solaris sets further bits.
                ACL_MASK => (AclWho::Mask, rights & 7),
                ACL_OTHER => (AclWho::Other, rights),
                _ => return None,
            };
            Some(AclEntry { who, rights })
        })
        .collect::<Option<Vec<_>>>()?;
    if entries.is_empty() {
        return Some(SetAcl::Remove);
    }
    // This mask exists only in the protocol: the list is equivalent to a mode.
    let of = |who| entries.iter().find(|entry| entry.who == who).copied();
    let (mask, group) = (of(AclWho::Mask), of(AclWho::OwningGroup));
    if let (4, Some(mask), Some(group)) = (entries.len(), mask, group)
        && mask.rights == group.rights
    {
        entries.retain(|entry| entry.who != AclWho::Mask);
    }
    Acl::new(entries).map(SetAcl::To)
}
