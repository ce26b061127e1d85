//! Events: of the peer, of ports, and of a device that goes away.

use super::scene::{connect, connected, end, message, open, run, text};
use super::{Fake, PATIENCE};
use crate::sys::cm::{RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_DISCONNECTED};
use crate::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL,
};
use buffer::Pool;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use verbs::{CloseReason, Completion, Loss, Memory, ProtocolError, QueuePair, WorkRequest};

/// An event of a queue pair that changes nothing: the connection is established (`IBV_EVENT_COMM_EST`).
const ESTABLISHED: i32 = 4;

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

/// Others may have the memory of a queue pair as soon as it is destroyed.
#[test]
fn queue_pair_at_the_address_of_a_destroyed_one_hears_of_its_errors() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let one = connected(&fake, &pool).await;
        let made = Rc::new(RefCell::new(None));
        let place = Rc::clone(&made);
        let provider = open(&fake).unwrap();
        fake.during("rdma_destroy_qp", move || {
            let connecting = pin!(connect(&provider));
            match connecting.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(connected) => *place.borrow_mut() = Some(connected.unwrap().qp),
                Poll::Pending => panic!("it takes no time"),
            }
        });
        drop(one);
        let mut other = made.take().expect("a connection");
        fake.queue_pair_event(IBV_EVENT_QP_ACCESS_ERR);
        let (reason, _) = end(&mut *other).await;
        let expected = CloseReason::PeerError(ProtocolError::MemoryAccess.into());
        assert_eq!(reason, expected);
    });
}

/// The network interface, which is a bond, has changed to another device.
#[test]
fn address_that_moves_to_another_device_ends_the_connection() {
    let (_, reason) = ended(|fake| fake.connection_event(RDMA_CM_EVENT_ADDR_CHANGE));
    assert_eq!(reason, CloseReason::Lost(Loss::LinkDown.into()));
}

#[test]
fn event_of_the_queue_pair_hides_no_port_without_a_link() {
    let orders: [fn(&Fake); 2] = [
        |fake| {
            fake.port_event(IBV_EVENT_PORT_ERR, 1, false);
            fake.queue_pair_event(ESTABLISHED);
        },
        |fake| {
            fake.queue_pair_event(ESTABLISHED);
            fake.port_event(IBV_EVENT_PORT_ERR, 1, false);
        },
    ];
    for happen in orders {
        let (_, reason) = ended(happen);
        assert_eq!(reason, CloseReason::Lost(Loss::LinkDown.into()));
    }
}

#[test]
fn later_event_hides_no_failed_completion_queue() {
    let orders: [fn(&Fake); 2] = [
        |fake| {
            fake.completion_queue_event(IBV_EVENT_CQ_ERR);
            fake.queue_pair_event(IBV_EVENT_QP_FATAL);
        },
        |fake| {
            // The link is back since, so that this alone ends nothing.
            fake.port_event(IBV_EVENT_PORT_ERR, 1, true);
            fake.completion_queue_event(IBV_EVENT_CQ_ERR);
        },
    ];
    for happen in orders {
        let (_, reason) = ended(happen);
        assert!(
            matches!(&reason, CloseReason::Lost(why) if why.kind() == Loss::System),
            "{reason:?}"
        );
    }
}

/// Its driver resets it, and it works again.
#[test]
fn device_that_has_recovered_from_a_failure_takes_connections() {
    let fake = Fake::new();
    // It is watched, and so known, while nobody is connected.
    fake.give_device_a_file();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.device_event(IBV_EVENT_DEVICE_FATAL);
        let (reason, _) = end(&mut *qp).await;
        assert_eq!(reason, CloseReason::Lost(Loss::DeviceRemoved.into()));
        // One event more, of which nobody hears: it is not about the connections that follow.
        fake.device_event(IBV_EVENT_DEVICE_FATAL);
        let mut qp = connected(&fake, &pool).await;
        assert_open(&fake, &mut *qp, b"first").await;
        drop(qp);
    });
    fake.take_from_programs();
    fake.until_device_is_let_go();
}

/// In real time: between two looks for it.
#[test]
fn device_that_is_removed_and_returns_at_once_ends_its_connections() {
    let fake = Fake::new();
    fake.give_device_a_file();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let reason = runtime.block_on(async {
        let ended = end_of_one(&fake, Fake::replug);
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("it ends")
    });
    assert_eq!(reason, CloseReason::Lost(Loss::DeviceRemoved.into()));
    fake.until_device_is_let_go();
}

/// librdmacm closes a device that is gone when it looks for another one.
#[test]
fn descriptors_that_others_have_opened_since_stay_when_a_device_is_let_go() {
    let fake = Fake::new();
    fake.give_device_a_file();
    ended_on(&fake, |fake| {
        fake.connection_event(RDMA_CM_EVENT_DISCONNECTED);
    });
    fake.reuse_descriptors();
    fake.take_from_programs();
    fake.until_device_is_unwatched();
    assert!(!fake.device_is_let_go());
}

/// It may do so at any time in a call of another thread, as in this one.
#[test]
fn no_device_is_let_go_during_a_call_in_which_librdmacm_may_close_it() {
    let fake = Rc::new(Fake::new());
    fake.give_device_a_file();
    ended_on(&fake, |fake| {
        fake.connection_event(RDMA_CM_EVENT_DISCONNECTED);
    });
    let was_let_go = Rc::new(Cell::new(true));
    let (within, result) = (Rc::clone(&fake), Rc::clone(&was_let_go));
    fake.during("rdma_destroy_id", move || {
        within.take_from_programs();
        within.until_removal_is_known();
        result.set(within.device_is_let_go());
        within.reuse_descriptors();
    });
    // Makes an identifier, and destroys it.
    drop(open(&fake).unwrap());
    fake.until_device_is_unwatched();
    assert!(!was_let_go.get());
    assert!(!fake.device_is_let_go());
}
