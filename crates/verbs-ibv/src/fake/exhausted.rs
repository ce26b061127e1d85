//! Devices, and a system, that have no more of something.

use super::Fake;
use super::scene::{connect, connect_error, connected, end, open, run, send, text, until_closed};
use buffer::Pool;
use verbs::{CloseReason, Loss, Memory, Provider as _, RegisterError};

/// The functions that make something for a connection.
const MAKERS: [&str; 8] = [
    "rdma_create_event_channel",
    "rdma_create_id",
    "ibv_alloc_pd",
    "ibv_alloc_mw",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "rdma_create_qp",
    "ibv_reg_mr",
];

#[test]
fn whatever_there_is_no_more_of_is_named_with_a_remedy() {
    let errors = [
        libc::ENOMEM,
        libc::EPERM,
        libc::EAGAIN,
        libc::ENOSPC,
        libc::EMFILE,
    ];
    for function in MAKERS {
        for error in errors {
            let fake = Fake::new();
            let text = run(async {
                let provider = open(&fake).unwrap();
                fake.fail(function, error);
                text(&connect(&provider).await.err().expect("no connection"))
            });
            let cause = std::io::Error::from_raw_os_error(error).to_string();
            assert!(text.contains(&cause), "{function}: {text}");
            assert!(text.contains("; "), "{function}: no remedy: {text}");
            assert!(!text.contains('\n'), "{function}: {text}");
        }
    }
}

#[test]
fn queue_that_is_too_large_asks_for_fewer_credits() {
    for function in ["ibv_create_cq", "rdma_create_qp"] {
        let fake = Fake::new();
        fake.fail(function, libc::EINVAL);
        let text = text(&connect_error(&fake));
        assert!(text.contains("ask for fewer credits"), "{text}");
    }
}

#[test]
fn queue_pair_takes_as_much_inline_as_the_device_has_room_for() {
    for (most, taken) in [(1024, 256), (100, 64), (63, 0)] {
        let fake = Fake::new();
        fake.take_inline(most);
        run(async {
            let pool = Pool::new(1 << 20);
            let mut qp = connected(&fake, &pool).await;
            for (number, length) in [(10, taken), (11, taken + 1)] {
                qp.post(send(&pool, number, length)).unwrap();
            }
            while qp.progress() {}
            qp.close();
            until_closed(&mut *qp).await;
        });
    }
}

#[test]
fn queue_pair_is_tried_again_only_where_its_inline_size_can_be_the_reason() {
    let cases = [
        (libc::EINVAL, 3),
        (libc::ENOMEM, 3),
        (libc::EPERM, 1),
        (libc::EAGAIN, 1),
        (libc::ENODEV, 1),
    ];
    for (error, tries) in cases {
        let fake = Fake::new();
        fake.fail("rdma_create_qp", error);
        connect_error(&fake);
        assert_eq!(fake.failed(), vec!["rdma_create_qp"; tries]);
    }
}

#[test]
fn device_whose_peers_may_invalidate_is_not_used_without_windows() {
    let fake = Fake::new();
    run(async {
        let provider = open(&fake).unwrap();
        let offered = provider.limits().remote_invalidation;
        assert_eq!(offered, verbs::Invalidation::Region);
        fake.fail("ibv_alloc_mw", libc::ENOMEM);
        let error = connect(&provider).await.err().expect("no connection");
        assert!(text(&error).contains("memory window"), "{}", text(&error));
    });
}

/// The connection ends, and says why: its owner could not go on with its call.
#[test]
fn memory_that_cannot_be_exposed_ends_the_connection_with_the_reason() {
    for (function, object) in [
        ("ibv_alloc_mw", "memory window"),
        ("ibv_reg_mr", "memory region"),
    ] {
        let fake = Fake::new();
        run(async {
            let pool = Pool::new(1 << 20);
            let mut qp = connected(&fake, &pool).await;
            fake.fail(function, libc::ENOMEM);
            match qp.register(Memory::Sink(pool.take(8192))) {
                Err(RegisterError::Closed(memory)) => assert_eq!(memory.len(), 8192),
                other => panic!("{other:?}"),
            }
            let (reason, _) = end(&mut *qp).await;
            assert!(
                matches!(&reason, CloseReason::Lost(why) if why.kind() == Loss::System),
                "{reason:?}"
            );
            let text = text(&reason);
            assert!(text.contains(object) && text.contains("; "), "{text}");
        });
    }
}

#[test]
fn memory_that_cannot_be_sent_from_ends_the_connection_with_the_reason() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        fake.fail("ibv_reg_mr", libc::ENOMEM);
        qp.post(send(&pool, 10, 100_000)).unwrap();
        let (reason, completions) = end(&mut *qp).await;
        assert_eq!(completions.len(), 1);
        assert!(text(&reason).contains("ulimit -l"), "{}", text(&reason));
        drop(completions);
        assert_eq!(pool.stats().out, 0);
    });
}
