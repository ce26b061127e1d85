//! Decisions behind this crate, with their reasons.
//!
//! - **One value for all state.** Sessions, opens, locks and leases depend on each other: a lock that is refused may end a client
//!   whose lease ran out, and that ends its sessions and tells others that wait. One owner with one order of events can
//!   be tested against a simple model, and needs no lock inside.
//! - **A client is recorded at RECLAIM_COMPLETE**, not when its client id is confirmed. Until then it can make no new state (RFC
//!   8881 §18.51.3), and afterwards it knows that what it has not reclaimed is lost. If it were recorded with its client
//!   id, a client that lost its state, made a new client id and saw the server restart before it tried to reclaim would
//!   be let in again, and take from others what they had got meanwhile. The model found this. For the same reason, records
//!   of all clients that have not sent RECLAIM_COMPLETE go when grace ends.
//! - **The record goes before the state does.** State of a client whose lease ran out, in the way of another, is given to it
//!   only when the record's removal is durable (RFC 8881 §8.4.3). Until then `Delay` is the answer.
//! - **State of a client whose lease ran out stays** until it is in the way of others, or for a bounded time, or until others
//!   need the room. Then all of the client ends, with its client id: partial revocation, and the flags that tell of it
//!   (EXPIRED_SOME_STATE_REVOKED, EXPIRED_ALL_STATE_REVOKED), lead Linux to a recovery that never sends RECLAIM_COMPLETE. After
//!   BADSESSION and STALE_CLIENTID it does.
//! - **Grace goes on for those who reclaim**: a client that comes back late gets time for each next reclaim, up to the length of the
//!   period once more. Others wait a little longer, and programs keep their locks.
//! - **Slots are never taken from a client that could use them.** Linux hangs after BADSLOT. Slots are taken back in rounds, in each of
//!   which the client uses all slots again that it needs, as its highest slot says, none of them above the target. After the
//!   first no reply with another target is on its way; such a reply, if it comes late, can have Linux use the slots again. After two
//!   more it has read the target twice: Linux may ignore the first that is lower after a higher one. The sequence id of a
//!   slot that was taken back is kept, and when the slot comes back the client may go on with it or begin with one: it may
//!   or may not have read that the slot was gone.
//! - **An eighth of the slots is kept for those who come.** When it is touched, sessions with more than their part are asked for as many as
//!   are lacking, some sessions at a time in turns: also those whose clients are idle, which would hear of a target only with
//!   their next renewal. Addresses have equal parts, and the sessions of each: many sessions of one are no larger part. What a client
//!   was asked for counts as free for a lease or two. After that it is not expected any more, and others are asked: a client that
//!   gives nothing back has what it was granted, and no more of the eighth than its part.
//! - **A retry of a request that is being executed** is reported to the caller, not answered: `NFS4ERR_DELAY` to SEQUENCE makes
//!   Linux wait for 15 s, and a retry comes on a new connection, as the old one is dead, so that the caller can answer it
//!   there when the request is done.
//! - **Ids are random.** An index into a table makes session ids and state ids quick to find; the 96 or 64 bits beside it
//!   make them hard to guess. Client ids are looked up in a hash table.
//! - **Share reservations count the own opens**, as RFC 8881 §9.7 has it: an owner that denies reading cannot open for reading a
//!   second time.
//! - **The open through which a lock was made is part of it**, so that CLOSE releases the locks of its open alone when a lock owner has
//!   locked through several (RFC 8881 §9.5). Locks of one owner through two opens do not merge.
//! - **A free lock is kept for the one that waits for it** against others that also wait, for some seconds, and not against those
//!   that only try: for them a lock that nobody holds is free.
//! - **Deadlocks between lock owners are not looked for**: NFS4ERR_DEADLOCK is optional (RFC 8881 §18.10), and owners wait by
//!   asking again.
//! - **A lock survives an OPEN_DOWNGRADE** that takes the access it needed. It cannot be reclaimed then, as the reclaimed open lacks
//!   the access.
