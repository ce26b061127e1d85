//! Copies of local files to a server.

mod found;
mod reader;
mod send;
mod stream;

use crate::attributes::Wanted;
use crate::connection::Connection;
use crate::copy::{Control, Copy, Ended, FILES_IN_FLIGHT, Permitted, Shared};
use crate::decide::{Action, Skip};
use crate::delete;
use crate::directory_completion::{Held, Last};
use crate::directory_stack::DirectoryStack;
use crate::entry::{Entry, split};
use crate::error::{Context, Error, Result};
use crate::events::Event;
use crate::links::{Links, note_kept};
use crate::made_names::{FileId, Made};
use crate::options::Options;
use crate::replaced_attributes::mode_for_others;
use crate::root::{Root, ServerTarget, Target};
use crate::show;
use crate::tree::{Tree, local};
use crate::unfinished;
use crate::upload::{
    Dataless, REMOVED_WITHIN, Uploaded, collision, find_made, is_listed, is_taken, make_directory,
    open_up, random, set_directory,
};
use crate::walk::{Inside, Other, Step};
use buffer::Pool;
use found::{Content, Found};
use nfs_client::{Export, Fault, Node};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status, args};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// Memory kept for reading, in bytes.
const POOL_KEEP: usize = 32 << 20;

/// Data without a place in the file system and without attributes, such as standard input and output.
#[derive(Debug)]
pub struct Stream {
    /// The open stream.
    pub file: File,
    /// Its name in events.
    pub name: String,
}

/// Local file, directory or stream that is copied to a server.
#[derive(Debug)]
pub enum Source {
    /// A path. Of `DIRECTORY/.` only the contents are copied.
    Path(PathBuf),
    /// A stream, which is read to its end. It needs a target that is no directory, and is the only source.
    Stream(Stream),
}

/// Copies local files and directories to a server.
pub async fn put(
    options: Options,
    control: Control,
    sources: Vec<Source>,
    target: ServerTarget,
) -> Ended {
    let ServerTarget { target, place } = target;
    let options = Options {
        resolution: options.resolution.max(place.time_step()),
        ..options
    };
    let copy = Copy::new(options, control, Some(place.url.clone()));
    let mut named = Vec::new();
    let mut input = None;
    for source in sources {
        match source {
            Source::Path(path) => named.push(Named::Path(path)),
            Source::Stream(Stream { file, name }) => {
                input = Some(Arc::new(file));
                named.push(Named::Stream(name.into_bytes()));
            }
        }
    }
    let put = Arc::new(Put {
        export: Arc::clone(&place.export),
        shared: copy.shared.clone(),
        pool: Pool::new(POOL_KEEP),
        links: Links::default(),
        input,
    });
    let dest = Tree::of(&place);
    let all = async |copy: &mut Copy| {
        let mut roots = Vec::new();
        for named in &named {
            let root = match named {
                Named::Path(path) => root(path, &target, put.shared.options.copies_links).await,
                Named::Stream(name) => target.root((Tree::Local, Entry::stream(name)), None).await,
            };
            match root {
                Ok(root) => roots.push(root),
                Err(error) => copy.check(Err(error))?,
            }
        }
        put.all(copy, &dest, Arc::new(roots)).await
    };
    copy.all(all).await
}

/// A source, and where it goes.
async fn root(source: &Path, target: &Target, copies_links: bool) -> Result<Root> {
    let path = source.as_os_str().as_bytes();
    // Of `dir/.`, as of `.`, only the contents are meant.
    let is_contents = path.ends_with(b"/.") || source.file_name().is_none();
    let name = source.file_name().filter(|_| !is_contents);
    let found = match copies_links {
        true => Tree::Local.look(path).await?,
        false => Tree::Local.follow(path).await?,
    };
    let Some(found) = found else {
        let nothing = Err(Error::NoEntry);
        return nothing.with_context(|| format!("{}: cannot read", show::path(source)));
    };
    let name = name.map(OsStr::as_bytes);
    target.root((Tree::Local, found), name).await
}

/// A source without what is open of it.
enum Named {
    Path(PathBuf),
    Stream(Vec<u8>),
}

/// State of a copy to a server.
struct Put {
    export: Arc<Export<Connection>>,
    shared: Shared,
    /// Memory for reading.
    pool: Pool,
    links: Links<Linked>,
    /// The stream that is the source, if one is.
    input: Option<Arc<File>>,
}

/// The copy of a file with several names.
#[derive(Clone, Copy, Debug)]
struct Linked {
    handle: FileHandle,
    /// Its numbers, if the server tells them.
    id: Option<FileId>,
}

/// A directory on the server that things are put into.
#[derive(Clone)]
struct Within {
    handle: FileHandle,
    held: Option<Arc<Held>>,
    permitted: Permitted,
}

