//! Beginnings and ends of relays.

use crate::heard::Heard;
use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, Upstream};
use oncrpc::xdr::Writer;
use oncrpc::{AuthSys, Credential, Procedure, Programs, Service, TransportError, write_call};
use rpcrdma::{Client, Versions};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

const RDMA: Over = Over::Rdma(Versions::One);

fn nobody() -> Arc<dyn Service> {
    Arc::new(Programs::new())
}

async fn stage((down, up): (Over, Over)) -> (Upper, Gateway, Lower) {
    let upper = Upper::new(up).await;
    let gateway = upper.behind(down).await;
    let client = Lower::new(down, gateway.local_addr(), nobody()).await;
    (upper, gateway, client)
}

/// Makes a call that the upstream has and does not answer.
async fn held(upper: &Upper, client: Lower, xid: u32) -> (Arc<Lower>, Held) {
    // The first reply grants credits for more than one call.
    let reply = client.call(call_of(xid, ECHO, b""), 100).await;
    reply.expect("it is answered");
    let client = Arc::new(client);
    let calls = upper.service.calls().len() + 1;
    let calling = Arc::clone(&client);
    let call = tokio::spawn(async move { calling.call(call_of(xid, HELD, b""), 100).await });
    upper.service.until_called(calls).await;
    (client, call)
}

type Held = tokio::task::JoinHandle<Result<oncrpc::xdr::Payload, oncrpc::TransportError>>;

#[tokio::test]
async fn client_that_never_calls_has_no_upstream_connection() {
    for way in WAYS {
        let (upper, gateway, client) = stage(way).await;
        let stats = gateway.stats();
        assert_eq!((stats.relays, stats.upstream_connections), (0, 0));
        let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
        assert_eq!(results(&reply.expect("it is answered"), 1), b"x");
        let stats = gateway.stats();
        assert_eq!((stats.relays, stats.upstream_connections), (1, 1));
        client.close().await;
        upper.service.until_ended(1).await;
        assert_eq!(gateway.shutdown().await.relays, 0);
    }
}

#[tokio::test]
async fn each_client_connection_has_its_own_upstream_connection() {
    for way in WAYS {
        let (upper, gateway, first) = stage(way).await;
        let second = Lower::new(way.0, gateway.local_addr(), nobody()).await;
        // Both use the same XIDs.
        for client in [&first, &second, &first] {
            let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
            assert_eq!(results(&reply.expect("it is answered"), 1), b"x");
        }
        let callers = upper.service.callers();
        let connections: Vec<_> = callers.iter().map(|caller| caller.connection).collect();
        assert_eq!(connections[0], connections[2]);
        assert_ne!(connections[0], connections[1]);
        first.close().await;
        upper.service.until_ended(1).await;
        let reply = second.call(call_of(2, ECHO, b"on"), 100).await;
        assert_eq!(results(&reply.expect("the other lives on"), 2), b"on");
    }
}

#[tokio::test]
async fn end_of_a_client_ends_its_upstream_connection_with_calls_in_flight() {
    for way in WAYS {
        let (upper, _gateway, client) = stage(way).await;
        let (client, call) = held(&upper, client, 1).await;
        call.abort();
        let _ = call.await;
        let client = Arc::into_inner(client).expect("nobody else has it");
        client.close().await;
        upper.service.until_ended(1).await;
    }
}

#[tokio::test]
async fn clients_that_may_no_longer_connect_are_closed_and_others_stay() {
    for way in WAYS {
        let (_upper, gateway, first) = stage(way).await;
        let second = Lower::new(way.0, gateway.local_addr(), nobody()).await;
        for client in [&first, &second] {
            let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
            reply.expect("it is answered");
        }
        assert_eq!(gateway.close_clients(|addr| !addr.ip().is_loopback()), 0);
        assert!(gateway.monitor().oldest_call().is_zero());
        assert_eq!(gateway.close_clients(|addr| addr.ip().is_loopback()), 2);
        first.ended().await;
        second.ended().await;
    }
}

