//! The reply to a call: its results go into the chunks that the call offers, the rest into a Send, several
//! Sends or the Reply chunk, and a handle of the call with it.

use super::{Call, Responder, State};
use crate::codec::{Codec, Contents, Invalidate, Rejection};
use crate::invalidation::design::Design;
use crate::invalidation::rule::{self, Rule, Said};
use crate::limits::{MAX_SHARED_COMPARISONS, MAX_SPARE_CANDIDATES, MAX_SPARE_SEGMENTS};
use crate::message::{into_inline, put_inline, split_front};
use crate::owner::Owner;
use crate::plan::{ReplyPlan, plan_reply};
use crate::shared::Shared;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, Segments};
use crate::work::Purpose;
use buffer::{Buffer, Gather};
use oncrpc::ReplyBound;
use oncrpc::xdr::{Item, Payload};
use smallvec::SmallVec;
use tracing::debug;
use verbs::{Handle, Handles, WorkRequest};

impl<O: Owner> Responder<O> {
    /// Refuses a call whose reply the service has not made, as it would be of this size.
    pub(super) fn no_room(&mut self, shared: &mut Shared<O>, key: u32, size: &ReplyBound) {
        let Call { xid, lists, .. } = &self.calls[key as usize];
        let sizes = shared.agreed.sizes;
        let plain = shared.agreed.codec.plain_len(Direction::Reply);
        let (limit, results) = (sizes.last_resort, size.results.iter().copied());
        let rejection = match plan_reply(plain, lists, size.fixed, results, limit, sizes.continued)
        {
            ReplyPlan::NoRoom { len } => Rejection::ReplyTooLong { len },
            ReplyPlan::NoRoomForResult { chunk, len } => Rejection::ResultTooLong { chunk, len },
            // A limit of this end, and none of what the call offers.
            ReplyPlan::Send(_) | ReplyPlan::ReplyChunk(_) | ReplyPlan::Parts(_) => {
                Rejection::ReplyTooLong { len: size.fixed }
            }
        };
        debug!(xid, ?rejection, "the service has no room for its results");
        self.refuse(shared, key, rejection);
    }

