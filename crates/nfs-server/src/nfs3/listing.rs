//! READDIR and READDIRPLUS.

use super::{Nfs3, Operation, Place, convert};
use crate::export_metrics::Tally;
use crate::fs::{DirBudget, DirFrom, DirPage, Seen};
use crate::handle::HANDLE_FRAME;
use buffer::Pool;
use nfs_proto::results::{self, Entry, EntryPlus, Res};
use nfs_proto::{
    Attributes, Cookie, CookieVerifier, DirectoryLimits, DirectoryWriter, Failed, FileHandle,
    FileId, Filename, Status, Wire, args,
};
use oncrpc::xdr::Writer;
use oncrpc::{Answer, Call, Reply};

/// Largest reply to READDIR or READDIRPLUS in bytes, regardless of the request: reading so many
/// entries with their attributes takes a thread some milliseconds.
const MAX_DIRECTORY: usize = 256 << 10;

/// Largest reply message to READDIR or READDIRPLUS in bytes, whether a client counts attributes and
/// verifier or not.
pub(super) const MAX_REPLY: usize = HEADER + FRAME + MAX_DIRECTORY;

/// Bytes of a reply message in front of the results that a client limits.
const HEADER: usize = oncrpc::REPLY_HEADER + 4;

/// Bytes of a reply beside its entries: the attributes of the directory, the verifier, and the end
/// of the list.
const FRAME: usize = <Option<Attributes>>::MAX + CookieVerifier::MAX + 8;

/// Bytes of an entry of READDIRPLUS beside that of READDIR: attributes, and a handle without its bytes.
const PLUS: usize = <Option<Attributes>>::MAX + 4 + 4;

/// Largest size of a handle in bytes.
const HANDLES: usize = nfs_proto::limits::MAX_HANDLE as usize;

/// Arguments of READDIR or READDIRPLUS.
struct Ask {
    dir: FileHandle,
    from: DirFrom,
    limits: DirectoryLimits,
    plus: bool,
}

impl Nfs3 {
    pub(super) fn read_dir(&self, call: &mut Call) -> Answer {
        match call.decode(args::ReadDir::parse) {
            Err(error) => Answer::Now(call.take().unreadable(error)),
            Ok(args) => self.list(
                call,
                &Ask {
                    dir: args.dir,
                    from: from(args.cookie, args.verifier),
                    limits: DirectoryLimits::from(&args),
                    plus: false,
                },
            ),
        }
    }

    pub(super) fn read_dir_plus(&self, call: &mut Call) -> Answer {
        match call.decode(args::ReadDirPlus::parse) {
            Err(error) => Answer::Now(call.take().unreadable(error)),
            Ok(args) => self.list(
                call,
                &Ask {
                    dir: args.dir,
                    from: from(args.cookie, args.verifier),
                    limits: DirectoryLimits::from(&args),
                    plus: true,
                },
            ),
        }
    }

    fn list(&self, call: &mut Call, ask: &Ask) -> Answer {
        let mut limits = ask.limits;
        // A client may ask for more than it has room for: the rest would be read in vain.
        let room = call.caller.reply_room.message().saturating_sub(HEADER);
        limits.bytes = limits.bytes.min(MAX_DIRECTORY).min(room);
        let budget = DirBudget {
            total: limits.bytes.saturating_sub(FRAME),
            per_entry: DirBudget::BASE + if ask.plus { PLUS } else { 0 },
            per_handle: HANDLE_FRAME,
            names: limits.names,
        };
        let plus = ask.plus;
        let operation = Operation::new(call);
        let opened = self.open(&operation, &ask.dir).map(|(target, who)| {
            let place = self.place(&target.export);
            let mounts = target.export.mounted_in(target.file);
            let fs = &target.export.fs;
            let outcome = fs.read_directory(&who, target.file, ask.from, budget, plus);
            (place, mounts, outcome)
        });
        let export = operation.export();
        let pool = self.pool.clone();
        let (place, mounts, outcome) = match opened {
            Ok(opened) => opened,
            Err(status) => {
                self.count(export, call, Tally::failed(status));
                return Answer::Now(failed(call, status, None));
            }
        };
        let tally = |found: &Seen<DirPage>| match &found.result {
            Ok(_) => Tally::default(),
            Err(error) => Tally::failed(convert::status(*error)),
        };
        self.respond(call, export, outcome, tally, move |call, found| {
            let attributes = found
                .attributes
                .map(|found| convert::attributes(place.export, &found));
            match found.result {
                Ok(mut page) => {
                    hide_covered(&mut page, &mounts);
                    write(call, &pool, &place, (limits, attributes), &page, plus)
                }
                Err(error) => failed(call, convert::status(error), attributes),
            }
        })
    }
}

