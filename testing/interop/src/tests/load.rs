//! Parts shared by tests that have a guest work on our server while its connection breaks
//! (`testing/interop/guest/load.sh`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::kept::check_kept;
use super::{MIB, write_noise};
use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::serve::EXPORT;

/// For what takes seconds on an idle machine.
pub(super) const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Bytes of noise that the guest takes its data from.
const NOISE: usize = 4 * MIB;

/// As in `load.sh`: what the writer writes in one round, and in how many files in turn.
const WRITTEN: usize = MIB;
const WRITTEN_FILES: usize = 8;

/// Bytes of a line of the journal.
const RECORD: usize = 16;

/// Of the files that were written last, those that are not being written again.
const CHECKED_FILES: usize = WRITTEN_FILES / 2;

/// Makes the folder that is exported, with the noise in it.
pub(super) fn export(run: &TestRun<'_>) -> Result<PathBuf> {
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    // The guest's root keeps its name, but is nobody special to a server that does not run as root.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    write_noise(&folder.join("noise"), NOISE)?;
    Ok(folder)
}

/// Boots a guest that mounts our server at these ports of the host.
pub(super) fn boot<'a>(
    run: &'a TestRun<'a>,
    script: &str,
    ports: (u16, u16),
    more: &[(&str, String)],
    limit: Duration,
) -> Result<Guest<'a>> {
    let mut environment = vec![
        ("PORT", ports.0.to_string()),
        ("MOUNT_PORT", ports.1.to_string()),
        ("SOURCE", EXPORT.into()),
    ];
    environment.extend_from_slice(more);
    let boot = Boot {
        name: "guest",
        script,
        environment: &environment,
        limit,
        ..Boot::default()
    };
    Guest::boot(run, &boot)
}

/// While there is no server: all that it has acknowledged as stable must be in the files.
pub(super) fn check_stable(guest: &mut Guest<'_>, folder: &Path) -> Result<()> {
    let notes = guest.notes().to_vec();
    let rounds = |kind: &str| -> Vec<usize> {
        let number = |note: &String| note.strip_prefix(kind)?.trim().parse().ok();
        notes.iter().filter_map(number).collect()
    };
    let load = folder.join("load");

    let records = rounds("stable").last().copied().unwrap_or(0);
    let journal = fs::read(load.join("journal")).context("the journal")?;
    ensure!(
        journal.len() >= records * RECORD,
        "{records} records were acknowledged, but the journal has {} bytes",
        journal.len()
    );
    for (number, record) in (1..=records).zip(journal.chunks(RECORD)) {
        ensure!(
            record == format!("record {number:08}\n").as_bytes(),
            "record {number} of the journal is {:?}",
            String::from_utf8_lossy(record)
        );
    }

    let noise = fs::read(folder.join("noise"))?;
    let written = rounds("written");
    for round in written.iter().rev().take(CHECKED_FILES) {
        let begin = round * 4099 % 1_500_000;
        let file = load.join(format!("written-{}", round % WRITTEN_FILES));
        ensure!(
            fs::read(&file)? == noise[begin..begin + WRITTEN],
            "{} lost what was synced in round {round}",
            file.display()
        );
    }
    check_kept(&notes, &load.join("kept"))
}
