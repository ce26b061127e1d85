//! Counters of operations: by operation, and by export as those of version 3.

use crate::export_metrics::{OperationClass, Tally};
use crate::metrics::{self, ErrorClass, Metrics, Sample};
use nfs_proto::v4::{Operation, Status};

/// Numbers of operations, from 0, which stands for all that are none.
const OPERATIONS: usize = Operation::RemoveXattr as usize + 1;

/// Counters of operations.
pub(super) type OperationMetrics = Metrics<OPERATIONS>;

/// Counters that are zero.
pub(super) fn metrics() -> OperationMetrics {
    Metrics::new(metrics::Counted {
        program: "nfs4",
        procedure: name,
        failure: |_, _| None,
    })
}

/// Figures of an operation in execution, which are counted with it.
#[derive(Default)]
pub(super) struct Counted {
    bytes: u64,
    sample: Option<Sample>,
}

impl Counted {
    /// Begins an operation.
    pub(super) fn begin() -> Self {
        Self {
            bytes: 0,
            sample: Sample::take(),
        }
    }

    /// Notes how much file data was moved.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = bytes;
    }
}

/// Counts an operation whose result is there. Returns what is to be counted of it for the export whose file it was about, if it is one
/// on a file.
#[inline]
pub(super) fn count(
    metrics: &OperationMetrics,
    operation: Operation,
    result: Result<(), Status>,
    counted: Counted,
) -> Option<(OperationClass, Tally)> {
    let Counted { bytes, sample } = counted;
    let failure = result.err().and_then(class);
    let number = match operation {
        Operation::Illegal => 0,
        operation => operation as u32,
    };
    metrics.operation(number, failure, sample);
    kind(operation).map(|class| (class, Tally { failure, bytes }))
}

/// Returns the class of an operation on a file; `None` for one that only handles file handles, state or sessions.
fn kind(operation: Operation) -> Option<OperationClass> {
    Some(match operation {
        Operation::Read | Operation::ReadPlus => OperationClass::Read,
        Operation::Write
        | Operation::Commit
        | Operation::WriteSame
        | Operation::Allocate
        | Operation::Deallocate
        | Operation::Copy
        | Operation::Clone => OperationClass::Write,
        Operation::SetAttr
        | Operation::Create
        | Operation::Remove
        | Operation::Rename
        | Operation::Link
        | Operation::SetXattr
        | Operation::RemoveXattr => OperationClass::Change,
        Operation::GetAttr
        | Operation::Lookup
        | Operation::LookupP
        | Operation::Access
        | Operation::Open
        | Operation::ReadDir
        | Operation::ReadLink
        | Operation::Seek
        | Operation::GetXattr
        | Operation::ListXattrs
        | Operation::Verify
        | Operation::NVerify => OperationClass::Metadata,
        _ => return None,
    })
}

/// Returns the class of an error; `None` for the answers of VERIFY and NVERIFY, which are none.
fn class(status: Status) -> Option<ErrorClass> {
    Some(match status {
        Status::Same | Status::NotSame => return None,
        Status::NoEntry | Status::NoDeviceAddress | Status::NoXattr => ErrorClass::NotFound,
        Status::Stale | Status::BadHandle | Status::HandleExpired | Status::Moved => {
            ErrorClass::Stale
        }
        Status::Perm
        | Status::Access
        | Status::ReadOnly
        | Status::CrossDevice
        | Status::WrongSecurity
        | Status::WrongCredential => ErrorClass::Denied,
        Status::Exist
        | Status::NotEmpty
        | Status::NotDirectory
        | Status::IsDirectory
        | Status::Symlink
        | Status::WrongType
        | Status::FileOpen => ErrorClass::Exists,
        Status::NoSpace
        | Status::Quota
        | Status::TooBig
        | Status::TooManyLinks
        | Status::XattrTooBig => ErrorClass::Space,
        Status::Delay | Status::Grace => ErrorClass::Jukebox,
        Status::Denied
        | Status::ShareDenied
        | Status::Locked
        | Status::LocksHeld
        | Status::Deadlock => ErrorClass::Locked,
        Status::Expired
        | Status::ClientIdInUse
        | Status::StaleClientId
        | Status::StaleStateId
        | Status::OldStateId
        | Status::BadStateId
        | Status::BadSeqid
        | Status::NoGrace
        | Status::ReclaimBad
        | Status::ReclaimConflict
        | Status::AdminRevoked
        | Status::OpenMode
        | Status::BadSession
        | Status::BadSlot
        | Status::CompleteAlready
        | Status::ConnectionNotBound
        | Status::SequenceMisordered
        | Status::SequenceFalseRetry
        | Status::RetryUncachedReply
        | Status::BadHighSlot
        | Status::DeadSession
        | Status::ClientIdBusy
        | Status::DelegationRevoked => ErrorClass::State,
        Status::Io | Status::ServerFault => ErrorClass::Server,
        _ => ErrorClass::Invalid,
    })
}

