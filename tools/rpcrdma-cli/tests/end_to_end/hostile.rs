//! A hostile NFS server: names, types, sizes and data that no honest one has.

use crate::running::{PROGRAM, Running, Served, fails, ok, run, text, tree};
use nfs_proto::results::{self, Entry, EntryPlus, Res};
use nfs_proto::{
    Attributes, Cookie, CookieVerifier, Device, DirectoryWriter, Failed, FileHandle, FileId,
    FileType, Filename, FsProperties, MOUNT_PROGRAM, MountProcedure, NFS_PROGRAM, NfsTime,
    Procedure, Status, WccData, Wire, args, mount,
};
use oncrpc::xdr::{Error, Gather, Payload, Reader, Writer};
use oncrpc::{Answer, Call, Caller, Service};
use rpcrdma::{Iwarp, Server, ServerConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

/// Number of the root directory. The number of a file is its handle, too.
const ROOT: u64 = 1;

/// Answers of a test's server.
pub(crate) trait Lies: Send + Sync + 'static {
    /// Type, size and links of a file.
    fn about(&self, file: u64) -> (FileType, u64, u32);

    /// The entry behind so many others of a directory; none at its end.
    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)>;

    /// Data of a file, and whether it ends there.
    fn read(&self, file: u64, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let _ = (file, offset, count);
        (Vec::new(), true)
    }

    /// The text of a symbolic link.
    fn link(&self, file: u64) -> Vec<u8> {
        let _ = file;
        Vec::new()
    }

    /// File that LOOKUP finds and no list has.
    fn hidden(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let _ = (dir, name);
        None
    }

    /// A name is removed.
    fn removed(&self, name: &[u8]) {
        let _ = name;
    }

    /// Entries in a page of a directory.
    fn page(&self) -> usize {
        64
    }
}

struct Liar<L>(L);

