//! A peer that can send anything, and a real server and client for it to attack. For tests only.
//!
//! [`Peer`] speaks iWARP over a plain TCP socket with the frames of `conform`: it shares nothing with the
//! crates it is used against, so that a mistake made there is not made here once more. It can be
//! exactly as wrong as a test wants: at MPA, at DDP and RDMAP, in the transport header and in the
//! RPC message. Messages are written down as words, and answers are compared word by word.
//!
//! [`Poster`] posts work requests instead, and so is a peer over any provider, RDMA hardware among them: it can be wrong
//! in its messages, in the memory that they name, and in its use of the server's.
//!
//! [`Target`] is an `rpcrdma::Server` over `verbs-iwarp` on loopback, with a client that behaves:
//! after each attack it must still be served, and of the attacker nothing must be left. [`Victim`] is
//! the other way round: a client, whose server is a [`Peer`]; [`Scene`] is such a client with a call
//! on its way. [`Counting`] is a [`Peer`] of ietf-07, where credits count messages. [`BackwardTarget`] is a server that calls its clients. [`ATTACKS`] and [`ATTACKS_OF_IETF07`] list what is
//! tried, and which tests try it.

mod attacks;
mod attacks_of_ietf07;
mod backward;
mod counting;
mod peer;
mod poster;
mod scene;
mod target;
mod victim;

use std::time::{Duration, Instant};

pub use attacks::{ATTACKS, Attack, Side};
pub use attacks_of_ietf07::ATTACKS_OF_IETF07;
pub use backward::BackwardTarget;
pub use conform::header::Version;
pub use conform::iwarp::{Cause, Heard, Request, Segment, opcode, private_data};
pub use conform::{as_words, header, ietf07, rpc, words};
pub use counting::{Counting, null};
pub use peer::{Peer, framed};
pub use poster::{Poster, Told};
pub use scene::{Scene, assert_goes_on};
pub use target::{PROGRAM, Target, procedure, quick, steady};
pub use victim::{
    Calling, Offered, Victim, connect_to, connect_to_nobody, connect_within, offer_to, offering,
};

/// How long [`wait_until`] waits.
const SOON: Duration = Duration::from_secs(60);

/// Waits for something that should come soon.
///
/// # Panics
///
/// If it does not come within a minute.
#[track_caller]
pub fn wait_until(reached: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !reached() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}
