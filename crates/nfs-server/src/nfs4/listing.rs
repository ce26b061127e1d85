//! READDIR (RFC 8881 §18.23).

use super::Nfs4;
use super::attributes::{self, Needs};
use super::bound::MAX_DIRECTORY;
use super::compound::{Ran, Running, after};
use super::convert;
use super::current::{At, Object, directory_above, fsid};
use super::objects::Facts;
use crate::exports::Below;
use crate::fs::{
    Acls, DirBudget, DirFrom, DirPage, Error, FileId, FileSystem, Found, Outcome, Space, Time,
};
use nfs_proto::v4::directory::{DirectoryWriter, ReadDirArgs};
use nfs_proto::v4::{AttributeNumber, Bitmap, Status};
use nfs_proto::{Cookie, CookieVerifier, FileHandle, Filename};
use std::sync::Arc;

/// Bytes of an entry beside its name and attributes: "one more follows", cookie, length of the name.
const ENTRY: usize = 4 + 8 + 4;

/// Bytes of the result beside the entries: operation, status, verifier, end of the list, end of the directory.
const FRAME: usize = 4 + 4 + 8 + 4 + 4;

/// Bytes of the name and the id of an entry `.` or `..` in the budget of a file system.
const DOTS: usize = 64;

/// Bytes of names with which a file system gives at least one, behind `.` and `..`: the size that a client wants is a hint, which a
/// single name may exceed (RFC 8881 §18.23.3).
const ONE_NAME: usize = 3 * DirBudget::BASE + 4 + 4 + 256;

/// Cookies that mean something else (RFC 8881 §18.23.3): those of the file system are moved behind them.
const RESERVED_COOKIES: u64 = 2;

/// An entry with what its attributes are made of.
struct Entry {
    name: Vec<u8>,
    cookie: u64,
    facts: Result<Facts, Status>,
}

/// A file system that is mounted at a name in the directory.
struct Mounted {
    name: Box<[u8]>,
    /// Number of its export, the file system and its root; why it cannot be entered otherwise.
    root: Result<(u32, Arc<dyn FileSystem>, FileId), Status>,
}

impl Nfs4 {
    pub(super) fn read_directory(&self, run: &mut Running, args: &ReadDirArgs) -> Ran {
        attributes::check_get(&args.wanted)?;
        if (1..=RESERVED_COOKIES).contains(&args.cookie.0) {
            return Err(Status::BadCookie);
        }
        let args = *args;
        match run.object()? {
            Object::Pseudo(directory) => self.list_pseudo(run, directory, args),
            Object::File(at) => self.list(run, at, args),
        }
    }

    fn list(&self, run: &mut Running, at: At, args: ReadDirArgs) -> Ran {
        let bytes = (args.max_count as usize)
            .min(MAX_DIRECTORY)
            .min(run.room().saturating_sub(FRAME));
        let attributes = ENTRY + attributes::bound(&args.wanted);
        // At least some entries are read, even if their attributes could be larger than what is wanted in all.
        let per_entry = attributes.min(bytes / 4);
        let budget = DirBudget {
            // The file system has entries for the directory and the one above, too.
            total: bytes + 2 * (per_entry + DOTS),
            per_entry,
            per_handle: 0,
            names: match args.dir_count {
                0 => usize::MAX,
                count => (count as usize).max(ONE_NAME),
            },
        };
        let from = match args.cookie.0 {
            0 => DirFrom {
                cookie: 0,
                verifier: 0,
            },
            cookie => DirFrom {
                cookie: cookie - RESERVED_COOKIES,
                verifier: u64::from_be_bytes(args.verifier.0),
            },
        };
        let export = run.export(&at);
        let mounts = export.mounted_in(at.file);
        let mounts = mounts.into_iter().map(|name| self.mounted(run, &at, name));
        let mounts: Vec<_> = mounts.collect();
        let who = run.who(&at);
        let outcome = run
            .fs(&at)
            .read_directory(&who, at.file, from, budget, true);
        after(self, run, outcome, move |nfs, run, found| {
            let page = match found.result {
                Ok(page) => page,
                Err(error @ Error::NotDirectory) => {
                    return nfs.refine(run, &at, error, found.attributes);
                }
                Err(error) => return Err(convert::status(error)),
            };
            let needs = attributes::needs(&args.wanted);
            let (number, fs) = (run.export(&at).id(), run.fs(&at));
            let (eof, verifier) = (page.eof, CookieVerifier(page.verifier.to_be_bytes()));
            let is_simple = mounts.is_empty() && !needs.space && !needs.acls;
            let this = nfs.clone();
            let gather = move || {
                let listing = Listing {
                    nfs: &this,
                    number,
                    fs: &fs,
                    mounts: &mounts,
                    needs,
                };
                listing.entries(&page)
            };
            let outcome = match is_simple {
                true => Outcome::Ready(gather()),
                false => Outcome::Slow(Box::new(gather)),
            };
            after(nfs, run, outcome, move |nfs, run, entries| {
                nfs.write_entries(run, &args, bytes, verifier, eof, &entries)
            })
        })
    }

