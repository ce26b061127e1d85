//! Which connection is evicted for a new one.

use super::*;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    per_address: 48,
    in_setup: 32,
    idle_gives_way: false,
    hint: None,
};

/// A connection, and whether it was evicted.
struct Client {
    admitted: Admitted,
    evicted: Arc<AtomicBool>,
}

impl Client {
    fn is_evicted(&self) -> bool {
        self.evicted.load(SeqCst)
    }
}

fn addr(last: u8) -> IpAddr {
    [127, 0, 0, last].into()
}

fn arrive(admission: &Admission, from: IpAddr) -> Result<Client, Refused> {
    let evicted = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&evicted);
    let admitted = admission.admit(PeerGroup::of(from), move || tell.store(true, SeqCst))?;
    Ok(Client { admitted, evicted })
}

/// A connection that is set up and idle.
fn idle(admission: &Admission, from: IpAddr) -> Result<Client, Refused> {
    let mut client = arrive(admission, from)?;
    client.admitted.set_up();
    Ok(client)
}

/// A connection with a call in flight.
fn busy(admission: &Admission, from: IpAddr) -> Result<Client, Refused> {
    let mut client = idle(admission, from)?;
    assert!(client.admitted.set_use(Use::InUse));
    Ok(client)
}

/// Ends the connections that were evicted; how many that were.
fn reap(clients: &mut Vec<Client>) -> usize {
    let before = clients.len();
    clients.retain(|client| !client.is_evicted());
    before - clients.len()
}

#[test]
fn place_is_freed_when_its_connection_ends() {
    let admission = Admission::new(ConnectionLimits {
        connections: 2,
        ..LIMITS
    });
    let first = busy(&admission, addr(1)).expect("there is room");
    let _second = busy(&admission, addr(2)).expect("there is room");
    assert_eq!(admission.refused(), 0);
    assert_eq!(arrive(&admission, addr(3)).err(), Some(Refused::Full));
    assert_eq!(admission.refused(), 1);
    drop(first);
    assert!(arrive(&admission, addr(3)).is_ok());
    assert_eq!(admission.lock().groups.len(), 1, "groups that are gone");
}

#[test]
fn refusal_is_explained_with_the_limits_of_now_and_what_to_do() {
    let admission = Admission::new(ConnectionLimits::new(8, 4));
    let all = admission.explain(Refused::Full);
    assert_eq!(all, "too many connections: 8 are the limit");
    admission.set_limits(ConnectionLimits::new(6, 3).with_hint(Some("see --more")));
    assert_eq!(
        admission.explain(Refused::AddressFull),
        "too many connections from this address: 3 of 6 are its limit (see --more)"
    );
}

#[test]
fn address_has_no_more_than_its_share_however_it_is_written() {
    let admission = Admission::new(ConnectionLimits {
        per_address: 2,
        ..LIMITS
    });
    let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
    let _held = [addr(1), mapped].map(|addr| idle(&admission, addr).expect("there is room"));
    let refused = arrive(&admission, addr(1)).err();
    assert_eq!(refused, Some(Refused::AddressFull));
    assert!(arrive(&admission, addr(2)).is_ok());
    let neighbours = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
    let neighbours = neighbours.map(|addr| idle(&admission, addr.parse().expect("an address")));
    assert_eq!(
        neighbours.map(Result::err)[2..],
        [Some(Refused::AddressFull)]
    );
}

#[test]
fn silent_connections_of_one_address_give_way_before_their_setup_is_complete() {
    let admission = Admission::new(LIMITS);
    let mut silent = Vec::new();
    let mut evicted = 0;
    for _ in 0..512 {
        silent.extend(arrive(&admission, addr(1)));
        evicted += reap(&mut silent);
    }
    assert_eq!(silent.len(), LIMITS.in_setup, "bounded before MPA");
    assert_eq!(evicted, 512 - LIMITS.in_setup, "the oldest give way");
    let served: Vec<Client> = (2..22)
        .map(|last| busy(&admission, addr(last)).expect("a place"))
        .collect();
    assert!(!served.iter().any(Client::is_evicted));
}

