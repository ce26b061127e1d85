//! `rpcrdma cp`: copies files from a server to a server, through this machine.

mod file;

use crate::copy::attributes::Wanted;
use crate::copy::sparse::Sparse;
use crate::copy::upload::{
    MadeDirectory, REMOVED_WITHIN, is_listed, make_directory, open_up, set_directory,
};
use crate::copy::{Copy, Held, Last, Options, Permitted, Shared, server};
use crate::failure::{Ended, Usage};
use crate::modes::umask;
use crate::session::{Follow, Of, Place, Session, SessionArgs};
use crate::tree::{Step, Tree};
use anyhow::bail;
use clap::Args;
use file::File;
use nfs_client::{Error, NfsUrl, Node, UrlError};
use nfs_proto::{FileHandle, FileType, Status};
use std::sync::Arc;

/// Copy files on a server, or from one server to another
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma cp nfs://127.0.0.1/file nfs://127.0.0.1/copy
  rpcrdma cp -rp nfs://127.0.0.1/photos nfs://127.0.0.1/b/
  rpcrdma cp -n nfs://127.0.0.1/a nfs://127.0.0.1/dir/

All data passes through this machine, because NFSv3 has no call that copies. The URLs may be of \
different exports or servers. A file gets its name when it is complete, replacing a file of that \
name, whose other hard links keep the old content. Symbolic links on the command line are \
followed only without -r.")]
pub(crate) struct CpArgs {
    /// nfs://HOST[:PORT]/PATH of the sources, then of the destination
    #[arg(value_name = "URL", required = true, num_args = 2.., value_parser = remote)]
    urls: Vec<NfsUrl>,

    /// Copy directories recursively; symbolic links and special files are copied as such
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Preserve mode, times, and, if permitted, owner and group
    #[arg(short)]
    preserve: bool,

    /// Same as -rp
    #[arg(short, long)]
    archive: bool,

    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,

    /// Overwrite existing files, the default; cancels -n
    #[arg(short, long)]
    force: bool,

    /// Treat the last URL as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

    /// When copies get holes (ranges of zeros that take no space)
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    sparse: Sparse,

