//! `devices` on the machine of the tests. With devices it is tested in a guest: `cargo xtask interop --only
//! verbs-devices`.

use crate::running::{fails, run, text};
use std::fs;

#[test]
fn machine_without_rdma_is_told_what_to_do_in_one_line() {
    let devices = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    let output = run(&["devices"]);
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    if devices > 0 && output.status.success() {
        assert!(printed.starts_with("device "), "{printed}");
        assert!(printed.lines().count() > devices, "{printed}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("rpcrdma: "), "{errors}");
    if devices == 0 {
        assert_eq!(
            (printed.as_str(), errors.lines().count()),
            ("", 1),
            "{errors}"
        );
        let remedies = [
            "install libibverbs1",
            "rdma link add rxe0 type rxe netdev eth0",
        ];
        let named = remedies.iter().any(|remedy| errors.contains(remedy));
        assert!(named, "{errors}");
        let json = text(&run(&["devices", "--json"]).stderr);
        assert!(json.starts_with("{\"error\":\""), "{json}");
    }
}

#[test]
fn provider_for_devices_says_what_it_needs() {
    let url = "nfs://192.0.2.1/";
    let output = run(&["ls", "--device=rxe0", url]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("--device needs --provider verbs"),
        "{errors}"
    );
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for command in [["ls", url], ["serve", dir]] {
        let args = [
            &command[..],
            &["--provider=verbs", "--device=no-such-device"],
        ]
        .concat();
        let output = run(&args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let remedies = [
            "install libibverbs1",
            "rdma link add rxe0",
            "there are: ",
            "modprobe",
        ];
        let named = remedies.iter().any(|remedy| errors.contains(remedy));
        assert!(named, "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn provider_that_a_client_chooses_is_refused_by_serve() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for more in [&[][..], &["--check"]] {
        let args = [&["serve", dir, "--provider=auto"][..], more].concat();
        fails(&args, 2, "serve listens over --provider iwarp or verbs");
    }
}
