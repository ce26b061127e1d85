//! Access control lists on a server, as NFSACL has them: what the default list of a directory leaves to new files, and
//! the list of a file that is replaced, which the file in its place takes on.

use super::replaced_attributes::without_group;
use super::unkept::Unkept;
use crate::connection::Connection;
use crate::error::{Context, Result};
use nfs_client::{Fault, Nfs3};
use nfs_proto::acl::{
    ACL_DEFAULT, ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclList,
    AclMask, GetAcl, Lists as Answer, SetAcl,
};
use nfs_proto::{Attributes, FileHandle, SetAttributes, Status};
use oncrpc::RpcError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Access control lists on one server, as far as it has them.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Whether the server has said that it does not know NFSACL.
    are_unknown: AtomicBool,
}

/// The access control list of a file that says more than a mode can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteList(AclList);

/// The rights of an entry, in a list of either kind.
fn rights(list: &AclList, tag: u32) -> Option<u32> {
    let mut entries = list.entries.iter();
    let found = entries.find(|entry| entry.tag & !ACL_DEFAULT == tag);
    found.map(|entry| entry.rights & 0o7)
}

/// Permissions that a default list leaves to new files (acl(5)); none if it is not a whole list.
fn left_by(list: &AclList) -> Option<u32> {
    let owner = rights(list, ACL_USER_OBJ)?;
    let group = rights(list, ACL_MASK).or_else(|| rights(list, ACL_GROUP_OBJ))?;
    let others = rights(list, ACL_OTHER)?;
    Some(owner << 6 | group << 3 | others)
}

impl RemoteList {
    /// None of a list that says what the mode says. Linux sends a mask with each list.
    fn new(list: AclList) -> Option<Self> {
        let is_named = |tag: u32| list.entries.iter().any(|entry| entry.tag == tag);
        let (group, mask) = (rights(&list, ACL_GROUP_OBJ)?, rights(&list, ACL_MASK));
        let says_more = is_named(ACL_USER) || is_named(ACL_GROUP);
        (says_more || mask.is_some_and(|mask| mask != group)).then_some(Self(list))
    }

    /// A mode for a file without this list: its rights of the group are those of the mask, which the owning group need
    /// not have.
    fn mode_without(&self, mode: u32) -> u32 {
        match (rights(&self.0, ACL_GROUP_OBJ), rights(&self.0, ACL_MASK)) {
            (Some(group), Some(mask)) => mode & !0o070 | (group & mask) << 3,
            _ => mode,
        }
    }

    /// Gives the list to a file, and mode, owner and group of the file that had it; `made` is the owner and group that the
    /// file has, if that is known.
    ///
    /// # Errors
    ///
    /// Errors of the server; [`Unkept`] if the file does not get the list: then its group may do no more than the list
    /// let it do.
    pub(super) async fn give(
        &self,
        nfs: &Nfs3<Connection>,
        (file, path): (FileHandle, &[u8]),
        (mode, owner): (u32, (u32, u32)),
        made: Option<(u32, u32)>,
    ) -> Result<()> {
        let cannot = |fault: Fault| nfs.error_at(fault, "change attributes of", path);
        let has_group = made == Some(owner) || set_owner(nfs, file, owner).await.map_err(cannot)?;
        let refused = match has_group {
            true => match self.set(nfs, file).await {
                // The list has the mode in it.
                Ok(()) => return Ok(()),
                Err(fault) => fault.to_string(),
            },
            false => "the file has another group".to_owned(),
        };
        let mode = match has_group {
            true => self.mode_without(mode),
            false => without_group(self.mode_without(mode)),
        };
        let attributes = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        let set = nfs.set_attributes(file, attributes, None).await;
        set.map_err(cannot)?;
        let unkept = Unkept::new("access control list", refused);
        Err(unkept).with_context(|| nfs_client::printable(path))
    }

    async fn set(&self, nfs: &Nfs3<Connection>, file: FileHandle) -> Result<(), Fault> {
        let set = SetAcl {
            file,
            mask: AclMask::ACCESS | AclMask::ACCESS_COUNT,
            access: self.0.clone(),
            default: AclList::default(),
        };
        let reply = nfs.call(&set).await?;
        reply.results()?.map_err(|failed| failed.status)?;
        Ok(())
    }
}