/// A server that says this, and where it listens. It ends with the process.
pub(crate) fn server(lies: impl Lies) -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let anywhere = "127.0.0.1:0".parse().unwrap();
            let (provider, service) = (Arc::new(Iwarp::default()), Arc::new(Liar(lies)));
            let config = ServerConfig::default();
            let server = Server::bind(provider, anywhere, service, config).await;
            let server = server.unwrap();
            tell.send(server.local_addr().to_string()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

fn number(file: FileHandle) -> u64 {
    Reader::new(&file).u64().unwrap_or(0)
}

fn handle(number: u64) -> FileHandle {
    FileHandle::new(&number.to_be_bytes()).unwrap()
}

impl<L: Lies> Liar<L> {
    fn attributes(&self, file: u64) -> Attributes {
        let (file_type, size, links) = self.0.about(file);
        let time = NfsTime {
            seconds: u32::MAX,
            nanoseconds: u32::MAX,
        };
        Attributes {
            file_type,
            mode: u32::MAX,
            links,
            uid: u32::MAX,
            gid: u32::MAX,
            size,
            used: size,
            device: Device::default(),
            fsid: 1,
            file_id: FileId(file),
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn lookup(&self, dir: u64, name: &[u8]) -> Option<u64> {
        let mut entries = (0..1000).map_while(|before| self.0.entry(dir, before));
        let found = entries.find(|(entry, _)| entry == name);
        found
            .map(|(_, file)| file)
            .or_else(|| self.0.hidden(dir, name))
    }

    fn list(&self, w: &mut Writer, args: &args::ReadDirPlus) -> Result<(), Status> {
        let dir = number(args.dir);
        let attributes = Some(self.attributes(dir));
        let verifier = CookieVerifier(*b"verifier");
        let mut page = DirectoryWriter::new(w, args.into(), attributes, verifier);
        let mut before = args.cookie.0;
        while let Some((name, file)) = self.0.entry(dir, before) {
            let entry = Entry {
                file_id: FileId(file),
                name: Filename::new(&name).unwrap(),
                cookie: Cookie(before + 1),
            };
            let is_full = page.entries() >= self.0.page();
            let added = !is_full
                && page.push_plus(&EntryPlus {
                    file_id: entry.file_id,
                    name: entry.name,
                    cookie: entry.cookie,
                    attributes: Some(self.attributes(file)),
                    handle: Some(handle(file)),
                });
            if !added {
                return page.finish(false);
            }
            before += 1;
        }
        page.finish(true)
    }

    fn nfs(&self, call: &Call, w: &mut Writer) -> Result<(), Error> {
        match Procedure::try_from(call.proc)? {
            Procedure::Null => {}
            Procedure::GetAttr => {
                let args = call.decode(args::GetAttr::parse)?;
                let attributes = self.attributes(number(args.object));
                let res: Res<_, ()> = Ok(results::GetAttr { attributes });
                res.write(w);
            }
            Procedure::Lookup => {
                let args = call.decode(args::Lookup::parse)?;
                let found = self.lookup(number(args.what.dir), &args.what.name);
                let res: Res<_, Option<Attributes>> = match found {
                    Some(file) => Ok(results::Lookup {
                        object: handle(file),
                        attributes: Some(self.attributes(file)),
                        dir_attributes: None,
                    }),
                    None => Err(Status::NoEntry.into()),
                };
                res.write(w);
            }
            Procedure::ReadLink => {
                let args = call.decode(args::ReadLink::parse)?;
                let text = self.0.link(number(args.symlink));
                let res: Res<_, Option<Attributes>> = Ok(results::ReadLink {
                    attributes: None,
                    target: (&text[..]).into(),
                });
                res.write(w);
            }
            Procedure::Read => {
                let args = call.decode(args::Read::parse)?;
                let file = number(args.file);
                let (data, eof) = self.0.read(file, args.offset, args.count);
                let res: Res<_, Option<Attributes>> = Ok(results::Read {
                    attributes: Some(self.attributes(file)),
                    count: u32::try_from(data.len()).unwrap(),
                    eof,
                    data: Gather::from_elem(data.into(), 1).into(),
                });
                res.write(w);
            }
            Procedure::ReadDirPlus => {
                let args = call.decode(args::ReadDirPlus::parse)?;
                if let Err(status) = self.list(w, &args) {
                    let res: Res<(), Option<Attributes>> = Err(status.into());
                    res.write(w);
                }
            }
            Procedure::FsInfo => {
                let res: Res<_, Option<Attributes>> = Ok(results::FsInfo {
                    attributes: None,
                    read_max: 1 << 20,
                    read_preferred: 1 << 20,
                    read_multiple: 1,
                    write_max: 1 << 20,
                    write_preferred: 1 << 20,
                    write_multiple: 1,
                    dir_preferred: 8192,
                    max_file_size: u64::MAX,
                    time_delta: NfsTime::default(),
                    properties: FsProperties::all(),
                });
                res.write(w);
            }
            Procedure::Symlink => {
                let args = call.decode(args::Symlink::parse)?;
                let there = self.lookup(number(args.place.dir), &args.place.name);
                let res: Res<results::Create, WccData> = Err(match there {
                    Some(_) => Status::Exist.into(),
                    None => Status::NotSupported.into(),
                });
                res.write(w);
            }
            Procedure::Remove => {
                self.0
                    .removed(&call.decode(args::Remove::parse)?.object.name);
                let res: Res<_, WccData> = Ok(results::Remove::default());
                res.write(w);
            }
            _ => {
                let res: Res<(), ()> = Err(Failed::from(Status::NotSupported));
                res.write(w);
            }
        }
        Ok(())
    }

    fn mount(call: &Call, w: &mut Writer) -> Result<(), Error> {
        match MountProcedure::try_from(call.proc)? {
            MountProcedure::Mount => {
                let res: Result<_, mount::MountStatus> = Ok(mount::Mounted {
                    handle: handle(ROOT),
                    flavors: vec![1],
                });
                res.write(w);
            }
            MountProcedure::Export => {
                let root = mount::ExportEntry {
                    path: mount::DirPath::new(b"/").unwrap(),
                    groups: nfs_proto::List(Vec::new()),
                };
                nfs_proto::List::<_, 4096>(vec![root]).write(w);
            }
            MountProcedure::Dump => mount::MountList::default().write(w),
            MountProcedure::Null | MountProcedure::Unmount | MountProcedure::UnmountAll => {}
        }
        Ok(())
    }
}

impl<L: Lies> Service for Liar<L> {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let call = match Call::parse(call, caller) {
            Ok(call) => call,
            Err(reply) => return Answer::Now(reply),
        };
        let mut w = call.success(buffer::Buffer::default());
        let done = match call.prog {
            NFS_PROGRAM => self.nfs(&call, &mut w),
            MOUNT_PROGRAM => Self::mount(&call, &mut w),
            _ => return Answer::Now(call.proc_unavail()),
        };
        match done {
            Ok(()) => Answer::message(w.finish()),
            Err(error) => Answer::Now(call.unreadable(error)),
        }
    }
}

/// A root directory with these names, in this order: files, links and directories, which are empty.
struct Names(Vec<(Vec<u8>, FileType)>);

impl Lies for Names {
    fn about(&self, file: u64) -> (FileType, u64, u32) {
        match usize::try_from(file).unwrap().checked_sub(2) {
            None => (FileType::Directory, 0, 2),
            Some(index) => (self.0[index].1, 0, 1),
        }
    }

    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        let (name, _) = self.0.get(usize::try_from(before).unwrap())?;
        (dir == ROOT).then(|| (name.clone(), before + 2))
    }

    fn link(&self, _: u64) -> Vec<u8> {
        b"../outside".to_vec()
    }
}

/// Checks for bytes that no command writes as they are: the beginning of what a terminal obeys, in two ways.
#[track_caller]
fn is_harmless(output: &[u8]) {
    let said = String::from_utf8_lossy(output);
    let control = said
        .chars()
        .find(|&c| c.is_control() && !matches!(c, '\n' | '\t'));
    assert_eq!(control, None, "{said:?}");
}

#[test]
fn names_that_lead_out_of_a_directory_are_no_names() {
    for name in [&b"../outside"[..], b"/etc", b"", b"a\0b", &[b'x'; 4000]] {
        let listing = vec![
            (b"before".to_vec(), FileType::Regular),
            (name.to_vec(), FileType::Regular),
        ];
        let addr = server(Names(listing));
        let around = tempfile::tempdir().unwrap();
        let dest = around.path().join("dest");
        fs::create_dir(&dest).unwrap();
        fs::write(dest.join("kept"), "").unwrap();
        let url = format!("nfs://{addr}/.");
        let to = dest.to_str().unwrap();
        let output = run(&["get", "-r", "--delete", &url, to]);
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains("a name that is none"), "{errors}");
        is_harmless(&output.stderr);
        assert_eq!(tree(around.path()).len(), 2, "{:?}", tree(around.path()));
        assert_eq!(run(&["ls", &url]).status.code(), Some(1));
    }
}

