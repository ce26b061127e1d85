//! The `rpcrdma` program.

fn main() {}
