//! Conversations of client and server: recorded by a relay between them, taken apart into the
//! FPDUs of MPA (RFC 5044 §4), and put together again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};

/// Most bytes that the relay passes on at a time: they fit one packet.
const PIECE: usize = 32 << 10;

/// Bytes of an MPA Request or Reply before its private data (RFC 5044 §7.1.1).
const MPA_START: usize = 20;

/// Bytes of an FPDU's length field, and of its CRC.
const FPDU_LENGTH: usize = 2;
const FPDU_CRC: usize = 4;

/// Bytes of the header of an untagged DDP segment, with the control fields (RFC 5041 §4.3).
const UNTAGGED_HEADER: usize = 18;

/// `T` and `L` of DDP's control field, and where the message offset is.
const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const MESSAGE_OFFSET: usize = 14;

/// The four Sends of RDMAP (RFC 5040 §4.3), and the mask of the opcode.
const SENDS: std::ops::RangeInclusive<u8> = 3..=6;
const OPCODE: u8 = 0x0f;

/// The end to which bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Server,
    Client,
}

/// The bytes of one TCP connection, in the order in which they passed.
pub(super) type Pieces = Vec<(To, Vec<u8>)>;

/// A relay in front of a server that records what passes.
pub(super) struct Recorder {
    pub(super) addr: SocketAddrV4,
    connections: Arc<Mutex<Vec<Arc<Mutex<Pieces>>>>>,
    stopped: Arc<AtomicBool>,
    acceptor: JoinHandle<()>,
}

impl Recorder {
    /// Starts a relay to this server.
    pub(super) fn start(server: SocketAddrV4) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = SocketAddrV4::new(Ipv4Addr::LOCALHOST, listener.local_addr()?.port());
        let connections = Arc::<Mutex<Vec<_>>>::default();
        let stopped = Arc::<AtomicBool>::default();
        let (to_fill, is_stopped) = (Arc::clone(&connections), Arc::clone(&stopped));
        let acceptor = thread::spawn(move || {
            let mut relays = Vec::new();
            for client in listener.incoming().map_while(Result::ok) {
                if is_stopped.load(Relaxed) {
                    break;
                }
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let pieces = Arc::<Mutex<Pieces>>::default();
                locked(&to_fill).push(Arc::clone(&pieces));
                relays.push(thread::spawn(move || relay(&client, &server, &pieces)));
            }
            for relay in relays {
                // A relay that panicked has recorded less, which the comparison shows.
                let _ = relay.join();
            }
        });
        Ok(Self {
            addr,
            connections,
            stopped,
            acceptor,
        })
    }

    /// Messages of each connection, once both ends have closed all of them.
    pub(super) fn finish(self) -> Result<Vec<Pieces>> {
        self.stopped.store(true, Relaxed);
        // Wakes the acceptor.
        drop(TcpStream::connect(self.addr));
        let ended = self.acceptor.join();
        ended.map_err(|_| anyhow!("the recorder panicked"))?;
        let connections = locked(&self.connections);
        Ok(connections.iter().map(|one| locked(one).clone()).collect())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes bytes on in both directions until both ends have closed.
fn relay(client: &TcpStream, server: &TcpStream, pieces: &Mutex<Pieces>) {
    // Without this a small answer waits for an acknowledgement.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    thread::scope(|scope| {
        scope.spawn(|| pass(client, server, To::Server, pieces));
        pass(server, client, To::Client, pieces);
    });
}

fn pass(mut from: &TcpStream, mut into: &TcpStream, to: To, pieces: &Mutex<Pieces>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // Before it is passed on, so that an answer is recorded after its question.
        locked(pieces).push((to, buffer[..count].to_vec()));
        if into.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // The other end may have closed already.
    let _ = into.shutdown(Shutdown::Write);
}

/// One message of the connection setup, or one FPDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// MPA's Request or Reply.
    Start(Vec<u8>),
    /// A ULPDU: a DDP segment with its header.
    Ulpdu(Vec<u8>),
}

impl Frame {
    /// The bytes on the wire: the FPDU with its padding and CRC.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        match self {
            Self::Start(bytes) => Ok(bytes.clone()),
            Self::Ulpdu(ulpdu) => {
                let mut bytes = u16::try_from(ulpdu.len())?.to_be_bytes().to_vec();
                bytes.extend_from_slice(ulpdu);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                let crc = crc_fast::crc32_iscsi(&bytes);
                bytes.extend_from_slice(&crc.to_le_bytes());
                Ok(bytes)
            }
        }
    }

    /// Whether it is the first segment of a Send.
    pub(super) fn begins_send(&self) -> bool {
        match self {
            Self::Start(_) => false,
            Self::Ulpdu(ulpdu) => {
                let offset = ulpdu.get(MESSAGE_OFFSET..UNTAGGED_HEADER);
                ulpdu[0] & TAGGED == 0
                    && SENDS.contains(&(ulpdu[1] & OPCODE))
                    && offset == Some(&[0; 4])
            }
        }
    }
}

