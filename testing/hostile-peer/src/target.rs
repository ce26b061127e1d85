//! The server under attack, and an honest client that must stay served.

use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    AcceptStatus, Answer, Call, Credential, Procedure, Program, Programs, Reply, ReplyBound,
    ReplyHeader, ReplyStatus, Service, Transport, TransportError, write_call,
};
use rpcrdma::{Client, ClientConfig, Design, Server, ServerConfig, ServerStats};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use verbs::{Limits, Provider, WrapProvider};
use verbs_iwarp::Iwarp;

/// The program that the server has unless told otherwise, in versions 2 to 3.
pub const PROGRAM: u32 = 0x2000_4242;

/// Procedures of [`PROGRAM`].
pub mod procedure {
    /// NULL: no arguments and no results.
    pub const NULL: u32 = 0;
    /// Opaque data in, the same out; both may travel by reference.
    pub const ECHO: u32 = 1;
    /// Two numbers in, their sum out; nothing may travel by reference.
    pub const ADD: u32 = 2;
}

/// How long a client of a server with [`steady`] timeouts may take to hand over a chunk.
const PULL_TIMEOUT: Duration = Duration::from_secs(60);

/// Attempts of a client to connect to a server with a short timeout for setup.
const ATTEMPTS: usize = 20;

/// Bytes that may be echoed.
const MOST: u32 = 1 << 20;

struct Echo;

impl Program for Echo {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=3
    }

    fn call(&self, call: Call) -> Answer {
        Answer::Now(match call.proc {
            procedure::NULL => match call.decode(|_| Ok(())) {
                Ok(()) => call.void(),
                Err(error) => call.unreadable(error),
            },
            procedure::ECHO => match call.decode(|r| Ok(r.item(MOST)?.into_gather())) {
                Ok(data) => {
                    let mut w = call.success(Buffer::with_capacity(64));
                    w.item(data);
                    Reply::Message(w.finish())
                }
                Err(error) => call.unreadable(error),
            },
            procedure::ADD => match call.decode(|r| Ok((r.u32()?, r.u32()?))) {
                Ok((a, b)) => {
                    let mut w = call.success(Buffer::with_capacity(64));
                    w.u32(a.wrapping_add(b));
                    Reply::Message(w.finish())
                }
                Err(error) => call.unreadable(error),
            },
            _ => call.proc_unavail(),
        })
    }
}

/// A service of [`PROGRAM`].
pub(crate) fn echo() -> Programs {
    Programs::new().with(Echo)
}

/// A provider that shares no Receives.
struct Posting(Iwarp);

impl WrapProvider for Posting {
    type Inner = Iwarp;

    fn inner(&self) -> &Iwarp {
        &self.0
    }

    fn wrap_limits(&self) -> Limits {
        Limits {
            shared_receives: false,
            ..self.0.limits()
        }
    }
}

/// Bytes that the pool of a server keeps for reuse: so few that no thread keeps any for itself, and
/// what is out is exactly what is used.
const KEPT: usize = 512 << 10;

/// A server on loopback, and a client whose connection lasts as long as it.
pub struct Target {
    pool: Pool,
    /// Bytes of the pool that are out while there is only our own client.
    usual: usize,
    client: Client,
    server: Server,
    provider: Arc<dyn Provider>,
    called: Procedure,
    /// How often a client may try to connect: once, unless the server is in a hurry.
    attempts: usize,
    runtime: Runtime,
}

/// A server with timeouts that no passing test reaches, however slow the machine.
pub fn steady() -> ServerConfig {
    ServerConfig::default()
        .with_credits(16)
        .with_setup_timeout(Duration::from_secs(60))
        .with_pull_timeout(PULL_TIMEOUT)
        .with_workers(2)
}

/// A server with a short timeout for setup. A client that has to be served must
/// [try again](Target::assert_serves) where the machine is slower than that.
pub fn quick() -> ServerConfig {
    steady().with_setup_timeout(Duration::from_secs(1))
}

/// Software iWARP with what these designs need.
pub(crate) fn able(designs: &[Design]) -> Iwarp {
    let several = designs.iter().any(|design| design.needs_several());
    Iwarp::new(verbs_iwarp::Config::default().with_several_invalidations(several))
}

impl Target {
    /// A server of [`PROGRAM`].
    pub fn start() -> Self {
        Self::configured(steady())
    }

    /// Starts a target with this configuration.
    pub fn configured(config: ServerConfig) -> Self {
        let provider = Iwarp::default();
        Self::with(provider, config, echo(), PROGRAM, 2)
    }

    /// Starts a target without a shared receive queue, so that each connection posts its own Receives.
    pub fn posting() -> Self {
        Self::with(Posting(Iwarp::default()), steady(), echo(), PROGRAM, 2)
    }

    /// Starts a target over a provider with this configuration.
    pub fn over(provider: verbs_iwarp::Config) -> Self {
        let provider = Iwarp::new(provider);
        Self::with(provider, steady(), echo(), PROGRAM, 2)
    }