    pub(super) fn answer(&mut self, shared: &mut Shared<O>, key: u32, mut reply: Payload) {
        let call = &mut self.calls[key as usize];
        call.of_reply = reply.take_lease();
        let grant = shared.flow.offer(call.asked);
        let (codec, sizes) = (shared.agreed.codec, shared.agreed.sizes);
        let (plain, limit) = (codec.plain_len(Direction::Reply), sizes.send);
        let names = call
            .said
            .as_ref()
            .is_some_and(|said| !said.named.handles().is_empty());
        let small = call.lists.is_empty() && !names;
        if small && plain + reply.stream_len() <= limit {
            shared.note_reply(plain + reply.stream_len());
            // Only then may a handle go that is not of the call: this one has none.
            let invalidate = match shared.agreed.rule {
                Rule::By(Design::InterCall) => self.handles_to_take(shared, key),
                Rule::By(_) | Rule::Never => None,
            };
            let call = &mut self.calls[key as usize];
            call.answer_inline(shared, key, grant, reply, invalidate);
            return shared.flow.handle_replied();
        }
        let (head, lists) = (reply.head().len(), &call.lists);
        let plan = |limit| {
            let items = reply.items().iter().map(Item::len);
            plan_reply(plain, lists, head, items, limit, sizes.continued)
        };
        let planned = match plan(limit) {
            ReplyPlan::NoRoom { .. } if sizes.last_resort > limit => plan(sizes.last_resort),
            planned => planned,
        };
        let (chunks, long, in_parts) = match planned {
            ReplyPlan::Send(chunks) => (chunks, false, false),
            ReplyPlan::ReplyChunk(chunks) => (chunks, true, false),
            ReplyPlan::Parts(chunks) => (chunks, false, true),
            ReplyPlan::NoRoom { len } => {
                debug!(xid = call.xid, len, "no room for the reply");
                return self.refuse(shared, key, Rejection::ReplyTooLong { len });
            }
            ReplyPlan::NoRoomForResult { chunk, len } => {
                debug!(xid = call.xid, chunk, len, "no room for a result");
                return self.refuse(shared, key, Rejection::ResultTooLong { chunk, len });
            }
        };
        let wr = Purpose::Reply { call: key }.wr();
        let mut writer = Writer {
            shared,
            wr,
            posted: 0,
        };
        let mut lists = Lists::default();
        // RFC 8166 §3.4.6, §4.3.3: all that was offered goes back with what was written.
        lists.writes = call.lists.writes.iter().map(|c| c.returned(0)).collect();
        lists.reply = call.lists.reply.as_ref().map(|c| c.returned(0));
        for (item, chunk) in reply.items().iter().zip(&chunks) {
            let Some(chunk) = chunk.map(usize::from) else {
                continue;
            };
            if item.is_empty() {
                // It has its chunk, which goes back unused.
                continue;
            }
            let offered = &call.lists.writes[chunk];
            lists.writes[chunk] = offered.returned(item.len());
            writer.write(&offered.segments, item.data.clone());
            writer.shared.counters.write_chunks_filled += 1;
            writer.shared.counters.write_bytes_posted += item.len() as u64;
        }
        let mut buffer = writer.shared.send_buffer();
        let xid = call.xid;
        let invalidate = copied(codec, call.said.as_deref());
        let emit = |out: &mut Buffer, long, lists: &Lists| {
            let contents = Contents {
                long,
                direction: Direction::Reply,
                invalidate,
                lists,
            };
            codec.emit(out, xid, grant, &contents);
        };
        let moved = |index: usize| chunks.get(index).is_some_and(Option::is_some);
        // Bytes that went, or would have gone, in one Send.
        let mut needed = 0;
        let mut parts = None;
        let rest = if long {
            let offered = call
                .lists
                .reply
                .as_ref()
                .expect("the plan uses what is offered");
            // Its lease is with the call.
            let (stream, _) = reply.into_reduced_gather(moved);
            let len = buffer::gather_len(&stream);
            lists.reply = Some(offered.returned(len));
            writer.write(&offered.segments, stream);
            writer.shared.counters.reply_chunks_filled += 1;
            writer.shared.counters.reply_bytes_posted += len as u64;
            emit(&mut buffer, true, &lists);
            needed += len;
            Gather::new()
        } else if in_parts {
            emit(&mut buffer, false, &lists);
            let (stream, _) = reply.into_reduced_gather(moved);
            needed += buffer::gather_len(&stream);
            parts = Some(stream);
            Gather::new()
        } else {
            emit(&mut buffer, false, &lists);
            put_inline(reply.parts(), &mut buffer, moved)
        };
        let mut left = writer.posted + 1;
        needed += buffer.len() + buffer::gather_len(&rest);
        shared.note_reply(needed);
        let invalidate = self.handles_to_take(shared, key);
        // Right behind the Writes: order on the stream is enough (RFC 5040 §5.5).
        match parts {
            Some(stream) => {
                let purposes = (
                    Purpose::ReplyPart { call: key },
                    Purpose::Reply { call: key },
                );
                let message = (Direction::Reply, xid);
                left += shared.push_parts(message, buffer, stream, purposes, invalidate) - 1;
            }
            None => shared.posts.push(WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate,
            }),
        }
        shared.counters.replies_sent += 1;
        self.calls[key as usize].state = State::Replying { left };
        shared.flow.handle_replied();
    }

    /// Returns the handles to invalidate with the reply to the call `key`.
    fn handles_to_take(&mut self, shared: &mut Shared<O>, key: u32) -> Option<Handles> {
        if shared.agreed.rule == Rule::Never {
            return None;
        }
        if self.shares_handles(key) {
            shared.counters.invalidations_withheld += 1;
            return None;
        }
        let most = shared.limits.invalidations;
        let call = &self.calls[key as usize];
        let mut of_other = None;
        let taken = shared
            .agreed
            .rule
            .take(&call.lists, call.said.as_deref(), most, || {
                of_other = self.spare(key);
                of_other.map(|(_, handle)| handle)
            });
        if let Some((other, handle)) = of_other {
            let said = &mut self.calls[other as usize].said;
            said.get_or_insert_default().spent.push(handle);
            shared.counters.invalidations_sent_inter_call += 1;
        }
        let sent = taken.handles.as_ref().map_or(0, Handles::count);
        shared.counters.invalidations_sent += sent as u64;
        shared.counters.foreign_handles_named += u64::from(taken.foreign);
        taken.handles
    }

    /// Whether a handle of the call `key` is not its own alone, which RFC 8797 §4.1 requires: another
    /// call offers it, or did so when that was answered. All calls that share one are marked: the
    /// Requester may invalidate it after any of the replies, so none of them may.
    fn shares_handles(&mut self, key: u32) -> bool {
        let own = &self.calls[key as usize];
        if own.said.as_ref().is_some_and(|said| said.shared) {
            return true;
        }
        if own.lists.is_empty() {
            return false;
        }
        let mut left = MAX_SHARED_COMPARISONS;
        let others = self
            .calls
            .iter()
            .filter(|&(other, call)| other != key as usize && !call.lists.is_empty());
        // One that is not compared, beyond the limit, counts as one that shares.
        let sharing: SmallVec<[usize; 4]> = others
            .filter(|(_, call)| {
                rule::share_a_handle(&own.lists, &call.lists, &mut left) != Some(false)
            })
            .map(|(other, _)| other)
            .collect();
        for &other in &sharing {
            let said = &mut self.calls[other].said;
            said.get_or_insert_default().shared = true;
        }
        !sharing.is_empty()
    }

    /// Returns a handle that another call than `key` offered for reading and no longer needs
    /// (reminv §4.6): it was read, the call's reply is still to come, and no other call offers it.
    /// The search is bounded, because it is done for every reply, and the client determines how
    /// much there is.
    fn spare(&self, key: u32) -> Option<(u32, Handle)> {
        let calls = || self.calls.iter();
        let segments = calls().map(|(_, call)| rule::segments(&call.lists));
        if segments.sum::<usize>() > MAX_SPARE_SEGMENTS {
            return None;
        }
        let read = calls().filter(|&(other, call)| {
            let shared = call.said.as_ref().is_some_and(|said| said.shared);
            other != key as usize && matches!(call.state, State::Dispatched) && !shared
        });
        let spare = read.flat_map(|(other, call)| {
            let spent = call.said.as_ref().map_or(&[][..], |said| &said.spent);
            rule::spare(&call.lists, spent).map(move |handle| (other, handle))
        });
        let alone = |&(_, handle): &(usize, Handle)| {
            let all = calls().flat_map(|(_, call)| rule::in_order(&call.lists));
            all.filter(|&other| other == handle).count() == 1
        };
        let (other, handle) = spare.take(MAX_SPARE_CANDIDATES).find(alone)?;
        Some((
            u32::try_from(other).expect("calls are limited by credits"),
            handle,
        ))
    }
}

