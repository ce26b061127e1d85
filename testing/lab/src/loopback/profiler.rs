//! The profiler of a process: samples of its threads, told apart by layer.
//!
//! A timer on the CPU time of the process says when to take one; the debug information of the program says
//! which layer it belongs to. A process that is not asked for samples has neither timer nor handler.

mod image;
mod layer;
mod symbols;

use anyhow::{Context, Result, ensure};
pub(super) use image::Image;
pub(super) use layer::{Frame, Layer, Module, layer};
use std::time::Duration;
pub(super) use symbols::Tally;
use symbols::{Symbols, has_debug_information};
use syscalls::Sampling;

/// CPU time between two samples. The kernel has longer ticks, often of 4 ms.
const INTERVAL: Duration = Duration::from_millis(1);

/// The profiler of this process.
#[derive(Debug, Default)]
pub(super) struct Profiler {
    sampling: Option<Sampling>,
    symbols: Symbols,
}

impl Profiler {
    /// A profiler, if it could tell layers apart.
    pub(super) fn new() -> Result<Self> {
        ensure!(
            has_debug_information(),
            "this program has no debug information that can be read, so layers cannot be told apart: \
             build it with `cargo build --profile dist`, do not strip it, and have /proc mounted"
        );
        Ok(Self::default())
    }

    pub(super) fn start(&mut self) -> Result<()> {
        let started = Sampling::start(INTERVAL);
        self.sampling = Some(started.context("cannot take samples of this process")?);
        Ok(())
    }

    /// Ends what was started, and says what was found.
    pub(super) fn stop(&mut self) -> Tally {
        let samples = self.sampling.take().map(Sampling::stop);
        self.symbols.tally(&samples.unwrap_or_default())
    }
}
