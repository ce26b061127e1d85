//! `rpcrdma get`: copies files from a server.

mod receive;

use crate::cli::NOT_UTF8;
use crate::copy::{Copy, CopyArgs, Shared};
use crate::failure::{Ended, Usage};
use crate::partial;
use crate::session::{Place, Session};
use crate::show;
use anyhow::{Context, bail};
use clap::Args;
use nfs_client::{Export, NfsUrl, Node};
use nfs_proto::{Attributes, FileType};
use rpcrdma::Client;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    let copy = Copy::new(&args.copy)?;
    let all = async |copy: &mut Copy| {
        for url in &urls {
            let copied = async {
                let place = session.place(url).await?;
                let name = place.name().map(OsStr::from_bytes);
                let dest = match name {
                    Some(name) if into => dest.join(name),
                    Some(_) | None => dest.clone(),
                };
                if copy.is_named_again(name) {
                    copy.settle().await?;
                }
                get(copy, &place, &dest).await
            };
            let copied = copied.await;
            copy.check(copied)?;
        }
        Ok(())
    };
    let ended = copy.all(all).await?;
    session.close().await;
    Ok(ended)
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
        copy.shared.progress.expect(1, node.attributes.size);
        let one = Remote::new(copy, place, place.path.clone(), node);
        return copy.begin(one.copied(dest.to_owned())).await;
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
        if found.node.attributes.file_type == FileType::Directory {
            let made = make_directory(&dest, &found.node.attributes, Follow::No);
            copy.check(made.inspect_err(|_| walk.skip()))?;
        } else {
            let one = Remote::new(copy, place, found.path, found.node);
            copy.begin(one.copied(dest)).await?;
        }
    }
}

/// Something on the server that is no directory.
struct Remote {
    export: Arc<Export<Client>>,
    shared: Shared,
    path: Vec<u8>,
    node: Node,
}

impl Remote {
    fn new(copy: &Copy, place: &Place, path: Vec<u8>, node: Node) -> Self {
        Self {
            export: Arc::clone(&place.export),
            shared: copy.shared.clone(),
            path,
            node,
        }
    }

    /// Copies it.
    async fn copied(self, dest: PathBuf) -> anyhow::Result<()> {
        self.copy_to(dest).await?;
        self.shared.progress.done();
        Ok(())
    }

    async fn copy_to(&self, dest: PathBuf) -> anyhow::Result<()> {
        match self.node.attributes.file_type {
            FileType::Regular => {
                let copied = self.file(&dest);
                self.shared.interrupt.unless(copied).await
            }
            FileType::Symlink => {
                self.shared.progress.begin(0);
                let target = self.export.nfs().read_link(self.node.handle).await;
                let target = target.map_err(|fault| fault.at("read symbolic link", &self.path))?;
                link(target, &dest)
            }
            other => bail!(
                "{} is a {}, which is not copied",
                nfs_client::printable(&self.path),
                show::file_type(other)
            ),
        }
    }
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
    use crate::partial::Partial;
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
