//! Copies to and from a server of files in memory, which can do what file systems of this machine do not: take names for
//! one, and refuse calls.

use crate::copies::{fifo, mode, set_times};
use crate::running::{fails, ok, run, text};
use nfs_proto::results::Res;
use nfs_proto::{
    AclProcedure, Attributes, Failed, NFSACL_PROGRAM, NFSACL_V3, Procedure, Status, WccData, Wire,
};
use nfs_server::{ExportOptions, Exports, FileSystem, HandleKey, MemFs, Mount3, Nfs3, Squash};
use oncrpc::xdr::Reader;
use oncrpc::{Answer, Call, Caller, Program, Programs, ReplyBound};
use rpcrdma::{Iwarp, Server, ServerConfig};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

/// NFS, of which some calls are refused.
struct Refusing<F> {
    nfs: Nfs3,
    /// The status of a call that is refused, by its procedure and its number among those.
    refuses: F,
    calls: [AtomicUsize; 22],
}

impl<F: Fn(Procedure, usize) -> Option<Status> + Send + Sync> Program for Refusing<F> {
    fn number(&self) -> u32 {
        self.nfs.number()
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.nfs.versions()
    }

    fn call(&self, call: Call) -> Answer {
        let Ok(procedure) = Procedure::try_from(call.proc) else {
            return self.nfs.call(call);
        };
        let number = &self.calls[usize::try_from(call.proc).unwrap()];
        let Some(status) = (self.refuses)(procedure, number.fetch_add(1, Relaxed)) else {
            return self.nfs.call(call);
        };
        let mut w = call.success(buffer::Buffer::default());
        match procedure {
            Procedure::SetAttr => {
                let res: Res<(), WccData> = Err(Failed::from(status));
                res.write(&mut w);
            }
            _ => {
                let res: Res<(), Option<Attributes>> = Err(Failed::from(status));
                res.write(&mut w);
            }
        }
        Answer::message(w.finish())
    }

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        self.nfs.reply_bound(procedure, args)
    }

    fn closed_in_order(&self, caller: &Caller) {
        self.nfs.closed_in_order(caller);
    }
}

/// NFSACL, of which each GETACL fails; the status is told for its number.
struct NoLists<F> {
    fails: F,
    calls: AtomicUsize,
}

impl<F: Fn(usize) -> Status + Send + Sync> Program for NoLists<F> {
    fn number(&self) -> u32 {
        NFSACL_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFSACL_V3..=NFSACL_V3
    }

    fn call(&self, call: Call) -> Answer {
        let status = (self.fails)(self.calls.fetch_add(1, Relaxed));
        let mut w = call.success(buffer::Buffer::default());
        let res: Res<(), Option<Attributes>> = Err(Failed::from(status));
        res.write(&mut w);
        Answer::message(w.finish())
    }

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        let procedure = AclProcedure::try_from(procedure.proc).ok()?;
        nfs_proto::acl_reply_bound(procedure, args)
    }
}

/// A server of these files where each GETACL fails with the status that is told for its number.
pub(crate) fn serve_without_lists(
    files: impl FileSystem + 'static,
    fails: impl Fn(usize) -> Status + Send + Sync + 'static,
) -> String {
    let calls = AtomicUsize::new(0);
    serve_programs(files, |nfs| {
        Programs::new().with(nfs).with(NoLists { fails, calls })
    })
}

/// A server of these files with some calls refused, and its URL. It ends with the process.
pub(crate) fn serve(
    files: impl FileSystem + 'static,
    refuses: impl Fn(Procedure, usize) -> Option<Status> + Send + Sync + 'static,
) -> String {
    serve_by(files, |nfs| Refusing {
        nfs,
        refuses,
        calls: Default::default(),
    })
}

/// A server of these files with another program in the place of NFS.
pub(crate) fn serve_by<P: Program + 'static>(
    files: impl FileSystem + 'static,
    program: impl FnOnce(Nfs3) -> P + Send + 'static,
) -> String {
    serve_programs(files, |nfs| Programs::new().with(program(nfs)))
}

