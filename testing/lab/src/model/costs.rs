//! Costs of the model as options, and as they are reported.

use clap::{Args, ValueEnum};
use printing::units::parse_duration;
use serde::Serialize;
use std::time::Duration;
use verbs_sim::Costs;

/// Options of the model of an RNIC and its host.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// Host time to post a work request
    #[arg(long, default_value = "100ns", value_name = "DURATION", value_parser = parse_duration)]
    post: Duration,

    /// Host time to take a completion from its queue
    #[arg(long, default_value = "150ns", value_name = "DURATION", value_parser = parse_duration)]
    completion: Duration,

    /// Time from a completion until a sleeping host is awake
    #[arg(long, default_value = "4us", value_name = "DURATION", value_parser = parse_duration)]
    interrupt: Duration,

    /// Host time to register memory
    #[arg(long, default_value = "800ns", value_name = "DURATION", value_parser = parse_duration)]
    register: Duration,

    /// Additional host time to register each page of 4 KiB
    #[arg(long, default_value = "20ns", value_name = "DURATION", value_parser = parse_duration)]
    register_page: Duration,

    /// RNIC time to invalidate a handle by a Send of the peer
    #[arg(long, default_value = "500ns", value_name = "DURATION", value_parser = parse_duration)]
    invalidate: Duration,

    /// RNIC time to invalidate a handle by a work request of its host
    #[arg(long, default_value = "1us", value_name = "DURATION", value_parser = parse_duration)]
    local_invalidate: Duration,

    /// Which of several local invalidations are signalled
    #[arg(long, value_enum, default_value_t)]
    signal: Signal,

    /// RNIC time for each message, whatever its length
    #[arg(long, default_value = "200ns", value_name = "DURATION", value_parser = parse_duration)]
    message: Duration,

    /// Time from one RNIC to the other
    #[arg(long, default_value = "1500ns", value_name = "DURATION", value_parser = parse_duration)]
    wire: Duration,

    /// Rate of the wire in gigabits per second
    #[arg(long, default_value_t = 100, value_name = "GBIT",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    line_rate: u32,

    /// Rate at which a host copies, in gigabytes per second
    #[arg(long, default_value_t = 10, value_name = "GB",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    copy_rate: u32,

    /// Time that the server works on a call
    #[arg(long, default_value = "10us", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) service: Duration,
}

/// Names of these options, which other providers do not have.
pub(crate) const OF_THE_MODEL: [&str; 13] = [
    "post",
    "completion",
    "interrupt",
    "register",
    "register_page",
    "invalidate",
    "local_invalidate",
    "signal",
    "message",
    "wire",
    "line_rate",
    "copy_rate",
    "service",
];

/// Which local invalidations have a completion that the host waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Signal {
    /// All of them
    #[default]
    Each,
    /// The last of those that the RNIC has at one time
    Last,
}

impl ModelArgs {
    /// The costs, each of which varies by `jitter` percent.
    pub(crate) fn costs(&self, jitter: u8) -> Costs {
        Costs {
            post: self.post,
            completion: self.completion,
            interrupt: self.interrupt,
            register: self.register,
            register_page: self.register_page,
            invalidate: self.invalidate,
            invalidate_locally: self.local_invalidate,
            signal_last: self.signal == Signal::Last,
            message: self.message,
            wire: self.wire,
            line_rate: u64::from(self.line_rate) * 1_000_000_000 / 8,
            copy_rate: u64::from(self.copy_rate) * 1_000_000_000,
            jitter,
            seed: 0,
        }
    }
}

/// Assumed costs of the simulated RNICs and their hosts, in nanoseconds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Assumptions {
    /// Host time to post a work request.
    post_ns: u64,
    /// Host time to take a completion.
    completion_ns: u64,
    /// From a completion to a host that was asleep.
    interrupt_ns: u64,
    /// Host time to register memory.
    register_ns: u64,
    /// The same for each page of 4 KiB.
    register_page_ns: u64,
    /// RNIC time to invalidate a handle with a Send of the peer.
    invalidate_ns: u64,
    /// RNIC time to invalidate a handle for its host.
    invalidate_locally_ns: u64,
    /// Whether the host is told of the last of several local invalidations only.
    signal_last: bool,
    /// RNIC time for a message.
    message_ns: u64,
    /// From one RNIC to the other.
    wire_ns: u64,
    /// Rate of the wire.
    line_bytes_per_second: u64,
    /// Rate at which a host copies.
    copied_bytes_per_second: u64,
    /// Time that the server works on a call.
    service_ns: u64,
    /// Variation of each time.
    jitter_percent: u8,
}

impl Assumptions {
    pub(crate) fn new(costs: &Costs, service: Duration) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            post_ns: ns(costs.post),
            completion_ns: ns(costs.completion),
            interrupt_ns: ns(costs.interrupt),
            register_ns: ns(costs.register),
            register_page_ns: ns(costs.register_page),
            invalidate_ns: ns(costs.invalidate),
            invalidate_locally_ns: ns(costs.invalidate_locally),
            signal_last: costs.signal_last,
            message_ns: ns(costs.message),
            wire_ns: ns(costs.wire),
            line_bytes_per_second: costs.line_rate,
            copied_bytes_per_second: costs.copy_rate,
            service_ns: ns(service),
            jitter_percent: costs.jitter,
        }
    }
}

#[cfg(test)]
impl ModelArgs {
    /// Those of a command line without options.
    pub(crate) fn usual() -> Self {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            model: ModelArgs,
        }
        <Line as clap::Parser>::parse_from(["bench"]).model
    }
}
