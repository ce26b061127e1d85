//! Records after losses of power, on disks that fail, and in directories of this machine.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

const LEASE: Duration = Duration::from_secs(90);

fn record(owner: u8, uid: u32) -> Change {
    Change::Record(Recorded {
        owner: vec![owner; 1 + usize::from(owner)].into(),
        principal: Principal::Sys(uid),
    })
}

fn remove(owner: u8) -> Change {
    Change::Remove(vec![owner; 1 + usize::from(owner)].into())
}

fn contents(changes: &[&[Change]]) -> Contents {
    let mut contents = Contents::new([7; 16], LEASE);
    changes.iter().for_each(|batch| contents.apply(batch));
    contents
}

fn batches() -> [Vec<Change>; 4] {
    let other = Change::Record(Recorded {
        owner: (*b"other").into(),
        principal: Principal::Other {
            flavour: 6,
            body: (*b"token").into(),
        },
    });
    [
        vec![record(1, 1), record(200, 2)],
        vec![remove(1), other],
        vec![Change::Lease(LEASE * 2), record(3, 3), record(1, 9)],
        vec![remove(200)],
    ]
}

#[test]
fn loss_of_power_at_any_byte_leaves_the_batches_that_were_durable() {
    let batches = batches();
    let mut bytes = format::file(&contents(&[]));
    for made in 0..batches.len() {
        let known: Vec<&[Change]> = batches[..made].iter().map(|batch| &**batch).collect();
        let before = contents(&known);
        let batch = format::batch(&batches[made]);
        for len in 0..batch.len() {
            let mut torn = bytes.clone();
            torn.extend(&batch[..len]);
            assert_eq!(
                format::read(&torn),
                Ok((before.clone(), len)),
                "{made} {len}"
            );
            // The size of the file was there, and its data was not.
            torn.resize(bytes.len() + batch.len(), 0);
            assert_eq!(
                format::read(&torn),
                Ok((before.clone(), batch.len())),
                "{made} {len}"
            );
        }
        bytes.extend(batch);
        let known: Vec<&[Change]> = batches[..=made].iter().map(|batch| &**batch).collect();
        assert_eq!(format::read(&bytes), Ok((contents(&known), 0)));
    }
}

#[test]
fn other_damage_is_an_error() {
    let batches = batches();
    let first = format::file(&contents(&[]));
    let mut bytes = first.clone();
    batches[..3]
        .iter()
        .for_each(|batch| bytes.extend(format::batch(batch)));
    let last = bytes.len();
    bytes.extend(format::batch(&batches[3]));
    for bit in 0..last * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(format::read(&damaged).is_err(), "bit {bit}");
    }
    // What was there when the file was made was durable before it had its name.
    for len in 0..first.len() {
        assert!(format::read(&first[..len]).is_err(), "{len}");
    }
}

/// A disk that fails as it is told to, and what would be on it after a loss of power.
#[derive(Clone, Default)]
struct Faulty(Arc<Mutex<(Vec<u8>, Option<Fault>)>>);

#[derive(Clone, Copy, Debug)]
struct Fault {
    /// Part of the bytes that are written all the same, in 256ths.
    written: usize,
}

impl Faulty {
    fn fail_next(&self, fault: Option<Fault>) {
        self.0.lock().unwrap().1 = fault;
    }

    fn read(&self) -> Contents {
        format::read(&self.0.lock().unwrap().0).unwrap().0
    }

    fn write(&self, bytes: &[u8], replace: bool) -> io::Result<()> {
        let (file, fault) = &mut *self.0.lock().unwrap();
        let fault = fault.take();
        let written = fault.map_or(bytes.len(), |fault| bytes.len() * fault.written / 256);
        match replace {
            true if written == bytes.len() => *file = bytes.to_vec(),
            true => {}
            false => file.extend(&bytes[..written]),
        }
        match fault {
            Some(_) => Err(io::ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }
}

impl Disk for Faulty {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, false)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, true)
    }
}

