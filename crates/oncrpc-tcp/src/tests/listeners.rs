//! A server of several listeners, on the event loops of another server, and what it counts.

use super::*;
use rpc_serving::workers::{Worker, Workers};
use tokio::runtime::Builder;

#[tokio::test]
async fn listeners_share_event_loops_and_each_connection_is_counted_at_its_own() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let worker = Worker::new(runtime.handle().clone());
    let workers = Workers::new([worker.clone()], Arc::new(()));
    let (mut listeners, mut addrs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addrs.push(listener.local_addr().unwrap());
        listeners.push(listener);
    }
    let program = Echo {
        arrived: Arc::default(),
        release: Arc::default(),
    };
    let (arrived, release) = (Arc::clone(&program.arrived), Arc::clone(&program.release));
    let service = Arc::new(Programs::new().with(program));
    let limits = Limits::default();
    let server = Server::listening(listeners, service, limits).workers(workers);
    let monitor = server.monitor();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(server.run(async { drop(stopped.await) }));

    let mut clients = Vec::new();
    for addr in &addrs {
        let client = Client::connect(*addr, DEADLINE).await.unwrap();
        assert_eq!(ask(&client, BLOCKING, 7).await, Ok(7));
        clients.push(client);
    }
    let connections = monitor.connections();
    let came_to: Vec<_> = connections.iter().map(|now| now.listener).collect();
    assert_eq!(came_to, [Some(addrs[0]), Some(addrs[1])]);
    for (now, client) in connections.iter().zip(&clients) {
        assert_eq!(Some(now.peer), client.local_addr());
        assert_eq!((now.calls, now.jobs), (1, 1));
    }
    assert_eq!((worker.load(), monitor.open()), (2, 2));

    // A call in service is seen, and answered though the server stops.
    let stopping = async {
        arrived.notified().await;
        while monitor.connections()[0].in_flight == 0 {
            tokio::task::yield_now().await;
        }
        stop.send(()).unwrap();
        while TcpStream::connect(addrs[0]).await.is_ok() {}
        release.notify_one();
    };
    let (held, ()) = tokio::join!(ask(&clients[0], HELD, 8), stopping);
    assert_eq!(held, Ok(8));
    server.await.unwrap();
    assert_eq!((worker.load(), monitor.open()), (0, 0));
    let stats = monitor.stats();
    assert!(
        stats.accepted >= 2,
        "and those that asked whether it listens"
    );
    assert_eq!((stats.calls, stats.replies, stats.jobs), (3, 3, 2));
    // A call has 11 words, and a reply 7.
    assert_eq!((stats.bytes_in, stats.bytes_out), (3 * 48, 3 * 32));
    runtime.shutdown_background();
}
