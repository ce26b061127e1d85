//! Failures of connection setup.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{Listener, Provider, QpOptions, SetupError};
use verbs_sim::{EndOptions, Fabric, Outstanding, Setup, SimProvider};

const LIMIT: Duration = Duration::from_secs(10);

struct World {
    fabric: Fabric,
    provider: SimProvider,
    listener: Box<dyn Listener>,
}

/// A listener, and a provider whose connections are set up in this way.
async fn world(setup: Setup) -> World {
    let fabric = Fabric::new(1);
    let start = Instant::now();
    let keeping = fabric.keep_time(move || start.elapsed(), tokio::time::sleep);
    tokio::spawn(async move {
        keeping.await;
    });
    let mut end = EndOptions::default();
    end.faults.setup = setup;
    let provider = fabric.provider(end);
    let on = "127.0.0.1:0".parse().unwrap();
    let listener = provider.listen(on).await.unwrap();
    World {
        fabric,
        provider,
        listener,
    }
}

fn options() -> QpOptions {
    QpOptions::default().with_setup_timeout(LIMIT)
}

#[tokio::test(start_paused = true)]
async fn refused_connection_fails_at_once_and_the_listener_never_hears_of_it() {
    let mut world = world(Setup::Refused).await;
    let to = world.listener.local_addr();
    let options = options();
    let failed = world.provider.connect(to, &options, b"", Vec::new()).await;
    assert!(matches!(failed.err(), Some(SetupError::Io(_))));
    assert_eq!(world.fabric.now(), Duration::ZERO);
    let accepted = tokio::time::timeout(LIMIT, world.listener.accept()).await;
    assert!(accepted.is_err());
}

#[tokio::test(start_paused = true)]
async fn lost_request_ends_in_time_at_both_ends() {
    let mut world = world(Setup::RequestLost).await;
    let to = world.listener.local_addr();
    let options = options();
    let connecting = world.provider.connect(to, &options, b"", Vec::new());
    let accepting = async {
        let mut incoming = world.listener.accept().await.unwrap();
        // Were it dropped, the other would hear of that.
        (incoming.request(LIMIT / 2).await, incoming)
    };
    let (connected, (request, incoming)) = tokio::join!(connecting, accepting);
    drop(incoming);
    assert!(matches!(connected.err(), Some(SetupError::TimedOut(..))));
    assert!(matches!(request, Err(SetupError::TimedOut(..))));
    assert_eq!(world.fabric.handshakes(), 0);
}

#[tokio::test(start_paused = true)]
async fn lost_answer_leaves_the_acceptor_with_a_connection_that_ends() {
    let mut world = world(Setup::AnswerLost).await;
    let to = world.listener.local_addr();
    let options = options();
    let connecting = world.provider.connect(to, &options, b"", Vec::new());
    let accepting = async {
        let mut incoming = world.listener.accept().await.unwrap();
        incoming.request(LIMIT).await.unwrap();
        let mut qp = incoming.accept(&options, b"", Vec::new()).await.unwrap();
        while qp.closed().is_none() {
            std::future::poll_fn(|cx| qp.poll_ready(cx)).await;
            qp.progress();
        }
    };
    let (connected, ()) = tokio::join!(connecting, accepting);
    assert!(matches!(connected.err(), Some(SetupError::TimedOut(..))));
    assert_eq!(world.fabric.now(), LIMIT);
    assert_eq!(world.fabric.handshakes(), 0);
    assert_eq!(world.fabric.connections(), []);
    assert_eq!(world.fabric.outstanding(), Outstanding::default());
}

#[tokio::test(start_paused = true)]
async fn each_connection_has_the_options_that_are_drawn_for_it() {
    let fabric = Fabric::new(1);
    let limits = EndOptions::default().limits;
    let mut reads = 0;
    let draw = move || {
        reads += 1;
        let mut end = EndOptions::default();
        end.limits.outstanding_reads = reads;
        end
    };
    let provider = Arc::new(fabric.drawn_provider(limits.clone(), draw));
    assert_eq!(provider.limits(), limits);
    let peer = fabric.provider(EndOptions::default());
    let on = "127.0.0.1:0".parse().unwrap();
    let mut listener = peer.listen(on).await.unwrap();
    for expected in 1..4 {
        let options = options();
        let connecting = provider.connect(listener.local_addr(), &options, b"", Vec::new());
        let accepting = async {
            let incoming = listener.accept().await.unwrap();
            incoming.accept(&options, b"", Vec::new()).await.unwrap()
        };
        let (connected, _qp) = tokio::join!(connecting, accepting);
        assert_eq!(connected.unwrap().qp.limits().outstanding_reads, expected);
    }
}
