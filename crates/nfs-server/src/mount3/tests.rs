//! Tests of the MOUNT program by calls and replies.

use super::*;
use crate::fs::{Make, SetAttributes};
use crate::{AccessList, ExportOptions, HandleKey, LocalFs, LocalFsOptions, MemFs};
use buffer::Buffer;
use nfs_proto::Arguments;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Credential, Procedure, Programs, RpcError, Service, read_reply, write_call};

const LOOPBACK: &str = "127.0.0.1:700";

fn exports() -> Exports {
    let fs = MemFs::new(1 << 20);
    let (who, root) = (Identity::root(), fs.root());
    let name = Name::new(b"dir").unwrap();
    let dir = Make::Directory(SetAttributes::mode(0o755));
    fs.make(&who, root, name, dir).wait().result.unwrap();
    let name = Name::new(b"link").unwrap();
    let link = Make::Symlink("dir".into(), SetAttributes::default());
    fs.make(&who, root, name, link).wait().result.unwrap();
    let far =
        ExportOptions::default().with_allow(AccessList::new(["192.0.2.0/24".parse().unwrap()]));
    Exports::new(HandleKey::random().unwrap())
        .with("/data", Arc::new(fs), ExportOptions::default())
        .and_then(|exports| exports.with("/far", Arc::new(MemFs::new(1 << 20)), far))
        .unwrap()
}

fn send<'a, A: Arguments<'a>>(programs: &Programs, from: &str, args: &A) -> Answer {
    let mut w = Writer::new(Buffer::with_capacity(4096));
    let target = Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    write_call(&mut w, 7, target, &Credential::None);
    args.write(&mut w);
    programs.call(w.finish(), &Caller::new(from.parse().unwrap()))
}

fn exchange<'a, A: Arguments<'a>>(programs: &Programs, from: &str, args: &A) -> Payload {
    let reply = match send(programs, from, args) {
        Answer::Now(reply) => reply,
        Answer::Blocking(job) => job(),
        Answer::Deferred(_) | Answer::Later(_) => panic!("nothing here comes later"),
    };
    match reply {
        Reply::Message(payload) => payload,
        other => panic!("{} drew {other:?}", A::NAME),
    }
}

fn mount_from(programs: &Programs, from: &str, path: &str) -> Result<Mounted, MountStatus> {
    let path = DirPath::new(path.as_bytes()).unwrap();
    let payload = exchange(programs, from, &Mount { path });
    let mut r = read_reply(&payload, 7).unwrap();
    let mounted = Result::<Mounted, MountStatus>::parse(&mut r).unwrap();
    r.finish().unwrap();
    mounted
}

fn mounts(programs: &Programs) -> Vec<(String, String)> {
    let payload = exchange(programs, LOOPBACK, &Dump);
    let mut r = read_reply(&payload, 7).unwrap();
    let list = MountList::parse(&mut r).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    list.0
        .iter()
        .map(|entry| (text(entry.host.get()), text(entry.path.get())))
        .collect()
}

#[test]
fn exported_paths_can_be_mounted_and_others_are_refused_with_a_status() {
    let exports = exports();
    let programs = Programs::new().with(Mount3::new(exports.clone()));
    let check = |path: &str, status| {
        assert_eq!(mount_from(&programs, LOOPBACK, path), Err(status), "{path}");
    };
    let root = mount_from(&programs, LOOPBACK, "/data").unwrap();
    assert_eq!(root.flavors, [AUTH_SYS, AUTH_NONE]);
    let caller = Caller::new(LOOPBACK.parse().unwrap());
    let opened = exports
        .open(&root.handle, &caller, &Default::default())
        .ok()
        .unwrap();
    assert_eq!(opened.file, opened.export.fs.root());
    let below = mount_from(&programs, LOOPBACK, "/data/dir/").unwrap();
    assert_ne!(below.handle, root.handle);
    check("/", MountStatus::NoEntry);
    check("/none", MountStatus::NoEntry);
    check("/data/none", MountStatus::NoEntry);
    check("/data/link", MountStatus::NotDirectory);
    check("/data/../far", MountStatus::Invalid);
    check("/far", MountStatus::Access);
    assert!(mount_from(&programs, "192.0.2.9:1", "/far").is_ok());
    let mapped = "[::ffff:192.0.2.9]:1";
    assert!(mount_from(&programs, mapped, "/far").is_ok());
}

/// As paths of POSIX: one slash is as good as several.
#[test]
fn slashes_of_a_path_may_be_repeated() {
    let programs = Programs::new().with(Mount3::new(exports()));
    let handle = |path: &str| mount_from(&programs, LOOPBACK, path).map(|mounted| mounted.handle);
    for path in ["//data", "///data//", "/data///"] {
        assert_eq!(handle(path), handle("/data"), "{path}");
    }
    assert_eq!(handle("//data//dir"), handle("/data/dir"));
    assert_eq!(
        handle("//"),
        Err(MountStatus::NoEntry),
        "there are two exports"
    );
    assert_eq!(handle("//none"), Err(MountStatus::NoEntry));
}

/// A directory that is removed and made again is the one that the next client gets.
#[test]
fn mount_of_a_directory_that_was_made_again_works() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export");
    std::fs::create_dir(&path).unwrap();
    let local = LocalFs::open(&path, LocalFsOptions::default()).unwrap();
    let exports = Exports::new(HandleKey::random().unwrap());
    let exports = exports.with("/data", Arc::new(local), ExportOptions::default());
    let exports = exports.unwrap();
    let programs = Programs::new().with(Mount3::new(exports.clone()));
    mount_from(&programs, LOOPBACK, "/data").unwrap();
    std::fs::remove_dir(&path).unwrap();
    let refused = mount_from(&programs, LOOPBACK, "/data");
    assert_eq!(refused, Err(MountStatus::NoEntry));
    std::fs::create_dir_all(path.join("below")).unwrap();
    let caller = Caller::new(LOOPBACK.parse().unwrap());
    for path in ["/data", "/data/below"] {
        let mounted = mount_from(&programs, LOOPBACK, path).unwrap();
        let opened = exports
            .open(&mounted.handle, &caller, &Default::default())
            .ok()
            .unwrap();
        let attributes = opened.export.fs.attributes(opened.file).wait();
        assert!(attributes.is_ok(), "{path}");
    }
}

