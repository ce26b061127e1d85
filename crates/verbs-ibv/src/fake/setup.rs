//! Failures while a provider is opened and a connection set up, and their messages.

use super::scene::{
    RECEIVES, assert_flushed, connect, connect_error, open, receives, run, text, until_closed,
};
use super::{Answer, Fake};
use crate::devices::devices_of;
use crate::provider::Ibv;
use crate::shared::Config;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_UNREACHABLE,
};
use buffer::Pool;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{Invalidation, Provider as _, QpOptions, SetupError};

#[test]
fn close_flushes_each_receive_once() {
    let fake = Fake::new();
    let completions = run(async {
        let mut connected = connect(&open(&fake).unwrap()).await.unwrap();
        connected.qp.close();
        until_closed(&mut *connected.qp).await
    });
    assert_flushed(&completions);
}

/// Each call of the libraries fails in its turn: that is an error, or there is another way; and nothing is left.
#[test]
fn failure_of_any_call_leaves_nothing_behind() {
    // A device is used without windows if it has none, and with less inline if it has no room. What is known about it
    // before it is needed is a guess.
    let optional = [
        "ibv_open_device",
        "ibv_query_device",
        "ibv_alloc_pd",
        "ibv_alloc_mw",
        "rdma_create_qp",
    ];
    for number in 1.. {
        let fake = Fake::new();
        fake.fail_nth(number, libc::ENOMEM);
        let result = run(async {
            let provider = open(&fake).map_err(|error| text(&error))?;
            let connected = connect(&provider).await;
            let mut connected = connected.map_err(|error| text(&error))?;
            connected.qp.close();
            Ok::<_, String>(until_closed(&mut *connected.qp).await)
        });
        let failed = fake.failed();
        match (result, failed.first()) {
            (Ok(completions), None) => {
                assert!(number > 15, "only {number} calls");
                return assert_flushed(&completions);
            }
            (Ok(completions), Some(failed)) => {
                assert!(optional.contains(failed), "{failed} failed unnoticed");
                assert_flushed(&completions);
            }
            (Err(error), failed) => {
                assert!(failed.is_some(), "{error}");
                let named = error.contains("annot allocate memory");
                assert!(named && !error.contains('\n'), "{failed:?}: {error}");
            }
        }
    }
}

#[test]
fn no_device_names_how_to_make_one() {
    let fake = Fake::new();
    fake.without_device();
    let text = open(&fake).unwrap_err().to_string();
    assert!(text.contains("rdma link add"), "{text}");
}

#[test]
fn unknown_device_names_those_that_are_there() {
    let fake = Fake::new();
    let device = Some("mlx5_9".into());
    let error = Ibv::over(
        fake.libraries(),
        Config {
            device,
            ..Config::default()
        },
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no RDMA device mlx5_9; there are: fake0"
    );
}

#[test]
fn locked_memory_limit_is_named_with_its_remedy() {
    let fake = Fake::new();
    fake.fail("ibv_reg_mr", libc::ENOMEM);
    let text = text(&connect_error(&fake));
    assert!(text.contains("ulimit -l"), "{text}");
    assert!(text.contains("LimitMEMLOCK="), "{text}");
}

#[test]
fn address_without_device_names_the_list_of_devices() {
    let fake = Fake::new();
    fake.answer_address(Answer::with(RDMA_CM_EVENT_ADDR_ERROR, -libc::ENODEV, b""));
    let error = connect_error(&fake);
    assert!(matches!(error, SetupError::NoDevice(_)), "{error:?}");
    let text = text(&error);
    assert!(text.contains("192.0.2.1:20049"), "{text}");
    assert!(text.contains("rdma link"), "{text}");
}

#[test]
fn address_without_route_is_named() {
    let fake = Fake::new();
    fake.answer_route(Answer::with(
        RDMA_CM_EVENT_ROUTE_ERROR,
        -libc::EHOSTUNREACH,
        b"",
    ));
    let text = text(&connect_error(&fake));
    assert!(text.contains("192.0.2.1:20049"), "{text}");
    assert!(text.contains("is the address right?"), "{text}");
}

#[test]
fn unreachable_peer_does_not_answer() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(
        RDMA_CM_EVENT_UNREACHABLE,
        -libc::ETIMEDOUT,
        b"",
    ));
    let text = text(&connect_error(&fake));
    assert!(text.contains("it does not answer"), "{text}");
}

#[test]
fn rejection_of_the_peer_has_its_private_data() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 28, &[7; 148]));
    match connect_error(&fake) {
        SetupError::Rejected(data) => assert_eq!(data, [7; 148]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn service_without_listener_asks_for_the_server() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 8, b""));
    let text = text(&connect_error(&fake));
    assert!(text.contains("is the server running"), "{text}");
}

#[test]
fn stale_connection_is_a_refusal_with_a_reason() {
    let fake = Fake::new();
    fake.answer_connection(Answer::with(RDMA_CM_EVENT_REJECTED, 10, b""));
    let error = connect_error(&fake);
    assert!(matches!(error, SetupError::Refused(_)), "{error:?}");
    assert!(!text(&error).is_empty());
}

