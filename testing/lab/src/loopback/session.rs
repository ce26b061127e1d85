//! A session of NFS version 4.1: COMPOUNDs as the client of Linux makes them, one at a time.

use anyhow::{Context, Result, ensure};
use buffer::Pool;
use nfs_proto::v4::file::{GetAttrArgs, PutFhArgs, ReadArgs};
use nfs_proto::v4::open::{OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use nfs_proto::v4::security::CallbackSecurities;
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ProtectArgs, ReclaimCompleteArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, AttributeNumber, Bitmap, CallWriter, CompoundRes, Handle, Identifier, Procedure, ResOp,
    SessionId, SlotId, StateId, StateOwner, Tag, Verifier,
};
use nfs_proto::{FileHandle, NFS_PROGRAM, NFS_V4};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    Credential, EncodedCredential, Procedure as RpcProcedure, ReplyBound, Transport, read_reply,
};
use rpcrdma::Client;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Minor version.
const MINOR: u32 = 1;

/// Bytes of a call, and of a reply beside the data of READ, at most.
const MESSAGE: usize = 1024;

/// The attributes that Linux asks for.
const ATTRIBUTES: [AttributeNumber; 15] = [
    AttributeNumber::Type,
    AttributeNumber::Change,
    AttributeNumber::Size,
    AttributeNumber::FsId,
    AttributeNumber::FileId,
    AttributeNumber::Mode,
    AttributeNumber::NumLinks,
    AttributeNumber::Owner,
    AttributeNumber::OwnerGroup,
    AttributeNumber::RawDev,
    AttributeNumber::SpaceUsed,
    AttributeNumber::TimeAccess,
    AttributeNumber::TimeMetadata,
    AttributeNumber::TimeModify,
    AttributeNumber::MountedOnFileId,
];

/// A session, and a file that is open in it. Its only slot takes one request at a time.
pub(super) struct Session {
    calls: Calls,
    session: SessionId,
    /// Sequence id of the last request.
    sequence: AtomicU32,
    file: FileHandle,
    open: StateId,
    wanted: Bitmap,
}

