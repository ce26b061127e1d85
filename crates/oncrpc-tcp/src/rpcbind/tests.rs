//! Registration with a scripted rpcbind, and without any.

use super::*;
use oncrpc::Answer;
use oncrpc::xdr;
use oncrpc::{Call, Program, Programs};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

const DEADLINE: Duration = Duration::from_secs(20);

/// Key of a registration: program, version, netid.
type Key = (u32, u32, String);

/// An rpcbind that speaks the wire and keeps what it is told.
#[derive(Clone)]
struct Fake {
    versions: RangeInclusive<u32>,
    entries: Arc<Mutex<Vec<(Key, String)>>>,
}

impl Fake {
    fn run(&self, proc: u32, key: Key, addr: String) -> Result<bool, String> {
        let mut entries = self.entries.lock().unwrap();
        let found = entries.iter().position(|(k, _)| *k == key);
        // As rpcbind does: a version that is not registered is as good as another one.
        let like = || {
            entries
                .iter()
                .position(|(k, _)| (k.0, &k.2) == (key.0, &key.2))
        };
        let found = found.or_else(|| (proc == GETADDR).then(like).flatten());
        match (proc, found) {
            (SET, None) => {
                entries.push((key, addr));
                Ok(true)
            }
            (SET, Some(_)) | (UNSET, None) => Ok(false),
            (UNSET, Some(at)) => {
                entries.remove(at);
                Ok(true)
            }
            (_, found) => Err(found.map_or(String::new(), |at| entries[at].1.clone())),
        }
    }
}

impl Fake {
    /// All that is registered, behind what a client has no use for.
    fn list(&self, call: Call, old: bool) -> xdr::Payload {
        let entries = self.entries.lock().unwrap();
        let mut w = call.into_success();
        for ((prog, vers, netid), addr) in entries.iter() {
            w.bool(true);
            w.u32(*prog);
            w.u32(*vers);
            if old {
                w.u32(IPPROTO_TCP);
                w.u32(addr.parse().unwrap());
            } else {
                for text in [netid, addr, "superuser"] {
                    w.opaque(text.as_bytes());
                }
            }
        }
        if !old {
            // Its address is a path.
            w.bool(true);
            w.u32(PROGRAM);
            w.u32(4);
            for text in ["local", LOCAL_SOCKET, "superuser"] {
                w.opaque(text.as_bytes());
            }
        }
        w.bool(false);
        w.finish()
    }
}

fn text(r: &mut Reader<'_>) -> Result<String, xdr::Error> {
    String::from_utf8(r.string(256)?.to_vec()).map_err(|_| xdr::Error::NotText)
}

impl Program for Fake {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.versions.clone()
    }

    fn call(&self, call: Call) -> Answer {
        let old = call.vers == 2;
        if call.proc == DUMP {
            return Answer::message(self.list(call, old));
        }
        let args = call.decode(|r| {
            let (prog, vers) = (r.u32()?, r.u32()?);
            if old {
                assert_eq!(r.u32()?, IPPROTO_TCP);
                return Ok(((prog, vers, "tcp".to_owned()), r.u32()?.to_string()));
            }
            let entry = ((prog, vers, text(r)?), text(r)?);
            text(r)?;
            Ok(entry)
        });
        let (key, addr) = match args {
            Ok(args) => args,
            Err(error) => return call.unreadable(error).into(),
        };
        let result = self.run(call.proc, key, addr);
        let mut w = call.into_success();
        match result {
            Ok(done) => w.bool(done),
            Err(port) if old => w.u32(port.parse().unwrap_or(0)),
            Err(addr) => w.opaque(addr.as_bytes()),
        }
        Answer::message(w.finish())
    }
}

/// Runs `ask` against a fake of these versions over TCP; what it keeps at the end comes back.
fn with_fake<F: Future<Output = ()>>(
    versions: RangeInclusive<u32>,
    ask: impl FnOnce(Rpcbind<crate::Client>) -> F,
) -> Vec<(Key, String)> {
    let fake = Fake {
        versions,
        entries: Arc::default(),
    };
    let entries = Arc::clone(&fake.entries);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = crate::Server::new(
            listener,
            Arc::new(Programs::new().with(fake)),
            crate::Limits::default(),
        );
        let asking = async {
            let client = crate::Client::connect(addr, DEADLINE).await.unwrap();
            ask(Rpcbind::new(client)).await;
        };
        server.run(asking).await;
    });
    std::mem::take(&mut *entries.lock().unwrap())
}

fn registration(netid: NetId, addr: &str) -> Registration {
    Registration {
        prog: 100_003,
        vers: 3,
        netid,
        addr: addr.parse().unwrap(),
    }
}

