//! Operations on one object: attributes, rights, the text of a link, security.

use super::Nfs4;
use super::attributes::{self, Changes, Needs, Purpose, Subject, Support};
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::{At, Object, fsid, looked};
use crate::fs::{
    Abilities, Access, Acls, Attributes, Error, FileKind, Outcome, SetAcls, SetAttributes, Space,
    mode,
};
use nfs_proto::v4::fattr::Fattr;
use nfs_proto::v4::file::{
    Access as WireAccess, AccessArgs, AccessOk, GetAttrArgs, SetAttrArgs, SetAttrRes, VerifyArgs,
};
use nfs_proto::v4::security::{SecInfo, SecInfoOk, SecInfoStyle};
use nfs_proto::v4::{Array, AttributeNumber, Bitmap, FsId, Operation, ResOp, Status};
use nfs_proto::{FileHandle, Filename, Path, Wire};
use oncrpc::auth::AUTH_SYS;
use oncrpc::xdr::{Gather, Payload, Reader, Writer};

/// Rights that a read-only export does not grant.
const CHANGES: Access = Access::MODIFY
    .union(Access::EXTEND)
    .union(Access::DELETE)
    .union(Access::XATTR_WRITE);

/// Bytes of the result of READLINK beside the text.
const LINK: usize = 4 + 4 + 4;

/// The facts of an object that its attributes are made of.
pub(super) struct Facts {
    pub(super) attributes: Attributes,
    pub(super) space: Option<Space>,
    pub(super) acls: Option<Acls>,
    /// Known if it is needed.
    pub(super) handle: Option<FileHandle>,
    pub(super) fsid: FsId,
    pub(super) mounted_on: u64,
    pub(super) abilities: Abilities,
    /// Why the others are not known (`rdattr_error`).
    pub(super) error: Result<(), Status>,
}

impl Facts {
    pub(super) fn subject<'a>(&'a self, nfs: &'a Nfs4, minor: u32) -> Subject<'a> {
        Subject {
            attributes: &self.attributes,
            fsid: self.fsid,
            mounted_on: self.mounted_on,
            handle: self.handle.as_deref().unwrap_or_default(),
            abilities: &self.abilities,
            support: support(&self.abilities, minor),
            space: self.space,
            acls: self.acls.as_ref(),
            server: &nfs.inner.values,
            error: self.error,
        }
    }
}

/// Returns what decides on the attributes that are supported.
pub(super) fn support(abilities: &Abilities, minor: u32) -> Support {
    Support {
        minor,
        acls: abilities.lists,
        clones: abilities.clone_block.is_some(),
    }
}

/// The attributes that were set, with the status of the first that was not.
pub(super) type Changed = Result<Bitmap, (Status, Bitmap)>;

/// Attributes from a call, in memory of their own: they outlast the wait for a disk.
struct Owned(Payload);

impl Owned {
    fn of(attributes: &Fattr<'_>) -> Self {
        let mut w = Writer::default();
        attributes.write(&mut w);
        Self(w.finish())
    }

    fn get(&self) -> Result<Fattr<'_>, Status> {
        Fattr::parse(&mut Reader::from(&self.0)).map_err(|_| Status::BadXdr)
    }
}

impl Nfs4 {
    /// Gathers the facts of an object, and goes on with them.
    pub(super) fn facts(
        &self,
        run: &mut Running,
        object: Object,
        needs: Needs,
        then: impl FnOnce(&Self, &mut Running, &Facts) -> Ran + Send + 'static,
    ) -> Ran {
        let handle = needs.handle.then(|| self.handle(run, &object));
        let at = match object {
            Object::Pseudo(directory) => {
                let attributes = run.pseudo_attributes(directory, self.inner.started);
                return then(self, run, &Facts::of_pseudo(attributes, handle));
            }
            Object::File(at) => at,
        };
        let outcome = match run.seen() {
            Some(attributes) => Outcome::Ready(Ok(attributes)),
            None => run.fs(&at).attributes(at.file),
        };
        after(self, run, outcome, move |nfs, run, found| {
            let attributes = found.map_err(convert::status)?;
            let export = run.export(&at);
            let facts = Facts {
                attributes,
                space: None,
                acls: None,
                handle,
                fsid: fsid(export.id()),
                mounted_on: run.mounted_on(export, at.file, attributes.fileid),
                abilities: export.fs.abilities(),
                error: Ok(()),
            };
            match needs.space || needs.acls {
                true => nfs.with_space(run, at, needs, facts, then),
                false => then(nfs, run, &facts),
            }
        })
    }

