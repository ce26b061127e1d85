//! Decisions behind this crate, with their reasons.
//!
//! - **Local users cannot impersonate each other.** Everybody on the machine can connect over loopback and claim any uid. A
//!   server asks the kernel once per connection who owns the peer's socket (`LocalUsers`, `socket-owner`): one exact lookup
//!   of sock_diag, about 20 µs, on the task of the connection. Root and the kernel may act for others. Anyone else is denied
//!   any uid but its own (AUTH_BADCRED), and has the groups of the user database. A socket with a local address that is not
//!   found, or is being closed, is refused: data it sent may still be read, and the kernel shows such a socket as root's:
//!   it has no inode then, while sockets of the kernel have one. The question names the interface of the server's socket,
//!   and the server's socket must still be connected after the answer, because its addresses may be those of two
//!   connections: in two VRFs, or one after the other. An address is local if a routing table says so or an interface has
//!   it, in whatever VRF. Where the kernel cannot be asked, local connections are refused;
//!   treating them as nobody would let them in where the server acts as its own user for everybody.
