//! Remote invalidation under the designs of reminv §4, with a peer that names, takes or agrees on
//! what it must not.

use hostile_peer::header::characteristic::{DESIGNS, REQREMINV};
use hostile_peer::header::direction::{CALL, REPLY};
use hostile_peer::header::error::HEADER as BAD_HEADER;
use hostile_peer::header::operation::INITXCH;
use hostile_peer::header::procedure::{ERROR, MSG, OPTIONAL};
use hostile_peer::header::{initial, optional};
use hostile_peer::{
    Calling, Cause, Heard, Offered, PROGRAM, Peer, Segment, Target, Victim, as_words, offer_to,
    offering, procedure, rpc, words,
};
use oncrpc::{Chain, TransportError};
use rpcrdma::{ClientConfig, Design, PersistentArguments, Versions};

const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);
const TAGGED_INVALID_STAG: Cause = Cause(1, 1, 0);

const XID: u32 = 0x5a5a_0001;

/// Handles of ours, and one that is in no call.
const SOURCE: u32 = 0x51;
const SINK: u32 = 0x52;
const FOREIGN: u32 = 0x99;

/// The bit of a design (`docs/design/version-two.md`).
fn bit(design: Design) -> u32 {
    match design {
        Design::PerVersion => 1,
        Design::PerConnection => 2,
        Design::Fixed => 4,
        Design::PerCall => 8,
        Design::PerCallSeveral => 16,
        Design::InterCall => 32,
        Design::PerCallAll => 64,
    }
}

/// Words between the direction word and the lists, where these handles are named.
fn naming(design: Design, named: &[u32]) -> Vec<u32> {
    match design {
        Design::PerCall => vec![named.first().copied().unwrap_or(0)],
        Design::PerCallSeveral | Design::PerCallAll => {
            let count = u32::try_from(named.len()).unwrap();
            [&[count], named].concat()
        }
        _ => Vec::new(),
    }
}

/// A client on a connection where this design was agreed on.
#[track_caller]
fn agreed(target: &Target, design: Design) -> Peer {
    let mut peer = Peer::connect(target.addr());
    peer.memory.insert(SOURCE, vec![7; 8000]);
    peer.memory.insert(SINK, vec![0; 8000]);
    let offer = initial(&[(DESIGNS, u32::MAX)], &[1]);
    peer.send(&words(&optional(XID, CALL, INITXCH, &offer)));
    let answer = peer.answer();
    assert_eq!(answer[3..6], [OPTIONAL, REPLY, INITXCH]);
    let chosen = [DESIGNS, 4, bit(design)];
    assert!(
        answer.windows(3).any(|value| value == chosen),
        "{answer:x?}"
    );
    peer
}

/// Sends a call that offers both handles, with these words before its lists.
fn call(peer: &mut Peer, before: &[u32]) {
    let lists = [1, 44, SOURCE, 5000, 0, 0, 0, 1, 1, SINK, 5000, 0, 0, 0, 0];
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[5000]);
    let message = [&[XID, 2, 32, MSG, CALL], before, &lists, &call].concat();
    peer.send(&words(&message));
}

/// The next message, and the handle that it takes along.
#[track_caller]
fn taken(peer: &mut Peer) -> (Vec<u32>, Option<u32>) {
    match peer.hear() {
        Heard::Message { bytes, invalidated } => (as_words(&bytes), invalidated),
        other => panic!("expected an answer, heard {other:?}"),
    }
}

