//! The power fails under our server, at many points of the kernel's client's work: what was acknowledged
//! as stable is on the disk.
//!
//! All writes of the server's disk are recorded (`write_log.rs`), and with them what the client was told.
//! Then the disk is made what it was at a point of that, recovered and looked at. Once the machine comes
//! back with that disk while the client waits. In version 4 it does so, too, when all that the client was told is that it has a
//! lock: it reclaims that, as the record of the client was on the disk before.

mod facts;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::facts::{Facts, Listing};
use super::linux_mounts_us_v4::{LOCKS, lock_program};
use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::write_log::{self, Content, Entry};

/// Sizes of the disks, which are files with holes: XFS wants 300 MiB; and what is written, twice.
const DISK: u64 = 320 << 20;
const LOG: u64 = 192 << 20;

/// Jobs that change things at once.
const JOBS: usize = 3;

/// Points of their work at which the power fails.
const POINTS: usize = 4;

/// For each server: it takes half a minute on an idle machine, and with version 4 a whole one.
const LIMIT: Duration = Duration::from_secs(360);

/// The power fails under a client of version 4 that holds a lock, and again when the machine is up, before the client comes back
/// and after that.
const FAILURES: [&str; 2] = ["up", "reclaim"];

/// Lines of an error that tell what is missing.
const TOLD: usize = 10;

/// A server and its disk.
struct Setup {
    fs: &'static str,
    /// User who runs the server: where it is not root, it finds files by its table of handles, which is on the
    /// same disk.
    user: &'static str,
    /// Whether the server syncs its changes, as it does unless it is told not to.
    synced: bool,
    /// Version of NFS.
    version: &'static str,
}

const fn setup(fs: &'static str, user: &'static str, synced: bool) -> Setup {
    Setup {
        fs,
        user,
        synced,
        version: "3",
    }
}

const fn setup_v4(fs: &'static str, user: &'static str, synced: bool) -> Setup {
    Setup {
        version: "4.2",
        ..setup(fs, user, synced)
    }
}

const USUAL: Setup = setup("ext4", "root", true);
const USUAL_V4: Setup = setup_v4("ext4", "root", true);

/// Those that sync nothing show that the others lose nothing because they do.
const ALL: [Setup; 10] = [
    USUAL,
    setup("ext4", "root", false),
    setup("ext4", "user", true),
    setup("xfs", "root", true),
    setup("btrfs", "root", true),
    USUAL_V4,
    setup_v4("ext4", "root", false),
    setup_v4("ext4", "user", true),
    setup_v4("xfs", "root", true),
    setup_v4("btrfs", "root", true),
];

/// Operations whose data is lost only if the server loses it by itself.
const DATA: [&str; 2] = ["WRITE", "COMMIT"];

pub(super) fn usual(run: &TestRun<'_>) -> Result<()> {
    each(run, &[USUAL])
}

pub(super) fn usual_v4(run: &TestRun<'_>) -> Result<()> {
    each(run, &[USUAL_V4])
}

pub(super) fn all(run: &TestRun<'_>) -> Result<()> {
    each(run, &ALL)
}

