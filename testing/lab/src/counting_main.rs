//! The experiments on an allocator that counts.
//!
//! `lab self` starts it to count allocations: the program that serves, and whose times are
//! measured, has the allocator of the system.

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations so far, growing ones included.
fn count() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

fn main() -> ExitCode {
    lab::main(Some(count))
}
