//! Two connections over a simulated fabric, and one connection against a peer driven by hand.

#![allow(clippy::cast_possible_truncation)]

mod backward;
mod calls;
mod characteristics;
mod chunks;
mod credits;
mod designs;
mod ietf07;
mod invalidation;
mod lone;
mod malformed;
mod one_region;
mod owner;
mod pair;
mod random;
mod replies;
mod several;
mod tight;
mod versions;
mod waiting;
mod xids;

use crate::v2::Dialect;
use crate::{
    Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role,
    Unfinished, Versions, Xids,
};
use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use oncrpc::ReplyBound;
use oncrpc::xdr;
use oncrpc::xdr::{Payload, Writer};
use owner::{CallToken, TestOwner};

type Connection = crate::Connection<TestOwner>;
type Event = crate::Event<TestOwner>;
type CallId = crate::CallId<owner::Lease>;
type CallRequest = crate::CallRequest<CallToken>;

/// How one end is set up in a test.
fn config(role: Role) -> Config {
    Config {
        role,
        versions: Versions::One,
        dialect: Dialect::Cel01,
        xids: Xids::starting_at(0x8000_0000),
        characteristics: Characteristics::default(),
        own: PrivateData {
            send: InlineThreshold::DEFAULT,
            receive: InlineThreshold::DEFAULT,
            remote_invalidation: true,
        },
        credits: 8,
        first_grant: 0,
        backward_credits: 4,
        reserve_credit: false,
        max_chunk: 1 << 20,
        max_segment: 0,
        registrations: Registrations::OF_CALLS,
        persistent: None,
        one_region: false,
        receives: Receives::Posted,
        pool: Pool::new(1 << 20),
    }
}

/// Makes a statement about each version. It says which one it was not true of.
fn in_each_version(statement: impl Fn(Versions)) {
    struct Spoken(Versions);
    impl Drop for Spoken {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("it does not hold where {:?} is spoken", self.0);
            }
        }
    }
    for versions in [Versions::One, Versions::Two] {
        let _spoken = Spoken(versions);
        statement(versions);
    }
}

/// Bytes that differ from place to place.
fn bytes(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// A message with this XID and direction, a fixed part, and items with something behind each.
fn message(xid: u32, direction: u32, fixed: usize, items: &[usize]) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(64));
    w.u32(xid);
    w.u32(direction);
    w.opaque(&bytes(fixed));
    for &len in items {
        w.item(Gather::from_elem(bytes(len), 1));
        w.u32(0xfeed);
    }
    w.finish()
}

fn call(xid: u32, fixed: usize, items: &[usize]) -> Payload {
    message(xid, 0, fixed, items)
}

fn reply(xid: u32, fixed: usize, items: &[usize]) -> Payload {
    message(xid, 1, fixed, items)
}

/// The whole stream of a message.
fn stream(message: &Payload) -> Vec<u8> {
    let mut out = Buffer::default();
    message.copy_stream_into(&mut out);
    out.to_vec()
}

fn bound(fixed: usize, results: &[usize]) -> ReplyBound {
    ReplyBound {
        fixed,
        results: results.into(),
    }
}

fn request(xid: u32, message: Payload, bound: ReplyBound) -> CallRequest {
    CallRequest::new(CallToken(u64::from(xid)), message, bound)
}

/// A received reply in full: fixed part and items as they were made by [`reply`].
fn check_reply(received: &Payload, xid: u32, fixed: usize, items: &[usize]) {
    let mut r = xdr::Reader::from(received);
    assert_eq!(r.u32(), Ok(xid));
    assert_eq!(r.u32(), Ok(1));
    assert_eq!(r.opaque(1 << 20), Ok(&bytes(fixed)[..]));
    for &len in items {
        let item = r.item(1 << 20).expect("the item is there");
        assert_eq!(item.to_vec(), bytes(len), "item of {len}");
        assert_eq!(r.u32(), Ok(0xfeed));
    }
    r.finish().expect("nothing is left");
}
