//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276 §8.4).
//!
//! Names have no namespace on the wire; those of the file system are those of users.

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::convert;
use crate::fs::{Changed, Error, MAX_XATTR_VALUE, Outcome, SetXattr, XattrName, XattrNames};
use nfs_proto::v4::limits::MAX_XATTR_NAMES;
use nfs_proto::v4::xattr::{
    GetXattrOk, ListXattrsArgs, ListXattrsOk, SetXattrArgs, SetXattrOption, XattrArgs, XattrValue,
};
use nfs_proto::v4::{Array, ChangeInfo, ResOp, Status};
use nfs_proto::{Cookie, Filename};
use oncrpc::xdr::padded;

/// Bytes of the result of GETXATTR beside the value: operation, status, length.
const GET: usize = 4 + 4 + 4;

/// Bytes of the result of LISTXATTRS before its structure: operation, status.
const LIST: usize = 4 + 4;

/// Bytes of the structure of a result of LISTXATTRS without names: cookie, count, end of the list.
const LIST_OF_NONE: usize = 8 + 4 + 4;

impl Nfs4 {
    /// GETXATTR (RFC 8276 §8.4.1).
    pub(super) fn get_xattr(&self, run: &mut Running, args: &XattrArgs<'_>) -> Ran {
        let at = run.file(Status::NotSupported)?;
        let name = name(&args.name)?;
        let outcome = run.export(&at).fs.xattr(&run.who(&at), at.file, name);
        after(self, run, outcome, move |_, run, found| {
            let value = found.result.map_err(status)?;
            run.check_room(GET + padded(value.len()), None)?;
            // A file system that keeps larger ones than it may is at fault.
            let value = XattrValue::new(&value).ok_or(Status::ServerFault)?;
            run.push(ResOp::GetXattr(Ok(GetXattrOk { value })))
        })
    }

    /// SETXATTR (RFC 8276 §8.4.2).
    pub(super) fn set_xattr(&self, run: &mut Running, args: &SetXattrArgs<'_>) -> Ran {
        let at = run.file_to_change()?;
        let name = name(&args.name)?;
        if args.value.len() > MAX_XATTR_VALUE {
            return Err(Status::XattrTooBig);
        }
        let how = match args.option {
            SetXattrOption::Either => SetXattr::Either,
            SetXattrOption::Create => SetXattr::Create,
            SetXattrOption::Replace => SetXattr::Replace,
        };
        // It outlasts the request, whose memory it is not to keep.
        let value = bytes::Bytes::copy_from_slice(&args.value);
        let fs = &run.export(&at).fs;
        let outcome = fs.set_xattr(&run.who(&at), at.file, name, value, how);
        self.changed_xattr(run, outcome, |info| ResOp::SetXattr(Ok(info)))
    }

    /// REMOVEXATTR (RFC 8276 §8.4.4).
    pub(super) fn remove_xattr(&self, run: &mut Running, args: &XattrArgs<'_>) -> Ran {
        let at = run.file_to_change()?;
        let name = name(&args.name)?;
        let fs = &run.export(&at).fs;
        let outcome = fs.remove_xattr(&run.who(&at), at.file, name);
        self.changed_xattr(run, outcome, |info| ResOp::RemoveXattr(Ok(info)))
    }

    fn changed_xattr(
        &self,
        run: &mut Running,
        outcome: Outcome<Changed<()>>,
        result: fn(ChangeInfo) -> ResOp<'static>,
    ) -> Ran {
        after(self, run, outcome, move |_, run, done| {
            done.result.map_err(status)?;
            run.push(result(convert::change(&done.wcc)))
        })
    }

    /// LISTXATTRS (RFC 8276 §8.4.3).
    pub(super) fn list_xattrs(&self, run: &mut Running, args: &ListXattrsArgs) -> Ran {
        let at = run.file(Status::NotSupported)?;
        let ListXattrsArgs { cookie, max_count } = *args;
        let outcome = run.export(&at).fs.xattrs(&run.who(&at), at.file);
        after(self, run, outcome, move |_, run, found| {
            let all = found.result.map_err(status)?;
            run.check_room(LIST + LIST_OF_NONE, None)?;
            let room = run.room().saturating_sub(LIST);
            let page = Page::of(&all, cookie, (max_count as usize, room))?;
            run.push(ResOp::ListXattrs(Ok(ListXattrsOk {
                cookie: page.cookie,
                names: Array::new(&page.names).ok_or(Status::ServerFault)?,
                eof: page.eof,
            })))
        })
    }
}

