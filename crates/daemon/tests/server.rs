//! A server as a service, from its options to its end.

use nfs_client::{Export, current_user};
use nfs_server::{Changes, ClientOptions};
use rpcrdma::any::Providers;
use rpcrdma::{Client, ClientConfig, ServerConfig};
use rpcrdma_daemon::control::asking::ask;
use rpcrdma_daemon::control::{Request, ServerStatus};
use rpcrdma_daemon::reports::ReportPlaces;
use rpcrdma_daemon::server::exports::resolve;
use rpcrdma_daemon::server::local_users::Trust;
use rpcrdma_daemon::server::plan::{ClientPlan, Plan, Presence};
use rpcrdma_daemon::server::{RunningServer, ServerOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use verbs_iwarp::Iwarp;

/// A server of a directory under the name `/data`, for this machine.
async fn serve(dir: &Path, state: &Path) -> RunningServer {
    let export = format!("/data={}", dir.display()).parse().unwrap();
    let export = resolve(&[export]).unwrap().remove(0);
    let here = ClientPlan {
        clients: "127.0.0.1".parse().unwrap(),
        options: ClientOptions::default(),
    };
    let any_port = "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions {
        listen: vec![any_port],
        rdma_socket: None,
        tcp: vec![any_port],
        tcp_sockets: Vec::new(),
        mount: vec![any_port],
        mount_sockets: Vec::new(),
        exports: vec![Plan {
            export,
            fsid: None,
            crossmnt: false,
            presence: Presence::Required,
            clients: vec![here],
            origin: None,
        }],
        trust: Trust {
            trust_local: true,
            manage_gids: false,
        },
        changes: Changes::Durable,
        state_dir: Some(state.to_owned()),
        lease: Duration::from_secs(90),
        rpcbind: false,
        transport: ServerConfig::default(),
        reports: ReportPlaces {
            metrics: None,
            control_socket: Some(state.join("control.sock")),
        },
        metrics_setting: "metrics".to_owned(),
    };
    let providers = Providers::new(Arc::new(Iwarp::default()), None);
    RunningServer::start(options, providers).await.unwrap()
}

#[tokio::test]
async fn files_are_served_and_the_control_socket_tells_of_them_until_the_end() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("greeting"), "hello").unwrap();
    let server = serve(dir.path(), state.path()).await;
    let at = server.listening().listeners()[0].address.parse().unwrap();
    let client = Client::connect(Arc::new(Iwarp::default()), at, ClientConfig::default());
    let client = client.await.unwrap();
    let export = Export::mount(client, current_user(), "/data")
        .await
        .unwrap();
    assert_eq!(export.stat("greeting").await.unwrap().attributes.size, 5);

    let control = server.control().unwrap().to_owned();
    let (_, status) = ask::<ServerStatus>(&control, Request::Stats).await.unwrap();
    assert_eq!(status.exports[0].name, "/data");
    assert_eq!(status.listening, at.to_string());
    drop(export);
    server.shutdown().await;
    assert!(ask::<ServerStatus>(&control, Request::Stats).await.is_err());
}
