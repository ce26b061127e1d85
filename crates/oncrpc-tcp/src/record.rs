//! Record marking: messages on a stream of bytes (RFC 5531 §11).
//!
//! A codec without I/O: it decodes received bytes and encodes messages to send.

use buffer::{Buffer, Pool};
use oncrpc::xdr::Payload;

/// Largest number of empty fragments of a record. Others are bounded by the bytes of the record; the limit stops a peer
/// that sends empty ones without end.
pub const MAX_EMPTY_FRAGMENTS: u32 = 1024;

/// Set in the mark of the last fragment of a record; the other bits are its length.
pub(crate) const LAST: u32 = 1 << 31;

/// How the key of each MPA frame begins, `MPA ID Req Frame` (RFC 5044 §7.1.1). As a mark it would be that of a
/// record of more than a gigabyte.
const MPA_KEY: &[u8; MARK] = b"MPA ";

/// Bytes of a mark.
pub(crate) const MARK: usize = 4;

/// Missing bytes of a fragment from which on they are read from the socket into the record.
const DIRECT: usize = 8 << 10;

/// Memory that a record gets first, however long it is announced.
pub(crate) const FIRST_ROOM: usize = 64 << 10;

/// Bytes of a message that say what it is: XID and type (RFC 5531 §9).
pub(crate) const PREFIX: usize = 8;

/// Memory that a record has at most, for each byte that has come. A record of a mebibyte then moves
/// once, after its first 64 KiB.
const ROOM_PER_BYTE: usize = 32;

/// Decodes records from a stream, in pieces of any size.
///
/// Memory grows with the bytes received, never with the length in a mark alone.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    pool: Option<Pool>,
    /// Memory that the record may have beyond what has come.
    granted: usize,
    /// Bytes of a large record that come before more is granted.
    first: usize,
    /// Bytes of a record that is skipped, as far as they have come.
    skipped: Option<usize>,
    /// Empty fragments of the record.
    empty: u32,
    record: Buffer,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In a mark, of which `have` bytes have come.
    Mark { bytes: [u8; MARK], have: usize },
    /// In a fragment, of which `left` bytes have not come.
    Fragment { left: usize, last: bool },
}

/// Likely cause of a record mark whose bytes are those of a text.
fn hint(len: usize) -> &'static str {
    let bytes = u32::try_from(len).unwrap_or_default().to_be_bytes();
    let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    match bytes.iter().all(is_text) {
        true => "; does the peer speak RPC?",
        false => "",
    }
}

/// Why a stream cannot be decoded further: the start of the next record is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record is larger than allowed.
    #[error("a record of {len} bytes or more exceeds the limit of {limit}{}", hint(*.len))]
    TooLarge {
        /// Length of the record so far, by its marks.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer speaks MPA, which is iWARP, and not RPC over TCP (RFC 5044 §7.1.1).
    #[error(
        "an RDMA (iWARP) peer is connected here, where RPC over TCP is spoken: it sent MPA; it should use the port for \
         RDMA, or mount with proto=tcp"
    )]
    Mpa,
    /// A record has more than [`MAX_EMPTY_FRAGMENTS`].
    #[error("a record has more than {MAX_EMPTY_FRAGMENTS} empty fragments")]
    TooManyEmptyFragments,
}

