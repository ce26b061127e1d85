//! The shared receive queue.
//!
//! Each behaviour makes its own queue, whatever the [fixture](crate::Fixture) does elsewhere. A
//! provider that has none passes.

use crate::bench::Bench;
use crate::pair::{At, Pair, pattern, segment};
use verbs::{Buffer, PostError, QpOptions, SharedReceiveQueue, WorkRequest};

const BLOCK: usize = 4096;

/// Options of an end that takes from this queue, at most so many blocks at a time.
fn options(queue: &SharedReceiveQueue, share: usize) -> QpOptions {
    QpOptions::default()
        .with_receives(share)
        .with_receive_size(BLOCK)
        .with_shared_receives(queue.clone())
}

/// A pair whose far end takes from the queue, and the near end from one that is large enough.
async fn pair_with<'a>(bench: &Bench<'a>, queue: &SharedReceiveQueue, share: usize) -> Pair<'a> {
    let near = options(&SharedReceiveQueue::new(300, BLOCK), 300);
    let mut listener = bench.listen().await;
    let far = options(queue, share);
    let mut pair = bench.pair_over(&mut *listener, &near, &far).await;
    pair.near.send(b"hello");
    assert_eq!(&*arrived(&mut pair, 1).await[0], b"hello");
    pair
}

fn has_queue(bench: &Bench<'_>) -> bool {
    let limits = [bench.connector().limits(), bench.acceptor().limits()];
    limits.iter().all(|limits| limits.shared_receives)
}

fn holds_back(bench: &Bench<'_>) -> bool {
    has_queue(bench) && bench.acceptor().limits().holds_peer_back
}

/// So many messages of the near end.
async fn arrived(pair: &mut Pair<'_>, count: usize) -> Vec<Buffer> {
    let mut found = Vec::new();
    pair.until("messages in blocks", |pair| {
        found.extend(std::iter::from_fn(|| pair.far.early_message()));
        (found.len() >= count).then_some(())
    })
    .await;
    assert_eq!(found.len(), count);
    found
}

