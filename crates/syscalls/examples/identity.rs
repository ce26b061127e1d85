//! Prints what acting for another user costs: run as root, `cargo run --release --example identity`.

use rustix::fs::Access;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use syscalls::{ActingAs, FsUser, check_access};

/// Repetitions: about a tenth of a second each.
const TIMES: u32 = 50_000;

fn measure(
    what: &str,
    mut act: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    for _ in 0..TIMES {
        act()?;
    }
    println!(
        "{what:46} {:6} ns",
        start.elapsed().as_nanos() / u128::from(TIMES)
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let sixteen: Vec<u32> = (2000..2016).collect();
    let users: [(&str, u32, u32, &[u32]); 5] = [
        ("root", 0, 0, &[]),
        ("root with another group", 0, 33, &[]),
        ("a user without any group", 1001, 0, &[]),
        ("a user without other groups", 1001, 1001, &[]),
        ("a user with 16 groups", 1001, 1001, &sixteen),
    ];
    // As a server does at its start.
    rustix::thread::set_thread_groups(&[])?;
    for (what, uid, gid, groups) in users {
        let user = FsUser { uid, gid, groups };
        measure(&format!("acting for {what}, and back"), || {
            drop(black_box(ActingAs::enter(user)?));
            Ok(())
        })?;
    }
    let file = std::fs::File::open("/")?;
    measure("asking what a thread may do with a file", || {
        Ok(check_access(&file, Access::READ_OK)?)
    })?;
    measure("a system call that does little (fstat)", || {
        black_box(rustix::fs::fstat(&file)?);
        Ok(())
    })
}
