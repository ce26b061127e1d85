//! One test for each fuzz target.
//!
//! Under `cargo test` each runs its committed corpus, in `__fuzz__` beside this file, and some
//! random inputs. `cargo xtask fuzz` runs the same tests with a fuzzer that follows coverage.

use std::time::Duration;

/// Random inputs for each target under `cargo test`.
const RANDOM_INPUTS: usize = 500;

/// Bytes of a random input at most, and of those that the fuzzer makes.
const INPUT_LEN: usize = 4096;

/// The number of inputs is what ends a test, on a slow machine too.
const NO_HURRY: Duration = Duration::from_secs(3600);

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                bolero::check!(name = stringify!($name))
                    .with_iterations(RANDOM_INPUTS)
                    .with_test_time(NO_HURRY)
                    .with_max_len(INPUT_LEN)
                    .for_each(|bytes: &[u8]| fuzz::$name(bytes));
            }
        )*
    };
}

targets! {
    mpa
    ddp
    rpcrdma_header
    rpcrdma_v2_header
    rpcrdma_v2_ietf07
    rpcrdma_v2_operations
    rpcrdma_v2_session
    rpc
    nfs
    nfs4
    nfs4_compound
    nfs4_state
    text
    iwarp_stream
    iwarp_pair
    rpcrdma_client
    rpcrdma_server
    rpcrdma_ietf07_client
    rpcrdma_ietf07_server
    nfs_dispatch
    nfs_client
    nfs_scan
}
