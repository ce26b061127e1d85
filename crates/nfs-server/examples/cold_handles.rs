//! Measures GETATTR by the handle of a file that the server has not open.
//!
//! `cold_handles EXPORT DIRECTORY STATE [table]` takes handles of files in a directory of the export,
//! opens the export anew as after a restart, and asks for the attributes of each; then it removes one of
//! the files, and asks for that. With `table` it does not use handles of the kernel.

use nfs_server::fs::{Error, FileId, Identity, Name, Step};
use nfs_server::{FileSystem, Handles, LocalFs, LocalFsOptions};
use std::error::Error as Failure;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files that are asked for, spread over the directory.
const FILES: usize = 200;

/// Calls with the handle of a removed file.
const CALLS: u32 = 120;

fn main() -> Result<(), Box<dyn Failure>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (export, directory, state, handles) = match &args[..] {
        [export, directory, state] => (export, directory, state, Handles::Auto),
        [export, directory, state, table] if table == "table" => {
            (export, directory, state, Handles::Table)
        }
        _ => return Err("usage: cold_handles EXPORT DIRECTORY STATE [table]".into()),
    };
    let path = Path::new(export).join(directory);
    let names = names(&path)?;
    let open = || {
        let options = LocalFsOptions::default()
            .with_state_dir(PathBuf::from(state))
            .with_handles(handles);
        LocalFs::open(export, options)
    };
    let fs = open()?;
    let dir = look_up(&fs, fs.root(), directory.as_bytes())?;
    let files = names.iter().map(|name| look_up(&fs, dir, name.as_bytes()));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    drop(fs);

    let fs = open()?;
    let mut times: Vec<Duration> = Vec::new();
    for file in &files {
        let begin = Instant::now();
        fs.attributes(*file).wait()?;
        times.push(begin.elapsed());
    }
    let first = times.remove(0);
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    println!(
        "cold: first {first:?}, then {} files: mean {:?}, median {:?}, most {:?}",
        times.len(),
        total / u32::try_from(times.len())?,
        times[times.len() / 2],
        times[times.len() - 1],
    );

    std::fs::remove_file(path.join(&names[0]))?;
    let begin = Instant::now();
    for _ in 0..CALLS {
        if fs.attributes(files[0]).wait() != Err(Error::Stale) {
            return Err("a removed file is stale".into());
        }
    }
    println!("removed: {CALLS} calls in {:?}", begin.elapsed());
    Ok(())
}

/// Names of files all over the directory.
fn names(path: &Path) -> Result<Vec<String>, Box<dyn Failure>> {
    let entries = std::fs::read_dir(path)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_, std::io::Error>>()?;
    if names.len() < FILES {
        return Err(format!("{} has fewer than {FILES} files", path.display()).into());
    }
    // Not in the order in which they are read, of which neighbours would profit.
    let step = names.len() / FILES;
    let chosen = (0..FILES).map(|n| names[(n * 77 % FILES) * step].clone());
    Ok(chosen.collect())
}

fn look_up(fs: &LocalFs, dir: FileId, name: &[u8]) -> Result<FileId, Box<dyn Failure>> {
    let name = Name::new(name)?;
    let seen = fs.lookup(&Identity::root(), dir, Step::Name(name)).wait();
    Ok(seen.result?.file)
}
