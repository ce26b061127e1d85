//! The NFS version 3 program (RFC 1813 §3).
//!
//! Each procedure decodes its arguments, opens the handles in them, calls the file system, and
//! encodes the result. A result that is available at once is returned on the connection's own task,
//! without a hop to another thread.

#![expect(
    clippy::result_large_err,
    reason = "results are written where they are made; a box would be an allocation per failure"
)]

mod acl;
mod convert;
mod data;
mod duplicate_requests;
mod entries;
mod jukebox;
mod listing;
mod objects;

pub use acl::NfsAcl3;
pub(crate) use convert::status;

use crate::client_options::denial;
use crate::export_metrics::{ExportStats, Slot, Tally};
use crate::exports::{Export, Exports, Target};
use crate::fs::{Error, Found, Identity, Outcome, Seen};
use crate::in_flight::InFlight;
use crate::metrics::{NfsMetrics, ProgramStats, Sample};
use crate::user_groups::UserGroups;
use buffer::Pool;
use duplicate_requests::DuplicateRequestCache;
use nfs_proto::results::Res;
use nfs_proto::{
    Attributes, Failed, FileHandle, NFS_PROGRAM, NFS_V3, Procedure, Status, WccData, Wire, args,
};
use oncrpc::xdr::Reader;
use oncrpc::{
    Answer, Call, Caller, ConnectionId, Connections, Program, Reply, ReplyBound, Respond,
};
use std::cell::Cell;
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::time::Instant;

pub use duplicate_requests::DuplicateRequestStats;

/// Largest READ in bytes (RFC 1813 §3.3.19, `rtmax`). A call for more gets this much.
pub const MAX_READ: u32 = 1 << 20;

/// Largest WRITE in bytes (RFC 1813 §3.3.19, `wtmax`). Of a larger one, this much is written.
pub const MAX_WRITE: u32 = 1 << 20;

/// Largest number of calls of all clients that wait for a thread or a disk: those of some hundred
/// busy clients. Further ones are answered with NFS3ERR_JUKEBOX.
const MAX_IN_FLIGHT: usize = 8192;

/// The NFS version 3 program.
#[derive(Clone)]
pub struct Nfs3 {
    exports: Exports,
    pool: Pool,
    duplicates: DuplicateRequestCache,
    in_flight: InFlight,
    users: UserGroups,
    metrics: NfsMetrics,
}

type PostOp = Option<Attributes>;

impl Nfs3 {
    /// Creates the program for these exports. Memory for directory listings comes from `pool`.
    pub fn new(exports: Exports, pool: Pool) -> Self {
        Self {
            exports,
            pool,
            duplicates: DuplicateRequestCache::new(),
            in_flight: InFlight::new(MAX_IN_FLIGHT),
            users: UserGroups::default(),
            metrics: NfsMetrics::of_nfs(),
        }
    }

    /// Returns the statistics of all calls.
    pub fn stats(&self) -> ProgramStats {
        self.metrics.stats()
    }

    /// Returns the statistics of each export. They are those of all programs for these exports.
    pub fn export_stats(&self) -> Vec<ExportStats> {
        self.exports.stats()
    }

    /// Returns the number of files and directories that the exported file systems keep open between
    /// calls.
    pub fn open_files(&self) -> usize {
        let exports = self.exports.all();
        let files = exports.exports.iter();
        files.map(|export| export.fs.open_files()).sum()
    }

    /// Returns the statistics of the duplicate request cache.
    pub fn duplicate_requests(&self) -> DuplicateRequestStats {
        self.duplicates.stats()
    }

    /// Sets the source of callers' groups.
    #[must_use]
    pub fn with_users(mut self, users: UserGroups) -> Self {
        self.users = users;
        self
    }

    /// Sets the registry of the open connections, with which the servers are configured too. By it
    /// the duplicate request cache knows which replies were received: otherwise it takes a call on
    /// another connection for a repetition as long as the first connection is open.
    #[must_use]
    pub fn with_connections(self, connections: Connections) -> Self {
        self.duplicates.know_connections(connections);
        self
    }

