//! File systems whose inode numbers do not identify a file.

use super::mounts::mounts_alone;
use super::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// An overlayfs on a mount point of this thread's, whose layers are two file systems in memory, each
/// with files of the same inode numbers.
struct Overlay {
    at: PathBuf,
    dir: TempDir,
}

impl Overlay {
    /// None where there can be none.
    fn new() -> Option<Self> {
        if !mounts_alone() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let [lower, upper, at] = ["lower", "upper", "at"].map(path);
        let flags = MountFlags::empty();
        for layer in [&lower, &upper] {
            mount("none", layer, "tmpfs", flags, None).unwrap();
        }
        for work in ["upper/files", "upper/work"] {
            path(work);
        }
        for n in 0..20 {
            fs::write(lower.join(format!("lower{n}")), format!("lower{n}")).unwrap();
            let file = upper.join("files").join(format!("upper{n}"));
            fs::write(file, format!("upper{n}")).unwrap();
        }
        fs::create_dir(lower.join("d")).unwrap();
        fs::write(lower.join("d/below"), "below").unwrap();
        let [lower, upper] = [lower, upper].map(|path| path.to_str().unwrap().to_owned());
        let options =
            format!("lowerdir={lower},upperdir={upper}/files,workdir={upper}/work,xino=off");
        let options = std::ffi::CString::new(options).unwrap();
        if let Err(errno) = mount("none", &at, "overlay", flags, Some(options.as_c_str())) {
            eprintln!("no overlayfs to be had ({errno}): skipped");
            return None;
        }
        Some(Self { at, dir })
    }

    fn open(&self) -> LocalFs {
        LocalFs::open(&self.at, options()).unwrap()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        unmount_below(self.dir.path());
    }
}

/// Unmounts what this thread has mounted below a directory, so that it can be removed.
fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points: Vec<&str> = points
        .filter(|point| Path::new(point).starts_with(dir))
        .collect();
    for point in points.iter().rev() {
        let _ = unmount(*point, UnmountFlags::DETACH);
    }
}

fn find(local: &LocalFs, path: &str) -> Result<Found, Error> {
    let who = Identity::root();
    let step = Step::new(b".").unwrap();
    let root = local.lookup(&who, local.root(), step).wait().result?;
    path.split('/').try_fold(root, |dir, name| {
        let step = Step::new(name.as_bytes()).unwrap();
        local.lookup(&who, dir.file, step).wait().result
    })
}

fn read(local: &LocalFs, file: FileId) -> Result<String, Error> {
    let read = local.read(&Identity::root(), file, 0, 100).wait().result?;
    Ok(String::from_utf8(read.data.concat()).unwrap())
}

#[test]
fn files_of_two_layers_with_one_inode_number_are_two_files() {
    let Some(overlay) = Overlay::new() else {
        return;
    };
    let numbers: HashSet<u64> = fs::read_dir(&overlay.at)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().ino())
        .collect();
    assert!(numbers.len() < 41, "some have equal numbers");
    let local = overlay.open();
    assert!(!local.has_kernel_handles());
    let names = ["lower", "upper"].map(|layer| (0..20).map(move |n| format!("{layer}{n}")));
    let names: Vec<String> = names.into_iter().flatten().collect();
    let found: Vec<Found> = names
        .iter()
        .map(|name| find(&local, name).unwrap())
        .collect();
    let all = |of: fn(&Found) -> Vec<u8>| found.iter().map(of).collect::<HashSet<_>>().len();
    assert_eq!(all(|found| found.file.as_bytes().to_vec()), names.len());
    let fileid = |found: &Found| found.attributes.fileid.to_be_bytes().to_vec();
    assert_eq!(all(fileid), names.len());
    for (name, found) in names.iter().zip(&found) {
        assert_eq!(read(&local, found.file).as_deref(), Ok(&**name));
    }
    let set = SetAttributes::mode(0o600);
    let done = local.set_attributes(&Identity::root(), found[0].file, set, None);
    done.wait().result.unwrap();
    let changed = fs::read_dir(&overlay.at).unwrap().filter(|entry| {
        let mode = entry.as_ref().unwrap().metadata().unwrap().mode();
        mode & 0o777 == 0o600
    });
    assert_eq!(changed.count(), 1);
}