    /// Print each file that is copied
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// Parses a URL. Who knows cp(1) may give the path of a local file.
fn remote(text: &str) -> Result<NfsUrl, String> {
    text.parse().map_err(|error: UrlError| match error {
        UrlError::Scheme => format!("{error} (`rpcrdma get` and `rpcrdma put` copy local files)"),
        error => error.to_string(),
    })
}

/// Runs the command.
pub(crate) async fn run(args: &CpArgs) -> anyhow::Result<Ended> {
    let Some((to, sources)) = args.urls.split_last() else {
        bail!(Usage("there is nothing to copy".to_owned()));
    };
    if args.no_target_directory && sources.len() > 1 {
        bail!(Usage("-T takes one source".to_owned()));
    }
    let options = Options {
        recursive: args.recursive || args.archive,
        preserves: args.preserve || args.archive,
        keeps_existing: args.no_clobber,
        sparse: args.sparse,
        verbose: args.verbose,
        quiet: true,
        umask: umask(),
        ..Options::default()
    };
    let copy = Copy::new(options, server(&args.urls))?;
    let mut session = Session::new(&args.session);
    let find = async |copy: &mut Copy| {
        everything(copy, &mut session, sources, to, args.no_target_directory).await
    };
    let ended = copy.all(find).await?;
    session.close().await;
    Ok(ended)
}

async fn everything(
    copy: &mut Copy,
    session: &mut Session,
    sources: &[NfsUrl],
    to: &NfsUrl,
    no_target_directory: bool,
) -> anyhow::Result<()> {
    let to = session.place(to).await?;
    let into = !no_target_directory && to.is_directory().await?;
    if !into && sources.len() > 1 {
        bail!("{}: it is not a directory", to.url);
    }
    for url in sources {
        let copied = async {
            let source = session.place(url).await?;
            let target = match source.name() {
                Some(name) if into => to.join(name),
                // The root of an export: what is in it goes into the directory.
                Some(_) | None => to.clone(),
            };
            named(copy, source, target).await
        };
        let copied = copied.await;
        copy.check(copied)?;
    }
    Ok(())
}

/// Copies what the user named.
async fn named(copy: &mut Copy, source: Place, target: Place) -> anyhow::Result<()> {
    let recursive = copy.shared.options.recursive;
    let follow = match recursive {
        true => Follow::No,
        false => Follow::Yes,
    };
    let Some(node) = source.find(follow).await? else {
        bail!(source.fault("find", Status::NoEntry));
    };
    let there = target.find(Follow::Yes).await?;
    if let Some(there) = &there {
        if source.is_same(&node, &target, there) {
            bail!("{} and {} are the same file", source.url, target.url);
        }
        if node.attributes.file_type == FileType::Symlink
            && let Some(led_to) = source.find(Follow::Yes).await?
            && led_to.attributes.file_type != FileType::Directory
            && source.is_same(&led_to, &target, there)
        {
            bail!(
                "{} is a symbolic link to {}, which a copy of it would replace",
                source.url,
                target.url
            );
        }
    }
    if node.attributes.file_type == FileType::Directory {
        if !recursive {
            bail!("{}: it is a directory: copy it with -r", source.url);
        }
        refuse_within(&source, &node, &target).await?;
        return tree(copy, &source, &node, target, there).await;
    }
    if target.url.path.ends_with(b"/") {
        bail!("{}: it is not a directory", target.url);
    }
    let dir = target.export.parent(&target.path).await.of(&target)?;
    let into = Into {
        dir,
        held: None,
        permitted: Permitted::default(),
    };
    begin(copy, source, node, target, into).await
}

/// Where something goes.
struct Into {
    dir: FileHandle,
    /// What holds the directory open for changes, if it is copied too.
    held: Option<Arc<Held>>,
    permitted: Permitted,
}

/// Begins with anything but a directory.
async fn begin(
    copy: &mut Copy,
    source: Place,
    node: Node,
    target: Place,
    Into {
        dir,
        held,
        permitted,
    }: Into,
) -> anyhow::Result<()> {
    let shared = copy.shared.clone();
    let made = shared.made_in(held.as_ref());
    let may_collide = made.may_have(target.name().unwrap_or_default());
    if may_collide {
        // Which of them is there is known when they are complete.
        copy.settle().await?;
    }
    let file = File {
        follow: match held.is_none() && !shared.options.recursive {
            true => Follow::Yes,
            false => Follow::No,
        },
        made,
        may_collide,
        source,
        node,
        dir,
        target,
        held,
        permitted,
    };
    copy.begin(async move { file.copied(&shared).await }).await
}

/// Copies a directory with all that is in it.
async fn tree(
    copy: &mut Copy,
    source: &Place,
    node: &Node,
    target: Place,
    there: Option<Node>,
) -> anyhow::Result<()> {
    let mut tree = Tree::new(source).await?;
    let top = match there {
        // Also at the end of a symbolic link, which the user named.
        Some(there) if there.attributes.file_type == FileType::Directory => {
            let id = (there.attributes.fsid, there.attributes.file_id.0);
            let entered = (id, target.name().unwrap_or_default());
            let is_contents = source.name().is_none();
            // The user named it, maybe by a symbolic link.
            let is_listed = async || true;
            copy.shared
                .enter_once(None, is_contents, entered, is_listed, || {
                    target.url.to_string()
                })
                .await?;
            let dir = MadeDirectory {
                node: there,
                is_new: false,
            };
            // It keeps its permissions.
            let wanted = Wanted::of(&(&node.attributes).into(), &copy.shared.options, 0o777);
            let permitted = Permitted::default();
            Filling::new(&copy.shared, target, dir, &wanted, (None, permitted)).await
        }
        Some(_) | None => {
            let dir = target.export.parent(&target.path).await.of(&target)?;
            let into = Into {
                dir,
                held: None,
                permitted: Permitted::default(),
            };
            Filling::make(&copy.shared, target, into, node).await?
        }
    };
    let mut way = vec![top];
    while let Some(last) = way.last() {
        match tree.next().await {
            Ok(Some(Step::Enter(place, node))) => {
                let target = last.place.join(place.name().unwrap_or_default());
                match Filling::make(&copy.shared, target, last.within(), &node).await {
                    Ok(entered) => way.push(entered),
                    Err(error) => {
                        tree.skip();
                        copy.check(Err(error))?;
                    }
                }
            }
            Ok(Some(Step::Other(place, node))) => {
                let target = last.place.join(place.name().unwrap_or_default());
                begin(copy, place, node, target, last.within()).await?;
            }
            Ok(Some(Step::Leave(..))) => drop(way.pop()),
            Ok(None) => break,
            Err(error) => copy.check(Err(error.into()))?,
        }
    }
    Ok(())
}

/// A directory that is being filled.
struct Filling {
    place: Place,
    handle: FileHandle,
    held: Arc<Held>,
    permitted: Permitted,
}

impl Filling {
    /// Makes a directory in another. One that is there is as good, but not a symbolic link to one: it may lead out
    /// of the tree.
    async fn make(
        shared: &Shared,
        place: Place,
        into: Into,
        source: &Node,
    ) -> anyhow::Result<Self> {
        let (nfs, name) = (place.export.nfs(), place.name().unwrap_or_default());
        let permitted = shared.permitted(nfs, into.dir, &into.permitted).await?;
        let wanted = Wanted::of(&(&source.attributes).into(), &shared.options, permitted);
        let made = make_directory(nfs, into.dir, name, wanted.first_directory_mode()).await;
        let dir = made.map_err(|fault| place.fault("make directory", fault))?;
        let about = &dir.node.attributes;
        let entered = ((about.fsid, about.file_id.0), name);
        let is_listed = async || is_listed(&place.export, (into.dir, &place.path)).await;
        shared
            .enter_once(into.held.as_ref(), false, entered, is_listed, || {
                place.url.to_string()
            })
            .await?;
        let permitted = match dir.is_new {
            // It has the default list of the one that it is in (acl(5)).
            true => into.permitted,
            false => Permitted::default(),
        };
        Ok(Self::new(shared, place, dir, &wanted, (into.held, permitted)).await)
    }