#[tokio::test]
async fn end_of_the_upstream_ends_its_client_behind_replies_passed_on() {
    for way in WAYS {
        let (upper, gateway, client) = stage(way).await;
        let (client, first) = held(&upper, client, 1).await;
        let calling = Arc::clone(&client);
        let second = tokio::spawn(async move { calling.call(call_of(2, HELD, b""), 100).await });
        upper.service.until_called(3).await;
        upper.service.release(1);
        until(|| gateway.stats().replies == 2).await;
        upper.end();
        let first = within_limit(first).await.expect("no panic");
        let reply = first.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(results(&reply, 1), b"released");
        let second = within_limit(second).await.expect("no panic");
        assert!(second.is_err(), "nobody answers it");
        client.ended().await;
        assert_eq!(gateway.stats().upstream_lost, 1);
    }
}

#[tokio::test]
async fn reply_right_before_the_end_of_the_upstream_reaches_the_client() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for down in [RDMA, Over::Tcp] {
        let listener = tokio::net::TcpListener::bind(anywhere()).await;
        let listener = listener.expect("it listens");
        let upstream = Upstream::tcp(listener.local_addr().expect("it listens"));
        let gateway = match down {
            Over::Tcp => from_tcp(upstream).await,
            Over::Rdma(_) => from_rdma(upstream).await,
        };
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut call = [0; 4 + 40 + 4];
            stream.read_exact(&mut call).await.expect("a call");
            let mut record = buffer::Buffer::default();
            oncrpc_tcp::record::encode(&success(1, &vec![9; 3 << 20]), &mut record);
            stream.write_all(&record).await.expect("it is sent");
        });
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        let reply = within_limit(client.call(call_of(1, ECHO, b""), 3 << 20)).await;
        let results = results(&reply.expect("it has come"), 1);
        assert!(results == vec![9; 3 << 20], "{} bytes", results.len());
        client.ended().await;
        server.await.expect("no panic");
    }
}

#[tokio::test]
async fn server_that_closes_before_its_first_reply_causes_a_warning() {
    let closes_at_once = tokio::net::TcpListener::bind(anywhere()).await;
    let closes_at_once = closes_at_once.expect("it listens");
    let to = closes_at_once.local_addr().expect("it listens");
    let answers_first = Upper::new(Over::Tcp).await;
    let closing = tokio::spawn(async move {
        loop {
            drop(closes_at_once.accept().await);
        }
    });
    let heard = Heard::listen();
    let bind = |upstream| async {
        let listener = TcpListener::bind(anywhere()).expect("it listens");
        // All on this thread, which is the one that is heard.
        let config = GatewayConfig::default().with_workers(0_usize);
        let gateway = Gateway::bind(Listen::tcp(listener), upstream, config).await;
        gateway.expect("it listens")
    };
    let gateway = bind(answers_first.upstream()).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client.call(call_of(1, ECHO, b""), 100).await;
    reply.expect("it is answered");
    answers_first.end();
    client.ended().await;
    let warning = "the server closed the connection before its first reply";
    assert_eq!(heard.count(warning), 0);

    let gateway = bind(Upstream::tcp(to)).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client.call(call_of(1, ECHO, b""), 100).await;
    assert!(reply.is_err());
    assert_eq!(heard.count(warning), 1);
    closing.abort();
}

#[tokio::test]
async fn idle_client_is_closed_when_its_upstream_ends_and_reaches_a_restarted_one() {
    for down in [RDMA, Over::Tcp] {
        let (upper, gateway, client) = stage((down, Over::Tcp)).await;
        let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
        reply.expect("it is answered");
        let addr = upper.addr;
        upper.end();
        client.ended().await;
        let service = Arc::<MadeUp>::default();
        let _again = serve_tcp_calling(service, addr, oncrpc_tcp::Backchannels::default());
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        let reply = client.call(call_of(1, ECHO, b"again"), 100).await;
        assert_eq!(results(&reply.expect("it is reached"), 1), b"again");
    }
}

#[tokio::test]
async fn calls_wait_for_an_upstream_that_comes_late() {
    let (socket, addr) = reserved();
    let gateway = from_rdma(Upstream::tcp(addr)).await;
    let client = Lower::new(RDMA, gateway.local_addr(), nobody()).await;
    let call = tokio::spawn(async move { client.call(call_of(1, ECHO, b"late"), 100).await });
    until(|| gateway.stats().calls == 1).await;
    let service = Arc::<MadeUp>::default();
    let listener = socket.listen(16).expect("it listens");
    let _late = serve_tcp_at(listener, service, oncrpc_tcp::Backchannels::default());
    let reply = within_limit(call).await.expect("no panic");
    assert_eq!(results(&reply.expect("it is answered"), 1), b"late");
    assert_eq!(gateway.stats().upstream_connections, 1);
}

