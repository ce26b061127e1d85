//! Decisions behind the parts of servers that peers share, here and in `rpcrdma`, with their reasons.
//!
//! Resources are divided by address (`PeerGroup`: one IPv4 address, or the /64 of an IPv6 one). A user of the server's
//! machine, who can use all its addresses, counts as one peer, whatever address it uses. The server therefore identifies the
//! user before it admits the connection.
//!
//! - **One rule for what one address may hold.** `rpc_serving::shares` counts places, bytes and threads: an address may hold as
//!   much as it leaves free, or a fixed part, and its first demand is met in any case. `fair_queue` gives turns to addresses,
//!   and to the connections of an address; `loans` says when a connection gives way that holds for long what others wait for.
//!   They are values without a lock, inside the locks of their owners: memory of both servers and of the gateway, threads for
//!   jobs, and calls in flight of `nfs-server`, whose reply cache asks for the same bound.
//! - **A full server evicts the least useful connection.** `rpc_serving::admission` serves both servers, over RDMA and over TCP.
//!   Connections in setup are evicted first, then those of the address with the most, longest idle first. A connection in
//!   use is never evicted. Where no address has at least two more connections than that of the newcomer, the connection that
//!   has been idle longest gives way, whichever address has it, to an address with fewer than 16: otherwise as many
//!   addresses as there are places would keep all others out with one idle connection each. A connection that is kept for
//!   callbacks gives way last. A connection declares itself in use with one atomic operation when it leaves the
//!   idle state, not for each call. Over TCP, where clients make one MOUNT call and leave, a connection that waits for its
//!   client yields to any new one, however many its address has.
//! - **Who ends a connection sets a flag, and wakes its owner.** The stop of the server, eviction, the service and a thread on which
//!   the service failed ask for an end by `rpc_serving::ends`, over RDMA and over TCP. The task that owns the connection finds
//!   the flags with one load in its turns, and each transport has its own way to come to the end: RDMA waits until its
//!   Sends have completed, TCP until the stream has taken what was written. A connection that drains has a deadline of
//!   its own over RDMA; over TCP all have one, after which the server says how many are left.
//! - **Chunk memory is leased in turns, for a limited time.** A call leases what it pulls, and the bound that its arguments
//!   give for its reply, before it is pulled (`driver::budget`). The rest of the lease goes to others when the reply is
//!   sent. An address has a quarter at most. While others wait, a peer that moves less than 64 KiB a second of what it
//!   holds is disconnected (`driver::lease_rate`). A gateway's calls have it until they are written to a TCP
//!   server, or answered by an RDMA server; memory for a TCP server's replies is leased when they arrive (`Service::keeps_calls`, `oncrpc_tcp::ReplyMemory`).
//! - **A server may listen over several providers.** Each listener has an acceptor; all share one set of limits, statistics
//!   and addresses. Only the shared receive queue belongs to one provider, and an address has a part of each.
//! - **Turns on the CPU are shared by address.** A runtime gives each task its turn, so that 256 busy connections of one
//!   address would have 256 turns for one of another. In each round of an event loop the connections of an address have four
//!   turns together (`rpc_serving::turns`), and the others wait in order; then it looks for I/O before the next ones. The event loop
//!   says when a round is over, as a connection that waits is also woken by what arrives for it. Both servers ask for a turn
//!   before each one, the RDMA server also before it sets a connection up, and both accept as many new connections in a round (`rpc_serving::intake`).
//!   A turn has an end: 16 calls, or 64 messages over TCP. An address that has been alone on its event loop for a while has
//!   sixteen turns in a round, until another has one. A connection waits for its turn before it reads: with a thousand that
//!   are ready, what they had read would take as many buffers. What it answers in a turn goes out without a further one, and
//!   nothing else is answered then. A connection that is alone at its address pays a load and a count for that, and looks for
//!   I/O after four turns as well.
//!   `cargo run --release -p hostile-peer --example flood` prints how long another address waits for its replies.
//! - **Jobs are scheduled in turns**, over RDMA and over TCP. Calls that may wait for a disk run on threads that all connections of
//!   a server share (`rpc_serving::jobs`). The next job is chosen in turns between addresses, then connections. An address may use as many
//!   threads as it leaves free. Limits on calls in flight in `nfs-server` follow the same rule. A call that is answered at
//!   once needs none of this. A job that hangs in the kernel (because of a disk, another server, or a local user who has a
//!   file locked) counts as stuck after five seconds: others get one more thread in its place, and its connection may have
//!   one more call. At most as many threads as CPUs are woken at a time. Each wakes the next while jobs wait, and takes
//!   another job after its own.
//! - **A call that waits for the same event as others holds no thread.** Its work is deferred (`Answer::Deferred`): it
//!   returns, and the thread that completes the event delivers the reply.
//! - **A service knows how large its reply can be.** `Caller::reply_room` lets NFS refuse a READ before it reads the file;
//!   `Service::reply_bound` bounds the reply by the arguments.
//! - **The program logs through a bounded queue that drops lines**, and logs their number, so that nothing waits for the
//!   reader of standard error or the journal. Warnings about one address are limited and summarised.
//! - **Event loops feed the watchdog, not a timer.** `Server::workers_respond` waits until each worker has run a task; a
//!   worker that hangs ends the pings.
//! - **Memory of closed connections is returned to the system.** glibc does not do that by itself, so `serve` asks it to
//!   after many connections have closed.
