//! Remote invalidation under each design that two ends agree on (reminv §4).

use super::lone::{self, read_chunk, segment};
use super::pair::{Pair, Setup};
use super::*;
use crate::codec::Contents;
use crate::limits::{
    MAX_SEGMENTS_PER_CHUNK, MAX_SHARED_COMPARISONS, MAX_SPARE_CANDIDATES, MAX_SPARE_SEGMENTS,
};
use crate::v2::characteristics::{
    BackwardSupport, Characteristic, InvalidationDesigns, RequesterRemoteInvalidation,
};
use crate::v2::header::Invalidate;
use crate::v2::operations::Supported;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, WriteChunk};
use crate::{Design, Event, PersistentArguments, Registration, Violation};
use oncrpc::Reply;
use oncrpc::xdr;
use verbs::{Completion, Handle, Invalidation, WorkRequest};
use verbs_sim::EndOptions;

/// Two ends that speak version two, and are ready for these designs.
fn setup(client: &[Design], server: &[Design]) -> Setup {
    let mut setup = Setup::default();
    setup.client.versions = Versions::Two;
    setup.server.versions = Versions::Two;
    setup.client.characteristics.designs = client.to_vec();
    setup.server.characteristics.designs = server.to_vec();
    setup
}

fn agreed(pair: &Pair) -> [Option<Design>; 2] {
    [&pair.client, &pair.server].map(|end| {
        let session = end.connection.session().expect("version two");
        session.design()
    })
}

const ARGUMENT: usize = 20_000;
const RESULT: usize = 30_000;

/// Sends a call that offers memory to be read and memory to be written, and gives it as it arrives.
fn send(pair: &mut Pair, xid: u32) -> CallId {
    pair.call(request(
        xid,
        call(xid, 4, &[ARGUMENT]),
        bound(40, &[RESULT]),
    ));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(xid, 4, &[ARGUMENT])));
    id
}

fn answer(pair: &mut Pair, id: CallId, xid: u32) {
    pair.answer(id, Reply::Message(reply(xid, 4, &[RESULT])));
    check_reply(&pair.ended().expect("a reply"), xid, 4, &[RESULT]);
}

/// Handles of the client that its peer invalidated, and that it invalidated itself.
fn invalidated(pair: &Pair) -> (u64, u64) {
    let counters = pair.client.connection.counters();
    (counters.remote_invalidations, counters.local_invalidations)
}

#[test]
fn under_each_design_one_handle_of_the_call_goes_with_its_reply() {
    for design in [
        Design::Fixed,
        Design::PerCall,
        Design::PerCallSeveral,
        Design::InterCall,
    ] {
        let mut pair = Pair::with(setup(&[design], &[design]));
        for xid in 0..10 {
            let id = send(&mut pair, xid);
            answer(&mut pair, id, xid);
        }
        pair.check_idle();
        assert_eq!(agreed(&pair), [Some(design); 2]);
        assert_eq!(invalidated(&pair), (10, 10), "{design}");
    }
}

#[test]
fn ends_that_agree_on_no_design_keep_to_what_each_said_of_all_its_handles() {
    for (client, server) in [
        (&[Design::Fixed][..], &[Design::PerCall][..]),
        (&[], &[Design::PerCall]),
        (&[Design::PerCall], &[]),
    ] {
        for wanted in [true, false] {
            let mut setup = setup(client, server);
            setup.client.own.remote_invalidation = wanted;
            let mut pair = Pair::with(setup);
            let id = send(&mut pair, 1);
            answer(&mut pair, id, 1);
            assert_eq!(agreed(&pair), [None; 2]);
            let remote = u64::from(wanted);
            assert_eq!(invalidated(&pair), (remote, 2 - remote));
        }
    }
}

