//! Access control lists (acl(5)) at the destination of copies.

use crate::copies::{mode, ok_with_umask, set_mode};
use crate::memory::{files, serve, serve_without_lists, with};
use crate::running::{Served, fails, ok};
use nfs_proto::Status;
use nfs_server::{LocalFs, LocalFsOptions};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::Path;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// A list with the rights of owner, user 1001, owning group, mask and others.
fn list(rights: [u16; 5]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    let who = [
        (0x01, none),
        (0x02, 1001),
        (0x04, none),
        (0x10, none),
        (0x20, none),
    ];
    for ((tag, id), rights) in who.into_iter().zip(rights) {
        list.extend(u16::to_le_bytes(tag));
        list.extend(rights.to_le_bytes());
        list.extend(u32::to_le_bytes(id));
    }
    list
}

fn set(path: &Path, name: &str, list: &[u8]) {
    rustix::fs::setxattr(path, name, list, XattrFlags::empty()).unwrap();
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut list = [0; 1000];
    let len = rustix::fs::getxattr(path, name, &mut list[..]).ok()?;
    Some(list[..len].to_vec())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A tree with a file, one that may not be written, a program, and a directory with a file.
fn tree() -> tempfile::TempDir {
    let source = with(&["t/file", "t/closed", "t/program", "t/dir/file"]);
    let t = source.path().join("t");
    for (name, mode) in [("file", 0o666), ("closed", 0o444), ("program", 0o777)] {
        set_mode(&t.join(name), mode);
    }
    set_mode(&t.join("dir/file"), 0o666);
    set_mode(&t.join("dir"), 0o777);
    source
}

const NAMES: [&str; 5] = ["file", "closed", "program", "dir", "dir/file"];

/// Modes of [`tree`] that mkdir(2) and open(2) leave where a default list has these rights.
fn left(by: u32) -> [u32; 5] {
    [0o666, 0o444, 0o777, 0o777, 0o666].map(|mode| mode & by)
}

#[test]
fn default_list_of_the_destination_counts_and_the_umask_does_not() {
    let source = tree();
    let tree = source.path().join("t");
    let lists = [
        [7, 7, 7, 7, 7],
        [7, 7, 5, 7, 0],
        [7, 5, 5, 5, 5],
        [6, 0, 0, 0, 0],
    ];
    for rights in lists {
        let [owner, _, _, mask, others] = rights.map(u32::from);
        let expected = left(owner << 6 | mask << 3 | others);
        let served = Served::new(&[]);
        let here = served.around.path().join("here");
        fs::create_dir(&here).unwrap();
        fs::create_dir(served.dir.join("from")).unwrap();
        fs::create_dir(served.dir.join("to")).unwrap();
        ok_with_umask("0", &["put", "-r", path(&tree), &served.url("from")]);
        for dir in [&here, &served.dir, &served.dir.join("to")] {
            set(dir, DEFAULT, &list(rights));
        }
        let (all, to) = (served.url("from/t"), served.url("to"));
        ok_with_umask("077", &["put", "-r", path(&tree), &served.url("")]);
        ok_with_umask("077", &["get", "-r", &all, path(&here)]);
        ok_with_umask("077", &["cp", "-r", &all, &to]);
        for dir in [&here, &served.dir, &served.dir.join("to")] {
            let modes = NAMES.map(|name| mode(&dir.join("t").join(name)) & 0o777);
            assert_eq!(
                modes,
                expected,
                "{rights:?} in {}: {modes:?}",
                dir.display()
            );
            let deep = get(&dir.join("t/dir"), DEFAULT);
            assert_eq!(deep.unwrap(), list(rights), "it is inherited");
        }
        // A file that is made in what was made before.
        let file = tree.join("file");
        ok_with_umask("077", &["put", path(&file), &served.url("t/dir/new")]);
        assert_eq!(mode(&served.dir.join("t/dir/new")) & 0o777, expected[0]);
        ok_with_umask(
            "077",
            &["put", "--resume", path(&file), &served.url("t/one")],
        );
        assert_eq!(mode(&served.dir.join("t/one")) & 0o777, expected[0]);
    }
}

#[test]
fn umask_counts_where_there_is_no_default_list() {
    let source = tree();
    let tree = source.path().join("t");
    let served = Served::new(&[]);
    ok_with_umask("027", &["put", "-r", path(&tree), &served.url("")]);
    ok_with_umask("027", &["cp", "-r", &served.url("t"), &served.url("u")]);
    for dir in ["t", "u"] {
        let modes = NAMES.map(|name| mode(&served.dir.join(dir).join(name)) & 0o777);
        assert_eq!(modes, left(0o750), "{modes:?}");
    }
    // A server without such lists.
    let url = serve(files(), |_, _| None);
    ok_with_umask(
        "027",
        &["put", path(&tree.join("file")), &format!("{url}/")],
    );
    let about = ok(&["ls", "-l", &format!("{url}/file")]);
    assert!(about.starts_with(b"-rw-r-----"));
}

#[test]
fn local_file_takes_no_default_list_in_place_of_one_without_a_list_nor_with_p() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), "content").unwrap();
    set_mode(&served.dir.join("file"), 0o640);
    let here = tempfile::tempdir().unwrap();
    let (there, url) = (here.path().join("file"), served.url("file"));
    for options in [&[][..], &["-p"]] {
        fs::write(&there, "before").unwrap();
        set_mode(&there, 0o640);
        set(here.path(), DEFAULT, &list([7, 7, 7, 7, 5]));
        let copy = [&["get", &*url], options, &[path(here.path())]].concat();
        ok(&copy);
        assert_eq!(fs::read(&there).unwrap(), b"content");
        assert_eq!(
            (get(&there, ACCESS), mode(&there)),
            (None, 0o640),
            "{options:?}"
        );
        rustix::fs::removexattr(here.path(), DEFAULT).unwrap();
    }
}