#[test]
fn names_do_not_steer_the_terminal() {
    let names = ["\u{1b}[2J", "\u{9b}2J", "a\u{7f}\r\nb", "\u{90}q\u{9c}"];
    let mut listing: Vec<_> = names
        .iter()
        .map(|name| (name.as_bytes().to_vec(), FileType::Regular))
        .collect();
    listing.push((b"\xff\xfe\x1b".to_vec(), FileType::Symlink));
    listing.push((b"socket\x1b[2J".to_vec(), FileType::Socket));
    let addr = server(Names(listing));
    let url = format!("nfs://{addr}/");
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    for args in [
        &["ls", &url][..],
        &["ls", "-laF", &url],
        &["ls", "--json", &url],
        &["ls", "-C", &url],
        &["du", "-a", &url],
        &["du", "-a", "--json", &url],
        &["get", "-rv", "--dry-run", &url, to],
        &["get", "-rv", &url, to],
    ] {
        let output = run(args);
        is_harmless(&output.stdout);
        is_harmless(&output.stderr);
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn name_that_comes_again_as_something_else_leads_nowhere() {
    for types in [
        [FileType::Symlink, FileType::Directory, FileType::Regular],
        [FileType::Directory, FileType::Symlink, FileType::Directory],
        [FileType::Regular, FileType::Symlink, FileType::Regular],
    ] {
        let listing = types.map(|kind| (b"name".to_vec(), kind)).to_vec();
        let addr = server(Names(listing));
        let around = tempfile::tempdir().unwrap();
        let (dest, outside) = (around.path().join("dest"), around.path().join("outside"));
        for dir in [&dest, &outside] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(outside.join("kept"), "kept").unwrap();
        run(&[
            "get",
            "-rp",
            "--delete",
            &format!("nfs://{addr}/."),
            dest.to_str().unwrap(),
        ]);
        assert_eq!(tree(&outside).len(), 1, "{:?}", tree(around.path()));
    }
}

/// One file of any size that has several names, of which data comes a byte at a time, or not at all.
struct Sizes {
    size: u64,
    data: &'static [u8],
}

impl Lies for Sizes {
    fn about(&self, file: u64) -> (FileType, u64, u32) {
        match file {
            ROOT => (FileType::Directory, u64::MAX, u32::MAX),
            _ => (FileType::Regular, self.size, u32::MAX),
        }
    }

    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        (dir == ROOT && before < 3).then(|| (before.to_string().into_bytes(), 2))
    }

    fn read(&self, _: u64, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.data.len());
        let to = from.saturating_add(count as usize).min(self.data.len());
        (self.data[from..to].to_vec(), to == self.data.len())
    }
}