#[test]
fn idle_connections_of_one_address_give_way_to_others() {
    let admission = Admission::new(ConnectionLimits {
        per_address: 64,
        ..LIMITS
    });
    let mut silent: Vec<Client> = (0..64)
        .map(|_| idle(&admission, addr(1)).expect("there is room"))
        .collect();
    let mut served = Vec::new();
    for last in 2..22 {
        served.push(busy(&admission, addr(last)).expect("a place"));
        assert_eq!(reap(&mut silent), 1);
        // It comes again, and has no place any more.
        assert!(idle(&admission, addr(1)).is_err());
    }
    assert!(!served.iter().any(Client::is_evicted));
}

#[test]
fn connection_that_has_been_idle_for_longest_gives_way_first() {
    let admission = Admission::new(ConnectionLimits {
        connections: 3,
        ..LIMITS
    });
    let [mut first, second, third] = [(); 3].map(|()| idle(&admission, addr(1)).expect("room"));
    assert!(first.admitted.set_use(Use::InUse));
    assert!(first.admitted.set_use(Use::Idle));
    let _new = arrive(&admission, addr(2)).expect("a place");
    assert_eq!(
        [&first, &second, &third].map(Client::is_evicted),
        [false, true, false]
    );
}

#[test]
fn connection_in_use_is_never_evicted() {
    let admission = Admission::new(ConnectionLimits {
        connections: 20,
        ..LIMITS
    });
    let mut busy: Vec<Client> = (0..19)
        .map(|_| busy(&admission, addr(1)).expect("there is room"))
        .collect();
    let idle = idle(&admission, addr(1)).expect("there is room");
    let _first = arrive(&admission, addr(2)).expect("a place");
    assert!(idle.is_evicted() && !busy.iter().any(Client::is_evicted));
    assert_eq!(arrive(&admission, addr(3)).err(), Some(Refused::Full));
    assert!(busy[7].admitted.set_use(Use::Idle));
    assert!(arrive(&admission, addr(3)).is_ok() && busy[7].is_evicted());
}

#[test]
fn evicted_connection_does_not_come_into_use() {
    let admission = Admission::new(ConnectionLimits {
        connections: 2,
        ..LIMITS
    });
    let mut first = idle(&admission, addr(1)).expect("there is room");
    let mut second = idle(&admission, addr(1)).expect("there is room");
    let _new = arrive(&admission, addr(2)).expect("a place");
    assert!(first.is_evicted());
    assert!(!first.admitted.set_use(Use::Idle));
    assert!(!first.admitted.set_use(Use::InUse));
    assert!(second.admitted.set_use(Use::InUse));
}

#[test]
fn connection_in_setup_gives_way_before_an_idle_one_of_its_address() {
    let admission = Admission::new(ConnectionLimits {
        connections: 3,
        ..LIMITS
    });
    let first = idle(&admission, addr(1)).expect("there is room");
    let second = arrive(&admission, addr(1)).expect("there is room");
    let third = idle(&admission, addr(1)).expect("there is room");
    let _new = arrive(&admission, addr(2)).expect("a place");
    assert_eq!(
        [&first, &second, &third].map(Client::is_evicted),
        [false, true, false]
    );
}

#[test]
fn many_in_setup_give_way_before_the_idle_ones_of_a_busier_address() {
    let admission = Admission::new(LIMITS);
    let idle: Vec<Client> = (0..40)
        .map(|_| idle(&admission, addr(1)).expect("there is room"))
        .collect();
    let mut silent: Vec<Client> = (0..24)
        .map(|_| arrive(&admission, addr(2)).expect("there is room"))
        .collect();
    for last in 3..3 + 8 {
        assert!(arrive(&admission, addr(last)).is_ok());
    }
    // One place was made, and given back each time.
    assert_eq!(reap(&mut silent), 1);
    assert!(!idle.iter().any(Client::is_evicted));
}

/// A client that makes a call on its connection, unless that was evicted.
fn calls(client: &mut Client) -> bool {
    client.admitted.set_use(Use::InUse) && client.admitted.set_use(Use::Idle)
}

