//! Duplicate request cache: the results of calls that must not be executed twice.
//!
//! A client that lost its connection sends again what was not answered. A REMOVE that was executed
//! would then fail, as the file is gone. So the results of such calls are kept for a while, and the
//! same call draws the same results. It is known by its transaction id, who sends it from which
//! address, and what it says, but not by its port or connection, which are others by then.
//!
//! Neither does it matter how it travelled: inline sizes may be others on the next connection, so
//! that data which came in a chunk comes inline. What is compared are the arguments in bytes, what
//! is kept are results without a header of RPC or of the transport.
//!
//! A call that comes again while it is executed is not executed a second time. On the connection of
//! the first it is dropped, as the results will go there. On others the last that came waits for the
//! results, as the connection of the first is gone by then, and those before it are dropped.

use super::{MAX_IN_FLIGHT, jukebox};
use nfs_proto::Status;
use oncrpc::{Answer, Call, ConnectionId, Credential, Reply};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hasher;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Most results kept for one client address, calls in flight included.
const MAX_REPLIES_OF_CLIENT: usize = 1024;

/// Most results kept in all, calls in flight included. Each takes some hundred bytes. The client with
/// most of them gives way.
const MAX_REPLIES: usize = 8192;

const _: () = assert!(
    MAX_IN_FLIGHT <= MAX_REPLIES,
    "the calls in flight of some clients must not fill the cache for the others"
);

/// Bytes of the arguments that are compared, beside how many there are: all of most calls, and the
/// beginning of what a WRITE brings, as to look at a megabyte would take longer than to write it.
const COMPARED: usize = 1024;

/// How long a reply is kept: longer than a client takes to come back. A call that comes later is a
/// new one, of a client that counts its transactions from the beginning again.
const MAX_AGE: Duration = Duration::from_secs(120);

/// The duplicate request cache of a program.
#[derive(Clone)]
pub(super) struct DuplicateRequestCache {
    shared: Arc<Shared>,
}

struct Shared {
    /// Unknown to clients, so that none can make a call that is taken for another's.
    key: [u8; 16],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<u128, Arc<Entry>>,
    /// Of each client in the order they came.
    clients: HashMap<IpAddr, VecDeque<(Instant, u128)>>,
}

struct Entry {
    /// Where the results will go.
    connection: ConnectionId,
    progress: Mutex<Progress>,
}

enum Progress {
    Running(Repeated),
    /// The results of the successful call.
    Done(Box<[u8]>),
    /// It came to no result that could be given again.
    Lost,
}

/// What came again of a call that is being executed.
#[derive(Default)]
struct Repeated {
    /// How many times. Only the last one waits.
    times: u64,
    /// Wakes that one.
    waker: Option<Waker>,
}

/// What is to be done with a call.
enum Entered {
    /// To execute it.
    First(Ticket),
    /// To answer it with what comes, or came, of this.
    Again(Arc<Entry>),
    /// There are too many calls in flight to remember one more.
    Full,
}

impl DuplicateRequestCache {
    pub(super) fn new() -> Self {
        let mut key = [0; 16];
        // Without randomness the cache still works among clients that mean well.
        let _ = getrandom::fill(&mut key);
        Self {
            shared: Arc::new(Shared {
                key,
                state: Mutex::default(),
            }),
        }
    }

    /// Answers a call by executing it, unless it was executed or is being executed.
    pub(super) fn once(&self, call: Call, execute: impl FnOnce(Call) -> Answer) -> Answer {
        let client = call.caller.addr.ip().to_canonical();
        let key = self.shared.key_of(client, &call);
        let connection = call.caller.connection;
        let entry = match self.shared.enter(client, connection, key, Instant::now()) {
            Entered::First(ticket) => return finish_with(ticket, execute(call)),
            Entered::Again(entry) if entry.answers_on(connection) => {
                return Answer::Now(Reply::Nothing);
            }
            Entered::Again(entry) => entry,
            Entered::Full => return Answer::Now(jukebox::reply(call)),
        };
        let mut waiting = Waiting {
            time: entry.repeat(),
            entry,
            call: Some(call),
        };
        match Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Answer::Now(reply),
            Poll::Pending => Answer::Later(Box::pin(waiting)),
        }
    }
}