#[test]
fn disk_that_fails_at_any_time_has_what_was_durable_and_what_failed_last_or_not() {
    let change = (any::<bool>(), 0..6_u8, 0..4_u32);
    let change = change.prop_map(|(records, owner, uid)| match records {
        true => record(owner, uid),
        false => remove(owner),
    });
    let fault = prop_oneof![Just(None), (0..=256_usize).prop_map(Some)];
    let steps = prop::collection::vec((prop::collection::vec(change, 1..5), fault), 1..30);
    TestRunner::default()
        .run(&steps, |steps| {
            let disk = Faulty::default();
            let mut records = Records::over(Box::new(disk.clone()), contents(&[]));
            records.rewrite().unwrap();
            let mut durable = contents(&[]);
            // What may also be there since the last change that did not fail.
            let mut possible: Vec<Contents> = Vec::new();
            for (changes, fault) in steps {
                disk.fail_next(fault.map(|written| Fault { written }));
                let mut after = durable.clone();
                after.apply(&changes);
                match records.change(&changes) {
                    Ok(()) => {
                        prop_assert!(fault.is_none());
                        durable = after;
                        possible.clear();
                        prop_assert_eq!(&disk.read(), &durable);
                    }
                    Err(_) => {
                        possible.push(after);
                        let found = disk.read();
                        prop_assert!(found == durable || possible.contains(&found));
                    }
                }
                prop_assert_eq!(&records.contents, &durable);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn file_is_made_anew_when_most_of_it_is_out_of_date() {
    let disk = Faulty::default();
    let mut records = Records::over(Box::new(disk.clone()), contents(&[]));
    let mut longest = 0;
    for n in 0..10_000 {
        records.change(&[record(250, n), remove(250)]).unwrap();
        longest = longest.max(disk.0.lock().unwrap().0.len());
    }
    assert!(longest < 2 * MIN_APPENDED, "{longest}");
    assert_eq!(disk.read(), contents(&[]));
}

fn open(dir: &Path) -> Result<Records, Nfs4StateError> {
    Records::open(Some(dir), LEASE)
}

fn owners(records: &Records) -> Vec<Arc<[u8]>> {
    records.clients().map(|client| client.owner).collect()
}

#[test]
fn records_and_identity_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("new/state");
    let mut records = open(&state).unwrap();
    let identity = records.identity();
    assert!(owners(&records).is_empty());
    for batch in batches() {
        records.change(&batch).unwrap();
    }
    let expected: Vec<_> = records.clients().collect();
    drop(records);
    // A file that was being made when the power went means nothing.
    std::fs::write(state.join("nfs4/clients.new"), "nfs4 cl").unwrap();
    let records = open(&state).unwrap();
    assert_eq!(records.clients().collect::<Vec<_>>(), expected);
    assert_eq!((records.identity(), records.lease()), (identity, LEASE * 2));
    for (name, mode) in [
        ("nfs4", 0o700),
        ("nfs4/clients", 0o600),
        ("nfs4/lock", 0o600),
    ] {
        let found = std::fs::metadata(state.join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
    }
}

#[test]
fn batch_that_was_not_complete_is_cut_and_others_follow() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = open(dir.path()).unwrap();
    records.change(&[record(1, 1)]).unwrap();
    drop(records);
    let path = dir.path().join("nfs4/clients");
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes.extend(&format::batch(&[record(2, 2)])[..10]);
    std::fs::write(&path, &bytes).unwrap();
    let mut records = open(dir.path()).unwrap();
    records.change(&[record(3, 3)]).unwrap();
    drop(records);
    assert!(std::fs::metadata(&path).unwrap().len() > whole as u64);
    assert_eq!(owners(&open(dir.path()).unwrap()).len(), 2);
}

#[test]
fn records_in_use_are_refused_until_the_other_server_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let refused = open(dir.path()).err().unwrap();
    assert!(matches!(refused, Nfs4StateError::InUse { .. }), "{refused}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn damaged_records_are_an_error_that_names_the_file_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = open(dir.path()).unwrap();
    records.change(&[record(1, 1)]).unwrap();
    drop(records);
    let path = dir.path().join("nfs4/clients");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = open(dir.path()).err().unwrap().to_string();
    assert!(
        error.contains("nfs4/clients") && error.contains("remove it"),
        "{error}"
    );
    std::fs::write(&path, "something else").unwrap();
    assert!(matches!(
        open(dir.path()),
        Err(Nfs4StateError::Damaged { at: 0, .. })
    ));
    assert_eq!(
        std::fs::read(&path).unwrap(),
        b"something else",
        "it is left as it is"
    );
}

#[test]
fn records_that_others_can_change_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    let refused = || {
        let error = open(dir.path()).err().unwrap();
        assert!(
            matches!(error, Nfs4StateError::NotPrivate { .. }),
            "{error}"
        );
    };
    for path in [dir.path().join("nfs4"), dir.path().into()] {
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o770);
        refused();
        set(0o700);
    }
    let path = dir.path().join("nfs4/clients");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused();
}

#[test]
fn without_a_directory_records_end_with_the_process() {
    let mut records = Records::open(None, LEASE).unwrap();
    records.change(&[record(1, 1)]).unwrap();
    let other = Records::open(None, LEASE).unwrap();
    assert!(owners(&other).is_empty());
    assert_ne!(records.identity(), other.identity());
}

#[test]
fn longest_lease_that_a_client_may_have_is_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let short = LEASE / 3;
    drop(Records::open(Some(dir.path()), LEASE).unwrap());
    let mut records = Records::open(Some(dir.path()), short).unwrap();
    assert_eq!(records.lease(), LEASE);
    records.change(&[Change::Lease(short)]).unwrap();
    drop(records);
    let records = Records::open(Some(dir.path()), short).unwrap();
    assert_eq!(records.lease(), short);
}

/// A disk that tests of others make fail, with the records that are on it.
#[derive(Clone, Default)]
pub(in crate::nfs4) struct FailingDisk(Arc<Mutex<Failing>>);

#[derive(Default)]
struct Failing {
    bytes: Vec<u8>,
    fails: bool,
    writes: usize,
}

impl FailingDisk {
    /// Opens the records, as a server does that starts.
    pub(in crate::nfs4) fn records(&self, lease: Duration) -> Records {
        let is_new = self.0.lock().unwrap().bytes.is_empty();
        let mut contents = match is_new {
            true => Contents::new([7; 16], lease),
            false => self.read(),
        };
        contents.lease = contents.lease.max(lease);
        let mut records = Records::over(Box::new(self.clone()), contents);
        records.rewrite().unwrap();
        records
    }

    pub(in crate::nfs4) fn fails(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    /// Number of times that something was to be written.
    pub(in crate::nfs4) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    pub(in crate::nfs4) fn owners(&self) -> Vec<String> {
        let clients = self.read().clients.into_keys();
        let names = clients.map(|owner| String::from_utf8(owner.to_vec()).unwrap());
        names.collect()
    }

    pub(in crate::nfs4) fn lease(&self) -> Duration {
        self.read().lease
    }

    fn read(&self) -> Contents {
        format::read(&self.0.lock().unwrap().bytes).unwrap().0
    }

    fn write(&self, bytes: &[u8], replace: bool) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.writes += 1;
        if disk.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if replace {
            disk.bytes.clear();
        }
        disk.bytes.extend(bytes);
        Ok(())
    }
}

impl Disk for FailingDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, false)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes, true)
    }
}
