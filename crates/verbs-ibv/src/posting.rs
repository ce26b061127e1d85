//! From accepted work to chains of work requests for the device.

#![expect(
    unsafe_code,
    reason = "work requests name memory by its address, and memory is registered by it"
)]

use crate::devices::Transport;
use crate::ending;
use crate::memory::Region;
use crate::queue_pair::{IbvQp, is_full};
use crate::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_SEND_INLINE,
    IBV_SEND_SIGNALED, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_SEND, IBV_WR_SEND_WITH_INV, ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use crate::work::{Held, Posted, Read, ReadPart, Receive, What, Work};
use buffer::{Buffer, Gather, Pool, gather_len};
use libc::c_int;
use smallvec::SmallVec;
use std::io;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use verbs::{
    Access, CloseReason, Completion, Handle, Loss, PostError, Reason, RemoteAddress, Segment,
    WorkCounters, WorkError, WorkKind, WorkRequest, WrId,
};

/// Work requests that are given to the device at a time.
const CHAIN: usize = 64;

/// Bytes of a piece that is copied rather than registered for one use, which takes system calls.
const COPY: usize = 16 << 10;

/// Longest Read Response, in bytes, that Linux' siw copies into the packet with its header, and the size of the pages that
/// it finds the bytes in.
const SIW_COPIED_RESPONSE: u32 = 32;
const SIW_PAGE: u64 = 4096;

/// Marks the numbers of Receives among those of completions.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// Work requests that are built, and not posted yet.
#[derive(Default)]
struct Chain {
    requests: Vec<ibv_send_wr>,
    pieces: Vec<ibv_sge>,
    /// Which of the pieces belong to each request, and whether its completion is needed for itself.
    of_requests: Vec<(Range<usize>, bool)>,
    /// Handles of windows that are bound.
    bound: SmallVec<[Handle; 4]>,
}

/// Pieces of memory for work requests, and what keeps them.
type Gathered = (SmallVec<[ibv_sge; 4]>, Held);