#[test]
fn end_with_per_version_says_so_and_goes_by_what_its_peer_says() {
    // Whether the server has it, and whether the client says that its handles may go: because it has
    // it too, or for this connection.
    for (server, client, remote) in [
        (true, true, 1),
        (true, false, 0),
        (false, true, 0),
        (false, false, 0),
    ] {
        for by_version in [true, false] {
            let mut setup = setup(&[], &[]);
            setup.server.own.remote_invalidation = false;
            setup.server.characteristics.remote_invalidation_by_version = server;
            setup.client.own.remote_invalidation = client && !by_version;
            setup.client.characteristics.remote_invalidation_by_version = client && by_version;
            let mut pair = Pair::with(setup);
            let id = send(&mut pair, 1);
            answer(&mut pair, id, 1);
            let heard = pair.server.connection.session().expect("version two");
            assert_eq!(heard.peer::<RequesterRemoteInvalidation>(), client);
            assert_eq!(invalidated(&pair), (remote, 2 - remote));
        }
    }
}

#[test]
fn per_version_needs_no_word_of_a_client_that_has_no_characteristics() {
    for (by_version, remote) in [(true, 1), (false, 0)] {
        let mut setup = setup(&[], &[]);
        setup.client.characteristics.supported = Supported::None;
        for end in [&mut setup.client, &mut setup.server] {
            end.characteristics.remote_invalidation_by_version = by_version;
        }
        let mut pair = Pair::with(setup);
        let first = request(1, call(1, 4, &[]), bound(40, &[]));
        pair.call(first);
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(1, 4, &[])));
        pair.ended().expect("a reply");
        let id = send(&mut pair, 2);
        answer(&mut pair, id, 2);
        assert_eq!(invalidated(&pair), (remote, 2 - remote));
    }
}

#[test]
fn characteristics_without_reqreminv_say_no_under_per_version() {
    let mut config = config(Role::Server);
    config.versions = Versions::Two;
    config.characteristics.remote_invalidation_by_version = true;
    let limits = EndOptions::default().limits;
    let mut server = Connection::new(&config, TestOwner::default(), None, &limits);
    let mut taken = |handle| {
        hear(&mut server, handle, &written(&[handle]), Invalidate::Unsaid);
        let taken = answered(&mut server).1;
        if handle == 50 {
            // An INITXCH with another characteristic: the default of Table 1 holds from then on.
            arrive(&mut server, &[1, 2, 8, 5, 0, 1, 20, 1, 1, 4, 4096, 0]);
            while server.poll_post().is_some() {}
        }
        taken
    };
    assert_eq!(taken(50), Some(Handle(50)));
    assert_eq!(taken(51), None);
}

#[test]
fn server_whose_memory_stays_does_not_let_its_client_take_it_along() {
    // Its provider takes it, and it has no other reason not to.
    for (stays, remote) in [(false, 1), (true, 0)] {
        let mut setup = setup(&[], &[]);
        for end in [&mut setup.client, &mut setup.server] {
            end.own.remote_invalidation = false;
            end.characteristics.remote_invalidation_by_version = true;
            end.characteristics.backward = BackwardSupport::General;
        }
        if stays {
            setup.server.registrations = Registrations::OF_CALLS.with(Registration::Persistent);
        }
        let mut pair = Pair::with(setup);
        pair.drive();
        pair.client_is_ready();
        pair.call_back(request(1, call(1, 4, &[ARGUMENT]), bound(40, &[RESULT])));
        let (id, _) = pair.arrived_back();
        pair.answer_back(id, Reply::Message(reply(1, 4, &[RESULT])));
        check_reply(&pair.ended_back().expect("a reply"), 1, 4, &[RESULT]);
        let client = pair.client.connection.session().expect("version two");
        assert_eq!(client.peer::<RequesterRemoteInvalidation>(), !stays);
        let counters = pair.server.connection.counters();
        let gone = (counters.remote_invalidations, counters.local_invalidations);
        assert_eq!(gone, (remote, 2 - remote));
    }
}

/// A client with memory that stays.
fn with_persistent(designs: &[Design]) -> Setup {
    let mut setup = setup(designs, &Design::ALL);
    setup.client.own.remote_invalidation = false;
    setup.client.registrations = Registrations::OF_CALLS.with(Registration::Persistent);
    setup.client.persistent = Some(PersistentArguments {
        regions: 1,
        bytes: ARGUMENT,
    });
    setup
}

