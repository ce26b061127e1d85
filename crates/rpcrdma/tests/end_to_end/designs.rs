//! The designs for remote invalidation, from one end to the other
//! (draft-cel-nfsv4-reminv-design-03 §4).

use crate::echo::{self, exchange};
use crate::invalidation::Silent;
use crate::run;
use crate::stage::{Noting, Stage, providers, sim};
use oncrpc::Transport;
use rpcrdma::{
    Client, ClientConfig, Counters, Design, PersistentArguments, ServerConfig, Spin, Version,
    Versions,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use verbs::{Invalidation, Provider};
use verbs_sim::{EndOptions, Fabric};

fn offering(designs: &[Design]) -> ClientConfig {
    ClientConfig::default()
        .with_versions(Versions::Auto)
        .with_remote_invalidation(designs.to_vec())
        .with_reconnect_first(Duration::from_millis(1))
        .with_spin(Spin::Park)
}

fn taking(designs: &[Design]) -> ServerConfig {
    ServerConfig::default().with_remote_invalidation(designs.to_vec())
}

/// Handles that were offered, if no chunk was empty.
fn offered(counters: &Counters) -> u64 {
    counters.read_chunks_offered + counters.write_chunks_offered + counters.reply_chunks_offered
}

#[test]
fn under_each_design_calls_of_every_shape_lose_one_handle_or_all_to_their_reply() {
    run(async {
        for provider in providers() {
            for design in Design::ALL {
                let stage = Stage::new(Arc::clone(&provider), taking(&[design])).await;
                let client = stage.client(offering(&[design])).await;
                let info = client.connection().expect("connected");
                assert_eq!(info.version, Version::Two);
                assert_eq!(info.remote_invalidation, Some(design));
                let mut with_chunks = 0;
                for &(args, results) in echo::SHAPES {
                    let before = offered(&client.counters());
                    exchange(&client, args, results).await;
                    with_chunks += u64::from(offered(&client.counters()) > before);
                }
                client.close().await;
                let counters = client.counters();
                let expected = match design.needs_several() {
                    true => offered(&counters),
                    false => with_chunks,
                };
                assert_eq!(counters.remote_invalidations, expected, "{design}");
                let all = counters.remote_invalidations + counters.local_invalidations;
                assert_eq!(all, offered(&counters), "{design}");
                let stats = stage.server.shutdown().await;
                assert_eq!(stats.counters.invalidations_sent, expected, "{design}");
                assert_eq!(stats.counters.foreign_handles_named, 0);
            }
        }
    });
}

#[test]
fn server_takes_the_first_of_its_designs_that_is_offered() {
    run(async {
        use Design::*;
        for (client, server, agreed) in [
            (&Design::ALL[..], &[PerCall, Fixed][..], Some(PerCall)),
            (&[Fixed, PerCall], &[InterCall, Fixed, PerCall], Some(Fixed)),
            // One that was agreed on goes before what holds without.
            (
                &[PerConnection, Fixed],
                &[PerConnection, Fixed],
                Some(Fixed),
            ),
            (
                &[PerConnection, Fixed],
                &[PerConnection, PerCall],
                Some(PerConnection),
            ),
            (&[Fixed], &[PerCall, PerConnection], None),
            (&[], &[Fixed, PerCall, PerConnection], None),
            (&[Fixed], &[], None),
        ] {
            let stage = Stage::new(sim().1, taking(server)).await;
            let client = stage.client(offering(client)).await;
            exchange(&client, &[50_000], &[]).await;
            let info = client.connection().expect("connected");
            assert_eq!(info.remote_invalidation, agreed);
            let remote = client.counters().remote_invalidations;
            assert_eq!(remote, u64::from(agreed.is_some()));
        }
    });
}

#[test]
fn server_invalidates_nothing_by_what_it_was_not_told_to_use() {
    run(async {
        use Design::*;
        for (client, server) in [
            (&[PerConnection][..], &[][..]),
            (&[PerConnection, Fixed], &[PerCall]),
        ] {
            let stage = Stage::new(sim().1, taking(server)).await;
            let client = stage.client(offering(client)).await;
            exchange(&client, &[50_000], &[]).await;
            assert_eq!(client.counters().remote_invalidations, 0);
        }
    });
}

#[test]
fn version_one_has_r_and_no_other_design() {
    run(async {
        for (designs, agreed) in [
            (&[Design::PerVersion][..], None),
            (&[Design::Fixed, Design::PerCall, Design::InterCall], None),
            (&Design::ALL, Some(Design::PerConnection)),
        ] {
            for (speaks, serves) in [
                (Versions::One, Versions::Auto),
                // It is turned down, and goes on on the same connection.
                (Versions::Auto, Versions::One),
            ] {
                let config = taking(designs).with_versions(serves);
                let stage = Stage::new(sim().1, config).await;
                let config = offering(designs).with_versions(speaks);
                let client = stage.client(config).await;
                for &(args, results) in echo::SHAPES {
                    exchange(&client, args, results).await;
                }
                let info = client.connection().expect("connected");
                assert_eq!(info.version, Version::One);
                assert_eq!(info.remote_invalidation, agreed);
                let remote = client.counters().remote_invalidations;
                assert_eq!(remote > 0, agreed.is_some());
            }
        }
    });
}

/// A provider whose memory its peers cannot invalidate, and one whose can, on the same fabric.
fn unable_and_able() -> (Arc<dyn Provider>, Arc<dyn Provider>) {
    let fabric = Fabric::new(5);
    let mut unable = EndOptions::default();
    unable.limits.remote_invalidation = Invalidation::None;
    let able = fabric.provider(EndOptions::default());
    (Arc::new(fabric.provider(unable)), Arc::new(able))
}

#[test]
fn end_that_cannot_have_every_handle_go_does_not_speak_a_version_that_says_so() {
    run(async {
        let designs = [Design::PerVersion];
        let (unable, able) = unable_and_able();
        for (at_server, at_client) in [(&able, &unable), (&unable, &able)] {
            let stage = Stage::new(Arc::clone(at_server), taking(&designs)).await;
            let client = stage
                .server
                .client(Arc::clone(at_client), offering(&designs));
            let client = client.await.expect("it connects");
            let info = client.connection().expect("connected");
            assert_eq!(info.version, Version::One);
            exchange(&client, &[50_000], &[50_000]).await;
        }
        let stage = Stage::new(able, taking(&designs)).await;
        let config = offering(&designs).with_versions(Versions::Two);
        let client = Client::connect(unable, stage.server.local_addr(), config).await;
        let error = client.err().expect("nothing is left to speak");
        let error = error.source.to_string();
        assert!(error.contains("per_version"), "{error}");
    });
}

#[test]
fn client_whose_memory_nobody_can_invalidate_names_no_handle() {
    run(async {
        let (unable, able) = unable_and_able();
        for design in [Design::PerCall, Design::PerCallSeveral, Design::PerCallAll] {
            let designs = [Design::Fixed, design];
            let stage = Stage::new(Arc::clone(&able), taking(&designs)).await;
            let client = stage.server.client(Arc::clone(&unable), offering(&designs));
            let client = client.await.expect("it connects");
            for &(args, results) in echo::SHAPES {
                exchange(&client, args, results).await;
            }
            let info = client.connection().expect("connected");
            assert_eq!(info.remote_invalidation, Some(design));
            let counters = client.counters();
            assert_eq!(counters.remote_invalidations, 0);
            assert_eq!(counters.local_invalidations, offered(&counters));
        }
    });
}

#[test]
fn replies_without_a_handle_of_their_own_take_along_what_was_read_for_others() {
    run(async {
        let designs = [Design::InterCall];
        let stage = Stage::new(sim().1, taking(&designs)).await;
        let client = stage.client(offering(&designs)).await;
        exchange(&client, &[], &[]).await;
        let mut calls = JoinSet::new();
        for i in 0..4 {
            let client = client.clone();
            calls.spawn(async move {
                let sizes = ([60_000 + i], [70_000 + i]);
                let call = echo::call(client.next_xid(), echo::BLOCKING, &sizes.0, &sizes.1);
                let reply = client.call(call, echo::bound(&sizes.1)).await;
                echo::check(&reply.expect("answered"), &sizes.1);
            });
        }
        stage.service.echo.wait_for_blocked(4).await;
        for _ in 0..4 {
            exchange(&client, &[], &[]).await;
        }
        stage.service.echo.open();
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
        }
        let counters = client.counters();
        assert_eq!(counters.remote_invalidations_inter_call, 4);
        // So nothing is left of these calls.
        assert_eq!(
            (counters.remote_invalidations, counters.local_invalidations),
            (8, 0)
        );
    });
}

