//! Files over NFS: each task has a directory of its own, which has to be as its model says,
//! whatever happens below.
//!
//! With the server's duplicate request cache each call is executed once, however often it is sent.
//! When the server is restarted that cache is gone, so a call that was in flight may have been
//! executed twice; its reply may then be that of either time. After a call without a reply the
//! directory may be as before it or as after it.

use crate::actors::{TestClient, TestServer, disturb};
use crate::dice::Dice;
use crate::model::{Entry, How, MAX_FILE, Model, NAMES, Op, Said, content};
use crate::scenario::Files;
use crate::stage::{Stage, count};
use buffer::Gather;
use bytes::Bytes;
use nfs_client::{Fault, Mount, Nfs3};
use nfs_proto::args::CreateHow;
use nfs_proto::{CreateVerifier, FileHandle, Name, SetAttributes, Stable, Status};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Squash};
use oncrpc::auth::Credential;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Programs, ReceivedCall, ReplyBound, Service, Transport};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::task::JoinSet;

/// Attempts to get a reply that a check needs.
const TRIES: u32 = 30;

/// Bytes of the whole file system.
const ROOM: u64 = 1 << 28;

/// Plays a scenario of NFS operations; leaks are checked later, when all tasks have ended.
pub(crate) async fn play(
    stage: &Arc<Stage>,
    files: Files,
    mut dice: Dice,
) -> (TestServer, Vec<TestClient>) {
    let exports = exports();
    let service = move || -> Arc<dyn Service> {
        match files.without_reply_cache {
            true => Arc::new(WithoutReplyCache(exports.clone())),
            false => Arc::new(programs(&exports)),
        }
    };
    let party = stage.watch.party("server");
    let server = TestServer::new(stage, &mut dice, party, Box::new(service), &None).await;
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    let scenario = stage.scenario;
    for number in 0..dice.within(scenario.clients.0, scenario.clients.1) {
        let Some(client) =
            TestClient::new(stage, &mut dice, number, server.reached_at, &None).await
        else {
            continue;
        };
        for task in 0..dice.within(scenario.tasks.0, scenario.tasks.1) {
            let name = format!("dir-{number}-{task}");
            let user = User::new(stage, &client.watched, name, files.data, dice.split());
            tasks.spawn(user.run());
        }
        clients.push(client);
    }
    let mut others = dice.split();
    tokio::join!(
        async { while tasks.join_next().await.is_some() {} },
        disturb(stage, &server, &mut others)
    );
    for client in &clients {
        client.end().await;
    }
    server.end().await;
    (server, clients)
}

/// One export, whose files are in memory.
pub(crate) fn exports() -> Exports {
    let options = ExportOptions::default().with_squash(Squash::None);
    let key = HandleKey::random().expect("the system has random numbers");
    Exports::new(key)
        .with("/", Arc::new(MemFs::new(ROOM)), options)
        .expect("it is the only one")
}

/// The programs of a server, with an empty duplicate request cache.
pub(crate) fn programs(exports: &Exports) -> Programs {
    let pool = buffer::Pool::new(1 << 20);
    Programs::new()
        .with(nfs_server::Nfs3::new(exports.clone(), pool))
        .with(Mount3::new(exports.clone()))
}

/// A server without a duplicate request cache.
struct WithoutReplyCache(Exports);

impl Service for WithoutReplyCache {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        programs(&self.0).call(call, caller)
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        programs(&self.0).reply_bound(call)
    }
}

/// One task with its directory.
pub(crate) struct User<T> {
    stage: Arc<Stage>,
    mount: Mount<T>,
    nfs: Nfs3<T>,
    name: String,
    data: bool,
    dice: Dice,
}

/// Why a task has to stop.
enum Stop {
    /// Too many calls in a row had no reply.
    Lost,
    /// Something is not as it must be.
    Wrong(String),
}

/// Why there is no reply of NFS.
enum NoReply {
    Transport,
    Wrong(String),
}

