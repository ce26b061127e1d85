//! COMPOUND: operations in order, up to the first that fails (RFC 8881 §16.2), within a request of a session (RFC 8881 §2.10.6).
//!
//! All that a COMPOUND has between two operations is in [`Running`]. An operation gets it with its arguments, and either adds its result,
//! or returns work that may wait, with what is to be done with the outcome ([`Step`]). The first such work makes the COMPOUND a job
//! ([`Suspended`]); until then nothing is allocated but the memory of the reply.
//!
//! A request keeps its slot until its reply is there, and its reply is kept for a retry if the client wants it kept. Work that is dropped
//! before it ran, as its connection has ended, counts as answered `NFS4ERR_DELAY`: the client that comes back with a retry gets that reply,
//! and sends the request anew.

use super::Nfs4;
use super::counting::{self, Counted};
use super::current::Object;
use super::special_io::SpecialIo;
use super::state::{Principal, connection_key};
use crate::client_options::denial;
use crate::exports::List;
use crate::fs::{Attributes, Outcome};
use crate::in_flight::Counted as InFlight;
use arc_swap::Guard;
use nfs_proto::Wire;
use nfs_proto::v4::session::SequenceArgs;
use nfs_proto::v4::{
    ClientId, CompoundArgs, CompoundRes, Operation, ReplyWriter, ResOp, SessionId, SlotId, StateId,
    Status, Tag,
};
use nfs4_state::{RequestDigest, SequenceCall, Sequenced};
use oncrpc::xdr::{Payload, Place, Reader, Writer};
use oncrpc::{Answer, Call, Caller, Credential, Reply, ReplyBound, Respond};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Bytes of memory for a reply, to begin with: enough for all but directories, access control lists and the like.
const REPLY: usize = 1024;

/// Room that has to be left for the result of an operation that cannot be undone, before it is executed.
const RESULT: usize = 512;

/// Room that is left while operations follow: the result of one that fails.
const FAILURE: usize = 8;

/// Bytes of the request that its digest is made of: with its length and its caller they tell requests of a slot apart (RFC 8881
/// §2.10.6.1.3.1). Data of WRITE behind them is not looked at.
const DIGESTED: usize = 512;

/// A COMPOUND between two operations.
pub(super) struct Running {
    /// The exports as they were when the COMPOUND began.
    pub(super) list: Guard<Arc<List>>,
    pub(super) caller: Caller,
    pub(super) cred: Credential,
    pub(super) minor: u32,
    /// The operation in execution.
    operation: Operation,
    pub(super) current: Option<Object>,
    pub(super) saved: Option<Object>,
    /// The current state id (RFC 8881 §16.2.3.1.2).
    pub(super) state: Option<StateId>,
    pub(super) saved_state: Option<StateId>,
    /// The request of a session, whose slot is in use.
    request: Option<nfs4_state::Request>,
    reply: ReplyWriter,
    /// Offset of the results in the reply message.
    results_at: usize,
    /// The most bytes that the reply may have in the session, without those results that have chunks.
    limit: usize,
    /// Sizes of the results so far that are eligible for a chunk, in order.
    eligible: SmallVec<[usize; 1]>,
    /// Operations of the COMPOUND that are left.
    pub(super) left: usize,
    /// Reads and writes of the operation in execution, where they are with special state ids.
    pub(super) special_io: Vec<SpecialIo>,
    /// Attributes of the current object as an operation that only looks has seen them, with the number of operations that were left
    /// then.
    seen: Option<(Attributes, usize)>,
    /// Bytes of file data that the operation in execution has moved, and its latency, if it is measured.
    pub(super) counted: Counted,
}

/// Progress of an operation.
pub(super) enum Step {
    /// Its result is in the reply.
    Done,
    /// It goes on with the outcome of this work.
    Later(Outcome<Then>),
}

/// The rest of an operation whose work has an outcome.
pub(super) type Then = Box<dyn FnOnce(&Nfs4, &mut Running) -> Ran + Send>;

