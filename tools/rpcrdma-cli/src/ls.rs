//! `rpcrdma ls`: lists directories.

mod columns;
mod format;
mod line;

use crate::failure::Ended;
use crate::output::{self, Output};
use crate::owners::Owners;
use crate::session::{Session, SessionArgs};
use crate::times::TimeStyle;
use anyhow::anyhow;
use clap::{ArgAction, Args, ValueEnum};
use format::{Format, Listing};
pub(crate) use line::Line;
use nfs_client::{DirEntry, Fault, NfsUrl, Node};
use nfs_copy::{FileError, Of, Place};
use nfs_proto::{Attributes, FileHandle, FileType, NfsTime, Status};
use printing::json;
use std::cmp::{Ordering, Reverse};
use std::io::{self, Write};

/// Entries that are sorted together. A directory with more is shown in parts, each sorted by itself.
const MAX_SORTED: usize = 1 << 20;

/// Directories within directories that are listed; a server that invents more is given up.
const MAX_DEPTH: usize = 1000;

/// Directories that wait to be listed with -R. Further ones are not.
const MAX_WAITING: usize = 1 << 20;

/// List directories
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  rpcrdma ls nfs://127.0.0.1/
  rpcrdma ls -lh nfs://files.example.org/photos
  rpcrdma ls -ltr nfs://127.0.0.1/log
      the newest last
  rpcrdma ls -lR nfs://127.0.0.1/a%20name%20with%20blanks
  rpcrdma ls --json nfs://[::1]:20049/

Options have the meaning of ls(1) of coreutils. Names are sorted by their bytes; control \
characters in them are printed as \\xNN. Where the root of a server is no export, nfs://HOST/ lists its \
exports. Owners are names of this machine, and times are in the \
time zone TZ. -R does not follow symbolic links.

--json prints one object per line, in the order of the server, with times in UTC; `url` \
identifies the file, `path` is text and can be inexact.

Exit codes: 0 everything was listed, 1 something was not, 2 wrong command line."
)]
pub(crate) struct LsArgs {
    /// nfs://HOST[:PORT]/PATH of directories or files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Include names that begin with a dot, also `.` and `..`
    #[arg(short, long)]
    all: bool,

    /// Include names that begin with a dot, except `.` and `..`
    #[arg(short = 'A', long)]
    almost_all: bool,

    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,

    /// Show type, permissions, links, owner, group, size and time
    #[arg(short, long)]
    long: bool,

    /// Print sizes in units of 1024, such as 1.5M
    #[arg(short = 'h', long, overrides_with = "si")]
    human_readable: bool,

    /// Print sizes in units of 1000, such as 1.5M
    #[arg(long)]
    si: bool,

    /// Like -l, with numbers of users and groups instead of names
    #[arg(short, long)]
    numeric_uid_gid: bool,

    /// Show inode numbers
    #[arg(short, long)]
    inode: bool,

    /// Append the type to names: `/` directory, `*` program, `@` symbolic link, `|` pipe, `=`
    /// socket
    #[arg(short = 'F', long)]
    classify: bool,

    /// Colour names by LS_COLORS
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "never",
        default_missing_value = "always"
    )]
    color: When,

    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Sort by time, newest first
    #[arg(short = 't', overrides_with_all = ["by_size", "unsorted"])]
    by_time: bool,

    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with = "unsorted")]
    by_size: bool,

    /// Do not sort; list in the order of the server
    #[arg(short = 'U')]
    unsorted: bool,

    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,

    /// Show the time of the last change of attributes; without -l also sort by it
    #[arg(short = 'c', overrides_with = "accessed")]
    changed: bool,

    /// Show the time of the last access; without -l also sort by it
    #[arg(short = 'u')]
    accessed: bool,

    /// List one name per line
    #[arg(short = '1', overrides_with = "columns")]
    one_per_line: bool,

    /// List names in columns, also if the output is not a terminal
    #[arg(short = 'C')]
    columns: bool,

    /// Width of the output in columns (0 = no limit) [default: that of the terminal]
    #[arg(short, long, value_name = "COLUMNS")]
    width: Option<u16>,

    /// Follow symbolic links on the command line
    #[arg(short = 'H', long)]
    dereference_command_line: bool,

    /// Show the target of symbolic links instead of the links
    #[arg(short = 'L', long)]
    dereference: bool,

    /// Format of times: full-iso, long-iso, iso, locale or +FORMAT of date(1) [default: locale]
    #[arg(long, value_name = "STYLE")]
    time_style: Option<TimeStyle>,

    /// Like -l --time-style=full-iso
    #[arg(long)]
    full_time: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(flatten)]
    session: SessionArgs,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Always,
    /// If standard output is a terminal
    Auto,
    Never,
}

