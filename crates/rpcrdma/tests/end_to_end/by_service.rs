//! A service that closes connections, and what it hears of their ends.

use crate::stage::{anywhere, providers, sim};
use crate::test_server::TestServer;
use crate::{run_in_each_version, run_in_each_version_in_virtual_time};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Answer, Caller, ConnectionId, Connections, Reply, ReplyBound, Service, Transport};
use rpcrdma::{ClientConfig, CloseReason, ServerConfig, Spin};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use verbs_sim::{Side, Way};

/// Closes the connection of each call that it answers, before its reply is there.
#[derive(Default)]
struct Closing {
    connections: Connections,
    /// Says when; otherwise at once.
    when: Option<Arc<Notify>>,
    ended: Mutex<Vec<ConnectionId>>,
    called: Mutex<Vec<ConnectionId>>,
    changed: Arc<Notify>,
}

impl Service for Closing {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().expect("an XID");
        let mut called = self.called.lock().expect("no panic holds it");
        called.push(caller.connection);
        let (connections, connection) = (self.connections.clone(), caller.connection);
        let (when, changed) = (self.when.clone(), Arc::clone(&self.changed));
        changed.notify_one();
        Answer::Later(Box::pin(async move {
            if let Some(when) = when {
                when.notified().await;
            }
            assert!(connections.close(connection));
            changed.notify_one();
            let mut w = Writer::default();
            w.words([xid, 1]);
            w.opaque(&[7; 100_000]);
            Reply::Message(w.finish())
        }))
    }

    fn connection_ended(&self, connection: ConnectionId) {
        let mut ended = self.ended.lock().expect("no panic holds it");
        ended.push(connection);
        self.changed.notify_one();
    }
}

#[test]
fn connection_that_the_service_closes_ends_behind_its_replies_and_the_service_hears_of_it() {
    run_in_each_version(async || {
        let service = Arc::<Closing>::default();
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let config = ServerConfig::default()
            .with_workers(0_usize)
            .with_spin(Spin::Park)
            .with_connections(service.connections.clone());
        let (_fabric, provider) = sim();
        let server = TestServer::bind(Arc::clone(&provider), anywhere(), shared, config).await;
        let config = ClientConfig::default()
            .with_reconnect(false)
            .with_spin(Spin::Park);
        let client = server.client(provider, config).await.expect("it connects");
        let mut w = Writer::default();
        w.words([client.next_xid(), 0]);
        let reply = client.call(w.finish(), ReplyBound::new(100_020)).await;
        assert_eq!(reply.expect("it is sent").stream_len(), 12 + 100_000);
        let why = client.ended().await;
        let closed = std::error::Error::source(&why).expect("a reason");
        assert!(closed.downcast_ref::<CloseReason>().is_some(), "{closed:?}");
        while service.ended.lock().expect("no panic holds it").is_empty() {
            service.changed.notified().await;
        }
        let called = service.called.lock().expect("no panic holds it").clone();
        assert_eq!(*service.ended.lock().expect("no panic holds it"), called);
        assert!(service.connections.is_empty());
        server.shutdown().await;
    });
}

#[test]
fn service_of_a_client_hears_of_the_end_of_its_connection() {
    run_in_each_version_in_virtual_time(async || {
        let service = Arc::<Closing>::default();
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let config = ServerConfig::default().with_workers(0_usize);
        let (_fabric, provider) = sim();
        let server = TestServer::bind(Arc::clone(&provider), anywhere(), shared, config).await;
        let callbacks = Arc::<Closing>::default();
        let config = ClientConfig::default()
            .with_reconnect(false)
            .with_callbacks(Arc::clone(&callbacks) as Arc<dyn Service>);
        let client = server.client(provider, config).await.expect("it connects");
        server.shutdown().await;
        let heard = tokio::time::timeout(Duration::from_secs(60), callbacks.changed.notified());
        heard.await.expect("it hears of it");
        assert_eq!(callbacks.ended.lock().expect("no panic holds it").len(), 1);
        drop(client);
    });
}

