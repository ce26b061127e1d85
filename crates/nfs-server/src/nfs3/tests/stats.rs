//! Counts of calls.

use super::*;
use crate::{ErrorClass, ExportStats, OperationClass, ProcedureStats};

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

/// Operations of the only export by class.
fn operations(stats: &[ExportStats]) -> [u64; OperationClass::ALL.len()] {
    let [export] = stats else { panic!("{stats:?}") };
    assert_eq!(export.name.as_deref(), Some("/data"));
    export.operations.map(|(_, count)| count)
}

#[test]
fn operations_are_counted_for_their_export_whether_they_wait_or_not() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let file_systems: [Arc<dyn FileSystem>; 2] = [Arc::new(MemFs::new(1 << 20)), Arc::new(local)];
    for fs in file_systems {
        let options = ExportOptions::default().with_squash(Squash::None);
        let (peer, nfs) = watched(Peer::over(fs, options));
        let file = create(&peer, "f");
        call!(peer, write_args(file, 0, b"seven b")).unwrap();
        let read = peer.payload(&read_args(file, 2, 100));
        assert_eq!(read_reply(&read, 7).unwrap().u32(), Ok(0));
        call!(peer, args::GetAttr { object: file }).unwrap();
        let object = place(peer.root(), "none");
        assert_eq!(status!(peer, args::Remove { object }), Status::NoEntry);
        let stats = nfs.export_stats();
        assert_eq!(operations(&stats), [1, 1, 1, 2]);
        assert_eq!((stats[0].bytes_read, stats[0].bytes_written), (5, 7));
        let errors = stats[0].errors.iter().filter(|(_, count)| *count > 0);
        let errors: Vec<_> = errors.collect();
        assert_eq!(errors, [&(ErrorClass::NotFound, 1)]);
    }
}

#[test]
fn counts_of_an_export_go_on_while_it_is_absent_and_in_a_replaced_list() {
    let (peer, nfs) = watched(Peer::new());
    let root = peer.root();
    let get = || args::GetAttr { object: root };
    call!(peer, get()).unwrap();
    let absent = peer.exports.none();
    let absent = absent.with_absent("/data", "no disk", ExportOptions::default());
    peer.exports.replace(&absent.unwrap());
    assert_eq!(status!(peer, get()), Status::Jukebox);
    let stats = nfs.export_stats();
    assert_eq!(operations(&stats), [0, 0, 2, 0]);
    assert!(stats[0].errors.contains(&(ErrorClass::Jukebox, 1)));
    peer.exports.replace(&peer.exports.none());
    assert_eq!(status!(peer, get()), Status::Stale);
    assert_eq!(nfs.export_stats(), []);
}