/// Key by which entries are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Time,
    Size,
    Nothing,
}

/// An entry of a list.
pub(crate) struct Entry {
    name: Vec<u8>,
    /// None if the server does not tell; why has been printed.
    node: Option<Node>,
    /// Text of a symbolic link, where it is shown.
    target: Option<Vec<u8>>,
    /// Attributes of the link's target, where those are shown.
    leads_to: Option<Attributes>,
}

impl Entry {
    fn file_type(&self) -> Option<FileType> {
        self.node.map(|node| node.attributes.file_type)
    }
}

impl LsArgs {
    fn is_long(&self) -> bool {
        self.long || self.numeric_uid_gid || self.full_time
    }

    /// The time that is shown, and sorted by.
    fn time(&self, attributes: &Attributes) -> NfsTime {
        match (self.changed, self.accessed) {
            (true, _) => attributes.ctime,
            (_, true) => attributes.atime,
            (false, false) => attributes.mtime,
        }
    }

    fn key(&self) -> Key {
        let other_time = (self.changed || self.accessed) && !self.is_long();
        match () {
            () if self.unsorted => Key::Nothing,
            () if self.by_size => Key::Size,
            () if self.by_time || other_time => Key::Time,
            () => Key::Name,
        }
    }

    /// Sorts entries, or anything else that has a name and maybe a node.
    fn sort<T>(&self, entries: &mut [T], of: impl Fn(&T) -> (&[u8], Option<&Node>)) {
        let key = self.key();
        if key == Key::Nothing {
            return;
        }
        entries.sort_by(|one, other| {
            let ((name, node), (other_name, other)) = (of(one), of(other));
            let largest = |node: Option<&Node>| match key {
                Key::Time => node.map(|node| Reverse((self.time(&node.attributes), 0))),
                Key::Size => node.map(|node| Reverse((NfsTime::default(), node.attributes.size))),
                Key::Name | Key::Nothing => None,
            };
            let order = match (largest(node), largest(other)) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => Ordering::Equal,
            };
            let order = order.then_with(|| name.cmp(other_name));
            match self.reverse {
                true => order.reverse(),
                false => order,
            }
        });
    }
}

/// Object that the user named.
struct Named {
    place: Place,
    entry: Entry,
}

/// A directory to be listed, and how many are above it.
struct Waiting {
    dir: Dir,
    depth: usize,
}

/// A directory, and its handle: to look its path up again takes a call for each directory above it.
struct Dir {
    place: Place,
    handle: FileHandle,
}

/// Runs the command.
pub(crate) async fn run(args: &LsArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut list = List {
        args,
        out: io::BufWriter::new(output::stdout()),
        owners: Owners::new(args.numeric_uid_gid),
        format: Format::new(args),
        headings: args.recursive || args.urls.len() > 1,
        begun: false,
        ended: Ended::Well,
    };
    let (mut named, mut roots) = (Vec::new(), Vec::new());
    for url in &args.urls {
        let found = match session.place(url).await {
            Ok(place) => list.named(place).await,
            Err(error) => Err(error),
        };
        let error = match found {
            Ok(found) => {
                named.push(found);
                continue;
            }
            Err(error) => error,
        };
        match session.exports_below(url, &error).await {
            Some(exports) if !args.directory => roots.push((url, exports)),
            _ => list.ended.check(Err(error))?,
        }
    }
    let mut listed = list.all(named).await;
    for (url, exports) in roots {
        if listed.is_ok() {
            listed = list.root(&mut session, url, exports).await;
        }
    }
    let flushed = list.out.flush().map_err(Into::into);
    let mut ended = list.ended;
    ended.check(flushed)?;
    ended.check(listed)?;
    session.close().await;
    Ok(ended)
}

