//! Which version of RPC-over-RDMA is spoken, and with whom it is not tried again.

use crate::echo::{self, Peer, exchange};
use crate::stage::{Noting, Stage, anywhere, providers, sim, sim_with_posted_receives};
use crate::test_server::TestServer;
use crate::{run, run_in_virtual_time};
use oncrpc::{Chain, Transport};
use rpcrdma::{
    Client, ClientConfig, Design, REMEMBER_VERSION_ONE, Server, ServerConfig, ServerStats, Spin,
    Version, Versions,
};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::XcharId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{Invalidation, Listener, Provider, QpOptions};
use verbs_sim::{EndOptions, Fabric};

fn speaking(versions: Versions) -> ClientConfig {
    ClientConfig::default()
        .with_versions(versions)
        .with_reconnect_first(Duration::from_millis(1))
        .with_spin(Spin::Park)
}

fn serving(versions: Versions) -> ServerConfig {
    ServerConfig::default().with_versions(versions)
}

#[test]
fn each_version_that_both_ends_speak_carries_calls_of_every_shape() {
    run(async {
        for provider in providers() {
            for (client, server, version) in [
                (Versions::One, Versions::Auto, Version::One),
                (Versions::Auto, Versions::One, Version::One),
                (Versions::Auto, Versions::Auto, Version::Two),
                (Versions::Two, Versions::Two, Version::Two),
            ] {
                let stage = Stage::new(Arc::clone(&provider), serving(server)).await;
                let client = stage.client(speaking(client)).await;
                let info = client.connection().expect("connected");
                assert_eq!(info.version, version);
                for &(args, results) in echo::SHAPES {
                    exchange(&client, args, results).await;
                }
                client.close().await;
                let stats = stage.server.shutdown().await;
                assert_eq!(stats.accepted, 1, "it goes on on the same connection");
            }
        }
    });
}

#[test]
fn server_has_clients_of_both_versions_at_a_time() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let one = stage.client(speaking(Versions::One)).await;
        let two = stage.client(speaking(Versions::Two)).await;
        for &(args, results) in echo::SHAPES {
            tokio::join!(exchange(&one, args, results), exchange(&two, args, results));
        }
        let versions = [&one, &two].map(|client| client.connection().expect("connected").version);
        assert_eq!(versions, [Version::One, Version::Two]);
        let spoken = |stats: ServerStats| (stats.version_one, stats.version_two);
        while spoken(stage.server.stats()) != (1, 1) {
            tokio::task::yield_now().await;
        }
        one.close().await;
        two.close().await;
        assert_eq!(spoken(stage.server.shutdown().await), (0, 0));
    });
}

#[test]
fn sizes_grow_with_the_traffic_of_version_two() {
    run(async {
        let stage = Stage::new(sim_with_posted_receives(), ServerConfig::default()).await;
        let client = stage.client(speaking(Versions::Two)).await;
        let receive = || {
            let info = client.connection().expect("connected");
            info.thresholds.receive.bytes()
        };
        assert_eq!(receive(), 4096);
        let mut calls = 0;
        while receive() == 4096 {
            exchange(&client, &[], &[]).await;
            calls += 1;
            assert!(calls < 1000, "it stays at 4096 bytes");
        }
        assert_eq!(receive(), 8192);
        let before = client.counters().write_chunks_offered;
        exchange(&client, &[], &[4096]).await;
        assert_eq!(client.counters().write_chunks_offered, before);
    });
}

#[test]
fn client_is_asked_for_receives_that_its_replies_fit_and_for_smaller_ones_again() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let config = speaking(Versions::Two).with_idle_timeout(None);
        let client = stage.client(config).await;
        // So many small results that the reply is long.
        let results = [5; 900];
        let in_chunks = async || {
            let before = client.counters().reply_bytes_received;
            exchange(&client, &[], &results).await;
            client.counters().reply_bytes_received - before
        };
        assert!(in_chunks().await > 0);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut calls = 0;
        while in_chunks().await > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            calls += 1;
            assert!(calls < 1000, "it is not asked for larger ones");
        }
        let mut calls = 0;
        loop {
            for _ in 0..200 {
                exchange(&client, &[], &[]).await;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            calls += 1;
            assert!(calls < 1000, "it is not asked for smaller ones");
            if calls % 10 == 0 && in_chunks().await > 0 {
                break;
            }
        }
    });
}

