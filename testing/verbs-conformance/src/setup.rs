//! Connection setup and its failures.

use crate::bench::{Bench, both};
use crate::pair::pattern;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use verbs::{CloseReason, Connected, QpOptions, SetupError};

const SOON: Duration = Duration::from_secs(10);

/// Private data of any length that is possible arrives in the request and in the reply.
pub async fn private_data_arrives_both_ways(bench: &Bench<'_>) {
    let request = bench.connector().limits().private_data.request;
    let accept = bench.acceptor().limits().private_data.accept;
    let lengths = [(0, 0), (8, 8), (8, 0), (0, 8), (1, 3), (request, accept)];
    for (of_request, of_accept) in lengths {
        let (asked, answered) = (pattern(1, of_request), pattern(2, of_accept));
        let (connected, accepted) = bench
            .meet(&asked, async |mut incoming| {
                let asked = incoming.request(SOON).await?;
                let options = QpOptions::default();
                let qp = incoming.accept(&options, &answered, Vec::new()).await?;
                Ok::<_, SetupError>((asked, qp))
            })
            .await;
        let Connected { qp, private_data } = connected.unwrap();
        let (received, far) = accepted.unwrap();
        same(
            &received,
            &asked,
            bench.acceptor().limits().private_data_exact,
        );
        same(
            &private_data,
            &answered,
            bench.connector().limits().private_data_exact,
        );
        let mut pair = bench.pair_of(qp, far);
        pair.works().await;
        pair.finish().await;
    }
}

fn same(received: &[u8], sent: &[u8], exact: bool) {
    assert!(received.starts_with(sent));
    let rest = &received[sent.len()..];
    assert!(rest.iter().all(|byte| *byte == 0));
    assert!(!exact || rest.is_empty());
}

/// Private data that does not fit is an error of the end that wants to send it, on either side.
pub async fn private_data_beyond_the_limit_is_refused(bench: &Bench<'_>) {
    let request = bench.connector().limits().private_data.request;
    let accept = bench.acceptor().limits().private_data.accept;
    let mut listener = bench.listen().await;
    let addr = listener.local_addr();
    let options = QpOptions::default();
    let data = vec![1; request + 1];
    let connecting = bench.connector().connect(addr, &options, &data, Vec::new());
    let connected = bench.soon("an error", connecting).await;
    assert!(matches!(connected, Err(SetupError::Io(_))));

    let connecting = bench.connector().connect(addr, &options, &[], Vec::new());
    let accepting = async move {
        loop {
            let mut incoming = listener.accept().await?;
            // The first attempt may have come as far as to be seen.
            if incoming.request(SOON).await.is_ok() {
                let data = vec![1; accept + 1];
                let options = QpOptions::default();
                let accepted = incoming.accept(&options, &data, Vec::new()).await;
                // A connector may try again in another way: it shall not wait for an answer.
                drop(listener);
                return accepted;
            }
        }
    };
    let (connected, accepted) = bench.soon("an error", both(connecting, accepting)).await;
    assert!(matches!(accepted, Err(SetupError::Io(_))));
    assert!(connected.is_err());
}

/// A rejection says so, with private data of any length that is possible.
pub async fn rejection_carries_private_data(bench: &Bench<'_>) {
    let most = bench.acceptor().limits().private_data.reject;
    for length in [0, 8, most] {
        let reason = pattern(1, length);
        let (connected, ()) = bench
            .meet(b"please", async |mut incoming| {
                assert_eq!(incoming.request(SOON).await.unwrap()[..6], *b"please");
                incoming.reject(&reason).await;
            })
            .await;
        match connected {
            Err(SetupError::Rejected(received)) => {
                let exact = bench.connector().limits().private_data_exact;
                same(&received, &reason, exact);
            }
            Err(other) => panic!("a rejection came as: {other}"),
            Ok(_) => panic!("a rejection came as a connection"),
        }
    }
}

