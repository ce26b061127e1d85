//! Results that a server puts where they do not belong end their call with an error (RFC 8166 §6.1).

use buffer::Buffer;
use bytes::Bytes;
use nfs_client::{Fault, Nfs3};
use nfs_proto::{Arguments, FileHandle, Status, args};
use oncrpc::xdr::{Error, Gather, Parts, Payload, Writer};
use oncrpc::{Credential, ReplyBound, RpcError, Transport, TransportError};

const XID: u32 = 7;

/// Has one reply for every call: a stream of words, and results that were written into chunks.
#[derive(Clone)]
struct Placed {
    words: Vec<u32>,
    results: Vec<&'static [u8]>,
}

impl Transport for Placed {
    fn next_xid(&self) -> u32 {
        XID
    }

    async fn call(&self, _: Payload, _: ReplyBound) -> Result<Payload, TransportError> {
        let mut w = Writer::new(Buffer::default());
        for word in [XID, 1, 0, 0, 0, 0].iter().chain(&self.words) {
            w.u32(*word);
        }
        let Parts { head, start, .. } = w.finish().into_parts();
        let results = self.results.iter();
        let results = results.map(|data| Gather::from_elem(Bytes::from_static(data), 1));
        Ok(Payload::with_results(head, start, results))
    }
}

/// The error with which a call ends that has this reply.
async fn ended<'a, A: Arguments<'a>>(
    args: &A,
    words: &[u32],
    results: &[&'static [u8]],
) -> Option<Fault> {
    let transport = Placed {
        words: words.to_vec(),
        results: results.to_vec(),
    };
    let nfs = Nfs3::new(transport, Credential::None);
    let reply = nfs.call(args).await.unwrap();
    reply.results().err()
}

#[tokio::test]
async fn results_that_do_not_belong_in_a_chunk_end_the_call() {
    let file = FileHandle::new(b"file").unwrap();
    let read = args::Read {
        file,
        offset: 0,
        count: 5,
    };
    let misplaced = Some(Fault::Rpc(RpcError::Malformed(Error::Ineligible)));
    // Status, no attributes, count, end of file, length.
    let good = [0, 0, 5, 1, 5];
    assert_eq!(ended(&read, &good, &[b"abcde"]).await, None);
    assert_eq!(ended(&read, &good, &[b"abcde", b"more"]).await, misplaced);
    let longer = Error::ItemLength { item: 9, len: 5 };
    let longer = Some(Fault::Rpc(RpcError::Malformed(longer)));
    assert_eq!(ended(&read, &good, &[b"abcdefghi"]).await, longer);
    let failed = [Status::Io as u32, 0];
    assert_eq!(ended(&read, &failed, &[]).await, None);
    assert_eq!(ended(&read, &failed, &[b"abcde"]).await, misplaced);
    // Of a CommitRes nothing is eligible.
    let commit = args::Commit {
        file,
        offset: 0,
        count: 0,
    };
    let committed = [0, 0, 0, 1, 2];
    assert_eq!(ended(&commit, &committed, &[]).await, None);
    assert_eq!(ended(&commit, &committed, &[b"12345678"]).await, misplaced);
}
