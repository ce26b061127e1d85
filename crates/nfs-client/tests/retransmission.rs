//! A call that is sent again on another connection, with other inline sizes, is executed once, and a new
//! call with a used XID is executed.

use buffer::{Buffer, Pool};
use nfs_proto::{Arguments, FileHandle, Path, SetAttributes, Status, args};
use nfs_server::{ExportOptions, Exports, FileSystem, HandleKey, MemFs, Mount3, Nfs3, Squash};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{AuthSys, Connections, Credential, Programs, Transport, read_reply, write_call};
use rpcrdma::{Client, ClientConfig, InlineThreshold, Server, ServerConfig};
use std::sync::Arc;
use verbs::Provider;

/// Bytes of the link's text: more than one Send of 1024 bytes takes, less than one of 4096.
const TEXT: usize = 2000;

/// A server of an empty file system, and the handle of its root.
async fn server(provider: &Arc<dyn Provider>) -> (Server, FileHandle) {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let options = ExportOptions::default().with_squash(Squash::None);
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/data", fs, options)
        .unwrap();
    let connections = Connections::default();
    let nfs = Nfs3::new(exports.clone(), Pool::new(1 << 20));
    let programs = Programs::new()
        .with(nfs.with_connections(connections.clone()))
        .with(Mount3::new(exports));
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig::default().with_connections(connections);
    let server = Server::bind(provider.clone(), anywhere, Arc::new(programs), config)
        .await
        .unwrap();
    let client = client(provider, &server, 1024).await;
    let path = nfs_proto::mount::DirPath::new(b"/data").unwrap();
    let reply = send(&client, 1, &nfs_proto::mount::Mount { path }).await;
    let mut r = results(&reply, 1);
    assert_eq!(r.u32(), Ok(0), "mounted");
    let root = nfs_proto::Wire::parse(&mut r).unwrap();
    (server, root)
}

async fn client(provider: &Arc<dyn Provider>, server: &Server, inline: usize) -> Client {
    let config = ClientConfig::default()
        .with_send_size(InlineThreshold::at_most(inline))
        .with_receive_size(InlineThreshold::at_most(inline));
    Client::connect(provider.clone(), server.local_addr(), config)
        .await
        .unwrap()
}

async fn send<'a, A: Arguments<'a>>(client: &Client, xid: u32, args: &A) -> Payload {
    let target = oncrpc::Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    let mut w = Writer::new(Buffer::default());
    write_call(&mut w, xid, target, &Credential::Sys(AuthSys::default()));
    args.write(&mut w);
    client.call(w.finish(), args.reply_bound()).await.unwrap()
}

fn results(reply: &Payload, xid: u32) -> Reader<'_> {
    read_reply(reply, xid).unwrap()
}

async fn executed_once(provider: Arc<dyn Provider>) {
    let (server, root) = server(&provider).await;
    let place = args::Place {
        dir: root,
        name: nfs_proto::Filename::new(b"link").unwrap(),
    };
    let text = [b't'; TEXT];
    let link = args::Symlink {
        place,
        attributes: SetAttributes::default(),
        target: Path::from(&text[..]),
    };
    let first = client(&provider, &server, 1024).await;
    let done = send(&first, 70, &link).await;
    assert_eq!(results(&done, 70).u32(), Ok(0));
    assert_eq!(first.counters().read_chunks_offered, 1);
    first.close().await;

    let second = client(&provider, &server, 4096).await;
    let again = send(&second, 70, &link).await;
    assert_eq!(second.counters().read_chunks_offered, 0, "now it is inline");
    assert_eq!(again.head(), done.head());
    let new = send(&second, 71, &link).await;
    assert_eq!(results(&new, 71).u32(), Ok(Status::Exist as u32));
}

#[tokio::test]
async fn call_sent_again_over_the_simulator_is_executed_once() {
    let fabric = verbs_sim::Fabric::new(9);
    executed_once(Arc::new(fabric.provider(verbs_sim::EndOptions::default()))).await;
}

#[tokio::test]
async fn call_sent_again_over_iwarp_is_executed_once() {
    executed_once(Arc::new(verbs_iwarp::Iwarp::default())).await;
}

/// Status of a call.
async fn status<'a, A: Arguments<'a>>(client: &Client, xid: u32, args: &A) -> u32 {
    let reply = send(client, xid, args).await;
    let status = results(&reply, xid).u32();
    status.expect("it begins with a status")
}

/// Several clients of one address, which choose XIDs for themselves.
async fn new_calls_are_executed(provider: Arc<dyn Provider>) {
    const XID: u32 = 70;
    let (server, root) = server(&provider).await;
    let place = args::Place {
        dir: root,
        name: nfs_proto::Filename::new(b"lock").unwrap(),
    };
    let lock = args::MkDir {
        place,
        attributes: SetAttributes::default(),
    };
    let unlock = args::RmDir { object: place };
    let exists = Status::Exist as u32;
    let (first, second) = (
        client(&provider, &server, 1024).await,
        client(&provider, &server, 1024).await,
    );
    assert_eq!(status(&first, XID, &lock).await, 0);
    assert_eq!(
        status(&second, XID, &lock).await,
        exists,
        "one has the lock"
    );
    first.close().await;
    assert_eq!(status(&second, XID, &unlock).await, 0);
    second.close().await;
    // Each begins with the same XID, and is gone when the next one comes.
    let mut next = XID + 1;
    for _ in 0..2 {
        let other = client(&provider, &server, 1024).await;
        assert_eq!(status(&other, XID + 1, &lock).await, 0);
        other.close().await;
        next += 1;
        let other = client(&provider, &server, 1024).await;
        assert_eq!(status(&other, next, &unlock).await, 0);
        other.close().await;
    }
}

#[tokio::test]
async fn new_calls_with_a_used_xid_are_executed_over_the_simulator() {
    let fabric = verbs_sim::Fabric::new(9);
    new_calls_are_executed(Arc::new(fabric.provider(verbs_sim::EndOptions::default()))).await;
}

#[tokio::test]
async fn new_calls_with_a_used_xid_are_executed_over_iwarp() {
    new_calls_are_executed(Arc::new(verbs_iwarp::Iwarp::default())).await;
}
