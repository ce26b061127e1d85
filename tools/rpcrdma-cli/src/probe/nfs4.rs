//! A server of NFS version 4.1 or 4.2: its name, its lease, and the limits of a session, which is made and taken away again.

use super::answer;
use super::conversation::{Conversation, NoAnswer};
use nfs_proto::v4::file::GetAttrArgs;
use nfs_proto::v4::security::CallbackSecurities;
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, DestroyClientIdArgs,
    DestroySessionArgs, ExchangeFlags, ExchangeIdArgs, ProtectArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, Attribute, AttributeNumber, Bitmap, CallWriter, ClientId, CompoundRes, Identifier,
    ResOp, SequenceId, SessionId, SlotId, Tag, Verifier,
};
use nfs_proto::{NFS_PROGRAM, NFS_V4};
use oncrpc::xdr::Payload;
use oncrpc::{Procedure, read_reply, write_call};
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};

/// The one procedure of NFS version 4 that does something, if it is given operations.
pub(super) const COMPOUND: Procedure = Procedure {
    prog: NFS_PROGRAM,
    vers: NFS_V4,
    proc: 1,
};

/// More than any server grants: it answers with its limits.
const MOST: u32 = 16 << 20;

/// Findings about NFS version 4.1 or 4.2. Null stands for an unknown value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Nfs4Seen {
    /// The minor version that was used.
    pub(super) minor_version: u32,
    /// Name of the server (`so_major_id`): the same at addresses that are one server. In hexadecimal digits if it is no text, as the
    /// others.
    pub(super) server_owner: Option<String>,
    /// Number behind that name (`so_minor_id`): the same at addresses that may share a session.
    pub(super) server_owner_minor: Option<u64>,
    /// Scope of the server: servers with the same one know each other's file handles and clients.
    pub(super) server_scope: Option<String>,
    /// Implementation, if the server tells it.
    pub(super) implementation: Option<String>,
    /// Time in which clients have to renew their lease, in seconds.
    pub(super) lease_seconds: Option<u32>,
    /// Limits of a session over this connection.
    pub(super) session: Option<SessionSeen>,
}

/// Limits of a session, where much more was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SessionSeen {
    /// Calls in flight: slots.
    pub(super) max_requests: u32,
    /// Operations of a call.
    pub(super) max_operations: u32,
    /// Bytes of a call.
    pub(super) max_request_bytes: u32,
    /// Bytes of a reply.
    pub(super) max_response_bytes: u32,
    /// Bytes of a reply that the server keeps for a retry.
    pub(super) max_response_cached_bytes: u32,
}

/// Results of a COMPOUND.
struct Results(Payload, u32);

impl Results {
    /// The last one, if it can be read.
    fn last(&self) -> Option<ResOp<'_>> {
        let mut results = CompoundRes::parse(read_reply(&self.0, self.1).ok()?).ok()?;
        let mut last = None;
        while let Some(result) = results.next_result() {
            last = Some(result.ok()?);
        }
        last
    }
}

async fn compound(
    talk: &mut Conversation,
    minor: u32,
    operations: Vec<ArgOp<'_>>,
) -> Result<Option<Results>, NoAnswer> {
    let heard = talk.call_written(|w, xid| {
        write_call(w, xid, COMPOUND, &nfs_client::current_user());
        let mut call = CallWriter::new(w, Tag::default(), minor);
        operations
            .into_iter()
            .for_each(|operation| call.push(operation));
        call.finish();
    });
    let heard = heard.await?;
    Ok(answer::message(&heard).map(|reply| Results(reply, heard.xid)))
}