impl From<Fault> for NoReply {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Transport(
                oncrpc::TransportError::TimedOut(_)
                | oncrpc::TransportError::Disconnected(_)
                | oncrpc::TransportError::Unreachable(_)
                // A server does not try a call again whose chunks cost it a connection (RFC 8166
                // §4.5.3).
                | oncrpc::TransportError::Refused(_),
            ) => Self::Transport,
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl<T: Transport + Clone + Sync> User<T> {
    /// A task, whose name is that of its directory.
    pub(crate) fn new(
        stage: &Arc<Stage>,
        transport: &T,
        name: String,
        data: bool,
        dice: Dice,
    ) -> Self {
        Self {
            stage: Arc::clone(stage),
            mount: Mount::new(transport.clone(), Credential::None),
            nfs: Nfs3::new(transport.clone(), Credential::None),
            name,
            data,
            dice,
        }
    }

    /// Makes all its calls.
    pub(crate) async fn run(mut self) {
        match self.work().await {
            Ok(()) | Err(Stop::Lost) if !self.stage.scenario.must_succeed => {}
            Ok(()) => {}
            Err(Stop::Lost) => self.stage.watch.finding("a call without a reply"),
            Err(Stop::Wrong(what)) => {
                let name = &self.name;
                self.stage.watch.finding(format_args!("{name}: {what}"));
            }
        }
    }

    async fn work(&mut self) -> Result<(), Stop> {
        let dir = self.directory().await?;
        let mut model = Model::default();
        let scenario = self.stage.scenario;
        for _ in 0..self.dice.within(scenario.calls.0, scenario.calls.1) {
            if self.dice.once_in(6) {
                self.stage.pause(&mut self.dice, 1500).await;
            }
            let op = match self.data {
                true => Op::draw_data(&mut self.dice),
                false => Op::draw(&mut self.dice),
            };
            self.step(dir, &mut model, &op).await?;
        }
        self.compare(dir, &[&model]).await?;
        Ok(())
    }

    /// The task's own directory. Nobody else makes one of its name.
    async fn directory(&self) -> Result<FileHandle, Stop> {
        let mut root = None;
        for _ in 0..TRIES {
            if let Ok(mounted) = self.mount.mount("/").await {
                root = Some(mounted.handle);
                break;
            }
        }
        let root = root.ok_or(Stop::Lost)?;
        let name = name(&self.name);
        for _ in 0..TRIES {
            let made = self
                .nfs
                .make_dir(root, name, SetAttributes::default())
                .await;
            match made.map_err(Into::into) {
                Ok(created) => {
                    if let Some(handle) = created.handle {
                        return Ok(handle);
                    }
                }
                Err(NoReply::Transport) => {}
                Err(NoReply::Wrong(_)) => {
                    if let Ok((handle, _)) = self.nfs.lookup(root, name).await {
                        return Ok(handle);
                    }
                }
            }
        }
        Err(Stop::Lost)
    }

    /// One operation, and what it did.
    async fn step(&self, dir: FileHandle, model: &mut Model, op: &Op) -> Result<(), Stop> {
        let file = match op.file() {
            None => dir,
            // Others are refused in ways of their own.
            Some(name) if !model.is_file(name) => return Ok(()),
            Some(wanted) => match self.find(dir, wanted).await? {
                Some(handle) => handle,
                None => {
                    let wanted = NAMES[wanted];
                    return Err(Stop::Wrong(format!("{wanted} is gone")));
                }
            },
        };
        let before = model.clone();
        let expected = model.apply(op);
        let restarts = self.restarts();
        let counts = &self.stage.counts;
        count(&counts.calls);
        match self.ask(dir, file, op).await {
            Ok(said) if said == expected => {
                count(&counts.answered);
                Ok(())
            }
            Ok(said) => {
                let again = model.clone().apply(op);
                if said == again && self.restarts() != restarts {
                    count(&counts.answered);
                    return Ok(());
                }
                Err(Stop::Wrong(format!("{op:?} says {said}, not {expected}")))
            }
            Err(NoReply::Wrong(what)) => Err(Stop::Wrong(format!("{op:?}: {what}"))),
            Err(NoReply::Transport) => {
                tokio::time::sleep(self.stage.net.quiet()).await;
                let done = self.compare(dir, &[model, &before]).await?;
                if done == 1 {
                    *model = before;
                }
                Ok(())
            }
        }
    }

    fn restarts(&self) -> u64 {
        self.stage.counts.restarts.load(Relaxed)
    }

    /// The handle of a name, asked for until there is an answer.
    async fn find(&self, dir: FileHandle, wanted: usize) -> Result<Option<FileHandle>, Stop> {
        for _ in 0..TRIES {
            match self.nfs.lookup(dir, name(NAMES[wanted])).await {
                Ok((handle, _)) => return Ok(Some(handle)),
                Err(Fault::Status(Status::NoEntry)) => return Ok(None),
                Err(fault) => match fault.into() {
                    NoReply::Transport => {}
                    NoReply::Wrong(what) => return Err(Stop::Wrong(what)),
                },
            }
        }
        Err(Stop::Lost)
    }

    /// Does it: `file` is what it is about, if that is not the directory.
    async fn ask(&self, dir: FileHandle, file: FileHandle, op: &Op) -> Result<Said, NoReply> {
        let usual = SetAttributes::default();
        let named = |index: &usize| name(NAMES[*index]);
        let done = match op {
            Op::Create(name, how) => {
                let how = match how {
                    How::Guarded => CreateHow::Guarded(usual),
                    How::Unchecked => CreateHow::Unchecked(usual),
                    How::Exclusive(verifier) => CreateHow::Exclusive(CreateVerifier(*verifier)),
                };
                self.nfs.create(dir, named(name), how).await.map(drop)
            }
            Op::MakeDir(name) => self.nfs.make_dir(dir, named(name), usual).await.map(drop),
            Op::Symlink(name, text) => {
                let made = self.nfs.symlink(dir, named(name), usual, text.as_bytes());
                made.await.map(drop)
            }
            Op::Remove(name) => self.nfs.remove(dir, named(name)).await,
            Op::RemoveDir(name) => self.nfs.remove_dir(dir, named(name)).await,
            Op::Rename(from, to) => {
                let (from, to) = ((dir, named(from)), (dir, named(to)));
                self.nfs.rename(from, to).await
            }
            Op::Link(_, to) => self.nfs.link(file, dir, named(to)).await,
            Op::Resize(_, size) => {
                let set = SetAttributes {
                    size: Some(*size as u64),
                    ..usual
                };
                self.nfs.set_attributes(file, set, None).await
            }
            Op::Write(_, offset, len, fill, stable) => {
                return self
                    .write(file, *offset, &content(*fill, *len), *stable)
                    .await;
            }
            Op::Read(_, offset, len) => {
                return Ok(Said::Data(self.read(file, *offset, *len).await?));
            }
            Op::Lookup(name) => self.nfs.lookup(dir, named(name)).await.map(drop),
        };
        match done {
            Ok(()) => Ok(Said::Done),
            Err(Fault::Status(status)) => Ok(Said::Refused(status)),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn write(
        &self,
        file: FileHandle,
        offset: usize,
        data: &[u8],
        stable: bool,
    ) -> Result<Said, NoReply> {
        let how = match stable {
            true => Stable::FileSync,
            false => Stable::Unstable,
        };
        let bytes = Gather::from_elem(Bytes::copy_from_slice(data), 1);
        let wrote = self.nfs.write(file, offset as u64, bytes, how).await?;
        if wrote.count != data.len() {
            return Err(NoReply::Wrong(format!("{} bytes are written", wrote.count)));
        }
        if !stable {
            self.nfs.commit(file, 0, 0).await?;
        }
        Ok(Said::Done)
    }

    async fn read(&self, file: FileHandle, offset: usize, len: usize) -> Result<Vec<u8>, NoReply> {
        let len = u32::try_from(len).expect("files are small");
        let read = self.nfs.read(file, offset as u64, len).await?;
        Ok(read.data.concat())
    }

    /// Which of these models the directory is like; asked for until there is an answer.
    async fn compare(&self, dir: FileHandle, models: &[&Model]) -> Result<usize, Stop> {
        let mut found = Vec::new();
        for wanted in 0..NAMES.len() {
            found.push(match self.find(dir, wanted).await? {
                None => None,
                Some(handle) => Some(self.look(handle).await?),
            });
        }
        let like = |model: &Model| {
            let mut found = found.iter().enumerate();
            found.all(|(name, found)| match (model.entry(name), found) {
                (None, None) | (Some(Entry::Directory), Some(Found::Directory)) => true,
                (Some(Entry::File(file)), Some(Found::File(data))) => model.data(*file) == data,
                (Some(Entry::Symlink(text)), Some(Found::Symlink(found))) => {
                    text.as_bytes() == found
                }
                _ => false,
            })
        };
        models.iter().position(|model| like(model)).ok_or_else(|| {
            let found: Vec<_> = found.iter().map(|found| format!("{found:.40?}")).collect();
            let models = models.len();
            Stop::Wrong(format!(
                "the directory is like none of {models} models: {found:?}"
            ))
        })
    }

    async fn look(&self, handle: FileHandle) -> Result<Found, Stop> {
        for _ in 0..TRIES {
            match self.look_once(handle).await {
                Ok(found) => return Ok(found),
                Err(NoReply::Transport) => {}
                Err(NoReply::Wrong(what)) => return Err(Stop::Wrong(what)),
            }
        }
        Err(Stop::Lost)
    }

    async fn look_once(&self, handle: FileHandle) -> Result<Found, NoReply> {
        use nfs_proto::FileType;
        let attributes = self.nfs.get_attributes(handle).await?;
        Ok(match attributes.file_type {
            FileType::Directory => Found::Directory,
            FileType::Symlink => Found::Symlink(self.nfs.read_link(handle).await?),
            _ => Found::File(self.read(handle, 0, MAX_FILE).await?),
        })
    }
}

/// Content that was found.
#[derive(Debug)]
enum Found {
    File(Vec<u8>),
    Directory,
    Symlink(Vec<u8>),
}

fn name(bytes: &str) -> Name<'_> {
    Name::new(bytes.as_bytes()).expect("a name")
}
