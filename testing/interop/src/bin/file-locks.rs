//! A process that locks bytes of files as it is told to, for scripts of the guest.
//!
//! Each line of its input is a command, and each is answered with one line: `ok`, or what the command finds. Locks are those of
//! POSIX, so they belong to this process. NAME is any word that names an open file.
//!
//! | command | does |
//! |---|---|
//! | `open NAME PATH` | opens a file |
//! | `open NAME PATH direct` | opens a file whose data no cache is to hold |
//! | `lock NAME KIND START LENGTH` | locks bytes, or says `busy` |
//! | `wait NAME KIND START LENGTH` | locks bytes, and waits for them |
//! | `unlock NAME START LENGTH` | unlocks them |
//! | `test NAME KIND START LENGTH` | says `free`, or what is in the way: `KIND START LENGTH` |
//! | `ranges NAME COUNT` | locks COUNT ranges of 10 bytes, 10 bytes apart |
//! | `child NAME KIND START LENGTH` | has a child, which inherits the open file, lock bytes and end |
//! | `write NAME START TEXT` | writes a word |
//! | `sync NAME` | has what was written reach stable storage |
//! | `read NAME START LENGTH` | says what is there |
//! | `records NAME PATH` | writes records and syncs them in turns until PATH exists, and says how many there are |
//! | `close NAME` | closes the file |
//!
//! KIND is `read` or `write`, and LENGTH 0 reaches to the end of all files. Other errors are answered with the name of their number.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Bytes of each range of `ranges`, and of the gap behind it.
const RANGE: i64 = 10;

/// Records that are written before they are synced.
const BATCH: u64 = 16;

/// Argument of a child: the rest is a lock, for its standard input.
const CHILD: &str = "--child";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, lock)) if first == CHILD => child(lock),
        _ => obey(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("file-locks: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Files that are open, and children that have ended.
#[derive(Default)]
struct Opened {
    files: HashMap<String, File>,
    /// They have descriptors of open files. Closing one would take all locks of this process on the file.
    children: Vec<Command>,
}

fn obey() -> Result<()> {
    let mut opened = Opened::default();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match answer(&mut opened, &words) {
            Ok(answer) => answer,
            Err(error) => error_name(&error).with_context(|| line.clone())?,
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}

/// The name of the error number of an error.
fn error_name(error: &anyhow::Error) -> Result<String> {
    if let Some(errno) = error.downcast_ref::<Errno>() {
        return Ok(format!("{errno:?}"));
    }
    let number = (error.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
    match number {
        Some(number) => Ok(format!("{:?}", Errno::from_raw(number))),
        None => bail!("{error:#}"),
    }
}

fn answer(opened: &mut Opened, words: &[&str]) -> Result<String> {
    let ok = || Ok("ok".to_owned());
    if let ["open", name, path, rest @ ..] = words {
        let flags = if rest.is_empty() { 0 } else { libc::O_DIRECT };
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        opened.files.insert((*name).to_owned(), file);
        return ok();
    }
    if let ["close", name] = words {
        opened.files.remove(*name).context("no such file")?;
        return ok();
    }
    let [command, name, rest @ ..] = words else {
        bail!("no command");
    };
    let file = opened.files.get(*name).context("no such file")?;
    match (*command, rest) {
        ("lock", [kind, start, length]) => lock(file, &range(kind, start, length)?),
        ("wait", [kind, start, length]) => {
            fcntl(file, FcntlArg::F_SETLKW(&range(kind, start, length)?))?;
            ok()
        }
        ("unlock", [start, length]) => {
            fcntl(file, FcntlArg::F_SETLK(&range("none", start, length)?))?;
            ok()
        }
        ("test", [kind, start, length]) => test(file, range(kind, start, length)?),
        ("ranges", [count]) => {
            for number in 0..count.parse()? {
                let start = (2 * RANGE * number).to_string();
                fcntl(
                    file,
                    FcntlArg::F_SETLK(&range("write", &start, &RANGE.to_string())?),
                )?;
            }
            ok()
        }
        ("child", [_, _, _]) => {
            let inherited = Stdio::from(file.try_clone()?);
            let mut child = Command::new(std::env::current_exe()?);
            let done = child.arg(CHILD).args(rest).stdin(inherited).output()?;
            opened.children.push(child);
            if !done.status.success() {
                bail!("{}", String::from_utf8_lossy(&done.stderr));
            }
            Ok(String::from_utf8(done.stdout)?.trim_end().to_owned())
        }
        ("write", [start, text]) => {
            file.write_all_at(text.as_bytes(), start.parse()?)?;
            ok()
        }
        ("sync", []) => {
            file.sync_all()?;
            ok()
        }
        ("read", [start, length]) => {
            let mut text = vec![0; length.parse()?];
            file.read_exact_at(&mut text, start.parse()?)?;
            Ok(String::from_utf8(text)?)
        }
        ("records", [end]) => Ok(records(file, Path::new(end))?.to_string()),
        _ => bail!("no such command"),
    }
}

/// Writes records until a file exists, and returns how many.
fn records(file: &File, end: &Path) -> Result<u64> {
    let mut written = 0;
    while !end.exists() {
        for _ in 0..BATCH {
            let record = format!("record {written:08}\n");
            file.write_all_at(record.as_bytes(), written * record.len() as u64)?;
            written += 1;
        }
        file.sync_all()?;
    }
    Ok(written)
}

fn child(words: &[String]) -> Result<()> {
    let [kind, start, length] = words else {
        bail!("no range");
    };
    println!(
        "{}",
        lock(io::stdin().as_fd(), &range(kind, start, length)?)?
    );
    Ok(())
}

fn range(kind: &str, start: &str, length: &str) -> Result<libc::flock> {
    let kind = match kind {
        "read" => libc::F_RDLCK,
        "write" => libc::F_WRLCK,
        "none" => libc::F_UNLCK,
        _ => bail!("no kind of lock"),
    };
    Ok(libc::flock {
        l_type: kind.try_into()?,
        l_whence: libc::SEEK_SET.try_into()?,
        l_start: start.parse()?,
        l_len: length.parse()?,
        l_pid: 0,
    })
}

fn lock(file: impl AsFd, range: &libc::flock) -> Result<String> {
    match fcntl(file, FcntlArg::F_SETLK(range)) {
        Ok(_) => Ok("ok".into()),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok("busy".into()),
        Err(errno) => Err(errno.into()),
    }
}

fn test(file: &File, mut range: libc::flock) -> Result<String> {
    fcntl(file, FcntlArg::F_GETLK(&mut range))?;
    let kind = match libc::c_int::from(range.l_type) {
        libc::F_UNLCK => return Ok("free".into()),
        libc::F_RDLCK => "read",
        _ => "write",
    };
    Ok(format!("{kind} {} {}", range.l_start, range.l_len))
}
