//! A server of version one that does with each call what a test says.

use hostile_peer::{Heard, Peer, as_words, rpc, words};
use std::net::TcpListener;

/// Treatment of a call. Calls that are held are answered with the next one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    /// Answer it, and what is held.
    Answer,
    /// Answer it later.
    Hold,
    /// Say nothing.
    Ignore,
    /// Answer it, and end the connection.
    AnswerAndEnd,
}

/// Calls of NULL that are allowed to be in flight.
const CREDITS: u32 = 8;

/// A server that asks what to do with each call, which has a number from 1 on, and where it listens. It ends
/// with the process.
pub(crate) fn server(mut what: impl FnMut(usize) -> Do + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut calls = 0;
        loop {
            let mut peer = Peer::accept(&listener);
            let mut held = Vec::new();
            while let Heard::Message { bytes, .. } = peer.hear() {
                calls += 1;
                let done = what(calls);
                let xid = as_words(&bytes)[0];
                match done {
                    Do::Ignore => continue,
                    Do::Hold | Do::Answer | Do::AnswerAndEnd => held.push(xid),
                }
                if done == Do::Hold {
                    continue;
                }
                for xid in held.drain(..) {
                    let reply = rpc::accepted(xid, rpc::accept::SUCCESS, &[]);
                    peer.send(&words(&rpc::msg(xid, CREDITS, &reply)));
                }
                if done == Do::AnswerAndEnd {
                    peer.hang_up();
                }
            }
        }
    });
    addr
}