/// The first write copies a file to the upper layer, which may give it another inode number.
#[test]
fn file_that_is_copied_up_keeps_its_handle_and_number() {
    let Some(overlay) = Overlay::new() else {
        return;
    };
    let local = overlay.open();
    let who = Identity::root();
    for path in ["lower3", "d/below"] {
        let found = find(&local, path).unwrap();
        let data = Gather::from_elem(Bytes::from_static(b"new"), 1);
        let done = local.write(&who, found.file, 0, data, Stability::FileSync);
        let after = done.wait().wcc.after.unwrap();
        assert_eq!(after.fileid, found.attributes.fileid);
        let again = find(&local, path).unwrap();
        assert_eq!(again.file, found.file);
        assert_eq!(again.attributes.fileid, found.attributes.fileid);
        assert!(read(&local, found.file).unwrap().starts_with("new"));
        // Each listing tells the same number.
        let dir = match path.split_once('/') {
            Some((dir, _)) => find(&local, dir).unwrap().file,
            None => local.root(),
        };
        let name = path.rsplit('/').next().unwrap();
        for plus in [false, true] {
            let page = local.read_directory(&who, dir, DirFrom::START, DirBudget::PAGE, plus);
            let page = page.wait().result.unwrap();
            let entry = page.iter().find(|(found, _)| *found == name.as_bytes());
            assert_eq!(entry.unwrap().1.fileid, found.attributes.fileid);
        }
    }
}

/// A file that a local user puts in the place of another is not the file that is still open.
#[test]
fn file_in_the_place_of_one_that_is_open_has_its_own_data() {
    let Some(overlay) = Overlay::new() else {
        return;
    };
    let local = overlay.open();
    let old = find(&local, "upper1").unwrap();
    assert_eq!(read(&local, old.file).as_deref(), Ok("upper1"));
    fs::rename(overlay.at.join("upper1"), overlay.at.join("elsewhere")).unwrap();
    fs::write(overlay.at.join("upper1"), "another").unwrap();
    let new = find(&local, "upper1").unwrap();
    assert_eq!(read(&local, new.file).as_deref(), Ok("another"));
}

/// A directory of a disk, seen through a program in FUSE.
struct Fuse {
    below: PathBuf,
    at: PathBuf,
    dir: TempDir,
}

impl Fuse {
    /// None where there can be none. `arguments` are those of the program before the two
    /// directories.
    fn new(program: &str, arguments: &[&str], branches: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let [below, at] = ["below", "at"].map(|name| dir.path().join(name));
        fs::create_dir(&at).unwrap();
        if !mounts_alone() {
            return None;
        }
        let flags = MountFlags::empty();
        let branches: Vec<String> = (0..branches)
            .map(|n| below.join(n.to_string()))
            .map(|branch| {
                fs::create_dir_all(&branch).unwrap();
                // Each is a file system with the same inode numbers, where there are several.
                if branches > 1 {
                    mount("none", &branch, "tmpfs", flags, None).unwrap();
                }
                branch.to_str().unwrap().to_owned()
            })
            .collect();
        let branches = branches.join(":");
        let arguments = [arguments, &[&branches, at.to_str().unwrap()]].concat();
        if !mounts::done(program, &arguments) {
            eprintln!("no {program} to be had (the program, /dev/fuse): skipped");
            return None;
        }
        let below = below.join("0");
        Some(Self { below, at, dir })
    }

    fn open(&self) -> LocalFs {
        let options = LocalFsOptions::default().with_changes(Changes::Cached);
        let path = fs::canonicalize(&self.at).unwrap();
        LocalFs::of(Layers::over(Opening::new(path, options).unwrap()))
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        unmount_below(self.dir.path());
    }
}

