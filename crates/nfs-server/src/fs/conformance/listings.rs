//! Entries of directories.

use super::*;

pub(super) fn directory_is_listed_whole_in_small_pages(s: &Subject) {
    let mut names: Vec<String> = (0..300).map(|n| format!("file-{n}")).collect();
    for name in &names {
        s.file(s.root(), name);
    }
    names.sort();
    for total in [64, 500, 1 << 20] {
        let mut listed = s.list(s.root(), total);
        listed.sort();
        assert_eq!(listed, names, "pages of {total}");
    }
}

pub(super) fn listing_continues_while_entries_are_added_and_removed(s: &Subject) {
    let root = s.root();
    for n in 0..200 {
        s.file(root, &format!("{n}"));
    }
    let mut from = DirFrom {
        cookie: 0,
        verifier: 0,
    };
    let mut seen = Vec::new();
    let mut removed = 0;
    loop {
        let page = s.page(root, from, 300, true).unwrap();
        from.verifier = page.verifier;
        for (name, entry) in page.iter() {
            from.cookie = entry.cookie;
            let name = String::from_utf8(name.to_vec()).unwrap();
            if name.parse::<u32>().is_ok() {
                // As rm -r does, while somebody else adds.
                s.remove(root, &name).unwrap();
                removed += 1;
                s.file(root, &format!("new-{name}"));
                seen.push(name);
            }
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(removed, 200, "each was seen once");
}

pub(super) fn listing_with_attributes_gives_the_files(s: &Subject) {
    let root = s.root();
    let dir = s.directory(root, "d");
    let file = s.file(dir, "f");
    s.write(file, 0, b"12345").unwrap();
    let sub = s.directory(dir, "sub");
    let from = DirFrom {
        cookie: 0,
        verifier: 0,
    };
    let page = s.page(dir, from, 4096, true).unwrap();
    assert!(page.eof);
    let mut names = Vec::new();
    for (name, entry) in page.iter() {
        names.push(name.to_vec());
        match name {
            b"f" => {
                let found = entry.found.unwrap();
                assert_eq!((found.file, found.attributes.size), (file, 5));
                assert_eq!(entry.fileid, found.attributes.fileid);
            }
            b"sub" => assert_eq!(entry.found.unwrap().file, sub),
            b"." => assert_eq!(entry.fileid, s.stat(dir).fileid),
            b".." => assert_eq!(entry.fileid, s.stat(root).fileid),
            other => panic!("unexpected entry {:?}", other.escape_ascii().to_string()),
        }
    }
    names.sort();
    assert_eq!(names, [&b"."[..], b"..", b"f", b"sub"]);
    // The root does not tell what it is in.
    let page = s.page(root, from, 4096, false).unwrap();
    for (name, entry) in page.iter() {
        if name == b".." {
            assert_eq!(entry.fileid, s.stat(root).fileid);
        }
    }
}

pub(super) fn directory_without_search_permission_gives_no_handles(s: &Subject) {
    let dir = s.directory(s.root(), "d");
    s.file(dir, "f");
    s.set(dir, SetAttributes::mode(0o644)).unwrap();
    let (from, budget) = (DirFrom::START, DirBudget::PAGE);
    let who = Identity::new(1001, 1001);
    let seen = s.fs.read_directory(&who, dir, from, budget, true).wait();
    let page = seen.result.unwrap();
    let (_, entry) = page.iter().find(|(name, _)| *name == b"f").unwrap();
    assert!(entry.found.is_none());
    s.set(dir, SetAttributes::mode(0o755)).unwrap();
    let seen = s.fs.read_directory(&who, dir, from, budget, true).wait();
    let page = seen.result.unwrap();
    let (_, entry) = page.iter().find(|(name, _)| *name == b"f").unwrap();
    assert!(entry.found.is_some());
}

pub(super) fn cookies_of_another_directory_are_refused(s: &Subject) {
    let root = s.root();
    let dir = s.directory(root, "d");
    let start = DirFrom {
        cookie: 0,
        verifier: 0,
    };
    let page = s.page(root, start, 4096, false).unwrap();
    let from = DirFrom {
        cookie: page.entries[0].cookie,
        verifier: page.verifier,
    };
    assert!(s.page(root, from, 4096, false).is_ok());
    assert_eq!(s.page(dir, from, 4096, false).err(), Some(Error::BadCookie));
    let forged = DirFrom {
        verifier: !page.verifier,
        ..from
    };
    assert_eq!(
        s.page(root, forged, 4096, false).err(),
        Some(Error::BadCookie)
    );
}