    /// Returns how many repeated calls on a connection were answered from the duplicate request
    /// cache. Known for the last few thousand connections that had any.
    pub fn duplicate_requests_on(&self, connection: ConnectionId) -> u64 {
        self.duplicates.hits_on(connection)
    }

    /// Opens a handle; returns the file. The operation is one of its export from now on.
    fn target(&self, call: &Operation<'_>, handle: &FileHandle) -> Result<Target, Status> {
        self.exports.open(handle, &call.caller, &call.export)
    }

    /// Opens a handle; returns the file and the identity of the caller.
    fn open(
        &self,
        call: &Operation<'_>,
        handle: &FileHandle,
    ) -> Result<(Target, Identity), Status> {
        let target = self.target(call, handle)?;
        let who = target.options.identity(&call.cred);
        Ok((target, who))
    }

    /// Opens a handle for a change, which fails on a read-only export.
    fn open_to_change(
        &self,
        call: &Operation<'_>,
        handle: &FileHandle,
    ) -> Result<(Target, Identity), Status> {
        let opened = self.open(call, handle)?;
        if opened.0.options.read_only {
            return Err(Status::ReadOnly);
        }
        Ok(opened)
    }

    fn place(&self, export: &Export) -> Place {
        Place {
            exports: self.exports.clone(),
            export: export.id(),
        }
    }
}

/// A call in execution.
struct Operation<'a> {
    call: &'a Call,
    /// Counters of the export that it uses, once a handle has told which.
    export: Cell<Option<Slot>>,
}

impl<'a> Operation<'a> {
    fn new(call: &'a Call) -> Self {
        Self {
            call,
            export: Cell::new(None),
        }
    }

    /// Returns the counters of the export that it uses; `None` if there was no handle of one.
    fn export(&self) -> Option<Slot> {
        self.export.get()
    }
}

impl Deref for Operation<'_> {
    type Target = Call;

    fn deref(&self) -> &Call {
        self.call
    }
}

/// Data for encoding attributes of an export's files in the reply.
#[derive(Clone)]
struct Place {
    exports: Exports,
    export: u32,
}

impl Place {
    fn handle(&self, found: &Found) -> FileHandle {
        self.exports.seal(self.export, found.file)
    }
}

/// Encodes a failure that was found before the file system was called.
fn refused<T: Send + 'static, F: Default + Send + 'static>(status: Status) -> Outcome<Res<T, F>> {
    Outcome::Ready(Err(status.into()))
}

/// Encodes the result of a read-only operation.
fn seen<T, U>(
    export: u32,
    seen: Seen<T>,
    then: impl FnOnce(PostOp, T) -> U,
) -> Result<U, Failed<PostOp>> {
    let attributes = seen
        .attributes
        .map(|found| convert::attributes(export, &found));
    match seen.result {
        Ok(value) => Ok(then(attributes, value)),
        Err(error) => Err(Failed::new(convert::status(error), attributes)),
    }
}

/// Encodes the result of a change.
fn changed<T, U>(
    wcc: WccData,
    result: Result<T, Error>,
    then: impl FnOnce(WccData, T) -> U,
) -> Result<U, Failed<WccData>> {
    match result {
        Ok(value) => Ok(then(wcc, value)),
        Err(error) => Err(Failed::new(convert::status(error), wcc)),
    }
}

/// Returns the failure of an operation that moves no file data.
fn tally<T, F>(results: &Res<T, F>) -> Tally {
    match results {
        Ok(_) => Tally::default(),
        Err(failed) => Tally::failed(failed.status),
    }
}

/// Writes the results into the memory of the call: they are small, except for directories and for
/// data, which is by reference.
fn write<'a, T: Wire<'a>>(call: &mut Call, results: T) -> Reply {
    let mut w = call.take_success();
    results.hand_over(&mut w);
    Reply::Message(w.finish())
}

impl Nfs3 {
    /// Counts an operation of an export.
    fn count(&self, export: Option<Slot>, call: &Call, tally: Tally) {
        if let Some(slot) = export {
            self.exports
                .counters()
                .count(slot, call.prog, call.proc, tally);
        }
    }

