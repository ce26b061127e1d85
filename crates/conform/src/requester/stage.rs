//! Environment of the cases against a Requester: a Responder that listens, and what drives the Requester to it.

use super::observation::{Observed, Received};
use super::player::Player;
use crate::bed::private_data;
use crate::deadline::Deadline;
use crate::iwarp::Peer;
use crate::link::{Link, receives};
use crate::verdict::{Log, Tested, error, fail, skip};
use nfs_server::{AccessList, ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3, Squash};
use oncrpc::{Programs, Service};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use verbs::{Listener, Provider, QpOptions};
use verbs_iwarp::Iwarp;

/// Makes a Requester connect and work.
pub trait Driver {
    /// Starts a Requester that works on the export [`EXPORT`] at this address: it writes and reads files, and lists
    /// directories.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    fn start(&mut self, at: SocketAddr) -> io::Result<()>;

    /// How its work ended, if it has ended. Does not wait. It is not asked again for what it has told once.
    fn ended(&mut self) -> Option<Workload>;

    /// Ends it, if it has not ended.
    fn stop(&mut self);
}

/// How the work of a Requester ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// All of it was done.
    Done,
    /// Some of it failed.
    Failed(String),
    /// Nothing is known: somebody else runs the Requester.
    Unknown,
}

/// A driver for a Requester that somebody else runs, again and again.
#[derive(Debug, Default)]
pub struct ByHand;

impl Driver for ByHand {
    fn start(&mut self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    fn ended(&mut self) -> Option<Workload> {
        Some(Workload::Unknown)
    }

    fn stop(&mut self) {}
}

/// Path of the export that Requesters work on.
pub const EXPORT: &str = "/conform";

/// Octets of the file system in memory.
const FILE_SYSTEM: u64 = 64 << 20;

/// Octets of buffers that are kept for replies.
const POOL: usize = 1 << 20;

/// Receives of each connection.
const RECEIVES: usize = 256;

/// Octets of each Receive: more than any case announces, so that a longer message is seen.
const RECEIVE_SIZE: usize = 16 << 10;

/// Longest wait for what must not come.
pub(super) const QUIET: Duration = Duration::from_millis(300);

/// How long a connection may be silent until its Requester is taken to have done its work.
pub(super) const IDLE: Duration = Duration::from_secs(2);

/// How often it is looked whether a Requester has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Environment of a case.
pub(crate) struct Stage {
    listener: RefCell<Box<dyn Listener>>,
    /// The same socket, for frames that are sent by hand.
    tcp: Option<TcpListener>,
    pub(super) address: SocketAddr,
    pub(super) runtime: Rc<Runtime>,
    pub(crate) log: Log,
    pub(super) patience: Duration,
    deadline: Deadline,
    /// How long a connection may take to come.
    connects_within: Duration,
    driver: RefCell<Box<dyn Driver>>,
    running: Cell<bool>,
    /// How the work of the one that runs ended, as the driver told.
    ended: RefCell<Option<Workload>>,
    pub(super) service: Arc<dyn Service>,
    pub(super) observed: OnceCell<Result<Observed, String>>,
}

/// The listening end, and what it listens over.
pub(crate) enum Over {
    /// Software iWARP.
    Software(Iwarp),
    /// Any other provider.
    Provider(Arc<dyn Provider>),
}

impl Stage {
    pub(crate) fn new(
        over: Over,
        at: SocketAddr,
        patience: Duration,
        connects_within: Duration,
        driver: Box<dyn Driver>,
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| why.to_string())?;
        let (listener, tcp) = runtime.block_on(async {
            match over {
                Over::Software(iwarp) => {
                    let tcp = TcpListener::bind(at).map_err(|why| why.to_string())?;
                    let own = tcp.try_clone().map_err(|why| why.to_string())?;
                    let listener = iwarp.listen_with(own).map_err(|why| why.to_string())?;
                    Ok::<_, String>((listener, Some(tcp)))
                }
                Over::Provider(provider) => {
                    let listener = provider.listen(at).await.map_err(|why| why.to_string())?;
                    Ok((listener, None))
                }
            }
        })?;
        Ok(Self {
            address: listener.local_addr(),
            listener: RefCell::new(listener),
            tcp,
            runtime: Rc::new(runtime),
            log: Log::default(),
            patience,
            deadline: Deadline::default(),
            connects_within,
            driver: RefCell::new(driver),
            running: Cell::new(false),
            ended: RefCell::default(),
            service: service()?,
            observed: OnceCell::new(),
        })
    }

    /// Begins the time of a case.
    pub(super) fn begin_case(&self) {
        self.deadline.begin(self.patience.max(self.connects_within));
    }

    /// Has the Requester come, if it is not on its way already.
    fn call_it(&self) -> Tested {
        if !self.running.replace(true)
            && let Err(why) = self.driver.borrow_mut().start(self.address)
        {
            return error(format!("the Requester cannot be started: {why}"));
        }
        Ok(())
    }

    /// Ends the Requester, if it has not ended.
    pub(super) fn stop(&self) {
        if self.running.replace(false) {
            self.ended.take();
            self.driver.borrow_mut().stop();
        }
    }

    /// How the work of the Requester ended, if that is so.
    fn ended(&self) -> Option<Workload> {
        if !self.running.get() {
            return Some(Workload::Unknown);
        }
        let mut ended = self.ended.borrow_mut();
        if ended.is_none() {
            *ended = self.driver.borrow_mut().ended();
        }
        ended.clone()
    }

