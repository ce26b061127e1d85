//! Registers NFS, NFSACL and MOUNT with rpcbind.

use crate::addresses::binds_ipv6_only;
use crate::listen;
use anyhow::Context;
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3, NFSACL_PROGRAM, NFSACL_V3};
use oncrpc::{Chain, Transport};
use oncrpc_tcp::rpcbind::{NetId, Registration, Rpcbind, RpcbindError};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long rpcbind may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Context of the error if rpcbind does not answer.
const NO_RPCBIND: &str =
    "cannot register with rpcbind: start it, or leave --rpcbind (rpcbind = true) out";

/// Registrations that this process has made and removes at its end.
#[derive(Debug)]
pub(crate) struct Registered {
    rpcbind: Rpcbind<oncrpc_tcp::Client>,
    entries: Vec<Registration>,
}

impl Registered {
    /// Registers these.
    ///
    /// # Errors
    ///
    /// If rpcbind is not running or refuses; then nothing stays registered.
    pub(crate) async fn of(entries: &[Registration]) -> anyhow::Result<Self> {
        let rpcbind = Rpcbind::local(DEADLINE).await.context(NO_RPCBIND)?;
        let mut registered = Self {
            rpcbind,
            entries: Vec::new(),
        };
        for entry in entries {
            match register(&registered.rpcbind, entry, entries).await {
                Ok(()) => registered.entries.push(*entry),
                Err(error) => {
                    registered.remove().await;
                    return Err(error);
                }
            }
        }
        Ok(registered)
    }