#[test]
fn requester_that_selects_keeps_what_is_to_stay() {
    for design in [Design::PerCall, Design::PerCallSeveral, Design::PerCallAll] {
        let mut pair = Pair::with(with_persistent(&[Design::Fixed, design]));
        for xid in 0..5 {
            let id = send(&mut pair, xid);
            answer(&mut pair, id, xid);
        }
        // One region, registered once; that of the result went with the reply.
        assert_eq!(invalidated(&pair), (5, 0));
        assert_eq!(pair.client.qp.inner().outstanding().regions, 1);
    }
}

#[test]
fn arguments_for_which_no_persistent_memory_is_left_are_registered() {
    let mut pair = Pair::with(with_persistent(&[Design::PerCallSeveral]));
    // One credit comes before the first reply.
    let id = send(&mut pair, 1);
    answer(&mut pair, id, 1);
    let one = send(&mut pair, 2);
    let other = send(&mut pair, 3);
    assert_eq!(pair.client.connection.exposed(), 1 + 2);
    answer(&mut pair, one, 2);
    answer(&mut pair, other, 3);
    assert_eq!(invalidated(&pair), (3, 1));
    assert_eq!(pair.client.qp.inner().outstanding().regions, 1);
}

#[test]
fn memory_that_stays_leaves_room_for_that_of_each_call() {
    for regions in 2..6 {
        let mut setup = with_persistent(&[Design::PerCall]);
        setup.client.persistent = Some(PersistentArguments {
            regions: 100,
            bytes: RESULT + 1,
        });
        setup.ends.left.limits.regions = regions;
        setup.ends.left.limits.max_region = RESULT;
        let mut pair = Pair::with(setup);
        pair.drive();
        // All arguments are in memory that may stay, as far as it goes.
        for xid in 0..6 {
            pair.call(request(xid, call(xid, 4, &[1000; 5]), bound(40, &[])));
        }
        for _ in 0..6 {
            pair.drive();
            let (id, message) = pair.calls.remove(0);
            let xid = xdr::Reader::from(&message).u32().expect("an XID");
            pair.answer(id, Reply::Message(reply(xid, 4, &[])));
        }
        pair.replies.clear();
        let id = send(&mut pair, 7);
        answer(&mut pair, id, 7);
        // If there were as many regions for it, it would take five.
        pair.call(request(8, call(8, 4, &[5000; 5]), bound(40, &[])));
        pair.arrived();
    }
}

#[test]
fn memory_that_is_to_stay_rules_out_that_anybody_else_selects() {
    let others = [Design::Fixed, Design::InterCall];
    let mut pair = Pair::with(with_persistent(&others));
    let id = send(&mut pair, 1);
    answer(&mut pair, id, 1);
    assert_eq!(agreed(&pair), [None; 2]);
    assert_eq!(invalidated(&pair), (0, 1));
}

#[test]
fn requester_whose_provider_cannot_take_it_names_no_handle() {
    let designs = [Design::PerCall, Design::Fixed];
    let mut setup = setup(&designs, &designs);
    setup.client.own.remote_invalidation = false;
    setup.ends.left.limits.remote_invalidation = Invalidation::None;
    let mut pair = Pair::with(setup);
    let id = send(&mut pair, 1);
    answer(&mut pair, id, 1);
    assert_eq!(agreed(&pair), [Some(Design::PerCall); 2]);
    assert_eq!(invalidated(&pair), (0, 2));
}

#[test]
fn reply_to_another_call_takes_along_what_has_been_read() {
    let designs = [Design::InterCall];
    let mut pair = Pair::with(setup(&designs, &designs));
    let id = send(&mut pair, 1);
    answer(&mut pair, id, 1);
    let before = invalidated(&pair);
    let large = send(&mut pair, 2);
    let exposed = pair.client.connection.exposed();
    pair.call(request(3, call(3, 4, &[]), bound(40, &[])));
    let (small, _) = pair.arrived();
    pair.answer(small, Reply::Message(reply(3, 4, &[])));
    check_reply(&pair.ended().expect("a reply"), 3, 4, &[]);
    assert_eq!(invalidated(&pair), (before.0 + 1, before.1));
    // It makes room at once, before its own call has an end.
    assert_eq!(pair.client.connection.exposed(), exposed - 1);
    answer(&mut pair, large, 2);
    assert_eq!(invalidated(&pair), (before.0 + 2, before.1));
    let counters = pair.client.connection.counters();
    assert_eq!(counters.remote_invalidations_inter_call, 1);
    pair.check_idle();
}

