//! Directories, links, trees and mounts.

mod fake;

use fake::{Carry, Direct, Faults, Server, bytes, export};
use nfs_client::{Fault, Mount, current_user};
use nfs_proto::mount::MountStatus;
use nfs_proto::{FileType, SetAttributes, Status};
use oncrpc::Chain;
use oncrpc::xdr::Gather;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const NONE: SetAttributes = SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: nfs_proto::SetTime::DontChange,
    mtime: nfs_proto::SetTime::DontChange,
};

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..NONE
    }
}

/// Servers that list directories each in its own way.
fn listings() -> Vec<Faults> {
    vec![
        Faults::default(),
        Faults {
            no_plus: true,
            ..Faults::default()
        },
        Faults {
            sparse: true,
            ..Faults::default()
        },
        Faults {
            page: Some(3),
            ..Faults::default()
        },
        Faults {
            page: Some(1),
            no_plus: true,
            ..Faults::default()
        },
        Faults {
            too_small: 200_000,
            ..Faults::default()
        },
    ]
}

#[tokio::test]
async fn every_entry_is_listed_once_however_the_server_lists() {
    for faults in listings() {
        let (_, export) = export(faults.clone(), Carry::Apart).await;
        let mut names = BTreeSet::new();
        for number in 0..100 {
            let name = format!("{:0width$}", number, width = 1 + number % 50);
            export.write_all(&name, Vec::new(), NONE).await.unwrap();
            names.insert(name.into_bytes());
        }
        let listed: Vec<_> = export.entries("/").await.unwrap();
        assert_eq!(listed.len(), names.len(), "{faults:?}");
        assert_eq!(
            listed
                .into_iter()
                .map(|entry| entry.name)
                .collect::<BTreeSet<_>>(),
            names
        );
    }
}

#[tokio::test]
async fn huge_directory_is_listed_and_removed_page_by_page() {
    let (_, export) = export(Faults::default(), Carry::Inline).await;
    export.make_dir("/huge", NONE).await.unwrap();
    for number in 0..10_000 {
        let name = format!("/huge/{number:05}-{}", "x".repeat(number % 200));
        export.symlink("target", name).await.unwrap();
    }
    let mut directory = export.list("/huge").await.unwrap();
    let (mut pages, mut entries) = (0, 0);
    loop {
        let page = directory.next_page().await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.iter().all(|entry| entry.attributes.is_some()));
        pages += 1;
        entries += page.len();
    }
    assert_eq!(entries, 10_000);
    assert!(pages > 20, "a page is a fraction of the directory: {pages}");
    export.remove_all("/huge", unexpected).await.unwrap();
    assert!(export.entries("/").await.unwrap().is_empty());
}

#[tokio::test]
async fn directory_listing_without_progress_is_an_error() {
    let (_, export) = export(
        Faults {
            stuck: true,
            ..Faults::default()
        },
        Carry::Apart,
    )
    .await;
    let error = export.entries("/").await.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
}

#[tokio::test]
async fn directory_listing_that_goes_in_a_circle_is_an_error() {
    let faults = Faults {
        circles: true,
        page: Some(1),
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    let error = export.entries("/").await.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
    for name in 0..7 {
        export.make_dir(format!("{name}"), NONE).await.unwrap();
    }
    let error = export.entries("/").await.unwrap_err();
    assert!(matches!(error.fault, Fault::Nonsense(_)), "{error}");
}

#[tokio::test]
async fn tree_is_walked_and_removed_however_the_server_lists() {
    for faults in listings() {
        let (_, export) = export(faults, Carry::Apart).await;
        export.make_dirs("/top/a/b/c", mode(0o750)).await.unwrap();
        export.make_dirs("/top/a/b", mode(0o750)).await.unwrap();
        let mut paths = BTreeSet::from(["/top/a", "/top/a/b", "/top/a/b/c"].map(String::from));
        for (number, dir) in ["/top", "/top/a", "/top/a/b", "/top/a/b/c"]
            .iter()
            .enumerate()
        {
            for file in 0..number * 4 {
                let path = format!("{dir}/file{file}");
                export.write_all(&path, bytes(file, 1), NONE).await.unwrap();
                paths.insert(path);
            }
        }
        export.symlink("..", "/top/a/up").await.unwrap();
        paths.insert("/top/a/up".into());
        export.write_all("/kept", Vec::new(), NONE).await.unwrap();

        let mut walk = export.walk("/top").await.unwrap();
        let mut walked = BTreeSet::new();
        while let Some(found) = walk.next().await.unwrap() {
            assert!(
                walked.insert(String::from_utf8(found.path).unwrap()),
                "once"
            );
        }
        assert_eq!(walked, paths);

        export.remove_all("/top", unexpected).await.unwrap();
        let left: Vec<_> = export.entries("/").await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].name, b"kept");
    }
}

