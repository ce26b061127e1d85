//! Client ids, sessions and connections: EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, BACKCHANNEL_CTL, DESTROY_SESSION,
//! DESTROY_CLIENTID, RECLAIM_COMPLETE.

use super::Nfs4;
use super::compound::{Ran, Running, after};
use super::state::connection_key;
use nfs_proto::v4::security::BackChannelCtlArgs;
use nfs_proto::v4::session::{
    BindConnToSessionArgs, CreateSessionArgs, CreateSessionFlags, DestroyClientIdArgs,
    DestroySessionArgs, ExchangeFlags, ExchangeIdArgs, ExchangeIdOk, ProtectArgs, ProtectRes,
    ReclaimCompleteArgs, ServerOwner,
};
use nfs_proto::v4::{Identifier, ResOp, Status};
use nfs4_state::{AddressKey, CreateCall, ExchangeCall};

impl Nfs4 {
    /// EXCHANGE_ID (RFC 8881 §18.35).
    pub(super) fn exchange_id(&self, run: &mut Running, args: &ExchangeIdArgs<'_>) -> Ran {
        match args.protect {
            ProtectArgs::None => {}
            // RFC 8881 §18.35.3: this is for clients that come with RPCSEC_GSS.
            ProtectArgs::MachineCredential(_) => return Err(Status::Invalid),
            ProtectArgs::Ssv(_) => return Err(Status::EncryptionAlgorithmUnsupported),
        }
        let principal = run.principal();
        let call = ExchangeCall {
            owner: &args.owner.owner,
            verifier: args.owner.verifier,
            principal: &principal,
            address: AddressKey(run.caller.group.number()),
            flags: args.flags,
            protection: None,
        };
        let exchanged = self.inner.state.with(|all| {
            let now = all.now;
            all.server.exchange_id(now, all.random, &call)
        })?;
        let identity = self.inner.state.identity();
        let identity = Identifier::new(identity).ok_or(Status::ServerFault)?;
        run.push(ResOp::ExchangeId(Ok(ExchangeIdOk {
            client: exchanged.client,
            sequence: exchanged.sequence,
            flags: exchanged.flags | ExchangeFlags::USE_NON_PNFS,
            protect: ProtectRes::None,
            owner: ServerOwner {
                minor: 0,
                major: identity,
            },
            scope: identity,
            implementation: None,
        })))
    }

    /// CREATE_SESSION (RFC 8881 §18.36).
    pub(super) fn create_session(&self, run: &mut Running, args: &CreateSessionArgs<'_>) -> Ran {
        let principal = run.principal();
        let connection = run.caller.connection;
        let call = CreateCall {
            args,
            minor_version: run.minor,
            principal: &principal,
            connection: connection_key(connection),
            can_call: self.can_call(connection),
        };
        let created = self.inner.state.with(|all| {
            let now = all.now;
            all.server.create_session(now, all.random, &call)
        })?;
        if created.flags.contains(CreateSessionFlags::CONN_BACK_CHAN) {
            (self.inner.state).check_backchannel(args.client, created.session);
        }
        run.push(ResOp::CreateSession(Ok(created)))
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 §18.34).
    pub(super) fn bind_connection(&self, run: &mut Running, args: &BindConnToSessionArgs) -> Ran {
        if run.request().is_some() {
            return Err(Status::NotOnlyOperation);
        }
        let principal = run.principal();
        let connection = run.caller.connection;
        let can_call = self.can_call(connection);
        let bound = (self.inner.state).with(|all| {
            let connection = connection_key(connection);
            (all.server).bind_connection(args, &principal, connection, can_call)
        })?;
        run.push(ResOp::BindConnToSession(Ok(bound)))
    }

    /// BACKCHANNEL_CTL (RFC 8881 §18.33).
    pub(super) fn control_backchannel(
        &self,
        run: &mut Running,
        args: &BackChannelCtlArgs<'_>,
    ) -> Ran {
        let session = run.request().ok_or(Status::OperationNotInSession)?;
        let session = session.result().session;
        (self.inner.state).with(|all| {
            all.server.set_callback_program(session, args.program)?;
            all.server.set_callback_security(session, &args.security)
        })?;
        run.push(ResOp::BackChannelCtl(Ok(())))
    }

    /// DESTROY_SESSION (RFC 8881 §18.37).
    pub(super) fn destroy_session(&self, run: &mut Running, args: &DestroySessionArgs) -> Ran {
        let own = run.request().map(|request| request.result().session);
        if own == Some(args.session) && run.left > 0 {
            return Err(Status::NotOnlyOperation);
        }
        let principal = run.principal();
        let connection = connection_key(run.caller.connection);
        (self.inner.state).with(|all| {
            all.server
                .destroy_session(args.session, &principal, connection)
        })?;
        run.push(ResOp::DestroySession(Ok(())))
    }

    /// DESTROY_CLIENTID (RFC 8881 §18.50).
    pub(super) fn destroy_client(&self, run: &mut Running, args: &DestroyClientIdArgs) -> Ran {
        let principal = run.principal();
        (self.inner.state).with(|all| {
            let now = all.now;
            all.server.destroy_client(now, args.client, &principal)
        })?;
        run.push(ResOp::DestroyClientId(Ok(())))
    }

    /// RECLAIM_COMPLETE (RFC 8881 §18.51).
    pub(super) fn reclaim_complete(&self, run: &mut Running, args: &ReclaimCompleteArgs) -> Ran {
        let client = run.client()?;
        // RFC 8881 §18.51.3: the file system is that of the current file handle.
        if args.one_fs {
            run.object()?;
        }
        let outcome = self.inner.state.reclaim_complete(client, args.one_fs);
        after(self, run, outcome, |_, run, done| {
            done?;
            run.push(ResOp::ReclaimComplete(Ok(())))
        })
    }
}