#[test]
fn server_invalidates_only_handles_that_the_design_allows() {
    for (design, named, expected) in [
        (Design::Fixed, &[][..], Some(SOURCE)),
        (Design::InterCall, &[], Some(SINK)),
        (Design::PerCall, &[0], None),
        (Design::PerCall, &[SINK], Some(SINK)),
        (Design::PerCall, &[SOURCE], Some(SOURCE)),
        (Design::PerCall, &[FOREIGN], None),
        (Design::PerCall, &[u32::MAX], None),
        (Design::PerCallSeveral, &[], None),
        (Design::PerCallSeveral, &[FOREIGN], None),
        (Design::PerCallSeveral, &[FOREIGN, 0, SINK], Some(SINK)),
        (Design::PerCallSeveral, &[FOREIGN; 16], None),
        (Design::PerCallAll, &[], None),
        (Design::PerCallAll, &[FOREIGN; 16], None),
        (Design::PerCallAll, &[FOREIGN, SINK, 0, SINK], Some(SINK)),
    ] {
        let target = Target::taking(&[design]);
        let mut peer = agreed(&target, design);
        for _ in 0..3 {
            call(&mut peer, &naming(design, named));
            let (reply, invalidated) = taken(&mut peer);
            assert_eq!(reply[..5], [XID, 2, 16, MSG, REPLY]);
            assert_eq!(invalidated, expected, "{design}: {named:x?}");
            // The word is copied; an array is not.
            let copied: &[u32] = match design {
                Design::PerCall => &named[..1],
                Design::PerCallSeveral | Design::PerCallAll => &[0],
                _ => &[],
            };
            assert!(reply[5..].starts_with(copied));
        }
        target.assert_serves();
    }
}

#[test]
fn malformed_handle_lists_draw_bad_header() {
    let target = Target::taking(&[Design::PerCallSeveral]);
    let mut peer = agreed(&target, Design::PerCallSeveral);
    let many: Vec<u32> = [17].into_iter().chain([SINK; 17]).collect();
    for before in [&many[..], &[1 << 28], &[u32::MAX, SINK], &[3, SINK]] {
        call(&mut peer, before);
        assert_eq!(taken(&mut peer).0[3..], [ERROR, BAD_HEADER]);
    }
    // As it was before there was an agreement.
    let null = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    let without = [&[XID, 2, 32, MSG, CALL, 0, 0, 0], &null[..]].concat();
    peer.send(&words(&without));
    assert_eq!(taken(&mut peer).0[3..], [ERROR, BAD_HEADER]);
    assert_eq!(peer.reads, 0);
    call(&mut peer, &naming(Design::PerCallSeveral, &[SINK]));
    assert_eq!(taken(&mut peer).1, Some(SINK));
    target.assert_serves();
}

#[test]
fn server_agrees_only_on_designs_that_were_validly_offered() {
    for (taking, bits, nochg) in [
        // Not offered, not among those that are taken, without a meaning, or not for good.
        (vec![Design::PerCall], 0, 1),
        (vec![Design::PerCall], 4 | 16 | 32, 1),
        (vec![Design::PerCall], 0xffff_ffc3, 1),
        (vec![Design::PerCall], 8, 0),
        (Vec::new(), u32::MAX, 1),
    ] {
        let target = Target::taking(&taking);
        let mut peer = Peer::connect(target.addr());
        let offer = initial(&[(DESIGNS, bits)], &[nochg]);
        peer.send(&words(&optional(XID, CALL, INITXCH, &offer)));
        assert!(!peer.answer().contains(&DESIGNS), "{taking:?} of {bits:x}");
        // A later one does not count.
        let good = initial(&[(DESIGNS, u32::MAX)], &[1]);
        peer.send(&words(&optional(XID, CALL, INITXCH, &good)));
        assert!(!peer.answer().contains(&DESIGNS));
        peer.memory.insert(SOURCE, vec![7; 8000]);
        peer.memory.insert(SINK, vec![0; 8000]);
        // So a word for it is taken for a list, and without one nothing goes.
        call(&mut peer, &[SINK]);
        assert_eq!(taken(&mut peer).0[3..], [ERROR, BAD_HEADER]);
        call(&mut peer, &[]);
        assert_eq!(taken(&mut peer).1, None);
        target.assert_serves();
    }
}

#[test]
fn design_alone_governs_where_there_is_one() {
    let target = Target::taking(&[Design::PerCall, Design::PerConnection]);
    let mut peer = Peer::connect(target.addr());
    peer.memory.insert(SOURCE, vec![7; 8000]);
    peer.memory.insert(SINK, vec![0; 8000]);
    // All may go, and nothing but what is named.
    let offer = initial(&[(REQREMINV, 1), (DESIGNS, 8)], &[3]);
    peer.send(&words(&optional(XID, CALL, INITXCH, &offer)));
    assert!(peer.answer().contains(&DESIGNS));
    call(&mut peer, &[0]);
    assert_eq!(taken(&mut peer).1, None);
    target.assert_serves();
}

