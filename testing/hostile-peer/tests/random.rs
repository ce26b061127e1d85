//! Random attacks: messages that are nearly right, in thousands of ways that are the same
//! in each run. No connection but the one that is at fault may end, and nothing may panic.

use buffer::Pool;
use hostile_peer::{
    Heard, Offered, PROGRAM, Peer, Request, Segment, Target, Version, Victim, header, opcode, rpc,
    words,
};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use oncrpc::Programs;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Once};

const XID: u32 = 0x0f00_0000;

/// Numbers that programs get wrong.
const EDGES: [u32; 16] = [
    0,
    1,
    2,
    3,
    4,
    16,
    44,
    255,
    256,
    4096,
    0x7fff_ffff,
    0x8000_0000,
    0x1000_0000,
    0xffff_fffc,
    0xffff_fffe,
    0xffff_ffff,
];

/// A generator of numbers from a seed (xorshift64*, Vigna 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let [a, b, c, d, ..] = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// Mostly an edge, sometimes any number.
    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => self.next(),
            _ => EDGES[self.below(EDGES.len())],
        }
    }

    /// Changes a few words, drops some from the end, or adds some.
    fn spoil(&mut self, message: &mut Vec<u32>, from: usize) {
        for _ in 0..1 + self.below(3) {
            match self.below(8) {
                0 => message.truncate(from + self.below(message.len() - from + 1)),
                1 => message.push(self.word()),
                2 if message.len() > from => {
                    let at = from + self.below(message.len() - from);
                    message.insert(at, self.word());
                }
                _ if message.len() > from => {
                    let at = from + self.below(message.len() - from);
                    message[at] = self.word();
                }
                _ => {}
            }
        }
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics of all threads: those of a server end one connection and are easily overlooked.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, SeqCst);
            usual(info);
        }));
    });
}

#[track_caller]
fn assert_unharmed(target: &Target) {
    target.assert_serves();
    assert_eq!(PANICS.load(SeqCst), 0, "something has panicked");
}

fn connect(target: &Target) -> Peer {
    let mut peer = Peer::connect(target.addr());
    for stag in EDGES {
        peer.memory.insert(stag, vec![0x42; 70_000]);
    }
    // Nobody but the call itself is to blame for what it offers beyond that.
    peer.refuses_access = true;
    peer
}

/// Hears until there is an answer to this call, or the end; whether it goes on.
fn goes_on(peer: &mut Peer, xid: u32) -> bool {
    peer.send(&words(&rpc::msg(xid, 8, &rpc::call(xid, 7, 7, 7))));
    loop {
        match peer.hear() {
            Heard::Message { bytes, .. } if bytes.starts_with(&xid.to_be_bytes()) => return true,
            Heard::Message { .. } | Heard::Read(_) => {}
            Heard::Terminate(_) | Heard::Closed => return false,
        }
    }
}

/// Sends messages of `make`, and looks after each few whether the connection still works.
fn pelt(target: &Target, count: u32, mut make: impl FnMut(u32) -> Vec<u32>) {
    let mut peer = connect(target);
    for number in 0..count {
        let mut message = words(&make(number));
        message.truncate(4096);
        peer.send(&message);
        if !goes_on(&mut peer, 0x1000_0000 + number) {
            peer = connect(target);
        }
        if number % 256 == 0 {
            assert_unharmed(target);
        }
    }
    assert_unharmed(target);
}

#[test]
fn mutated_headers_harm_nobody() {
    count_panics();
    let target = Target::start();
    let mut dice = Dice(0x5eed_0001);
    pelt(&target, 4000, |number| {
        let xid = XID + number;
        let call = rpc::call_with(xid, [PROGRAM, 2, 1], &[8]);
        let lists: &[u32] = match dice.below(4) {
            0 => &[0, 0, 0],
            1 => &[1, 44, 3, 8, 0, 0, 0, 0, 0],
            2 => &[
                1, 44, 3, 4, 0, 0, 1, 44, 4, 4, 0, 8, 0, 1, 2, 16, 4, 0, 0, 4, 4, 0, 0, 0, 0,
            ],
            _ => &[1, 0, 3, 48, 0, 0, 0, 0, 1, 1, 4, 4096, 0, 0],
        };
        let proc = u32::from(dice.below(5) == 0);
        let mut message = [&[xid, 1, 32, proc], lists, &call].concat();
        dice.spoil(&mut message, 1);
        message
    });
    // They were neither all good nor all hopeless.
    let counters = target.stop().counters;
    assert!(counters.chunk_errors_sent > 500, "{counters:?}");
    assert!(counters.version_errors_sent > 50, "{counters:?}");
    assert!(counters.read_chunks_pulled > 200, "{counters:?}");
    assert!(counters.replies_sent > 4500, "{counters:?}");
}