/// Sets owner and group as far as that is allowed; whether the file has the group then.
///
/// # Errors
///
/// Errors of the server, other than that it is not allowed.
async fn set_owner(
    nfs: &Nfs3<Connection>,
    file: FileHandle,
    (uid, gid): (u32, u32),
) -> Result<bool, Fault> {
    for uid in [Some(uid), None] {
        let owner = SetAttributes {
            uid,
            gid: Some(gid),
            ..SetAttributes::default()
        };
        match nfs.set_attributes(file, owner, None).await {
            Ok(()) => return Ok(true),
            Err(Fault::Status(Status::Perm | Status::Access | Status::Invalid)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(false)
}

impl Lists {
    /// Permissions that new files in a directory may have: those that its default list leaves to them, or all but those
    /// of the umask, which does not count where there is such a list (acl(5)). Linux' client does the same.
    ///
    /// # Errors
    ///
    /// The server does not tell whether there is a list.
    pub(crate) async fn permitted(
        &self,
        nfs: &Nfs3<Connection>,
        dir: FileHandle,
        umask: u32,
    ) -> Result<u32, Fault> {
        let lists = self.ask(nfs, dir, AclMask::DEFAULT).await?;
        let left = lists.and_then(|lists| left_by(&lists.default));
        Ok(left.unwrap_or(0o777 & !umask))
    }

    /// A file that is about to be replaced: its list, if that says more than the mode, and its attributes.
    ///
    /// # Errors
    ///
    /// The server does not tell whether there is a list: it would be lost with the file.
    pub(super) async fn of(
        &self,
        nfs: &Nfs3<Connection>,
        file: FileHandle,
    ) -> Result<(Option<RemoteList>, Attributes), Fault> {
        let lists = self.ask(nfs, file, AclMask::ACCESS).await?;
        let (list, attributes) = match lists {
            Some(lists) => (RemoteList::new(lists.access), lists.attributes),
            None => (None, None),
        };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => nfs.get_attributes(file).await?,
        };
        Ok((list, attributes))
    }

    /// None if the server, or the file system of the file, has no lists.
    async fn ask(
        &self,
        nfs: &Nfs3<Connection>,
        file: FileHandle,
        mask: AclMask,
    ) -> Result<Option<Answer>, Fault> {
        if self.are_unknown.load(Relaxed) {
            return Ok(None);
        }
        let reply = match nfs.call(&GetAcl { file, mask }).await {
            Err(Fault::Rpc(
                RpcError::ProgUnavail | RpcError::ProgMismatch { .. } | RpcError::ProcUnavail,
            )) => {
                self.are_unknown.store(true, Relaxed);
                return Ok(None);
            }
            reply => reply?,
        };
        match reply.results()? {
            Ok(lists) => Ok(Some(lists)),
            Err(failed) if failed.status == Status::NotSupported => Ok(None),
            Err(failed) => Err(failed.status.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::acl::AclEntry;

    fn list(entries: &[(u32, u32)]) -> AclList {
        let entry = |&(tag, rights): &(u32, u32)| AclEntry { tag, id: 0, rights };
        AclList {
            count: u32::try_from(entries.len()).unwrap(),
            entries: entries.iter().map(entry).collect(),
        }
    }

    #[test]
    fn default_list_leaves_what_owner_mask_and_others_may_do() {
        let of = |entries: &[(u32, u32)]| {
            let entries: Vec<_> = entries
                .iter()
                .map(|(tag, rights)| (tag | ACL_DEFAULT, *rights))
                .collect();
            left_by(&list(&entries))
        };
        let (owner, group, others) = ((ACL_USER_OBJ, 7), (ACL_GROUP_OBJ, 5), (ACL_OTHER, 0));
        assert_eq!(of(&[owner, group, others]), Some(0o750));
        let (user, mask) = ((ACL_USER, 7), (ACL_MASK, 7));
        assert_eq!(of(&[owner, user, group, mask, others]), Some(0o770));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[owner, others]), None);
    }

    #[test]
    fn list_that_says_what_the_mode_says_is_none() {
        let (owner, group, others) = ((ACL_USER_OBJ, 6), (ACL_GROUP_OBJ, 4), (ACL_OTHER, 4));
        assert!(RemoteList::new(list(&[owner, group, others])).is_none());
        assert!(RemoteList::new(list(&[owner, group, (ACL_MASK, 4), others])).is_none());
        assert!(RemoteList::new(list(&[])).is_none());
        let masked = RemoteList::new(list(&[owner, group, (ACL_MASK, 6), others])).unwrap();
        assert_eq!(masked.mode_without(0o664), 0o644);
        let named = list(&[owner, (ACL_USER, 6), group, (ACL_MASK, 4), others]);
        assert!(RemoteList::new(named).is_some());
    }
}