#[tokio::test]
async fn client_of_an_upstream_that_stays_away_is_closed() {
    let (_socket, addr) = reserved();
    let config = GatewayConfig::default().with_connect_window(Duration::from_millis(50));
    let listen = Listen::rdma(iwarp(), anywhere(), server_config());
    let gateway = Gateway::bind(listen, Upstream::tcp(addr), config).await;
    let gateway = gateway.expect("it listens");
    let client = Lower::new(RDMA, gateway.local_addr(), nobody()).await;
    let reply = within_limit(client.call(call_of(1, ECHO, b""), 100)).await;
    assert!(reply.is_err());
    client.ended().await;
    let stats = gateway.shutdown().await;
    assert_eq!((stats.upstream_unreachable, stats.relays), (1, 0));
    assert_eq!(stats.upstream_attempts_failed, 1);
}

#[test]
fn upstream_is_shown_as_its_addresses() {
    let mut upstream = Upstream::tcp(anywhere());
    assert_eq!(format!("{upstream:?}"), "tcp://127.0.0.1:0");
    if let Upstream::Tcp { addrs, .. } = &mut upstream {
        addrs.push("[::1]:2".parse().expect("it is an address"));
    }
    assert_eq!(format!("{upstream:?}"), "tcp://127.0.0.1:0,[::1]:2");
}

/// How often a client comes back until its port was kept.
const MOST_RETURNS: usize = 40;

#[tokio::test]
async fn client_that_comes_back_has_the_same_source_port_at_the_upstream() {
    let upper = Upper::new(Over::Tcp).await;
    let gateway = upper.behind(RDMA).await;
    // A port cannot be had again while a former connection of another process occupies it (TIME_WAIT, 60 s). Where these
    // are many, that is the case for every fifth port.
    let mut ports = Vec::new();
    let kept = |ports: &[u16]| ports.windows(2).filter(|pair| pair[0] == pair[1]).count();
    for round in 1..=MOST_RETURNS {
        let client = Lower::new(RDMA, gateway.local_addr(), nobody()).await;
        let reply = client.call(call_of(1, ECHO, b""), 100).await;
        reply.expect("it is answered");
        ports.push(upper.service.last_caller().addr.port());
        client.close().await;
        upper.service.until_ended(round).await;
        if kept(&ports) == 3 {
            return;
        }
    }
    panic!("{ports:?}");
}

#[tokio::test]
async fn client_that_says_its_name_in_its_second_call_comes_back_with_the_same_port() {
    let upper = Upper::new(Over::Tcp).await;
    let gateway = upper.behind(Over::Tcp).await;
    let by = |name: &str, xid| {
        let cred = Credential::Sys(AuthSys {
            stamp: 0,
            machine_name: name.as_bytes().into(),
            uid: 0,
            gid: 0,
            gids: Default::default(),
        });
        let mut w = Writer::default();
        let (prog, vers, proc) = (PROGRAM, 1, ECHO);
        write_call(&mut w, xid, Procedure { prog, vers, proc }, &cred);
        w.opaque(b"");
        w.finish()
    };
    let connect = || Lower::new(Over::Tcp, gateway.local_addr(), nobody());
    let port = || upper.service.last_caller().addr.port();
    let mut kept = false;
    for round in 0..MOST_RETURNS {
        let client = connect().await;
        // NULL with AUTH_NONE, as by Linux.
        for call in [call_of(1, 0, b""), by("a", 2)] {
            client.call(call, 100).await.expect("it is answered");
        }
        let first = port();
        client.close().await;
        upper.service.until_ended(2 * round + 1).await;
        let client = connect().await;
        let reply = client.call(by("a", 1), 100).await;
        reply.expect("it is answered");
        kept = port() == first;
        if kept {
            break;
        }
        client.close().await;
        upper.service.until_ended(2 * round + 2).await;
    }
    assert!(kept);
}

