//! Files that clients hold open.

use super::*;
use crate::Handles;
use nfs_proto::v4::StateId;

use nfs_proto::v4::open::CloseArgs;

const FILES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn site() -> Site {
    let dir = tempfile::tempdir().unwrap();
    let export = dir.path().join("export");
    std::fs::create_dir(&export).unwrap();
    // Of which clients may hold 12.
    let options = LocalFsOptions::default()
        .with_open_files(16)
        .with_handles(Handles::Table)
        .with_state_dir(dir.path().join("state"));
    let local = LocalFs::open(&export, options).unwrap();
    Site::over(Arc::new(local), Some(dir))
}

fn client_of<'s>(site: &'s Site, owner: &'static [u8], host: u8) -> Client<'s> {
    let mut client = site.client(owner);
    client.caller = Caller::new(([127, 0, 0, host], 700).into());
    client
}

/// Opens files up to the first that it may not.
fn open_all(client: &Client<'_>) -> Vec<StateId> {
    let open = |name: &&'static str| {
        let opened = client.at(&[], vec![open(name, ShareAccess::READ, ShareDeny::empty())]);
        match opened.last() {
            ResOp::Open(Ok(opened)) => Some(opened.state),
            refused => {
                assert_eq!(refused.status(), Err(Status::Delay));
                None
            }
        }
    };
    FILES.iter().map_while(open).collect()
}

#[test]
fn address_holds_as_many_files_as_it_leaves_for_others() {
    let site = site();
    let (one, two) = (client_of(&site, b"one", 1), client_of(&site, b"two", 2));
    let held = open_all(&one);
    assert_eq!(held.len(), 6);
    let refused = one.at(&[FILES[6]], vec![ArgOp::GetFh]);
    assert_eq!(refused.status(), Err(Status::NoEntry), "no file was made");
    assert_eq!(open_all(&two).len(), 3);
    let close = ArgOp::Close(CloseArgs {
        seqid: 0,
        state: held[0],
    });
    one.at(&[FILES[0]], vec![close]).ok();
}

#[test]
fn owner_of_locks_takes_a_place_as_a_file_does() {
    let site = site();
    let client = client_of(&site, b"one", 1);
    let held = open_all(&client);
    assert_eq!(held.len(), 6);
    let lock = lock(held[0], LockType::Read, 0, 1);
    let locked = client.at(&[FILES[0]], vec![lock]);
    assert_eq!(locked.status(), Err(Status::Delay));
}

#[test]
fn files_that_their_handles_find_again_take_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let options = LocalFsOptions::default().with_open_files(8);
    let local = LocalFs::open(dir.path(), options).unwrap();
    if local.most_held().is_some() {
        return;
    }
    let site = Site::over(Arc::new(local), Some(dir));
    let client = client_of(&site, b"one", 1);
    let held = open_all(&client);
    assert_eq!(held.len(), FILES.len());
    // An owner of locks does, of half of the places: files without a name may have the others.
    for (at, state) in held.into_iter().enumerate() {
        let lock = lock(state, LockType::Read, 0, 1);
        let locked = client.at(&[FILES[at]], vec![lock]).status();
        let expected = match at {
            0 => Ok(()),
            _ => Err(Status::Delay),
        };
        assert_eq!(locked, expected, "{at}");
    }
}
