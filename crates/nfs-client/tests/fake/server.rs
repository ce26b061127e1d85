//! The procedures of the fake server.

use super::disk::{Disk, Kind, ROOT};
use nfs_proto::args::{self, CreateHow};
use nfs_proto::mount::{self, DirPath, ExportEntry, HostName, MountStatus, Mounted};
use nfs_proto::results::{self, Entry, EntryPlus, Res};
use nfs_proto::{
    Attributes, Cookie, CookieVerifier, DirectoryLimits, DirectoryWriter, Failed, FileHandle,
    FileId, Filename, FsProperties, MOUNT_PROGRAM, MountProcedure, NFS_PROGRAM, NfsTime, Procedure,
    Stable, Status, WccData, Wire, WriteVerifier,
};
use oncrpc::xdr::{Error, Gather, Payload, Reader, Writer};
use oncrpc::{Answer, Call, Caller, Service};
use std::sync::Mutex;

/// Faults of the server, and features that it lacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Most bytes that READ returns, whatever was asked for.
    pub(crate) short_reads: Option<usize>,
    /// Most bytes that WRITE takes.
    pub(crate) short_writes: Option<usize>,
    /// The server crashes before each WRITE of these numbers, counted from 1.
    pub(crate) crashes: Vec<u32>,
    /// The server crashes before every COMMIT.
    pub(crate) always_crashes: bool,
    /// Writes are on stable storage at once.
    pub(crate) always_stable: bool,
    /// No READDIRPLUS.
    pub(crate) no_plus: bool,
    /// Neither attributes nor handles where they are optional.
    pub(crate) sparse: bool,
    /// CREATEs whose reply is lost and that come again, to a server that has forgotten them.
    pub(crate) creates_twice: u32,
    /// Most entries in a page of a directory.
    pub(crate) page: Option<usize>,
    /// Pages with a limit under this are too small.
    pub(crate) too_small: u32,
    /// READs to be answered with JUKEBOX.
    pub(crate) jukebox: u32,
    /// READs of files that another one has taken the place of, so that they are gone.
    pub(crate) stale_reads: u32,
    /// READ has no data and does not end.
    pub(crate) empty_reads: bool,
    /// Directories do not lead on.
    pub(crate) stuck: bool,
    /// Behind the last page of a directory comes the first one.
    pub(crate) circles: bool,
    /// LINK is not supported.
    pub(crate) no_links: bool,
    /// The list of exports is not for everybody.
    pub(crate) hides_exports: bool,
    /// Names that begin with this cannot be removed.
    pub(crate) protected: Option<&'static [u8]>,
    /// The reply to a RENAME is lost and the call comes again, to a server that has forgotten it.
    pub(crate) renames_twice: bool,
    /// The same for SYMLINK.
    pub(crate) symlinks_twice: bool,
    /// READ size in FSINFO; 64 KiB otherwise.
    pub(crate) read_max: Option<u32>,
}

pub(crate) struct Server {
    pub(crate) disk: Mutex<Disk>,
    pub(crate) faults: Mutex<Faults>,
    state: Mutex<State>,
}

/// State of the server.
#[derive(Default)]
pub(crate) struct State {
    /// Changes with each crash.
    boot: u64,
    pub(crate) writes: u32,
    pub(crate) commits: u32,
    pub(crate) largest_write: usize,
}

impl Server {
    pub(crate) fn new(faults: Faults) -> Self {
        Self {
            disk: Mutex::new(Disk::new()),
            faults: Mutex::new(faults),
            state: Mutex::default(),
        }
    }

    /// WRITEs, COMMITs, and the bytes of the largest WRITE so far.
    pub(crate) fn counts(&self) -> (u32, u32, usize) {
        let state = self.state.lock().unwrap();
        (state.writes, state.commits, state.largest_write)
    }

    fn crash(&self) {
        self.state.lock().unwrap().boot += 1;
        self.disk.lock().unwrap().crash();
    }

    fn verifier(&self) -> WriteVerifier {
        WriteVerifier(self.state.lock().unwrap().boot.to_be_bytes())
    }

