//! Decisions behind this crate, with their reasons.
//!
//! - **`lab self --profile` makes each process sample itself.** A CPU timer raises SIGPROF. The handler (`syscalls::Sampling`)
//!   stores the instruction and the result register, without unwinding. A sample belongs to the innermost known layer among
//!   the functions inlined at that address, by source file, then by symbol. The result register distinguishes a read of an
//!   empty socket, which is waiting, from one that moved bytes. The kernel checks such timers at its ticks, often 250 times
//!   a second. Without debug information it refuses, because names alone would assign samples to the wrong layers. The
//!   crate `pprof` would do the same with 45 dependencies and an unwinder in the handler, and `backtrace` adds twice the
//!   build time of the four crates that read the debug information here. `perf` is not available to everybody.
//! - **Remote invalidation designs are compared below the driver.** `lab invalidation` drives two `Connection`s over a
//!   provider, in virtual time with a model of the cost of an RNIC (`verbs_sim::Costs`), or over an RDMA device, whose work
//!   is counted: the same code that every command uses, and nothing else in the figures. `lab thresholds` and `lab
//!   negotiation` use the same model.
//! - **Figures of the model are made by commands that their pages name**, between comments. `cargo xtask docs`, and so CI,
//!   compares rows of them with the program, and `--write` writes all of them with their plots. What was measured on a
//!   machine is not compared, and says which machine and when.