/// A client that offers these designs.
fn config(designs: &[Design]) -> ClientConfig {
    offering(Versions::Two).with_remote_invalidation(designs.to_vec())
}

/// Answers an offer with these designs.
fn choose(server: &mut Peer, offer: &[u32], bits: u32, nochg: u32) {
    assert!(offer.contains(&DESIGNS), "it is offered");
    let answer = initial(&[(DESIGNS, bits)], &[nochg]);
    server.send(&words(&optional(offer[0], REPLY, INITXCH, &answer)));
}

/// A client that offers these designs, whose server takes what has these bits.
fn answered(designs: &[Design], bits: u32) -> (Victim, Peer) {
    meeting(config(designs), bits)
}

fn meeting(config: ClientConfig, bits: u32) -> (Victim, Peer) {
    Victim::offering(config, |server, offer| choose(server, offer, bits, 1))
}

/// A call of the client that offers a Read chunk and a Write chunk, and what it names.
struct Called {
    calling: Calling,
    offered: Offered,
    named: Vec<u32>,
}

impl Called {
    #[track_caller]
    fn hear(design: Option<Design>, client: &Victim, server: &mut Peer) -> Self {
        let calling = client.echo(&[3; 50_000]);
        let mut message = loop {
            let message = server.answer();
            if message[3] != OPTIONAL {
                break message;
            }
        };
        let named = match design {
            Some(Design::PerCall) => vec![message.remove(5)],
            Some(Design::PerCallSeveral | Design::PerCallAll) => {
                let count = message.remove(5);
                message.drain(5..5 + count as usize).collect()
            }
            _ => Vec::new(),
        };
        let offered = Offered::parse(&message);
        assert_eq!((offered.reads.len(), offered.writes.len()), (1, 1));
        Self {
            calling,
            offered,
            named,
        }
    }

    fn source(&self) -> u32 {
        self.offered.reads[0][0]
    }

    fn sink(&self) -> u32 {
        self.offered.writes[0][0][0]
    }

    /// A reply with these words before its lists.
    fn reply(&self, before: &[u32]) -> Vec<u8> {
        let [handle, _, high, low] = self.offered.writes[0][0];
        let xid = self.offered.xid;
        let lists = [0, 1, 1, handle, 0, high, low, 0, 0];
        let result = rpc::accepted(xid, 0, &[0]);
        words(&[&[xid, 2, 4, MSG, REPLY], before, &lists, &result].concat())
    }
}

#[track_caller]
fn assert_lost(client: &Victim, called: Called) {
    match client.outcome(called.calling) {
        Err(TransportError::Disconnected(_)) => {}
        other => panic!(
            "expected the loss of the connection, got {:?}",
            other.map(drop)
        ),
    }
}

const SELECTABLE: [Design; 5] = [
    Design::Fixed,
    Design::PerCall,
    Design::PerCallSeveral,
    Design::InterCall,
    Design::PerCallAll,
];

#[test]
fn client_agrees_on_exactly_one_design_that_it_offered() {
    let designs = [Design::PerCall, Design::Fixed];
    // None, whether or not the server says so.
    for answer in [initial(&[(DESIGNS, 0)], &[1]), initial(&[], &[])] {
        let (client, mut server) = Victim::offering(config(&designs), |server, offer| {
            server.send(&words(&optional(offer[0], REPLY, INITXCH, &answer)));
        });
        let called = Called::hear(None, &client, &mut server);
        server.send(&called.reply(&[]));
        client.outcome(called.calling).expect("a reply");
        // Nor did it allow that anything goes.
        let called = Called::hear(None, &client, &mut server);
        server.send_and_invalidate(&called.reply(&[]), called.sink());
        server.drain();
        assert_lost(&client, called);
    }
    let two = bit(Design::PerCall) | bit(Design::Fixed);
    for (bits, nochg) in [
        (two, 1),
        (u32::MAX, 1),
        // Not offered, of no meaning, and not for good.
        (bit(Design::PerCallSeveral), 1),
        (bit(Design::InterCall), 1),
        (1, 1),
        (2, 1),
        (1 << 31, 1),
        (bit(Design::PerCall), 0),
    ] {
        let error = offer_to(config(&designs), |server, offer| {
            choose(server, offer, bits, nochg);
            server.drain();
        });
        let said = Chain(&error).to_string();
        assert!(said.contains("neither one of them nor none"), "{said}");
    }
    // What cannot be read may have named one.
    let error = offer_to(config(&designs), |server, offer| {
        server.send(&words(&optional(offer[0], REPLY, INITXCH, &[1, DESIGNS])));
        server.drain();
    });
    let said = Chain(&error).to_string();
    assert!(said.contains("neither one of them nor none"), "{said}");
}