/// Posting a Receive is the business of whoever fills the shared queue.
pub async fn receive_is_not_posted_beside_a_shared_queue(bench: &Bench<'_>) {
    if !has_queue(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(2, BLOCK);
    let mut pair = pair_with(bench, &queue, 2).await;
    let buffer = pair.far.buffer(100);
    let posted = pair.far.try_post(|wr| WorkRequest::Receive { wr, buffer });
    assert!(matches!(
        posted.map_err(|error| *error),
        Err(PostError::Invalid(WorkRequest::Receive { .. }))
    ));
    pair.works().await;
    pair.finish().await;
}

/// A block holds a message of its size, and no more.
pub async fn message_longer_than_a_block_ends_the_connection(bench: &Bench<'_>) {
    if !has_queue(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(2, BLOCK);
    let mut pair = pair_with(bench, &queue, 2).await;
    let bytes = pattern(1, BLOCK);
    pair.near.send(&bytes);
    assert_eq!(*arrived(&mut pair, 1).await[0], bytes);
    pair.near.send(&pattern(1, BLOCK + 1));
    pair.offence().await;
    pair.finish().await;
    assert_eq!(queue.stats().lent, 0);
}

/// A message that finds all blocks lent waits, in order, and so does what is behind it.
pub async fn message_without_a_block_waits_for_one(bench: &Bench<'_>) {
    const COUNT: usize = 50;
    if !holds_back(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(3, BLOCK);
    let mut pair = pair_with(bench, &queue, COUNT).await;
    let message = |number: usize| pattern(number, number * 83 % BLOCK);
    for number in 0..COUNT {
        pair.near.send(&message(number));
    }
    let region = pair.sink(At::Far, 100).await;
    let write = pair.near.write(region, 0, &[7; 100]);
    let mut held = arrived(&mut pair, 3).await;
    for number in 0..COUNT {
        assert_eq!(*held[0], message(number), "message {number}");
        assert!(queue.stats().lent <= 3);
        held.remove(0);
        if number + 3 < COUNT {
            held.extend(arrived(&mut pair, 1).await);
        }
    }
    pair.success(At::Near, write).await;
    pair.works().await;
    assert_eq!(pair.contents(At::Far, region).await[..100], [7; 100]);
    pair.works().await;
    pair.finish().await;
    assert_eq!(queue.stats().most_lent, 3);
}

/// Whoever drops a block need not be the owner of the queue pair, nor on its thread.
pub async fn block_dropped_on_another_thread_wakes_the_waiter(bench: &Bench<'_>) {
    if !holds_back(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(1, BLOCK);
    let mut pairs = [
        pair_with(bench, &queue, 9).await,
        pair_with(bench, &queue, 9).await,
    ];
    pairs[0].near.send(b"first");
    let mut held = arrived(&mut pairs[0], 1).await.pop();
    for round in 0..20_u8 {
        let pair = &mut pairs[usize::from(round % 2 == 0)];
        pair.near.send(&[round]);
        let mut found = None;
        pair.until("a message in the only block", |pair| {
            if queue.stats().waiting > 0
                && let Some(block) = held.take()
            {
                let dropping = std::thread::spawn(move || drop(block.freeze()));
                dropping.join().expect("it drops a block");
            }
            found = found.take().or_else(|| pair.far.early_message());
            found.is_some().then_some(())
        })
        .await;
        assert!(held.is_none(), "it did not have to wait");
        held = found;
        assert_eq!(held.as_deref(), Some([round].as_slice()));
    }
    drop(held);
    for pair in pairs {
        pair.finish().await;
    }
    assert_eq!(queue.stats().most_lent, 1);
}

/// A peer that sends more than its share is not read any further; others have what is left
/// (RFC 5041 §8.3.2).
pub async fn connection_takes_no_more_than_its_share(bench: &Bench<'_>) {
    const SHARE: usize = 3;
    if !holds_back(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(SHARE + 1, BLOCK);
    let mut greedy = pair_with(bench, &queue, SHARE).await;
    let mut modest = pair_with(bench, &queue, SHARE).await;
    for number in 0..20 {
        greedy.near.send(&[number]);
    }
    let mut held = arrived(&mut greedy, SHARE).await;
    modest.works().await;
    greedy.far.qp.progress();
    greedy.far.collect();
    assert!(greedy.far.early_message().is_none());
    for number in 0..20 {
        assert_eq!(*held[0], [number]);
        held.remove(0);
        if usize::from(number) + SHARE < 20 {
            held.extend(arrived(&mut greedy, 1).await);
        }
    }
    greedy.works().await;
    greedy.finish().await;
    modest.finish().await;
    assert!(queue.stats().most_lent <= SHARE + 1);
}

/// Calls hold all blocks, and the Read Responses for them stand behind the rest of the calls.
pub async fn read_arrives_though_all_blocks_are_held_by_calls_before_it(bench: &Bench<'_>) {
    const CALLS: usize = 128;
    if !holds_back(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(2, BLOCK);
    let mut pairs = [
        pair_with(bench, &queue, CALLS).await,
        pair_with(bench, &queue, CALLS).await,
    ];
    let bytes = pattern(5, 50_000);
    let mut held = Vec::new();
    let mut sources = Vec::new();
    for pair in &mut pairs {
        sources.push(pair.source(At::Near, &bytes).await);
        pair.near.send(b"read my chunk");
        held.extend(arrived(pair, 1).await);
    }
    let mut left = Vec::new();
    for (pair, source) in pairs.iter_mut().zip(sources) {
        for number in 1..CALLS {
            pair.near.send(&pattern(number, 100));
        }
        // Before the Read Request goes out.
        pair.near.qp.progress();
        let read = pair.far.read(&[segment(source, 0, bytes.len())]);
        let sink = pair.sink_of(At::Far, read).await;
        assert!(*sink == bytes);
        let before = held.len();
        held.extend(std::iter::from_fn(|| pair.far.early_message()));
        left.push(CALLS - 1 - (held.len() - before));
    }
    let most = queue.stats().most_lent;
    assert!(most > 2, "nothing stood before the Reads");
    // All are answered. What has not arrived yet comes in blocks as they are free.
    drop(held);
    for (mut pair, mut left) in pairs.into_iter().zip(left) {
        pair.until("the rest of the calls", |pair| {
            left -= std::iter::from_fn(|| pair.far.early_message()).count();
            (left == 0).then_some(())
        })
        .await;
        pair.works().await;
        pair.finish().await;
    }
    assert_eq!(queue.stats().lent, 0);
}

/// The end of a connection that waits for a block leaves its turn to the next.
pub async fn connection_that_ends_leaves_the_queue_of_waiters(bench: &Bench<'_>) {
    if !holds_back(bench) {
        return;
    }
    let queue = SharedReceiveQueue::new(1, BLOCK);
    let mut holder = pair_with(bench, &queue, 9).await;
    let mut first = pair_with(bench, &queue, 9).await;
    let mut next = pair_with(bench, &queue, 9).await;
    holder.near.send(b"held");
    let held = arrived(&mut holder, 1).await;
    for (waiting, pair) in [(1, &mut first), (2, &mut next)] {
        pair.near.send(b"waits");
        pair.until("its place among those who wait", |_| {
            (queue.stats().waiting == waiting).then_some(())
        })
        .await;
    }
    first.far.qp.close();
    first.over().await;
    assert_eq!(queue.stats().waiting, 1);
    drop(held);
    assert_eq!(&*arrived(&mut next, 1).await[0], b"waits");
    first.finish().await;
    next.works().await;
    next.finish().await;
    holder.finish().await;
    assert_eq!(queue.stats().lent, 0);
}
