//! Memory that is exposed when a connection ends.

use super::Fake;
use super::scene::{connect, connected, open, run, until_closed};
use buffer::Pool;
use bytes::Bytes;
use verbs::{Access, Memory};

/// A device refuses to deregister a region with a window bound to it, which would stay, with its pages locked, until the
/// process ends.
#[test]
fn windows_go_before_the_regions_that_they_are_bound_to() {
    let fake = Fake::new();
    run(async {
        let pool = Pool::new(1 << 20);
        let mut qp = connected(&fake, &pool).await;
        let source = |length| Bytes::from(vec![7; length]);
        let exposed = [
            Memory::Source([source(5000)].into_iter().collect()),
            Memory::Source([source(3000), source(3000)].into_iter().collect()),
            Memory::Sink(pool.take(4096)),
            Memory::Persistent(Access::Write, pool.take(4096)),
        ];
        for memory in exposed {
            qp.register(memory).unwrap();
        }
        while qp.progress() {}
        // One is exposed, and its window not bound yet.
        let unbound = Memory::Source([source(2000)].into_iter().collect());
        qp.register(unbound).unwrap();
        drop(qp);
    });
    assert_eq!(fake.objects("memory region"), 0);
}

#[test]
fn copy_of_a_source_stays_until_the_queue_pair_is_destroyed() {
    let fake = Fake::new();
    run(async {
        let provider = open(&fake).unwrap();
        let mut qp = connect(&provider).await.unwrap().qp;
        let pieces = [Bytes::from_static(b"two"), Bytes::from_static(b"pieces")];
        qp.register(Memory::Source(pieces.into_iter().collect()))
            .unwrap();
        while qp.progress() {}
        let copies = provider.pool().stats().out;
        assert!(copies > 0, "there is no copy");
        fake.watch(provider.pool());
        qp.close();
        until_closed(&mut *qp).await;
        assert_eq!(fake.lent_at_the_end(), [copies]);
        assert_eq!(provider.pool().stats().out, 0);
    });
}
