//! Options of the trust in callers.

use clap::Args;
use rpcrdma_daemon::server::local_users::Trust;

/// Options of the trust in callers.
#[derive(Args, Clone, Debug)]
pub(super) struct TrustArgs {
    /// Trust local users to claim any uid, as other machines are trusted: for tunnels and proxies
    /// that relay calls of several users
    #[arg(long)]
    trust_local: bool,

    /// Take a caller's groups from this machine's user database, not from the call; allows more
    /// than 16 groups
    #[arg(long)]
    manage_gids: bool,
}

impl TrustArgs {
    /// The trust that they ask for.
    pub(super) fn trust(&self) -> Trust {
        Trust {
            trust_local: self.trust_local,
            manage_gids: self.manage_gids,
        }
    }
}