#[test]
fn memory_that_stays_is_for_designs_in_which_calls_say_what_may_go() {
    run(async {
        for design in Design::ALL {
            let stage = Stage::new(sim().1, taking(&[design])).await;
            let config = offering(&[design]).with_persistent_arguments(PersistentArguments {
                regions: 2,
                bytes: 60_000,
            });
            let client = stage.client(config).await;
            for _ in 0..5 {
                exchange(&client, &[50_000], &[50_000]).await;
            }
            let keeps = design.tolerates_persistent();
            let info = client.connection().expect("connected");
            assert_eq!(info.remote_invalidation, keeps.then_some(design));
            let spoken = match design {
                Design::PerVersion => Version::One,
                _ => Version::Two,
            };
            assert_eq!(info.version, spoken);
            let counters = client.counters();
            let (remote, local) = (counters.remote_invalidations, counters.local_invalidations);
            // Those of the results: those of the arguments were never in reach of anybody.
            assert_eq!(
                (remote, local),
                if keeps { (5, 0) } else { (0, 5) },
                "{design}"
            );
            // What is larger than that memory is registered.
            exchange(&client, &[60_001], &[]).await;
            let counters = client.counters();
            let (remote, local) = (counters.remote_invalidations, counters.local_invalidations);
            assert_eq!(
                (remote, local),
                if keeps { (6, 0) } else { (0, 6) },
                "{design}"
            );
        }
    });
}

