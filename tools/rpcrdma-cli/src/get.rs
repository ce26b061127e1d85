//! `rpcrdma get`: copies files from a server.

use crate::cli::NOT_UTF8;
use crate::copy::{Copy, CopyArgs};
use crate::failure::{Ended, Usage};
use crate::partial::{self, Partial};
use crate::session::{Place, Session};
use crate::show;
use anyhow::{Context, bail};
use clap::Args;
use nfs_client::{NfsUrl, Node};
use nfs_proto::{Attributes, FileType};
use oncrpc::xdr::{Gather, gather_len};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, symlink};
use std::path::{Path, PathBuf};
use tokio::task::{JoinHandle, spawn_blocking};

/// Copy files from a server
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma get nfs://127.0.0.1/file
  rpcrdma get nfs://127.0.0.1/file other-name
  rpcrdma get -r nfs://127.0.0.1/photos nfs://127.0.0.1/notes.txt directory/

A file gets its name when it is complete, and replaces what has it. An interrupted copy leaves no
half file behind and can be made again.")]
pub(crate) struct GetArgs {
    /// nfs://HOST[:PORT]/PATH of files, and then the file or directory to copy to [default: .]
    #[arg(value_name = "URL... [DEST]", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<Ended> {
    let (urls, dest) = sources(&args.paths)?;
    let into = dest.is_dir();
    if !into && (urls.len() > 1 || dest.as_os_str().as_bytes().ends_with(b"/")) {
        bail!("{} is not a directory", show::path(&dest));
    }
    let mut session = Session::new(&args.copy.session);
    let mut copy = Copy::new(&args.copy)?;
    for url in &urls {
        let copied = async {
            let place = session.place(url).await?;
            let dest = match place.name() {
                Some(name) if into => dest.join(OsStr::from_bytes(name)),
                Some(_) | None => dest.clone(),
            };
            get(&mut copy, &place, &dest).await
        };
        let copied = copied.await;
        copy.check(copied)?;
    }
    copy.progress.finish();
    session.close().await;
    Ok(copy.ended)
}

/// What to copy, and where to: the last argument, if it is no URL.
fn sources(paths: &[OsString]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
    let is_url = |path: &OsString| {
        let begin = path.as_bytes().get(..6);
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(b"nfs://"))
    };
    let (urls, dest) = match paths {
        [urls @ .., dest] if !is_url(dest) => (urls, PathBuf::from(dest)),
        urls => (urls, PathBuf::from(".")),
    };
    if urls.is_empty() {
        bail!(Usage(
            "there is nothing to get: no argument is an nfs:// URL".to_owned()
        ));
    }
    let url = |text: &OsString| -> anyhow::Result<NfsUrl> {
        let Some(text) = text.to_str() else {
            bail!(Usage(format!(
                "{}: {NOT_UTF8}",
                nfs_client::printable(text.as_bytes())
            )));
        };
        text.parse()
            .map_err(|error| Usage(format!("{text}: {error}")).into())
    };
    Ok((urls.iter().map(url).collect::<Result<_, _>>()?, dest))
}

/// Copies what the user named.
async fn get(copy: &mut Copy, place: &Place, dest: &Path) -> anyhow::Result<()> {
    let node = place.export.stat(&place.path).await?;
    if node.attributes.file_type != FileType::Directory {
        return one(copy, place, &node, &place.path, dest).await;
    }
    if !copy.recursive {
        bail!("{} is a directory: copy it with -r", place.url);
    }
    make_directory(dest, &node.attributes, Follow::Yes)?;
    let mut walk = place.export.walk(&place.path).await?;
    loop {
        let found = match walk.next().await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            Err(error) => {
                copy.check(Err(error.into()))?;
                continue;
            }
        };
        let below = found.path.strip_prefix(&place.path[..]);
        let below = below.expect("a walk stays below its beginning");
        let begin = below.iter().position(|byte| *byte != b'/');
        let below = &below[begin.unwrap_or(below.len())..];
        let dest = dest.join(OsStr::from_bytes(below));
        let copied = match found.node.attributes.file_type {
            FileType::Directory => make_directory(&dest, &found.node.attributes, Follow::No)
                .inspect_err(|_| walk.skip()),
            _ => one(copy, place, &found.node, &found.path, &dest).await,
        };
        copy.check(copied)?;
    }
}

/// Copies what is no directory.
async fn one(
    copy: &Copy,
    place: &Place,
    node: &Node,
    path: &[u8],
    dest: &Path,
) -> anyhow::Result<()> {
    match node.attributes.file_type {
        FileType::Regular => {
            let copied = file(copy, place, node, path, dest);
            copy.interrupt.unless(copied).await
        }
        FileType::Symlink => {
            let target = place.export.nfs().read_link(node.handle).await;
            link(
                target.map_err(|fault| fault.at("read symbolic link", path))?,
                dest,
            )
        }
        other => bail!(
            "{} is a {}, which is not copied",
            nfs_client::printable(path),
            show::file_type(other)
        ),
    }
}

