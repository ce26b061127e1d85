//! Extended attributes of users, which Linux keeps in the namespace `user.` (xattr(7)).

use super::open_files::node::Node;
use super::posix_acl::path;
use crate::fs::{Error, MAX_XATTR_NAMES, MAX_XATTR_VALUE, SetXattr, XattrName, XattrNames};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The namespace.
const USER: &[u8] = b"user.";

/// Bytes of memory for a value or a list of names, to begin with: enough for most.
const FIRST: usize = 1024;

/// A name as the kernel has it.
pub(super) struct KernelName(Vec<u8>);

impl KernelName {
    pub(super) fn of(name: XattrName<'_>) -> Self {
        Self([USER, name.bytes()].concat())
    }
}

/// Whether the file system of a directory has such attributes.
pub(super) fn are_supported(directory: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let found = rustix::fs::getxattr(path, "user.rpcrdma.probe", &mut [0_u8; 0]);
    matches!(found, Ok(_) | Err(Errno::NODATA))
}

/// Reads a value.
pub(super) fn read(node: &Node, name: &KernelName) -> Result<Vec<u8>, Error> {
    let read = |value: &mut [u8]| rustix::fs::getxattr(path(node), name.0.as_slice(), value);
    fill(read, MAX_XATTR_VALUE).map_err(error)
}

/// Reads all names.
pub(super) fn names(node: &Node) -> Result<XattrNames, Error> {
    let read = |list: &mut [u8]| rustix::fs::listxattr(path(node), list);
    // A list of the kernel can be too large only where other namespaces have names.
    let list = fill(read, MAX_XATTR_NAMES).map_err(error)?;
    let mut names = XattrNames::default();
    for name in list.split(|&byte| byte == 0) {
        let name = name.strip_prefix(USER);
        if let Some(Ok(name)) = name.map(XattrName::new) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Sets a value. It is one system call on a [path].
pub(super) fn write(
    path: &str,
    name: &KernelName,
    value: &[u8],
    how: SetXattr,
) -> Result<(), Errno> {
    let flags = match how {
        SetXattr::Either => XattrFlags::empty(),
        SetXattr::Create => XattrFlags::CREATE,
        SetXattr::Replace => XattrFlags::REPLACE,
    };
    rustix::fs::setxattr(path, name.0.as_slice(), value, flags)
}

/// Removes an attribute. It is one system call on a [path].
pub(super) fn remove(path: &str, name: &KernelName) -> Result<(), Errno> {
    rustix::fs::removexattr(path, name.0.as_slice())
}

/// Returns the error of a system call on extended attributes, where some have a meaning of their own.
pub(super) fn error(errno: Errno) -> Error {
    match errno {
        Errno::NODATA => Error::NoXattr,
        Errno::TOOBIG | Errno::RANGE => Error::XattrTooLarge,
        errno => errno.into(),
    }
}

/// Reads into little memory, and once more into as much as can be needed.
fn fill(read: impl Fn(&mut [u8]) -> Result<usize, Errno>, most: usize) -> Result<Vec<u8>, Errno> {
    let mut memory = vec![0; FIRST];
    let len = match read(&mut memory) {
        Err(Errno::RANGE) => {
            memory = vec![0; most];
            read(&mut memory)?
        }
        found => found?,
    };
    memory.truncate(len);
    Ok(memory)
}
