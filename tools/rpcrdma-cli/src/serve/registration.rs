//! Registers NFS, NFSACL and MOUNT with rpcbind.

use anyhow::Context;
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3, NFSACL_PROGRAM, NFSACL_V3};
use oncrpc::{Chain, Transport};
use oncrpc_tcp::rpcbind::{NetId, Registration, Rpcbind, RpcbindError};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// How long rpcbind may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// What there is to say if rpcbind does not answer.
const NO_RPCBIND: &str =
    "cannot register with rpcbind: start it, or leave --rpcbind (rpcbind = true) out";

/// Registrations that were made and are to be removed at the end.
pub(crate) struct Registered {
    rpcbind: Rpcbind<oncrpc_tcp::Client>,
    entries: Vec<Registration>,
}

impl Registered {
    /// Registers NFS, NFSACL and MOUNT over RDMA at `rdma`, and MOUNT over TCP at `mount`.
    ///
    /// # Errors
    ///
    /// If rpcbind is not running or refuses; then nothing stays registered.
    pub(crate) async fn new(rdma: SocketAddr, mount: SocketAddr) -> anyhow::Result<Self> {
        Self::of(&entries(rdma, mount)).await
    }

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
            match register(&registered.rpcbind, entry).await {
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
            replaced.extend(check_free(&rpcbind, entry, &is_replaced).await?);
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
            match renew(&self.rpcbind, entry).await {
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

/// Registers one program.
///
/// What is registered at the very port where we listen was left there by a server that crashed: it
/// is replaced. Anything else belongs to somebody.
async fn register<T: Transport>(rpcbind: &Rpcbind<T>, entry: &Registration) -> anyhow::Result<()> {
    let refused = match rpcbind.set(entry).await {
        Err(refused @ RpcbindError::Refused { .. }) => refused,
        set => return Ok(set?),
    };
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let found = rpcbind.find(prog, vers, netid).await?;
    if found.is_some_and(|found| found.port() == entry.addr.port()) && rpcbind.unset(entry).await? {
        return Ok(rpcbind.set(entry).await?);
    }
    Err(refused).with_context(|| registered_already(entry, found))
}

/// Registers one program if nobody has. Returns whether that was so.
async fn renew<T: Transport>(rpcbind: &Rpcbind<T>, entry: &Registration) -> anyhow::Result<bool> {
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let is_lost = rpcbind.find(prog, vers, netid).await?.is_none();
    if is_lost {
        register(rpcbind, entry).await?;
    }
    Ok(is_lost)
}

/// Checks that a program is not registered by somebody else. Returns what it is registered for if that is replaced.
async fn check_free<T: Transport>(
    rpcbind: &Rpcbind<T>,
    entry: &Registration,
    is_replaced: impl Fn(SocketAddr) -> bool,
) -> anyhow::Result<Option<SocketAddr>> {
    let Registration {
        prog, vers, netid, ..
    } = *entry;
    let found = rpcbind.find(prog, vers, netid).await?;
    let other = found.filter(|found| found.port() != entry.addr.port());
    match other.is_none_or(is_replaced) {
        true => Ok(other),
        false => Err(anyhow::Error::msg(registered_already(entry, other))),
    }
}

/// What there is to say if a program is registered, at this address if that is known.
fn registered_already(entry: &Registration, found: Option<SocketAddr>) -> String {
    let at = found.map_or(String::new(), |found| format!(", for {found}"));
    format!(
        "cannot register with rpcbind{at}: another server of this machine is registered. Leave --rpcbind (rpcbind = true) \
         out, and name the ports in `mount`; or, if no such server runs any more, remove it as root with `rpcinfo -d {} {}`",
        entry.prog, entry.vers
    )
}

/// What is registered: all programs over RDMA, MOUNT over TCP. NFS itself is not served over TCP.
pub(crate) fn entries(rdma: SocketAddr, mount: SocketAddr) -> [Registration; 4] {
    let (over_rdma, over_tcp) = (NetId::rdma(rdma.ip()), NetId::tcp(mount.ip()));
    let entry = |prog, vers, netid, addr| Registration {
        prog,
        vers,
        netid,
        addr,
    };
    [
        entry(NFS_PROGRAM, NFS_V3, over_rdma, rdma),
        entry(NFSACL_PROGRAM, NFSACL_V3, over_rdma, rdma),
        entry(MOUNT_PROGRAM, MOUNT_V3, over_rdma, rdma),
        entry(MOUNT_PROGRAM, MOUNT_V3, over_tcp, mount),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::xdr::Payload;
    use oncrpc::{Answer, Call, Program, Programs};
    use oncrpc_tcp::rpcbind;
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
            let [before, ..] = entries(
                "192.0.2.1:20049".parse().unwrap(),
                "192.0.2.1:1".parse().unwrap(),
            );
            register(&rpcbind, &before).await.unwrap();
            // The same port, at another address this time.
            let [again, ..] = entries(
                "0.0.0.0:20049".parse().unwrap(),
                "0.0.0.0:1".parse().unwrap(),
            );
            register(&rpcbind, &again).await.unwrap();
            let [other, ..] = entries("0.0.0.0:815".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
            let tried = check_free(&rpcbind, &other, |_| false).await.unwrap_err();
            let refused = register(&rpcbind, &other).await.unwrap_err();
            for error in [tried.to_string(), refused.to_string()] {
                assert!(error.contains("for 0.0.0.0:20049"), "{error}");
                assert!(error.contains("`rpcinfo -d 100003 3`"), "{error}");
            }
            // What would be replaced is no obstacle.
            let same = check_free(&rpcbind, &again, |_| false).await.unwrap();
            assert_eq!(same, None);
            let own = "0.0.0.0:20049".parse().unwrap();
            let replaced = check_free(&rpcbind, &other, |found| found == own).await;
            assert_eq!(replaced.unwrap(), Some(own));
            // One that is lost is made again, and that of others is left alone.
            assert!(!renew(&rpcbind, &other).await.unwrap());
            rpcbind.unset(&again).await.unwrap();
            assert!(renew(&rpcbind, &again).await.unwrap());
            assert!(!renew(&rpcbind, &again).await.unwrap());
        };
        server.run(asking).await;
        let left: Vec<String> = fake.0.lock().unwrap().values().cloned().collect();
        assert_eq!(left, ["0.0.0.0.78.81"]);
    }

    #[test]
    fn netids_follow_the_family_of_the_address() {
        let netids = |rdma: &str, mount: &str| {
            entries(rdma.parse().unwrap(), mount.parse().unwrap()).map(|entry| entry.netid.as_str())
        };
        assert_eq!(
            netids("127.0.0.1:1", "127.0.0.1:2"),
            ["rdma", "rdma", "rdma", "tcp"]
        );
        assert_eq!(
            netids("[::1]:1", "[::1]:2"),
            ["rdma6", "rdma6", "rdma6", "tcp6"]
        );
    }
}