/// A server of these files with these programs, and MOUNT.
fn serve_programs(
    files: impl FileSystem + 'static,
    programs: impl FnOnce(Nfs3) -> Programs + Send + 'static,
) -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let options = ExportOptions::default().with_squash(Squash::None);
            let exports = Exports::new(HandleKey::random().unwrap());
            let exports = exports.with("/", Arc::new(files), options).unwrap();
            let nfs = Nfs3::new(exports.clone(), buffer::Pool::new(1 << 20));
            let programs = programs(nfs).with(Mount3::new(exports));
            let anywhere = "127.0.0.1:0".parse().unwrap();
            let (provider, config) = (Arc::new(Iwarp::default()), ServerConfig::default());
            let server = Server::bind(provider, anywhere, Arc::new(programs), config);
            let server = server.await.unwrap();
            tell.send(format!("nfs://{}", server.local_addr())).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

pub(crate) fn files() -> MemFs {
    MemFs::new(64 << 20)
}

pub(crate) fn nothing(_: Procedure, _: usize) -> Option<Status> {
    None
}

/// A server that folds case, and does not say so.
pub(crate) fn folds_in_silence() -> String {
    serve(files().folding_case(), |procedure, _| {
        (procedure == Procedure::PathConf).then_some(Status::NotSupported)
    })
}

/// A directory with files of these names, which have their names for content.
pub(crate) fn with(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    dir
}

pub(crate) fn contents(dir: &Path) -> String {
    format!("{}/.", dir.to_str().unwrap())
}

