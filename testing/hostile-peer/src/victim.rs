//! The client under attack by a hostile server.

use crate::counting::Counting;
use crate::header::{
    Version, characteristic, direction, initial, operation, optional, procedure as proc,
};
use crate::peer::Peer;
use crate::target::{PROGRAM, able, ask, echo, procedure};
use crate::words;
use buffer::Gather;
use bytes::Bytes;
use conform::ietf07::{self, htype};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Procedure, ReplyBound, TransportError};
use rpcrdma::proto::v2::Dialect;
use rpcrdma::{Client, ClientConfig, ConnectError, Versions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use verbs::SetupError;
use verbs_iwarp::Iwarp;

/// A client on a runtime of its own.
pub struct Victim {
    runtime: Runtime,
    client: Client,
}

/// A call that is on its way.
pub struct Calling(JoinHandle<Result<Payload, TransportError>>);

impl Calling {
    pub(crate) fn new(
        runtime: &Runtime,
        call: impl Future<Output = Result<Payload, TransportError>> + Send + 'static,
    ) -> Self {
        Self(runtime.spawn(call))
    }

    pub(crate) fn outcome(self, runtime: &Runtime) -> Result<Payload, TransportError> {
        runtime.block_on(self.0).expect("no panic")
    }
}

/// Writes the arguments of ECHO; the result may be as long.
pub(crate) fn echoing(w: &mut Writer, data: Bytes) -> ReplyBound {
    let length = data.len();
    w.item(Gather::from_iter([data]));
    ReplyBound {
        fixed: 256,
        results: [length].into_iter().collect(),
    }
}

/// Segments that a call offers in its transport header: handle, length and offset of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// XID of the call.
    pub xid: u32,
    /// Credits that it asks for.
    pub credits: u32,
    /// Segments of the Read list.
    pub reads: Vec<[u32; 4]>,
    /// Segments of each Write chunk.
    pub writes: Vec<Vec<[u32; 4]>>,
    /// Segments of the Reply chunk.
    pub reply: Option<Vec<[u32; 4]>>,
}

/// A client that does not try again.
fn once() -> ClientConfig {
    ClientConfig::default()
        .with_credits(4)
        .with_reconnect(false)
        .with_call_timeout(Duration::from_secs(60))
        .with_setup_timeout(Duration::from_secs(60))
        .with_version_timeout(Duration::from_secs(60))
}

/// A client that speaks this version, and no other.
fn speaking(version: Version) -> ClientConfig {
    offering(match version {
        Version::One => Versions::One,
        Version::Two => Versions::Two,
    })
}

