//! Errors say what was wrong and what to do, and the server goes on.

use crate::copies::fifo;
use crate::running::{PROGRAM, Served, fails, free_port, ok, run, text, tree};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn absent_server_is_reported_with_how_to_start_one() {
    let addr = format!("127.0.0.1:{}", free_port());
    let says = "no server there (start one with";
    fails(&["ls", &format!("nfs://{addr}/")], 1, says);
    fails(&["ping", "-c", "1", &addr], 1, says);
}

#[test]
fn server_of_plain_tcp_is_recognised() {
    let served = Served::new(&[]);
    let url = format!("nfs://127.0.0.1:{}/", served.mount_port);
    fails(&["ls", &url], 1, "is this the plain NFS/TCP port?");
}

#[test]
fn invalid_command_line_exits_with_code_2() {
    fails(&["ls"], 2, "URL");
    fails(&["ls", "http://127.0.0.1/"], 2, "nfs://HOST/PATH");
    fails(&["ls", "nfs://127.0.0.1/a%2Fb"], 2, "is in no name");
    fails(&["get", "file"], 2, "no argument is an nfs:// URL");
    fails(&["ping", "127.0.0.1:0"], 2, "1 to 65535");
    fails(
        &["serve", "--listen", "0.0.0.0"],
        2,
        "--allow 192.168.1.0/24",
    );
    fails(&["serve", "--allow", "10.0.0.1/8"], 2, "10.0.0.0/8");
    fails(&["serve", "--credits", "0"], 2, "credits");
    fails(&["serve", "--inline-size", "1023"], 2, "1024 to 262144");
    fails(
        &["serve", "/a=.", "/a=."],
        2,
        "two exports would be named /a",
    );
}

#[test]
fn directory_that_cannot_be_served_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    fails(
        &["serve", missing],
        1,
        &format!("rpcrdma: {missing}: cannot be served: No such file or directory\n"),
    );
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    fails(
        &["serve", file.to_str().unwrap()],
        1,
        "it is not a directory",
    );
}

#[test]
fn port_in_use_is_said_with_what_to_do() {
    let served = Served::new(&[]);
    let state = served.beside("other-state");
    let dir = served.dir.to_str().unwrap();
    let serve = ["serve", dir, "--state-dir", &state];
    let taken = [
        &serve[..],
        &["--listen", &served.listening, "--mount-port", "0"],
    ]
    .concat();
    fails(&taken, 1, "is in use");
    let mount_port = served.mount_port.to_string();
    let taken = [
        &serve[..],
        &["--listen", "127.0.0.1:0", "--mount-port", &mount_port],
    ]
    .concat();
    fails(&taken, 1, "choose another port with --mount-port");
}

#[test]
fn refusals_of_the_server_are_reported_with_the_reason() {
    let served = Served::new(&[]);
    fs::create_dir(served.dir.join("dir")).unwrap();
    let file = served.local("file", b"x");
    let url = |path: &str| served.url(path);
    fails(&["cat", &url("missing")], 1, "no such file or directory");
    fails(&["cat", &url("dir")], 1, "is a directory");
    fails(&["get", &url("dir"), "."], 1, "copy it with -r");
    fails(
        &["put", &served.beside("missing"), &url("")],
        1,
        "cannot read",
    );
    fails(&["put", &file, &url("missing/")], 1, "is not a directory");
    fails(
        &["put", served.around.path().to_str().unwrap(), &url("")],
        1,
        "with -r",
    );
    fails(&["put", &file, &url(&"n".repeat(256))], 1, "name too long");
    fails(&["rm", &url("dir")], 1, "remove it with -r");
    fails(&["rm", "-r", &url("")], 1, "root of an export");
    fails(&["mkdir", &url("dir")], 1, "file exists");
    fails(&["mv", &url("missing"), &url("dir")], 1, "no such file");
    fails(&["ln", &url("dir"), &url("other")], 1, "cannot link");
    // One that fails does not keep the others from being done.
    fs::write(served.dir.join("b"), "b").unwrap();
    fails(&["rm", &url("missing"), &url("b")], 1, "no such file");
    assert!(!served.dir.join("b").exists());
}

