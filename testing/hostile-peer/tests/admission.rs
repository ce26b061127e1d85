//! One address that takes every connection it can get leaves clients at other addresses served.

use hostile_peer::{PROGRAM, Peer, Target, quick, rpc, words};
use rpcrdma::ServerConfig;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const XID: u32 = 0x00ad_3155;

/// Connections that the attacker makes.
const ATTEMPTS: usize = 512;

/// Connections that the server has, all of which one address may have.
const PLACES: usize = 64;

/// Clients at addresses of their own.
const CLIENTS: u8 = 20;

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn target() -> Target {
    Target::configured(ServerConfig {
        max_connections: PLACES,
        max_connections_per_address: PLACES,
        // No silent connection ends by itself as long as the test takes.
        setup_timeout: Duration::from_secs(300),
        idle_timeout: None,
        ..quick()
    })
}

/// Whether a call is answered.
fn is_served(peer: &mut Peer) -> bool {
    peer.send(&words(&rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 0))));
    matches!(peer.hear(), hostile_peer::Heard::Message { .. })
}

/// A silent connection of the attacker, if it gets one.
type Silent = fn(SocketAddr) -> Option<Peer>;

fn before_mpa(to: SocketAddr) -> Option<Peer> {
    Some(Peer::silent_from(ATTACKER, to))
}

fn after_mpa(to: SocketAddr) -> Option<Peer> {
    Peer::connect_from(ATTACKER, to)
}

fn after_a_call(to: SocketAddr) -> Option<Peer> {
    let mut peer = Peer::connect_from(ATTACKER, to)?;
    is_served(&mut peer).then_some(peer)
}

/// Asserts that one client at each of 20 other addresses is served, and goes on being served.
#[track_caller]
fn assert_others_are_served(target: &Target) {
    let mut clients: Vec<Peer> = (0..CLIENTS)
        .filter_map(|number| Peer::connect_from([127, 0, 1, number].into(), target.addr()))
        .collect();
    for _ in 0..2 {
        let served = clients.iter_mut().map(is_served).filter(|&served| served);
        assert_eq!(served.count(), usize::from(CLIENTS));
    }
    target.assert_serves();
}

/// Sets this when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[track_caller]
fn check(silent: Silent) {
    let target = target();
    let held: Vec<Peer> = (0..ATTEMPTS)
        .filter_map(|_| silent(target.addr()))
        .collect();
    assert!(held.len() >= PLACES / 2, "{} got a connection", held.len());
    assert_others_are_served(&target);
    drop(held);
    target.assert_baseline();
}

#[test]
fn silent_connections_before_mpa_leave_others_served() {
    check(before_mpa);
}

#[test]
fn silent_connections_after_mpa_leave_others_served() {
    check(after_mpa);
}

#[test]
fn silent_connections_after_one_call_leave_others_served() {
    check(after_a_call);
}

#[test]
fn silent_connections_that_are_made_anew_leave_others_served() {
    for silent in [before_mpa as Silent, after_mpa, after_a_call] {
        let target = target();
        let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut held = VecDeque::new();
                while !stop.load(SeqCst) {
                    held.extend(silent(target.addr()));
                    if held.len() > PLACES {
                        held.pop_front();
                    }
                    made.fetch_add(1, SeqCst);
                }
            });
            // The attack ends also when an assertion fails.
            let _ends = OnDrop(&stop);
            while made.load(SeqCst) < ATTEMPTS {
                std::thread::yield_now();
            }
            let before = made.load(SeqCst);
            assert_others_are_served(&target);
            assert!(made.load(SeqCst) > before, "the attack goes on");
        });
        target.assert_baseline();
    }
}