/// bindfs with no cache of names and attributes in the kernel.
fn bindfs() -> Option<Fuse> {
    let uncached = "attr_timeout=0,entry_timeout=0,negative_timeout=0";
    Fuse::new("bindfs", &["-o", uncached], 1)
}

impl Fuse {
    /// Removes a file and makes another of the same name and inode number, with this text.
    fn make_again(&self, name: &str, text: &str) {
        let spare = self.below.join("spare");
        fs::hard_link(self.below.join(name), &spare).unwrap();
        fs::remove_file(self.at.join(name)).unwrap();
        fs::rename(&spare, self.below.join(name)).unwrap();
        fs::write(self.below.join(name), text).unwrap();
    }
}

#[test]
fn file_made_again_with_its_inode_number_is_served() {
    let Some(fuse) = bindfs() else { return };
    fs::write(fuse.below.join("f"), "first").unwrap();
    let local = fuse.open();
    assert!(!local.has_kernel_handles());
    find(&local, "f").unwrap();
    for text in ["second", "third"] {
        fuse.make_again("f", text);
        let found = find(&local, "f").unwrap();
        assert!(local.attributes(found.file).wait().is_ok());
    }
    // Nor is the handle lost for which the kernel has no answer any more.
    let found = find(&local, "f").unwrap();
    fuse.make_again("f", "fourth");
    let _ = local.attributes(found.file).wait();
    assert!(local.attributes(found.file).wait().is_ok());
    assert_eq!(read(&local, found.file).as_deref(), Ok("fourth"));
}

/// Files of a directory are not taken for lost when the directory was made again.
#[test]
fn file_in_a_directory_that_was_made_again_is_found() {
    let Some(fuse) = bindfs() else { return };
    let below = |path: &str| fuse.below.join(path);
    for dir in ["d", "spare"] {
        fs::create_dir(below(dir)).unwrap();
    }
    fs::write(below("f"), "text").unwrap();
    let local = fuse.open();
    let [f, d] = ["f", "d"].map(|path| find(&local, path).unwrap().file);
    let name = Name::new(b"f").unwrap();
    let moved = local.rename(&Identity::root(), (local.root(), name), (d, name));
    moved.wait().result.unwrap();
    // The same directory, which the kernel has as another one.
    fs::rename(below("d/f"), below("spare/f")).unwrap();
    fs::rename(below("d"), below("aside")).unwrap();
    assert!(fs::metadata(fuse.at.join("d")).is_err());
    fs::rename(below("aside"), below("d")).unwrap();
    fs::rename(below("spare/f"), below("d/f")).unwrap();
    let node = local
        .layers
        .files
        .peek(crate::localfs::id::key_of(f))
        .unwrap();
    local.layers.files.drop_node(&node);
    assert_eq!(read(&local, f).as_deref(), Ok("text"));
}

#[test]
fn file_of_which_the_kernel_cannot_tell_is_stale_and_closed_when_idle() {
    let Some(fuse) = bindfs() else { return };
    for n in 0..20 {
        fs::write(fuse.below.join(n.to_string()), "text").unwrap();
    }
    let local = fuse.open();
    let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let found: Vec<Found> = names
        .iter()
        .map(|name| find(&local, name).unwrap())
        .collect();
    assert_eq!(local.open_files(), 20);
    // FUSE keeps the first until it is closed.
    assert_eq!(read(&local, found[0].file).as_deref(), Ok("text"));
    for name in &names {
        fs::remove_file(fuse.at.join(name)).unwrap();
    }
    assert_eq!(local.attributes(found[1].file).wait(), Err(Error::Stale));
    assert_eq!(local.open_files(), 19, "it is closed at once");
    local.layers.end_round();
    local.layers.end_round();
    assert_eq!(local.open_files(), 0);
}

#[test]
fn file_that_a_client_removes_in_fuse_is_closed() {
    let Some(fuse) = bindfs() else { return };
    fs::write(fuse.below.join("f"), "text").unwrap();
    let local = fuse.open();
    find(&local, "f").unwrap();
    let name = Name::new(b"f").unwrap();
    let removed = local.remove(&Identity::root(), local.root(), name).wait();
    removed.result.unwrap();
    assert_eq!(local.open_files(), 0);
}