#[test]
fn request_for_larger_receives_goes_out_before_the_server_waits() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(speaking(Versions::Two)).await;
        let second = Duration::from_secs(1);
        // The server looks at what its replies need once a second at most.
        tokio::time::sleep(2 * second).await;
        exchange(&client, &[], &[5; 900]).await;
        tokio::time::sleep(second).await;
        // Beside the answer to INITXCH. Nothing but the server's own request woke the client.
        assert_eq!(client.counters().control_received, 2);
    });
}

#[test]
fn client_that_speaks_version_two_takes_calls_with_chunks() {
    run(async {
        for (versions, takes) in [(Versions::One, false), (Versions::Two, true)] {
            let stage = Stage::new(sim().1, ServerConfig::default()).await;
            let service = Noting::new();
            let config = speaking(versions).with_callbacks(Arc::clone(&service));
            let client = stage.client(config).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            exchange(&back, &[300], &[300]).await;
            let sizes: (&[usize], &[usize]) = (&[100_001], &[50_002, 3]);
            let call = echo::call(back.next_xid(), echo::NOW, sizes.0, sizes.1);
            let called = back.call(call, echo::bound(sizes.1)).await;
            assert_eq!(called.is_ok(), takes);
            assert_eq!(service.calls(), 1 + usize::from(takes));
        }
    });
}

#[test]
fn client_that_answers_no_calls_says_so_in_version_two() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(speaking(Versions::Two)).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        let call = echo::call(back.next_xid(), echo::NOW, &[], &[]);
        let called = back.call(call, echo::bound(&[])).await;
        let error = called.expect_err("refused").to_string();
        assert!(error.contains("BKREQSUP_NONE"), "{error}");
    });
}

#[test]
fn server_that_does_not_announce_version_two_is_not_asked() {
    run(async {
        let stage = Stage::new(sim().1, serving(Versions::One)).await;
        let config = speaking(Versions::Auto).with_connections(3);
        let client = stage.client(config).await;
        while client.connections().len() < 3 {
            exchange(&client, &[], &[]).await;
        }
        client.close().await;
        let stats = stage.server.shutdown().await;
        assert_eq!((stats.accepted, stats.counters.version_errors_sent), (3, 0));
    });
}

#[test]
fn stranger_is_spoken_to_in_version_one_and_offered_nothing() {
    // The draft of its private data is another, or it has none.
    for private_data in [&b""[..], b"\xf6\xab\x0e\x18\x01\x01\x03\x03rpc2ie07"] {
        run(async {
            let (_fabric, provider) = sim();
            let mut listener = provider.listen(anywhere()).await.expect("it listens");
            let to = listener.local_addr();
            let server = async {
                answer_in_version_one(taken_in_with(listener.as_mut(), private_data).await).await;
            };
            let client = async {
                let client = Client::connect(provider.clone(), to, speaking(Versions::Auto)).await;
                exchange(&client.expect("it connects"), &[], &[]).await;
            };
            tokio::select! {
                () = server => unreachable!("it serves for ever"),
                () = client => {}
            }
        });
    }
}

#[test]
fn server_of_another_draft_than_it_announces_costs_no_wait() {
    run_in_virtual_time(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            let mut first = taken_in(listener.as_mut()).await;
            assert_eq!(first.receive().await[1], 2);
            // RDMA2_CONNPROP_FINAL of ietf-07, which says nothing.
            first.send(&[0, 2, 8, 7, 0, 0, 0]);
            first.ended().await;
            drop(first);
            answer_in_version_one(taken_in(listener.as_mut()).await).await;
        };
        let client = async {
            let begin = Instant::now();
            let config = speaking(Versions::Auto);
            let limit = config.version_timeout;
            let client = Client::connect(provider.clone(), to, config).await;
            assert!(begin.elapsed() < limit);
            exchange(&client.expect("it connects"), &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("it serves for ever"),
            () = client => {}
        }
    });
}