#[test]
fn mounts_are_listed_until_unmounted() {
    let programs = Programs::new().with(Mount3::new(exports()));
    for path in ["/data", "/data/dir", "/data"] {
        mount_from(&programs, LOOPBACK, path).unwrap();
    }
    let entry = |path: &str| ("127.0.0.1".to_string(), path.to_string());
    assert_eq!(mounts(&programs), [entry("/data/dir"), entry("/data")]);
    let path = DirPath::new(b"/data").unwrap();
    exchange(&programs, "127.0.0.2:1", &Unmount { path });
    assert_eq!(mounts(&programs).len(), 2, "it is another's");
    exchange(&programs, LOOPBACK, &Unmount { path });
    assert_eq!(mounts(&programs), [entry("/data/dir")]);
    exchange(&programs, LOOPBACK, &UnmountAll);
    assert!(mounts(&programs).is_empty());
}

#[test]
fn list_of_mounts_is_bounded() {
    let programs = Programs::new().with(Mount3::new(exports()));
    for n in 0..MAX_MOUNTS + 10 {
        let from = format!("127.0.{}.{}:1", n / 250, n % 250);
        mount_from(&programs, &from, "/data").unwrap();
    }
    assert_eq!(mounts(&programs).len(), MAX_MOUNTS);
}

#[test]
fn number_of_paths_looked_for_at_a_time_is_bounded() {
    let programs = Programs::new().with(Mount3::new(exports()));
    let path = DirPath::new(b"/data/dir").unwrap();
    let in_flight: Vec<Answer> = (0..MAX_IN_FLIGHT / 2)
        .map(|_| send(&programs, LOOPBACK, &Mount { path }))
        .collect();
    let refused = Err(MountStatus::ServerFault);
    assert_eq!(mount_from(&programs, LOOPBACK, "/data/dir"), refused);
    assert!(mount_from(&programs, LOOPBACK, "/data").is_ok());
    drop(in_flight);
    assert!(mount_from(&programs, LOOPBACK, "/data/dir").is_ok());
}

#[test]
fn exports_are_listed_with_who_may_mount_them() {
    let programs = Programs::new().with(Mount3::new(exports()));
    let payload = exchange(&programs, LOOPBACK, &mount::Export);
    let mut r = read_reply(&payload, 7).unwrap();
    let list = ExportList::parse(&mut r).unwrap();
    r.finish().unwrap();
    let listed: Vec<_> = list
        .0
        .iter()
        .map(|export| {
            let groups = export.groups.0.iter().map(|group| group.get().to_vec());
            (export.path.get(), groups.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(listed[0].0, b"/data");
    assert_eq!(listed[0].1, [b"127.0.0.0/8".to_vec(), b"::1/128".to_vec()]);
    assert_eq!(listed[1].1, [b"192.0.2.0/24".to_vec()]);
}

#[test]
fn garbage_and_unknown_procedures_are_told_apart() {
    let programs = Programs::new().with(Mount3::new(exports()));
    let check = |proc, error| {
        let mut w = Writer::default();
        let target = Procedure {
            prog: MOUNT_PROGRAM,
            vers: MOUNT_V3,
            proc,
        };
        write_call(&mut w, 7, target, &Credential::None);
        w.u32(u32::MAX);
        let caller = Caller::new(LOOPBACK.parse().unwrap());
        let Answer::Now(Reply::Message(payload)) = programs.call(w.finish(), &caller) else {
            panic!("no reply at once")
        };
        assert_eq!(
            read_reply(&payload, 7).err(),
            Some(error),
            "procedure {proc}"
        );
    };
    for proc in 0..=5 {
        check(proc, RpcError::GarbageArgs);
    }
    check(6, RpcError::ProcUnavail);
}

#[test]
fn calls_are_counted_by_procedure_and_kind_of_failure() {
    let mount = Mount3::new(exports());
    let programs = Programs::new().with(mount.clone());
    mount_from(&programs, LOOPBACK, "/data").unwrap();
    // Answered by a job.
    mount_from(&programs, LOOPBACK, "/data/dir").unwrap();
    for path in ["/none", "/data/none", "/far"] {
        mount_from(&programs, LOOPBACK, path).unwrap_err();
    }
    exchange(&programs, LOOPBACK, &Dump);
    exchange(&programs, LOOPBACK, &mount::Export);
    let stats = mount.stats();
    assert_eq!(stats.program, "mount");
    let counted: Vec<_> = stats
        .procedures
        .iter()
        .map(|procedure| (procedure.name, procedure.calls, procedure.failed()))
        .collect();
    let expected = [
        ("NULL", 0, 0),
        ("MNT", 5, 3),
        ("DUMP", 1, 0),
        ("UMNT", 0, 0),
        ("UMNTALL", 0, 0),
        ("EXPORT", 1, 0),
    ];
    assert_eq!(counted, expected);
    let errors = stats.procedures[1].errors;
    let count = |class| errors.iter().find(|(of, _)| *of == class).unwrap().1;
    assert_eq!(
        (count(ErrorClass::NotFound), count(ErrorClass::Denied)),
        (2, 1)
    );
}
