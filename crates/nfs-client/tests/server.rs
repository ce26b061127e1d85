//! The client against the project's own server, file systems and all.

mod fake;

use bytes::Bytes;
use fake::{Carry, Direct, bytes};
use nfs_client::{Export, Mount, current_user};
use nfs_proto::{FileType, SetAttributes, Status};
use nfs_server::{
    ExportOptions, Exports, FileSystem, HandleKey, LocalFs, LocalFsOptions, MemFs, Mount3, Nfs3,
    Squash,
};
use oncrpc::{Programs, Transport};
use rpcrdma::{ClientConfig, ServerConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use verbs::Provider;
use verbs_iwarp::Iwarp;
use verbs_sim::{Cut, EndOptions, Fabric};

/// A server with this file system as `/data`.
fn server(fs: Arc<dyn FileSystem>) -> Arc<Programs> {
    let options = ExportOptions::default().with_squash(Squash::None);
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/data", fs, options)
        .unwrap();
    let programs = Programs::new()
        .with(Nfs3::new(exports.clone(), buffer::Pool::new(1 << 20)))
        .with(Mount3::new(exports));
    Arc::new(programs)
}

/// The export of a server, by two transports to it.
async fn mounted<T: Transport + Send + Sync>(for_mount: T, for_nfs: T) -> Export<T> {
    let mount = Mount::new(for_mount, current_user());
    let (mounted, rest) = mount.mount_above("/data/some/file").await.unwrap();
    assert_eq!(rest, b"some/file");
    let list = mount.mounts().await.unwrap();
    assert!(list.is_empty(), "no mount stays in the server's list");
    Export::open(for_nfs, current_user(), mounted.handle)
        .await
        .unwrap()
}

async fn direct(fs: Arc<dyn FileSystem>, carry: Carry) -> Export<Direct> {
    let server = server(fs);
    mounted(
        Direct::new(server.clone(), carry),
        Direct::new(server, carry),
    )
    .await
}

async fn over_tcp(fs: Arc<dyn FileSystem>) -> Export<oncrpc_tcp::Client> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let limits = oncrpc_tcp::Limits {
        record: 2 << 20,
        ..oncrpc_tcp::Limits::default()
    };
    let server = oncrpc_tcp::Server::new(listener, server(fs), limits);
    tokio::spawn(server.run(std::future::pending()));
    let connect = || oncrpc_tcp::Client::connect(addr, Duration::from_secs(60));
    mounted(connect().await.unwrap(), connect().await.unwrap()).await
}

/// A client over RDMA, and the server that lives as long as this.
async fn over_rdma(
    provider: Arc<dyn Provider>,
    fs: Arc<dyn FileSystem>,
) -> (rpcrdma::Server, Export<rpcrdma::Client>) {
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig::default();
    let server = rpcrdma::Server::bind(provider.clone(), anywhere, server(fs), config)
        .await
        .unwrap();
    let config = ClientConfig::default().with_reconnect_first(Duration::from_millis(1));
    let client = rpcrdma::Client::connect(provider, server.local_addr(), config)
        .await
        .unwrap();
    (server, mounted(client.clone(), client).await)
}

fn simulated() -> Arc<dyn Provider> {
    Arc::new(Fabric::new(5).provider(EndOptions::default()))
}

fn memory() -> Arc<dyn FileSystem> {
    Arc::new(MemFs::new(1 << 30))
}

