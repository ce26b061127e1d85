//! Clients and servers, each with threads and a runtime of its own.

#![allow(clippy::cast_possible_truncation)]

mod backward;
mod by_service;
mod cuts;
mod designs;
mod echo;
mod endings;
mod faults;
mod growing;
mod invalidation;
mod memory;
mod one_region;
mod over_each;
mod over_iwarp;
mod over_sim;
mod retried_alone;
mod several_connections;
mod several_providers;
mod silence;
mod stage;
mod statistics;
mod test_server;
mod times;
mod turns;
mod versions;

use rpcrdma::Versions;
use std::cell::Cell;
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

thread_local! {
    /// Version that clients speak by default, in the test of this thread.
    static SPOKEN: Cell<Versions> = const { Cell::new(Versions::One) };
}

/// Messages of each end before the first call: those that settle what is spoken.
fn before_calls() -> u64 {
    match SPOKEN.get() {
        Versions::One => 0,
        Versions::Auto | Versions::Two => 1,
    }
}

/// Runs a test once for each version, which its clients speak if they were told nothing else. It says
/// which one they spoke when it failed.
fn run_in_each_version(test: impl AsyncFn()) {
    in_each_version(|| run(test()));
}

/// The same in virtual time.
fn run_in_each_version_in_virtual_time(test: impl AsyncFn()) {
    in_each_version(|| run_in_virtual_time(test()));
}

fn in_each_version(test: impl Fn()) {
    struct Spoken(Versions);
    impl Drop for Spoken {
        fn drop(&mut self) {
            SPOKEN.set(Versions::One);
            if std::thread::panicking() {
                eprintln!("it failed where {:?} was spoken", self.0);
            }
        }
    }
    for versions in [Versions::One, Versions::Two] {
        let _spoken = Spoken(versions);
        SPOKEN.set(versions);
        test();
    }
}
