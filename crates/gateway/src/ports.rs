//! Source ports of upstream connections, kept for clients that come back.
//!
//! Servers key their duplicate request caches on the address and port of a connection. A client that
//! reconnects and repeats a call gets its cached reply only if its new upstream connection has the
//! source port of the last one.

use oncrpc::PeerGroup;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of source ports kept for clients that may come back.
const MAX_KEPT_PORTS: usize = 4096;

/// Largest number of source ports kept for one client.
const MAX_KEPT_PORTS_OF_CLIENT: usize = 16;

/// A client as far as it can be recognised: its address, and its machine name in AUTH_SYS, since
/// several clients may share an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    pub(crate) group: PeerGroup,
    pub(crate) machine: Option<Box<[u8]>>,
}

/// Table of the source ports that no connection uses at present.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Ports by client; the last one was used last.
    kept: HashMap<ClientKey, Vec<u16>>,
    /// Clients in the order in which their ports were kept, once for each port.
    order: VecDeque<ClientKey>,
}

/// A source port of one connection. Dropping it keeps the port for the next connection of the same
/// client.
#[derive(Debug, Default)]
pub(crate) struct Lease(Option<Leased>);

#[derive(Debug)]
struct Leased {
    ports: Ports,
    client: ClientKey,
    port: Option<u16>,
}

impl Ports {
    /// Takes the port of the last connection of a client that has ended, if one is kept.
    pub(crate) fn lease(&self, client: ClientKey) -> Lease {
        let port = self.lock().take(&client);
        Lease(Some(Leased {
            ports: self.clone(),
            client,
            port,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take(&mut self, client: &ClientKey) -> Option<u16> {
        let ports = self.kept.get_mut(client)?;
        let port = ports.pop()?;
        if ports.is_empty() {
            self.kept.remove(client);
        }
        if let Some(at) = self.order.iter().rposition(|key| key == client) {
            self.order.remove(at);
        }
        Some(port)
    }

    fn keep(&mut self, client: ClientKey, port: u16) {
        let ports = self.kept.entry(client.clone()).or_default();
        if ports.len() >= MAX_KEPT_PORTS_OF_CLIENT {
            return;
        }
        ports.push(port);
        self.order.push_back(client);
        if self.order.len() > MAX_KEPT_PORTS
            && let Some(oldest) = self.order.pop_front()
            && let Some(ports) = self.kept.get_mut(&oldest)
        {
            ports.remove(0);
            if ports.is_empty() {
                self.kept.remove(&oldest);
            }
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
            client,
            port: Some(port),
        }) = self.0.take()
        {
            ports.lock().keep(client, port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32, machine: &[u8]) -> ClientKey {
        ClientKey {
            group: PeerGroup::of(std::net::IpAddr::from(number.to_be_bytes())),
            machine: Some(machine.into()),
        }
    }

    fn use_port(ports: &Ports, client: ClientKey, port: u16) {
        ports.lease(client).set(port);
    }

    #[test]
    fn client_that_comes_back_gets_its_last_port_and_another_one_does_not() {
        let ports = Ports::default();
        use_port(&ports, client(1, b"a"), 700);
        let first = ports.lease(client(1, b"a"));
        assert_eq!(first.port(), Some(700));
        assert_eq!(ports.lease(client(1, b"a")).port(), None, "it is in use");
        assert_eq!(ports.lease(client(1, b"b")).port(), None);
        assert_eq!(ports.lease(client(2, b"a")).port(), None);
        drop(first);
        assert_eq!(ports.lease(client(1, b"a")).port(), Some(700));
    }

    #[test]
    fn number_of_kept_ports_is_bounded() {
        let ports = Ports::default();
        let many = u32::try_from(MAX_KEPT_PORTS).expect("a small number") + 10;
        for number in 0..many {
            use_port(&ports, client(number, b""), 700);
        }
        assert_eq!(ports.lease(client(0, b"")).port(), None, "the oldest went");
        assert_eq!(ports.lease(client(many - 1, b"")).port(), Some(700));
        let table = ports.lock();
        assert!(table.order.len() <= MAX_KEPT_PORTS && table.kept.len() <= MAX_KEPT_PORTS);
    }

    #[test]
    fn one_client_keeps_few_ports() {
        let ports = Ports::default();
        let leases: Vec<Lease> = (1..100)
            .map(|port| {
                let mut lease = ports.lease(client(1, b""));
                lease.set(port);
                lease
            })
            .collect();
        drop(leases);
        let table = ports.lock();
        assert_eq!(table.kept[&client(1, b"")].len(), MAX_KEPT_PORTS_OF_CLIENT);
        assert_eq!(table.order.len(), MAX_KEPT_PORTS_OF_CLIENT);
    }
}
