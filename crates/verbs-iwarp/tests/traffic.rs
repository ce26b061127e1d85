//! Two owners that park, each on its own task or thread: no bytes and no wake-ups are lost.

#![allow(clippy::cast_possible_truncation)]

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;
use verbs::{
    Buffer, Completion, Gather, Handle, Memory, Provider, QpOptions, QueuePair, RemoteAddress,
    Segment, SharedReceiveQueue, WorkRequest, WrId,
};
use verbs_iwarp::{Config, CrcMode, FpduPolicy, Iwarp};

/// Nothing here takes as long; a wake-up that is lost does.
const PATIENCE: Duration = Duration::from_secs(60);

fn receive() -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(0),
        buffer: Buffer::with_capacity(10_000),
    }
}

fn send(bytes: Vec<u8>) -> WorkRequest {
    WorkRequest::Send {
        wr: WrId(0),
        buffer: Buffer::from(bytes),
        rest: Gather::new(),
        invalidate: None,
    }
}

/// Bytes that differ from place to place.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let part: Vec<_> = (0..251).map(|at| (at * 7 + seed) as u8).collect();
    let mut bytes = part.repeat(len.div_ceil(part.len()));
    bytes.truncate(len);
    bytes
}

async fn next(qp: &mut dyn QueuePair) -> Completion {
    loop {
        if let Some(completion) = qp.poll_cq() {
            return completion;
        }
        if !qp.progress() {
            assert!(qp.closed().is_none(), "{:?}", qp.closed());
            poll_fn(|cx| qp.poll_ready(cx)).await;
        }
    }
}

async fn message(qp: &mut dyn QueuePair) -> Vec<u8> {
    loop {
        match next(qp).await {
            Completion::Receive { buffer, .. } => {
                let bytes = buffer.to_vec();
                qp.post(receive()).unwrap();
                return bytes;
            }
            Completion::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
}

async fn end(mut qp: Box<dyn QueuePair>) {
    qp.close();
    while qp.closed().is_none() {
        if !qp.progress() && qp.closed().is_none() {
            poll_fn(|cx| qp.poll_ready(cx)).await;
        }
    }
}

/// Runs both ends on a runtime of two threads.
fn run<A, B>(
    config: &Config,
    near: impl FnOnce(Box<dyn QueuePair>) -> A,
    far: impl FnOnce(Box<dyn QueuePair>) -> B + Send + 'static,
) where
    A: Future<Output = ()>,
    B: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let provider = Iwarp::new(config.clone());
    let receives = || (0..100).map(|_| receive()).collect();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, async {
            let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut listener = provider.listen(on).await.unwrap();
            let to = listener.local_addr();
            let far = tokio::spawn(async move {
                let incoming = listener.accept().await.unwrap();
                let options = QpOptions::default();
                let qp = incoming.accept(&options, &[], receives()).await.unwrap();
                far(qp).await;
            });
            let options = QpOptions::default();
            let connected = provider
                .connect(to, &options, &[], receives())
                .await
                .unwrap();
            near(connected.qp).await;
            far.await.unwrap();
        })
        .await
        .unwrap();
    });
}

fn config(crc: CrcMode, fpdu: FpduPolicy) -> Config {
    Config::default().with_crc(crc).with_fpdu(fpdu)
}

/// A system call for each call that a client makes, which would find nothing.
#[test]
fn parked_end_that_is_woken_by_its_own_work_sends_before_it_looks_for_messages() {
    let (sent, was_sent) = mpsc::channel();
    run(
        &Config::default(),
        async |mut qp| {
            qp.post(send(b"first".to_vec())).unwrap();
            assert_eq!(message(&mut *qp).await, b"ready");
            // The other end waits for this one, so that nothing can come.
            while qp.progress() {}
            let quiet = poll_fn(|cx| Poll::Ready(qp.poll_ready(cx).is_pending())).await;
            assert!(quiet);
            qp.post(send(b"call".to_vec())).unwrap();
            assert!(qp.progress());
            was_sent.recv().unwrap();
            assert!(!qp.progress(), "it does not look");
            assert_eq!(message(&mut *qp).await, b"reply", "it hears of it");
            end(qp).await;
        },
        |mut qp| async move {
            assert_eq!(message(&mut *qp).await, b"first");
            qp.post(send(b"ready".to_vec())).unwrap();
            assert_eq!(message(&mut *qp).await, b"call");
            qp.post(send(b"reply".to_vec())).unwrap();
            while qp.progress() {}
            sent.send(()).unwrap();
            end(qp).await;
        },
    );
}

