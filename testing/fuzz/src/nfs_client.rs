//! An NFS client against a server with arbitrary replies.

use crate::memory::within_and_back;
use crate::script::Script;
use crate::site::{EXPORT, Site, flat};
use buffer::Buffer;
use bytes::Bytes;
use nfs_client::{Error, Export, Mount};
use nfs_proto::SetAttributes;
use oncrpc::xdr::{Item, Parts, Payload};
use oncrpc::{AuthSys, Chain, Credential, Reply, ReplyBound, Transport, TransportError};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory for the server's files, calls in flight, and listings.
const MEMORY: usize = 24 << 20;

/// Calls that the server answers before it is gone.
const CALLS: u32 = 150;

/// Calls that may still be made when the server is gone.
const LAST_CALLS: u32 = 150;

/// Things that the user does.
const DEEDS: usize = 12;

/// Bytes of a file at most that is read at once.
const FILE: usize = 64 << 10;

/// A script of what the user does, and of what becomes of the replies.
pub fn nfs_client(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut script = Script::new(bytes);
        let deeds: Vec<u8> = script.take(1 + script_len(bytes)).to_vec();
        let wrong = Wrong {
            site: Site::new(),
            state: Mutex::new(State {
                decisions: script.rest().to_vec(),
                at: 0,
                calls: 0,
                is_honest: true,
            }),
            xid: AtomicU32::new(1),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(use_it(&wrong, &deeds));
        let calls = wrong.state().calls;
        assert!(calls <= CALLS + LAST_CALLS, "{calls} calls");
    });
}

/// The first part of an input is for the user.
fn script_len(bytes: &[u8]) -> usize {
    bytes.len().min(2 * DEEDS)
}

async fn use_it(wrong: &Wrong, deeds: &[u8]) {
    let user = || Credential::Sys(AuthSys::default());
    let mount = Mount::new(wrong, user());
    let (root, export) = {
        let root = mount.mount(EXPORT).await.expect("an honest server");
        let export = Export::open(wrong, user(), root.handle).await;
        (root, export.expect("an honest server"))
    };
    furnish(&export).await.expect("an honest server");
    wrong.state().is_honest = false;
    let mut script = Script::new(deeds);
    for _ in 0..DEEDS {
        if script.is_over() {
            break;
        }
        match script.byte() % 4 {
            0 => match Export::open(wrong, user(), root.handle).await {
                Ok(export) => do_something(&export, &mut script).await,
                Err(error) => told(&error),
            },
            1 => mounts(&mount).await,
            _ => do_something(&export, &mut script).await,
        }
    }
}

/// Some directories, files and links.
async fn furnish(export: &Export<&Wrong>) -> Result<(), Error> {
    let none = SetAttributes::default();
    export.make_dirs("/dir/below", none).await?;
    for name in ["/dir/file", "/dir/below/file"] {
        let data = Bytes::from(vec![b'x'; 10_000]);
        export.write_all(name, data, none).await?;
    }
    export.symlink("dir/file", "/link").await?;
    export.symlink("loop", "/loop").await
}

async fn mounts(mount: &Mount<&Wrong>) {
    if let Err(error) = mount.mount_above("/data/dir/file").await {
        told(&error);
    }
    if let Ok(exports) = mount.exports().await {
        assert!(exports.len() < 1 << 16);
    }
    let _ = mount.mounts().await;
    let _ = mount.unmount(EXPORT).await;
}

async fn do_something(export: &Export<&Wrong>, script: &mut Script<'_>) {
    let paths = [
        "/dir",
        "/dir/file",
        "/link",
        "/loop",
        "/",
        "/new",
        "/dir/below",
    ];
    let path = script.pick(&paths);
    let other = script.pick(&paths);
    let none = SetAttributes::default();
    let done = match script.byte() % 14 {
        0 => export.stat(path).await.map(drop),
        1 => export.entries(path).await.map(|entries| {
            let mut names = entries.iter().map(|entry| &entry.name[..]);
            assert!(names.all(is_name), "a name that leads elsewhere");
        }),
        2 => walk(export, path).await,
        3 => export
            .read_all(path, FILE)
            .await
            .map(|all| assert!(all.len() <= FILE)),
        4 => export.write_all(path, vec![7; 100_000], none).await,
        5 => export.remove_all(path, |error| told(&error)).await,
        6 => export.rename(path, other).await,
        7 => export.symlink(other, path).await,
        8 => export.read_link(path).await.map(drop),
        9 => export.fs_stat(path).await.map(drop),
        10 => export.path_conf(path).await.map(drop),
        11 => export.link(path, other).await,
        12 => export.set_attributes(path, none).await,
        _ => export.make_dirs(path, none).await,
    };
    if let Err(error) = done {
        told(&error);
    }
}

