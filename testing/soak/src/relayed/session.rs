//! Announcement of a client that its connection takes callbacks (RFC 8881 §18.34, §18.36).

use buffer::Buffer;
use nfs_proto::NFS_PROGRAM;
use oncrpc::xdr::{self, Payload, Reader, Writer};
use oncrpc::{CallHeader, Credential, Procedure, read_reply, write_call};

/// COMPOUND of version 4 (RFC 8881 §16.2).
const COMPOUND: Procedure = Procedure {
    prog: NFS_PROGRAM,
    vers: 4,
    proc: 1,
};

/// The operations, and what says in each that the connection takes callbacks.
const BIND_CONN_TO_SESSION: u32 = 41;
const CREATE_SESSION: u32 = 43;
const BACK_CHANNEL: u32 = 2;
const BACK_OR_BOTH: u32 = 7;

/// Words of the attributes of a channel.
const CHANNEL: usize = 7;

/// Largest message that a client asks for, in either direction.
const MOST: u32 = 1 << 20;

/// Bytes that fit in a message whatever the gateways agreed on, less their header.
const ALWAYS_FITS: u32 = 1024 - 28;

/// Announcements of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// The number of the client.
    pub(super) client: usize,
    /// Bytes of the largest callback, and of the largest reply to one.
    pub(super) call: usize,
    pub(super) reply: usize,
}

/// The call of a client that makes a session on its connection, or binds the connection to one.
pub(super) fn declaration(xid: u32, client: usize, creates: bool) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(256));
    write_call(&mut w, xid, COMPOUND, &Credential::None);
    w.opaque(b"");
    // Minor version and number of operations.
    w.words([1, 1]);
    if creates {
        w.u32(CREATE_SESSION);
        w.u64(client as u64);
        // The number of the request, and the flags.
        w.words([1, BACK_CHANNEL]);
        for _ in ["fore", "back"] {
            // Padding, sizes of requests, replies and kept replies, operations, requests, and no
            // read depth.
            w.words([0, MOST, MOST, MOST, 8, 16, 0]);
        }
        // The program of callbacks, and one flavor, AUTH_NONE.
        w.words([super::messages::CALLBACK, 1, 0]);
    } else {
        w.u32(BIND_CONN_TO_SESSION);
        w.u64(client as u64);
        w.u64(0);
        w.words([BACK_OR_BOTH, 0]);
    }
    w.finish()
}

/// Whether the server has taken the declaration.
pub(super) fn is_taken(reply: &Payload, xid: u32) -> bool {
    read_reply(reply, xid).is_ok()
}

/// A declaration as it came to the server through the gateways; `None` if a call is none.
///
/// # Errors
///
/// It is not what the client sent.
pub(super) fn read(
    header: &CallHeader<'_>,
    r: &mut Reader<'_>,
) -> Result<Option<Session>, xdr::Error> {
    if (header.prog, header.vers, header.proc) != (COMPOUND.prog, COMPOUND.vers, COMPOUND.proc) {
        return Ok(None);
    }
    r.opaque(0)?;
    let [_minor, _operations, operation] = r.words()?;
    let client = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
    let creates = operation == CREATE_SESSION;
    let [call, reply] = match creates {
        true => {
            r.skip(4 * (2 + CHANNEL))?;
            let [_padding, call, reply, ..] = r.words::<CHANNEL>()?;
            [call, reply]
        }
        false => [ALWAYS_FITS; 2],
    };
    r.skip(4 * if creates { 3 } else { 4 })?;
    Ok(Some(Session {
        client,
        call: call as usize,
        reply: reply as usize,
    }))
}
