//! As much of an NFSv4.1 client (RFC 8881) as it takes to be called back: a session with one slot,
//! and delegations to read.

use crate::Result;
use oncrpc::xdr::{Error, Payload, Reader, Writer};
use oncrpc::{AuthSys, Credential, Procedure, ReplyBound, Transport, read_reply, write_call};
use rpcrdma::Client;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const MINOR_VERSION: u32 = 1;
pub(crate) const NFS4_OK: u32 = 0;
pub(crate) const SEQ4_STATUS_CB_PATH_DOWN: u32 = 1;
pub(crate) const SEQ4_STATUS_BACKCHANNEL_FAULT: u32 = 0x400;

/// Bytes of a file handle (RFC 8881 §3.1, NFS4_FHSIZE).
pub(crate) const MAX_HANDLE: u32 = 128;

/// Bytes of other opaque data (RFC 8881 §3.1, NFS4_OPAQUE_LIMIT).
const MAX_OPAQUE: u32 = 1024;

const NFS_PROGRAM: u32 = 100_003;
const NFS_V4: u32 = 4;
const NULL: u32 = 0;
const COMPOUND: u32 = 1;

const OP_CLOSE: u32 = 4;
const OP_DELEGRETURN: u32 = 8;
const OP_GETFH: u32 = 10;
const OP_OPEN: u32 = 18;
const OP_PUTFH: u32 = 22;
const OP_PUTROOTFH: u32 = 24;
const OP_BIND_CONN_TO_SESSION: u32 = 41;
const OP_EXCHANGE_ID: u32 = 42;
const OP_CREATE_SESSION: u32 = 43;
const OP_DESTROY_SESSION: u32 = 44;
const OP_SEQUENCE: u32 = 53;
const OP_DESTROY_CLIENTID: u32 = 57;
const OP_RECLAIM_COMPLETE: u32 = 58;

const NFS4ERR_DELAY: u32 = 10008;
const NFS4ERR_GRACE: u32 = 10013;

const CREATE_SESSION4_FLAG_CONN_BACK_CHAN: u32 = 2;
const CDFC4_FORE_OR_BOTH: u32 = 3;
const CDFS4_BOTH: u32 = 3;
const OPEN4_SHARE_ACCESS_READ: u32 = 1;
const OPEN4_SHARE_ACCESS_WANT_READ_DELEG: u32 = 0x100;
const OPEN_DELEGATE_READ: u32 = 1;
const OPEN_DELEGATE_NONE_EXT: u32 = 3;
const WND4_CONTENTION: u32 = 1;
const WND4_RESOURCE: u32 = 2;

/// Bytes of the largest reply, which so fits a Send with any inline threshold of 4096.
const LARGEST: u32 = 3072;

/// User and group without rights.
const NOBODY: u32 = 65534;

/// A server that wants to be asked later gets this much time, and is asked so often: for longer than
/// the grace period that follows its start (RFC 8881 §8.4.2.1).
const DELAY: Duration = Duration::from_millis(200);
const DELAYS: usize = 600;

pub(crate) type SessionId = [u8; 16];

/// RFC 8881 §3.3.12. Two are of the same state if all but the first number are the same.
#[derive(Clone, Copy)]
pub(crate) struct Stateid {
    seqid: u32,
    other: [u8; 12],
}

/// The stateid that the last operation of the same COMPOUND returned (RFC 8881 §16.2.3.1.2).
const CURRENT: Stateid = Stateid {
    seqid: 1,
    other: [0; 12],
};

impl Stateid {
    pub(crate) fn parse(r: &mut Reader<'_>) -> std::result::Result<Self, Error> {
        Ok(Self {
            seqid: r.u32()?,
            other: r.fixed()?,
        })
    }

    fn write(self, w: &mut Writer) {
        w.u32(self.seqid);
        w.fixed(&self.other);
    }
}

/// The promise that nobody changes a file before we are told.
pub(crate) struct Delegation {
    file: Vec<u8>,
    stateid: Stateid,
}

impl Delegation {
    pub(crate) fn is(&self, stateid: Stateid) -> bool {
        self.stateid.other == stateid.other
    }
}

