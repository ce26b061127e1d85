//! How a call travels: decided from sizes and limits alone (RFC 8166 §3.5).

use crate::header::{MIN_LEN, emitted_len};
use crate::limits::{MAX_READ_CHUNKS, MAX_WRITE_CHUNKS};
use oncrpc::{ReplyBound, TransportError};
use smallvec::SmallVec;
use xdr::{Payload, padded};

/// What a plan has to keep to on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Octets of the largest message that we send.
    pub send: usize,
    /// Octets of the largest message that comes back.
    pub receive: usize,
    /// Octets of the largest chunk.
    pub max_chunk: usize,
    /// Octets of the largest segment: a longer chunk has several.
    pub max_segment: usize,
}

/// Sizes of a call message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSizes {
    /// Octets of the whole stream.
    pub stream: usize,
    /// Octets of the items, those that are not empty, without padding.
    pub items: SmallVec<[usize; 1]>,
}

/// How the call itself travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// In one Send (RFC 8166 §3.5.1).
    Short,
    /// In one Send, its items in a Read chunk each (RFC 8166 §3.5.2).
    Chunked,
    /// As a whole in a Position-Zero Read chunk (RFC 8166 §3.5.3).
    Long,
}

/// How a call travels, and what is offered for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// How the call itself travels.
    pub form: CallForm,
    /// Octets of the Write chunk for each result that is eligible for placement; none if the reply
    /// comes in one Send with everything in it.
    pub write_chunks: SmallVec<[usize; 1]>,
    /// Octets of the Reply chunk, if the reply may need one.
    pub reply_chunk: Option<usize>,
}

impl CallSizes {
    /// The sizes of a message.
    pub fn of(message: &Payload) -> Self {
        let items = message.items().iter().map(xdr::Item::len);
        Self {
            stream: message.stream_len(),
            items: items.filter(|&len| len > 0).collect(),
        }
    }

    /// Octets of the stream without its items.
    fn reduced(&self) -> usize {
        self.stream - self.items.iter().map(|&len| padded(len)).sum::<usize>()
    }
}

impl PlanLimits {
    /// Segments of a chunk of `len` octets.
    pub fn segments(&self, len: usize) -> usize {
        len.div_ceil(self.max_segment)
    }
}

impl CallPlan {
    /// The plan for a call of these sizes, whose reply is at most so large.
    ///
    /// # Errors
    ///
    /// If the call, or its reply, is more than this connection can carry.
    pub fn new(
        call: &CallSizes,
        bound: &ReplyBound,
        limits: &PlanLimits,
    ) -> Result<Self, TransportError> {
        let (write_chunks, reply_chunk) = plan_reply(bound, limits);
        let header = |read_segments| {
            emitted_len(
                read_segments,
                write_chunks.iter().map(|&len| limits.segments(len)),
                reply_chunk.map(|len| limits.segments(len)),
            )
        };
        let item_segments = call.items.iter().map(|&len| limits.segments(len)).sum();
        let form = if header(0) + call.stream <= limits.send {
            CallForm::Short
        } else if (1..=MAX_READ_CHUNKS).contains(&call.items.len())
            && header(item_segments) + call.reduced() <= limits.send
        {
            CallForm::Chunked
        } else {
            CallForm::Long
        };
        let largest_read = match form {
            CallForm::Short => 0,
            CallForm::Chunked => call.items.iter().copied().max().unwrap_or(0),
            CallForm::Long => call.stream,
        };
        let chunks = write_chunks.iter().copied().chain(reply_chunk);
        let largest = chunks.chain([largest_read]).max().unwrap_or(0);
        check(largest, limits.max_chunk)?;
        if form == CallForm::Long {
            check(header(limits.segments(call.stream)), limits.send)?;
        }
        Ok(Self {
            form,
            write_chunks,
            reply_chunk,
        })
    }

    /// Regions to register for it.
    pub fn regions(&self, call: &CallSizes) -> usize {
        let reads = match self.form {
            CallForm::Short => 0,
            CallForm::Chunked => call.items.len(),
            CallForm::Long => 1,
        };
        let writes = self.write_chunks.iter().filter(|&&len| len > 0).count();
        reads + writes + usize::from(self.reply_chunk.is_some())
    }
}

fn plan_reply(bound: &ReplyBound, limits: &PlanLimits) -> (SmallVec<[usize; 1]>, Option<usize>) {
    let whole = bound.fixed + bound.results.iter().map(|&len| padded(len)).sum::<usize>();
    if MIN_LEN + whole <= limits.receive {
        return (SmallVec::new(), None);
    }
    if bound.results.is_empty() || bound.results.len() > MAX_WRITE_CHUNKS {
        return (SmallVec::new(), Some(padded(whole)));
    }
    // RFC 8166 §4.3.3: a Reply chunk whenever what is left of the reply may not fit a Send. A
    // Linux server sends all that fits its own Send, whatever it was told, so the bound counts
    // and not what replies usually are.
    let writes = bound.results.iter().map(|&len| limits.segments(len));
    let header = emitted_len(0, writes, None);
    let reply = (header + bound.fixed > limits.receive).then(|| padded(bound.fixed));
    (bound.results.clone(), reply)
}

