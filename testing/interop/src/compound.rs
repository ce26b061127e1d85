//! A client of NFSv4.1 over TCP that sends COMPOUNDs no kernel's client makes: operations in any order, with a
//! session around them (RFC 8881).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Of one reply.
const LIMIT: Duration = Duration::from_secs(60);

/// Bytes of the largest record that is taken from a server, and of the largest message of the session.
const MAX_RECORD: u32 = 1 << 20;

/// Entries of a directory in one reply.
const MAX_ENTRIES: usize = 10_000;

const LAST_FRAGMENT: u32 = 1 << 31;

/// The program, its version, and the procedure COMPOUND.
const COMPOUND: [u32; 3] = [100_003, 4, 1];
const MINOR_VERSION: u32 = 1;

/// The stateid that the operations before have left (RFC 8881 §16.2.3.1.2).
const CURRENT_STATEID: [u32; 4] = [1, 0, 0, 0];

/// Numbers of operations (RFC 8881 §16.2.3, RFC 7530 §16.2.3).
mod op {
    pub(super) const CLOSE: u32 = 4;
    pub(super) const CREATE: u32 = 6;
    pub(super) const LOOKUP: u32 = 15;
    pub(super) const OPEN: u32 = 18;
    pub(super) const PUTROOTFH: u32 = 24;
    pub(super) const READ: u32 = 25;
    pub(super) const READDIR: u32 = 26;
    pub(super) const READLINK: u32 = 27;
    pub(super) const WRITE: u32 = 38;
    pub(super) const EXCHANGE_ID: u32 = 42;
    pub(super) const CREATE_SESSION: u32 = 43;
    pub(super) const SEQUENCE: u32 = 53;
    pub(super) const RECLAIM_COMPLETE: u32 = 58;
}

/// Operations of a COMPOUND.
#[derive(Default)]
pub(super) struct Operations {
    count: u32,
    words: Words,
}

impl Operations {
    /// Makes a name in the root the current file.
    pub(super) fn at(mut self, name: &str) -> Self {
        self.add(op::PUTROOTFH);
        self.add(op::LOOKUP).opaque(name.as_bytes());
        self
    }

    pub(super) fn readlink(mut self) -> Self {
        self.add(op::READLINK);
        self
    }

    /// READ, without having opened the file (RFC 8881 §8.2.3).
    pub(super) fn read(mut self, offset: u32, count: u32) -> Self {
        self.add(op::READ).all(&[0, 0, 0, 0, 0, offset, count]);
        self
    }

    /// READDIR from the beginning, without attributes.
    pub(super) fn readdir(mut self, count: u32) -> Self {
        self.add(op::READDIR).all(&[0, 0, 0, 0, count, count, 0]);
        self
    }

    fn add(&mut self, operation: u32) -> &mut Words {
        self.count += 1;
        self.words.all(&[operation])
    }
}

/// Result of an operation that reads.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Text(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<Vec<u8>>),
}

/// A connection with a session of one slot.
pub(super) struct Session {
    stream: TcpStream,
    xid: u32,
    client: [u32; 2],
    id: [u32; 4],
    sequence: u32,
}

