//! `rpcrdma ls`: lists directories.

use crate::failure::Ended;
use crate::session::{Place, Session, SessionArgs};
use crate::show;
use clap::Args;
use nfs_client::{Fault, NfsUrl, Node, printable};
use nfs_proto::{Attributes, FileType, Status};
use serde::Serialize;
use std::io::{self, Write};

/// List directories
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma ls nfs://127.0.0.1/
  rpcrdma ls -lR nfs://files.example.org/photos
  rpcrdma ls --json nfs://[::1]:20049/a%20name%20with%20blanks

Times are in UTC. With --json there is one object per line, in the order of the server; `url` names
the file exactly, `path` only as far as it is text.")]
pub(crate) struct LsArgs {
    /// nfs://HOST[:PORT]/PATH of directories or files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<NfsUrl>,

    /// Show names that begin with a dot
    #[arg(short, long)]
    all: bool,

    /// Show type, permissions, links, owner, group, size and time
    #[arg(short, long)]
    long: bool,

    /// Sizes in units of 1024, as 1.5M
    #[arg(short = 'H', long)]
    human: bool,

    /// List directories within directories
    #[arg(short = 'R', long)]
    recursive: bool,

    /// One JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    session: SessionArgs,
}

/// One entry of a list.
struct Entry {
    name: Vec<u8>,
    node: Node,
    /// Text of a symbolic link, where it is shown.
    target: Option<Vec<u8>>,
}

