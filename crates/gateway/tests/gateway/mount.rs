//! MOUNT of an upstream that does not answer it at its NFS port.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, MountOutcome, MountService, Upstream};
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    CallHeader, Caller, Credential, Procedure, Programs, RpcError, Service, read_reply, write_call,
};
use oncrpc_tcp::ReplyMemory;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use verbs::BoxFuture;

fn nobody() -> Arc<dyn Service> {
    Arc::new(Programs::new())
}

/// Behaviour of the other machine's MOUNT.
#[derive(Clone, Copy, Debug)]
enum Does {
    Answer,
    NotAnswer,
    Hang,
}

/// MOUNT at another place.
#[derive(Debug)]
struct Elsewhere {
    is_elsewhere: bool,
    does: Mutex<Does>,
    asked: AtomicUsize,
}

impl MountService for Elsewhere {
    fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    fn call(
        &self,
        call: Payload,
        _: &Caller,
        _: Arc<dyn ReplyMemory>,
    ) -> BoxFuture<'static, MountOutcome> {
        self.asked.fetch_add(1, Relaxed);
        let header = CallHeader::parse(&mut Reader::from(&call)).expect("a call");
        assert_eq!((header.prog, header.proc), (MOUNT_PROGRAM, 5));
        let outcome = match *self.does.lock().expect("no panic holds it") {
            Does::Answer => MountOutcome::Answered(success(header.xid, b"elsewhere")),
            Does::NotAnswer => MountOutcome::Unanswered,
            Does::Hang => return Box::pin(std::future::pending()),
        };
        Box::pin(async { outcome })
    }
}

/// A client of a gateway whose upstream may have MOUNT elsewhere.
async fn client_of(upstream: Upstream, is_elsewhere: bool) -> (Lower, Gateway, Arc<Elsewhere>) {
    client_with(GatewayConfig::default(), upstream, is_elsewhere).await
}

async fn client_with(
    config: GatewayConfig,
    upstream: Upstream,
    is_elsewhere: bool,
) -> (Lower, Gateway, Arc<Elsewhere>) {
    let mount = Arc::new(Elsewhere {
        is_elsewhere,
        does: Mutex::new(Does::Answer),
        asked: AtomicUsize::new(0),
    });
    let shared = Arc::clone(&mount) as Arc<dyn MountService>;
    let config = config.with_mount(Some(shared));
    let listen = Listen::rdma(iwarp(), anywhere(), server_config());
    let gateway = Gateway::bind(listen, upstream, config).await;
    let gateway = gateway.expect("it listens");
    let down = Over::Rdma(rpcrdma::Versions::One);
    let client = Lower::new(down, gateway.local_addr(), nobody()).await;
    (client, gateway, mount)
}

/// EXPORT.
async fn export(client: &Lower, xid: u32) -> Payload {
    let (prog, vers, proc) = (MOUNT_PROGRAM, MOUNT_V3, 5);
    let mut w = Writer::default();
    let target = Procedure { prog, vers, proc };
    write_call(&mut w, xid, target, &Credential::None);
    let reply = client.call(w.finish(), 100).await;
    reply.expect("it is answered")
}

#[tokio::test]
async fn mount_that_the_upstream_does_not_answer_is_passed_on_to_where_it_is() {
    // A server without any program.
    let server = serve_tcp(nobody());
    let (client, gateway, mount) = client_of(Upstream::tcp(server.addr), false).await;
    assert_eq!(results(&export(&client, 1).await, 1), b"elsewhere");
    assert_eq!(gateway.stats().replies, 1);
    *mount.does.lock().expect("no panic holds it") = Does::NotAnswer;
    let error = read_reply(&export(&client, 2).await, 2).err();
    // Not PROG_UNAVAIL of the upstream, which would have clients ask MOUNT of the gateway's host.
    assert_eq!(error, Some(RpcError::SystemErr));
    assert_eq!(mount.asked.load(Relaxed), 2);
}

#[tokio::test]
async fn mount_service_that_does_not_end_a_call_holds_no_client_up_for_ever() {
    let config = GatewayConfig::default().with_call_timeout(Duration::from_millis(50));
    let nowhere = Upstream::tcp(anywhere());
    let (client, gateway, mount) = client_with(config, nowhere, true).await;
    *mount.does.lock().expect("no panic holds it") = Does::Hang;
    let error = read_reply(&export(&client, 1).await, 1).err();
    assert_eq!(error, Some(RpcError::SystemErr));
    assert_eq!(gateway.stats().system_errors, 1);
}

#[tokio::test]
async fn mount_of_the_upstream_is_asked_first_unless_it_is_known_to_be_elsewhere() {
    for is_elsewhere in [false, true] {
        let upper = Upper::new(Over::Tcp).await;
        let (client, _gateway, mount) = client_of(upper.upstream(), is_elsewhere).await;
        let reply = export(&client, 1).await;
        let (expected, asked): (&[u8], _) = match is_elsewhere {
            true => (b"elsewhere", 1),
            false => (b"", 0),
        };
        assert_eq!(results(&reply, 1), expected);
        assert_eq!(mount.asked.load(Relaxed), asked);
        assert_eq!(upper.service.calls().len(), 1 - asked);
    }
}
