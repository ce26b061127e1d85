//! Ends of gateways whose clients hold up what they can.

use super::{Filer, Gateway, stuff};
use crate::ending::{GIVES_UP, reads_nothing};
use crate::running::Served;
use hostile_peer::Peer;
use nfs_proto::NFS_PROGRAM;
use rustix::process::Signal;

/// Without its own limit for its end, the gateway would wait for the limit that each pair has for calls, and not say this.
#[test]
fn gateway_does_not_wait_for_clients_that_do_not_let_it_end() {
    let (dir, _) = stuff();
    let (served, filer) = (Served::new(&["--trust-local"]), Filer::new(dir.path()));
    let pairs = format!(
        "[[pair]]\nlisten = \"tcp://127.0.0.1:0\"\nupstream = \"rdma://{}\"\n\
         [[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"{}\"\n",
        served.listening,
        filer.url()
    );
    let mut gateway = Gateway::configured(&pairs);
    let _unread: Vec<_> = (0..3)
        .map(|_| reads_nothing(gateway.addr(0), NFS_PROGRAM))
        .collect();
    // They never close their end of the connection.
    let _open = [
        Peer::connect(gateway.addr(1)),
        Peer::silent(gateway.addr(1)),
    ];
    gateway.signal(Signal::TERM);
    gateway.hear(GIVES_UP);
    assert!(gateway.child.wait().unwrap().success());
}
