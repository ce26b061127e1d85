//! Findings of `gateway --check`, which are those of a start.

use super::{Filer, Gateway, stuff};
use crate::running::{PROGRAM, fails, free_port, ok, run, text};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::process::{Command, Stdio};

#[test]
fn file_is_checked_without_being_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let path = file.to_str().unwrap();
    let pair = "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://127.0.0.1:1\"\n";
    std::fs::write(&file, format!("{pair}mount_port = 0\n")).unwrap();
    let said = ok(&["gateway", "--config", path, "--check", "--json"]);
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said["pairs"][0]["upstream"], "tcp://127.0.0.1:1");
    std::fs::write(&file, format!("[gateway]\nthreds = 2\n{pair}")).unwrap();
    let args = ["gateway", "--config", path, "--check"];
    fails(
        &args,
        78,
        "gateway.toml:2: gateway.threds: there is no such option",
    );
    std::fs::write(&file, format!("{pair}allow = [\"laptop!\"]\n")).unwrap();
    fails(&args, 78, "gateway.toml:4: pair[0].allow[0]: 'laptop!'");
    let same = "[[pair]]\nlisten = \"rdma://127.0.0.1:7\"\nupstream = \"tcp://127.0.0.1:1\"\n";
    std::fs::write(&file, same.repeat(2)).unwrap();
    fails(&args, 78, "have the same port");
}

#[test]
fn check_of_the_file_alone_finds_what_is_wrong_in_it_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let pair =
        "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://no-such-host.invalid\"\n";
    std::fs::write(&file, pair).unwrap();
    let all = ["gateway", "--config", file.to_str().unwrap(), "--check"];
    let alone = [&all[..3], &["--check=file"]].concat();
    fails(&all, 1, "cannot find this host");
    assert_eq!(text(&ok(&alone)), "");
    std::fs::write(&file, format!("{pair}alow = []\n")).unwrap();
    fails(&alone, 78, "gateway.toml:4: pair[0].alow: there is no key");
}

/// The lines that a command ends with, which has this code.
fn lines(args: &[&str], code: i32) -> Vec<String> {
    let output = run(args);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(text(&output.stdout), "");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn all_that_is_wrong_with_file_and_machine_is_said_in_one_run() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (taken, free) = (taken.local_addr().unwrap(), free_port());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let path = file.to_str().unwrap();
    let pair = |listen: &str, upstream: &str| {
        format!("[[pair]]\nlisten = \"rdma://{listen}\"\nupstream = \"tcp://{upstream}\"\n")
    };
    let of_machine =
        pair("127.0.0.1:0", "no-such-host.invalid") + &pair(&taken.to_string(), "127.0.0.1:1");
    let check = |text: &str, option: &str, code: i32, expected: &[&str]| {
        std::fs::write(&file, text).unwrap();
        let said = lines(&["gateway", "--config", path, option], code);
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (line, says) in said.iter().zip(expected) {
            assert!(line.contains(says), "{line}");
        }
    };
    let file_is_wrong = [
        "gateway.toml:2: gateway.threds: there is no such option",
        "gateway.toml:3: gateway.credits: 5000 is not in 1..=1024",
        "gateway.toml:13: pair[2].alow: there is no key alow",
        "gateway.toml:15: pair[3]: rdma://127.0.0.1:",
    ];
    let at = format!("127.0.0.1:{free}");
    let wrong = "[gateway]\nthreds = 2\ncredits = 5000\n".to_owned()
        + &of_machine
        + &pair(&at, "127.0.0.1:1")
        + "alow = []\n"
        + &pair(&at, "127.0.0.1:1");
    let machine_is_wrong = ["no-such-host.invalid", "is in use"];
    let all = [&file_is_wrong[..], &machine_is_wrong].concat();
    check(&wrong, "--check", 78, &all);
    check(&wrong, "--check=file", 78, &file_is_wrong);
    check(&wrong, "--json", 78, &file_is_wrong);
    check(&of_machine, "--check", 1, &machine_is_wrong);
    check(&of_machine, "--json", 1, &machine_is_wrong);
    check(&of_machine, "--check=file", 0, &[]);
}

