//! One end of an iWARP connection with every byte under the control of the test.

use crate::header::{direction, operation, optional, procedure};
use crate::{Request, as_words, private_data, words};
use conform::iwarp::{self, ANNOUNCEMENT, Cause, Heard, Segment, Trouble, is_end, opcode};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Timeout for what should arrive at once, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection on which anything can be said, mostly to a server. Its methods panic when the other end does not do what
/// it should.
#[derive(Debug)]
pub struct Peer(iwarp::Peer);

impl Deref for Peer {
    type Target = iwarp::Peer;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[track_caller]
fn sound<T>(result: Result<T, Trouble>) -> T {
    match result {
        Ok(value) => value,
        Err(why) => panic!("{why}"),
    }
}

/// Frames a ULPDU as it should be on any connection with CRCs (RFC 5044 §5).
pub fn framed(ulpdu: &[u8]) -> Vec<u8> {
    iwarp::frame(ulpdu, 0, true)
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
        let request = Request::default();
        peer.bytes(&request.emit());
        peer.accepts(&request).then_some(peer)
    }

    fn over(socket: TcpStream) -> Self {
        Self(iwarp::Peer::over(socket, PATIENCE).expect("a socket"))
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
        let announced = [&private_data(true)[..], &ANNOUNCEMENT].concat();
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
        let request = sound(peer.0.request());
        peer.bytes(&request.accepting(ird, private_data));
        peer
    }

    /// Takes in a client's request, and answers with these bytes.
    pub fn answer_request(&mut self, answer: &[u8]) {
        sound(self.0.request());
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
        assert!(peer.accepts(request), "the server rejects the connection");
        peer
    }

    /// Takes in the reply to a good request that was sent as bytes, which accepts.
    pub fn finish_setup(&mut self) {
        assert!(
            self.accepts(&Request::default()),
            "the server rejects the connection"
        );
    }

    /// Takes in the reply to a request: false if it rejects, or the connection ends instead.
    fn accepts(&mut self, request: &Request) -> bool {
        sound(self.0.reply(request)).is_some_and(|reply| !reply.rejected())
    }

    /// Markers that the other end has sent, each of which pointed where it should.
    pub fn markers_seen(&self) -> usize {
        self.0.markers_seen
    }

    /// Sends bytes as they are. The server may have hung up already: that shows in what is heard.
    pub fn bytes(&mut self, bytes: &[u8]) {
        sound(self.0.bytes(bytes));
    }

    /// The socket of a connection on which nothing was sent or received since its setup.
    pub fn into_stream(mut self) -> TcpStream {
        self.0.socket().try_clone().expect("a descriptor")
    }

    /// Shuts down our half of the stream.
    pub fn hang_up(&mut self) {
        sound(self.0.hang_up());
    }

    /// Sends a DDP segment, framed as it should be.
    pub fn segment(&mut self, segment: &Segment) {
        sound(self.0.segment(segment));
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) {
        sound(self.0.send(message));
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
        sound(self.0.read_request(stag, offset, length));
    }

    /// The next message for us, or the end. What the server reads and writes meanwhile is served.
    pub fn hear(&mut self) -> Heard {
        sound(self.0.hear())
    }

    /// Waits for a Read Request, which is not answered: the STag for the answer.
    pub fn hear_read_request(&mut self) -> u32 {
        assert!(!self.answers_reads, "it would be answered");
        let segment = sound(self.0.next_segment()).expect("a Read Request");
        assert_eq!(
            (segment.is_tagged(), segment.opcode()),
            (false, opcode::READ_REQUEST)
        );
        let sink = as_words(&segment.payload)[0];
        self.reads += 1;
        self.asked_for.push(sink);
        sink
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
        while self.take_in(4096) > 0 {}
    }

    /// Takes in at most so many bytes, whatever they are: how many, none if the connection ended.
    pub fn take_in(&mut self, most: usize) -> usize {
        let mut bytes = vec![0; most];
        match self.0.socket().read(&mut bytes) {
            Ok(taken) => taken,
            Err(error) if is_end(error.kind()) => 0,
            Err(error) => panic!("waited in vain for bytes: {error}"),
        }
    }

    /// Whether the server ends the connection within this time, without having said anything.
    pub fn has_ended(&mut self, within: Duration) -> bool {
        let comes = self.0.comes_within(within).expect("the socket works");
        comes
            && match self.0.socket().read(&mut [0]) {
                Ok(0) => true,
                Ok(_) => panic!("the server has something to say"),
                Err(error) if is_end(error.kind()) => true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) => panic!("could not wait: {error}"),
            }
    }
}
