//! A port of MOUNT over TCP, whose calls are passed on to the server: mounts of NFS version 3 get their first file handle there.

use crate::mount_forwarder::MountForwarder;
use crate::mount_service::MountOutcome;
use crate::mount_turns::MountTurns;
use nfs_proto::{MOUNT_PROGRAM, NullOnly};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    AcceptStatus, Answer, Call, CallHeader, Caller, Connections, LocalUsers, Programs, Reply,
    ReplyHeader, ReplyStatus, Service,
};
use oncrpc_tcp::{Limits, Server};
use rpc_serving::admission::Admission;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A listener over TCP that passes calls of MOUNT on, and answers NULL of NFS itself.
pub struct MountProxy {
    addr: SocketAddr,
    turns: Arc<MountTurns>,
    admission: Admission,
    connections: Connections,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl MountProxy {
    /// Accepts connections of those that `admit` allows, and passes their calls on. `local_users` finds the users behind
    /// connections from this machine.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used.
    pub fn start(
        listener: std::net::TcpListener,
        mount: MountForwarder,
        admit: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
        local_users: Arc<dyn LocalUsers>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let addr = listener.local_addr()?;
        let (turns, log) = (Arc::clone(&mount.turns), Arc::clone(&mount.log));
        let admission = Admission::new(Limits::default().of_connections());
        let connections = Connections::default();
        let server = Server::new(listener, Arc::new(Forward(mount)), Limits::default())
            .admit(admit)
            .admission(admission.clone())
            .connections(connections.clone())
            .log(log)
            .local_users(Some(local_users));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            // A dropped sender ends it, too.
            let _ = stopped.await;
        }));
        Ok(Self {
            addr,
            turns,
            admission,
            connections,
            stop,
            task,
        })
    }

    /// Address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Admission control of its connections.
    pub fn admission(&self) -> Admission {
        self.admission.clone()
    }

    /// Closes the connections of clients whose address `is_one` accepts.
    pub fn close_clients(&self, is_one: impl Fn(SocketAddr) -> bool) {
        self.connections.close_those_of(is_one);
    }

    /// Limits the connections of clients, those of one address to half of them, and connections to the server.
    pub fn limit_connections(&self, connections: usize) {
        let usual = Limits::default();
        let limits = Limits {
            connections,
            connections_of_address: usual.connections_of_address.min(connections.div_ceil(2)),
            ..usual
        };
        self.admission.set_limits(limits.of_connections());
        // Each connection of a client stands for one to the server.
        self.turns.limit(connections);
    }

    /// Answers the calls in progress, and ends.
    pub async fn stop(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

impl fmt::Debug for MountProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountProxy")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

/// The service of the listener.
struct Forward(MountForwarder);

impl Forward {
    /// Counts a call that is not passed on if a local user claims to be another one in it, and says so.
    fn handle_refused(&self, call: &Payload, caller: &Caller) {
        let is_claim = caller.known_uid().is_some();
        if !is_claim || CallHeader::parse(&mut Reader::from(call)).is_err() {
            return;
        }
        let MountForwarder { failures, log, .. } = &self.0;
        failures.deny();
        log.warn_of(caller.group, |listen| {
            tracing::warn!(target: "gateway", listen, peer = %caller.addr, "MOUNT is denied (AUTH_BADCRED): a local user claims to be another one, or nobody, which only root may (--trust-local, or trust_local of [gateway], allows it)");
        });
    }
}

impl Service for Forward {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        // Calls are small, and this one is passed on as it came.
        let copy = Payload::new(call.head().to_vec().into(), 0);
        let (xid, prog, vers) = match Call::parse(copy, caller) {
            Ok(call) => (call.xid, call.prog, call.vers),
            Err(reply) => {
                self.handle_refused(&call, caller);
                return Answer::Now(reply);
            }
        };
        if prog != MOUNT_PROGRAM {
            return Programs::new().with(NullOnly).call(call, caller);
        }
        let (mount, caller) = (self.0.clone(), *caller);
        Answer::Later(Box::pin(async move {
            let outcome = mount.pass_on(vers, call, &caller, None).await;
            Reply::Message(match outcome {
                MountOutcome::Answered(reply) => reply,
                MountOutcome::Unanswered => system_err(xid),
            })
        }))
    }
}

fn system_err(xid: u32) -> Payload {
    let mut w = Writer::default();
    let status = ReplyStatus::accepted(AcceptStatus::SystemErr);
    ReplyHeader { xid, status }.write(&mut w);
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_server::{MountPort, MountServer};
    use oncrpc::{AuthSys, Credential, Origin, Procedure, write_call};

    #[test]
    fn local_user_that_claims_to_be_another_is_counted_and_a_malformed_call_is_not() {
        let mount = MountForwarder::new(MountServer::new("127.0.0.1", MountPort::OfHost));
        let failures = mount.failures();
        let forward = Forward(mount);
        let caller = Caller::new(([127, 0, 0, 1], 1).into()).from(Origin::User(1000));
        let call = |credential: &Credential| {
            let mut w = Writer::default();
            let exports = Procedure {
                prog: MOUNT_PROGRAM,
                vers: 3,
                proc: 5,
            };
            write_call(&mut w, 1, exports, credential);
            w.finish()
        };
        let root = AuthSys {
            stamp: 0,
            machine_name: Default::default(),
            uid: 0,
            gid: 0,
            gids: Default::default(),
        };
        let answer = forward.call(call(&Credential::Sys(root)), &caller);
        assert!(matches!(answer, Answer::Now(_)));
        assert_eq!(failures.denied(), 1);
        let mut cut = Writer::default();
        cut.u32(1);
        forward.call(cut.finish(), &caller);
        assert_eq!(failures.denied(), 1);
    }
}