/// mergerfs with inode numbers that are hashes of paths, and no cache of names and attributes in the kernel: a file that
/// is made again has the number that it had.
fn mergerfs_with_numbers_of_paths() -> Option<Fuse> {
    let options =
        "use_ino,inodecalc=path-hash,category.create=mfs,minfreespace=0,cache.attr=0,cache.entry=0";
    Fuse::new("mergerfs", &["-o", options], 1)
}

/// Makes a file as root.
fn make(local: &LocalFs, name: &str, what: Make) -> Result<FileId, Error> {
    let name = Name::new(name.as_bytes()).unwrap();
    let made = local.make(&Identity::root(), local.root(), name, what);
    made.wait().result.map(|made| made.file)
}

fn write(local: &LocalFs, file: FileId, text: &'static str) -> Result<(), Error> {
    let data = Gather::from_elem(Bytes::from_static(text.as_bytes()), 1);
    let who = Identity::root();
    let done = local.write(&who, file, 0, data, Stability::FileSync);
    done.wait().result.map(drop)
}

/// Others remove what a client has looked at, and a client makes a new file, which gets the number.
#[test]
fn what_a_client_makes_with_the_number_of_a_file_that_others_removed_is_served() {
    let Some(fuse) = mergerfs_with_numbers_of_paths() else {
        return;
    };
    let local = fuse.open();
    let with_mode = SetAttributes::mode;
    let files = || {
        [
            ("unchecked", CreateHow::Unchecked(SetAttributes::size(0))),
            ("guarded", CreateHow::Guarded(with_mode(0o644))),
            ("read-only", CreateHow::Guarded(with_mode(0o400))),
            (
                "exclusive",
                CreateHow::Exclusive([7; 8], SetAttributes::default()),
            ),
        ]
    };
    let number = |name: &str| fs::symlink_metadata(fuse.at.join(name)).unwrap().ino();
    let see = |name: &str| {
        let found = find(&local, name).unwrap();
        assert!(local.attributes(found.file).wait().is_ok());
        number(name)
    };
    for (name, how) in files() {
        fs::write(fuse.at.join(name), "old").unwrap();
        let old = see(name);
        fs::remove_file(fuse.at.join(name)).unwrap();
        let made = make(&local, name, Make::File(how)).unwrap();
        assert_eq!(number(name), old);
        assert_eq!(
            local.attributes(made).wait().map(|now| now.size),
            Ok(0),
            "{name}"
        );
        assert_eq!(write(&local, made, "new"), Ok(()), "{name}");
        assert_eq!(read(&local, made).as_deref(), Ok("new"), "{name}");
        assert_eq!(fs::read_to_string(fuse.at.join(name)).unwrap(), "new");
    }
    // What others make again exists already.
    for (name, how) in files() {
        fs::remove_file(fuse.at.join(name)).unwrap();
        fs::write(fuse.at.join(name), "again").unwrap();
        match how {
            CreateHow::Unchecked(_) => {
                let made = make(&local, name, Make::File(how)).unwrap();
                assert_eq!(write(&local, made, "new"), Ok(()));
                assert_eq!(read(&local, made).as_deref(), Ok("new"));
            }
            _ => assert_eq!(make(&local, name, Make::File(how)), Err(Error::Exists)),
        }
    }
    // As `put` does: a file is made, written and takes the place of one that is gone.
    see("guarded");
    fs::remove_file(fuse.at.join("guarded")).unwrap();
    let made = make(
        &local,
        "temporary",
        Make::File(CreateHow::Exclusive([1; 8], SetAttributes::default())),
    )
    .unwrap();
    write(&local, made, "put").unwrap();
    let place = |name| (local.root(), Name::new(name).unwrap());
    let moved = local.rename(&Identity::root(), place(b"temporary"), place(b"guarded"));
    moved.wait().result.unwrap();
    let put = find(&local, "guarded").unwrap().file;
    assert_eq!(read(&local, put).as_deref(), Ok("put"));
}

