//! A file system in FUSE whose answers a test chooses: one file, no figures, and a list of its syncs.

use super::mounts::mounts_alone;
use super::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// Requests (`enum fuse_opcode` in `linux/fuse.h`).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// Numbers of the root directory and of its file, `f`.
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// Bytes of `struct fuse_in_header`.
const HEADER: usize = 40;

/// Octets of a request: the largest WRITE and what is before its data.
const REQUEST: usize = (128 << 10) + 4096;

/// The file system, mounted for this thread alone.
struct Fuse {
    at: PathBuf,
    /// Flags of the FSYNCs since they were looked at last: 1 leaves out what is not needed to read the data.
    syncs: Arc<Mutex<Vec<u32>>>,
    thread: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Fuse {
    /// None where there can be none.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("at");
        fs::create_dir(&at).unwrap();
        if !mounts_alone() {
            return None;
        }
        let opened = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(device) = opened.inspect_err(|error| eprintln!("no /dev/fuse ({error}): skipped"))
        else {
            return None;
        };
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        mount(
            "none",
            &at,
            "fuse",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .unwrap();
        let syncs = Arc::default();
        let thread = std::thread::spawn({
            let syncs = Arc::clone(&syncs);
            move || answer_all(device, &syncs)
        });
        Some(Self {
            at,
            syncs,
            thread: Some(thread),
            _dir: dir,
        })
    }

    fn open(&self) -> LocalFs {
        let path = fs::canonicalize(&self.at).unwrap();
        LocalFs::of(Layers::over(Opening::new(path, options()).unwrap()))
    }

    fn take_syncs(&self) -> Vec<u32> {
        std::mem::take(&mut self.syncs.lock().unwrap())
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Ends the connection, so that reads from the device fail, whoever has a file open.
        let _ = unmount(&self.at, UnmountFlags::FORCE);
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Answers requests until the file system is unmounted.
fn answer_all(mut device: File, syncs: &Mutex<Vec<u32>>) {
    let mut memory = vec![0; REQUEST];
    while let Ok(len) = device.read(&mut memory) {
        let request = &memory[..len];
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().unwrap());
        let (what, unique, node) = (word(4), long(8), long(16));
        let answer = match what {
            INIT => Ok(started(word(HEADER + 4))),
            LOOKUP if node == ROOT && &request[HEADER..] == b"f\0" => {
                Ok([words(&[FILE, 0, 0, 0, 0]), attributes(FILE)].concat())
            }
            LOOKUP => Err(Errno::NOENT),
            GETATTR => Ok([words(&[0, 0]), attributes(node)].concat()),
            // Not for reading.
            OPEN if OFlags::from_bits_retain(word(HEADER)) & OFlags::RWMODE == OFlags::WRONLY => {
                Ok(words(&[0, 0]))
            }
            OPEN => Err(Errno::ACCESS),
            WRITE => Ok(words(&[word(HEADER + 16).into()])),
            RELEASE => Ok(Vec::new()),
            FSYNC => {
                syncs.lock().unwrap().push(word(HEADER + 8));
                Ok(Vec::new())
            }
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            // STATFS among them.
            _ => Err(Errno::NOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).unwrap();
        let header = [len.to_ne_bytes(), error.to_ne_bytes()].concat();
        // An error is that of a request that was interrupted.
        let _ = device.write(&[header, words(&[unique]), body].concat());
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The answer to INIT, `struct fuse_init_out`, with writes of up to 128 KiB.
fn started(minor: u32) -> Vec<u8> {
    let mut answer = [7, minor.min(31), 0, 0, 0, 128 << 10, 1];
    answer[4] = 12 | 9 << 16;
    let mut answer: Vec<u8> = answer
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    answer.resize(64, 0);
    answer
}

/// The attributes of a file, `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == ROOT { 0o40_777 } else { 0o100_666 };
    let first = words(&[node, 0, 0, 0, 0, 0]);
    let rest: [u32; 10] = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    let rest = rest.iter().flat_map(|word| word.to_ne_bytes());
    first.into_iter().chain(rest).collect()
}

#[test]
fn file_system_whose_statfs_is_not_implemented_is_exported_without_figures() {
    let Some(fuse) = Fuse::new() else { return };
    let open = rustix::fs::open(&fuse.at, OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let figures = rustix::fs::fstatfs(&open);
    assert_eq!(figures.err(), Some(Errno::NOSYS));
    drop(open);
    let local = fuse.open();
    let seen = local.space(local.root()).wait();
    let space = seen.result.unwrap();
    assert!(seen.attributes.is_some());
    assert_eq!((space.total, space.available, space.total_files), (0, 0, 0));
    let abilities = local.abilities();
    assert_eq!(
        (abilities.max_name, abilities.case_insensitive),
        (255, false)
    );
    let step = Step::new(b"f").unwrap();
    let found = local.lookup(&Identity::root(), local.root(), step).wait();
    assert_eq!(found.result.unwrap().attributes.kind, FileKind::Regular);
}

/// Times and size go with the data, whoever asks for the sync (RFC 1813 §3.3.7, §3.3.21): a call, or the end of the
/// last descriptor that could tell of a loss.
#[test]
fn times_are_synced_with_the_data_they_are_of() {
    let Some(fuse) = Fuse::new() else { return };
    let local = fuse.open();
    let who = Identity::root();
    let step = Step::new(b"f").unwrap();
    let found = local.lookup(&who, local.root(), step).wait();
    let f = found.result.unwrap().file;
    let write = |stability| {
        let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
        let done = local.write(&who, f, 0, data, stability).wait();
        done.result.unwrap();
    };
    for stability in [Stability::DataSync, Stability::FileSync] {
        write(stability);
        assert_eq!(fuse.take_syncs(), [0], "{stability:?}");
    }
    write(Stability::Unstable);
    assert_eq!(fuse.take_syncs(), [0; 0]);
    local.commit(&who, f, 0, 0).wait().result.unwrap();
    assert_eq!(fuse.take_syncs(), [0], "COMMIT");
    write(Stability::Unstable);
    for _ in 0..3 {
        local.layers.end_round();
    }
    assert_eq!(fuse.take_syncs(), [0], "the writer is idle");
}