/// Progress of an operation, or the status with which it fails.
pub(super) type Ran = Result<Step, Status>;

/// Goes on with an operation: now if the outcome is there, else when it is.
pub(super) fn after<T: Send + 'static>(
    nfs: &Nfs4,
    run: &mut Running,
    outcome: Outcome<T>,
    then: impl FnOnce(&Nfs4, &mut Running, T) -> Ran + Send + 'static,
) -> Ran {
    match outcome {
        Outcome::Ready(value) => then(nfs, run, value),
        later => Ok(Step::Later(later.map(move |value| {
            Box::new(move |nfs: &Nfs4, run: &mut Running| then(nfs, run, value)) as Then
        }))),
    }
}

impl Running {
    /// Adds the result of the operation.
    pub(super) fn push(&mut self, result: ResOp<'_>) -> Ran {
        self.reply.push(result);
        Ok(Step::Done)
    }

    /// Adds a result whose structure `write` writes.
    pub(super) fn push_with(
        &mut self,
        write: impl FnOnce(&mut Writer) -> Result<(), Status>,
    ) -> Ran {
        self.reply.push_with(self.operation, write);
        Ok(Step::Done)
    }

    /// Adds the result of the operation, which has succeeded, with this structure or none.
    #[inline]
    pub(super) fn push_ok<'a>(&mut self, result: impl Wire<'a>) -> Ran {
        self.push_with(|w| {
            result.hand_over(w);
            Ok(())
        })
    }

    /// Adds the result of the operation, which has succeeded, with an item of this size that is eligible for a chunk.
    pub(super) fn push_eligible<'a>(&mut self, len: usize, result: impl Wire<'a>) -> Ran {
        self.eligible.push(len);
        self.push_ok(result)
    }

    /// Fails the operation.
    fn fail(&mut self, status: Status) {
        let status = match (status, self.operation) {
            // RFC 8881 §15.2: for these a link is no directory, like anything else.
            (
                Status::Symlink,
                Operation::Create
                | Operation::ReadDir
                | Operation::Remove
                | Operation::Rename
                | Operation::SecInfo,
            ) => Status::NotDirectory,
            // RFC 8881 §15.2: these have no other status for a client that has ended meanwhile.
            (Status::StaleClientId, Operation::Lock | Operation::Open) => Status::Expired,
            (status, _) => status,
        };
        self.reply.push(ResOp::failed(self.operation, status));
    }

    /// Returns the client, which every operation in a session has.
    pub(super) fn client(&self) -> Result<ClientId, Status> {
        let request = self.request.as_ref();
        request
            .map(nfs4_state::Request::client)
            .ok_or(Status::OperationNotInSession)
    }

    /// Returns the request of a session in which this is.
    pub(super) fn request(&self) -> Option<&nfs4_state::Request> {
        self.request.as_ref()
    }

    /// Notes the attributes of the current object for the next operation.
    pub(super) fn note_seen(&mut self, attributes: Attributes) {
        self.seen = Some((attributes, self.left));
    }

    /// Returns the attributes of the current object, if the operation before this one has seen them.
    pub(super) fn seen(&self) -> Option<Attributes> {
        let (attributes, left) = self.seen?;
        (left == self.left + 1).then_some(attributes)
    }

    pub(super) fn principal(&self) -> Principal {
        Principal::of(&self.cred)
    }

    /// Enters a session.
    fn enter(&mut self, request: nfs4_state::Request) {
        let fore = request.fore();
        let limit = match request.cache_this() {
            true => fore.max_response_cached.min(fore.max_response),
            false => fore.max_response,
        };
        self.limit = limit as usize;
        self.request = Some(request);
    }

    /// Returns the status for a reply that is too large (RFC 8881 §2.10.6.4).
    fn too_big(&self) -> Status {
        let cached = self.request.as_ref().is_some_and(|request| {
            let fore = request.fore();
            request.cache_this() && fore.max_response_cached < fore.max_response
        });
        match cached {
            true => Status::ReplyTooBigToCache,
            false => Status::ReplyTooBig,
        }
    }

    /// Checks that a result with `fixed` bytes, and `data` of an eligible item, can be returned.
    ///
    /// # Errors
    ///
    /// `ReplyTooBig`, `ReplyTooBigToCache`.
    #[inline]
    pub(super) fn check_room(&self, fixed: usize, data: Option<usize>) -> Result<(), Status> {
        let len = self.len() + fixed;
        let message = self.caller.reply_room.message();
        match data.is_none() && self.eligible.is_empty() && len <= self.limit.min(message) {
            true => Ok(()),
            false => self.check_items(len, data),
        }
    }

    /// Checks that a reply of `len` bytes, with its eligible items so far, and `data` of another one can be returned.
    fn check_items(&self, len: usize, data: Option<usize>) -> Result<(), Status> {
        let padded = data.map_or(0, oncrpc::xdr::padded);
        if len + padded > self.limit {
            return Err(self.too_big());
        }
        let placed: usize = self.eligible.iter().copied().map(oncrpc::xdr::padded).sum();
        let mut results = self.eligible.clone();
        results.extend(data);
        let bound = ReplyBound {
            fixed: len - placed,
            results,
        };
        match self.caller.reply_room.carries(&bound) {
            true => Ok(()),
            false => Err(Status::ReplyTooBig),
        }
    }

    /// Returns the bytes of the reply so far, with those of a failure of what follows.
    #[inline]
    fn len(&self) -> usize {
        let failure = match self.left {
            0 => 0,
            _ => FAILURE,
        };
        self.results_at + self.reply.stream_len() + failure
    }

    /// Returns how many bytes of a result can be returned that is no eligible item.
    pub(super) fn room(&self) -> usize {
        let placed: usize = self.eligible.iter().copied().map(oncrpc::xdr::padded).sum();
        let len = self.len();
        let session = self.limit.saturating_sub(len);
        let message = self.caller.reply_room.message();
        session.min(message.saturating_sub(len - placed))
    }

    /// Returns how many bytes of an eligible item can be returned beside `fixed` other bytes, up to `wanted`.
    pub(super) fn room_for_item(&self, fixed: usize, wanted: usize) -> usize {
        let len = self.len() + fixed;
        let most = wanted.min(self.limit.saturating_sub(len));
        if self.check_room(fixed, Some(most)).is_ok() {
            return most;
        }
        // Without a chunk of this size the data is part of the message.
        let inline = self.room().saturating_sub(fixed);
        most.min(inline / 4 * 4)
    }
}

