//! Scans of calls and replies of NFS versions 2 and 3 that pass by unchanged (RFC 8267 §4).
//!
//! A scan finds the DDP-eligible item of a message from its bytes, in pieces of any size, and
//! stages none of them. Each message is a list of [`Shape`]s, which are read word by word.
//! A message that does not have its shape has no item and no reply bound: it is for the server or
//! client at the end to answer.

use super::{directory, eligible, fixed, reply_bound};
use crate::limits::{
    MAX_DATA, MAX_DIRECTORY_REPLY, MAX_FILENAME, MAX_HANDLE, MAX_PATH, MAX_V2_DATA, MAX_V2_NAME,
    MAX_V2_PATH,
};
use crate::{Attributes, NFS_PROGRAM, NFS_V2, NFS_V3, Procedure, Wire};
use oncrpc::auth::MAX_AUTH_BODY;
use oncrpc::xdr::{Reader, padded};
use oncrpc::{RPC_VERSION, ReplyBound};

/// Flavor RPCSEC_GSS (RFC 2203 §5).
const RPCSEC_GSS: u32 = 6;
/// `RPCSEC_GSS_DATA`: the call has arguments, not a token of the security context (RFC 2203 §5).
const GSS_DATA: u32 = 0;
/// `rpc_gss_svc_none`: arguments and results are as they are without RPCSEC_GSS (RFC 2203 §5).
const GSS_NONE: u32 = 1;
/// `RPCSEC_GSS_VERS_1`: the version whose arguments can be read (RFC 2203 §5).
const GSS_VERSION: u32 = 1;
/// Bytes of the fixed fields in an RPCSEC_GSS credential, before its handle.
const GSS_FIXED: usize = 16;

/// A word that a scan remembers.
#[derive(Clone, Copy, Debug)]
enum Note {
    Xid,
    Program,
    Version,
    Procedure,
    Flavor,
    GssVersion,
    GssProcedure,
    GssService,
    Count,
}

/// Part of a message.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// So many words that do not matter.
    Words(u8),
    /// A word to remember.
    Note(Note),
    /// This word; with another one the message has no item.
    Is(u32),
    /// Opaque or string of up to so many bytes.
    Opaque(u32),
    /// Boolean, and so many words if it is true.
    Optional(u8),
    /// `set_atime` or `set_mtime` of `sattr3` (RFC 1813 §2.6).
    SetTime,
    /// Length of a credential; its flavor decides what comes next.
    Credential,
    /// What is left of an RPCSEC_GSS credential. Has no bytes of its own.
    Handle,
    /// Arguments of the procedure. Has no bytes of its own.
    Arguments,
    /// The DDP-eligible item, of up to so many bytes.
    Item(u32),
}

use Shape::{Arguments, Credential, Handle, Is, Item, Opaque, Optional, SetTime, Words};

/// `rpc_msg` of a call up to its credential (RFC 5531 §9).
const CALL: &[Shape] = &[
    Shape::Note(Note::Xid),
    Is(0),
    Is(RPC_VERSION),
    Shape::Note(Note::Program),
    Shape::Note(Note::Version),
    Shape::Note(Note::Procedure),
    Shape::Note(Note::Flavor),
    Credential,
];
const VERIFIER: &[Shape] = &[Words(1), Opaque(MAX_AUTH_BODY), Arguments];
/// `rpc_gss_cred_t` (RFC 2203 §5), and the verifier.
const GSS_CREDENTIAL: &[Shape] = &[
    Shape::Note(Note::GssVersion),
    Shape::Note(Note::GssProcedure),
    Words(1),
    Shape::Note(Note::GssService),
    Handle,
    Words(1),
    Opaque(MAX_AUTH_BODY),
    Arguments,
];

const HANDLE: Shape = Opaque(MAX_HANDLE);
const V2_HANDLE: Shape = Words(8);
const COUNT: Shape = Shape::Note(Note::Count);
const POST_OP_ATTR: Shape = Optional(21);