impl Session {
    /// Connects to a port of this machine, as the client of this name.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or the server refuses the session.
    pub(super) fn open(port: u16, owner: &str) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let mut session = Self {
            stream,
            xid: 0,
            client: [0; 2],
            id: [0; 4],
            sequence: 0,
        };
        let mut exchange = Operations::default();
        exchange.add(op::EXCHANGE_ID).all(&[0, 1]);
        // Flags, no state protection, no implementation.
        exchange.words.opaque(owner.as_bytes()).all(&[0, 0, 0]);
        let mut results = session.call(&exchange)?;
        results.begins(op::EXCHANGE_ID)?;
        session.client = results.array()?;
        let sequence = results.word()?;
        let mut create = Operations::default();
        let words = create.add(op::CREATE_SESSION);
        words.all(&session.client).all(&[sequence, 0]);
        for _ in ["fore", "back"] {
            // Padding, sizes of a call, of a reply and of one that is kept, operations, calls, no RDMA.
            words.all(&[0, MAX_RECORD, MAX_RECORD, 4096, 16, 1, 0]);
        }
        // A program for callbacks, and AUTH_NONE for them.
        words.all(&[0x4000_0000, 1, 0]);
        let mut results = session.call(&create)?;
        results.begins(op::CREATE_SESSION)?;
        session.id = results.array()?;
        let mut complete = Operations::default();
        complete.add(op::RECLAIM_COMPLETE).all(&[0]);
        session.sequenced(&complete)?;
        Ok(session)
    }

    /// Makes a symbolic link in the root.
    ///
    /// # Errors
    ///
    /// The server refuses it, or does not answer.
    pub(super) fn make_link(&mut self, name: &str, text: &[u8]) -> Result<()> {
        let mut operations = Operations::default();
        operations.add(op::PUTROOTFH);
        let words = operations.add(op::CREATE).all(&[5]);
        // No attributes.
        words.opaque(text).opaque(name.as_bytes()).all(&[0, 0]);
        self.sequenced(&operations).map(drop)
    }

    /// Makes a file in the root.
    ///
    /// # Errors
    ///
    /// The server refuses it, or does not answer.
    pub(super) fn make_file(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let mut operations = Operations::default();
        operations.add(op::PUTROOTFH);
        // For writing, without a delegation, and denying nothing.
        let words = operations.add(op::OPEN).all(&[0, 0x402, 0]);
        words.all(&self.client).opaque(b"owner");
        // UNCHECKED, with a mode; by name.
        words.all(&[1, 0, 2, 0, 2]).opaque(&0o644_u32.to_be_bytes());
        words.all(&[0]).opaque(name.as_bytes());
        let words = operations.add(op::WRITE).all(&CURRENT_STATEID);
        // At the beginning, FILE_SYNC.
        words.all(&[0, 0, 2]).opaque(data);
        operations.add(op::CLOSE).all(&[0]).all(&CURRENT_STATEID);
        self.sequenced(&operations).map(drop)
    }

    /// Makes a COMPOUND of these operations, and returns what was read.
    ///
    /// # Errors
    ///
    /// An operation fails, or there is no reply.
    pub(super) fn read(&mut self, operations: &Operations) -> Result<Vec<Outcome>> {
        let mut results = self.sequenced(operations)?;
        let mut read = Vec::new();
        for _ in 0..operations.count {
            read.extend(results.outcome()?);
        }
        ensure!(
            results.0.is_empty(),
            "there is something behind the results"
        );
        Ok(read)
    }

    /// Puts a SEQUENCE in front, and takes its result off.
    fn sequenced(&mut self, operations: &Operations) -> Result<Reply> {
        self.sequence += 1;
        let mut whole = Operations::default();
        let words = whole.add(op::SEQUENCE).all(&self.id);
        words.all(&[self.sequence, 0, 0, 0]);
        whole.count += operations.count;
        whole.words.0.extend(&operations.words.0);
        let mut results = self.call(&whole)?;
        results.begins(op::SEQUENCE)?;
        results.array::<9>()?;
        Ok(results)
    }

    /// Makes a call, and returns the results if all operations have succeeded.
    fn call(&mut self, operations: &Operations) -> Result<Reply> {
        self.xid += 1;
        let mut call = Words::default();
        call.all(&[self.xid, 0, 2]).all(&COMPOUND);
        // AUTH_SYS of root: a stamp, the machine, user, group, no further groups. No verifier.
        call.all(&[1, 24, 0]).opaque(b"host").all(&[0, 0, 0, 0, 0]);
        // No tag.
        call.all(&[0, MINOR_VERSION, operations.count]);
        call.0.extend(&operations.words.0);
        let mark = u32::try_from(call.0.len())? | LAST_FRAGMENT;
        let record = [&mark.to_be_bytes(), &call.0[..]].concat();
        self.stream.write_all(&record)?;
        let mut reply = Reply(self.record().context("the reply")?);
        // XID, REPLY, accepted, a verifier without content, and success.
        let head = reply.array()?;
        ensure!(head == [self.xid, 1, 0, 0, 0, 0], "the reply is {head:?}");
        let status = reply.word()?;
        ensure!(status == 0, "the COMPOUND fails with {status}");
        reply.opaque()?;
        let count = reply.word()?;
        ensure!(
            count == operations.count,
            "{count} results of {} operations",
            operations.count
        );
        Ok(reply)
    }

    fn record(&mut self) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = mark & !LAST_FRAGMENT;
            ensure!(
                whole.len() + length as usize <= MAX_RECORD as usize,
                "a record of {length} bytes"
            );
            let begin = whole.len();
            whole.resize(begin + length as usize, 0);
            self.stream.read_exact(&mut whole[begin..])?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(whole);
            }
        }
    }
}

