//! Copies that are cut off and continued.

use crate::running::{PROGRAM, Running, Served, ok, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes that are copied again of a file that was cut off.
const WINDOW: u64 = 32 << 20;

/// Size of the file: more than what is copied again.
const SIZE: u64 = 42 << 20;

/// Size at which a copy is cut off.
const CUT: u64 = 36 << 20;

/// To have writes beyond a limit fail instead of ending the process.
const IGNORE: [&str; 2] = ["env", "--ignore-signal=XFSZ"];

/// A server, a large file on one side and a directory for it on the other, and the way from the one to the other.
struct Scene {
    served: Served,
    way: Way,
    source: PathBuf,
    dest: PathBuf,
    args: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Get,
    Put,
}

impl Scene {
    fn new(way: Way) -> Self {
        let served = Served::under(&IGNORE);
        let here = served.around.path().join("here");
        std::fs::create_dir(&here).unwrap();
        let (source, dest, args) = match way {
            Way::Get => {
                let args = ["get".to_owned(), served.url("large"), path(&here)];
                (served.dir.join("large"), here, args)
            }
            Way::Put => {
                let source = here.join("large");
                let args = ["put".to_owned(), path(&source), served.url("")];
                (source, served.dir.clone(), args)
            }
        };
        std::fs::write(&source, content()).unwrap();
        Self {
            served,
            way,
            source,
            dest,
            args: args.to_vec(),
        }
    }

    /// Copies, with files on the way there no larger than [`CUT`].
    #[track_caller]
    fn cut_off(&self) {
        let limit = format!("--fsize={CUT}");
        let limited = match self.way {
            Way::Get => ["prlimit", &limit],
            Way::Put => ["env", "--"],
        };
        if self.way == Way::Put {
            self.served.limit_files(Some(CUT));
        }
        let output = Command::new(limited[0])
            .arg(limited[1])
            .args(IGNORE)
            .arg(PROGRAM)
            .args(&self.args)
            .arg("--resume")
            .output()
            .unwrap();
        self.served.limit_files(None);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("incomplete files are kept: 1;"), "{said}");
        assert_eq!(len(&self.partial().unwrap()), CUT);
    }

    /// Path of an incomplete file.
    fn partial(&self) -> Option<PathBuf> {
        let mut entries = self.dest.read_dir().unwrap();
        let is_partial = |path: &PathBuf| path.to_str().unwrap().contains("/.large.rpcrdma-");
        entries.find_map(|entry| Some(entry.unwrap().path()).filter(is_partial))
    }

    /// Writes something else into what is there; where.
    fn damage(&self, at: impl FnOnce(u64) -> u64) -> usize {
        let partial = self.partial().unwrap();
        let at = at(len(&partial));
        let file = File::options().write(true).open(partial).unwrap();
        file.write_all_at(b"X", at).unwrap();
        usize::try_from(at).unwrap()
    }

    /// Copies to the end, and checks what is there then.
    #[track_caller]
    fn complete(&self, expected: &[u8]) {
        let mut args: Vec<_> = self.args.iter().map(String::as_str).collect();
        args.push("--resume");
        ok(&args);
        assert!(self.partial().is_none(), "something is left");
        let copy = std::fs::read(self.dest.join("large")).unwrap();
        assert!(copy == expected, "it is not what it should be");
    }
}

fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn len(path: &Path) -> u64 {
    // It may have its name by now.
    path.metadata().map_or(0, |about| about.len())
}

/// Data that differs from place to place.
fn content() -> Vec<u8> {
    let numbers = (0..SIZE / 8).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Data that is there is continued, so that a change of it stays; but its end is copied again.
fn check_continued(way: Way) {
    let scene = Scene::new(way);
    scene.cut_off();
    scene.damage(|len| len - WINDOW / 2);
    let at = scene.damage(|_| 10);
    let mut expected = content();
    expected[at] = b'X';
    scene.complete(&expected);
}

#[test]
fn get_that_was_cut_off_is_continued() {
    check_continued(Way::Get);
}

#[test]
fn put_that_was_cut_off_is_continued() {
    check_continued(Way::Put);
}

#[test]
fn what_is_not_the_beginning_of_the_source_is_not_continued() {
    for way in [Way::Get, Way::Put] {
        let scene = Scene::new(way);
        scene.cut_off();
        scene.damage(|_| 10);
        // Right before what is copied again, it is compared.
        scene.damage(|len| len - WINDOW - 10);
        scene.complete(&content());
    }
}

#[test]
fn another_version_of_the_source_is_copied_as_a_whole() {
    for way in [Way::Get, Way::Put] {
        let scene = Scene::new(way);
        scene.cut_off();
        let mut changed = content();
        changed[20] ^= 1;
        let source = File::options().write(true).open(&scene.source).unwrap();
        source.write_all_at(&changed[20..21], 20).unwrap();
        let before = scene.partial().unwrap();
        ok(&[&scene.args[0], "--resume", &scene.args[1], &scene.args[2]]);
        let copy = std::fs::read(scene.dest.join("large")).unwrap();
        assert!(copy == changed, "it is a mixture");
        // That of the other version is left to a later copy, which removes it when it is old.
        assert_eq!(scene.partial(), Some(before));
    }
}

/// Begins to copy a file that is much too large, and ends that by a signal when some of it is there; what is said
/// then, and whether something is left.
fn signalled(way: Way, resume: bool, signal: Signal) -> (String, bool) {
    let scene = Scene::new(way);
    let source = File::options().write(true).open(&scene.source).unwrap();
    source.set_len(1 << 40).unwrap();
    let mut copy = Running::spawn(
        Command::new("env")
            .args(["--default-signal=TERM", PROGRAM])
            .args(&scene.args)
            .arg("--sparse=never")
            .args(resume.then_some("--resume"))
            .stderr(Stdio::piped()),
    );
    while scene.partial().is_none_or(|path| len(&path) == 0) {
        assert!(copy.try_wait().unwrap().is_none(), "the copy has ended");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&copy), signal).unwrap();
    let output = copy.output();
    (text(&output.stderr), scene.partial().is_some())
}

#[test]
fn signal_leaves_nothing_unless_the_user_wants_to_go_on() {
    for way in [Way::Get, Way::Put] {
        let (said, is_left) = signalled(way, false, Signal::TERM);
        assert_eq!(said, "rpcrdma: interrupted\n");
        assert!(!is_left);
        let (said, is_left) = signalled(way, true, Signal::TERM);
        let kept = "rpcrdma: incomplete files are kept: 1; the same command goes on with them\n";
        assert_eq!(said, format!("{kept}rpcrdma: interrupted\n"));
        assert!(is_left);
        assert!(signalled(way, true, Signal::KILL).1);
    }
}