#[test]
fn last_handle_of_a_call_is_left_for_its_own_reply() {
    let designs = [Design::InterCall];
    let mut pair = Pair::with(setup(&designs, &designs));
    let id = send(&mut pair, 1);
    answer(&mut pair, id, 1);
    let before = invalidated(&pair);
    pair.call(request(2, call(2, 4, &[ARGUMENT]), bound(40, &[])));
    let (one_handle, _) = pair.arrived();
    pair.call(request(3, call(3, 4, &[]), bound(40, &[])));
    let (small, _) = pair.arrived();
    pair.answer(small, Reply::Message(reply(3, 4, &[])));
    pair.ended().expect("a reply");
    assert_eq!(invalidated(&pair), before);
    pair.answer(one_handle, Reply::Message(reply(2, 4, &[])));
    pair.ended().expect("a reply");
    assert_eq!(invalidated(&pair), (before.0 + 1, before.1));
}

/// One end that is ready for two designs, by itself.
fn ready(role: Role) -> Connection {
    let mut config = config(role);
    config.versions = Versions::Auto;
    config.characteristics.designs = vec![Design::PerCall, Design::Fixed];
    Connection::new(
        &config,
        TestOwner::default(),
        None,
        &EndOptions::default().limits,
    )
}

fn arrive(end: &mut Connection, words: &[u32]) {
    let bytes = words.iter().flat_map(|word| word.to_be_bytes());
    lone::arrive(end, bytes.collect());
}

/// An INITXCH that says nothing but these bits, and perhaps that they never change.
fn naming(xid: u32, direction: Direction, bits: u32, fixed: bool) -> [u32; 13] {
    let id = InvalidationDesigns::ID.0;
    let direction = direction as u32;
    let nochg = u32::from(fixed);
    [xid, 2, 8, 5, direction, 1, 24, 1, id, 4, bits, 1, nochg]
}

#[test]
fn offer_of_designs_counts_behind_no_message_whatever_became_of_that() {
    let check = |before: Option<&[u32]>, expected| {
        let mut server = ready(Role::Server);
        before.inspect(|before| arrive(&mut server, before));
        arrive(&mut server, &naming(8, Direction::Call, 0b1100, true));
        while server.poll_post().is_some() {}
        let session = server.session().expect("version two");
        assert_eq!(session.design(), expected, "{before:?}");
    };
    check(None, Some(Design::PerCall));
    // Not even a header, a bad one of each version, another version, an error, a reply.
    check(Some(&[7]), None);
    check(Some(&[7, 1, 4, 9, 0, 0, 0]), None);
    check(Some(&[7, 2, 4, 9, 0, 0, 0, 0]), None);
    check(Some(&[7, 3, 4, 0, 0, 0, 0]), None);
    check(Some(&[7, 2, 4, 4, 2]), None);
    check(Some(&[7, 2, 4, 0, 1, 0, 0, 0, 7, 1]), None);
}

