//! Operations of a COMPOUND by number.

use super::Nfs4;
use super::compound::{Ran, Running};
use crate::fs::Reserve;
use nfs_proto::Wire;
use nfs_proto::v4::directory::LookupArgs;
use nfs_proto::v4::security::SecInfoArgs;
use nfs_proto::v4::{CompoundArgs, Operation, ResOp, Status};

impl Nfs4 {
    /// Executes an operation that is not the SEQUENCE at the beginning, with the arguments that come next.
    pub(super) fn operate(
        &self,
        run: &mut Running,
        operation: Operation,
        args: &mut CompoundArgs<'_>,
    ) -> Ran {
        match operation {
            Operation::Access => self.access(run, &read(args)?),
            Operation::Close => self.close(run, &read(args)?),
            Operation::Commit => self.commit(run, &read(args)?),
            Operation::Create => self.create(run, read(args)?),
            Operation::GetAttr => self.get_attributes(run, &read(args)?),
            Operation::GetFh => self.get_handle(run),
            Operation::Link => self.link(run, &read(args)?),
            Operation::Lock => self.lock(run, &read(args)?),
            Operation::LockT => self.test_lock(run, &read(args)?),
            Operation::LockU => self.unlock(run, &read(args)?),
            Operation::Lookup => self.lookup(run, read::<LookupArgs<'_>>(args)?.name),
            Operation::LookupP => self.lookup_parent(run),
            Operation::NVerify => self.verify(run, &read(args)?, true),
            Operation::Open => self.open(run, &read(args)?),
            Operation::OpenDowngrade => self.downgrade(run, &read(args)?),
            Operation::PutFh => self.put_handle(run, &read(args)?),
            Operation::PutPubFh => self.put_root(run, ResOp::PutPubFh(Ok(()))),
            Operation::PutRootFh => self.put_root(run, ResOp::PutRootFh(Ok(()))),
            Operation::Read => self.read(run, &read(args)?),
            Operation::ReadDir => self.read_directory(run, &read(args)?),
            Operation::ReadLink => self.read_link(run),
            Operation::Remove => self.remove(run, &read(args)?),
            Operation::Rename => self.rename(run, &read(args)?),
            Operation::RestoreFh => {
                // RFC 8881 §18.27.3: there is no NFS4ERR_RESTOREFH in this minor version.
                let saved = run.saved.ok_or(Status::NoFileHandle)?;
                run.current = Some(saved);
                run.state = run.saved_state;
                run.push(ResOp::RestoreFh(Ok(())))
            }
            Operation::SaveFh => {
                run.saved = Some(run.object()?);
                run.saved_state = run.state;
                run.push(ResOp::SaveFh(Ok(())))
            }
            Operation::SecInfo => self.security(run, read::<SecInfoArgs<'_>>(args)?.name),
            Operation::SecInfoNoName => self.security_without_name(run, read(args)?),
            Operation::SetAttr => self.set_attributes(run, &read(args)?),
            Operation::Verify => self.verify(run, &read(args)?, false),
            Operation::Write => self.write(run, read(args)?),
            Operation::BackChannelCtl => self.control_backchannel(run, &read(args)?),
            Operation::BindConnToSession => self.bind_connection(run, &read(args)?),
            Operation::ExchangeId => self.exchange_id(run, &read(args)?),
            Operation::CreateSession => self.create_session(run, &read(args)?),
            Operation::DestroySession => self.destroy_session(run, &read(args)?),
            Operation::FreeStateId => self.free_state(run, &read(args)?),
            Operation::TestStateId => self.test_states(run, &read(args)?),
            Operation::DestroyClientId => self.destroy_client(run, &read(args)?),
            Operation::ReclaimComplete => self.reclaim_complete(run, &read(args)?),
            Operation::Sequence => Err(Status::SequencePosition),
            Operation::Allocate => self.reserve(run, &read(args)?, Reserve::Space),
            Operation::Deallocate => self.reserve(run, &read(args)?, Reserve::Nothing),
            Operation::Copy => self.copy(run, &read(args)?),
            Operation::Clone => self.clone_range(run, &read(args)?),
            Operation::Seek => self.seek(run, &read(args)?),
            Operation::GetXattr => self.get_xattr(run, &read(args)?),
            Operation::SetXattr => self.set_xattr(run, &read(args)?),
            Operation::ListXattrs => self.list_xattrs(run, &read(args)?),
            Operation::RemoveXattr => self.remove_xattr(run, &read(args)?),
            // SET_SSV, which rests on RPCSEC_GSS; delegations, layouts, copies between servers. The other REQUIRED operations are above
            // (RFC 8881 §17).
            _ => Err(Status::NotSupported),
        }
    }

    fn put_root(&self, run: &mut Running, result: ResOp<'_>) -> Ran {
        let root = self.root(run)?;
        run.set_object(root);
        run.push(result)
    }
}

/// Reads the arguments of an operation.
///
/// # Errors
///
/// `BadXdr`: they are malformed.
fn read<'a, T: Wire<'a>>(args: &mut CompoundArgs<'a>) -> Result<T, Status> {
    args.arguments().map_err(|_| Status::BadXdr)
}