/// An entry as a program reads it.
#[derive(Serialize)]
pub(crate) struct Line {
    /// In the export; bytes that are no text are replaced.
    path: String,
    /// With such bytes as `%XX`.
    url: String,
    #[serde(rename = "type")]
    file_type: &'static str,
    /// Permission bits, in octal.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    used: u64,
    fileid: u64,
    mtime: String,
    atime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Line {
    /// The file at a place; `target` is the text of a symbolic link.
    pub(crate) fn new(place: &Place, attributes: &Attributes, target: Option<&[u8]>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            path: text(&place.path),
            url: place.url.to_string(),
            file_type: show::file_type(attributes.file_type),
            mode: format!("{:04o}", attributes.mode & 0o7777),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            used: attributes.used,
            fileid: attributes.file_id.0,
            mtime: show::time_in_full(attributes.mtime),
            atime: show::time_in_full(attributes.atime),
            ctime: show::time_in_full(attributes.ctime),
            target: target.map(text),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: &LsArgs) -> anyhow::Result<Ended> {
    let mut session = Session::new(&args.session);
    let mut ended = Ended::Well;
    let mut list = List {
        args,
        out: io::BufWriter::new(io::stdout().lock()),
        headings: args.recursive || args.urls.len() > 1,
        begun: false,
    };
    for url in &args.urls {
        let listed = match session.place(url).await {
            Ok(place) => list.place(&place, &mut ended).await,
            Err(error) => Err(error),
        };
        ended.check(list.out.flush().map_err(Into::into))?;
        ended.check(listed)?;
    }
    session.close().await;
    Ok(ended)
}

/// A list that is being printed.
struct List<'a> {
    args: &'a LsArgs,
    out: io::BufWriter<io::StdoutLock<'a>>,
    /// Whether each directory is named above its entries.
    headings: bool,
    /// Whether something was printed already.
    begun: bool,
}

impl List<'_> {
    async fn place(&mut self, place: &Place, ended: &mut Ended) -> anyhow::Result<()> {
        let node = place.export.stat(&place.path).await?;
        if node.attributes.file_type != FileType::Directory {
            // What is shown of a link that was named is the link.
            let node = place.export.lstat(&place.path).await?;
            let entry = Entry {
                name: place.path.clone(),
                target: self.target(place, &node).await?,
                node,
            };
            self.begun = true;
            return match self.args.json {
                true => self.print_line(place, &entry),
                false => self.print(&[entry]),
            };
        }
        let mut left = vec![place.clone()];
        while let Some(directory) = left.pop() {
            match self.directory(&directory).await {
                Ok(below) => left.extend(below.into_iter().rev()),
                // The others can still be listed.
                Err(error) if directory.path != place.path => {
                    self.out.flush()?;
                    ended.failed(&error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Prints the entries of one directory, and returns the directories in it to be listed too.
    ///
    /// Lines for programs are printed as they come; for people all of them are sorted first.
    async fn directory(&mut self, place: &Place) -> anyhow::Result<Vec<Place>> {
        let mut directory = place.export.list(&place.path).await?;
        let dir = directory.handle();
        let (mut entries, mut below) = (Vec::new(), Vec::new());
        while let Some(found) = directory.next().await? {
            if found.name.starts_with(b".") && !self.args.all {
                continue;
            }
            let at = place.join(&found.name);
            let node = match place.export.node_of(dir, &found).await {
                Ok(node) => node,
                // Removed since the list was made.
                Err(Fault::Status(Status::NoEntry | Status::Stale)) => continue,
                Err(fault) => return Err(fault.at("find", &at.path).into()),
            };
            let entry = Entry {
                name: found.name,
                target: self.target(&at, &node).await?,
                node,
            };
            if self.args.json {
                self.print_line(&at, &entry)?;
            } else {
                entries.push(entry);
            }
            if self.args.recursive && node.attributes.file_type == FileType::Directory {
                below.push(at);
            }
        }
        if self.args.json {
            return Ok(below);
        }
        if self.headings {
            let gap = if self.begun { "\n" } else { "" };
            writeln!(self.out, "{gap}{}:", place.url)?;
        }
        self.begun = true;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        below.sort_by(|a, b| a.path.cmp(&b.path));
        self.print(&entries)?;
        Ok(below)
    }

    /// The text of a symbolic link, where it is shown; none if the link is gone.
    async fn target(&self, place: &Place, node: &Node) -> anyhow::Result<Option<Vec<u8>>> {
        let shown = self.args.long || self.args.json;
        if !shown || node.attributes.file_type != FileType::Symlink {
            return Ok(None);
        }
        match place.export.nfs().read_link(node.handle).await {
            Ok(target) => Ok(Some(target)),
            Err(Fault::Status(Status::NoEntry | Status::Stale)) => Ok(None),
            Err(fault) => Err(fault.at("read symbolic link", &place.path).into()),
        }
    }

    /// Prints an entry for a program.
    fn print_line(&mut self, place: &Place, entry: &Entry) -> anyhow::Result<()> {
        let line = Line::new(place, &entry.node.attributes, entry.target.as_deref());
        Ok(writeln!(self.out, "{}", serde_json::to_string(&line)?)?)
    }

    /// Prints entries for people.
    fn print(&mut self, entries: &[Entry]) -> anyhow::Result<()> {
        if !self.args.long {
            for entry in entries {
                writeln!(self.out, "{}", printable(&entry.name))?;
            }
            return Ok(());
        }
        let rows: Vec<[String; 7]> = entries.iter().map(|entry| self.row(entry)).collect();
        let mut widths = [0; 7];
        for row in &rows {
            for (width, column) in widths.iter_mut().zip(row) {
                *width = (*width).max(column.len());
            }
        }
        let [_, w_links, w_uid, w_gid, w_size, ..] = widths;
        for [mode, links, uid, gid, size, time, name] in rows {
            writeln!(
                self.out,
                "{mode} {links:>w_links$} {uid:>w_uid$} {gid:>w_gid$} {size:>w_size$} {time} {name}"
            )?;
        }
        Ok(())
    }

    fn row(&self, entry: &Entry) -> [String; 7] {
        let attributes = &entry.node.attributes;
        let size = match attributes.file_type {
            FileType::Block | FileType::Character => {
                format!("{},{}", attributes.device.major, attributes.device.minor)
            }
            _ if self.args.human => show::size(attributes.size),
            _ => attributes.size.to_string(),
        };
        let mut name = printable(&entry.name);
        if let Some(target) = &entry.target {
            name += " -> ";
            name += &printable(target);
        }
        [
            show::mode(attributes),
            attributes.links.to_string(),
            attributes.uid.to_string(),
            attributes.gid.to_string(),
            size,
            show::time(attributes.mtime),
            name,
        ]
    }
}
