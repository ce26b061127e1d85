//! Connections over an iWARP card, which resets the TCP connection of a queue pair that is told to fail.

use super::scene::{assert_flushed, open, receives, run, until_closed};
use super::{Answer, Fake};
use crate::sys::cm::{RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED};
use buffer::Pool;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{CloseReason, Provider as _, QpOptions, QueuePair};

/// A connection that was accepted: to ask for one, another thread waits for TCP, which has another model.
async fn accepted(fake: &Fake) -> Box<dyn QueuePair> {
    fake.be_iwarp();
    let provider = open(fake).unwrap();
    let on = "192.0.2.2:20049".parse().unwrap();
    let mut listener = provider.listen(on).await.unwrap();
    let request = Answer::new(RDMA_CM_EVENT_CONNECT_REQUEST);
    fake.request(Some("192.0.2.7:4711".parse().unwrap()), request);
    let incoming = listener.accept().await.unwrap();
    let (options, pool) = (QpOptions::default(), Pool::new(1 << 20));
    let accepting = incoming.accept(&options, b"", receives(&pool));
    accepting.await.unwrap()
}

#[test]
fn connection_that_is_closed_in_order_is_not_reset() {
    let fake = Fake::new();
    run(async {
        let mut qp = accepted(&fake).await;
        qp.close();
        while qp.progress() {}
        assert_eq!(fake.resets(), 0);
        let closing = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            fake.connection_event(RDMA_CM_EVENT_DISCONNECTED);
        };
        let (completions, ()) = tokio::join!(until_closed(&mut *qp), closing);
        assert_flushed(&completions);
        assert_eq!(qp.closed(), Some(&CloseReason::Local));
        assert_eq!(fake.resets(), 0);
    });
}

#[test]
fn peer_that_does_not_close_in_turn_is_given_up() {
    let fake = Fake::new();
    run(async {
        let mut qp = accepted(&fake).await;
        let begun = Instant::now();
        qp.close();
        assert_flushed(&until_closed(&mut *qp).await);
        assert_eq!(qp.closed(), Some(&CloseReason::Local));
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(fake.resets(), 1);
    });
}

#[test]
fn peer_that_closes_first_is_not_reset() {
    let fake = Fake::new();
    run(async {
        let mut qp = accepted(&fake).await;
        fake.connection_event(RDMA_CM_EVENT_DISCONNECTED);
        assert_flushed(&until_closed(&mut *qp).await);
        assert_eq!(qp.closed(), Some(&CloseReason::Peer));
        assert_eq!(fake.resets(), 0);
    });
}