fn path(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

pub(crate) fn names(url: &str) -> Vec<String> {
    let listed = text(&ok(&["ls", url]));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn names_that_the_server_says_it_folds_are_a_conflict_before_anything_is_copied() {
    let url = serve(files().folding_case(), nothing);
    let source = with(&["Makefile", "makefile", "other"]);
    let says = "the same name in another spelling";
    let root = format!("{url}/");
    fails(&["put", "-r", &contents(source.path()), &root], 1, says);
    let both = ["Makefile", "makefile"].map(|name| source.path().join(name));
    fails(&["put", path(&both[0]), path(&both[1]), &root], 1, says);
    assert!(names(&url).is_empty());
    let source = with(&["Dir/a", "dir/b"]);
    fails(&["put", "-r", &contents(source.path()), &root], 1, says);
    assert!(names(&url).is_empty());
}

#[test]
fn what_a_copy_has_made_is_not_replaced_by_it_where_the_server_folds_case_in_silence() {
    for options in [&["-r"][..], &["-rn"], &["-rp"]] {
        for there in [None, Some("MAKEFILE")] {
            let url = folds_in_silence();
            let root = format!("{url}/");
            if let Some(name) = there {
                ok(&["put", path(&with(&[name]).path().join(name)), &root]);
            }
            let source = with(&["Makefile", "makefile", "other"]);
            symlink("a", source.path().join("Link")).unwrap();
            symlink("b", source.path().join("link")).unwrap();
            let says = "does not tell apart";
            let all = contents(source.path());
            let put = [&["put"], options, &[&all, &root]].concat();
            fails(&put, 1, says);
            if options != ["-rn"] {
                // What an earlier copy has made is replaced.
                fails(&put, 1, says);
            }
            let kept = match (options, there) {
                (["-rn"], Some(name)) => name,
                _ => "Makefile",
            };
            assert_eq!(ok(&["cat", &format!("{url}/makefile")]), kept.as_bytes());
            assert_eq!(ok(&["cat", &format!("{url}/other")]), b"other");
            assert_eq!(names(&url).len(), 3);
        }
    }
}

/// The two forms of Unicode of a name, and a server which takes them for one.
const FORMS: [&str; 2] = ["caf\u{e9}", "cafe\u{301}"];

fn normalizes() -> String {
    let key = |name: &[u8]| match str::from_utf8(name) {
        Ok(name) => name.replace('\u{e9}', "e\u{301}").into_bytes(),
        Err(_) => name.to_vec(),
    };
    serve(files().folding_by(key), nothing)
}

#[test]
fn what_a_copy_has_made_is_not_replaced_by_it_where_the_server_normalizes_names() {
    let source = with(&FORMS);
    let all = contents(source.path());
    let (from, to) = (serve(files(), nothing), normalizes());
    ok(&["put", "-r", &all, &format!("{from}/")]);
    for copy in [
        &["put", "-r", &all, &format!("{}/", normalizes())][..],
        &["put", "-rn", &all, &format!("{}/", normalizes())],
        &["cp", "-r", &format!("{from}/"), &format!("{to}/")],
    ] {
        let url = copy[copy.len() - 1];
        for _ in 0..2 {
            let output = run(copy);
            let errors = text(&output.stderr);
            // What an earlier copy has made stays with -n.
            let second = copy[1] == "-rn" && output.status.success();
            assert!(
                second || errors.contains("does not tell apart"),
                "{copy:?}: {errors}"
            );
            let there = names(url);
            assert_eq!(there.len(), 1, "{copy:?}: {there:?}");
            // It has the content of its own name.
            let file = format!("{url}{}", there[0]);
            assert_eq!(text(&ok(&["cat", &file])), there[0], "{copy:?}");
        }
    }
}

#[test]
fn delete_keeps_what_was_copied_to_another_form_of_unicode() {
    let url = normalizes();
    let root = format!("{url}/");
    let before = with(&[FORMS[0], "gone"]);
    ok(&["put", "-r", &contents(before.path()), &root]);
    let after = with(&[FORMS[1]]);
    ok(&["put", "-r", "--delete", &contents(after.path()), &root]);
    assert_eq!(names(&url).len(), 1);
    let file = format!("{root}{}", FORMS[0]);
    assert_eq!(text(&ok(&["cat", &file])), FORMS[1]);
}

#[test]
fn hard_link_that_a_copy_has_made_is_not_replaced_by_it_where_the_server_folds_case() {
    let source = with(&["x/one", "x/two", "d/other"]);
    let link = |from: &str, to: &str| {
        let (from, to) = (source.path().join(from), source.path().join(to));
        fs::hard_link(from, to).unwrap();
    };
    link("x/one", "d/A");
    link("x/two", "d/a");
    let url = folds_in_silence();
    let trees = ["x", "d"].map(|name| source.path().join(name));
    let put = [
        "put",
        "-r",
        path(&trees[0]),
        path(&trees[1]),
        &format!("{url}/"),
    ];
    for _ in 0..2 {
        fails(&put, 1, "does not tell apart");
        let there = names(&format!("{url}/d"));
        assert_eq!(there.len(), 2, "{there:?}");
        // The first of them stays, whichever that is.
        let expected: &[u8] = if there.contains(&"A".to_owned()) {
            b"x/one"
        } else {
            b"x/two"
        };
        assert_eq!(ok(&["cat", &format!("{url}/d/a")]), expected);
        assert_eq!(ok(&["cat", &format!("{url}/x/one")]), b"x/one");
        assert_eq!(ok(&["cat", &format!("{url}/x/two")]), b"x/two");
    }
}

#[test]
fn two_names_of_one_file_that_the_server_takes_for_one_are_no_collision() {
    let source = with(&["one"]);
    fs::hard_link(source.path().join("one"), source.path().join("ONE")).unwrap();
    let url = folds_in_silence();
    for _ in 0..2 {
        ok(&["put", "-r", &contents(source.path()), &format!("{url}/")]);
        assert_eq!(names(&url).len(), 1);
        assert_eq!(ok(&["cat", &format!("{url}/one")]), b"one");
    }
}

#[test]
fn directories_are_not_merged_where_the_server_folds_case_in_silence() {
    let url = folds_in_silence();
    let source = with(&["Dir/a", "dir/b"]);
    let root = format!("{url}/");
    for _ in 0..2 {
        let says = "does not tell apart";
        fails(&["put", "-r", &contents(source.path()), &root], 1, says);
        assert_eq!(names(&format!("{url}/Dir")), ["a"]);
    }
    // Another copy may put something into it.
    let source = with(&["dir/b"]);
    ok(&["put", "-r", &contents(source.path()), &root]);
    assert_eq!(names(&format!("{url}/Dir")), ["a", "b"]);
}

#[test]
fn copies_between_servers_replace_nothing_that_they_made() {
    let (from, to) = (serve(files(), nothing), folds_in_silence());
    let source = with(&["t/Makefile", "t/makefile", "t/Dir/a", "t/dir/b"]);
    ok(&[
        "put",
        "-r",
        path(&source.path().join("t")),
        &format!("{from}/"),
    ]);
    let says = "does not tell apart";
    fails(
        &["cp", "-r", &format!("{from}/t"), &format!("{to}/")],
        1,
        says,
    );
    // The source lists them in any order.
    let kept = text(&ok(&["cat", &format!("{to}/t/MAKEFILE")]));
    assert!(kept.eq_ignore_ascii_case("t/makefile"), "{kept}");
    assert_eq!(names(&format!("{to}/t/dir")), ["a"]);
}

#[test]
fn delete_keeps_what_was_copied_to_another_spelling() {
    for url in [serve(files().folding_case(), nothing), folds_in_silence()] {
        let before = with(&["Makefile", "Dir/Kept", "Dir/gone", "gone"]);
        let root = format!("{url}/");
        ok(&["put", "-r", &contents(before.path()), &root]);
        let after = with(&["makefile", "dir/kept"]);
        let all = contents(after.path());
        let put = ["put", "-r", "--delete", &all, &root];
        let dry = text(&ok(&[&put[..], &["--dry-run"]].concat()));
        assert!(
            dry.contains("would remove") && !dry.contains("Makefile\n"),
            "{dry}"
        );
        // What is not newer is neither copied nor removed.
        for options in [&["-v"][..], &["-uv"]] {
            let said = text(&ok(&[&put[..], options].concat()));
            assert!(!said.contains("removed") || options == ["-v"], "{said}");
            assert_eq!(names(&url).len(), 2, "{said}");
            assert_eq!(ok(&["cat", &format!("{url}/MAKEFILE")]), b"makefile");
            assert_eq!(names(&format!("{url}/dir")).len(), 1, "{said}");
            assert_eq!(ok(&["cat", &format!("{url}/dir/kept")]), b"dir/kept");
        }
    }
}

#[test]
fn what_is_there_in_another_spelling_is_what_is_there() {
    for url in [serve(files().folding_case(), nothing), folds_in_silence()] {
        let root = format!("{url}/");
        let before = with(&["FILE"]);
        ok(&["put", path(&before.path().join("FILE")), &root]);
        let after = with(&["file", "x"]);
        set_times(&after.path().join("file"), 1000);
        let said = text(&ok(&["put", "-ruv", &contents(after.path()), &root]));
        assert!(
            said.contains("file skipped: what is there is not older"),
            "{said}"
        );
        assert_eq!(ok(&["cat", &format!("{url}/file")]), b"FILE");
    }
}

/// A server on which a file is gone each time that it is used for the first time, as another one has got its name: its
/// first calls of this procedure say so.
fn replaced_all_the_time(procedure: Procedure, times: usize) -> String {
    serve(files(), move |called, number| {
        (called == procedure && number < times).then_some(Status::Stale)
    })
}

/// Reads the file `file` in the directory of a URL, with a local directory to use, and returns its content.
type Reads<'a> = &'a dyn Fn(&str, &Path) -> Vec<u8>;

#[test]
fn file_that_is_replaced_before_it_is_read_is_looked_up_again() {
    let commands: [Reads<'_>; 4] = [
        &|url, _| ok(&["cat", &format!("{url}/file")]),
        &|url, _| ok(&["get", &format!("{url}/file"), "-"]),
        &|url, to| {
            ok(&["get", "-r", &format!("{url}/."), path(to)]);
            fs::read(to.join("file")).unwrap()
        },
        &|url, _| {
            ok(&["cp", &format!("{url}/file"), &format!("{url}/copy")]);
            ok(&["cat", &format!("{url}/copy")])
        },
    ];
    for command in commands {
        let url = replaced_all_the_time(Procedure::Read, 5);
        let source = with(&["file"]);
        ok(&["put", path(&source.path().join("file")), &format!("{url}/")]);
        let to = tempfile::tempdir().unwrap();
        assert_eq!(command(&url, to.path()), b"file");
    }
}

#[test]
fn file_that_is_replaced_before_it_is_changed_is_looked_up_again() {
    for change in [
        &["chown", "12:34"][..],
        &["chmod", "600"],
        &["touch", "-d", "2020-01-01"],
    ] {
        for recursive in [&[][..], &["-R"]] {
            if change[0] == "touch" && !recursive.is_empty() {
                continue;
            }
            let url = replaced_all_the_time(Procedure::SetAttr, 5);
            let source = with(&["file"]);
            ok(&["put", path(&source.path().join("file")), &format!("{url}/")]);
            let file = format!("{url}/file");
            let output = run(&[change, recursive, &[&file]].concat());
            let errors = text(&output.stderr);
            // An ordinary user may not give a file away.
            let allowed = output.status.success() || errors.contains("not permitted");
            assert!(allowed && !errors.contains("stale"), "{change:?}: {errors}");
        }
    }
}

#[test]
fn file_that_is_replaced_for_ever_is_given_up() {
    let url = replaced_all_the_time(Procedure::Read, usize::MAX);
    let source = with(&["file"]);
    ok(&["put", path(&source.path().join("file")), &format!("{url}/")]);
    fails(&["cat", &format!("{url}/file")], 1, "stale");
}

#[test]
fn data_is_kept_where_the_server_refuses_attributes() {
    for status in [Status::Invalid, Status::Perm, Status::ServerFault] {
        let url = serve(files(), move |procedure, _| {
            (procedure == Procedure::SetAttr).then_some(status)
        });
        let source = with(&["t/file", "t/closed", "t/dir/in"]);
        let tree = source.path().join("t");
        let closed = fs::Permissions::from_mode(0o400);
        fs::set_permissions(tree.join("closed"), closed).unwrap();
        let root = format!("{url}/");
        for options in ["-r", "-rp"] {
            let output = run(&["put", options, path(&tree), &root]);
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{options}: {errors}");
            assert!(errors.contains("cannot change attributes"), "{errors}");
            for name in ["file", "closed", "dir/in"] {
                let copy = format!("{url}/t/{name}");
                assert_eq!(ok(&["cat", &copy]), format!("t/{name}").as_bytes());
            }
            assert_eq!(names(&format!("{url}/t")).len(), 3);
        }
        let (from, to) = (format!("{url}/t/file"), format!("{url}/t/copy"));
        fails(&["cp", "-p", &from, &to], 1, "change attributes");
        assert_eq!(ok(&["cat", &to]), b"t/file");
    }
}

#[test]
fn hard_links_are_made_where_the_server_refuses_attributes() {
    let url = serve(files(), |procedure, _| {
        (procedure == Procedure::SetAttr).then_some(Status::Invalid)
    });
    let source = with(&["t/one", "t/large"]);
    let tree = source.path().join("t");
    fs::write(tree.join("large"), vec![7; 100_000]).unwrap();
    for name in ["one", "large"] {
        let link = tree.join(format!("{name}-too"));
        fs::hard_link(tree.join(name), link).unwrap();
    }
    let put = ["put", "-rp", path(&tree), &format!("{url}/")];
    let output = run(&put);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    // Each file once, and the directory.
    let said = "cannot change attributes";
    assert_eq!(errors.matches(said).count(), 3, "{errors}");
    for name in ["one", "one-too", "large", "large-too"] {
        let about = text(&ok(&["ls", "-l", &format!("{url}/t/{name}")]));
        let links = about.split_whitespace().nth(1);
        assert_eq!(links, Some("2"), "{name}: {about}");
    }
}

#[test]
fn data_is_kept_where_nfs_has_no_such_times() {
    let url = serve(files(), nothing);
    let source = with(&["old"]);
    let old = source.path().join("old");
    let time = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1000);
    let times = fs::FileTimes::new().set_modified(time);
    fs::File::open(&old).unwrap().set_times(times).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    let root = format!("{url}/");
    fails(
        &["put", "-p", path(&old), &root],
        1,
        "its times could not be kept",
    );
    assert_eq!(ok(&["cat", &format!("{url}/old")]), b"old");
    let about = text(&ok(&["ls", "-l", &format!("{url}/old")]));
    assert!(about.starts_with("-rw-r-----"), "{about}");
}

#[test]
fn replaced_file_keeps_its_mode_without_preserve() {
    let url = serve(files(), nothing);
    let source = with(&["file"]);
    let file = source.path().join("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = format!("{url}/file");
    ok(&["put", path(&file), &copy]);
    ok(&["chmod", "660", &copy]);
    let shown = || text(&ok(&["ls", "-l", &copy]))[..10].to_owned();
    ok(&["put", path(&file), &copy]);
    assert_eq!(shown(), "-rw-rw----");
    ok(&["cp", &copy, &format!("{url}/open")]);
    ok(&["chmod", "755", &format!("{url}/open")]);
    ok(&["cp", &format!("{url}/open"), &copy]);
    assert_eq!(shown(), "-rw-rw----");
    let here = source.path().join("here");
    fs::write(&here, "").unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o660)).unwrap();
    ok(&["get", &format!("{url}/open"), path(&here)]);
    assert_eq!(mode(&here), 0o660);
    ok(&["get", "-p", &format!("{url}/open"), path(&here)]);
    assert_eq!(mode(&here), 0o755);
}