    /// Answers a call with its results, at once or from a job. If there is no place for the job, it
    /// is not run. The operation is counted for its export with what `tally` finds in the results.
    fn respond<T: Send + 'static>(
        &self,
        call: &mut Call,
        export: Option<Slot>,
        outcome: Outcome<T>,
        tally: fn(&T) -> Tally,
        then: impl FnOnce(&mut Call, T) -> Reply + Send + 'static,
    ) -> Answer {
        if let Outcome::Ready(results) = outcome {
            self.count(export, call, tally(&results));
            return Answer::Now(then(call, results));
        }
        let Some(counted) = self.in_flight.enter(&call.caller) else {
            self.count(export, call, Tally::failed(Status::Jukebox));
            return Answer::Now(jukebox::reply(call.take()));
        };
        let mut call = call.take();
        let (metrics, made) = (self.metrics.clone(), Instant::now());
        let exports = export.map(|slot| (slot, Arc::clone(self.exports.counters())));
        let reply = move |results| {
            let _counted = counted;
            let Call { prog, proc, .. } = call;
            if let Some((slot, counters)) = exports {
                counters.count(slot, prog, proc, tally(&results));
            }
            let reply = then(&mut call, results);
            // Another program may use the files of this program.
            if prog == NFS_PROGRAM {
                metrics.answered_by_job(proc, &reply, made);
            }
            reply
        };
        match outcome {
            Outcome::Ready(results) => Answer::Now(reply(results)),
            Outcome::Slow(job) => Answer::Blocking(Box::new(move || reply(job()))),
            Outcome::Deferred(job) => Answer::Deferred(Box::new(move |respond| {
                job(Box::new(move |results| respond.with(reply(results))));
            })),
        }
    }
}

/// Reads the arguments, runs the procedure and encodes the reply.
macro_rules! serve {
    ($self:ident, $call:ident, $args:ty, $procedure:ident) => {
        serve!($self, $call, $args, $procedure, write, tally)
    };
    ($self:ident, $call:ident, $args:ty, $procedure:ident, $reply:expr, $tally:expr) => {{
        let operation = Operation::new($call);
        let outcome = $call
            .decode(<$args>::parse)
            .map(|args| $self.$procedure(&operation, &args));
        let export = operation.export();
        match outcome {
            Ok(outcome) => $self.respond($call, export, outcome, $tally, $reply),
            Err(error) => Answer::Now($call.take().unreadable(error)),
        }
    }};
}

impl Program for Nfs3 {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFS_V3..=NFS_V3
    }

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        let procedure = Procedure::try_from(procedure.proc).ok()?;
        let mut bound = nfs_proto::reply_bound(procedure, args)?;
        // A READ returns at most this, whatever the request.
        match procedure {
            Procedure::Read => {
                for count in &mut bound.results {
                    *count = (*count).min(MAX_READ as usize);
                }
            }
            Procedure::ReadDir | Procedure::ReadDirPlus => {
                bound.fixed = bound.fixed.min(listing::MAX_REPLY);
            }
            _ => {}
        }
        Some(bound)
    }

    fn closed_in_order(&self, caller: &Caller) {
        self.duplicates.close(caller);
    }

    fn call(&self, mut call: Call) -> Answer {
        self.call_in_place(&mut call)
    }

    fn call_in_place(&self, call: &mut Call) -> Answer {
        let Ok(procedure) = Procedure::try_from(call.proc) else {
            return Answer::Now(call.take().proc_unavail());
        };
        let sample = Sample::take();
        let answer = self.answer(procedure, call);
        if let Answer::Now(reply) = &answer {
            self.metrics.answered(procedure as u32, reply, sample);
        }
        answer
    }
}

impl Nfs3 {
    /// Answers a call, which is not moved for it unless it has to wait.
    fn answer(&self, procedure: Procedure, call: &mut Call) -> Answer {
        if let Some(stat) = denial(call) {
            return Answer::Now(call.take().denied(stat));
        }
        if changes_when_repeated(procedure) {
            let execute = |mut call: Call| self.execute(procedure, &mut call);
            self.duplicates.once(call.take(), execute, || {
                let this = self.clone();
                Box::new(move |mut call: Call| this.execute(procedure, &mut call))
            })
        } else {
            self.execute(procedure, call)
        }
    }
}

