//! Tests of what callers may do.
//!
//! Run by root, the kernel is asked for each caller. Run by anybody else, all is done as that user, and
//! there is nothing to see: those tests say that they were skipped.

use super::*;
use crate::fs::{Content, Reserve, SetTime, SetXattr, XattrName};
use std::process::Command;

const ALICE: u32 = 1001;
const BOB: u32 = 1002;

fn alice() -> Identity {
    Identity::new(ALICE, 1001)
}

fn bob() -> Identity {
    Identity::new(BOB, 1002)
}

/// Exports on the file systems that a test machine has: one on a disk, and one in memory.
fn exports() -> Vec<Export> {
    let bases = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    let bases = bases.iter().filter(|base| base.is_dir());
    let exports = bases.map(|base| {
        let export = Export::within(base);
        fs::set_permissions(&export.path, PermissionsExt::from_mode(0o777)).unwrap();
        export
    });
    exports.filter(|_| acts()).collect()
}

fn acts() -> bool {
    let acts = LocalFs::acts_for_callers();
    if !acts {
        eprintln!("not run by root: skipped");
    }
    acts
}

impl Export {
    fn write_as(&self, who: &Identity, file: FileId, stability: Stability) -> Result<u32, Error> {
        let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
        let done = self.fs().write(who, file, 0, data, stability).wait();
        done.result.map(|written| written.count)
    }

    fn access_as(&self, who: &Identity, file: FileId) -> Access {
        let seen = self.fs().access(who, file, Access::all()).wait();
        seen.result.unwrap()
    }

    fn set_as(&self, who: &Identity, file: FileId, set: SetAttributes) -> Result<(), Error> {
        self.fs().set_attributes(who, file, set, None).wait().result
    }

    fn list_as(&self, who: &Identity, dir: FileId) -> Result<usize, Error> {
        let (from, budget) = (DirFrom::START, DirBudget::PAGE);
        let seen = self.fs().read_directory(who, dir, from, budget, false);
        seen.wait().result.map(|page| page.entries.len())
    }

    fn remove_as(&self, who: &Identity, dir: FileId, name: &str) -> Result<(), Error> {
        let name = Name::new(name.as_bytes()).unwrap();
        self.fs().remove(who, dir, name).wait().result
    }
}