/// Everything that is found lies below where the walk began.
async fn walk(export: &Export<&Wrong>, path: &str) -> Result<(), Error> {
    let mut walk = export.walk(path).await?;
    let mut failures = 0;
    loop {
        match walk.next().await {
            Ok(None) => return Ok(()),
            Ok(Some(found)) => {
                let below = found.path.strip_prefix(path.as_bytes());
                let mut names = below.expect("it lies below").split(|byte| *byte == b'/');
                assert!(names.all(|name| name.is_empty() || is_name(name)));
            }
            Err(error) => {
                failures += 1;
                if failures > 100 {
                    return Err(error);
                }
            }
        }
    }
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// An error can be shown to the user.
fn told(error: &Error) {
    assert!(
        Chain(error).to_string().chars().all(|c| !c.is_control()),
        "{error:?}"
    );
}

/// A transport to a server whose replies change on their way.
struct Wrong {
    site: Site,
    state: Mutex<State>,
    xid: AtomicU32,
}

struct State {
    decisions: Vec<u8>,
    at: usize,
    calls: u32,
    is_honest: bool,
}

impl Wrong {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for &Wrong {
    fn next_xid(&self) -> u32 {
        self.xid.fetch_add(1, Relaxed)
    }

    async fn call(&self, call: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        let reply = self.site.answer(Payload::new(flat(&call), 0));
        let mut state = self.state();
        if state.is_honest {
            return honest(reply);
        }
        state.calls += 1;
        if state.calls > CALLS {
            return Err(TransportError::Disconnected(std::fmt::Error.into()));
        }
        let State { decisions, at, .. } = &mut *state;
        let before = decisions.len() - *at;
        let mut script = Script::new(&decisions[*at..]);
        let reply = wrong(&mut script, honest(reply)?, &bound);
        let left = script.rest().len();
        *at += before - left;
        reply
    }
}

fn honest(reply: Reply) -> Result<Payload, TransportError> {
    match reply {
        Reply::Message(reply) => Ok(reply),
        Reply::Nothing | Reply::Ineligible | Reply::TooLarge(_) => {
            Err(TransportError::Refused("no reply"))
        }
    }
}

/// Makes a message in place of a reply, within the bound that the transport keeps to.
fn wrong(
    script: &mut Script<'_>,
    reply: Payload,
    bound: &ReplyBound,
) -> Result<Payload, TransportError> {
    let Parts {
        mut head,
        start,
        items,
        ..
    } = reply.into_parts();
    assert_eq!(start, 0);
    let mut data: Vec<_> = items.into_iter().map(|item| item.data).collect();
    match script.byte() {
        0..128 => {}
        128..200 => {
            for _ in 0..1 + script.below(3) {
                let at = 4 * script.below((head.len() / 4).min(200));
                let word = script.number().to_be_bytes();
                if let Some(place) = head.get_mut(at..at + 4) {
                    place.copy_from_slice(&word);
                }
            }
        }
        // The status of the procedure, behind the header of a reply.
        200..215 => {
            let status = u32::from(script.byte()) + script.pick(&[0, 0, 9950]);
            if let Some(place) = head.get_mut(24..28) {
                place.copy_from_slice(&status.to_be_bytes());
            }
        }
        215..225 => {
            let len = script.below(head.len() + 1);
            head.truncate(len);
        }
        225..235 => {
            let bytes = script.some(200);
            let at = script.below(head.len() + 1);
            head.truncate(at);
            head.extend_from_slice(bytes);
        }
        235..245 => data = vec![vec![Bytes::from(vec![3; script.below(9000)])].into()],
        245..250 => return Err(TransportError::Refused("no")),
        250.. => return Err(TransportError::BadReply("nonsense")),
    }
    head.truncate(bound.fixed);
    data.truncate(bound.results.len());
    for (data, most) in data.iter_mut().zip(&bound.results) {
        if buffer::gather_len(data) > *most {
            data.clear();
        }
    }
    if script.one_in(4) {
        // In the stream, as over TCP, wherever the item was.
        let mut stream = Buffer::default();
        stream.extend_from_slice(&head);
        for item in &data {
            stream.extend_from_slice(&item.concat());
        }
        return Ok(Payload::new(stream, 0));
    }
    let items = data.into_iter();
    if script.one_in(4) {
        let at = head.len();
        let items = items.map(|data| Item { at, data }).collect();
        return Ok(Payload::with_items(head, 0, items));
    }
    Ok(Payload::with_results(head, 0, items))
}
