//! Record marking: messages on a stream of bytes (RFC 5531 §11).
//!
//! A codec without I/O: it decodes received bytes and encodes messages to send.

use buffer::Buffer;
use oncrpc::xdr::Payload;

/// Largest number of fragments of a record. Known peers send one; the limit stops a peer that sends
/// empty fragments without end.
pub const MAX_FRAGMENTS: u32 = 1024;

/// Set in the mark of the last fragment of a record; the other bits are its length.
const LAST: u32 = 1 << 31;

/// Bytes of a mark.
const MARK: usize = 4;

/// Decodes records from a stream, in pieces of any size.
///
/// Memory grows with the bytes received, never with the length in a mark.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    fragments: u32,
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

/// Why a stream cannot be decoded further: the start of the next record is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record is larger than allowed.
    #[error("a record of {len} bytes or more exceeds the limit of {limit}")]
    TooLarge {
        /// Length of the record so far, by its marks.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A record has more than [`MAX_FRAGMENTS`].
    #[error("a record has more than {MAX_FRAGMENTS} fragments")]
    TooManyFragments,
}

impl Decoder {
    /// Creates a decoder for a new stream, with records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            fragments: 0,
            record: Buffer::default(),
            state: State::START,
        }
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
                    let (now, later) = input.split_at(left.min(input.len()));
                    self.record.extend_from_slice(now);
                    *input = later;
                    let left = left - now.len();
                    if left > 0 {
                        self.state = State::Fragment { left, last };
                        return Ok(None);
                    }
                    self.state = State::START;
                    if last {
                        self.fragments = 0;
                        return Ok(Some(Payload::new(std::mem::take(&mut self.record), 0)));
                    }
                }
            }
        }
    }

    /// Whether the stream is between records, where it may end.
    pub fn is_between_records(&self) -> bool {
        self.fragments == 0 && matches!(self.state, State::Mark { have: 0, .. })
    }

    fn begin(&mut self, mark: u32) -> Result<State, RecordError> {
        let left = (mark & !LAST) as usize;
        let len = self.record.len() + left;
        if len > self.limit {
            return Err(RecordError::TooLarge {
                len,
                limit: self.limit,
            });
        }
        self.fragments += 1;
        if self.fragments > MAX_FRAGMENTS {
            return Err(RecordError::TooManyFragments);
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
        let empty = [0; MARK].repeat(MAX_FRAGMENTS as usize);
        assert!(decode_all(&mut decoder, &empty).unwrap().is_empty());
        assert_eq!(
            decode_all(&mut decoder, &[0; MARK]).unwrap_err(),
            RecordError::TooManyFragments
        );
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
        fn no_stream_makes_the_decoder_panic(bytes in vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::new(100);
            let mut input = &bytes[..];
            while let Ok(Some(record)) = decoder.decode(&mut input) {
                prop_assert!(record.head().len() <= 100);
            }
        }
    }
}
