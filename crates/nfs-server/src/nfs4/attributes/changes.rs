//! Attributes that clients set: SETATTR, and the attributes of new objects.

use super::SECOND;
use super::support::{Support, of_create, of_exclusive, of_setattr, supported};
use crate::fs::{self, FileKind};
use crate::nfs4::{acl, owners};
use nfs_proto::v4::{Attribute, AttributeNumber, Bitmap, Fattr, SetTime, Status};

/// Changes that a client wants. The lists are set behind all else, since they change the mode again (RFC 8881 §6.4.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nfs4) struct Changes {
    /// Attributes of the file system.
    pub set: fs::SetAttributes,
    /// Access control lists.
    pub acls: Option<fs::SetAcls>,
    /// The attributes that the client gave, for `attrsset` of the result.
    pub given: Bitmap,
}

/// The operation that sets attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nfs4) enum Purpose {
    /// SETATTR.
    SetAttr,
    /// CREATE, and OPEN that creates UNCHECKED4 or GUARDED4.
    Create,
    /// OPEN that creates EXCLUSIVE4_1.
    ExclusiveCreate,
}

/// Reads the changes that a client wants for an object of this kind.
///
/// # Errors
///
/// - `NFS4ERR_ATTRNOTSUPP` for attributes that are not supported (RFC 8881 §18.30.4), and for lists that cannot be kept
///   ([`acl::to_posix`]).
/// - `NFS4ERR_INVAL` for attributes that clients only get (RFC 8881 §5.5), that EXCLUSIVE4_1 does not set (RFC 8881 §18.16.3),
///   for `mode_umask` beside `mode` or in SETATTR (RFC 8275), and for values that are not defined.
/// - `NFS4ERR_WRONG_TYPE` for the size of what is no regular file; `NFS4ERR_INVAL` for that of a new object.
/// - `NFS4ERR_BADOWNER` for owners and groups without a translation (RFC 8881 §5.9).
/// - `NFS4ERR_BADXDR` for what are not values of these attributes.
pub(in crate::nfs4) fn changes(
    fattr: &Fattr<'_>,
    purpose: Purpose,
    kind: FileKind,
    support: Support,
) -> Result<Changes, Status> {
    let given = fattr.mask();
    // Before any value is read: the form of values that are not supported does not matter.
    if !(given - supported(support)).is_empty() {
        return Err(Status::AttributeNotSupported);
    }
    let settable = match purpose {
        Purpose::SetAttr => of_setattr(support),
        Purpose::Create => of_create(support),
        Purpose::ExclusiveCreate => of_exclusive(support),
    };
    let has = |number: AttributeNumber| given.contains(number as u32);
    if !(given - settable).is_empty()
        || has(AttributeNumber::Mode) && has(AttributeNumber::ModeUmask)
    {
        return Err(Status::Invalid);
    }
    let mut changes = Changes {
        set: fs::SetAttributes::default(),
        acls: None,
        given,
    };
    for attribute in fattr.iter() {
        changes.add(attribute?, purpose, kind)?;
    }
    Ok(changes)
}

impl Changes {
    fn add(
        &mut self,
        attribute: Attribute<'_>,
        purpose: Purpose,
        kind: FileKind,
    ) -> Result<(), Status> {
        let set = &mut self.set;
        match attribute {
            Attribute::Size(size) => match (kind, purpose) {
                (FileKind::Regular, _) => set.size = Some(size),
                (_, Purpose::SetAttr) => return Err(Status::WrongType),
                (_, Purpose::Create | Purpose::ExclusiveCreate) => return Err(Status::Invalid),
            },
            Attribute::Acl(list) => {
                let is_directory = kind == FileKind::Directory;
                self.acls = Some(acl::to_posix(&list, is_directory)?);
            }
            Attribute::Mode(bits) => set.mode = Some(mode(bits)?),
            Attribute::ModeUmask(both) => {
                set.mode = Some(mode(both.mode)?);
                set.umask = both.umask & PERMISSIONS;
            }
            Attribute::Owner(name) => set.uid = Some(owners::parse(&name)?),
            Attribute::OwnerGroup(name) => set.gid = Some(owners::parse(&name)?),
            Attribute::TimeAccessSet(time) => set.atime = set_time(time)?,
            Attribute::TimeModifySet(time) => set.mtime = set_time(time)?,
            // The mask was checked.
            _ => return Err(Status::Invalid),
        }
        Ok(())
    }
}

/// Bits of a mode that a umask has.
const PERMISSIONS: u32 = 0o777;

/// Checks that a mode has only bits that are defined (RFC 8881 §6.2.4).
fn mode(bits: u32) -> Result<u32, Status> {
    match bits & !fs::mode::ALL {
        0 => Ok(bits),
        _ => Err(Status::Invalid),
    }
}

fn set_time(time: SetTime) -> Result<fs::SetTime, Status> {
    match time {
        SetTime::ServerTime => Ok(fs::SetTime::Now),
        // RFC 8881 §3.3.1.
        SetTime::ClientTime(time) if time.nanoseconds >= SECOND => Err(Status::Invalid),
        SetTime::ClientTime(time) => Ok(fs::SetTime::To(fs::Time {
            seconds: time.seconds,
            nanos: time.nanoseconds,
        })),
    }
}
