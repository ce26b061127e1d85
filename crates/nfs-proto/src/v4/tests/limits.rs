//! One past each limit is refused, before anything behind the length is looked at.

use crate::Wire;
use crate::limits::*;
use crate::v4::limits::*;
use crate::v4::{
    Bitmap, CompoundArgs, CompoundRes, Fattr, acl, callback, copy, delegation, directory, file,
    layout, locations, lock, obsolete, open, security, session, xattr,
};
use oncrpc::xdr::{Error, Reader};
use std::fmt::Debug;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Checks a length behind so many words of zeroes, or these words: one more than the limit is refused, and the limit is
/// looked for.
#[track_caller]
fn refused_behind<T: Wire<'static> + Debug>(before: &[u32], limit: u32) {
    let parse = |len: u32| {
        let message = words(&[before, &[len]].concat()).leak();
        T::parse(&mut Reader::new(message)).unwrap_err()
    };
    let len = limit + 1;
    assert_eq!(parse(len), Error::TooLong { len, limit });
    assert!(matches!(parse(limit), Error::Short { .. }));
    assert!(matches!(parse(u32::MAX), Error::TooLong { .. }));
}

#[track_caller]
fn refused<T: Wire<'static> + Debug>(words: usize, limit: u32) {
    refused_behind::<T>(&vec![0; words], limit);
}

#[test]
fn names_handles_and_owners_have_limits() {
    refused::<file::PutFhArgs<'_>>(0, MAX_V4_HANDLE);
    refused::<file::GetFhOk<'_>>(0, MAX_V4_HANDLE);
    refused::<directory::LookupArgs<'_>>(0, MAX_FILENAME);
    refused::<directory::RenameArgs<'_>>(1, MAX_FILENAME);
    refused::<directory::LinkArgs<'_>>(0, MAX_FILENAME);
    refused::<directory::RemoveArgs<'_>>(0, MAX_FILENAME);
    refused::<security::SecInfoArgs<'_>>(0, MAX_FILENAME);
    refused_behind::<directory::CreateArgs<'_>>(&[2], MAX_FILENAME);
    refused_behind::<directory::CreateArgs<'_>>(&[5], MAX_PATH);
    refused::<directory::ReadLinkOk<'_>>(0, MAX_PATH);
    refused::<open::OpenArgs<'_>>(5, MAX_STATE_OWNER);
    refused::<open::OpenClaim<'_>>(1, MAX_FILENAME);
    refused_behind::<open::OpenClaim<'_>>(&[2, 0, 0, 0, 0], MAX_FILENAME);
    refused_behind::<open::OpenClaim<'_>>(&[3], MAX_FILENAME);
    refused_behind::<lock::LockTArgs<'_>>(&[1, 0, 0, 0, 0, 0, 0], MAX_STATE_OWNER);
    refused_behind::<lock::Locker<'_>>(&[1, 0, 0, 0, 0, 0, 0, 0, 0], MAX_STATE_OWNER);
    refused_behind::<lock::LockDenied<'_>>(&[0, 0, 0, 0, 1, 0, 0], MAX_STATE_OWNER);
    refused::<obsolete::SetClientIdArgs<'_>>(2, MAX_STATE_OWNER);
    refused::<obsolete::ReleaseLockOwnerArgs<'_>>(2, MAX_STATE_OWNER);
}

