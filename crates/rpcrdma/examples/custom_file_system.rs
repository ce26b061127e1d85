//! A file system of one's own behind NFS: files whose content is computed when they are read.
//!
//!     cargo run -p rpcrdma --features nfs --example custom_file_system
//!
//! It has one directory with three files: `uptime`, `pid` and `reads`. The methods of [`FileSystem`] that
//! change something are not written: they fail with "read-only".

use rpcrdma::nfs::client::{Export, Fault, current_user};
use rpcrdma::nfs::proto::{SetAttributes, Status};
use rpcrdma::nfs::server::fs::{
    Access, Attributes, DirBudget, DirFrom, DirPage, Error, FileId, FileKind, Found, Identity,
    Outcome, ReadOut, Seen, Step, Time,
};
use rpcrdma::nfs::server::{ExportOptions, Exports, FileSystem, HandleKey, Mount3, Nfs3};
use rpcrdma::{Bytes, Client, ClientConfig, Iwarp, Pool, Programs, Server, ServerConfig};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Number of the directory; those of the files follow.
const ROOT: u64 = 1;

/// The files, in the order of the directory.
const FILES: [&str; 3] = ["uptime", "pid", "reads"];

/// Facts about this process.
struct Facts {
    started: Instant,
    made: Time,
    reads: AtomicU64,
}

impl Facts {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            made: Time::now(),
            reads: AtomicU64::new(0),
        }
    }

    /// A file system names its files by up to 40 bytes of its own.
    fn id(number: u64) -> FileId {
        FileId::of_words([number, 0, 0])
    }

    /// The number of a file. A handle of a file that is not there is stale.
    fn number(file: FileId) -> Result<u64, Error> {
        match file.words() {
            Some([number @ ROOT..=4, 0, 0]) => Ok(number),
            _ => Err(Error::Stale),
        }
    }

    fn content(&self, number: u64) -> String {
        match number {
            2 => format!("{}\n", self.started.elapsed().as_secs()),
            3 => format!("{}\n", std::process::id()),
            _ => format!("{}\n", self.reads.load(Relaxed)),
        }
    }

    fn describe(&self, number: u64) -> Attributes {
        let directory = number == ROOT;
        let size = match directory {
            true => 0,
            false => self.content(number).len() as u64,
        };
        Attributes {
            kind: match directory {
                true => FileKind::Directory,
                false => FileKind::Regular,
            },
            mode: if directory { 0o555 } else { 0o444 },
            links: if directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size,
            used: size,
            device: (0, 0),
            fileid: number,
            atime: self.made,
            // Clients keep data while these stay: what changes must be seen to change.
            mtime: Time::now(),
            ctime: Time::now(),
            change: Time::now().as_change(),
        }
    }

    fn find(&self, number: u64) -> Found {
        Found {
            file: Self::id(number),
            attributes: self.describe(number),
        }
    }

    /// Runs what asks about a file; the attributes go with the result.
    fn see<T>(&self, file: FileId, ask: impl FnOnce(u64) -> Result<T, Error>) -> Outcome<Seen<T>> {
        // `Ready`: nothing here waits. What may wait returns `Outcome::Slow` with a job.
        Outcome::Ready(match Self::number(file) {
            Err(error) => Seen::failed(error),
            Ok(number) => Seen {
                attributes: Some(self.describe(number)),
                result: ask(number),
            },
        })
    }
}

impl FileSystem for Facts {
    fn root(&self) -> FileId {
        Self::id(ROOT)
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        Outcome::Ready(Self::number(file).map(|number| self.describe(number)))
    }

    fn lookup(&self, _who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>> {
        self.see(dir, |number| {
            if number != ROOT {
                return Err(Error::NotDirectory);
            }
            let Step::Name(name) = step else {
                return Ok(self.find(ROOT));
            };
            let at = FILES
                .iter()
                .position(|file| file.as_bytes() == name.bytes());
            Ok(self.find(2 + at.ok_or(Error::NotFound)? as u64))
        })
    }

    fn read(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        let may = self.access(who, file, Access::READ).wait().result;
        self.see(file, |number| {
            if number == ROOT {
                return Err(Error::IsDirectory);
            }
            if may? != Access::READ {
                return Err(Error::Access);
            }
            self.reads.fetch_add(1, Relaxed);
            let all = Bytes::from(self.content(number));
            let begin = usize::try_from(offset).map_or(all.len(), |at| at.min(all.len()));
            let end = begin.saturating_add(count as usize).min(all.len());
            Ok(ReadOut {
                data: std::iter::once(all.slice(begin..end)).collect(),
                eof: end == all.len(),
            })
        })
    }

    fn read_directory(
        &self,
        _who: &Identity,
        dir: FileId,
        from: DirFrom,
        mut budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        self.see(dir, |number| {
            if number != ROOT {
                return Err(Error::NotDirectory);
            }
            // The cookie of an entry is its place, counted from 1; 0 is the beginning.
            let names = [".", ".."].into_iter().chain(FILES);
            let numbers = [ROOT, ROOT].into_iter().chain(2..);
            let mut page = DirPage::default();
            for (cookie, (name, number)) in (1..).zip(names.zip(numbers)) {
                if cookie <= from.cookie {
                    continue;
                }
                let found = plus.then(|| self.find(number));
                let file = found.map(|found| found.file);
                let first = page.entries.is_empty();
                if !budget.take(name.as_bytes(), file, first) {
                    return Ok(page);
                }
                page.push(name.as_bytes(), number, cookie, found);
            }
            page.eof = true;
            Ok(page)
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = Arc::new(Facts::new());
    let exports = Exports::new(HandleKey::random()?);
    let exports = exports.with("/facts", files, ExportOptions::default())?;
    let programs = Programs::new()
        .with(Nfs3::new(exports.clone(), Pool::new(1 << 20)))
        .with(Mount3::new(exports));
    let provider = Arc::new(Iwarp::default());
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let config = ServerConfig::default();
    let server = Server::bind(provider.clone(), at, Arc::new(programs), config).await?;

    let client = Client::connect(provider, server.local_addr(), ClientConfig::default()).await?;
    let export = Export::mount(client.clone(), current_user(), "/facts").await?;
    let mut names = Vec::new();
    for entry in export.entries("/").await? {
        let name = String::from_utf8(entry.name)?;
        let text = String::from_utf8(export.read_all(&name, 1024).await?)?;
        println!("{name}: {}", text.trim_end());
        if name == "pid" {
            assert_eq!(text, format!("{}\n", std::process::id()));
        }
        names.push(name);
    }
    assert_eq!(names, FILES);

    let refused = export.write_all("new", "text", SetAttributes::default());
    let fault = refused.await.expect_err("nothing can be written").fault;
    assert_eq!(fault, Fault::Status(Status::ReadOnly));

    client.close().await;
    server.shutdown().await;
    Ok(())
}
