//! Posts to the send queue: chains, signals and inline data.

use super::scene::{connected, next, run, send, until_closed};
use super::{Fake, PostedRequest};
use crate::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_SUCCESS, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_SEND,
};
use buffer::{Gather, Pool};
use bytes::Bytes;
use verbs::{Completion, Handle, Memory, RemoteAddress, WorkRequest, WrId};

/// Numbers of the requests with this flag in a chain, from 1.
fn with_flag(chain: &[PostedRequest], flag: u32) -> Vec<usize> {
    let numbers = (1..).zip(chain);
    let with_flag = numbers.filter(|(_, request)| request.flags & flag != 0);
    with_flag.map(|(number, _)| number).collect()
}

#[test]
fn batch_is_one_chain_with_every_sixteenth_and_the_last_signalled() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        for number in 0..40 {
            qp.post(send(&pool, 100 + number, 1000)).unwrap();
        }
        assert!(fake.chains().is_empty(), "nothing is sent before progress");
        while qp.progress() {}
        let chains = fake.chains();
        let [chain] = &chains[..] else {
            panic!("{} chains", chains.len());
        };
        assert!(chain.iter().all(|request| request.opcode == IBV_WR_SEND));
        assert_eq!(with_flag(chain, IBV_SEND_SIGNALED), [16, 32, 40]);
        // One completion stands for all before it.
        fake.complete_send(IBV_WC_SUCCESS);
        for number in 100..116 {
            match next(&mut *qp).await {
                Completion::Send { wr } => assert_eq!(wr, WrId(number)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(qp.io_counters().work.doorbells, 1);
        qp.close();
        until_closed(&mut *qp).await;
    });
}

#[test]
fn small_sends_are_inline() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        for (number, length) in [(10, 1), (11, 256), (12, 257), (13, 0)] {
            qp.post(send(&pool, number, length)).unwrap();
        }
        while qp.progress() {}
        let chain = &fake.chains()[0];
        assert_eq!(with_flag(chain, IBV_SEND_INLINE), [1, 2]);
        let pieces: Vec<_> = chain.iter().map(|request| request.pieces).collect();
        assert_eq!(pieces, [1, 1, 1, 0]);
        qp.close();
        until_closed(&mut *qp).await;
    });
}

/// The order of work is what opens memory before the peer hears of it.
#[test]
fn window_is_bound_in_the_chain_of_the_send_that_announces_it() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        let at = qp.register(Memory::Sink(pool.take(4096))).unwrap();
        qp.post(send(&pool, 10, 28)).unwrap();
        while qp.progress() {}
        let invalidate = WorkRequest::Invalidate {
            wr: WrId(11),
            handle: at.handle,
        };
        qp.post(invalidate).unwrap();
        while qp.progress() {}
        let chains = fake.chains();
        let opcodes = |chain: &[PostedRequest]| -> Vec<i32> {
            chain.iter().map(|request| request.opcode).collect()
        };
        assert_eq!(opcodes(&chains[0]), [IBV_WR_BIND_MW, IBV_WR_SEND]);
        assert_eq!(opcodes(&chains[1]), [IBV_WR_LOCAL_INV]);
        // Memory has to come back.
        assert_eq!(with_flag(&chains[1], IBV_SEND_SIGNALED), [1]);
        fake.complete_send(IBV_WC_SUCCESS);
        fake.complete_send(IBV_WC_SUCCESS);
        assert!(matches!(next(&mut *qp).await, Completion::Send { .. }));
        match next(&mut *qp).await {
            Completion::Invalidate { invalidated, .. } => assert_eq!(invalidated.handle, at.handle),
            other => panic!("{other:?}"),
        }
        qp.close();
        until_closed(&mut *qp).await;
    });
}

/// irdma of rdma-core 32 to 43 sends the first of several pieces only.
#[test]
fn inline_data_is_one_piece() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        let head = |text: &[u8]| {
            let mut buffer = pool.take(text.len());
            buffer.extend_from_slice(text);
            buffer
        };
        let gather = |parts: &[&'static [u8]]| -> Gather {
            let parts = parts.iter().copied();
            parts.map(Bytes::from_static).collect()
        };
        let messages: [(&[u8], &[&[u8]]); 4] = [
            (b"head", &[]),
            (b"head", &[b" and", b"", b" rest"]),
            (b"", &[b"rest alone"]),
            (b"", &[b"rest", b" alone"]),
        ];
        for (text, rest) in messages {
            let request = WorkRequest::Send {
                wr: WrId(10),
                buffer: head(text),
                rest: gather(rest),
                invalidate: None,
            };
            qp.post(request).unwrap();
        }
        let write = WorkRequest::Write {
            wr: WrId(10),
            source: gather(&[b"a", b" source"]),
            to: RemoteAddress {
                handle: Handle(77),
                offset: 0,
            },
        };
        qp.post(write).unwrap();
        while qp.progress() {}
        let sent: Vec<_> = fake.inline_data();
        let sent: Vec<_> = sent
            .iter()
            .map(|data| str::from_utf8(data).unwrap())
            .collect();
        let whole = [
            "head",
            "head and rest",
            "rest alone",
            "rest alone",
            "a source",
        ];
        assert_eq!(sent, whole);
        let chains = fake.chains();
        assert!(chains.iter().flatten().all(|request| request.pieces == 1));
        qp.close();
        until_closed(&mut *qp).await;
    });
}