fn each(run: &TestRun<'_>, setups: &[Setup]) -> Result<()> {
    let disks = Disks {
        disk: run.work.join("disk"),
        log: run.work.join("log"),
    };
    disks.blank()?;
    let locks = lock_program(run)?;
    let boot = Boot {
        name: "guest",
        script: "power-loss.sh",
        environment: &[
            ("DISK", "/dev/vda".into()),
            ("LOG", "/dev/vdb".into()),
            ("JOBS", JOBS.to_string()),
        ],
        program: Some(run.program),
        files: &[(LOCKS, &locks)],
        disks: &[&disks.disk, &disks.log],
        limit: LIMIT * u32::try_from(setups.len())?,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    guest.expect("ready")?;
    for setup in setups {
        let Setup {
            fs,
            user,
            synced,
            version,
        } = setup;
        let how = if *synced { "" } else { ", which syncs nothing" };
        let name = format!("version {version}, {fs}, the server of {user}{how}");
        if *version != "3" && *synced {
            fail_under_a_lock(&mut guest, &disks, setup).context(name.clone())?;
            let done = format!("{name}: a lock outlived {} failures", 1 + FAILURES.len());
            run.report.say(run.name, &done);
        }
        let points = fail_at_each_point(&mut guest, &disks, setup).context(name.clone())?;
        run.report
            .say(run.name, &format!("{name}: {points} points"));
    }
    guest.tell("stop")?;
    guest.finish()
}

struct Disks {
    disk: PathBuf,
    log: PathBuf,
}

impl Disks {
    fn blank(&self) -> Result<()> {
        write_log::blank(&self.disk, DISK)?;
        write_log::blank(&self.log, LOG)
    }

    /// Has the disk hold what is left of its writes behind this content, and returns what that is.
    fn after_failure(&self, before: &Content) -> Result<Content> {
        let log = fs::read(&self.log)?;
        let log = write_log::read(&log)?;
        let end = position(&log, "killed")?;
        before.restore(&self.disk, &log[..end])?;
        Content::read(&self.disk)
    }
}

/// Has a client work on a server, and returns at how many points the power was made to fail.
fn fail_at_each_point(guest: &mut Guest<'_>, disks: &Disks, setup: &Setup) -> Result<usize> {
    let Setup {
        fs,
        user,
        synced,
        version,
    } = *setup;
    disks.blank()?;
    guest.ask(&format!("format {fs}"))?;
    let formatted = Content::read(&disks.disk)?;
    let changes = if synced { "durable" } else { "cached" };
    guest.ask(&format!("work {fs} {user} {changes} {version}"))?;
    let log = fs::read(&disks.log)?;
    let log = write_log::read(&log)?;
    if synced {
        let end = position(&log, "killed")?;
        formatted.restore(&disks.disk, &log[..end])?;
        check(
            &log[..end],
            &ask_for_listing(guest, &format!("resume {fs} {user}"))?,
        )
        .context("as the client sees it when the server is back")?;
    }
    let points = points(&log, synced)?;
    for &point in &points {
        let before = &log[..=point];
        formatted.restore(&disks.disk, before)?;
        let listing = ask_for_listing(guest, &format!("list {fs}"))?;
        let done = match synced {
            true => check(before, &listing),
            false => check_loss(before, &listing),
        };
        done.with_context(|| format!("after {point} of {} entries", log.len()))?;
    }
    Ok(points.len())
}

/// Has a client lock a file, and the power fail time after time.
fn fail_under_a_lock(guest: &mut Guest<'_>, disks: &Disks, setup: &Setup) -> Result<()> {
    let Setup {
        fs, user, version, ..
    } = setup;
    disks.blank()?;
    guest.ask(&format!("format {fs}"))?;
    let mut content = Content::read(&disks.disk)?;
    guest.ask(&format!("hold {fs} {user} {version}"))?;
    for next in FAILURES {
        content = disks.after_failure(&content)?;
        write_log::blank(&disks.log, LOG)?;
        guest.ask(&format!("{next} {fs} {user}"))?;
    }
    disks.after_failure(&content)?;
    guest.ask(&format!("release {fs} {user}"))
}

/// Asks the guest for a listing.
fn ask_for_listing(guest: &mut Guest<'_>, what: &str) -> Result<Listing> {
    guest.take_notes();
    guest.ask(what)?;
    Listing::read(&guest.take_notes())
}

fn position(log: &[Entry<'_>], mark: &str) -> Result<usize> {
    log.iter()
        .position(|entry| *entry == Entry::Mark(mark))
        .with_context(|| format!("the log has no mark {mark}"))
}

/// Points at which the power fails: behind the answer to each operation of the one job that is by itself, and at
/// points of the work of many.
fn points(log: &[Entry<'_>], many: bool) -> Result<Vec<usize>> {
    let end = position(log, "killed")?;
    let alone = if many { position(log, "many")? } else { end };
    let is_answer = |&at: &usize| matches!(log[at], Entry::Mark(mark) if mark.contains(';') && !mark.starts_with("next;"));
    let mut points: Vec<_> = (position(log, "one")?..alone).filter(is_answer).collect();
    ensure!(!points.is_empty(), "nothing was acknowledged");
    if many {
        points.extend((1..=POINTS).map(|point| alone + (end - alone) * point / POINTS));
    }
    Ok(points)
}

/// All that was acknowledged must be there.
fn check(log: &[Entry<'_>], listing: &Listing) -> Result<()> {
    let mut facts = Facts::default();
    for mark in marks(log) {
        facts.add(mark)?;
    }
    let missing = facts.missing(listing);
    ensure!(
        missing.is_empty(),
        "{} names are there, and of what was acknowledged is missing:\n  {}",
        listing.len(),
        missing[..missing.len().min(TOLD)].join("\n  ")
    );
    Ok(())
}

/// The last operation must be lost, and nothing else.
fn check_loss(log: &[Entry<'_>], listing: &Listing) -> Result<()> {
    let Some(last) = marks(log).last() else {
        bail!("no mark");
    };
    let before = position(log, last)?;
    check(&log[..before], listing)?;
    let lost = check(log, listing).is_err();
    let is_data = DATA.iter().any(|operation| last.starts_with(operation));
    ensure!(
        lost != is_data,
        "{last} is {}lost",
        if lost { "" } else { "not " }
    );
    Ok(())
}

fn marks<'a>(log: &[Entry<'a>]) -> impl Iterator<Item = &'a str> {
    log.iter().filter_map(|entry| match entry {
        Entry::Mark(mark) => Some(*mark),
        Entry::Write { .. } | Entry::Discard { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [Entry<'static>; 7] = [
        Entry::Mark("one"),
        Entry::Mark("CREATE;file,a"),
        Entry::Mark("next;?,a"),
        Entry::Mark("REMOVE;gone,a"),
        Entry::Mark("many"),
        Entry::Write { at: 0, data: &[] },
        Entry::Mark("killed"),
    ];

    fn listing(lines: &[&str]) -> Listing {
        let lines: Vec<_> = lines.iter().map(|&line| line.to_owned()).collect();
        Listing::read(&lines).unwrap()
    }

    #[test]
    fn power_fails_behind_each_answer_and_all_along() {
        let all = points(&LOG, true).unwrap();
        assert_eq!(all[..2], [1, 3]);
        assert_eq!(all.len(), 2 + POINTS);
        assert!(all[2..].iter().all(|point| (4..=6).contains(point)));
        assert_eq!(points(&LOG, false).unwrap(), [1, 3]);
        assert!(points(&LOG[..6], true).is_err());
        assert!(points(&[LOG[0], LOG[4], LOG[6]], true).is_err());
    }

    #[test]
    fn what_was_acknowledged_is_missed_and_what_was_not_is_not() {
        let nothing = listing(&[]);
        let file = listing(&["entry,f,644,1,0,1.5/2.5,a,"]);
        assert!(check(&LOG[..1], &nothing).is_ok());
        assert!(check(&LOG[..2], &nothing).is_err());
        assert!(check(&LOG[..2], &file).is_ok());
        assert!(check(&LOG[..3], &nothing).is_ok());
        assert!(check(&LOG[..4], &file).is_err());
        assert!(check(&LOG, &nothing).is_ok());
    }

    #[test]
    fn without_a_sync_the_last_operation_is_lost_unless_it_is_one_of_data() {
        let nothing = listing(&[]);
        let file = listing(&["entry,f,644,1,0,1.5/2.5,a,"]);
        assert!(check_loss(&LOG[..2], &nothing).is_ok());
        assert!(check_loss(&LOG[..2], &file).is_err());
        assert!(check_loss(&LOG[..4], &file).is_ok());
        assert!(check_loss(&LOG[..4], &nothing).is_err());
        let written = [LOG[0], Entry::Mark("WRITE;size,a,0")];
        assert!(check_loss(&written, &file).is_ok());
        assert!(check_loss(&written, &nothing).is_err());
    }
}
