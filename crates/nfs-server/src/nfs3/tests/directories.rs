//! Directories, page by page.

use super::*;

/// Reads a directory with READDIRPLUS as a client does; names, and replies it took.
fn list_plus(peer: &Peer, dir: FileHandle, max_count: u32) -> (Vec<Vec<u8>>, usize) {
    let mut names = Vec::new();
    let (mut cookie, mut verifier) = (Cookie(0), CookieVerifier::default());
    let mut replies = 0;
    loop {
        let ask = args::ReadDirPlus {
            dir,
            cookie,
            verifier,
            dir_count: max_count,
            max_count,
        };
        let payload = peer.payload(&ask);
        assert!(payload.stream_len() <= oncrpc::REPLY_HEADER + 4 + max_count as usize);
        let mut r = read_reply(&payload, 7).unwrap();
        let page = reply_of(&ask, &mut r).unwrap();
        r.finish().unwrap();
        replies += 1;
        verifier = page.verifier;
        for entry in &page.entries.0 {
            cookie = entry.cookie;
            if !matches!(entry.name.get(), b"." | b"..") {
                assert!(entry.handle.is_some() && entry.attributes.is_some());
                names.push(entry.name.get().to_vec());
            }
        }
        if page.eof {
            names.sort();
            return (names, replies);
        }
    }
}

#[test]
fn directory_of_ten_thousand_is_listed_in_bounded_replies() {
    let dir = tempfile::tempdir().unwrap();
    let mut names: Vec<Vec<u8>> = (0..10_000)
        .map(|n| format!("file-{n:05}.txt").into_bytes())
        .collect();
    for name in &names {
        std::fs::write(dir.path().join(std::str::from_utf8(name).unwrap()), b"").unwrap();
    }
    names.sort();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let peer = Peer::over(Arc::new(local), ExportOptions::default());
    let (listed, replies) = list_plus(&peer, peer.root(), 64 << 10);
    assert_eq!(listed, names);
    assert!((25..50).contains(&replies), "{replies} replies");
    // However much is asked for.
    let (listed, replies) = list_plus(&peer, peer.root(), u32::MAX);
    assert_eq!(listed, names);
    assert!(replies > 5, "{replies} replies");
}

#[test]
fn readdir_pages_are_bounded_and_continue_at_their_cookie() {
    let peer = Peer::new();
    for n in 0..100 {
        create(&peer, &format!("{n}"));
    }
    let ask = args::ReadDir {
        dir: peer.root(),
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        count: 1000,
    };
    let payload = peer.payload(&ask);
    let mut r = read_reply(&payload, 7).unwrap();
    let page = reply_of(&ask, &mut r).unwrap();
    assert!(page.entries.0.len() > 25 && !page.eof);
    let next = args::ReadDir {
        cookie: page.entries.0[10].cookie,
        verifier: page.verifier,
        ..ask
    };
    let payload = peer.payload(&next);
    let mut r = read_reply(&payload, 7).unwrap();
    let from_there = reply_of(&next, &mut r).unwrap();
    assert_eq!(from_there.entries.0[0].name, page.entries.0[11].name);
    assert_eq!(
        status!(peer, args::ReadDir { count: 100, ..ask }),
        Status::TooSmall
    );
    let stale = args::ReadDir {
        verifier: CookieVerifier(*b"whatever"),
        ..next
    };
    assert_eq!(status!(peer, stale), Status::BadCookie);
    let few = args::ReadDirPlus {
        dir: peer.root(),
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        dir_count: 0,
        max_count: 4096,
    };
    let payload = peer.payload(&few);
    let mut r = read_reply(&payload, 7).unwrap();
    assert_eq!(reply_of(&few, &mut r).unwrap().entries.0.len(), 1);
}