#[test]
fn idle_connections_of_as_many_addresses_as_places_keep_no_other_out() {
    let admission = Admission::new(LIMITS);
    let many = u8::try_from(LIMITS.connections).unwrap();
    let mut silent: Vec<Client> = (0..many)
        .map(|last| idle(&admission, addr(last)).expect("there is room"))
        .collect();
    assert!(silent.iter_mut().all(calls), "each is renewed");
    let others: Vec<Client> = (many..many + 20)
        .map(|last| idle(&admission, addr(last)).expect("the longest idle gives way"))
        .collect();
    assert_eq!(reap(&mut silent), 20);
    assert!(
        silent.iter_mut().all(calls),
        "those idle for longest had to go"
    );
    assert!(!others.iter().any(Client::is_evicted));
}

#[test]
fn clients_that_make_calls_keep_their_places_from_many_addresses_that_hardly_do() {
    let admission = Admission::new(LIMITS);
    let mut honest: Vec<Client> = (0..20)
        .map(|last| idle(&admission, addr(last)).expect("there is room"))
        .collect();
    // More addresses than places come back whenever they are evicted, and renew now and then.
    let mut hostile: Vec<Option<Client>> = (20..200).map(|_| None).collect();
    for round in 0..20 {
        for (number, slot) in hostile.iter_mut().enumerate() {
            let stays = slot.as_ref().is_some_and(|client| !client.is_evicted());
            if !stays {
                *slot = None;
                let last = 20 + u8::try_from(number).unwrap();
                *slot = idle(&admission, addr(last)).ok();
            } else if (number + round) % 10 == 0 {
                slot.as_mut().map(calls);
            }
            if number % 20 == 0 {
                assert!(honest.iter_mut().all(calls), "{round}, {number}");
            }
        }
    }
}

#[test]
fn connection_in_setup_is_not_evicted_before_one_that_was_idle_when_it_came() {
    let admission = Admission::new(LIMITS);
    let mut silent: Vec<Client> = (0..64)
        .map(|last| idle(&admission, addr(last)).expect("there is room"))
        .collect();
    let setups: Vec<Client> = (64..64 + 20)
        .map(|last| arrive(&admission, addr(last)).expect("an idle one gives way"))
        .collect();
    assert_eq!(reap(&mut silent), 20);
    assert!(!setups.iter().any(Client::is_evicted));
}

#[test]
fn address_has_a_few_places_at_the_cost_of_addresses_with_fewer() {
    let admission = Admission::new(LIMITS);
    let mut silent: Vec<Client> = (0..64)
        .map(|last| idle(&admission, addr(last)).expect("there is room"))
        .collect();
    let _few: Vec<Client> = (0..FEW)
        .map(|_| busy(&admission, addr(100)).expect("an idle one gives way"))
        .collect();
    assert_eq!(reap(&mut silent), FEW);
    assert_eq!(arrive(&admission, addr(100)).err(), Some(Refused::Full));
    assert!(!silent.iter().any(Client::is_evicted));
}

#[test]
fn connections_of_one_client_do_not_evict_each_other_in_turns() {
    let admission = Admission::new(ConnectionLimits {
        connections: 2,
        ..LIMITS
    });
    let held = [(); 2].map(|()| idle(&admission, addr(1)).expect("there is room"));
    assert_eq!(arrive(&admission, addr(1)).err(), Some(Refused::Full));
    assert!(!held.iter().any(Client::is_evicted));
}

#[test]
fn connection_that_is_kept_for_calls_to_its_client_gives_way_when_no_other_is_idle() {
    let admission = Admission::new(ConnectionLimits {
        connections: 3,
        ..LIMITS
    });
    let [mut kept, mut used, idle] =
        [1, 2, 3].map(|last| idle(&admission, addr(last)).expect("there is room"));
    assert!(kept.admitted.set_use(Use::Kept));
    assert!(used.admitted.set_use(Use::InUse));
    let _first = busy(&admission, addr(4)).expect("an idle one gives way");
    assert!(idle.is_evicted() && !kept.is_evicted());
    assert!(kept.admitted.set_use(Use::Kept), "it is not yet evicted");
    let _second = busy(&admission, addr(5)).expect("it is not in use");
    assert!(kept.is_evicted() && !used.is_evicted());
    assert!(!kept.admitted.set_use(Use::Kept));
    assert_eq!(arrive(&admission, addr(6)).err(), Some(Refused::Full));
}

