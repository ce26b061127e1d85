//! Reading and setting access control lists.

use super::attributes;
use crate::fs::{Acl, Acls, Error, FileId, Identity, Seen, SetAcl, SetAcls};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::posix_acl::{self, ACCESS, DEFAULT};
use crate::localfs::sys::{Pace, Try};
use rustix::io::Errno;

pub(in crate::localfs) fn acls(layers: &Layers, file: FileId, pace: Pace) -> Try<Seen<Acls>> {
    let node = layers.handles.node(file, pace)?;
    let attributes = layers.files.attributes(&node)?;
    let lists = || -> Result<Acls, Error> {
        let access = posix_acl::read(&node, ACCESS)?;
        let default = match attributes.is_directory() {
            true => posix_acl::read(&node, DEFAULT)?,
            false => None,
        };
        Ok(Acls {
            access: access.unwrap_or_else(|| Acl::of_mode(attributes.mode)),
            default,
        })
    };
    Ok(Seen {
        attributes: Some(attributes),
        result: lists(),
    })
}

pub(in crate::localfs) fn set_acls(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    set: &SetAcls,
) -> Try<Seen<()>> {
    let node = layers.handles.node(file, Pace::Patient)?;
    let (wcc, result) = attributes::in_turn(layers, &node, false, |before| -> Try<()> {
        if !before.is_directory() && matches!(set.default, SetAcl::To(_)) {
            return Err(Error::Invalid.into());
        }
        set_list(layers, who, &node, ACCESS, &set.access)?;
        if before.is_directory() {
            set_list(layers, who, &node, DEFAULT, &set.default)?;
        }
        Ok(())
    })?;
    let result = result.and_then(|()| layers.durability.persist(&node));
    Ok(Seen {
        attributes: wcc.after,
        result: result.map_err(Error::from),
    })
}

/// Sets or removes a list as the caller: the kernel allows only the owner to do that, and
/// clears the set-group-id bit if the caller is not in the group.
fn set_list(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    name: &str,
    set: &SetAcl,
) -> Result<(), Errno> {
    let path = posix_acl::path(node);
    match set {
        SetAcl::Keep => Ok(()),
        SetAcl::Remove => {
            match layers
                .rights
                .as_caller(who, || posix_acl::remove(&path, name))
            {
                // The file has no list.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                removed => removed,
            }
        }
        SetAcl::To(list) => {
            let value = posix_acl::encode(list);
            layers
                .rights
                .as_caller(who, || posix_acl::write(&path, name, &value))
        }
    }
}