impl Decoder {
    /// Creates a decoder for a new stream, with records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            pool: None,
            granted: usize::MAX,
            first: FIRST_ROOM,
            skipped: None,
            empty: 0,
            record: Buffer::default(),
            state: State::START,
        }
    }

    /// Takes the memory of large records from a pool.
    #[must_use]
    pub fn with_pool(mut self, pool: Option<Pool>) -> Self {
        self.pool = pool;
        self
    }

    /// Consumes bytes from the front of `input` until a record is complete or nothing is left.
    ///
    /// # Errors
    ///
    /// If a record exceeds a limit. The stream cannot be used after that.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Payload>, RecordError> {
        loop {
            match self.state {
                State::Mark {
                    mut bytes,
                    mut have,
                } => {
                    while have < MARK {
                        let Some((&first, rest)) = input.split_first() else {
                            self.state = State::Mark { bytes, have };
                            return Ok(None);
                        };
                        bytes[have] = first;
                        have += 1;
                        *input = rest;
                    }
                    self.state = self.begin(u32::from_be_bytes(bytes))?;
                }
                State::Fragment { left, last } => {
                    let most = self.before_grant(left).unwrap_or(left);
                    let (now, later) = input.split_at(most.min(input.len()));
                    if let Some(skipped) = &mut self.skipped {
                        *skipped += now.len();
                    } else {
                        self.make_room(now.len(), left);
                        self.record.extend_from_slice(now);
                    }
                    *input = later;
                    if let Some(record) = self.advance(left - now.len(), last) {
                        return Ok(Some(record));
                    }
                    if left > now.len() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Memory for the next bytes of the stream, if they are the inside of a large fragment: to be
    /// read there without another copy, and [reported](Self::received).
    pub fn place(&mut self) -> Option<&mut [u8]> {
        let State::Fragment { left, .. } = self.state else {
            return None;
        };
        if left < DIRECT || self.record.is_empty() {
            return None;
        }
        if self.record.capacity() == self.record.len() {
            self.make_room(1, left);
        }
        let at = self.record.len();
        let end = self.record.capacity().min(at + left);
        Some(&mut self.record.memory_mut()[at..end])
    }

    /// Reports that the first `len` bytes of [`place`](Self::place) are there. Returns the record if
    /// it is complete.
    ///
    /// # Panics
    ///
    /// If the place is not as long.
    pub fn received(&mut self, len: usize) -> Option<Payload> {
        let State::Fragment { left, last } = self.state else {
            assert_eq!(len, 0, "bytes were placed within a fragment");
            return None;
        };
        self.record.set_len(self.record.len() + len);
        self.advance(left - len, last)
    }

    /// Limits the memory of the record to this many bytes, unless more come.
    pub(crate) fn grant(&mut self, bytes: usize) {
        self.granted = bytes;
    }

    /// Has each large record wait for a grant behind its [`PREFIX`].
    pub(crate) fn ask_early(&mut self) {
        self.first = PREFIX;
        self.granted = FIRST_ROOM;
    }

    /// XID and type of the record that waits for a grant.
    pub(crate) fn prefix(&self) -> Option<(u32, u32)> {
        let prefix: &[u8; PREFIX] = self.record.first_chunk()?;
        let [a, b, c, d, kind @ ..] = *prefix;
        Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(kind)))
    }

    /// Skips the rest of the record, whose memory is returned.
    pub(crate) fn skip(&mut self) {
        self.skipped = Some(std::mem::take(&mut self.record).len());
    }

    /// Bytes of the fragment that may come before more is granted, if that is to be so early.
    fn before_grant(&self, left: usize) -> Option<usize> {
        let have = self.record.len();
        let is_large = have + left > self.granted;
        let is_early = self.first == PREFIX && self.skipped.is_none();
        (is_early && is_large && have < PREFIX).then(|| PREFIX - have)
    }

    /// Bytes of the record that have come.
    pub(crate) fn have(&self) -> usize {
        self.record.len()
    }

    /// The length of the record as far as it is announced, if it has used up its first memory and
    /// needs more than it was granted.
    pub(crate) fn wants(&self) -> Option<usize> {
        let left = match self.state {
            State::Fragment { left, .. } => left,
            // Also where a read has ended between fragments.
            State::Mark { .. } => 0,
        };
        let wanted = self.record.len() + left;
        let is_waiting = self.record.len() >= self.first && self.skipped.is_none();
        (is_waiting && wanted > self.granted).then_some(wanted)
    }

    /// The largest length that the record can have: the announced one, or the limit if a further fragment
    /// follows.
    pub(crate) fn most(&self) -> usize {
        match self.state {
            State::Fragment { left, last: true } => self.record.len() + left,
            State::Fragment { .. } | State::Mark { .. } => self.limit,
        }
    }

    /// Takes note that `left` bytes of the fragment are missing; returns the record if it is
    /// complete.
    fn advance(&mut self, left: usize, last: bool) -> Option<Payload> {
        if left > 0 {
            self.state = State::Fragment { left, last };
            return None;
        }
        self.state = State::START;
        if !last {
            return None;
        }
        self.empty = 0;
        if self.skipped.take().is_some() {
            return None;
        }
        Some(Payload::new(std::mem::take(&mut self.record), 0))
    }

    /// Makes room for `more` bytes that have come, and for more of the `left` ones that are announced
    /// as far as the record has earned it.
    fn make_room(&mut self, more: usize, left: usize) {
        let have = self.record.len();
        if self.record.capacity() - have >= more {
            return;
        }
        if self.before_grant(left).is_some() {
            // The rest has its memory once that is granted.
            self.record.reserve(PREFIX - have);
            return;
        }
        let earned = ((have + more) * ROOM_PER_BYTE).max(FIRST_ROOM);
        let expected = match self.state {
            // A record of many small fragments moves when it has doubled, and not for each of these.
            State::Fragment { last: false, .. } => (have + left).max(2 * have).min(self.limit),
            State::Fragment { .. } | State::Mark { .. } => have + left,
        };
        let capacity = expected.min(earned.min(self.granted)).max(have + more);
        let mut larger = match &self.pool {
            Some(pool) if capacity > FIRST_ROOM => pool.take(capacity),
            Some(_) | None => Buffer::with_capacity(capacity),
        };
        larger.extend_from_slice(&self.record);
        self.record = larger;
    }

    /// Whether the stream is between records, where it may end.
    pub fn is_between_records(&self) -> bool {
        let has_some = !self.record.is_empty() || self.skipped.is_some() || self.empty > 0;
        !has_some && matches!(self.state, State::Mark { have: 0, .. })
    }

    fn begin(&mut self, mark: u32) -> Result<State, RecordError> {
        let left = (mark & !LAST) as usize;
        let len = self.record.len() + self.skipped.unwrap_or(0) + left;
        if len > self.limit && mark.to_be_bytes() == *MPA_KEY {
            return Err(RecordError::Mpa);
        }
        if len > self.limit {
            return Err(RecordError::TooLarge {
                len,
                limit: self.limit,
            });
        }
        self.empty += u32::from(left == 0);
        if self.empty > MAX_EMPTY_FRAGMENTS {
            return Err(RecordError::TooManyEmptyFragments);
        }
        Ok(State::Fragment {
            left,
            last: mark & LAST != 0,
        })
    }
}

