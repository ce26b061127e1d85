//! The rules of designs for remote invalidation (reminv §4).

use super::{Bench, XID, segment, to_be_read, to_be_written};
use buffer::Buffer;
use rpcrdma_proto::header::{Lists, procedure};
use rpcrdma_proto::v2::characteristics::{DesignBits, InvalidationDesigns};
use rpcrdma_proto::v2::header::{ChunkLists, Direction, Invalidate, emit};
use rpcrdma_proto::v2::operations::{InitXch, Operation};
use rpcrdma_proto::{Design, Designs};
use verbs::{Access, Handle, Memory, WorkRequest, WrId};

const OTHER: u32 = XID + 1;

/// A message of version two about characteristics, which names these designs.
fn initial(direction: Direction, designs: &[Design]) -> Buffer {
    let bits = DesignBits::offer(designs.iter().copied().collect::<Designs>());
    let init = InitXch::default().with::<InvalidationDesigns>(&bits);
    let mut buffer = Buffer::with_capacity(1024);
    Operation::InitXch(init).emit(&mut buffer, 1, 2, direction);
    buffer
}

/// A message that has this word for remote invalidation.
fn message(xid: u32, direction: Direction, invalidate: Invalidate, lists: &Lists) -> Buffer {
    let mut buffer = Buffer::with_capacity(1024);
    let chunks = ChunkLists {
        direction,
        invalidate,
        lists: lists.clone(),
    };
    emit(&mut buffer, procedure::MSG, xid, 1, &chunks);
    for word in [xid, direction as u32] {
        buffer.extend_from_slice(&word.to_be_bytes());
    }
    buffer
}

impl Bench {
    /// Both ends have agreed on a design.
    fn agreed(design: Design) -> Self {
        let mut bench = Self::new();
        bench.send(true, initial(Direction::Call, &[design]), None);
        bench.send(false, initial(Direction::Reply, &[design]), None);
        bench
    }

    fn call_two(&mut self, xid: u32, names: Invalidate, lists: &Lists) {
        self.send(true, message(xid, Direction::Call, names, lists), None);
    }

    fn reply_two(&mut self, xid: u32, names: Invalidate, lists: &Lists, goes: Option<Handle>) {
        self.send(false, message(xid, Direction::Reply, names, lists), goes);
    }

    fn read(&mut self, handle: Handle) {
        let read = WorkRequest::Read {
            wr: WrId(4),
            sink: Buffer::with_capacity(8),
            from: [segment(handle, 8)].into_iter().collect(),
        };
        self.post(false, read);
    }
}

/// Checks the finding under a design, if there is one.
fn check(design: Design, what: Option<&str>, plays: impl FnOnce(&mut Bench)) {
    let mut bench = Bench::agreed(design);
    assert_eq!(bench.watch.findings(), [""; 0]);
    plays(&mut bench);
    match what {
        Some(what) => bench.found(what),
        None => assert_eq!(bench.watch.findings(), [""; 0]),
    }
}

/// Memory to be read and memory to be written, and both in the lists of a call.
fn both(bench: &mut Bench) -> (Handle, Handle, Lists) {
    let (source, sink) = (bench.region(true), bench.region(false));
    let lists = Lists {
        writes: to_be_written(sink, 8).writes,
        ..to_be_read(source, 8)
    };
    (source, sink, lists)
}

/// Lists that go back for it.
fn back(lists: &Lists) -> Lists {
    Lists {
        reads: Default::default(),
        ..lists.clone()
    }
}

#[test]
fn handle_that_is_not_the_first_is_found_under_the_fixed_protocol() {
    for (first, what) in [(true, None), (false, Some("invalidates"))] {
        check(Design::Fixed, what, |bench| {
            let (source, sink, lists) = both(bench);
            bench.call_two(XID, Invalidate::Unsaid, &lists);
            let goes = if first { source } else { sink };
            bench.reply_two(XID, Invalidate::Unsaid, &back(&lists), Some(goes));
        });
    }
}