async fn file(
    copy: &Copy,
    place: &Place,
    node: &Node,
    path: &[u8],
    dest: &Path,
) -> anyhow::Result<()> {
    copy.progress.begin(path, node.attributes.size);
    let partial = Partial::create(dest, node.attributes.mode)?;
    let mut stream = place.export.read_node(node, path);
    let mut offset = 0;
    // One write of a disk is in flight while the next data comes.
    let mut writing: Option<JoinHandle<io::Result<()>>> = None;
    while let Some(data) = stream.next().await? {
        let len = gather_len(&data) as u64;
        written(writing.take(), dest).await?;
        let (file, at) = (partial.file().clone(), offset);
        writing = Some(spawn_blocking(move || write_at(&file, &data, at)));
        offset += len;
        copy.progress.add(len);
    }
    written(writing, dest).await?;
    written(Some(spawn_blocking(move || partial.finish())), dest).await
}

/// Waits for what is being written.
async fn written(writing: Option<JoinHandle<io::Result<()>>>, dest: &Path) -> anyhow::Result<()> {
    match writing {
        Some(writing) => writing
            .await
            .expect("a write does not panic")
            .with_context(|| format!("cannot write {}", show::path(dest))),
        None => Ok(()),
    }
}

fn write_at(file: &std::fs::File, data: &Gather, mut offset: u64) -> io::Result<()> {
    for piece in data {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Whether a symbolic link is good for a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Follow {
    /// The user named it.
    Yes,
    /// It stands where a directory of the copy belongs: what the server sends must not go through
    /// it to somewhere else, least of all through a link that came from the server.
    No,
}

fn make_directory(dest: &Path, attributes: &Attributes, follow: Follow) -> anyhow::Result<()> {
    // We must be able to put something in.
    let mode = attributes.mode & 0o777 | 0o700;
    match DirBuilder::new().mode(mode).create(dest) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = match follow {
                Follow::Yes => dest.metadata(),
                Follow::No => dest.symlink_metadata(),
            };
            match found {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) | Err(_) => bail!(
                    "cannot make the directory {}: something else has that name",
                    show::path(dest)
                ),
            }
        }
        made => made.with_context(|| format!("cannot make the directory {}", show::path(dest))),
    }
}

/// Makes a symbolic link, in place of one that has the name.
fn link(target: Vec<u8>, dest: &Path) -> anyhow::Result<()> {
    let at = partial::temporary(dest);
    let made = symlink(OsString::from_vec(target), &at).and_then(|()| {
        std::fs::rename(&at, dest).inspect_err(|_| {
            // The error to be told is that of renaming.
            let _ = std::fs::remove_file(&at);
        })
    });
    made.with_context(|| format!("cannot make the symbolic link {}", show::path(dest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::{Device, FileId, NfsTime};

    fn args(paths: &[&str]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
        sources(&paths.iter().map(OsString::from).collect::<Vec<_>>())
    }

    fn directory() -> Attributes {
        Attributes {
            file_type: FileType::Directory,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 0,
            file_id: FileId(1),
            atime: NfsTime::default(),
            mtime: NfsTime::default(),
            ctime: NfsTime::default(),
        }
    }

    #[test]
    fn argument_that_is_no_url_is_the_destination() {
        let (urls, dest) = args(&["nfs://h/a", "NFS://h/b", "c"]).unwrap();
        assert_eq!((urls.len(), dest), (2, PathBuf::from("c")));
        let (urls, dest) = args(&["nfs://h/a"]).unwrap();
        assert_eq!((urls.len(), dest), (1, PathBuf::from(".")));
        for bad in [
            &["a"][..],
            &["a", "b"],
            &["nfs://h/a", "b", "c"],
            &["nfs:///"],
        ] {
            let error = args(bad).unwrap_err();
            assert!(error.downcast_ref::<Usage>().is_some(), "{bad:?}: {error}");
        }
    }

    #[test]
    fn server_cannot_lead_a_copy_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let dest = dir.path().join("name");
        link(elsewhere.path().as_os_str().as_bytes().to_vec(), &dest).unwrap();
        assert!(make_directory(&dest, &directory(), Follow::No).is_err());
        assert!(make_directory(&dest, &directory(), Follow::Yes).is_ok());
        let partial = Partial::create(&dest, 0o600).unwrap();
        partial.finish().unwrap();
        assert!(dest.symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn symbolic_link_replaces_one_but_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("name");
        link(b"one".to_vec(), &dest).unwrap();
        link(b"two".to_vec(), &dest).unwrap();
        assert_eq!(std::fs::read_link(&dest).unwrap(), Path::new("two"));
        let taken = dir.path().join("directory");
        std::fs::create_dir(&taken).unwrap();
        assert!(link(b"three".to_vec(), &taken).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
