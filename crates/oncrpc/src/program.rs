//! RPC programs, and dispatch of calls to them.

use crate::ReplyBound;
use crate::auth::{AUTH_NONE, AuthStat, Credential};
use crate::message::{
    AcceptStatus, CallError, CallHeader, Procedure, RPC_VERSION, RejectStatus, ReplyHeader,
    ReplyStatus, write_success,
};
use crate::service::{Answer, Caller, ConnectionId, ReceivedCall, Reply, Service};
use crate::xdr::{Error, Payload, Place, Reader, Writer};
use buffer::Buffer;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Answers the calls of one RPC program.
pub trait Program: Send + Sync {
    /// Returns the program number.
    fn number(&self) -> u32;

    /// Returns the supported versions. Calls of other versions are answered PROG_MISMATCH.
    fn versions(&self) -> RangeInclusive<u32>;

    /// Answers one call, under the rules of [`Service::call`]: it must not wait.
    fn call(&self, call: Call) -> Answer;

    /// Answers one call where it is, because it is large. Without an implementation of its own, a program [takes](Call::take) it and
    /// passes it to [`call`](Self::call), which then must not come back here.
    fn call_in_place(&self, call: &mut Call) -> Answer {
        self.call(call.take())
    }

    /// Reports that a client has closed its connection in order, as
    /// [`Service::closed_in_order`] does.
    fn closed_in_order(&self, caller: &Caller) {
        let _ = caller;
    }

    /// Reports that a connection has ended, as [`Service::connection_ended`] does.
    fn connection_ended(&self, connection: ConnectionId) {
        let _ = connection;
    }

    /// Returns an upper bound for the reply to a call, under the rules of [`Service::reply_bound`].
    /// `args` is at the arguments, of which the end may be missing.
    fn reply_bound(&self, procedure: Procedure, args: &mut Reader<'_>) -> Option<ReplyBound> {
        let _ = (procedure, args);
        None
    }
}

/// A call whose header was parsed.
#[derive(Debug)]
pub struct Call {
    /// Transaction id.
    pub xid: u32,
    /// Program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
    /// The caller's credential.
    pub cred: Credential,
    /// Flavour of the verifier. The supported flavours do not use its body.
    pub verf: u32,
    /// The client that made the call, and its connection.
    pub caller: Caller,
    payload: Payload,
    args_at: usize,
}

