//! Events: of the peer, of ports, and of a device that goes away.

use super::scene::{connect, connected, end, message, open, run, text};
use super::{Fake, PATIENCE};
use crate::sys::cm::RDMA_CM_EVENT_DISCONNECTED;
use crate::sys::{IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR};
use buffer::Pool;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{CloseReason, Completion, Loss, Memory, QueuePair, WorkRequest};

/// A connection with memory that is open to the peer, on which this happens. Gives how it ended.
fn ended(happen: impl FnOnce(&Fake)) -> (Fake, CloseReason) {
    let fake = Fake::new();
    let reason = ended_on(&fake, happen);
    (fake, reason)
}

/// The same on a device.
fn ended_on(fake: &Fake, happen: impl FnOnce(&Fake)) -> CloseReason {
    run(async {
        let begun = Instant::now();
        let reason = end_of_one(fake, happen).await;
        assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
        reason
    })
}

async fn end_of_one(fake: &Fake, happen: impl FnOnce(&Fake)) -> CloseReason {
    let pool = Pool::new(1 << 20);
    let mut qp = connected(fake, &pool).await;
    qp.register(Memory::Sink(pool.take(4096))).unwrap();
    while qp.progress() {}
    happen(fake);
    let (reason, completions) = end(&mut *qp).await;
    assert!(completions.is_empty(), "{completions:?}");
    assert_eq!(pool.stats().out, 0);
    reason
}

#[test]
fn peer_that_disconnects_ends_the_connection() {
    let (_, reason) = ended(|fake| fake.connection_event(RDMA_CM_EVENT_DISCONNECTED));
    assert_eq!(reason, CloseReason::Peer);
}

#[test]
fn failed_device_ends_the_connection_and_gives_memory_back() {
    let (_, reason) = ended(|fake| fake.device_event(IBV_EVENT_DEVICE_FATAL));
    assert_eq!(reason, CloseReason::Lost(Loss::DeviceRemoved.into()));
}

#[test]
fn removed_device_is_let_go() {
    let fake = Fake::new();
    fake.give_device_a_file();
    let reason = ended_on(&fake, |fake| {
        assert!(!fake.device_is_let_go());
        fake.unplug();
    });
    assert_eq!(reason, CloseReason::Lost(Loss::DeviceRemoved.into()));
    fake.until_device_is_let_go();
}

#[test]
fn removed_device_that_gives_no_work_back_is_let_go() {
    let fake = Fake::new();
    fake.give_device_a_file();
    ended_on(&fake, |fake| {
        fake.keep_work();
        fake.unplug();
    });
    fake.until_device_is_let_go();
}

/// The kernel waits for programs before it tells the connection manager. The connection is idle meanwhile, in real time.
#[test]
fn removal_of_which_the_connection_manager_says_nothing_ends_the_connection() {
    let fake = Fake::new();
    fake.give_device_a_file();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let reason = runtime.block_on(async {
        let ended = end_of_one(&fake, Fake::take_from_programs);
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, ended).await.expect("it ends")
    });
    assert_eq!(reason, CloseReason::Lost(Loss::DeviceRemoved.into()));
    fake.until_device_is_let_go();
}

/// The device goes on with its work until programs have let it go, so that a connection may never have to wait.
#[test]
fn removal_ends_a_connection_that_is_always_at_work() {
    let fake = Fake::new();
    fake.give_device_a_file();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.take_from_programs();
        let begun = std::time::Instant::now();
        while qp.closed().is_none() {
            assert!(begun.elapsed() < PATIENCE, "it goes on");
            fake.message(b"more");
            while qp.progress() {}
            while let Some(completion) = qp.poll_cq() {
                if let Completion::Receive { wr, buffer, .. } = completion {
                    qp.post(WorkRequest::Receive { wr, buffer }).unwrap();
                }
            }
        }
        let removed = CloseReason::Lost(Loss::DeviceRemoved.into());
        assert_eq!(qp.closed(), Some(&removed));
    });
    fake.until_device_is_let_go();
}

/// A peer that connects again at once, because the connection manager knows nothing yet, does not keep the device open.
#[test]
fn device_that_was_removed_takes_no_connections() {
    let fake = Fake::new();
    fake.give_device_a_file();
    run(async {
        let provider = open(&fake).unwrap();
        let mut first = connect(&provider).await.unwrap().qp;
        fake.take_from_programs();
        while first.closed().is_none() {
            first.progress();
        }
        // The removal is known, and the first connection still holds the device.
        let refused = connect(&provider).await.err().expect("no connection");
        assert!(text(&refused).contains("the RDMA device was removed"));
        drop(first);
        fake.until_device_is_let_go();
        let refused = connect(&provider).await.err().expect("no connection");
        assert!(text(&refused).contains("the RDMA device was removed"));
    });
}

/// librdmacm has the device open, and no identifier is left that would hear of its removal.
#[test]
fn device_is_let_go_that_is_removed_after_the_peer_has_ended_the_last_connection() {
    let fake = Fake::new();
    fake.give_device_a_file();
    let reason = ended_on(&fake, |fake| {
        fake.connection_event(RDMA_CM_EVENT_DISCONNECTED);
    });
    assert_eq!(reason, CloseReason::Peer);
    assert_eq!(fake.objects("identifier"), 0);
    assert!(!fake.device_is_let_go());
    fake.unplug();
    fake.until_device_is_let_go();
}

#[test]
fn failed_completion_queue_ends_the_connection() {
    let (_, reason) = ended(|fake| fake.completion_queue_event(IBV_EVENT_CQ_ERR));
    assert!(
        matches!(&reason, CloseReason::Lost(why) if why.kind() == Loss::System),
        "{reason:?}"
    );
}

#[test]
fn port_without_a_link_ends_the_connection() {
    let (_, reason) = ended(|fake| fake.port_event(IBV_EVENT_PORT_ERR, 1, false));
    assert_eq!(reason, CloseReason::Lost(Loss::LinkDown.into()));
}

#[test]
fn link_that_is_back_and_other_ports_change_nothing() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.port_event(IBV_EVENT_PORT_ERR, 1, true);
        assert_open(&fake, &mut *qp, b"first").await;
        fake.port_event(IBV_EVENT_PORT_ERR, 2, false);
        assert_open(&fake, &mut *qp, b"second").await;
    });
}

async fn assert_open(fake: &Fake, qp: &mut dyn QueuePair, text: &[u8]) {
    let arriving = async {
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        fake.message(text);
    };
    let (arrived, ()) = tokio::join!(message(qp), arriving);
    assert_eq!(arrived.1, text);
}

/// Each of two connections hears of an event that one of them takes from the device.
#[test]
fn all_connections_over_a_port_hear_that_it_has_no_link() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut one = connected(&fake, &pool).await;
        let mut other = connected(&fake, &pool).await;
        fake.port_event(IBV_EVENT_PORT_ERR, 1, false);
        let (one, other) = tokio::join!(end(&mut *one), end(&mut *other));
        assert_eq!(one.0, CloseReason::Lost(Loss::LinkDown.into()));
        assert_eq!(other.0, CloseReason::Lost(Loss::LinkDown.into()));
    });
}
