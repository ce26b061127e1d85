//! A gateway over software iWARP and TCP.
//!
//!     cargo run -p rpcrdma-gateway --example gateway -- rdma://127.0.0.1:20049 tcp://192.0.2.7:2049
//!
//! listens on the first address and passes calls on to the second, until Ctrl-C. Either may be
//! `rdma://` or `tcp://`.

use gateway::{Gateway, GatewayConfig, Listen, Upstream};
use rpcrdma::{ClientConfig, Iwarp, ServerConfig};
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = "give an address to listen on, and that of the upstream";
    let listen = listen(&args.next().ok_or(usage)?)?;
    let upstream = upstream(&args.next().ok_or(usage)?)?;
    let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await?;
    println!("listening on {}", gateway.local_addr());
    tokio::signal::ctrl_c().await?;
    println!("{:#?}", gateway.shutdown().await);
    Ok(())
}

fn listen(url: &str) -> Result<Listen> {
    match url.split_once("://") {
        Some(("rdma", addr)) => {
            let provider = Arc::new(Iwarp::default());
            Ok(Listen::rdma(
                provider,
                addr.parse()?,
                ServerConfig::default(),
            ))
        }
        Some(("tcp", addr)) => Ok(Listen::tcp(TcpListener::bind(addr)?)),
        _ => Err(format!("{url} is neither rdma:// nor tcp://").into()),
    }
}

fn upstream(url: &str) -> Result<Upstream> {
    let (scheme, addr) = url.split_once("://").ok_or("an upstream is a URL")?;
    let addr: SocketAddr = addr.parse()?;
    match scheme {
        "rdma" => Ok(Upstream::rdma(
            Arc::new(Iwarp::default()),
            addr,
            ClientConfig::default(),
        )),
        "tcp" => Ok(Upstream::tcp(addr)),
        _ => Err(format!("{url} is neither rdma:// nor tcp://").into()),
    }
}