impl IbvQp {
    /// Takes work in, if there is room and it can be done.
    #[expect(clippy::result_large_err, reason = "the refused work is handed back")]
    pub(crate) fn accept_work(&mut self, work: WorkRequest) -> Result<(), PostError> {
        if let WorkRequest::Receive { wr, buffer } = work {
            return self.accept_receive(wr, buffer);
        }
        if !self.is_open() {
            self.fail(work.wr(), WorkError::Flushed);
            return Ok(());
        }
        if is_full(self.accepted) {
            return Err(PostError::Full(work));
        }
        if !self.can_do(&work) {
            return Err(PostError::Invalid(work));
        }
        self.accepted += 1;
        self.queue.push_back(match work {
            WorkRequest::Receive { wr, buffer } => return self.accept_receive(wr, buffer),
            WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate,
            } => Work::Send {
                wr,
                buffer,
                rest,
                invalidate: invalidate.map(|handles| handles.first()),
            },
            WorkRequest::Write { wr, source, to } => Work::Write { wr, source, to },
            WorkRequest::Read { wr, sink, from } => Work::Read { wr, sink, from },
            WorkRequest::Invalidate { wr, handle } => Work::Invalidate { wr, handle },
        });
        Ok(())
    }

    #[expect(clippy::result_large_err, reason = "the refused work is handed back")]
    fn accept_receive(&mut self, wr: WrId, buffer: Buffer) -> Result<(), PostError> {
        if self.hardware().is_none() {
            self.fail(wr, WorkError::Flushed);
            return Ok(());
        }
        if self.receives.len() >= self.limits.receives {
            return Err(PostError::Full(WorkRequest::Receive { wr, buffer }));
        }
        // On a connection that is about to end it is not given to the device, and fails in its turn.
        self.receives.push_back(Receive {
            region: None,
            wr,
            buffer,
        });
        // At once: the peer may send as soon as the owner has told it, by whatever way.
        if self.is_open()
            && let Err(error) = self.give_receives()
        {
            self.end(ending::system(error));
        }
        Ok(())
    }

    /// Whether work other than a Receive is possible on this connection.
    fn can_do(&self, work: &WorkRequest) -> bool {
        let most = self.limits.max_message as usize;
        match work {
            WorkRequest::Receive { .. } | WorkRequest::Invalidate { .. } => true,
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let several = invalidate.as_ref().is_some_and(|all| all.count() > 1);
                buffer.len() + gather_len(rest) <= most && !several
            }
            WorkRequest::Write { source, .. } => gather_len(source) <= most,
            WorkRequest::Read { sink, from, .. } => {
                let length: u64 = from.iter().map(|segment| u64::from(segment.length)).sum();
                let most = sink.capacity().min(most) as u64;
                self.limits.outstanding_reads > 0 && length <= most
            }
        }
    }

    /// Whether [`give_work`](Self::give_work) has something to do.
    pub(crate) fn has_work_to_give(&self) -> bool {
        if !self.sends_on() {
            return false;
        }
        let reads = self.outstanding_reads < self.limits.outstanding_reads
            && !self.read_parts.is_empty()
            && self.sends.room() > 0;
        let next = self
            .queue
            .front()
            .is_some_and(|work| self.requests_of(work) <= self.sends.room());
        reads || next
    }

    /// Work requests that this takes, at most.
    fn requests_of(&self, work: &Work) -> usize {
        match work {
            Work::Write { source, .. } => {
                let requests = source.len().div_ceil(self.pieces_of_a_request).max(1);
                // What would be more than the queue is copied into one piece.
                if requests > self.sends.depth() {
                    1
                } else {
                    requests
                }
            }
            // A Read only takes its place in the queue of Reads.
            Work::Read { .. } => 0,
            Work::Send { .. } | Work::Bind { .. } | Work::Invalidate { .. } => 1,
        }
    }

    /// Gives the device what is posted, as far as there is room. Says whether there was something.
    pub(crate) fn give_work(&mut self) -> bool {
        if !self.sends_on() {
            return false;
        }
        match self.try_give_work() {
            Ok(moved) => moved,
            Err(error) => {
                self.end(ending::system(error));
                true
            }
        }
    }

    fn try_give_work(&mut self) -> io::Result<bool> {
        let mut moved = false;
        let mut chain = Chain::default();
        while chain.requests.len() < CHAIN {
            if self.outstanding_reads < self.limits.outstanding_reads
                && self.sends.room() > 0
                && let Some(part) = self.read_parts.pop_front()
            {
                self.build_read(&mut chain, &part);
                continue;
            }
            let room = self.sends.room();
            match self.queue.front() {
                Some(work) if self.requests_of(work) <= room => {}
                Some(_) | None => break,
            }
            let Some(work) = self.queue.pop_front() else {
                break;
            };
            moved = true;
            let wr = work.wr();
            if let Err(error) = self.build(&mut chain, work) {
                if let Some(wr) = wr {
                    self.finish_failed(wr, WorkError::Flushed);
                }
                return Err(error);
            }
        }
        moved |= !chain.requests.is_empty();
        self.post_chain(chain)?;
        Ok(moved)
    }

    /// Gives the device the Receives that it does not have yet.
    pub(crate) fn give_receives(&mut self) -> io::Result<()> {
        let with_no_piece = self.transport == Transport::InfiniBand;
        let mut pieces = Vec::new();
        let mut requests = Vec::new();
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let hardware = &mut live.hardware;
        let posted = self.posted_receives;
        let numbers = self.first_receive + posted as u64..;
        for (receive, number) in self.receives.iter_mut().skip(posted).zip(numbers) {
            let made = &mut self.io.work.registrations;
            // SAFETY: The region goes to the Receive, which drops it before the buffer.
            let region = unsafe {
                hardware
                    .adapter
                    .domain
                    .region_of(&mut receive.buffer, made)?
            };
            pieces.push(ibv_sge {
                addr: receive.buffer.memory_mut().as_mut_ptr() as u64,
                length: u32::try_from(receive.buffer.capacity()).unwrap_or(u32::MAX),
                lkey: region.as_ref().map_or(0, |region| region.local_key()),
            });
            // Some devices take a piece without bytes for one of 2 GiB, others a Receive without pieces for none.
            let empty = receive.buffer.capacity() == 0 && with_no_piece;
            receive.region = region;
            requests.push(ibv_recv_wr {
                wr_id: RECEIVE | number,
                next: null_mut(),
                sg_list: null_mut(),
                num_sge: c_int::from(!empty),
            });
        }
        if requests.is_empty() {
            return Ok(());
        }
        for (request, piece) in requests.iter_mut().zip(&mut pieces) {
            request.sg_list = &raw mut *piece;
        }
        // Before the call: what the device may have is not freed, also when the call fails.
        self.posted_receives = self.receives.len();
        self.io.work.receives += requests.len() as u64;
        self.io.work.receive_doorbells += 1;
        // SAFETY: Each piece is the memory of a buffer in `receives`, with a region of it. Both stay there until the
        // completion, or until the queue pair is destroyed, and nobody looks at the memory. The pieces are in `pieces`.
        unsafe { hardware.post_receives(&mut requests) }
    }

    fn build(&mut self, chain: &mut Chain, work: Work) -> io::Result<()> {
        match work {
            Work::Send {
                wr,
                buffer,
                rest,
                invalidate,
            } => self.build_send(chain, wr, buffer, rest, invalidate),
            Work::Write { wr, source, to } => self.build_write(chain, wr, source, to),
            Work::Read { wr, sink, from } => self.begin_read(wr, sink, &from),
            Work::Bind { handle } => {
                self.build_bind(chain, handle);
                Ok(())
            }
            Work::Invalidate { wr, handle } => {
                self.build_invalidate(chain, wr, handle);
                Ok(())
            }
        }
    }

    fn build_send(
        &mut self,
        chain: &mut Chain,
        wr: WrId,
        buffer: Buffer,
        rest: Gather,
        invalidate: Option<Handle>,
    ) -> io::Result<()> {
        let (inline, (pieces, held)) = self.gather(Some(buffer), rest, false)?;
        let mut request = match invalidate {
            None => request(IBV_WR_SEND),
            Some(handle) => ibv_send_wr {
                invalidate_rkey: handle.0,
                ..request(IBV_WR_SEND_WITH_INV)
            },
        };
        request.send_flags = inline;
        let held = Some(Arc::new(held));
        self.add(chain, request, &pieces, What::Send(wr), held, false);
        Ok(())
    }

    fn build_write(
        &mut self,
        chain: &mut Chain,
        wr: WrId,
        source: Gather,
        to: RemoteAddress,
    ) -> io::Result<()> {
        let whole = source.len().div_ceil(self.pieces_of_a_request) > self.sends.depth();
        let (inline, (pieces, held)) = self.gather(None, source, whole)?;
        let held = Arc::new(held);
        let mut requests = pieces.chunks(self.pieces_of_a_request).peekable();
        let mut address = to.offset;
        loop {
            let pieces = requests.next().unwrap_or_default();
            let last = requests.peek().is_none();
            let mut request = request(IBV_WR_RDMA_WRITE);
            request.send_flags = inline;
            request.wr.remote_addr = address;
            request.wr.rkey = to.handle.0;
            let what = if last { What::Write(wr) } else { What::Nothing };
            self.add(chain, request, pieces, what, Some(Arc::clone(&held)), false);
            // The device refuses what passes the end of the numbers, as it refuses any other wrong address.
            let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
            address = address.wrapping_add(length);
            if last {
                return Ok(());
            }
        }
    }

    /// Divides a Read into parts, which wait for their turn.
    fn begin_read(&mut self, wr: WrId, mut sink: Buffer, from: &[Segment]) -> io::Result<()> {
        let length = from.iter().map(|segment| segment.length as usize).sum();
        let iwarp = self.transport == Transport::Iwarp;
        let requests = || {
            let segments = from.iter().filter(|segment| segment.length > 0);
            segments.flat_map(move |segment| requests_for(*segment, iwarp))
        };
        let parts = requests().count();
        if parts == 0 {
            sink.set_len(0);
            self.accepted -= 1;
            self.complete(Completion::Read { wr, sink });
            return Ok(());
        }
        let Some(hardware) = self.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let domain = &hardware.adapter.domain;
        let mut made = 0;
        let region = if iwarp {
            // The response of an iWARP peer is a Write to the sink (RFC 5040 §4.4), which is open to the peer for the
            // time of the Read.
            let memory = sink.memory_mut();
            let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
            // SAFETY: The sink goes to `reads` with its region, which is dropped first, and nobody looks at it before
            // the Read has completed or the queue pair is destroyed.
            let region = unsafe { domain.register(memory.as_mut_ptr(), memory.len(), access)? };
            made += 1;
            Some(Arc::new(region))
        } else {
            // SAFETY: The sink goes to `reads` with its region, which is dropped first.
            unsafe { domain.region_of(&mut sink, &mut made)? }
        };
        self.io.work.registrations += made;
        let read = self.reads.insert(Read {
            region,
            wr,
            sink,
            left: parts,
            length,
            failed: None,
        });
        let mut at = 0;
        for from in requests() {
            self.read_parts.push_back(ReadPart { read, from, at });
            at += from.length as usize;
        }
        Ok(())
    }

    fn build_read(&mut self, chain: &mut Chain, part: &ReadPart) {
        let Some(read) = self.reads.get_mut(part.read) else {
            return;
        };
        let memory = &mut read.sink.memory_mut()[part.at..][..part.from.length as usize];
        let piece = ibv_sge {
            addr: memory.as_mut_ptr() as u64,
            length: part.from.length,
            lkey: read.region.as_ref().map_or(0, |region| region.local_key()),
        };
        let mut request = request(IBV_WR_RDMA_READ);
        request.wr.remote_addr = part.from.offset;
        request.wr.rkey = part.from.handle.0;
        self.outstanding_reads += 1;
        self.add(chain, request, &[piece], What::Read(part.read), None, true);
    }

    fn build_bind(&mut self, chain: &mut Chain, handle: Handle) {
        let Some(exposed) = self.exposed.get(&handle.0) else {
            return;
        };
        let Some(window) = &exposed.window else {
            return;
        };
        let mut request = request(IBV_WR_BIND_MW);
        request.bind_mw.mw = window.window.as_ptr().as_ptr();
        request.bind_mw.rkey = handle.0;
        request.bind_mw.bind_info.mr = exposed.region.as_ptr().as_ptr();
        request.bind_mw.bind_info.addr = exposed.start as u64;
        request.bind_mw.bind_info.length = exposed.length as u64;
        request.bind_mw.bind_info.mw_access_flags = remote_access(exposed.access());
        chain.bound.push(handle);
        self.add(chain, request, &[], What::Nothing, None, false);
    }

    fn build_invalidate(&mut self, chain: &mut Chain, wr: WrId, handle: Handle) {
        let exposed = self.exposed.get_mut(&handle.0);
        match exposed.filter(|exposed| !exposed.ending) {
            None => {
                self.finish_failed(wr, WorkError::NoSuchHandle);
                let error = WorkError::NoSuchHandle;
                let reason = Reason::new(Loss::WorkFailed).with_detail(error);
                self.end(CloseReason::Lost(reason));
            }
            Some(exposed) if exposed.window.is_some() => {
                exposed.ending = true;
                let mut request = request(IBV_WR_LOCAL_INV);
                request.invalidate_rkey = handle.0;
                self.add(
                    chain,
                    request,
                    &[],
                    What::Invalidate(wr, handle),
                    None,
                    true,
                );
            }
            // A registration for one use ends at once.
            Some(_) => self.finish(&What::Invalidate(wr, handle), Ok(())),
        }
    }

    fn add(
        &mut self,
        chain: &mut Chain,
        mut request: ibv_send_wr,
        pieces: &[ibv_sge],
        what: What,
        held: Option<Arc<Held>>,
        signal: bool,
    ) {
        request.wr_id = self.sends.push(Posted { what, _held: held });
        request.num_sge = c_int::try_from(pieces.len()).unwrap_or_default();
        let begin = chain.pieces.len();
        chain.pieces.extend_from_slice(pieces);
        let range = begin..chain.pieces.len();
        chain.of_requests.push((range, signal));
        chain.requests.push(request);
    }

    /// Posts what was built: one call of the driver.
    fn post_chain(&mut self, mut chain: Chain) -> io::Result<()> {
        if chain.requests.is_empty() {
            return Ok(());
        }
        let last = chain.requests.len() - 1;
        for (number, request) in chain.requests.iter_mut().enumerate() {
            let (pieces, needed) = &chain.of_requests[number];
            // The last one too: somebody waits for what is in front of it, and nothing may follow for long.
            if self.sends.signal(*needed || number == last) {
                request.send_flags |= IBV_SEND_SIGNALED;
            }
            request.sg_list = chain.pieces[pieces.clone()].as_mut_ptr();
        }
        let Some(hardware) = self.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // SAFETY: What the requests refer to is in the entries of `sends`, in `reads` or in `exposed`. It stays there
        // until its completion, or until the queue pair is destroyed, and the memory of Reads is not looked at. The
        // pieces are in the chain.
        unsafe { hardware.post_sends(&mut chain.requests)? };
        count(&mut self.io.work, &chain.requests);
        for handle in chain.bound {
            let exposed = self.exposed.get_mut(&handle.0);
            if let Some(window) = exposed.and_then(|exposed| exposed.window.as_mut()) {
                window.window.set_key(handle.0);
            }
        }
        Ok(())
    }

    /// Finds or makes registered memory with these bytes: the data of a buffer and what is behind it. `whole` asks for
    /// one piece. Gives flags for the work request too.
    fn gather(
        &mut self,
        mut head: Option<Buffer>,
        rest: Gather,
        whole: bool,
    ) -> io::Result<(u32, Gathered)> {
        let most = self.pieces_of_a_request;
        let pool = self.pool.clone();
        let one_request = head.is_some();
        let Some(hardware) = self.hardware() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let length = head.as_ref().map_or(0, |head| head.len()) + gather_len(&rest);
        if length > 0 && length <= hardware.inline as usize {
            let (copied, gathered) = inline(head, rest, &pool);
            self.io.bytes_copied += copied as u64;
            return Ok((IBV_SEND_INLINE, gathered));
        }
        let used = usize::from(head.as_ref().is_some_and(|head| !head.is_empty()))
            + rest.iter().filter(|piece| !piece.is_empty()).count();
        let mut pieces = SmallVec::new();
        let mut held = Held::default();
        let (mut made, mut bytes_copied) = (0, 0);
        let domain = &hardware.adapter.domain;
        let copy_all = whole || (one_request && used > most);
        if copy_all {
            let mut copy = pool.take(length);
            bytes_copied += length;
            copy.extend_from_slice(head.as_deref().unwrap_or_default());
            rest.iter().for_each(|piece| copy.extend_from_slice(piece));
            // SAFETY: The copy goes to `held` with its region, which is dropped first.
            if let Some(region) = unsafe { domain.region_of(&mut copy, &mut made)? } {
                pieces.push(piece(&copy, region.local_key()));
                held.regions.push(region);
            }
            held.buffers.push(copy);
        } else {
            if let Some(head) = head.as_mut().filter(|head| !head.is_empty())
                // SAFETY: The buffer goes to `held` with its region, which is dropped first.
                && let Some(region) = unsafe { domain.region_of(head, &mut made)? }
            {
                pieces.push(piece(head, region.local_key()));
                held.regions.push(region);
            }
            let mut copied = 0;
            let mut places: SmallVec<[Place; 4]> = SmallVec::new();
            for part in rest.iter().filter(|part| !part.is_empty()) {
                places.push(match domain.find(part) {
                    Some(region) => Place::At(region),
                    None if part.len() <= COPY => Place::Copied,
                    None => {
                        made += 1;
                        // SAFETY: The bytes are held by `held` until the device has read them, behind the region,
                        // which gives nobody the right to write.
                        let region =
                            unsafe { domain.register(part.as_ptr().cast_mut(), part.len(), 0) };
                        region.map_or(Place::Copied, |region| Place::At(Arc::new(region)))
                    }
                });
                if let Some(Place::Copied) = places.last() {
                    copied += part.len();
                }
            }
            let mut copy = pool.take(copied);
            bytes_copied += copied;
            let key = match copied {
                0 => None,
                // SAFETY: The copy goes to `held` with its region, which is dropped first.
                _ => unsafe { domain.region_of(&mut copy, &mut made)? },
            };
            for (part, place) in rest.iter().filter(|part| !part.is_empty()).zip(places) {
                match place {
                    Place::At(region) => {
                        pieces.push(piece(part, region.local_key()));
                        held.regions.push(region);
                    }
                    Place::Copied => {
                        // There is room: the sum of these pieces was taken.
                        let begin = copy.len();
                        copy.extend_from_slice(part);
                        let key = key.as_ref().map_or(0, |region| region.local_key());
                        pieces.push(piece(&copy[begin..], key));
                    }
                }
            }
            held.regions.extend(key);
            held.buffers.push(copy);
        }
        self.io.work.registrations += made;
        self.io.bytes_copied += bytes_copied as u64;
        held.buffers.extend(head);
        held.pieces = rest;
        Ok((0, (pieces, held)))
    }
}

