//! Local files on their way to a server: found in order, and small ones read ahead.
//!
//! One thread does it all, without a change of threads for each file; it is held back by the channel
//! that it feeds.

use crate::copy::decide::Action;
use crate::copy::entry::Entry;
use crate::copy::tree::{Tree, local};
use crate::copy::{Options, Other, Plan, Root, SMALL_FILE, Step};
use crate::show;
use anyhow::{Context, anyhow};
use bytes::Bytes;
use nfs_proto::FileType;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// What was found, in order.
pub(super) enum Found {
    /// All of it was counted, and goes together.
    Planned { files: u64, bytes: u64 },
    /// A step, but for files that are copied.
    Step(Step),
    /// What is to be copied and no directory.
    File(Box<Other>, anyhow::Result<Content>),
}

/// What something consists of that is no directory.
pub(super) enum Content {
    /// A file of at most [`SMALL_FILE`] bytes.
    Small { data: Bytes },
    /// Any other.
    Large { file: File, size: u64 },
    /// Standard input, a FIFO or a device, which is read when its turn comes.
    Stream,
    /// The text of a symbolic link.
    Symlink(Vec<u8>),
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
        let nothing = Step::Failed(anyhow!("nothing was copied"));
        let _ = tell(finds, Found::Step(nothing)).await;
        return;
    }
    let (files, bytes) = (plan.files, plan.bytes);
    if tell(finds, Found::Planned { files, bytes }).await.is_err() {
        return;
    }
    let mut steps = plan.steps(dest, options, roots);
    while let Some(step) = steps.next().await {
        let found = match step {
            Step::Other(other) if is_copied(&other.action) && !options.dry_run => {
                let content = content(&other.source);
                Found::File(other, content)
            }
            step => Found::Step(step),
        };
        if tell(finds, found).await.is_err() {
            return;
        }
    }
}

fn is_copied(action: &Action) -> bool {
    match action {
        Action::Copy { .. } | Action::Write => true,
        Action::Skip(_) | Action::Refuse(_) | Action::Unsupported => false,
    }
}

/// # Errors
///
/// Nobody wants to know of more.
async fn tell(finds: &Sender<Found>, found: Found) -> anyhow::Result<()> {
    let told = finds.send(found).await;
    told.map_err(|_| anyhow!("nobody wants to know of more"))
}

/// Reads a small file, opens another, or reads the text of a symbolic link.
fn content(source: &Entry) -> anyhow::Result<Content> {
    let path = local(&source.path);
    let unreadable = || format!("{}: cannot read", show::path(path));
    if source.about.is_special() {
        return Ok(Content::Stream);
    }
    if source.about.kind == FileType::Symlink {
        let text = path.read_link().with_context(unreadable)?;
        return Ok(Content::Symlink(text.into_os_string().into_vec()));
    }
    let file = File::open(path).with_context(unreadable)?;
    let size = file.metadata().with_context(unreadable)?.len();
    if let Ok(room) = usize::try_from(size)
        && size <= SMALL_FILE
    {
        // One byte more than it has: so the read that finds its end needs no more memory.
        let mut data = Vec::with_capacity(room + 1);
        let mut start = (&file).take(SMALL_FILE + 1);
        start.read_to_end(&mut data).with_context(unreadable)?;
        if data.len() as u64 <= SMALL_FILE {
            let data = Bytes::from(data);
            return Ok(Content::Small { data });
        }
    }
    // A file that grew meanwhile is not a small one either.
    let size = size.max(SMALL_FILE + 1);
    Ok(Content::Large { file, size })
}