    fn mounted(&self, run: &Running, at: &At, name: Box<[u8]>) -> Mounted {
        let root = || {
            let name = crate::fs::Name::new(&name).map_err(convert::status)?;
            let step = crate::fs::Step::Name(name);
            let crossing = self.inner.exports.crossing(run.export(at), at.file, &step);
            let crossing = crossing.ok_or(Status::Stale)?.map_err(convert::status)?;
            let number = crossing.export.id();
            Ok((number, crossing.export.fs, crossing.file))
        };
        Mounted { root: root(), name }
    }

    /// Lists a directory above exports. Cookies are numbers of entries.
    fn list_pseudo(&self, run: &mut Running, directory: usize, args: ReadDirArgs) -> Ran {
        let skipped = args.cookie.0.saturating_sub(RESERVED_COOKIES);
        let entries = run.list.pseudo().entries(directory);
        let entries = entries.zip(1..).filter(|(_, place)| *place > skipped);
        let entries = entries.filter(|((.., below), _)| run.shows(*below));
        let made = self.inner.started;
        let mut jobs = Vec::new();
        for ((name, number, below), cookie) in entries {
            let facts = match below {
                Below::Directory(inner) => {
                    let attributes = run.pseudo_attributes(inner, made);
                    let handle = Some(self.handle(run, &Object::Pseudo(inner)));
                    Ok(Ok(Facts::of_pseudo(attributes, handle)))
                }
                Below::Export(export) => match run.enter_export(export) {
                    Ok(at) => Err((export, run.fs(&at), number)),
                    // Its file system is missing now: the directory above still knows the name and the number.
                    Err(status) => Ok(Ok(Facts {
                        error: Err(status),
                        fsid: fsid(export),
                        ..Facts::of_pseudo(directory_above(number, made, 0), None)
                    })),
                },
            };
            jobs.push((name.as_bytes().to_vec(), cookie, facts));
        }
        let needs = attributes::needs(&args.wanted);
        let this = self.clone();
        let outcome = Outcome::Slow(Box::new(move || {
            let entries = jobs.into_iter().map(|(name, cookie, facts)| {
                let facts = match facts {
                    Ok(facts) => facts,
                    Err((export, fs, number)) => {
                        let root = fs.root_to_mount().wait();
                        root.map_err(convert::status)
                            .and_then(|root| this.facts_of(export, &fs, root, None, needs))
                            .map(|facts| Facts {
                                mounted_on: number,
                                ..facts
                            })
                    }
                };
                Entry {
                    name,
                    cookie,
                    facts,
                }
            });
            entries.collect::<Vec<_>>()
        }));
        let bytes = (args.max_count as usize)
            .min(MAX_DIRECTORY)
            .min(run.room().saturating_sub(FRAME));
        after(self, run, outcome, move |nfs, run, entries| {
            nfs.write_entries(run, &args, bytes, CookieVerifier::default(), true, &entries)
        })
    }

    /// Gathers the facts of a file. May wait for a disk.
    fn facts_of(
        &self,
        number: u32,
        fs: &Arc<dyn FileSystem>,
        file: FileId,
        known: Option<Found>,
        needs: Needs,
    ) -> Result<Facts, Status> {
        let attributes = match known {
            Some(found) => found.attributes,
            None => fs.attributes(file).wait().map_err(convert::status)?,
        };
        let acls = match needs.acls {
            true => match fs.acls(file).wait().result {
                Ok(acls) => Some(acls),
                Err(Error::NotSupported) => None,
                Err(error) => return Err(convert::status(error)),
            },
            false => None,
        };
        let space = match needs.space {
            true => Some(fs.space(file).wait().result.map_err(convert::status)?),
            false => None,
        };
        Ok(Facts {
            attributes,
            space,
            acls,
            handle: needs.handle.then(|| self.inner.exports.seal(number, file)),
            fsid: fsid(number),
            mounted_on: attributes.fileid,
            abilities: fs.abilities(),
            error: Ok(()),
        })
    }