/// Whether a second execution of a call could have another effect or result.
fn changes_when_repeated(procedure: Procedure) -> bool {
    match procedure {
        Procedure::SetAttr
        // An immediate repetition has no effect, but a late copy would undo later writes.
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Rename
        | Procedure::Link => true,
        Procedure::Null
        | Procedure::GetAttr
        | Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf
        | Procedure::Commit => false,
    }
}

impl Nfs3 {
    /// Executes a call once the groups of its caller are known.
    fn execute(&self, procedure: Procedure, call: &mut Call) -> Answer {
        if procedure == Procedure::Null || self.users.settle(call) {
            return self.execute_as_is(procedure, call);
        }
        let Some(counted) = self.in_flight.enter(&call.caller) else {
            return Answer::Now(jukebox::reply(call.take()));
        };
        let mut call = call.take();
        let this = self.clone();
        Answer::Deferred(Box::new(move |respond| {
            if !this.users.look_up(&mut call) {
                return respond.with(jukebox::reply(call));
            }
            // The call may need a place for a job.
            drop(counted);
            let made = Instant::now();
            let answer = this.execute_as_is(procedure, &mut call);
            if let Answer::Now(reply) = &answer {
                this.metrics.answered_by_job(procedure as u32, reply, made);
            }
            finish(answer, respond);
        }))
    }

    fn execute_as_is(&self, procedure: Procedure, call: &mut Call) -> Answer {
        match procedure {
            Procedure::Null => Answer::Now(match call.decode(args::Null::parse) {
                Ok(args::Null) => Reply::Message(call.take_success().finish()),
                Err(error) => call.take().unreadable(error),
            }),
            Procedure::GetAttr => serve!(self, call, args::GetAttr, get_attributes),
            Procedure::SetAttr => serve!(self, call, args::SetAttr, set_attributes),
            Procedure::Lookup => serve!(self, call, args::Lookup, lookup),
            Procedure::Access => serve!(self, call, args::CheckAccess, access),
            Procedure::ReadLink => {
                serve!(
                    self,
                    call,
                    args::ReadLink,
                    read_link,
                    data::write_link,
                    tally
                )
            }
            Procedure::Read => self.read(call),
            Procedure::Write => {
                serve!(self, call, args::Write, write, write, data::tally_write)
            }
            Procedure::Create => serve!(self, call, args::Create, create),
            Procedure::MkDir => serve!(self, call, args::MkDir, make_directory),
            Procedure::Symlink => serve!(self, call, args::Symlink, make_symlink),
            Procedure::MkNod => serve!(self, call, args::MkNod, make_node),
            Procedure::Remove => serve!(self, call, args::Remove, remove),
            Procedure::RmDir => serve!(self, call, args::RmDir, remove_directory),
            Procedure::Rename => serve!(self, call, args::Rename, rename),
            Procedure::Link => serve!(self, call, args::Link, link),
            Procedure::ReadDir => self.read_dir(call),
            Procedure::ReadDirPlus => self.read_dir_plus(call),
            Procedure::FsStat => serve!(self, call, args::FsStat, fs_stat),
            Procedure::FsInfo => serve!(self, call, args::FsInfo, fs_info),
            Procedure::PathConf => serve!(self, call, args::PathConf, path_conf),
            Procedure::Commit => serve!(self, call, args::Commit, commit),
        }
    }
}

/// Passes the reply of a procedure on, from a thread that may wait for it.
fn finish(answer: Answer, respond: Respond) {
    match answer {
        Answer::Now(reply) => respond.with(reply),
        Answer::Blocking(job) => respond.with(job()),
        Answer::Deferred(job) => job(respond),
        Answer::Later(_) => unreachable!("procedures answer at once or by a job"),
    }
}

#[cfg(test)]
mod tests;
