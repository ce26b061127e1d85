//! Decisions behind this crate, with their reasons.
//!
//! - **`probe` does not use `Client`.** A client hides protocol errors of a peer and recovers in its own way. `probe` posts
//!   messages one at a time and decodes replies with the views. It reads the bytes of connection setup, which
//!   `Iwarp::connect_observed` keeps.
