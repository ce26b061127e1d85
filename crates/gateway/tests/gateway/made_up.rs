//! A server of a made-up program, which calls its clients, and clients that take its calls.

use crate::stage::*;
use gateway::{Gateway, Upstream};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    Answer, CallHeader, Caller, ConnectionId, Credential, Procedure, Reply, ReplyBound, Service,
    Transport, TransportError, write_call,
};
use rpcrdma::{Client, Server, Versions};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Number of the program.
pub(crate) const PROGRAM: u32 = 0x2000_0001;

/// Procedure that returns its argument.
pub(crate) const ECHO: u32 = 1;
/// Procedure that is answered when the test says so.
pub(crate) const HELD: u32 = 2;
/// Procedure whose reply has as many bytes as its argument says.
pub(crate) const GROW: u32 = 3;

/// One of the two transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    Rdma(Versions),
}

/// The ways through a gateway: client side, server side.
pub(crate) const WAYS: [(Over, Over); 5] = [
    (Over::Rdma(Versions::One), Over::Tcp),
    (Over::Tcp, Over::Rdma(Versions::One)),
    (Over::Rdma(Versions::One), Over::Rdma(Versions::One)),
    (Over::Tcp, Over::Rdma(Versions::Two)),
    (Over::Rdma(Versions::Two), Over::Tcp),
];

/// The server. Notes each call.
#[derive(Default)]
pub(crate) struct MadeUp {
    seen: Mutex<Seen>,
    changed: Notify,
}

#[derive(Default)]
struct Seen {
    /// Calls of all kinds, in order.
    calls: Vec<Vec<u8>>,
    callers: Vec<Caller>,
    /// Calls whose replies wait.
    held: HashMap<u32, oneshot::Sender<()>>,
    ended: Vec<ConnectionId>,
}

impl MadeUp {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no panic holds it")
    }

    pub(crate) fn calls(&self) -> Vec<Vec<u8>> {
        self.seen().calls.clone()
    }

    pub(crate) fn last_caller(&self) -> Caller {
        *self.seen().callers.last().expect("it was called")
    }

    pub(crate) fn callers(&self) -> Vec<Caller> {
        self.seen().callers.clone()
    }

    /// Waits until this many calls have come.
    pub(crate) async fn until_called(&self, calls: usize) {
        self.until(|seen| seen.calls.len() >= calls).await;
    }

    /// Waits until this many connections have ended.
    pub(crate) async fn until_ended(&self, connections: usize) {
        self.until(|seen| seen.ended.len() >= connections).await;
    }

    async fn until(&self, is: impl Fn(&Seen) -> bool) {
        within_limit(async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if is(&self.seen()) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }

    /// Answers a held call.
    pub(crate) fn release(&self, xid: u32) {
        let held = self.seen().held.remove(&xid).expect("it is held");
        let _ = held.send(());
    }
}

impl Service for MadeUp {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let mut whole = buffer::Buffer::default();
        call.copy_stream_into(&mut whole);
        let mut seen = self.seen();
        seen.calls.push(whole.to_vec());
        seen.callers.push(*caller);
        let whole = Payload::new(whole, 0);
        let mut r = Reader::from(&whole);
        let header = CallHeader::parse(&mut r).expect("a gateway passes calls on");
        let xid = header.xid;
        let answer = match (header.prog, header.proc) {
            (PROGRAM, ECHO) => Answer::message(success(xid, r.opaque(1 << 20).expect("bytes"))),
            (PROGRAM, GROW) => {
                let len = r.u32().expect("a length");
                Answer::message(success(xid, &vec![7; len as usize]))
            }
            (PROGRAM, HELD) => {
                let (release, released) = oneshot::channel();
                seen.held.insert(xid, release);
                Answer::Later(Box::pin(async move {
                    match released.await {
                        Ok(()) => Reply::Message(success(xid, b"released")),
                        Err(_) => Reply::Nothing,
                    }
                }))
            }
            _ => Answer::message(success(xid, &[])),
        };
        drop(seen);
        self.changed.notify_waiters();
        answer
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.seen().ended.push(connection);
        self.changed.notify_waiters();
    }
}

pub(crate) fn success(xid: u32, results: &[u8]) -> Payload {
    let mut w = Writer::default();
    w.words([xid, 1, 0, 0, 0, 0]);
    w.opaque(results);
    w.finish()
}

/// A call of the program, with AUTH_NONE.
pub(crate) fn call_of(xid: u32, proc: u32, argument: &[u8]) -> Payload {
    let (prog, vers) = (PROGRAM, 1);
    let mut w = Writer::default();
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    w.opaque(argument);
    w.finish()
}

/// A call of the program whose arguments are words.
pub(crate) fn call_of_words(xid: u32, proc: u32, words: &[u32]) -> Payload {
    let (prog, vers) = (PROGRAM, 1);
    let mut w = Writer::default();
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    words.iter().for_each(|&word| w.u32(word));
    w.finish()
}

/// CREATE_SESSION of version 4.1 that says that its connection takes callbacks, or not.
pub(crate) fn create_session(xid: u32, takes_callbacks: bool, sizes: u32) -> Payload {
    create_sessions(xid, if takes_callbacks { 2 } else { 0 }, &[sizes])
}

