//! Users of this machine, who connect over loopback, and the groups of users.

use nfs_server::UserGroups;
use oncrpc::LocalUsers;
use socket_owner::{LocalAddresses, SocketOwners};
use std::sync::Arc;

/// Trust in what callers say of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Users of this machine may claim any uid, as other machines may.
    pub trust_local: bool,
    /// Groups of callers are those of the user database of this machine, and not those of the call.
    pub manage_gids: bool,
}

impl Trust {
    /// Identification of the users of this machine. `for_callers` is whether the server acts for each caller, and not as its
    /// own user only.
    pub(super) fn local_users(&self, for_callers: bool) -> Arc<dyn LocalUsers> {
        if self.trust_local {
            return Arc::new(LocalAddresses);
        }
        if let Err(error) = SocketOwners::check() {
            tracing::warn!(
                %error,
                "cannot identify local users (sock_diag): local connections are refused; load the kernel \
                 module tcp_diag, or use --trust-local"
            );
        }
        Arc::new(match for_callers {
            true => SocketOwners::new(),
            false => SocketOwners::only(rustix::process::geteuid().as_raw()),
        })
    }

    /// The source of the groups of callers.
    pub(super) fn groups(&self) -> UserGroups {
        let users = UserGroups::default();
        match self.manage_gids {
            true => users.of_everybody(),
            false => users,
        }
    }
}
