//! One end of an iWARP connection.

use super::crc::crc32c;
use super::ddp::{Segment, opcode};
use super::mpa::{Header, Request};
use crate::{as_words, words};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Queues of untagged messages (RFC 5040 §4).
const QUEUES: usize = 3;
const QUEUE_READ: u32 = 1;
const QUEUE_TERMINATE: u32 = 2;

/// The STag that our own Read Requests name for the answer.
const SINK: u32 = 0x1234_5600;

/// Most octets of a message, or of a Read Response, of the other end.
const MAX_MESSAGE: usize = 16 << 20;

/// Octets of a Read Response in one FPDU.
const RESPONSE_PIECE: usize = 60_000;

/// A connection on which anything can be said.
#[derive(Debug)]
pub struct Peer {
    socket: TcpStream,
    patience: Duration,
    /// When what is read now has to be there.
    until: Instant,
    crc: bool,
    /// The private data of the other end, without IRD and ORD.
    pub private_data: Vec<u8>,
    /// IRD and ORD of the other end, with the flags in their upper bits, if its frame was enhanced (RFC 6581 §9).
    pub depths: Option<[u16; 2]>,
    /// The next message sequence number of each queue.
    next: [u32; QUEUES],
    /// Memory that the other end may read and write, by STag, from offset 0 on.
    pub memory: BTreeMap<u32, Vec<u8>>,
    /// Read Requests that were taken in.
    pub reads: usize,
    /// The STags that Read Requests named for the answers, while these are not given.
    pub asked_for: Vec<u32>,
    /// Whether Read Requests are answered.
    pub answers_reads: bool,
    /// Whether access to what is not in memory is taken for the end of the connection, instead of
    /// a fault of the other end.
    pub refuses_access: bool,
    /// Markers that the other end has sent, each of which pointed where it should.
    pub markers_seen: usize,
    message: Vec<u8>,
    response: Vec<u8>,
    /// Bytes received of the current FPDU, markers included.
    fpdu: Vec<u8>,
    markers: Option<Markers>,
}

/// Position in the incoming stream, if it has markers (RFC 5044 §4.3).
#[derive(Clone, Copy, Debug, Default)]
struct Markers {
    /// Bytes since the first FPDU, markers included.
    at: usize,
    /// Position of the length field of the current FPDU.
    length_field: Option<usize>,
}

/// From the first byte of one marker to that of the next.
const MARKER_PERIOD: usize = 512;

/// A message or Terminate that was received, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A Send, and the STag that it took away.
    Message {
        /// The message.
        bytes: Vec<u8>,
        /// The STag.
        invalidated: Option<u32>,
    },
    /// The data of a Read Response.
    Read(Vec<u8>),
    /// A Terminate.
    Terminate(Cause),
    /// The end of the connection.
    Closed,
}

/// Layer, type and code of a Terminate (RFC 5040 §4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause(pub u8, pub u8, pub u8);

/// Why nothing was heard.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Nothing came in time.
    #[error("nothing came in {0:?}")]
    Silence(Duration),
    /// The other end broke a rule.
    #[error("{0}")]
    Broken(String),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

fn broken<T>(why: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Broken(why.into()))
}