#[test]
fn each_handle_of_a_call_can_be_invalidated_once() {
    for design in SELECTABLE {
        let (client, mut server) = answered(&[design], bit(design));
        let before = naming(design, &[]);
        for handle in [Called::source, Called::sink] {
            let called = Called::hear(Some(design), &client, &mut server);
            let (source, sink) = (called.source(), called.sink());
            assert!(
                called
                    .named
                    .iter()
                    .all(|named| [source, sink].contains(named))
            );
            server.send_and_invalidate(&called.reply(&before), handle(&called));
            client.outcome(called.calling).expect("a reply");
        }
        // What went is no handle any more, for another call or by itself.
        let gone = Called::hear(Some(design), &client, &mut server);
        server.send_and_invalidate(&gone.reply(&before), gone.sink());
        let sink = gone.sink();
        client.outcome(gone.calling).expect("a reply");
        let called = Called::hear(Some(design), &client, &mut server);
        server.send_and_invalidate(&called.reply(&before), sink);
        server.assert_terminated(CANNOT_INVALIDATE);
        assert_lost(&client, called);
        drop(server);
        client.assert_nothing_is_left();
    }
}

#[test]
fn unknown_handles_cannot_be_invalidated() {
    for design in SELECTABLE {
        for other in [1, 0x100, 0x8000_0000] {
            let (client, mut server) = answered(&[design], bit(design));
            let called = Called::hear(Some(design), &client, &mut server);
            let reply = called.reply(&naming(design, &[]));
            server.send_and_invalidate(&reply, called.sink() ^ other);
            server.assert_terminated(CANNOT_INVALIDATE);
            assert_lost(&client, called);
        }
    }
}

#[test]
fn handle_of_another_call_can_be_invalidated_only_under_inter_call_and_if_read() {
    for design in SELECTABLE {
        for (handle, goes) in [
            (
                Called::source as fn(&Called) -> u32,
                design == Design::InterCall,
            ),
            (Called::sink, false),
        ] {
            let (client, mut server) = answered(&[design], bit(design));
            let before = naming(design, &[]);
            let first = Called::hear(Some(design), &client, &mut server);
            let second = Called::hear(Some(design), &client, &mut server);
            server.send_and_invalidate(&second.reply(&before), handle(&first));
            if !goes {
                server.drain();
                assert_lost(&client, first);
                assert_lost(&client, second);
                continue;
            }
            client.outcome(second.calling).expect("a reply");
            // It goes once, and its own call has its reply.
            let source = first.source();
            server.send(&first.reply(&before));
            client.outcome(first.calling).expect("a reply");
            server.write(source, 0, b"gone");
            server.assert_terminated(TAGGED_INVALID_STAG);
        }
    }
}

#[test]
fn handle_list_of_a_reply_is_ignored_if_well_formed() {
    for (design, meaningless, wrong) in [
        (Design::PerCall, &[FOREIGN][..], &[][..]),
        (Design::PerCallSeveral, &[2, FOREIGN, FOREIGN], &[17]),
        (Design::PerCallAll, &[2, FOREIGN, FOREIGN], &[17]),
    ] {
        let (client, mut server) = answered(&[design], bit(design));
        let called = Called::hear(Some(design), &client, &mut server);
        server.send(&called.reply(meaningless));
        client.outcome(called.calling).expect("a reply");
        // One that cannot be read is discarded.
        let called = Called::hear(Some(design), &client, &mut server);
        server.send(&called.reply(wrong));
        server.send(&called.reply(meaningless));
        client.outcome(called.calling).expect("a reply");
    }
}