#[test]
fn mutated_nfs_calls_harm_nobody() {
    count_panics();
    let exports = Exports::new(HandleKey::random().unwrap());
    let fs = Arc::new(MemFs::new(8 << 20));
    let exports = exports.with("/", fs, ExportOptions::default()).unwrap();
    let service = Programs::new()
        .with(Nfs3::new(exports.clone(), Pool::new(1 << 20)))
        .with(Mount3::new(exports));
    let target = Target::of(service, 100_003, 3);
    let mut peer = Peer::connect(target.addr());
    let mount = rpc::call_with(XID, [100_005, 3, 1], &rpc::opaque(b"/"));
    peer.send(&words(&rpc::msg(XID, 8, &mount)));
    // The transport header, the RPC header, the status; then the handle.
    let mounted = peer.answer();
    let root = mounted[14..14 + 1 + mounted[14] as usize / 4].to_vec();
    let mut dice = Dice(0x5eed_0002);
    pelt(&target, 4000, |number| {
        let xid = XID + number;
        let procedure = u32::try_from(dice.below(23)).unwrap();
        let mut arguments = root.clone();
        if dice.below(2) == 0 {
            arguments.extend(rpc::opaque(&b"name of a file"[..1 + dice.below(13)]));
        }
        for _ in 0..dice.below(12) {
            arguments.push(dice.word());
        }
        if dice.below(4) == 0 {
            arguments.extend(&root);
        }
        let whole = arguments.len();
        if dice.below(2) == 0 {
            dice.spoil(&mut arguments, 0);
        }
        let call = rpc::call_with(xid, [100_003, 3, procedure], &arguments);
        let lists: &[u32] = match dice.below(4) {
            0 => &[0, 1, 1, 4, 65_536, 0, 0, 0, 0],
            1 => &[0, 0, 1, 1, 4, 65_536, 0, 0],
            2 if whole > 20 => &[1, 120, 3, 64, 0, 0, 0, 0, 0],
            _ => &[0, 0, 0],
        };
        [&[xid, 1, 32, 0], lists, &call].concat()
    });
}

#[test]
fn mutated_segments_harm_nobody() {
    count_panics();
    let target = Target::start();
    let mut dice = Dice(0x5eed_0003);
    for number in 0..1500 {
        let mut peer = connect(&target);
        if dice.below(2) == 0 {
            assert!(goes_on(&mut peer, number));
        }
        for _ in 0..1 + dice.below(3) {
            let opcodes = [
                opcode::SEND,
                opcode::SEND_INVALIDATE,
                opcode::WRITE,
                opcode::READ_REQUEST,
                opcode::READ_RESPONSE,
                opcode::TERMINATE,
            ];
            let code = opcodes[dice.below(opcodes.len())];
            let payload = vec![dice.byte(); dice.below(5000)];
            let mut segment = if matches!(code, opcode::WRITE | opcode::READ_RESPONSE) {
                let offset = u64::from(dice.word()) << 32 | u64::from(dice.word());
                Segment::tagged(code, dice.word(), offset, &payload)
            } else {
                let queue = match code {
                    opcode::READ_REQUEST => 1,
                    opcode::TERMINATE => 2,
                    _ => 0,
                };
                let place = match dice.below(3) {
                    0 => [dice.word(), dice.word(), dice.word()],
                    _ => [queue, peer.next(queue), 0],
                };
                Segment::untagged(code, dice.word(), place, &payload)
            };
            if dice.below(3) == 0 {
                segment = segment.not_last();
            }
            if dice.below(3) == 0 {
                segment.ddp ^= 1 << dice.below(8);
            }
            if dice.below(3) == 0 {
                segment.rdmap ^= 1 << dice.below(8);
            }
            let mut bytes = segment.emit();
            if dice.below(6) == 0 {
                bytes.truncate(dice.below(bytes.len()));
            }
            let mut fpdu = peer.framed(&bytes);
            if dice.below(6) == 0 {
                let at = dice.below(fpdu.len());
                fpdu[at] ^= 1 << dice.below(8);
            }
            if dice.below(6) == 0 {
                fpdu.truncate(dice.below(fpdu.len()));
            }
            peer.bytes(&fpdu);
        }
        peer.hang_up();
        while matches!(peer.hear(), Heard::Message { .. } | Heard::Read(_)) {}
        if number % 256 == 0 {
            assert_unharmed(&target);
        }
    }
    assert_unharmed(&target);
}