    fn sparse(&self) -> bool {
        self.faults.lock().unwrap().sparse
    }

    fn attributes(&self, file: FileHandle) -> Option<Attributes> {
        if self.sparse() {
            return None;
        }
        self.disk.lock().unwrap().attributes(number(file)).ok()
    }

    fn read(&self, args: args::Read) -> Res<results::Read<'static>, Option<Attributes>> {
        let mut faults = self.faults.lock().unwrap();
        if faults.jukebox > 0 {
            faults.jukebox -= 1;
            return Err(Status::Jukebox.into());
        }
        if faults.stale_reads > 0 {
            faults.stale_reads -= 1;
            return Err(Status::Stale.into());
        }
        let count = (args.count as usize).min(faults.short_reads.unwrap_or(usize::MAX));
        let count = if faults.empty_reads { 0 } else { count };
        drop(faults);
        let mut disk = self.disk.lock().unwrap();
        let Kind::Regular { data, .. } = &disk.file(number(args.file))?.kind else {
            return Err(Status::Invalid.into());
        };
        let begin = (args.offset as usize).min(data.len());
        let end = (begin + count).min(data.len());
        let (eof, piece) = (end == data.len() && count > 0, data[begin..end].to_vec());
        drop(disk);
        Ok(results::Read {
            attributes: self.attributes(args.file),
            count: piece.len() as u32,
            eof,
            data: Gather::from_elem(piece.into(), 1).into(),
        })
    }

    fn write(&self, args: &args::Write<'_>) -> Res<results::Write, WccData> {
        let faults = self.faults.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        state.writes += 1;
        state.largest_write = state.largest_write.max(args.data.len());
        let crashes = faults.crashes.contains(&state.writes);
        drop(state);
        if crashes {
            self.crash();
        }
        if args.count as usize != args.data.len() {
            return Err(Status::Invalid.into());
        }
        let bytes = args.data.bytes();
        let count = bytes.len().min(faults.short_writes.unwrap_or(usize::MAX));
        let sync = faults.always_stable || args.stable > Stable::Unstable;
        let file = number(args.file);
        self.disk
            .lock()
            .unwrap()
            .write(file, args.offset, &bytes[..count], sync)?;
        Ok(results::Write {
            wcc: WccData::default(),
            count: count as u32,
            committed: if sync {
                Stable::FileSync
            } else {
                Stable::Unstable
            },
            verifier: self.verifier(),
        })
    }

    fn commit(&self, args: args::Commit) -> Res<results::Commit, WccData> {
        if self.faults.lock().unwrap().always_crashes {
            self.crash();
        }
        self.state.lock().unwrap().commits += 1;
        self.disk.lock().unwrap().commit(number(args.file))?;
        Ok(results::Commit {
            wcc: WccData::default(),
            verifier: self.verifier(),
        })
    }

    fn create(&self, args: &args::Create<'_>) -> Res<results::Create, WccData> {
        let dir = number(args.place.dir);
        let name = args.place.name;
        let mut faults = self.faults.lock().unwrap();
        if faults.creates_twice > 0 {
            faults.creates_twice -= 1;
            drop(faults);
            self.create(args)?;
        } else {
            drop(faults);
        }
        let mut disk = self.disk.lock().unwrap();
        let there = disk.lookup(dir, &name);
        let file = match (args.how, there) {
            (CreateHow::Unchecked(set), Ok(file)) => {
                disk.set(file, &set)?;
                file
            }
            (CreateHow::Exclusive(verifier), Ok(file))
                if disk.file(file)?.made_by == Some(verifier.0) =>
            {
                file
            }
            (_, Ok(_)) => return Err(Status::Exist.into()),
            (how, Err(_)) => {
                let (data, stable) = (Vec::new(), Vec::new());
                let file = disk.enter(dir, &name, Kind::Regular { data, stable }, 0)?;
                match how {
                    CreateHow::Unchecked(set) | CreateHow::Guarded(set) => disk.set(file, &set)?,
                    CreateHow::Exclusive(verifier) => {
                        disk.file(file)?.made_by = Some(verifier.0);
                    }
                }
                file
            }
        };
        drop(disk);
        Ok(self.created(file))
    }

    fn created(&self, file: u64) -> results::Create {
        let handle = handle(file);
        results::Create {
            object: (!self.sparse()).then_some(handle),
            attributes: self.attributes(handle),
            dir_wcc: WccData::default(),
        }
    }

    fn make(
        &self,
        place: &args::Place<'_>,
        kind: Kind,
        mode: Option<u32>,
    ) -> Res<results::Create, WccData> {
        let mode = mode.unwrap_or(0o755);
        let mut disk = self.disk.lock().unwrap();
        let file = disk.enter(number(place.dir), &place.name, kind, mode)?;
        drop(disk);
        Ok(self.created(file))
    }

    fn lookup(&self, what: &args::Place<'_>) -> Res<results::Lookup, Option<Attributes>> {
        let file = self
            .disk
            .lock()
            .unwrap()
            .lookup(number(what.dir), &what.name)?;
        let object = handle(file);
        Ok(results::Lookup {
            object,
            attributes: self.attributes(object),
            dir_attributes: None,
        })
    }

    fn unlink(&self, object: &args::Place<'_>, directory: bool) -> Res<results::Remove, WccData> {
        let protected = self.faults.lock().unwrap().protected;
        if protected.is_some_and(|begin| object.name.starts_with(begin)) {
            return Err(Status::Access.into());
        }
        let mut disk = self.disk.lock().unwrap();
        disk.unlink(number(object.dir), &object.name, directory)?;
        Ok(results::Remove::default())
    }

    /// The entries behind a cookie, which is how many there are before.
    fn list(
        &self,
        w: &mut Writer,
        dir: FileHandle,
        cookie: Cookie,
        limits: DirectoryLimits,
        plus: bool,
    ) -> Result<(), Status> {
        let faults = self.faults.lock().unwrap().clone();
        if plus && faults.no_plus {
            return Err(Status::NotSupported);
        }
        if limits.bytes < faults.too_small as usize {
            return Err(Status::TooSmall);
        }
        let mut disk = self.disk.lock().unwrap();
        let mut all = vec![(b".".to_vec(), number(dir)), (b"..".to_vec(), ROOT)];
        all.extend(
            disk.dir(number(dir))?
                .iter()
                .map(|(name, file)| (name.clone(), *file)),
        );
        drop(disk);
        let verifier = CookieVerifier(*b"verifier");
        let mut page = DirectoryWriter::new(w, limits, self.attributes(dir), verifier);
        let from = match cookie.0 as usize {
            _ if faults.stuck => 0,
            from if faults.circles => from % all.len(),
            from => from,
        };
        let mut complete = true;
        for (place, (name, file)) in all.iter().enumerate().skip(from) {
            let entry = Entry {
                file_id: FileId(*file),
                name: Filename::new(name).unwrap(),
                cookie: Cookie(if faults.stuck { 0 } else { place as u64 + 1 }),
            };
            let full = faults.page.is_some_and(|most| page.entries() >= most);
            let added = !full
                && if plus {
                    page.push_plus(&EntryPlus {
                        file_id: entry.file_id,
                        name: entry.name,
                        cookie: entry.cookie,
                        attributes: self.attributes(handle(*file)),
                        handle: (!faults.sparse).then(|| handle(*file)),
                    })
                } else {
                    page.push(&entry)
                };
            if !added {
                complete = false;
                break;
            }
        }
        page.finish(complete && !faults.stuck && !faults.circles)
    }

    fn nfs(&self, call: &Call, w: &mut Writer) -> Result<(), Error> {
        match Procedure::try_from(call.proc)? {
            Procedure::Null => {}
            Procedure::GetAttr => {
                let args = call.decode(args::GetAttr::parse)?;
                let attributes = self.disk.lock().unwrap().attributes(number(args.object));
                let res: Res<_, ()> = attributes
                    .map(|attributes| results::GetAttr { attributes })
                    .map_err(Failed::from);
                res.write(w);
            }
            Procedure::SetAttr => {
                let args = call.decode(args::SetAttr::parse)?;
                let set = self
                    .disk
                    .lock()
                    .unwrap()
                    .set(number(args.object), &args.attributes);
                let res: Res<results::SetAttr, WccData> = set
                    .map(|()| results::SetAttr::default())
                    .map_err(Failed::from);
                res.write(w);
            }
            Procedure::Lookup => self
                .lookup(&call.decode(args::Lookup::parse)?.what)
                .write(w),
            Procedure::Access => {
                let args = call.decode(args::CheckAccess::parse)?;
                let res: Res<_, Option<Attributes>> = Ok(results::CheckAccess {
                    attributes: None,
                    access: args.access,
                });
                res.write(w);
            }
            Procedure::ReadLink => {
                let args = call.decode(args::ReadLink::parse)?;
                let mut disk = self.disk.lock().unwrap();
                let text = match disk.file(number(args.symlink)).map(|file| &file.kind) {
                    Ok(Kind::Symlink(text)) => Ok(text.clone()),
                    Ok(_) => Err(Status::Invalid),
                    Err(status) => Err(status),
                };
                let res: Res<_, Option<Attributes>> = match &text {
                    Ok(text) => Ok(results::ReadLink {
                        attributes: None,
                        target: (&text[..]).into(),
                    }),
                    Err(status) => Err((*status).into()),
                };
                res.write(w);
            }
            Procedure::Read => self.read(call.decode(args::Read::parse)?).write(w),
            Procedure::Write => self.write(&call.decode(args::Write::parse)?).write(w),
            Procedure::Create => self.create(&call.decode(args::Create::parse)?).write(w),
            Procedure::MkDir => {
                let args = call.decode(args::MkDir::parse)?;
                let kind = Kind::Directory(Default::default());
                self.make(&args.place, kind, args.attributes.mode).write(w);
            }
            Procedure::Symlink => {
                let args = call.decode(args::Symlink::parse)?;
                let text = args.target.bytes().into_owned();
                let make = |text| self.make(&args.place, Kind::Symlink(text), args.attributes.mode);
                if self.faults.lock().unwrap().symlinks_twice {
                    make(text.clone()).ok();
                }
                make(text).write(w);
            }
            Procedure::MkNod => {
                let res: Res<results::Create, WccData> = Err(Status::BadType.into());
                res.write(w);
            }
            Procedure::Remove => self
                .unlink(&call.decode(args::Remove::parse)?.object, false)
                .write(w),
            Procedure::RmDir => self
                .unlink(&call.decode(args::RmDir::parse)?.object, true)
                .write(w),
            Procedure::Rename => {
                let args = call.decode(args::Rename::parse)?;
                let from = (number(args.from.dir), &args.from.name[..]);
                let to = (number(args.to.dir), &args.to.name[..]);
                let mut done = self.disk.lock().unwrap().rename(from, to);
                if self.faults.lock().unwrap().renames_twice {
                    done = self.disk.lock().unwrap().rename(from, to);
                }
                let res: Res<_, results::Rename> = done
                    .map(|()| results::Rename::default())
                    .map_err(Failed::from);
                res.write(w);
            }
            Procedure::Link => {
                let args = call.decode(args::Link::parse)?;
                let mut disk = self.disk.lock().unwrap();
                let done = match self.faults.lock().unwrap().no_links {
                    true => Err(Status::NotSupported),
                    false => disk.link(number(args.file), (number(args.link.dir), &args.link.name)),
                };
                let res: Res<_, results::Link> = done
                    .map(|()| results::Link::default())
                    .map_err(Failed::from);
                res.write(w);
            }
            Procedure::ReadDir => {
                let args = call.decode(args::ReadDir::parse)?;
                if let Err(status) = self.list(w, args.dir, args.cookie, (&args).into(), false) {
                    let res: Res<(), Option<Attributes>> = Err(status.into());
                    res.write(w);
                }
            }
            Procedure::ReadDirPlus => {
                let args = call.decode(args::ReadDirPlus::parse)?;
                if let Err(status) = self.list(w, args.dir, args.cookie, (&args).into(), true) {
                    let res: Res<(), Option<Attributes>> = Err(status.into());
                    res.write(w);
                }
            }
            Procedure::FsStat => {
                let res: Res<_, Option<Attributes>> = Ok(results::FsStat {
                    total_bytes: 1000,
                    ..Default::default()
                });
                res.write(w);
            }
            Procedure::FsInfo => {
                let args = call.decode(args::FsInfo::parse)?;
                let read_max = self.faults.lock().unwrap().read_max.unwrap_or(65536);
                let res: Res<_, Option<Attributes>> = Ok(results::FsInfo {
                    attributes: self.attributes(args.root),
                    read_max,
                    read_preferred: read_max,
                    read_multiple: 1,
                    write_max: 65536,
                    write_preferred: 65536,
                    write_multiple: 1,
                    dir_preferred: 8192,
                    max_file_size: u64::MAX,
                    time_delta: NfsTime {
                        seconds: 0,
                        nanoseconds: 1,
                    },
                    properties: FsProperties::all(),
                });
                res.write(w);
            }
            Procedure::PathConf => {
                let res: Res<_, Option<Attributes>> = Ok(results::PathConf {
                    name_max: 255,
                    ..Default::default()
                });
                res.write(w);
            }
            Procedure::Commit => self.commit(call.decode(args::Commit::parse)?).write(w),
        }
        Ok(())
    }

    fn mount(&self, call: &Call, w: &mut Writer) -> Result<(), Error> {
        match MountProcedure::try_from(call.proc)? {
            MountProcedure::Null | MountProcedure::UnmountAll => {}
            MountProcedure::Mount => {
                let args = call.decode(mount::Mount::parse)?;
                let res: Result<Mounted, MountStatus> = match args.path.get() {
                    b"/srv/data" | b"/srv" => Ok(Mounted {
                        handle: handle(ROOT),
                        flavors: vec![1],
                    }),
                    b"/secret" => Err(MountStatus::Access),
                    _ => Err(MountStatus::NoEntry),
                };
                res.write(w);
            }
            MountProcedure::Dump => mount::MountList::default().write(w),
            MountProcedure::Unmount => {
                call.decode(mount::Unmount::parse)?;
            }
            MountProcedure::Export => {
                let export = |path: &'static str| ExportEntry {
                    path: DirPath::new(path.as_bytes()).unwrap(),
                    groups: nfs_proto::List(vec![HostName::new(b"10.0.0.0/8").unwrap()]),
                };
                nfs_proto::List::<_, 4096>(vec![
                    export("/srv"),
                    export("/srv/data"),
                    export("/secret"),
                ])
                .write(w);
            }
        }
        Ok(())
    }
}

fn number(file: FileHandle) -> u64 {
    Reader::new(&file).u64().unwrap_or(0)
}

fn handle(number: u64) -> FileHandle {
    FileHandle::new(&number.to_be_bytes()).unwrap()
}

impl Service for Server {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let call = match Call::parse(call, caller) {
            Ok(call) => call,
            Err(reply) => return Answer::Now(reply),
        };
        let mut w = call.success(buffer::Buffer::default());
        let hidden = self.faults.lock().unwrap().hides_exports;
        let done = match (call.prog, call.proc) {
            (NFS_PROGRAM, _) => self.nfs(&call, &mut w),
            (MOUNT_PROGRAM, 5) if hidden => return Answer::Now(call.proc_unavail()),
            (MOUNT_PROGRAM, _) => self.mount(&call, &mut w),
            _ => return Answer::Now(call.proc_unavail()),
        };
        match done {
            Ok(()) => Answer::message(w.finish()),
            Err(error) => Answer::Now(call.unreadable(error)),
        }
    }
}
