//! Headers and record marks compared with the `onc-rpc` crate, which somebody else wrote.
//!
//! It limits credentials to 200 bytes and machine names to 16, and does not pad names
//! (RFC 4506 §4.11 does), so that the values keep to what both can say.

use onc_rpc::auth::{AuthFlavor, AuthUnixParams};
use onc_rpc::{
    AcceptedReply, AcceptedStatus, AuthError, CallBody, MessageType, RejectedReply, ReplyBody,
    RpcMessage,
};
use oncrpc::auth::OpaqueAuth;
use oncrpc::xdr;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    AcceptStatus, AuthStat, AuthSys, CallHeader, Credential, Procedure, RejectStatus, ReplyHeader,
    ReplyStatus, write_call,
};
use oncrpc_tcp::record::{self, Decoder};
use proptest::collection::vec;
use proptest::prelude::*;

type Theirs<'a> = RpcMessage<&'a [u8], &'a [u8]>;

fn to_record(message: Writer) -> Vec<u8> {
    let mut record = buffer::Buffer::default();
    record::encode(&message.finish(), &mut record);
    record.to_vec()
}

fn from_record(record: &[u8]) -> Payload {
    let mut input = record;
    let message = Decoder::new(1 << 20).decode(&mut input).unwrap().unwrap();
    assert!(input.is_empty());
    message
}

/// Their message is our bytes, and our reading of their bytes is `ours`.
fn check_reply(ours: ReplyStatus<'_>, theirs: ReplyBody<&[u8], &[u8]>) {
    let theirs: Theirs<'_> = RpcMessage::new(7, MessageType::Reply(theirs));
    let mut w = Writer::default();
    ReplyHeader {
        xid: 7,
        status: ours,
    }
    .write(&mut w);
    let record = to_record(w);
    assert_eq!(record, theirs.serialise().unwrap());
    let message = from_record(&record);
    let header = ReplyHeader::parse(&mut Reader::from(&message)).unwrap();
    assert_eq!(header.status, ours);
}

#[test]
fn replies_of_every_status_are_the_same_bytes() {
    let accepted = |ours, theirs| {
        check_reply(
            ReplyStatus::accepted(ours),
            ReplyBody::Accepted(AcceptedReply::new(AuthFlavor::AuthNone(None), theirs)),
        );
    };
    accepted(AcceptStatus::Success, AcceptedStatus::Success(&[][..]));
    accepted(
        AcceptStatus::ProgUnavail,
        AcceptedStatus::ProgramUnavailable,
    );
    accepted(
        AcceptStatus::ProgMismatch { low: 1, high: 3 },
        AcceptedStatus::ProgramMismatch { low: 1, high: 3 },
    );
    accepted(
        AcceptStatus::ProcUnavail,
        AcceptedStatus::ProcedureUnavailable,
    );
    accepted(AcceptStatus::GarbageArgs, AcceptedStatus::GarbageArgs);
    accepted(AcceptStatus::SystemErr, AcceptedStatus::SystemError);

    let denied = |ours, theirs| {
        check_reply(ReplyStatus::Denied(ours), ReplyBody::Denied(theirs));
    };
    denied(
        RejectStatus::RpcMismatch { low: 2, high: 2 },
        RejectedReply::RpcVersionMismatch { low: 2, high: 2 },
    );
    for (ours, theirs) in [
        (AuthStat::Ok, AuthError::Success),
        (AuthStat::BadCred, AuthError::BadCredentials),
        (AuthStat::RejectedCred, AuthError::RejectedCredentials),
        (AuthStat::BadVerf, AuthError::BadVerifier),
        (AuthStat::RejectedVerf, AuthError::RejectedVerifier),
        (AuthStat::TooWeak, AuthError::TooWeak),
        (AuthStat::InvalidResp, AuthError::InvalidResponseVerifier),
        (AuthStat::Failed, AuthError::Failed),
    ] {
        denied(
            RejectStatus::AuthError(ours),
            RejectedReply::AuthError(theirs),
        );
    }
}

proptest! {
    #[test]
    fn calls_are_the_same_bytes(
        (xid, prog, vers, proc) in any::<(u32, u32, u32, u32)>(),
        (stamp, uid, gid) in any::<(u32, u32, u32)>(),
        words in vec(any::<[u8; 4]>(), 0..=4),
        gids in vec(any::<u32>(), 0..=16),
        args in vec(any::<u8>(), 0..64),
        none: bool,
    ) {
        let name = words.concat();
        let (cred, flavour) = if none {
            (Credential::None, AuthFlavor::AuthNone(None))
        } else {
            let params = AuthUnixParams::new(stamp, &name[..], uid, gid, gids.clone());
            let sys = AuthSys {
                stamp,
                machine_name: name.clone().into(),
                uid,
                gid,
                gids: gids.clone().into(),
            };
            (Credential::Sys(sys), AuthFlavor::AuthUnix(params))
        };
        let mut padded = args;
        padded.resize(xdr::padded(padded.len()), 0);
        let body = CallBody::new(
            prog, vers, proc, flavour, AuthFlavor::AuthNone(None), &padded[..],
        );
        let theirs: Theirs<'_> = RpcMessage::new(xid, MessageType::Call(body));
        let mut w = Writer::default();
        write_call(&mut w, xid, Procedure { prog, vers, proc }, &cred);
        w.fixed(&padded);
        let record = to_record(w);
        prop_assert_eq!(&record, &theirs.serialise().unwrap());

        let message = from_record(&record);
        let mut r = Reader::from(&message);
        let header = CallHeader::parse(&mut r).unwrap();
        prop_assert_eq!(
            (header.xid, header.prog, header.vers, header.proc),
            (xid, prog, vers, proc)
        );
        prop_assert_eq!(Credential::parse(header.cred), Ok(cred));
        prop_assert_eq!(header.verf, OpaqueAuth::NONE);
        prop_assert_eq!(r.rest(), &padded[..]);
    }
}
