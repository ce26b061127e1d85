//! Cost of the calls of a mix at an inline threshold, as our own planner would have them travel.

use super::mix::Call;
use anyhow::{Result, bail};
use oncrpc::ReplyBound;
use oncrpc::xdr::padded;
use rpcrdma::ClientConfig;
use rpcrdma_proto::header::{Lists, MIN_LEN, emitted_len};
use rpcrdma_proto::plan::{
    CallForm, CallPlan, CallSizes, Chunks, PlanLimits, ReplyPlan, plan_reply,
};
use serde::Serialize;
use smallvec::SmallVec;

/// Knowledge of the client about a reply before it is there (RFC 8267 §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// How large it will be: what no client knows, and none could do better.
    Exact,
    /// How large it can be, as the client worked it out that the mix was recorded from.
    #[default]
    Recorded,
    /// Only what it negotiated for all replies, and how many bytes of data it asked for.
    Unknown,
}

impl Bound {
    pub(super) const ALL: [Self; 3] = [Self::Exact, Self::Recorded, Self::Unknown];
}

/// The largest reply of a client that knows no better: `ca_maxresponsesize` of a session whose READs
/// have up to 1 MiB (RFC 8267 §6.2.2).
const LARGEST_REPLY: usize = (1 << 20) + 4096;

/// How the messages of a call travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// Call and reply in one Send each, with all that is in them.
    Short,
    /// An argument or a result moves by a chunk of its own, the rest in one Send each.
    Chunked,
    /// The call is read from the client's memory, or the reply written there.
    Long,
}

/// Cost of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cost {
    pub(super) form: Form,
    /// RDMA Reads by the server: segments of Read chunks.
    pub(super) reads: usize,
    /// RDMA Writes by the server: segments written.
    pub(super) writes: usize,
    /// Regions of memory that the client registers for it.
    pub(super) registrations: usize,
    /// Bytes of its two Sends.
    pub(super) sent: usize,
}

impl Cost {
    /// Of one such call, where Sends carry up to `threshold` bytes either way.
    ///
    /// # Errors
    ///
    /// If it cannot be carried.
    pub(super) fn of(call: &Call, threshold: usize, bound: Bound) -> Result<Self> {
        let limits = limits(threshold);
        let sizes = CallSizes {
            stream: call.call,
            items: item(call.argument),
            ..CallSizes::default()
        };
        let plan = CallPlan::new(&sizes, &reply_bound(call, bound), &limits)?;
        let offered = plan.offered(&limits);
        let (reads, rest_of_call) = pulled(&plan, &sizes, &limits);
        let result = (call.result_room > 0).then_some(call.result);
        let head = call.reply - padded(call.result);
        let (long_reply, placed) = match plan_reply(MIN_LEN, &offered, head, result, threshold, 0) {
            ReplyPlan::Send(chunks) => (false, chunks),
            ReplyPlan::ReplyChunk(chunks) => (true, chunks),
            ReplyPlan::Parts(_) | ReplyPlan::NoRoom { .. } | ReplyPlan::NoRoomForResult { .. } => {
                bail!("there is no room for the reply")
            }
        };
        let placed = match (result, placed.first()) {
            (Some(len), Some(Some(_))) => len,
            _ => 0,
        };
        let rest_of_reply = call.reply - padded(placed);
        let in_reply_chunk = if long_reply { rest_of_reply } else { 0 };
        let long = plan.form == CallForm::Long || long_reply;
        let moved = plan.form == CallForm::Chunked || placed > 0;
        Ok(Self {
            form: match (long, moved) {
                (true, _) => Form::Long,
                (false, true) => Form::Chunked,
                (false, false) => Form::Short,
            },
            reads,
            writes: limits.segments(placed) + limits.segments(in_reply_chunk),
            registrations: plan.regions(),
            sent: header(reads, &offered) + rest_of_call + header(0, &offered) + rest_of_reply
                - in_reply_chunk,
        })
    }

    /// Bytes of the argument and the result of `call` that are in its Sends, and so are copied out of a buffer of the
    /// transport.
    pub(super) fn copied(self, call: &Call) -> usize {
        let in_send = |operations, bytes| if operations == 0 { bytes } else { 0 };
        in_send(self.reads, call.argument) + in_send(self.writes, call.result)
    }
}

/// Limits with which our client plans where Sends are so large.
fn limits(threshold: usize) -> PlanLimits {
    let max_chunk = ClientConfig::default().max_chunk;
    PlanLimits {
        continued: 0,
        header: MIN_LEN,
        send: threshold,
        receive: threshold,
        max_chunk,
        max_segment: max_chunk,
        regions: usize::MAX,
        chunks: Chunks::Allowed,
    }
}

fn item(len: usize) -> SmallVec<[usize; 1]> {
    (len > 0).then_some(len).into_iter().collect()
}

pub(super) fn reply_bound(call: &Call, bound: Bound) -> ReplyBound {
    let (fixed, result) = match bound {
        Bound::Exact => (call.reply - padded(call.result), call.result),
        Bound::Recorded => (call.room, call.result_room),
        Bound::Unknown => (LARGEST_REPLY, call.result_room),
    };
    ReplyBound {
        fixed,
        results: item(result),
    }
}

