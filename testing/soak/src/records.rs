//! Checks the RPC messages on one TCP connection.

use rpcrdma_watch::Watch;
use std::collections::BTreeSet;

/// A direction of a connection: from the end that connected, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    There,
    Back,
}

/// The messages that one connection carries in both directions: no call while the same one has no
/// reply, no reply without a call, and none twice.
pub(crate) struct Records {
    watch: Watch,
    name: String,
    there: Parser,
    back: Parser,
    /// Calls of the end that connected, and of the other, that have no reply.
    forward: BTreeSet<u32>,
    backward: BTreeSet<u32>,
}

/// Bytes that tell which message it is: XID and message type (RFC 5531 §9).
const HEAD: usize = 8;

/// Finds the beginnings of records (RFC 5531 §11).
#[derive(Default)]
struct Parser {
    /// Bytes of a mark that is not complete.
    mark: Vec<u8>,
    /// Bytes that are missing of the fragment.
    left: usize,
    last: bool,
    head: Vec<u8>,
}

impl Parser {
    /// Passes on XID and message type of each record that begins in these bytes.
    fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(u32, u32)) {
        while !bytes.is_empty() {
            if self.left == 0 {
                self.mark.push(bytes[0]);
                bytes = &bytes[1..];
                if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
                    let mark = u32::from_be_bytes(mark);
                    self.mark.clear();
                    self.last = mark & 0x8000_0000 != 0;
                    self.left = (mark & 0x7fff_ffff) as usize;
                    self.end_fragment();
                }
                continue;
            }
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
            if self.head.len() < HEAD {
                let missing = (HEAD - self.head.len()).min(part.len());
                self.head.extend_from_slice(&part[..missing]);
                if let Ok(head) = <[u8; HEAD]>::try_from(self.head.as_slice()) {
                    let [a, b, c, d, e, f, g, h] = head;
                    let word = u32::from_be_bytes;
                    found(word([a, b, c, d]), word([e, f, g, h]));
                }
            }
            self.left -= part.len();
            self.end_fragment();
            bytes = rest;
        }
    }

    fn end_fragment(&mut self) {
        if self.left == 0 && self.last {
            self.head.clear();
        }
    }
}

impl Records {
    pub(crate) fn new(watch: Watch, name: String) -> Self {
        Self {
            watch,
            name,
            there: Parser::default(),
            back: Parser::default(),
            forward: BTreeSet::new(),
            backward: BTreeSet::new(),
        }
    }

    /// These bytes were sent.
    pub(crate) fn sent(&mut self, lane: Lane, bytes: &[u8]) {
        let Self {
            watch,
            name,
            there,
            back,
            forward,
            backward,
        } = self;
        let (parser, calls, answered) = match lane {
            Lane::There => (there, forward, backward),
            Lane::Back => (back, backward, forward),
        };
        parser.feed(bytes, |xid, kind| match kind {
            0 if !calls.insert(xid) => watch.finding(format_args!(
                "{name}: call {xid:#010x} is sent while it is in flight"
            )),
            1 if !answered.remove(&xid) => watch.finding(format_args!(
                "{name}: {xid:#010x} is answered, but there is no such call, or no more"
            )),
            0 | 1 => {}
            other => watch.finding(format_args!("{name}: a message of type {other}")),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(xid: u32, kind: u32) -> Vec<u8> {
        let words = [0x8000_000c, xid, kind, 7];
        words.into_iter().flat_map(u32::to_be_bytes).collect()
    }

    fn findings(messages: &[(Lane, u32, u32)], piece: usize) -> usize {
        let watch = Watch::default();
        let mut records = Records::new(watch.clone(), "connection".into());
        for &(lane, xid, kind) in messages {
            for bytes in record(xid, kind).chunks(piece) {
                records.sent(lane, bytes);
            }
        }
        watch.findings().len()
    }

    #[test]
    fn second_reply_and_repeated_call_are_found_however_the_stream_is_cut() {
        use Lane::{Back, There};
        for piece in 1..20 {
            let found = |messages: &[(Lane, u32, u32)]| findings(messages, piece);
            let good = [(There, 1, 0), (There, 2, 0), (Back, 2, 1), (Back, 1, 1)];
            assert_eq!(found(&good), 0);
            assert_eq!(found(&[(There, 1, 0), (Back, 1, 1), (There, 1, 0)]), 0);
            assert_eq!(found(&[(There, 1, 0), (There, 1, 0)]), 1);
            assert_eq!(found(&[(There, 1, 0), (Back, 1, 1), (Back, 1, 1)]), 1);
            assert_eq!(found(&[(Back, 1, 1)]), 1);
            // The directions have XIDs of their own.
            let both = [(There, 1, 0), (Back, 1, 0), (There, 1, 1), (Back, 1, 1)];
            assert_eq!(found(&both), 0);
            assert_eq!(found(&[(There, 1, 0), (There, 1, 1)]), 1);
            assert_eq!(found(&[(There, 1, 9)]), 1);
        }
    }

    #[test]
    fn fragments_make_one_record() {
        let watch = Watch::default();
        let mut records = Records::new(watch.clone(), "connection".into());
        let words = [5, 0x0102_0304, 0, 0x8000_0008, 1, 1];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        // The first fragment has a byte of the message type, and the second the rest.
        bytes.drain(9..12);
        records.sent(Lane::There, &bytes);
        records.sent(Lane::Back, &record(0x0102_0304, 1));
        assert!(watch.findings().is_empty(), "{watch:?}");
    }
}
