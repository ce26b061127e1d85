//! Plans at their boundaries.

#![allow(clippy::cast_possible_truncation)]

use super::*;
use crate::wire::header::MIN_LEN;
use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::xdr;
use proptest::prelude::*;
use smallvec::smallvec;

const LIMITS: PlanLimits = PlanLimits {
    header: MIN_LEN,
    send: 4096,
    receive: 4096,
    max_chunk: 1 << 20,
    max_segment: 1 << 20,
    regions: 100,
    continued: 0,
    chunks: Chunks::Allowed,
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
        move_items: false,
        read_chunks_beside_position_zero: false,
        write_chunks_beside_reply_chunk: false,
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
    // 28 bytes of header and 24 of the read segment.
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
fn call_that_would_need_too_many_regions_takes_fewer() {
    let plan = |regions, stream, items: &[usize], fixed, results: &[usize]| {
        let limits = PlanLimits { regions, ..LIMITS };
        CallPlan::new(&sizes(stream, items), &reply_of(fixed, results), &limits)
    };
    // Eight of the items would have to move to make room for the rest.
    let many = |regions| plan(regions, 4452, &[49; 79], 100, &[]).map(|plan| plan.form);
    assert_eq!(many(100), Ok(CallForm::Chunked));
    assert_eq!(many(7), Ok(CallForm::Long));
    assert!(many(0).is_err());
    // Results come together if there is no region for each.
    let results = |regions| plan(regions, 100, &[], 100, &[5000; 3]);
    assert_eq!(results(3).map(|plan| plan.regions()), Ok(3));
    let together = results(2).expect("carried");
    assert!(together.write_chunks.is_empty() && together.reply_chunk.is_some());
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
    // 28 bytes of header and 24 of the Write chunk.
    check(4044, &[1 << 20], &[1 << 20], None);
    check(4045, &[1000, 2000], &[], Some(4048 + 3000));
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
        move_items: false,
        read_chunks_beside_position_zero: false,
        write_chunks_beside_reply_chunk: false,
    };
    let bound = ReplyBound::default();
    let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
    assert_eq!(plan.form, CallForm::Chunked);
    let call = CallSizes {
        stream: 3000 + 60_000,
        items: smallvec![60_000],
        reply_chunk: false,
        move_items: false,
        read_chunks_beside_position_zero: false,
        write_chunks_beside_reply_chunk: false,
    };
    let plan = CallPlan::new(&call, &bound, &limits).expect("it can be carried");
    assert_eq!(plan.form, CallForm::Long);
}

/// Limits of a connection with these sizes.
fn limits(send: usize, receive: usize, max_segment: usize) -> PlanLimits {
    PlanLimits {
        send,
        receive,
        max_segment,
        ..LIMITS
    }
}

fn sizes(stream: usize, items: &[usize]) -> CallSizes {
    CallSizes {
        stream,
        items: items.into(),
        reply_chunk: false,
        move_items: false,
        read_chunks_beside_position_zero: false,
        write_chunks_beside_reply_chunk: false,
    }
}

fn reply_of(fixed: usize, results: &[usize]) -> ReplyBound {
    ReplyBound {
        fixed,
        results: results.into(),
    }
}

/// Bytes of a call header with so many read segments beside what the plan offers.
fn header(plan: &CallPlan, limits: &PlanLimits, read_segments: usize) -> usize {
    limits.header_len(
        read_segments,
        plan.write_chunks.iter().map(|&len| limits.segments(len)),
        plan.reply_chunk.map(|len| limits.segments(len)),
    )
}

#[test]
fn each_form_of_the_call_ends_where_its_last_byte_fits() {
    let replies = [
        reply_of(100, &[]),
        reply_of(100, &[9000]),
        reply_of(100, &[9000, 9001]),
        reply_of(9000, &[]),
        reply_of(9000, &[9000]),
    ];
    for send in [1024, 4096, 8192] {
        for max_segment in [4001, 1 << 20] {
            for bound in &replies {
                let limits = limits(send, 4096, max_segment);
                let plan = |stream, items: &[usize]| {
                    CallPlan::new(&sizes(stream, items), bound, &limits).expect("it can be carried")
                };
                let offers = header(&plan(8, &[]), &limits, 0);
                let check = |stream, items: &[usize], form| {
                    let found = plan(stream, items).form;
                    assert_eq!(found, form, "{send} {max_segment} {bound:?} {stream}");
                };
                let most = send - offers;
                check(most - 1, &[], CallForm::Short);
                check(most, &[], CallForm::Short);
                check(most + 1, &[], CallForm::Long);
                let item = 9002;
                let reduced = most - 24 * limits.segments(item);
                check(reduced - 1 + padded(item), &[item], CallForm::Chunked);
                check(reduced + padded(item), &[item], CallForm::Chunked);
                check(reduced + 1 + padded(item), &[item], CallForm::Long);
            }
        }
    }
}

