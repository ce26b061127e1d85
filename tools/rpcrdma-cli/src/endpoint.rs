//! Hosts and ports of servers.

pub(crate) use nfs_client::{Endpoint, NO_ADDRESS};
pub(crate) use rpcrdma_daemon::addresses::at_port;
