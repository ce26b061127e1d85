//! Two ends driven by hand: order, faults, teardown, and reproducible runs.

use buffer::{Buffer, Gather};
use bytes::Bytes;
use std::future::Future;
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Handle, Memory, PostError, ProtocolError, Provider, QpOptions,
    QueuePair, RegisterError, RemoteAddress, Segment, SharedReceiveQueue, WorkError, WorkRequest,
    WrId,
};
use verbs_sim::{Cut, EndOptions, Fabric, Outstanding, PairOptions, Side, SimQp, Stall, Way};

const MILLISECOND: Duration = Duration::from_millis(1);

fn receive(wr: u64, capacity: usize) -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(wr),
        buffer: Buffer::with_capacity(capacity),
    }
}

fn send(wr: u64, text: &str) -> WorkRequest {
    WorkRequest::Send {
        wr: WrId(wr),
        buffer: Buffer::from(text.as_bytes().to_vec()),
        rest: Gather::new(),
        invalidate: None,
    }
}

fn write(wr: u64, at: RemoteAddress, offset: u64, bytes: &'static [u8]) -> WorkRequest {
    WorkRequest::Write {
        wr: WrId(wr),
        source: Gather::from_iter([Bytes::from_static(bytes)]),
        to: RemoteAddress {
            offset: at.offset + offset,
            ..at
        },
    }
}

fn read(wr: u64, capacity: usize, from: &[Segment]) -> WorkRequest {
    WorkRequest::Read {
        wr: WrId(wr),
        sink: Buffer::with_capacity(capacity),
        from: from.into(),
    }
}

fn invalidate(wr: u64, handle: Handle) -> WorkRequest {
    WorkRequest::Invalidate {
        wr: WrId(wr),
        handle,
    }
}

fn sink(capacity: usize) -> Memory {
    Memory::Sink(Buffer::with_capacity(capacity))
}

fn source(bytes: &'static [u8]) -> Memory {
    Memory::Source(Gather::from_iter([Bytes::from_static(bytes)]))
}

/// Two ends, everything they said, and the time of their fabric.
struct Bench {
    fabric: Fabric,
    left: SimQp,
    right: SimQp,
    log: Vec<String>,
}

impl Bench {
    fn new(seed: u64, options: &PairOptions) -> Self {
        let fabric = Fabric::new(seed);
        let (left, right) = fabric.pair(options);
        Self {
            fabric,
            left,
            right,
            log: Vec::new(),
        }
    }

    /// Until nothing moves any more and no time would change that.
    fn drive(&mut self) {
        loop {
            while self.left.progress() | self.right.progress() {}
            self.note();
            match self.fabric.next_event() {
                Some(time) => self.fabric.advance_to(time),
                None => return,
            }
        }
    }

    fn note(&mut self) {
        for (name, qp) in [("left", &mut self.left), ("right", &mut self.right)] {
            while let Some(completion) = qp.poll_cq() {
                self.log.push(format!("{name} {}", said(&completion)));
            }
        }
    }

    fn said(&self, side: &str) -> Vec<&str> {
        let said = self.log.iter().filter_map(|line| line.strip_prefix(side));
        said.map(str::trim).collect()
    }
}

fn said(completion: &Completion) -> String {
    match completion {
        Completion::Receive {
            wr,
            buffer,
            invalidated,
        } => {
            let text = String::from_utf8_lossy(buffer);
            let also = invalidated.as_ref().map_or("", |_| " and lost a handle");
            format!("receive {} {text:?}{also}", wr.0)
        }
        Completion::Send { wr } => format!("send {}", wr.0),
        Completion::Write { wr } => format!("write {}", wr.0),
        Completion::Read { wr, sink } => {
            format!("read {} {:?}", wr.0, String::from_utf8_lossy(sink))
        }
        Completion::Invalidate { wr, .. } => format!("invalidate {}", wr.0),
        Completion::Failed { wr, error } => format!("failed {} {error:?}", wr.0),
    }
}

fn segment(at: RemoteAddress, offset: u64, length: u32) -> Segment {
    Segment {
        handle: at.handle,
        length,
        offset: at.offset + offset,
    }
}

fn slow(end: &mut EndOptions, from: u64, to: u64) {
    end.faults.latency = Duration::from_micros(from)..=Duration::from_micros(to);
}