#[test]
fn persistent_memory_cannot_be_invalidated_and_is_not_listed() {
    let config = offering(Versions::Two)
        .with_remote_invalidation(Design::ALL[1..].to_vec())
        .with_persistent_arguments(PersistentArguments {
            regions: 4,
            bytes: 64 << 10,
        });
    let design = Design::PerCall;
    let (client, mut server) = meeting(config, bit(design));
    let before = naming(design, &[]);
    let called = Called::hear(Some(design), &client, &mut server);
    assert_eq!(called.named, [called.sink()]);
    let stays = called.source();
    server.send_and_invalidate(&called.reply(&before), called.sink());
    client.outcome(called.calling).expect("a reply");
    // The same memory again; between calls it can be read, and never be written or invalidated.
    let called = Called::hear(Some(design), &client, &mut server);
    assert_eq!(called.source(), stays);
    server.read_request(stays, 0, 4);
    assert_eq!(server.hear(), Heard::Read(vec![3; 4]));
    server.send_and_invalidate(&called.reply(&before), stays);
    server.drain();
    assert_lost(&client, called);
    drop(server);
    client.assert_nothing_is_left();
}

/// A client that registers both chunks of a call under one handle, and a server of this design.
fn with_one_region(design: Design) -> (Victim, Peer) {
    let config = config(&[design]).with_one_region(true);
    meeting(config, bit(design))
}

impl Called {
    /// Offsets of the Read chunk and of the Write chunk in the region that they share.
    fn offsets(&self) -> [u64; 2] {
        assert_eq!(self.source(), self.sink(), "one handle");
        let offset = |[_, _, high, low]: [u32; 4]| u64::from(high) << 32 | u64::from(low);
        [self.offered.reads[0], self.offered.writes[0][0]].map(offset)
    }
}

#[test]
fn one_region_of_a_call_ends_with_one_invalidation_and_is_named_once() {
    for design in SELECTABLE {
        let (client, mut server) = with_one_region(design);
        let before = naming(design, &[]);
        let called = Called::hear(Some(design), &client, &mut server);
        let [source, sink] = called.offsets();
        let handle = called.sink();
        assert!(called.named.len() <= 1 && called.named.iter().all(|&named| named == handle));
        server.read_request(handle, source, 4);
        assert_eq!(server.hear(), Heard::Read(vec![3; 4]));
        server.write(handle, sink, b"written");
        server.send_and_invalidate(&called.reply(&before), handle);
        client.outcome(called.calling).expect("a reply");
        // Neither chunk is in reach any more.
        server.write(handle, sink, b"gone");
        server.assert_terminated(TAGGED_INVALID_STAG);
        drop(server);
        client.assert_nothing_is_left();
    }
}

#[test]
fn chunk_of_one_region_is_open_for_its_own_access_and_within_its_own_bounds() {
    const DDP_BOUNDS: Cause = Cause(1, 1, 1);
    const RDMA_BOUNDS: Cause = Cause(0, 1, 1);
    const RDMA_ACCESS: Cause = Cause(0, 1, 2);
    type Offence = fn(&mut Peer, u32, [u64; 2]);
    let offences: [(Offence, Cause); 5] = [
        (
            |server, handle, [source, _]| server.write(handle, source, b"mine"),
            RDMA_ACCESS,
        ),
        (
            |server, handle, [_, sink]| server.read_request(handle, sink, 4),
            RDMA_ACCESS,
        ),
        (
            |server, handle, [source, _]| server.read_request(handle, source + 49_999, 2),
            RDMA_BOUNDS,
        ),
        (
            |server, handle, [_, sink]| server.write(handle, sink + (1 << 39), b"far"),
            DDP_BOUNDS,
        ),
        (
            |server, handle, [_, sink]| server.write(handle, sink + (1 << 40), b"none"),
            DDP_BOUNDS,
        ),
    ];
    for (offence, cause) in offences {
        let (client, mut server) = with_one_region(Design::PerCall);
        let called = Called::hear(Some(Design::PerCall), &client, &mut server);
        let offsets = called.offsets();
        offence(&mut server, called.sink(), offsets);
        server.assert_terminated(cause);
        assert_lost(&client, called);
        drop(server);
        client.assert_nothing_is_left();
    }
}

