//! Word-by-word reader of the shapes of one message.

use super::compound;
use super::legacy;
use super::place::{ItemPlace, ItemPlaces};
use super::session::Kept;
use super::shape::{GSS_CREDENTIAL, Note, Shape, Shapes, VERIFIER};
use crate::limits::{MAX_BITMAP, MAX_ITEMS};
use crate::{NFS_PROGRAM, NFS_V2, NFS_V3, NFS_V4};
use oncrpc::auth::MAX_AUTH_BODY;
use oncrpc::xdr::padded;
use smallvec::SmallVec;

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
/// COMPOUND (RFC 7530 §15.2).
const COMPOUND: u32 = 1;

/// Depth of arrays and unions within each other. A test compares it with the tables.
pub(super) const DEPTH: usize = 6;

/// Position in a description behind an array or a union.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Elements still to come.
    left: u32,
    /// Shapes of an element.
    element: Shapes,
    /// Shapes after the last element.
    rest: Shapes,
}

/// Facts of the reply to a COMPOUND that a scan finds.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// Bytes of the results, without eligible data.
    pub(super) fixed: usize,
    /// Largest size of each eligible result.
    pub(super) results: SmallVec<[usize; 1]>,
    /// Whether a result has no bound.
    pub(super) unbounded: bool,
    /// Whether a READLINK stands before what follows.
    readlink: bool,
}

/// Results that are not in the stream of a reply, because they arrived in Write chunks.
#[derive(Clone, Debug, Default)]
pub(super) struct Absent {
    /// Bytes of each, in order, possibly with padding.
    pub(super) lengths: SmallVec<[usize; 1]>,
    /// Those already found.
    pub(super) found: usize,
    /// Chunks that were offered for results and came back unused.
    pub(super) unused: usize,
    /// First contradiction between stream and chunks.
    pub(super) error: Option<Mismatch>,
}

/// A by-reference argument that does not belong where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadItem {
    /// The eligible argument there has another length.
    Length,
    /// No argument there is eligible (RFC 8267 §4, §6.1).
    Ineligible,
}

/// Contradiction between a reduced stream and the data beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The chunk has another length than the result.
    Length { chunk: usize, result: usize },
    /// The result is part of the stream although its chunk has room.
    NotReduced,
}

/// Reader of one message.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    /// Shapes to come. `None`: what follows is not known.
    shapes: Option<Shapes>,
    /// Arrays and unions around them.
    frames: [Frame; DEPTH],
    depth: usize,
    /// Bytes of the whole stream consumed.
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
    /// Index of the next word in a bitmap.
    bitmap: u8,
    items: ItemPlaces,
    /// The items that are not in the stream, one bit each.
    taken: u32,
    /// The first one that does not belong where it stands.
    bad_item: Option<BadItem>,
    absent: Absent,
    room: Room,
    operations: SmallVec<[u8; 16]>,
    kept: Kept,
}

impl Scan {
    pub(super) fn new(shapes: Shapes) -> Self {
        const EMPTY: Frame = Frame {
            left: 0,
            element: &[],
            rest: &[],
        };
        Self {
            shapes: Some(shapes),
            frames: [EMPTY; DEPTH],
            depth: 0,
            at: 0,
            skip: 0,
            word: [0; 4],
            filled: 0,
            notes: [0; _],
            handle: 0,
            header: false,
            bitmap: 0,
            items: ItemPlaces::new(),
            taken: 0,
            bad_item: None,
            absent: Absent::default(),
            room: Room::default(),
            operations: SmallVec::new(),
            kept: Kept::default(),
        }
    }

    /// Begins the scan of a reply whose results arrived beside it.
    pub(super) fn reduced(shapes: Shapes, absent: Absent) -> Self {
        Self {
            absent,
            ..Self::new(shapes)
        }
    }

    pub(super) fn note(&self, note: Note) -> u32 {
        self.notes[note as usize]
    }

    /// Returns the first by-reference argument that does not belong where it stands.
    pub(super) fn bad_item(&self) -> Option<BadItem> {
        self.bad_item
    }

    /// Whether the header of a call was read.
    pub(super) fn has_header(&self) -> bool {
        self.header
    }

    /// Returns the items found so far. The last one may still be on its way.
    pub(super) fn items(&self) -> &[ItemPlace] {
        &self.items
    }

    /// Returns the items that are complete.
    pub(super) fn into_items(mut self) -> ItemPlaces {
        let at = self.at;
        self.items.retain(|item| item.end() <= at);
        self.items
    }