#[test]
fn device_without_windows_offers_no_remote_invalidation() {
    let fake = Fake::new();
    fake.without_windows();
    let completions = run(async {
        let provider = open(&fake).unwrap();
        let offered = provider.limits().remote_invalidation;
        assert_eq!(offered, Invalidation::None);
        let mut connected = connect(&provider).await.unwrap();
        let limits = connected.qp.limits();
        assert_eq!(limits.remote_invalidation, Invalidation::None);
        connected.qp.close();
        until_closed(&mut *connected.qp).await
    });
    assert_flushed(&completions);
}

/// Its connections have keys of regions, which a peer that is told it may invalidate would make unusable.
#[test]
fn device_without_extensions_offers_no_remote_invalidation() {
    let fake = Fake::new();
    fake.without_extensions();
    let device = &devices_of(fake.libraries()).unwrap()[0];
    let attributes = device.attributes.as_ref().unwrap();
    assert!(!attributes.windows.usable(), "{}", attributes.windows);
    run(async {
        let provider = open(&fake).unwrap();
        let offered = provider.limits().remote_invalidation;
        let mut connected = connect(&provider).await.unwrap();
        let limits = connected.qp.limits();
        assert_eq!(limits.remote_invalidation, Invalidation::None);
        assert_eq!(offered, Invalidation::None);
        connected.qp.close();
        until_closed(&mut *connected.qp).await;
    });
}

#[test]
fn address_that_moves_to_another_device_is_named_when_nothing_answers() {
    let fake = Fake::new();
    fake.answer_connection(Answer::new(RDMA_CM_EVENT_ADDR_CHANGE));
    let text = text(&connect_error(&fake));
    assert!(text.contains("another RDMA device"), "{text}");
}

#[test]
fn device_that_refuses_windows_is_used_without() {
    let fake = Fake::new();
    fake.fail("ibv_alloc_mw", libc::ENOMEM);
    let provider = open(&fake).unwrap();
    let offered = provider.limits().remote_invalidation;
    assert_eq!(offered, Invalidation::None);
}

#[test]
fn each_step_of_connection_setup_ends_in_time_when_nothing_happens() {
    let silences: [fn(&Fake); 3] = [
        |fake| fake.answer_address(Answer::silence()),
        |fake| fake.answer_route(Answer::silence()),
        |fake| fake.answer_connection(Answer::silence()),
    ];
    for silence in silences {
        let fake = Fake::new();
        silence(&fake);
        run(async {
            let begun = Instant::now();
            let provider = open(&fake).unwrap();
            let error = connect(&provider).await.err().expect("no connection");
            assert!(matches!(error, SetupError::TimedOut(..)), "{error:?}");
            let limit = QpOptions::default().setup_timeout;
            assert!(begun.elapsed() <= limit + Duration::from_millis(10));
        });
    }
}

#[test]
fn request_names_depths_and_retries() {
    let fake = Fake::new();
    let answer = Answer::new(RDMA_CM_EVENT_ESTABLISHED).with_depths(4, 9);
    fake.answer_connection(answer);
    run(async {
        let provider = open(&fake).unwrap();
        let options = QpOptions::default()
            .with_outstanding_reads(8)
            .with_inbound_reads(64)
            .with_receives(RECEIVES.try_into().unwrap());
        let pool = Pool::new(1 << 20);
        let to = "192.0.2.1:20049".parse().unwrap();
        let connecting = provider.connect(to, &options, b"hello", receives(&pool));
        let mut connected = connecting.await.unwrap();
        let sent = &fake.sent()[0];
        assert_eq!(sent.private_data, b"hello");
        // The device serves 16.
        assert_eq!((sent.outstanding_reads, sent.inbound_reads), (8, 16));
        // With 7, software RoCE would never notice that the peer has gone.
        // A peer that sends more than it has credits for is not to try again (RFC 8166 §3.3.1).
        assert_eq!((sent.retries, sent.rnr_retries), (6, 0));
        assert_eq!(sent.receives as u64, RECEIVES);
        // The peer serves 4.
        assert_eq!(connected.qp.limits().outstanding_reads, 4);
        connected.qp.close();
        assert_flushed(&until_closed(&mut *connected.qp).await);
    });
}

#[test]
fn queues_are_no_larger_than_the_device_has() {
    let fake = Fake::new();
    run(async {
        let provider = open(&fake).unwrap();
        let options = QpOptions::default().with_receives(4096);
        let pool = Pool::new(1 << 20);
        let to = "192.0.2.1:20049".parse().unwrap();
        let connecting = provider.connect(to, &options, b"", receives(&pool));
        let mut connected = connecting.await.unwrap();
        // Of 1024 completions, 256 are of the send queue.
        assert_eq!(connected.qp.limits().receives, 1024 - 257);
        connected.qp.close();
        assert_flushed(&until_closed(&mut *connected.qp).await);
    });
}