    /// The next connection while the Requester works, if it makes another one. Where somebody else runs it, none is waited
    /// for.
    pub(super) fn next_connection(&self, said: &[u8]) -> Tested<Option<Player<'_>>> {
        let deadline = Instant::now() + self.deadline.at_most(self.connects_within);
        while self.ended().is_none() && Instant::now() < deadline {
            if let Some(mut link) = self.accept(said, Instant::now() + LOOK_EVERY)?
                && link.speaks()
            {
                return Ok(Some(Player::new(self, link)));
            }
        }
        Ok(None)
    }

    /// Serves every connection that comes until the work of the Requester has ended, and tells each call.
    pub(super) fn attend(&self, said: &[u8], mut seen: impl FnMut(&Received)) -> Tested<Workload> {
        while let Some(mut player) = self.next_connection(said)? {
            for call in player.serve_rest()? {
                seen(&call);
            }
        }
        let workload = self.ended();
        self.stop();
        Ok(workload.unwrap_or_else(|| {
            Workload::Failed(format!("it did not end within {:?}", self.connects_within))
        }))
    }

    /// The next connection of the Requester, accepted with the private data of a Responder that has set R and takes 4096
    /// octets.
    pub(super) fn connection(&self) -> Tested<Player<'_>> {
        self.connection_saying(&private_data(true, 4096))
    }

    /// The same with this private data.
    pub(super) fn connection_saying(&self, private_data: &[u8]) -> Tested<Player<'_>> {
        self.call_it()?;
        let deadline = Instant::now() + self.deadline.at_most(self.connects_within);
        while Instant::now() < deadline {
            // One that ends before it says anything is that of a Requester that was stopped.
            if let Some(mut link) = self.accept(private_data, deadline)?
                && link.speaks()
            {
                return Ok(Player::new(self, link));
            }
        }
        error(format!(
            "no Requester connected within {:?}",
            self.connects_within
        ))
    }

    /// The next connection; `None` if it was one that ended before it was set up, as of a Requester that was stopped.
    fn accept(&self, said: &[u8], deadline: Instant) -> Tested<Option<Link>> {
        let mut listener = self.listener.borrow_mut();
        let options = QpOptions::default()
            .with_receives(RECEIVES)
            .with_receive_size(RECEIVE_SIZE)
            .with_setup_timeout(self.patience);
        let left = deadline.saturating_duration_since(Instant::now());
        let accepted: Result<_, String> = self.runtime.block_on(async {
            let Ok(incoming) = timeout(left, listener.accept()).await else {
                return Ok(None);
            };
            let mut incoming = incoming.map_err(|why| why.to_string())?;
            let Ok(request) = incoming.request(self.patience).await else {
                return Ok(None);
            };
            let receives = receives(RECEIVES - 1, RECEIVE_SIZE);
            match incoming.accept(&options, said, receives).await {
                Ok(qp) => Ok(Some((qp, request))),
                Err(_) => Ok(None),
            }
        });
        match accepted {
            Ok(Some((qp, request))) => {
                let (runtime, log) = (&self.runtime, &self.log);
                let limits = (self.patience, &self.deadline);
                Ok(Some(Link::new(qp, request, runtime, log, limits)))
            }
            Ok(None) => Ok(None),
            Err(why) => error(format!("cannot accept a connection: {why}")),
        }
    }

    /// Drops the connections that wait: they are of a case that is over.
    pub(super) fn drop_waiting(&self) {
        // The socket does not block: it is that of the listener.
        while let Some(Ok(_)) = self.tcp.as_ref().map(TcpListener::accept) {}
    }

    /// The next TCP connection of the Requester, on which nothing was said.
    pub(super) fn raw(&self) -> Tested<Peer> {
        let Some(tcp) = &self.tcp else {
            return skip("Requesters come over an RDMA device, which has frames of its own");
        };
        self.call_it()?;
        let accepted = self.runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(tcp.try_clone()?)?;
            match timeout(self.connects_within, listener.accept()).await {
                Ok(accepted) => {
                    let socket = accepted?.0.into_std()?;
                    socket.set_nonblocking(false)?;
                    Peer::over(socket, self.patience)
                }
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        });
        match accepted {
            Ok(peer) => Ok(peer),
            Err(why) => error(format!("no Requester connected: {why}")),
        }
    }

    /// The rest of the work of the Requester is done, or it is not known.
    pub(super) fn work_is_done(&self) -> Tested {
        match self.attend(&private_data(true, 4096), |_| ())? {
            Workload::Done | Workload::Unknown => Ok(()),
            Workload::Failed(why) => fail(format!("the work of the Requester fails: {why}")),
        }
    }
}

/// NFS version 3 and MOUNT for a file system in memory.
fn service() -> Result<Arc<dyn Service>, String> {
    let key = HandleKey::random().map_err(|why| why.to_string())?;
    // The files are the cases' own: whoever is to be tested may mount them.
    let everybody = ["0.0.0.0/0", "::/0"].map(|network| network.parse().expect("it is a network"));
    let options = ExportOptions::default()
        .with_squash(Squash::None)
        .with_allow(AccessList::new(everybody));
    let exports = Exports::new(key)
        .with(EXPORT, Arc::new(MemFs::new(FILE_SYSTEM)), options)
        .map_err(|why| why.to_string())?;
    let nfs = Nfs3::new(exports.clone(), buffer::Pool::new(POOL));
    let programs = Programs::new().with(nfs).with(Mount3::new(exports));
    Ok(Arc::new(programs))
}
