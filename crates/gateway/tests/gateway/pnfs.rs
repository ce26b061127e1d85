//! Servers of pNFS, whose clients would go past the gateway.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen};
use nfs_proto::scan::{USE_NON_PNFS, USE_PNFS_MDS};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Answer, CallHeader, Caller, Credential, Procedure, Programs, Service, write_call};
use rpcrdma::Versions;
use std::net::TcpListener;
use std::sync::Arc;

/// A server that answers EXCHANGE_ID: a metadata server of pNFS.
struct MetadataServer;

/// `EXCHGID4_FLAG_CONFIRMED_R`.
const CONFIRMED: u32 = 0x8000_0000;

/// The reply to EXCHANGE_ID with these flags.
fn reply(xid: u32, flags: u32) -> Vec<u8> {
    let mut w = Writer::default();
    w.words([xid, 1, 0, 0, 0, 0, 0, 0, 1, 42, 0]);
    w.words([0, 7, 1, flags, 0, 0, 0]);
    w.opaque(b"owner");
    w.opaque(b"scope");
    w.u32(0);
    w.finish().head().to_vec()
}

impl Service for MetadataServer {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let header = CallHeader::parse(&mut Reader::from(&call)).expect("a call");
        let reply = reply(header.xid, CONFIRMED | USE_PNFS_MDS);
        Answer::message(Payload::new(reply.into(), 0))
    }
}

/// EXCHANGE_ID of version 4.1, without protection of the state.
fn exchange_id(xid: u32) -> Payload {
    let (prog, vers, proc) = (100_003, 4, 1);
    let mut w = Writer::default();
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    w.words([0, 1, 1, 42, 0, 7]);
    w.opaque(b"client");
    w.words([0, 0, 0]);
    w.finish()
}

#[tokio::test]
async fn server_of_pnfs_is_one_without_it_where_that_is_configured() {
    let tcp = serve_tcp(Arc::new(MetadataServer));
    let rdma = serve_rdma(Arc::new(MetadataServer), Versions::One).await;
    let upstreams = [
        gateway::Upstream::tcp(tcp.addr),
        rdma_upstream(rdma.local_addr(), Versions::One),
    ];
    for (upstream, hides) in upstreams.iter().flat_map(|up| [(up, false), (up, true)]) {
        let listener = TcpListener::bind(anywhere()).expect("it listens");
        let rdma = Listen::rdma(iwarp(), anywhere(), server_config());
        for (listen, down) in [
            (Listen::tcp(listener), Over::Tcp),
            (rdma, Over::Rdma(Versions::One)),
        ] {
            let config = GatewayConfig::default().with_hide_pnfs(hides);
            let gateway = Gateway::bind(listen, upstream.clone(), config).await;
            let gateway = gateway.expect("it listens");
            let nobody = Arc::new(Programs::new());
            let client = Lower::new(down, gateway.local_addr(), nobody).await;
            let answer = client.call(exchange_id(3), 200).await;
            let flags = match hides {
                true => USE_NON_PNFS,
                false => USE_PNFS_MDS,
            };
            let answer = answer.expect("it is answered");
            assert_eq!(answer.head(), reply(3, CONFIRMED | flags));
        }
    }
}
