//! Programs that tests and measurements build, start and stop: cargo and what it builds, commands with a time limit, servers
//! and gateways of this project as processes of their own, tools of fixed versions, and programs of Debian packages.

pub mod command;
pub mod cpu;
pub mod debian;
pub mod gateway;
pub mod lines;
pub mod parallel;
mod root;
pub mod server;
pub mod tool;
pub mod tsv;

pub use root::root;
