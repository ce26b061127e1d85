//! One end of an iWARP connection with every byte under the control of the test.

use crate::crc::crc32c;
use crate::ddp::{Segment, opcode};
use crate::header::{direction, operation, optional, procedure};
use crate::mpa::{Header, Request, private_data};
use crate::{as_words, words};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Timeout for what should arrive at once, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Queues of untagged messages (RFC 5040 §4).
const QUEUES: usize = 3;
const QUEUE_READ: u32 = 1;
const QUEUE_TERMINATE: u32 = 2;

/// The STag that our own Read Requests name for the answer.
const SINK: u32 = 0x1234_5600;

/// A connection on which anything can be said, mostly to a server.
#[derive(Debug)]
pub struct Peer {
    socket: TcpStream,
    crc: bool,
    /// The private data of the server's reply.
    pub private_data: Vec<u8>,
    /// The next message sequence number of each queue.
    next: [u32; QUEUES],
    /// Memory that the server may read and write, by STag, from offset 0 on.
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
    /// Markers that have come.
    seen: usize,
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

/// Frames a ULPDU as it should be on any connection with CRCs (RFC 5044 §5).
pub fn framed(ulpdu: &[u8]) -> Vec<u8> {
    frame(ulpdu, true)
}

fn frame(ulpdu: &[u8], crc: bool) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).expect("a ULPDU has at most 65535 bytes");
    let mut fpdu = length.to_be_bytes().to_vec();
    fpdu.extend_from_slice(ulpdu);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    let crc = if crc { crc32c(&fpdu) } else { 0 };
    fpdu.extend(crc.to_le_bytes());
    fpdu
}