/// An access control list with rights for one user beside those of owner, group and others, as the kernel
/// takes it (acl(5), `linux/posix_acl_xattr.h`).
fn list(owner: u16, user: (u32, u16), group: u16, other: u16) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let mask = group | user.1;
    let entries = [
        (0x01, owner, NONE),
        (0x02, user.1, user.0),
        (0x04, group, NONE),
        (0x10, mask, NONE),
        (0x20, other, NONE),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set_list(path: &Path, name: &str, list: &[u8]) {
    let name = format!("system.posix_acl_{name}");
    rustix::fs::setxattr(path, &*name, list, rustix::fs::XattrFlags::empty())
        .expect("the file system has access control lists");
}

#[test]
fn extended_attributes_are_for_those_who_may_read_and_write_the_file() {
    let name = XattrName::new(b"name").unwrap();
    for export in exports() {
        let local = export.fs();
        if !local.abilities().xattrs {
            continue;
        }
        let check = |who: &Identity, file, read: Result<(), Error>, write: Result<(), Error>| {
            let set = local.set_xattr(who, file, name, "value".into(), SetXattr::Either);
            assert_eq!(set.wait().result, write);
            let found = local.xattr(who, file, name).wait().result;
            assert_eq!(found.map(drop), read);
            let names = local.xattrs(who, file).wait().result;
            assert_eq!(names.map(drop), read);
            let access = export.access_as(who, file);
            let lists = access.contains(Access::XATTR_READ | Access::XATTR_LIST);
            assert_eq!(lists, read.is_ok());
        };
        let denied = Err(Error::Access);
        export.write("f", "data");
        let f = export.find("f").unwrap();
        check(&Identity::root(), f, Ok(()), Ok(()));
        check(&alice(), f, Ok(()), denied);
        set_list(&export.path.join("f"), "access", &list(6, (ALICE, 6), 0, 0));
        check(&alice(), f, Ok(()), Ok(()));
        check(&bob(), f, denied, denied);
        let removed = local.remove_xattr(&bob(), f, name).wait().result;
        assert_eq!(removed, denied);
        // In a sticky directory only its owner sets attributes of it, as on Linux.
        fs::create_dir(export.path.join("d")).unwrap();
        let mode = PermissionsExt::from_mode(0o1777);
        fs::set_permissions(export.path.join("d"), mode).unwrap();
        let d = export.find("d").unwrap();
        check(&Identity::root(), d, Ok(()), Ok(()));
        check(&alice(), d, Ok(()), Err(Error::NotOwner));
    }
}

#[test]
fn space_is_for_those_who_may_write_and_holes_for_those_who_may_read() {
    for export in exports() {
        let local = export.fs();
        export.write("f", "data");
        let f = export.find("f").unwrap();
        set_list(&export.path.join("f"), "access", &list(6, (ALICE, 4), 0, 0));
        for what in [Reserve::Space, Reserve::Nothing] {
            let reserve = |who: &Identity| local.reserve(who, f, (0, 4), what).wait().result;
            assert_eq!(reserve(&alice()), Err(Error::Access));
            assert_eq!(reserve(&Identity::root()), Ok(()));
        }
        let seek = |who: &Identity| {
            let found = local.seek(who, f, 0, Content::Hole).wait().result;
            found.map(drop)
        };
        assert_eq!(seek(&alice()), Ok(()));
        assert_eq!(seek(&bob()), Err(Error::Access));
    }
}

#[test]
fn access_control_list_of_a_file_is_honoured() {
    for export in exports() {
        export.write("f", "data");
        let (path, f) = (export.path.join("f"), export.find("f").unwrap());
        let check = |who: &Identity, read: bool, write: bool| {
            let expected = |may: bool| if may { Ok(4) } else { Err(Error::Access) };
            let data = export.read_as(who, f).map(|data| data.len());
            assert_eq!(data, expected(read));
            for stability in [Stability::Unstable, Stability::FileSync] {
                let written = export.write_as(who, f, stability);
                assert_eq!(written, expected(write).map(|_| 4));
            }
            let truncated = export.set_as(who, f, SetAttributes::size(4));
            assert_eq!(truncated.is_ok(), write);
            let access = export.access_as(who, f);
            assert_eq!(access.contains(Access::READ), read);
            assert_eq!(access.contains(Access::MODIFY), write);
        };
        // Twice: what the kernel said before is not what it says of another list.
        for _ in 0..2 {
            set_list(&path, "access", &list(6, (ALICE, 6), 0, 0));
            check(&alice(), true, true);
            check(&bob(), false, false);
            set_list(&path, "access", &list(6, (ALICE, 0), 6, 6));
            check(&alice(), false, false);
            check(&bob(), true, true);
            set_list(&path, "access", &list(6, (ALICE, 4), 0, 0));
            check(&alice(), true, false);
        }
    }
}

/// The mask, which the mode shows, is no right to execute, by which a file can be read.
#[test]
fn access_control_list_is_honoured_where_programs_cannot_be_run() {
    for mut export in exports() {
        export.restart_with(|opening| opening.volume.no_exec = true);
        export.write("f", "data");
        let (path, f) = (export.path.join("f"), export.find("f").unwrap());
        std::os::unix::fs::chown(&path, None, Some(bob().gid)).unwrap();
        let reads = |who: &Identity| export.read_as(who, f).is_ok();
        set_list(&path, "access", &list(7, (ALICE, 5), 0, 0));
        assert!(reads(&alice()) && !reads(&bob()));
        let executes = |who: &Identity| export.access_as(who, f).contains(Access::EXECUTE);
        assert!(executes(&alice()) && !executes(&bob()));
        set_list(&path, "access", &list(7, (ALICE, 0), 5, 5));
        assert!(!reads(&alice()) && reads(&bob()));
        assert!(!executes(&alice()) && executes(&bob()));
        set_list(&path, "access", &list(7, (ALICE, 1), 0, 0));
        assert!(reads(&alice()) && !reads(&bob()));
    }
}

#[test]
fn access_control_list_of_a_directory_is_honoured() {
    for export in exports() {
        let d = Make::Directory(SetAttributes::mode(0o700));
        let root = export.fs().root();
        let d = export.make_as(&Identity::root(), root, "d", d).unwrap();
        export.write("d/f", "data");
        let path = export.path.join("d");
        let denied = Err(Error::Access);
        assert_eq!(export.find_as(&alice(), "d/f"), denied);

        set_list(&path, "access", &list(7, (ALICE, 5), 0, 0));
        let f = export.find_as(&alice(), "d/f").unwrap();
        assert_eq!(export.list_as(&alice(), d).unwrap(), 3);
        assert_eq!(export.find_as(&bob(), "d/f"), denied);
        assert_eq!(export.list_as(&bob(), d).err(), Some(Error::Access));
        assert_eq!(export.make_as(&alice(), d, "g", file(0o600)), denied);
        assert_eq!(export.remove_as(&alice(), d, "f"), Err(Error::Access));
        let access = export.access_as(&alice(), d) - Access::XATTRS;
        assert_eq!(access, Access::READ | Access::LOOKUP);

        set_list(&path, "access", &list(7, (ALICE, 7), 0, 0));
        export.make_as(&alice(), d, "g", file(0o600)).unwrap();
        let access = export.access_as(&alice(), d);
        assert_eq!(access, Access::all() - Access::EXECUTE);
        export.remove_as(&alice(), d, "f").unwrap();
        assert_eq!(export.stat(f), Err(Error::Stale));

        set_list(&path, "access", &list(7, (ALICE, 0), 5, 5));
        assert_eq!(export.find_as(&alice(), "d/g"), denied);
        assert!(export.find_as(&bob(), "d/g").is_ok());
    }
}

/// As chown(2) does.
#[test]
fn owner_that_is_set_again_moves_the_ctime() {
    let export = Export::new();
    export.write("f", "data");
    let f = export.find("f").unwrap();
    let before = export.stat(f).unwrap();
    // The clock of file systems has large steps.
    while crate::localfs::sys::coarse_now() <= before.ctime {
        std::thread::yield_now();
    }
    let set = SetAttributes {
        uid: Some(before.uid),
        gid: Some(before.gid),
        ..SetAttributes::default()
    };
    export.set_as(&Identity::root(), f, set).unwrap();
    assert!(export.stat(f).unwrap().ctime > before.ctime);
}

#[test]
fn default_access_control_list_decides_the_rights_of_new_files() {
    for export in exports() {
        set_list(&export.path, "default", &list(7, (BOB, 7), 0, 0));
        let root = export.fs().root();
        let f = export.make_as(&alice(), root, "f", file(0o666)).unwrap();
        // The mask of the list, which is its group to those who know no lists; nothing for others.
        assert_eq!(export.stat(f).unwrap().mode, 0o660);
        assert_eq!(export.write_as(&bob(), f, Stability::Unstable), Ok(4));
        let carol = Identity::new(1003, 1003);
        assert_eq!(export.read_as(&carol, f), Err(Error::Access));
        let d = Make::Directory(SetAttributes::mode(0o777));
        let d = export.make_as(&alice(), root, "d", d).unwrap();
        assert_eq!(export.stat(d).unwrap().mode, 0o770);
        assert!(export.make_as(&bob(), d, "f", file(0o600)).is_ok());
    }
}

#[test]
fn umask_of_the_caller_counts_only_where_no_default_list_decides() {
    for export in exports() {
        let root = export.fs().root();
        let make = |name, mode, what: &dyn Fn(SetAttributes) -> Make| {
            let umask = 0o077;
            let set = SetAttributes {
                umask,
                ..SetAttributes::mode(mode)
            };
            let made = export.make_as(&alice(), root, name, what(set)).unwrap();
            export.stat(made).unwrap().mode
        };
        let file = |set| Make::File(CreateHow::Guarded(set));
        let exclusive = |set| Make::File(CreateHow::Exclusive([1; 8], set));
        assert_eq!(make("f", 0o666, &file), 0o600);
        assert_eq!(make("x", 0o666, &exclusive), 0o600);
        assert_eq!(make("d", 0o777, &Make::Directory), 0o700);
        set_list(&export.path, "default", &list(7, (BOB, 7), 0, 0));
        // As new_files_with_a_default_list have without a umask: the mask of the list, and nothing for others.
        assert_eq!(make("f2", 0o666, &file), 0o660);
        assert_eq!(make("x2", 0o666, &exclusive), 0o660);
        assert_eq!(make("d2", 0o777, &Make::Directory), 0o770);
        assert_eq!(make("f3", 0o600, &file), 0o600);
    }
}

/// Whoever creates it next is taken for its maker, and sets the group of it.
#[test]
fn exclusive_create_does_not_find_the_file_of_another_user() {
    for export in exports() {
        let root = export.fs().root();
        let set = SetAttributes::mode(0o2755);
        let make = |who: &Identity, set| {
            let how = CreateHow::Exclusive([1; 8], set);
            export.make_as(who, root, "f", Make::File(how))
        };
        let made = make(&alice(), set).unwrap();
        assert_eq!(make(&alice(), set), Ok(made));
        for other in [bob(), Identity::root()] {
            assert_eq!(make(&other, set), Err(Error::Exists));
        }
        // Root gives it away at once.
        export.remove_as(&alice(), root, "f").unwrap();
        let set = SetAttributes {
            uid: Some(BOB),
            ..set
        };
        let made = make(&Identity::root(), set).unwrap();
        assert_eq!(export.stat(made).unwrap().uid, BOB);
        assert_eq!(make(&Identity::root(), set), Ok(made));
    }
}

/// The umask of this process is nobody's wish; tests run with one.
#[test]
fn new_files_have_the_mode_that_was_asked_for() {
    for export in exports() {
        let root = export.fs().root();
        let make = |name, what: Make| {
            let made = export.make_as(&alice(), root, name, what).unwrap();
            let made = export.stat(made).unwrap();
            assert_eq!((made.uid, made.gid), (ALICE, 1001));
            made.mode
        };
        assert_eq!(make("f", file(0o666)), 0o666);
        assert_eq!(make("suid", file(0o4777)), 0o4777);
        let set = SetAttributes::mode(0o1777);
        assert_eq!(make("d", Make::Directory(set)), 0o1777);
        let set = SetAttributes::mode(0o622);
        let pipe = Make::Special(FileKind::Fifo, (0, 0), set);
        assert_eq!(make("p", pipe), 0o622);
    }
}

#[test]
fn entries_of_a_sticky_directory_are_their_owners_to_remove() {
    for export in exports() {
        fs::set_permissions(&export.path, PermissionsExt::from_mode(0o1777)).unwrap();
        let root = export.fs().root();
        export.make_as(&alice(), root, "f", file(0o666)).unwrap();
        export.make_as(&bob(), root, "g", file(0o666)).unwrap();
        let rename = |who: &Identity, from: &'static str, to: &'static str| {
            let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
            let renamed = export
                .fs()
                .rename(who, (root, name(from)), (root, name(to)));
            renamed.wait().result
        };
        assert_eq!(export.remove_as(&bob(), root, "f"), Err(Error::NotOwner));
        assert_eq!(rename(&bob(), "f", "x"), Err(Error::NotOwner));
        assert_eq!(rename(&bob(), "g", "f"), Err(Error::NotOwner));
        assert_eq!(rename(&alice(), "f", "x"), Ok(()));
        assert_eq!(export.remove_as(&bob(), root, "g"), Ok(()));
    }
}

#[test]
fn set_group_id_bit_is_left_to_members_of_the_group() {
    for export in exports() {
        let path = export.path.join("d");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, None, Some(77)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o2777)).unwrap();
        let d = export.find("d").unwrap();
        let member = Identity {
            groups: [5, 77].into_iter().collect(),
            ..alice()
        };
        let make = |who, name| {
            let made = export.make_as(who, d, name, file(0o2755)).unwrap();
            let made = export.stat(made).unwrap();
            (made.gid, made.mode)
        };
        assert_eq!(make(&member, "f"), (77, 0o2755));
        assert_eq!(make(&bob(), "g"), (77, 0o755));
        let g = export.find("d/g").unwrap();
        export
            .set_as(&bob(), g, SetAttributes::mode(0o2755))
            .unwrap();
        assert_eq!(export.stat(g).unwrap().mode, 0o755);
    }
}