/// A COMPOUND with its call.
struct Compound {
    nfs: Nfs4,
    call: Call,
    place: Place,
    run: Running,
    _place: InFlight,
}

/// A COMPOUND that waits, or is executed by a thread that may wait. Dropped, it is answered with a failure that the client can
/// get by a retry.
struct Suspended(Option<Box<Compound>>);

impl Nfs4 {
    pub(super) fn compound(&self, mut call: Call) -> Answer {
        if let Some(stat) = denial(&call) {
            return Answer::Now(call.denied(stat));
        }
        if self.users.settle(&mut call) {
            return self.begin(call);
        }
        let Some(counted) = self.inner.in_flight.enter(&call.caller) else {
            return Answer::Now(self.refuse(&call, Status::Delay));
        };
        let this = self.clone();
        Answer::Deferred(Box::new(move |respond| {
            if !this.users.look_up(&mut call) {
                return respond.with(this.refuse(&call, Status::Delay));
            }
            // The call may need a place for a job.
            drop(counted);
            pass_on(this.begin(call), respond);
        }))
    }

    /// Answers a COMPOUND that is not executed: its first operation fails.
    fn refuse(&self, call: &Call, status: Status) -> Reply {
        let mut args = match CompoundArgs::parse(call.args()) {
            Ok(args) => args,
            Err(_) => return self.empty(call, Tag::default(), Err(status)),
        };
        let mut reply = ReplyWriter::new(self.header(call), args.tag, Err(status));
        match args.next_operation() {
            Some(Ok(operation)) => reply.push(ResOp::failed(operation.number(), status)),
            Some(Err(bad)) => reply.push(bad.result()),
            None => {}
        }
        Reply::Message(reply.finish().finish())
    }

