//! Users of the machine of the server, who speak for themselves only.

use crate::running::{PROGRAM, Say, Served, ok, text};
use rustix::process::{Signal, getuid};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A user without an entry in the user database.
const ALICE: u32 = 54_321;
/// Another one.
const BOB: u32 = 54_322;

/// The program where every user can run it.
struct Program {
    dir: TempDir,
}

impl Program {
    /// None unless these tests are run by root, who can run it as others.
    fn new() -> Option<Self> {
        if !getuid().is_root() {
            eprintln!("skipped: only root can run programs as other users");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        fs::copy(PROGRAM, dir.path().join("rpcrdma")).unwrap();
        Some(Self { dir })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("rpcrdma")
    }

    /// Runs it as a user of this machine.
    fn as_user(&self, uid: u32, args: &[&str]) -> Output {
        let mut command = Command::new(self.path());
        command.args(args).current_dir("/").env_clear();
        command.uid(uid).gid(uid).output().unwrap()
    }

    /// Runs it as a user who says that it is root: in a namespace of users of its own it is.
    fn as_pretender(&self, uid: u32, args: &[&str]) -> Option<Output> {
        let namespace = |program: &PathBuf, args: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--"]);
            command.arg(program).args(args).current_dir("/");
            command.uid(uid).gid(uid).output()
        };
        match namespace(&PathBuf::from("/bin/true"), &[]) {
            Ok(output) if output.status.success() => Some(namespace(&self.path(), args).unwrap()),
            other => {
                eprintln!("skipped: no namespace of users to be had: {other:?}");
                None
            }
        }
    }
}

/// A file of alice's that nobody else may read, in a directory where everybody may make some.
fn secret_of_alice(served: &Served) {
    fs::set_permissions(&served.dir, Permissions::from_mode(0o777)).unwrap();
    let secret = served.dir.join("secret");
    fs::write(&secret, "alice's").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    chown(&secret, Some(ALICE), Some(ALICE)).unwrap();
}

#[test]
fn user_of_this_machine_is_who_it_is() {
    let Some(program) = Program::new() else {
        return;
    };
    let served = Served::new(&[]);
    secret_of_alice(&served);
    let (secret, new) = (served.url("secret"), served.url("new"));
    let output = program.as_user(ALICE, &["cat", &secret]);
    assert_eq!(text(&output.stdout), "alice's", "{}", text(&output.stderr));
    let output = program.as_user(BOB, &["cat", &secret]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    // The group that it is in is unknown to the user database.
    let output = program.as_user(BOB, &["mkdir", &new]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let made = fs::metadata(served.dir.join("new")).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&made);
    assert_eq!(owner, BOB);
    // Root is believed, as is the kernel, which acts for others.
    assert_eq!(ok(&["cat", &secret]), b"alice's");
}

#[test]
fn claim_to_be_another_user_is_denied_unless_everybody_here_is_trusted() {
    let Some(program) = Program::new() else {
        return;
    };
    let served = Served::new(&[]);
    secret_of_alice(&served);
    let args = ["cat", &served.url("secret")];
    let Some(output) = program.as_pretender(BOB, &args) else {
        return;
    };
    let errors = text(&output.stderr);
    assert!(errors.contains("AUTH_BADCRED"), "{errors}");
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));

    let served = Served::new(&["--trust-local", "--squash", "none"]);
    secret_of_alice(&served);
    let args = ["cat", &served.url("secret")];
    let output = program.as_pretender(BOB, &args).unwrap();
    assert_eq!(text(&output.stdout), "alice's", "{}", text(&output.stderr));
}

#[test]
fn server_of_a_user_serves_nobody_else_of_this_machine() {
    let Some(program) = Program::new() else {
        return;
    };
    let served = Served::run_by(ALICE, &program.path(), &[], Say::Json);
    fs::write(served.dir.join("file"), "alice's").unwrap();
    let args = ["cat", &served.url("file")];
    let output = program.as_user(ALICE, &args);
    assert_eq!(text(&output.stdout), "alice's", "{}", text(&output.stderr));
    assert_eq!(ok(&args), b"alice's", "root may");
    let output = program.as_user(BOB, &args);
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("another user of this machine"), "{errors}");
    assert_eq!(text(&output.stdout), "");
    let log = text(&served.stop(Signal::TERM).stderr);
    assert!(log.contains("the socket belongs to uid 54322"), "{log}");

    let served = Served::run_by(
        ALICE,
        &program.path(),
        &["--trust-local", "--squash", "none"],
        Say::Json,
    );
    fs::write(served.dir.join("file"), "alice's").unwrap();
    let output = program.as_user(BOB, &["cat", &served.url("file")]);
    assert_eq!(text(&output.stdout), "alice's", "{}", text(&output.stderr));
}