impl Call {
    /// Reads the header of a call.
    ///
    /// # Errors
    ///
    /// The reply to send, if the message is not a valid call.
    #[allow(
        clippy::result_large_err,
        reason = "the error is a reply that moves on at once; boxing it would allocate per bad call"
    )]
    pub fn parse(payload: Payload, caller: &Caller) -> Result<Self, Reply> {
        let mut call = Self::unread(payload, caller);
        match call.read() {
            Ok(()) => Ok(call),
            Err(error) => Err(call.refuse(error)),
        }
    }

    /// A call whose header is still to be [read](Self::read).
    fn unread(payload: Payload, caller: &Caller) -> Self {
        Self {
            xid: 0,
            prog: 0,
            vers: 0,
            proc: 0,
            cred: Credential::None,
            verf: AUTH_NONE,
            caller: *caller,
            payload,
            args_at: 0,
        }
    }

    /// Reads the header where the call is, because it is large.
    fn read(&mut self) -> Result<(), CallError> {
        let mut r = Reader::from(&self.payload);
        let header = CallHeader::parse(&mut r)?;
        let xid = header.xid;
        let refused = |stat| CallError::Auth { xid, stat };
        self.cred.read(header.cred).map_err(refused)?;
        let claim = self.caller.may_claim(&self.cred, header.proc);
        claim.map_err(refused)?;
        self.xid = xid;
        self.prog = header.prog;
        self.vers = header.vers;
        self.proc = header.proc;
        self.verf = header.verf.flavour;
        self.args_at = r.offset();
        Ok(())
    }

    /// Returns the reply to a message that is not a valid call.
    fn refuse(&mut self, error: CallError) -> Reply {
        let (xid, status) = match error {
            CallError::NotACall => return Reply::Nothing,
            CallError::Garbage {
                error: Error::Ineligible,
                ..
            } => return Reply::Ineligible,
            CallError::Garbage { xid, .. } => {
                (xid, ReplyStatus::accepted(AcceptStatus::GarbageArgs))
            }
            CallError::RpcVersion { xid, .. } => (
                xid,
                ReplyStatus::Denied(RejectStatus::RpcMismatch {
                    low: RPC_VERSION,
                    high: RPC_VERSION,
                }),
            ),
            CallError::Auth { xid, stat } => {
                (xid, ReplyStatus::Denied(RejectStatus::AuthError(stat)))
            }
        };
        reply_in(&mut self.payload, xid, status)
    }

    /// The procedure that is called.
    pub fn procedure(&self) -> Procedure {
        Procedure {
            prog: self.prog,
            vers: self.vers,
            proc: self.proc,
        }
    }

    /// A reader at the arguments.
    pub fn args(&self) -> Reader<'_> {
        let mut r = Reader::from(&self.payload);
        r.skip(self.args_at)
            .expect("the header was read before, so that it is there");
        r
    }

    /// Returns the bytes of the whole message, by-reference items included.
    pub fn size(&self) -> usize {
        self.payload.stream_len()
    }

    /// A reader where another of this call was.
    pub fn args_at(&self, place: Place) -> Reader<'_> {
        Reader::at_place(&self.payload, place)
    }

    /// Returns the bytes of the arguments where none of them was received by reference.
    pub fn args_inline(&self) -> Option<&[u8]> {
        match self.payload.items() {
            [] => self.payload.head().get(self.args_at..),
            _ => None,
        }
    }

    /// Passes the bytes of the arguments to `visit`, piece by piece. They are the same whether data
    /// of the call was received inline or by reference.
    pub fn visit_args(&self, visit: impl FnMut(&[u8])) {
        self.payload.visit_stream(self.args_at, visit);
    }

    /// Parses the arguments, which must be the rest of the call.
    ///
    /// # Errors
    ///
    /// Those of `parse`; bytes or items it left over. [`unreadable`](Self::unreadable) makes the
    /// reply.
    pub fn decode<'a, T>(
        &'a self,
        parse: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut r = self.args();
        let args = parse(&mut r)?;
        r.finish()?;
        Ok(args)
    }

    /// Writes the header of a SUCCESS reply to `buffer` and returns the writer for its results.
    ///
    /// In front of it stays as much room as there is in front of the call, where the transport's header was: that of the reply
    /// takes its place, and the reply is not moved.
    pub fn success(&self, mut buffer: Buffer) -> Writer {
        let room = self.payload.start();
        if buffer.is_empty() && room < buffer.capacity() {
            buffer.set_len(room);
        }
        let mut w = Writer::new(buffer);
        write_success(&mut w, self.xid);
        w
    }

    /// Like [`success`](Self::success), but reuses the memory of the call. For results that are no
    /// larger than the call and borrow nothing from it.
    pub fn into_success(mut self) -> Writer {
        self.take_success()
    }

    /// Like [`into_success`](Self::into_success), for a call that is answered where it is, because it is large: its arguments are
    /// gone then.
    pub fn take_success(&mut self) -> Writer {
        let mut w = writer_in(&mut self.payload);
        write_success(&mut w, self.xid);
        w
    }

    /// Takes the call, to answer it elsewhere. What stays has neither arguments nor a credential.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self {
            cred: std::mem::take(&mut self.cred),
            payload: std::mem::take(&mut self.payload),
            ..*self
        }
    }

    /// A SUCCESS reply without results, as for the procedure NULL.
    pub fn void(self) -> Reply {
        Reply::Message(self.into_success().finish())
    }

    /// A PROC_UNAVAIL reply: the program has no such procedure.
    pub fn proc_unavail(self) -> Reply {
        self.accepted(AcceptStatus::ProcUnavail)
    }

    /// A SYSTEM_ERR reply: an internal error of the server.
    pub fn system_err(self) -> Reply {
        self.accepted(AcceptStatus::SystemErr)
    }

    /// The reply to arguments that could not be decoded: GARBAGE_ARGS, or what the transport has
    /// for by-reference items where none is eligible (RFC 8166 §6.1).
    pub fn unreadable(self, error: Error) -> Reply {
        match error {
            Error::Ineligible => Reply::Ineligible,
            Error::Short { .. }
            | Error::TooLong { .. }
            | Error::NotInEnum { .. }
            | Error::Padding
            | Error::NotText
            // RFC 8166 §4.5.2: chunks that do not match the stream are a matter of RPC.
            | Error::ItemLength { .. }
            | Error::NotReduced
            | Error::Trailing { .. } => self.accepted(AcceptStatus::GarbageArgs),
        }
    }

    /// An AUTH_ERROR reply: authentication failed, or its flavour is not supported.
    pub fn denied(mut self, stat: AuthStat) -> Reply {
        let status = ReplyStatus::Denied(RejectStatus::AuthError(stat));
        reply_in(&mut self.payload, self.xid, status)
    }

    fn accepted(mut self, status: AcceptStatus) -> Reply {
        reply_in(&mut self.payload, self.xid, ReplyStatus::accepted(status))
    }
}