/// RFC 1813 §4.4.
#[test]
fn owner_uses_a_file_whatever_its_mode_and_who_executes_it_reads_it() {
    for export in exports() {
        let root = export.fs().root();
        let f = export.make_as(&alice(), root, "f", file(0o600)).unwrap();
        export.write_as(&alice(), f, Stability::Unstable).unwrap();
        export
            .set_as(&alice(), f, SetAttributes::mode(0o011))
            .unwrap();
        assert_eq!(export.read_as(&alice(), f).unwrap(), b"data");
        assert_eq!(export.write_as(&alice(), f, Stability::FileSync), Ok(4));
        assert_eq!(export.set_as(&alice(), f, SetAttributes::size(4)), Ok(()));
        assert_eq!(export.access_as(&alice(), f), Access::empty());
        assert_eq!(export.read_as(&bob(), f).unwrap(), b"data");
        assert_eq!(export.access_as(&bob(), f), Access::EXECUTE);
        let written = export.write_as(&bob(), f, Stability::FileSync);
        assert_eq!(written, Err(Error::Access));
        // And not what only its owner may.
        let mode = SetAttributes::mode(0o666);
        assert_eq!(export.set_as(&bob(), f, mode), Err(Error::NotOwner));
    }
}

/// A program must not keep its owner's rights when somebody else changes it (RFC 1813 §3.3.2, §3.3.7).
#[test]
fn set_id_bits_are_cleared_when_another_user_changes_the_file() {
    for export in exports() {
        export.write("f", "program");
        let (f, path) = (export.find("f").unwrap(), export.path.join("f"));
        let check = |change: &dyn Fn()| {
            fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            change();
            assert_eq!(export.stat(f).unwrap().mode, 0o777);
        };
        for stability in [Stability::Unstable, Stability::FileSync] {
            check(&|| assert_eq!(export.write_as(&alice(), f, stability), Ok(4)));
        }
        for size in [4, 4000, 0] {
            let set = SetAttributes::size(size);
            check(&|| assert_eq!(export.set_as(&alice(), f, set), Ok(())));
        }
    }
}