    fn with_space(
        &self,
        run: &mut Running,
        at: At,
        needs: Needs,
        facts: Facts,
        then: impl FnOnce(&Self, &mut Running, &Facts) -> Ran + Send + 'static,
    ) -> Ran {
        if !needs.space {
            return self.with_acls(run, at, needs, facts, then);
        }
        let outcome = run.fs(&at).space(at.file);
        after(self, run, outcome, move |nfs, run, found| {
            let space = Some(found.result.map_err(convert::status)?);
            nfs.with_acls(run, at, needs, Facts { space, ..facts }, then)
        })
    }

    fn with_acls(
        &self,
        run: &mut Running,
        at: At,
        needs: Needs,
        facts: Facts,
        then: impl FnOnce(&Self, &mut Running, &Facts) -> Ran + Send + 'static,
    ) -> Ran {
        if !needs.acls {
            return then(self, run, &facts);
        }
        let outcome = run.fs(&at).acls(at.file);
        after(self, run, outcome, move |nfs, run, found| {
            let acls = match found.result {
                Ok(acls) => Some(acls),
                Err(Error::NotSupported) => None,
                Err(error) => return Err(convert::status(error)),
            };
            then(nfs, run, &Facts { acls, ..facts })
        })
    }

    /// GETATTR (RFC 8881 §18.7).
    pub(super) fn get_attributes(&self, run: &mut Running, args: &GetAttrArgs) -> Ran {
        let wanted = args.wanted;
        attributes::check_get(&wanted)?;
        let object = run.object()?;
        self.facts(
            run,
            object,
            attributes::needs(&wanted),
            move |nfs, run, facts| {
                let subject = facts.subject(nfs, run.minor);
                run.push_with(|w| {
                    attributes::write_attributes(w, &wanted, &subject);
                    Ok(())
                })
            },
        )
    }

    /// VERIFY and NVERIFY (RFC 8881 §18.31, §18.15).
    pub(super) fn verify(&self, run: &mut Running, args: &VerifyArgs<'_>, differs: bool) -> Ran {
        let object = run.object()?;
        let needs = attributes::needs(&args.attributes.mask());
        let expected = Owned::of(&args.attributes);
        self.facts(run, object, needs, move |nfs, run, facts| {
            let same = attributes::same(&expected.get()?, &facts.subject(nfs, run.minor))?;
            match (differs, same) {
                (false, true) => run.push(ResOp::Verify(Ok(()))),
                (true, false) => run.push(ResOp::NVerify(Ok(()))),
                (false, false) => Err(Status::NotSame),
                (true, true) => Err(Status::Same),
            }
        })
    }

    /// SETATTR (RFC 8881 §18.30).
    pub(super) fn set_attributes(&self, run: &mut Running, args: &SetAttrArgs<'_>) -> Ran {
        let at = run.file_to_change()?;
        let state = run.state_id(args.state)?;
        let wanted = Owned::of(&args.attributes);
        let support = support(&run.export(&at).fs.abilities(), run.minor);
        let outcome = run.fs(&at).attributes(at.file);
        after(self, run, outcome, move |nfs, run, found| {
            let kind = found.map_err(convert::status)?.kind;
            let changes = attributes::changes(&wanted.get()?, Purpose::SetAttr, kind, support)?;
            if changes.set.size.is_some() {
                nfs.check_io(run, &at, state, true)?;
            }
            nfs.change(run, at, changes, |_, run, done| {
                let (status, set) = match done {
                    Ok(set) => (Ok(()), set),
                    Err((status, set)) => (Err(status), set),
                };
                run.push(ResOp::SetAttr(SetAttrRes { status, set }))
            })
        })
    }