#[test]
fn each_form_of_the_reply_ends_where_its_last_byte_fits() {
    for receive in [1024, 4096, 8192] {
        let limits = limits(4096, receive, 1 << 20);
        let check = |fixed, results: &[usize], writes: usize, long: bool| {
            let bound = reply_of(fixed, results);
            let plan = CallPlan::new(&sizes(100, &[]), &bound, &limits).expect("carried");
            let found = (plan.write_chunks.len(), plan.reply_chunk.is_some());
            assert_eq!(found, (writes, long), "{receive} {fixed} {results:?}");
        };
        let most = receive - MIN_LEN;
        check(most - 1, &[], 0, false);
        check(most, &[], 0, false);
        check(most + 1, &[], 0, true);
        // With an item of which the padding counts.
        check(100, &[most - 100 - 3], 0, false);
        check(100, &[most - 100], 0, false);
        check(100, &[most - 100 + 1], 1, false);
        let chunks = [10_000, 10_001];
        for results in [&chunks[..1], &chunks] {
            let left = receive - LIMITS.header_len(0, results.iter().map(|_| 1), None);
            check(left - 1, results, results.len(), false);
            check(left, results, results.len(), false);
            // Then all of it is in the Reply chunk.
            check(left + 1, results, 0, true);
        }
    }
}

#[test]
fn write_chunks_are_offered_beside_a_reply_chunk_only_if_that_is_asked_for() {
    let check = |reply_chunk, beside, fixed, writes: &[usize], reply| {
        let call = CallSizes {
            reply_chunk,
            write_chunks_beside_reply_chunk: beside,
            ..sizes(100, &[])
        };
        let bound = reply_of(fixed, &[9000, 5]);
        let plan = CallPlan::new(&call, &bound, &LIMITS).expect("carried");
        assert_eq!(
            (plan.write_chunks.as_slice(), plan.reply_chunk),
            (writes, reply)
        );
    };
    check(false, false, 100, &[9000, 5], None);
    check(false, false, 5000, &[], Some(5000 + 9000 + 8));
    check(true, false, 100, &[], Some(100 + 9000 + 8));
    check(false, true, 100, &[9000, 5], None);
    check(false, true, 5000, &[9000, 5], Some(5000));
    check(true, true, 100, &[9000, 5], Some(100));
}

#[test]
fn chunk_of_one_segment_too_many_is_refused() {
    let limits = PlanLimits {
        max_chunk: usize::MAX,
        ..limits(32_768, 32_768, 1000)
    };
    let plan = |stream, items: &[usize], fixed, results: &[usize]| {
        let bound = reply_of(fixed, results);
        CallPlan::new(&sizes(stream, items), &bound, &limits)
    };
    let reads = MAX_READ_SEGMENTS * 1000;
    assert!(plan(reads, &[], 100, &[]).is_ok());
    assert!(plan(reads + 1, &[], 100, &[]).is_err());
    let form = |item| plan(100 + item, &[item], 100, &[]).map(|plan| plan.form);
    assert_eq!(form(reads), Ok(CallForm::Chunked));
    assert!(form(reads + 1).is_err());
    let chunk = MAX_SEGMENTS_PER_CHUNK * 1000;
    assert!(plan(100, &[], 100, &[chunk]).is_ok());
    assert!(plan(100, &[], 100, &[chunk + 1]).is_err());
    assert!(plan(100, &[], chunk, &[]).is_ok());
    assert!(plan(100, &[], chunk + 1, &[]).is_err());
}

#[test]
fn offer_whose_header_fits_no_send_goes_as_one_chunk_or_not_at_all() {
    // A header of 1024 bytes has room for 62 segments in one chunk, and for fewer in two.
    let limits = limits(4096, 1024, 1000);
    let call = CallSizes {
        write_chunks_beside_reply_chunk: true,
        ..sizes(100, &[])
    };
    let plan = |fixed, results: &[usize]| CallPlan::new(&call, &reply_of(fixed, results), &limits);
    let both = plan(500, &[40_000]).expect("carried");
    assert_eq!((both.write_chunks.len(), both.reply_chunk), (1, Some(500)));
    let whole = plan(22_000, &[40_000]).expect("carried");
    assert_eq!(
        (whole.write_chunks.len(), whole.reply_chunk),
        (0, Some(62_000))
    );
    assert!(plan(23_000, &[40_000]).is_err());
}

