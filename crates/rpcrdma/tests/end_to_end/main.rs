//! Clients and servers, each with threads and a runtime of its own.

#![allow(clippy::cast_possible_truncation)]

mod cuts;
mod echo;
mod over_iwarp;
mod over_sim;
mod weather;

use std::time::Duration;

/// Runs a test, with an end to it.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(60), test)
                .await
                .expect("no test takes so long");
        });
}