    fn header(&self, call: &Call) -> Writer {
        call.success(self.inner.pool.take(REPLY))
    }

    /// Answers without results.
    fn empty(&self, call: &Call, tag: Tag<'_>, status: Result<(), Status>) -> Reply {
        let reply = ReplyWriter::new(self.header(call), tag, status);
        Reply::Message(reply.finish().finish())
    }

    /// Executes a COMPOUND whose caller's groups are known.
    fn begin(&self, mut call: Call) -> Answer {
        let cred = std::mem::replace(&mut call.cred, Credential::None);
        let mut args = match CompoundArgs::parse(call.args()) {
            Ok(args) => args,
            Err(error) => return Answer::Now(call.unreadable(error)),
        };
        let (tag, minor) = (args.tag, args.minor_version);
        if !(1..=2).contains(&minor) {
            let status = Err(Status::MinorVersionMismatch);
            return Answer::Now(self.empty(&call, tag, status));
        }
        let left = args.operations_left();
        if left == 0 {
            return Answer::Now(self.empty(&call, tag, Ok(())));
        }
        let list = self.inner.exports.current();
        let writer = self.header(&call);
        let results_at = writer.len();
        let reply = ReplyWriter::new(writer, tag, Ok(()));
        let mut run = Running {
            list,
            caller: call.caller,
            cred,
            minor,
            operation: Operation::Illegal,
            current: None,
            saved: None,
            state: None,
            saved_state: None,
            request: None,
            results_at,
            reply,
            limit: usize::MAX,
            eligible: SmallVec::new(),
            left,
            special_io: Vec::new(),
            seen: None,
            counted: Default::default(),
        };
        match self.enter_session(&call, &mut args, &mut run) {
            // If it has failed, nothing of it is executed.
            Entered::GoesOn => {}
            Entered::Replays(body) => {
                return Answer::message(replayed(self.header(&call), &body));
            }
            Entered::Waits(session, slot) => {
                call.cred = run.cred;
                let (this, state) = (self.clone(), self.inner.state.clone());
                return Answer::Deferred(Box::new(move |respond| {
                    let again = move || pass_on(this.begin(call), respond);
                    state.when_finished(session, slot, Box::new(again));
                }));
            }
        }
        // Executes the operations up to the end or the first that has to wait. A request that never ended would keep its slot, and its
        // client with all that it has.
        let driven = catch_unwind(AssertUnwindSafe(|| self.drive(&mut args, &mut run)));
        let outcome = match driven {
            Ok(outcome) => outcome,
            Err(panic) => {
                self.give_up(run, Status::ServerFault);
                resume_unwind(panic)
            }
        };
        if let Some(outcome) = outcome {
            if let Some(counted) = self.inner.in_flight.enter(&run.caller) {
                let suspended = Suspended(Some(Box::new(Compound {
                    nfs: self.clone(),
                    place: args.place(),
                    call,
                    run,
                    _place: counted,
                })));
                return Answer::Deferred(Box::new(move |respond| {
                    suspended.go_on(outcome, respond)
                }));
            }
            run.fail(Status::Delay);
        }
        let Running {
            reply,
            request,
            results_at,
            ..
        } = run;
        Answer::Now(self.complete(reply, request, results_at))
    }