    /// Finds out whether these could be registered, without doing so. What is registered for something that `is_replaced` is
    /// no obstacle, and returned.
    ///
    /// # Errors
    ///
    /// If rpcbind is not running, or has registrations of somebody else.
    pub(crate) async fn try_out(
        entries: &[Registration],
        is_replaced: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<BTreeSet<SocketAddr>> {
        let rpcbind = Rpcbind::local(DEADLINE).await.context(NO_RPCBIND)?;
        let mut replaced = BTreeSet::new();
        for entry in entries {
            replaced.extend(check_free(&rpcbind, entry, entries, &is_replaced).await?);
        }
        Ok(replaced)
    }

    /// Registers again what rpcbind has lost, as it does when it starts anew. Says so; one that does not answer is asked again
    /// later.
    pub(crate) async fn renew(&mut self) {
        let Ok(rpcbind) = Rpcbind::local(DEADLINE).await else {
            return;
        };
        self.rpcbind = rpcbind;
        for entry in &self.entries {
            match renew(&self.rpcbind, entry, &self.entries).await {
                Ok(true) => {
                    tracing::info!(
                        entry = shown(entry),
                        "registered again: rpcbind had lost it"
                    );
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(
                    entry = shown(entry),
                    error = format!("{error:#}"),
                    "cannot register again"
                ),
            }
        }
    }

    /// Removes the registrations. What cannot be removed is logged: nobody can do more.
    pub(crate) async fn remove(self) {
        for entry in &self.entries {
            match self.rpcbind.unset(entry).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(
                    entry = shown(entry),
                    "the registration was not ours any more"
                ),
                Err(error) => tracing::warn!(
                    entry = shown(entry),
                    error = %Chain(&error),
                    "cannot remove a registration"
                ),
            }
        }
    }
}

/// A registration as `rpcinfo` shows it.
fn shown(entry: &Registration) -> String {
    let Registration {
        prog,
        vers,
        netid,
        addr,
    } = entry;
    format!("program {prog} version {vers} {netid} {addr}")
}

/// Registers one of these programs.
///
/// What is registered at the very port where we listen, or where nothing listens, was left there by a server that crashed:
/// it is replaced. Anything else belongs to another server.
async fn register<T: Transport>(
    rpcbind: &Rpcbind<T>,
    entry: &Registration,
    all: &[Registration],
) -> anyhow::Result<()> {
    let refused = match rpcbind.set(entry).await {
        Err(refused @ RpcbindError::Refused { .. }) => refused,
        set => return Ok(set?),
    };
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let found = rpcbind.find(prog, vers, netid).await?;
    let is_ours = match found {
        Some(found) if found.port() == entry.addr.port() => true,
        Some(found) => is_left_over(rpcbind, found, all).await?,
        None => false,
    };
    // rpcbind removes only what the same user has registered.
    if is_ours && rpcbind.unset(entry).await? {
        return Ok(rpcbind.set(entry).await?);
    }
    Err(refused).with_context(|| registered_already(entry, found))
}

/// Whether what is registered at this address was left there by a server that ended without removing it: nothing listens
/// there, nor where MOUNT over TCP is registered. A server of this program has that as long as it runs; that of an RDMA
/// device cannot be tried out.
async fn is_left_over<T: Transport>(
    rpcbind: &Rpcbind<T>,
    found: SocketAddr,
    ours: &[Registration],
) -> anyhow::Result<bool> {
    let is_ours = |addr: SocketAddr| ours.iter().any(|our| our.addr.port() == addr.port());
    let is_free = |addr| is_ours(addr) || listen::try_out(addr).is_ok();
    if !is_free(found) {
        return Ok(false);
    }
    for netid in [NetId::Tcp, NetId::Tcp6] {
        let mount = rpcbind.find(MOUNT_PROGRAM, MOUNT_V3, netid).await?;
        if mount.is_some_and(|addr| !is_free(addr)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Registers one of these programs if nobody has. Returns whether that was so.
async fn renew<T: Transport>(
    rpcbind: &Rpcbind<T>,
    entry: &Registration,
    all: &[Registration],
) -> anyhow::Result<bool> {
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let is_lost = rpcbind.find(prog, vers, netid).await?.is_none();
    if is_lost {
        register(rpcbind, entry, all).await?;
    }
    Ok(is_lost)
}

/// Checks that one of these programs is not registered by another server. Returns what it is registered for if that is
/// replaced.
async fn check_free<T: Transport>(
    rpcbind: &Rpcbind<T>,
    entry: &Registration,
    all: &[Registration],
    is_replaced: impl Fn(SocketAddr) -> bool,
) -> anyhow::Result<Option<SocketAddr>> {
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let found = rpcbind.find(prog, vers, netid).await?;
    let Some(other) = found.filter(|found| found.port() != entry.addr.port()) else {
        return Ok(None);
    };
    if is_replaced(other) {
        return Ok(Some(other));
    }
    match is_left_over(rpcbind, other, all).await? {
        true => Ok(None),
        false => Err(anyhow::Error::msg(registered_already(entry, Some(other)))),
    }
}

/// Error for a program that is registered already, at this address if that is known.
fn registered_already(entry: &Registration, found: Option<SocketAddr>) -> String {
    let at = found.map_or(String::new(), |found| format!(", for {found}"));
    format!(
        "cannot register with rpcbind{at}: another server of this machine is registered. Leave --rpcbind (rpcbind = true) \
         out, and name the ports in `mount`; or, if no such server runs any more, remove it as root with `rpcinfo -d {} {}`",
        entry.prog, entry.vers
    )
}

/// Registrations of a server: all programs over RDMA, and over TCP too, with MOUNT at its own port.
pub(crate) fn entries(
    rdma: &[SocketAddr],
    tcp: &[SocketAddr],
    mount: &[SocketAddr],
) -> Vec<Registration> {
    let nfs = [(NFS_PROGRAM, NFS_V3), (NFSACL_PROGRAM, NFSACL_V3)];
    let of_mount = (MOUNT_PROGRAM, MOUNT_V3);
    let over_rdma = nfs.into_iter().chain([of_mount]);
    let over_rdma = over_rdma.map(|(prog, vers)| of_families(prog, vers, NetId::rdma, rdma));
    let over_tcp = nfs.map(|(prog, vers)| of_families(prog, vers, NetId::tcp, tcp));
    let mount = of_families(of_mount.0, of_mount.1, NetId::tcp, mount);
    over_rdma.chain(over_tcp).flatten().chain(mount).collect()
}

/// A program in each family in which clients reach it. rpcbind has one address for each (RFC 1833 §2.1): that
/// of all addresses of the family if there is one, or else the first.
fn of_families(
    prog: u32,
    vers: u32,
    netid: fn(IpAddr) -> NetId,
    addrs: &[SocketAddr],
) -> Vec<Registration> {
    let all = addrs.iter();
    let mut all: Vec<_> = all
        .flat_map(|addr| [*addr].into_iter().chain(ipv4_of(*addr)))
        .collect();
    // In the order that was given otherwise.
    all.sort_by_key(|addr| !addr.ip().is_unspecified());
    let mut registered: Vec<Registration> = Vec::new();
    for addr in all {
        let netid = netid(addr.ip());
        if registered.iter().all(|other| other.netid != netid) {
            registered.push(Registration {
                prog,
                vers,
                netid,
                addr,
            });
        }
    }
    registered
}

/// Warnings of addresses whose clients rpcbind sends to another port, if there are some: it has one port for each transport
/// and family.
pub(crate) fn ports_not_registered(
    rdma: &[SocketAddr],
    tcp: &[SocketAddr],
) -> impl Iterator<Item = String> {
    let over_rdma = not_registered(NetId::rdma, rdma);
    over_rdma.into_iter().chain(not_registered(NetId::tcp, tcp))
}

fn not_registered(netid: fn(IpAddr) -> NetId, addrs: &[SocketAddr]) -> Option<String> {
    let registered = of_families(NFS_PROGRAM, NFS_V3, netid, addrs);
    let is_other = |addr: &&SocketAddr| {
        let mut same = registered.iter();
        !same.any(|one| one.addr.is_ipv4() == addr.is_ipv4() && one.addr.port() == addr.port())
    };
    let others: Vec<String> = addrs
        .iter()
        .filter(is_other)
        .map(ToString::to_string)
        .collect();
    (!others.is_empty()).then(|| {
        let registered: Vec<String> = registered.iter().map(|one| one.addr.to_string()).collect();
        format!(
            "rpcbind has one port for each family of addresses: {} is registered, and clients of {} have to name its port",
            registered.join(", "),
            others.join(", ")
        )
    })
}

/// The address of IPv4 at which what listens at this one is reached, too: that of a socket at all addresses of IPv6, unless
/// it is for IPv6 alone, by the system or by the service manager that has made it (`IPV6_V6ONLY`, ipv6(7)).
fn ipv4_of(addr: SocketAddr) -> Option<SocketAddr> {
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port()));
    let is_in_use =
        |addr| listen::try_out(addr).is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    let may = addr.ip() == Ipv6Addr::UNSPECIFIED && !binds_ipv6_only();
    (may && (is_in_use(ipv4) || !is_in_use(addr))).then_some(ipv4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::xdr::Payload;
    use oncrpc::{Answer, Call, Program, Programs};
    use oncrpc_tcp::rpcbind;
    use socket2::{Domain, Socket, Type};
    use std::collections::HashMap;
    use std::ops::RangeInclusive;
    use std::sync::{Arc, Mutex};
    use tokio::net::TcpListener;

    /// Program, version and netid.
    type Key = (u32, u32, String);

    /// An rpcbind: what is registered, and its address.
    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<HashMap<Key, String>>>);

    impl Fake {
        fn list(&self, call: Call) -> Payload {
            let entries = self.0.lock().unwrap();
            let mut w = call.into_success();
            for ((prog, vers, netid), addr) in entries.iter() {
                w.bool(true);
                w.u32(*prog);
                w.u32(*vers);
                for text in [netid, addr, "superuser"] {
                    w.opaque(text.as_bytes());
                }
            }
            w.bool(false);
            w.finish()
        }
    }

    impl Program for Fake {
        fn number(&self) -> u32 {
            rpcbind::PROGRAM
        }

        fn versions(&self) -> RangeInclusive<u32> {
            4..=4
        }

        fn call(&self, call: Call) -> Answer {
            if call.proc == 4 {
                return Answer::message(self.list(call));
            }
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let args = call.decode(|r| {
                let key = (r.u32()?, r.u32()?, text(r.string(64)?));
                let addr = text(r.string(64)?);
                r.string(64)?;
                Ok((key, addr))
            });
            let (key, addr) = args.unwrap();
            let (proc, mut entries) = (call.proc, self.0.lock().unwrap());
            let mut w = call.into_success();
            match proc {
                1 => w.bool(!entries.contains_key(&key) && entries.insert(key, addr).is_none()),
                2 => w.bool(entries.remove(&key).is_some()),
                other => panic!("procedure {other}"),
            }
            Answer::message(w.finish())
        }
    }

    #[tokio::test]
    async fn registrations_left_by_a_crash_are_replaced_but_not_those_of_others() {
        let fake = Fake::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let programs = Arc::new(Programs::new().with(fake.clone()));
        let server = oncrpc_tcp::Server::new(listener, programs, oncrpc_tcp::Limits::default());
        let asking = async {
            let client = oncrpc_tcp::Client::connect(addr, DEADLINE).await.unwrap();
            let rpcbind = Rpcbind::new(client);
            let at = |rdma: SocketAddr, mount: SocketAddr| entries(&[rdma], &[], &[mount]);
            let port = |port| SocketAddr::from(([0, 0, 0, 0], port));
            let before = at(([192, 0, 2, 1], 20049).into(), ([192, 0, 2, 1], 1).into());
            register(&rpcbind, &before[0], &before).await.unwrap();
            // The same port, at another address this time.
            let again = at(port(20049), port(1));
            register(&rpcbind, &again[0], &again).await.unwrap();
            // A server that runs has its port.
            let live = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
            let live_at = live.local_addr().unwrap();
            rpcbind.unset(&again[0]).await.unwrap();
            let running = at(live_at, port(1));
            register(&rpcbind, &running[0], &running).await.unwrap();
            let other = at(port(815), port(1));
            let tried = check_free(&rpcbind, &other[0], &other, |_| false).await;
            let refused = register(&rpcbind, &other[0], &other).await;
            for error in [tried.unwrap_err(), refused.unwrap_err()] {
                let error = error.to_string();
                assert!(error.contains(&format!("for {live_at}")), "{error}");
                assert!(error.contains("`rpcinfo -d 100003 3`"), "{error}");
            }
            // What would be replaced is no obstacle.
            let same = check_free(&rpcbind, &running[0], &running, |_| false).await;
            assert_eq!(same.unwrap(), None);
            let replaced = check_free(&rpcbind, &other[0], &other, |found| found == live_at).await;
            assert_eq!(replaced.unwrap(), Some(live_at));
            // One that is lost is made again, and that of others is left alone.
            assert!(!renew(&rpcbind, &other[0], &other).await.unwrap());
            rpcbind.unset(&running[0]).await.unwrap();
            assert!(renew(&rpcbind, &running[0], &running).await.unwrap());
            assert!(!renew(&rpcbind, &running[0], &running).await.unwrap());
            // A server over an RDMA device alone has its port of MOUNT.
            let on_device = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
            let mount = at(port(1), on_device.local_addr().unwrap());
            register(&rpcbind, &mount[3], &mount).await.unwrap();
            drop(live);
            assert!(register(&rpcbind, &other[0], &other).await.is_err());
            // What has crashed has none.
            drop(on_device);
            let tried = check_free(&rpcbind, &other[0], &other, |_| false).await;
            assert_eq!(tried.unwrap(), None);
            register(&rpcbind, &other[0], &other).await.unwrap();
            rpcbind.unset(&mount[3]).await.unwrap();
        };
        server.run(asking).await;
        let left: Vec<String> = fake.0.lock().unwrap().values().cloned().collect();
        assert_eq!(left, ["0.0.0.0.3.47"]);
    }

    #[test]
    fn one_address_of_each_family_is_registered() {
        let check = |addrs: &[&str], expected: &[&str]| {
            let addrs: Vec<_> = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
            let entries = entries(&addrs, &[], &addrs);
            let nfs = entries.iter().filter(|entry| entry.prog == NFS_PROGRAM);
            let nfs: Vec<String> = nfs.map(|entry| entry.addr.to_string()).collect();
            assert_eq!(nfs, expected);
            let keys = entries.iter().map(|entry| (entry.prog, entry.netid));
            let keys: Vec<_> = keys.collect();
            let is_first = |at: usize| !keys[..at].contains(&keys[at]);
            assert!((0..keys.len()).all(is_first), "{entries:?}");
            ports_not_registered(&addrs, &[]).next()
        };
        let (one, other) = ("192.0.2.1:20049", "198.51.100.1:20049");
        let six = "[2001:db8::1]:20050";
        assert_eq!(check(&[one, other, six], &[one, six]), None);
        let everywhere = "0.0.0.0:20051";
        let said = check(&[one, everywhere], &[everywhere]).unwrap();
        assert!(said.contains("clients of 192.0.2.1:20049"), "{said}");
    }

    #[test]
    fn programs_over_tcp_are_registered_at_the_port_of_nfs_and_mount_at_its_own() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (rdma, tcp, mount) = (
            addr("192.0.2.1:1"),
            addr("192.0.2.1:2"),
            addr("192.0.2.1:3"),
        );
        let entries = entries(&[rdma], &[tcp], &[mount]);
        let over_tcp = entries.iter().filter(|entry| entry.netid == NetId::Tcp);
        let over_tcp: Vec<_> = over_tcp.map(|entry| (entry.prog, entry.addr)).collect();
        let expected = [
            (NFS_PROGRAM, tcp),
            (NFSACL_PROGRAM, tcp),
            (MOUNT_PROGRAM, mount),
        ];
        assert_eq!(over_tcp, expected);
        let two = [tcp, addr("192.0.2.2:4")];
        let said: Vec<String> = ports_not_registered(&[rdma], &two).collect();
        assert!(
            said.len() == 1 && said[0].contains("clients of 192.0.2.2:4"),
            "{said:?}"
        );
    }

    #[test]
    fn netids_follow_the_family_of_the_address() {
        let netids = |rdma: &str, mount: &str| {
            let entries =
                entries(&[rdma.parse().unwrap()], &[], &[mount.parse().unwrap()]).into_iter();
            entries
                .map(|entry| entry.netid.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            netids("127.0.0.1:1", "127.0.0.1:2"),
            ["rdma", "rdma", "rdma", "tcp"]
        );
        assert_eq!(
            netids("[::1]:1", "[::1]:2"),
            ["rdma6", "rdma6", "rdma6", "tcp6"]
        );
        if binds_ipv6_only() {
            return;
        }
        let both = [
            "rdma6", "rdma", "rdma6", "rdma", "rdma6", "rdma", "tcp6", "tcp",
        ];
        assert_eq!(netids("[::]:1", "[::]:2"), both);
        let all = entries(
            &["[::]:1".parse().unwrap()],
            &[],
            &["[::]:2".parse().unwrap()],
        );
        assert_eq!(all[7].addr, "0.0.0.0:2".parse().unwrap());
        // A socket for IPv6 alone, as a service manager makes it.
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).unwrap();
        socket.set_only_v6(true).unwrap();
        let anywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        if socket.bind(&anywhere.into()).is_err() {
            eprintln!("skipped: this machine has no IPv6");
            return;
        }
        socket.listen(1).unwrap();
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(ipv4_of(bound), None);
    }
}