/// Bytes that the device copies into the work request: one piece, with how many bytes were copied for that. irdma of
/// rdma-core 32 to 43 sends the first of several pieces only, and reports no error.
fn inline(head: Option<Buffer>, rest: Gather, pool: &Pool) -> (usize, Gathered) {
    let mut pieces = SmallVec::new();
    let mut held = Held::default();
    let mut parts = rest.iter().filter(|part| !part.is_empty());
    let only = match &head {
        Some(head) if !head.is_empty() => None,
        Some(_) | None => parts.next().filter(|_| parts.next().is_none()),
    };
    let mut copied = 0;
    if let Some(part) = only {
        pieces.push(piece(part, 0));
        held.pieces = rest;
    } else {
        // Behind the head, which has room as a rule.
        let mut all = head.unwrap_or_else(|| pool.take(gather_len(&rest)));
        for part in &rest {
            all.extend_from_slice(part);
            copied += part.len();
        }
        pieces.push(piece(&all, 0));
        held.buffers.push(all);
    }
    (copied, (pieces, held))
}

/// Place of a piece, as the device finds it.
enum Place {
    /// In this region.
    At(Arc<Region>),
    /// In the copy of small pieces.
    Copied,
}

/// Rights of the peer.
pub(crate) fn remote_access(access: Access) -> u32 {
    match access {
        Access::Read => IBV_ACCESS_REMOTE_READ,
        Access::Write => IBV_ACCESS_REMOTE_WRITE,
    }
}

