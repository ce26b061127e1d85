//! Timers of a connection: first answer, linger and idle.

use crate::config::Config;
use iwarp_proto::Endpoint;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use verbs::CloseReason;

/// How often an initiator that hears nothing sends something behind its first message; each time
/// it waits twice as long.
const MAX_NUDGES: u32 = 6;

/// How long nothing moves until memory is given back.
const IDLE: Duration = Duration::from_secs(1);

/// The clock of one connection.
pub(crate) struct Timers {
    nudge_after: Duration,
    linger: Duration,
    message_timeout: Duration,
    /// The message that is arriving in a block of the shared receive queue, and until when it may.
    arriving: Option<(u32, Instant)>,
    wait: Wait,
    sleep: Option<Pin<Box<Sleep>>>,
    idle: Idle,
}

#[derive(Clone, Copy)]
enum Wait {
    /// No timer runs.
    Nothing,
    /// Waits for the peer's first bytes, until a nudge is sent.
    Answer { until: Instant, nudges: u32 },
    /// Waits for the end of the connection.
    End { until: Instant },
}

/// Whether anything moved since a moment.
#[derive(Clone, Copy)]
enum Idle {
    /// Not checked yet, or not since memory was returned.
    Unknown,
    /// `bytes` bytes had moved when the idle period began.
    Since { until: Instant, bytes: u64 },
    /// `bytes` bytes had moved when memory was returned.
    Trimmed { bytes: u64 },
}

impl Timers {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            nudge_after: config.nudge_after,
            linger: config.linger,
            message_timeout: config.message_timeout,
            arriving: None,
            wait: Wait::Nothing,
            sleep: None,
            idle: Idle::Unknown,
        }
    }

    /// Does what is due. Says whether something was.
    pub(crate) fn handle(&mut self, endpoint: &mut Endpoint) -> bool {
        if let Some((message, until)) = self.arriving
            && endpoint.arriving() == Some(message)
            && Instant::now() >= until
        {
            endpoint.lost(CloseReason::TimedOut("the rest of a message"));
            return true;
        }
        match self.wait {
            Wait::End { until } => {
                let due = endpoint.is_ending() && Instant::now() >= until;
                if due {
                    endpoint.give_up();
                }
                due
            }
            Wait::Nothing | Wait::Answer { .. } if endpoint.is_ending() => {
                self.wait = Wait::End {
                    until: Instant::now() + self.linger,
                };
                false
            }
            Wait::Nothing => {
                if endpoint.is_unanswered() {
                    self.wait = Wait::Answer {
                        until: Instant::now() + self.nudge_after,
                        nudges: 0,
                    };
                }
                false
            }
            Wait::Answer { .. } if !endpoint.is_unanswered() => {
                self.wait = Wait::Nothing;
                false
            }
            Wait::Answer { until, nudges } => {
                let due = nudges < MAX_NUDGES && Instant::now() >= until;
                if due {
                    tracing::debug!(nudges, "no answer to the first message yet");
                    endpoint.nudge();
                    let nudges = nudges + 1;
                    self.wait = Wait::Answer {
                        until: Instant::now() + self.nudge_after * (1 << nudges),
                        nudges,
                    };
                }
                due
            }
        }
    }

    /// Waits for the next thing that is due.
    pub(crate) fn poll(&mut self, endpoint: &mut Endpoint, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let due = match self.wait {
                Wait::End { until } => Some(until),
                Wait::Answer { until, nudges } if nudges < MAX_NUDGES => Some(until),
                Wait::Answer { .. } | Wait::Nothing => None,
            };
            let due = due.into_iter().chain(self.arriving_until(endpoint)).min();
            let idle = self.idle_until(endpoint);
            let Some(next) = due.into_iter().chain(idle).min() else {
                return Poll::Pending;
            };
            let sleep = self
                .sleep
                .get_or_insert_with(|| Box::pin(sleep_until(next)));
            if sleep.deadline() != next {
                sleep.as_mut().reset(next);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if due.is_some_and(|due| due <= next) {
                return Poll::Ready(());
            }
            self.idle_passed(endpoint);
        }
    }

    /// Until when the message that is arriving has to be whole.
    fn arriving_until(&mut self, endpoint: &Endpoint) -> Option<Instant> {
        let message = endpoint.arriving()?;
        match self.arriving {
            Some((known, until)) if known == message => Some(until),
            Some(_) | None => {
                let until = Instant::now() + self.message_timeout;
                self.arriving = Some((message, until));
                Some(until)
            }
        }
    }

    /// When to look whether the connection is idle, if it is worth looking.
    fn idle_until(&mut self, endpoint: &Endpoint) -> Option<Instant> {
        let bytes = bytes(endpoint);
        match self.idle {
            Idle::Since { until, .. } => Some(until),
            Idle::Trimmed { bytes: before } if before == bytes => None,
            Idle::Trimmed { .. } | Idle::Unknown => {
                let until = Instant::now() + IDLE;
                self.idle = Idle::Since { until, bytes };
                Some(until)
            }
        }
    }

    fn idle_passed(&mut self, endpoint: &mut Endpoint) {
        let now = bytes(endpoint);
        self.idle = match self.idle {
            Idle::Since { bytes, .. } if bytes == now => {
                endpoint.trim();
                Idle::Trimmed { bytes }
            }
            Idle::Since { .. } | Idle::Trimmed { .. } | Idle::Unknown => Idle::Unknown,
        };
    }
}

fn bytes(endpoint: &Endpoint) -> u64 {
    let counters = endpoint.counters();
    counters.bytes_in + counters.bytes_out
}
