//! Decisions behind this crate, with their reasons.
//!
//! `rpcrdma::driver` has one event loop for clients and servers. A `Driver` owns the queue pair, the protocol state and the
//! deadlines of one connection:
//!
//! ```text
//! loop
//!     send calls of this end         outgoing: as far as there are credits
//!     move                           endpoint: post, progress, completions
//!     deliver                        replies to callers; calls of the peer to the service
//!     nothing to do?                 spin for 50 us, look around (deadlines), post what that found, park
//! ```
//!
//! A task that waits for its peer reads the socket in each round of spinning. One that waits for something of this process, a
//! call to send or the answer to a call of the peer, lets the runtime have its turn in each round. Where spinning kept another
//! process from the CPU several times, it is left out for a while. A future of the service is
//! polled by the task of its connection, the first time where its call arrives: what it sends elsewhere goes out at once, and no
//! other task is woken for its reply (`rpc_serving::dispatch`, for TCP as well).
//!
//! What differs between client and server is a `Policy`: `client::pump` (first reply, idle end, reconnect) and
//! `server::serve` (grants, drain, calls to the client). A policy says when calls may be sent and answered, and has one
//! `look_around`. All deadlines are in one table, `driver::deadlines`, with one `next()`.
//!
//! - **Our client receives 8 KiB inline and our server sends as much**, so that a READ of 4 KiB between them is one Send. A
//!   Linux peer announces 4 KiB, and gets that.
//! - **A server sends up to sixteen replies in one write, small ones up to 64 KiB in total.** With a whole batch in one
//!   write, client and server would work alternately. With one write for each reply, system calls would be most of the
//!   work. Beyond 64 KiB, TCP sends the rest separately.
//! - **`Service::call` does not wait.** It answers at once, or returns work for another thread, or a future. A READ from the
//!   page cache is answered by the task that read the call from the socket.
//! - **Several connections share the calls of a client.** With `--nconnect`, each call goes to the connection with the
//!   fewest calls, and waits there. Calls in flight on a lost connection go over another one that is up, with the same XID,
//!   preferably one that has delivered a reply. If a connection cannot be established because the server accepts no more,
//!   only the attempts are lost.
//! - **Calls without a credit wait in an unbounded queue, served round-robin per handle.** A waiting call is a future that
//!   its caller holds, so a bound would only move the wait. Handles created with `Client::new_user` have a queue each, so a
//!   thousand calls of one handle delay no other.
//! - **Deadlines are checked once a second.** Reading the clock for each call would cost more than its place in the queue.
//!   For a per-call timeout, use `Client::within`.
//! - **The first reply of a connection has its own, shorter timeout.** A restarted server may accept a connection and never
//!   serve it. Such a connection is given up after 15 seconds, the next one after twice as long, and so on. A call outlives
//!   several of them, and a slow server is still served. A reply over any connection of the client shows that the server is
//!   not slow.
//! - **A server calls its clients through a registry of connections**, the same over RDMA and over TCP
//!   (`rpc_serving::backchannels`). A `Caller` names its connection by a number. `Backchannels` maps the number to a `Backchannel`, and only the one that `client_is_ready` returns can call (RFC 8167
//!   §6). It ends with the connection; a client that reconnects declares itself ready again. A client that answers no
//!   calls, until no credit is left for others, is disconnected.
//! - **Health checks are for providers without keepalive.** TCP detects a dead peer itself. Where `Limits::keepalive` is
//!   false, a silent peer that owes something is called with NULL on a credit reserved for that (RFC 8267 §6.7.2).
//! - **Devices are tried before software iWARP, and stay beside it** (`any`). A server that answers nothing over a device costs a
//!   connection three seconds, a `Connector` once a minute, and others at the same time wait for the first of them. A server that
//!   refuses is there, and is not tried again. A server listens at each address that has a device: a wildcard of the connection
//!   manager would take the port of software iWARP on iWARP devices.
//! - **A client can verify remote invalidation with a scratch region first.** A provider that fails, in that test or in a
//!   call, is not asked for remote invalidation again.