/// Two network namespaces with a link between them, gone when this is dropped.
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    /// Address of the server in the first one.
    const SERVER: &str = "10.77.0.1";

    /// None where there can be none.
    fn new() -> Option<Self> {
        let names = ["a", "b"].map(|name| format!("rpcrdma-{}-{name}", std::process::id()));
        let made = Self { names };
        let [a, b] = &made.names;
        let setup = format!(
            "ip netns add {a} && ip netns add {b} \
             && ip -n {a} link add veth0 type veth peer name veth0 netns {b} \
             && ip -n {a} addr add {}/24 dev veth0 && ip -n {b} addr add 10.77.0.2/24 dev veth0 \
             && ip -n {a} link set veth0 up && ip -n {b} link set veth0 up \
             && ip -n {a} link set lo up",
            Self::SERVER
        );
        let output = Command::new("sh").args(["-c", &setup]).output().unwrap();
        if output.status.success() {
            return Some(made);
        }
        let errors = text(&output.stderr);
        eprintln!("skipped: no network namespaces to be had: {errors}");
        None
    }

    /// Runs the program as a user in one of them.
    fn command(&self, index: usize, uid: u32, program: &Program) -> Command {
        let uid = uid.to_string();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[index], "setpriv"]);
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        command.arg(program.path());
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let deleted = Command::new("ip").args(["netns", "del", name]).output();
            drop(deleted);
        }
    }
}

#[test]
fn user_in_another_network_namespace_is_on_another_machine() {
    let Some(program) = Program::new() else {
        return;
    };
    let Some(namespaces) = Namespaces::new() else {
        return;
    };
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    fs::create_dir(&dir).unwrap();
    for path in [around.path(), &dir] {
        chown(path, Some(ALICE), Some(ALICE)).unwrap();
    }
    fs::write(dir.join("file"), "alice's").unwrap();
    let mut command = namespaces.command(0, ALICE, &program);
    command
        .args(["serve", "--json", "--mount-port", "0", "--listen"])
        .arg(format!("{}:0", Namespaces::SERVER))
        .args(["--allow", "10.77.0.0/24", "--state-dir"])
        .arg(around.path().join("state"))
        .arg(&dir);
    let served = Served::started(around, dir, command, Say::Json);
    let url = served.url("file");
    let cat = |index| {
        let mut command = namespaces.command(index, BOB, &program);
        command.args(["cat", &url]).output().unwrap()
    };
    // From there bob is believed, as everybody is there that --allow lets in.
    let output = cat(1);
    assert_eq!(text(&output.stdout), "alice's", "{}", text(&output.stderr));
    let output = cat(0);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
    let log = text(&served.stop(Signal::TERM).stderr);
    assert!(log.contains("the socket belongs to uid 54322"), "{log}");
}

#[test]
fn server_whose_exports_are_not_there_at_its_start_serves_every_user_later() {
    let Some(program) = Program::new() else {
        return;
    };
    let mut served = Served::configured(
        |around| {
            let later = around.join("later");
            format!("[[export]]\npath = {later:?}\nnofail = true\n")
        },
        &[],
    );
    let later = served.around.path().join("later");
    fs::create_dir(&later).unwrap();
    fs::write(later.join("file"), "everybody's").unwrap();
    served.hear("export is served, as it is there now");
    let output = program.as_user(BOB, &["cat", &served.url("later/file")]);
    assert_eq!(
        text(&output.stdout),
        "everybody's",
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn directories_that_their_owner_has_closed_are_copied_into_again() {
    let program = Program::new();
    let served = Served::new(&[]);
    let around = served.around.path();
    for dir in [around, &served.dir] {
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    }
    let run = |args: &[&str]| {
        let output = match &program {
            Some(program) => program.as_user(ALICE, args),
            None => Command::new(PROGRAM).args(args).output().unwrap(),
        };
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
    };
    let (source, back) = (around.join("tree"), served.beside("back"));
    served.local("tree/dir/file", b"first");
    served.local("tree/dir/other", b"other");
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (content, options) in [("first", "-rp"), ("second", "-rp"), ("third", "-r")] {
        fs::set_permissions(source.join("dir"), Permissions::from_mode(0o755)).unwrap();
        fs::write(source.join("dir/file"), content).unwrap();
        fs::set_permissions(source.join("dir"), Permissions::from_mode(0o555)).unwrap();
        run(&["put", options, source.to_str().unwrap(), &served.url("")]);
        run(&["get", options, "-T", &served.url("tree"), &back]);
        for copy in [served.dir.join("tree"), PathBuf::from(&back)] {
            let read = fs::read_to_string(copy.join("dir/file")).unwrap();
            assert_eq!((&*read, mode(copy.join("dir"))), (content, 0o555));
        }
    }
    for dir in [source, served.dir.join("tree"), PathBuf::from(&back)] {
        fs::set_permissions(dir.join("dir"), Permissions::from_mode(0o755)).unwrap();
    }
}
