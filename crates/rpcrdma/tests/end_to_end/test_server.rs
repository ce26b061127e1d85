//! A server and its clients, with the checkers on.

use crate::SPOKEN;
use oncrpc::Service;
use rpcrdma::{
    CallbackService, Client, ClientConfig, ConnectError, Server, ServerConfig, ServerStats,
    Versions,
};
use rpcrdma_watch::{Party, Watch, Watched};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use verbs::{Provider, SetupError};

/// A server that is watched, as are the clients that it was asked for. When it goes they must have
/// kept to all rules, and when it is shut down nothing may be left of them.
pub(crate) struct TestServer {
    server: Option<Server>,
    party: Party,
    watch: Watch,
    clients: Mutex<Vec<Party>>,
    /// Whether a peer of it keeps to no rules, so that nothing can be said.
    lawless: bool,
}

impl TestServer {
    pub(crate) async fn bind(
        provider: Arc<dyn Provider>,
        on: SocketAddr,
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) -> Self {
        let watch = Watch::default();
        let mut server = Self {
            server: None,
            party: watch.party("server"),
            watch,
            clients: Mutex::default(),
            lawless: false,
        };
        server.start(provider, on, service, config).await;
        server
    }

    async fn start(
        &mut self,
        provider: Arc<dyn Provider>,
        on: SocketAddr,
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) {
        let (provider, service) = (self.party.provider(provider), self.party.service(service));
        let server = Server::bind(provider, on, service, config).await;
        self.server = Some(server.expect("it listens"));
    }

    /// Listens over another provider too, at the same address.
    pub(crate) async fn listen_also(&self, provider: Arc<dyn Provider>) {
        let provider = self.party.provider(provider);
        let listening = self.deref().listen_also(provider, self.local_addr()).await;
        assert_eq!(listening.expect("it listens"), self.local_addr());
    }

    /// Why it cannot do that.
    pub(crate) async fn listen_also_fails(&self, provider: Arc<dyn Provider>) -> SetupError {
        let listening = self.deref().listen_also(provider, self.local_addr()).await;
        listening.expect_err("it cannot listen there")
    }

    /// Shuts it down, and has another listen where it did.
    pub(crate) async fn begin_anew(
        &mut self,
        provider: Arc<dyn Provider>,
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) {
        let server = self.server.take().expect("it is there");
        let on = server.local_addr();
        server.shutdown().await;
        self.start(provider, on, service, config).await;
    }

    /// A client of it over this provider.
    pub(crate) async fn client(
        &self,
        provider: Arc<dyn Provider>,
        mut config: ClientConfig,
    ) -> Result<Watched<Client>, ConnectError> {
        let party = {
            let mut clients = self.clients.lock().expect("no panic holds it");
            let party = self.watch.party(format_args!("client {}", clients.len()));
            clients.push(party.clone());
            party
        };
        if config.versions == Versions::One {
            config.versions = SPOKEN.get();
        }
        let callbacks = config.callbacks.take();
        config.callbacks = callbacks.map(|callbacks| CallbackService(party.service(callbacks.0)));
        let provider = party.provider(provider);
        let client = Client::connect(provider, self.local_addr(), config).await?;
        Ok(party.transport(client))
    }

    /// The server as a user of its provider.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// One of its peers is driven by hand, and breaks rules.
    pub(crate) fn has_lawless_peer(&mut self) {
        self.lawless = true;
    }

    pub(crate) async fn shutdown(mut self) -> ServerStats {
        let server = self.server.take().expect("it is there");
        let stats = server.shutdown().await;
        self.party.gone().await;
        let clients = std::mem::take(&mut *self.clients.lock().expect("no panic holds it"));
        for client in clients {
            client.gone().await;
        }
        stats
    }
}

impl Deref for TestServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().expect("it is there")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !self.lawless && !std::thread::panicking() {
            self.watch.finish(&[]);
        }
    }
}