#[test]
fn connection_that_the_service_ends_at_once_does_not_wait_for_its_client() {
    run_in_each_version_in_virtual_time(async || {
        let when = Arc::<Notify>::default();
        let service = Arc::new(Closing {
            when: Some(Arc::clone(&when)),
            ..Closing::default()
        });
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let drain = Duration::from_secs(3600);
        let config = ServerConfig::default()
            .with_workers(0_usize)
            .with_spin(Spin::Park)
            .with_drain_timeout(drain)
            .with_connections(service.connections.clone());
        let (fabric, provider) = sim();
        let server = TestServer::bind(Arc::clone(&provider), anywhere(), shared, config).await;
        let config = ClientConfig::default()
            .with_reconnect(false)
            .with_spin(Spin::Park);
        let client = server.client(provider, config).await.expect("it connects");
        let mut w = Writer::default();
        w.words([client.next_xid(), 0]);
        let call = w.finish();
        let calling =
            tokio::spawn(async move { client.call(call, ReplyBound::new(100_020)).await });
        service.changed.notified().await;
        // From now on nothing leaves the server, as to a client that takes nothing.
        for connection in fabric.connections() {
            for side in [Side::Left, Side::Right] {
                fabric.stall(connection, side, Way::Out, Duration::MAX);
            }
        }
        when.notify_one();
        service.changed.notified().await;
        assert!(service.connections.is_empty(), "it closes behind its reply");
        let called = service.called.lock().expect("no panic holds it")[0];
        let began = Instant::now();
        assert!(service.connections.abort(called));
        while service.ended.lock().expect("no panic holds it").is_empty() {
            service.changed.notified().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        calling.abort();
        server.shutdown().await;
    });
}

/// Answers calls at once or never, and notes which connections are closed in order.
#[derive(Default)]
struct Noting {
    connections: Connections,
    answers: bool,
    called: Mutex<Vec<ConnectionId>>,
    in_order: Mutex<Vec<ConnectionId>>,
    changed: Notify,
}

impl Service for Noting {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().expect("an XID");
        let mut called = self.called.lock().expect("no panic holds it");
        called.push(caller.connection);
        self.changed.notify_one();
        if !self.answers {
            return Answer::Later(Box::pin(std::future::pending()));
        }
        let mut w = Writer::default();
        w.words([xid, 1]);
        Answer::message(w.finish())
    }

    fn closed_in_order(&self, caller: &Caller) {
        let mut in_order = self.in_order.lock().expect("no panic holds it");
        in_order.push(caller.connection);
    }

    fn connection_ended(&self, _: ConnectionId) {
        self.changed.notify_one();
    }
}

impl Noting {
    /// Whether the client of the last call is known to have received its replies.
    async fn is_delivered(&self) -> bool {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let last = self.called.lock().expect("no panic holds it").pop();
        self.connections
            .ask_delivery(last.expect("a call came"), |is| {
                let _ = answer.send(is);
            });
        answered.await.expect("each query has an answer")
    }
}

#[test]
fn service_learns_that_a_client_has_its_replies_and_has_closed_in_order() {
    run_in_each_version(async || {
        for (provider, answers) in providers()
            .into_iter()
            .flat_map(|it| [(it.clone(), true), (it, false)])
        {
            let service = Arc::new(Noting {
                answers,
                ..Noting::default()
            });
            let shared = Arc::clone(&service) as Arc<dyn Service>;
            let config = ServerConfig::default()
                .with_workers(0_usize)
                .with_connections(service.connections.clone());
            let server = TestServer::bind(Arc::clone(&provider), anywhere(), shared, config).await;
            let client = server.client(provider, ClientConfig::default()).await;
            let client = client.expect("it connects");
            let mut w = Writer::default();
            w.words([client.next_xid(), 0]);
            let call = client.call(w.finish(), ReplyBound::new(8));
            if answers {
                call.await.expect("it is answered");
            } else {
                tokio::select! {
                    _ = call => panic!("it has no answer"),
                    () = service.changed.notified() => {}
                }
            }
            assert_eq!(service.is_delivered().await, answers);
            client.close().await;
            while !service.connections.is_empty() {
                service.changed.notified().await;
                tokio::task::yield_now().await;
            }
            let in_order = service.in_order.lock().expect("no panic holds it").len();
            assert_eq!(in_order, usize::from(answers));
            server.shutdown().await;
        }
    });
}

/// Answers by futures. Notes the order in which calls come and futures are polled first.
#[derive(Default)]
struct Ordered(Arc<Mutex<Vec<&'static str>>>);

impl Service for Ordered {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().expect("an XID");
        let order = Arc::clone(&self.0);
        order.lock().expect("no panic holds it").push("call");
        Answer::Later(Box::pin(async move {
            order.lock().expect("no panic holds it").push("future");
            tokio::task::yield_now().await;
            let mut w = Writer::default();
            w.words([xid, 1]);
            Reply::Message(w.finish())
        }))
    }
}

#[test]
fn future_of_a_call_begins_before_the_next_call_of_the_same_turn() {
    run_in_each_version(async || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let service = Arc::new(Ordered(Arc::clone(&order)));
        let config = ServerConfig::default()
            .with_workers(0_usize)
            .with_spin(Spin::Park);
        let (_fabric, provider) = sim();
        let server = TestServer::bind(Arc::clone(&provider), anywhere(), service, config).await;
        let config = ClientConfig::default().with_spin(Spin::Park);
        let client = server.client(provider, config).await.expect("it connects");
        let call = || {
            let mut w = Writer::default();
            w.words([client.next_xid(), 0]);
            client.call(w.finish(), ReplyBound::new(8))
        };
        // Both are sent, and arrive, at once.
        let (one, other) = tokio::join!(call(), call());
        one.and(other).expect("both are answered");
        let order = order.lock().expect("no panic holds it").clone();
        assert_eq!(order, ["call", "future", "call", "future"]);
    });
}
