//! Two conforming endpoints connected to each other.

use super::*;

#[test]
fn sends_arrive_in_order_and_complete() {
    let mut pair = Pair::new();
    for n in 0..5 {
        pair.b.post(receive(n, 100)).unwrap();
        pair.a.post(send(10 + n, &[n as u8; 20])).unwrap();
    }
    pair.drive();
    for (n, completion) in completions(&mut pair.b).into_iter().enumerate() {
        let Completion::Receive {
            wr,
            buffer,
            invalidated: None,
        } = completion
        else {
            panic!("{completion:?}");
        };
        assert_eq!(wr, WrId(n as u64));
        assert_eq!(&*buffer, [n as u8; 20]);
    }
    let sent: Vec<_> = completions(&mut pair.a)
        .into_iter()
        .map(|completion| match completion {
            Completion::Send { wr } => wr.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [10, 11, 12, 13, 14]);
}

#[test]
fn many_small_sends_are_one_write() {
    let mut pair = Pair::new();
    for n in 0..30 {
        pair.a.post(send(n, &[1; 100])).unwrap();
    }
    output(&mut pair.a, usize::MAX);
    let counters = pair.a.counters();
    assert_eq!((counters.writes, counters.fpdus_out), (1, 30));
}

#[test]
fn empty_send_takes_a_receive() {
    let mut pair = Pair::new();
    pair.b.post(receive(1, 0)).unwrap();
    pair.a.post(send(2, &[])).unwrap();
    pair.drive();
    assert!(matches!(
        completions(&mut pair.b)[..],
        [Completion::Receive { wr: WrId(1), .. }]
    ));
}

#[test]
fn responder_sends_nothing_before_it_has_heard_from_the_initiator() {
    let mut pair = Pair::new();
    pair.a.post(receive(1, 10)).unwrap();
    pair.b.post(send(2, b"early")).unwrap();
    assert!(!pair.b.has_output());
    pair.drive();
    assert!(completions(&mut pair.a).is_empty());
    pair.introduce();
    assert_eq!(completions(&mut pair.a).len(), 1);
}

fn write_then_read_back(sizes: &[usize], change: impl Fn(&mut EndpointConfig)) {
    for (n, len) in sizes.iter().copied().enumerate() {
        let mut pair = Pair::with(&change);
        let bytes = pattern(len, n as u64);
        let handle = pair.b.register(sink(len + 10)).unwrap();
        pair.a.post(write(1, bytes.clone(), handle, 7)).unwrap();
        pair.drive();
        assert!(matches!(
            completions(&mut pair.a)[..],
            [Completion::Write { wr: WrId(1) }]
        ));
        pair.b
            .post(WorkRequest::Invalidate {
                wr: WrId(2),
                handle,
            })
            .unwrap();
        let written = match completions(&mut pair.b).pop() {
            Some(Completion::Invalidate { invalidated, .. }) => match invalidated.memory {
                Memory::Sink(mut buffer) => buffer.memory_mut()[7..7 + len].to_vec(),
                other => panic!("a sink was registered, not {other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(written, bytes);
        let handle = pair.b.register(Memory::Source(gather(written))).unwrap();
        let segment = Segment {
            handle,
            length: len as u32,
            offset: 0,
        };
        pair.a.post(read(3, len, &[segment])).unwrap();
        pair.drive();
        match completions(&mut pair.a).pop() {
            Some(Completion::Read { sink, .. }) => assert_eq!(&*sink, bytes),
            other => panic!("{other:?}"),
        }
    }
}

const SIZES: &[usize] = &[
    1,
    3,
    100,
    1448,
    8191,
    8192,
    8193,
    61_696,
    61_697,
    100_001,
    1 << 20,
];

#[test]
fn writes_and_reads_of_any_size_arrive() {
    write_then_read_back(SIZES, |_| {});
}

#[test]
fn writes_and_reads_arrive_without_crc_with_strict_crc_and_in_small_segments() {
    write_then_read_back(SIZES, |config| config.crc = false);
    write_then_read_back(SIZES, |config| config.strict = true);
    write_then_read_back(SIZES, |config| config.max_ulpdu = 1442);
    write_then_read_back(SIZES, |config| config.max_ulpdu = 0);
}

#[test]
fn large_payload_is_not_copied() {
    let mut pair = Pair::new();
    let handle = pair.b.register(sink(4 << 20)).unwrap();
    for n in 0..4 {
        pair.a
            .post(write(n, pattern(1 << 20, n), handle, n << 20))
            .unwrap();
    }
    pair.drive();
    assert_eq!(pair.a.counters().copied_out, 0);
    // All but what the first look at the stream, and one after each message, brought with it.
    assert!(pair.b.counters().copied_in < 4096 + 4 * 512);
}

#[test]
fn send_copies_its_small_parts_only() {
    let check = |head: usize, rest: usize, copied: usize| {
        let mut pair = Pair::new();
        pair.b.post(receive(1, 20_000)).unwrap();
        let bytes = pattern(head + rest, 1);
        let (head, rest) = bytes.split_at(head);
        pair.a.post(send_from(2, head, rest)).unwrap();
        pair.drive();
        assert_eq!(pair.a.counters().copied_out, copied as u64);
        assert!(matches!(
            completions(&mut pair.b).pop(),
            Some(Completion::Receive { buffer, .. }) if *buffer == *bytes
        ));
    };
    check(128, 100, 228);
    check(128, 4096, 128);
    check(4096, 0, 0);
    check(4096, 4096, 0);
    check(4096, 100, 100);
    check(10_000, 100, 100);
    check(10_000, 4096, 0);
}

#[test]
fn a_read_of_many_segments_is_one_completion() {
    let mut pair = Pair::new();
    let bytes = pattern(40_000, 1);
    let mut segments = Vec::new();
    // More of them than can be outstanding, pieces of several regions, one of them empty.
    let mut at = 0;
    for length in [1000, 0, 5000, 1, 3, 20_000, 4096, 9900] {
        let handle = pair
            .b
            .register(Memory::Source(gather(
                [&[0; 5][..], &bytes[at..at + length], &[0]].concat(),
            )))
            .unwrap();
        segments.push(Segment {
            handle,
            length: length as u32,
            offset: 5,
        });
        at += length;
    }
    assert_eq!(at, 40_000);
    pair.a.post(read(1, 50_000, &segments)).unwrap();
    pair.drive();
    match completions(&mut pair.a).pop() {
        Some(Completion::Read { wr: WrId(1), sink }) => assert_eq!(&*sink, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_beyond_ord_wait_without_blocking_other_work() {
    let mut pair = Pair::with(|config| config.ord = 2);
    let handle = pair
        .b
        .register(Memory::Source(gather(vec![7; 100])))
        .unwrap();
    pair.b.post(receive(100, 10)).unwrap();
    let segment = Segment {
        handle,
        length: 100,
        offset: 0,
    };
    for n in 0..5 {
        pair.a.post(read(n, 100, &[segment])).unwrap();
    }
    pair.a.post(send(99, b"now")).unwrap();
    let first = output(&mut pair.a, usize::MAX);
    assert_eq!(fpdus(&first).len(), 3, "two Read Requests and the Send");
    pair.b.recv_slice(&first);
    pair.drive();
    let reads = completions(&mut pair.a)
        .into_iter()
        .filter(|completion| matches!(completion, Completion::Read { .. }))
        .count();
    assert_eq!(reads, 5);
}

#[test]
fn the_stag_of_a_read_sink_is_invalid_after_the_read() {
    let mut pair = Pair::new();
    let handle = pair
        .b
        .register(Memory::Source(gather(vec![7; 10])))
        .unwrap();
    let segment = Segment {
        handle,
        length: 10,
        offset: 0,
    };
    pair.a.post(read(1, 10, &[segment])).unwrap();
    let request = output(&mut pair.a, usize::MAX);
    let (_, payload) = fpdus(&request).pop().unwrap();
    let request_of = crate::rdmap::ReadRequest::parse(payload.first_chunk().unwrap());
    pair.b.recv_slice(&request);
    pair.drive();
    assert_eq!(completions(&mut pair.a).len(), 1);
    let sink = Handle(request_of.sink_stag);
    pair.b.post(write(2, vec![1], sink, 0)).unwrap();
    pair.drive();
    let out = Cause::DDP_INVALID_STAG.into();
    assert_eq!(pair.b.closed(), Some(&CloseReason::Terminated(out)));
}

#[test]
fn zero_length_read_completes() {
    let mut pair = Pair::new();
    pair.a.post(read(1, 0, &[])).unwrap();
    assert_eq!(completions(&mut pair.a).len(), 1);
    let nowhere = Segment {
        handle: Handle(1),
        length: 0,
        offset: u64::MAX,
    };
    pair.a.post(read(2, 0, &[nowhere])).unwrap();
    pair.a.post(read(3, 0, &[])).unwrap();
    assert!(completions(&mut pair.a).is_empty());
    pair.drive();
    let done: Vec<_> = completions(&mut pair.a);
    assert!(
        matches!(
            done[..],
            [
                Completion::Read { wr: WrId(2), .. },
                Completion::Read { wr: WrId(3), .. }
            ]
        ),
        "{done:?}"
    );
}

#[test]
fn send_with_invalidate_returns_the_memory_to_its_owner() {
    let mut pair = Pair::new();
    let handle = pair.b.register(sink(100)).unwrap();
    pair.b.post(receive(1, 10)).unwrap();
    pair.a.post(write(2, vec![9; 10], handle, 0)).unwrap();
    pair.a
        .post(WorkRequest::Send {
            wr: WrId(3),
            buffer: buffer(b"done"),
            rest: Gather::new(),
            invalidate: Some(handle.into()),
        })
        .unwrap();
    pair.drive();
    match completions(&mut pair.b).pop() {
        Some(Completion::Receive {
            invalidated: Some(invalidated),
            ..
        }) => {
            assert_eq!(invalidated.handle, handle);
            let Memory::Sink(mut buffer) = invalidated.memory else {
                panic!("a sink was registered");
            };
            assert_eq!(buffer.memory_mut()[..10], [9; 10]);
        }
        other => panic!("{other:?}"),
    }
    // The handle is dead.
    pair.a.post(write(4, vec![1], handle, 0)).unwrap();
    pair.drive();
    assert_eq!(
        pair.b.closed().cloned().or_else(|| {
            pair.b.give_up();
            pair.b.closed().cloned()
        }),
        Some(peer_error(Cause::DDP_INVALID_STAG))
    );
    assert_eq!(
        pair.a.closed(),
        Some(&CloseReason::Terminated(Cause::DDP_INVALID_STAG.into()))
    );
}

#[test]
fn invalidating_an_unknown_stag_ends_the_connection() {
    let mut pair = Pair::new();
    pair.a.post(receive(1, 10)).unwrap();
    let invalidate = WorkRequest::Invalidate {
        wr: WrId(2),
        handle: Handle(5),
    };
    pair.a.post(invalidate).unwrap();
    let done = completions(&mut pair.a);
    assert!(
        matches!(
            done[..],
            [
                Completion::Failed {
                    wr: WrId(2),
                    error: WorkError::NoSuchHandle,
                },
                Completion::Failed {
                    wr: WrId(1),
                    error: WorkError::Flushed,
                }
            ]
        ),
        "{done:?}"
    );
    pair.drive();
    assert!(pair.a.wants_shutdown());
    assert_eq!(
        pair.b.closed(),
        Some(&CloseReason::Terminated(Cause::RDMA_CATASTROPHIC.into()))
    );
}

#[test]
fn invalidated_memory_is_returned_after_the_segment_that_is_written_to_it() {
    let mut pair = Pair::new();
    let bytes = pattern(60_000, 3);
    let handle = pair.b.register(sink(60_000)).unwrap();
    pair.a.post(write(1, bytes.clone(), handle, 0)).unwrap();
    let stream = output(&mut pair.a, usize::MAX);
    let (first, rest) = stream.split_at(20_000);
    pair.b.recv_slice(first);
    pair.b
        .post(WorkRequest::Invalidate {
            wr: WrId(2),
            handle,
        })
        .unwrap();
    assert!(completions(&mut pair.b).is_empty());
    pair.b.recv_slice(rest);
    match completions(&mut pair.b).pop() {
        Some(Completion::Invalidate { invalidated, .. }) => {
            let Memory::Sink(mut buffer) = invalidated.memory else {
                panic!("a sink was registered");
            };
            assert_eq!(buffer.memory_mut(), bytes);
        }
        other => panic!("{other:?}"),
    }
    assert!(pair.b.closed().is_none());
}

#[test]
fn a_refused_read_fails_with_remote_access_error() {
    let mut pair = Pair::new();
    let handle = pair.b.register(sink(100)).unwrap();
    let segment = Segment {
        handle,
        length: 10,
        offset: 0,
    };
    pair.a.post(receive(1, 10)).unwrap();
    pair.a.post(read(2, 100, &[segment])).unwrap();
    pair.a.post(read(3, 100, &[segment])).unwrap();
    pair.drive();
    let failed: Vec<_> = completions(&mut pair.a)
        .into_iter()
        .map(|completion| match completion {
            Completion::Failed { wr, error } => (wr.0, error),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        failed,
        [
            (2, WorkError::RemoteAccess),
            (3, WorkError::Flushed),
            (1, WorkError::Flushed)
        ]
    );
    assert_eq!(
        pair.a.closed(),
        Some(&CloseReason::Terminated(Cause::RDMA_ACCESS.into()))
    );
}

#[test]
fn closing_sends_what_was_posted_and_flushes_the_rest() {
    let mut pair = Pair::new();
    pair.introduce();
    pair.a.post(receive(1, 10)).unwrap();
    pair.a.post(send(2, b"last words")).unwrap();
    pair.b.post(receive(3, 10)).unwrap();
    pair.a.close();
    assert!(!pair.a.wants_shutdown());
    pair.drive();
    assert!(pair.a.wants_shutdown());
    let done = completions(&mut pair.a);
    assert!(
        matches!(
            done[..],
            [
                Completion::Failed {
                    wr: WrId(1),
                    error: WorkError::Flushed
                },
                Completion::Send { wr: WrId(2) }
            ]
        ),
        "{done:?}"
    );
    assert!(matches!(
        completions(&mut pair.b)[..],
        [Completion::Receive { wr: WrId(3), .. }]
    ));
    pair.b.recv_with(|_| Ok(0)).unwrap();
    assert_eq!(pair.b.closed(), Some(&CloseReason::Peer));
    assert!(
        pair.a.closed().is_none(),
        "the peer has not closed its half"
    );
    pair.a.recv_with(|_| Ok(0)).unwrap();
    assert_eq!(pair.a.closed(), Some(&CloseReason::Local));
}

#[test]
fn work_on_a_closed_connection_is_flushed() {
    let mut pair = Pair::new();
    pair.a.lost(CloseReason::Peer);
    pair.a.post(send(1, b"x")).unwrap();
    pair.a.post(receive(2, 1)).unwrap();
    assert!(matches!(
        completions(&mut pair.a)[..],
        [
            Completion::Failed { wr: WrId(1), .. },
            Completion::Failed { wr: WrId(2), .. }
        ]
    ));
    assert!(matches!(
        pair.a.register(sink(1)),
        Err(RegisterError::Closed(_))
    ));
}

#[test]
fn everything_posted_completes_once_when_the_connection_is_lost() {
    let mut pair = Pair::new();
    let handle = pair.b.register(sink(1 << 20)).unwrap();
    let segment = Segment {
        handle,
        length: 10,
        offset: 0,
    };
    for n in 0..10 {
        pair.a.post(receive(n, 10)).unwrap();
        pair.a.post(send(10 + n, &[0; 10_000])).unwrap();
        pair.a
            .post(write(20 + n, vec![0; 100_000], handle, 0))
            .unwrap();
        pair.a.post(read(30 + n, 10, &[segment])).unwrap();
    }
    // Half of it is on its way.
    pair.a.send_with(|_| Ok(100_000)).unwrap();
    pair.a.lost(CloseReason::Lost(Loss::PathCut.into()));
    let mut seen: Vec<_> = completions(&mut pair.a)
        .into_iter()
        .map(|completion| match completion {
            Completion::Send { wr }
            | Completion::Write { wr }
            | Completion::Failed {
                wr,
                error: WorkError::Flushed,
            } => wr.0,
            other => panic!("{other:?}"),
        })
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..40));
    assert!(!pair.a.has_output());
}

#[test]
fn work_beyond_the_limits_is_refused() {
    let mut pair = Pair::with(|config| config.receives = 1);
    pair.a.post(receive(1, 1)).unwrap();
    assert!(matches!(
        pair.a.post(receive(2, 1)),
        Err(PostError::Full(_))
    ));
    let segment = Segment {
        handle: Handle(1),
        length: 11,
        offset: 0,
    };
    assert!(matches!(
        pair.a.post(read(3, 10, &[segment])),
        Err(PostError::Invalid(_))
    ));
    for n in 0..MAX_SENDS as u64 {
        pair.a.post(send(n, b"")).unwrap();
    }
    assert!(matches!(pair.a.post(send(5, b"")), Err(PostError::Full(_))));
    output(&mut pair.a, usize::MAX);
    pair.a.post(send(6, b"")).unwrap();
    for _ in 0..MAX_REGIONS {
        pair.a.register(sink(1)).unwrap();
    }
    assert!(matches!(
        pair.a.register(sink(1)),
        Err(RegisterError::Full(_))
    ));
    assert!(matches!(
        pair.b.register(sink(0)),
        Err(RegisterError::Size(_))
    ));
}

#[test]
fn reads_are_refused_when_ord_is_zero() {
    let mut pair = Pair::with(|config| config.ord = 0);
    assert!(matches!(
        pair.a.post(read(1, 0, &[])),
        Err(PostError::Invalid(_))
    ));
}

#[test]
fn rtr_message_is_sent_first() {
    for rtr in [RtrMessage::Write, RtrMessage::Read] {
        let mut config_a = config(Role::Initiator);
        config_a.rtr = Some(rtr);
        let mut pair = Pair::new();
        pair.a = Endpoint::new(config_a);
        pair.a.post(receive(1, 10)).unwrap();
        pair.b.post(send(2, b"hello")).unwrap();
        pair.drive();
        let done = completions(&mut pair.a);
        assert!(
            matches!(done[..], [Completion::Receive { wr: WrId(1), .. }]),
            "{done:?}"
        );
    }
}

#[test]
fn an_initiator_is_unanswered_until_it_receives_something() {
    let mut pair = Pair::new();
    assert!(!pair.a.is_unanswered(), "nothing was said yet");
    pair.introduce();
    assert!(pair.a.is_unanswered());
    pair.a.post(receive(1, 10)).unwrap();
    pair.b.post(send(2, b"yes")).unwrap();
    pair.drive();
    assert!(!pair.a.is_unanswered());
}

#[test]
fn an_idle_endpoint_returns_its_memory_and_continues() {
    let mut pair = Pair::new();
    for n in 0..3 {
        pair.b.post(receive(n, 5000)).unwrap();
        pair.a.post(send(n, &pattern(5000, n))).unwrap();
        let stream = output(&mut pair.a, usize::MAX);
        let (first, rest) = stream.split_at(2000);
        pair.b.recv_slice(first);
        pair.a.trim();
        // In the midst of a message nothing is lost.
        pair.b.trim();
        pair.b.recv_slice(rest);
        pair.b.trim();
        match completions(&mut pair.b).pop() {
            Some(Completion::Receive { buffer, .. }) => assert_eq!(&*buffer, pattern(5000, n)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn memory_served_to_a_read_is_returned_after_its_last_byte() {
    let mut pair = Pair::new();
    let bytes = pattern(600_000, 1);
    let handle = pair
        .b
        .register(Memory::Source(gather(bytes.clone())))
        .unwrap();
    let segment = Segment {
        handle,
        length: 600_000,
        offset: 0,
    };
    pair.a.post(read(1, 600_000, &[segment])).unwrap();
    let request = output(&mut pair.a, usize::MAX);
    pair.b.recv_slice(&request);
    pair.b
        .post(WorkRequest::Invalidate {
            wr: WrId(2),
            handle,
        })
        .unwrap();
    pair.b.send_with(|_| Ok(0)).unwrap();
    assert!(completions(&mut pair.b).is_empty());
    pair.drive();
    assert!(matches!(
        completions(&mut pair.b)[..],
        [Completion::Invalidate { wr: WrId(2), .. }]
    ));
    match completions(&mut pair.a).pop() {
        Some(Completion::Read { sink, .. }) => assert_eq!(&*sink, bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_served_to_a_read_is_dropped_with_the_connection() {
    let mut pair = Pair::new();
    let handle = pair
        .b
        .register(Memory::Source(gather(vec![0; 100])))
        .unwrap();
    let segment = Segment {
        handle,
        length: 100,
        offset: 0,
    };
    pair.a.post(read(1, 100, &[segment])).unwrap();
    let request = output(&mut pair.a, usize::MAX);
    pair.b.recv_slice(&request);
    pair.b
        .post(WorkRequest::Invalidate {
            wr: WrId(2),
            handle,
        })
        .unwrap();
    pair.b.lost(CloseReason::Peer);
    assert!(matches!(
        completions(&mut pair.b)[..],
        [Completion::Failed {
            wr: WrId(2),
            error: WorkError::Flushed
        }]
    ));
}
