//! A model of one directory: what each operation changes, and its result.

use crate::dice::Dice;
use nfs_proto::Status;
use std::collections::BTreeMap;
use std::fmt;

/// All file names: few, so that operations conflict.
pub(crate) const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Bytes of the largest file.
pub(crate) const MAX_FILE: usize = 70_000;

/// An operation on a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create(usize, How),
    MakeDir(usize),
    Symlink(usize, String),
    Remove(usize),
    RemoveDir(usize),
    Rename(usize, usize),
    /// From the first name to a new one.
    Link(usize, usize),
    /// Sets the size of a file.
    Resize(usize, usize),
    /// Offset, bytes, what they are made of, and whether it is stable at once.
    Write(usize, usize, usize, u8, bool),
    /// Offset and bytes.
    Read(usize, usize, usize),
    Lookup(usize),
}

/// How a file is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Guarded,
    Unchecked,
    Exclusive([u8; 8]),
}

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    names: BTreeMap<usize, Entry>,
    files: BTreeMap<u64, File>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File(u64),
    Directory,
    Symlink(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    data: Vec<u8>,
    verifier: Option<[u8; 8]>,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Done,
    Data(Vec<u8>),
    Refused(Status),
}

impl Op {
    /// Any operation.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let kind = dice.below(16);
        Self::of_kind(dice, kind, NAMES.len())
    }

    /// One that mostly has to do with data, of one of two files.
    pub(crate) fn draw_data(dice: &mut Dice) -> Self {
        let kind = dice.of(&[0, 11, 12, 12, 12, 12, 14]);
        Self::of_kind(dice, kind, 2)
    }

    fn of_kind(dice: &mut Dice, kind: usize, names: usize) -> Self {
        let name = |dice: &mut Dice| dice.below(names);
        match kind {
            0..=2 => {
                let verifier = dice.any().to_be_bytes();
                let how = dice.of(&[How::Guarded, How::Unchecked, How::Exclusive(verifier)]);
                Self::Create(name(dice), how)
            }
            3 => Self::MakeDir(name(dice)),
            4 => Self::Symlink(name(dice), "x".repeat(dice.within(1, 900))),
            5 | 6 => Self::Remove(name(dice)),
            7 => Self::RemoveDir(name(dice)),
            8 | 9 => Self::Rename(name(dice), name(dice)),
            10 => Self::Link(name(dice), name(dice)),
            11 => Self::Resize(name(dice), dice.magnitude(MAX_FILE)),
            12 | 13 => {
                let offset = dice.magnitude(MAX_FILE / 2);
                let len = dice.magnitude(MAX_FILE / 2);
                let fill = u8::try_from(dice.within(1, 255)).expect("a byte");
                Self::Write(name(dice), offset, len, fill, dice.coin())
            }
            14 => Self::Read(
                name(dice),
                dice.magnitude(MAX_FILE),
                dice.magnitude(MAX_FILE),
            ),
            _ => Self::Lookup(name(dice)),
        }
    }

    /// File whose handle it needs before it can be asked for.
    pub(crate) fn file(&self) -> Option<usize> {
        match self {
            Self::Link(name, _)
            | Self::Resize(name, _)
            | Self::Write(name, ..)
            | Self::Read(name, ..) => Some(*name),
            Self::Create(..)
            | Self::MakeDir(_)
            | Self::Symlink(..)
            | Self::Remove(_)
            | Self::RemoveDir(_)
            | Self::Rename(..)
            | Self::Lookup(_) => None,
        }
    }
}

impl Model {
    /// Entry with this name.
    pub(crate) fn entry(&self, name: usize) -> Option<&Entry> {
        self.names.get(&name)
    }

    /// Data of a file.
    pub(crate) fn data(&self, file: u64) -> &[u8] {
        self.files.get(&file).map_or(&[], |file| &file.data)
    }

    /// Whether this file can be asked for: it is there, and a regular one.
    pub(crate) fn is_file(&self, name: usize) -> bool {
        matches!(self.entry(name), Some(Entry::File(_)))
    }

    /// Does it, and says what the server has to say.
    pub(crate) fn apply(&mut self, op: &Op) -> Said {
        match self.try_apply(op) {
            Ok(data) => data.map_or(Said::Done, Said::Data),
            Err(status) => Said::Refused(status),
        }
    }