impl Peer {
    /// A TCP connection on which nothing was said. Reading and writing may take `patience`.
    ///
    /// # Errors
    ///
    /// If the socket cannot be set up.
    pub fn over(socket: TcpStream, patience: Duration) -> io::Result<Self> {
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            patience,
            until: Instant::now(),
            crc: true,
            private_data: Vec::new(),
            depths: None,
            next: [1; QUEUES],
            memory: BTreeMap::new(),
            reads: 0,
            asked_for: Vec::new(),
            answers_reads: true,
            refuses_access: false,
            markers_seen: 0,
            message: Vec::new(),
            response: Vec::new(),
            fpdu: Vec::new(),
            markers: None,
        })
    }

    /// Connects, and says nothing.
    ///
    /// # Errors
    ///
    /// If nobody accepts the connection in time.
    pub fn silent(to: SocketAddr, patience: Duration) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&to, patience)?, patience)
    }

    /// Takes in a client's request and its private data.
    ///
    /// # Errors
    ///
    /// If no request comes, or it is none.
    pub fn request(&mut self) -> Result<Header, Trouble> {
        let mut header = [0; Header::LEN];
        self.until = Instant::now() + self.patience;
        self.read_exact(&mut header)?;
        let Some(request) = Header::of_request(header) else {
            return broken("the first frame is no MPA Request");
        };
        self.data_of(request)?;
        Ok(request)
    }

    /// Takes in the reply to a request: `None` if the connection ends instead.
    ///
    /// # Errors
    ///
    /// If none comes, or it is none.
    pub fn reply(&mut self, request: &Request) -> Result<Option<Header>, Trouble> {
        let mut header = [0; Header::LEN];
        self.until = Instant::now() + self.patience;
        if !self.read_all(&mut header)? {
            return Ok(None);
        }
        let Some(reply) = Header::of_reply(header) else {
            return broken("the answer to an MPA Request is no MPA Reply");
        };
        self.data_of(reply)?;
        self.crc = reply.crc() || request.asks_for_crc();
        if request.asks_for_markers() {
            self.markers = Some(Markers::default());
        }
        Ok(Some(reply))
    }

    fn data_of(&mut self, header: Header) -> Result<(), Trouble> {
        let mut data = vec![0; header.data_len()];
        self.read_exact(&mut data)?;
        if header.enhanced() {
            let Some(&[a, b, c, d]) = data.first_chunk() else {
                return broken("an enhanced MPA frame has no IRD and ORD");
            };
            self.depths = Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            data.drain(..4);
        }
        self.private_data = data;
        Ok(())
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), Trouble> {
        match self.read_all(bytes)? {
            true => Ok(()),
            false => Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Reads these bytes in the time that there is, however few come at a time; false if the connection ends first.
    fn read_all(&mut self, bytes: &mut [u8]) -> Result<bool, Trouble> {
        let mut rest = bytes;
        let read = loop {
            if rest.is_empty() {
                break Ok(true);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Trouble::Silence(self.patience));
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.read(rest) {
                Ok(0) => break Ok(false),
                Ok(count) => rest = &mut rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_end(error.kind()) => break Ok(false),
                Err(error) => break Err(self.trouble(error)),
            }
        };
        self.socket.set_read_timeout(Some(self.patience))?;
        read
    }

    fn trouble(&self, error: io::Error) -> Trouble {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Trouble::Silence(self.patience),
            _ => Trouble::Socket(error),
        }
    }

    /// Whether frames have a CRC, if it was not learnt from a reply.
    pub fn uses_crc(&mut self, crc: bool) {
        self.crc = crc;
    }

    /// Sends bytes as they are. The other end may have hung up already: that shows in what is heard.
    ///
    /// # Errors
    ///
    /// If the other end takes in nothing for too long.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self.socket.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) if is_end(error.kind()) => Ok(()),
            Err(error) => Err(self.trouble(error)),
        }
    }

    /// Shuts down our half of the stream.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub fn hang_up(&mut self) -> Result<(), Trouble> {
        match self.socket.shutdown(Shutdown::Write) {
            Ok(()) => Ok(()),
            Err(error) if is_end(error.kind()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The socket, for what is no frame.
    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Waits until there is something to hear, or the connection has ended; false if neither came in time.
    ///
    /// # Errors
    ///
    /// If the socket fails.
    pub fn comes_within(&mut self, limit: Duration) -> io::Result<bool> {
        self.socket.set_read_timeout(Some(limit))?;
        let seen = self.socket.peek(&mut [0]);
        self.socket.set_read_timeout(Some(self.patience))?;
        match seen {
            Ok(_) => Ok(true),
            Err(error) if is_end(error.kind()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Frames a ULPDU as it should be.
    ///
    /// # Panics
    ///
    /// If it has more bytes than a length can say.
    pub fn framed(&self, ulpdu: &[u8]) -> Vec<u8> {
        self.padded(ulpdu, 0)
    }

    /// Frames a ULPDU with this value in each byte of its pad.
    ///
    /// # Panics
    ///
    /// If it has more bytes than a length can say.
    pub fn padded(&self, ulpdu: &[u8], pad: u8) -> Vec<u8> {
        frame(ulpdu, pad, self.crc)
    }

    /// Sends a DDP segment, framed as it should be.
    ///
    /// # Errors
    ///
    /// Those of [`bytes`](Self::bytes), as for the methods below.
    pub fn segment(&mut self, segment: &Segment) -> Result<(), Trouble> {
        let fpdu = self.framed(&segment.emit());
        self.bytes(&fpdu)
    }

    /// A number for the next message of a queue.
    pub fn next(&mut self, queue: u32) -> u32 {
        let next = &mut self.next[queue as usize];
        *next += 1;
        *next - 1
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Those of [`bytes`](Self::bytes).
    pub fn send(&mut self, message: &[u8]) -> Result<(), Trouble> {
        let segment = self.next_send(message);
        self.segment(&segment)
    }

    /// A Send as it should be next, to be changed.
    pub fn next_send(&mut self, message: &[u8]) -> Segment {
        let sequence = self.next(0);
        Segment::untagged(opcode::SEND, 0, [0, sequence, 0], message)
    }

    /// Sends an RDMA Read Request for memory of the other end.
    ///
    /// # Errors
    ///
    /// Those of [`bytes`](Self::bytes).
    pub fn read_request(&mut self, stag: u32, offset: u64, length: u32) -> Result<(), Trouble> {
        let sequence = self.next(QUEUE_READ);
        let mut request = words(&[SINK, 0, 0, length, stag]);
        request.extend(offset.to_be_bytes());
        let place = [QUEUE_READ, sequence, 0];
        self.segment(&Segment::untagged(opcode::READ_REQUEST, 0, place, &request))
    }

    /// The next message for us, or the end. What the other end reads and writes meanwhile is served.
    ///
    /// # Errors
    ///
    /// If nothing comes, or the other end breaks a rule.
    pub fn hear(&mut self) -> Result<Heard, Trouble> {
        self.until = Instant::now() + self.patience;
        loop {
            let Some(segment) = self.segment_in_time()? else {
                return Ok(Heard::Closed);
            };
            match (segment.is_tagged(), segment.opcode()) {
                (true, opcode::WRITE) => {
                    if !self.take_in_write(&segment)? {
                        return Ok(Heard::Closed);
                    }
                }
                (true, opcode::READ_RESPONSE) => {
                    if segment.word(0) != SINK {
                        return broken("a Read Response that nobody asked for");
                    }
                    self.response.extend_from_slice(&segment.payload);
                    if self.response.len() > MAX_MESSAGE {
                        return broken("a Read Response without an end");
                    }
                    if segment.is_last() {
                        return Ok(Heard::Read(std::mem::take(&mut self.response)));
                    }
                }
                (false, opcode::READ_REQUEST) => {
                    if !self.take_in_read_request(&segment)? {
                        return Ok(Heard::Closed);
                    }
                }
                (false, opcode::SEND | opcode::SEND_INVALIDATE) => {
                    self.message.extend_from_slice(&segment.payload);
                    if self.message.len() > MAX_MESSAGE {
                        return broken("a message without an end");
                    }
                    if segment.is_last() {
                        let invalidated =
                            (segment.opcode() == opcode::SEND_INVALIDATE).then(|| segment.word(0));
                        return Ok(Heard::Message {
                            bytes: std::mem::take(&mut self.message),
                            invalidated,
                        });
                    }
                }
                (false, opcode::TERMINATE) => {
                    let [first, code, ..] = segment.payload[..] else {
                        return broken("a Terminate without its control field");
                    };
                    if segment.word(4) != QUEUE_TERMINATE {
                        return broken("a Terminate on the wrong queue");
                    }
                    return Ok(Heard::Terminate(Cause(first >> 4, first & 0x0f, code)));
                }
                other => return broken(format!("a segment that should not come: {other:?}")),
            }
        }
    }

    /// The next DDP segment; `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// If nothing comes, or the frame is wrong.
    pub fn next_segment(&mut self) -> Result<Option<Segment>, Trouble> {
        self.until = Instant::now() + self.patience;
        self.segment_in_time()
    }

    fn segment_in_time(&mut self) -> Result<Option<Segment>, Trouble> {
        self.fpdu.clear();
        if let Some(markers) = &mut self.markers {
            markers.length_field = None;
        }
        let mut length = [0; 2];
        if !self.fill(&mut length)? {
            return Ok(None);
        }
        let ulpdu = usize::from(u16::from_be_bytes(length));
        let mut rest = vec![0; (2 + ulpdu).next_multiple_of(4) - 2 + 4];
        if !self.fill(&mut rest)? {
            return Ok(None);
        }
        if self.crc {
            let (covered, crc) = self.fpdu.split_at(self.fpdu.len() - 4);
            if crc != crc32c(covered).to_le_bytes() {
                return broken("an FPDU has a wrong CRC");
            }
        }
        match Segment::read(&rest[..ulpdu]) {
            Some(segment) => Ok(Some(segment)),
            None => broken("a ULPDU is too short for its DDP header"),
        }
    }

    /// Fills these bytes, without the markers among them; false if the connection ends first.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, Trouble> {
        let Some(mut markers) = self.markers else {
            return self.fill_with_all(bytes);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut room = MARKER_PERIOD - markers.at % MARKER_PERIOD;
            if room == MARKER_PERIOD {
                let mut marker = [0; 4];
                if !self.fill_with_all(&mut marker)? {
                    return Ok(false);
                }
                let back = markers.length_field.map_or(0, |field| markers.at - field);
                if u32::from_be_bytes(marker) as usize != back {
                    return broken(format!("FPDUPTR {marker:?} is not {back}"));
                }
                markers.at += marker.len();
                self.markers_seen += 1;
                room -= marker.len();
            }
            markers.length_field.get_or_insert(markers.at);
            let (now, later) = rest.split_at_mut(room.min(rest.len()));
            if !self.fill_with_all(now)? {
                return Ok(false);
            }
            markers.at += now.len();
            rest = later;
        }
        self.markers = Some(markers);
        Ok(true)
    }

    fn fill_with_all(&mut self, bytes: &mut [u8]) -> Result<bool, Trouble> {
        let whole = self.read_all(bytes)?;
        if whole {
            self.fpdu.extend_from_slice(bytes);
        }
        Ok(whole)
    }

    /// Whether it can be done.
    fn take_in_write(&mut self, segment: &Segment) -> Result<bool, Trouble> {
        let (stag, begin) = (segment.word(0), segment.offset());
        if segment.payload.is_empty() {
            return Ok(true);
        }
        let end = begin.saturating_add(segment.payload.len());
        let memory = self.memory.get_mut(&stag);
        let Some(place) = memory.and_then(|memory| memory.get_mut(begin..end)) else {
            return match self.refuses_access {
                true => Ok(false),
                false => broken(format!(
                    "it writes to STag {stag:#x} from {begin:#x} to {end:#x}"
                )),
            };
        };
        place.copy_from_slice(&segment.payload);
        Ok(true)
    }

    /// Whether it can be answered.
    fn take_in_read_request(&mut self, segment: &Segment) -> Result<bool, Trouble> {
        self.reads += 1;
        if segment.payload.len() != 28 {
            return broken(format!("a Read Request of {} bytes", segment.payload.len()));
        }
        let request = as_words(&segment.payload);
        if !self.answers_reads {
            self.asked_for.push(request[0]);
            return Ok(true);
        }
        let [sink, sink_high, sink_low, length, source, high, low] = request[..] else {
            return broken("a Read Request has seven words");
        };
        let begin = usize::try_from(u64::from(high) << 32 | u64::from(low)).unwrap_or(usize::MAX);
        let end = begin.saturating_add(length as usize);
        let memory = match length {
            // Its STag is not checked (RFC 5040 §5.2.1).
            0 => Some(&[][..]),
            _ => self
                .memory
                .get(&source)
                .and_then(|memory| memory.get(begin..end)),
        };
        let Some(bytes) = memory else {
            return match self.refuses_access {
                true => Ok(false),
                false => broken(format!(
                    "it reads {length} bytes of STag {source:#x} at {begin:#x}"
                )),
            };
        };
        let bytes = bytes.to_vec();
        let mut at = u64::from(sink_high) << 32 | u64::from(sink_low);
        let mut pieces = bytes.chunks(RESPONSE_PIECE).peekable();
        if bytes.is_empty() {
            self.segment(&Segment::tagged(opcode::READ_RESPONSE, sink, at, &[]))?;
        }
        while let Some(piece) = pieces.next() {
            let segment = Segment::tagged(opcode::READ_RESPONSE, sink, at, piece);
            at += piece.len() as u64;
            if pieces.peek().is_some() {
                self.segment(&segment.not_last())?;
            } else {
                self.segment(&segment)?;
            }
        }
        Ok(true)
    }
}

/// Frames a ULPDU with this value in each byte of its pad, with a CRC or without (RFC 5044 §4.1).
///
/// # Panics
///
/// If it has more bytes than a length can say.
pub fn frame(ulpdu: &[u8], pad: u8, crc: bool) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).expect("a ULPDU has at most 65535 bytes");
    let mut fpdu = length.to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4), pad);
    let crc = if crc { crc32c(&fpdu) } else { 0 };
    fpdu.extend(crc.to_le_bytes());
    fpdu
}

/// Whether an error of a socket is the end of the connection.
pub fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn message_without_an_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let mut peer = Peer::silent(to, Duration::from_secs(60)).unwrap();
        peer.uses_crc(false);
        let mut other = listener.accept().unwrap().0;
        let endless = thread::spawn(move || {
            let piece = Segment::untagged(opcode::SEND, 0, [0, 1, 0], &[0; RESPONSE_PIECE]);
            let fpdu = frame(&piece.not_last().emit(), 0, false);
            while other.write_all(&fpdu).is_ok() {}
        });
        let said = peer.hear().unwrap_err().to_string();
        assert_eq!(said, "a message without an end");
        drop(peer);
        endless.join().unwrap();
    }
}