#[test]
fn directories_links_and_fifos_that_a_client_makes_again_are_served() {
    let Some(fuse) = mergerfs_with_numbers_of_paths() else {
        return;
    };
    let local = fuse.open();
    let all = || {
        [
            ("directory", Make::Directory(SetAttributes::mode(0o755))),
            (
                "link",
                Make::Symlink(Bytes::from_static(b"to"), SetAttributes::default()),
            ),
            (
                "fifo",
                Make::Special(FileKind::Fifo, (0, 0), SetAttributes::default()),
            ),
        ]
    };
    let mut numbers = HashSet::new();
    for _ in 0..2 {
        for (name, what) in all() {
            let made = make(&local, name, what).unwrap();
            assert!(local.attributes(made).wait().is_ok(), "{name}");
            if name == "directory" {
                let within = Name::new(b"f").unwrap();
                let f = local
                    .make(&Identity::root(), made, within, file(0o644))
                    .wait();
                let f = f.result.unwrap().file;
                write(&local, f, "within").unwrap();
                assert_eq!(read(&local, f).as_deref(), Ok("within"));
            }
            if name == "link" {
                let text = local.read_link(&Identity::root(), made).wait().result;
                assert_eq!(text.as_deref(), Ok(&b"to"[..]));
            }
            numbers.insert(fs::symlink_metadata(fuse.at.join(name)).unwrap().ino());
        }
        fs::remove_dir_all(fuse.at.join("directory")).unwrap();
        for name in ["link", "fifo"] {
            fs::remove_file(fuse.at.join(name)).unwrap();
        }
    }
    assert_eq!(numbers.len(), 3, "they have the numbers that they had");
}

#[test]
fn files_of_several_branches_with_one_inode_number_are_several_files() {
    let programs: [(&str, &[&str]); 2] = [
        ("unionfs", &["-o", "cow,use_ino"]),
        (
            "mergerfs",
            &["-o", "inodecalc=passthrough,category.create=mfs"],
        ),
    ];
    for (program, arguments) in programs {
        let Some(fuse) = Fuse::new(program, arguments, 2) else {
            continue;
        };
        let other = fuse.below.with_file_name("1");
        let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        for name in &names {
            fs::write(fuse.below.join(format!("a{name}")), format!("a{name}")).unwrap();
            fs::write(other.join(format!("b{name}")), format!("b{name}")).unwrap();
        }
        let local = fuse.open();
        let names =
            ["a", "b"].map(|branch| names.iter().map(move |name| format!("{branch}{name}")));
        let names: Vec<String> = names.into_iter().flatten().collect();
        let files = names.iter().map(|name| find(&local, name).unwrap().file);
        let files: Vec<FileId> = files.collect();
        for (name, file) in names.iter().zip(&files) {
            assert_eq!(read(&local, *file).as_deref(), Ok(&**name), "{program}");
        }
    }
}

/// Lists the root in pages, and calls `between` with the names of each page after it.
fn list_in_pages(local: &LocalFs, plus: bool, mut between: impl FnMut(&[String])) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), DirFrom::START);
    loop {
        let who = Identity::root();
        let page = local.read_directory(&who, local.root(), from, DirBudget::PAGE, plus);
        let page = page.wait().result.unwrap();
        let of_page = page
            .iter()
            .map(|(name, _)| String::from_utf8(name.into()).unwrap());
        let of_page: Vec<String> = of_page.filter(|name| !name.starts_with('.')).collect();
        let last = page.entries.last().map_or(from.cookie, |last| last.cookie);
        from = DirFrom {
            cookie: last,
            verifier: page.verifier,
        };
        between(&of_page);
        names.extend(of_page);
        if page.eof {
            return names;
        }
    }
}