#[test]
fn sessions_have_limits() {
    refused::<session::ExchangeIdArgs<'_>>(2, MAX_STATE_OWNER);
    // Owner, flags and SP4_NONE; one implementation at most.
    refused_behind::<session::ExchangeIdArgs<'_>>(&[0, 0, 0, 0, 0, 1], MAX_STATE_OWNER);
    let two = words(&[0, 0, 0, 0, 0, 2]).leak();
    let two = session::ExchangeIdArgs::parse(&mut Reader::new(two)).unwrap_err();
    assert!(matches!(two, Error::NotInEnum { value: 2, .. }));
    refused_behind::<session::ProtectArgs<'_>>(&[1], MAX_BITMAP);
    refused_behind::<session::ProtectArgs<'_>>(&[2, 0, 0], MAX_ALGORITHMS);
    refused_behind::<session::ProtectArgs<'_>>(&[2, 0, 0, 0], MAX_ALGORITHMS);
    refused_behind::<session::ProtectArgs<'_>>(&[2, 0, 0, 1], MAX_OID);
    refused_behind::<session::ProtectRes<'_>>(&[2, 0, 0, 0, 0, 0, 0], MAX_GSS_HANDLES);
    refused::<session::SetSsvArgs<'_>>(0, MAX_SSV);
    refused::<session::SetSsvArgs<'_>>(1, MAX_SSV);
    // Client, sequence, flags, two channels and the program.
    refused::<session::CreateSessionArgs<'_>>(4 + 2 * 7 + 1, MAX_FLAVORS);
    refused::<security::BackChannelCtlArgs<'_>>(1, MAX_FLAVORS);
    refused_behind::<security::CallbackSecurity<'_>>(&[1, 0], oncrpc::auth::MAX_MACHINE_NAME);
    refused_behind::<security::CallbackSecurity<'_>>(&[1, 0, 0, 0, 0], oncrpc::auth::MAX_GIDS);
    refused_behind::<security::CallbackSecurity<'_>>(&[6, 1], MAX_GSS_HANDLE);
    refused::<security::SecInfoOk<'_>>(0, MAX_FLAVORS);
    refused::<lock::TestStateIdArgs<'_>>(0, MAX_STATEIDS);
    refused::<lock::TestStateIdOk<'_>>(0, MAX_STATEIDS);
    refused::<callback::CbSequenceArgs<'_>>(8, MAX_REFERRING_CALLS);
    refused::<callback::ReferringCalls<'_>>(4, MAX_REFERRING_CALLS);
    refused::<callback::CbNotifyDeviceIdArgs<'_>>(0, MAX_NOTIFICATIONS);
}

#[test]
fn attributes_have_limits() {
    refused::<Bitmap>(0, MAX_BITMAP);
    refused::<Fattr<'_>>(1, MAX_ATTRIBUTE_VALUES);
    refused::<file::SetAttrArgs<'_>>(5, MAX_ATTRIBUTE_VALUES);
    refused::<acl::Acl<'_>>(0, MAX_ACL_ENTRIES);
    refused::<acl::Acl41<'_>>(1, MAX_ACL_ENTRIES);
    refused::<acl::Ace<'_>>(3, MAX_OWNER_NAME);
    refused::<locations::SecurityLabel<'_>>(2, MAX_SECURITY_LABEL);
    refused::<locations::FsLocations<'_>>(0, MAX_COMPONENTS);
    refused::<locations::FsLocations<'_>>(1, MAX_LOCATIONS);
    refused::<locations::FsLocation<'_>>(0, MAX_LOCATIONS);
    refused::<locations::LocationItem<'_>>(0, MAX_LOCATIONS);
    refused::<locations::FsLocationsInfo<'_>>(3, MAX_LOCATIONS);
    refused::<locations::LayoutTypes<'_>>(0, MAX_LAYOUT_TYPES);
    refused::<locations::MdsThreshold<'_>>(0, MAX_LAYOUT_TYPES);
    refused::<locations::LayoutHint<'_>>(1, MAX_LAYOUT_BODY);
    refused::<locations::OpenArguments>(4, MAX_BITMAP);
}