/// Returns the arguments of a procedure up to the last one that matters (RFC 1813 §3,
/// RFC 1094 §2.2).
fn arguments(version: u32, procedure: u32) -> &'static [Shape] {
    match (version, procedure) {
        (NFS_V3, 6) => &[HANDLE, Words(2), COUNT],
        (NFS_V3, 7) => &[HANDLE, Words(4), Item(MAX_DATA)],
        (NFS_V3, 10) => &[
            HANDLE,
            Opaque(MAX_FILENAME),
            Optional(1),
            Optional(1),
            Optional(1),
            Optional(2),
            SetTime,
            SetTime,
            Item(MAX_PATH),
        ],
        (NFS_V3, 16) => &[HANDLE, Words(4), COUNT],
        (NFS_V3, 17) => &[HANDLE, Words(5), COUNT],
        (NFS_V2, 6) => &[V2_HANDLE, Words(1), COUNT],
        (NFS_V2, 8) => &[V2_HANDLE, Words(3), Item(MAX_V2_DATA)],
        (NFS_V2, 13) => &[V2_HANDLE, Opaque(MAX_V2_NAME), Item(MAX_V2_PATH)],
        (NFS_V2, 16) => &[V2_HANDLE, Words(1), COUNT],
        _ => &[],
    }
}

/// Returns a bound of the reply, without the verifier of RPCSEC_GSS; `count` is that of READ,
/// READDIR or READDIRPLUS.
fn bound(version: u32, procedure: u32, count: u32) -> Option<ReplyBound> {
    match version {
        NFS_V3 => bound_v3(Procedure::try_from(procedure).ok()?, count),
        NFS_V2 => bound_v2(procedure, count),
        _ => None,
    }
}

fn bound_v3(procedure: Procedure, count: u32) -> Option<ReplyBound> {
    /// Status and attributes of the file, before what READLINK and READ return.
    const ATTRIBUTES: usize = 4 + <Option<Attributes> as Wire<'_>>::MAX;
    match procedure {
        Procedure::ReadLink => Some(eligible(ATTRIBUTES + 4, MAX_PATH)),
        Procedure::Read => (count <= MAX_DATA).then(|| eligible(ATTRIBUTES + 12, count)),
        Procedure::ReadDir | Procedure::ReadDirPlus => {
            (count <= MAX_DIRECTORY_REPLY).then(|| directory(count))
        }
        other => reply_bound(other, &mut Reader::new(&[])),
    }
}

fn bound_v2(procedure: u32, count: u32) -> Option<ReplyBound> {
    /// `fattr` (RFC 1094 §2.3.5).
    const FATTR: usize = 68;
    Some(match procedure {
        // NULL, ROOT, WRITECACHE.
        0 | 3 | 7 => fixed(0),
        // GETATTR, SETATTR, WRITE: `attrstat`.
        1 | 2 | 8 => fixed(4 + FATTR),
        // LOOKUP, CREATE, MKDIR: `diropres`.
        4 | 9 | 14 => fixed(4 + 32 + FATTR),
        5 => eligible(4 + 4, MAX_V2_PATH),
        // A server returns no more than the version allows, whatever the count.
        6 => eligible(4 + FATTR + 4, count.min(MAX_V2_DATA)),
        // REMOVE, RENAME, LINK, SYMLINK, RMDIR: `stat`.
        10..=13 | 15 => fixed(4),
        // Room for the status, the end of the list and `eof` beside the entries.
        16 if count <= MAX_DIRECTORY_REPLY => fixed(12 + count as usize),
        17 => fixed(4 + 20),
        _ => return None,
    })
}

/// Returns the shape of a reply with an eligible result (RFC 5531 §9, RFC 1813 §3.3, RFC 1094
/// §2.2): accepted, with a verifier, SUCCESS, and the status OK.
fn reply(version: u32, procedure: u32) -> &'static [Shape] {
    const XID: Shape = Shape::Note(Note::Xid);
    const VERIFIER: Shape = Opaque(MAX_AUTH_BODY);
    macro_rules! ok {
        ($($result:expr),*) => {
            &[XID, Is(1), Is(0), Words(1), VERIFIER, Is(0), Is(0), $($result),*]
        };
    }
    match (version, procedure) {
        (NFS_V3, 5) => ok![POST_OP_ATTR, Item(MAX_PATH)],
        (NFS_V3, 6) => ok![POST_OP_ATTR, Words(2), Item(MAX_DATA)],
        (NFS_V2, 5) => ok![Item(MAX_V2_PATH)],
        (NFS_V2, 6) => ok![Words(17), Item(MAX_V2_DATA)],
        _ => &[],
    }
}

/// Place of a DDP-eligible item in the XDR stream of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    /// Bytes of the message before the item; its length word is the last of them. This is the XDR
    /// Position of a Read chunk (RFC 8166 §3.4.4).
    pub offset: usize,
    /// Bytes of the item, without padding.
    pub length: usize,
}