    fn write_entries(
        &self,
        run: &mut Running,
        args: &ReadDirArgs,
        bytes: usize,
        verifier: CookieVerifier,
        eof: bool,
        entries: &[Entry],
    ) -> Ran {
        let tells_errors = args.wanted.contains(AttributeNumber::RdattrError as u32);
        let minor = run.minor;
        run.push_with(|w| {
            let mut directory = DirectoryWriter::new(w, args, bytes, verifier);
            let mut all = true;
            for entry in entries {
                let failed;
                let facts = match &entry.facts {
                    Ok(facts) => facts,
                    // One that has just been removed.
                    Err(Status::NoEntry | Status::Stale) => continue,
                    Err(status) if tells_errors => {
                        failed = Facts::unknown(*status);
                        &failed
                    }
                    Err(status) => return Err(*status),
                };
                let name = Filename::new(&entry.name).ok_or(Status::ServerFault)?;
                let cookie = Cookie(entry.cookie.wrapping_add(RESERVED_COOKIES));
                let wanted = match facts.error {
                    Ok(()) => args.wanted,
                    Err(_) => facts.known_of(&args.wanted, tells_errors),
                };
                let subject = facts.subject(self, minor);
                let fits = directory.push(cookie, name, |w| {
                    attributes::write_attributes(w, &wanted, &subject);
                });
                if !fits {
                    all = false;
                    break;
                }
            }
            directory.finish(all && eof)
        })
    }
}

/// A page of a directory whose entries need facts.
struct Listing<'a> {
    nfs: &'a Nfs4,
    number: u32,
    fs: &'a Arc<dyn FileSystem>,
    mounts: &'a [Mounted],
    needs: Needs,
}

impl Listing<'_> {
    fn entries(&self, page: &DirPage) -> Vec<Entry> {
        let entries = page.iter();
        // Version 4 has no entries for these (RFC 8881 §18.23.3).
        let entries = entries.filter(|(name, _)| !matches!(*name, b"." | b".."));
        let entries = entries.map(|(name, entry)| {
            let mounted = self.mounts.iter().find(|mount| *mount.name == *name);
            let facts = match (mounted, entry.found) {
                (Some(mounted), _) => mounted.root.clone().and_then(|(number, fs, root)| {
                    let facts = self.nfs.facts_of(number, &fs, root, None, self.needs)?;
                    Ok(Facts {
                        mounted_on: entry.fileid,
                        ..facts
                    })
                }),
                (None, Some(found)) => {
                    let file = found.file;
                    let known = Some(found);
                    self.nfs
                        .facts_of(self.number, self.fs, file, known, self.needs)
                }
                // It could not be looked up.
                (None, None) => Err(Status::Access),
            };
            Entry {
                name: name.to_vec(),
                cookie: entry.cookie,
                facts,
            }
        });
        entries.collect()
    }
}

impl Facts {
    /// The facts of a directory above exports.
    pub(super) fn of_pseudo(attributes: crate::fs::Attributes, handle: Option<FileHandle>) -> Self {
        Self {
            attributes,
            space: Some(Space::default()),
            acls: None::<Acls>,
            handle,
            fsid: fsid(crate::exports::PSEUDO_EXPORT),
            mounted_on: attributes.fileid,
            abilities: crate::fs::Abilities::default(),
            error: Ok(()),
        }
    }

    /// Returns the attributes of an entry that can be given where its file system cannot be asked: with its error, the number
    /// under which it is mounted; without, those of an empty directory, as a client that did not ask for the error would have it for the
    /// whole list, again and again (RFC 8881 §11.4.1, §18.23.3).
    fn known_of(&self, wanted: &Bitmap, tells_errors: bool) -> Bitmap {
        let known = |number: u32| match tells_errors {
            true if number == AttributeNumber::MountedOnFileId as u32 => self.mounted_on != 0,
            true => number == AttributeNumber::RdattrError as u32,
            false => number != AttributeNumber::FileHandle as u32,
        };
        Bitmap::of(wanted.iter().filter(|&number| known(number)))
    }

    /// The facts of an entry of which nothing is known but why.
    fn unknown(status: Status) -> Self {
        let attributes = directory_above(0, Time::default(), 0);
        Self {
            error: Err(status),
            ..Self::of_pseudo(attributes, None)
        }
    }
}
