//! Running the program.

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, prlimit, waitid,
};
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::{Deref, DerefMut, Range};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_rpcrdma");

/// How long a test waits for a line of the log: longer than any machine takes.
const HEAR_LIMIT: Duration = Duration::from_secs(60);

/// Runs the program to its end.
pub(crate) fn run<A: AsRef<OsStr>>(args: &[A]) -> Output {
    Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

/// Runs the program, which must succeed, and gives its output.
#[track_caller]
pub(crate) fn ok(args: &[&str]) -> Vec<u8> {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    output.stdout
}

/// Runs the program, which must end with this code and say this.
#[track_caller]
pub(crate) fn fails<A: AsRef<OsStr> + Debug>(args: &[A], code: i32, says: &str) {
    let output = run(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    assert!(
        errors.contains(says),
        "{args:?} does not say {says}: {errors}"
    );
}

/// The same in an environment that has these too.
#[track_caller]
pub(crate) fn fails_with(args: &[&str], environment: &[(&str, &str)], code: i32, says: &str) {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    assert!(
        errors.contains(says),
        "{args:?} does not say {says}: {errors}"
    );
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A port where nobody listens. It is none of those that the system gives to whoever asks for any
/// (`net.ipv4.ip_local_port_range`), so that no other test gets it meanwhile.
pub(crate) fn free_port() -> u16 {
    const PORTS: Range<u16> = 22_000..32_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Processes begin at different ones.
    let first = process::id().wrapping_mul(97);
    for _ in PORTS {
        let number = first.wrapping_add(TRIED.fetch_add(1, Relaxed));
        let count = u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(number % count).unwrap();
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// Kills a child unless what is returned is dropped before [`HEAR_LIMIT`]: a line that never comes ends its test.
pub(crate) fn kill_if_silent(child: &Child) -> mpsc::Sender<()> {
    let (heard, waits) = mpsc::channel();
    let pid = Pid::from_child(child);
    thread::spawn(move || {
        if waits.recv_timeout(HEAR_LIMIT) == Err(RecvTimeoutError::Timeout) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    });
    heard
}

/// A command that runs. Dropped, it is killed, unless it has ended.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match command.spawn() {
                // A child that another test makes right now has a copy of the program open that was just written.
                Err(error)
                    if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < until =>
                {
                    thread::yield_now();
                }
                spawned => return Self(Some(spawned.unwrap())),
            }
        }
    }

    /// Waits for the end.
    pub(crate) fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // One that has ended is waited for already.
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// First lines of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    Json,
    Text,
}

/// A server of one directory, `stuff`, on free ports of this machine. Dropped, it is killed.
pub(crate) struct Served {
    child: Running,
    out: BufReader<ChildStdout>,
    /// Its log, once somebody has listened to it.
    log: Option<BufReader<ChildStderr>>,
    /// `HOST:PORT`.
    pub(crate) listening: String,
    pub(crate) mount_port: u16,
    /// All it said at the start.
    pub(crate) said: String,
    pub(crate) dir: PathBuf,
    /// Folder around the served directory; also a place for other files of the test.
    pub(crate) around: TempDir,
}

impl Served {
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::with(args, Say::Json)
    }

    pub(crate) fn with(args: &[&str], say: Say) -> Self {
        let around = tempfile::tempdir().unwrap();
        let dir = around.path().join("stuff");
        std::fs::create_dir(&dir).unwrap();
        Self::serving(Command::new(PROGRAM), around, dir, args, say)
    }

    /// A server that another user runs, from a place where it may. Only root can have that.
    pub(crate) fn run_by(uid: u32, program: &Path, args: &[&str], say: Say) -> Self {
        let around = tempfile::tempdir().unwrap();
        let dir = around.path().join("stuff");
        std::fs::create_dir(&dir).unwrap();
        for path in [around.path(), &dir] {
            chown(path, Some(uid), Some(uid)).unwrap();
        }
        let mut command = Command::new(program);
        command.uid(uid).gid(uid).current_dir("/");
        Self::serving(command, around, dir, args, say)
    }

    /// A server run by root of a user namespace in which there is no other user.
    pub(crate) fn alone_in_a_user_namespace(args: &[&str]) -> Self {
        let around = tempfile::tempdir().unwrap();
        let dir = around.path().join("stuff");
        std::fs::create_dir(&dir).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", PROGRAM]);
        Self::serving(command, around, dir, args, Say::Json)
    }

    /// A server that another program runs, with these arguments before the server's.
    pub(crate) fn under(runner: &[&str]) -> Self {
        let around = tempfile::tempdir().unwrap();
        let dir = around.path().join("stuff");
        std::fs::create_dir(&dir).unwrap();
        let mut command = Command::new(runner[0]);
        command.args(&runner[1..]).arg(PROGRAM);
        Self::serving(command, around, dir, &[], Say::Json)
    }

    fn serving(
        mut command: Command,
        around: TempDir,
        dir: PathBuf,
        args: &[&str],
        say: Say,
    ) -> Self {
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--mount-port", "0"])
            .arg("--state-dir")
            .arg(around.path().join("state"))
            .args((say == Say::Json).then_some("--json"))
            .args(args)
            .arg(&dir)
            .stdin(Stdio::null());
        Self::started(around, dir, command, say)
    }

    /// A server with a file of exports, which `stuff` is one of, and options on the command line.
    pub(crate) fn configured(exports: impl FnOnce(&Path) -> String, args: &[&str]) -> Self {
        Self::configured_in(tempfile::tempdir().unwrap(), exports, args, &[])
    }

    /// The same beside other files of the test, in an environment that has these too.
    pub(crate) fn configured_in(
        around: TempDir,
        exports: impl FnOnce(&Path) -> String,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let dir = around.path().join("stuff");
        std::fs::create_dir_all(&dir).unwrap();
        let config = config(around.path(), &exports(around.path()));
        let mut command = Command::new(PROGRAM);
        command
            .args(["serve", "--json", "--config"])
            .arg(config)
            .args(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::null());
        Self::started(around, dir, command, Say::Json)
    }

    /// Writes another file of exports.
    pub(crate) fn configure(&self, exports: &str) {
        config(self.around.path(), exports);
    }

    /// Runs a command that serves.
    pub(crate) fn started(around: TempDir, dir: PathBuf, mut command: Command, say: Say) -> Self {
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG");
        let mut child = Running::spawn(&mut command);
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut served = Self {
            child,
            out,
            log: None,
            listening: String::new(),
            mount_port: 0,
            said: String::new(),
            dir,
            around,
        };
        served.listen_to(say);
        served
    }

    fn listen_to(&mut self, say: Say) {
        let last = match say {
            Say::Json => "}\n",
            Say::Text => "/stuff\n",
        };
        while !self.said.ends_with(last) || say == Say::Text && !self.said.contains("rpcrdma ls") {
            let len = self.out.read_line(&mut self.said).unwrap();
            if len == 0 {
                let mut errors = String::new();
                let mut log = self.child.stderr.take().unwrap();
                log.read_to_string(&mut errors).unwrap();
                panic!("the server ended: {}{errors}", self.said);
            }
        }
        if say == Say::Json {
            let said: serde_json::Value = serde_json::from_str(&self.said).unwrap();
            self.listening = said["listening"].as_str().unwrap().to_owned();
            self.mount_port = said["mount_port"].as_u64().unwrap().try_into().unwrap();
        }
    }

    /// The URL of a path in the export.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}/{path}", self.listening)
    }

    /// A file beside the export, with this content.
    pub(crate) fn local(&self, name: &str, content: &[u8]) -> String {
        let path = self.around.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The path of something beside the export.
    pub(crate) fn beside(&self, name: &str) -> String {
        self.around.path().join(name).to_str().unwrap().to_owned()
    }

    /// Sets how large files may get that it writes.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        let pid = Pid::from_child(&self.child);
        prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line of the log that has this in it. Lines that were read are not in the output of
    /// [`stop`](Self::stop).
    #[track_caller]
    pub(crate) fn hear(&mut self, part: &str) -> String {
        let _limit = kill_if_silent(&self.child);
        let child = &mut self.child;
        let log = self
            .log
            .get_or_insert_with(|| BufReader::new(child.stderr.take().unwrap()));
        let mut all = String::new();
        loop {
            let mut line = String::new();
            let len = log.read_line(&mut line).unwrap();
            assert!(len > 0, "the log ended without {part}: {all}");
            if line.contains(part) {
                return line;
            }
            all += &line;
        }
    }

    /// Rest of the log, up to its end.
    pub(crate) fn hear_all(&mut self) -> String {
        let mut rest = String::new();
        let log = self.log.as_mut().unwrap();
        log.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Waits until a signal has stopped it.
    pub(crate) fn wait_until_stopped(&self) {
        let stopped = waitid(
            WaitId::Pid(Pid::from_child(&self.child)),
            WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT,
        );
        assert!(stopped.unwrap().unwrap().stopped());
    }

    /// Closes the end of its standard error that somebody could read.
    pub(crate) fn close_log(&mut self) {
        drop(self.child.stderr.take());
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn stop(self, signal: Signal) -> Output {
        self.signal(signal);
        self.wait()
    }

    /// Waits for the end.
    pub(crate) fn wait(self) -> Output {
        self.child.output()
    }
}

/// Writes the file of a server on free ports, with these exports.
fn config(around: &Path, exports: &str) -> PathBuf {
    let path = around.join("exports.toml");
    let state = around.join("state");
    let server = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmount_port = 0\nstate_dir = {state:?}\n{exports}"
    );
    std::fs::write(&path, server).unwrap();
    path
}

/// Every name below a directory, with the content of files and the text of symbolic links.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(at) = left.pop() {
        for entry in at.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let content = if about.is_symlink() {
                path.read_link()
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if about.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                left.push(path.clone());
                b"a directory".to_vec()
            };
            found.push((path.strip_prefix(dir).unwrap().to_owned(), content));
        }
    }
    found.sort();
    found
}