#[test]
fn owner_of_a_replaced_file_is_kept_as_far_as_that_is_allowed() {
    let url = serve(files(), nothing);
    let source = with(&["file"]);
    let file = source.path().join("file");
    let copy = format!("{url}/file");
    ok(&["put", path(&file), &copy]);
    let here = source.path().join("here");
    ok(&["get", &copy, path(&here)]);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    ok(&["chmod", "660", &copy]);
    ok(&["chown", "12:34", &copy]);
    std::os::unix::fs::chown(&here, Some(12), Some(34)).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o660)).unwrap();
    ok(&["put", path(&file), &copy]);
    ok(&["get", &copy, path(&here)]);
    let about = text(&ok(&["ls", "-ln", &copy]));
    assert!(about.starts_with("-rw-rw---- 1 12 34 "), "{about}");
    let about = fs::metadata(&here).unwrap();
    assert_eq!((about.uid(), about.gid(), mode(&here)), (12, 34, 0o660));
}

#[test]
fn archive_copies_fifos_and_sockets() {
    let url = serve(files(), nothing);
    let source = with(&["t/file"]);
    let tree = source.path().join("t");
    fifo(&tree.join("pipe"));
    fs::set_permissions(tree.join("pipe"), fs::Permissions::from_mode(0o640)).unwrap();
    let socket = tree.join("socket");
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let back = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        ok(&["put", "-a", path(&tree), &format!("{url}/")]);
        ok(&["get", "-a", &format!("{url}/t"), path(back.path())]);
        let about = |name: &str| fs::symlink_metadata(back.path().join("t").join(name)).unwrap();
        assert!(about("pipe").file_type().is_fifo());
        assert!(about("socket").file_type().is_socket());
        assert_eq!(mode(&back.path().join("t/pipe")), 0o640);
        let modified = tree.join("pipe").symlink_metadata().unwrap().modified();
        assert_eq!(about("pipe").modified().unwrap(), modified.unwrap());
        assert_eq!(fs::read_dir(back.path().join("t")).unwrap().count(), 3);
        // The one that the user named is not read either.
        ok(&["put", "-a", path(&tree.join("pipe")), &format!("{url}/")]);
    }
}

#[test]
fn group_does_not_get_the_rights_of_the_mask_with_preserve() {
    let url = serve(files(), nothing);
    let source = with(&["file"]);
    let file = source.path().join("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut list = 2_u32.to_le_bytes().to_vec();
    // Owner, a user, the owning group, mask and others: acl(5).
    for (tag, rights, who) in [
        (0x01_u16, 6_u16, u32::MAX),
        (0x02, 6, 54_321),
        (0x04, 0, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&file, "system.posix_acl_access", &list, flags) {
        eprintln!("skipped: no access control lists: {error}");
        return;
    }
    assert_eq!(mode(&file), 0o660);
    ok(&["put", "-p", path(&file), &format!("{url}/")]);
    let about = text(&ok(&["ls", "-l", &format!("{url}/file")]));
    assert!(about.starts_with("-rw-------"), "{about}");
    // What is replaced passes on its list.
    ok(&["get", &format!("{url}/file"), path(&file)]);
    let mut kept = [0; 1000];
    let len = rustix::fs::getxattr(&file, "system.posix_acl_access", &mut kept[..]).unwrap();
    assert_eq!(kept[..len], list);
}
