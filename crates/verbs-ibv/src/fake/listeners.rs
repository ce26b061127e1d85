//! Listeners: requests, and what becomes of them.

use super::scene::{RECEIVES, assert_flushed, message, open, receives, run, text, until_closed};
use super::{Answer, Fake};
use crate::sys::cm::{
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_REJECTED,
};
use buffer::Pool;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{
    BoxFuture, Incoming, Invalidation, Listener, Provider as _, QpOptions, QueuePair, SetupError,
};

fn listen(fake: &Fake) -> Box<dyn Listener> {
    listen_on(fake, "192.0.2.2:20049")
}

fn listen_on(fake: &Fake, on: &str) -> Box<dyn Listener> {
    let provider = open(fake).unwrap();
    let on = on.parse().unwrap();
    let listening = async move { provider.listen(on).await };
    let mut listening: BoxFuture<'_, _> = Box::pin(listening);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match listening.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(listener) => listener.unwrap(),
        std::task::Poll::Pending => panic!("it takes no time"),
    }
}

fn peer(number: u8) -> Option<SocketAddr> {
    Some(SocketAddr::from(([192, 0, 2, number], 4711)))
}

fn request(private_data: &[u8]) -> Answer {
    Answer::with(RDMA_CM_EVENT_CONNECT_REQUEST, 0, private_data)
}

async fn accept(incoming: Box<dyn Incoming>) -> Result<Box<dyn QueuePair>, SetupError> {
    let pool = Pool::new(1 << 20);
    incoming
        .accept(&QpOptions::default(), b"welcome", receives(&pool))
        .await
}

#[test]
fn request_is_accepted_with_receives_posted_before() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        assert_eq!(listener.local_addr(), "192.0.2.2:20049".parse().unwrap());
        // It may have outstanding what this end serves at most, and serves less than this end would have.
        assert!(fake.request(peer(7), request(b"hello").with_depths(3, 200)));
        let mut incoming = listener.accept().await.unwrap();
        assert_eq!(Some(incoming.peer_addr()), peer(7));
        let private_data = incoming.request(Duration::from_secs(1)).await.unwrap();
        assert_eq!(private_data, b"hello");
        let limits = incoming.limits().expect("those of the device");
        assert_eq!(limits.remote_invalidation, Invalidation::Region);
        assert_eq!((limits.inbound_reads, limits.outstanding_reads), (16, 16));
        let mut qp = accept(incoming).await.unwrap();
        let sent = &fake.sent()[0];
        assert_eq!(sent.private_data, b"welcome");
        // RFC 8166 §3.3.2: the peer may send as soon as it hears of the acceptance.
        assert_eq!(sent.receives as u64, RECEIVES);
        assert_eq!(sent.rnr_retries, 0);
        assert_eq!((sent.inbound_reads, sent.outstanding_reads), (16, 3));
        assert_eq!(qp.limits().outstanding_reads, 3);
        fake.message(b"first");
        assert_eq!(message(&mut *qp).await.1, b"first");
        qp.close();
        until_closed(&mut *qp).await;
    });
}

/// The owner has to find out which protocol it is.
#[test]
fn private_data_of_another_protocol_arrives_as_it_is() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        let foreign: Vec<u8> = (0..56).collect();
        for private_data in [&foreign[..], b""] {
            fake.request(peer(7), request(private_data));
            let mut incoming = listener.accept().await.unwrap();
            let found = incoming.request(Duration::from_secs(1)).await.unwrap();
            assert_eq!(found, private_data);
            incoming.reject(b"not ours").await;
        }
        assert_eq!(fake.rejections(), [b"not ours", b"not ours"]);
    });
}

#[test]
fn request_that_nobody_wants_is_rejected() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        fake.request(peer(7), request(b""));
        drop(listener.accept().await.unwrap());
        fake.request(peer(8), request(b""));
        let incoming = listener.accept().await.unwrap();
        // More than there is room for is cut off.
        incoming.reject(&[9; 200]).await;
        assert_eq!(fake.rejections(), [vec![], vec![9; 148]]);
    });
}

#[test]
fn peer_without_an_address_is_rejected_and_the_next_one_served() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        fake.request(None, request(b""));
        fake.request(peer(7), request(b""));
        let incoming = listener.accept().await.unwrap();
        assert_eq!(Some(incoming.peer_addr()), peer(7));
        assert_eq!(fake.rejections().len(), 1);
    });
}

#[test]
fn many_requests_wait_up_to_the_backlog() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        let mut kept = 0;
        while fake.request(peer(7), request(b"")) {
            kept += 1;
        }
        assert_eq!(kept, 128);
        let mut ends = Vec::new();
        for number in 0..kept {
            let incoming = listener.accept().await.unwrap();
            match number % 8 {
                0 => ends.push(accept(incoming).await.unwrap()),
                _ => drop(incoming),
            }
        }
        assert_eq!((ends.len(), fake.rejections().len()), (16, 112));
        assert!(fake.request(peer(7), request(b"")), "there is room again");
        for mut qp in ends {
            qp.close();
            assert_flushed(&until_closed(&mut *qp).await);
        }
    });
}

/// Each of these leaves nothing behind.
#[test]
fn peer_that_gives_up_during_setup_is_an_error() {
    let answers = [
        RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_CONNECT_ERROR,
    ];
    for answer in answers {
        let fake = Fake::new();
        fake.answer_acceptance(Answer::new(answer));
        run(async {
            let mut listener = listen(&fake);
            fake.request(peer(7), request(b""));
            let error = accept(listener.accept().await.unwrap()).await.err();
            assert!(matches!(error, Some(SetupError::Io(_))), "{error:?}");
        });
    }
}