/// A list that is being printed.
struct List<'a> {
    args: &'a LsArgs,
    out: io::BufWriter<Output>,
    owners: Owners,
    format: Format<'a>,
    /// Whether each directory is named above its entries.
    headings: bool,
    /// Whether something was printed already.
    begun: bool,
    ended: Ended,
}

impl List<'_> {
    /// Looks up what the user named: a symbolic link stands for itself where that is shown, and for the
    /// directory it leads to where that is listed.
    async fn named(&mut self, place: Place) -> anyhow::Result<Named> {
        let args = self.args;
        let mut node = place.export.lstat(&place.path).await.of(&place)?;
        if node.attributes.file_type == FileType::Symlink {
            if args.dereference || args.dereference_command_line {
                node = place.export.stat(&place.path).await.of(&place)?;
            } else if !args.is_long() && !args.directory && !args.classify {
                // A link that leads nowhere is shown as it is.
                match place.export.stat(&place.path).await {
                    Ok(led) if led.attributes.file_type == FileType::Directory => node = led,
                    Ok(_) | Err(_) => {}
                }
            }
        }
        let name = match args.json {
            true => place.path.clone(),
            false => place.url.to_string().into_bytes(),
        };
        let entry = self.entry(&place, name, Some(node)).await?;
        Ok(Named { place, entry })
    }

    /// Prints what the user named: first all that is no directory, then each directory.
    async fn all(&mut self, named: Vec<Named>) -> anyhow::Result<()> {
        let args = self.args;
        let listed =
            |one: &Named| !args.directory && one.entry.file_type() == Some(FileType::Directory);
        let (mut directories, mut others): (Vec<_>, Vec<_>) = named.into_iter().partition(listed);
        fn of(named: &Named) -> (&[u8], Option<&Node>) {
            (&named.entry.name, named.entry.node.as_ref())
        }
        args.sort(&mut directories, of);
        args.sort(&mut others, of);
        if args.json {
            for one in &others {
                self.print_line(&one.place, &one.entry).await?;
            }
        } else if !others.is_empty() {
            let entries: Vec<Entry> = others.into_iter().map(|one| one.entry).collect();
            self.print(&entries, Listing::Named).await?;
            self.begun = true;
        }
        for one in directories {
            let Some(Node { handle, .. }) = one.entry.node else {
                continue;
            };
            let place = one.place;
            let listed = self.tree(Dir { place, handle }).await;
            self.out.flush()?;
            self.ended.check(listed)?;
        }
        Ok(())
    }

    /// Lists the exports of a server as the directories of its root, which is no export itself.
    async fn root(
        &mut self,
        session: &mut Session,
        url: &NfsUrl,
        exports: Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let args = self.args;
        self.heading(url)?;
        let (mut entries, mut dirs) = (Vec::new(), Vec::new());
        for name in exports {
            if name.starts_with(b".") && !args.all && !args.almost_all {
                continue;
            }
            let (node, place) = match session.place(&url.join(&name)).await {
                Ok(place) => (Some(place.export.root()), Some(place)),
                Err(error) => {
                    self.check(Err(error))?;
                    (None, None)
                }
            };
            let entry = Entry {
                name,
                node,
                target: None,
                leads_to: None,
            };
            if let (true, Some(place)) = (args.json, &place) {
                self.print_line(place, &entry).await?;
            }
            dirs.extend(place.and_then(|place| self.walked(place, &entry, dirs.len())));
            entries.push(entry);
        }
        if !args.json {
            args.sort(&mut entries, |entry| (&entry.name, entry.node.as_ref()));
            self.print(&entries, Listing::Directory).await?;
        }
        for dir in dirs {
            self.tree(dir).await?;
        }
        Ok(())
    }

    /// Names a directory above its entries, if there may be several.
    fn heading(&mut self, url: &NfsUrl) -> anyhow::Result<()> {
        if self.headings && !self.args.json {
            let gap = if self.begun { "\n" } else { "" };
            writeln!(self.out, "{gap}{url}:")?;
        }
        self.begun = true;
        Ok(())
    }

    /// Lists a directory, and with -R those in it.
    async fn tree(&mut self, dir: Dir) -> anyhow::Result<()> {
        let mut waiting = vec![Waiting { dir, depth: 0 }];
        while let Some(Waiting { dir, depth }) = waiting.pop() {
            let mut below = Vec::new();
            let listed = self.directory(&dir, &mut below).await;
            if let Err(error) = listed {
                self.check(Err(error))?;
            }
            if below.is_empty() {
                continue;
            }
            if depth >= MAX_DEPTH || waiting.len() + below.len() > MAX_WAITING {
                self.check(Err(anyhow!(
                    "{}: the directories in it are not listed: there are too many of them within each \
                     other or to be listed yet",
                    dir.place.url
                )))?;
                continue;
            }
            let depth = depth + 1;
            let below = below.into_iter().rev();
            waiting.extend(below.map(|dir| Waiting { dir, depth }));
        }
        Ok(())
    }

    /// Prints why something cannot be shown, behind what was printed before it.
    fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        if part.is_err() {
            self.out.flush()?;
        }
        self.ended.check(part)
    }

    /// Prints the entries of one directory, and adds the directories in it that are to be listed too.
    ///
    /// Lines for programs are printed as they come; for people all of them are sorted first.
    async fn directory(&mut self, dir: &Dir, below: &mut Vec<Dir>) -> anyhow::Result<()> {
        let args = self.args;
        let (place, dir) = (&dir.place, dir.handle);
        let mut directory = place.export.list_dir(dir, &place.path);
        // A directory that cannot be read has no heading.
        let first = directory.next().await.of(place)?;
        self.heading(&place.url)?;
        let mut entries = Vec::new();
        if args.all && !args.json {
            for name in [&b"."[..], b".."] {
                let at = place.join(name);
                match at.export.stat(&at.path).await.of(&at) {
                    Ok(node) => entries.push(self.entry(&at, name.to_vec(), Some(node)).await?),
                    Err(error) => self.check(Err(error.into()))?,
                }
            }
        }
        let mut next: Result<_, FileError> = Ok(first);
        let end = loop {
            let found = match next {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                // What came before is good.
                Err(error) => break Err(error.into()),
            };
            match self.found(place, dir, found).await {
                Ok(Some((at, entry))) if args.json => {
                    self.print_line(&at, &entry).await?;
                    below.extend(self.walked(at, &entry, below.len()));
                }
                Ok(Some((_, entry))) => entries.push(entry),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if entries.len() == MAX_SORTED {
                let part = std::mem::take(&mut entries);
                self.sorted(place, part, below).await?;
            }
            next = directory.next().await.of(place);
        };
        if !args.json {
            self.sorted(place, entries, below).await?;
        }
        end
    }

    /// An entry that was found in a directory, and where it is; nothing if it is not shown.
    ///
    /// # Errors
    ///
    /// If no entry can be shown any more.
    async fn found(
        &mut self,
        place: &Place,
        dir: FileHandle,
        found: DirEntry,
    ) -> anyhow::Result<Option<(Place, Entry)>> {
        if found.name.starts_with(b".") && !self.args.all && !self.args.almost_all {
            return Ok(None);
        }
        let at = place.join(&found.name);
        let node = match place.export.node_of(dir, &found).await {
            Ok(node) => Some(node),
            // Removed since the list was made.
            Err(Fault::Status(Status::NoEntry | Status::Stale)) => return Ok(None),
            Err(fault @ Fault::Status(_)) => {
                self.check(Err(at.fault("find", fault).into()))?;
                None
            }
            Err(fault) => return Err(at.fault("find", fault).into()),
        };
        let entry = self.entry(&at, found.name, node).await?;
        Ok(Some((at, entry)))
    }

    /// The directory that an entry is, if -R goes into it, with so many before it. What a symbolic link leads to is
    /// not in the tree.
    fn walked(&self, place: Place, entry: &Entry, below: usize) -> Option<Dir> {
        let is_walked = self.args.recursive
            && entry.file_type() == Some(FileType::Directory)
            && entry.leads_to.is_none()
            && !matches!(&entry.name[..], b"." | b"..")
            // One more than there is room for, so that it is told.
            && below <= MAX_WAITING;
        let handle = entry.node.filter(|_| is_walked)?.handle;
        Some(Dir { place, handle })
    }

    /// Sorts and prints entries of a directory, and adds the directories among them.
    async fn sorted(
        &mut self,
        place: &Place,
        mut entries: Vec<Entry>,
        below: &mut Vec<Dir>,
    ) -> anyhow::Result<()> {
        let args = self.args;
        args.sort(&mut entries, |entry| (&entry.name, entry.node.as_ref()));
        self.print(&entries, Listing::Directory).await?;
        for entry in &entries {
            below.extend(self.walked(place.join(&entry.name), entry, below.len()));
        }
        Ok(())
    }

    /// An entry with all that is shown of it. What a link says or leads to may be missing.
    async fn entry(
        &mut self,
        place: &Place,
        name: Vec<u8>,
        node: Option<Node>,
    ) -> anyhow::Result<Entry> {
        let args = self.args;
        let mut entry = Entry {
            name,
            node,
            target: None,
            leads_to: None,
        };
        let Some(link) = node.filter(|n| n.attributes.file_type == FileType::Symlink) else {
            return Ok(entry);
        };
        if args.dereference {
            match place.export.stat(&place.path).await.of(place) {
                Ok(node) => {
                    entry.node = Some(node);
                    entry.leads_to = Some(node.attributes);
                }
                Err(error) => self.check(Err(error.into()))?,
            }
            return Ok(entry);
        }
        if args.is_long() || args.json {
            match place.export.nfs().read_link(link.handle).await {
                Ok(target) => entry.target = Some(target),
                // Removed since the list was made.
                Err(Fault::Status(Status::NoEntry | Status::Stale)) => {}
                Err(fault) => {
                    let error = place.fault("read symbolic link", fault);
                    self.check(Err(error.into()))?;
                }
            }
            if args.classify || self.format.has_colors() {
                // One that leads nowhere has nothing to be shown.
                let led = place.export.stat(&place.path).await;
                entry.leads_to = led.ok().map(|node| node.attributes);
            }
        }
        Ok(entry)
    }

    /// Prints an entry for a program.
    async fn print_line(&mut self, place: &Place, entry: &Entry) -> anyhow::Result<()> {
        let Some(node) = &entry.node else {
            return Ok(());
        };
        let attributes = &node.attributes;
        self.owners.learn([(attributes.uid, attributes.gid)]).await;
        let line = Line::new(place, attributes, entry.target.as_deref(), &self.owners);
        Ok(writeln!(self.out, "{}", json::line(&line)?)?)
    }

    /// Prints entries for people.
    async fn print(&mut self, entries: &[Entry], listing: Listing) -> anyhow::Result<()> {
        let nodes = entries.iter().filter_map(|entry| entry.node);
        if self.args.is_long() {
            let owners = nodes.map(|node| (node.attributes.uid, node.attributes.gid));
            self.owners.learn(owners).await;
        }
        let text = self.format.text(entries, listing, &self.owners);
        Ok(self.out.write_all(text.as_bytes())?)
    }
}