#[test]
fn replaced_file_passes_on_its_access_control_list() {
    let served = Served::new(&[]);
    let source = with(&["small", "large"]);
    fs::write(source.path().join("large"), vec![7; 1 << 20]).unwrap();
    let rights = list([6, 6, 0, 6, 0]);
    for name in ["small", "large"] {
        let (file, there) = (source.path().join(name), served.dir.join(name));
        set_mode(&file, 0o644);
        fs::write(&there, "before").unwrap();
        set(&there, ACCESS, &rights);
        assert_eq!(mode(&there), 0o660);
        for copy in [
            &["put", path(&file), &served.url("")][..],
            &["put", "--resume", path(&file), &served.url("")],
            &[
                "cp",
                "--sparse=never",
                &served.url("from"),
                &served.url(name),
            ],
        ] {
            fs::write(served.dir.join("from"), fs::read(&file).unwrap()).unwrap();
            ok(copy);
            assert_eq!(fs::read(&there).unwrap(), fs::read(&file).unwrap());
            assert_eq!(get(&there, ACCESS).as_ref(), Some(&rights), "{copy:?}");
            assert_eq!(mode(&there), 0o660);
        }
        // With -p, mode and all are those of the source.
        ok(&["put", "-p", path(&file), &served.url("")]);
        assert_eq!((get(&there, ACCESS), mode(&there)), (None, 0o644));
    }
}

/// A directory of this machine as a server has it.
fn local(dir: &Path) -> LocalFs {
    LocalFs::open(dir, LocalFsOptions::default()).unwrap()
}

#[test]
fn file_whose_list_the_server_does_not_tell_is_not_replaced() {
    let source = with(&["file"]);
    let file = source.path().join("file");
    for (second, fate) in [(Status::Io, "before"), (Status::NotSupported, "file")] {
        let there = with(&["file"]);
        fs::write(there.path().join("file"), "before").unwrap();
        // The first is for the default list of the directory.
        let url = serve_without_lists(local(there.path()), move |number| match number {
            0 => Status::NotSupported,
            _ => second,
        });
        let put = ["put", path(&file), &format!("{url}/")];
        match second {
            Status::Io => fails(&put, 1, "cannot read the access control list: "),
            _ => drop(ok(&put)),
        }
        let content = fs::read_to_string(there.path().join("file"));
        assert_eq!(content.unwrap(), fate);
        assert_eq!(there.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn file_is_not_made_where_the_server_does_not_tell_the_default_list() {
    let source = with(&["file"]);
    let there = tempfile::tempdir().unwrap();
    let url = serve_without_lists(local(there.path()), |_| Status::Io);
    let (file, to) = (source.path().join("file"), format!("{url}/"));
    let put = ["put", path(&file), &to];
    let text = "cannot read the default access control list of the directory";
    fails(&put, 1, text);
    assert_eq!(there.path().read_dir().unwrap().count(), 0);
    // With -p neither list matters.
    ok(&["put", "-p", put[1], put[2]]);
}

#[test]
fn replaced_file_passes_on_the_mode_that_it_has_by_then() {
    let source = with(&["file"]);
    let there = with(&["file"]);
    let place = there.path().join("file");
    set_mode(&place, 0o644);
    let closes = place.clone();
    // What is planned is over when the first list is asked for.
    let url = serve_without_lists(local(there.path()), move |number| {
        if number == 0 {
            set_mode(&closes, 0o600);
        }
        Status::NotSupported
    });
    let file = source.path().join("file");
    set_mode(&file, 0o644);
    fs::write(&file, "new").unwrap();
    ok(&["put", path(&file), &format!("{url}/")]);
    assert_eq!(fs::read(&place).unwrap(), b"new");
    assert_eq!(mode(&place) & 0o777, 0o600);
}

#[test]
fn replaced_file_passes_on_the_mode_of_another_that_took_its_place() {
    let source = with(&["file"]);
    let there = with(&["file"]);
    let place = there.path().join("file");
    set_mode(&place, 0o644);
    let replaced = place.clone();
    let url = serve_without_lists(local(there.path()), move |number| {
        if number == 0 {
            let other = replaced.with_extension("other");
            fs::write(&other, "other").unwrap();
            set_mode(&other, 0o600);
            fs::rename(&other, &replaced).unwrap();
        }
        Status::NotSupported
    });
    let file = source.path().join("file");
    fs::write(&file, "new").unwrap();
    ok(&["put", path(&file), &format!("{url}/")]);
    assert_eq!(fs::read(&place).unwrap(), b"new");
    assert_eq!(mode(&place) & 0o777, 0o600);
}