    /// Returns the items, with the offset of each in the stream without those that are not part of it.
    pub(super) fn reduced_places(&self) -> impl Iterator<Item = (ItemPlace, usize, bool)> {
        let mut before = 0;
        self.items.iter().enumerate().map(move |(index, &place)| {
            let taken = self.taken & (1 << index) != 0;
            let at = place.offset - before;
            before += if taken { padded(place.length) } else { 0 };
            (place, at, taken)
        })
    }

    pub(super) fn absent(&self) -> &Absent {
        &self.absent
    }

    pub(super) fn room(&self) -> &Room {
        &self.room
    }

    pub(super) fn operations(&self) -> &[u8] {
        &self.operations
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Whether the whole message had its shape.
    pub(super) fn is_complete(&self) -> bool {
        self.skip == 0
            && self.filled == 0
            && self.depth == 0
            && self.shapes.is_some_and(<[Shape]>::is_empty)
    }

    /// Whether the message ended before its shape.
    pub(super) fn is_truncated(&self) -> bool {
        self.shapes.is_some() && !self.is_complete()
    }

    /// Whether arguments and results can be read: RPCSEC_GSS neither protects them nor has
    /// replaced them.
    pub(super) fn is_clear(&self) -> bool {
        !self.is_gss()
            || (self.note(Note::GssVersion) == GSS_VERSION
                && self.note(Note::GssProcedure) == GSS_DATA
                && self.note(Note::GssService) == GSS_NONE)
    }

    /// Whether the credential is one of RPCSEC_GSS.
    pub(super) fn is_gss(&self) -> bool {
        self.note(Note::Flavor) == RPCSEC_GSS
    }

    /// Returns the bytes of the largest verifier in the reply.
    pub(super) fn verifier(&self) -> usize {
        match self.is_gss() {
            true => MAX_AUTH_BODY as usize,
            false => 0,
        }
    }

    /// Reads the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        loop {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                self.at += skipped;
                bytes = &bytes[skipped..];
            }
            if self.skip > 0 {
                return;
            }
            self.enter();
            if self.skip > 0 && !bytes.is_empty() {
                continue;
            }
            let Some(shapes @ [shape, ..]) = self.shapes else {
                self.at += bytes.len();
                return;
            };
            let Some(word) = self.next_word(&mut bytes) else {
                return;
            };
            self.shapes = self.read(*shape, word, shapes);
        }
    }

    /// Takes the next word, if all of it is there.
    fn next_word(&mut self, bytes: &mut &[u8]) -> Option<u32> {
        if self.filled == 0
            && let Some((word, rest)) = bytes.split_first_chunk()
        {
            self.at += 4;
            *bytes = rest;
            return Some(u32::from_be_bytes(*word));
        }
        let taken = bytes.len().min(4 - self.filled);
        self.word[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        self.at += taken;
        *bytes = &bytes[taken..];
        (self.filled == 4).then(|| {
            self.filled = 0;
            u32::from_be_bytes(self.word)
        })
    }

    /// Steps over an item of a received message that is not part of its stream. It must be the one
    /// whose length was just read.
    pub(super) fn step_over(&mut self, length: usize) {
        let place = self.items.last().copied();
        match place.filter(|place| place.offset == self.at && self.skip == padded(place.length)) {
            Some(place) if length == place.length || length == padded(place.length) => {
                self.taken |= 1 << (self.items.len() - 1);
                self.at = place.end();
                self.skip = 0;
                self.enter();
            }
            // Another item than the one whose length was read is nowhere.
            place => {
                // No more places are kept than there can be items.
                let is_within =
                    self.skip > 0 || self.shapes.is_some_and(|shapes| !shapes.is_empty());
                let is_known = self.items.len() < MAX_ITEMS && (is_within || self.is_whole());
                // RFC 8166 §6.1: also where it needs no padding, and would be the same call in the stream.
                let bad = match place {
                    Some(_) => BadItem::Length,
                    None => BadItem::Ineligible,
                };
                self.bad_item = self.bad_item.or(is_known.then_some(bad));
                let at = self.at;
                self.items.retain(|item| item.end() <= at);
                self.shapes = None;
                self.skip = 0;
                self.at += padded(length);
            }
        }
    }

    /// Reads the word of the first of these shapes. Returns the shapes that follow.
    fn read(&mut self, shape: Shape, word: u32, shapes: Shapes) -> Option<Shapes> {
        let rest = &shapes[1..];
        match shape {
            Shape::Words(count) => self.skip = 4 * (usize::from(count) - 1),
            Shape::Note(note) => self.notes[note as usize] = word,
            Shape::Is(value) if word == value => {}
            Shape::Opaque(limit) if word <= limit => self.skip = padded(word as usize),
            Shape::Optional(_) | Shape::SetTime if word == 0 => {}
            Shape::Optional(count) if word == 1 => self.skip = 4 * usize::from(count),
            Shape::SetTime if word == 1 => {}
            Shape::SetTime if word == 2 => self.skip = 8,
            Shape::Vector(limit, words) if word <= limit => {
                self.skip = 4 * usize::from(words) * word as usize;
            }
            Shape::Array(limit, element) if word <= limit => {
                return self.nest(word, element, rest);
            }
            // The element is followed by the same list.
            Shape::List(element) if word == 1 => return self.nest(1, element, shapes),
            Shape::List(_) if word == 0 => {}
            Shape::Union(arms, other) => {
                let arm = arms.iter().find(|(value, _)| *value == word);
                return self.nest(1, arm.map_or(other, |&(_, shapes)| Some(shapes))?, rest);
            }
            Shape::Credential if word <= MAX_AUTH_BODY => {
                return Some(self.credential(word as usize));
            }
            Shape::Item(limit) if word <= limit => self.item(word as usize),
            Shape::Text(limit) if word <= limit => self.text(word as usize),
            Shape::Is(_)
            | Shape::Opaque(_)
            | Shape::Optional(_)
            | Shape::Vector(..)
            | Shape::Array(..)
            | Shape::List(_)
            | Shape::SetTime
            | Shape::Credential
            | Shape::Item(_)
            | Shape::Text(_)
            | Shape::Handle
            | Shape::Arguments
            | Shape::Unbounded => return None,
            Shape::Tag(_)
            | Shape::Calls(_)
            | Shape::Call
            | Shape::Results(_)
            | Shape::Result
            | Shape::Adds(_)
            | Shape::AddsEach(..)
            | Shape::AddsWords(..)
            | Shape::Data(_)
            | Shape::Attributes
            | Shape::AttributeBits
            | Shape::Kept
            | Shape::KeptOption => return self.read_compound(shape, word, rest),
        }
        Some(rest)
    }

    /// Reads the word of a shape that only a COMPOUND has.
    fn read_compound(&mut self, shape: Shape, word: u32, rest: Shapes) -> Option<Shapes> {
        let size = word as usize;
        match shape {
            Shape::Tag(limit) if word <= limit => {
                self.skip = padded(size);
                self.add(Some(padded(size)));
            }
            Shape::Calls(limit) if word <= limit => return self.nest(word, &[Shape::Call], rest),
            Shape::Results(limit) if word <= limit => {
                return self.nest(word, &[Shape::Result], rest);
            }
            Shape::Call => {
                let (arguments, room) = compound::call(self.note(Note::MinorVersion), word)?;
                self.operations.push(u8::try_from(word).ok()?);
                self.room.readlink |= word == compound::operation::READLINK;
                self.add(room.bytes.map(|bytes| bytes + compound::RESULT_FIXED));
                return Some(arguments);
            }
            Shape::Result => {
                self.operations.push(u8::try_from(word).ok()?);
                return compound::result(word);
            }
            Shape::Adds(limit) => self.add((word <= limit).then(|| padded(size))),
            Shape::AddsEach(limit, bytes) => {
                self.add((word <= limit).then(|| size * usize::from(bytes)));
            }
            Shape::AddsWords(limit, words) if word <= limit => {
                self.skip = 4 * usize::from(words) * size;
                self.add(Some(4 * size));
            }
            Shape::Data(limit) if word <= limit => self.add_result(size),
            Shape::Data(_) => self.add(None),
            Shape::Attributes if word <= MAX_BITMAP => {
                self.bitmap = 0;
                return self.nest(word, &[Shape::AttributeBits], rest);
            }
            Shape::AttributeBits => {
                self.add(compound::bits(self.bitmap, word));
                self.bitmap += 1;
            }
            Shape::Kept => self.keep(word),
            Shape::KeptOption if word <= 1 => {
                self.keep(word);
                return self.nest(word, &[Shape::Kept], rest);
            }
            _ => return None,
        }
        Some(rest)
    }

    /// Goes on with so many elements of these shapes, and then with the rest.
    fn nest(&mut self, count: u32, element: Shapes, rest: Shapes) -> Option<Shapes> {
        match count {
            0 => return Some(rest),
            1 if rest.is_empty() => return Some(element),
            _ => {}
        }
        let frame = self.frames.get_mut(self.depth)?;
        let left = count - 1;
        *frame = Frame {
            left,
            element,
            rest,
        };
        self.depth += 1;
        Some(element)
    }

    /// Records an item that is part of the stream.
    fn text(&mut self, length: usize) {
        self.skip = padded(length);
        if self.items.len() < MAX_ITEMS {
            let offset = self.at;
            self.items.push(ItemPlace { offset, length });
        }
    }

    /// Records an item, and whether it is part of the stream.
    fn item(&mut self, length: usize) {
        if self.items.len() == MAX_ITEMS {
            self.skip = padded(length);
            return;
        }
        self.text(length);
        let absent = &mut self.absent;
        if length == 0 {
            // RFC 8166 §4.3.2.2: its chunk came back unused.
            absent.unused = absent.unused.saturating_sub(1);
            return;
        }
        match absent.lengths.get(absent.found) {
            Some(&chunk) if chunk == length || chunk == padded(length) => {
                absent.found += 1;
                self.step_over(chunk);
            }
            Some(&chunk) => {
                absent.error.get_or_insert(Mismatch::Length {
                    chunk,
                    result: length,
                });
            }
            None if absent.unused > 0 => {
                absent.error.get_or_insert(Mismatch::NotReduced);
            }
            None => {}
        }
    }

    /// Adds bytes to the reply; `None` if there is no bound.
    fn add(&mut self, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => self.room.fixed = self.room.fixed.saturating_add(bytes),
            None => self.room.unbounded = true,
        }
    }

    /// Adds an eligible result to the reply.
    fn add_result(&mut self, bytes: usize) {
        // RFC 8267 §6.4.1: chunks belong to results by order, and results beyond the chunks are part
        // of the stream. A READLINK has no chunk, so that of a READ behind it would be taken for its.
        let has_chunk = self.room.results.len() < MAX_ITEMS && !self.room.readlink;
        match has_chunk {
            true => self.room.results.push(bytes),
            false => self.add(Some(padded(bytes))),
        }
    }

    /// Keeps a word about session or connection.
    fn keep(&mut self, word: u32) {
        let operation = self.operations.last().copied().unwrap_or(0);
        self.kept
            .push(operation, self.operations.len(), self.at - 4, word);
    }

    fn credential(&mut self, length: usize) -> Shapes {
        let handle = padded(length).checked_sub(GSS_FIXED);
        let handle = handle.filter(|_| self.is_gss());
        match handle {
            Some(handle) => {
                self.handle = handle;
                GSS_CREDENTIAL
            }
            // One of RPCSEC_GSS that is too short has no version, so that its arguments are not read.
            None => {
                self.skip = padded(length);
                VERIFIER
            }
        }
    }

    /// Goes on to the next shape that has bytes.
    fn enter(&mut self) {
        loop {
            match self.shapes {
                Some([]) if self.depth > 0 => {
                    let frame = &mut self.frames[self.depth - 1];
                    if frame.left > 0 {
                        frame.left -= 1;
                        self.shapes = Some(frame.element);
                    } else {
                        self.shapes = Some(frame.rest);
                        self.depth -= 1;
                    }
                }
                Some([Shape::Handle, rest @ ..]) => {
                    self.skip = self.handle;
                    self.shapes = Some(rest);
                }
                Some([Shape::Unbounded, rest @ ..]) => {
                    self.room.unbounded = true;
                    self.shapes = Some(rest);
                }
                Some([Shape::Arguments, ..]) if self.skip == 0 => {
                    self.header = true;
                    self.shapes = self.is_clear().then(|| self.arguments());
                }
                _ => return,
            }
        }
    }

    /// Whether no argument is eligible but those that the shapes have: all procedures of these versions are known.
    fn is_whole(&self) -> bool {
        let (version, procedure) = (self.note(Note::Version), self.note(Note::Procedure));
        let is_nfs = self.header && self.note(Note::Program) == NFS_PROGRAM;
        is_nfs && self.is_clear() && legacy::is_known(version, procedure)
    }

    fn arguments(&self) -> Shapes {
        let (version, procedure) = (self.note(Note::Version), self.note(Note::Procedure));
        match (self.note(Note::Program), version) {
            (NFS_PROGRAM, NFS_V2 | NFS_V3) => legacy::arguments(version, procedure),
            (NFS_PROGRAM, NFS_V4) if procedure == COMPOUND => compound::CALL,
            _ => &[],
        }
    }
}

/// Returns the shapes of the reply to a procedure, if it may have eligible results or something
/// about the session.
pub(super) fn reply(program: u32, version: u32, procedure: u32) -> Shapes {
    match (program, version) {
        (NFS_PROGRAM, NFS_V2 | NFS_V3) => legacy::reply(version, procedure),
        (NFS_PROGRAM, NFS_V4) if procedure == COMPOUND => compound::REPLY,
        _ => &[],
    }
}

/// Whether a procedure is COMPOUND of NFS version 4.
pub(super) fn is_compound(program: u32, version: u32, procedure: u32) -> bool {
    (program, version, procedure) == (NFS_PROGRAM, NFS_V4, COMPOUND)
}
