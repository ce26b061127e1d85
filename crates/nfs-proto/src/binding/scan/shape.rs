//! Shapes: the parts of a message, as far as a scan needs to know them.

use crate::limits::{MAX_BITMAP, MAX_FILENAME, MAX_OPAQUE};
use oncrpc::RPC_VERSION;
use oncrpc::auth::MAX_AUTH_BODY;

/// A list of shapes that follow each other.
pub(super) type Shapes = &'static [Shape];

/// The arms of a union: discriminant and shapes.
pub(super) type Arms = &'static [(u32, Shapes)];

/// A word that a scan remembers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Xid,
    Program,
    Version,
    Procedure,
    Flavor,
    GssVersion,
    GssProcedure,
    GssService,
    MinorVersion,
    Count,
}

/// Part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// So many words that do not matter.
    Words(u8),
    /// A word to remember.
    Note(Note),
    /// This word; with another one the rest of the message is not known.
    Is(u32),
    /// Opaque or string of up to so many bytes.
    Opaque(u32),
    /// Boolean, and so many words if it is true.
    Optional(u8),
    /// Array of up to so many elements, of so many words each.
    Vector(u32, u8),
    /// Array of up to so many elements with these shapes, which have at least one word.
    Array(u32, Shapes),
    /// Linked list: before each element, and at the end, a Boolean whether there is one more.
    List(Shapes),
    /// Union by a word. A value without an arm has the other shapes; without those, the rest of
    /// the message is not known.
    Union(Arms, Option<Shapes>),
    /// `set_atime` or `set_mtime` of `sattr3` (RFC 1813 §2.6).
    SetTime,
    /// Length of a credential; its flavor decides what comes next.
    Credential,
    /// Rest of an RPCSEC_GSS credential. Has no bytes of its own.
    Handle,
    /// Arguments of the procedure. Has no bytes of its own.
    Arguments,
    /// The DDP-eligible item, of up to so many bytes.
    Item(u32),
    /// A DDP-eligible item for which this end offers no chunk, of up to so many bytes.
    Text(u32),

    /// Tag of a COMPOUND call, of up to so many bytes: the reply repeats it.
    Tag(u32),
    /// Number of operations of a COMPOUND call, up to this one, and the operations.
    Calls(u32),
    /// Number of an operation, and its arguments.
    Call,
    /// Number of results of a COMPOUND reply, up to this one, and the results.
    Results(u32),
    /// Number of an operation, and its result.
    Result,
    /// Largest number of bytes that the result may have, up to this one: it adds to the reply.
    Adds(u32),
    /// Largest number of elements that the result may have, up to this one, of so many bytes each.
    AddsEach(u32, u8),
    /// Array of up to so many elements, of so many words each, each of which adds a word to the reply.
    AddsWords(u32, u8),
    /// Largest number of bytes of a DDP-eligible result, up to this one.
    Data(u32),
    /// `bitmap4` of attributes that are returned in a `fattr4`.
    Attributes,
    /// One word of such a bitmap.
    AttributeBits,
    /// The reply has no bound. Has no bytes of its own.
    Unbounded,
    /// A word about the session or the connection to keep.
    Kept,
    /// A count of 0 or 1 to keep, and a word to keep for 1.
    KeptOption,
}

use Shape::{Arguments, Credential, Handle, Is, Opaque, Vector, Words};

/// `rpc_msg` of a call up to its credential (RFC 5531 §9).
pub(super) const CALL: Shapes = &[
    Shape::Note(Note::Xid),
    Is(0),
    Is(RPC_VERSION),
    Shape::Note(Note::Program),
    Shape::Note(Note::Version),
    Shape::Note(Note::Procedure),
    Shape::Note(Note::Flavor),
    Credential,
];

/// The verifier of a call and what follows.
pub(super) const VERIFIER: Shapes = &[Words(1), Opaque(MAX_AUTH_BODY), Arguments];

/// `rpc_gss_cred_t` (RFC 2203 §5), and the verifier.
pub(super) const GSS_CREDENTIAL: Shapes = &[
    Shape::Note(Note::GssVersion),
    Shape::Note(Note::GssProcedure),
    Words(1),
    Shape::Note(Note::GssService),
    Handle,
    Words(1),
    Opaque(MAX_AUTH_BODY),
    Arguments,
];

/// Shapes of an accepted, successful reply (RFC 5531 §9) with these results.
macro_rules! accepted {
    ($($result:expr),*) => {
        &[
            $crate::binding::scan::shape::Shape::Note($crate::binding::scan::shape::Note::Xid),
            $crate::binding::scan::shape::Shape::Is(1),
            $crate::binding::scan::shape::Shape::Is(0),
            $crate::binding::scan::shape::Shape::Words(1),
            $crate::binding::scan::shape::Shape::Opaque(oncrpc::auth::MAX_AUTH_BODY),
            $crate::binding::scan::shape::Shape::Is(0),
            $($result),*
        ]
    };
}
pub(super) use accepted;

/// `stateid4` (RFC 7530 §2.2.16).
pub(super) const STATEID: Shape = Words(4);
/// `bitmap4` (RFC 7530 §2.1).
pub(super) const BITMAP: Shape = Vector(MAX_BITMAP, 1);
/// `attrlist4` (RFC 7530 §2.1), after its bitmap.
pub(super) const ATTRIBUTES: Shape = Opaque(MAX_OPAQUE);
/// `component4` (RFC 7530 §2.1).
pub(super) const COMPONENT: Shape = Opaque(MAX_FILENAME);
/// An opaque or string whose length the protocol does not limit.
pub(super) const ANY: Shape = Opaque(MAX_OPAQUE);