#[test]
fn universal_addresses_are_those_of_rfc_5665() {
    let check = |addr: &str, text: &str| {
        let addr: SocketAddr = addr.parse().unwrap();
        assert_eq!(universal_address(addr), text);
        assert_eq!(parse_universal_address(text), Some(addr));
    };
    // The example of RFC 5665 §5.2.3.3.
    check("192.0.2.7:52049", "192.0.2.7.203.81");
    check("0.0.0.0:20049", "0.0.0.0.78.81");
    check("[::1]:20049", "::1.78.81");
    check("[2001:db8::7]:111", "2001:db8::7.0.111");
    for bad in [
        "",
        "1.2",
        "1.2.3.4.5",
        "1.2.3.4.5.256",
        "1.2.3.4.-1.2",
        "x.1.2",
    ] {
        assert_eq!(parse_universal_address(bad), None, "{bad}");
    }
}

#[test]
fn programs_are_registered_under_every_netid_and_found() {
    let all = [
        registration(NetId::Tcp, "127.0.0.1:20048"),
        registration(NetId::Tcp6, "[::1]:20048"),
        registration(NetId::Rdma, "127.0.0.1:20049"),
        registration(NetId::Rdma6, "[::1]:20049"),
    ];
    let left = with_fake(3..=4, async |rpcbind| {
        for one in &all {
            assert_eq!(rpcbind.getaddr(100_003, 3, one.netid).await, Ok(None));
            rpcbind.set(one).await.unwrap();
            assert_eq!(
                rpcbind.getaddr(100_003, 3, one.netid).await,
                Ok(Some(one.addr))
            );
        }
    });
    let names: Vec<_> = left.iter().map(|((_, _, netid), _)| &netid[..]).collect();
    assert_eq!(names, ["tcp", "tcp6", "rdma", "rdma6"]);
}

#[test]
fn registration_is_found_in_the_list_of_all_by_its_exact_version_and_transport() {
    let all = [
        registration(NetId::Tcp, "127.0.0.1:20048"),
        registration(NetId::Rdma, "127.0.0.1:20049"),
    ];
    for version in [2, 4] {
        with_fake(version..=version, async |rpcbind| {
            let find = async |vers, netid| {
                let found = rpcbind.find(100_003, vers, netid).await.unwrap();
                found.map(|addr| addr.port())
            };
            assert_eq!(find(3, NetId::Tcp).await, None);
            for one in all
                .iter()
                .filter(|one| version > 2 || one.netid == NetId::Tcp)
            {
                rpcbind.set(one).await.unwrap();
            }
            assert_eq!(find(3, NetId::Tcp).await, Some(20048));
            assert_eq!(find(4, NetId::Tcp).await, None);
            assert_eq!(find(3, NetId::Rdma).await, (version > 2).then_some(20049));
        });
    }
}

#[test]
fn registration_of_another_is_refused_and_own_one_removed() {
    let one = registration(NetId::Rdma, "0.0.0.0:20049");
    let left = with_fake(4..=4, async |rpcbind| {
        rpcbind.set(&one).await.unwrap();
        assert_eq!(
            rpcbind.set(&one).await,
            Err(RpcbindError::Refused {
                prog: 100_003,
                vers: 3,
                netid: NetId::Rdma
            })
        );
        assert_eq!(rpcbind.unset(&one).await, Ok(true));
        assert_eq!(rpcbind.unset(&one).await, Ok(false));
    });
    assert!(left.is_empty());
}

#[test]
fn older_rpcbind_versions_are_negotiated() {
    let one = registration(NetId::Tcp, "127.0.0.1:20048");
    with_fake(3..=3, async |rpcbind| rpcbind.set(&one).await.unwrap());
    let left = with_fake(2..=2, async |rpcbind| {
        rpcbind.set(&one).await.unwrap();
        let found = rpcbind.getaddr(100_003, 3, NetId::Tcp).await.unwrap();
        assert_eq!(found.map(|addr| addr.port()), Some(20048));
        let rdma = registration(NetId::Rdma, "127.0.0.1:20049");
        assert_eq!(
            rpcbind.set(&rdma).await,
            Err(RpcbindError::TooOld(NetId::Rdma))
        );
    });
    assert_eq!(left[0].1, "20048");
}

#[test]
fn local_socket_without_rpcbind_says_where_it_looked() {
    let dir = std::env::temp_dir().join("no-such-directory/rpcbind.sock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let error = runtime
        .block_on(Rpcbind::at_socket(&dir, DEADLINE))
        .unwrap_err();
    assert!(error.to_string().contains("rpcbind.sock"), "{error}");
}
