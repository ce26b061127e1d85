//! Local files on their way to a server: found in order, and small ones read ahead.
//!
//! One thread does it all, without a change of threads for each file; it is held back by the channel
//! that it feeds.

use crate::copy::SMALL_FILE;
use crate::decide::Action;
use crate::directory::LocalDir;
use crate::entry::{Entry, split};
use crate::error::{Context, Error, Result};
use crate::options::Options;
use crate::plan::Plan;
use crate::root::Root;
use crate::show;
use crate::tree::{Tree, local};
use crate::walk::{Other, Step};
use bytes::Bytes;
use nfs_proto::FileType;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Findings, in order.
pub(super) enum Found {
    /// All of it was counted, and goes together.
    Planned { files: u64, bytes: u64 },
    /// A step, but for files that are copied.
    Step(Step),
    /// A source that is copied and no directory.
    File(Box<Other>, Result<Content>),
}

/// Content of something that is no directory.
pub(super) enum Content {
    /// A file of at most [`SMALL_FILE`] bytes.
    Small { data: Bytes },
    /// Any other.
    Large { file: File, size: u64 },
    /// Standard input, a FIFO or a device, which is read when its turn comes.
    Stream,
    /// The text of a symbolic link.
    Symlink(Vec<u8>),
    /// Nothing: a FIFO or a socket.
    Special,
}

/// Counts what there is to copy, and then finds it once more: each directory before what is in it. It ends when
/// nobody wants to know of more.
pub(super) async fn find(
    dest: Tree,
    options: Arc<Options>,
    roots: Arc<Vec<Root>>,
    finds: Sender<Found>,
) {
    tokio::select! {
        biased;
        // It may wait for the server then.
        () = finds.closed() => {}
        () = find_all(&dest, &options, &roots, &finds) => {}
    }
}

async fn find_all(dest: &Tree, options: &Options, roots: &[Root], finds: &Sender<Found>) {
    let conflict = async |error| tell(finds, Found::Step(Step::Conflict(error))).await;
    let Ok(mut plan) = Plan::make(dest, options, roots, conflict).await else {
        return;
    };
    if plan.conflicts {
        // Whether it is heard or not, nothing follows.
        let nothing = Step::Failed(Error::NothingCopied);
        let _ = tell(finds, Found::Step(nothing)).await;
        return;
    }
    let (files, bytes) = (plan.files, plan.bytes);
    if tell(finds, Found::Planned { files, bytes }).await.is_err() {
        return;
    }
    let mut steps = plan.steps(dest, options, roots);
    // Directories that files are read from. Why one cannot be entered is told of each file in it.
    let mut way: Vec<Option<Arc<LocalDir>>> = Vec::new();
    while let Some(step) = steps.next().await {
        let found = match step {
            Step::Other(other) if is_copied(&other.action) && !options.dry_run => {
                let content = match other.action {
                    Action::Make { .. } => Ok(Content::Special),
                    _ => content(&other.source, way.last()),
                };
                Found::File(other, content)
            }
            step => {
                match &step {
                    Step::Enter(inside) => way.push(enter(&inside.source, way.last()).ok()),
                    Step::Leave => drop(way.pop()),
                    Step::Other(_) | Step::Conflict(_) | Step::Failed(_) => {}
                }
                Found::Step(step)
            }
        };
        if tell(finds, found).await.is_err() {
            return;
        }
    }
}

fn is_copied(action: &Action) -> bool {
    match action {
        Action::Copy { .. } | Action::Make { .. } | Action::Write => true,
        Action::Skip(_) | Action::Refuse(_) | Action::Unsupported => false,
    }
}

/// # Errors
///
/// Nobody wants to know of more.
async fn tell(finds: &Sender<Found>, found: Found) -> Result<()> {
    let told = finds.send(found).await;
    told.map_err(|_| Error::Stopped)
}

/// Opens a directory, which is in the one that was entered last: a source that was named is followed, and nothing else.
fn enter(source: &Entry, above: Option<&Option<Arc<LocalDir>>>) -> io::Result<Arc<LocalDir>> {
    match above {
        None => LocalDir::open(local(&source.path)),
        Some(Some(above)) => above.name(name_of(source)).enter(),
        Some(None) => Err(io::ErrorKind::NotFound.into()),
    }
}

fn name_of(source: &Entry) -> &OsStr {
    OsStr::from_bytes(split(&source.path).1)
}