#[test]
fn client_that_remembers_version_one_follows_a_server_to_version_two() {
    run(async {
        let stage = Stage::new(sim().1, serving(Versions::One)).await;
        let client = stage.client(speaking(Versions::Auto)).await;
        exchange(&client, &[], &[]).await;
        let version = || client.connection().map(|info| info.version);
        assert_eq!(version(), Some(Version::One));
        let (provider, to) = (Arc::clone(&stage.provider), stage.server.local_addr());
        stage.server.shutdown().await;
        let service = Noting::new();
        let server = TestServer::bind(provider, to, service, serving(Versions::Two)).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(version(), Some(Version::Two));
        client.close().await;
        let stats = server.shutdown().await;
        assert_eq!((stats.accepted, stats.counters.version_errors_sent), (1, 0));
    });
}

#[test]
fn client_that_wants_version_two_alone_says_what_the_server_speaks() {
    run(async {
        let stage = Stage::new(sim().1, serving(Versions::One)).await;
        let to = stage.server.local_addr();
        let provider = Arc::clone(&stage.provider);
        let client = Client::connect(provider, to, speaking(Versions::Two)).await;
        let error = client.err().expect("no common version");
        let said = Chain(&error).to_string();
        assert!(said.contains("supports versions 1 to 1"), "{said}");
    });
}

/// The next connection, taken in by a peer that the test drives by hand, and that announces version
/// two.
async fn taken_in(listener: &mut dyn Listener) -> Peer {
    taken_in_with(listener, &Dialect::Cel01.announcement()).await
}

/// The same, with this private data.
async fn taken_in_with(listener: &mut dyn Listener, private_data: &[u8]) -> Peer {
    let mut incoming = listener.accept().await.expect("a connection");
    let limit = Duration::from_secs(10);
    incoming.request(limit).await.expect("a request");
    let options = QpOptions::default();
    let accepted = incoming.accept(&options, private_data, echo::receives(8));
    let accepted = accepted.await;
    Peer::new(accepted.expect("accepted"))
}

/// Takes in calls without arguments and results in version one, and answers them.
async fn answer_in_version_one(mut peer: Peer) {
    loop {
        let call = peer.receive().await;
        assert_eq!(call[1], 1, "version one is spoken");
        peer.send(&[call[0], 1, 8, 0, 0, 0, 0, call[0], 1, 0]);
    }
}

#[test]
fn server_that_drops_whoever_offers_version_two_is_spoken_to_in_version_one() {
    run(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            let mut first = taken_in(listener.as_mut()).await;
            assert_eq!(first.receive().await[1], 2);
            drop(first);
            answer_in_version_one(taken_in(listener.as_mut()).await).await;
        };
        let client = async {
            let client = Client::connect(provider.clone(), to, speaking(Versions::Auto)).await;
            let client = client.expect("it connects");
            let info = client.connection().expect("connected");
            assert_eq!(info.version, Version::One);
            exchange(&client, &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("it serves for ever"),
            () = client => {}
        }
    });
}

#[test]
fn server_that_leaves_open_which_design_it_took_is_spoken_to_in_version_one() {
    run(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            let mut first = taken_in(listener.as_mut()).await;
            let xid = first.receive().await[0];
            // An INITXCH with two designs, 2 and 3, that never change.
            let id = XcharId::FIRST_EXPERIMENTAL.0;
            first.send(&[xid, 2, 8, 5, 1, 1, 24, 1, id, 4, 0b1100, 1, 1]);
            let next = taken_in(listener.as_mut()).await;
            drop(first);
            answer_in_version_one(next).await;
        };
        let client = async {
            let config = speaking(Versions::Auto)
                .with_remote_invalidation(vec![Design::Fixed, Design::PerCall]);
            let client = Client::connect(provider.clone(), to, config).await;
            let client = client.expect("it connects");
            let info = client.connection().expect("connected");
            assert_eq!(info.version, Version::One);
            exchange(&client, &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("it serves for ever"),
            () = client => {}
        }
    });
}