#[test]
fn connection_ends_where_it_is_not_clear_which_design_the_server_took() {
    let check = |before: Option<&[u32]>, answer: &[u32], expected| {
        let mut client = ready(Role::Client);
        let xid = match client.poll_post() {
            Some(WorkRequest::Send { buffer, .. }) => *buffer.first_chunk().expect("an XID"),
            other => panic!("{other:?}"),
        };
        let words = [&[u32::from_be_bytes(xid)], answer].concat();
        before.inspect(|before| arrive(&mut client, before));
        arrive(&mut client, &words);
        let design = client.session().expect("version two").design();
        let ended = match client.violation() {
            None => Ok(design),
            Some(violation) => Err(violation),
        };
        assert_eq!(ended, expected, "{before:?} {answer:?}");
    };
    let unclear = Err(Violation::UnclearDesign);
    let named = |bits, fixed| naming(0, Direction::Reply, bits, fixed)[1..].to_vec();
    let alone = |answer: &[u32], expected| check(None, answer, expected);
    alone(&named(0b100, true), Ok(Some(Design::Fixed)));
    alone(&named(0, true), Ok(None));
    // No characteristic; no INITXCH.
    alone(&[2, 8, 5, 1, 1, 8, 0, 0], Ok(None));
    alone(&[2, 8, 4, 3], Ok(None));
    // Two, one that was not offered, one without a meaning, one that may change, nobody knows what.
    alone(&named(0b1100, true), unclear);
    alone(&named(0b10_0000, true), unclear);
    alone(&named(1 << 20, true), unclear);
    alone(&named(0b100, false), unclear);
    alone(&[2, 8, 5, 1, 1, 4, 7], unclear);
    // Behind something else.
    check(Some(&[7, 2, 8, 4, 2]), &named(0b100, true), unclear);
    let unasked = naming(7, Direction::Call, 0, true);
    check(Some(&unasked), &named(0b100, true), unclear);
}

