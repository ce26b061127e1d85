//! Decisions about one thing that is copied, by what is there on both sides.

use super::entry::{About, Entry};
use super::options::Options;
use crate::show::file_type;
use nfs_proto::FileType;
use std::fmt;

/// Action on something that is no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is copied, and replaces what is there if something is.
    Copy { replaces: bool },
    /// A FIFO or socket: another one is made, in place of what is there if something is.
    Make { replaces: bool },
    /// It is written to the device or FIFO that is there.
    Write,
    /// It is left out, as the options have it.
    Skip(Skip),
    /// Nothing at all is copied: what is there does not go together with it.
    Refuse(Conflict),
    /// It is of a type that is not copied; the rest is.
    Unsupported,
}

/// The reason why a file is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is there, and [stays](crate::Options::keeps_existing).
    Exists,
    /// It is there and not older, and only what is older is [replaced](crate::Options::updates).
    NotOlder,
}

/// The reason why source and destination do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// A directory is there, where something else is to go.
    Directory,
    /// Something else is there, where a directory is to go.
    NotDirectory(FileType),
    /// A device, FIFO or socket is there: it would be replaced.
    Special(FileType),
    /// Source and destination are one object.
    Same,
    /// The destination is in the directory that is copied.
    IntoItself,
    /// A symbolic link that leads nowhere is there.
    Dangling,
    /// Something else that is copied is to have the same name.
    Twice,
    /// It is to have a name that the destination does not tell from this one.
    Folded,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists => "it is there",
            Self::NotOlder => "what is there is not older",
        })
    }
}

impl Conflict {
    /// The message for a source and its destination.
    pub(crate) fn text(self, source: &str, dest: &str) -> String {
        match self {
            Self::Directory => {
                format!("cannot replace the directory {dest} by {source}, which is not a directory")
            }
            Self::NotDirectory(there) => format!(
                "cannot copy the directory {source} to {dest}, which is a {}",
                file_type(there)
            ),
            Self::Special(there) => format!(
                "cannot copy {source} to {dest}, which is a {}: it is not replaced",
                file_type(there)
            ),
            Self::Same => format!("{source} and {dest} are one and the same"),
            Self::IntoItself => {
                format!("cannot copy the directory {source} into itself, to {dest}")
            }
            Self::Dangling => format!(
                "cannot copy {source} to {dest}, a symbolic link to something that is not there"
            ),
            Self::Folded => format!(
                "cannot copy {source} to {dest}: something else of this copy has the same name in another \
                 spelling, which the destination does not tell apart"
            ),
            Self::Twice => format!(
                "cannot copy {source} to {dest}: something else of this copy gets that name"
            ),
        }
    }
}

/// Use of devices and FIFOs: their data is copied as it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    /// A source is read.
    pub(crate) read: bool,
    /// A destination is written to.
    pub(crate) written: bool,
}

/// Decides about something that is no directory.
pub(crate) fn other(
    source: &About,
    there: Option<&About>,
    streams: Streams,
    options: &Options,
) -> Action {
    let is_made = options.makes_special && matches!(source.kind, FileType::Fifo | FileType::Socket);
    if source.is_special() && !is_made && !streams.read {
        return Action::Unsupported;
    }
    let copy = |replaces| match is_made {
        true => Action::Make { replaces },
        false => Action::Copy { replaces },
    };
    let Some(there) = there else {
        return copy(false);
    };
    match () {
        () if there.is_directory() => Action::Refuse(Conflict::Directory),
        () if is_made && there.kind == source.kind && options.keeps_existing => {
            Action::Skip(Skip::Exists)
        }
        () if is_made && there.kind == source.kind => copy(true),
        () if there.is_special() && streams.written && options.keeps_existing => {
            Action::Skip(Skip::Exists)
        }
        () if there.is_special() && streams.written && source.kind == FileType::Regular => {
            Action::Write
        }
        () if there.is_special() => Action::Refuse(Conflict::Special(there.kind)),
        () if source.is_same_object(there) => Action::Refuse(Conflict::Same),
        () if options.keeps_existing => Action::Skip(Skip::Exists),
        () if options.updates && !is_newer(source, there, options.resolution) => {
            Action::Skip(Skip::NotOlder)
        }
        () => copy(true),
    }
}

/// Decides whether a directory can be where something is.
pub(crate) fn directory(there: Option<&Entry>) -> Option<Conflict> {
    let there = there?;
    (!there.about.is_directory()).then_some(Conflict::NotDirectory(there.about.kind))
}

/// Whether the source was changed later, by more than what times at the destination are rounded to: `resolution`, in
/// nanoseconds, or what its times show.
pub(crate) fn is_newer(source: &About, there: &About, resolution: i128) -> bool {
    let later = source.mtime.nanos() - there.mtime.nanos();
    later >= resolution.max(kept_step(there))
}

/// Steps of times that file systems keep, in nanoseconds: FAT, those with times in seconds, exFAT, and NTFS.
const STEPS: [i128; 4] = [2_000_000_000, 1_000_000_000, 10_000_000, 100];