#[test]
fn check_refuses_what_start_refuses() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!("rdma://{}", taken.local_addr().unwrap());
    let free = free_port();
    let (listen, itself) = (
        format!("rdma://0.0.0.0:{free}"),
        format!("tcp://127.0.0.1:{free}"),
    );
    let check = |args: &[&str], says: &str| {
        let words = ["gateway", "--allow", "127.0.0.1"];
        let (started, checked) = (
            [&words[..], args].concat(),
            [&words[..], args, &["--check"]].concat(),
        );
        fails(&checked, 1, says);
        fails(&started, 1, says);
        let errors = |args: &[&str]| text(&run(args).stderr);
        assert_eq!(errors(&checked), errors(&started));
    };
    let pair = |listen, upstream| ["--listen", listen, "--upstream", upstream];
    let (here, server) = ("rdma://127.0.0.1:0", "tcp://127.0.0.1:1");
    check(
        &pair(here, "tcp://no-such-host.invalid"),
        "cannot find this host",
    );
    check(&pair(&in_use, server), "is in use");
    check(
        &[&pair(here, server)[..], &["--provider", "verbs"]].concat(),
        "rdma://127.0.0.1:0: ",
    );
    check(&pair(&listen, &itself), "is where the pair itself listens");
    let port = free.to_string();
    let mount = ["--mount-port", &port, "--upstream-mount", &port];
    check(
        &[&pair(here, server)[..], &mount].concat(),
        "is where the pair itself passes MOUNT on from",
    );
}

#[test]
fn pairs_that_lead_back_to_themselves_are_refused_at_check_start_and_reload() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let (one, other) = (free_port(), free_port());
    let good = format!(
        "[[pair]]\nlisten = \"rdma://127.0.0.1:{one}\"\nupstream = \"{}\"\n",
        filer.url()
    );
    // A name of this machine leads to a listener on every address.
    let circle = format!(
        "[[pair]]\nlisten = \"rdma://127.0.0.1:{one}\"\nupstream = \"tcp://localhost:{other}\"\n\
         [[pair]]\nlisten = \"tcp://0.0.0.0:{other}\"\nallow = [\"127.0.0.1\"]\n\
         upstream = \"rdma://127.0.0.1:{one}\"\n"
    );
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("gateway.toml");
    let file = file.to_str().unwrap();
    std::fs::write(file, &circle).unwrap();
    let says = format!(
        "its server is the gateway itself: rdma://127.0.0.1:{one} to tcp://0.0.0.0:{other} to rdma://127.0.0.1:{one}"
    );
    fails(&["gateway", "--config", file, "--check"], 1, &says);
    fails(&["gateway", "--config", file], 1, &says);
    let mut gateway = Gateway::configured(&good);
    gateway.configure(&circle);
    gateway.signal(Signal::HUP);
    gateway.hear(&says);
    assert!(ok(&["cat", &gateway.url("stuff/file")]) == content);
}

#[test]
fn check_tries_the_port_of_metrics_too() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let listen = format!("rdma://127.0.0.1:{}", free_port());
    let sides = [
        "gateway",
        "--listen",
        &listen,
        "--upstream",
        "tcp://127.0.0.1:1",
    ];
    let check = |metrics: &str, says: &str| {
        fails(
            &[&sides[..], &["--check", "--metrics", metrics]].concat(),
            1,
            says,
        );
        fails(&[&sides[..], &["--metrics", metrics]].concat(), 1, says);
    };
    check(&port, &format!("port {port} of 127.0.0.1 is in use"));
    let own = listen.rsplit_once(':').unwrap().1;
    let same = [&sides[..], &["--check", "--metrics", own]].concat();
    fails(&same, 1, "is the port of a pair");
}

#[test]
fn check_warns_of_what_a_gateway_starts_with() {
    let mut file = "[[pair]]\nupstream = \"tcp://127.0.0.1:1\"\n".to_owned();
    file += &format!(
        "listen = \"rdma://127.0.0.1:{}\"\nallow = [\"no-such-host.invalid\"]\n",
        free_port()
    );
    let gateway = Gateway::configured(&file);
    let path = |name| gateway.around.path().join(name);
    let (file, socket) = (path("gateway.toml"), path("control.sock"));
    let said = ok(&[
        "gateway",
        "--config",
        file.to_str().unwrap(),
        "--control-socket",
        socket.to_str().unwrap(),
        "--check",
        "--json",
    ]);
    let said: Value = serde_json::from_slice(&said).unwrap();
    let warning = |at: usize| said["warnings"][at].as_str().unwrap();
    assert!(
        warning(0).contains("no-such-host.invalid has no address now"),
        "{said}"
    );
    let process = format!("gateway with process {}", gateway.child.id());
    assert!(warning(1).contains(&process), "{said}");
}