/// An operation that was not done.
#[derive(Debug, thiserror::Error)]
#[error("operation {operation} failed with status {status}")]
struct Failed {
    operation: u32,
    status: u32,
}

/// The operations of one COMPOUND.
struct Operations {
    w: Writer,
    count: u32,
}

impl Operations {
    fn add(&mut self, operation: u32) -> &mut Writer {
        self.count += 1;
        self.w.u32(operation);
        &mut self.w
    }
}

/// Their results.
struct Results<'a>(Reader<'a>);

impl<'a> Results<'a> {
    /// Those of the next operation.
    fn of(&mut self, expected: u32) -> Result<&mut Reader<'a>> {
        let [operation, status] = self.0.words()?;
        if operation != expected {
            return Err(format!("results of {operation} where {expected} was called").into());
        }
        match status {
            NFS4_OK => Ok(&mut self.0),
            status => Err(Failed { operation, status }.into()),
        }
    }
}

/// Calls the procedure NULL.
pub(crate) async fn null(client: &Client) -> Result<()> {
    let xid = client.next_xid();
    let reply = call(client, xid, NULL, |_| {}).await?;
    read_reply(&reply, xid)?;
    Ok(())
}

async fn call(
    client: &Client,
    xid: u32,
    proc: u32,
    arguments: impl FnOnce(&mut Writer),
) -> Result<Payload> {
    let target = Procedure {
        prog: NFS_PROGRAM,
        vers: NFS_V4,
        proc,
    };
    let mut w = Writer::default();
    write_call(&mut w, xid, target, &nobody());
    arguments(&mut w);
    let bound = ReplyBound {
        fixed: LARGEST as usize,
        ..ReplyBound::default()
    };
    Ok(client.call(w.finish(), bound).await?)
}

/// AUTH_SYS, which servers want as a rule, without rights.
fn nobody() -> Credential {
    Credential::Sys(AuthSys {
        stamp: 0,
        machine_name: b"client".iter().copied().collect(),
        uid: NOBODY,
        gid: NOBODY,
        gids: [].into_iter().collect(),
    })
}