#[test]
fn calls_of_a_server_with_chunks_keep_to_the_design_too() {
    run(async {
        for provider in providers() {
            for design in Design::ALL {
                let stage = Stage::new(Arc::clone(&provider), taking(&[design])).await;
                let service = Noting::new();
                let config = offering(&[design]).with_callbacks(Arc::clone(&service));
                let client = stage.client(config).await;
                exchange(&client, &[], &[]).await;
                let back = stage.back();
                for &(args, results) in echo::SHAPES {
                    exchange(&back, args, results).await;
                }
                client.close().await;
                let sent = client.counters().invalidations_sent;
                let counters = stage.server.shutdown().await.counters;
                assert_eq!(counters.remote_invalidations, sent);
                let all = counters.remote_invalidations + counters.local_invalidations;
                assert_eq!(all, offered(&counters), "{design}");
                assert!(sent >= 6, "{design}: {sent}");
            }
        }
    });
}

#[test]
fn provider_that_does_not_tell_is_found_out_under_each_design() {
    run(async {
        for design in Design::ALL {
            for test_remote_invalidation in [true, false] {
                let stage = Stage::new(sim().1, taking(&[design])).await;
                let silent = Arc::new(Silent(Arc::clone(&stage.provider)));
                let config =
                    offering(&[design]).with_test_remote_invalidation(test_remote_invalidation);
                let client = Client::connect(silent, stage.server.local_addr(), config).await;
                let client = client.expect("it connects");
                for _ in 0..3 {
                    exchange(&client, &[60_000], &[60_000]).await;
                }
                let info = client.connection().expect("connected");
                assert_eq!(info.remote_invalidation, None, "{design}");
                client.close().await;
                assert_eq!(stage.server.shutdown().await.accepted, 2);
            }
        }
    });
}

#[test]
fn design_of_several_handles_needs_providers_that_can_at_both_ends() {
    run(async {
        let designs = [Design::PerCallAll, Design::PerCall];
        let fabric = Fabric::new(5);
        let mut unable = EndOptions::default();
        unable.limits.invalidations = 1;
        let unable: Arc<dyn Provider> = Arc::new(fabric.provider(unable));
        let able: Arc<dyn Provider> = Arc::new(fabric.provider(EndOptions::default()));
        for (at_server, at_client) in [(&able, &unable), (&unable, &able)] {
            let stage = Stage::new(Arc::clone(at_server), taking(&designs)).await;
            let client = stage
                .server
                .client(Arc::clone(at_client), offering(&designs));
            let client = client.await.expect("it connects");
            exchange(&client, &[50_000], &[50_000]).await;
            let info = client.connection().expect("connected");
            assert_eq!(info.remote_invalidation, Some(Design::PerCall));
            let counters = client.counters();
            assert_eq!(counters.remote_invalidations, 1);
            assert_eq!(counters.local_invalidations, 1);
        }
    });
}