    /// Executes a SEQUENCE at the beginning. Where there is none, checks that the first operation can be outside a session, and leaves it
    /// to be executed.
    fn enter_session(
        &self,
        call: &Call,
        args: &mut CompoundArgs<'_>,
        run: &mut Running,
    ) -> Entered {
        let from = args.clone();
        let first = match args.next_number() {
            Some(Ok(first)) => first,
            Some(Err(bad)) => {
                run.reply.push(bad.result());
                return Entered::GoesOn;
            }
            None => return Entered::GoesOn,
        };
        run.operation = first;
        let status = match first {
            Operation::Sequence => match args.arguments() {
                Ok(sequence) => return self.sequence(call, args, run, &sequence),
                Err(_) => Status::BadXdr,
            },
            // RFC 8881 §2.10.2.1: these may be outside a session, and then are alone in their COMPOUND.
            Operation::ExchangeId
            | Operation::CreateSession
            | Operation::BindConnToSession
            | Operation::DestroySession
            | Operation::DestroyClientId
                if run.left == 1 =>
            {
                *args = from;
                return Entered::GoesOn;
            }
            Operation::ExchangeId
            | Operation::CreateSession
            | Operation::BindConnToSession
            | Operation::DestroySession
            | Operation::DestroyClientId => Status::NotOnlyOperation,
            _ => Status::OperationNotInSession,
        };
        run.fail(status);
        Entered::GoesOn
    }

    /// Executes operations until one has to wait; `None` at the end.
    fn drive(&self, args: &mut CompoundArgs<'_>, run: &mut Running) -> Option<Outcome<Then>> {
        while run.reply.status().is_ok() {
            let operation = match args.next_number()? {
                Ok(operation) => operation,
                Err(bad) => {
                    run.reply.push(bad.result());
                    return None;
                }
            };
            run.left = args.operations_left();
            run.operation = operation;
            run.counted = Counted::begin();
            // What only reads is measured when it is there.
            let has_room = match changes_something(operation) {
                true => run.check_room(RESULT, None),
                false => Ok(()),
            };
            let ran = has_room.and_then(|()| self.operate(run, operation, args));
            if let Some(outcome) = settle(self, run, ran) {
                return Some(outcome);
            }
        }
        None
    }

    /// Counts an operation whose result is there.
    fn count(&self, operation: Operation, run: &mut Running) {
        let counted = std::mem::take(&mut run.counted);
        let inner = &self.inner;
        let of_export = counting::count(&inner.metrics, operation, run.reply.status(), counted);
        if let (Some((class, tally)), Some(Object::File(at))) = (of_export, run.current) {
            let slot = run.export(&at).slot();
            inner.exports.counters().count_as(slot, class, tally);
        }
    }

    /// Ends a COMPOUND: its slot is free again, and its reply kept if that was wanted.
    fn complete(
        &self,
        reply: ReplyWriter,
        request: Option<nfs4_state::Request>,
        results_at: usize,
    ) -> Reply {
        let message = reply.finish().finish();
        if let Some(request) = request {
            let kept = request.cache_this().then(|| body(&message, results_at));
            self.inner.state.finish(request, kept);
        }
        Reply::Message(message)
    }

    /// Ends a COMPOUND that is not executed to its end, with a last operation that failed so.
    fn give_up(&self, mut run: Running, status: Status) {
        run.fail(status);
        let message = run.reply.finish().finish();
        if let Some(request) = run.request {
            // Kept in any case: the client is not to believe that what was not executed was.
            let kept = body(&message, run.results_at);
            self.inner.state.finish(request, Some(kept));
        }
    }

