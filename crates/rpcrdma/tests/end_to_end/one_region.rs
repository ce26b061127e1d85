//! All memory of a call under one handle (reminv §2.4), from one end to the other.

use crate::echo::{self, exchange};
use crate::run;
use crate::stage::{Stage, providers, sim};
use rpcrdma::{ClientConfig, Counters, Design, ServerConfig, Spin, Version, Versions};
use std::sync::Arc;
use verbs_sim::{EndOptions, Fabric};

fn client(versions: Versions, designs: &[Design]) -> ClientConfig {
    ClientConfig::default()
        .with_versions(versions)
        .with_remote_invalidation(designs.to_vec())
        .with_one_region(true)
        .with_spin(Spin::Park)
}

fn server(designs: &[Design]) -> ServerConfig {
    ServerConfig::default().with_remote_invalidation(designs.to_vec())
}

/// Outcome of a call of every shape.
struct Outcome {
    version: Version,
    /// Regions registered, and the most for one call.
    regions: u64,
    most: u64,
    counters: Counters,
}

impl Outcome {
    fn chunks(&self) -> u64 {
        let counters = &self.counters;
        counters.read_chunks_offered + counters.write_chunks_offered + counters.reply_chunks_offered
    }

    /// Handles that the server invalidated, and those that the client did.
    fn invalidations(&self) -> (u64, u64) {
        let counters = &self.counters;
        (counters.remote_invalidations, counters.local_invalidations)
    }
}

async fn every_shape(stage: &Stage, config: ClientConfig) -> Outcome {
    let client = stage.client(config).await;
    let info = client.connection().expect("connected");
    let mut most = 0;
    for &(args, results) in echo::SHAPES {
        let before = client.counters().registrations;
        exchange(&client, args, results).await;
        most = most.max(client.counters().registrations - before);
    }
    client.close().await;
    let counters = client.counters();
    Outcome {
        version: info.version,
        regions: counters.registrations,
        most,
        counters,
    }
}

#[test]
fn every_call_with_chunks_has_one_handle_which_its_reply_takes_along_under_each_design() {
    run(async {
        for provider in providers() {
            for design in Design::ALL {
                let stage = Stage::new(Arc::clone(&provider), server(&[design])).await;
                let config = client(Versions::Auto, &[design]);
                let outcome = every_shape(&stage, config).await;
                assert_eq!(outcome.version, Version::Two);
                assert_eq!(outcome.most, 1, "one for all chunks of a call");
                assert!(outcome.chunks() > outcome.regions);
                let remote = (outcome.regions, 0);
                assert_eq!(outcome.invalidations(), remote, "{design}");
                let stats = stage.server.shutdown().await;
                let sent = stats.counters.invalidations_sent;
                assert_eq!(sent, outcome.regions, "{design}");
            }
        }
    });
}

#[test]
fn version_one_and_no_design_at_all_need_one_invalidation_for_a_call_too() {
    run(async {
        for provider in providers() {
            for (designs, remote) in [(&[Design::PerConnection][..], true), (&[], false)] {
                let stage = Stage::new(Arc::clone(&provider), server(designs)).await;
                let config = client(Versions::One, designs);
                let outcome = every_shape(&stage, config).await;
                assert_eq!(outcome.version, Version::One);
                assert_eq!(outcome.most, 1, "one for all chunks of a call");
                let expected = match remote {
                    true => (outcome.regions, 0),
                    false => (0, outcome.regions),
                };
                assert_eq!(outcome.invalidations(), expected);
            }
        }
    });
}

#[test]
fn provider_that_cannot_have_one_region_has_one_for_each_chunk() {
    run(async {
        let fabric = Fabric::new(5);
        let mut unable = EndOptions::default();
        unable.limits.parts = 0;
        let stage = Stage::new(
            Arc::new(fabric.provider(unable)),
            server(&[Design::PerCall]),
        )
        .await;
        let config = client(Versions::Auto, &[Design::PerCall]);
        let outcome = every_shape(&stage, config).await;
        assert_eq!(outcome.regions, outcome.chunks());
        let (remote, local) = outcome.invalidations();
        assert!(local > 0);
        assert_eq!(remote + local, outcome.chunks());
    });
}

#[test]
fn each_chunk_has_a_handle_of_its_own_by_default() {
    run(async {
        let stage = Stage::new(sim().1, server(&[Design::PerCall])).await;
        let config = client(Versions::Auto, &[Design::PerCall]).with_one_region(false);
        let outcome = every_shape(&stage, config).await;
        assert_eq!(outcome.regions, outcome.chunks());
        assert!(outcome.invalidations().1 > 0);
    });
}
