//! `devices` on the machine of the tests. With devices it is tested in a guest: `cargo xtask interop --only
//! verbs-devices`.

use crate::running::{PROGRAM, Served, fails, run, text};
use serde_json::Value;
use std::fs;
use std::process::Command;

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
    fails(
        &["ls", "--provider=iwarp", "--device=rxe0", url],
        2,
        "--device names an RDMA device, which --provider iwarp does not use",
    );
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let commands = [["ls", url], ["probe", "192.0.2.1"], ["serve", dir]];
    // A device that is named is used, or it is an error.
    let options = ["--provider=verbs", "--provider=auto", "--log=warn"];
    for (command, option) in commands
        .iter()
        .flat_map(|c| options.map(|option| (c, option)))
    {
        let args = [&command[..], &[option, "--device=no-such-device"]].concat();
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

/// Whether the kernel of this machine has RDMA devices.
pub(crate) fn has_devices() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some())
}

#[test]
fn machine_without_a_device_uses_software_and_loads_no_library() {
    if has_devices() {
        eprintln!("skipped: this machine has RDMA devices");
        return;
    }
    let named = [
        "ls",
        "--provider=auto",
        "--device=mlx5_7",
        "nfs://192.0.2.1/",
    ];
    let errors = text(&run(&named).stderr);
    let says = [
        "no RDMA device mlx5_7: this machine has none",
        "without --provider verbs and --device, software iWARP is used",
    ];
    assert!(says.iter().all(|says| errors.contains(says)), "{errors}");
    let served = Served::new(&["--provider", "auto"]);
    let said: Value = serde_json::from_str(&served.said).unwrap();
    let listeners = said["listeners"].as_array().unwrap();
    assert_eq!(listeners.len(), 1, "{said}");
    assert_eq!(listeners[0]["provider"], "iwarp");
    assert_eq!(listeners[0]["address"], said["listening"]);
    for command in ["ping", "probe"] {
        // The dynamic linker tells which libraries it looks for.
        let output = Command::new(PROGRAM)
            .args([command, "-c1", "--json", &served.listening])
            .env("LD_DEBUG", "libs")
            .output()
            .unwrap();
        let (printed, libraries) = (text(&output.stdout), text(&output.stderr));
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["provider"], "iwarp", "{printed}");
        assert!(
            printed.get("device").is_none_or(Value::is_null),
            "{printed}"
        );
        for library in ["ibverbs", "rdmacm"] {
            assert!(!libraries.contains(library), "{libraries}");
        }
    }
}