#[tokio::test]
async fn entries_that_cannot_be_removed_are_reported_and_the_rest_is_removed() {
    for faults in listings() {
        let faults = Faults {
            protected: Some(b"keep"),
            ..faults
        };
        let (_, export) = export(faults, Carry::Apart).await;
        export.make_dirs("/top/a/b/empty", NONE).await.unwrap();
        export.make_dirs("/top/keep-empty", NONE).await.unwrap();
        for dir in ["/top", "/top/a", "/top/a/b"] {
            for file in ["1", "keep", "keep-too", "z"] {
                let path = format!("{dir}/{file}");
                export.symlink("target", path).await.unwrap();
            }
        }
        let mut failed = BTreeSet::new();
        let keep = |error: nfs_client::Error| {
            assert_eq!(error.status(), Some(Status::Access), "{error}");
            let path = String::from_utf8(error.path).unwrap();
            assert!(failed.insert(path), "each is told once");
        };
        export.remove_all("/top", keep).await.unwrap();
        let expected = [
            "/top/a/b/keep",
            "/top/a/b/keep-too",
            "/top/a/keep",
            "/top/a/keep-too",
            "/top/keep",
            "/top/keep-empty",
            "/top/keep-too",
        ];
        assert_eq!(failed, expected.map(String::from).into());
        let mut walk = export.walk("/top").await.unwrap();
        let mut left = failed;
        left.extend(["/top/a", "/top/a/b"].map(String::from));
        while let Some(found) = walk.next().await.unwrap() {
            assert!(left.remove(&String::from_utf8(found.path).unwrap()));
        }
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn removal_gives_up_after_too_many_failures() {
    let faults = Faults {
        protected: Some(b"keep"),
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Inline).await;
    export.make_dir("/top", NONE).await.unwrap();
    for number in 0..1500 {
        let path = format!("/top/keep{number}");
        export.symlink("target", path).await.unwrap();
    }
    let mut failed = Vec::new();
    let keep = |error: nfs_client::Error| failed.push(error.fault);
    export.remove_all("/top", keep).await.unwrap();
    assert_eq!(failed.last(), Some(&Fault::TooManyLeft(1000)));
    assert!(failed.len() < 1100, "{}", failed.len());
}

#[tokio::test]
async fn directory_that_is_skipped_is_not_walked() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export.make_dirs("/a/b", NONE).await.unwrap();
    export.make_dirs("/c", NONE).await.unwrap();
    let mut walk = export.walk("/").await.unwrap();
    let mut paths = Vec::new();
    while let Some(found) = walk.next().await.unwrap() {
        if found.path == b"/a" {
            walk.skip();
        }
        paths.push(found.path);
    }
    assert_eq!(paths, [b"/a", b"/c"]);
}

#[tokio::test]
async fn symbolic_links_are_followed_within_the_export() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export.make_dirs("/dir/sub", NONE).await.unwrap();
    export
        .write_all("/dir/file", b"data".to_vec(), NONE)
        .await
        .unwrap();
    export
        .symlink("../file", "/dir/sub/relative")
        .await
        .unwrap();
    export.symlink("/dir", "/dir/sub/absolute").await.unwrap();
    export
        .symlink("../../../../dir/./file", "/out")
        .await
        .unwrap();
    for path in [
        "/dir/sub/relative",
        "/dir/sub/absolute/file",
        "out",
        "/dir/sub/../file",
        "dir//file",
    ] {
        assert_eq!(export.read_all(path, 10).await.unwrap(), b"data", "{path}");
    }
    assert_eq!(
        export.lstat("/out").await.unwrap().attributes.file_type,
        FileType::Symlink
    );
    assert_eq!(
        export.stat("/out").await.unwrap().attributes.file_type,
        FileType::Regular
    );
    assert_eq!(
        export.read_link("/out").await.unwrap(),
        b"../../../../dir/./file"
    );
}