impl Put {
    /// Copies all that a thread finds and reads ahead.
    async fn all(
        self: Arc<Self>,
        copy: &mut Copy,
        dest: &Tree,
        roots: Arc<Vec<Root>>,
    ) -> Result<()> {
        let options = Arc::clone(&self.shared.options);
        delete::check(&options, &roots)?;
        let (finds, mut found) = mpsc::channel(FILES_IN_FLIGHT);
        let (to, from) = (dest.clone(), Arc::clone(&roots));
        let runtime = Handle::current();
        // Most of what it does is system calls; a call to the server now and then is made by the event loop.
        spawn_blocking(move || runtime.block_on(found::find(to, options, from, finds)));
        let mut way = DirectoryStack::<Within>::default();
        let mut base = Base::default();
        while let Some(found) = found.recv().await {
            match found {
                Found::Planned { files, bytes } => {
                    self.shared.events.planned(files, bytes);
                    let options = &self.shared.options;
                    if !options.dry_run && !options.resumes {
                        unfinished::remove_beside(&roots, dest).await;
                    }
                }
                Found::Step(Step::Enter(inside)) => {
                    if way.enters() {
                        let above = match way.last() {
                            Some(above) => above.clone(),
                            None => base.of(&roots, inside.root)?,
                        };
                        let entered = self.enter(dest, &inside, above).await;
                        let entered = entered.map_err(|error| copy.check(Err(error)));
                        way.enter(entered)?;
                    }
                }
                Found::Step(Step::Leave) => way.leave(),
                Found::Step(Step::Other(other)) => {
                    // Why there is no directory for it has been told.
                    if way.is_there() {
                        self.left_out(copy, dest, *other)?;
                    }
                }
                Found::File(other, content) => {
                    if way.is_there() {
                        let into = match way.last() {
                            Some(into) => into.clone(),
                            None => base.of(&roots, other.root)?,
                        };
                        let made = self.shared.made_in(into.held.as_ref());
                        let may_collide = made.may_have(split(&other.to).1);
                        if may_collide {
                            // Which of them is there is known when they are complete.
                            copy.settle().await?;
                        }
                        let put = Arc::clone(&self);
                        let dest = dest.clone();
                        copy.begin(async move {
                            let content = content?;
                            let there = match may_collide {
                                true => {
                                    let to = (into.handle, &other.to[..]);
                                    find_made(&put.export, to, &made).await?
                                }
                                false => None,
                            };
                            let to = (&into, &*made, there);
                            let copied = put.one(&other, content, to, &dest).await;
                            put.taken_or(copied, &other.source.path)
                        })
                        .await?;
                    }
                }
                Found::Step(Step::Conflict(error) | Step::Failed(error)) => {
                    copy.check(Err(error))?;
                }
            }
        }
        drop(way);
        delete::after(copy, &roots, dest).await
    }

    /// Makes a directory, unless it is there.
    async fn enter(
        self: &Arc<Self>,
        dest: &Tree,
        inside: &Inside,
        parent: Within,
    ) -> Result<Within> {
        let shared = &self.shared;
        if inside.there.is_none() {
            let from = &Tree::Local.named(&inside.source.path);
            let to = &dest.named(&inside.to);
            shared.tell(&Event::DirectoryMade { from, to })?;
        }
        if shared.options.dry_run {
            return Ok(parent);
        }
        let nfs = self.export.nfs();
        // What is there keeps its permissions.
        let permitted = match inside.there {
            Some(_) => 0o777,
            None => self.permitted(&parent).await?,
        };
        let wanted = self.wanted(&inside.source, permitted);
        let (node, is_new) = match inside.there.as_ref().and_then(|there| there.node) {
            Some(node) => {
                if let Some(there) = &inside.there
                    && !shared.options.resumes
                {
                    unfinished::remove(dest, there, &inside.unfinished).await;
                }
                (node, false)
            }
            None => {
                let mode = wanted.first_directory_mode();
                let made = make_directory(nfs, parent.handle, split(&inside.to).1, mode).await;
                let made =
                    made.map_err(|fault| nfs.error_at(fault, "make directory", &inside.to))?;
                (made.node, made.is_new)
            }
        };
        let (handle, about) = (node.handle, &node.attributes);
        let entered = ((about.fsid, about.file_id.0), split(&inside.to).1);
        let is_listed = async || is_listed(&self.export, (parent.handle, &inside.to)).await;
        let above = parent.held.as_ref();
        shared
            .enter_once(above, inside.is_contents, entered, is_listed, || {
                dest.show(&inside.to)
            })
            .await?;
        let last = match is_new {
            true => wanted.last_of_directory(about.mode),
            false => wanted.last_of_existing(about.mode, open_up(nfs, &node).await),
        };
        let last = last.map(|wanted| -> Last {
            let (put, path) = (Arc::clone(self), inside.to.clone());
            Box::pin(async move {
                let set = set_directory(put.export.nfs(), handle, &path, &wanted);
                put.shared.stop.unless_late(REMOVED_WITHIN, set).await
            })
        });
        Ok(Within {
            handle,
            held: Some(shared.hold(parent.held, last)),
            permitted: match is_new {
                // It has the default list of the one that it is in (acl(5)).
                true => parent.permitted,
                false => Permitted::default(),
            },
        })
    }

