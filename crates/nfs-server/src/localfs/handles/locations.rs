//! Locations of files, remembered in memory and, where a handle is not enough, in the table.

use super::by_location::ByLocation;
use super::names::{Known, Link, Named};
use super::table::{Of, Place, Row, Table};
use crate::fs::{Error, FileId};
use crate::localfs::id::{self, TableId};
use crate::localfs::lru::Lru;
use crate::localfs::open_files::node::{Gone, Node};
use crate::localfs::sys::{Pace, Stat, Stop, Try};
use std::sync::Arc;

impl ByLocation {
    /// Returns the id of a file that was found in a directory, and remembers the location.
    pub(super) fn identify(
        &self,
        parent: u64,
        name: &[u8],
        stat: &Stat,
        home: Option<u64>,
        pace: Pace,
    ) -> Try<FileId> {
        if self.volume.by.path() {
            return Ok(self.settle_by_path(parent, name, stat)?.into());
        }
        let number = stat.attributes.fileid;
        if number == self.files.root().number {
            return Ok(self.files.root().id());
        }
        let home = self.settle(parent, name, stat, home, pace)?;
        Ok(FileId::from(TableId {
            number,
            birth: stat.birth,
            home,
        }))
    }

    /// Returns the row of a file.
    #[cfg(test)]
    pub(in crate::localfs) fn row(&self, ino: u64) -> Result<Option<(Of, Row)>, Error> {
        self.table.get(ino)
    }

    /// Chooses the home of a file that was found in a directory, and remembers the location.
    ///
    /// A file keeps its first home when it is moved or gets other names, so that all names lead to
    /// the same handle. With [`Pace::Quick`] only locations in memory are used.
    fn settle(
        &self,
        parent: u64,
        name: &[u8],
        stat: &Stat,
        home: Option<u64>,
        pace: Pace,
    ) -> Try<u64> {
        let ino = stat.attributes.fileid;
        let known = {
            let mut links = self.links();
            match links.get(ino) {
                Some(link) => link
                    .known
                    .filter(|known| known.birth == stat.birth)
                    .map(|known| {
                        let same = link.parent == parent && *link.name == *name;
                        (known, same)
                    }),
                None => None,
            }
        };
        if let Some((known, true)) = known
            && (known.saved || !needs_row(stat, known.home, parent))
        {
            return Ok(known.home);
        }
        let decided = known.map(|(known, _)| known.home).or(home);
        if pace == Pace::Quick
            && (needs_row(stat, decided.unwrap_or(parent), parent) || self.table.has_files())
        {
            return Err(Stop::WouldBlock);
        }
        let row = self
            .table
            .get_of(ino, kind_of(stat))?
            .filter(|row| row.birth == stat.birth);
        let home = known
            .map(|(known, _)| known.home)
            .or(row.as_ref().map(|row| row.home))
            .or(home)
            .unwrap_or(parent);
        let saved = row.is_some() || needs_row(stat, home, parent);
        if needs_row(stat, home, parent) {
            save(&self.table, ino, (parent, name), stat, home)?;
        }
        let mut links = self.links();
        // Another call may have chosen meanwhile.
        let home = match links.get(ino).and_then(|link| link.known) {
            Some(known) if known.birth == stat.birth => known.home,
            _ => home,
        };
        remember(&mut links, ino, (parent, name), stat.birth, (home, saved));
        Ok(home)
    }

    /// Records a new name of a file, after a rename or a link. The location in memory is updated
    /// even if the table fails.
    pub(super) fn moved(&self, stat: &Stat, from: Named<'_>, to: &Node, name: &[u8]) -> Try<()> {
        if self.volume.by.path() {
            return self.moved_by_path(stat, from, to, name);
        }
        let home = match (self.identify_known(stat), from) {
            (Some(home), _) => home,
            (None, Named::Moved(from, _)) => from.number,
            (None, Named::Linked(file)) => file.home(),
        };
        let (ino, of) = (stat.attributes.fileid, kind_of(stat));
        let mut result = Ok(());
        let saved = needs_row(stat, home, to.number);
        if saved {
            if let Named::Moved(from, old_name) = from {
                forget_place(&self.table, ino, stat, from.number, old_name);
            }
            result = save(&self.table, ino, (to.number, name), stat, home);
        } else {
            // The file is in its home, so an old row would be wrong.
            self.table.remove(ino, of, stat.birth);
        }
        let place = (to.number, name);
        remember(&mut self.links(), ino, place, stat.birth, (home, saved));
        Ok(result?)
    }