/// The listing that a client sees which removes what it has listed, page by page.
fn check_listing_while_entries_are_removed(at: &Path, local: &LocalFs) {
    let names: HashSet<String> = (0..2000).map(|n| format!("entry{n}")).collect();
    for plus in [false, true] {
        for name in &names {
            fs::write(at.join(name), "").unwrap();
        }
        let listed = list_in_pages(local, plus, |page| {
            for name in page.iter().filter(|name| names.contains(*name)) {
                fs::remove_file(at.join(name)).unwrap();
            }
        });
        let mut listed: Vec<_> = listed.iter().filter(|name| names.contains(*name)).collect();
        assert_eq!(listed.len(), names.len(), "each is listed once");
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed.len(), names.len());
    }
}

#[test]
fn names_of_an_overlay_are_listed_once_while_others_are_removed() {
    if let Some(overlay) = Overlay::new() {
        check_listing_while_entries_are_removed(&overlay.at, &overlay.open());
    }
}

#[test]
fn names_in_fuse_are_listed_once_while_others_are_removed() {
    let mergerfs = || Fuse::new("mergerfs", &["-o", "category.create=mfs"], 2);
    let makes: [fn() -> Option<Fuse>; 2] = [bindfs, mergerfs];
    for fuse in makes.iter().filter_map(|make| make()) {
        check_listing_while_entries_are_removed(&fuse.at, &fuse.open());
    }
}

/// As a large directory is, in many parts.
#[test]
fn directory_is_listed_by_name_in_parts() {
    let mut export = Export::with_table();
    for n in 0..500 {
        export.write(&format!("entry{n}"), "");
    }
    for max_listed in [1, 2000, 1 << 20] {
        export.restart_as(
            |opening| opening.volume.by_name = true,
            |layers| layers.listed.max_listed = max_listed,
        );
        let mut added = false;
        let mut listed = list_in_pages(export.fs(), max_listed == 2000, |_| {
            // It has no part in the listing that has begun.
            added = added || fs::write(export.path.join("added"), "").is_ok();
        });
        listed.retain(|name| name != "added");
        listed.sort_unstable();
        let mut all: Vec<String> = (0..500).map(|n| format!("entry{n}")).collect();
        all.sort_unstable();
        assert_eq!(listed, all, "{max_listed}");
    }
}

/// A reader that begins after a name was added sees it, whatever others have read before.
#[test]
fn listing_by_name_begins_with_what_is_there() {
    let mut export = Export::with_table();
    for n in 0..500 {
        export.write(&format!("entry{n}"), "");
    }
    export.restart_as(
        |opening| opening.volume.by_name = true,
        |layers| layers.listed.max_listed = 5000,
    );
    assert_eq!(list_in_pages(export.fs(), false, |_| {}).len(), 500);
    for n in 500..600 {
        export.write(&format!("entry{n}"), "");
    }
    assert_eq!(list_in_pages(export.fs(), false, |_| {}).len(), 600);
}

/// The process behind it has ended, and another one is started.
#[test]
fn file_system_in_fuse_that_is_mounted_again_is_served_to_the_next_client_that_mounts() {
    let Some(fuse) = bindfs() else { return };
    fs::write(fuse.below.join("f"), "text").unwrap();
    let local = fuse.open();
    let f = find(&local, "f").unwrap();
    // The first ends the connection to the process.
    for flags in [UnmountFlags::FORCE, UnmountFlags::DETACH] {
        let _ = unmount(&fuse.at, flags);
    }
    assert!(local.attributes(f.file).wait().is_err());
    // The directory below is another one.
    assert_eq!(local.root_to_mount().wait(), Err(Error::Stale));
    let [below, at] = [&fuse.below, &fuse.at].map(|path| path.to_str().unwrap());
    assert!(mounts::done("bindfs", &[below, at]));
    let root = local.root_to_mount().wait().unwrap();
    assert_eq!(root, local.root());
    assert_eq!(
        read(&local, find(&local, "f").unwrap().file).as_deref(),
        Ok("text")
    );
    // What a client has open goes on.
    assert_eq!(read(&local, f.file).as_deref(), Ok("text"));
}
