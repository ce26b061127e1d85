//! Copies to and from a server in the same process.

use nfs_client::{Export, Mount, NfsUrl, current_user};
use nfs_copy::{
    Connection, Control, Destination, Ended, Error, Event, Events, Exclude, LocalTarget, Options,
    Place, Places, ServerTarget, Source, Stop, Stream, cp, export_path, get, put,
};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use rpcrdma::{Client, ClientConfig, Programs, Server, ServerConfig};
use std::any::Any;
use std::fs;
use std::future::pending;
use std::io::{self, Read, Seek};
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use verbs_iwarp::Iwarp;

/// Bytes of the largest call over TCP: a WRITE of as much as the server takes.
const RECORD: usize = nfs_server::MAX_WRITE as usize + 4096;

/// Steps of times in the export `/steps`, in nanoseconds: none that can be seen by the times themselves.
const STEP: u32 = 3_000_000;

/// NFS and MOUNT for two exports, `/data` and `/steps`.
fn programs() -> Arc<Programs> {
    let exports = Exports::new(HandleKey::random().unwrap());
    let files = Arc::new(MemFs::new(64 << 20));
    let exports = exports.with("/data", files, ExportOptions::default());
    let step = NonZeroU32::new(STEP).unwrap();
    let in_steps = MemFs::new(1 << 20).keeping_times_in_steps_of(step);
    let exports = exports
        .and_then(|exports| exports.with("/steps", Arc::new(in_steps), ExportOptions::default()));
    let exports = exports.unwrap();
    let nfs = Nfs3::new(exports.clone(), buffer::Pool::new(1 << 20));
    Arc::new(Programs::new().with(nfs).with(Mount3::new(exports)))
}

/// A server of two exports, `/data` and `/steps`, and a connection to it.
struct Served {
    /// Ends the server when it is dropped.
    _server: Box<dyn Any>,
    connection: Connection,
    port: u16,
}

impl Served {
    /// Over RDMA.
    async fn new() -> Self {
        let (iwarp, any) = (Arc::new(Iwarp::default()), "127.0.0.1:0".parse().unwrap());
        let server = Server::bind(iwarp.clone(), any, programs(), ServerConfig::default());
        let server = server.await.unwrap();
        let addr = server.local_addr();
        let client = Client::connect(iwarp, addr, ClientConfig::default()).await;
        Self {
            connection: Connection::new(client.unwrap()),
            port: addr.port(),
            _server: Box::new(server),
        }
    }

    /// Over TCP.
    async fn over_tcp() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let limits = oncrpc_tcp::Limits {
            record: RECORD,
            ..oncrpc_tcp::Limits::default()
        };
        let server = oncrpc_tcp::Server::new(listener, programs(), limits);
        let mut serving = JoinSet::new();
        serving.spawn(server.run(pending()));
        let client = oncrpc_tcp::Client::connect(addr, Duration::from_secs(60)).await;
        Self {
            connection: Connection::new(client.unwrap()),
            port: addr.port(),
            _server: Box::new(serving),
        }
    }

    fn url(&self, path: &str) -> NfsUrl {
        let url = format!("nfs://127.0.0.1:{}/data/{path}", self.port);
        url.parse().unwrap()
    }

    fn url_in_steps(&self, path: &str) -> NfsUrl {
        let url = format!("nfs://127.0.0.1:{}/steps/{path}", self.port);
        url.parse().unwrap()
    }

    /// Copies local paths into or to a directory of the server.
    async fn put(&mut self, options: Options, heard: &Heard, sources: &[&Path], to: &str) -> Ended {
        let url = self.url(to);
        self.put_to(url, options, heard, sources).await
    }

    async fn put_to(
        &mut self,
        url: NfsUrl,
        options: Options,
        heard: &Heard,
        sources: &[&Path],
    ) -> Ended {
        let place = self.place(&url).await.unwrap();
        let target = ServerTarget::new(&place, sources.len()).await.unwrap();
        let sources = sources.iter().map(|path| Source::Path(path.to_path_buf()));
        put(options, heard.control(), sources.collect(), target).await
    }

    /// Copies files of the server into or to a local directory.
    async fn get(&mut self, options: Options, heard: &Heard, from: &str, to: &Path) -> Ended {
        let url = self.url(from);
        let dest = Destination::Target(LocalTarget::new(to, 1).await.unwrap());
        get(options, heard.control(), self, (&[url], dest)).await
    }
}