#[test]
fn file_is_as_long_as_its_data_whatever_size_the_server_says() {
    for size in [0, 3, 1 << 40, 1 << 63, u64::MAX] {
        let addr = server(Sizes {
            size,
            data: b"data",
        });
        let url = format!("nfs://{addr}/.");
        for more in [&["-p"][..], &["--resume"], &["--sparse", "always"], &["-v"]] {
            let dest = tempfile::tempdir().unwrap();
            let to = dest.path().to_str().unwrap();
            ok(&[&["get", "-r", &url, to], more].concat());
            for name in ["0", "1", "2"] {
                assert_eq!(fs::read(dest.path().join(name)).unwrap(), b"data", "{size}");
            }
            assert_eq!(dest.path().read_dir().unwrap().count(), 3);
        }
        assert_eq!(ok(&["cat", &format!("nfs://{addr}/1")]), b"data");
        for args in [
            &["ls", "-lh", &url][..],
            &["ls", "--json", &url],
            &["du", "-ah", &url],
            &["stat", &url],
        ] {
            run(args);
        }
    }
}

/// A directory in which there is nothing but itself.
struct Cycle;

impl Lies for Cycle {
    fn about(&self, _: u64) -> (FileType, u64, u32) {
        (FileType::Directory, 0, 2)
    }

    fn entry(&self, _: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        (before == 0).then(|| (vec![b'd'; 20], ROOT))
    }
}

#[test]
fn directory_that_is_in_itself_is_given_up() {
    let addr = server(Cycle);
    let url = format!("nfs://{addr}/.");
    let dest = tempfile::tempdir().unwrap();
    fs::write(dest.path().join("kept"), "").unwrap();
    let to = dest.path().to_str().unwrap();
    for args in [
        &["get", "-r", "--delete", &url, to][..],
        &["du", &url],
        &["ls", "-R", &url],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        is_harmless(&output.stderr);
    }
    assert!(Path::new(to).join("kept").exists());
}

/// A directory whose list lacks a file that is there, as may be while somebody changes the directory.
struct Incomplete;

