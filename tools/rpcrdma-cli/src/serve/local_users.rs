//! Users of this machine, who connect over loopback, and the groups of users.

use clap::Args;
use nfs_server::UserGroups;
use oncrpc::LocalUsers;
use socket_owner::{LocalAddresses, SocketOwners};
use std::sync::Arc;

/// How far callers are believed.
#[derive(Args, Clone, Debug)]
pub(super) struct Trust {
    /// Trust local users to claim any uid, as other machines are trusted: for tunnels and proxies
    /// that relay calls of several users
    #[arg(long)]
    trust_local: bool,

    /// Take a caller's groups from this machine's user database, not from the call; allows more
    /// than 16 groups
    #[arg(long)]
    manage_gids: bool,
}

impl Trust {
    /// What tells users of this machine from others, and who they are; `for_callers` is whether the server acts for each caller,
    /// and not as its own user only.
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

    /// Whether users of this machine are believed whoever they say they are.
    pub(super) fn trusts_local(&self) -> bool {
        self.trust_local
    }

    /// Whether the groups of callers are looked up here.
    pub(super) fn manages_gids(&self) -> bool {
        self.manage_gids
    }

    /// Where the groups of callers come from.
    pub(super) fn groups(&self) -> UserGroups {
        let users = UserGroups::default();
        match self.manage_gids {
            true => users.of_everybody(),
            false => users,
        }
    }
}