/// A directory whose file system is in memory, if there is one: NFS syncs after each change.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Runs a test with each file system and each way of carrying data.
macro_rules! everywhere {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn in_memory_by_reference() {
                super::$name(direct(memory(), Carry::Apart).await).await;
            }

            #[tokio::test]
            async fn in_memory_inline() {
                super::$name(direct(memory(), Carry::Inline).await).await;
            }

            #[tokio::test]
            async fn in_a_directory() {
                let dir = directory();
                let fs = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
                super::$name(direct(Arc::new(fs), Carry::Apart).await).await;
            }

            #[tokio::test]
            async fn over_tcp() {
                super::$name(super::over_tcp(memory()).await).await;
            }

            #[tokio::test]
            async fn over_simulated_rdma() {
                let (_server, export) = super::over_rdma(simulated(), memory()).await;
                super::$name(export).await;
            }

            #[tokio::test]
            async fn over_iwarp() {
                let provider = Arc::new(Iwarp::default());
                let (_server, export) = super::over_rdma(provider, memory()).await;
                super::$name(export).await;
            }

            #[tokio::test]
            async fn in_a_directory_over_iwarp() {
                let dir = directory();
                let fs = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
                let provider = Arc::new(Iwarp::default());
                let (_server, export) = super::over_rdma(provider, Arc::new(fs)).await;
                super::$name(export).await;
            }
        }
    )*};
}

everywhere!(
    random_tree_is_written_listed_compared_and_removed,
    sparse_file_has_zeroes_where_nothing_was_written,
    upload_replaces_what_was_there,
    many_pages_of_entries_are_listed_once,
    refusals_are_those_of_the_server,
);

#[tokio::test]
async fn streams_survive_connections_that_break() {
    let faults = verbs_sim::Faults {
        cut: Some(Cut::Messages(30)),
        ..Default::default()
    };
    let end = EndOptions {
        faults,
        ..EndOptions::default()
    };
    let provider = Arc::new(Fabric::new(6).provider(end));
    let (server, export) = over_rdma(provider, memory()).await;
    // So that some calls are answered on each connection: one that meets too many cuts fails.
    let tuning = export.tuning().with_depth(8);
    let export = export.with_tuning(tuning);
    let data = bytes(24 << 20, 7);
    let how = nfs_proto::args::CreateHow::Exclusive(nfs_proto::CreateVerifier(*b"verifier"));
    let mut stream = export.create("/file", how).await.unwrap();
    for piece in data.chunks(3 << 20) {
        let piece = Bytes::copy_from_slice(piece);
        stream
            .write(std::iter::once(piece).collect())
            .await
            .unwrap();
    }
    stream.finish().await.unwrap();
    assert!(export.read_all("/file", 1 << 30).await.unwrap() == data);
    assert!(server.stats().accepted > 2, "connections did break");
}

/// A tree of directories and files: path to data, nothing for a directory.
fn tree(seed: u64) -> BTreeMap<String, Option<Vec<u8>>> {
    let numbers = bytes(600, seed);
    let mut tree = BTreeMap::new();
    let mut dirs = vec![String::new()];
    for (number, random) in numbers.chunks(3).enumerate() {
        let dir = dirs[usize::from(random[0]) % dirs.len()].clone();
        let path = format!("{dir}/{number}-{}", "n".repeat(usize::from(random[1] % 60)));
        if random[1] % 4 == 0 {
            dirs.push(path.clone());
            tree.insert(path, None);
        } else {
            let len = match random[2] {
                0..8 => 3_000_000 + usize::from(random[2]),
                8..200 => usize::from(random[2]) * 37,
                _ => 0,
            };
            tree.insert(path, Some(bytes(len, number as u64)));
        }
    }
    tree
}

async fn random_tree_is_written_listed_compared_and_removed<T: Transport + Send + Sync>(
    export: Export<T>,
) {
    let tree = tree(20);
    for (path, data) in &tree {
        match data {
            None => export
                .make_dir(path, SetAttributes::default())
                .await
                .unwrap(),
            Some(data) => export
                .write_all(path, data.clone(), mode(0o640))
                .await
                .unwrap(),
        }
    }
    let mut walk = export.walk("/").await.unwrap();
    let mut found = BTreeMap::new();
    while let Some(entry) = walk.next().await.unwrap() {
        let path = String::from_utf8(entry.path).unwrap();
        let data = match entry.node.attributes.file_type {
            FileType::Directory => None,
            _ => {
                assert_eq!(entry.node.attributes.mode, 0o640);
                Some(export.read_all(&path, 1 << 30).await.unwrap())
            }
        };
        found.insert(path, data);
    }
    assert!(found == tree, "what is read is what was written");
    for entry in export.entries("/").await.unwrap() {
        export.remove_all(&entry.name, unexpected).await.unwrap();
    }
    assert!(export.entries("/").await.unwrap().is_empty());
}

