//! `rpcrdma conform --serve`: waits for clients, and starts them if it is told how.

use super::show::Show;
use super::{ConformArgs, shown};
use crate::failure::Untested;
use crate::interrupt::Interrupt;
use ::conform::requester::{ByHand, Driver, EXPORT, Requester, Workload};
use ::conform::{Known, Report};
use rpcrdma::any::Over;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

impl ConformArgs {
    /// Tests the clients that come.
    pub(super) async fn test_requesters(
        &self,
        at: SocketAddr,
        known: Known,
        mut show: Show,
    ) -> anyhow::Result<Report> {
        let interrupt = Interrupt::listen()?;
        let count = self.selection().of(self.all_cases()).len();
        show.begin(
            &format!("clients at {at} (export {EXPORT})"),
            count,
            self.patience,
        )?;
        let transport = &self.session.connect.transport;
        let providers = transport.providers()?;
        let devices = (providers.over() == Over::Devices).then(|| Arc::clone(providers.main()));
        let software = transport.iwarp();
        let mount = match self.session.mount_port {
            Some(port) => Some(mount_listener(SocketAddr::new(at.ip(), port)).await?),
            None => None,
        };
        let runtime = Handle::current();
        let (patience, wait) = (self.patience, self.client_wait);
        let (run, selection) = (self.run.clone(), self.selection());
        shown(&interrupt, show, move |tell| {
            let driver: Box<dyn Driver> = match run {
                Some(command) => Box::new(Started::new(command)),
                None => Box::new(ByHand),
            };
            let requester = match devices {
                Some(devices) => Requester::over_provider(devices, at, patience, wait, driver)?,
                None => Requester::over_software(software, at, patience, wait, driver)?,
            };
            let _serving = mount.map(|listener| {
                let limits = oncrpc_tcp::Limits::default();
                let server = oncrpc_tcp::Server::new(listener, requester.service(), limits);
                let (stop, stopped) = oneshot::channel::<()>();
                runtime.spawn(server.run(async {
                    // A dropped sender says that the run is over.
                    let _ = stopped.await;
                }));
                stop
            });
            requester.with(selection, known).run(tell)
        })
        .await
    }
}

/// A socket for MOUNT over TCP.
async fn mount_listener(at: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(at).await;
    Ok(listener.map_err(|why| Untested(format!("MOUNT over TCP at {at}: {why}")))?)
}

/// A client that a command starts.
struct Started {
    command: String,
    child: Option<Child>,
}

impl Started {
    fn new(command: String) -> Self {
        Self {
            command,
            child: None,
        }
    }

    /// Ends what is left of the command: it has a process group of its own.
    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let group = i32::try_from(child.id()).ok();
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.wait();
    }
}

/// The address by which a client on this machine reaches one that is listened on.
fn reachable(at: SocketAddr) -> IpAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

impl Driver for Started {
    fn start(&mut self, at: SocketAddr) -> io::Result<()> {
        self.end();
        let child = Command::new("/bin/sh")
            .args(["-c", &self.command])
            .env("RPCRDMA_HOST", reachable(at).to_string())
            .env("RPCRDMA_PORT", at.port().to_string())
            .env("RPCRDMA_EXPORT", EXPORT)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    fn ended(&mut self) -> Option<Workload> {
        match self.child.as_mut()?.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) if status.success() => Some(Workload::Done),
            Ok(Some(status)) => Some(Workload::Failed(format!("the command ended with {status}"))),
            Err(why) => Some(Workload::Failed(why.to_string())),
        }
    }

    fn stop(&mut self) {
        self.end();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.end();
    }
}