    /// Tells of what is not copied, or would be.
    fn left_out(&self, copy: &mut Copy, dest: &Tree, other: Other) -> Result<()> {
        let path = &other.source.path;
        match other.action {
            Action::Copy { .. } | Action::Make { .. } | Action::Write => {
                let told = self.copied(dest, path, &other.to);
                copy.check(told)
            }
            Action::Skip(why) => {
                if let (Some(there), Some(handle)) = (other.kept_copy(), other.replaced) {
                    let about = &other.source.about;
                    let id = Some((there.fs, there.id));
                    if let Some(first) = self.links.of(about.file_key(0), about.links) {
                        note_kept(&first, Linked { handle, id });
                    }
                }
                let from = &Tree::Local.named(path);
                let told = self.shared.tell(&Event::Skipped { from, why });
                copy.check(told)
            }
            Action::Unsupported | Action::Refuse(_) => {
                let (path, kind) = (Tree::Local.show(path), other.source.about.kind);
                copy.check(Err(Error::Unsupported { path, kind }))
            }
        }
    }

    /// The result of a copy; that what is there is not replaced is none, if it is to stay.
    fn taken_or(&self, copied: Result<()>, path: &[u8]) -> Result<()> {
        match copied {
            Err(error) if self.shared.options.keeps_existing && is_taken(&error) => {
                let (from, why) = (&Tree::Local.named(path), Skip::Exists);
                self.shared.tell(&Event::Skipped { from, why })
            }
            copied => copied,
        }
    }

    /// Copies what is no directory.
    async fn one(
        &self,
        other: &Other,
        content: Content,
        (into, made, there): (&Within, &Made, Option<FileId>),
        dest: &Tree,
    ) -> Result<()> {
        let (to, source) = (
            (into.handle, &other.to[..], made),
            local(&other.source.path),
        );
        let about = &other.source.about;
        let first = match &content {
            Content::Small { .. } | Content::Large { .. } => {
                self.links.of(about.file_key(0), about.links)
            }
            Content::Stream | Content::Symlink(_) | Content::Special => None,
        };
        let mut first = match &first {
            Some(first) => {
                let locked = async { Ok(first.lock().await) };
                Some(self.shared.stop.unless(locked).await?)
            }
            None => None,
        };
        let copy = first.as_deref().copied().flatten();
        if let Some(there) = there
            && copy.and_then(|copy| copy.id) != Some(there)
        {
            return Err(collision(&other.to));
        }
        // Where the name leads to the copy already, there is nothing to do.
        if let Some(copy) = copy
            && (there.is_some() || self.hard_link(copy, (into.handle, made), &other.to).await?)
        {
            self.shared.events.begun(about.size);
            self.shared.events.already_there(about.size);
            return self.copied(dest, &other.source.path, &other.to);
        }
        // The copy has its other names whether it has all attributes or not.
        let mut named = |copy: Uploaded| {
            let Uploaded { handle, id, set } = copy;
            if let Some(first) = &mut first {
                **first = Some(Linked { handle, id });
            }
            set
        };
        let wanted = self.wanted(&other.source, self.permitted(into).await?);
        let wanted = wanted.in_place_of(other.there.as_ref(), other.replaced);
        match content {
            Content::Small { data } => named(self.small(data, &wanted, to).await?)?,
            Content::Large { file, size } => {
                let _room = self.shared.room(size).await;
                named(self.large(source, (file, size), &wanted, to).await?)?;
            }
            Content::Stream => {
                let _room = self.shared.room(u64::MAX).await;
                self.stream(source, &wanted, to).await?;
            }
            Content::Special => {
                self.shared.events.begun(0);
                let attributes = SetAttributes {
                    mode: Some(wanted.first_mode()),
                    ..SetAttributes::default()
                };
                let node = match about.kind {
                    FileType::Socket => args::Node::Socket(attributes),
                    _ => args::Node::Fifo(attributes),
                };
                let nfs = self.export.nfs();
                let special = Dataless::Special(node);
                let made_one = self
                    .make(&special, "make special file", other, into)
                    .await?;
                made.note((made_one.attributes.fsid, made_one.attributes.file_id.0));
                let file = (made_one.handle, &other.to[..]);
                wanted.set_remote(nfs, file, None, None).await?;
            }
            Content::Symlink(text) => {
                self.shared.events.begun(0);
                let text = Dataless::Symlink(text);
                let link = self.make(&text, "make symbolic link", other, into).await?;
                made.note((link.attributes.fsid, link.attributes.file_id.0));
                if let Some(kept) = &wanted.kept {
                    kept.set_remote_link(self.export.nfs(), link.handle, &other.to)
                        .await?;
                }
            }
        }
        self.copied(dest, &other.source.path, &other.to)
    }

