//! A client that calls a server which breaks the rules.

use crate::peer::Peer;
use crate::target::{PROGRAM, ask, procedure};
use buffer::Gather;
use bytes::Bytes;
use oncrpc::{Procedure, ReplyBound, TransportError};
use rpcrdma::{Client, ClientConfig};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use verbs::SetupError;
use verbs_iwarp::Iwarp;
use xdr::Payload;

/// A client on a runtime of its own.
pub struct Victim {
    runtime: Runtime,
    client: Client,
}

/// A call that is on its way.
pub struct Calling(JoinHandle<Result<Payload, TransportError>>);

/// What a call offers in its transport header: handle, length and offset of each segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Of the call.
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
    ClientConfig {
        credits: 4,
        reconnect: false,
        call_timeout: Duration::from_secs(60),
        setup_timeout: Duration::from_secs(60),
        ..ClientConfig::default()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A client on its way to a server, of which there is only the socket.
fn connecting(
    runtime: &Runtime,
    config: ClientConfig,
) -> (TcpListener, JoinHandle<Result<Client, SetupError>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let to = listener.local_addr().expect("its address");
    let connecting = Client::connect(Arc::new(Iwarp::default()), to, config);
    (listener, runtime.spawn(connecting))
}

/// What comes of connecting to a server that does this with each connection, until it is done.
///
/// # Panics
///
/// If it comes to a connection.
pub fn connect_to(serve: impl FnOnce(&TcpListener)) -> SetupError {
    connect_within(once().setup_timeout, serve)
}

/// The same, with this much time for it.
///
/// # Panics
///
/// If it comes to a connection.
pub fn connect_within(setup_timeout: Duration, serve: impl FnOnce(&TcpListener)) -> SetupError {
    let config = ClientConfig {
        setup_timeout,
        ..once()
    };
    let runtime = runtime();
    let (listener, connecting) = connecting(&runtime, config);
    serve(&listener);
    drop(listener);
    match runtime.block_on(connecting).expect("no panic") {
        Err(error) => error,
        Ok(_) => panic!("the client takes this for a good server"),
    }
}

/// What comes of connecting where nobody listens.
///
/// # Panics
///
/// If somebody does.
pub fn connect_to_nobody() -> (SocketAddr, SetupError) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let to = listener.local_addr().expect("its address");
    drop(listener);
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
    /// If they do not come together.
    pub fn connected() -> (Self, Peer) {
        Self::with_patience(once().call_timeout)
    }

    /// The same, with a client that waits this long for a reply.
    ///
    /// # Panics
    ///
    /// If they do not come together.
    pub fn with_patience(call_timeout: Duration) -> (Self, Peer) {
        let config = ClientConfig {
            call_timeout,
            ..once()
        };
        Self::meeting(config, Peer::accept)
    }

    /// A client whose server has this private data.
    ///
    /// # Panics
    ///
    /// If they do not come together.
    pub fn greeted_with(private_data: &[u8]) -> (Self, Peer) {
        Self::meeting(once(), |listener| Peer::accept_with(listener, private_data))
    }

    fn meeting(config: ClientConfig, accept: impl FnOnce(&TcpListener) -> Peer) -> (Self, Peer) {
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

    /// Asserts that the client, whose connection is over, has given back all its memory.
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
        assert_eq!(client.memory().out, 0, "octets that are lost");
    }

    /// Calls ECHO with this data; its result may be as long.
    pub fn echo(&self, data: &[u8]) -> Calling {
        let (client, data) = (self.client.clone(), Bytes::copy_from_slice(data));
        Calling(self.runtime.spawn(async move {
            let procedure = Procedure {
                prog: PROGRAM,
                vers: 2,
                proc: procedure::ECHO,
            };
            ask(&client, procedure, |w| {
                let length = data.len();
                w.item(Gather::from_iter([data]));
                ReplyBound {
                    fixed: 256,
                    results: [length].into_iter().collect(),
                }
            })
            .await
        }))
    }

    /// What becomes of a call.
    ///
    /// # Errors
    ///
    /// Why there is no reply.
    ///
    /// # Panics
    ///
    /// If the client did.
    pub fn outcome(&self, calling: Calling) -> Result<Payload, TransportError> {
        self.runtime.block_on(calling.0).expect("no panic")
    }
}

impl Offered {
    /// From the words of a message.
    ///
    /// # Panics
    ///
    /// If it is no RDMA_MSG or RDMA_NOMSG.
    pub fn parse(message: &[u32]) -> Self {
        assert_eq!(message[1], 1, "the version");
        assert!(message[3] <= 1, "a call");
        let mut words = message[4..].iter().copied();
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