fn piece(bytes: &[u8], lkey: u32) -> ibv_sge {
    ibv_sge {
        addr: bytes.as_ptr() as u64,
        // No message is longer.
        length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        lkey,
    }
}

/// Counts a chain of work requests that the device was given.
fn count(work: &mut WorkCounters, chain: &[ibv_send_wr]) {
    work.doorbells += 1;
    for request in chain {
        work.count(match request.opcode {
            IBV_WR_RDMA_WRITE => WorkKind::Write,
            IBV_WR_RDMA_READ => WorkKind::Read,
            IBV_WR_BIND_MW => WorkKind::Bind,
            IBV_WR_LOCAL_INV => WorkKind::Invalidate,
            _ => WorkKind::Send,
        });
        if request.send_flags & IBV_SEND_INLINE != 0 {
            work.inline_data += 1;
        }
    }
}

/// The stretches of a segment that a Read asks for one by one: the whole segment, or its two sides of the end of a page.
///
/// siw, which the peer may be, sends wrong bytes in a short Read Response whose source crosses the end of a page (seen with
/// Linux 6.1 and 6.12), and reports no error. Where its pages are larger, this only makes a Read of two.
fn requests_for(segment: Segment, iwarp: bool) -> impl Iterator<Item = Segment> {
    let to_end = u32::try_from(SIW_PAGE - segment.offset % SIW_PAGE).unwrap_or(u32::MAX);
    let divided = iwarp && segment.length <= SIW_COPIED_RESPONSE;
    let first = if divided {
        to_end.min(segment.length)
    } else {
        segment.length
    };
    let head = Segment {
        length: first,
        ..segment
    };
    let tail = (first < segment.length).then(|| Segment {
        length: segment.length - first,
        // What passes the end of the numbers is refused by the peer, as any other wrong address.
        offset: segment.offset.wrapping_add(u64::from(first)),
        ..segment
    });
    std::iter::once(head).chain(tail)
}

fn request(opcode: c_int) -> ibv_send_wr {
    ibv_send_wr {
        opcode,
        ..ibv_send_wr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_reads_over_iwarp_stop_at_the_end_of_a_page() {
        let of = |offset, length, iwarp| {
            let handle = Handle(7);
            let segment = Segment {
                handle,
                length,
                offset,
            };
            let requests = requests_for(segment, iwarp);
            requests
                .map(|part| (part.offset, part.length))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(4090, 32, true), [(4090, 6), (4096, 26)]);
        assert_eq!(of(4090, 6, true), [(4090, 6)]);
        assert_eq!(of(4096, 32, true), [(4096, 32)]);
        assert_eq!(of(4090, 33, true), [(4090, 33)]);
        assert_eq!(of(4090, 32, false), [(4090, 32)]);
        assert_eq!(of(u64::MAX, 2, true), [(u64::MAX, 1), (0, 1)]);
    }
}
