//! Arguments and results of NFS version 3 and MOUNT version 3 (RFC 1813), and NFSACL version 3.

use crate::memory::within;
use crate::script::Script;
use buffer::Buffer;
use nfs_proto::results::{self, Res};
use nfs_proto::{
    Arguments, Attributes, FileHandle, Filename, Name, SetAttributes, WccData, Wire, acl, args,
    mount,
};
use oncrpc::xdr::{Reader, Writer};
use std::fmt::Debug;

/// An entry of a list takes eight bytes at least, and an attribute that is there 84 more.
const MEMORY_PER_BYTE: usize = 96;
const MEMORY: usize = 8 << 10;

type PostOp = Option<Attributes>;

macro_rules! checks {
    (arguments $($argument:ty),* ; values $($value:ty),* $(,)?) => {
        &[
            $(|bytes: &[u8]| arguments::<$argument>(bytes),)*
            $(|bytes: &[u8]| value::<$value>(bytes),)*
        ]
    };
}

/// One for each procedure and each of its results.
const CHECKS: &[fn(&[u8])] = checks!(
    arguments
        args::GetAttr, args::SetAttr, args::Lookup<'_>, args::CheckAccess, args::ReadLink,
        args::Read, args::Write<'_>, args::Create<'_>, args::MkDir<'_>, args::Symlink<'_>,
        args::MkNod<'_>, args::Remove<'_>, args::RmDir<'_>, args::Rename<'_>, args::Link<'_>,
        args::ReadDir, args::ReadDirPlus, args::FsStat, args::FsInfo, args::PathConf, args::Commit,
        mount::Mount<'_>, mount::Unmount<'_>, acl::GetAcl, acl::SetAcl;
    values
        Res<results::GetAttr, ()>, Res<results::SetAttr, WccData>, Res<results::Lookup, PostOp>,
        Res<results::CheckAccess, PostOp>, Res<results::ReadLink<'_>, PostOp>,
        Res<results::Read<'_>, PostOp>, Res<results::Write, WccData>,
        Res<results::Create, WccData>, Res<results::Remove, WccData>,
        Res<results::Rename, results::Rename>, Res<results::Link, results::Link>,
        Res<results::ReadDir<'_>, PostOp>, Res<results::ReadDirPlus<'_>, PostOp>,
        Res<results::FsStat, PostOp>, Res<results::FsInfo, PostOp>,
        Res<results::PathConf, PostOp>, Res<results::Commit, WccData>,
        Result<mount::Mounted, mount::MountStatus>, mount::MountList<'_>, mount::ExportList<'_>,
        Res<acl::Lists, PostOp>, Res<acl::Done, PostOp>,
        SetAttributes, FileHandle, Filename<'_>,
);

/// The arguments or the results of one procedure.
pub fn nfs(bytes: &[u8]) {
    let most = MEMORY + MEMORY_PER_BYTE * bytes.len();
    let mut script = Script::new(bytes);
    let check = CHECKS[script.below(CHECKS.len())];
    within(most, || check(script.rest()));
    name(bytes);
}

fn arguments<'a, A: Arguments<'a> + Debug + PartialEq>(bytes: &'a [u8]) {
    if let Some(arguments) = parsed::<A>(bytes) {
        let bound = arguments.reply_bound();
        assert!(bound.fixed >= oncrpc::REPLY_HEADER);
        assert!(bound.results.len() <= 1, "one result is eligible at most");
    }
}

fn value<'a, T: Wire<'a> + Debug + PartialEq>(bytes: &'a [u8]) {
    parsed::<T>(bytes);
}

/// A value, if it is one: what is written of it is what it was read from.
fn parsed<'a, T: Wire<'a> + Debug + PartialEq>(bytes: &'a [u8]) -> Option<T> {
    let mut r = Reader::new(bytes);
    let value = T::parse(&mut r).ok()?;
    let mut w = Writer::default();
    value.write(&mut w);
    let message = w.finish();
    assert!(message.head().len() <= T::MAX, "within its declared size");
    let mut stream = Buffer::default();
    message.copy_stream_into(&mut stream);
    assert_eq!(*stream, bytes[..r.offset()], "the same bytes");
    assert!(message.items().len() <= 1, "one item is eligible at most");
    Some(value)
}

/// A name that can be used is one name.
fn name(bytes: &[u8]) {
    if let Ok(name) = Name::new(bytes) {
        assert!(!name.contains(&b'/') && !name.contains(&0) && !name.is_empty());
        assert_eq!(Name::try_from(name.filename()), Ok(name));
    }
}