/// Keeps the reply when it is there.
fn finish_with(ticket: Ticket, answer: Answer) -> Answer {
    match answer {
        Answer::Now(reply) => {
            ticket.finish(&reply);
            Answer::Now(reply)
        }
        Answer::Blocking(job) => Answer::Blocking(Box::new(move || {
            let reply = job();
            ticket.finish(&reply);
            reply
        })),
        Answer::Later(future) => Answer::Later(Box::pin(async move {
            let reply = future.await;
            ticket.finish(&reply);
            reply
        })),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_of(&self, client: IpAddr, call: &Call) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        match client {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
        for word in [call.xid, call.prog, call.vers, call.proc] {
            hasher.write_u32(word);
        }
        match &call.cred {
            Credential::Sys(sys) => {
                hasher.write_u32(sys.uid);
                hasher.write_u32(sys.gid);
            }
            Credential::None => {}
            Credential::Other { flavour, body } => {
                hasher.write_u32(*flavour);
                hasher.write(body);
            }
        }
        let (mut len, mut left) = (0, COMPARED);
        call.visit_args(|piece| {
            let compared = &piece[..piece.len().min(left)];
            hasher.write(compared);
            left -= compared.len();
            len += piece.len();
        });
        hasher.write_usize(len);
        hasher.finish128().as_u128()
    }

    /// A ticket to execute the call, or what there is of it.
    fn enter(
        self: &Arc<Self>,
        client: IpAddr,
        connection: ConnectionId,
        key: u128,
        now: Instant,
    ) -> Entered {
        let mut state = self.lock();
        state.forget_old(client, now);
        if let Some(entry) = state.entries.get(&key) {
            return Entered::Again(Arc::clone(entry));
        }
        if !state.make_room(client) {
            return Entered::Full;
        }
        let entry = Arc::new(Entry {
            connection,
            progress: Mutex::new(Progress::Running(Repeated::default())),
        });
        state.entries.insert(key, Arc::clone(&entry));
        let order = state.clients.entry(client).or_default();
        order.push_back((now, key));
        Entered::First(Ticket {
            shared: Arc::clone(self),
            entry,
            client,
            key,
        })
    }
}

impl State {
    /// Forgets replies of this client that are old.
    fn forget_old(&mut self, client: IpAddr, now: Instant) {
        while let Some((since, _)) = self.oldest(client)
            && now.duration_since(since) > MAX_AGE
        {
            self.forget_oldest(client);
        }
    }

    /// Makes room for one more call of this client: forgets its oldest results if it has too many, and
    /// the oldest of the busiest client if all together have, or of another if that has none. False if
    /// there is no room, as calls in flight are not forgotten.
    fn make_room(&mut self, client: IpAddr) -> bool {
        let own = self.clients.get(&client).map_or(0, VecDeque::len);
        if own >= MAX_REPLIES_OF_CLIENT && !self.forget_oldest(client) {
            return false;
        }
        if self.entries.len() < MAX_REPLIES {
            return true;
        }
        let busiest = self.clients.iter().max_by_key(|(_, order)| order.len());
        let busiest = busiest.map(|(client, _)| *client);
        if busiest.is_some_and(|client| self.forget_oldest(client)) {
            return true;
        }
        let mut clients = self.clients.keys().copied();
        let other = clients.find(|&client| self.oldest(client).is_some());
        other.is_some_and(|client| self.forget_oldest(client))
    }

    /// The oldest reply of a client: when its call came, and which one it is in the order of them.
    /// A call that is being executed is none: were it forgotten and came again, it would be executed
    /// twice.
    fn oldest(&self, client: IpAddr) -> Option<(Instant, usize)> {
        let order = self.clients.get(&client)?;
        let at = order.iter().position(|(_, key)| {
            let entry = self.entries.get(key);
            entry.is_none_or(|entry| !matches!(*entry.lock(), Progress::Running(_)))
        })?;
        Some((order[at].0, at))
    }

    /// Forgets the oldest reply of a client, if it has any.
    fn forget_oldest(&mut self, client: IpAddr) -> bool {
        let Some((_, at)) = self.oldest(client) else {
            return false;
        };
        if let Some(order) = self.clients.get_mut(&client)
            && let Some((_, key)) = order.remove(at)
        {
            self.entries.remove(&key);
            if order.is_empty() {
                self.clients.remove(&client);
            }
        }
        true
    }
}

impl Entry {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether results will go out on this connection by themselves.
    fn answers_on(&self, connection: ConnectionId) -> bool {
        self.connection == connection && matches!(*self.lock(), Progress::Running(_))
    }

    fn end(&self, progress: Progress) {
        let before = std::mem::replace(&mut *self.lock(), progress);
        if let Progress::Running(Repeated { waker, .. }) = before {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The call came once more: the number of this time. Who waited before does so no longer.
    fn repeat(&self) -> u64 {
        let mut progress = self.lock();
        let Progress::Running(repeated) = &mut *progress else {
            return 0;
        };
        repeated.times += 1;
        let before = repeated.waker.take();
        let time = repeated.times;
        drop(progress);
        before.into_iter().for_each(Waker::wake);
        time
    }
}

/// The right to execute a call, and the duty to say what came of it. Dropping it says that nothing
/// did: the call may be executed when it comes again.
struct Ticket {
    shared: Arc<Shared>,
    entry: Arc<Entry>,
    client: IpAddr,
    key: u128,
}

impl Ticket {
    fn finish(self, reply: &Reply) {
        if let Some(results) = results_of(reply) {
            self.entry.end(Progress::Done(results.into()));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if matches!(*self.entry.lock(), Progress::Done(_)) {
            return;
        }
        let mut state = self.shared.lock();
        // By now it may be another's.
        if let Some(entry) = state.entries.get(&self.key)
            && Arc::ptr_eq(entry, &self.entry)
        {
            state.entries.remove(&self.key);
            if let Some(order) = state.clients.get_mut(&self.client) {
                order.retain(|(_, key)| *key != self.key);
                if order.is_empty() {
                    state.clients.remove(&self.client);
                }
            }
        }
        drop(state);
        self.entry.end(Progress::Lost);
    }
}

/// What follows the header of a reply of status SUCCESS. The procedures kept here return nothing by
/// reference.
fn results_of(reply: &Reply) -> Option<&[u8]> {
    let Reply::Message(payload) = reply else {
        return None;
    };
    let (header, results) = payload.head().split_at_checked(oncrpc::REPLY_HEADER)?;
    // The last word of a header with an empty verifier is the status (RFC 5531 §9).
    let success = header.ends_with(&[0; 4]) && payload.items().is_empty();
    // NFS3ERR_JUKEBOX says that nothing was done yet (RFC 1813 §2.6).
    let later = results.starts_with(&(Status::Jukebox as u32).to_be_bytes());
    (success && !later).then_some(results)
}

/// A call that came again while it is executed.
struct Waiting {
    entry: Arc<Entry>,
    call: Option<Call>,
    /// Which time it is that it came again.
    time: u64,
}

impl Future for Waiting {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        let mut progress = this.entry.lock();
        if let Progress::Running(repeated) = &mut *progress {
            if repeated.times != this.time {
                return Poll::Ready(Reply::Nothing);
            }
            repeated.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Some(call) = this.call.take() else {
            return Poll::Ready(Reply::Nothing);
        };
        Poll::Ready(match &*progress {
            Progress::Done(results) => {
                let mut w = call.into_success();
                w.fixed(results);
                Reply::Message(w.finish())
            }
            Progress::Running(_) | Progress::Lost => jukebox::reply(call),
        })
    }
}

#[cfg(test)]
mod tests;