#[tokio::test]
async fn symbolic_links_in_a_circle_are_given_up() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export.symlink("b", "/a").await.unwrap();
    export.symlink("a", "/b").await.unwrap();
    assert_eq!(
        export.stat("/a").await.unwrap_err().fault,
        Fault::TooManySymlinks
    );
}

#[tokio::test]
async fn upload_replaces_only_when_it_is_whole() {
    for faults in [
        Faults::default(),
        Faults {
            sparse: true,
            ..Faults::default()
        },
    ] {
        let (server, export) = export(faults, Carry::Apart).await;
        export
            .write_all("/file", b"old".to_vec(), mode(0o600))
            .await
            .unwrap();
        let mut upload = export.upload("/file", mode(0o640)).await.unwrap();
        upload
            .write(std::iter::once("new data".into()).collect())
            .await
            .unwrap();
        assert_eq!(server.disk.lock().unwrap().read("/file"), b"old");
        assert_eq!(export.entries("/").await.unwrap().len(), 2);
        upload.finish().await.unwrap();
        assert_eq!(server.disk.lock().unwrap().read("/file"), b"new data");
        assert_eq!(export.stat("/file").await.unwrap().attributes.mode, 0o640);
        assert_eq!(export.entries("/").await.unwrap().len(), 1);

        let upload = export.upload("/file", NONE).await.unwrap();
        upload.abandon().await.unwrap();
        assert_eq!(export.entries("/").await.unwrap().len(), 1);
        assert_eq!(server.disk.lock().unwrap().read("/file"), b"new data");
    }
}