    fn try_apply(&mut self, op: &Op) -> Result<Option<Vec<u8>>, Status> {
        match op {
            Op::Create(name, how) => self.create(*name, *how)?,
            Op::MakeDir(name) => self.make(*name, Entry::Directory)?,
            Op::Symlink(name, text) => self.make(*name, Entry::Symlink(text.clone()))?,
            Op::Remove(name) => match self.there(*name)? {
                Entry::Directory => return Err(Status::IsDirectory),
                Entry::File(_) | Entry::Symlink(_) => self.unlink(*name),
            },
            Op::RemoveDir(name) => match self.there(*name)? {
                Entry::Directory => self.unlink(*name),
                Entry::File(_) | Entry::Symlink(_) => return Err(Status::NotDirectory),
            },
            Op::Rename(from, to) => self.rename(*from, *to)?,
            Op::Link(from, to) => {
                let entry = self.there(*from)?;
                self.make(*to, entry)?;
            }
            Op::Resize(name, size) => self.file(*name)?.data.resize(*size, 0),
            Op::Write(name, offset, len, fill, _) => {
                let (data, end) = (&mut self.file(*name)?.data, offset + len);
                if *len > 0 {
                    data.resize(data.len().max(end), 0);
                    data[*offset..end].copy_from_slice(&content(*fill, *len));
                }
            }
            Op::Read(name, offset, len) => {
                let data = &self.file(*name)?.data;
                let begin = (*offset).min(data.len());
                let end = (offset + len).min(data.len());
                return Ok(Some(data[begin..end.max(begin)].to_vec()));
            }
            Op::Lookup(name) => drop(self.there(*name)?),
        }
        Ok(None)
    }

    fn there(&self, name: usize) -> Result<Entry, Status> {
        self.entry(name).cloned().ok_or(Status::NoEntry)
    }

    fn file(&mut self, name: usize) -> Result<&mut File, Status> {
        match self.there(name)? {
            Entry::File(file) => self.files.get_mut(&file).ok_or(Status::Stale),
            Entry::Directory | Entry::Symlink(_) => Err(Status::Invalid),
        }
    }

    fn create(&mut self, name: usize, how: How) -> Result<(), Status> {
        let verifier = match how {
            How::Exclusive(verifier) => Some(verifier),
            How::Guarded | How::Unchecked => None,
        };
        match (self.entry(name), how) {
            (None, _) => {
                self.next += 1;
                let data = Vec::new();
                self.files.insert(self.next, File { data, verifier });
                self.names.insert(name, Entry::File(self.next));
                Ok(())
            }
            (Some(Entry::File(_)), How::Unchecked) => Ok(()),
            (Some(Entry::File(file)), How::Exclusive(_))
                if self
                    .files
                    .get(file)
                    .is_some_and(|file| file.verifier == verifier) =>
            {
                Ok(())
            }
            (Some(_), _) => Err(Status::Exist),
        }
    }

    fn make(&mut self, name: usize, entry: Entry) -> Result<(), Status> {
        if self.names.contains_key(&name) {
            return Err(Status::Exist);
        }
        self.names.insert(name, entry);
        Ok(())
    }

    fn unlink(&mut self, name: usize) {
        let gone = self.names.remove(&name);
        if let Some(Entry::File(file)) = gone
            && !self.names.values().any(|entry| *entry == Entry::File(file))
        {
            self.files.remove(&file);
        }
    }

    fn rename(&mut self, from: usize, to: usize) -> Result<(), Status> {
        let moving = self.there(from)?;
        let there = self.entry(to).cloned();
        let same = from == to
            || matches!((&moving, &there), (Entry::File(a), Some(Entry::File(b))) if a == b);
        if same {
            return Ok(());
        }
        match (moving == Entry::Directory, there) {
            (_, None) => {}
            (true, Some(Entry::Directory)) => self.unlink(to),
            (true, Some(_)) => return Err(Status::NotDirectory),
            (false, Some(Entry::Directory)) => return Err(Status::IsDirectory),
            (false, Some(_)) => self.unlink(to),
        }
        self.names.remove(&from);
        self.names.insert(to, moving);
        Ok(())
    }
}

/// Data to write: it differs by offset and by `fill`.
pub(crate) fn content(fill: u8, len: usize) -> Vec<u8> {
    let byte = |i: usize| fill.wrapping_add(u8::try_from(i % 251).expect("a byte"));
    (0..len).map(byte).collect()
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Data(data) => write!(f, "{} bytes", data.len()),
            Self::Refused(status) => write!(f, "{status:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executed_twice_is_told_from_executed_once() {
        let mut model = Model::default();
        assert_eq!(model.apply(&Op::Create(0, How::Guarded)), Said::Done);
        let refused = Said::Refused(Status::Exist);
        assert_eq!(model.apply(&Op::Create(0, How::Guarded)), refused);
        assert_eq!(model.apply(&Op::Rename(0, 1)), Said::Done);
        let refused = Said::Refused(Status::NoEntry);
        assert_eq!(model.apply(&Op::Rename(0, 1)), refused);
        assert_eq!(model.apply(&Op::Remove(1)), Said::Done);
        assert_eq!(model.apply(&Op::Remove(1)), refused);
    }

    #[test]
    fn data_of_a_file_stays_while_it_has_a_name() {
        let mut model = Model::default();
        model.apply(&Op::Create(0, How::Unchecked));
        model.apply(&Op::Write(0, 2, 3, 7, true));
        model.apply(&Op::Link(0, 1));
        model.apply(&Op::Remove(0));
        let read = model.apply(&Op::Read(1, 1, 10));
        assert_eq!(read, Said::Data(vec![0, 7, 8, 9]));
    }
}
