//! Operations on files.
//!
//! The top of the stack. An operation is a function of the [`Layers`](super::layers::Layers), with the
//! caller and ids of files; it finds the files, checks rights, and does what the client asked for,
//! with the attributes before and after that replies of NFS carry. Operations call any layer.
//! They have the state that orders them: whose turn it is to change a file (`turns.rs`), and parts
//! of listings kept for the next page (`listing_parts.rs`).
//!
//! Among themselves: `make.rs` uses `entries.rs` and `attributes.rs`, and that, `held.rs`,
//! `ranges.rs` and `copies.rs` use `data.rs`.

pub(in crate::localfs) mod acl;
pub(in crate::localfs) mod attributes;
mod by_name;
pub(in crate::localfs) mod copies;
pub(in crate::localfs) mod data;
pub(in crate::localfs) mod entries;
pub(in crate::localfs) mod held;
mod listed_entry;
pub(in crate::localfs) mod listing;
pub(in crate::localfs) mod listing_parts;
pub(in crate::localfs) mod make;
pub(in crate::localfs) mod ranges;
pub(in crate::localfs) mod root;
pub(in crate::localfs) mod turns;
pub(in crate::localfs) mod xattrs;