impl ItemPlace {
    /// Returns the bytes of XDR padding after the item.
    pub fn padding(self) -> usize {
        padded(self.length) - self.length
    }

    /// Returns the offset of what follows the item and its padding.
    pub fn end(self) -> usize {
        self.offset + padded(self.length)
    }
}

/// Word-by-word reader of the shapes of one message.
#[derive(Clone, Debug)]
struct Scan {
    /// Shapes to come. `None`: the message does not have its shape.
    shapes: Option<&'static [Shape]>,
    /// Bytes consumed.
    at: usize,
    /// Bytes to skip before the next word.
    skip: usize,
    /// Part of a word, whose other bytes are still to come.
    word: [u8; 4],
    filled: usize,
    notes: [u32; Note::Count as usize + 1],
    /// Length of the credential's handle and its own length word.
    handle: usize,
    /// Whether the header of a call was read.
    header: bool,
    item: Option<ItemPlace>,
}

impl Scan {
    fn new(shapes: &'static [Shape]) -> Self {
        Self {
            shapes: Some(shapes),
            at: 0,
            skip: 0,
            word: [0; 4],
            filled: 0,
            notes: [0; _],
            handle: 0,
            header: false,
            item: None,
        }
    }

    fn note(&self, note: Note) -> u32 {
        self.notes[note as usize]
    }

    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            self.at += skipped;
            bytes = &bytes[skipped..];
            if self.skip > 0 {
                return;
            }
            self.enter();
            if bytes.is_empty() {
                return;
            }
            let Some((&shape, rest)) = self.shapes.and_then(<[Shape]>::split_first) else {
                self.at += bytes.len();
                return;
            };
            let taken = bytes.len().min(4 - self.filled);
            self.word[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            self.at += taken;
            bytes = &bytes[taken..];
            if self.filled == 4 {
                self.filled = 0;
                self.shapes = self.read(shape, u32::from_be_bytes(self.word), rest);
                self.enter();
            }
        }
    }

    /// Reads the word of a shape. Returns the shapes that follow.
    fn read(
        &mut self,
        shape: Shape,
        word: u32,
        rest: &'static [Shape],
    ) -> Option<&'static [Shape]> {
        match shape {
            Words(count) => self.skip = 4 * (usize::from(count) - 1),
            Shape::Note(note) => self.notes[note as usize] = word,
            Is(value) if word == value => {}
            Opaque(limit) if word <= limit => self.skip = padded(word as usize),
            Optional(_) | SetTime if word == 0 => {}
            Optional(count) if word == 1 => self.skip = 4 * usize::from(count),
            SetTime if word == 1 => {}
            SetTime if word == 2 => self.skip = 8,
            Credential if word <= MAX_AUTH_BODY => return self.credential(word as usize),
            Item(limit) if word <= limit => {
                let length = word as usize;
                let offset = self.at;
                self.item = Some(ItemPlace { offset, length });
                self.skip = padded(length);
            }
            Is(_) | Opaque(_) | Optional(_) | SetTime | Credential | Item(_) | Handle
            | Arguments => return None,
        }
        Some(rest)
    }

    fn credential(&mut self, length: usize) -> Option<&'static [Shape]> {
        let handle = padded(length).checked_sub(GSS_FIXED);
        let handle = handle.filter(|_| self.note(Note::Flavor) == RPCSEC_GSS);
        Some(match handle {
            Some(handle) => {
                self.handle = handle;
                GSS_CREDENTIAL
            }
            // One of RPCSEC_GSS that is too short has no version, so that its arguments are not read.
            None => {
                self.skip = padded(length);
                VERIFIER
            }
        })
    }

    /// Goes on to the next shape that has bytes.
    fn enter(&mut self) {
        match self.shapes {
            Some([Handle, rest @ ..]) => {
                self.skip = self.handle;
                self.shapes = Some(rest);
            }
            Some([Arguments, ..]) if self.skip == 0 => {
                self.header = true;
                self.shapes = self.plain().then(|| self.arguments());
            }
            _ => {}
        }
    }

    /// Whether the arguments are neither protected by RPCSEC_GSS nor its own.
    fn plain(&self) -> bool {
        self.note(Note::Flavor) != RPCSEC_GSS
            || (self.note(Note::GssVersion) == GSS_VERSION
                && self.note(Note::GssProcedure) == GSS_DATA
                && self.note(Note::GssService) == GSS_NONE)
    }

    fn arguments(&self) -> &'static [Shape] {
        match self.note(Note::Program) {
            NFS_PROGRAM => arguments(self.note(Note::Version), self.note(Note::Procedure)),
            _ => &[],
        }
    }

    /// Whether the whole message had its shape.
    fn is_complete(&self) -> bool {
        self.skip == 0 && self.shapes.is_some_and(<[Shape]>::is_empty)
    }
}