#[test]
fn fewest_and_largest_items_move() {
    let moved = |items: &[usize]| {
        let stream = 100 + items.iter().map(|&len| padded(len)).sum::<usize>();
        plan(stream, items, 100, &[]).moved.to_vec()
    };
    assert_eq!(moved(&[100, 50_000, 200]), [1]);
    assert_eq!(moved(&[3000, 50_000, 2000]), [0, 1]);
    assert_eq!(moved(&[5000, 0, 50_000]), [0, 2]);
    assert_eq!(moved(&[100, 200]), [0; 0]);
}

#[test]
fn items_of_a_long_call_have_chunks_of_their_own_only_if_that_is_allowed() {
    let call = sizes(6000 + 8 + 50_000, &[8, 50_000]);
    let bound = ReplyBound::default();
    let plan = |beside| {
        let call = CallSizes {
            read_chunks_beside_position_zero: beside,
            ..call.clone()
        };
        CallPlan::new(&call, &bound, &LIMITS).expect("carried")
    };
    assert_eq!(plan(false).form, CallForm::Long);
    assert!(plan(false).moved.is_empty());
    assert_eq!(plan(true).form, CallForm::Long);
    // Eight bytes are not worth a segment.
    assert_eq!(plan(true).moved.to_vec(), [1]);
    assert_eq!(plan(true).regions(), 2);
}

#[test]
fn direction_without_chunks_has_one_send_for_each_message() {
    let limits = PlanLimits {
        continued: 0,
        chunks: Chunks::Refused,
        max_chunk: 0,
        max_segment: 0,
        ..LIMITS
    };
    let plan = |stream, fixed, results: &[usize]| {
        CallPlan::new(&sizes(stream, &[]), &reply_of(fixed, results), &limits)
    };
    let too_large = Err(TransportError::TooLarge {
        len: 4097,
        limit: 4096,
    });
    let fits = plan(4068, 68, &[3997]).expect("it fits");
    assert_eq!((fits.form, fits.regions()), (CallForm::Short, 0));
    assert_eq!(plan(4069, 100, &[]), too_large);
    assert_eq!(plan(100, 4069, &[]), too_large);
}

#[test]
fn reply_chunk_can_be_asked_for() {
    let call = CallSizes {
        reply_chunk: true,
        ..sizes(100, &[])
    };
    let plan = |fixed, results: &[usize]| {
        CallPlan::new(&call, &reply_of(fixed, results), &LIMITS).expect("carried")
    };
    assert_eq!(plan(100, &[]).reply_chunk, Some(100));
    assert_eq!(plan(0, &[]).reply_chunk, Some(4));
    let all = plan(100, &[9000]);
    assert_eq!((all.write_chunks.len(), all.reply_chunk), (0, Some(9100)));
}

/// A reply with these bytes beside its items, each of which has a length word among them.
fn message(fixed: usize, items: &[usize]) -> Payload {
    let mut w = xdr::Writer::new(Buffer::with_capacity(64));
    for &len in items {
        w.item(Gather::from_elem(Bytes::from(vec![0; len]), 1));
    }
    while w.len() < fixed / 4 * 4 {
        w.u32(0);
    }
    w.finish()
}

fn any_limits() -> impl Strategy<Value = PlanLimits> {
    let inline = || (1..=9_usize).prop_map(|kib| kib * 1024);
    let segment = prop_oneof![2000..6000_usize, Just(1 << 20)];
    (
        inline(),
        inline(),
        segment,
        20_000..200_000_usize,
        // For the call and for its reply.
        2..20_usize,
        // That of version one, and one of version two.
        prop_oneof![Just(MIN_LEN), Just(MIN_LEN + 8)],
    )
        .prop_map(
            |(send, receive, max_segment, max_chunk, regions, header)| PlanLimits {
                header,
                send,
                receive,
                max_chunk,
                max_segment: max_segment.min(max_chunk),
                regions,
                continued: 0,
                chunks: Chunks::Allowed,
            },
        )
}

fn any_items() -> impl Strategy<Value = Vec<usize>> {
    let item = prop_oneof![
        0..50_usize,
        900..1200_usize,
        3900..4200_usize,
        0..30_000_usize
    ];
    prop_oneof![
        9 => prop::collection::vec(item.clone(), 0..5),
        1 => prop::collection::vec(item, 15..20),
    ]
}