async fn sparse_file_has_zeroes_where_nothing_was_written<T: Transport + Send + Sync>(
    export: Export<T>,
) {
    let how = nfs_proto::args::CreateHow::Guarded(mode(0o600));
    let mut stream = export.create("/sparse", how).await.unwrap();
    stream
        .write(std::iter::once(Bytes::from_static(b"begin")).collect())
        .await
        .unwrap();
    stream.skip(3_000_000);
    stream
        .write(std::iter::once(Bytes::from_static(b"end")).collect())
        .await
        .unwrap();
    stream.finish().await.unwrap();
    let mut expected = vec![0; 3_000_008];
    expected[..5].copy_from_slice(b"begin");
    expected[3_000_005..].copy_from_slice(b"end");
    assert!(export.read_all("/sparse", 1 << 30).await.unwrap() == expected);
}

async fn upload_replaces_what_was_there<T: Transport + Send + Sync>(export: Export<T>) {
    export
        .write_all("/file", bytes(5000, 1), mode(0o600))
        .await
        .unwrap();
    export
        .write_all("/file", bytes(300, 2), mode(0o644))
        .await
        .unwrap();
    assert_eq!(export.read_all("/file", 5000).await.unwrap(), bytes(300, 2));
    assert_eq!(export.stat("/file").await.unwrap().attributes.mode, 0o644);
    assert_eq!(
        export.entries("/").await.unwrap().len(),
        1,
        "nothing temporary is left"
    );
}

async fn many_pages_of_entries_are_listed_once<T: Transport + Send + Sync>(export: Export<T>) {
    // A page has about twenty entries.
    let tuning = export.tuning().with_list_size(4096);
    let export = export.with_tuning(tuning);
    export
        .make_dir("/many", SetAttributes::default())
        .await
        .unwrap();
    for number in 0..600 {
        export
            .symlink("target", format!("/many/entry-{number}"))
            .await
            .unwrap();
    }
    let mut names: Vec<_> = export
        .entries("/many")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| String::from_utf8(entry.name).unwrap())
        .collect();
    names.sort_by_key(|name| name[6..].parse::<u32>().unwrap());
    let expected: Vec<_> = (0..600).map(|number| format!("entry-{number}")).collect();
    assert_eq!(names, expected);
    export.remove_all("/many", unexpected).await.unwrap();
}

async fn refusals_are_those_of_the_server<T: Transport + Send + Sync>(export: Export<T>) {
    let status = |error: nfs_client::Error| error.status().unwrap();
    export
        .make_dirs("/dir/sub", SetAttributes::default())
        .await
        .unwrap();
    export
        .write_all("/file", b"data".to_vec(), mode(0o600))
        .await
        .unwrap();
    assert_eq!(
        status(export.remove_dir("/dir").await.unwrap_err()),
        Status::NotEmpty
    );
    assert_eq!(
        status(export.stat("/nothing").await.unwrap_err()),
        Status::NoEntry
    );
    assert_eq!(
        status(export.list("/file").await.err().unwrap()),
        Status::NotDirectory
    );
    assert_eq!(
        status(export.stat("/file/below").await.unwrap_err()),
        Status::NotDirectory
    );
    assert_eq!(
        status(export.make_dir("/dir", mode(0o700)).await.unwrap_err()),
        Status::Exist
    );
    let forged = nfs_proto::FileHandle::new(&[7; 40]).unwrap();
    let fault = export.nfs().get_attributes(forged).await.unwrap_err();
    assert!(
        matches!(
            fault,
            nfs_client::Fault::Status(Status::BadHandle | Status::Stale)
        ),
        "{fault}"
    );
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

/// Takes what cannot be removed where everything can.
fn unexpected(error: nfs_client::Error) {
    panic!("{error}");
}