impl Session {
    /// Makes a client id and a session, and opens a file for reading.
    pub(super) async fn open(
        client: Client,
        credential: &Credential,
        file: FileHandle,
    ) -> Result<Self> {
        let calls = Calls {
            client,
            caller: EncodedCredential::new(credential),
            pool: Pool::new(MESSAGE),
        };
        let exchange = ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier([1; 8]),
                owner: name(b"lab")?,
            },
            flags: ExchangeFlags::empty(),
            protect: ProtectArgs::None,
            implementation: None,
        });
        let known = calls.make([exchange], 0).await?;
        let ResOp::ExchangeId(Ok(known)) = known.last()? else {
            anyhow::bail!("no client id");
        };
        let attributes = ChannelAttributes {
            max_request: 1 << 20,
            max_response: 1 << 20,
            max_operations: 8,
            max_requests: 1,
            ..ChannelAttributes::default()
        };
        let create = ArgOp::CreateSession(CreateSessionArgs {
            client: known.client,
            sequence: known.sequence,
            flags: CreateSessionFlags::empty(),
            fore: attributes,
            back: attributes,
            callback_program: 0,
            callback_security: CallbackSecurities::default(),
        });
        let created = calls.make([create], 0).await?;
        let ResOp::CreateSession(Ok(created)) = created.last()? else {
            anyhow::bail!("no session");
        };
        let mut session = Self {
            calls,
            session: created.session,
            sequence: AtomicU32::new(0),
            file,
            open: StateId::default(),
            wanted: Bitmap::of(ATTRIBUTES.map(|number| number as u32)),
        };
        let complete = ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let completed = session
            .calls
            .make([session.sequence(), complete], 0)
            .await?;
        completed.last()?;
        let open = ArgOp::Open(OpenArgs {
            seqid: 0,
            access: ShareAccess::READ,
            deny: ShareDeny::empty(),
            owner: StateOwner {
                client: known.client,
                owner: name(b"lab")?,
            },
            how: OpenHow::NoCreate,
            claim: OpenClaim::Handle,
        });
        let opened = session.of_file(open, 0).await?;
        let ResOp::Open(Ok(opened)) = opened.last()? else {
            anyhow::bail!("the file is not open");
        };
        session.open = opened.state;
        Ok(session)
    }

    /// GETATTR of the file.
    pub(super) async fn get_attributes(&self) -> Result<()> {
        let wanted = self.wanted;
        let get = ArgOp::GetAttr(GetAttrArgs { wanted });
        let reply = self.of_file(get, 0).await?;
        let ResOp::GetAttr(Ok(found)) = reply.last()? else {
            anyhow::bail!("no attributes");
        };
        ensure!(found.attributes.mask() == self.wanted, "not all attributes");
        Ok(())
    }

    /// READ of the file.
    pub(super) async fn read(&self, offset: u64, count: u32) -> Result<()> {
        let read = ArgOp::Read(ReadArgs {
            // RFC 8881 §8.2.2: the current one.
            state: StateId {
                seqid: 0,
                ..self.open
            },
            offset,
            count,
        });
        let reply = self.of_file(read, count as usize).await?;
        let ResOp::Read(Ok(read)) = reply.last()? else {
            anyhow::bail!("no data");
        };
        ensure!(read.data.len() == count as usize, "a short read");
        Ok(())
    }

    /// SEQUENCE, PUTFH, and an operation.
    async fn of_file(&self, operation: ArgOp<'_>, data: usize) -> Result<Results> {
        let handle = Handle::new(&self.file).context("a handle of another version")?;
        let put = ArgOp::PutFh(PutFhArgs { handle });
        let all = [self.sequence(), put, operation];
        self.calls.make(all, data).await
    }

    /// The SEQUENCE of the next request.
    fn sequence(&self) -> ArgOp<'static> {
        let last = self.sequence.fetch_add(1, Relaxed);
        ArgOp::Sequence(SequenceArgs {
            session: self.session,
            sequence: nfs_proto::v4::SequenceId(last.wrapping_add(1)),
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this: false,
        })
    }
}

/// Calls of the procedure COMPOUND.
struct Calls {
    client: Client,
    caller: EncodedCredential,
    pool: Pool,
}

impl Calls {
    /// Makes a COMPOUND, whose last result has data of this length at most. Returns its results.
    async fn make<const N: usize>(
        &self,
        operations: [ArgOp<'_>; N],
        data: usize,
    ) -> Result<Results> {
        let xid = self.client.next_xid();
        let compound = RpcProcedure {
            prog: NFS_PROGRAM,
            vers: NFS_V4,
            proc: Procedure::Compound as u32,
        };
        let mut w = Writer::new(self.pool.take(MESSAGE));
        self.caller.write_call(&mut w, xid, compound);
        let mut call = CallWriter::new(&mut w, Tag::default(), MINOR);
        operations
            .into_iter()
            .for_each(|operation| call.push(operation));
        call.finish();
        let bound = ReplyBound {
            fixed: MESSAGE / 2,
            results: (data > 0).then_some(data).into_iter().collect(),
        };
        let message = self.client.call(w.finish(), bound).await?;
        Ok(Results { message, xid })
    }
}

/// Results of a COMPOUND.
struct Results {
    message: Payload,
    xid: u32,
}

impl Results {
    /// Returns the last result of a COMPOUND that succeeded.
    fn last(&self) -> Result<ResOp<'_>> {
        let mut results = CompoundRes::parse(read_reply(&self.message, self.xid)?)?;
        results.status?;
        let mut last = None;
        while let Some(result) = results.next_result() {
            last = Some(result?);
        }
        results.finish()?;
        last.context("a COMPOUND without results")
    }
}

fn name(name: &[u8]) -> Result<Identifier<'_>> {
    Identifier::new(name).context("a short name")
}