/// The handle that goes along with the reply to a small call, while another call has been read that
/// offers these, and Write chunks of so many segments.
fn taken_along(read: impl Iterator<Item = u32>, written: usize) -> Option<Handle> {
    let mut pair = Pair::with(setup(&[Design::InterCall], &[Design::InterCall]));
    pair.drive();
    let server = &mut pair.server.connection;
    let mut take = |xid, lists| {
        let mut bytes = Buffer::default();
        let contents = Contents {
            long: false,
            direction: Direction::Call,
            invalidate: Invalidate::Unsaid,
            lists,
        };
        server
            .core
            .shared
            .agreed
            .codec
            .emit(&mut bytes, xid, 8, &contents);
        bytes.extend_from_slice(&stream(&call(xid, 40, &[])));
        lone::arrive(server, bytes.to_vec());
        while let Some(work) = server.poll_post() {
            if let WorkRequest::Read { wr, mut sink, from } = work {
                sink.set_len(8 * from.len());
                server.handle_completion(Completion::Read { wr, sink });
            }
        }
        match server.poll_event() {
            Some(Event::Call { id, .. }) => id,
            other => panic!("{other:?}"),
        }
    };
    let segments = read.map(|handle| segment(handle, 8)).collect();
    let written = vec![segment(1000, 8); written];
    let chunks = written.chunks(MAX_SEGMENTS_PER_CHUNK);
    let lists = Lists {
        reads: vec![read_chunk(52, segments)],
        writes: chunks
            .map(|segments| WriteChunk {
                segments: segments.into(),
            })
            .collect(),
        reply: None,
    };
    let _large = take(5, &lists);
    let small = take(6, &Lists::default());
    server.reply(small, Reply::Message(reply(6, 4, &[])));
    match server.poll_post() {
        Some(WorkRequest::Send { invalidate, .. }) => invalidate.map(|all| all.first()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_another_call_offers_is_looked_through_as_far_as_the_limits_go() {
    // Those that are offered twice are in use.
    let twice = |handles| (1..=handles).flat_map(|handle| [handle; 2]);
    let candidates = MAX_SPARE_CANDIDATES as u32;
    let once = Some(Handle(50));
    assert_eq!(taken_along([50, 51].into_iter(), 1), once);
    let few = twice(candidates / 2 - 1).chain([50]);
    assert_eq!(taken_along(few, 1), once);
    let many = twice(candidates / 2).chain([50]);
    assert_eq!(taken_along(many, 1), None);
    let written = MAX_SPARE_SEGMENTS - 2;
    assert_eq!(taken_along([50, 51].into_iter(), written), once);
    assert_eq!(taken_along([50, 51].into_iter(), written + 1), None);
}

#[test]
fn calls_of_a_server_keep_to_the_same_design() {
    for design in [Design::Fixed, Design::PerCall, Design::PerCallSeveral] {
        let mut setup = setup(&[design], &[design]);
        setup.client.characteristics.backward = BackwardSupport::General;
        setup.server.characteristics.backward = BackwardSupport::General;
        let mut pair = Pair::with(setup);
        pair.drive();
        pair.client_is_ready();
        pair.call_back(request(1, call(1, 4, &[ARGUMENT]), bound(40, &[RESULT])));
        let (id, message) = pair.arrived_back();
        assert_eq!(stream(&message), stream(&call(1, 4, &[ARGUMENT])));
        pair.answer_back(id, Reply::Message(reply(1, 4, &[RESULT])));
        check_reply(&pair.ended_back().expect("a reply"), 1, 4, &[RESULT]);
        let counters = pair.server.connection.counters();
        assert_eq!(counters.remote_invalidations, 1, "{design}");
        assert_eq!(counters.local_invalidations, 1, "{design}");
    }
}

#[test]
fn reply_copies_the_handle_of_its_call() {
    let words = crate::v2::header::WordLayout::One;
    let mut pair = Pair::with(setup(&[Design::PerCall], &[Design::PerCall]));
    let id = send(&mut pair, 1);
    pair.server
        .connection
        .reply(id, Reply::Message(reply(1, 4, &[RESULT])));
    let posted = std::iter::from_fn(|| pair.server.connection.poll_post());
    let sent: Vec<_> = posted
        .filter_map(|work| match work {
            WorkRequest::Send {
                buffer, invalidate, ..
            } => Some((buffer, invalidate.map(|all| all.first()))),
            _ => None,
        })
        .collect();
    let [(message, Some(handle))] = &sent[..] else {
        panic!("one reply with a handle: {sent:?}");
    };
    let (header, _) = crate::v2::header::Header::parse(message, words).expect("a header");
    let crate::v2::header::Body::Msg(chunks) = header.body else {
        panic!("{header:?}");
    };
    assert_eq!(chunks.invalidate.handles(), [*handle]);
    // The result is larger than the argument.
    assert_eq!(chunks.lists.writes[0].segments[0].handle, *handle);
}

/// A call comes to `server` with these chunks, and names handles.
fn hear(server: &mut Connection, xid: u32, lists: &Lists, invalidate: Invalidate) {
    let mut bytes = Buffer::default();
    let contents = Contents {
        long: false,
        direction: Direction::Call,
        invalidate,
        lists,
    };
    let codec = server.core.shared.agreed.codec;
    codec.emit(&mut bytes, xid, 8, &contents);
    bytes.extend_from_slice(&stream(&call(xid, 40, &[])));
    lone::arrive(server, bytes.to_vec());
}

/// The one reply that `server` posts to the call that it hands up: its bytes, and what goes along. It is sent.
fn answered(server: &mut Connection) -> (Buffer, Option<Handle>) {
    let Some(Event::Call { id, message }) = server.poll_event() else {
        panic!("a call is whole");
    };
    let xid = xdr::Reader::from(&message).u32().expect("an XID");
    server.reply(id, Reply::Message(reply(xid, 4, &[])));
    let posted = std::iter::from_fn(|| server.poll_post());
    let mut sent = posted.filter_map(|work| match work {
        WorkRequest::Send {
            wr,
            buffer,
            invalidate,
            ..
        } => Some((wr, buffer, invalidate.map(|all| all.first()))),
        _ => None,
    });
    let (wr, buffer, invalidate) = sent.next().expect("one reply");
    drop(sent);
    server.handle_completion(Completion::Send { wr });
    (buffer, invalidate)
}

/// A server of version two whose client has announced XCHAR_REQREMINV = true, or one of version
/// one whose client has set R.
fn permitted(versions: Versions, fixed: bool) -> Connection {
    let mut config = config(Role::Server);
    config.versions = versions;
    let limits = EndOptions::default().limits;
    let peer = Some(config.own);
    let mut server = Connection::new(&config, TestOwner::default(), peer, &limits);
    if versions == Versions::Two {
        let id = RequesterRemoteInvalidation::ID.0;
        let nochg = u32::from(fixed);
        let said = [1, 2, 8, 5, 0, 1, 24, 1, id, 4, 1, 1, nochg];
        arrive(&mut server, &said);
        while server.poll_post().is_some() {}
    }
    server
}

/// A Write chunk of eight bytes for each of these handles.
fn written(handles: &[u32]) -> Lists {
    let chunk = |&handle| WriteChunk {
        segments: [segment(handle, 8)].into(),
    };
    Lists {
        writes: handles.iter().map(chunk).collect(),
        ..Lists::default()
    }
}

/// The client changes XCHAR_REQREMINV.
fn permit(server: &mut Connection, permitted: bool) {
    let id = RequesterRemoteInvalidation::ID.0;
    let now = u32::from(permitted);
    arrive(server, &[2, 2, 8, 5, 0, 4, 16, id, 4, now, 0]);
}

#[test]
fn permission_that_is_withdrawn_holds_for_no_reply_from_then_on() {
    for fixed in [true, false] {
        let mut server = permitted(Versions::Two, fixed);
        let mut taken = |handle, withdraws| {
            let lists = written(&[handle]);
            hear(&mut server, handle, &lists, Invalidate::Unsaid);
            if withdraws {
                permit(&mut server, false);
            }
            answered(&mut server).1
        };
        assert_eq!(taken(50, false), Some(Handle(50)));
        // Also for a call that came before it.
        assert_eq!(taken(51, true), None);
        assert_eq!(taken(52, false), None);
        permit(&mut server, true);
        hear(&mut server, 53, &written(&[53]), Invalidate::Unsaid);
        assert_eq!(answered(&mut server).1, None, "it is not given twice");
    }
}

/// The handle that goes with each of two replies, where two calls were in service together.
fn taken_of_two(server: &mut Connection, calls: [(&Lists, Invalidate); 2]) -> [Option<Handle>; 2] {
    for (xid, (lists, named)) in (5..).zip(calls) {
        hear(server, xid, lists, named);
    }
    [answered(server).1, answered(server).1]
}

#[test]
fn handle_that_two_calls_offer_is_invalidated_with_neither_reply() {
    in_each_version(|versions| {
        let taken = |one: &[u32], other: &[u32]| {
            let mut server = permitted(versions, true);
            let [one, other] = [written(one), written(other)];
            let calls = [(&one, Invalidate::Unsaid), (&other, Invalidate::Unsaid)];
            let taken = taken_of_two(&mut server, calls);
            (taken, server.counters().invalidations_withheld)
        };
        let each = [Some(Handle(50)), Some(Handle(51))];
        assert_eq!(taken(&[50], &[51]), (each, 0));
        assert_eq!(taken(&[50], &[50]), ([None; 2], 2));
        assert_eq!(taken(&[50, 52], &[53, 52]), ([None; 2], 2));
    });
}

#[test]
fn shared_handle_stays_under_each_design() {
    for design in [
        Design::Fixed,
        Design::PerCall,
        Design::PerCallSeveral,
        Design::InterCall,
        Design::PerCallAll,
    ] {
        let named = |handle| match design {
            Design::PerCall => Invalidate::One(Some(Handle(handle))),
            Design::PerCallSeveral | Design::PerCallAll => {
                Invalidate::Several([Handle(handle)].into_iter().collect())
            }
            _ => Invalidate::Unsaid,
        };
        let taken = |one: u32, other: u32| {
            let mut pair = Pair::with(setup(&[design], &[design]));
            pair.drive();
            let [first, second] = [written(&[one]), written(&[other])];
            let calls = [(&first, named(one)), (&second, named(other))];
            taken_of_two(&mut pair.server.connection, calls)
        };
        assert_eq!(taken(50, 51), [Some(Handle(50)), Some(Handle(51))]);
        assert_eq!(taken(50, 50), [None; 2], "{design}");
    }
}

#[test]
fn sharing_that_takes_too_long_to_find_out_is_assumed() {
    let taken = |segments: usize| {
        let mut server = permitted(Versions::One, true);
        let lists = |first: u32| Lists {
            writes: vec![WriteChunk {
                segments: (first..).take(segments).map(|h| segment(h, 8)).collect(),
            }],
            ..Lists::default()
        };
        let (one, other) = (lists(1000), lists(2000));
        let calls = [(&one, Invalidate::Unsaid), (&other, Invalidate::Unsaid)];
        taken_of_two(&mut server, calls)[0]
    };
    let most = MAX_SHARED_COMPARISONS.isqrt();
    assert_eq!(taken(most), Some(Handle(1000)));
    assert_eq!(taken(most + 1), None);
}

/// Reads that `server` has posted.
fn reads(server: &mut Connection) -> Vec<WorkRequest> {
    let posted = std::iter::from_fn(|| server.poll_post());
    posted
        .filter(|work| matches!(work, WorkRequest::Read { .. }))
        .collect()
}

fn complete(server: &mut Connection, read: WorkRequest) {
    let WorkRequest::Read { wr, mut sink, from } = read else {
        panic!("{read:?}");
    };
    sink.set_len(from.iter().map(|segment| segment.length as usize).sum());
    server.handle_completion(Completion::Read { wr, sink });
}

/// Read chunks of eight bytes, one at each of these Positions, in this order.
fn read_at(chunks: &[(u32, u32)]) -> Lists {
    Lists {
        reads: chunks
            .iter()
            .map(|&(position, handle)| read_chunk(position, [segment(handle, 8)].into()))
            .collect(),
        ..Lists::default()
    }
}

#[test]
fn nothing_goes_along_that_is_still_being_read_for_another_call() {
    let mut pair = Pair::with(setup(&[Design::InterCall], &[Design::InterCall]));
    pair.drive();
    let server = &mut pair.server.connection;
    hear(
        server,
        5,
        &read_at(&[(52, 50), (60, 51)]),
        Invalidate::Unsaid,
    );
    let mut reads = reads(server);
    assert_eq!(reads.len(), 2);
    let small = |server: &mut Connection, xid| {
        hear(server, xid, &Lists::default(), Invalidate::Unsaid);
        answered(server).1
    };
    assert_eq!(small(server, 6), None);
    complete(server, reads.remove(0));
    assert_eq!(small(server, 7), None, "the call is not whole");
    complete(server, reads.remove(0));
    let Some(Event::Call { .. }) = server.poll_event() else {
        panic!("the call is whole");
    };
    assert_eq!(small(server, 8), Some(Handle(50)));
}

#[test]
fn fixed_protocol_takes_the_handle_that_is_first_in_the_header_wherever_its_chunk_belongs() {
    let mut pair = Pair::with(setup(&[Design::Fixed], &[Design::Fixed]));
    pair.drive();
    let server = &mut pair.server.connection;
    hear(
        server,
        5,
        &read_at(&[(60, 51), (52, 50)]),
        Invalidate::Unsaid,
    );
    for read in reads(server) {
        complete(server, read);
    }
    assert_eq!(answered(server).1, Some(Handle(51)));
}

#[test]
fn reply_copies_the_handle_of_a_call_without_chunks_and_takes_nothing_along() {
    let mut pair = Pair::with(setup(&[Design::PerCall], &[Design::PerCall]));
    pair.drive();
    let server = &mut pair.server.connection;
    for (xid, named, foreign) in [(5, None, 0), (6, Some(Handle(0xbad)), 1)] {
        hear(server, xid, &Lists::default(), Invalidate::One(named));
        let (message, invalidate) = answered(server);
        assert_eq!(invalidate, None);
        let words = crate::v2::header::WordLayout::One;
        let (header, _) = crate::v2::header::Header::parse(&message, words).expect("a header");
        let crate::v2::header::Body::Msg(chunks) = header.body else {
            panic!("{header:?}");
        };
        assert_eq!(chunks.invalidate, Invalidate::One(named));
        assert_eq!(server.counters().foreign_handles_named, foreign);
    }
}
