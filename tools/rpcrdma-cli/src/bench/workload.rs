//! The calls of a measurement: which, where in the file, and how many at a time.

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::ValueEnum;
use nfs_proto::Stable;
use serde::Serialize;
use std::time::Duration;

/// Which calls are made; names are those of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum Pattern {
    /// NULL calls, without data
    Null,
    /// Sequential READs
    Read,
    /// Sequential WRITEs
    Write,
    /// READs at random offsets
    #[value(name = "randread")]
    RandRead,
    /// WRITEs at random offsets
    #[value(name = "randwrite")]
    RandWrite,
    /// Sequential READs and WRITEs
    #[value(alias = "readwrite")]
    Rw,
    /// READs and WRITEs at random offsets
    #[value(name = "randrw")]
    RandRw,
}

impl Pattern {
    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::Rw => "rw",
            Self::RandRw => "randrw",
        }
    }

    fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw)
    }

    /// Whether there are READs.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead | Self::Rw | Self::RandRw)
    }

    /// Whether there are WRITEs.
    pub(super) fn writes(self) -> bool {
        matches!(
            self,
            Self::Write | Self::RandWrite | Self::Rw | Self::RandRw
        )
    }
}

/// How stable a WRITE is when it is answered; names are those of fio, and those of RFC 1813.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum Stability {
    /// UNSTABLE: in the server's memory
    #[default]
    #[value(name = "none", alias = "unstable")]
    #[serde(rename = "none")]
    Unstable,
    /// DATA_SYNC: data on stable storage
    #[value(name = "dsync", alias = "data_sync")]
    #[serde(rename = "dsync")]
    DataSync,
    /// FILE_SYNC: data and metadata on stable storage
    #[value(name = "sync", alias = "file_sync")]
    #[serde(rename = "sync")]
    FileSync,
}

impl Stability {
    pub(super) fn stable(self) -> Stable {
        match self {
            Self::Unstable => Stable::Unstable,
            Self::DataSync => Stable::DataSync,
            Self::FileSync => Stable::FileSync,
        }
    }
}

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) pattern: Pattern,
    /// Bytes of a READ or WRITE.
    pub(super) bs: u32,
    /// Calls outstanding on each connection.
    pub(super) depth: u32,
    pub(super) connections: u8,
    pub(super) time: Duration,
    pub(super) ramp_time: Duration,
    /// Of 100 calls of a mix, those that are READs.
    pub(super) read_percent: u8,
    pub(super) sync: Stability,
    pub(super) seed: u64,
}

/// Bytes that a temporary file is filled with at a time.
const FILL: usize = 1 << 20;

impl Workload {
    /// Calls outstanding at a time.
    pub(super) fn calls(&self) -> usize {
        self.depth as usize * usize::from(self.connections)
    }

    /// Whether data may not be on stable storage at the end.
    pub(super) fn needs_commit(&self) -> bool {
        self.pattern.writes() && self.sync == Stability::Unstable
    }

    /// The data that is written, which no server can compress: a block at least.
    pub(super) fn data(&self) -> Result<Bytes> {
        let mut data = Vec::new();
        let len = FILL.max(self.bs as usize);
        data.try_reserve_exact(len)
            .context("no memory for the data to write")?;
        data.resize(len, 0);
        fastrand::Rng::with_seed(self.seed).fill(&mut data);
        Ok(data.into())
    }
}

/// Operation of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Null,
    /// At this offset.
    Read(u64),
    Write(u64),
}

/// Decides what each call does.
#[derive(Debug)]
pub(super) struct Sequence {
    pattern: Pattern,
    read_percent: u8,
    bs: u64,
    /// Whole blocks of the file.
    blocks: u64,
    /// Next block of READs and of WRITEs.
    next: [u64; 2],
    rng: fastrand::Rng,
}

impl Sequence {
    /// The calls on a file of this size, which has at least one block.
    pub(super) fn new(workload: &Workload, size: u64) -> Self {
        let bs = u64::from(workload.bs);
        Self {
            pattern: workload.pattern,
            read_percent: workload.read_percent,
            bs,
            blocks: (size / bs).max(1),
            next: [0; 2],
            rng: fastrand::Rng::with_seed(workload.seed),
        }
    }

    /// The next call.
    pub(super) fn next(&mut self) -> Operation {
        let is_read = match self.pattern {
            Pattern::Null => return Operation::Null,
            Pattern::Read | Pattern::RandRead => true,
            Pattern::Write | Pattern::RandWrite => false,
            Pattern::Rw | Pattern::RandRw => self.rng.u8(..100) < self.read_percent,
        };
        let block = if self.pattern.is_random() {
            self.rng.u64(..self.blocks)
        } else {
            let next = &mut self.next[usize::from(is_read)];
            let block = *next;
            *next = if block + 1 == self.blocks {
                0
            } else {
                block + 1
            };
            block
        };
        let offset = block * self.bs;
        match is_read {
            true => Operation::Read(offset),
            false => Operation::Write(offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(pattern: Pattern, read_percent: u8) -> Workload {
        Workload {
            pattern,
            bs: 10,
            depth: 1,
            connections: 1,
            time: Duration::from_secs(1),
            ramp_time: Duration::ZERO,
            read_percent,
            sync: Stability::Unstable,
            seed: 7,
        }
    }

    fn calls(pattern: Pattern, read_percent: u8, count: usize) -> Vec<Operation> {
        let mut sequence = Sequence::new(&workload(pattern, read_percent), 39);
        (0..count).map(|_| sequence.next()).collect()
    }

    #[test]
    fn calls_in_sequence_begin_again_at_the_end_of_the_last_whole_block() {
        let expected = [0, 10, 20, 0].map(Operation::Read);
        assert_eq!(calls(Pattern::Read, 50, 4), expected);
        let expected = [0, 10, 20, 0].map(Operation::Write);
        assert_eq!(calls(Pattern::Write, 50, 4), expected);
        assert_eq!(calls(Pattern::Null, 50, 1), [Operation::Null]);
    }

    #[test]
    fn random_calls_are_those_of_the_seed_and_within_the_file() {
        let drawn = calls(Pattern::RandRead, 50, 1000);
        assert_eq!(drawn, calls(Pattern::RandRead, 50, 1000));
        for offset in [0, 10, 20] {
            let times = drawn
                .iter()
                .filter(|call| **call == Operation::Read(offset));
            assert!(times.count() > 250);
        }
    }

    #[test]
    fn mix_has_the_percentage_that_was_asked_for() {
        let reads = |pattern, percent| {
            let calls = calls(pattern, percent, 1000);
            calls
                .iter()
                .filter(|call| matches!(call, Operation::Read(_)))
                .count()
        };
        assert_eq!(reads(Pattern::Rw, 0), 0);
        assert_eq!(reads(Pattern::RandRw, 100), 1000);
        assert!((600..800).contains(&reads(Pattern::Rw, 70)));
    }

    #[test]
    fn data_is_that_of_the_seed_and_at_least_a_block() {
        let mut large = workload(Pattern::Write, 0);
        large.bs = 3 << 20;
        let data = large.data().unwrap();
        assert_eq!(data.len(), 3 << 20);
        assert_eq!(data, large.data().unwrap());
        assert_eq!(workload(Pattern::Write, 0).data().unwrap().len(), FILL);
    }
}
