//! Source ports of upstream connections, kept for clients that come back.
//!
//! Servers key their duplicate request caches on the address and port of a connection. A client that
//! reconnects and repeats a call gets its cached reply only if its new upstream connection has the
//! source port of the last one.

use oncrpc::PeerGroup;
use rpc_serving::by_address::ByAddress;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest number of source ports kept for clients that may come back.
const MAX_KEPT_PORTS: usize = 4096;

/// Largest number of source ports kept for clients of one address: many clients may share that of
/// another gateway.
const MAX_KEPT_PORTS_OF_ADDRESS: usize = MAX_KEPT_PORTS / 4;

/// Largest number of source ports kept for one client.
const MAX_KEPT_PORTS_OF_CLIENT: usize = 16;

/// The machine name in AUTH_SYS, which tells apart clients that share an address, once a call of the
/// connection has had one. The first call of a client often is NULL with AUTH_NONE.
pub(crate) type MachineName = Arc<OnceLock<Box<[u8]>>>;

/// Table of the source ports that no connection uses at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Ports by address, in the order in which they were kept.
    kept: ByAddress<Vec<Kept>>,
    /// Addresses in the order in which their ports were kept, once for each port.
    order: VecDeque<PeerGroup>,
}

#[derive(Debug)]
struct Kept {
    machine: Option<Box<[u8]>>,
    port: u16,
}

/// A source port of one connection. Dropping it keeps the port for the next connection of the same
/// client.
#[derive(Debug, Default)]
pub(crate) struct Lease(Option<Leased>);

#[derive(Debug)]
struct Leased {
    ports: Ports,
    group: PeerGroup,
    machine: MachineName,
    port: Option<u16>,
}

