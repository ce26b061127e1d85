//! How the ends of a connection wait, and on which CPU.

use rpcrdma::Spin;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Whether the ends of a connection look again for a while before they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spinning {
    Park,
    Adaptive,
}

impl Spinning {
    pub(super) fn policy(self) -> Spin {
        match self {
            Self::Park => Spin::Park,
            Self::Adaptive => Spin::Adaptive,
        }
    }
}

/// Keeps the present thread, and those it starts from now on, on one of the CPUs it may use, and
/// says which it might use before.
///
/// Ends that park are kept apart: what is measured otherwise is whether the scheduler happens to
/// put both on one CPU, which is several times faster than two.
pub(super) fn pin(index: usize) -> rustix::io::Result<CpuSet> {
    let allowed = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    if let Some(cpu) = cpus.nth(index) {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)?;
    }
    Ok(allowed)
}