/// Takes a connection apart, in the order in which its frames became whole.
///
/// # Errors
///
/// It is no whole conversation over MPA.
pub(super) fn frames(pieces: &Pieces) -> Result<Vec<(To, Frame)>> {
    let mut waiting = [Vec::new(), Vec::new()];
    let mut started = [false, false];
    let mut frames = Vec::new();
    for (to, bytes) in pieces {
        let way = *to as usize;
        waiting[way].extend_from_slice(bytes);
        while let Some((frame, length)) = first_frame(&waiting[way], started[way]) {
            started[way] = true;
            waiting[way].drain(..length);
            frames.push((*to, frame));
        }
    }
    ensure!(
        waiting.iter().all(Vec::is_empty),
        "a connection ends within a frame of MPA"
    );
    Ok(frames)
}

fn first_frame(bytes: &[u8], started: bool) -> Option<(Frame, usize)> {
    let at = if started { 0 } else { MPA_START - 2 };
    let length = bytes.get(at..at + 2)?.try_into().ok()?;
    let length = usize::from(u16::from_be_bytes(length));
    if !started {
        let start = bytes.get(..MPA_START + length)?;
        return Some((Frame::Start(start.to_vec()), start.len()));
    }
    let end = (FPDU_LENGTH + length).next_multiple_of(4) + FPDU_CRC;
    let fpdu = bytes.get(..end)?;
    let ulpdu = fpdu[FPDU_LENGTH..FPDU_LENGTH + length].to_vec();
    Some((Frame::Ulpdu(ulpdu), end))
}

/// A Send of this message in DDP segments of at most `segment` bytes.
pub(super) fn send(sequence: u32, message: &[u8], segment: usize) -> Result<Vec<Frame>> {
    let mut frames = Vec::new();
    let count = message.chunks(segment).count();
    for (index, piece) in message.chunks(segment).enumerate() {
        let last = if index + 1 == count { LAST } else { 0 };
        // DDP version 1; RDMAP version 1, Send; no STag; queue 0.
        let mut ulpdu = vec![last | 0x01, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
        ulpdu.extend_from_slice(&sequence.to_be_bytes());
        ulpdu.extend_from_slice(&u32::try_from(index * segment)?.to_be_bytes());
        ulpdu.extend_from_slice(piece);
        frames.push(Frame::Ulpdu(ulpdu));
    }
    Ok(frames)
}

/// MPA's Request, or its Reply, of revision 1 with CRCs and without private data.
pub(super) fn start(to: To) -> Frame {
    let key: &[u8; 16] = match to {
        To::Server => b"MPA ID Req Frame",
        To::Client => b"MPA ID Rep Frame",
    };
    Frame::Start([key.as_slice(), &[0x40, 1, 0, 0]].concat())
}

/// The bytes that hexadecimal digits stand for; between bytes there may be spaces.
pub(super) fn octets(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<char> = text.split_whitespace().flat_map(str::chars).collect();
    let byte = |pair: &[char]| {
        let pair: String = pair.iter().collect();
        u8::from_str_radix(&pair, 16).with_context(|| format!("\"{pair}\""))
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_being_cut_anywhere() {
        let sends = send(1, &[7; 100], 40).unwrap();
        let whole: Vec<Frame> = [start(To::Server)].into_iter().chain(sends).collect();
        let mut bytes = Vec::new();
        for frame in &whole {
            bytes.extend(frame.bytes().unwrap());
        }
        for cut in 1..bytes.len() {
            let pieces = bytes
                .chunks(cut)
                .map(|piece| (To::Server, piece.to_vec()))
                .collect();
            let apart: Vec<Frame> = frames(&pieces)
                .unwrap()
                .into_iter()
                .map(|(_, frame)| frame)
                .collect();
            assert_eq!(apart, whole, "cut at {cut}");
        }
        let cut = vec![(To::Server, bytes[..bytes.len() - 1].to_vec())];
        assert!(frames(&cut).is_err(), "the last byte is missing");
    }

    #[test]
    fn only_the_first_segment_begins_a_send() {
        let segments = send(1, &[7; 100], 40).unwrap();
        let begins: Vec<bool> = segments.iter().map(Frame::begins_send).collect();
        assert_eq!(begins, [true, false, false]);
        let mut read_request = segments[0].clone();
        if let Frame::Ulpdu(ulpdu) = &mut read_request {
            ulpdu[1] = 0x41;
        }
        assert!(!read_request.begins_send());
    }
}