#[test]
fn handle_that_was_not_named_is_found_and_so_is_one_that_was_and_stays() {
    let names = |handle| Invalidate::One(Some(handle));
    let play = |what: Option<&str>, says: fn(Handle, Handle) -> [Option<Handle>; 2]| {
        check(Design::PerCall, what, |bench| {
            let (source, sink, lists) = both(bench);
            bench.call_two(XID, names(sink), &lists);
            let [named, goes] = says(source, sink);
            bench.reply_two(XID, Invalidate::One(named), &back(&lists), goes);
        });
    };
    play(None, |_, sink| [Some(sink); 2]);
    play(Some("invalidates"), |source, sink| {
        [Some(sink), Some(source)]
    });
    play(Some("invalidates nothing"), |_, sink| [Some(sink), None]);
    play(Some("names"), |_, sink| [None, Some(sink)]);
}

#[test]
fn call_that_names_what_is_not_its_own_or_is_to_stay_is_found() {
    check(Design::PerCallSeveral, Some("names"), |bench| {
        let (source, other) = (bench.region(true), bench.region(true));
        let names = Invalidate::Several(vec![source, other]);
        bench.call_two(XID, names, &to_be_read(source, 8));
    });
    let persistent = |bench: &mut Bench| {
        let memory = Memory::Persistent(Access::Read, Buffer::with_capacity(8));
        let at = bench.requester.register(memory).expect("there is room");
        at.handle
    };
    check(Design::PerCallSeveral, Some("names"), |bench| {
        let stays = persistent(bench);
        bench.call_two(XID, Invalidate::Several(vec![stays]), &to_be_read(stays, 8));
    });
    check(Design::Fixed, Some("may lose it"), |bench| {
        let stays = persistent(bench);
        bench.call_two(XID, Invalidate::Unsaid, &to_be_read(stays, 8));
    });
    let none = Invalidate::Several(Vec::new());
    check(Design::PerCallSeveral, Some("as another does"), |bench| {
        let stays = persistent(bench);
        bench.call_two(XID, none.clone(), &to_be_read(stays, 8));
        bench.call_two(OTHER, none.clone(), &to_be_read(stays, 8));
    });
    check(Design::PerCallSeveral, Some("is written to"), |bench| {
        let stays = persistent(bench);
        bench.call_two(XID, none.clone(), &to_be_read(stays, 8));
        bench.requester.copy_in(stays, 0, b"1").expect("it stays");
    });
}

#[test]
fn handle_of_another_call_is_found_unless_it_was_read_and_is_there() {
    let play = |what, plays: fn(&mut Bench, Handle)| {
        check(Design::InterCall, what, |bench| {
            let (source, _, lists) = both(bench);
            bench.call_two(OTHER, Invalidate::Unsaid, &lists);
            bench.call_two(XID, Invalidate::Unsaid, &Lists::default());
            plays(bench, source);
        });
    };
    let takes = |bench: &mut Bench, handle| {
        bench.reply_two(XID, Invalidate::Unsaid, &Lists::default(), Some(handle));
    };
    play(Some("invalidates"), takes);
    play(None, |bench, source| {
        bench.read(source);
        let none = Lists::default();
        bench.reply_two(XID, Invalidate::Unsaid, &none, Some(source));
    });
    // Its own reply cannot take it once more.
    play(Some("invalidates"), |bench, source| {
        bench.read(source);
        let none = Lists::default();
        bench.reply_two(XID, Invalidate::Unsaid, &none, Some(source));
        bench.reply_two(OTHER, Invalidate::Unsaid, &none, Some(source));
    });
    // It was to be written.
    check(Design::InterCall, Some("invalidates"), |bench| {
        let (_, sink, lists) = both(bench);
        bench.call_two(OTHER, Invalidate::Unsaid, &lists);
        bench.call_two(XID, Invalidate::Unsaid, &Lists::default());
        takes(bench, sink);
    });
}

#[test]
fn design_that_was_not_offered_is_found() {
    for answered in [&[Design::PerCall][..], &[Design::Fixed, Design::InterCall]] {
        let mut bench = Bench::new();
        let offered = [Design::Fixed, Design::InterCall];
        bench.send(true, initial(Direction::Call, &offered), None);
        bench.send(false, initial(Direction::Reply, answered), None);
        bench.found("is answered to");
    }
}