#[test]
fn no_wake_up_is_lost_between_two_parked_ends() {
    const ROUNDS: usize = 3000;
    run(
        &Config::default(),
        async |mut qp| {
            for round in 0..ROUNDS {
                let bytes = pattern(round % 300, round);
                qp.post(send(bytes.clone())).unwrap();
                assert_eq!(message(&mut *qp).await, bytes);
            }
            end(qp).await;
        },
        |mut qp| async move {
            for _ in 0..ROUNDS {
                let bytes = message(&mut *qp).await;
                qp.post(send(bytes)).unwrap();
            }
            end(qp).await;
        },
    );
}

/// The far end offers a sink and a source of this size; the near end writes and reads them in
/// pieces, with messages between, and says how far it has come.
fn write_and_read(config: &Config, size: usize, piece: usize) {
    run(
        config,
        async |mut qp| {
            qp.post(send(b"hello".to_vec())).unwrap();
            let handles = message(&mut *qp).await;
            let handle =
                |at: usize| Handle(u32::from_be_bytes(handles[at..at + 4].try_into().unwrap()));
            let (sink, source) = (handle(0), handle(4));
            let bytes = bytes::Bytes::from(pattern(size, 1));
            let source_bytes = pattern(size, 2);
            let mut expected = VecDeque::new();
            let mut outstanding = 0;
            for begin in (0..size).step_by(piece) {
                let end = (begin + piece).min(size);
                let write = WorkRequest::Write {
                    wr: WrId(0),
                    source: [bytes.slice(begin..end)].into_iter().collect(),
                    to: RemoteAddress {
                        handle: sink,
                        offset: begin as u64,
                    },
                };
                qp.post(write).unwrap();
                let read = WorkRequest::Read {
                    wr: WrId(0),
                    sink: Buffer::with_capacity(end - begin),
                    from: [Segment {
                        handle: source,
                        length: (end - begin) as u32,
                        offset: begin as u64,
                    }]
                    .into_iter()
                    .collect(),
                };
                qp.post(read).unwrap();
                expected.push_back(begin..end);
                outstanding += 2;
                while outstanding > 100 || (end == size && outstanding > 0) {
                    match next(&mut *qp).await {
                        Completion::Read { sink, .. } => {
                            let range = expected.pop_front().unwrap();
                            assert!(source_bytes[range] == *sink);
                            outstanding -= 1;
                        }
                        Completion::Write { .. } => outstanding -= 1,
                        Completion::Send { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            qp.post(send(b"done".to_vec())).unwrap();
            assert_eq!(message(&mut *qp).await, b"seen");
            end(qp).await;
        },
        move |mut qp| async move {
            let RemoteAddress { handle: sink, .. } = qp
                .register(Memory::Sink(Buffer::with_capacity(size)))
                .unwrap();
            let pieces = pattern(size, 2)
                .chunks(70_000)
                .map(bytes::Bytes::copy_from_slice)
                .collect();
            let RemoteAddress { handle: source, .. } = qp.register(Memory::Source(pieces)).unwrap();
            let handles = [sink.0.to_be_bytes(), source.0.to_be_bytes()].concat();
            assert_eq!(message(&mut *qp).await, b"hello");
            qp.post(send(handles)).unwrap();
            assert_eq!(message(&mut *qp).await, b"done");
            let invalidate = WorkRequest::Invalidate {
                wr: WrId(1),
                handle: sink,
            };
            qp.post(invalidate).unwrap();
            loop {
                if let Completion::Invalidate { invalidated, .. } = next(&mut *qp).await {
                    let Memory::Sink(mut buffer) = invalidated.memory else {
                        panic!("a sink was registered");
                    };
                    assert!(buffer.memory_mut()[..size] == pattern(size, 1));
                    break;
                }
            }
            qp.post(send(b"seen".to_vec())).unwrap();
            end(qp).await;
        },
    );
}

#[test]
fn more_than_all_buffers_hold_goes_both_ways() {
    for crc in [CrcMode::On, CrcMode::Off, CrcMode::Strict] {
        write_and_read(&config(crc, FpduPolicy::Path), 40 << 20, 3 << 20);
    }
}

#[test]
fn odd_pieces_in_small_segments_go_both_ways() {
    for crc in [CrcMode::On, CrcMode::Off] {
        write_and_read(&config(crc, FpduPolicy::Max(1442)), 1_000_001, 77_777);
        write_and_read(&config(crc, FpduPolicy::Max(9000)), 1_000_001, 7_777);
    }
}

#[test]
fn socket_buffers_may_be_smaller_than_a_message() {
    let config = Config::default().with_loopback_socket_buffer(4096);
    write_and_read(&config, 2 << 20, 500_000);
}

/// Connections of clients, each of which sends so many messages, four at a time, and waits for the
/// answers. The server answers in a task per connection and hands the blocks to a thread, which
/// drops them.
async fn answer_all(provider: &Iwarp, queue: &SharedReceiveQueue, clients: usize, messages: usize) {
    const DEPTH: usize = 4;
    let options = QpOptions::default()
        .with_receives(DEPTH)
        .with_shared_receives(queue.clone());
    let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listener = provider.listen(on).await.unwrap();
    let to = listener.local_addr();
    let (blocks, to_drop) = mpsc::channel::<Buffer>();
    let dropper = std::thread::spawn(move || to_drop.into_iter().for_each(drop));
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (connected, incoming) = tokio::join!(
            async {
                let receives = (0..DEPTH).map(|_| receive()).collect();
                let options = QpOptions::default();
                provider.connect(to, &options, &[], receives).await.unwrap()
            },
            async {
                let incoming = listener.accept().await.unwrap();
                incoming.accept(&options, &[], Vec::new()).await.unwrap()
            }
        );
        let mut server = incoming;
        let blocks = blocks.clone();
        tasks.push(tokio::spawn(async move {
            let mut left = messages;
            while left > 0 {
                if let Completion::Receive { buffer, .. } = next(&mut *server).await {
                    server.post(send(buffer.to_vec())).unwrap();
                    blocks.send(buffer).unwrap();
                    left -= 1;
                }
            }
            while server.closed().is_none() {
                if !server.progress() {
                    poll_fn(|cx| server.poll_ready(cx)).await;
                }
            }
        }));
        let mut client = connected.qp;
        tasks.push(tokio::spawn(async move {
            for number in 0..messages + DEPTH {
                if number >= DEPTH {
                    let answer = message(&mut *client).await;
                    assert_eq!(
                        answer,
                        pattern((number - DEPTH) * 37 % 4000, number - DEPTH)
                    );
                }
                if number < messages {
                    client
                        .post(send(pattern(number * 37 % 4000, number)))
                        .unwrap();
                }
            }
            end(client).await;
        }));
    }
    drop(blocks);
    for task in tasks {
        task.await.unwrap();
    }
    dropper.join().unwrap();
}

fn on_two_threads(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() });
}

#[test]
fn many_connections_share_two_blocks_that_are_dropped_on_another_thread() {
    on_two_threads(async {
        let queue = SharedReceiveQueue::new(2, 4096);
        answer_all(&Iwarp::default(), &queue, 12, 300).await;
        let stats = queue.stats();
        assert_eq!((stats.lent, stats.waiting, stats.attached), (0, 0, 0));
        assert_eq!(stats.most_lent, 2);
    });
}

/// Lets a queue pair do all there is to do.
async fn rest(qp: &mut dyn QueuePair) {
    poll_fn(|cx| {
        while qp.progress() || qp.poll_ready(cx).is_ready() {
            while qp.poll_cq().is_some() {}
        }
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn idle_connections_hold_no_memory_of_their_provider() {
    on_two_threads(async {
        let provider = Iwarp::default();
        let queue = SharedReceiveQueue::new(100, 4096);
        let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut listener = provider.listen(on).await.unwrap();
        let to = listener.local_addr();
        let options = QpOptions::default().with_shared_receives(queue.clone());
        let mut open = Vec::new();
        for _ in 0..50 {
            let (connected, accepted) =
                tokio::join!(provider.connect(to, &options, &[], Vec::new()), async {
                    let incoming = listener.accept().await.unwrap();
                    incoming.accept(&options, &[], Vec::new()).await.unwrap()
                });
            let (mut client, mut server) = (connected.unwrap().qp, accepted);
            for length in [100, 60_000] {
                client.post(send(pattern(length.min(4096), 1))).unwrap();
                let handle = client.register(Memory::Sink(Buffer::with_capacity(length)));
                let to = handle.unwrap();
                let arrived = tokio::join!(
                    async {
                        while !matches!(next(&mut *client).await, Completion::Receive { .. }) {}
                    },
                    async {
                        while !matches!(next(&mut *server).await, Completion::Receive { .. }) {}
                        let source = [bytes::Bytes::from(pattern(length, 2))];
                        let source = source.into_iter().collect();
                        let wr = WrId(1);
                        server.post(WorkRequest::Write { wr, source, to }).unwrap();
                        server.post(send(b"written".to_vec())).unwrap();
                        while !matches!(next(&mut *server).await, Completion::Send { .. }) {}
                    }
                );
                let ((), ()) = arrived;
            }
            rest(&mut *client).await;
            rest(&mut *server).await;
            open.push((client, server));
        }
        let memory = provider.memory();
        assert_eq!((memory.out, queue.stats().lent), (0, 0));
        // One after the other, they used the same memory.
        assert!(memory.misses < 20, "{memory:?}");
    });
}
