//! The driver of RPC-over-RDMA connections: event loop, timers, pool; Client and Server.