#[tokio::test]
async fn repetition_is_not_forwarded_while_the_first_is_in_flight() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let upper = Upper::new(Over::Tcp).await;
    let gateway = upper.behind(Over::Tcp).await;
    let mut stream = tokio::net::TcpStream::connect(gateway.local_addr())
        .await
        .expect("it connects");
    let mut record = buffer::Buffer::default();
    oncrpc_tcp::record::encode(&call_of(7, HELD, b""), &mut record);
    for _ in 0..3 {
        stream.write_all(&record).await.expect("it is sent");
    }
    until(|| gateway.stats().repetitions == 2).await;
    upper.service.until_called(1).await;
    upper.service.release(7);
    let mut reply = [0; 4 + 24 + 4 + 8];
    within_limit(stream.read_exact(&mut reply))
        .await
        .expect("it is answered");
    assert_eq!(upper.service.calls().len(), 1);
    // After its reply it is a new call, which the server knows what to do with.
    stream.write_all(&record).await.expect("it is sent");
    upper.service.until_called(2).await;
}

#[tokio::test]
async fn upstream_that_does_not_answer_in_time_loses_its_client_and_all_calls_of_it() {
    for up in [Over::Tcp, RDMA] {
        let upper = Upper::new(up).await;
        // Longer than any machine takes for what is before it.
        let limit = Duration::from_secs(20);
        let config = GatewayConfig::default()
            .with_call_timeout(limit)
            .with_workers(0_usize);
        let listener = TcpListener::bind(anywhere()).expect("it listens");
        let gateway = Gateway::bind(Listen::tcp(listener), upper.upstream(), config).await;
        let gateway = gateway.expect("it listens");
        let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
        let (client, first) = held(&upper, client, 1).await;
        let calling = Arc::clone(&client);
        let second = tokio::spawn(async move { calling.call(call_of(2, HELD, b""), 100).await });
        upper.service.until_called(3).await;
        // The gateway shares the clock of this test.
        tokio::time::pause();
        tokio::time::advance(limit).await;
        tokio::time::resume();
        client.ended().await;
        for call in [first, second] {
            let reply = within_limit(call).await.expect("no panic");
            assert!(matches!(reply, Err(TransportError::Disconnected(_))));
        }
        upper.service.until_ended(1).await;
        assert!(gateway.stats().timeouts >= 1);
    }
}

#[tokio::test]
async fn connections_beyond_a_new_limit_stay_and_further_ones_are_refused() {
    for way in [WAYS[0], WAYS[1]] {
        let (_upper, gateway, client) = stage(way).await;
        let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
        reply.expect("it is answered");
        // One address has half of them.
        gateway.limit_connections(2);
        let addr = gateway.local_addr();
        let refused = match way.0 {
            Over::Rdma(_) => Client::connect(iwarp(), addr, client_config())
                .await
                .is_err(),
            Over::Tcp => {
                let second = Lower::new(Over::Tcp, addr, nobody()).await;
                second.call(call_of(1, ECHO, b"y"), 100).await.is_err()
            }
        };
        assert!(refused, "{way:?}");
        let reply = client.call(call_of(2, ECHO, b"z"), 100).await;
        assert_eq!(results(&reply.expect("it stays"), 2), b"z");
        gateway.limit_connections(4);
        let second = Lower::new(way.0, addr, nobody()).await;
        let reply = second.call(call_of(1, ECHO, b"y"), 100).await;
        assert_eq!(results(&reply.expect("there is room"), 1), b"y");
    }
}

#[tokio::test]
async fn event_loop_that_hangs_does_not_respond_to_the_watchdog() {
    let (hangs, hung) = tokio::sync::oneshot::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let once = std::sync::Mutex::new(Some((hangs, released)));
    let listen = Listen::Tcp {
        listener: TcpListener::bind(anywhere()).expect("it listens"),
        limits: gateway::tcp_limits(),
        admit: Some(Arc::new(move |_| {
            if let Some((hangs, released)) = once.lock().expect("no panic holds it").take() {
                hangs.send(()).expect("the test waits");
                released.recv().expect("the test lets it go");
            }
            true
        })),
        local_users: None,
    };
    let upstream = Upstream::tcp(anywhere());
    let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await;
    let gateway = gateway.expect("it is bound");
    within_limit(gateway.workers_respond()).await;
    let _client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    hung.await.expect("it hangs");
    let mut responds = std::pin::pin!(gateway.workers_respond());
    for _ in 0..100 {
        tokio::select! {
            biased;
            () = &mut responds => panic!("it hangs, and responds"),
            () = tokio::task::yield_now() => {}
        }
    }
    release.send(()).expect("it waits");
    within_limit(responds).await;
}