/// XDR that is written.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn all(&mut self, words: &[u32]) -> &mut Self {
        self.0
            .extend(words.iter().flat_map(|word| word.to_be_bytes()));
        self
    }

    fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.all(&[u32::try_from(bytes.len()).expect("short")]);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// Rest of a reply.
struct Reply(Vec<u8>);

impl Reply {
    /// Takes off the beginning of the result of an operation, which must be this one and have succeeded.
    fn begins(&mut self, operation: u32) -> Result<()> {
        let [found, status] = self.array()?;
        ensure!(
            [found, status] == [operation, 0],
            "operation {found} with status {status} in place of {operation}"
        );
        Ok(())
    }

    /// Takes off the result of an operation, and returns what that has read.
    fn outcome(&mut self) -> Result<Option<Outcome>> {
        let [operation, status] = self.array()?;
        ensure!(status == 0, "operation {operation} fails with {status}");
        Ok(match operation {
            op::PUTROOTFH | op::LOOKUP => None,
            op::READLINK => Some(Outcome::Text(self.opaque()?)),
            op::READ => {
                self.word()?;
                Some(Outcome::Data(self.opaque()?))
            }
            op::READDIR => Some(Outcome::Names(self.names()?)),
            other => bail!("the result of operation {other}"),
        })
    }

    /// A verifier, entries with cookie, name and no attributes, and whether they are all.
    fn names(&mut self) -> Result<Vec<Vec<u8>>> {
        self.array::<2>()?;
        let mut names = Vec::new();
        while self.word()? == 1 {
            ensure!(names.len() < MAX_ENTRIES, "more than {MAX_ENTRIES} entries");
            self.array::<2>()?;
            names.push(self.opaque()?);
            let bits = self.word()?;
            ensure!(bits <= 3, "a bitmap of {bits} words");
            for _ in 0..bits {
                self.word()?;
            }
            self.opaque()?;
        }
        self.word()?;
        Ok(names)
    }

    fn opaque(&mut self) -> Result<Vec<u8>> {
        let length = self.word()? as usize;
        let mut bytes = self.bytes(length.next_multiple_of(4))?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u32; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Ok(words)
    }

    fn word(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        ensure!(count <= self.0.len(), "the reply is cut off");
        let rest = self.0.split_off(count);
        Ok(std::mem::replace(&mut self.0, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_behind_each_other() {
        let mut words = Words::default();
        words.all(&[op::PUTROOTFH, 0, op::READLINK, 0]).opaque(b"t");
        words.all(&[op::READ, 0, 1]).opaque(b"data.");
        // Two entries, of which one has a bitmap of a word that is zero.
        words.all(&[op::READDIR, 0, 0, 0, 1, 0, 1]).opaque(b"one");
        words.all(&[0, 0, 1, 0, 2]).opaque(b"two").all(&[1, 0, 0]);
        words.all(&[0, 1]);
        let mut reply = Reply(words.0);
        assert_eq!(reply.outcome().unwrap(), None);
        let text = reply.outcome().unwrap();
        assert_eq!(text, Some(Outcome::Text(b"t".to_vec())));
        let data = reply.outcome().unwrap();
        assert_eq!(data, Some(Outcome::Data(b"data.".to_vec())));
        let names = reply.outcome().unwrap();
        let two = [&b"one"[..], b"two"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(names, Some(Outcome::Names(two)));
        assert!(reply.0.is_empty());
    }

    #[test]
    fn failed_operation_and_reply_that_is_cut_off_are_errors() {
        let check = |words: &[u32]| {
            let mut all = Words::default();
            all.all(words);
            assert!(Reply(all.0).outcome().is_err(), "{words:?}");
        };
        check(&[op::READ, 13]);
        check(&[op::READ, 0, 1, 8, 0]);
        check(&[op::READDIR, 0, 0, 0, 1, 0, 1, 0, 4]);
        check(&[99, 0]);
    }
}
