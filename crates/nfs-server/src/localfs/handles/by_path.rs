//! Numbers of files that are identified by their path.
//!
//! POSIX identifies a file by device and inode number. Some file systems keep to that only in part:
//! overlayfs over layers on several file systems takes inode numbers from its layers, and those of
//! directories as they come; a file system in FUSE may pass on the numbers of several others. There
//! the number of a file, within the export, is a hash of the directory and the name under which it
//! was first seen. The table has a row for each name that a client gave a file later, with the
//! number: the file keeps its handle. For a local user who renames a file, it is another one.

use super::by_location::ByLocation;
use super::by_location::Trail;
use super::locations::{forget_name, forget_place, kind_of, remember, save};
use super::names::{Link, Named};
use super::table::{Of, Row, Table};
use crate::fs::Error;
use crate::localfs::id::{self, TableId};
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};

/// Largest number of files that exist at the same time and were first seen under one name in one
/// directory, where birth or inode number do not distinguish them.
const MAX_OF_ONE_NAME: u64 = 64;

impl ByLocation {
    /// Returns the id of a file that was found in a directory, and remembers the location.
    pub(super) fn settle_by_path(&self, parent: u64, name: &[u8], stat: &Stat) -> Try<TableId> {
        let birth = stat.birth;
        let (number, home, salted) = match named(&self.table, parent, name, birth)? {
            Some((number, row)) => (number, row.home, false),
            None => {
                let (number, salted) = self.free_number(parent, name, stat)?;
                (number, parent, salted)
            }
        };
        let place = (parent, name);
        let id = TableId {
            number,
            birth,
            home,
        };
        let needs_row = stat.attributes.is_directory() || salted;
        let is_remembered = |link: &Link| {
            let known = link.known.is_some_and(|known| known.saved || !needs_row);
            known && link.parent == parent && *link.name == *name
        };
        if self
            .links()
            .get(number)
            .is_some_and(|link| is_remembered(link))
        {
            return Ok(id);
        }
        if needs_row {
            save(&self.table, number, place, stat, home)?;
        }
        if salted {
            save_name(&self.table, place, birth, number)?;
        }
        remember(&mut self.links(), number, place, birth, (home, needs_row));
        Ok(id)
    }

    /// Returns the number of the file that has this name, or had it until now.
    pub(super) fn number_at(&self, parent: u64, name: &[u8], stat: &Stat) -> u64 {
        match named(&self.table, parent, name, stat.birth) {
            Ok(Some((number, _))) => number,
            Ok(None) | Err(_) => id::number_of_path(parent, name, stat.birth, 0),
        }
    }

    /// Returns a number for a file that is first seen here, and whether it cannot be derived from the
    /// path alone: a file that was here before has that number, and a client moved it elsewhere.
    fn free_number(&self, parent: u64, name: &[u8], stat: &Stat) -> Try<(u64, bool)> {
        for salt in 0..MAX_OF_ONE_NAME {
            let number = id::number_of_path(parent, name, stat.birth, salt);
            let Some(row) = self.table.get_of(number, kind_of(stat))? else {
                return Ok((number, salt != 0));
            };
            if row.places.iter().all(|place| place.is(parent, name)) {
                return Ok((number, salt != 0));
            }
            let other = self.found_elsewhere(&row, (parent, name))?;
            let is_link = |other: Stat| stat.attributes.links > 1 && other.is_same(stat);
            if other.is_some_and(is_link) {
                return Ok((number, false));
            }
            if other.is_none() {
                // It was removed by others.
                for place in &row.places {
                    forget_name(&self.table, place.parent, &place.name, row.birth);
                }
                self.table.remove(number, kind_of(stat), row.birth);
                return Ok((number, salt != 0));
            }
        }
        Err(Error::Busy.into())
    }

    /// Returns the file of a row as it is found under one of its names, beside this one.
    fn found_elsewhere(&self, row: &Row, here: (u64, &[u8])) -> Try<Option<Stat>> {
        let others = row.places.iter();
        for place in others.filter(|place| !place.is(here.0, here.1)) {
            let found = self
                .directory(place.parent, &mut Trail::new(Pace::Patient))
                .and_then(|dir| {
                    let fd = sys::open_entry(&dir.path, &place.name, Pace::Patient)?;
                    Ok(sys::stat(&fd, self.volume.by)?)
                });
            match found {
                Ok(stat) if stat.birth == row.birth => return Ok(Some(stat)),
                Ok(_) | Err(Stop::Fail(Error::NotFound | Error::Stale | Error::NotDirectory)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(None)
    }

    /// Records a new name of a file, after a rename or a link.
    pub(super) fn moved_by_path(
        &self,
        stat: &Stat,
        from: Named<'_>,
        to: &Node,
        name: &[u8],
    ) -> Try<()> {
        let (number, home) = match from {
            Named::Moved(from, old_name) => {
                let id = self.settle_by_path(from.number, old_name, stat)?;
                (id.number, id.home)
            }
            Named::Linked(file) => (file.number, file.home()),
        };
        if let Named::Moved(from, old_name) = from {
            forget_name(&self.table, from.number, old_name, stat.birth);
            forget_place(&self.table, number, stat, from.number, old_name);
        }
        let place = (to.number, name);
        let saved = save_name(&self.table, place, stat.birth, number)
            .and_then(|()| save(&self.table, number, place, stat, home));
        remember(&mut self.links(), number, place, stat.birth, (home, true));
        Ok(saved?)
    }
}

/// Returns the number and row of the file to which a client gave this name, if there is one.
fn named(table: &Table, parent: u64, name: &[u8], birth: u64) -> Result<Option<(u64, Row)>, Error> {
    let key = id::key_of_name(parent, name);
    let Some(row) = table.get_of(key, Of::File)? else {
        return Ok(None);
    };
    // The row of a name has the number of its file in place of a home.
    let number = row.home;
    if row.birth != birth {
        return Ok(None);
    }
    let has_it = |file: &Row| file.places.iter().any(|place| place.is(parent, name));
    let file = table.get(number)?.map(|(_, file)| file);
    let file = file.filter(|file| file.birth == birth && has_it(file));
    Ok(file.map(|file| (number, file)))
}

/// Records that a client gave a file this name.
fn save_name(
    table: &Table,
    (parent, name): (u64, &[u8]),
    birth: u64,
    number: u64,
) -> Result<(), Error> {
    let key = id::key_of_name(parent, name);
    table.update(key, Of::File, birth, |_| Some(Row::new(birth, number)))
}
