//! MOUNT of servers that have it at another port than NFS, as filers do, over connections of NFS.

use super::{Filer, Gateway, stuff};
use crate::running::{fails, free_port, ok, text};
use std::fs;

#[test]
fn each_pair_behind_one_host_passes_on_mount_of_its_own_server() {
    let (one, _) = stuff();
    let (other, _) = stuff();
    let filers = [&one, &other].map(|dir| Filer::with_mount_apart(dir.path()));
    let pairs = filers.each_ref().map(|filer| {
        let (upstream, mount) = (filer.url(), filer.mount.port());
        format!(
            "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"{upstream}\"\nupstream_mount = \"{mount}\"\n"
        )
    });
    let gateway = Gateway::configured(&pairs.concat());
    let name = |pair: usize| format!("only-{pair}");
    for (pair, dir) in [&one, &other].into_iter().enumerate() {
        fs::create_dir(dir.path().join(name(pair))).unwrap();
        let listening = gateway.listening(pair);
        let exports = text(&ok(&["exports", &listening]));
        assert!(exports.starts_with("/stuff "), "{exports}");
        let listed = text(&ok(&["ls", &format!("nfs://{listening}/stuff/")]));
        assert!(listed.contains(&name(pair)), "{listed}");
        let local = gateway.around.path().join("local");
        fs::write(&local, name(pair)).unwrap();
        let to = format!("nfs://{listening}/stuff/put");
        ok(&["put", local.to_str().unwrap(), &to]);
    }
    for (pair, dir) in [&one, &other].into_iter().enumerate() {
        let put = fs::read_to_string(dir.path().join("put")).unwrap();
        assert_eq!(put, name(pair));
    }
}

#[test]
fn mount_at_an_unknown_place_is_said_and_not_taken_from_another_server() {
    let (dir, _) = stuff();
    let filer = Filer::with_mount_apart(dir.path());
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &[]);
    let why = "upstream_mount of the gateway or --mount-port here names the place";
    let listening = gateway.listening(0);
    fails(&["exports", &listening], 1, why);
    fails(&["ls", &gateway.url("stuff/")], 1, why);
    let said =
        gateway.hear("does not answer, and MOUNT of 127.0.0.1 may be that of another server");
    assert!(said.contains("--upstream-mount names the place"), "{said}");
    // Who knows the place can still name it.
    let port = filer.mount.port().to_string();
    let exports = text(&ok(&["exports", "--mount-port", &port, &listening]));
    assert!(exports.starts_with("/stuff "), "{exports}");
}

#[test]
fn mount_that_cannot_be_reached_is_an_error_of_the_gateway() {
    let (dir, _) = stuff();
    let filer = Filer::with_mount_apart(dir.path());
    let port = free_port().to_string();
    let place = ["--upstream-mount", &port];
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &place);
    fails(
        &["exports", &gateway.listening(0)],
        1,
        "cannot list the exports",
    );
    gateway.hear("MOUNT of the server cannot be reached");
    assert_eq!(gateway.counter("mount_unanswered"), 1);
}