/// A COMPOUND with a CREATE_SESSION of version 4.1 for each of these sizes, with these flags.
pub(crate) fn create_sessions(xid: u32, flags: u32, sizes: &[u32]) -> Payload {
    let (prog, vers, proc) = (100_003, 4, 1);
    let mut w = Writer::default();
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    w.opaque(b"");
    w.words([1, u32::try_from(sizes.len()).expect("few")]);
    for &sizes in sizes {
        w.u32(43);
        w.u64(0xc11e);
        w.words([1, flags]);
        for ird in [None, Some(16)] {
            w.words([0, sizes, sizes, sizes, 8, 16]);
            match ird {
                None => w.u32(0),
                Some(ird) => w.words([1, ird]),
            }
        }
        w.words([0x4000_0000, 1, 0]);
    }
    w.finish()
}

/// A message as a record of TCP.
pub(crate) fn record_of(message: &Payload) -> Vec<u8> {
    let mut out = buffer::Buffer::default();
    oncrpc_tcp::record::encode(message, &mut out);
    out.to_vec()
}

/// The bytes of the results of a reply.
pub(crate) fn results(reply: &Payload, xid: u32) -> Vec<u8> {
    let mut r = oncrpc::read_reply(reply, xid).expect("it succeeded");
    r.opaque(4 << 20).expect("bytes").to_vec()
}

/// A bound for replies of up to so many bytes.
pub(crate) fn bound(bytes: usize) -> ReplyBound {
    ReplyBound::new(64 + bytes)
}

/// A running made-up server.
pub(crate) struct Upper {
    pub(crate) service: Arc<MadeUp>,
    pub(crate) addr: SocketAddr,
    over: Over,
    calling: Calling,
    server: Running,
}

enum Calling {
    Tcp(oncrpc_tcp::Backchannels),
    Rdma(rpcrdma::Backchannels),
}

enum Running {
    Tcp(TcpServer),
    Rdma(Server),
}

impl Upper {
    pub(crate) async fn new(over: Over) -> Self {
        let service = Arc::<MadeUp>::default();
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let (addr, calling, server) = match over {
            Over::Tcp => {
                let all = oncrpc_tcp::Backchannels::default();
                let server = serve_tcp_calling(shared, anywhere(), all.clone());
                (server.addr, Calling::Tcp(all), Running::Tcp(server))
            }
            Over::Rdma(versions) => {
                let all = rpcrdma::Backchannels::default();
                let config = server_config()
                    .with_versions(versions)
                    .with_backchannels(all.clone());
                let server = Server::bind(iwarp(), anywhere(), shared, config).await;
                let server = server.expect("it listens");
                let addr = server.local_addr();
                (addr, Calling::Rdma(all), Running::Rdma(server))
            }
        };
        Self {
            service,
            addr,
            over,
            calling,
            server,
        }
    }

    /// Ends the server at once, with calls in service.
    pub(crate) fn end(self) {
        match self.server {
            Running::Tcp(server) => server.abort(),
            // Dropped, not shut down: nothing is finished.
            Running::Rdma(server) => drop(server),
        }
    }

    /// The server as the upstream of a gateway.
    pub(crate) fn upstream(&self) -> Upstream {
        match self.over {
            Over::Tcp => Upstream::tcp(self.addr),
            Over::Rdma(versions) => rdma_upstream(self.addr, versions),
        }
    }

    /// A gateway in front of it.
    pub(crate) async fn behind(&self, down: Over) -> Gateway {
        let upstream = self.upstream();
        match down {
            Over::Tcp => from_tcp(upstream).await,
            Over::Rdma(_) => from_rdma(upstream).await,
        }
    }

    /// Calls the client that has called last.
    pub(crate) async fn call_back(&self, call: Payload) -> Result<Payload, TransportError> {
        let connection = self.service.last_caller().connection;
        match &self.calling {
            Calling::Tcp(all) => {
                let client = all.get(connection).expect("it is connected");
                client.client_is_ready().call(call, bound(100)).await
            }
            Calling::Rdma(all) => {
                let client = all.get(connection).expect("it is connected");
                client.client_is_ready().call(call, bound(100)).await
            }
        }
    }
}

/// A client of either transport.
pub(crate) enum Lower {
    Tcp(oncrpc_tcp::Client),
    Rdma(Client),
}

impl Lower {
    /// Connects with a service for calls of the server.
    pub(crate) async fn new(over: Over, to: SocketAddr, callbacks: Arc<dyn Service>) -> Self {
        match over {
            Over::Tcp => {
                let config = oncrpc_tcp::ClientConfig::new(LIMIT).with_callbacks(callbacks);
                let client = oncrpc_tcp::Client::connect_with(to, &config).await;
                Self::Tcp(client.expect("it connects"))
            }
            Over::Rdma(versions) => {
                let config = client_config()
                    .with_versions(versions)
                    .with_reconnect(false)
                    .with_callbacks(callbacks);
                let client = Client::connect(iwarp(), to, config).await;
                Self::Rdma(client.expect("it connects"))
            }
        }
    }

    pub(crate) async fn call(&self, call: Payload, most: usize) -> Result<Payload, TransportError> {
        match self {
            Self::Tcp(client) => client.call(call, bound(most)).await,
            Self::Rdma(client) => client.call(call, bound(most)).await,
        }
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) {
        within_limit(async {
            match self {
                Self::Tcp(client) => drop(client.ended().await),
                Self::Rdma(client) => drop(client.ended().await),
            }
        })
        .await;
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Tcp(client) => drop(client),
            Self::Rdma(client) => client.close().await,
        }
    }
}

/// Fails if something that must happen does not.
pub(crate) async fn within_limit<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    let done = tokio::time::timeout(limit, what).await;
    done.expect("it happens")
}

/// Waits for a condition that no event tells of.
pub(crate) async fn until(is: impl Fn() -> bool) {
    within_limit(async {
        while !is() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