impl State {
    const START: Self = Self::Mark {
        bytes: [0; MARK],
        have: 0,
    };
}

/// Appends a message to `out` as a record of one fragment; by-reference items are copied.
///
/// # Panics
///
/// If the message has 2 GiB or more, beyond any limit of this project.
pub fn encode(message: &Payload, out: &mut Buffer) {
    let len = u32::try_from(message.stream_len())
        .ok()
        .filter(|len| len & LAST == 0)
        .expect("a record is below 2 GiB");
    out.reserve(MARK + message.stream_len());
    out.extend_from_slice(&(len | LAST).to_be_bytes());
    message.copy_stream_into(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn payload(bytes: &[u8]) -> Payload {
        Payload::new(Buffer::from(bytes.to_vec()), 0)
    }

    fn decode_all(decoder: &mut Decoder, mut input: &[u8]) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut records = Vec::new();
        while let Some(record) = decoder.decode(&mut input)? {
            records.push(record.head().to_vec());
        }
        assert!(input.is_empty());
        Ok(records)
    }

    fn fragment(last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = u32::try_from(bytes.len()).unwrap() | if last { LAST } else { 0 };
        [&mark.to_be_bytes()[..], bytes].concat()
    }

    #[test]
    fn message_is_one_last_fragment() {
        let mut out = Buffer::default();
        encode(&payload(b"hello"), &mut out);
        assert_eq!(&out[..], b"\x80\0\0\x05hello");
    }

    #[test]
    fn fragments_are_put_together() {
        let stream = [
            fragment(false, b"ab"),
            fragment(false, b""),
            fragment(true, b"c"),
            fragment(true, b""),
        ]
        .concat();
        let mut decoder = Decoder::new(3);
        assert_eq!(
            decode_all(&mut decoder, &stream).unwrap(),
            [b"abc".to_vec(), vec![]]
        );
        assert!(decoder.is_between_records());
    }

    #[test]
    fn record_past_the_limit_is_refused_at_its_mark() {
        let mut decoder = Decoder::new(8);
        assert_eq!(
            decode_all(&mut decoder, &fragment(true, &[0; 8])).unwrap(),
            [vec![0; 8]]
        );
        let stream = [fragment(false, &[0; 5]), 4u32.to_be_bytes().to_vec()].concat();
        assert_eq!(
            decode_all(&mut decoder, &stream).unwrap_err(),
            RecordError::TooLarge { len: 9, limit: 8 }
        );
    }

    #[test]
    fn mpa_request_is_told_from_a_large_record() {
        let mut decoder = Decoder::new(4 << 20);
        let error = decode_all(&mut decoder, b"MPA ID Req Frame").unwrap_err();
        assert_eq!(error, RecordError::Mpa);
    }

    #[test]
    fn announced_record_length_allocates_nothing() {
        let mut decoder = Decoder::new(1 << 30);
        let mark = (LAST | 1 << 30).to_be_bytes();
        assert!(decode_all(&mut decoder, &mark).unwrap().is_empty());
        assert_eq!(decoder.record.capacity(), 0);
        assert!(!decoder.is_between_records());
    }

    #[test]
    fn number_of_empty_fragments_is_bounded() {
        let mut decoder = Decoder::new(8);
        let empty = [0; MARK].repeat(MAX_EMPTY_FRAGMENTS as usize);
        assert!(decode_all(&mut decoder, &empty).unwrap().is_empty());
        assert_eq!(
            decode_all(&mut decoder, &[0; MARK]).unwrap_err(),
            RecordError::TooManyEmptyFragments
        );
    }

    #[test]
    fn number_of_fragments_with_bytes_is_bounded_by_the_length_of_the_record_alone() {
        const LIMIT: usize = 3 << 20;
        for len in [2048, 50, 1] {
            let (mut stream, mut moves, mut room) = (Vec::new(), 0, 0);
            let message = vec![7; LIMIT.min(5000 * len)];
            let mut decoder = Decoder::new(LIMIT);
            let mut fragments = message.chunks(len).peekable();
            while let Some(bytes) = fragments.next() {
                stream = fragment(fragments.peek().is_none(), bytes);
                if fragments.peek().is_some() {
                    assert!(decode_all(&mut decoder, &stream).unwrap().is_empty());
                    moves += usize::from(decoder.record.capacity() != room);
                    room = decoder.record.capacity();
                    assert!(room <= FIRST_ROOM.max(2 * decoder.record.len()));
                }
            }
            assert_eq!(decode_all(&mut decoder, &stream).unwrap(), [message]);
            assert!(moves <= 16, "it was copied {moves} times");
        }
    }

    #[test]
    fn large_record_is_read_in_place_and_its_memory_grows_with_what_has_come() {
        let len = 1 << 20;
        let message: Vec<u8> = (0..1_u32 << 20).map(|at| at.to_le_bytes()[1]).collect();
        let stream = fragment(true, &message);
        for pool in [None, Some(Pool::new(0))] {
            let mut decoder = Decoder::new(len).with_pool(pool);
            let (staged, mut rest) = stream.split_at(100);
            assert!(decoder.decode(&mut &staged[..]).unwrap().is_none());
            assert_eq!(decoder.record.capacity(), FIRST_ROOM);
            let mut record = None;
            while let Some(place) = decoder.place() {
                let now = place.len().min(50_000);
                place[..now].copy_from_slice(&rest[..now]);
                rest = &rest[now..];
                record = decoder.received(now);
                let room = decoder.record.capacity();
                assert!(room <= FIRST_ROOM || room <= decoder.record.len() * ROOM_PER_BYTE);
            }
            if record.is_none() {
                record = decoder.decode(&mut rest).unwrap();
            }
            assert!(record.unwrap().head() == message);
            assert!(decoder.is_between_records());
        }
    }

    proptest! {
        #[test]
        fn records_are_decoded_however_the_stream_is_cut(
            records in vec(vec(any::<u8>(), 0..40), 1..6),
            cuts in vec(1usize..9, 1..60),
        ) {
            let mut stream = Buffer::default();
            for record in &records {
                encode(&payload(record), &mut stream);
            }
            let mut decoder = Decoder::new(40);
            let mut rest = &stream[..];
            let mut cuts = cuts.iter().cycle();
            let mut found = Vec::new();
            while !rest.is_empty() {
                let (piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                found.extend(decode_all(&mut decoder, piece).unwrap());
                rest = later;
            }
            prop_assert_eq!(found, records);
        }

        #[test]
        fn records_are_decoded_whether_staged_or_in_place(
            lens in vec(0usize..100_000, 1..4),
            fragment_len in 20usize..50_000,
            cuts in vec(1usize..30_000, 1..20),
            granted in prop::option::of(FIRST_ROOM..150_000),
        ) {
            let mut stream = Vec::new();
            let records: Vec<Vec<u8>> = lens
                .iter()
                .map(|len| (0..*len).map(|at| at.to_le_bytes()[0]).collect())
                .collect();
            for record in &records {
                let mut fragments = record.chunks(fragment_len).peekable();
                while let Some(bytes) = fragments.next() {
                    stream.extend(fragment(fragments.peek().is_none(), bytes));
                }
                if record.is_empty() {
                    stream.extend(fragment(true, b""));
                }
            }
            let mut decoder = Decoder::new(100_000);
            decoder.granted = granted.unwrap_or(usize::MAX);
            let mut rest = &stream[..];
            let mut cuts = cuts.iter().cycle();
            let mut found = Vec::new();
            while !rest.is_empty() {
                let cut = *cuts.next().unwrap();
                if let Some(place) = decoder.place() {
                    let (now, later) = rest.split_at(cut.min(place.len()).min(rest.len()));
                    place[..now.len()].copy_from_slice(now);
                    found.extend(decoder.received(now.len()).map(|record| record.head().to_vec()));
                    rest = later;
                } else {
                    let (piece, later) = rest.split_at(cut.min(rest.len()));
                    found.extend(decode_all(&mut decoder, piece).unwrap());
                    rest = later;
                }
            }
            prop_assert!(found == records);
        }

        #[test]
        fn no_stream_makes_the_decoder_panic(bytes in vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::new(100);
            let mut input = &bytes[..];
            while let Ok(Some(record)) = decoder.decode(&mut input) {
                prop_assert!(record.head().len() <= 100);
            }
        }
    }
}