/// Removes attributes and handles of mount points: they are those of the directories under the
/// mounts. A client gets those of the mounted file systems by LOOKUP.
fn hide_covered(page: &mut DirPage, mounts: &[Box<[u8]>]) {
    if mounts.is_empty() {
        return;
    }
    let is_mount: Vec<bool> = page
        .iter()
        .map(|(name, _)| mounts.iter().any(|mount| **mount == *name))
        .collect();
    for (entry, is_mount) in page.entries.iter_mut().zip(is_mount) {
        if is_mount {
            entry.found = None;
        }
    }
}

fn from(cookie: Cookie, verifier: CookieVerifier) -> DirFrom {
    DirFrom {
        cookie: cookie.0,
        verifier: u64::from_be_bytes(verifier.0),
    }
}

/// Encodes the reply, in a buffer large enough for the entries, which do not fit that of the call.
fn write(
    call: &mut Call,
    pool: &Pool,
    place: &Place,
    (limits, attributes): (DirectoryLimits, Option<Attributes>),
    page: &DirPage,
    plus: bool,
) -> Reply {
    let entry = DirBudget::BASE + 3 + if plus { PLUS + HANDLES } else { 0 };
    let size = HEADER + FRAME + page.names.len() + page.entries.len() * entry;
    let mut w = call.success(pool.take(size));
    match entries(&mut w, place, (limits, attributes), page, plus) {
        Ok(()) => Reply::Message(w.finish()),
        Err(status) => failed(call, status, attributes),
    }
}

fn entries(
    w: &mut Writer,
    place: &Place,
    (limits, attributes): (DirectoryLimits, Option<Attributes>),
    page: &DirPage,
    plus: bool,
) -> Result<(), Status> {
    let verifier = CookieVerifier(page.verifier.to_be_bytes());
    let mut list = DirectoryWriter::new(w, limits, attributes, verifier);
    let mut whole = true;
    for (name, entry) in page.iter() {
        // A name that is too long for any message cannot be used by a client.
        let Some(name) = Filename::new(name) else {
            continue;
        };
        let (file_id, cookie) = (FileId(entry.fileid), Cookie(entry.cookie));
        let fits = if plus {
            let found = entry.found.as_ref();
            list.push_plus(&EntryPlus {
                file_id,
                name,
                cookie,
                attributes: found.map(|found| convert::attributes(place.export, &found.attributes)),
                handle: found.map(|found| place.handle(found)),
            })
        } else {
            list.push(&Entry {
                file_id,
                name,
                cookie,
            })
        };
        if !fits {
            whole = false;
            break;
        }
    }
    list.finish(page.eof && whole)
}

fn failed(call: &mut Call, status: Status, attributes: Option<Attributes>) -> Reply {
    let results: Res<results::ReadDir<'_>, Option<Attributes>> =
        Err(Failed::new(status, attributes));
    super::write(call, results)
}

const _: () = assert!(MAX_DIRECTORY <= nfs_proto::limits::MAX_DIRECTORY_REPLY as usize);