/// An incoming connection that is dropped is over for the one who connects, before and after its
/// request was read.
pub async fn dropped_incoming_connection_is_refused(bench: &Bench<'_>) {
    for read_request in [true, false] {
        let (connected, ()) = bench
            .meet(b"please", async |mut incoming| {
                if read_request {
                    incoming.request(SOON).await.unwrap();
                }
                drop(incoming);
            })
            .await;
        assert!(connected.is_err());
    }
}

/// A connection to a port without a listener fails at once.
pub async fn nobody_listening_is_an_error(bench: &Bench<'_>) {
    let listener = bench.listen().await;
    let addr = listener.local_addr();
    drop(listener);
    let options = QpOptions::default();
    let connecting = bench.connector().connect(addr, &options, &[], Vec::new());
    match bench.soon("an error", connecting).await {
        Err(SetupError::Io(error)) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        Err(other) => panic!("expected a refusal by the system, got: {other}"),
        Ok(_) => panic!("connected to nobody"),
    }
}

/// A cancelled `connect` leaves no connection, or one that ends. Whoever cancels it does not wait for the peer.
pub async fn cancelled_connect_leaves_no_connection_or_one_that_ends(bench: &Bench<'_>) {
    let mut listener = bench.listen().await;
    let addr = listener.local_addr();
    let options = QpOptions::default();
    let (incoming, given_up) = {
        // Dropped at the end of this block, before anybody has answered.
        let connecting = bench
            .connector()
            .connect(addr, &options, b"please", Vec::new());
        let mut connecting = pin!(connecting);
        let accepting = async {
            let mut incoming = listener.accept().await.unwrap();
            incoming.request(SOON).await.unwrap();
            incoming
        };
        let mut accepting = pin!(accepting);
        let meeting = std::future::poll_fn(|cx| {
            assert!(connecting.as_mut().poll(cx).is_pending());
            accepting.as_mut().poll(cx)
        });
        let incoming = bench.soon("the request", meeting).await;
        (incoming, Instant::now())
    };
    assert!(given_up.elapsed() < SOON / 2, "it waited for the peer");
    let accepting = incoming.accept(&options, &[], Vec::new());
    let Ok(mut qp) = bench.soon("the accepting", accepting).await else {
        return;
    };
    let noticed = std::future::poll_fn(|cx| {
        while qp.progress() {}
        if qp.closed().is_some() {
            return Poll::Ready(());
        }
        if qp.poll_ready(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    });
    bench.soon("the loss of the peer", noticed).await;
    assert_ne!(qp.closed(), Some(&CloseReason::Local));
}

/// Two cannot listen in one place.
pub async fn address_in_use_is_an_error(bench: &Bench<'_>) {
    let listener = bench.listen().await;
    let again = bench.acceptor().listen(listener.local_addr());
    match bench.soon("an error", again).await {
        Err(SetupError::Io(error)) => {
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
        Err(other) => panic!("expected an error of the system, got: {other}"),
        Ok(_) => panic!("listening twice in one place"),
    }
}

/// Connections over one listener are independent, and each knows its other end.
pub async fn one_listener_makes_many_connections(bench: &Bench<'_>) {
    let mut listener = bench.listen().await;
    let addr = listener.local_addr();
    let options = QpOptions::default();
    let mut pairs = Vec::new();
    for _ in 0..5 {
        pairs.push(bench.pair_over(&mut *listener, &options, &options).await);
    }
    let mut connectors = std::collections::BTreeSet::new();
    for pair in &mut pairs {
        assert_eq!(pair.near.qp.peer_addr(), addr);
        connectors.insert(pair.far.qp.peer_addr());
        assert!(!pair.near.qp.describe().is_empty());
        pair.works().await;
    }
    assert_eq!(connectors.len(), 5);
    let last = pairs.pop().unwrap();
    last.finish().await;
    for mut pair in pairs {
        pair.works().await;
        pair.finish().await;
    }
}