/// Some of the names of a list, behind a cookie.
///
/// The list is in the order of the hashes of its names, and the cookie of a name is its hash: so names that are there all the time
/// are listed once, whatever names are added and removed between two requests, and whether or not the server runs all the time.
struct Page<'a> {
    cookie: Cookie,
    names: Vec<Filename<'a>>,
    eof: bool,
}

impl<'a> Page<'a> {
    /// Takes names for a result of at most `max_count` bytes, as the client asks, and `room` bytes, as the reply has.
    ///
    /// # Errors
    ///
    /// `TooSmall`, `ReplyTooBig`: no name is that small (RFC 8276 §8.4.3.3).
    fn of(
        all: &'a XattrNames,
        Cookie(behind): Cookie,
        (max_count, room): (usize, usize),
    ) -> Result<Self, Status> {
        let mut list: Vec<(u64, &[u8])> = all.iter().map(|name| (place(name), name)).collect();
        list.retain(|(place, _)| *place > behind);
        list.sort_unstable();
        let mut left = max_count.min(room).checked_sub(LIST_OF_NONE);
        let mut page = Self {
            cookie: Cookie(behind),
            names: Vec::new(),
            eof: list.is_empty(),
        };
        for (index, (place, name)) in list.iter().enumerate() {
            let size = 4 + padded(name.len());
            left = left.and_then(|left| left.checked_sub(size));
            if left.is_none() || page.names.len() == MAX_XATTR_NAMES as usize {
                break;
            }
            page.names
                .push(Filename::new(name).ok_or(Status::ServerFault)?);
            page.cookie = Cookie(*place);
            page.eof = index + 1 == list.len();
        }
        match page.names.is_empty() && !(page.eof && left.is_some()) {
            true if room < max_count => Err(Status::ReplyTooBig),
            true => Err(Status::TooSmall),
            false => Ok(page),
        }
    }
}

/// Returns the place of a name in lists. None is at the beginning, which is 0.
fn place(name: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(name).max(1)
}

/// Checks a name.
///
/// # Errors
///
/// `Invalid`, `NameTooLong` (RFC 8276 §8.4.5).
fn name<'a>(given: &Filename<'a>) -> Result<XattrName<'a>, Status> {
    XattrName::new(given.get()).map_err(convert::status)
}

/// Returns the status of an error. Objects of other kinds than files and directories have no extended attributes (RFC 8276 §8.1).
fn status(error: Error) -> Status {
    match error {
        Error::Invalid => Status::WrongType,
        error => convert::status(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(all: impl Iterator<Item = String>) -> XattrNames {
        let mut names = XattrNames::default();
        for name in all {
            names.push(XattrName::new(name.as_bytes()).unwrap());
        }
        names
    }

    #[test]
    fn list_in_pages_has_each_name_once_while_others_come_and_go() {
        let stays = || (0..200).map(|number| format!("stays{number}"));
        let mut seen = BTreeSet::new();
        let mut cookie = Cookie(0);
        for round in 0.. {
            let others = (0..50).map(|number| format!("{round}-{number}"));
            let all = names(stays().chain(others));
            let page = Page::of(&all, cookie, (LIST_OF_NONE + 64, 4096)).unwrap();
            for name in page.names {
                let name = String::from_utf8(name.to_vec()).unwrap();
                assert!(seen.insert(name.clone()), "{name}");
            }
            cookie = page.cookie;
            if page.eof {
                break;
            }
        }
        assert!(stays().all(|name| seen.contains(&name)));
    }

    #[test]
    fn page_without_room_for_a_name_is_refused() {
        let check = |all: &XattrNames, sizes, status| {
            let page = Page::of(all, Cookie(0), sizes);
            assert_eq!(page.map(|page| page.names.len()), status);
        };
        let (none, one) = (
            XattrNames::default(),
            names(std::iter::once("name".to_owned())),
        );
        check(&none, (16, 4096), Ok(0));
        check(&none, (15, 4096), Err(Status::TooSmall));
        check(&one, (16 + 8, 4096), Ok(1));
        check(&one, (16 + 7, 4096), Err(Status::TooSmall));
        check(&one, (4096, 16 + 7), Err(Status::ReplyTooBig));
    }

    #[test]
    fn page_has_as_many_names_as_a_reply_may_have() {
        let many = names((0..=MAX_XATTR_NAMES).map(|number| number.to_string()));
        let page = Page::of(&many, Cookie(0), (1 << 20, 1 << 20)).unwrap();
        assert_eq!(page.names.len(), MAX_XATTR_NAMES as usize);
        assert!(!page.eof);
        let rest = Page::of(&many, page.cookie, (1 << 20, 1 << 20)).unwrap();
        assert_eq!((rest.names.len(), rest.eof), (1, true));
    }
}