/// The steps in which the file system of a file keeps times, as far as can be seen: its time of change, which nobody
/// sets, is as round as the others there. What servers and file systems say of their steps is not always so.
fn kept_step(there: &About) -> i128 {
    let is_round = |step: i128| {
        let times = [there.mtime, there.ctime];
        times.iter().all(|time| time.nanos() % step == 0)
    };
    STEPS.into_iter().find(|step| is_round(*step)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::super::entry::Time;
    use super::*;

    fn about(kind: FileType, id: u64, seconds: i64) -> About {
        let at = Time {
            seconds,
            nanoseconds: 0,
        };
        About {
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 1,
            id,
            fs: 1,
            links: 1,
            atime: at,
            mtime: at,
            // The file system keeps nanoseconds.
            ctime: Time {
                nanoseconds: 1,
                ..at
            },
        }
    }

    #[test]
    fn what_is_there_decides() {
        let source = about(FileType::Regular, 1, 5);
        let usual = Options::default();
        let check = |there: Option<About>, options: &Options, expected| {
            assert_eq!(
                other(&source, there.as_ref(), Streams::default(), options),
                expected
            );
        };
        let file = |at| Some(about(FileType::Regular, 2, at));
        check(None, &usual, Action::Copy { replaces: false });
        check(file(5), &usual, Action::Copy { replaces: true });
        check(
            Some(about(FileType::Symlink, 2, 5)),
            &usual,
            Action::Copy { replaces: true },
        );
        check(
            Some(about(FileType::Directory, 2, 5)),
            &usual,
            Action::Refuse(Conflict::Directory),
        );
        check(
            Some(about(FileType::Fifo, 2, 5)),
            &usual,
            Action::Refuse(Conflict::Special(FileType::Fifo)),
        );
        check(Some(source), &usual, Action::Refuse(Conflict::Same));
        let keeps = Options {
            keeps_existing: true,
            ..Options::default()
        };
        check(file(4), &keeps, Action::Skip(Skip::Exists));
        check(None, &keeps, Action::Copy { replaces: false });
        let updates = Options {
            updates: true,
            ..Options::default()
        };
        check(file(4), &updates, Action::Copy { replaces: true });
        check(file(5), &updates, Action::Skip(Skip::NotOlder));
        check(file(6), &updates, Action::Skip(Skip::NotOlder));
    }

    #[test]
    fn times_that_the_destination_rounds_do_not_make_a_file_newer() {
        let mut source = about(FileType::Regular, 1, 5);
        source.mtime.nanoseconds = 999_999_999;
        let there = about(FileType::Regular, 2, 5);
        let options = |resolution| Options {
            updates: true,
            resolution,
            ..Options::default()
        };
        let copied = Action::Copy { replaces: true };
        assert_eq!(
            other(&source, Some(&there), Streams::default(), &options(1)),
            copied
        );
        let rounds = options(1_000_000_000);
        assert_eq!(
            other(&source, Some(&there), Streams::default(), &rounds),
            Action::Skip(Skip::NotOlder)
        );
    }

    #[test]
    fn times_that_a_file_system_keeps_in_steps_do_not_make_a_file_newer() {
        let options = Options {
            updates: true,
            ..Options::default()
        };
        for (step, later) in [
            (2_000_000_000, 1_999_999_999),
            (1_000_000_000, 999_999_999),
            (10_000_000, 9_999_999),
            (100, 99),
            (1, 0),
        ] {
            let at = |nanos: i128| Time {
                seconds: i64::try_from(nanos / 1_000_000_000).unwrap(),
                nanoseconds: u32::try_from(nanos % 1_000_000_000).unwrap(),
            };
            // Odd multiples of the step.
            let mut there = about(FileType::Regular, 2, 0);
            (there.mtime, there.ctime) = (at(1001 * step), at(1003 * step));
            let mut source = about(FileType::Regular, 1, 0);
            source.mtime = at(1001 * step + later);
            let decided =
                |source: &About| other(source, Some(&there), Streams::default(), &options);
            assert_eq!(decided(&source), Action::Skip(Skip::NotOlder), "{step}");
            source.mtime = at(1002 * step);
            assert_eq!(decided(&source), Action::Copy { replaces: true }, "{step}");
        }
        // A time that was set to a whole second is no reason where others are not.
        let mut there = about(FileType::Regular, 2, 4);
        there.ctime.nanoseconds = 123_456_789;
        let mut source = about(FileType::Regular, 1, 4);
        source.mtime.nanoseconds = 1000;
        assert_eq!(
            other(&source, Some(&there), Streams::default(), &options),
            Action::Copy { replaces: true }
        );
    }

    #[test]
    fn fifos_and_sockets_are_made_again_with_archive() {
        let archive = Options {
            makes_special: true,
            ..Options::default()
        };
        let decided = |kind, there: Option<FileType>, streams| {
            let there = there.map(|kind| about(kind, 2, 5));
            other(&about(kind, 1, 5), there.as_ref(), streams, &archive)
        };
        let named = Streams {
            read: true,
            written: true,
        };
        for kind in [FileType::Fifo, FileType::Socket] {
            for streams in [Streams::default(), named] {
                let made = |replaces| Action::Make { replaces };
                assert_eq!(decided(kind, None, streams), made(false));
                assert_eq!(decided(kind, Some(kind), streams), made(true));
                assert_eq!(decided(kind, Some(FileType::Regular), streams), made(true));
            }
        }
        let device = FileType::Block;
        assert_eq!(
            decided(FileType::Fifo, Some(device), Streams::default()),
            Action::Refuse(Conflict::Special(device))
        );
        assert_eq!(
            decided(device, None, Streams::default()),
            Action::Unsupported
        );
    }

    #[test]
    fn devices_and_fifos_are_read_and_written_where_the_user_named_them() {
        let fifo = about(FileType::Fifo, 1, 5);
        let file = about(FileType::Regular, 2, 5);
        let usual = Options::default();
        let named = Streams {
            read: true,
            written: true,
        };
        let copied = Action::Copy { replaces: false };
        assert_eq!(
            other(&fifo, None, Streams::default(), &usual),
            Action::Unsupported
        );
        assert_eq!(other(&fifo, None, named, &usual), copied);
        assert_eq!(other(&file, Some(&fifo), named, &usual), Action::Write);
    }
}
