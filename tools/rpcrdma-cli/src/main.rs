//! The `rpcrdma` program: NFS over RDMA in userspace.

use std::process::ExitCode;

fn main() -> ExitCode {
    rpcrdma_cli::main()
}
