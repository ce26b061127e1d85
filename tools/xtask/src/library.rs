//! Promises to users of the published crates: examples that run, features that build alone, packages
//! that can be published, the minimum version of Rust, and versions that tell of breaking changes.

mod examples;
mod features;
mod publish;
mod rust_version;
mod semver;

pub(crate) use examples::run as examples;
pub(crate) use features::run as features;
pub(crate) use publish::run as publish;
pub(crate) use rust_version::run as rust_version;
pub(crate) use semver::{Options as SemverOptions, run as semver};