/// Looks at a server of this minor version. A question that it refuses leaves its answer open.
pub(super) async fn look(talk: &mut Conversation, minor: u32) -> Result<Nfs4Seen, NoAnswer> {
    let mut seen = Nfs4Seen {
        minor_version: minor,
        ..Nfs4Seen::default()
    };
    let unique = RandomState::new().hash_one(minor);
    let name = format!("rpcrdma probe {unique:016x}");
    let exchange = ArgOp::ExchangeId(ExchangeIdArgs {
        owner: ClientOwner {
            verifier: Verifier(unique.to_be_bytes()),
            owner: Identifier::new(name.as_bytes()).unwrap_or_default(),
        },
        flags: ExchangeFlags::empty(),
        protect: ProtectArgs::None,
        implementation: None,
    });
    let exchanged = compound(talk, minor, vec![exchange]).await?;
    let Some(ResOp::ExchangeId(Ok(known))) = exchanged.as_ref().and_then(Results::last) else {
        return Ok(seen);
    };
    seen.server_owner = Some(shown(&known.owner.major));
    seen.server_owner_minor = Some(known.owner.minor);
    seen.server_scope = Some(shown(&known.scope));
    let implementation = known.implementation.as_ref();
    seen.implementation = implementation.map(|of| shown(&of.name));
    let (client, sequence) = (known.client, known.sequence);
    if let Some(session) = create(talk, &mut seen, client, sequence).await? {
        seen.lease_seconds = lease(talk, minor, session).await?;
        let destroy = ArgOp::DestroySession(DestroySessionArgs { session });
        compound(talk, minor, vec![destroy]).await?;
    }
    let destroy = ArgOp::DestroyClientId(DestroyClientIdArgs { client });
    compound(talk, minor, vec![destroy]).await?;
    Ok(seen)
}

/// Makes a session without callbacks, and notes its limits.
async fn create(
    talk: &mut Conversation,
    seen: &mut Nfs4Seen,
    client: ClientId,
    sequence: SequenceId,
) -> Result<Option<SessionId>, NoAnswer> {
    let most = ChannelAttributes {
        max_request: MOST,
        max_response: MOST,
        max_response_cached: MOST,
        max_operations: MOST,
        max_requests: 1024,
        ..ChannelAttributes::default()
    };
    let create = ArgOp::CreateSession(CreateSessionArgs {
        client,
        sequence,
        flags: CreateSessionFlags::empty(),
        fore: most,
        back: most,
        callback_program: 0x4000_0000,
        callback_security: CallbackSecurities::default(),
    });
    let created = compound(talk, seen.minor_version, vec![create]).await?;
    let Some(ResOp::CreateSession(Ok(session))) = created.as_ref().and_then(Results::last) else {
        return Ok(None);
    };
    seen.session = Some(SessionSeen {
        max_requests: session.fore.max_requests,
        max_operations: session.fore.max_operations,
        max_request_bytes: session.fore.max_request,
        max_response_bytes: session.fore.max_response,
        max_response_cached_bytes: session.fore.max_response_cached,
    });
    Ok(Some(session.session))
}

/// The lease, which is an attribute of the root.
async fn lease(
    talk: &mut Conversation,
    minor: u32,
    session: SessionId,
) -> Result<Option<u32>, NoAnswer> {
    let sequence = ArgOp::Sequence(SequenceArgs {
        session,
        sequence: SequenceId(1),
        slot: SlotId(0),
        highest_slot: SlotId(0),
        cache_this: false,
    });
    let wanted = Bitmap::of([AttributeNumber::LeaseTime as u32]);
    let get = ArgOp::GetAttr(GetAttrArgs { wanted });
    let results = compound(talk, minor, vec![sequence, ArgOp::PutRootFh, get]).await?;
    let Some(ResOp::GetAttr(Ok(found))) = results.as_ref().and_then(Results::last) else {
        return Ok(None);
    };
    let mut found = found.attributes.iter();
    Ok(found.find_map(|attribute| match attribute {
        Ok(Attribute::LeaseTime(lease)) => Some(lease),
        _ => None,
    }))
}

/// A name that is any octets, as text or else in hexadecimal digits.
fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => text.to_owned(),
        _ => name.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_shown_in_digits() {
        assert_eq!(shown(b"server.example"), "server.example");
        assert_eq!(shown(b"a\n"), "610a");
        assert_eq!(shown(b"\xff"), "ff");
        assert_eq!(shown(b""), "");
    }
}