    /// Changes attributes and access control lists of a file. Goes on with those that were set, also where others could not be.
    pub(super) fn change(
        &self,
        run: &mut Running,
        at: At,
        changes: Changes,
        then: impl FnOnce(&Self, &mut Running, Changed) -> Ran + Send + 'static,
    ) -> Ran {
        let (who, fs) = (run.who(&at), run.fs(&at));
        let Changes { set, acls, given } = changes;
        if set == SetAttributes::default() {
            return self.change_acls(run, at, (acls, given), then);
        }
        let outcome = fs.set_attributes(&who, at.file, set, None);
        after(self, run, outcome, move |nfs, run, done| {
            match done.result {
                Ok(()) => nfs.change_acls(run, at, (acls, given), then),
                Err(error) => then(nfs, run, Err((convert::status(error), Bitmap::default()))),
            }
        })
    }

    /// Sets what a new object does not have yet of the attributes that were given for it, and goes on with those that were set, for
    /// `attrset` (RFC 8881 §18.16.3): the object is there, and those that cannot be set do not undo that.
    ///
    /// The file system has made it with the others. An owner it gives to root alone, and a group too: others give a group of theirs
    /// afterwards. Neither changes the times, in which the verifier of EXCLUSIVE4_1 is.
    pub(super) fn complete_new(
        &self,
        run: &mut Running,
        at: At,
        (changes, made): (Changes, &Attributes),
        then: impl FnOnce(&Self, &mut Running, Bitmap) -> Ran + Send + 'static,
    ) -> Ran {
        let Changes {
            set,
            acls,
            mut given,
        } = changes;
        if set.uid.is_some_and(|uid| uid != made.uid) {
            given = without(&given, AttributeNumber::Owner);
        }
        let lists = move |nfs: &Self, run: &mut Running, given: Bitmap| {
            nfs.change_acls(run, at, (acls, given), move |nfs, run, done| {
                then(nfs, run, done.unwrap_or_else(|(_, set)| set))
            })
        };
        let Some(gid) = set.gid.filter(|&gid| gid != made.gid) else {
            return lists(self, run, given);
        };
        // A new group clears these bits.
        let special = made.mode & (mode::SET_UID | mode::SET_GID) != 0;
        let group = SetAttributes {
            gid: Some(gid),
            mode: special.then_some(made.mode),
            ..SetAttributes::default()
        };
        let outcome = (run.fs(&at)).set_attributes(&run.who(&at), at.file, group, None);
        after(self, run, outcome, move |nfs, run, done| {
            let given = match done.result {
                Ok(()) => given,
                Err(_) => without(&given, AttributeNumber::OwnerGroup),
            };
            lists(nfs, run, given)
        })
    }

    fn change_acls(
        &self,
        run: &mut Running,
        at: At,
        (acls, given): (Option<SetAcls>, Bitmap),
        then: impl FnOnce(&Self, &mut Running, Changed) -> Ran + Send + 'static,
    ) -> Ran {
        let Some(acls) = acls else {
            return then(self, run, Ok(given));
        };
        let outcome = run.fs(&at).set_acls(&run.who(&at), at.file, acls);
        after(self, run, outcome, move |nfs, run, done| {
            let status = match done.result {
                Ok(()) => return then(nfs, run, Ok(given)),
                Err(Error::NotSupported) => Status::AttributeNotSupported,
                Err(error) => convert::status(error),
            };
            let others = without(&given, AttributeNumber::Acl);
            then(nfs, run, Err((status, others)))
        })
    }

