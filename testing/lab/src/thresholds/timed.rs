//! Time of calls on a model of an RNIC, one at a time.

use super::cost::{Bound, Cost, reply_bound};
use super::mix::Call;
use crate::model::{self, ModelArgs, Order, Simulated, Sizes, Traffic, Workload};
use anyhow::{Context, Result};
use oncrpc::xdr::padded;
use rpcrdma::ClientConfig;
use rpcrdma_proto::{Config, InlineThreshold, PrivateData, Role, Versions};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// Time and wake-ups of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timed {
    /// From the call to its reply, its data copied out of Sends at both ends.
    pub(super) micros: f64,
    /// Times that a completion woke a host, of both ends together.
    pub(super) wakeups: u64,
}

/// Times of calls by all that they depend on: the sizes of a call and how it travels.
#[derive(Debug, Default)]
pub(super) struct Times(HashMap<Key, Timed>);

type Key = ([usize; 6], Cost);

impl Times {
    /// Of these calls at each threshold, with the bounds for replies that the recorded client had.
    ///
    /// # Errors
    ///
    /// If a call cannot be carried.
    pub(super) fn new<'a>(
        calls: impl Iterator<Item = &'a Call> + Clone,
        thresholds: &[usize],
        model: &ModelArgs,
    ) -> Result<Self> {
        let mut times = Self::default();
        for &threshold in thresholds {
            let mut untimed: Vec<(Key, &Call)> = Vec::new();
            for call in calls.clone() {
                let key = key(call, Cost::of(call, threshold, Bound::Recorded)?);
                // A place for each, which is filled below.
                if let Entry::Vacant(place) = times.0.entry(key) {
                    place.insert(Timed::default());
                    untimed.push((key, call));
                }
            }
            let each = run(untimed.iter().map(|(_, call)| *call), threshold, model)?;
            let copy_rate = model.costs(0).copy_rate as f64;
            for ((key, call), (time, wakeups)) in untimed.into_iter().zip(each) {
                let copied = key.1.copied(call) as f64 / copy_rate;
                let micros = (time.as_secs_f64() + copied) * 1e6;
                times.0.insert(key, Timed { micros, wakeups });
            }
        }
        Ok(times)
    }

    /// Of a call that travels like this; zero if it is not among those that were timed.
    pub(super) fn of(&self, call: &Call, cost: Cost) -> Timed {
        self.0.get(&key(call, cost)).copied().unwrap_or_default()
    }
}

fn key(call: &Call, cost: Cost) -> Key {
    let sizes = [
        call.call,
        call.argument,
        call.reply,
        call.result,
        call.room,
        call.result_room,
    ];
    (sizes, cost)
}

/// Calls that warm the connection up: Receives are posted, and memory comes from the pool.
const WARM: u64 = 4;

/// Calls one after the other.
struct Each {
    sizes: Vec<Sizes>,
    service: Duration,
}

impl Workload for Each {
    fn depth(&self) -> usize {
        1
    }

    fn service(&self) -> Duration {
        self.service
    }

    fn sizes(&self, number: u64) -> Sizes {
        let index = number.checked_sub(WARM);
        let index = index.and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.sizes.get(index).cloned())
            .unwrap_or_else(|| Sizes::plain(120, 120))
    }
}

/// Time and wake-ups of each call on a connection of version one with this threshold, where the server invalidates
/// one handle of each call remotely.
fn run<'a>(
    calls: impl Iterator<Item = &'a Call>,
    threshold: usize,
    model: &ModelArgs,
) -> Result<Vec<(Duration, u64)>> {
    let [client, server] = [Role::Client, Role::Server].map(|role| config(role, threshold));
    let ends = Simulated::connect(model.costs(0), 1, &client, &server)?;
    let workload = Each {
        sizes: calls.map(sizes).collect(),
        service: model.service,
    };
    let last = WARM + workload.sizes.len() as u64;
    let mut traffic = Traffic::new(ends, [&client, &server], None, Order::Arrival, workload);
    traffic.until_ended(WARM)?;
    traffic.take_latencies();
    let mut timed = Vec::new();
    for number in WARM..last {
        let before = traffic.snapshot().wakeups;
        traffic.until_ended(number + 1)?;
        let after = traffic.snapshot().wakeups;
        let ended = traffic.take_latencies();
        let (_, time) = ended.first().context("a call ends")?;
        timed.push((*time, after[0] + after[1] - before[0] - before[1]));
    }
    Ok(timed)
}

fn config(role: Role, threshold: usize) -> Config {
    let inline = InlineThreshold::at_most(threshold);
    let plain = model::config(role, inline, ClientConfig::default().max_chunk);
    Config {
        versions: Versions::One,
        own: PrivateData {
            remote_invalidation: true,
            ..plain.own
        },
        ..plain
    }
}

fn sizes(call: &Call) -> Sizes {
    let word = size_of::<u32>();
    let arguments: SmallVec<[usize; 2]> = match call.argument {
        0 => SmallVec::new(),
        len => SmallVec::from_elem(len, 1),
    };
    let results: SmallVec<[usize; 2]> = match call.result_room {
        0 => SmallVec::new(),
        _ => SmallVec::from_elem(call.result, 1),
    };
    Sizes {
        call: call.call - padded(call.argument) - word * arguments.len(),
        reply: call.reply - padded(call.result) - word * results.len(),
        arguments,
        results,
        bound: reply_bound(call, Bound::Recorded),
        moved: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thresholds::kinds;

    fn micros(call: &Call, threshold: usize) -> f64 {
        let calls = [call].into_iter();
        let times = Times::new(calls, &[threshold], &ModelArgs::usual()).unwrap();
        let cost = Cost::of(call, threshold, Bound::Recorded).unwrap();
        times.of(call, cost).micros
    }

    #[test]
    fn small_read_is_quicker_where_it_fits_a_send_and_a_large_one_is_not() {
        let [small, large] = [4 << 10, 128 << 10].map(kinds::read);
        assert!(micros(&small, 8 << 10) < micros(&small, 4 << 10) - 1.0);
        assert!(micros(&large, 256 << 10) > micros(&large, 4 << 10));
    }

    #[test]
    fn call_that_does_not_depend_on_the_threshold_takes_the_same_time() {
        let call = kinds::read(512);
        assert_eq!(micros(&call, 4 << 10), micros(&call, 64 << 10));
    }
}