fn check(len: usize, limit: usize) -> Result<(), TransportError> {
    if len > limit {
        return Err(TransportError::TooLarge { len, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    const LIMITS: PlanLimits = PlanLimits {
        send: 4096,
        receive: 4096,
        max_chunk: 1 << 20,
        max_segment: 1 << 20,
    };

    fn plan(stream: usize, items: &[usize], fixed: usize, results: &[usize]) -> CallPlan {
        try_plan(stream, items, fixed, results).expect("it can be carried")
    }

    fn try_plan(
        stream: usize,
        items: &[usize],
        fixed: usize,
        results: &[usize],
    ) -> Result<CallPlan, TransportError> {
        let call = CallSizes {
            stream,
            items: items.into(),
        };
        let bound = ReplyBound {
            fixed,
            results: results.into(),
        };
        CallPlan::new(&call, &bound, &LIMITS)
    }

    #[test]
    fn form_of_the_call_follows_from_its_size() {
        let check = |stream, items: &[usize], form| {
            assert_eq!(plan(stream, items, 100, &[]).form, form, "{stream}");
        };
        check(4068, &[], CallForm::Short);
        check(4072, &[], CallForm::Long);
        // An item that fits is not worth a chunk.
        check(4068, &[3900], CallForm::Short);
        check(200 + 4096, &[4096], CallForm::Chunked);
        // 28 octets of header and 24 of the read segment.
        check(4044 + 4096, &[4096], CallForm::Chunked);
        check(4048 + 4096, &[4096], CallForm::Long);
    }

    #[test]
    fn items_beyond_the_limit_of_chunks_make_the_call_long() {
        let form = |items: usize| plan(1000 + 1000 * items, &vec![1000; items], 100, &[]).form;
        assert_eq!(form(MAX_READ_CHUNKS), CallForm::Chunked);
        assert_eq!(form(MAX_READ_CHUNKS + 1), CallForm::Long);
    }

    #[test]
    fn reply_that_fits_is_offered_nothing() {
        let check = |fixed, results: &[usize], writes: &[usize], reply| {
            let plan = plan(100, &[], fixed, results);
            assert_eq!(
                (plan.write_chunks.as_slice(), plan.reply_chunk),
                (writes, reply),
                "{fixed} {results:?}"
            );
        };
        check(4068, &[], &[], None);
        check(4069, &[], &[], Some(4072));
        check(128, &[3940], &[], None);
        check(128, &[3941], &[3941], None);
        check(128, &[1 << 20], &[1 << 20], None);
        // 28 octets of header and 24 of the Write chunk.
        check(4044, &[1 << 20], &[1 << 20], None);
        check(4045, &[1 << 20], &[1 << 20], Some(4048));
        check(128, &[5000, 10], &[5000, 10], None);
    }

    #[test]
    fn results_beyond_the_limit_of_chunks_come_in_the_reply_chunk() {
        let plan = plan(100, &[], 1000, &[1000; MAX_WRITE_CHUNKS + 1]);
        assert!(plan.write_chunks.is_empty());
        assert_eq!(plan.reply_chunk, Some(1000 * (MAX_WRITE_CHUNKS + 2)));
    }

    #[test]
    fn chunk_beyond_the_limit_is_refused() {
        let limit = LIMITS.max_chunk;
        let too_large = |len| Err(TransportError::TooLarge { len, limit });
        assert!(try_plan(limit, &[], 100, &[]).is_ok());
        assert_eq!(try_plan(limit + 4, &[], 100, &[]), too_large(limit + 4));
        assert_eq!(try_plan(100, &[], 100, &[limit + 1]), too_large(limit + 1));
        assert_eq!(try_plan(100, &[], limit + 4, &[]), too_large(limit + 4));
    }

    #[test]
    fn small_segments_count_against_the_header() {
        let limits = PlanLimits {
            max_segment: 1000,
            ..LIMITS
        };
        let call = CallSizes {
            stream: 3000 + 20_000,
            items: smallvec![20_000],
        };
        let bound = ReplyBound::default();
        let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
        assert_eq!(plan.form, CallForm::Chunked);
        let call = CallSizes {
            stream: 3000 + 60_000,
            items: smallvec![60_000],
        };
        let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
        assert_eq!(plan.form, CallForm::Long);
    }
}
