//! Completions: those that never come, notifications, and failures.

use super::Fake;
use super::scene::{RECEIVES, connected, end, message, next, run, send, text};
use crate::sys::{
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR,
    IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_SUCCESS,
    IBV_WC_WITH_INV, ibv_wc,
};
use buffer::Pool;
use std::future::poll_fn;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{
    CloseReason, Completion, Handle, Loss, Memory, ProtocolError, RemoteAddress, Segment,
    WorkError, WorkRequest, WrId,
};

/// More than a close waits for, and then for the device.
const CLOSE_LIMIT: Duration = Duration::from_secs(4);

#[test]
fn memory_stays_with_a_device_that_completes_nothing_until_its_queue_pair_is_destroyed() {
    let fake = Fake::new();
    fake.keep_work();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        qp.post(send(&pool, 10, 2000)).unwrap();
        let sink = pool.take(4096);
        let segment = Segment {
            handle: Handle(77),
            length: 4096,
            offset: 0,
        };
        let read = WorkRequest::Read {
            wr: WrId(11),
            sink,
            from: [segment].as_slice().into(),
        };
        qp.post(read).unwrap();
        qp.register(Memory::Sink(pool.take(4096))).unwrap();
        let lent = pool.stats().out;
        fake.watch(&pool);
        let begun = Instant::now();
        while qp.progress() {}
        qp.close();
        let mut failed = Vec::new();
        while qp.closed().is_none() {
            assert_eq!(pool.stats().out, lent, "the device still has it");
            assert_eq!(fake.objects("queue pair"), 1);
            while qp.progress() {}
            while let Some(completion) = qp.poll_cq() {
                match completion {
                    Completion::Failed { wr, .. } => failed.push(wr.0),
                    other => panic!("{other:?}"),
                }
            }
            poll_fn(|cx| qp.poll_ready(cx)).await;
        }
        assert!(begun.elapsed() < CLOSE_LIMIT, "{:?}", begun.elapsed());
        assert_eq!(fake.objects("queue pair"), 0);
        assert_eq!(fake.lent_at_the_end(), [lent]);
        failed.sort_unstable();
        assert_eq!(failed, [0, 1, 2, 3, 10, 11]);
        assert_eq!(pool.stats().out, 0);
    });
}

#[test]
fn dropped_connection_waits_for_no_completion() {
    let fake = Fake::new();
    fake.keep_work();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        qp.post(send(&pool, 10, 2000)).unwrap();
        while qp.progress() {}
        let begun = Instant::now();
        drop(qp);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(pool.stats().out, 0);
    });
}

#[test]
fn message_that_comes_before_the_queue_is_armed_is_not_overlooked() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.message_before_arming(b"just before");
        assert_eq!(message(&mut *qp).await, (0, b"just before".to_vec()));
        // Armed already, and not again.
        fake.message(b"notified");
        assert_eq!(message(&mut *qp).await, (1, b"notified".to_vec()));
        assert_eq!(qp.io_counters().work.arms, 1);
    });
}

#[test]
fn each_notification_is_asked_for_again() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        for number in 0..RECEIVES {
            let arriving = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                fake.message(&number.to_be_bytes());
            };
            let (arrived, ()) = tokio::join!(message(&mut *qp), arriving);
            assert_eq!(arrived, (number, number.to_be_bytes().to_vec()));
        }
        let work = qp.io_counters().work;
        assert_eq!((work.arms, work.notifications), (RECEIVES, RECEIVES));
    });
}

#[test]
fn notification_of_nothing_is_followed_by_another_wait() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        let arriving = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                fake.notify_of_nothing();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            fake.message(b"something");
        };
        let (arrived, ()) = tokio::join!(message(&mut *qp), arriving);
        assert_eq!(arrived.1, b"something");
    });
}

#[test]
fn device_that_cannot_notify_ends_the_connection() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.fail("ibv_req_notify_cq", libc::EIO);
        let (reason, _) = end(&mut *qp).await;
        assert!(
            matches!(&reason, CloseReason::Lost(why) if why.kind() == Loss::System),
            "{reason:?}"
        );
    });
}