#[test]
fn one_region_of_another_call_cannot_be_invalidated_under_any_design() {
    for design in SELECTABLE {
        let (client, mut server) = with_one_region(design);
        let first = Called::hear(Some(design), &client, &mut server);
        let second = Called::hear(Some(design), &client, &mut server);
        let reply = second.reply(&naming(design, &[]));
        server.send_and_invalidate(&reply, first.sink());
        server.drain();
        assert_lost(&client, first);
        assert_lost(&client, second);
        drop(server);
        client.assert_nothing_is_left();
    }
}

/// Opcode of the extension by which a Send invalidates several handles.
const INVALIDATE: u8 = 15;

/// Says ahead of the next Send that it invalidates this handle too.
fn invalidate_ahead(server: &mut Peer, handle: u32) {
    server.segment(&Segment::tagged(INVALIDATE, handle, 0, &[]));
}

#[test]
fn both_handles_of_a_call_go_with_its_reply_and_only_once() {
    let design = Design::PerCallAll;
    let (client, mut server) = answered(&[design], bit(design));
    let before = naming(design, &[]);
    for _ in 0..3 {
        let called = Called::hear(Some(design), &client, &mut server);
        let (source, sink) = (called.source(), called.sink());
        assert_eq!(called.named, [source, sink]);
        invalidate_ahead(&mut server, source);
        server.send_and_invalidate(&called.reply(&before), sink);
        client.outcome(called.calling).expect("a reply");
    }
    let called = Called::hear(Some(design), &client, &mut server);
    invalidate_ahead(&mut server, called.source());
    server.send_and_invalidate(&called.reply(&before), called.source());
    server.assert_terminated(CANNOT_INVALIDATE);
    assert_lost(&client, called);
    drop(server);
    client.assert_nothing_is_left();
}

#[test]
fn handle_of_another_call_among_several_ends_the_connection() {
    let design = Design::PerCallAll;
    for foreign in [Called::source, Called::sink] {
        let (client, mut server) = answered(&[design], bit(design));
        let first = Called::hear(Some(design), &client, &mut server);
        let second = Called::hear(Some(design), &client, &mut server);
        invalidate_ahead(&mut server, foreign(&first));
        server.send_and_invalidate(&second.reply(&naming(design, &[])), second.sink());
        server.drain();
        assert_lost(&client, first);
        assert_lost(&client, second);
        drop(server);
        client.assert_nothing_is_left();
    }
}

#[test]
fn list_of_unknown_handles_or_longer_than_agreed_on_is_refused() {
    let design = Design::PerCallAll;
    let (client, mut server) = answered(&[design], bit(design));
    let called = Called::hear(Some(design), &client, &mut server);
    invalidate_ahead(&mut server, called.sink() ^ 1);
    server.assert_terminated(CANNOT_INVALIDATE);
    assert_lost(&client, called);
    // As many calls as there are credits offer eight handles; the limit is sixteen with that of the Send.
    let (client, mut server) =
        Victim::offering(config(&[design]).with_credits(10), |server, offer| {
            choose(server, offer, bit(design), 1);
        });
    let first = Called::hear(Some(design), &client, &mut server);
    server.send(&with_credits(first.reply(&naming(design, &[])), 10));
    client.outcome(first.calling).expect("a reply");
    let calls: Vec<Called> = (0..9)
        .map(|_| Called::hear(Some(design), &client, &mut server))
        .collect();
    for called in &calls[..8] {
        invalidate_ahead(&mut server, called.source());
        invalidate_ahead(&mut server, called.sink());
    }
    server.assert_terminated(CANNOT_INVALIDATE);
    for called in calls {
        assert_lost(&client, called);
    }
    drop(server);
    client.assert_nothing_is_left();
}

/// A reply that grants so many credits.
fn with_credits(mut reply: Vec<u8>, credits: u32) -> Vec<u8> {
    reply[8..12].copy_from_slice(&credits.to_be_bytes());
    reply
}

#[test]
fn several_handles_cannot_be_invalidated_where_that_was_not_agreed_on() {
    const UNEXPECTED_OPCODE: Cause = Cause(0, 2, 6);
    let design = Design::PerCallSeveral;
    let (client, mut server) = answered(&[design], bit(design));
    let called = Called::hear(Some(design), &client, &mut server);
    invalidate_ahead(&mut server, called.sink());
    server.assert_terminated(UNEXPECTED_OPCODE);
    assert_lost(&client, called);
}