proptest! {
    #[test]
    fn whatever_is_planned_keeps_to_every_limit(
        limits in any_limits(),
        head in 8..12_000_usize,
        items in any_items(),
        fixed in 0..12_000_usize,
        results in any_items(),
        [items_beside, results_beside] in any::<[bool; 2]>(),
    ) {
        let stream = head + items.iter().map(|&len| padded(len)).sum::<usize>();
        let mut call = sizes(stream, &items);
        call.read_chunks_beside_position_zero = items_beside;
        call.write_chunks_beside_reply_chunk = results_beside;
        let Ok(plan) = CallPlan::new(&call, &reply_of(fixed, &results), &limits) else {
            // What fits chunks of one segment can be carried, whatever its form.
            let whole = fixed + results.iter().map(|&len| padded(len)).sum::<usize>();
            prop_assert!(stream > limits.max_segment || padded(whole) > limits.max_segment);
            return Ok(());
        };
        let long = plan.form == CallForm::Long;
        let rest = call.without(&plan.moved);
        let reads: Vec<usize> = plan.read_chunks(&call).collect();
        let segments = reads.iter().map(|&len| limits.segments(len)).sum();
        let inline = if long { 0 } else { rest };
        prop_assert!(header(&plan, &limits, segments) + inline <= limits.send);
        prop_assert!(header(&plan, &limits, 0) <= limits.receive);
        prop_assert!(segments <= MAX_READ_SEGMENTS && reads.len() <= MAX_READ_CHUNKS);
        prop_assert!(plan.write_chunks.len() <= MAX_WRITE_CHUNKS);
        prop_assert!(plan.regions() <= limits.regions);
        for &len in reads.iter().chain(&plan.write_chunks).chain(&plan.reply_chunk) {
            prop_assert!(len <= limits.max_chunk);
        }
        prop_assert!(plan.moved.is_sorted_by(|a, b| a < b));
        prop_assert!(plan.moved.iter().all(|&index| items[index] > 0));
        // Nothing moves that need not.
        let short = header(&plan, &limits, 0) + stream <= limits.send;
        prop_assert_eq!(plan.form == CallForm::Short, short);
        prop_assert!(plan.form != CallForm::Chunked || !plan.moved.is_empty());
    }

    /// Of what fits a Send each way there is nothing to decide, whatever the limits of chunks and parts.
    #[test]
    fn plan_without_a_decision_is_the_one_that_is_decided(
        limits in any_limits(),
        [refused, continued] in any::<[bool; 2]>(),
        stream in 8..12_000_usize,
        fixed in 0..12_000_usize,
        results in any_items(),
    ) {
        let limits = PlanLimits {
            chunks: if refused { Chunks::Refused } else { Chunks::Allowed },
            continued: if continued { 8192 } else { 0 },
            ..limits
        };
        let bound = reply_of(fixed, &results);
        let plain = PlainLimits {
            header: limits.header,
            send: limits.send,
            receive: limits.receive,
        };
        if plain.has_room(stream, &bound) {
            let plan = CallPlan::plain();
            prop_assert!(plan.is_plain());
            let decided = CallPlan::new(&sizes(stream, &[]), &bound, &limits);
            prop_assert_eq!(decided.ok(), Some(plan));
        }
    }

    /// A Responder has room for every reply within the bound.
    #[test]
    fn reply_within_its_bound_has_room(
        limits in any_limits(),
        fixed in 100..12_000_usize,
        results in any_items(),
        part in 0..=100_usize,
    ) {
        let bound = reply_of(fixed / 4 * 4, &results);
        let Ok(plan) = CallPlan::new(&sizes(100, &[]), &bound, &limits) else {
            return Ok(());
        };
        let items: Vec<usize> = results.iter().map(|&len| len * part / 100).collect();
        let reply = message(fixed * part / 100, &items);
        if reply.head().len() > bound.fixed {
            return Ok(());
        }
        let head = reply.head().len();
        let offered = plan.offered(&limits);
        match plan_reply(limits.header, &offered, head, items, limits.receive, limits.continued) {
            ReplyPlan::Send(_) => {}
            ReplyPlan::ReplyChunk(_) => prop_assert!(plan.reply_chunk.is_some()),
            ReplyPlan::Parts(_) | ReplyPlan::NoRoom { .. } | ReplyPlan::NoRoomForResult { .. } => {
                prop_assert!(false, "no room");
            }
        }
    }
}

#[test]
fn items_and_results_move_though_they_fit_where_that_is_wanted() {
    let mut call = sizes(200, &[40, 60]);
    call.move_items = true;
    let bound = ReplyBound {
        fixed: 40,
        results: smallvec![50, 70],
    };
    let plan = CallPlan::new(&call, &bound, &LIMITS).expect("it goes");
    assert_eq!(plan.form, CallForm::Chunked);
    assert_eq!(plan.moved[..], [0, 1]);
    assert_eq!(plan.write_chunks[..], [50, 70]);
    assert_eq!(plan.reply_chunk, None);
    call = sizes(200, &[]);
    call.move_items = true;
    let plan = CallPlan::new(&call, &ReplyBound::default(), &LIMITS).expect("it goes");
    assert!(plan.is_plain());
}