    fn sequence(
        &self,
        call: &Call,
        args: &mut CompoundArgs<'_>,
        run: &mut Running,
        sequence: &SequenceArgs,
    ) -> Entered {
        let size = call.size();
        let call = SequenceCall {
            args: sequence,
            connection: connection_key(call.caller.connection),
            digest: digest(call, &run.cred, size),
            operations: u32::try_from(run.left).unwrap_or(u32::MAX),
            size: u32::try_from(size).unwrap_or(u32::MAX),
        };
        let sequenced = (self.inner.state).with(|all| all.server.sequence(all.now, &call));
        match sequenced {
            Ok(Sequenced::New(request)) => {
                let result = *request.result();
                run.enter(request);
                run.reply.push_with(Operation::Sequence, |w| {
                    result.write(w);
                    Ok(())
                });
                run.left = args.operations_left();
                self.count(Operation::Sequence, run);
                Entered::GoesOn
            }
            Ok(Sequenced::Replay(body)) => Entered::Replays(body),
            Ok(Sequenced::Uncached(result)) => {
                run.reply.push(ResOp::Sequence(Ok(result)));
                // RFC 8881 §2.10.6.1.3.
                match args.next_number() {
                    Some(Ok(operation)) => {
                        let status = Status::RetryUncachedReply;
                        run.reply.push(ResOp::failed(operation, status));
                    }
                    Some(Err(bad)) => run.reply.push(bad.result()),
                    None => {}
                }
                Entered::GoesOn
            }
            Ok(Sequenced::InProgress) => Entered::Waits(sequence.session, sequence.slot),
            Err(status) => {
                run.fail(status);
                self.count(Operation::Sequence, run);
                Entered::GoesOn
            }
        }
    }
}

/// Outcome of the beginning of a COMPOUND.
enum Entered {
    /// The rest is to be executed, if the reply does not say why it is not.
    GoesOn,
    /// It was, with these results.
    Replays(bytes::Bytes),
    /// It is being executed, in this slot.
    Waits(SessionId, SlotId),
}

/// Notes how an operation went; returns the work for which it waits.
fn settle(nfs: &Nfs4, run: &mut Running, ran: Ran) -> Option<Outcome<Then>> {
    match ran {
        Ok(Step::Later(outcome)) => return Some(outcome),
        Ok(Step::Done) => {
            // A failure with an explanation, as of LOCK, may be too large as well.
            if let Err(status) = run.check_room(0, None) {
                let failed = ResOp::failed(run.operation, status);
                run.reply.replace_last(failed);
            }
        }
        Err(status) => run.fail(status),
    }
    run.special_io.clear();
    nfs.count(run.operation, run);
    None
}

impl Suspended {
    /// Goes on once the outcome is there.
    ///
    /// An event, such as a sync, is shared with others, of other addresses too, and its thread tells one after the other: nothing may
    /// wait there. So the thread of this job waits for the event, unless nothing is left but to pass the reply on.
    fn go_on(mut self, mut outcome: Outcome<Then>, respond: Respond) {
        loop {
            let then = match outcome {
                Outcome::Ready(then) => then,
                Outcome::Slow(job) => job(),
                Outcome::Deferred(job) if self.ends_with_the_event() => {
                    return job(Box::new(move |then| {
                        self.go_on(Outcome::Ready(then), respond);
                    }));
                }
                deferred @ Outcome::Deferred(_) => deferred.wait(),
            };
            match self.advance(then) {
                Some(next) => outcome = next,
                None => return respond.with(self.complete()),
            }
        }
    }

    /// Returns whether the operation in execution is the last one, and has nothing to do that could wait once its change is durable.
    fn ends_with_the_event(&self) -> bool {
        let run = self.0.as_ref().map(|compound| &compound.run);
        run.is_some_and(|run| {
            run.left == 0
                && matches!(
                    run.operation,
                    Operation::Commit
                        | Operation::Link
                        | Operation::ReclaimComplete
                        | Operation::Remove
                        | Operation::Rename
                        | Operation::Write
                )
        })
    }

    fn advance(&mut self, then: Then) -> Option<Outcome<Then>> {
        let Compound {
            nfs,
            call,
            place,
            run,
            ..
        } = &mut **self.0.as_mut().expect("it is not complete");
        let ran = then(nfs, run);
        if let Some(outcome) = settle(nfs, run, ran) {
            return Some(outcome);
        }
        let mut args = CompoundArgs::resume(call.args_at(*place), run.minor, run.left);
        let outcome = nfs.drive(&mut args, run);
        *place = args.place();
        outcome
    }

