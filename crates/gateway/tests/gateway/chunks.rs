//! Chunks that a gateway offers to its upstream, and those that it refuses of its clients.

use crate::made_up::*;
use crate::stage::*;
use buffer::{Buffer, Gather};
use oncrpc::xdr::{Item, Parts, Payload, Reader, Writer};
use oncrpc::{
    Answer, CallHeader, Caller, Credential, Procedure, ReplyBound, RpcError, Service, write_call,
};
use rpcrdma::Versions;
use smallvec::smallvec;
use std::sync::Arc;

fn nobody() -> Arc<dyn Service> {
    Arc::new(oncrpc::Programs::new())
}

const COMPOUND: Procedure = Procedure {
    prog: 100_003,
    vers: 4,
    proc: 1,
};

const READLINK: &[u32] = &[27];

/// READ with a stateid, an offset and a count.
fn read(count: u32) -> Vec<u32> {
    vec![25, 0, 0, 0, 0, 0, 0, count]
}

/// READDIR with a cookie, a verifier and its counts.
fn readdir(count: u32) -> Vec<u32> {
    vec![26, 0, 0, 0, 0, count, count, 0]
}

/// A COMPOUND of these operations.
fn compound(xid: u32, operations: &[&[u32]]) -> Payload {
    let mut w = Writer::default();
    write_call(&mut w, xid, COMPOUND, &Credential::None);
    w.words([0, 0]);
    w.u32(u32::try_from(operations.len()).expect("few"));
    operations.iter().for_each(|operation| {
        operation.iter().for_each(|&word| w.u32(word));
    });
    w.finish()
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}

/// A server that answers with the results of READLINK and READ, each by reference where it has a chunk.
struct LinkAndData {
    text: Vec<u8>,
    data: Vec<u8>,
}

impl LinkAndData {
    fn reply(&self, xid: u32) -> Payload {
        let mut w = Writer::default();
        w.words([xid, 1, 0, 0, 0, 0, 0, 0, 2]);
        w.words([27, 0]);
        w.item(vec![self.text.clone().into()].into());
        w.words([25, 0, 1]);
        w.item(vec![self.data.clone().into()].into());
        w.finish()
    }
}

impl Service for LinkAndData {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let header = CallHeader::parse(&mut Reader::from(&call)).expect("a call");
        Answer::message(self.reply(header.xid))
    }
}

#[tokio::test]
async fn results_of_readlink_and_read_come_through_an_rdma_upstream() {
    let service = Arc::new(LinkAndData {
        text: vec![b'a'; 1001],
        data: vec![7; 9999],
    });
    let shared = Arc::clone(&service) as Arc<dyn Service>;
    let server = serve_rdma(shared, Versions::One).await;
    let upstream = rdma_upstream(server.local_addr(), Versions::One);
    let gateway = from_tcp(upstream).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let reply = client
        .call(compound(1, &[READLINK, &read(10_000)]), 0)
        .await;
    assert!(stream(&reply.expect("it is answered")) == stream(&service.reply(1)));
    assert_eq!(gateway.stats().system_errors, 0);
}

#[tokio::test]
async fn no_call_offers_write_chunks_and_a_reply_chunk_together() {
    const COUNT: u32 = 10_000;
    let upper = Upper::new(Over::Rdma(Versions::One)).await;
    let gateway = upper.behind(Over::Tcp).await;
    let client = Lower::new(Over::Tcp, gateway.local_addr(), nobody()).await;
    let (one, list) = (read(COUNT), readdir(COUNT));
    let compounds: [&[&[u32]]; 4] = [
        &[&one, &one, &one],
        &[&list, &one],
        &[&one, &list],
        &[&one, READLINK],
    ];
    for (xid, operations) in (1..).zip(compounds) {
        let reply = client.call(compound(xid, operations), 100).await;
        reply.expect("it is answered");
        let room = upper.service.last_caller().reply_room;
        assert!(!room.has_chunks(), "{operations:?}");
        let results = (operations.len() - 1) * COUNT as usize;
        assert!(room.carries(&ReplyBound::new(60 + results)));
    }
    // A READ alone has its data in a Write chunk.
    let reply = client.call(compound(9, &[&one]), 100).await;
    reply.expect("it is answered");
    assert!(upper.service.last_caller().reply_room.has_chunks());
}

/// A WRITE of version 3 of so many bytes, of which a Read chunk has others.
fn write(xid: u32, bytes: u32, in_chunk: usize, credential: &Credential) -> Payload {
    let mut w = Writer::default();
    let (prog, vers, proc) = (100_003, 3, 7);
    write_call(&mut w, xid, Procedure { prog, vers, proc }, credential);
    w.opaque(b"file");
    w.words([0, 0, bytes, 2, bytes]);
    let Parts { head, start, .. } = w.finish().into_parts();
    let item = Item {
        at: head.len() - start,
        data: Gather::from_elem(vec![9; in_chunk].into(), 1),
    };
    Payload::with_items(head, start, smallvec![item])
}

#[tokio::test]
async fn read_chunk_of_another_length_than_its_argument_is_not_padded_and_passed_on() {
    for up in [Over::Tcp, Over::Rdma(Versions::One)] {
        let upper = Upper::new(up).await;
        let down = Over::Rdma(Versions::One);
        let gateway = upper.behind(down).await;
        let client = Lower::new(down, gateway.local_addr(), nobody()).await;
        for (xid, in_chunk) in [(1, 4095), (2, 4097), (3, 8192)] {
            let reply = client
                .call(write(xid, 4096, in_chunk, &Credential::None), 100)
                .await;
            let reply = reply.expect("it is answered");
            let error = oncrpc::read_reply(&reply, xid).err();
            assert_eq!(error, Some(RpcError::GarbageArgs), "{in_chunk}");
        }
        assert!(upper.service.calls().is_empty());
        assert_eq!(gateway.stats().malformed, 3);
        let reply = client
            .call(write(4, 4096, 4096, &Credential::None), 100)
            .await;
        assert_eq!(results(&reply.expect("it is answered"), 4), b"");
    }
}

#[tokio::test]
async fn read_chunk_within_another_argument_is_not_passed_on() {
    let upper = Upper::new(Over::Tcp).await;
    let down = Over::Rdma(Versions::One);
    let gateway = upper.behind(down).await;
    let client = Lower::new(down, gateway.local_addr(), nobody()).await;
    // With padding, and without, where the call would be the same in the stream (RFC 8166 §6.1).
    for (xid, in_chunk) in [(1, 4095), (2, 4096)] {
        let Parts {
            head,
            start,
            mut items,
            ..
        } = write(xid, 4096, in_chunk, &Credential::None).into_parts();
        // The handle of the file, in place of the data.
        items[0].at -= 24;
        let call = Payload::with_items(head, start, items);
        assert!(client.call(call, 100).await.is_err(), "{in_chunk}");
    }
    assert!(upper.service.calls().is_empty());
}