#[test]
fn message_takes_as_long_as_the_latency_says() {
    let mut options = PairOptions::default();
    slow(&mut options.left, 1000, 1000);
    let mut bench = Bench::new(1, &options);
    bench.right.post(receive(1, 64)).unwrap();
    bench.left.post(send(2, "hello")).unwrap();
    assert!(bench.left.progress());
    assert!(!bench.right.progress());
    assert_eq!(bench.fabric.next_event(), Some(MILLISECOND));
    bench.fabric.advance(MILLISECOND);
    assert!(bench.right.progress());
    bench.note();
    assert_eq!(bench.said("right"), ["receive 1 \"hello\""]);
}

#[test]
fn same_seed_gives_the_same_run_and_another_does_not() {
    let run = |seed| {
        let mut options = PairOptions::default();
        slow(&mut options.left, 1, 900);
        slow(&mut options.right, 1, 900);
        let mut bench = Bench::new(seed, &options);
        let handle = bench.left.register(source(b"0123456789")).unwrap();
        for wr in 0..8 {
            bench.right.post(receive(wr, 64)).unwrap();
            bench.left.post(send(wr, "to the right")).unwrap();
            let segment = segment(handle, wr, 3);
            bench.right.post(read(100 + wr, 3, &[segment])).unwrap();
        }
        bench.drive();
        (handle, bench.fabric.now(), bench.log)
    };
    let first = run(7);
    assert_eq!(first.2.len(), 24);
    assert_eq!(first, run(7));
    assert_ne!(first.0, run(8).0);
    assert_ne!(first.1, run(8).1);
}

