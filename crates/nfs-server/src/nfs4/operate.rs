//! Operations of a COMPOUND by number.

use super::Nfs4;
use super::compound::{Ran, Running};
use crate::fs::Reserve;
use nfs_proto::v4::{ArgOp, ResOp, Status};

impl Nfs4 {
    /// Executes an operation that is not the SEQUENCE at the beginning.
    pub(super) fn operate(&self, run: &mut Running, operation: ArgOp<'_>) -> Ran {
        match operation {
            ArgOp::Access(args) => self.access(run, &args),
            ArgOp::Close(args) => self.close(run, &args),
            ArgOp::Commit(args) => self.commit(run, &args),
            ArgOp::Create(args) => self.create(run, args),
            ArgOp::GetAttr(args) => self.get_attributes(run, &args),
            ArgOp::GetFh => self.get_handle(run),
            ArgOp::Link(args) => self.link(run, &args),
            ArgOp::Lock(args) => self.lock(run, &args),
            ArgOp::LockT(args) => self.test_lock(run, &args),
            ArgOp::LockU(args) => self.unlock(run, &args),
            ArgOp::Lookup(args) => self.lookup(run, args.name),
            ArgOp::LookupP => self.lookup_parent(run),
            ArgOp::NVerify(args) => self.verify(run, &args, true),
            ArgOp::Open(args) => self.open(run, &args),
            ArgOp::OpenDowngrade(args) => self.downgrade(run, &args),
            ArgOp::PutFh(args) => self.put_handle(run, &args),
            ArgOp::PutPubFh => self.put_root(run, ResOp::PutPubFh(Ok(()))),
            ArgOp::PutRootFh => self.put_root(run, ResOp::PutRootFh(Ok(()))),
            ArgOp::Read(args) => self.read(run, &args),
            ArgOp::ReadDir(args) => self.read_directory(run, &args),
            ArgOp::ReadLink => self.read_link(run),
            ArgOp::Remove(args) => self.remove(run, &args),
            ArgOp::Rename(args) => self.rename(run, &args),
            ArgOp::RestoreFh => {
                // RFC 8881 §18.27.3: there is no NFS4ERR_RESTOREFH in this minor version.
                let saved = run.saved.ok_or(Status::NoFileHandle)?;
                run.current = Some(saved);
                run.state = run.saved_state;
                run.push(ResOp::RestoreFh(Ok(())))
            }
            ArgOp::SaveFh => {
                run.saved = Some(run.object()?);
                run.saved_state = run.state;
                run.push(ResOp::SaveFh(Ok(())))
            }
            ArgOp::SecInfo(args) => self.security(run, args.name),
            ArgOp::SecInfoNoName(style) => self.security_without_name(run, style),
            ArgOp::SetAttr(args) => self.set_attributes(run, &args),
            ArgOp::Verify(args) => self.verify(run, &args, false),
            ArgOp::Write(args) => self.write(run, args),
            ArgOp::BackChannelCtl(args) => self.control_backchannel(run, &args),
            ArgOp::BindConnToSession(args) => self.bind_connection(run, &args),
            ArgOp::ExchangeId(args) => self.exchange_id(run, &args),
            ArgOp::CreateSession(args) => self.create_session(run, &args),
            ArgOp::DestroySession(args) => self.destroy_session(run, &args),
            ArgOp::FreeStateId(args) => self.free_state(run, &args),
            ArgOp::TestStateId(args) => self.test_states(run, &args),
            ArgOp::DestroyClientId(args) => self.destroy_client(run, &args),
            ArgOp::ReclaimComplete(args) => self.reclaim_complete(run, &args),
            ArgOp::Sequence(_) => Err(Status::SequencePosition),
            ArgOp::Allocate(args) => self.reserve(run, &args, Reserve::Space),
            ArgOp::Deallocate(args) => self.reserve(run, &args, Reserve::Nothing),
            ArgOp::Copy(args) => self.copy(run, &args),
            ArgOp::Clone(args) => self.clone_range(run, &args),
            ArgOp::Seek(args) => self.seek(run, &args),
            ArgOp::GetXattr(args) => self.get_xattr(run, &args),
            ArgOp::SetXattr(args) => self.set_xattr(run, &args),
            ArgOp::ListXattrs(args) => self.list_xattrs(run, &args),
            ArgOp::RemoveXattr(args) => self.remove_xattr(run, &args),
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
