//! One address that takes every connection it can get leaves clients at other addresses served.

use hostile_peer::{Heard, PROGRAM, Peer, Target, rpc, steady, wait_until, words};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Call, Caller, LocalUserError, LocalUsers, Origin, Reply, Service};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
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
    Target::configured(
        steady()
            .with_max_connections(PLACES)
            .with_max_connections_per_address(PLACES)
            // No silent connection ends by itself as long as the test takes.
            .with_setup_timeout(Duration::from_secs(300))
            .with_idle_timeout(None),
    )
}

/// Whether a call is answered.
fn is_served(peer: &mut Peer) -> bool {
    peer.send(&words(&rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 0))));
    matches!(peer.hear(), Heard::Message { .. })
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

/// Takes 127.0.N/24 for the addresses that user N of this machine uses, and 127.0.0/24 for those of
/// other machines.
#[derive(Debug)]
struct UserByNetwork;

impl LocalUsers for UserByNetwork {
    fn find(&self, _: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        Ok(match peer.ip() {
            IpAddr::V4(addr) if addr.octets()[2] > 0 => Origin::User(addr.octets()[2].into()),
            IpAddr::V4(_) | IpAddr::V6(_) => Origin::Remote,
        })
    }
}

#[test]
fn user_of_the_servers_machine_is_one_peer_whatever_address_it_uses() {
    let target = Target::configured(
        steady()
            .with_max_connections(PLACES)
            .with_max_connections_per_address(PLACES / 2)
            .with_local_users(Arc::new(UserByNetwork))
            .with_idle_timeout(None),
    );
    let held: Vec<Peer> = (0..ATTEMPTS)
        .filter_map(|number| {
            let last = u8::try_from(number % 250).unwrap();
            let mut peer = Peer::connect_from([127, 0, 1, last].into(), target.addr())?;
            is_served(&mut peer).then_some(peer)
        })
        .collect();
    assert_eq!(held.len(), PLACES / 2);
    let mut other = Peer::connect_from([127, 0, 2, 1].into(), target.addr()).unwrap();
    assert!(is_served(&mut other), "another user has a part of its own");
    target.assert_serves();
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
fn idle_connections_of_as_many_addresses_as_places_leave_others_served() {
    let target = target();
    // Our own client has one place.
    let mut held: Vec<Peer> = (1..PLACES)
        .map(|number| {
            let from = [127, 0, 3, u8::try_from(number).unwrap()];
            Peer::connect_from(from.into(), target.addr()).expect("there is room")
        })
        .collect();
    assert!(held.iter_mut().all(is_served), "each is renewed");
    target.assert_serves();
    assert_others_are_served(&target);
    drop(held);
    target.assert_baseline();
}

#[test]
fn silent_connections_that_reconnect_leave_others_served() {
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
            wait_until(|| made.load(SeqCst) >= ATTEMPTS);
            let before = made.load(SeqCst);
            assert_others_are_served(&target);
            assert!(made.load(SeqCst) > before, "the attack goes on");
        });
        target.assert_baseline();
    }
}

/// A service whose procedure 1 takes until it is released; what else is called is answered at once.
#[derive(Clone, Default)]
struct Holding {
    called: Arc<AtomicUsize>,
    released: Arc<(Mutex<bool>, Condvar)>,
}

impl Holding {
    fn release(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }
}

impl Service for Holding {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let call = match Call::parse(call, caller) {
            Ok(call) => call,
            Err(reply) => return Answer::Now(reply),
        };
        if call.proc == 0 {
            return Answer::Now(call.void());
        }
        self.called.fetch_add(1, SeqCst);
        let released = Arc::clone(&self.released);
        Answer::Blocking(Box::new(move || {
            let (released, wake) = &*released;
            let guard = released.lock().unwrap();
            drop(wake.wait_while(guard, |released| !*released).unwrap());
            Reply::Message(call.into_success().finish())
        }))
    }
}

/// Ends the calls that are held also when an assertion fails.
struct ReleaseOnDrop(Holding);

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[test]
fn connection_with_a_call_in_flight_keeps_its_place() {
    const FEW: usize = 8;
    let service = Holding::default();
    let config = steady()
        .with_max_connections(FEW)
        .with_max_connections_per_address(FEW)
        .with_idle_timeout(None);
    let target = Target::of_configured(config, service.clone(), PROGRAM, 2);
    let _released = ReleaseOnDrop(service.clone());
    let mut busy = Peer::connect_from(ATTACKER, target.addr()).expect("there is room");
    busy.send(&words(&rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 1))));
    wait_until(|| service.called.load(SeqCst) > 0);
    // All others are idle; our own client has one place.
    let idle: Vec<Peer> = (2..FEW)
        .map(|_| after_a_call(target.addr()).expect("there is room"))
        .collect();
    let mut others = Vec::new();
    for number in 0..idle.len() {
        let from = Ipv4Addr::from([127, 0, 1, u8::try_from(number).unwrap()]);
        let mut peer = Peer::connect_from(from, target.addr()).expect("in place of an idle one");
        assert!(is_served(&mut peer));
        others.push(peer);
    }
    for mut peer in idle {
        peer.assert_closed();
    }
    // Every address has one now. That of our own client has been idle for longest.
    let mut last = Peer::connect_from([127, 0, 2, 1].into(), target.addr()).expect("in its place");
    assert!(is_served(&mut last));
    service.release();
    assert_eq!(busy.answer()[0], XID);
    assert!(others.iter_mut().all(is_served));
}