#[test]
fn errors_name_the_export_and_where_exports_are_listed() {
    let two = Served::configured(
        |around| {
            let export = |name: &str| {
                let dir = around.join(name);
                fs::create_dir_all(&dir).unwrap();
                format!("[[export]]\npath = {dir:?}\n")
            };
            export("stuff") + &export("other")
        },
        &[],
    );
    let lists = format!("no such export (`rpcrdma exports {}` lists", two.listening);
    fails(&["cat", &two.url("missing/file")], 1, &lists);
    let missing = two.url("stuff/dir/missing");
    let says = format!("rpcrdma: {missing}: cannot read: no such file or directory\n");
    fails(&["cat", &missing], 1, &says);
    let none = two.url("stuff/none");
    let says = format!("rpcrdma: {none}: cannot remove: no such file or directory\n");
    fails(&["rm", &none], 1, &says);
    // As `/`, what is exported alone has no name.
    let one = Served::new(&[]);
    let missing = one.url("missing");
    fails(
        &["cat", &missing],
        1,
        &format!("rpcrdma: {missing}: cannot read: "),
    );
}

#[test]
fn file_that_cannot_be_copied_does_not_keep_others_from_being_copied() {
    let served = Served::new(&[]);
    for number in 0..300 {
        served.local(&format!("from/{number}"), b"content");
    }
    let from = served.around.path().join("from");
    let fifo_at_150 = |dir: &Path| {
        fs::remove_file(dir.join("150")).unwrap();
        fifo(&dir.join("150"));
    };
    fifo_at_150(&from);
    let put = ["put", "-r", from.to_str().unwrap(), &served.url("")];
    fails(&put, 1, "from/150 is a fifo, which is not copied");
    let there = served.dir.join("from");
    let copied = |(_, content): &&(_, Vec<u8>)| content == b"content";
    assert_eq!(tree(&there).iter().filter(copied).count(), 299);
    assert_eq!(tree(&there).len(), 299, "nothing temporary is left");

    fifo(&there.join("150"));
    let to = served.beside("to");
    let get = ["get", "-r", &served.url("from"), &to];
    fails(&get, 1, "150 is a fifo, which is not copied");
    let there = tree(Path::new(&to));
    assert_eq!(there.iter().filter(copied).count(), 299);
}

#[test]
fn tree_that_has_no_directory_to_go_to_is_reported_once() {
    let served = Served::new(&[]);
    for number in 0..300 {
        served.local(&format!("from/{number}"), b"content");
        served.local(&format!("from/below/{number}"), b"content");
    }
    fs::write(served.dir.join("from"), b"no directory").unwrap();
    let output = run(&["put", "-r", &served.beside("from"), &served.url("")]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.matches("which is a file").count(), 1, "{errors}");
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert_eq!(fs::read(served.dir.join("from")).unwrap(), b"no directory");
}

#[test]
fn tree_is_removed_but_for_what_cannot_be() {
    // Run by root, the server takes callers for nobody; else it acts as the owner.
    let served = Served::new(&["--squash", "all"]);
    let allow = |dir: &str, mode| {
        fs::set_permissions(served.dir.join(dir), fs::Permissions::from_mode(mode)).unwrap();
    };
    for dir in ["a-locked", "free/deep"] {
        fs::create_dir_all(served.dir.join("top").join(dir)).unwrap();
        fs::write(served.dir.join("top").join(dir).join("file"), "").unwrap();
    }
    for dir in ["", "top", "top/free", "top/free/deep"] {
        allow(dir, 0o777);
    }
    allow("top/a-locked", 0o555);
    let locked = served.url("top/a-locked/file");
    let says = format!("rpcrdma: {locked}: cannot remove: permission denied (");
    fails(&["rm", "-r", &served.url("top")], 1, &says);
    assert!(!served.dir.join("top/free").exists());
    assert!(served.dir.join("top/a-locked/file").exists());
    allow("top/a-locked", 0o755);
}