    /// A directory whose attributes are set when all is in it.
    async fn new(
        shared: &Shared,
        place: Place,
        MadeDirectory { node, is_new }: MadeDirectory,
        wanted: &Wanted,
        (above, permitted): (Option<Arc<Held>>, Permitted),
    ) -> Self {
        let (handle, mode) = (node.handle, node.attributes.mode);
        let last = match is_new {
            true => wanted.last_of_directory(mode),
            false => wanted.last_of_existing(mode, open_up(place.export.nfs(), &node).await),
        };
        let last = last.map(|wanted| -> Last {
            let (interrupt, place) = (shared.interrupt.clone(), place.clone());
            Box::pin(async move {
                let set = set_directory(place.export.nfs(), handle, &place.path, &wanted);
                let set = interrupt.unless_late(REMOVED_WITHIN, set).await;
                set.map_err(|error| with_url(&place, error))
            })
        });
        Self {
            held: shared.hold(above, last),
            place,
            handle,
            permitted,
        }
    }

    /// Where something in it goes.
    fn within(&self) -> Into {
        Into {
            dir: self.handle,
            held: Some(Arc::clone(&self.held)),
            permitted: self.permitted.clone(),
        }
    }
}

/// An error about what is made at a place, with its URL.
fn with_url(place: &Place, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(Error { doing, fault, .. }) => place.fault(doing, fault).into(),
        Err(error) => error,
    }
}

/// A directory is not copied into itself, which would have no end.
async fn refuse_within(source: &Place, node: &Node, target: &Place) -> anyhow::Result<()> {
    let mut above = target.parent();
    while let Some(place) = above {
        if let Some(there) = place.find(Follow::Yes).await?
            && source.is_same(node, &place, &there)
        {
            bail!(
                "{}: it cannot be copied into itself, to {}",
                source.url,
                target.url
            );
        }
        above = place.parent();
    }
    Ok(())
}
