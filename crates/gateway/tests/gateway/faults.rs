//! Two gateways back to back with faults on the connection between them and at the server, by seed.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, Upstream};
use oncrpc::{Programs, Service};
use rpcrdma::Versions;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::task::JoinSet;
use verbs::Provider;
use verbs_sim::{EndOptions, Fabric, Outstanding};

/// Seeds of one run; `GATEWAY_SEEDS` sets another number.
const SEEDS: u64 = 24;

/// Calls of each client.
const CALLS: u32 = 12;

/// Connections that a client makes at most for one call.
const MAX_ATTEMPTS: usize = 100;

/// A sequence of numbers by seed (a linear congruential generator).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        let (a, c) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.0 = self.0.wrapping_mul(a).wrapping_add(c);
        (self.0 >> 33) % end
    }

    fn data(&mut self) -> Vec<u8> {
        let len = match self.below(3) {
            0 => self.below(100),
            1 => self.below(8_000),
            _ => self.below(300_000),
        };
        let first = self.0.to_le_bytes()[4];
        let bytes = (0..len).map(|at| at.to_le_bytes()[0].wrapping_add(first));
        bytes.collect()
    }
}

/// Makes calls until each is answered, over as many connections as that takes.
async fn client(to: SocketAddr, mut random: Random) {
    let nobody = || Arc::new(Programs::new()) as Arc<dyn Service>;
    let mut connection = None;
    for xid in 1..=CALLS {
        let data = random.data();
        let mut attempts = 0;
        let reply = loop {
            attempts += 1;
            assert!(attempts < MAX_ATTEMPTS, "a call is answered in the end");
            let client = match connection.take() {
                Some(client) => client,
                None => Lower::new(Over::Tcp, to, nobody()).await,
            };
            if let Ok(reply) = client.call(call_of(xid, ECHO, &data), 0).await {
                connection = Some(client);
                break reply;
            }
        };
        assert!(
            results(&reply, xid) == data,
            "the reply is that of the call"
        );
    }
}

/// Cuts connections, or restarts the server, while clients call.
async fn faults(fabric: Fabric, mut server: TcpServer, mut random: Random) -> TcpServer {
    let service = Arc::<MadeUp>::default();
    for _ in 0..random.below(8) {
        for _ in 0..random.below(3000) {
            tokio::task::yield_now().await;
        }
        let connections = fabric.connections();
        match random.below(4) {
            0 => {
                let addr = server.addr;
                server.abort();
                // The connections of the old one have ended by then.
                tokio::task::yield_now().await;
                let (service, all) = (Arc::clone(&service), oncrpc_tcp::Backchannels::default());
                server = serve_tcp_calling(service, addr, all);
            }
            _ if connections.is_empty() => {}
            _ => {
                let which = random.below(connections.len() as u64);
                fabric.cut(connections[usize::try_from(which).expect("an index")]);
            }
        }
    }
    server
}

async fn run(seed: u64, versions: Versions) {
    let mut random = Random(seed);
    let fabric = Fabric::new(seed);
    let provider: Arc<dyn Provider> = Arc::new(fabric.provider(EndOptions::default()));
    let server = serve_tcp(Arc::<MadeUp>::default());
    let config = GatewayConfig::default().with_workers(0_usize);
    let listen = Listen::rdma(
        Arc::clone(&provider),
        anywhere(),
        server_config().with_workers(0_usize),
    );
    let far = Gateway::bind(listen, Upstream::tcp(server.addr), config.clone()).await;
    let far = far.expect("it listens");
    let client_config = client_config().with_versions(versions);
    let upstream = Upstream::rdma(provider, far.local_addr(), client_config);
    let listener = TcpListener::bind(anywhere()).expect("it listens");
    let near = Gateway::bind(Listen::tcp(listener), upstream, config).await;
    let near = near.expect("it listens");
    let mut clients = JoinSet::new();
    for number in 0..3 {
        let random = Random(random.below(1 << 30) + number);
        clients.spawn(client(near.local_addr(), random));
    }
    let faults = tokio::spawn(faults(fabric.clone(), server, random));
    within_limit(async {
        while clients
            .join_next()
            .await
            .transpose()
            .expect("no panic")
            .is_some()
        {}
    })
    .await;
    let server = faults.await.expect("no panic");
    for gateway in [near, far] {
        let stats = within_limit(gateway.shutdown()).await;
        assert_eq!(stats.relays, 0, "{stats:?}");
        assert_eq!(stats.repetitions + stats.system_errors + stats.timeouts, 0);
    }
    drop(server);
    until(|| fabric.outstanding() == Outstanding::default()).await;
}

#[tokio::test]
async fn every_call_is_answered_through_two_gateways_whatever_is_cut() {
    let seeds = std::env::var("GATEWAY_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        println!("seed {seed}");
        let versions = match seed % 2 {
            0 => Versions::One,
            _ => Versions::Two,
        };
        run(seed, versions).await;
    }
}