#[test]
fn server_that_is_left_no_version_does_not_start() {
    run(async {
        let mut unable = EndOptions::default();
        unable.limits.remote_invalidation = Invalidation::None;
        let unable: Arc<dyn Provider> = Arc::new(Fabric::new(5).provider(unable));
        let bind = async |versions| {
            let config = serving(versions).with_remote_invalidation(vec![Design::PerVersion]);
            Server::bind(Arc::clone(&unable), anywhere(), Noting::new(), config).await
        };
        let error = bind(Versions::Two).await.err();
        let error = error.expect("nothing is left to speak").to_string();
        assert!(error.contains("per_version"), "{error}");
        bind(Versions::Auto).await.expect("version one is left");
    });
}

#[test]
fn server_that_does_not_answer_the_offer_is_given_up_after_a_while() {
    run_in_virtual_time(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            // It stays open, and says nothing.
            let _silent = taken_in(listener.as_mut()).await;
            answer_in_version_one(taken_in(listener.as_mut()).await).await;
        };
        let client = async {
            let begin = Instant::now();
            let config = speaking(Versions::Auto);
            let limit = config.version_timeout;
            let client = Client::connect(provider.clone(), to, config).await;
            assert!(begin.elapsed() >= limit);
            exchange(&client.expect("it connects"), &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("it serves for ever"),
            () = client => {}
        }
    });
}

#[test]
fn version_two_is_offered_unannounced_to_a_server_that_lacks_version_one() {
    run(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            let mut peer = taken_in_with(listener.as_mut(), b"").await;
            let call = peer.receive().await;
            peer.send(&[call[0], 1, 8, 4, 1, 2, 2]);
            let mut next = taken_in_with(listener.as_mut(), b"").await;
            drop(peer);
            let offer = next.receive().await;
            assert_eq!(offer[1], 2);
            next.send(&[offer[0], 2, 8, 5, 1, 1, 8, 0, 0]);
            let call = next.receive().await;
            next.send(&[call[0], 2, 8, 0, 1, 0, 0, 0, call[0], 1, 0]);
            next.receive().await;
        };
        let client = async {
            let client = Client::connect(provider.clone(), to, speaking(Versions::Auto)).await;
            exchange(&client.expect("it connects"), &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("the client is done before"),
            () = client => {}
        }
    });
}

/// Connections are lost each time; what the client begins each of them with.
#[test]
fn connection_lost_after_version_two_was_turned_down_is_followed_by_version_one_for_a_while() {
    run_in_virtual_time(async {
        let (_fabric, provider) = sim();
        let mut listener = provider.listen(anywhere()).await.expect("it listens");
        let to = listener.local_addr();
        let server = async {
            let mut peer = taken_in(listener.as_mut()).await;
            let offer = peer.receive().await;
            peer.send(&[offer[0], 2, 8, 4, 1, 1, 1]);
            assert_eq!(peer.receive().await[1], 1);
            drop(peer);
            let mut peer = taken_in(listener.as_mut()).await;
            let call = peer.receive().await;
            assert_eq!(call[1], 1, "it is not asked again");
            peer.send(&[call[0], 1, 8, 0, 0, 0, 0, call[0], 1, 0]);
            peer.receive().await;
            drop(peer);
            let mut peer = taken_in(listener.as_mut()).await;
            let offer = peer.receive().await;
            assert_eq!(offer[1], 2, "it may be another server by now");
            peer.send(&[offer[0], 2, 8, 4, 1, 1, 1]);
            answer_in_version_one(peer).await;
        };
        let client = async {
            let config = speaking(Versions::Auto).with_idle_timeout(None);
            let client = Client::connect(provider.clone(), to, config).await;
            let client = client.expect("it connects");
            exchange(&client, &[], &[]).await;
            tokio::time::sleep(REMEMBER_VERSION_ONE).await;
            exchange(&client, &[], &[]).await;
        };
        tokio::select! {
            () = server => unreachable!("it serves for ever"),
            () = client => {}
        }
    });
}
