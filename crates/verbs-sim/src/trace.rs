//! Trace of all events, as a hash to compare runs and as readable lines.

use buffer::gather_len;
use std::fmt::Write;
use std::time::Duration;
use verbs::{Completion, WorkRequest};

/// A run so far, in numbers that another run can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceHash {
    /// Hash of all events with their times.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
}

#[derive(Debug)]
pub(crate) struct Trace {
    hash: TraceHash,
    /// The text of the present event; kept for its memory.
    text: String,
    lines: Option<Vec<String>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            hash: TraceHash {
                hash: 0xcbf2_9ce4_8422_2325,
                events: 0,
            },
            text: String::new(),
            lines: None,
        }
    }
}

impl Trace {
    /// Something happened.
    pub(crate) fn event(&mut self, now: Duration, event: impl FnOnce() -> String) {
        self.text.clear();
        write!(self.text, "{:12.6} {}", now.as_secs_f64(), event()).expect("memory takes all");
        self.hash.events += 1;
        // FNV-1a.
        for byte in self.text.bytes() {
            self.hash.hash = (self.hash.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.text.clone());
        }
    }

    /// Somebody has something to say about it.
    pub(crate) fn note(&mut self, now: Duration, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:12.6} {}", now.as_secs_f64(), line()));
        }
    }

    pub(crate) fn record(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn hash(&self) -> TraceHash {
        self.hash
    }
}

/// A piece of work in words: its kind and size, and which memory of which end.
pub(crate) fn of_work(work: &WorkRequest) -> String {
    match work {
        WorkRequest::Receive { .. } => "a Receive".to_owned(),
        WorkRequest::Send {
            buffer,
            rest,
            invalidate,
            ..
        } => {
            let len = buffer.len() + gather_len(rest);
            match invalidate {
                Some(handles) => {
                    let mut text = format!("a Send of {len} bytes that invalidates");
                    for handle in handles.iter() {
                        write!(text, " {handle:?}").expect("memory takes all");
                    }
                    text
                }
                None => format!("a Send of {len} bytes"),
            }
        }
        WorkRequest::Write { source, to, .. } => {
            let len = gather_len(source);
            format!("a Write of {len} bytes to {:?} at {}", to.handle, to.offset)
        }
        WorkRequest::Read { from, .. } => {
            let mut text = "a Read of".to_owned();
            for segment in from {
                let (handle, length, offset) = (segment.handle, segment.length, segment.offset);
                write!(text, " {length} bytes of {handle:?} at {offset}")
                    .expect("memory takes all");
            }
            text
        }
        WorkRequest::Invalidate { handle, .. } => format!("the end of {handle:?}"),
    }
}

/// A completion in words.
pub(crate) fn of_completion(completion: &Completion) -> String {
    match completion {
        Completion::Receive {
            buffer,
            invalidated,
            ..
        } => {
            let len = buffer.len();
            match invalidated {
                Some(lost) => {
                    let mut text = format!("a message of {len} bytes, and the end of");
                    for lost in std::iter::once(lost).chain(&lost.also) {
                        write!(text, " {:?}", lost.handle).expect("memory takes all");
                    }
                    text
                }
                None => format!("a message of {len} bytes"),
            }
        }
        Completion::Send { .. } => "a Send done".to_owned(),
        Completion::Write { .. } => "a Write done".to_owned(),
        Completion::Read { sink, .. } => format!("a Read of {} bytes done", sink.len()),
        Completion::Invalidate { invalidated, .. } => {
            format!("the end of {:?}", invalidated.handle)
        }
        Completion::Failed { error, .. } => format!("work failed: {error}"),
    }
}