impl Places for Served {
    async fn place(&mut self, url: &NfsUrl) -> nfs_copy::Result<Place> {
        let mount = Mount::new(self.connection.clone(), current_user());
        let (mounted, path) = mount.mount_above(&url.path).await?;
        let export = Export::open(self.connection.clone(), current_user(), mounted.handle).await?;
        Ok(Place {
            export: Arc::new(export.named(export_path(&url.path, &path))),
            path,
            url: url.clone(),
        })
    }
}

/// Takes note of events.
#[derive(Clone, Default)]
struct Heard {
    lines: Arc<Mutex<Vec<String>>>,
    planned: Arc<Mutex<(u64, u64)>>,
    transferred: Arc<Mutex<u64>>,
    stop: Stop,
    /// Error of each event.
    error: Option<io::ErrorKind>,
}

impl Heard {
    fn control(&self) -> Control {
        Control {
            events: Arc::new(self.clone()),
            stop: self.stop.clone(),
        }
    }

    fn has(&self, part: &str) -> bool {
        let lines = self.lines.lock().unwrap();
        lines.iter().any(|line| line.contains(part))
    }
}

impl Events for Heard {
    fn planned(&self, files: u64, bytes: u64) {
        *self.planned.lock().unwrap() = (files, bytes);
    }

    fn transferred(&self, bytes: u64) {
        *self.transferred.lock().unwrap() += bytes;
    }

    fn event(&self, event: &Event<'_>) -> io::Result<()> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        let line = match event {
            Event::Copied { from, to } => format!("copied {from} to {to}"),
            Event::DirectoryMade { to, .. } => format!("made {to}"),
            Event::Skipped { from, why } => format!("skipped {from}: {why}"),
            Event::Removed { what } => format!("removed {what}"),
            Event::NotRemoved { what } => format!("not removed {what}"),
            _ => return Ok(()),
        };
        self.lines.lock().unwrap().push(line);
        Ok(())
    }

    fn failed(&self, error: Error) {
        let line = format!("failed: {}", oncrpc::Chain(&error));
        self.lines.lock().unwrap().push(line);
    }
}

#[track_caller]
fn assert_all(ended: &Ended) {
    let Ended {
        result,
        failed,
        left,
        kept,
    } = ended;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((*failed, *left, *kept), (0, 0, 0));
}

/// A directory `tree` with two names of one file, a symbolic link, a large file and an empty directory.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("a"), "abc").unwrap();
    fs::hard_link(tree.join("a"), tree.join("sub/b")).unwrap();
    symlink("a", tree.join("link")).unwrap();
    let large: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
    fs::write(tree.join("sub/large"), large).unwrap();
    dir
}

fn recursive() -> Options {
    Options {
        recursive: true,
        ..Options::default()
    }
}

#[tokio::test]
async fn tree_comes_back_as_it_was() {
    for mut served in [Served::new().await, Served::over_tcp().await] {
        tree_comes_back(&mut served).await;
    }
}