#[test]
fn check_beside_a_running_gateway_says_once_that_it_has_the_ports() {
    let pair = |port: u16| {
        format!(
            "[[pair]]\nlisten = \"rdma://127.0.0.1:{port}\"\nupstream = \"tcp://127.0.0.1:1\"\n"
        )
    };
    let (one, other) = (free_port(), free_port());
    let gateway = Gateway::configured(&(pair(one) + &pair(other)));
    let path = |name| gateway.around.path().join(name);
    let (file, socket) = (path("gateway.toml"), path("control.sock"));
    let check = [
        "gateway",
        "--check",
        "--json",
        "--config",
        file.to_str().unwrap(),
    ];
    let control = ["--control-socket", socket.to_str().unwrap()];
    let said = ok(&[&check[..], &control].concat());
    let said: Value = serde_json::from_slice(&said).unwrap();
    let [warning] = &said["warnings"].as_array().unwrap()[..] else {
        panic!("{said}");
    };
    let warning = warning.as_str().unwrap();
    let ports = format!("127.0.0.1:{one}, 127.0.0.1:{other}");
    assert!(warning.contains(&ports), "{warning}");
}

#[test]
fn check_says_what_a_start_says_of_the_control_socket_descriptors_and_the_transport() {
    let listen = format!("rdma://127.0.0.1:{}", free_port());
    let sides = [
        "gateway",
        "--listen",
        &listen,
        "--upstream",
        "rdma://127.0.0.1:2049",
    ];
    let nowhere = [&sides[..], &["--control-socket", "/nonexistent/x.sock"]].concat();
    let says = "/nonexistent/x.sock: cannot make the control socket: No such file or directory";
    fails(&nowhere, 1, says);
    fails(&[&nowhere[..], &["--check"]].concat(), 1, says);
    let limited = |more: &[&str]| {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n 128; exec \"$0\" \"$@\"", PROGRAM])
            .args(sides)
            .args(more);
        command
    };
    let checked = limited(&["--check"]).output().unwrap();
    let checked = text(&checked.stderr);
    let around = tempfile::tempdir().unwrap();
    let socket = around.path().join("control.sock");
    let mut gateway = Gateway::started(
        around,
        limited(&["--json", "--control-socket", socket.to_str().unwrap()]),
    );
    for says in [
        "is tcp://127.0.0.1:2049 meant?",
        "instead of 1024 (max_connections), as the limit of open files is 128: raise it to ",
    ] {
        assert!(checked.contains(says), "{checked}");
        gateway.hear(says);
    }
}

/// In a network and a /run of its own: what `--rpcbind --check` ends with without an rpcbind, with one, beside a gateway that
/// is registered, at its ports and at others; then what a start says where that gateway was killed.
const BESIDE_RPCBIND: &str = r#"
mount -t tmpfs none /run && ip link set lo up || exit
listen=127.0.0.1
pair() { port=$1; shift; exec "$program" gateway --listen rdma://$listen:$port --upstream tcp://127.0.0.1:1 \
    --mount-port $((port + 1)) --rpcbind "$@"; }
check() { echo "$1"; shift; (pair "$@" --check >/dev/null); echo "ends with $?"; }
program=$0
exec 2>&1
check "without rpcbind" 5001
rpcbind -f & rpcbind=$!
until [ -S /run/rpcbind.sock ]; do :; done
check "with rpcbind" 5001
pair 5001 --control-socket /run/control.sock >/dev/null & gateway=$!
until [ -S /run/control.sock ]; do :; done
check "the same ports" 5001 --control-socket /run/control.sock
check "other ports" 5003
check "other ports at a reload" 5003 --control-socket /run/control.sock
kill -9 $gateway
wait $gateway
rm /run/control.sock
pair 5001 --control-socket /run/control.sock >/dev/null & gateway=$!
until [ -S /run/control.sock ] || ! kill -0 $gateway; do :; done
echo "after a crash"
kill $gateway
wait $gateway
echo "ends with $?"
for port in 5001 5003; do
    pair $port --control-socket /run/$port.sock >/dev/null & gateway=$!
    until [ -S /run/$port.sock ] || ! kill -0 $gateway; do :; done
    [ $port = 5003 ] || kill -9 $gateway
    [ $port = 5003 ] || wait $gateway
done
echo "other ports after a crash"
rpcinfo -p 127.0.0.1 | grep 100005
kill $gateway
wait $gateway
echo "ends with $?"
listen=[::]
pair 5005 --allow 127.0.0.1 --control-socket /run/5005.sock >/dev/null & gateway=$!
until [ -S /run/5005.sock ] || ! kill -0 $gateway; do :; done
echo "both families"
rpcinfo 127.0.0.1 | awk '$1 >= 100003 { print $1, $3, $4 }'
kill $gateway
wait $gateway
echo "ends with $?"
"#;