impl Lies for Incomplete {
    fn about(&self, file: u64) -> (FileType, u64, u32) {
        match file {
            ROOT => (FileType::Directory, 0, 2),
            _ => (FileType::Regular, 0, 1),
        }
    }

    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        (dir == ROOT && before == 0).then(|| (b"listed".to_vec(), 2))
    }

    fn hidden(&self, dir: u64, name: &[u8]) -> Option<u64> {
        (dir == ROOT && name == b"left-out").then_some(3)
    }
}

#[test]
fn file_that_a_list_of_the_source_lacks_is_removed_only_if_the_source_has_none() {
    let addr = server(Incomplete);
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    for name in ["left-out", "extraneous"] {
        fs::write(dest.path().join(name), "").unwrap();
    }
    ok(&["get", "-r", "--delete", &format!("nfs://{addr}/."), to]);
    let names = ["left-out", "listed"].map(|name| (name.into(), Vec::new()));
    assert_eq!(tree(dest.path()), names);
}

/// A server that has a file where a symbolic link is to go, and makes no links.
struct Linkless(Arc<AtomicUsize>);

impl Lies for Linkless {
    fn about(&self, file: u64) -> (FileType, u64, u32) {
        Incomplete.about(file)
    }

    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        (dir == ROOT && before == 0).then(|| (b"link".to_vec(), 2))
    }

    fn removed(&self, _: &[u8]) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn file_stays_if_what_is_to_replace_it_cannot_be_made() {
    let served = Served::new(&[]);
    std::os::unix::fs::symlink("text", served.dir.join("link")).unwrap();
    let removed = Arc::new(AtomicUsize::new(0));
    let addr = server(Linkless(Arc::clone(&removed)));
    let to = format!("nfs://{addr}/link");
    fails(
        &["cp", "-r", &served.url("link"), &to],
        1,
        "cannot make symbolic link",
    );
    assert_eq!(removed.load(Relaxed), 0);
}

#[test]
fn directory_that_the_source_is_in_is_not_removed() {
    let served = Served::new(&[]);
    let source = served.dir.join("above/source");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    let says = "it is not removed, as what is copied is in it";
    let from = format!("{}/.", source.to_str().unwrap());
    fails(&["put", "-r", "--delete", &from, &served.url("")], 1, says);
    let (from, to) = (served.url("above/source/."), served.dir.to_str().unwrap());
    fails(&["get", "-r", "--delete", &from, to], 1, says);
    assert_eq!(fs::read(source.join("file")).unwrap(), b"content");
    assert_eq!(fs::read(served.dir.join("file")).unwrap(), b"content");
}

/// A directory with a file that is never removed.
struct Slow(mpsc::SyncSender<()>);

impl Lies for Slow {
    fn about(&self, file: u64) -> (FileType, u64, u32) {
        Incomplete.about(file)
    }

    fn entry(&self, dir: u64, before: u64) -> Option<(Vec<u8>, u64)> {
        Incomplete.entry(dir, before)
    }

    fn removed(&self, _: &[u8]) {
        // The test takes the first one, and never the second one.
        for _ in 0..2 {
            let _ = self.0.send(());
        }
    }
}

#[test]
fn interrupt_ends_delete_without_a_wait_for_what_is_being_removed() {
    let (tell, told) = mpsc::sync_channel(0);
    let addr = server(Slow(tell));
    let source = tempfile::tempdir().unwrap();
    let from = format!("{}/.", source.path().to_str().unwrap());
    let to = format!("nfs://{addr}/");
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", PROGRAM]);
    command.args(["put", "-r", "--delete", &from, &to]);
    let put = Running::spawn(command.stderr(Stdio::piped()));
    told.recv().unwrap();
    kill_process(Pid::from_child(&put), Signal::INT).unwrap();
    let output = put.output();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()));
    let errors = text(&output.stderr);
    assert!(!errors.contains("cannot remove"), "{errors}");
}
