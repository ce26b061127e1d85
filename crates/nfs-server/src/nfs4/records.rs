//! Records of clients on stable storage: who may reclaim state after a restart (RFC 8881 §8.4.2.1).
//!
//! One file in the state directory has all of them, as a list of changes. A batch of changes is written and synced at once,
//! however many clients it is about. The file is written anew at each start, when most of it is out of date, and after an
//! error of the disk: the kernel reports a failed write once and then forgets that the data is not there, so that nothing can be
//! appended any more.
//!
//! After a loss of power, the batch that was being written may be there in part. It was promised to nobody, and is cut.
//! Anything else that cannot be read is an error, as a forgotten client would lose its locks without being told.
//!
//! The file also has the identity of the server and the lease that clients were told last.

mod directory;
mod format;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use tests::FailingDisk;

use super::state::{Nfs4StateError, Principal};
use directory::Directory;
use format::Contents;
use nfs4_state::Recorded;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of changes after which the file is written anew, if that is more than twice what would be in it.
const MIN_APPENDED: usize = 64 << 10;

/// A change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A client is recorded, in place of an earlier record of its owner.
    Record(Recorded<Principal>),
    /// The record of an owner is removed, if there is one.
    Remove(Arc<[u8]>),
    /// No client has another lease than this one.
    Lease(Duration),
}

/// Stable storage for one file.
trait Disk: Send {
    /// Appends to the file, and returns once that is durable. After an error the end of the file may be anything.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Puts another file in place of this one, and returns once that is durable. After an error it is the old one or the new one.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// No storage: records end with the process.
struct Nowhere;

impl Disk for Nowhere {
    fn append(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Records of clients.
pub(super) struct Records {
    disk: Box<dyn Disk>,
    /// Durable records. After an error the disk may also have the changes that failed.
    contents: Contents,
    /// Bytes that were written at once, and bytes appended since.
    written: usize,
    appended: usize,
    /// Nothing may be appended, as the end of the file is not known.
    is_doubtful: bool,
}

impl Records {
    /// Opens the records in a state directory; without one they are in memory. Clients may have been told the lease.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, is damaged, or another server uses it.
    pub(super) fn open(state_dir: Option<&Path>, lease: Duration) -> Result<Self, Nfs4StateError> {
        let Some(state_dir) = state_dir else {
            let contents = Contents::new(new_identity()?, lease);
            return Ok(Self::over(Box::new(Nowhere), contents));
        };
        let (directory, bytes) = Directory::open(state_dir)?;
        let path = directory.path();
        let mut contents = match bytes {
            None => Contents::new(new_identity()?, lease),
            Some(bytes) => {
                let read = format::read(&bytes);
                let (contents, cut) = read.map_err(|damage| Nfs4StateError::Damaged {
                    path: path.clone(),
                    at: damage.at,
                })?;
                if cut > 0 {
                    tracing::info!(
                        file = %path.display(),
                        bytes = cut,
                        "a change of the records of clients was not complete when the server ended, and is cut"
                    );
                }
                contents
            }
        };
        contents.lease = contents.lease.max(lease);
        let mut records = Self::over(Box::new(directory), contents);
        let rewritten = records.rewrite();
        rewritten.map_err(|error| Nfs4StateError::Directory { path, error })?;
        Ok(records)
    }

    fn over(disk: Box<dyn Disk>, contents: Contents) -> Self {
        Self {
            disk,
            contents,
            written: 0,
            appended: 0,
            is_doubtful: true,
        }
    }

    /// Makes changes, in their order, and returns once they are durable: all of them, by one sync.
    ///
    /// # Errors
    ///
    /// That of the disk. Then nobody knows which of them are durable, until the next changes are made without an error: those that are
    /// not among them will not have been made.
    pub(super) fn change(&mut self, changes: &[Change]) -> io::Result<()> {
        let batch = format::batch(changes);
        let is_long = self.appended + batch.len() > MIN_APPENDED.max(2 * self.written);
        if self.is_doubtful || is_long {
            let before = self.contents.clone();
            self.contents.apply(changes);
            return self.rewrite().inspect_err(|_| self.contents = before);
        }
        self.disk
            .append(&batch)
            .inspect_err(|_| self.is_doubtful = true)?;
        self.appended += batch.len();
        self.contents.apply(changes);
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        self.is_doubtful = true;
        let bytes = format::file(&self.contents);
        self.disk.replace(&bytes)?;
        (self.written, self.appended) = (bytes.len(), 0);
        self.is_doubtful = false;
        Ok(())
    }

    /// Returns the clients.
    pub(super) fn clients(&self) -> impl Iterator<Item = Recorded<Principal>> {
        let clients = self.contents.clients.iter();
        clients.map(|(owner, principal)| Recorded {
            owner: Arc::clone(owner),
            principal: principal.clone(),
        })
    }

    /// Returns the longest lease that a client may have.
    pub(super) fn lease(&self) -> Duration {
        self.contents.lease
    }

    /// Returns the identity of the server, which stays as long as the file.
    pub(super) fn identity(&self) -> [u8; 16] {
        self.contents.identity
    }
}

fn new_identity() -> Result<[u8; 16], Nfs4StateError> {
    let mut identity = [0; 16];
    getrandom::fill(&mut identity).map_err(Nfs4StateError::Random)?;
    Ok(identity)
}

impl Contents {
    fn new(identity: [u8; 16], lease: Duration) -> Self {
        Self {
            identity,
            lease,
            clients: BTreeMap::new(),
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Record(client) => {
                    let owner = Arc::clone(&client.owner);
                    self.clients.insert(owner, client.principal.clone());
                }
                Change::Remove(owner) => {
                    self.clients.remove(owner);
                }
                Change::Lease(lease) => self.lease = *lease,
            }
        }
    }
}
