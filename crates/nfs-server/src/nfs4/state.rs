//! The state of all clients, shared by the connections: a lock around a [`Server`](nfs4_state::Server), and what it demands.