impl Ports {
    /// Takes the port of the last connection of a client that has ended, if one is kept. A client
    /// without a machine name so far may have one that is the only one of its address.
    pub(crate) fn lease(&self, group: PeerGroup, machine: MachineName) -> Lease {
        let name = machine.get().map(|name| &**name);
        let port = self.lock().take(group, name);
        Lease(Some(Leased {
            ports: self.clone(),
            group,
            machine,
            port,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, group: PeerGroup, machine: Option<&[u8]>) -> Option<u16> {
        let kept = self.kept.get(group)?;
        let same = |kept: &Kept| kept.machine.as_deref() == machine;
        let only = (machine.is_none() && kept.len() == 1).then_some(0);
        let at = kept.iter().rposition(same).or(only)?;
        Some(self.remove(group, at)?.port)
    }

    /// Removes the port at this place among those of its address.
    fn remove(&mut self, group: PeerGroup, at: usize) -> Option<Kept> {
        let all = self.order.iter().enumerate();
        let (place, _) = all.filter(|(_, of)| **of == group).nth(at)?;
        self.order.remove(place);
        Some(self.kept.change(group, |kept| kept.remove(at)))
    }

    fn keep(&mut self, group: PeerGroup, machine: Option<Box<[u8]>>, port: u16) {
        let kept = self.kept.get(group).into_iter().flatten();
        let same = kept.filter(|kept| kept.machine == machine);
        if same.count() >= MAX_KEPT_PORTS_OF_CLIENT {
            return;
        }
        let of_address = self.kept.change(group, |kept| {
            kept.push(Kept { machine, port });
            kept.len()
        });
        self.order.push_back(group);
        if of_address > MAX_KEPT_PORTS_OF_ADDRESS {
            self.remove(group, 0);
        } else if self.order.len() > MAX_KEPT_PORTS
            && let Some(&oldest) = self.order.front()
        {
            self.remove(oldest, 0);
        }
    }
}

impl Lease {
    pub(crate) fn port(&self) -> Option<u16> {
        self.0.as_ref().and_then(|leased| leased.port)
    }

    /// Records the port that the connection got.
    pub(crate) fn set(&mut self, port: u16) {
        if let Some(leased) = &mut self.0 {
            leased.port = Some(port);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Leased {
            ports,
            group,
            machine,
            port: Some(port),
        }) = self.0.take()
        {
            ports.lock().keep(group, machine.get().cloned(), port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> PeerGroup {
        let number = u32::try_from(number).expect("a small number");
        PeerGroup::of(std::net::IpAddr::from(number.to_be_bytes()))
    }

    fn named(machine: &[u8]) -> MachineName {
        let name = MachineName::default();
        name.set(machine.into()).expect("it is new");
        name
    }

    fn lease(ports: &Ports, number: usize, machine: &[u8]) -> Lease {
        ports.lease(address(number), named(machine))
    }

    fn use_port(ports: &Ports, number: usize, machine: &[u8], port: u16) {
        lease(ports, number, machine).set(port);
    }

    #[test]
    fn client_that_comes_back_gets_its_last_port_and_another_one_does_not() {
        let ports = Ports::default();
        use_port(&ports, 1, b"a", 700);
        let first = lease(&ports, 1, b"a");
        assert_eq!(first.port(), Some(700));
        assert_eq!(lease(&ports, 1, b"a").port(), None, "it is in use");
        assert_eq!(lease(&ports, 1, b"b").port(), None);
        assert_eq!(lease(&ports, 2, b"a").port(), None);
        drop(first);
        assert_eq!(lease(&ports, 1, b"a").port(), Some(700));
    }

    #[test]
    fn client_that_says_its_name_later_comes_back_with_it() {
        let ports = Ports::default();
        let name = MachineName::default();
        let mut first = ports.lease(address(1), Arc::clone(&name));
        first.set(700);
        name.set(b"a".as_slice().into()).expect("it is new");
        drop(first);
        assert_eq!(lease(&ports, 1, b"b").port(), None);
        assert_eq!(lease(&ports, 1, b"a").port(), Some(700));
    }

    #[test]
    fn client_without_a_name_gets_the_only_port_of_its_address() {
        let ports = Ports::default();
        let nameless = || ports.lease(address(1), MachineName::default()).port();
        use_port(&ports, 1, b"a", 700);
        use_port(&ports, 1, b"b", 701);
        assert_eq!(nameless(), None, "it may be either");
        assert_eq!(lease(&ports, 1, b"b").port(), Some(701));
        use_port(&ports, 2, b"a", 800);
        let port = ports.lease(address(2), MachineName::default()).port();
        assert_eq!(port, Some(800));
    }

    #[test]
    fn number_of_kept_ports_is_bounded() {
        let ports = Ports::default();
        let many = MAX_KEPT_PORTS + 10;
        for number in 0..many {
            use_port(&ports, number, b"", 700);
        }
        assert_eq!(lease(&ports, 0, b"").port(), None, "the oldest went");
        assert_eq!(lease(&ports, many - 1, b"").port(), Some(700));
        let table = ports.lock();
        assert!(table.order.len() <= MAX_KEPT_PORTS && table.kept.len() <= MAX_KEPT_PORTS);
    }

    #[test]
    fn one_client_keeps_few_ports() {
        let ports = Ports::default();
        let leases: Vec<Lease> = (1..100)
            .map(|port| {
                let mut lease = lease(&ports, 1, b"");
                lease.set(port);
                lease
            })
            .collect();
        drop(leases);
        let table = ports.lock();
        assert_eq!(
            table.kept.get(address(1)).map_or(0, Vec::len),
            MAX_KEPT_PORTS_OF_CLIENT
        );
        assert_eq!(table.order.len(), MAX_KEPT_PORTS_OF_CLIENT);
    }

    #[test]
    fn address_with_many_names_forgets_its_own_ports_only() {
        let ports = Ports::default();
        use_port(&ports, 2, b"other", 900);
        for number in 0..2 * MAX_KEPT_PORTS {
            use_port(&ports, 1, &number.to_be_bytes(), 700);
        }
        assert_eq!(
            ports.lock().kept.get(address(1)).map_or(0, Vec::len),
            MAX_KEPT_PORTS_OF_ADDRESS
        );
        assert_eq!(ports.lock().order.len(), MAX_KEPT_PORTS_OF_ADDRESS + 1);
        assert_eq!(lease(&ports, 2, b"other").port(), Some(900));
    }
}
