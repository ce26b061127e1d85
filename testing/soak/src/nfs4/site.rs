//! The server: files that outlast its restarts, and a clock that goes on when the simulation says so.

use super::lines::Lines;
use super::wire;
use buffer::Pool;
use nfs_proto::v4::Status;
use nfs_server::{
    ExportOptions, Exports, FileSystem, HandleKey, LocalFs, LocalFsOptions, MemFs, Nfs4,
    Nfs4Limits, Nfs4Settings, Nfs4State, Nfs4Upkeep, Squash,
};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Program, Programs, Reply, Respond, Service};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const LEASE: Duration = Duration::from_secs(90);

/// Time for which state stays after the lease, if it is in nobody's way.
pub(super) const COURTESY: Duration = Duration::from_secs(600);

/// Slots of all sessions: clients want more.
const SLOTS: u32 = 20;

/// Longest time that a thread of the file system takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the file system in memory.
const ROOM: u64 = 1 << 24;

pub(super) struct Site {
    fs: Arc<dyn FileSystem>,
    exports: Exports,
    state_dir: TempDir,
    _files: Option<TempDir>,
    now: Arc<Mutex<Instant>>,
    running: Option<Running>,
    /// Connections on which clients can be called.
    pub(super) lines: Lines,
    /// Number of the instance of the server.
    pub(super) epoch: u32,
}

struct Running {
    programs: Programs,
    nfs: Nfs4,
    upkeep: Nfs4Upkeep,
    /// Calls clients.
    callbacks: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A request that is on its way.
pub(super) enum Copy {
    /// A thread is to execute it.
    Job(Box<dyn FnOnce(Respond) + Send>),
    /// It waits for something.
    Waits(Receiver<Option<Reply>>),
}

/// Answer to a request.
pub(super) enum Answered {
    Reply(Payload),
    Later(Copy),
    /// There will be none, as another copy of the request has taken its place.
    Nothing,
}

impl Site {
    pub(super) fn new(local: bool) -> Self {
        let dir = || tempfile::tempdir().expect("a directory for temporary files");
        let files = local.then(dir);
        let fs: Arc<dyn FileSystem> = match &files {
            Some(dir) => {
                let fs = LocalFs::open(dir.path(), LocalFsOptions::default());
                Arc::new(fs.expect("a directory of our own can be exported"))
            }
            None => Arc::new(MemFs::new(ROOM)),
        };
        let options = ExportOptions::default().with_squash(Squash::None);
        let key = HandleKey::random().expect("the system has random numbers");
        let exports = Exports::new(key)
            .with("/", Arc::clone(&fs), options)
            .expect("it is the only one");
        let mut site = Self {
            fs,
            exports,
            state_dir: dir(),
            _files: files,
            now: Arc::new(Mutex::new(Instant::now())),
            running: None,
            lines: Lines::default(),
            epoch: 0,
        };
        site.start();
        site
    }

    /// Starts the server, after its end. Nothing of its state may be in use any more.
    pub(super) fn start(&mut self) {
        self.running = None;
        self.lines = Lines::default();
        self.epoch += 1;
        let settings = Nfs4Settings {
            lease: LEASE,
            grace: LEASE,
            courtesy: COURTESY,
            limits: Nfs4Limits {
                slots: SLOTS,
                ..Nfs4Limits::default()
            },
            state_dir: Some(self.state_dir.path().into()),
            ..Nfs4Settings::default()
        };
        let now = Arc::clone(&self.now);
        let clock = move || *now.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = Nfs4State::with_clock(settings, clock);
        let (state, upkeep) = opened.expect("the state directory is as the server left it");
        let registry = self.lines.registry.clone();
        let callbacks = Box::pin(state.callbacks(registry.clone(), &self.exports));
        let nfs = Nfs4::new(self.exports.clone(), Pool::new(1 << 20), state);
        let nfs = nfs.with_backchannels(registry);
        self.running = Some(Running {
            programs: Programs::new().with(nfs.clone()),
            nfs,
            upkeep,
            callbacks,
        });
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("the server runs")
    }

    pub(super) fn nfs(&self) -> &Nfs4 {
        &self.running.as_ref().expect("the server runs").nfs
    }

    pub(super) fn is_in_grace(&self) -> bool {
        self.nfs().state().is_in_grace()
    }

    pub(super) fn now(&self) -> Instant {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pass(&self, time: Duration) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    /// Lets the server do what is due.
    pub(super) fn work(&mut self) {
        let running = self.running();
        running.upkeep.run();
        let mut cx = Context::from_waker(Waker::noop());
        let ended = running.callbacks.as_mut().poll(&mut cx);
        assert!(ended.is_pending(), "the state has an owner");
    }

    pub(super) fn call(&mut self, call: Payload, caller: &Caller) -> Answered {
        match self.running().programs.call(call, caller) {
            Answer::Now(reply) => answered(Some(reply)),
            Answer::Blocking(job) => Answered::Later(Copy::Job(Box::new(move |respond| {
                respond.with(job());
            }))),
            Answer::Deferred(job) => Answered::Later(Copy::Job(job)),
            Answer::Later(_) => panic!("COMPOUND waits for no future"),
        }
    }

    /// Calls, and lets the server work until there is a reply.
    pub(super) fn call_now(&mut self, call: Payload, caller: &Caller) -> Payload {
        let mut answer = self.call(call, caller);
        loop {
            answer = match answer {
                Answered::Reply(reply) => return reply,
                Answered::Later(copy) => {
                    self.work();
                    advance(copy)
                }
                Answered::Nothing => panic!("nobody else waits"),
            };
        }
    }

    pub(super) fn disconnect(&mut self, caller: &Caller) {
        self.running().nfs.connection_ended(caller.connection);
        self.lines.disconnect(caller);
    }

    /// Bytes that are free.
    pub(super) fn free(&self) -> u64 {
        let space = self.fs.space(self.fs.root()).wait();
        space.result.expect("the root is there").free
    }
}

/// Lets a thread execute a request, or looks whether its reply has come.
pub(super) fn advance(copy: Copy) -> Answered {
    let receiver = match copy {
        Copy::Job(job) => {
            let (done, reply) = channel();
            job(Respond::new(move |reply| drop(done.send(reply))));
            reply
        }
        Copy::Waits(reply) => reply,
    };
    match receiver.try_recv() {
        Ok(reply) => answered(reply),
        Err(TryRecvError::Empty) => Answered::Later(Copy::Waits(receiver)),
        Err(TryRecvError::Disconnected) => Answered::Nothing,
    }
}

/// Waits for the reply of a request that a thread of the file system goes on with.
pub(super) fn settle(answer: Answered) -> Answered {
    match answer {
        Answered::Later(Copy::Waits(receiver)) => match receiver.recv_timeout(PATIENCE) {
            Ok(reply) => answered(reply),
            Err(RecvTimeoutError::Timeout) => Answered::Later(Copy::Waits(receiver)),
            Err(RecvTimeoutError::Disconnected) => Answered::Nothing,
        },
        other => other,
    }
}

fn answered(reply: Option<Reply>) -> Answered {
    match reply {
        Some(Reply::Message(reply)) => Answered::Reply(reply),
        Some(other) => panic!("a COMPOUND is answered {other:?}"),
        None => Answered::Nothing,
    }
}

/// Whether a failure says that the client comes too early.
pub(super) fn is_later(status: Result<(), Status>) -> bool {
    matches!(status, Err(Status::Delay | Status::Grace))
}

pub(super) fn outcome(reply: &Payload) -> Result<wire::Outcome, String> {
    wire::read(reply)
}
