//! Offer of a call to its Responder: regions for its chunks, and handles for invalidation.

use super::outcome::{Region, RegionUse, exposed};
use super::{Call, Offered};
use crate::codec::Invalidate;
use crate::invalidation::design::Design;
use crate::invalidation::persistent::PersistentPool;
use crate::invalidation::rule::{self, Accepts, Rule};
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::owner::Owner;
use crate::plan::{CallForm, CallPlan};
use crate::shared::Shared;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, ReadChunk, Segments, WriteChunk, chunks_len_of};
use buffer::{Buffer, Gather, Pool};
use smallvec::SmallVec;
use verbs::{
    Handle, Invalidation, Limits, Memory, Part, Parts, QueuePair, RegisterError, RemoteAddress,
    Segment,
};

/// Registers the regions of the plan, and records them in the call.
pub(super) fn offer<O: Owner>(
    plan: &CallPlan,
    call: &mut Call<O::Call>,
    shared: &mut Shared<O>,
    persistent: &mut PersistentPool,
    qp: &mut dyn QueuePair,
) -> Result<(), RegisterError> {
    let Call {
        request, offered, ..
    } = call;
    let Offered {
        lists,
        regions,
        lent,
    } = &mut **offered.get_or_insert_default();
    let mut parts = shared.has_one_region(plan).then(Vec::new);
    let max_segment = shared.max_segment();
    let counters = &mut shared.counters;
    let mut arguments: SmallVec<[(usize, Gather); 1]> = SmallVec::new();
    if plan.form == CallForm::Long {
        arguments.push((0, request.message.freeze(&plan.moved)));
    }
    if !plan.moved.is_empty() {
        let items = request.message.items().enumerate();
        let moved = items.filter(|(index, _)| plan.moved.contains(index));
        arguments.extend(moved.map(|(_, (position, data))| (position, data.clone())));
    }
    for (position, data) in arguments {
        let len = buffer::gather_len(&data);
        let at = match persistent.lend(&data, qp)? {
            Some(at) => {
                lent.push(at);
                at
            }
            None => {
                let at = register(Part::Source(data), &mut parts, qp)?;
                regions.push(Region::new(at.handle, RegionUse::Argument));
                at
            }
        };
        lists.reads.push(ReadChunk {
            position: u32::try_from(position).expect("the plan limits messages"),
            segments: segments(at, len, max_segment),
        });
        counters.read_chunks_offered += 1;
        counters.read_bytes_offered += len as u64;
    }
    for (index, &len) in plan.write_chunks.iter().enumerate() {
        // A result that is always empty has an empty Write chunk (RFC 8166 §4.3.2.3).
        let segments = match len {
            0 => Segments::new(),
            _ => {
                let sink = sink(&shared.pool, &shared.limits, len);
                let at = register(Part::Sink(sink), &mut parts, qp)?;
                regions.push(Region::new(at.handle, RegionUse::Result(index)));
                segments(at, len, max_segment)
            }
        };
        lists.writes.push(WriteChunk { segments });
        counters.write_chunks_offered += 1;
    }
    if let Some(len) = plan.reply_chunk {
        let sink = sink(&shared.pool, &shared.limits, len);
        let at = register(Part::Sink(sink), &mut parts, qp)?;
        regions.push(Region::new(at.handle, RegionUse::Reply));
        let segments = segments(at, len, max_segment);
        lists.reply = Some(WriteChunk { segments });
        counters.reply_chunks_offered += 1;
    }
    if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
        let at = qp.register(Memory::Parts(Parts::new(parts)))?;
        move_parts(lists, regions, at);
    }
    counters.registrations += exposed(regions).count() as u64;
    Ok(())
}

/// Handle of parts before their region is registered. No region has it.
const NOT_YET: Handle = Handle(0);

/// Registers memory of one chunk; or adds it to the parts of the call's one region, at an address
/// that is counted from the beginning of that.
///
/// The parts are a vector of their own, one more for each call with several chunks: they go to the
/// provider and come back.
fn register(
    memory: Part,
    parts: &mut Option<Vec<Part>>,
    qp: &mut dyn QueuePair,
) -> Result<RemoteAddress, RegisterError> {
    let Some(parts) = parts else {
        return qp.register(memory.into());
    };
    let offset = Parts::offset_of(parts.len());
    parts.push(memory);
    Ok(RemoteAddress {
        handle: NOT_YET,
        offset,
    })
}

/// Moves the parts of a region, and the segments in them, to where it was registered.
fn move_parts(lists: &mut Lists, regions: &mut [Region], at: RemoteAddress) {
    for region in regions.iter_mut() {
        region.handle = at.handle;
    }
    let reads = lists.reads.iter_mut().map(|chunk| &mut chunk.segments);
    let writes = lists.writes.iter_mut().chain(&mut lists.reply);
    let writes = writes.map(|chunk| &mut chunk.segments);
    // Arguments in persistent memory have handles of their own.
    let segments = reads.chain(writes).flatten();
    for segment in segments.filter(|segment| segment.handle == NOT_YET) {
        segment.handle = at.handle;
        segment.offset += at.offset;
    }
}

/// Takes memory for `len` bytes that the peer writes. Memory of the pool may be larger, and only so
/// much of it becomes a region (RFC 8166 §8.1).
fn sink(pool: &Pool, limits: &Limits, len: usize) -> Buffer {
    let buffer = pool.take(len);
    if buffer.capacity() > limits.max_region {
        return Buffer::with_capacity(len);
    }
    buffer.limited(len)
}

fn segments(at: RemoteAddress, len: usize, max_segment: usize) -> Segments {
    let starts = (0..len).step_by(max_segment);
    starts
        .map(|start| Segment {
            handle: at.handle,
            length: u32::try_from(max_segment.min(len - start)).expect("chunks are limited"),
            offset: at.offset + start as u64,
        })
        .collect()
}

/// Returns the handles that a call names for invalidation, if the layout has them.
pub(super) fn may_go<O: Owner>(
    shared: &Shared<O>,
    plan: &CallPlan,
    call: &Call<O::Call>,
) -> Invalidate {
    let (lists, regions) = (call.lists(), call.regions());
    let able = shared.limits.remote_invalidation == Invalidation::Region
        && shared.agreed.accepts != Accepts::Nothing;
    match shared.agreed.codec.nothing_to_invalidate() {
        // reminv §5.2: the largest may be worth most. One that stays is not among them, as it must
        // not go.
        Invalidate::One(_) if able => {
            let bytes = |region: &&Region| rule::bytes_of(lists, region.handle);
            Invalidate::One(regions.iter().max_by_key(bytes).map(|region| region.handle))
        }
        Invalidate::Several(_) if able => {
            let header = shared.agreed.codec.plain_len(Direction::Call) + chunks_len_of(lists);
            let sent = header + plan.inline(&call.request.sizes());
            let room = shared.agreed.sizes.send.saturating_sub(sent);
            let mut most = MAX_INVALIDATE_HANDLES.min(room / size_of::<u32>());
            if shared.agreed.rule == Rule::By(Design::PerCallAll) {
                // More of them would end the connection.
                most = most.min(shared.limits.invalidations);
            }
            Invalidate::Several(exposed(regions).take(most).collect())
        }
        other => other,
    }
}
