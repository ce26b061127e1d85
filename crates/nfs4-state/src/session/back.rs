//! The back channel of a session: its slot (RFC 8881 §2.10.6.1, §20.9), and how the client wants to be called.

use nfs_proto::v4::security::{CallbackSecurities, CallbackSecurity};
use nfs_proto::v4::{SequenceId, SlotId};
use std::sync::Arc;

/// Credential for the callbacks of a session, as its client wants it (RFC 8881 §18.36.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackCredential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(Arc<SysCallbackCredential>),
}

/// Credential of AUTH_SYS (RFC 5531 Appendix A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysCallbackCredential {
    /// Any number.
    pub stamp: u32,
    /// Name of a machine.
    pub machine_name: Box<[u8]>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub gids: Box<[u32]>,
}

impl CallbackCredential {
    /// Returns the first of a client's credentials that can be used; `None` if there is only RPCSEC_GSS. A client that lists none is
    /// taken to want AUTH_NONE: the RFC has no rule.
    pub(crate) fn of(listed: &CallbackSecurities<'_>) -> Option<Self> {
        if listed.is_empty() {
            return Some(Self::None);
        }
        listed.iter().find_map(|security| match security {
            CallbackSecurity::None => Some(Self::None),
            CallbackSecurity::Sys(sys) => Some(Self::Sys(Arc::new(SysCallbackCredential {
                stamp: sys.stamp,
                machine_name: sys.machine_name.get().into(),
                uid: sys.uid,
                gid: sys.gid,
                gids: sys.gids.iter().collect(),
            }))),
            CallbackSecurity::Gss(_) => None,
        })
    }
}

/// How to call the client of a session.
#[derive(Clone, Debug)]
pub(crate) struct CallbackSettings {
    pub(crate) program: u32,
    pub(crate) minor_version: u32,
    /// `None`: in no way that this server knows.
    pub(crate) credential: Option<CallbackCredential>,
}

/// Place of a callback in the back channel of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackSlot {
    /// The slot.
    pub slot: SlotId,
    /// The sequence id.
    pub sequence: SequenceId,
}

/// End of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackResult {
    /// The client executed it.
    Executed,
    /// The client did not execute it: it was not sent, or CB_SEQUENCE failed, which changes no slot (RFC 8881 §20.9.3).
    NotExecuted,
    /// Nobody knows: it was sent, and no reply came.
    Unknown,
}

/// The slot 0 of a back channel.
#[derive(Debug, Default)]
pub(crate) struct BackSlot {
    /// Sequence id of the last callback that was executed; the first is one (RFC 8881 §18.36.4).
    last: u32,
    is_busy: bool,
}

impl BackSlot {
    /// Takes the slot, if it is free.
    pub(crate) fn begin(&mut self) -> Option<CallbackSlot> {
        if std::mem::replace(&mut self.is_busy, true) {
            return None;
        }
        Some(CallbackSlot {
            slot: SlotId(0),
            sequence: SequenceId(self.last.wrapping_add(1)),
        })
    }

    /// Frees the slot.
    pub(crate) fn end(&mut self, result: CallbackResult) {
        self.is_busy = false;
        if result == CallbackResult::Executed {
            self.last = self.last.wrapping_add(1);
        }
    }
}