#[test]
fn latency_reorders_what_two_connections_carry_but_not_what_one_does() {
    let mut options = PairOptions::default();
    slow(&mut options.left, 0, 1000);
    let fabric = Fabric::new(3);
    let mut pairs: Vec<_> = (0..2).map(|_| fabric.pair(&options)).collect();
    for (left, right) in &mut pairs {
        for wr in 0..20 {
            right.post(receive(wr, 8)).unwrap();
            left.post(send(wr, "x")).unwrap();
        }
        left.progress();
    }
    let mut arrivals: Vec<(usize, u64)> = Vec::new();
    while let Some(time) = fabric.next_event() {
        fabric.advance_to(time);
        for (number, (_, right)) in pairs.iter_mut().enumerate() {
            right.progress();
            while let Some(completion) = right.poll_cq() {
                match completion {
                    Completion::Receive { wr, .. } => arrivals.push((number, wr.0)),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    for number in 0..2 {
        let mine = arrivals.iter().filter(|(from, _)| *from == number);
        assert!(mine.map(|(_, wr)| *wr).eq(0..20));
    }
    assert!(!arrivals.is_sorted());
}

#[test]
fn full_window_holds_back_sends_but_not_read_requests() {
    let mut options = PairOptions::default();
    options.left.window = 4;
    let mut bench = Bench::new(1, &options);
    let handle = bench.right.register(source(b"abc")).unwrap();
    for wr in 0..3 {
        bench.right.post(receive(wr, 8)).unwrap();
    }
    bench.left.post(send(0, "1234")).unwrap();
    bench.left.post(send(1, "5678")).unwrap();
    bench.left.progress();
    assert_eq!(bench.left.outstanding().on_the_wire, 1);
    assert_eq!(bench.left.outstanding().work, 1);
    bench
        .left
        .post(read(2, 3, &[segment(handle, 0, 3)]))
        .unwrap();
    bench.drive();
    assert_eq!(bench.said("left"), ["send 0", "send 1", "read 2 \"abc\""]);
    assert_eq!(bench.fabric.outstanding().work, 0);
}

#[test]
fn requests_of_reads_never_exceed_what_the_peer_serves() {
    let mut options = PairOptions::default();
    options.right.limits.inbound_reads = 3;
    let mut bench = Bench::new(5, &options);
    assert_eq!(bench.left.limits().outstanding_reads, 3);
    let handle = bench.right.register(source(b"0123456789")).unwrap();
    let segments: Vec<_> = (0..10).map(|at| segment(handle, 9 - at, 1)).collect();
    bench.left.post(read(1, 10, &segments)).unwrap();
    bench.left.post(read(2, 10, &segments[5..])).unwrap();
    bench.drive();
    assert_eq!(
        bench.said("left"),
        ["read 1 \"9876543210\"", "read 2 \"43210\""]
    );
    assert_eq!(bench.right.traffic().most_inbound_reads, 3);
    assert_eq!(bench.left.traffic().read_requests, 15);
}

/// A conversation of every kind of message, cut after so many bytes from the left. Gives what
/// both ends said, and whether it was cut at all.
fn conversation(cut: Option<Cut>) -> (Bench, bool) {
    let mut options = PairOptions::default();
    options.left.faults.cut = cut;
    slow(&mut options.left, 1, 50);
    slow(&mut options.right, 1, 50);
    let mut bench = Bench::new(11, &options);
    let into = bench.right.register(sink(16)).unwrap();
    let from = bench.right.register(source(b"abcdef")).unwrap();
    let lent = bench.left.register(source(b"lent")).unwrap();
    for wr in 0..4 {
        bench.left.post(receive(wr, 64)).unwrap();
        bench.right.post(receive(wr, 64)).unwrap();
    }
    bench.left.post(write(10, into, 4, b"written")).unwrap();
    bench.left.post(send(11, "look")).unwrap();
    let both = [segment(from, 0, 2), segment(from, 3, 3)];
    bench.left.post(read(12, 5, &both)).unwrap();
    bench
        .right
        .post(read(13, 4, &[segment(lent, 0, 4)]))
        .unwrap();
    bench.right.post(send(14, "answer")).unwrap();
    bench.drive();
    let cut = bench.left.closed().is_some();
    assert_eq!(cut, bench.right.closed().is_some());
    if !cut {
        bench.left.close();
        bench.right.close();
        bench.drive();
    }
    (bench, cut)
}

#[test]
fn cut_at_every_byte_still_completes_every_work_once() {
    let bytes = |most| conversation(Some(Cut::Bytes(most)));
    let mut cuts = 0;
    loop {
        let (bench, cut) = bytes(cuts);
        for (side, qp) in [("left", &bench.left), ("right", &bench.right)] {
            let mut ended: Vec<&str> = Vec::new();
            ended.extend(bench.said(side).iter().map(|line| {
                let mut words = line.split(' ');
                words.nth(1).expect("each line names its work")
            }));
            ended.sort_unstable();
            let expected: &[&str] = match side {
                "left" => &["0", "1", "10", "11", "12", "2", "3"],
                _ => &["0", "1", "13", "14", "2", "3"],
            };
            assert_eq!(ended, expected, "{side} after a cut at byte {cuts}");
            let outstanding = qp.outstanding();
            assert_eq!((outstanding.work, outstanding.receives), (0, 0));
            if cut {
                assert!(matches!(qp.closed(), Some(CloseReason::Lost(_))));
            }
        }
        if !cut {
            break;
        }
        cuts += 1;
    }
    // Five messages of the left: Write, Send, two Read requests, one Read response.
    assert_eq!(cuts, 5 * Cut::MESSAGE_HEADER + 7 + 4 + 4);
}

#[test]
fn cut_by_count_passes_that_many_messages() {
    for through in 0..4 {
        let mut options = PairOptions::default();
        options.left.faults.cut = Some(Cut::Messages(through));
        let mut bench = Bench::new(1, &options);
        for wr in 0..6 {
            bench.right.post(receive(wr, 8)).unwrap();
            bench.left.post(send(wr, "x")).unwrap();
        }
        bench.drive();
        let arrived = bench.said("right");
        let arrived = arrived.iter().filter(|line| line.starts_with("receive"));
        assert_eq!(arrived.count() as u64, through);
    }
}

#[test]
fn stalled_end_continues_after_its_stall() {
    let mut options = PairOptions::default();
    options.right.faults.stalls = vec![Stall {
        after: 1,
        way: Way::Both,
        lasting: 7 * MILLISECOND,
    }];
    let mut bench = Bench::new(1, &options);
    for wr in 0..2 {
        bench.right.post(receive(wr, 8)).unwrap();
        bench.left.post(send(wr, "x")).unwrap();
    }
    while bench.left.progress() | bench.right.progress() {}
    bench.note();
    assert_eq!(bench.said("right"), ["receive 0 \"x\""]);
    assert_eq!(bench.fabric.next_event(), Some(7 * MILLISECOND));
    bench.drive();
    assert_eq!(bench.said("right"), ["receive 0 \"x\"", "receive 1 \"x\""]);
}

#[test]
fn end_stalled_for_ever_has_no_next_event() {
    let mut bench = Bench::new(1, &PairOptions::default());
    bench.right.post(receive(1, 8)).unwrap();
    let connection = bench.right.connection();
    bench
        .fabric
        .stall(connection, Side::Right, Way::Both, Duration::MAX);
    bench.left.post(send(2, "x")).unwrap();
    bench.drive();
    assert_eq!(bench.said("right"), [""; 0]);
    assert_eq!(bench.fabric.outstanding().on_the_wire, 1);
}

#[test]
fn refused_post_gives_the_work_back_and_is_followed_by_a_completion() {
    let mut options = PairOptions::default();
    options.left.faults.refuse_post = std::num::NonZeroU64::new(2);
    let mut bench = Bench::new(1, &options);
    let mut refused = 0;
    for wr in 0..50 {
        bench.right.post(receive(wr, 8)).unwrap();
        match bench.left.post(send(wr, "x")) {
            Ok(()) => {}
            Err(PostError::Full(WorkRequest::Send { wr: back, .. })) => {
                assert_eq!(back, WrId(wr));
                assert!(bench.left.outstanding().work > 0);
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!((10..40).contains(&refused), "{refused} of 50 were refused");
    bench.drive();
    assert_eq!(bench.said("left").len(), 50 - refused);
}

#[test]
fn failing_work_ends_the_connection() {
    let mut options = PairOptions::default();
    options.left.faults.fail_work = Some((1, WorkError::RemoteAccess));
    let mut bench = Bench::new(1, &options);
    for wr in 0..3 {
        bench.right.post(receive(wr, 8)).unwrap();
        bench.left.post(send(wr, "x")).unwrap();
    }
    bench.drive();
    let left = ["send 0", "failed 1 RemoteAccess", "failed 2 Flushed"];
    assert_eq!(bench.said("left"), left);
    let right = ["receive 0 \"x\"", "failed 1 Flushed", "failed 2 Flushed"];
    assert_eq!(bench.said("right"), right);
    assert!(matches!(bench.right.closed(), Some(CloseReason::Lost(_))));
}

#[test]
fn place_in_the_queue_is_free_when_its_completion_is_taken() {
    let mut options = PairOptions::default();
    options.left.limits.sends = 2;
    options.right.limits.receives = 1;
    let mut bench = Bench::new(1, &options);
    bench.right.post(receive(1, 8)).unwrap();
    assert!(matches!(
        bench.right.post(receive(2, 8)),
        Err(PostError::Full(_))
    ));
    bench.left.post(send(1, "x")).unwrap();
    bench.left.post(invalidate(2, Handle(1))).unwrap();
    bench.left.progress();
    assert!(bench.left.closed().is_some());
    let mut bench = Bench::new(1, &options);
    bench.right.post(receive(1, 8)).unwrap();
    bench.left.post(send(1, "x")).unwrap();
    let nowhere = RemoteAddress {
        handle: Handle(1),
        offset: 0,
    };
    bench.left.post(write(2, nowhere, 0, b"")).unwrap();
    while bench.left.progress() | bench.right.progress() {}
    assert!(matches!(
        bench.left.post(send(3, "x")),
        Err(PostError::Full(_))
    ));
    assert!(matches!(
        bench.right.post(receive(2, 8)),
        Err(PostError::Full(_))
    ));
    bench.note();
    bench.left.post(send(3, "x")).unwrap();
    bench.right.post(receive(2, 8)).unwrap();
}

#[test]
fn terminate_from_outside_names_its_reason() {
    let mut bench = Bench::new(1, &PairOptions::default());
    let connection = bench.left.connection();
    bench
        .fabric
        .terminate(connection, Side::Left, ProtocolError::Checksum);
    bench.drive();
    let reason = CloseReason::Terminated(ProtocolError::Checksum.into());
    assert_eq!(bench.left.closed(), Some(&reason));
}

#[test]
fn orderly_close_with_a_stuck_peer_is_bounded() {
    let mut bench = Bench::new(1, &PairOptions::default());
    let connection = bench.left.connection();
    bench
        .fabric
        .stall(connection, Side::Right, Way::Both, Duration::MAX);
    bench.left.close();
    bench.drive();
    assert_eq!(bench.left.closed(), Some(&CloseReason::Local));
    assert!(bench.fabric.now() > Duration::ZERO);
    assert!(bench.fabric.now() <= Duration::from_secs(10));
}

#[test]
fn dropped_ends_leave_nothing_behind() {
    let Bench {
        fabric,
        mut left,
        mut right,
        ..
    } = Bench::new(1, &PairOptions::default());
    right.post(receive(1, 8)).unwrap();
    left.post(send(1, "x")).unwrap();
    left.register(sink(10)).unwrap();
    left.progress();
    drop(left);
    assert_eq!(fabric.connections().len(), 1);
    while right.progress() {}
    assert!(matches!(right.poll_cq(), Some(Completion::Receive { .. })));
    assert!(matches!(right.closed(), Some(CloseReason::Lost(_))));
    drop(right);
    assert_eq!(fabric.connections(), []);
    assert_eq!(fabric.outstanding(), Outstanding::default());
}

#[test]
fn one_end_can_stall_several_times_and_in_one_direction() {
    let stall = |after, way, milliseconds| Stall {
        after,
        way,
        lasting: milliseconds * MILLISECOND,
    };
    let mut options = PairOptions::default();
    options.right.faults.stalls = vec![stall(0, Way::Out, 5), stall(3, Way::In, 7)];
    let mut bench = Bench::new(1, &options);
    for wr in 0..4 {
        bench.right.post(receive(wr, 8)).unwrap();
        bench.left.post(receive(10 + wr, 8)).unwrap();
        bench.left.post(send(20 + wr, "x")).unwrap();
    }
    bench.right.post(send(30, "y")).unwrap();
    while bench.left.progress() | bench.right.progress() {}
    bench.note();
    // Nothing goes out, but three come in before the next stall.
    assert_eq!(bench.said("right").len(), 3);
    assert_eq!(bench.fabric.next_event(), Some(5 * MILLISECOND));
    bench.fabric.advance_to(5 * MILLISECOND);
    while bench.left.progress() | bench.right.progress() {}
    bench.note();
    assert!(bench.said("right").contains(&"send 30"));
    assert!(!bench.said("right").contains(&"receive 3 \"x\""));
    bench.drive();
    assert!(bench.said("right").contains(&"receive 3 \"x\""));
    assert_eq!(bench.fabric.now(), 7 * MILLISECOND);
}

#[test]
fn refused_registration_gives_the_memory_back() {
    let mut options = PairOptions::default();
    options.left.faults.refuse_registration = std::num::NonZeroU64::new(2);
    let (mut left, _right) = Fabric::new(1).pair(&options);
    let refused = (0..50)
        .filter(|_| match left.register(sink(10)) {
            Ok(_) => false,
            Err(RegisterError::Full(memory)) => {
                assert_eq!(memory.len(), 10);
                true
            }
            Err(other) => panic!("{other:?}"),
        })
        .count();
    assert!((10..40).contains(&refused), "{refused} of 50 were refused");
}

#[test]
fn trace_depends_on_the_seed_and_describes_events() {
    let run = |seed| {
        let mut options = PairOptions::default();
        slow(&mut options.left, 1, 900);
        let mut bench = Bench::new(seed, &options);
        bench.fabric.record();
        bench.right.post(receive(1, 64)).unwrap();
        bench.left.post(send(2, "hello")).unwrap();
        bench.drive();
        bench.fabric.note(|| "a remark".to_owned());
        (bench.fabric.trace(), bench.fabric.take_lines())
    };
    let (trace, lines) = run(1);
    assert_eq!((trace, &lines), (run(1).0, &run(1).1));
    assert_ne!(trace, run(2).0);
    assert_eq!(trace.events, 5);
    let said: Vec<_> = lines.iter().map(|line| line[13..].to_owned()).collect();
    let expected = [
        "#0 Right posts a Receive",
        "#0 Left posts a Send of 5 bytes",
        "#0 Left sees a Send done",
        "#0 Right sees a message of 5 bytes",
        "a remark",
    ];
    assert_eq!(said, expected);
}

/// Hardware cannot let a message wait: whoever grants credits backs each with a block.
#[test]
fn message_without_a_block_ends_a_connection_that_cannot_hold_its_peer_back() {
    for holds_peer_back in [true, false] {
        let queue = SharedReceiveQueue::new(1, 64);
        let mut options = PairOptions::default();
        options.right.limits.holds_peer_back = holds_peer_back;
        options.right.shared_receives = Some(queue.clone());
        let mut bench = Bench::new(3, &options);
        bench.left.post(send(1, "one")).unwrap();
        bench.left.post(send(2, "two")).unwrap();
        // Nobody takes the first message: its block is not free.
        while bench.left.progress() | bench.right.progress() {}
        let closed = bench.right.closed().cloned();
        if holds_peer_back {
            assert_eq!(closed, None);
            assert_eq!(bench.right.outstanding().completions, 1);
        } else {
            assert!(
                matches!(closed, Some(CloseReason::PeerError(_))),
                "{closed:?}"
            );
        }
        assert_eq!(queue.stats().most_lent, 1);
    }
}

#[test]
fn provider_without_a_shared_receive_queue_makes_no_connection_with_one() {
    let fabric = Fabric::new(3);
    let mut end = EndOptions::default();
    end.limits.shared_receives = false;
    let provider = fabric.provider(end);
    let options = QpOptions::default().with_shared_receives(SharedReceiveQueue::new(1, 64));
    let connecting = provider.connect("127.0.0.1:1".parse().unwrap(), &options, &[], Vec::new());
    let mut connecting = std::pin::pin!(connecting);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match connecting.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Err(verbs::SetupError::Io(error))) => {
            assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        }
        _ => panic!("it was to be refused at once"),
    }
}