/// The programs of a server. A [`Service`] that dispatches each call to its program, and answers
/// calls for unknown programs itself.
#[derive(Clone, Default)]
pub struct Programs {
    programs: Vec<Arc<dyn Program>>,
}

impl Programs {
    /// Creates a service without programs: every call is answered with PROG_UNAVAIL.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a program.
    #[must_use]
    pub fn with(mut self, program: impl Program + 'static) -> Self {
        self.programs.push(Arc::new(program));
        self
    }

    fn route(&self, call: &mut Call) -> Answer {
        let mut others: Option<(u32, u32)> = None;
        for program in &self.programs {
            if program.number() != call.prog {
                continue;
            }
            let versions = program.versions();
            if versions.contains(&call.vers) {
                return program.call_in_place(call);
            }
            let (low, high) = others.unwrap_or((u32::MAX, 0));
            others = Some((low.min(*versions.start()), high.max(*versions.end())));
        }
        Answer::Now(call.take().accepted(match others {
            Some((low, high)) => AcceptStatus::ProgMismatch { low, high },
            None => AcceptStatus::ProgUnavail,
        }))
    }
}

impl Service for Programs {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let mut call = Call::unread(call, caller);
        match call.read() {
            Ok(()) => self.route(&mut call),
            Err(error) => Answer::Now(call.refuse(error)),
        }
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        let mut r = Reader::new(call.bytes);
        let CallHeader {
            prog, vers, proc, ..
        } = CallHeader::parse(&mut r).ok()?;
        let program = self
            .programs
            .iter()
            .find(|program| program.number() == prog && program.versions().contains(&vers))?;
        program.reply_bound(Procedure { prog, vers, proc }, &mut r)
    }

    fn closed_in_order(&self, caller: &Caller) {
        for program in &self.programs {
            program.closed_in_order(caller);
        }
    }

    fn connection_ended(&self, connection: ConnectionId) {
        for program in &self.programs {
            program.connection_ended(connection);
        }
    }
}

fn reply_in(call: &mut Payload, xid: u32, status: ReplyStatus<'_>) -> Reply {
    let mut w = writer_in(call);
    ReplyHeader { xid, status }.write(&mut w);
    Reply::Message(w.finish())
}

/// Writes a reply into the memory of its call, without another buffer.
fn writer_in(call: &mut Payload) -> Writer {
    // The space before the call had the transport's header, and is kept for that of the reply.
    Writer::new(call.take_memory())
}

#[cfg(test)]
mod tests;
