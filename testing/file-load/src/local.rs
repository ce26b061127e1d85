//! The same files made by a program on this machine, as a measure of what the disk can do.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{Amount, file_name, say};

/// Makes, writes and syncs the files, and removes them.
///
/// # Errors
///
/// The directory exists, or something cannot be made.
pub(crate) fn run(dir: &Path, amount: Amount) -> Result<()> {
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let done = made(dir, amount);
    fs::remove_dir_all(dir).context("cannot remove the files")?;
    done
}

fn made(dir: &Path, amount: Amount) -> Result<()> {
    let data = vec![0x5a; amount.size];
    let next = AtomicU32::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..amount.depth)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= amount.files {
                            return Ok(());
                        }
                        let mut file = File::create_new(dir.join(file_name("put", number)))?;
                        file.write_all(&data)?;
                        file.sync_all()?;
                    }
                })
            })
            .collect();
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(made) => made,
            Err(_) => Err(std::io::Error::other("a thread panicked")),
        });
        results.collect::<std::io::Result<()>>()
    })?;
    say("put", amount.depth, amount.files, begun);
    Ok(())
}