impl Peer {
    /// A TCP connection on which nothing was said.
    ///
    /// # Panics
    ///
    /// If there is nobody; so do all methods here when a server does not do what it should.
    pub fn silent(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect(to).expect("the server listens"))
    }

    /// The same from this address of 127.0.0.0/8, as if it were another machine.
    pub fn silent_from(from: Ipv4Addr, to: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::from((from, 0));
        socket.bind(&from.into()).expect("an address of loopback");
        socket.connect(&to.into()).expect("the server listens");
        Self::over(socket.into())
    }

    /// A connection from this address that is set up as a good client does it; none if the server
    /// refuses it.
    pub fn connect_from(from: Ipv4Addr, to: SocketAddr) -> Option<Self> {
        let mut peer = Self::silent_from(from, to);
        peer.bytes(&Request::default().emit());
        peer.take_in_reply()?;
        Some(peer)
    }

    fn over(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            crc: true,
            private_data: Vec::new(),
            next: [1; QUEUES],
            memory: BTreeMap::new(),
            reads: 0,
            asked_for: Vec::new(),
            answers_reads: true,
            refuses_access: false,
            message: Vec::new(),
            response: Vec::new(),
            fpdu: Vec::new(),
            markers: None,
        }
    }

    /// The next connection of a client, on which nothing was said.
    pub fn incoming(listener: &TcpListener) -> Self {
        Self::over(listener.accept().expect("a client connects").0)
    }

    /// The next connection of a client, set up as a good server does it.
    pub fn accept(listener: &TcpListener) -> Self {
        Self::accept_with(listener, &private_data(true))
    }

    /// The same from a server that announces version two, as a client with a choice wants it.
    pub fn accept_announcing(listener: &TcpListener) -> Self {
        let announced = [&private_data(true)[..], &crate::mpa::ANNOUNCEMENT].concat();
        Self::accept_with(listener, &announced)
    }

    /// The same with this private data.
    pub fn accept_with(listener: &TcpListener, private_data: &[u8]) -> Self {
        Self::accepting(listener, 8, private_data)
    }

    /// The same from a server that offers no RDMA Reads (IRD 0).
    pub fn accept_without_reads(listener: &TcpListener) -> Self {
        Self::accepting(listener, 0, &private_data(true))
    }

    fn accepting(listener: &TcpListener, ird: u8, private_data: &[u8]) -> Self {
        let mut peer = Self::incoming(listener);
        let request = peer.request();
        peer.bytes(&Header::accepting(request, ird, private_data));
        peer
    }

    /// Takes in a client's request and its private data.
    fn request(&mut self) -> Header {
        let mut header = [0; Header::LEN];
        self.socket.read_exact(&mut header).expect("a request");
        let request = Header::of_request(header);
        let mut data = vec![0; request.data_len()];
        self.socket.read_exact(&mut data).expect("its data");
        self.private_data = data.split_off(if request.enhanced() { 4 } else { 0 });
        request
    }

    /// Takes in a client's request, and answers with these bytes.
    pub fn answer_request(&mut self, answer: &[u8]) {
        self.request();
        self.bytes(answer);
    }

    /// A connection that is set up as a good client does it.
    pub fn connect(to: SocketAddr) -> Self {
        Self::connect_with(to, &Request::default())
    }

    /// The same with another request, which the server accepts.
    pub fn connect_with(to: SocketAddr, request: &Request) -> Self {
        let mut peer = Self::silent(to);
        peer.bytes(&request.emit());
        peer.finish_setup();
        if request.asks_for_markers() {
            peer.markers = Some(Markers::default());
        }
        peer
    }

    /// Markers that the other end has sent, each of which pointed where it should.
    pub fn markers_seen(&self) -> usize {
        self.markers.map_or(0, |markers| markers.seen)
    }

    /// Takes in the reply to a request that was sent as bytes, which accepts.
    pub fn finish_setup(&mut self) {
        self.take_in_reply()
            .expect("the server rejects the connection");
    }

    /// Takes in the reply to a request; `None` if it rejects, or the connection ends instead.
    fn take_in_reply(&mut self) -> Option<()> {
        let mut header = [0; Header::LEN];
        match self.socket.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if is_end(error.kind()) => return None,
            Err(error) => panic!("waited in vain for a reply: {error}"),
        }
        let reply = Header::of_reply(header);
        if reply.rejected() {
            return None;
        }
        let mut data = vec![0; reply.data_len()];
        self.socket.read_exact(&mut data).expect("its data");
        self.crc = reply.crc();
        self.private_data = data.split_off(if reply.enhanced() { 4 } else { 0 });
        Some(())
    }

    /// Sends bytes as they are. The server may have hung up already: that shows in what is heard.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            Ok(()) => {}
            Err(error) if is_end(error.kind()) => {}
            Err(error) => panic!("could not send: {error}"),
        }
    }

    /// Shuts down our half of the stream.
    pub fn hang_up(&mut self) {
        match self.socket.shutdown(Shutdown::Write) {
            Ok(()) => {}
            Err(error) if is_end(error.kind()) => {}
            Err(error) => panic!("could not hang up: {error}"),
        }
    }

    /// The socket of a connection on which nothing was sent or received since its setup.
    pub fn into_stream(self) -> TcpStream {
        self.socket
    }

    /// Frames a ULPDU as it should be.
    pub fn framed(&self, ulpdu: &[u8]) -> Vec<u8> {
        frame(ulpdu, self.crc)
    }

    /// Sends a DDP segment, framed as it should be.
    pub fn segment(&mut self, segment: &Segment) {
        let fpdu = self.framed(&segment.emit());
        self.bytes(&fpdu);
    }

    /// A number for the next message of a queue.
    pub fn next(&mut self, queue: u32) -> u32 {
        let next = &mut self.next[queue as usize];
        *next += 1;
        *next - 1
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) {
        let sequence = self.next(0);
        self.segment(&Segment::untagged(
            opcode::SEND,
            0,
            [0, sequence, 0],
            message,
        ));
    }

    /// Sends a message and invalidates a handle of the server's with it.
    pub fn send_and_invalidate(&mut self, message: &[u8], stag: u32) {
        let sequence = self.next(0);
        let place = [0, sequence, 0];
        self.segment(&Segment::untagged(
            opcode::SEND_INVALIDATE,
            stag,
            place,
            message,
        ));
    }

    /// Writes to memory of the other end's.
    pub fn write(&mut self, stag: u32, offset: u64, bytes: &[u8]) {
        self.segment(&Segment::tagged(opcode::WRITE, stag, offset, bytes));
    }

    /// Sends an RDMA Read Request for memory of the other end.
    pub fn read_request(&mut self, stag: u32, offset: u64, length: u32) {
        let sequence = self.next(QUEUE_READ);
        let mut request = words(&[SINK, 0, 0, length, stag]);
        request.extend(offset.to_be_bytes());
        let place = [QUEUE_READ, sequence, 0];
        self.segment(&Segment::untagged(opcode::READ_REQUEST, 0, place, &request));
    }

    /// The next message for us, or the end. What the server reads and writes meanwhile is served.
    pub fn hear(&mut self) -> Heard {
        loop {
            let Some(segment) = self.next_segment() else {
                return Heard::Closed;
            };
            match (segment.is_tagged(), segment.opcode()) {
                (true, opcode::WRITE) => {
                    if !self.take_in_write(&segment) {
                        return Heard::Closed;
                    }
                }
                (true, opcode::READ_RESPONSE) => {
                    assert_eq!(segment.word(0), SINK, "nothing else was asked for");
                    self.response.extend_from_slice(&segment.payload);
                    if segment.is_last() {
                        return Heard::Read(std::mem::take(&mut self.response));
                    }
                }
                (false, opcode::READ_REQUEST) => {
                    if !self.take_in_read_request(&segment) {
                        return Heard::Closed;
                    }
                }
                (false, opcode::SEND | opcode::SEND_INVALIDATE) => {
                    self.message.extend_from_slice(&segment.payload);
                    if segment.is_last() {
                        let invalidated =
                            (segment.opcode() == opcode::SEND_INVALIDATE).then(|| segment.word(0));
                        return Heard::Message {
                            bytes: std::mem::take(&mut self.message),
                            invalidated,
                        };
                    }
                }
                (false, opcode::TERMINATE) => {
                    assert_eq!(segment.word(4), QUEUE_TERMINATE);
                    let control = &segment.payload;
                    let cause = Cause(control[0] >> 4, control[0] & 0x0f, control[1]);
                    return Heard::Terminate(cause);
                }
                other => panic!("the server says what no server should: {other:?}"),
            }
        }
    }

    /// Waits for a Read Request, which is not answered: the STag for the answer.
    pub fn hear_read_request(&mut self) -> u32 {
        let segment = self.next_segment().expect("a Read Request");
        assert_eq!(
            (segment.is_tagged(), segment.opcode()),
            (false, opcode::READ_REQUEST)
        );
        assert!(!self.answers_reads, "it would have been answered");
        self.take_in_read_request(&segment);
        *self.asked_for.last().expect("it was taken in just now")
    }

    /// Hears until the other end ends the connection, which has to be with this cause. What it
    /// sends that was asked for before is passed over.
    pub fn drain_to_terminate(&mut self, cause: Cause) {
        loop {
            match self.hear() {
                Heard::Read(_) => {}
                heard => break assert_eq!(heard, Heard::Terminate(cause)),
            }
        }
        self.hang_up();
        self.assert_closed();
    }

    /// The next message, which there must be, in words.
    pub fn answer(&mut self) -> Vec<u32> {
        match self.hear() {
            Heard::Message { bytes, .. } => as_words(&bytes),
            other => panic!("expected an answer, heard {other:?}"),
        }
    }

    /// A client of version two that has said this about itself in its first message, and was
    /// answered.
    #[track_caller]
    pub fn introduced(to: SocketAddr, said: &[u32]) -> Self {
        let mut peer = Self::connect(to);
        let (call, init) = (direction::CALL, operation::INITXCH);
        peer.send(&words(&optional(1, call, init, said)));
        let answer = peer.answer();
        let reply = [procedure::OPTIONAL, direction::REPLY, init];
        assert_eq!((answer[0], &answer[3..6]), (1, &reply[..]));
        peer
    }

    /// The next message with this XID that is not about characteristics of the other end's: it may
    /// say what these are, or ask for others, of which nothing is answered.
    #[track_caller]
    pub fn answer_to(&mut self, xid: u32) -> Vec<u32> {
        loop {
            let answer = self.answer();
            if answer[3..5] != [procedure::OPTIONAL, direction::CALL] {
                assert_eq!(answer[0], xid);
                return answer;
            }
        }
    }

    /// Asserts that the server ends the connection with this cause, and nothing else before.
    pub fn assert_terminated(&mut self, cause: Cause) {
        assert_eq!(self.hear(), Heard::Terminate(cause));
        self.hang_up();
        self.assert_closed();
    }

    /// Asserts that the server ends the connection without a Terminate.
    pub fn assert_closed(&mut self) {
        assert_eq!(self.hear(), Heard::Closed);
    }

    /// Takes in bytes, whatever they are, until the connection ends.
    pub fn drain(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_end(error.kind()) => return,
                Err(error) => panic!("waited in vain for the end: {error}"),
            }
        }
    }

    /// Takes in at most so many bytes, whatever they are: how many, none if the connection ended.
    pub fn take_in(&mut self, most: usize) -> usize {
        let mut bytes = vec![0; most];
        match self.socket.read(&mut bytes) {
            Ok(taken) => taken,
            Err(error) if is_end(error.kind()) => 0,
            Err(error) => panic!("waited in vain for bytes: {error}"),
        }
    }

    /// Whether the server ends the connection within this time, without having said anything.
    pub fn has_ended(&mut self, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let ended = match self.socket.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => panic!("the server has something to say"),
            Err(error) if is_end(error.kind()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                false
            }
            Err(error) => panic!("could not wait: {error}"),
        };
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        ended
    }

    fn next_segment(&mut self) -> Option<Segment> {
        self.fpdu.clear();
        if let Some(markers) = &mut self.markers {
            markers.length_field = None;
        }
        let mut length = [0; 2];
        self.fill(&mut length)?;
        let ulpdu = usize::from(u16::from_be_bytes(length));
        let mut rest = vec![0; (2 + ulpdu).next_multiple_of(4) - 2 + 4];
        self.fill(&mut rest)?;
        if self.crc {
            let (covered, crc) = self.fpdu.split_at(self.fpdu.len() - 4);
            assert_eq!(
                crc,
                crc32c(covered).to_le_bytes(),
                "the CRC of the other end"
            );
        }
        Some(Segment::read(&rest[..ulpdu]))
    }

    /// Fills these bytes, without the markers among them, unless the connection ends first.
    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        let Some(mut markers) = self.markers else {
            return self.fill_with_all(bytes);
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut room = MARKER_PERIOD - markers.at % MARKER_PERIOD;
            if room == MARKER_PERIOD {
                let mut marker = [0; 4];
                self.fill_with_all(&mut marker)?;
                let back = markers.length_field.map_or(0, |field| markers.at - field);
                assert_eq!(u32::from_be_bytes(marker) as usize, back, "FPDUPTR");
                markers.at += marker.len();
                markers.seen += 1;
                room -= marker.len();
            }
            markers.length_field.get_or_insert(markers.at);
            let (now, later) = rest.split_at_mut(room.min(rest.len()));
            self.fill_with_all(now)?;
            markers.at += now.len();
            rest = later;
        }
        self.markers = Some(markers);
        Some(())
    }

    fn fill_with_all(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(bytes) {
            Ok(()) => {
                self.fpdu.extend_from_slice(bytes);
                Some(())
            }
            Err(error) if is_end(error.kind()) => None,
            Err(error) => panic!("waited in vain for the other end: {error}"),
        }
    }

    /// Whether it can be done.
    fn take_in_write(&mut self, segment: &Segment) -> bool {
        let (stag, begin) = (segment.word(0), segment.offset());
        if segment.payload.is_empty() {
            return true;
        }
        let end = begin.saturating_add(segment.payload.len());
        let memory = self.memory.get_mut(&stag);
        let Some(place) = memory.and_then(|memory| memory.get_mut(begin..end)) else {
            assert!(
                self.refuses_access,
                "it writes to STag {stag:#x} from {begin:#x} to {end:#x}"
            );
            return false;
        };
        place.copy_from_slice(&segment.payload);
        true
    }

    /// Whether it can be answered.
    fn take_in_read_request(&mut self, segment: &Segment) -> bool {
        self.reads += 1;
        if !self.answers_reads {
            self.asked_for.push(as_words(&segment.payload)[0]);
            return true;
        }
        let [sink, sink_high, sink_low, length, source, high, low] =
            *as_words(&segment.payload).as_slice()
        else {
            panic!("a Read Request of {} bytes", segment.payload.len());
        };
        let begin = usize::try_from(u64::from(high) << 32 | u64::from(low)).unwrap_or(usize::MAX);
        let end = begin.saturating_add(length as usize);
        let memory = self.memory.get(&source);
        let Some(bytes) = memory.and_then(|memory| memory.get(begin..end)) else {
            assert!(
                self.refuses_access,
                "it reads {length} bytes of STag {source:#x} at {begin:#x}"
            );
            return false;
        };
        let bytes = bytes.to_vec();
        let mut at = u64::from(sink_high) << 32 | u64::from(sink_low);
        let mut pieces = bytes.chunks(60_000).peekable();
        if bytes.is_empty() {
            self.segment(&Segment::tagged(opcode::READ_RESPONSE, sink, at, &[]));
        }
        while let Some(piece) = pieces.next() {
            let segment = Segment::tagged(opcode::READ_RESPONSE, sink, at, piece);
            at += piece.len() as u64;
            if pieces.peek().is_some() {
                self.segment(&segment.not_last());
            } else {
                self.segment(&segment);
            }
        }
        true
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
    )
}