#[tokio::test]
async fn upload_is_named_though_the_call_that_names_it_is_executed_twice() {
    for sparse in [false, true] {
        let faults = Faults {
            renames_twice: true,
            sparse,
            ..Faults::default()
        };
        let (server, export) = export(faults, Carry::Apart).await;
        let new = b"new".to_vec();
        export.write_all("/file", new, mode(0o640)).await.unwrap();
        assert_eq!(server.disk.lock().unwrap().read("/file"), b"new");
        assert_eq!(export.entries("/").await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn new_upload_is_named_by_rename_though_that_is_executed_twice() {
    let faults = Faults {
        renames_twice: true,
        no_links: true,
        ..Faults::default()
    };
    let (server, export) = export(faults, Carry::Apart).await;
    let mut upload = export.upload("/file", NONE).await.unwrap();
    let data = Gather::from_elem(b"new".to_vec().into(), 1);
    upload.write(data).await.unwrap();
    upload.complete_new().await.unwrap();
    assert_eq!(server.disk.lock().unwrap().read("/file"), b"new");
    assert_eq!(export.entries("/").await.unwrap().len(), 1);
}

#[tokio::test]
async fn rename_and_symlink_that_are_executed_twice_are_no_failures() {
    for sparse in [false, true] {
        let faults = Faults {
            renames_twice: true,
            symlinks_twice: true,
            sparse,
            ..Faults::default()
        };
        let (_, export) = export(faults, Carry::Apart).await;
        export.nfs().transport().breaks.store(true, Relaxed);
        export.symlink("text", "/link").await.unwrap();
        assert_eq!(export.read_link("/link").await.unwrap(), b"text");
        export.rename("/link", "/other").await.unwrap();
        assert_eq!(export.entries("/").await.unwrap().len(), 1);
        // What was there before is another's.
        let taken = export.symlink("text", "/other").await.unwrap_err();
        assert_eq!(taken.status(), Some(Status::Exist));
        let gone = export.rename("/link", "/other").await.unwrap_err();
        assert_eq!(gone.status(), Some(Status::NoEntry));
        assert_eq!(export.read_link("/other").await.unwrap(), b"text");
    }
}

#[tokio::test]
async fn rename_and_symlink_of_another_client_are_not_taken_for_ours() {
    // What another client does between the lookup and the call looks as if the call came twice.
    let faults = Faults {
        renames_twice: true,
        symlinks_twice: true,
        ..Faults::default()
    };
    let (_, export) = export(faults, Carry::Apart).await;
    let taken = export.symlink("text", "/link").await.unwrap_err();
    assert_eq!(taken.status(), Some(Status::Exist));
    let gone = export.rename("/link", "/other").await.unwrap_err();
    assert_eq!(gone.status(), Some(Status::NoEntry));
}

#[tokio::test]
async fn upload_leaves_nothing_behind_though_the_call_that_creates_is_executed_twice() {
    let faults = Faults {
        creates_twice: 1,
        ..Faults::default()
    };
    let (server, export) = export(faults, Carry::Apart).await;
    let new = b"new".to_vec();
    export.write_all("/file", new, mode(0o640)).await.unwrap();
    assert_eq!(server.disk.lock().unwrap().read("/file"), b"new");
    assert_eq!(export.entries("/").await.unwrap().len(), 1);
}

#[tokio::test]
async fn directory_is_made_by_its_handle_unless_there_is_one() {
    for sparse in [false, true] {
        let faults = Faults {
            sparse,
            ..Faults::default()
        };
        let (_, export) = export(faults, Carry::Apart).await;
        let root = export.root().handle;
        let made = export.make_dir_in(root, "d", NONE).await.unwrap();
        assert_eq!(made, export.stat("/d").await.unwrap().handle);
        assert_eq!(export.make_dir_in(root, "d", NONE).await, Ok(made));
        export.symlink("d", "/link").await.unwrap();
        assert_eq!(export.make_dir_in(root, "link", NONE).await, Ok(made));
        let below = export.make_dir_in(made, "d/e", NONE).await.unwrap();
        assert_eq!(below, export.stat("/d/e").await.unwrap().handle);
        assert_eq!(export.parent("/d/e").await, Ok(made));
        export.write_all("/f", Vec::new(), NONE).await.unwrap();
        let error = export.make_dir_in(root, "f", NONE).await.unwrap_err();
        assert_eq!(error.status(), Some(Status::Exist));
    }
}

#[tokio::test]
async fn upload_that_is_removed_meanwhile_is_not_mistaken_for_the_old_file() {
    let (server, export) = export(Faults::default(), Carry::Apart).await;
    let old = b"old".to_vec();
    export.write_all("/file", old, NONE).await.unwrap();
    let upload = export.upload("/file", NONE).await.unwrap();
    let temporary = upload.temporary_name().to_vec();
    let path = [&b"/"[..], &temporary].concat();
    export.remove(path).await.unwrap();
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.status(), Some(Status::NoEntry));
    assert_eq!(server.disk.lock().unwrap().read("/file"), b"old");
}

#[tokio::test]
async fn names_are_made_linked_renamed_and_removed() {
    let (_, export) = export(Faults::default(), Carry::Inline).await;
    export.write_all("/a", b"x".to_vec(), NONE).await.unwrap();
    export.link("/a", "/b").await.unwrap();
    assert_eq!(export.stat("/b").await.unwrap().attributes.links, 2);
    export.rename("/b", "/c").await.unwrap();
    export
        .set_attributes(
            "/c",
            SetAttributes {
                size: Some(3),
                ..mode(0o604)
            },
        )
        .await
        .unwrap();
    let attributes = export.stat("/a").await.unwrap().attributes;
    assert_eq!((attributes.size, attributes.mode), (3, 0o604));
    export.remove("/a").await.unwrap();
    assert_eq!(export.read_all("/c", 3).await.unwrap(), b"x\0\0");
    assert_eq!(export.fs_stat("/").await.unwrap().total_bytes, 1000);
    assert_eq!(export.path_conf("/").await.unwrap().name_max, 255);
    export.make_dir("/d", NONE).await.unwrap();
    export.remove_dir("/d").await.unwrap();
}

#[tokio::test]
async fn errors_name_what_they_are_about() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    export.make_dirs("/dir/sub", NONE).await.unwrap();
    let cases = [
        (
            export.stat("/no/such").await.unwrap_err(),
            "cannot find /no/such: no such file",
            Some(Status::NoEntry),
        ),
        (
            export.read("/dir").await.err().unwrap(),
            "cannot read /dir: is a directory",
            Some(Status::IsDirectory),
        ),
        (
            export.remove_dir("/dir").await.unwrap_err(),
            "cannot remove /dir: directory not empty",
            Some(Status::NotEmpty),
        ),
        (
            export.remove_all("/", unexpected).await.unwrap_err(),
            "cannot remove /: this is not the name",
            None,
        ),
        (
            export.make_dir("/dir", NONE).await.unwrap_err(),
            "cannot make directory /dir: file exists",
            Some(Status::Exist),
        ),
        (
            export.make_dir("x".repeat(256), NONE).await.unwrap_err(),
            "name too long",
            Some(Status::NameTooLong),
        ),
    ];
    for (error, text, status) in cases {
        let shown = Chain(&error).to_string();
        assert!(shown.contains(text), "{shown}");
        assert_eq!(error.status(), status);
    }
}

fn mount(faults: Faults) -> Mount<Direct> {
    let server = Arc::new(Server::new(faults));
    Mount::new(Direct::new(server, Carry::Apart), current_user())
}

#[tokio::test]
async fn path_is_mounted_by_the_longest_export_above_it() {
    for faults in [
        Faults::default(),
        Faults {
            hides_exports: true,
            ..Faults::default()
        },
    ] {
        let mount = mount(faults);
        for (path, rest) in [
            ("/srv/data/dir/file", "dir/file"),
            ("//srv/data/", ""),
            ("/srv/other", "other"),
        ] {
            let (_, left) = mount.mount_above(path).await.unwrap();
            assert_eq!(left, rest.as_bytes(), "{path}");
        }
        let error = mount.mount_above("/secret").await.unwrap_err();
        assert_eq!(error.fault, Fault::Mount(MountStatus::Access));
        let error = mount.mount_above("/elsewhere/file").await.unwrap_err();
        assert_eq!(error.fault, Fault::Mount(MountStatus::NoEntry));
    }
}

#[tokio::test]
async fn exports_are_listed_with_who_may_mount_them() {
    let exports = mount(Faults::default()).exports().await.unwrap();
    assert_eq!(exports.len(), 3);
    assert_eq!(exports[1].path, b"/srv/data");
    assert_eq!(exports[1].groups, [b"10.0.0.0/8"]);
}

#[tokio::test]
async fn upload_has_the_permissions_asked_for_in_the_end() {
    let (_, export) = export(Faults::default(), Carry::Apart).await;
    for (asked, given) in [(NONE, 0o644), (mode(0o444), 0o444), (mode(0o751), 0o751)] {
        export.write_all("/file", Vec::new(), asked).await.unwrap();
        assert_eq!(export.stat("/file").await.unwrap().attributes.mode, given);
    }
}

/// Takes what cannot be removed where everything can.
fn unexpected(error: nfs_client::Error) {
    panic!("{error}");
}