    fn identify_known(&self, stat: &Stat) -> Option<u64> {
        let ino = stat.attributes.fileid;
        if let Some(node) = self.files.get(ino)
            && node.birth == stat.birth
        {
            return Some(node.home());
        }
        if let Some(link) = self.links().get(ino)
            && let Some(known) = link.known
            && known.birth == stat.birth
        {
            return Some(known.home);
        }
        let row = self.table.get_of(ino, kind_of(stat)).ok()??;
        (row.birth == stat.birth).then_some(row.home)
    }

    /// See [`FileHandles::removed`](super::FileHandles::removed).
    pub(super) fn removed(
        &self,
        parent: u64,
        name: &[u8],
        stat: &Stat,
        gone: bool,
    ) -> Option<Arc<Node>> {
        let number = match self.volume.by.path() {
            true => self.number_at(parent, name, stat),
            false => stat.attributes.fileid,
        };
        let mut links = self.links();
        let forget = links.get(number).is_some_and(|link| match link.known {
            Some(known) if known.birth != stat.birth => false,
            _ => gone || link.parent == parent && *link.name == *name,
        });
        if forget {
            links.remove(number);
        }
        drop(links);
        let node = match gone {
            true => self.files.take_removed(number, stat),
            false => None,
        };
        if self.volume.by.path() {
            forget_name(&self.table, parent, name, stat.birth);
        }
        match gone {
            true => self.table.remove(number, kind_of(stat), stat.birth),
            false => forget_place(&self.table, number, stat, parent, name),
        }
        node
    }

    /// Removes the location of a removed file.
    pub(super) fn forget(&self, gone: &Gone) {
        let mut links = self.links();
        let link = links.get(gone.number).and_then(|link| link.known);
        if link.is_some_and(|known| known.birth == gone.birth) {
            links.remove(gone.number);
        }
        drop(links);
        let of = match gone.is_directory {
            true => Of::Directory,
            false => Of::File,
        };
        self.table.remove(gone.number, of, gone.birth);
    }
}

/// Remembers the location of a file.
pub(super) fn remember(
    links: &mut Lru<Link>,
    number: u64,
    (parent, name): (u64, &[u8]),
    birth: u64,
    (home, saved): (u64, bool),
) {
    let link = Link {
        known: Some(Known { birth, home, saved }),
        parent,
        name: name.into(),
    };
    links.insert(number, link);
}

/// Makes sure that the table has this location of a file.
///
/// # Errors
///
/// If the table can save no more rows.
pub(super) fn save(
    table: &Table,
    number: u64,
    (parent, name): (u64, &[u8]),
    stat: &Stat,
    home: u64,
) -> Result<(), Error> {
    let of = kind_of(stat);
    table.update(number, of, stat.birth, |row| {
        let mut row = row
            .filter(|row| row.home == home)
            .unwrap_or_else(|| Row::new(stat.birth, home));
        let known = row.places.iter().any(|place| place.is(parent, name));
        // A file with one name has no other locations.
        if of == Of::Directory || stat.attributes.links <= 1 {
            row.places.retain(|place| place.is(parent, name));
        }
        if !known {
            row.add(Place {
                parent,
                name: name.into(),
            });
        }
        Some(row)
    })
}

/// Removes a name of a file from the table. If that fails, a later search checks the name in vain.
pub(super) fn forget_place(table: &Table, number: u64, stat: &Stat, parent: u64, name: &[u8]) {
    let _ = table.update(number, kind_of(stat), stat.birth, |row| {
        let mut row = row?;
        row.forget(parent, name);
        Some(row)
    });
}

/// Removes the row of a name that a client gave a file whose number comes from its path.
pub(super) fn forget_name(table: &Table, parent: u64, name: &[u8], birth: u64) {
    let key = id::key_of_name(parent, name);
    table.remove(key, Of::File, birth);
}

pub(super) fn kind_of(stat: &Stat) -> Of {
    if stat.attributes.is_directory() {
        Of::Directory
    } else {
        Of::File
    }
}

/// Whether a file cannot be found from its handle alone.
fn needs_row(stat: &Stat, home: u64, parent: u64) -> bool {
    stat.attributes.is_directory() || stat.attributes.links > 1 || home != parent
}