#[test]
fn data_and_extended_attributes_have_limits() {
    refused::<file::WriteArgs<'_>>(7, MAX_DATA);
    refused::<file::ReadOk<'_>>(1, MAX_DATA);
    refused::<copy::ReadPlusOk<'_>>(1, MAX_READ_PLUS_SEGMENTS);
    refused::<copy::Segment<'_>>(3, MAX_DATA);
    refused::<copy::WriteSameArgs<'_>>(4 + 1 + 11, MAX_PATTERN);
    refused::<copy::CopyArgs<'_>>(16, MAX_COPY_SERVERS);
    refused_behind::<copy::NetLocation<'_>>(&[1], MAX_PATH);
    refused_behind::<copy::NetLocation<'_>>(&[2], MAX_PATH);
    refused_behind::<copy::NetLocation<'_>>(&[3], MAX_NETWORK_ADDRESS);
    refused::<xattr::XattrArgs<'_>>(0, MAX_FILENAME);
    refused::<xattr::SetXattrArgs<'_>>(1, MAX_FILENAME);
    refused::<xattr::SetXattrArgs<'_>>(2, MAX_XATTR_VALUE);
    refused::<xattr::GetXattrOk<'_>>(0, MAX_XATTR_VALUE);
    refused::<xattr::ListXattrsOk<'_>>(2, MAX_XATTR_NAMES);
    refused::<layout::LayoutContent<'_>>(1, MAX_LAYOUT_BODY);
    refused::<layout::GetDeviceListOk<'_>>(4, MAX_DEVICES);
    refused::<layout::LayoutGetOk<'_>>(5, MAX_LAYOUTS);
    refused::<layout::LayoutErrorArgs<'_>>(8, MAX_LAYOUT_ERRORS);
    refused_behind::<delegation::Delegation<'_>>(&[1, 0, 0, 0, 0, 0, 0, 0, 0], MAX_OWNER_NAME);
}

#[test]
fn tags_and_operations_have_limits() {
    let call = |message: &[u32]| CompoundArgs::parse(Reader::new(&words(message))).err();
    let reply = |message: &[u32]| CompoundRes::parse(Reader::new(&words(message))).err();
    let (len, limit) = (MAX_TAG + 1, MAX_TAG);
    assert_eq!(call(&[len]), Some(Error::TooLong { len, limit }));
    assert_eq!(reply(&[0, len]), Some(Error::TooLong { len, limit }));
    let (len, limit) = (MAX_OPERATIONS + 1, MAX_OPERATIONS);
    assert_eq!(call(&[0, 1, len]), Some(Error::TooLong { len, limit }));
    assert_eq!(call(&[0, 1, limit]), None);
    assert_eq!(reply(&[0, 0, len]), Some(Error::TooLong { len, limit }));
    refused::<callback::CbCompoundArgs<'_>>(0, MAX_TAG);
    refused::<callback::CbCompoundArgs<'_>>(3, MAX_OPERATIONS);
    refused::<callback::CbCompoundRes<'_>>(2, MAX_OPERATIONS);
}

#[test]
fn values_that_are_in_no_enumeration_are_refused() {
    let refused = |error: Error| assert!(matches!(error, Error::NotInEnum { .. }), "{error}");
    let bad = |message: &[u32]| words(message).leak() as &[u8];
    refused(lock::LockType::parse(&mut Reader::new(bad(&[5]))).unwrap_err());
    refused(open::OpenHow::parse(&mut Reader::new(bad(&[2]))).unwrap_err());
    refused(open::CreateHow::parse(&mut Reader::new(bad(&[4]))).unwrap_err());
    refused(open::OpenClaim::parse(&mut Reader::new(bad(&[7]))).unwrap_err());
    refused(copy::SeekTo::parse(&mut Reader::new(bad(&[2]))).unwrap_err());
    refused(xattr::SetXattrOption::parse(&mut Reader::new(bad(&[3]))).unwrap_err());
    refused(session::ClientDirection::parse(&mut Reader::new(bad(&[4]))).unwrap_err());
    refused(session::ProtectArgs::parse(&mut Reader::new(bad(&[3]))).unwrap_err());
    refused(security::CallbackSecurity::parse(&mut Reader::new(bad(&[2]))).unwrap_err());
    refused(security::SecInfoStyle::parse(&mut Reader::new(bad(&[2]))).unwrap_err());
}