    /// A server that takes these designs for remote invalidation, the best first.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn taking(designs: &[Design]) -> Self {
        let mut config = steady();
        config.remote_invalidation = designs.to_vec();
        Self::with(able(designs), config, echo(), PROGRAM, 2)
    }

    /// A server of this service, of which the client calls the procedure NULL of this program and
    /// version.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn of(service: impl Service + 'static, program: u32, version: u32) -> Self {
        Self::of_configured(steady(), service, program, version)
    }

    /// Starts a target with this configuration.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn of_configured(
        config: ServerConfig,
        service: impl Service + 'static,
        program: u32,
        version: u32,
    ) -> Self {
        Self::with(Iwarp::default(), config, service, program, version)
    }

    /// Starts a target over this provider, which has this address.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn on(provider: impl Provider + 'static, address: IpAddr) -> Self {
        Self::at(provider, address, steady(), echo(), PROGRAM, 2)
    }

    fn with(
        provider: impl Provider + 'static,
        config: ServerConfig,
        service: impl Service + 'static,
        program: u32,
        version: u32,
    ) -> Self {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        Self::at(provider, loopback, config, service, program, version)
    }

    fn at(
        provider: impl Provider + 'static,
        address: IpAddr,
        mut config: ServerConfig,
        service: impl Service + 'static,
        program: u32,
        version: u32,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let provider: Arc<dyn Provider> = Arc::new(provider);
        let on = SocketAddr::new(address, 0);
        let pool = Pool::new(KEPT);
        config.pool = Some(pool.clone());
        let attempts = match config.setup_timeout < steady().setup_timeout {
            true => ATTEMPTS,
            false => 1,
        };
        let (server, client) = runtime.block_on(async {
            let server = Server::bind(Arc::clone(&provider), on, Arc::new(service), config).await;
            let server = server.expect("the server listens");
            let to = server.local_addr();
            let client = connected(&provider, to, attempts).await;
            (server, client)
        });
        let mut target = Self {
            usual: 0,
            pool,
            client,
            server,
            provider,
            called: Procedure {
                prog: program,
                vers: version,
                proc: 0,
            },
            attempts,
            runtime,
        };
        target.runtime.block_on(target.call(&target.client));
        target.usual = target.pool.stats().out;
        target
    }

    /// Asserts that our own client is the only one that is left, and that no memory is used but
    /// what it needs: it calls until that is so.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn assert_baseline(&self) {
        // A peer that went without a word is noticed when it has handed over no chunk in time.
        let deadline = Instant::now() + PULL_TIMEOUT + Duration::from_secs(30);
        loop {
            self.runtime.block_on(self.call(&self.client));
            let (stats, out) = (self.server.stats(), self.pool.stats().out);
            if stats.connections == 1 && stats.chunk_memory == 0 && out <= self.usual {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{} connections, {} bytes of chunks, {out} bytes of {} usually",
                stats.connections,
                stats.chunk_memory,
                self.usual
            );
        }
    }

    /// Statistics of the server.
    pub fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// The provider of the server and its client.
    pub(crate) fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// The address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Asserts that the server continues to serve: the client that was there before, over the same
    /// connection, and a new one.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn assert_serves(&self) {
        self.runtime.block_on(async {
            self.call(&self.client).await;
            let new = connected(&self.provider, self.addr(), self.attempts).await;
            self.call(&new).await;
            new.close().await;
        });
    }

    /// Asserts that data which has to travel in chunks is echoed to the client that was there
    /// before.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn assert_echoes(&self, data: &[u8]) {
        let piece = Bytes::copy_from_slice(data);
        let procedure = Procedure {
            proc: procedure::ECHO,
            ..self.called
        };
        let reply = self.runtime.block_on(ask(&self.client, procedure, |w| {
            w.item(Gather::from_iter([piece]));
            ReplyBound {
                fixed: 1024,
                results: [data.len()].into_iter().collect(),
            }
        }));
        let reply = reply.expect("a reply");
        let mut r = Reader::from(&reply);
        assert_success(&mut r);
        let echoed = r.item(MOST).expect("the data comes back");
        assert!(echoed.to_vec() == data);
    }

    async fn call(&self, client: &Client) {
        let reply = ask(client, self.called, |_| ReplyBound {
            fixed: 1024,
            ..ReplyBound::default()
        });
        let reply = reply.await.expect("a reply");
        assert_success(&mut Reader::from(&reply));
    }

    /// Stops the server and gives its last word.
    pub fn stop(self) -> ServerStats {
        self.runtime.block_on(async {
            self.client.close().await;
            self.server.shutdown().await
        })
    }
}

/// Calls a procedure; `arguments` writes them, and says how large the reply can be.
pub(crate) async fn ask(
    client: &impl Transport,
    procedure: Procedure,
    arguments: impl FnOnce(&mut Writer) -> ReplyBound,
) -> Result<Payload, TransportError> {
    let xid = client.next_xid();
    let mut w = Writer::new(Buffer::with_capacity(128));
    write_call(&mut w, xid, procedure, &Credential::None);
    let bound = arguments(&mut w);
    client.call(w.finish(), bound).await
}

fn assert_success(reply: &mut Reader<'_>) {
    let header = ReplyHeader::parse(reply).expect("a good reply");
    assert_eq!(header.status, ReplyStatus::accepted(AcceptStatus::Success));
}

/// A client that the server takes in, at one of so many attempts.
async fn connected(provider: &Arc<dyn Provider>, to: SocketAddr, attempts: usize) -> Client {
    for _ in 1..attempts {
        if let Ok(client) = Client::connect(Arc::clone(provider), to, patient()).await {
            return client;
        }
    }
    let client = Client::connect(Arc::clone(provider), to, patient()).await;
    client.expect("the server takes in a client")
}

/// A client that would notice any loss of its connection.
fn patient() -> ClientConfig {
    ClientConfig::default()
        .with_credits(4)
        .with_reconnect(false)
        .with_call_timeout(Duration::from_secs(60))
        .with_setup_timeout(Duration::from_secs(60))
}
