//! This provider over siw, against software iWARP in the same machine.
//!
//! It needs siw, as the [suite for providers](../tests/conformance.rs) needs some device:
//!
//! ```text
//! VERBS_IBV_DEVICE=siw0 VERBS_IBV_ADDRESS=10.0.0.1 cargo test -p verbs-ibv --test software_iwarp
//! ```

use buffer::{Buffer, Gather};
use bytes::Bytes;
use smallvec::smallvec;
use std::cell::Cell;
use std::env;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;
use std::time::Duration;
use verbs::{
    Completion, Memory, Provider, QpOptions, QueuePair, RemoteAddress, Segment, WorkRequest, WrId,
};
use verbs_ibv::{Config, Ibv};
use verbs_iwarp::Iwarp;

const PAGE: usize = 4096;

/// The first message of a connection.
const GREETING: [u8; 5] = *b"hello";

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} has to name an RDMA device or its address"))
}

/// A connection: its end over siw, which connects, and the one over software iWARP, which has a Receive posted.
async fn connected() -> (Box<dyn QueuePair>, Box<dyn QueuePair>) {
    let device = Some(variable("VERBS_IBV_DEVICE"));
    let siw = Ibv::open(Config {
        device,
        ..Config::default()
    })
    .expect("the device is there");
    let address: IpAddr = variable("VERBS_IBV_ADDRESS")
        .parse()
        .expect("an IP address");
    let software = Iwarp::default();
    let listening = software.listen(SocketAddr::new(address, 0)).await;
    let mut listener = listening.expect("it listens");
    let (to, options) = (listener.local_addr(), QpOptions::default());
    let accepting = async {
        let mut incoming = listener.accept().await.expect("a connection");
        incoming.request(PATIENCE).await.expect("a request");
        let receive = WorkRequest::Receive {
            wr: WrId(0),
            buffer: Buffer::with_capacity(GREETING.len()),
        };
        incoming.accept(&options, &[], vec![receive]).await
    };
    let connecting = siw.connect(to, &options, &[], Vec::new());
    let (accepted, connected) = tokio::join!(accepting, connecting);
    let connected = connected.expect("it is connected");
    (connected.qp, accepted.expect("it is accepted"))
}

/// Sends the first message of the connection, behind the registrations of siw's end. The end that accepted sends nothing
/// before it has arrived, not even a Read Request (RFC 5044 §7.1.2 rule 4).
async fn greet(siw: &mut dyn QueuePair, software: &mut dyn QueuePair) {
    let posted = siw.post(WorkRequest::Send {
        wr: WrId(0),
        buffer: Buffer::from(GREETING.to_vec()),
        rest: Gather::default(),
        invalidate: None,
    });
    posted.expect("there is room");
    match completed(siw, software).await {
        Completion::Receive { buffer, .. } => assert_eq!(buffer[..], GREETING),
        other => panic!("{other:?}"),
    }
}

/// Reads this memory of the other end over software iWARP.
async fn read(
    siw: &mut dyn QueuePair,
    software: &mut dyn QueuePair,
    from: RemoteAddress,
    length: u32,
) -> Vec<u8> {
    let posted = software.post(WorkRequest::Read {
        wr: WrId(1),
        sink: Buffer::with_capacity(length as usize),
        from: smallvec![Segment {
            handle: from.handle,
            length,
            offset: from.offset,
        }],
    });
    posted.expect("there is room");
    match completed(siw, software).await {
        Completion::Read { sink, .. } => sink.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// The next completion of the end over software iWARP.
async fn completed(siw: &mut dyn QueuePair, software: &mut dyn QueuePair) -> Completion {
    loop {
        let moved = siw.progress() | software.progress();
        while let Some(completion) = siw.poll_cq() {
            assert!(
                matches!(completion, Completion::Send { .. }),
                "{completion:?}"
            );
        }
        if let Some(completion) = software.poll_cq() {
            return completion;
        }
        for end in [&*siw, &*software] {
            assert!(end.closed().is_none(), "{:?}", end.closed());
        }
        if !moved {
            poll_fn(|cx| match siw.poll_ready(cx) {
                Poll::Pending => software.poll_ready(cx),
                ready => ready,
            })
            .await;
        }
    }
}

/// siw sends wrong bytes in some of these Read Responses if they are asked for whole.
#[test]
fn short_reads_across_the_end_of_a_page_bring_the_right_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let reads = Cell::new(0);
    let test = async {
        let (mut siw, mut software) = connected().await;
        let bytes: Vec<u8> = (0..4 * PAGE)
            .map(|at| (at * 7 + at / 251).to_le_bytes()[0])
            .collect();
        let memory = Memory::Source(Gather::from_iter([Bytes::from(bytes.clone())]));
        let source = siw.register(memory).expect("there is room");
        greet(&mut *siw, &mut *software).await;
        let offset = usize::try_from(source.offset).expect("an address");
        let first_end = PAGE - offset % PAGE;
        for length in 1..=40 {
            for before in 0..=length {
                let at = first_end + PAGE - before;
                let from = RemoteAddress {
                    offset: source.offset + at as u64,
                    ..source
                };
                let asked = u32::try_from(length).expect("a short one");
                let found = read(&mut *siw, &mut *software, from, asked).await;
                assert!(
                    found == bytes[at..at + length],
                    "{length} bytes, {before} before"
                );
                reads.set(reads.get() + 1);
            }
        }
    };
    runtime.block_on(async {
        let done = tokio::time::timeout(PATIENCE, test).await;
        assert!(done.is_ok(), "{} Reads in {PATIENCE:?}", reads.get());
    });
}
