//! Decisions behind this crate, with their reasons.
//!
//! - **`probe` does not use `Client`.** A client hides protocol errors of a peer and recovers in its own way. `probe` posts
//!   messages one at a time and decodes replies with the views. It reads the bytes of connection setup, which
//!   `Iwarp::connect_observed` keeps.
//! - **Signals end a copy by their default action.** A copy that cleaned up after SIGINT raises it again, so that a shell
//!   that runs it in a loop sees why it ended. An exit code of 130 would not tell that.