#[test]
fn peer_that_does_not_confirm_is_given_up_in_time() {
    let fake = Fake::new();
    fake.answer_acceptance(Answer::silence());
    run(async {
        let mut listener = listen(&fake);
        fake.request(peer(7), request(b""));
        let incoming = listener.accept().await.unwrap();
        let begun = Instant::now();
        let error = accept(incoming).await.err().expect("no connection");
        assert!(matches!(error, SetupError::TimedOut(..)), "{error:?}");
        let limit = QpOptions::default().setup_timeout;
        assert!(begun.elapsed() <= limit + Duration::from_millis(10));
    });
}

#[test]
fn failure_of_any_call_while_a_connection_is_accepted_leaves_nothing_behind() {
    for number in 1.. {
        let fake = Fake::new();
        let failed = run(async {
            let mut listener = listen(&fake);
            fake.request(peer(7), request(b""));
            fake.fail_next(number, libc::EPERM);
            let accepted = async {
                let mut incoming = listener.accept().await?;
                incoming.request(Duration::from_secs(1)).await?;
                accept(incoming).await
            };
            let failed = match accepted.await {
                Ok(mut qp) => {
                    qp.close();
                    until_closed(&mut *qp).await;
                    None
                }
                Err(error) => Some(text(&error)),
            };
            match (failed, fake.failed().first()) {
                (None, None) => return None,
                (None, Some(function)) => assert_eq!(*function, "ibv_post_recv"),
                (Some(error), function) => {
                    assert!(function.is_some(), "{error}");
                    assert!(error.contains("not permitted"), "{function:?}: {error}");
                }
            }
            // It goes on.
            fake.heal();
            fake.request(peer(8), request(b""));
            drop(listener.accept().await.unwrap());
            Some(())
        });
        if failed.is_none() {
            assert!(number > 10, "only {number} calls");
            return;
        }
    }
}

#[test]
fn request_for_which_there_is_no_descriptor_is_an_error_with_a_remedy() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        fake.request(peer(7), request(b""));
        fake.fail("rdma_create_event_channel", libc::EMFILE);
        let error = listener.accept().await.err().expect("no request");
        assert!(text(&error).contains("ulimit -n"), "{}", text(&error));
        fake.heal();
        fake.request(peer(8), request(b""));
        let incoming = listener.accept().await.unwrap();
        assert_eq!(Some(incoming.peer_addr()), peer(8));
    });
}

#[test]
fn listener_whose_device_goes_lets_go_of_it_and_listens_again_when_it_is_back() {
    let fake = Fake::new();
    fake.give_device_a_file();
    run(async {
        let mut listener = listen(&fake);
        fake.unplug();
        let back = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            fake.until_device_is_let_go();
            assert_eq!(fake.objects("identifier"), 0);
            fake.plug_in();
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(fake.request(peer(7), request(b"")));
        };
        let (incoming, ()) = tokio::join!(listener.accept(), back);
        assert_eq!(Some(incoming.unwrap().peer_addr()), peer(7));
    });
}

/// librdmacm has the device open since the first request.
#[test]
fn listener_on_all_devices_lets_go_of_one_that_is_removed_when_nobody_is_connected() {
    let fake = Fake::new();
    fake.give_device_a_file();
    run(async {
        let mut listener = listen_on(&fake, "0.0.0.0:20049");
        for number in [7, 8] {
            fake.request(peer(number), request(b""));
            let mut qp = accept(listener.accept().await.unwrap()).await.unwrap();
            qp.close();
            until_closed(&mut *qp).await;
        }
        assert_eq!(fake.objects("identifier"), 1, "the listener");
        let removed = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert!(!fake.device_is_let_go());
            fake.unplug();
            fake.until_device_is_let_go();
            fake.plug_in();
            assert!(fake.request(peer(9), request(b"")), "it still listens");
        };
        let (incoming, ()) = tokio::join!(listener.accept(), removed);
        assert_eq!(Some(incoming.unwrap().peer_addr()), peer(9));
    });
}

#[test]
fn address_that_cannot_be_listened_on_is_named_with_a_remedy() {
    let cases = [
        ("rdma_bind_addr", libc::EADDRINUSE, "another server"),
        ("rdma_bind_addr", libc::EADDRNOTAVAIL, "rdma link"),
        ("rdma_bind_addr", libc::ENODEV, "rdma link"),
        ("rdma_listen", libc::EACCES, "privilege"),
        ("rdma_create_id", libc::EMFILE, "ulimit -n"),
    ];
    for (function, error, remedy) in cases {
        let fake = Fake::new();
        run(async {
            let provider = open(&fake).unwrap();
            fake.fail(function, error);
            let on = "192.0.2.2:20049".parse().unwrap();
            let error = provider.listen(on).await.err().expect("no listener");
            let text = text(&error);
            assert!(text.contains("192.0.2.2:20049"), "{text}");
            assert!(text.contains(remedy), "{text}");
        });
    }
}

/// The network interface, which is a bond, has changed to another device: no requests come over the first any more.
#[test]
fn listener_whose_address_moves_to_another_device_listens_there() {
    let fake = Fake::new();
    run(async {
        let mut listener = listen(&fake);
        fake.move_listener();
        let asking = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(fake.objects("identifier"), 1);
            assert!(fake.request(peer(7), request(b"")));
        };
        let (incoming, ()) = tokio::join!(listener.accept(), asking);
        assert_eq!(Some(incoming.unwrap().peer_addr()), peer(7));
    });
}
