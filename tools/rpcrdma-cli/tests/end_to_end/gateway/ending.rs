//! Ends of gateways whose clients hold up what they can.

use super::{DEADLINE, Filer, Gateway, stuff};
use crate::ending::GIVES_UP;
use crate::running::Served;
use hostile_peer::Peer;
use nfs_client::{Export, Mount, current_user};
use nfs_proto::{FileHandle, NFS_PROGRAM, Wire, args};
use oncrpc::xdr::Writer;
use oncrpc::{Procedure, write_call};
use oncrpc_tcp::Client;
use rustix::process::Signal;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use tokio::runtime::Runtime;

/// READs of 1 MiB: more than any socket has room for.
const READS: u64 = 16;

/// Finds `/stuff/file`.
async fn find(addr: SocketAddr) -> FileHandle {
    let connect = async || Client::connect(addr, DEADLINE).await.unwrap();
    let mount = Mount::new(connect().await, current_user());
    let (mounted, _) = mount.mount_above("/stuff/file").await.unwrap();
    let export = Export::open(connect().await, current_user(), mounted.handle);
    export.await.unwrap().stat("file").await.unwrap().handle
}

/// A READ in a record of its own (RFC 5531 §11).
fn read(file: FileHandle, xid: u32) -> Vec<u8> {
    let mut w = Writer::default();
    let target = Procedure {
        prog: NFS_PROGRAM,
        vers: 3,
        proc: nfs_proto::Procedure::Read as u32,
    };
    write_call(&mut w, xid, target, &current_user());
    let (offset, count) = (0, 1 << 20);
    args::Read {
        file,
        offset,
        count,
    }
    .write(&mut w);
    let call = w.finish();
    let mark = 1 << 31 | u32::try_from(call.head().len()).unwrap();
    [&mark.to_be_bytes(), call.head()].concat()
}

/// Without its own limit for its end, the gateway would wait for the limit that each pair has for calls, and not say this.
#[test]
fn gateway_does_not_wait_for_clients_that_do_not_let_it_end() {
    let (dir, _) = stuff();
    let served = Served::new(&["--trust-local", "--squash", "none"]);
    std::fs::write(served.dir.join("file"), vec![7; 1 << 20]).unwrap();
    let filer = Filer::new(dir.path());
    let pairs = format!(
        "[gateway]\ntrust_local = true\n\
         [[pair]]\nlisten = \"tcp://127.0.0.1:0\"\nupstream = \"rdma://{}\"\n\
         [[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"{}\"\n",
        served.listening,
        filer.url()
    );
    let mut gateway = Gateway::configured(&pairs);
    let file = Runtime::new().unwrap().block_on(find(gateway.addr(0)));
    let mut unread = TcpStream::connect(gateway.addr(0)).unwrap();
    let before = gateway.counter("calls");
    for xid in 1..=READS {
        let call = read(file, u32::try_from(xid).unwrap());
        unread.write_all(&call).unwrap();
    }
    // Those that the gateway has not taken are left when it ends.
    while gateway.counter("calls") < before + READS / 2 {}
    // They never close their end of the connection.
    let _open = [
        Peer::connect(gateway.addr(1)),
        Peer::silent(gateway.addr(1)),
    ];
    gateway.signal(Signal::TERM);
    gateway.hear(GIVES_UP);
    assert!(gateway.child.wait().unwrap().success());
}