    fn complete(mut self) -> Reply {
        let Compound { nfs, run, .. } = *self.0.take().expect("it is not complete");
        nfs.complete(run.reply, run.request, run.results_at)
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if let Some(compound) = self.0.take() {
            let Compound { nfs, run, .. } = *compound;
            let status = match std::thread::panicking() {
                true => Status::ServerFault,
                false => Status::Delay,
            };
            nfs.give_up(run, status);
        }
    }
}

/// Returns the results of a reply message, from the status of the COMPOUND on, as they are kept for a retry.
fn body(message: &Payload, results_at: usize) -> bytes::Bytes {
    let mut kept = Vec::new();
    message.visit_stream(results_at, |piece| kept.extend_from_slice(piece));
    kept.into()
}

/// Writes results that were kept: data for which the retry has a chunk is an item again, whatever the first reply was sent with (RFC
/// 8267 §6.4).
fn replayed(mut header: Writer, body: &[u8]) -> Payload {
    let mut results = match CompoundRes::parse(Reader::new(body)) {
        Ok(results) if has_items(results.clone()) => results,
        _ => {
            header.fixed(body);
            return header.finish();
        }
    };
    let mut reply = ReplyWriter::new(header, results.tag, results.status);
    while let Some(Ok(result)) = results.next_result() {
        reply.push(result);
    }
    reply.finish().finish()
}

/// Returns whether all results can be read, and some of them are those of operations whose data may be eligible for a chunk.
fn has_items(mut results: CompoundRes<'_>) -> bool {
    let mut has_items = false;
    while let Some(result) = results.next_result() {
        match result {
            Ok(ResOp::Read(Ok(_)) | ResOp::ReadLink(Ok(_))) => has_items = true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    has_items
}

fn digest(call: &Call, cred: &Credential, size: usize) -> RequestDigest {
    let mut gathered = SmallVec::<[u8; DIGESTED]>::new();
    let bytes = match call.args_inline() {
        Some(args) => &args[..args.len().min(DIGESTED)],
        None => {
            call.visit_args(|piece| {
                let left = DIGESTED - gathered.len();
                gathered.extend_from_slice(&piece[..piece.len().min(left)]);
            });
            &gathered
        }
    };
    let caller = match cred {
        Credential::Sys(sys) => u64::from(sys.uid) + 1,
        Credential::None | Credential::Other { .. } => 0,
    };
    let seed = caller ^ (size as u64).rotate_left(32);
    RequestDigest(twox_hash::XxHash3_64::oneshot_with_seed(seed, bytes))
}

/// Whether an operation cannot be undone once it is executed, so that there has to be room for its result before.
fn changes_something(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::Access
            | Operation::GetAttr
            | Operation::GetFh
            | Operation::GetXattr
            | Operation::ListXattrs
            | Operation::Lookup
            | Operation::LookupP
            | Operation::LockT
            | Operation::NVerify
            | Operation::PutFh
            | Operation::PutPubFh
            | Operation::PutRootFh
            | Operation::Read
            | Operation::ReadDir
            | Operation::ReadLink
            | Operation::RestoreFh
            | Operation::SaveFh
            | Operation::SecInfo
            | Operation::SecInfoNoName
            | Operation::Seek
            | Operation::TestStateId
            | Operation::Verify
    )
}

/// Passes the answer to a call on, from a thread that may wait for it.
fn pass_on(answer: Answer, respond: Respond) {
    match answer {
        Answer::Now(reply) => respond.with(reply),
        Answer::Blocking(job) => respond.with(job()),
        Answer::Deferred(job) => job(respond),
        Answer::Later(_) => unreachable!("COMPOUND is answered at once or by a job"),
    }
}