async fn tree_comes_back(served: &mut Served) {
    let (dir, back) = (tree(), tempfile::tempdir().unwrap());
    let tree = dir.path().join("tree");
    let (sent, copied, received) = (Heard::default(), Heard::default(), Heard::default());
    assert_all(&served.put(recursive(), &sent, &[&tree], "").await);
    // The link counts as a file without data.
    assert_eq!(*sent.planned.lock().unwrap(), (4, (3 << 20) + 6));
    assert!(sent.has(&format!("to {}", served.url("tree/sub/large"))));
    let (from, to) = (served.url("tree"), served.url("copy"));
    let control = copied.control();
    assert_all(&cp(recursive(), control, served, (&[from], &to, true)).await);
    assert!(*copied.transferred.lock().unwrap() >= (3 << 20) + 3);
    assert_all(
        &served
            .get(recursive(), &received, "copy", back.path())
            .await,
    );
    let back = back.path().join("copy");
    for name in ["a", "sub/b", "sub/large"] {
        assert_eq!(
            fs::read(back.join(name)).unwrap(),
            fs::read(tree.join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(fs::read_link(back.join("link")).unwrap(), Path::new("a"));
    assert_eq!(fs::read_dir(back.join("sub/empty")).unwrap().count(), 0);
}

/// Sets when a file was modified, in nanoseconds after some second.
fn set_modified(path: &Path, nanos: u64) {
    let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_nanos(nanos);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(at)
        .unwrap();
}

/// RFC 1813 §3.3.19, `time_delta`.
#[tokio::test]
async fn file_is_not_newer_than_its_copy_whose_times_the_server_rounds() {
    let (mut served, dir) = (Served::new().await, tempfile::tempdir().unwrap());
    let file = dir.path().join("file");
    let exact = served.url("file");
    let (put, copied) = (served.url_in_steps("put"), served.url_in_steps("copied"));
    let options = |updates| Options {
        preserves: true,
        updates,
        ..Options::default()
    };
    // Within a step, and a step later.
    let times = [124_456_789, 124_456_789, 127_456_790];
    for ((nanos, updates), is_copied) in times
        .into_iter()
        .zip([false, true, true])
        .zip([true, false, true])
    {
        fs::write(&file, nanos.to_string()).unwrap();
        set_modified(&file, nanos);
        let (sent, passed_on, heard) = (Heard::default(), Heard::default(), Heard::default());
        let sources = [&*file];
        assert_all(
            &served
                .put_to(exact.clone(), options(false), &heard, &sources)
                .await,
        );
        assert_all(
            &served
                .put_to(put.clone(), options(updates), &sent, &sources)
                .await,
        );
        let urls = (&[exact.clone()][..], &copied, true);
        let ended = cp(options(updates), passed_on.control(), &mut served, urls).await;
        assert_all(&ended);
        for heard in [sent, passed_on] {
            assert_eq!(heard.has("copied"), is_copied, "{nanos}");
            assert_eq!(
                heard.has("what is there is not older"),
                !is_copied,
                "{nanos}"
            );
        }
    }
}

#[tokio::test]
async fn copy_of_a_file_does_not_replace_what_is_not_older_with_updates() {
    let (mut served, dir, heard) = (
        Served::new().await,
        tempfile::tempdir().unwrap(),
        Heard::default(),
    );
    let updates = Options {
        updates: true,
        preserves: true,
        recursive: true,
        ..Options::default()
    };
    let keeps = Options {
        preserves: true,
        ..Options::default()
    };
    for (name, nanos) in [("old", 1), ("same", 2), ("new", 3), ("there", 2)] {
        let file = dir.path().join(name);
        fs::write(&file, name).unwrap();
        set_modified(&file, nanos);
        assert_all(&served.put(keeps.clone(), &heard, &[&file], "").await);
    }
    let there = served.url("there");
    for (name, is_copied) in [("old", false), ("same", false), ("new", true)] {
        let heard = Heard::default();
        let from = [served.url(name)];
        assert_all(
            &cp(
                updates.clone(),
                heard.control(),
                &mut served,
                (&from, &there, true),
            )
            .await,
        );
        assert_eq!(heard.has("copied"), is_copied, "{name}");
        let place = served.place(&there).await.unwrap();
        let found = place.find(nfs_copy::Follow::Yes).await.unwrap().unwrap();
        let expected = if is_copied { "new" } else { "there" };
        assert_eq!(found.attributes.size, expected.len() as u64);
    }
    // A directory is no file that could be newer.
    fs::create_dir(dir.path().join("dir")).unwrap();
    assert_all(
        &served
            .put(recursive(), &heard, &[&dir.path().join("dir")], "")
            .await,
    );
    let (from, to) = ([served.url("old")], served.url("dir"));
    let ended = cp(updates, heard.control(), &mut served, (&from, &to, true)).await;
    assert!(ended.failed > 0 || ended.result.is_err(), "{ended:?}");
}

#[tokio::test]
async fn names_of_one_file_are_names_of_one_copy() {
    let (mut served, dir, back) = (Served::new().await, tree(), tempfile::tempdir().unwrap());
    let heard = Heard::default();
    let tree = dir.path().join("tree");
    assert_all(&served.put(recursive(), &heard, &[&tree], "").await);
    // Three bytes of the file with two names, and not six.
    assert_eq!(*heard.transferred.lock().unwrap(), (3 << 20) + 3);
    assert_all(&served.get(recursive(), &heard, "tree", back.path()).await);
    let inode = |name: &str| fs::metadata(back.path().join(name)).unwrap().ino();
    assert_eq!(inode("tree/a"), inode("tree/sub/b"));
}

#[tokio::test]
async fn removal_is_told_before_it_is_done_and_leaves_what_is_excluded() {
    let (mut served, dir, heard) = (Served::new().await, tree(), Heard::default());
    let tree = dir.path().join("tree");
    assert_all(&served.put(recursive(), &heard, &[&tree], "").await);
    fs::remove_dir_all(tree.join("sub")).unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    let options = |dry_run| Options {
        deletes: true,
        dry_run,
        exclude: Exclude::new(&["large".to_owned()]).unwrap(),
        ..recursive()
    };
    for dry_run in [true, false] {
        let heard = Heard::default();
        assert_all(&served.put(options(dry_run), &heard, &[&tree], "").await);
        assert!(heard.has(&format!("removed {}", served.url("tree/link"))));
        let excludes = format!("not removed {}", served.url("tree/sub"));
        assert_eq!(heard.has(&excludes), !dry_run);
        let place = served.place(&served.url("tree/link")).await.unwrap();
        let is_there = place.export.lstat(&place.path).await.is_ok();
        assert_eq!(is_there, dry_run);
    }
    let place = served.place(&served.url("tree/sub")).await.unwrap();
    let large = place.join(b"large");
    assert!(large.export.lstat(&large.path).await.is_ok());
    let gone = place.join(b"b");
    assert!(gone.export.lstat(&gone.path).await.is_err());
}

#[tokio::test]
async fn nothing_is_copied_where_something_does_not_go_together() {
    let (mut served, dir, heard) = (Served::new().await, tree(), Heard::default());
    let tree = dir.path().join("tree");
    let other = tempfile::tempdir().unwrap();
    fs::create_dir_all(other.path().join("tree/a")).unwrap();
    let there = other.path().join("tree");
    assert_all(&served.put(recursive(), &heard, &[&there], "").await);
    let ended = served.put(recursive(), &heard, &[&tree], "").await;
    assert!(ended.result.is_ok());
    assert_eq!(ended.failed, 2);
    assert!(heard.has("cannot replace the directory") && heard.has("nothing was copied"));
    let place = served.place(&served.url("tree/sub")).await.unwrap();
    assert!(place.export.lstat(&place.path).await.is_err());
}

#[tokio::test]
async fn copy_ends_when_it_is_stopped_and_when_nobody_hears_of_it() {
    let (mut served, dir) = (Served::new().await, tree());
    let tree = dir.path().join("tree");
    let stopped = Heard::default();
    stopped.stop.request();
    let ended = served.put(recursive(), &stopped, &[&tree], "stopped").await;
    assert!(matches!(ended.result, Err(Error::Stopped)));
    let deaf = Heard {
        error: Some(io::ErrorKind::BrokenPipe),
        ..Heard::default()
    };
    let ended = served.put(recursive(), &deaf, &[&tree], "deaf").await;
    assert!(matches!(ended.result, Err(Error::Event(_))), "{ended:?}");
    assert_eq!((ended.failed, ended.left), (0, 0));
}

#[tokio::test]
async fn event_that_cannot_be_told_is_a_failure_of_its_file_and_ends_nothing() {
    let (mut served, dir, back) = (Served::new().await, tree(), tempfile::tempdir().unwrap());
    let tree = dir.path().join("tree");
    let heard = Heard::default();
    assert_all(&served.put(recursive(), &heard, &[&tree], "").await);
    assert_all(&served.get(recursive(), &heard, "tree", back.path()).await);
    let full = Heard {
        error: Some(io::ErrorKind::StorageFull),
        ..Heard::default()
    };
    let skips = Options {
        keeps_existing: true,
        ..recursive()
    };
    let would_copy = Options {
        dry_run: true,
        ..recursive()
    };
    for options in [skips, would_copy] {
        let put = served.put(options.clone(), &full, &[&tree], "").await;
        let got = served.get(options, &full, "tree", back.path()).await;
        for ended in [put, got] {
            assert!(ended.result.is_ok(), "{ended:?}");
            assert_eq!(ended.failed, 4, "{ended:?}");
        }
    }
}

#[tokio::test]
async fn one_file_is_copied_from_a_stream_and_to_one() {
    let mut served = Served::new().await;
    let heard = Heard::default();
    let mut input = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut input, b"some data").unwrap();
    input.rewind().unwrap();
    let url = served.url("from-stream");
    let place = served.place(&url).await.unwrap();
    let target = ServerTarget::new(&place, 1).await.unwrap();
    let stream = |file| Stream {
        file,
        name: "-".to_owned(),
    };
    let source = Source::Stream(stream(input));
    let sent = put(Options::default(), heard.control(), vec![source], target);
    assert_all(&sent.await);
    assert!(heard.has(&format!("copied - to {url}")));
    let mut output = tempfile::tempfile().unwrap();
    let dest = Destination::Stream(stream(output.try_clone().unwrap()));
    let urls = [url];
    let received = get(
        Options::default(),
        heard.control(),
        &mut served,
        (&urls, dest),
    );
    assert_all(&received.await);
    output.rewind().unwrap();
    let mut data = String::new();
    output.read_to_string(&mut data).unwrap();
    assert_eq!(data, "some data");
    let dest = Destination::Stream(stream(output));
    let root = served.url("");
    let ended = get(
        Options::default(),
        heard.control(),
        &mut served,
        (&[root], dest),
    )
    .await;
    assert_eq!(ended.failed, 1);
    assert!(heard.has("only a file can be copied to a stream"));
}