    /// ACCESS (RFC 8881 §18.1).
    pub(super) fn access(&self, run: &mut Running, args: &AccessArgs) -> Ran {
        let mut wanted = Access::from_bits_truncate(args.access.bits());
        let answer = move |run: &mut Running, supported: Access, granted: Access| {
            run.push(ResOp::Access(Ok(AccessOk {
                supported: WireAccess::from_bits_retain(supported.bits()),
                access: WireAccess::from_bits_retain(granted.bits()),
            })))
        };
        let at = match run.object()? {
            Object::Pseudo(_) => {
                wanted -= Access::XATTRS;
                return answer(run, wanted, wanted & (Access::READ | Access::LOOKUP));
            }
            Object::File(at) => at,
        };
        // RFC 8276 §8.5.
        if run.minor < 2 || !run.export(&at).fs.abilities().xattrs {
            wanted -= Access::XATTRS;
        }
        let mut asked = wanted;
        if at.options.read_only {
            asked -= CHANGES;
        }
        let outcome = run.fs(&at).access(&run.who(&at), at.file, asked);
        after(self, run, outcome, move |_, run, found| {
            let mut granted = found.result.map_err(convert::status)?;
            if let Some(attributes) = found.attributes {
                run.note_seen(attributes);
            }
            let kind = found.attributes.map(|attributes| attributes.kind);
            if !matches!(kind, Some(FileKind::Regular | FileKind::Directory)) {
                wanted -= Access::XATTRS;
                granted -= Access::XATTRS;
            }
            answer(run, wanted, granted)
        })
    }

    /// READLINK (RFC 8881 §18.24).
    pub(super) fn read_link(&self, run: &mut Running) -> Ran {
        let at = run.file(Status::WrongType)?;
        let outcome = run.fs(&at).read_link(&run.who(&at), at.file);
        after(self, run, outcome, move |_, run, found| {
            let text = match looked(found) {
                Ok((text, _)) => text,
                // RFC 8881 §18.24.4.
                Err((Error::Invalid, _)) => return Err(Status::WrongType),
                Err((error, _)) => return Err(convert::status(error)),
            };
            run.check_room(LINK, Some(text.len()))?;
            let len = text.len();
            let text = Path::from(Gather::from_elem(text, 1));
            let link = nfs_proto::v4::directory::ReadLinkOk { text };
            run.push_eligible(len, link)
        })
    }

    /// SECINFO (RFC 8881 §18.29). There is no current file handle after it (RFC 8881 §2.6.3.1.1.8).
    pub(super) fn security(&self, run: &mut Running, name: Filename<'_>) -> Ran {
        let object = run.object()?;
        self.step(run, object, name, |_, run, _| {
            run.current = None;
            run.state = None;
            answer_security(run, Operation::SecInfo)
        })
    }

    /// SECINFO_NO_NAME (RFC 8881 §18.45).
    pub(super) fn security_without_name(&self, run: &mut Running, style: SecInfoStyle) -> Ran {
        let object = run.object()?;
        let answer = |_: &Self, run: &mut Running, _| {
            run.current = None;
            run.state = None;
            answer_security(run, Operation::SecInfoNoName)
        };
        match style {
            SecInfoStyle::CurrentHandle => answer(self, run, object),
            SecInfoStyle::Parent => self.step_up(run, object, answer),
        }
    }
}

fn without(attributes: &Bitmap, number: AttributeNumber) -> Bitmap {
    let others = attributes.iter().filter(|&its| its != number as u32);
    Bitmap::of(others)
}

fn answer_security(run: &mut Running, operation: Operation) -> Ran {
    let flavors = [SecInfo::Flavor(AUTH_SYS)];
    let flavors = Array::new(&flavors).ok_or(Status::ServerFault)?;
    let result = Ok(SecInfoOk { flavors });
    run.push(match operation {
        Operation::SecInfo => ResOp::SecInfo(result),
        _ => ResOp::SecInfoNoName(result),
    })
}