    /// Tells that something was copied, or would be.
    fn copied(&self, dest: &Tree, from: &[u8], to: &[u8]) -> Result<()> {
        let (from, to) = (&Tree::Local.named(from), &dest.named(to));
        self.shared.tell(&Event::Copied { from, to })
    }

    /// Makes something that has no data, in place of what is there as it was decided.
    async fn make(
        &self,
        what: &Dataless,
        doing: &'static str,
        other: &Other,
        into: &Within,
    ) -> Result<Node> {
        let replaces = matches!(
            other.action,
            Action::Copy { replaces: true } | Action::Make { replaces: true }
        );
        let made = async {
            let name = Name::new(split(&other.to).1)?;
            what.make(self.export.nfs(), into.handle, name, replaces)
                .await
        };
        let nfs = self.export.nfs();
        Ok(made
            .await
            .map_err(|fault| nfs.error_at(fault, doing, &other.to))?)
    }

    /// Permissions that new files in a directory may have.
    ///
    /// # Errors
    ///
    /// The caller wants the copy to end.
    async fn permitted(&self, dir: &Within) -> Result<u32> {
        let nfs = self.export.nfs();
        self.shared.permitted(nfs, dir.handle, &dir.permitted).await
    }

    /// Attributes for the copy of something, where new files may have these permissions. It gets no access control list of
    /// the source, which its mode may belong to.
    fn wanted(&self, source: &Entry, permitted: u32) -> Wanted {
        let options = &self.shared.options;
        let mut about = source.about;
        if options.preserves {
            about.mode = mode_for_others(local(&source.path), &about);
        }
        Wanted::of(&about, options, permitted)
    }

    /// Gives a file on the server another name, in place of what has it; whether that was possible. A file system
    /// may have no links, or not as many.
    async fn hard_link(
        &self,
        copy: Linked,
        (dir, made): (FileHandle, &Made),
        to: &[u8],
    ) -> Result<bool> {
        let file = copy.handle;
        if let Some(id) = copy.id {
            made.note(id);
        }
        let linked = async {
            let nfs = self.export.nfs();
            let name = Name::new(split(to).1)?;
            match nfs.link(file, dir, name).await {
                Ok(()) => return Ok(true),
                // Another put may have made it, or the call came twice, as it was sent again.
                Err(Fault::Status(Status::Exist)) if nfs.is_name_of(file, dir, name).await => {
                    return Ok(true);
                }
                // That it is taken is found when a copy is to get the name.
                Err(Fault::Status(Status::Exist)) if self.shared.options.keeps_existing => {
                    return Ok(false);
                }
                Err(Fault::Status(Status::Exist)) => {}
                Err(Fault::Status(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            let temporary = nfs_client::temporary_name(&name, random());
            let first = Name::new(&temporary)?;
            match nfs.link(file, dir, first).await {
                // The call came twice: nobody else knows the name.
                Ok(()) | Err(Fault::Status(Status::Exist)) => {}
                Err(Fault::Status(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            let renamed = nfs.rename_file(file, (dir, first), (dir, name)).await;
            // Two names of one file are left as they are (RFC 1813 §3.3.14), if another put has made it meanwhile. The
            // error to be told is that of renaming.
            let _ = nfs.remove(dir, first).await;
            renamed?;
            Ok(true)
        };
        let nfs = self.export.nfs();
        let linked = async {
            linked
                .await
                .map_err(|fault| nfs.error_at(fault, "link", to))
        };
        let stop = &self.shared.stop;
        stop.unless_late(REMOVED_WITHIN, linked).await
    }
}

/// The directory that sources go into: often one for many sources.
#[derive(Default)]
struct Base(Option<Within>);

impl Base {
    /// # Errors
    ///
    /// There is none on the server.
    fn of(&mut self, roots: &[Root], root: usize) -> Result<Within> {
        let base = &roots[root].base;
        let node = base.node.ok_or_else(|| Error::NotOnServer {
            path: nfs_client::printable(&base.path),
        })?;
        match &self.0 {
            Some(base) if base.handle == node.handle => Ok(base.clone()),
            Some(_) | None => Ok(self
                .0
                .insert(Within {
                    handle: node.handle,
                    held: None,
                    permitted: Permitted::default(),
                })
                .clone()),
        }
    }
}