/// RDMA Reads for a call, and the bytes of it that go in its Send.
fn pulled(plan: &CallPlan, sizes: &CallSizes, limits: &PlanLimits) -> (usize, usize) {
    let chunks = || plan.read_chunks(sizes);
    let reads = chunks().map(|len| limits.segments(len)).sum();
    let bytes: usize = chunks().map(padded).sum();
    (reads, sizes.stream.saturating_sub(bytes))
}

/// Bytes of a transport header with so many Read segments and what is offered for the reply.
fn header(reads: usize, offered: &Lists) -> usize {
    let writes = offered.writes.iter().map(|chunk| chunk.segments.len());
    emitted_len(
        reads,
        writes,
        offered.reply.as_ref().map(|chunk| chunk.segments.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(call: usize, argument: usize, reply: usize, result: usize) -> Call {
        Call {
            nfs: "3".into(),
            part: String::new(),
            calls: 1,
            call,
            argument,
            reply,
            result,
            room: reply - padded(result),
            result_room: result,
            operations: String::new(),
        }
    }

    /// Form, Reads, Writes, registrations, bytes of Sends.
    fn check(
        call: &Call,
        threshold: usize,
        bound: Bound,
        expected: (Form, usize, usize, usize, usize),
    ) {
        let (form, reads, writes, registrations, sent) = expected;
        let expected = Cost {
            form,
            reads,
            writes,
            registrations,
            sent,
        };
        assert_eq!(
            Cost::of(call, threshold, bound).unwrap(),
            expected,
            "at {threshold}"
        );
    }

    #[test]
    fn call_that_fits_is_two_sends() {
        // Two headers of 28 bytes.
        check(
            &call(140, 0, 116, 0),
            1024,
            Bound::Recorded,
            (Form::Short, 0, 0, 0, 312),
        );
    }

    #[test]
    fn write_is_one_read_until_it_fits_a_send() {
        let write = call(200 + 8192, 8192, 160, 0);
        // A Read segment has 24 bytes.
        check(
            &write,
            1024,
            Bound::Recorded,
            (Form::Chunked, 1, 0, 1, 28 + 24 + 200 + 28 + 160),
        );
        check(&write, 8192, Bound::Recorded, (Form::Chunked, 1, 0, 1, 440));
        check(
            &write,
            16384,
            Bound::Recorded,
            (Form::Short, 0, 0, 0, 28 + 8392 + 188),
        );
    }

    #[test]
    fn read_is_one_write_until_the_largest_reply_fits_a_send() {
        let mut read = call(140, 0, 128 + 8192, 8190);
        read.result_room = 16384;
        // A Write chunk of one segment has 24 bytes, both ways.
        let placed = (Form::Chunked, 0, 1, 1, 52 + 140 + 52 + 128);
        check(&read, 1024, Bound::Recorded, placed);
        check(&read, 16384, Bound::Recorded, placed);
        check(
            &read,
            16384,
            Bound::Exact,
            (Form::Short, 0, 0, 0, 28 + 140 + 28 + 128 + 8192),
        );
        check(
            &read,
            32768,
            Bound::Recorded,
            (Form::Short, 0, 0, 0, 28 + 140 + 28 + 128 + 8192),
        );
    }

    #[test]
    fn reply_chunk_costs_a_region_even_if_the_reply_fits_a_send() {
        let mut getattr = call(140, 0, 300, 0);
        getattr.room = 2000;
        // A Reply chunk of one segment has 20 bytes.
        check(
            &getattr,
            1024,
            Bound::Recorded,
            (Form::Short, 0, 0, 1, 48 + 140 + 48 + 300),
        );
        check(
            &getattr,
            1024,
            Bound::Exact,
            (Form::Short, 0, 0, 0, 28 + 140 + 28 + 300),
        );
        check(
            &getattr,
            262_144,
            Bound::Unknown,
            (Form::Short, 0, 0, 1, 48 + 140 + 48 + 300),
        );
        getattr.reply = 1500;
        check(
            &getattr,
            1024,
            Bound::Recorded,
            (Form::Long, 0, 1, 1, 48 + 140 + 48),
        );
    }

    #[test]
    fn reply_beyond_what_was_prepared_for_is_an_error() {
        let mut getattr = call(140, 0, 1100, 0);
        getattr.room = 900;
        assert!(Cost::of(&getattr, 1024, Bound::Recorded).is_err());
    }

    #[test]
    fn call_without_eligible_data_that_does_not_fit_is_read_whole() {
        check(
            &call(1500, 0, 116, 0),
            1024,
            Bound::Recorded,
            (Form::Long, 1, 0, 1, 52 + 28 + 116),
        );
    }

    #[test]
    fn read_whose_reply_may_not_fit_beside_its_data_has_one_region_for_all_of_it() {
        let mut read = call(140, 0, 128 + 8192, 8192);
        read.room = 1100;
        // The Reply chunk is in both headers: 20 bytes more than none.
        let header = 28 + 20;
        check(
            &read,
            1024,
            Bound::Recorded,
            (Form::Long, 0, 1, 1, header + 140 + header),
        );
    }

    #[test]
    fn data_in_a_send_is_copied_and_data_in_a_chunk_is_not() {
        let write = call(200 + 8192, 8192, 160, 0);
        let copied = |threshold| {
            let cost = Cost::of(&write, threshold, Bound::Recorded).unwrap();
            cost.copied(&write)
        };
        assert_eq!((copied(8192), copied(16_384)), (0, 8192));
    }
}
