//! Copies of files of servers to a server, through this machine.

mod file;

use crate::attributes::Wanted;
use crate::copy::{Control, Copy, Ended, Permitted, Shared, server};
use crate::directory_completion::{Held, Last};
use crate::error::{Error, Result};

use crate::options::Options;
use crate::place::{Follow, Of, Place, Places};
use crate::server_walk::{ServerWalk, Visit};
use crate::upload::{
    MadeDirectory, REMOVED_WITHIN, is_listed, make_directory, open_up, set_directory,
};
use file::File;
use nfs_client::{NfsUrl, Node};
use nfs_proto::{FileHandle, FileType, Status};
use std::sync::Arc;

/// Copies files and directories of servers to a server. All data goes through this machine. With `is_name` the
/// destination is the new name, even if it is a directory.
///
/// Of the options, it heeds `recursive`, `preserves`, `keeps_existing`, `updates`, `sparse`, `umask` and `resolution`.
pub async fn cp(
    options: Options,
    control: Control,
    places: &mut impl Places,
    (sources, to, is_name): (&[NfsUrl], &NfsUrl, bool),
) -> Ended {
    let urls: Vec<NfsUrl> = sources.iter().chain([to]).cloned().collect();
    let copy = Copy::new(options, control, server(&urls));
    let find = async |copy: &mut Copy| everything(copy, places, sources, (to, is_name)).await;
    copy.all(find).await
}

async fn everything(
    copy: &mut Copy,
    places: &mut impl Places,
    sources: &[NfsUrl],
    (to, is_name): (&NfsUrl, bool),
) -> Result<()> {
    let to = places.place(to).await?;
    let into = !is_name && to.is_directory().await?;
    if !into && sources.len() > 1 {
        let path = to.url.to_string();
        return Err(Error::NotDirectory { path });
    }
    for url in sources {
        let copied = async {
            let source = places.place(url).await?;
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

/// Copies one source.
async fn named(copy: &mut Copy, source: Place, target: Place) -> Result<()> {
    let recursive = copy.shared.options.recursive;
    let follow = match recursive {
        true => Follow::No,
        false => Follow::Yes,
    };
    let Some(node) = source.find(follow).await? else {
        return Err(source.fault("find", Status::NoEntry).into());
    };
    let there = target.find(Follow::Yes).await?;
    if let Some(there) = &there {
        if source.is_same(&node, &target, there) {
            return Err(Error::Same {
                path: source.url.to_string(),
                to: target.url.to_string(),
            });
        }
        if node.attributes.file_type == FileType::Symlink
            && let Some(led_to) = source.find(Follow::Yes).await?
            && led_to.attributes.file_type != FileType::Directory
            && source.is_same(&led_to, &target, there)
        {
            return Err(Error::ReplacesItsTarget {
                path: source.url.to_string(),
                to: target.url.to_string(),
            });
        }
    }
    if node.attributes.file_type == FileType::Directory {
        if !recursive {
            let path = source.url.to_string();
            return Err(Error::IsDirectory { path });
        }
        refuse_within(&source, &node, &target).await?;
        return tree(copy, &source, &node, target, there).await;
    }
    if target.url.path.ends_with(b"/") {
        let path = target.url.to_string();
        return Err(Error::NotDirectory { path });
    }
    let dir = target.export.parent(&target.path).await.of(&target)?;
    let into = Into {
        dir,
        held: None,
        permitted: Permitted::default(),
    };
    begin(copy, source, node, target, into).await
}

/// A directory that something goes into.
struct Into {
    dir: FileHandle,
    /// Holds the directory open for changes, if it is copied too.
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
) -> Result<()> {
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
) -> Result<()> {
    let mut tree = ServerWalk::new(source).await?;
    let top = match there {
        // Also at the end of a symbolic link, which was named.
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
            Ok(Some(Visit::Enter(place, node))) => {
                let target = last.place.join(place.name().unwrap_or_default());
                match Filling::make(&copy.shared, target, last.within(), &node).await {
                    Ok(entered) => way.push(entered),
                    Err(error) => {
                        tree.skip();
                        copy.check(Err(error))?;
                    }
                }
            }
            Ok(Some(Visit::Other(place, node))) => {
                let target = last.place.join(place.name().unwrap_or_default());
                begin(copy, place, node, target, last.within()).await?;
            }
            Ok(Some(Visit::Leave(..))) => drop(way.pop()),
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
    async fn make(shared: &Shared, place: Place, into: Into, source: &Node) -> Result<Self> {
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
            let (stop, place) = (shared.stop.clone(), place.clone());
            Box::pin(async move {
                let set = set_directory(place.export.nfs(), handle, &place.path, &wanted);
                let set = stop.unless_late(REMOVED_WITHIN, set).await;
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

    /// The same for something in it.
    fn within(&self) -> Into {
        Into {
            dir: self.handle,
            held: Some(Arc::clone(&self.held)),
            permitted: self.permitted.clone(),
        }
    }
}

/// An error about what is made at a place, with its URL.
fn with_url(place: &Place, error: Error) -> Error {
    match error {
        Error::Nfs(error) => place.fault(error.doing, error.fault).into(),
        error => error,
    }
}

/// A directory is not copied into itself, which would have no end.
async fn refuse_within(source: &Place, node: &Node, target: &Place) -> Result<()> {
    let mut above = target.parent();
    while let Some(place) = above {
        if let Some(there) = place.find(Follow::Yes).await?
            && source.is_same(node, &place, &there)
        {
            return Err(Error::IntoItself {
                path: source.url.to_string(),
                to: target.url.to_string(),
            });
        }
        above = place.parent();
    }
    Ok(())
}
