//! An NFS server over a file system in memory.

use buffer::{Buffer, Pool};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3, NfsAcl3, Squash};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Programs, Reply, Respond, Service};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Bytes that the file system holds, and those that are kept for reuse.
const CAPACITY: u32 = 1 << 20;

/// Its one export.
pub(crate) const EXPORT: &str = "/data";

pub(crate) struct Site {
    programs: Programs,
    caller: Caller,
}

impl Site {
    pub(crate) fn new() -> Self {
        let options = ExportOptions::default().with_squash(Squash::None);
        let key = HandleKey::random().expect("the system has random numbers");
        let exports = Exports::new(key)
            .with(EXPORT, Arc::new(MemFs::new(CAPACITY.into())), options)
            .expect("a good name");
        let nfs = Nfs3::new(exports.clone(), Pool::new(CAPACITY as usize));
        Self {
            programs: Programs::new()
                .with(NfsAcl3::new(&nfs))
                .with(nfs)
                .with(Mount3::new(exports)),
            caller: Caller::new(([127, 0, 0, 1], 700).into()),
        }
    }

    /// The same caller on another connection.
    pub(crate) fn reconnect(&mut self) {
        self.caller = Caller::new(([127, 0, 0, 1], 701).into());
    }

    pub(crate) fn answer(&self, call: Payload) -> Reply {
        match self.programs.call(call, &self.caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(job) => job(),
            Answer::Deferred(job) => Respond::wait(job).expect("nothing panics"),
            Answer::Later(reply) => {
                match pin!(reply).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(reply) => reply,
                    Poll::Pending => panic!("nothing is in flight that it could wait for"),
                }
            }
        }
    }
}

/// The whole stream of a message.
pub(crate) fn flat(message: &Payload) -> Buffer {
    let mut stream = Buffer::default();
    message.copy_stream_into(&mut stream);
    stream
}