#[test]
fn mutated_handshakes_harm_nobody() {
    count_panics();
    let target = Target::start();
    let mut dice = Dice(0x5eed_0004);
    for number in 0..1500 {
        let mut request = Request::default().emit();
        for _ in 0..dice.below(4) {
            let at = dice.below(request.len());
            request[at] = match dice.below(2) {
                0 => dice.byte(),
                _ => request[at] ^ 1 << dice.below(8),
            };
        }
        match dice.below(6) {
            0 => request.truncate(dice.below(request.len())),
            1 => request.extend((0..dice.below(2000)).map(|_| 0xa5)),
            _ => {}
        }
        let mut peer = Peer::silent(target.addr());
        peer.bytes(&request);
        peer.hang_up();
        peer.drain();
        if number % 256 == 0 {
            assert_unharmed(&target);
        }
    }
    assert_unharmed(&target);
}

/// Something that a server may say about itself, or ask for.
fn operation(dice: &mut Dice) -> Vec<u32> {
    use header::{characteristic as id, direction, operation};
    let sizes = [1024, 4096, 8192, 65_536, u32::MAX];
    let values = [
        (id::RBSIZ, sizes[dice.below(sizes.len())]),
        (id::REQREMINV, 1),
    ];
    let xid = XID + dice.next() % 8;
    let pendclr = dice.below(2) == 0;
    match dice.below(4) {
        0 => {
            let info = header::initial(&values, &[dice.word()]);
            header::optional(xid, direction::CALL, operation::INITXCH, &info)
        }
        1 => {
            let info = header::specification(&values[..dice.below(3)]);
            header::optional(xid, direction::CALL, operation::REQXCH, &info)
        }
        2 => {
            let info = [1, dice.word(), 1, dice.word(), 0];
            header::optional(xid, direction::REPLY, operation::RESPXCH, &info)
        }
        _ => {
            let info = header::update(values[0].1, pendclr);
            header::optional(xid, direction::CALL, operation::UPDXCH, &info)
        }
    }
}

#[test]
fn mutated_replies_harm_no_client() {
    count_panics();
    let mut dice = Dice(0x5eed_0005);
    let (mut good, mut bad) = (0, 0);
    for version in Version::BOTH.repeat(400) {
        let (client, mut server) = Victim::speaking(version);
        let length = [4, 3000, 100_000][dice.below(3)];
        let calling = client.echo(&vec![0x17; length as usize]);
        let offered = Offered::parse(&server.answer());
        let mut reply = vec![offered.xid, 1, 4, 0, 0];
        for chunk in &offered.writes {
            reply.extend([1, u32::try_from(chunk.len()).unwrap()]);
            for [handle, length, high, low] in chunk {
                reply.extend([*handle, *length, *high, *low]);
            }
        }
        reply.extend([0, 0]);
        reply.extend(rpc::accepted(offered.xid, 0, &[length]));
        if offered.writes.is_empty() {
            reply.extend(rpc::opaque(&vec![0x17; length as usize])[1..].iter());
        }
        let reply = version.reply(&reply);
        for _ in 0..dice.below(4) {
            let mut near = match (version, dice.below(2)) {
                (Version::Two, 0) => operation(&mut dice),
                _ => reply.clone(),
            };
            let from = dice.below(2);
            dice.spoil(&mut near, from);
            server.send(&words(&near)[..(near.len() * 4).min(4096)]);
        }
        let segments = offered.reads.iter().chain(offered.writes.iter().flatten());
        for [handle, length, _, _] in segments {
            match dice.below(12) {
                0 => server.write(*handle, u64::from(dice.word()), &[1; 16]),
                1 => server.read_request(*handle, u64::from(dice.word()), 16),
                2 => server.read_request(*handle, 0, *length),
                3 => server.send_and_invalidate(&words(&reply), *handle),
                4 => server.write(handle ^ dice.word(), 0, &[1; 16]),
                _ => {}
            }
        }
        server.send(&words(&reply));
        server.hang_up();
        // Whatever came first decides; what must not be is that nothing comes of it.
        match client.outcome(calling) {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
        assert_eq!(PANICS.load(SeqCst), 0, "something has panicked");
    }
    assert!(good > 100 && bad > 100, "{good} replies, {bad} failures");
}