/// One COMPOUND (RFC 8881 §16.2), and what `results` makes of its results.
async fn compound<T>(
    client: &Client,
    operations: impl FnOnce(&mut Operations),
    results: impl FnOnce(&mut Results<'_>) -> Result<T>,
) -> Result<T> {
    let xid = client.next_xid();
    let mut all = Operations {
        w: Writer::default(),
        count: 0,
    };
    operations(&mut all);
    let reply = call(client, xid, COMPOUND, |w| {
        w.opaque(b"");
        w.words([MINOR_VERSION, all.count]);
        w.fixed(all.w.finish().head());
    })
    .await?;
    let mut r = read_reply(&reply, xid)?;
    // Of the status, each operation has its own.
    let _status = r.u32()?;
    let _tag = r.opaque(MAX_OPAQUE)?;
    let _count = r.u32()?;
    results(&mut Results(r))
}

/// A session with one slot in each direction, and its client.
pub(crate) struct Session {
    client: Client,
    client_id: u64,
    id: SessionId,
    /// Of the last call in the slot.
    sequence: u32,
}

impl Session {
    /// Begins as a client that the server has never seen; callbacks come over this connection, each
    /// and its reply with at most so many bytes.
    pub(crate) async fn create(
        client: Client,
        program: u32,
        largest_callback: usize,
    ) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let owner = format!("rpcrdma callbacks {} {now}", std::process::id());
        let (client_id, sequence) = exchange_id(&client, owner.as_bytes()).await?;
        let largest_callback = u32::try_from(largest_callback)?;
        let id = compound(
            &client,
            |operations| {
                let w = operations.add(OP_CREATE_SESSION);
                w.u64(client_id);
                w.words([sequence, CREATE_SESSION4_FLAG_CONN_BACK_CHAN]);
                write_channel(w, LARGEST);
                write_channel(w, largest_callback);
                // One kind of credentials for callbacks: AUTH_NONE.
                w.words([program, 1, 0]);
            },
            |results| {
                let r = results.of(OP_CREATE_SESSION)?;
                let id: SessionId = r.fixed()?;
                let [_sequence, flags] = r.words()?;
                match flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN {
                    0 => Err("the server does not call back over this connection".into()),
                    _ => Ok(id),
                }
            },
        )
        .await?;
        Ok(Self {
            client,
            client_id,
            id,
            sequence: 0,
        })
    }

    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// A COMPOUND in the session, again while the server asks for time; its results, and the status
    /// flags of the session (RFC 8881 §18.46).
    async fn call<T>(
        &mut self,
        operations: impl Fn(&mut Operations),
        results: impl Fn(&mut Results<'_>) -> Result<T>,
    ) -> Result<(T, u32)> {
        for _ in 0..DELAYS {
            self.sequence = self.sequence.wrapping_add(1);
            let done = compound(
                &self.client,
                |all| {
                    let w = all.add(OP_SEQUENCE);
                    w.fixed(&self.id);
                    w.words([self.sequence, 0, 0]);
                    // Kept by the server, for a call that comes again over another connection.
                    w.bool(true);
                    operations(all);
                },
                |all| {
                    let r = all.of(OP_SEQUENCE)?;
                    let _: SessionId = r.fixed()?;
                    let [_sequence, _slot, _highest, _target, flags] = r.words()?;
                    Ok((results(all)?, flags))
                },
            )
            .await;
            match done {
                Err(error) => match error.downcast_ref() {
                    Some(Failed {
                        operation,
                        status: NFS4ERR_DELAY | NFS4ERR_GRACE,
                    }) => {
                        // Without SEQUENCE nothing was done in the slot.
                        self.sequence -= u32::from(*operation == OP_SEQUENCE);
                        tokio::time::sleep(DELAY).await;
                    }
                    _ => return Err(error),
                },
                done => return done,
            }
        }
        Err("the server asks for more time again and again".into())
    }

    /// Calls nothing but SEQUENCE, which renews the lease; the status flags of the session.
    pub(crate) async fn status(&mut self) -> Result<u32> {
        let ((), flags) = self.call(|_| {}, |_| Ok(())).await?;
        Ok(flags)
    }

    /// Says that there is nothing to reclaim, without which there are no files.
    pub(crate) async fn reclaim_complete(&mut self) -> Result<()> {
        self.call(
            |all| all.add(OP_RECLAIM_COMPLETE).bool(false),
            |all| all.of(OP_RECLAIM_COMPLETE).map(drop),
        )
        .await?;
        Ok(())
    }

    /// Opens a file of the server's root to read.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or the server gives no delegation for a long time. Linux' server gives none
    /// for up to a minute on files whose handles look like those of delegations that it has just recalled.
    pub(crate) async fn open_with_delegation(&mut self, name: &str) -> Result<Delegation> {
        for _ in 0..DELAYS {
            if let Some(delegation) = self.open(name).await? {
                return Ok(delegation);
            }
            tokio::time::sleep(DELAY).await;
        }
        Err("the server gives no delegation to read".into())
    }

    /// The same once; `None` if there is no delegation.
    async fn open(&mut self, name: &str) -> Result<Option<Delegation>> {
        let client_id = self.client_id;
        let (delegation, _) = self
            .call(
                |all| {
                    all.add(OP_PUTROOTFH);
                    let w = all.add(OP_OPEN);
                    let access = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
                    w.words([0, access, 0]);
                    w.u64(client_id);
                    w.opaque(name.as_bytes());
                    // OPEN4_NOCREATE, CLAIM_NULL.
                    w.words([0, 0]);
                    w.opaque(name.as_bytes());
                    all.add(OP_GETFH);
                    // The delegation stays when the file is closed.
                    let w = all.add(OP_CLOSE);
                    w.u32(0);
                    CURRENT.write(w);
                },
                |all| {
                    all.of(OP_PUTROOTFH)?;
                    let stateid = read_open(all.of(OP_OPEN)?)?;
                    let file = all.of(OP_GETFH)?.opaque(MAX_HANDLE)?.to_vec();
                    all.of(OP_CLOSE)?;
                    Ok(stateid.map(|stateid| Delegation { file, stateid }))
                },
            )
            .await?;
        Ok(delegation)
    }

    pub(crate) async fn return_delegation(&mut self, delegation: Delegation) -> Result<()> {
        self.call(
            |all| {
                all.add(OP_PUTFH).opaque(&delegation.file);
                delegation.stateid.write(all.add(OP_DELEGRETURN));
            },
            |all| {
                all.of(OP_PUTFH)?;
                all.of(OP_DELEGRETURN).map(drop)
            },
        )
        .await?;
        Ok(())
    }

    /// Has callbacks come over the present connection, too (RFC 8881 §18.34).
    pub(crate) async fn bind_connection(&self) -> Result<()> {
        compound(
            &self.client,
            |all| {
                let w = all.add(OP_BIND_CONN_TO_SESSION);
                w.fixed(&self.id);
                w.u32(CDFC4_FORE_OR_BOTH);
                w.bool(false);
            },
            |all| {
                let r = all.of(OP_BIND_CONN_TO_SESSION)?;
                let _: SessionId = r.fixed()?;
                match r.u32()? {
                    CDFS4_BOTH => Ok(()),
                    direction => {
                        Err(format!("the connection is bound for {direction} only").into())
                    }
                }
            },
        )
        .await
    }

    /// Ends the session and the client, which has nothing open and no delegation any more.
    pub(crate) async fn destroy(self) -> Result<()> {
        compound(
            &self.client,
            |all| all.add(OP_DESTROY_SESSION).fixed(&self.id),
            |all| all.of(OP_DESTROY_SESSION).map(drop),
        )
        .await?;
        compound(
            &self.client,
            |all| all.add(OP_DESTROY_CLIENTID).u64(self.client_id),
            |all| all.of(OP_DESTROY_CLIENTID).map(drop),
        )
        .await
    }
}

/// EXCHANGE_ID (RFC 8881 §18.35): the client's number, and that of its first CREATE_SESSION.
async fn exchange_id(client: &Client, owner: &[u8]) -> Result<(u64, u32)> {
    compound(
        client,
        |all| {
            let w = all.add(OP_EXCHANGE_ID);
            // The verifier of this incarnation. There is no other of the same owner.
            w.u64(1);
            w.opaque(owner);
            // No flags, SP4_NONE, no word about who made this.
            w.words([0, 0, 0]);
        },
        |all| {
            let r = all.of(OP_EXCHANGE_ID)?;
            Ok((r.u64()?, r.u32()?))
        },
    )
    .await
}

/// The attributes of a channel (RFC 8881 §18.36): no padding, the largest request, reply and kept
/// reply, 8 operations, 1 slot, no word about RDMA.
fn write_channel(w: &mut Writer, largest: u32) {
    w.words([0, largest, largest, largest, 8, 1, 0]);
}

/// The results of OPEN (RFC 8881 §18.16.2): the stateid of the delegation.
fn read_open(r: &mut Reader<'_>) -> Result<Option<Stateid>> {
    let _opened = Stateid::parse(r)?;
    let (_atomic, _before, _after) = (r.bool()?, r.u64()?, r.u64()?);
    let _flags = r.u32()?;
    let _attributes = r.vec(MAX_OPAQUE, Reader::u32)?;
    match r.u32()? {
        OPEN_DELEGATE_READ => {
            let stateid = Stateid::parse(r)?;
            let _recalled = r.bool()?;
            // Who else may read: type, flags and mask of an access control entry, and a name.
            let _: [u32; 3] = r.words()?;
            r.opaque(MAX_OPAQUE)?;
            Ok(Some(stateid))
        }
        OPEN_DELEGATE_NONE_EXT => {
            if let WND4_CONTENTION | WND4_RESOURCE = r.u32()? {
                let _will_signal = r.bool()?;
            }
            Ok(None)
        }
        other => Err(format!("the server gives no delegation to read, but {other}").into()),
    }
}
