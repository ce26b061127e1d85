//! Plans at their boundaries.

use super::*;
use smallvec::smallvec;

const LIMITS: PlanLimits = PlanLimits {
    send: 4096,
    receive: 4096,
    max_chunk: 1 << 20,
    max_segment: 1 << 20,
    chunks: Chunks::Allowed,
    mixed_long: false,
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
        reply_chunk: false,
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
    let plan = |items: usize| plan(100 + 4000 * items, &vec![4000; items], 100, &[]);
    assert_eq!(plan(MAX_READ_CHUNKS).form, CallForm::Chunked);
    // One stays, and there is no room for it.
    assert_eq!(plan(MAX_READ_CHUNKS + 1).form, CallForm::Long);
    assert!(plan(MAX_READ_CHUNKS + 1).moved.is_empty());
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
        reply_chunk: false,
    };
    let bound = ReplyBound::default();
    let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
    assert_eq!(plan.form, CallForm::Chunked);
    let call = CallSizes {
        stream: 3000 + 60_000,
        items: smallvec![60_000],
        reply_chunk: false,
    };
    let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
    assert_eq!(plan.form, CallForm::Long);
}