#[test]
fn check_tries_rpcbind() {
    let has_rpcbind = Command::new("rpcbind").arg("-v").output().is_ok();
    if !rustix::process::geteuid().is_root() || !has_rpcbind {
        eprintln!("skipped: this needs root and rpcbind");
        return;
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount-proc", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-c", BESIDE_RPCBIND, PROGRAM])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let part = |name: &str| {
        let part = said.split_once(&format!("{name}\n")).unwrap().1;
        let (part, code) = part.split_once("ends with ").unwrap();
        (part.to_owned(), code.lines().next().unwrap().to_owned())
    };
    let check = |name: &str, code: &str, says: &str| {
        let (part, ended) = part(name);
        assert!(ended == code && part.contains(says), "{name}: {said}");
    };
    check(
        "without rpcbind",
        "1",
        "cannot register with rpcbind: start it",
    );
    check("with rpcbind", "0", "");
    check(
        "the same ports",
        "0",
        "a second gateway cannot start while it runs",
    );
    check(
        "other ports",
        "1",
        "cannot register with rpcbind, for 127.0.0.1:5001",
    );
    check(
        "other ports at a reload",
        "0",
        "is registered with rpcbind, for 127.0.0.1:5001",
    );
    check("after a crash", "0", "letting calls finish");
    check("other ports after a crash", "0", "5004");
    for registered in [
        "100003 rdma 0.0.0.0.19.141",
        "100003 rdma6 ::.19.141",
        "100005 tcp 0.0.0.0.19.142",
        "100005 tcp6 ::.19.142",
    ] {
        check("both families", "0", registered);
    }
}

#[test]
fn check_says_which_mount_is_passed_on_and_how_to_mount_with_each_version() {
    let (listen, mount) = (format!("rdma://127.0.0.1:{}", free_port()), free_port());
    let mount = mount.to_string();
    let check = |more: &[&str], says: &[&str]| {
        let sides = ["--listen", &listen, "--upstream", "tcp://127.0.0.1"];
        let said = text(&ok(&[&["gateway", "--check"][..], &sides, more].concat()));
        for part in says {
            assert!(said.contains(part), "{said}");
        }
    };
    check(&[], &["no MOUNT over TCP", "vers=4.2"]);
    check(
        &["--mount-port", &mount],
        &[
            "passed on to the port of MOUNT that rpcbind of 127.0.0.1 says, else 20048",
            "vers=4.2",
            "vers=3",
        ],
    );
    check(
        &["--mount-port", &mount, "--upstream-mount", "635"],
        &["passed on to port 635 of 127.0.0.1"],
    );
    check(
        &["--mount-port", &mount, "--upstream-mount", "192.0.2.1:635"],
        &["passed on to 192.0.2.1:635"],
    );
}

#[test]
fn check_gives_no_command_to_mount_with_a_port_that_is_chosen_at_the_start() {
    let sides = [
        "--listen",
        "rdma://127.0.0.1:0",
        "--upstream",
        "tcp://127.0.0.1",
    ];
    let check = [&["gateway", "--check", "--mount-port", "0"][..], &sides].concat();
    let said = text(&ok(&check));
    assert!(!said.contains("mount -t"), "{said}");
    for part in [
        "MOUNT over TCP at a port that is chosen at the start, passed on",
        "the start chooses the port, and says how to mount",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said: Value = serde_json::from_slice(&ok(&[&check[..], &["--json"]].concat())).unwrap();
    assert_eq!(said["pairs"][0]["mount"], serde_json::json!([]));
}

#[test]
fn addresses_of_one_host_share_its_port_of_mount() {
    let [rdma, tcp, mount] = [(); 3].map(|()| free_port());
    let urls = [
        format!("rdma://127.0.0.1:{rdma}"),
        format!("tcp://127.0.0.1:{tcp}"),
    ];
    let mount = mount.to_string();
    let args = [
        "gateway",
        "--check",
        "--listen",
        &urls[0],
        "--listen",
        &urls[1],
        "--upstream=rdma://127.0.0.1:9",
        "--mount-port",
        &mount,
    ];
    let said = text(&ok(&args));
    assert!(!said.contains("no MOUNT"), "{said}");
    let version_three = format!("mountport={mount},");
    assert_eq!(said.matches(&version_three).count(), 2, "{said}");
}