/// What a gateway needs to know of a call to carry it over RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedCall {
    /// XID.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// Flavor of the credential.
    pub flavor: u32,
    /// The DDP-eligible argument: data of WRITE, path of SYMLINK.
    pub argument: Option<ItemPlace>,
    /// Bound of the reply and of its DDP-eligible result (RFC 8267 §4.1).
    ///
    /// `None` if it is not known: for other programs and versions, for calls that RPCSEC_GSS
    /// protects, for malformed calls, and for a count above [`MAX_DATA`] or
    /// [`MAX_DIRECTORY_REPLY`].
    pub reply: Option<ReplyBound>,
}

/// Scan of a call in pieces.
///
/// ```
/// use nfs_proto::{CallScan, ItemPlace};
///
/// // SYMLINK of version 2, AUTH_NONE: "a" with the target "abcde".
/// let mut call = Vec::new();
/// for word in [7u32, 0, 2, 100_003, 2, 13, 0, 0, 0, 0] {
///     call.extend(word.to_be_bytes());
/// }
/// call.extend([0; 32]);
/// call.extend(*b"\0\0\0\x01a\0\0\0\0\0\0\x05abcde\0\0\0");
///
/// let mut scan = CallScan::default();
/// for piece in call.chunks(3) {
///     scan.push(piece);
/// }
/// let call = scan.finish().ok_or("not a call")?;
/// assert_eq!(call.argument, Some(ItemPlace { offset: 84, length: 5 }));
/// # Ok::<_, &str>(())
/// ```
#[derive(Clone, Debug)]
pub struct CallScan(Scan);

impl Default for CallScan {
    fn default() -> Self {
        Self(Scan::new(CALL))
    }
}

impl CallScan {
    /// Reads the next bytes of the call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Returns the eligible argument as soon as its length was read; it may still be on its way.
    pub fn argument(&self) -> Option<ItemPlace> {
        self.0.item
    }

    /// Ends the scan after the last byte of the message. Returns `None` if it has no header of a
    /// call.
    pub fn finish(self) -> Option<ScannedCall> {
        let scan = self.0;
        if !scan.header {
            return None;
        }
        let (version, procedure) = (scan.note(Note::Version), scan.note(Note::Procedure));
        let known = scan.is_complete() && scan.note(Note::Program) == NFS_PROGRAM;
        let mut reply = known
            .then(|| bound(version, procedure, scan.note(Note::Count)))
            .flatten();
        if let Some(reply) = &mut reply
            && scan.note(Note::Flavor) == RPCSEC_GSS
        {
            reply.fixed += MAX_AUTH_BODY as usize;
        }
        Some(ScannedCall {
            xid: scan.note(Note::Xid),
            program: scan.note(Note::Program),
            version,
            procedure,
            flavor: scan.note(Note::Flavor),
            argument: scan.item.filter(|_| known),
            reply,
        })
    }
}

/// Scan of the reply to a scanned call, in pieces.
#[derive(Clone, Debug)]
pub struct ReplyScan {
    scan: Scan,
    xid: u32,
}

impl ReplyScan {
    /// Begins the scan of the reply to a call.
    pub fn new(call: &ScannedCall) -> Self {
        let expects = call
            .reply
            .as_ref()
            .is_some_and(|bound| !bound.results.is_empty());
        let shapes = match expects {
            true => reply(call.version, call.procedure),
            false => &[],
        };
        let (scan, xid) = (Scan::new(shapes), call.xid);
        Self { scan, xid }
    }

    /// Reads the next bytes of the reply.
    pub fn push(&mut self, bytes: &[u8]) {
        self.scan.push(bytes);
    }

    /// Ends the scan after the last byte of the reply. Returns its DDP-eligible result: `None` if
    /// the call expected none, and for errors, malformed replies, and replies to other calls.
    pub fn finish(self) -> Option<ItemPlace> {
        let Self { scan, xid } = self;
        let item = scan.item?;
        (scan.is_complete() && scan.note(Note::Xid) == xid).then_some(item)
    }
}