/// Returns the name of an operation, as in RFC 8881 §18, RFC 7862 §15 and RFC 8276 §8.
fn name(number: u32) -> Option<&'static str> {
    if number == 0 {
        return Some("ILLEGAL");
    }
    Some(match Operation::try_from(number).ok()? {
        Operation::Access => "ACCESS",
        Operation::Close => "CLOSE",
        Operation::Commit => "COMMIT",
        Operation::Create => "CREATE",
        Operation::DelegPurge => "DELEGPURGE",
        Operation::DelegReturn => "DELEGRETURN",
        Operation::GetAttr => "GETATTR",
        Operation::GetFh => "GETFH",
        Operation::Link => "LINK",
        Operation::Lock => "LOCK",
        Operation::LockT => "LOCKT",
        Operation::LockU => "LOCKU",
        Operation::Lookup => "LOOKUP",
        Operation::LookupP => "LOOKUPP",
        Operation::NVerify => "NVERIFY",
        Operation::Open => "OPEN",
        Operation::OpenAttr => "OPENATTR",
        Operation::OpenConfirm => "OPEN_CONFIRM",
        Operation::OpenDowngrade => "OPEN_DOWNGRADE",
        Operation::PutFh => "PUTFH",
        Operation::PutPubFh => "PUTPUBFH",
        Operation::PutRootFh => "PUTROOTFH",
        Operation::Read => "READ",
        Operation::ReadDir => "READDIR",
        Operation::ReadLink => "READLINK",
        Operation::Remove => "REMOVE",
        Operation::Rename => "RENAME",
        Operation::Renew => "RENEW",
        Operation::RestoreFh => "RESTOREFH",
        Operation::SaveFh => "SAVEFH",
        Operation::SecInfo => "SECINFO",
        Operation::SetAttr => "SETATTR",
        Operation::SetClientId => "SETCLIENTID",
        Operation::SetClientIdConfirm => "SETCLIENTID_CONFIRM",
        Operation::Verify => "VERIFY",
        Operation::Write => "WRITE",
        Operation::ReleaseLockOwner => "RELEASE_LOCKOWNER",
        Operation::BackChannelCtl => "BACKCHANNEL_CTL",
        Operation::BindConnToSession => "BIND_CONN_TO_SESSION",
        Operation::ExchangeId => "EXCHANGE_ID",
        Operation::CreateSession => "CREATE_SESSION",
        Operation::DestroySession => "DESTROY_SESSION",
        Operation::FreeStateId => "FREE_STATEID",
        Operation::GetDirDelegation => "GET_DIR_DELEGATION",
        Operation::GetDeviceInfo => "GETDEVICEINFO",
        Operation::GetDeviceList => "GETDEVICELIST",
        Operation::LayoutCommit => "LAYOUTCOMMIT",
        Operation::LayoutGet => "LAYOUTGET",
        Operation::LayoutReturn => "LAYOUTRETURN",
        Operation::SecInfoNoName => "SECINFO_NO_NAME",
        Operation::Sequence => "SEQUENCE",
        Operation::SetSsv => "SET_SSV",
        Operation::TestStateId => "TEST_STATEID",
        Operation::WantDelegation => "WANT_DELEGATION",
        Operation::DestroyClientId => "DESTROY_CLIENTID",
        Operation::ReclaimComplete => "RECLAIM_COMPLETE",
        Operation::Allocate => "ALLOCATE",
        Operation::Copy => "COPY",
        Operation::CopyNotify => "COPY_NOTIFY",
        Operation::Deallocate => "DEALLOCATE",
        Operation::IoAdvise => "IO_ADVISE",
        Operation::LayoutError => "LAYOUTERROR",
        Operation::LayoutStats => "LAYOUTSTATS",
        Operation::OffloadCancel => "OFFLOAD_CANCEL",
        Operation::OffloadStatus => "OFFLOAD_STATUS",
        Operation::ReadPlus => "READ_PLUS",
        Operation::Seek => "SEEK",
        Operation::WriteSame => "WRITE_SAME",
        Operation::Clone => "CLONE",
        Operation::GetXattr => "GETXATTR",
        Operation::SetXattr => "SETXATTR",
        Operation::ListXattrs => "LISTXATTRS",
        Operation::RemoveXattr => "REMOVEXATTR",
        Operation::Illegal => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let names: Vec<_> = (0..u32::MAX).take(OPERATIONS).filter_map(name).collect();
        assert_eq!(names.len(), OPERATIONS - 2, "there are none with 1 and 2");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert_eq!(
            (names[1], names[names.len() - 1]),
            ("ACCESS", "REMOVEXATTR")
        );
    }

    #[test]
    fn answers_of_verify_are_no_errors_and_locks_of_others_are_told_apart() {
        assert_eq!(class(Status::Same), None);
        assert_eq!(class(Status::Denied), Some(ErrorClass::Locked));
        assert_eq!(class(Status::BadStateId), Some(ErrorClass::State));
        assert_eq!(class(Status::Grace), Some(ErrorClass::Jukebox));
    }
}
