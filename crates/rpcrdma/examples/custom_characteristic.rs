//! A transport characteristic of one's own, where both ends speak version two.
//!
//!     cargo run -p rpcrdma --example custom_characteristic
//!
//! Transport characteristics are what each end of a connection says about itself
//! (draft-dnoveck-nfsv4-rpcrdma-xcharext-02). This one says in which rack of a data center an end is. The
//! client and the server each read what the other one said. A client without it is served all the same.

use rpcrdma::characteristics::{
    Characteristic, CustomCharacteristics, ValueError, XcharId, XcharSpec,
};
use rpcrdma::xdr::{Reader, Writer};
use rpcrdma::{
    Answer, Call, Client, ClientConfig, Credential, Iwarp, Procedure, Program, Programs, Reply,
    ReplyBound, Server, ServerConfig, ServerMonitor, Transport, Version, Versions, read_reply,
    write_call,
};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The five points of xcharext §6.1: id, type, meaning, use, and how it may change.
enum Rack {}

impl Characteristic for Rack {
    type Value = u32;

    /// Ids from here on are for experiments (xcharext §6.2).
    const ID: XcharId = XcharId(XcharId::FIRST_EXPERIMENTAL.0 + 100);
    const NAME: &'static str = "Rack";
    const XDR: &'static str = "unsigned int";
    const FIXED: bool = true;

    /// Value that is assumed of an end that does not announce it.
    fn default() -> u32 {
        0
    }

    fn parse(r: &mut Reader<'_>) -> std::result::Result<u32, ValueError> {
        match r.u32()? {
            0 => Err(ValueError::TooSmall { value: 0, least: 1 }),
            rack => Ok(rack),
        }
    }

    fn emit(value: &u32, w: &mut Writer) {
        w.u32(*value);
    }
}

fn rack(said: &XcharSpec) -> u32 {
    said.get::<Rack>().unwrap_or_else(Rack::default)
}

const WHERE_AM_I: Procedure = Procedure {
    prog: 0x2000_0004,
    vers: 1,
    proc: 1,
};

/// Answers with the rack of the client that calls.
struct WhereAmI {
    monitor: Arc<OnceLock<ServerMonitor>>,
}

impl Program for WhereAmI {
    fn number(&self) -> u32 {
        WHERE_AM_I.prog
    }

    fn versions(&self) -> RangeInclusive<u32> {
        WHERE_AM_I.vers..=WHERE_AM_I.vers
    }

    fn call(&self, call: Call) -> Answer {
        if call.proc != WHERE_AM_I.proc {
            return Answer::Now(call.proc_unavail());
        }
        let said = self
            .monitor
            .get()
            .and_then(|monitor| monitor.peer_characteristics(call.caller.connection));
        let mut w = call.into_success();
        w.u32(rack(&said.unwrap_or_default()));
        Answer::Now(Reply::Message(w.finish()))
    }
}

/// Connects, and returns the server's rack and the rack in which the server takes this client to be.
async fn ask(server: SocketAddr, config: ClientConfig) -> Result<(u32, u32)> {
    let client = Client::connect(Arc::new(Iwarp::default()), server, config).await?;
    let info = client.connection().ok_or("the connection is gone")?;
    assert_eq!(info.version, Version::Two);
    let (mut w, xid) = (Writer::default(), client.next_xid());
    write_call(&mut w, xid, WHERE_AM_I, &Credential::None);
    let bound = ReplyBound::new(rpcrdma::oncrpc::MAX_REPLY_HEADER + 4);
    let reply = client.call(w.finish(), bound).await?;
    let mine = read_reply(&reply, xid)?.u32()?;
    client.close().await;
    Ok((rack(&info.peer_characteristics), mine))
}

#[tokio::main]
async fn main() -> Result<()> {
    let monitor = Arc::new(OnceLock::new());
    let service = Programs::new().with(WhereAmI {
        monitor: Arc::clone(&monitor),
    });
    let said = CustomCharacteristics::default().with::<Rack>(&12)?;
    let config = ServerConfig::default().with_characteristics(said);
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::bind(Arc::new(Iwarp::default()), at, Arc::new(service), config).await?;
    let _ = monitor.set(server.monitor());

    // A client that says it, and one that only understands it.
    let speaking = ClientConfig::default().with_versions(Versions::Two);
    let understands = CustomCharacteristics::default().understanding::<Rack>()?;
    let says = CustomCharacteristics::default().with::<Rack>(&7)?;
    for (characteristics, expected) in [(says, (12, 7)), (understands, (12, 0))] {
        let config = speaking.clone().with_characteristics(characteristics);
        let (servers, mine) = ask(server.local_addr(), config).await?;
        println!("the server is in rack {servers}; the server knows the client's rack as {mine}");
        assert_eq!((servers, mine), expected);
    }
    server.shutdown().await;
    Ok(())
}
