//! Single calls of any program.

use crate::Fault;
use buffer::Pool;
use nfs_proto::{Arguments, NFS_PROGRAM, NFSACL_PROGRAM, Status, Wire};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Credential, EncodedCredential, Procedure, Transport, read_reply};
use std::marker::PhantomData;
use std::time::Duration;

/// Bytes for the stream of a call; all calls but those with unusual names fit.
const CALL_SIZE: usize = 4096;

/// Bytes of memory for calls that is kept for reuse.
const POOL_KEEP: usize = 1 << 20;

/// The first wait after `NFS3ERR_JUKEBOX`, doubled after each.
const JUKEBOX_FIRST: Duration = Duration::from_millis(100);

/// How often a call is made again because of `NFS3ERR_JUKEBOX`: for 51 seconds.
const JUKEBOX_RETRIES: u32 = 9;

/// RPC client over a transport, with a credential.
#[derive(Debug)]
pub struct Rpc<T> {
    transport: T,
    caller: EncodedCredential,
    pool: Pool,
}

/// A reply holds no arguments, but is of their type.
type Of<'a, A> = (&'a (), fn() -> A);

/// The reply to an executed call with arguments `A`, with its results not decoded yet.
#[derive(Debug)]
pub struct Reply<'a, A> {
    payload: Payload,
    /// Offset of the results.
    results_at: usize,
    of: PhantomData<Of<'a, A>>,
}

impl<T: Transport> Rpc<T> {
    /// Creates a client over this transport with this credential.
    pub fn new(transport: T, credential: Credential) -> Self {
        Self {
            transport,
            caller: EncodedCredential::new(&credential),
            pool: Pool::new(POOL_KEEP),
        }
    }

    /// The same calls over another transport.
    pub(crate) fn over<U>(&self, transport: U) -> Rpc<U> {
        Rpc {
            transport,
            caller: self.caller.clone(),
            pool: self.pool.clone(),
        }
    }

    /// Returns the transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Makes a call and waits for its reply. If the server answers jukebox (`NFS3ERR_JUKEBOX`),
    /// makes the call again as a new one (RFC 1813 §2.6).
    ///
    /// # Errors
    ///
    /// If there is no reply, or the call was not executed.
    pub async fn call<'a, A: Arguments<'a>>(&self, args: &A) -> Result<Reply<'a, A>, Fault> {
        let mut retries = 0;
        loop {
            let xid = self.transport.next_xid();
            let call = self.encode(xid, args);
            let payload = self.transport.call(call, args.reply_bound()).await?;
            let mut r = read_reply(&payload, xid)?;
            let results_at = r.offset();
            if retries == JUKEBOX_RETRIES || !is_jukebox::<A>(&mut r)? {
                return Ok(Reply {
                    payload,
                    results_at,
                    of: PhantomData,
                });
            }
            drop(payload);
            tokio::time::sleep(JUKEBOX_FIRST * (1 << retries)).await;
            retries += 1;
        }
    }

    fn encode<'a, A: Arguments<'a>>(&self, xid: u32, args: &A) -> Payload {
        let target = Procedure {
            prog: A::PROGRAM,
            vers: A::VERSION,
            proc: A::PROCEDURE,
        };
        let mut w = Writer::new(self.pool.take(CALL_SIZE));
        self.caller.write_call(&mut w, xid, target);
        args.write(&mut w);
        w.finish()
    }
}

impl<'a, A: Arguments<'a>> Reply<'a, A> {
    /// Decodes the results, which borrow from the reply.
    ///
    /// # Errors
    ///
    /// If the results cannot be decoded, or bytes follow them.
    pub fn results(&self) -> Result<A::Reply<'_>, Fault> {
        let mut r = self.reader();
        let results = A::Reply::parse(&mut r)?;
        r.finish()?;
        Ok(results)
    }

    /// Returns the message.
    pub fn into_payload(self) -> Payload {
        self.payload
    }

    /// A reader at the results.
    fn reader(&self) -> Reader<'_> {
        let mut r = Reader::from(&self.payload);
        r.skip(self.results_at)
            .expect("the header was read before, so that it is there");
        r
    }
}

/// Whether the results behind a reader are those of a call that is to be made again.
fn is_jukebox<'a, A: Arguments<'a>>(r: &mut Reader<'_>) -> Result<bool, Fault> {
    if ![NFS_PROGRAM, NFSACL_PROGRAM].contains(&A::PROGRAM) || A::PROCEDURE == 0 {
        return Ok(false);
    }
    Ok(r.u32()? == Status::Jukebox as u32)
}