impl<L> Call<L> {
    /// Sends an inline reply to a call without chunks, as nearly every small one is.
    fn answer_inline<O: Owner>(
        &mut self,
        shared: &mut Shared<O>,
        key: u32,
        grant: u32,
        reply: Payload,
        invalidate: Option<Handles>,
    ) {
        let header = shared.agreed.codec.plain(Direction::Reply, self.xid, grant);
        let (buffer, rest) = into_inline(reply, &header, || shared.send_buffer());
        shared.posts.push(WorkRequest::Send {
            wr: Purpose::Reply { call: key }.wr(),
            buffer,
            rest,
            invalidate,
        });
        shared.counters.replies_sent += 1;
        self.state = State::Replying { left: 1 };
    }
}

/// Posts the Writes of one reply.
struct Writer<'a, O: Owner> {
    shared: &'a mut Shared<O>,
    wr: verbs::WrId,
    posted: usize,
}

impl<O: Owner> Writer<'_, O> {
    /// Fills segments in order with all of `data`, for which there is room.
    fn write(&mut self, segments: &Segments, mut data: Gather) {
        for segment in segments {
            if data.is_empty() {
                return;
            }
            let source = split_front(&mut data, segment.length as usize);
            if source.is_empty() {
                continue;
            }
            self.posted += 1;
            self.shared.posts.push(WorkRequest::Write {
                wr: self.wr,
                source,
                to: segment.address(),
            });
        }
    }
}

/// Returns the handles for remote invalidation in a reply: one handle is copied from the call,
/// several are not (reminv §5.3).
fn copied(codec: &dyn Codec, said: Option<&Said>) -> Invalidate {
    match said.map(|said| &said.named) {
        Some(one @ Invalidate::One(_)) => one.clone(),
        Some(Invalidate::Several(_) | Invalidate::Unsaid) | None => codec.nothing_to_invalidate(),
    }
}