#[test]
fn evicted_connections_that_do_not_end_are_noticed() {
    let limits = ConnectionLimits {
        in_setup: 8,
        ..LIMITS
    };
    let admission = Admission::new(limits);
    let mut clients = Vec::new();
    while !admission.is_crowded() {
        clients.push(arrive(&admission, addr(1)).expect("a place"));
    }
    let leaving = reap(&mut clients);
    assert_eq!(leaving, limits.connections / LEAVING_PART + 1);
    assert!(!admission.is_crowded());
    drop(clients);
    let state = admission.lock();
    assert_eq!(
        (state.connections, state.in_setup, state.leaving),
        (0, 0, 0)
    );
}

#[test]
fn idle_connection_gives_way_to_any_other_where_it_may() {
    let limits = ConnectionLimits {
        connections: 4,
        per_address: 2,
        ..LIMITS
    };
    let admission = Admission::new(limits.with_idle_giving_way());
    let in_use = busy(&admission, addr(1)).expect("there is room");
    let idles: Vec<Client> = (2..5)
        .map(|last| idle(&admission, addr(last)).expect("there is room"))
        .collect();
    let newcomer = idle(&admission, addr(5)).expect("an idle one gives way");
    let evicted = idles.iter().map(Client::is_evicted);
    assert_eq!(evicted.collect::<Vec<_>>(), [true, false, false]);
    // An address that has all it may have gives up what it left idle itself.
    let second = busy(&admission, addr(5)).expect("an idle one gives way");
    assert!(idles[1].is_evicted());
    let third = busy(&admission, addr(5)).expect("an idle one gives way");
    assert!(newcomer.is_evicted() && !idles[2].is_evicted());
    assert_eq!(
        arrive(&admission, addr(5)).err(),
        Some(Refused::AddressFull)
    );
    assert!(!in_use.is_evicted() && !second.is_evicted() && !third.is_evicted());
}

#[test]
fn server_whose_connections_are_all_in_use_is_full() {
    let limits = ConnectionLimits {
        connections: 2,
        ..LIMITS
    };
    let admission = Admission::new(limits.with_idle_giving_way());
    let _in_use = [1, 2].map(|last| busy(&admission, addr(last)).expect("there is room"));
    assert_eq!(arrive(&admission, addr(3)).err(), Some(Refused::Full));
}

#[test]
fn smaller_limits_leave_connections_and_hold_for_new_ones() {
    let admission = Admission::new(LIMITS);
    let mut held: Vec<Client> = (1..=3)
        .map(|last| busy(&admission, addr(last)).expect("there is room"))
        .collect();
    admission.set_limits(ConnectionLimits {
        connections: 2,
        ..LIMITS
    });
    assert_eq!(reap(&mut held), 0);
    assert_eq!(arrive(&admission, addr(4)).err(), Some(Refused::Full));
    held.truncate(1);
    assert!(arrive(&admission, addr(4)).is_ok());
}

#[test]
fn few_places_are_not_kept_by_connections_in_setup_of_many_addresses() {
    let admission = Admission::new(ConnectionLimits::new(4, 2));
    let _used = [4, 5].map(|last| busy(&admission, addr(last)).unwrap());
    let waiting = [1, 2].map(|last| arrive(&admission, addr(last)).unwrap());
    let client = arrive(&admission, addr(6)).expect("half are for connections in setup");
    assert!(waiting[0].is_evicted() && !waiting[1].is_evicted());
    drop(waiting);
    drop(client);
    let _more = [1, 2].map(|last| busy(&admission, addr(last)).unwrap());
    assert_eq!(arrive(&admission, addr(6)).err(), Some(Refused::Full));
}

#[test]
fn address_with_few_places_does_not_keep_itself_out_by_connections_in_setup() {
    let admission = Admission::new(ConnectionLimits::new(8, 2));
    let waiting = [(); 2].map(|()| arrive(&admission, addr(1)).unwrap());
    let _client = arrive(&admission, addr(1)).expect("the oldest gives way");
    assert!(waiting[0].is_evicted() && !waiting[1].is_evicted());
}
