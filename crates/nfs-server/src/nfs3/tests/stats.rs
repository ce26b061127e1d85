//! What is counted of calls.

use super::*;
use crate::{ErrorClass, ProcedureStats};

/// A peer of the program, and the program.
fn watched(mut peer: Peer) -> (Peer, Nfs3) {
    let nfs = Nfs3::new(peer.exports.clone(), Pool::new(0));
    peer.programs = Programs::new().with(nfs.clone());
    (peer, nfs)
}

fn procedure(nfs: &Nfs3, name: &str) -> ProcedureStats {
    let stats = nfs.stats();
    let mut procedures = stats.procedures.into_iter();
    procedures.find(|p| p.name == name).expect("it is known")
}

#[test]
fn calls_are_counted_by_procedure_and_failure() {
    let (peer, nfs) = watched(Peer::new());
    let file = create(&peer, "f");
    let object = place(peer.root(), "none");
    assert_eq!(status!(peer, args::Remove { object }), Status::NoEntry);
    call!(peer, args::GetAttr { object: file }).unwrap();
    peer.raw(
        oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc: Procedure::Remove as u32,
        },
        |_| {},
    );
    let counts = |name| {
        let procedure = procedure(&nfs, name);
        (procedure.calls, procedure.failed())
    };
    assert_eq!(counts("CREATE"), (1, 0));
    assert_eq!(counts("GETATTR"), (1, 0));
    assert_eq!(counts("NULL"), (0, 0));
    assert_eq!(counts("REMOVE"), (2, 2));
    let errors = procedure(&nfs, "REMOVE").errors;
    let failed: Vec<_> = errors.iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(failed, [&(ErrorClass::NotFound, 1), &(ErrorClass::Rpc, 1)]);
}

#[test]
fn jobs_are_counted_when_they_are_done_and_their_times_are_taken() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    let (peer, nfs) = watched(Peer::over(Arc::new(local), options));
    for name in ["a", "b", "c"] {
        create(&peer, name);
    }
    let create = procedure(&nfs, "CREATE");
    assert_eq!((create.calls, create.latency.count()), (3, 3));
    assert!(create.latency.sum > std::time::Duration::ZERO);
    assert!(nfs.open_files() >= 3);
}

#[test]
fn calls_that_come_again_are_hits_of_the_cache() {
    let (peer, nfs) = watched(Peer::new());
    create(&peer, "f");
    let again = Caller::new(peer.from.parse().unwrap());
    let target = oncrpc::Procedure {
        prog: NFS_PROGRAM,
        vers: NFS_V3,
        proc: Procedure::Remove as u32,
    };
    let object = place(peer.root(), "none");
    for _ in 0..3 {
        let call = peer.raw_call(target, |w| args::Remove { object }.write(w));
        peer.programs.call(call, &again);
    }
    let duplicates = nfs.duplicate_requests();
    assert_eq!((duplicates.misses, duplicates.hits), (2, 2));
    assert_eq!(duplicates.entries, 2);
    assert_eq!(nfs.duplicate_requests_on(again.connection), 2);
}