/// A client that cuts a file off when it opens it sets size and one time with one call.
#[test]
fn users_who_may_write_a_file_may_set_one_of_its_times_to_now() {
    for export in exports() {
        export.write("f", "data");
        let (f, path) = (export.find("f").unwrap(), export.path.join("f"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o622)).unwrap();
        let set = SetAttributes {
            mtime: SetTime::Now,
            ..SetAttributes::size(0)
        };
        assert_eq!(export.set_as(&alice(), f, set), Ok(()));
        assert_eq!(export.stat(f).unwrap().size, 0);
        let then = SetAttributes {
            mtime: SetTime::To(Time::default()),
            ..SetAttributes::default()
        };
        assert_eq!(export.set_as(&alice(), f, then), Err(Error::NotOwner));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(export.set_as(&alice(), f, set), Err(Error::Access));
    }
}

/// Attributes that are set after the size would be refused when the data is gone.
#[test]
fn refused_changes_of_the_owner_do_not_cost_the_data() {
    for export in exports() {
        export.write("f", "data");
        let (f, path) = (export.find("f").unwrap(), export.path.join("f"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        for set in [
            SetAttributes {
                uid: Some(ALICE),
                ..SetAttributes::size(0)
            },
            SetAttributes {
                mode: Some(0o777),
                ..SetAttributes::size(0)
            },
        ] {
            assert_eq!(export.set_as(&alice(), f, set), Err(Error::NotOwner));
            assert_eq!(export.read(f).unwrap(), b"data");
        }
    }
}

/// Whom this thread is to the kernel.
fn identity_of_this_thread() -> Vec<String> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines = status.lines().filter(|line| {
        let names = ["Uid:", "Gid:", "Groups:", "Cap"];
        names.iter().any(|name| line.starts_with(name))
    });
    lines.map(str::to_owned).collect()
}

#[test]
fn call_that_panics_leaves_its_thread_as_it_was() {
    for export in exports() {
        let before = identity_of_this_thread();
        let layers = &export.fs().layers;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            layers.rights.as_caller(&alice(), || -> Result<(), Errno> {
                assert_ne!(identity_of_this_thread(), before);
                panic!("a call panics while it acts for its caller");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(identity_of_this_thread(), before);
    }
}

/// A caller who looks at the same file again costs no change of identity.
#[test]
fn rights_that_the_kernel_granted_are_remembered() {
    for export in exports() {
        export.write("f", "data");
        let (f, path) = (export.find("f").unwrap(), export.path.join("f"));
        set_list(&path, "access", &list(6, (ALICE, 4), 0, 0));
        let (local, who) = (export.fs(), alice());
        let node = local.layers.handles.node(f, Pace::Patient).unwrap();
        let old = |attributes: Attributes| Attributes {
            ctime: Time::default(),
            ..attributes
        };
        let attributes = old(local.layers.files.attributes(&node).unwrap());
        let may = |pace| local.layers.rights.may(&who, &node, &attributes, 4, pace);
        if !local.layers.volume.memory {
            assert!(matches!(may(Pace::Quick), Err(Stop::WouldBlock)));
        }
        assert!(may(Pace::Patient).unwrap());
        // In haste no disk is asked, and none was needed.
        assert!(may(Pace::Quick).unwrap());
        // What has just changed may change once more within the same step of the clock.
        let fresh = Attributes {
            ctime: sys::coarse_now(),
            ..attributes
        };
        let known = || node.rights.get(&who, fresh.ctime, 4);
        let asked = local
            .layers
            .rights
            .may(&who, &node, &fresh, 4, Pace::Patient);
        assert!(asked.unwrap());
        assert_eq!(known(), None);
    }
}

/// Root, for whom the rest is reserved, can still write when a user cannot.
#[test]
fn reserved_blocks_of_a_disk_are_not_for_users() {
    let Some(disk) = Disk::new() else {
        return eprintln!("no file system can be made and mounted here: skipped");
    };
    let export = Export::within(&disk.mounted);
    fs::set_permissions(&export.path, PermissionsExt::from_mode(0o777)).unwrap();
    let root = export.fs().root();
    let fill = |who: &Identity, name| {
        let f = export.make_as(who, root, name, file(0o600)).unwrap();
        let piece = Bytes::from(vec![1; 256 << 10]);
        for at in (0..64 << 20).step_by(piece.len()) {
            let data = Gather::from_elem(piece.clone(), 1);
            let done = export
                .fs()
                .write(who, f, at, data, Stability::Unstable)
                .wait();
            match done.result {
                Ok(_) => {}
                Err(error) => return (error, at),
            }
        }
        panic!("the disk has no end");
    };
    let (error, _) = fill(&alice(), "f");
    assert_eq!(error, Error::NoSpace);
    let left = export.fs().space(root).wait().result.unwrap();
    assert!(left.free > 4 << 20, "{left:?}");
    let (error, written) = fill(&Identity::root(), "g");
    assert_eq!(error, Error::NoSpace);
    assert!(written > 4 << 20, "{written}");
}

/// A file system of 32 MiB, of which half is reserved, in a file.
struct Disk {
    mounted: PathBuf,
    _dir: TempDir,
}

impl Disk {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (image, mounted) = (dir.path().join("image"), dir.path().join("mounted"));
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        fs::create_dir(&mounted).unwrap();
        let made = run(Command::new("mkfs.ext4")
            .args(["-q", "-m", "50"])
            .arg(&image));
        let mounts = made
            && run(Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &mounted]));
        mounts.then_some(Self { mounted, _dir: dir })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(&self.mounted));
    }
}

