//! The project's chores: `cargo xtask`.

fn main() {}