/// A client that speaks these versions, and does not try again.
pub fn offering(versions: Versions) -> ClientConfig {
    once().with_versions(versions)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A client of version two that takes calls of its server.
fn with_service() -> ClientConfig {
    speaking(Version::Two).with_callbacks(Arc::new(echo()))
}

/// A client on its way to a server, of which there is only the socket.
fn connecting(
    runtime: &Runtime,
    config: ClientConfig,
) -> (TcpListener, JoinHandle<Result<Client, ConnectError>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let to = listener.local_addr().expect("its address");
    let connecting = Client::connect(Arc::new(able(&config.remote_invalidation)), to, config);
    (listener, runtime.spawn(connecting))
}

/// Result of connecting to a server that treats each connection with this function.
///
/// # Panics
///
/// If it comes to a connection.
pub fn connect_to(serve: impl FnOnce(&TcpListener)) -> SetupError {
    connect_within(once().setup_timeout, serve)
}

/// The same with this timeout.
///
/// # Panics
///
/// If it comes to a connection.
pub fn connect_within(setup_timeout: Duration, serve: impl FnOnce(&TcpListener)) -> SetupError {
    let config = once().with_setup_timeout(setup_timeout);
    let runtime = runtime();
    let (listener, connecting) = connecting(&runtime, config);
    serve(&listener);
    drop(listener);
    match runtime.block_on(connecting).expect("no panic") {
        Err(error) => error.source,
        Ok(_) => panic!("the client takes this for a good server"),
    }
}

/// Returns the error of a client that connects with an offer of version two to a server that does this, once it
/// has taken in the offer.
///
/// # Panics
///
/// If it comes to a connection.
pub fn offer_to(config: ClientConfig, serve: impl FnOnce(&mut Peer, &[u32])) -> SetupError {
    let runtime = runtime();
    let (listener, connecting) = connecting(&runtime, config);
    let mut server = Peer::accept_announcing(&listener);
    let offer = server.answer();
    serve(&mut server, &offer);
    drop((listener, server));
    match runtime.block_on(connecting).expect("no panic") {
        Err(error) => error.source,
        Ok(_) => panic!("the client takes this for an answer"),
    }
}

/// Result of connecting to a port without a listener.
///
/// # Panics
///
/// If somebody does.
pub fn connect_to_nobody() -> (SocketAddr, ConnectError) {
    // Bound, so that nobody else gets the port meanwhile.
    let socket = TcpSocket::new_v4().expect("a socket");
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    socket.bind(anywhere).expect("a free port");
    let to = socket.local_addr().expect("its address");
    let connecting = Client::connect(Arc::new(Iwarp::default()), to, once());
    match runtime().block_on(connecting) {
        Err(error) => (to, error),
        Ok(_) => panic!("somebody listens at {to}"),
    }
}

impl Victim {
    /// A client, and the server that it is connected to.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn connected() -> (Self, Peer) {
        Self::with_timeout(once().call_timeout)
    }

    /// The same in this version. In version two the server has said nothing about itself but that.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn speaking(version: Version) -> (Self, Peer) {
        match version {
            Version::One => Self::meeting(speaking(version), Peer::accept),
            Version::Two => Self::agreeing(speaking(version), &initial(&[], &[])),
        }
    }

    /// A client of version two with a service of its own, which takes calls of the server.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn called_back() -> (Self, Peer) {
        Self::agreeing(with_service(), &initial(&[], &[]))
    }

    /// The same, over a connection without RDMA Reads (IRD 0).
    ///
    /// # Panics
    ///
    /// If the connection cannot be established, or the client says that it can.
    pub fn called_back_without_reads() -> (Self, Peer) {
        Self::meeting(with_service(), |listener| {
            let mut server = Peer::accept_without_reads(listener);
            let offer = server.answer();
            let inline = [characteristic::BRS, 4, 1];
            assert!(offer.windows(3).any(|value| value == inline), "{offer:x?}");
            let (reply, init) = (direction::REPLY, operation::INITXCH);
            server.send(&words(&optional(offer[0], reply, init, &initial(&[], &[]))));
            server
        })
    }

    /// A client of version two that does not allow its handles to be invalidated.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn that_keeps_its_handles() -> (Self, Peer) {
        let config = speaking(Version::Two).with_remote_invalidation(Vec::new());
        Self::agreeing(config, &initial(&[], &[]))
    }

    /// A client of version two whose server answers its offer with this about itself.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn told(said: &[u32]) -> (Self, Peer) {
        Self::agreeing(speaking(Version::Two), said)
    }

    fn agreeing(config: ClientConfig, said: &[u32]) -> (Self, Peer) {
        Self::offering(config, |server, offer| {
            let (reply, init) = (direction::REPLY, operation::INITXCH);
            server.send(&words(&optional(offer[0], reply, init, said)));
        })
    }

    /// A client that offers version two, and whose server answers in this way, knowing the words of
    /// the offer.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn offering(config: ClientConfig, answer: impl FnOnce(&mut Peer, &[u32])) -> (Self, Peer) {
        Self::meeting(config, |listener| {
            let mut server = Peer::accept_announcing(listener);
            let offer = server.answer();
            assert_eq!(offer[1], 2, "the version");
            assert_eq!(
                offer[3..6],
                [proc::OPTIONAL, direction::CALL, operation::INITXCH]
            );
            answer(&mut server, &offer);
            server
        })
    }

    /// A client of ietf-07 whose server has taken in its properties, and said its own. It does what `answer` does before
    /// that.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn of_ietf07(answer: impl FnOnce(&mut Counting, u32)) -> (Self, Counting) {
        let config = offering(Versions::Two).with_dialect(Dialect::Ietf07);
        Self::meeting(config, |listener| {
            // Each end may send one message at first.
            let mut server = Counting::over(Peer::accept(listener), (0, 0, 1));
            let offer = server.hear().expect("properties");
            assert_eq!((offer[1], offer[3]), (2, htype::CONNPROP_FINAL));
            answer(&mut server, offer[0]);
            server.force(&ietf07::message(0, htype::CONNPROP_FINAL, &[0]));
            server
        })
    }

    /// The same, with a client that has this call timeout.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn with_timeout(call_timeout: Duration) -> (Self, Peer) {
        let config = once().with_call_timeout(call_timeout);
        Self::meeting(config, Peer::accept)
    }

    /// A client whose server has this private data.
    ///
    /// # Panics
    ///
    /// If the connection cannot be established.
    pub fn greeted_with(private_data: &[u8]) -> (Self, Peer) {
        Self::meeting(once(), |listener| Peer::accept_with(listener, private_data))
    }

    fn meeting<P>(config: ClientConfig, accept: impl FnOnce(&TcpListener) -> P) -> (Self, P) {
        let runtime = runtime();
        let (listener, connecting) = connecting(&runtime, config);
        let server = accept(&listener);
        let client = runtime.block_on(connecting).expect("no panic");
        let client = client.expect("a connection");
        (Self { runtime, client }, server)
    }

    /// Nobody waits for this call any more.
    ///
    /// # Panics
    ///
    /// If it has ended already.
    pub fn cancel(&self, calling: Calling) {
        calling.0.abort();
        let ended = self.runtime.block_on(calling.0);
        assert!(ended.is_err_and(|error| error.is_cancelled()));
    }

    /// Asserts that the client, whose connection has ended, has returned all its memory.
    ///
    /// # Panics
    ///
    /// If it has not.
    pub fn assert_nothing_is_left(self) {
        let client = self.client.clone();
        self.runtime.block_on(async move { client.close().await });
        // Its connections and what they kept near end with their threads.
        let Self { runtime, client } = self;
        drop(runtime);
        assert_eq!(client.memory().out, 0, "bytes that are lost");
    }

    /// Calls ECHO with this data; its result may be as long.
    pub fn echo(&self, data: &[u8]) -> Calling {
        let (client, data) = (self.client.clone(), Bytes::copy_from_slice(data));
        let procedure = Procedure {
            prog: PROGRAM,
            vers: 2,
            proc: procedure::ECHO,
        };
        Calling::new(&self.runtime, async move {
            ask(&client, procedure, |w| echoing(w, data)).await
        })
    }

    /// Waits for the outcome of a call.
    ///
    /// # Errors
    ///
    /// Why there is no reply.
    ///
    /// # Panics
    ///
    /// If the client did.
    pub fn outcome(&self, calling: Calling) -> Result<Payload, TransportError> {
        calling.outcome(&self.runtime)
    }
}

impl Offered {
    /// From the words of a message.
    ///
    /// # Panics
    ///
    /// If it is no RDMA_MSG or RDMA_NOMSG.
    pub fn parse(message: &[u32]) -> Self {
        assert!(message[3] <= 1, "a call");
        let lists = match message[1] {
            1 => 4,
            2 => {
                assert_eq!(message[4], direction::CALL);
                5
            }
            version => panic!("version {version}"),
        };
        let mut words = message[lists..].iter().copied();
        let mut next = || words.next().expect("a whole header");
        let mut offered = Self {
            xid: message[0],
            credits: message[2],
            ..Self::default()
        };
        while next() == 1 {
            let _position = next();
            offered.reads.push([next(), next(), next(), next()]);
        }
        let chunk = |next: &mut dyn FnMut() -> u32| -> Vec<[u32; 4]> {
            let count = next();
            (0..count)
                .map(|_| [next(), next(), next(), next()])
                .collect()
        };
        while next() == 1 {
            offered.writes.push(chunk(&mut next));
        }
        if next() == 1 {
            offered.reply = Some(chunk(&mut next));
        }
        offered
    }
}