/// Lets a Write fail in this way, with more work behind it. Gives how the Write ended, and the connection.
fn failed_write(status: i32) -> (WorkError, CloseReason) {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        let handle = Handle(77);
        let mut source = pool.take(2000);
        source.set_len(2000);
        let write = WorkRequest::Write {
            wr: WrId(10),
            source: [source.freeze()].into_iter().collect(),
            to: RemoteAddress { handle, offset: 0 },
        };
        qp.post(write).unwrap();
        while qp.progress() {}
        qp.post(send(&pool, 11, 2000)).unwrap();
        while qp.progress() {}
        qp.register(Memory::Sink(pool.take(4096))).unwrap();
        fake.complete_send(status);
        let (reason, completions) = end(&mut *qp).await;
        let detail = text(&reason);
        assert!(detail.ends_with("a status"), "{detail}");
        assert_eq!(pool.stats().out, 0);
        match &completions[..] {
            [
                Completion::Failed {
                    wr: WrId(10),
                    error,
                },
                Completion::Failed {
                    wr: WrId(11),
                    error: WorkError::Flushed,
                },
            ] => (*error, reason),
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn failed_work_says_what_the_peer_did_not_allow() {
    let cases = [
        (IBV_WC_REM_ACCESS_ERR, ProtocolError::MemoryAccess),
        (IBV_WC_RNR_RETRY_EXC_ERR, ProtocolError::NoBuffer),
        (IBV_WC_REM_INV_REQ_ERR, ProtocolError::InvalidMessage),
        (IBV_WC_REM_OP_ERR, ProtocolError::Internal),
    ];
    for (status, expected) in cases {
        let (error, reason) = failed_write(status);
        let refused = status == IBV_WC_REM_ACCESS_ERR;
        assert_eq!(error == WorkError::RemoteAccess, refused);
        assert!(
            matches!(&reason, CloseReason::Terminated(why) if why.kind() == expected),
            "{status}: {reason:?}"
        );
    }
}

#[test]
fn failed_work_says_that_the_connection_is_lost() {
    let cases = [
        (IBV_WC_RETRY_EXC_ERR, Loss::Unresponsive),
        (IBV_WC_RESP_TIMEOUT_ERR, Loss::Unresponsive),
        (IBV_WC_LOC_PROT_ERR, Loss::WorkFailed),
        // A status that is not known.
        (99, Loss::WorkFailed),
    ];
    for (status, expected) in cases {
        let (error, reason) = failed_write(status);
        assert_eq!(error, WorkError::Flushed);
        assert!(
            matches!(&reason, CloseReason::Lost(why) if why.kind() == expected),
            "{status}: {reason:?}"
        );
    }
}

#[test]
fn queue_pair_that_stops_without_a_reason_is_the_fault_of_the_peer() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.stop_queue_pair();
        let (reason, _) = end(&mut *qp).await;
        assert_eq!(
            reason,
            CloseReason::PeerError(ProtocolError::Unspecified.into())
        );
    });
}

#[test]
fn event_of_the_queue_pair_is_the_reason_though_flushed_work_is_seen_first() {
    let cases = [
        (IBV_EVENT_QP_ACCESS_ERR, ProtocolError::MemoryAccess),
        (IBV_EVENT_QP_REQ_ERR, ProtocolError::InvalidMessage),
        (IBV_EVENT_QP_FATAL, ProtocolError::Unspecified),
    ];
    for (event, expected) in cases {
        let fake = Fake::new();
        run(async {
            let pool = Pool::new(1 << 20);
            let mut qp = connected(&fake, &pool).await;
            fake.stop_queue_pair();
            fake.queue_pair_event(event);
            let (reason, _) = end(&mut *qp).await;
            assert_eq!(reason, CloseReason::PeerError(expected.into()));
        });
    }
}

/// How a connection ends, and its first Receive, which completes in this way.
fn failed_receive(length: usize, completion: ibv_wc) -> (WorkError, CloseReason) {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.complete_receive(&vec![7; length], completion);
        let error = match next(&mut *qp).await {
            Completion::Failed { wr: WrId(0), error } => error,
            other => panic!("{other:?}"),
        };
        super::scene::until_closed(&mut *qp).await;
        assert_eq!(pool.stats().out, 0);
        (error, qp.closed().cloned().unwrap())
    })
}

#[test]
fn message_longer_than_its_receive_is_not_delivered() {
    let status = IBV_WC_LOC_LEN_ERR;
    let refused = ibv_wc {
        status,
        ..ibv_wc::default()
    };
    // A device that counts more than there is room for is not believed.
    for (length, completion) in [(10, refused), (4097, ibv_wc::default())] {
        let (error, reason) = failed_receive(length, completion);
        assert_eq!(error, WorkError::TooLong);
        let kind = match reason {
            CloseReason::PeerError(why) => why.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind, ProtocolError::TooLong);
    }
}

#[test]
fn message_that_invalidates_what_is_not_there_is_not_delivered() {
    let completion = ibv_wc {
        status: IBV_WC_SUCCESS,
        wc_flags: IBV_WC_WITH_INV,
        invalidated_rkey: 77,
        ..ibv_wc::default()
    };
    let (error, reason) = failed_receive(10, completion);
    assert_eq!(error, WorkError::Flushed);
    let expected = CloseReason::PeerError(ProtocolError::Invalidation.into());
    assert_eq!(reason, expected);
}