/// Reads a small file, opens another, or reads the text of a symbolic link: in the directory that was entered last, if
/// one was and could be.
fn content(source: &Entry, within: Option<&Option<Arc<LocalDir>>>) -> Result<Content> {
    let path = local(&source.path);
    let unreadable = || format!("{}: cannot read", show::path(path));
    let at = match within {
        Some(Some(dir)) => Some(dir.name(name_of(source))),
        Some(None) => return Err(Error::DirectoryReplaced).with_context(unreadable),
        None => None,
    };
    if source.about.is_special() {
        return Ok(Content::Stream);
    }
    if source.about.kind == FileType::Symlink {
        let text = match at {
            Some(at) => at.read_link(),
            None => path
                .read_link()
                .map(|text| text.into_os_string().into_vec()),
        };
        return Ok(Content::Symlink(text.with_context(unreadable)?));
    }
    let file = match at {
        Some(at) => at.open(OFlags::RDONLY, 0),
        None => open_named(path),
    };
    let file = file.with_context(unreadable)?;
    let about = file.metadata().with_context(unreadable)?;
    if !about.is_file() {
        return Err(Error::NoFile).with_context(unreadable);
    }
    let size = about.len();
    if size <= SMALL_FILE
        && let Some(data) = small(&file, size).with_context(unreadable)?
    {
        return Ok(Content::Small { data });
    }
    // A file that grew meanwhile is not a small one either.
    let size = size.max(SMALL_FILE + 1);
    Ok(Content::Large { file, size })
}

/// Opens a source that was named, which may be a symbolic link. If it is a FIFO by now, nobody is waited for who opens the
/// other end.
fn open_named(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}

/// Reads a file that had so many bytes; nothing if it is not small any more.
fn small(file: &File, expected: u64) -> io::Result<Option<Bytes>> {
    let room = usize::try_from(expected.min(SMALL_FILE)).unwrap_or(0);
    // One byte more than it had: one read that is shorter shows that it ends there.
    let mut data = Vec::with_capacity(room + 1);
    let read = retry_on_intr(|| rustix::io::read(file, spare_capacity(&mut data)))?;
    if read != room {
        let mut rest = file.take(SMALL_FILE + 1 - read as u64);
        rest.read_to_end(&mut data)?;
    }
    let is_small = data.len() as u64 <= SMALL_FILE;
    Ok(is_small.then(|| Bytes::from(data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn entry(path: &Path) -> Entry {
        let about = path.symlink_metadata().unwrap();
        Entry::local(path.as_os_str().as_bytes().to_vec(), &about)
    }

    /// Why what was found as `file` in a directory cannot be read, after `change` has changed it.
    fn refused(dir: &Path, change: impl FnOnce(&Path)) -> String {
        let file = dir.join("file");
        std::fs::write(&file, "content").unwrap();
        let found = entry(&file);
        let within = enter(&entry(dir), None).unwrap();
        std::fs::remove_file(&file).unwrap();
        change(&file);
        let error = content(&found, Some(&Some(within))).err().unwrap();
        std::fs::remove_file(&file).unwrap();
        oncrpc::Chain(&error).to_string()
    }

    #[test]
    fn file_that_was_replaced_by_a_link_or_a_fifo_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        let error = refused(dir.path(), |file| symlink("secret", file).unwrap());
        assert!(error.contains("symbolic links"), "{error}");
        let error = refused(dir.path(), |file| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, file, fifo, mode, 0).unwrap();
        });
        assert!(error.contains("no file any more"), "{error}");
    }

    #[test]
    fn directory_that_was_replaced_by_a_link_is_not_entered() {
        let around = tempfile::tempdir().unwrap();
        let (dir, secrets) = (around.path().join("dir"), around.path().join("secrets"));
        for path in [&dir, &secrets] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("file"), "content").unwrap();
        }
        let (found, file) = (entry(&dir), entry(&dir.join("file")));
        let top = Some(enter(&entry(around.path()), None).unwrap());
        assert!(content(&file, Some(&enter(&found, Some(&top)).ok())).is_ok());
        std::fs::rename(&dir, around.path().join("moved")).unwrap();
        symlink(&secrets, &dir).unwrap();
        assert!(content(&file, Some(&enter(&found, Some(&top)).ok())).is_err());
    }

    #[test]
    fn small_file_is_read_whole_whatever_size_it_had() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let limit = usize::try_from(SMALL_FILE).unwrap();
        for len in [0, 1, 5000, limit, limit + 1] {
            let content: Vec<u8> = (0..=250).cycle().take(len).collect();
            std::fs::write(file.path(), &content).unwrap();
            for expected in [0, 1, 4999, 5000, 5001, SMALL_FILE] {
                let read = small(&file.reopen().unwrap(), expected).unwrap();
                let whole = (len <= limit).then_some(&content[..]);
                assert_eq!(read.as_deref(), whole, "{len} bytes of {expected}");
            }
        }
        // Of files that the kernel makes, the size is not known.
        let version = File::open("/proc/version").unwrap();
        let expected = std::fs::read("/proc/version").unwrap();
        assert_eq!(small(&version, 0).unwrap().unwrap(), expected);
    }
}