#[test]
fn read_only_export_is_not_changed() {
    let served = Served::new(&["--read-only"]);
    fs::write(served.dir.join("file"), "before").unwrap();
    let file = served.local("new", b"after");
    fails(
        &["put", &file, &served.url("file")],
        1,
        "read-only file system",
    );
    fails(&["rm", &served.url("file")], 1, "read-only file system");
    fails(&["mkdir", &served.url("dir")], 1, "read-only file system");
    fs::create_dir(served.around.path().join("tree")).unwrap();
    let says = format!("{}: cannot make directory", served.url("tree"));
    fails(
        &["put", "-r", &served.beside("tree"), &served.url("")],
        1,
        &says,
    );
    assert_eq!(ok(&["cat", &served.url("file")]), b"before");
}

#[test]
fn link_in_the_export_does_not_lead_out_of_it() {
    let served = Served::new(&[]);
    served.local("secret", b"secret");
    std::os::unix::fs::symlink("../secret", served.dir.join("up")).unwrap();
    std::os::unix::fs::symlink(served.beside("secret"), served.dir.join("there")).unwrap();
    fails(&["cat", &served.url("up")], 1, "no such file");
    fails(&["cat", &served.url("there")], 1, "no such file");
    fails(&["cat", &served.url("../secret")], 1, "no such file");
}

#[test]
fn address_that_is_not_allowed_is_not_served() {
    let served = Served::new(&["--allow", "192.0.2.0/24"]);
    fails(&["ls", &served.url("")], 1, "this address is not allowed");
    let mut mount = TcpStream::connect(("127.0.0.1", served.mount_port)).unwrap();
    assert!(matches!(mount.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn garbage_and_silence_do_not_disturb_others() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), "content").unwrap();
    let _silent = TcpStream::connect(&served.listening).unwrap();
    let mut garbage = TcpStream::connect(&served.listening).unwrap();
    garbage.write_all(&[0xa5; 4096]).unwrap();
    let mut rest = Vec::new();
    // It is told so or not, but it is let go.
    let _ = garbage.read_to_end(&mut rest);
    assert_eq!(ok(&["cat", &served.url("file")]), b"content");
}

#[test]
fn closed_pipe_is_no_error() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), vec![b'x'; 8 << 20]).unwrap();
    let mut cat = std::process::Command::new(env!("CARGO_BIN_EXE_rpcrdma"))
        .args(["cat", &served.url("file")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = cat.stdout.take().unwrap();
    out.read_exact(&mut [0; 10]).unwrap();
    drop(out);
    let output = cat.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

/// A shell that runs a command with a limit of file sizes, of 100 or 200 KiB.
const LIMITED: [&str; 4] = ["sh", "-c", "ulimit -f 200 && exec \"$@\"", "sh"];

#[test]
fn write_beyond_the_limit_of_file_sizes_is_an_error_to_the_client() {
    let served = Served::under(&LIMITED);
    let file = served.beside("file");
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    fails(&["put", &file, &served.url("")], 1, "file too large");
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), 0);
    fs::write(&file, "small").unwrap();
    ok(&["put", &file, &served.url("")]);
    assert_eq!(fs::read(served.dir.join("file")).unwrap(), b"small");
}

#[test]
fn get_beyond_the_limit_of_file_sizes_leaves_nothing_behind() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), vec![b'x'; 1 << 20]).unwrap();
    let dest = tempfile::tempdir().unwrap();
    let mut get = std::process::Command::new(LIMITED[0]);
    get.args(&LIMITED[1..])
        .args([PROGRAM, "get", &served.url("file")]);
    let output = get.arg(dest.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert_eq!(fs::read_dir(dest.path()).unwrap().count(), 0);
}
