//! A server that calls its client, over the connection that the client made (RFC 8167).
//!
//!     cargo run -p rpcrdma --example backward_call
//!
//! The client asks the server to watch a value (procedure WATCH). By that it also says that it is ready for
//! calls on this connection, which RFC 8167 §6 leaves to the upper layer. The server then calls the client
//! with each new value (program NOTIFY), and answers WATCH when the client has seen them all.

use rpcrdma::xdr::Writer;
use rpcrdma::{
    Answer, Backchannels, BackwardClient, Call, Client, ClientConfig, Credential, Iwarp, Procedure,
    Program, Programs, Reply, ReplyBound, Server, ServerConfig, Transport, read_reply, write_call,
};
use std::error::Error;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const WATCH: Procedure = Procedure {
    prog: 0x2000_0002,
    vers: 1,
    proc: 1,
};

const NOTIFY: Procedure = Procedure {
    prog: 0x2000_0003,
    vers: 1,
    proc: 1,
};

/// Bytes of a reply without results, or with one word.
const SHORT: usize = rpcrdma::oncrpc::MAX_REPLY_HEADER + 4;

/// The server's program.
struct Watch {
    backchannels: Backchannels,
}

impl Program for Watch {
    fn number(&self) -> u32 {
        WATCH.prog
    }

    fn versions(&self) -> RangeInclusive<u32> {
        WATCH.vers..=WATCH.vers
    }

    fn call(&self, call: Call) -> Answer {
        let values = match (call.proc, call.decode(|r| r.u32())) {
            (0, _) => return Answer::Now(call.void()),
            (1, Ok(values)) => values,
            (1, Err(error)) => return Answer::Now(call.unreadable(error)),
            _ => return Answer::Now(call.proc_unavail()),
        };
        let Some(backchannel) = self.backchannels.get(call.caller.connection) else {
            return Answer::Now(call.system_err());
        };
        let client = backchannel.client_is_ready();
        // A future: the connection's task goes on with other calls while this one waits.
        Answer::Later(Box::pin(async move {
            let mut told = 0;
            for value in 0..values {
                match notify(&client, value).await {
                    Ok(()) => told += 1,
                    Err(error) => eprintln!("{}: {error}", client.addr()),
                }
            }
            let mut w = call.success(Default::default());
            w.u32(told);
            Reply::Message(w.finish())
        }))
    }
}

/// Calls the client.
async fn notify(client: &BackwardClient, value: u32) -> Result<()> {
    let (mut w, xid) = (Writer::default(), client.next_xid());
    write_call(&mut w, xid, NOTIFY, &Credential::None);
    w.u32(value);
    let reply = client.call(w.finish(), ReplyBound::new(SHORT)).await?;
    read_reply(&reply, xid)?.finish()?;
    Ok(())
}

/// The client's program, for calls of the server.
#[derive(Clone, Default)]
struct Notify {
    seen: Arc<Mutex<Vec<u32>>>,
}

impl Program for Notify {
    fn number(&self) -> u32 {
        NOTIFY.prog
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NOTIFY.vers..=NOTIFY.vers
    }

    fn call(&self, call: Call) -> Answer {
        Answer::Now(match (call.proc, call.decode(|r| r.u32())) {
            (0, _) => call.void(),
            (1, Ok(value)) => {
                self.seen.lock().expect("no panic holds it").push(value);
                call.void()
            }
            (1, Err(error)) => call.unreadable(error),
            _ => call.proc_unavail(),
        })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let provider = Arc::new(Iwarp::default());
    let backchannels = Backchannels::default();
    let watch = Programs::new().with(Watch {
        backchannels: backchannels.clone(),
    });
    let config = ServerConfig::default().with_backchannels(backchannels);
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::bind(provider.clone(), at, Arc::new(watch), config).await?;

    let notify = Notify::default();
    let callbacks = Arc::new(Programs::new().with(notify.clone()));
    let config = ClientConfig::default().with_callbacks(callbacks);
    let client = Client::connect(provider, server.local_addr(), config).await?;

    let (mut w, xid) = (Writer::default(), client.next_xid());
    write_call(&mut w, xid, WATCH, &Credential::None);
    w.u32(3);
    let reply = client.call(w.finish(), ReplyBound::new(SHORT)).await?;
    let told = read_reply(&reply, xid)?.u32()?;

    let seen = notify.seen.lock().expect("no panic holds it").clone();
    println!("the server told {told} values; the client saw {seen:?}");
    assert_eq!((told, &seen[..]), (3, &[0, 1, 2][..]));

    client.close().await;
    server.shutdown().await;
    Ok(())
}
