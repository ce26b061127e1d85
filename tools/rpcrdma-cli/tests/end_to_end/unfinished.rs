//! Files that copies leave behind that were killed.

use crate::copies::fifo;
use crate::full::library;
use crate::memory::{contents, files, names, serve_by, with};
use crate::running::{PROGRAM, Served, ok, text};
use nfs_proto::{Arguments, Procedure, Wire, args};
use nfs_server::Nfs3;
use oncrpc::xdr::Reader;
use oncrpc::{Answer, Call, Caller, Program, Reply, ReplyBound, read_reply};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Names that copies give to what they have not finished: a file, a FIFO, a socket and symbolic links.
const UNFINISHED: [&str; 5] = [
    ".file.rpcrdma-0123456789abcdef",
    ".pipe.rpcrdma-0123456789abcdef",
    ".socket.rpcrdma-0123456789abcdef",
    ".link.rpcrdma-0123456789abcdef",
    ".dangling.rpcrdma-0123456789abcdef",
];

/// Leaves something of each kind in a directory.
fn leave(dir: &Path) {
    fs::write(dir.join(UNFINISHED[0]), "half").unwrap();
    fifo(&dir.join(UNFINISHED[1]));
    drop(std::os::unix::net::UnixListener::bind(dir.join(UNFINISHED[2])).unwrap());
    symlink("other", dir.join(UNFINISHED[3])).unwrap();
    symlink("nowhere", dir.join(UNFINISHED[4])).unwrap();
}

/// NFS whose clock is two days ahead where the attributes of a file are asked for, once that is so.
struct Ahead {
    nfs: Nfs3,
    is_ahead: Arc<AtomicBool>,
}

const TWO_DAYS: u32 = 2 * 24 * 60 * 60;

impl Program for Ahead {
    fn number(&self) -> u32 {
        self.nfs.number()
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.nfs.versions()
    }

    fn call(&self, call: Call) -> Answer {
        if call.proc != Procedure::GetAttr as u32 || !self.is_ahead.load(Relaxed) {
            return self.nfs.call(call);
        }
        let (xid, mut w) = (call.xid, call.success(buffer::Buffer::default()));
        let Answer::Now(Reply::Message(reply)) = self.nfs.call(call) else {
            panic!("files in memory are answered for at once");
        };
        let mut r = Reader::from(&reply);
        r.skip(read_reply(&reply, xid).unwrap().offset()).unwrap();
        let mut results = <args::GetAttr as Arguments>::Reply::parse(&mut r).unwrap();
        if let Ok(found) = &mut results {
            found.attributes.mtime.seconds += TWO_DAYS;
            found.attributes.ctime.seconds += TWO_DAYS;
        }
        results.write(&mut w);
        Answer::message(w.finish())
    }

    fn reply_bound(
        &self,
        procedure: oncrpc::Procedure,
        args: &mut Reader<'_>,
    ) -> Option<ReplyBound> {
        self.nfs.reply_bound(procedure, args)
    }

    fn closed_in_order(&self, caller: &Caller) {
        self.nfs.closed_in_order(caller);
    }
}

#[test]
fn what_a_killed_put_left_behind_is_removed_when_it_is_old_whatever_it_is() {
    let later = Arc::new(AtomicBool::new(false));
    let is_ahead = Arc::clone(&later);
    let url = serve_by(files(), |nfs| Ahead { nfs, is_ahead });
    let left = with(&["other"]);
    leave(left.path());
    let root = format!("{url}/");
    ok(&["mkdir", &format!("{url}/t")]);
    let leave = |dir: &str| {
        for name in UNFINISHED {
            let file = left.path().join(name);
            ok(&["put", "-a", file.to_str().unwrap(), dir]);
        }
    };
    let source = with(&["t/file"]);
    let trees = source.path().join("t");
    let one = trees.join("file");
    for (put, dir) in [
        (&["put", "-r", trees.to_str().unwrap(), &root][..], "t"),
        (&["put", one.to_str().unwrap(), &root], ""),
    ] {
        let dir = format!("{url}/{dir}");
        later.store(false, Relaxed);
        leave(&dir);
        let count = || names(&format!("{dir}/")).len();
        let hidden = || text(&ok(&["ls", "-A", &dir])).matches("rpcrdma-").count();
        ok(put);
        assert_eq!(hidden(), UNFINISHED.len(), "they are young");
        later.store(true, Relaxed);
        ok(put);
        assert_eq!(hidden(), 0);
        assert!(count() > 0);
    }
}

#[test]
fn what_a_killed_get_left_behind_is_removed_when_it_is_old_whatever_it_is() {
    let served = Served::new(&[]);
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, time);
    if (!result && clock == CLOCK_REALTIME)
        time->tv_sec += 2 * 24 * 60 * 60;
    return result;
}
"#;
    let Some(library) = library(served.around.path(), source) else {
        return;
    };
    fs::create_dir(served.dir.join("t")).unwrap();
    fs::write(served.dir.join("t/file"), "f").unwrap();
    let dest = served.around.path().join("dest");
    fs::create_dir_all(dest.join("t")).unwrap();
    let to = dest.to_str().unwrap();
    for (get, dir) in [
        (["get", "-r", &served.url("t"), to], dest.join("t")),
        (["get", "-v", &served.url("t/file"), to], dest.clone()),
    ] {
        leave(&dir);
        fs::write(dir.join("kept"), "kept").unwrap();
        let left = || {
            let entries = dir.read_dir().unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.contains("rpcrdma-")).count()
        };
        ok(&get);
        assert_eq!(left(), UNFINISHED.len(), "they are young");
        let mut later = Command::new(PROGRAM);
        let output = later
            .args(get)
            .env("LD_PRELOAD", &library)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(left(), 0);
        assert!(dir.join("kept").exists());
    }
}

#[test]
fn unfinished_copies_are_neither_copied_nor_removed_as_extraneous() {
    let served = Served::new(&[]);
    let source = with(&["file"]);
    leave(source.path());
    let all = contents(source.path());
    ok(&["put", "-a", &all, &served.url("")]);
    assert_eq!(served.dir.read_dir().unwrap().count(), 1);
    leave(&served.dir);
    let clean = with(&["file"]);
    let all = contents(clean.path());
    ok(&["put", "-a", "--delete", &all, &served.url("")]);
    let there = served.dir.read_dir().unwrap().count();
    assert_eq!(there, 1 + UNFINISHED.len());
}
