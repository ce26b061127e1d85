//! Clients and servers, each with threads and a runtime of its own.

#![allow(clippy::cast_possible_truncation)]

mod backward;
mod cuts;
mod designs;
mod echo;
mod endings;
mod host;
mod invalidation;
mod lines;
mod memory;
mod over_iwarp;
mod over_sim;
mod silence;
mod stage;
mod suspects;
mod times;
mod versions;
mod weather;

use std::ops::Deref;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// A runtime that does not wait for threads at its end: after a failure nobody lets them go on.
struct Ending(Option<Runtime>);

impl Deref for Ending {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0
            .take()
            .into_iter()
            .for_each(Runtime::shutdown_background);
    }
}

/// Runs a test, with an end to it.
fn run(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = Ending(Some(runtime.expect("a runtime")));
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test)
            .await
            .expect("no test takes so long");
    });
}

/// The same in virtual time, which passes when nobody has anything to do.
fn run_in_virtual_time(test: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = Ending(Some(runtime.expect("a runtime")));
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(1_000_000), test)
            .await
            .expect("no test takes so long");
    });
}