/// Whether it was run with success.
fn run(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// The same calls by two users, of whom one owns the file. Run by root the mode bits decide; run by
/// anybody else all is done as that user.
#[test]
fn callers_have_the_rights_of_their_mode_bits() {
    let export = Export::new();
    let (owner, other) = (Identity::new(1001, 1001), Identity::new(1002, 1002));
    fs::set_permissions(&export.path, fs::Permissions::from_mode(0o777)).unwrap();
    let root = export.fs().root();
    let f = export.make_as(&owner, root, "f", file(0o600)).unwrap();
    let attributes = export.stat(f).unwrap();
    let set = SetAttributes::mode(0o644);
    let by_other = export.fs().set_attributes(&other, f, set, None).wait();
    if LocalFs::acts_for_callers() {
        assert_eq!((attributes.uid, attributes.gid), (1001, 1001));
        assert_eq!(export.read_as(&owner, f).unwrap(), b"");
        assert_eq!(export.read_as(&other, f), Err(Error::Access));
        assert_eq!(by_other.result, Err(Error::NotOwner));
        let d = Make::Directory(SetAttributes::mode(0o755));
        let d = export.make_as(&owner, root, "d", d).unwrap();
        assert_eq!(
            export.make_as(&other, d, "x", file(0o600)),
            Err(Error::Access)
        );
        assert_eq!(export.find_as(&other, "d/none"), Err(Error::NotFound));
        export
            .fs()
            .set_attributes(&owner, d, SetAttributes::mode(0o700), None)
            .wait()
            .result
            .unwrap();
        assert_eq!(export.find_as(&other, "d/none"), Err(Error::Access));
        let wanted = Access::all();
        let access = |who| export.fs().access(who, d, wanted).wait().result.unwrap();
        assert_eq!(access(&other), Access::empty());
        assert_eq!(access(&owner), wanted - Access::EXECUTE);
    } else {
        assert_eq!(attributes.uid, rustix::process::geteuid().as_raw());
        assert_eq!(export.read_as(&other, f).unwrap(), b"");
        assert_eq!(by_other.result, Ok(()));
    }
}

#[test]
fn set_group_id_directories_pass_on_their_group() {
    let export = Export::new();
    let dir = Make::Directory(SetAttributes::mode(0o2777));
    let who = Identity::root();
    let d = export.make_as(&who, export.fs().root(), "d", dir).unwrap();
    let gid = export.stat(d).unwrap().gid;
    let user = Identity::new(1001, 1001);
    let sub = Make::Directory(SetAttributes::mode(0o755));
    let sub = export.make_as(&user, d, "sub", sub).unwrap();
    let f = export.make_as(&user, d, "f", file(0o644)).unwrap();
    let (sub, f) = (export.stat(sub).unwrap(), export.stat(f).unwrap());
    assert_eq!((sub.gid, sub.mode), (gid, 0o2755));
    assert_eq!((f.gid, f.mode), (gid, 0o644));
}

#[test]
fn file_made_read_only_can_be_written_by_its_owner() {
    let mut export = Export::new();
    let root = export.fs().root();
    fs::set_permissions(&export.path, fs::Permissions::from_mode(0o777)).unwrap();
    let who = Identity::new(1001, 1001);
    let f = export.make_as(&who, root, "f", file(0o444)).unwrap();
    let write = |export: &Export, data: &'static [u8]| {
        let data = Gather::from_elem(Bytes::from_static(data), 1);
        let done = export
            .fs()
            .write(&who, f, 0, data, Stability::FileSync)
            .wait();
        done.result.map(|written| written.count)
    };
    assert_eq!(write(&export, b"first"), Ok(5));
    assert_eq!(write(&export, b"again"), Ok(5));
    export.restart();
    // Without the rights of root it is not opened again.
    let (result, content) = match LocalFs::acts_for_callers() {
        true => (Ok(5), b"other"),
        false => (Err(Error::Access), b"again"),
    };
    assert_eq!(write(&export, b"other"), result);
    assert_eq!(export.stat(f).unwrap().mode, 0o444);
    assert_eq!(export.read(f).unwrap(), content);
}

#[test]
fn directory_that_this_user_may_not_enter_is_refused_for_that_reason() {
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
    let nobody = acts().then(|| {
        let nobody = syscalls::FsUser {
            uid: BOB,
            gid: BOB,
            groups: &[],
        };
        syscalls::ActingAs::enter(nobody).unwrap()
    });
    let error = LocalFs::open(&closed, LocalFsOptions::default());
    drop(nobody);
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("ermission denied") && !error.contains("openat2"),
        "{error}"
    );
}
