//! The same random calls to both file systems: they must agree on every result.

use super::*;
use crate::{Changes, LocalFs, LocalFsOptions, MemFs};
use proptest::prelude::*;

/// A call, with its files by the order in which they were first seen.
#[derive(Clone, Debug)]
enum Step {
    Lookup(usize, u8),
    Create(usize, u8, u8),
    Directory(usize, u8),
    Symlink(usize, u8),
    Remove(usize, u8),
    RemoveDirectory(usize, u8),
    Rename(usize, u8, usize, u8),
    Link(usize, usize, u8),
    Write(usize, u16, u16),
    Truncate(usize, u16),
    Mode(usize, u32),
    Read(usize, u16),
    List(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (file, name) = (0_usize..8, 0_u8..4);
    let step = prop_oneof![
        2 => (file.clone(), name.clone()).prop_map(|(f, n)| Step::Lookup(f, n)),
        3 => (file.clone(), name.clone(), 0_u8..3).prop_map(|(f, n, how)| Step::Create(f, n, how)),
        3 => (file.clone(), name.clone()).prop_map(|(f, n)| Step::Directory(f, n)),
        1 => (file.clone(), name.clone()).prop_map(|(f, n)| Step::Symlink(f, n)),
        2 => (file.clone(), name.clone()).prop_map(|(f, n)| Step::Remove(f, n)),
        1 => (file.clone(), name.clone()).prop_map(|(f, n)| Step::RemoveDirectory(f, n)),
        4 => (file.clone(), name.clone(), file.clone(), name.clone())
            .prop_map(|(f, n, t, m)| Step::Rename(f, n, t, m)),
        2 => (file.clone(), file.clone(), name).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        2 => (file.clone(), any::<u16>(), 1_u16..5000).prop_map(|(f, o, l)| Step::Write(f, o, l)),
        1 => (file.clone(), any::<u16>()).prop_map(|(f, s)| Step::Truncate(f, s)),
        1 => (file.clone(), 0_u32..0o100).prop_map(|(f, m)| Step::Mode(f, 0o700 | m)),
        2 => (file.clone(), any::<u16>()).prop_map(|(f, o)| Step::Read(f, o)),
        2 => file.prop_map(Step::List),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..60)
}

fn called(name: u8) -> Name<'static> {
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    Name::new(names[usize::from(name)]).unwrap()
}

/// Attributes that can be compared.
type Look = (FileKind, u32, u32, u64);

fn look(attributes: &Attributes) -> Look {
    let directory = attributes.is_directory();
    (
        attributes.kind,
        attributes.mode,
        // How directories count their links and bytes is up to the file system.
        if directory { 0 } else { attributes.links },
        if directory { 0 } else { attributes.size },
    )
}

/// Result of a call.
#[derive(Debug, PartialEq)]
enum Shown {
    Done,
    File(usize, Look),
    Data(Vec<u8>, bool),
    Names(Vec<Vec<u8>>),
}

/// A file system and the files seen in it.
struct Side<F> {
    fs: F,
    files: Vec<FileId>,
}

impl<F: FileSystem> Side<F> {
    fn new(fs: F) -> Self {
        Self {
            files: vec![fs.root()],
            fs,
        }
    }

    fn file(&self, at: usize) -> FileId {
        self.files[at % self.files.len()]
    }

    fn saw(&mut self, found: &Found) -> Shown {
        let known = self.files.iter().position(|file| *file == found.file);
        let at = known.unwrap_or_else(|| {
            self.files.push(found.file);
            self.files.len() - 1
        });
        Shown::File(at, look(&found.attributes))
    }

    fn run(&mut self, step: &Step) -> Result<Shown, Error> {
        let who = Identity::root();
        let set = SetAttributes::mode(0o755);
        let make = |side: &mut Self, dir: usize, name: u8, what| {
            let done = side.fs.make(&who, side.file(dir), called(name), what);
            done.wait().result.map(|found| side.saw(&found))
        };
        match *step {
            Step::Lookup(dir, name) => {
                let step = super::Step::Name(called(name));
                let seen = self.fs.lookup(&who, self.file(dir), step).wait();
                seen.result.map(|found| self.saw(&found))
            }
            Step::Create(dir, name, how) => {
                let how = match how {
                    0 => CreateHow::Guarded(set),
                    1 => CreateHow::Unchecked(SetAttributes::size(7)),
                    _ => CreateHow::Exclusive([name; 8], SetAttributes::default()),
                };
                make(self, dir, name, Make::File(how))
            }
            Step::Directory(dir, name) => make(self, dir, name, Make::Directory(set)),
            Step::Symlink(dir, name) => {
                let what = Make::Symlink(Bytes::from_static(b"to"), SetAttributes::default());
                make(self, dir, name, what)
            }
            Step::Remove(dir, name) => {
                let done = self.fs.remove(&who, self.file(dir), called(name)).wait();
                done.result.map(|()| Shown::Done)
            }
            Step::RemoveDirectory(dir, name) => {
                let done = self.fs.remove_directory(&who, self.file(dir), called(name));
                done.wait().result.map(|()| Shown::Done)
            }
            Step::Rename(from, name, to, new) => {
                let from = (self.file(from), called(name));
                let to = (self.file(to), called(new));
                let done = self.fs.rename(&who, from, to).wait();
                done.result.map(|()| Shown::Done)
            }
            Step::Link(file, dir, name) => {
                let (file, dir) = (self.file(file), self.file(dir));
                let done = self.fs.link(&who, file, dir, called(name)).wait();
                done.result.map(|()| Shown::Done)
            }
            Step::Write(file, offset, len) => {
                let data = Bytes::from(vec![b'w'; len.into()]);
                let data = Gather::from_elem(data, 1);
                let how = Stability::Unstable;
                let done = self
                    .fs
                    .write(&who, self.file(file), offset.into(), data, how)
                    .wait();
                done.result.map(|_| Shown::Done)
            }
            Step::Truncate(file, size) => self.set(file, SetAttributes::size(size.into())),
            Step::Mode(file, mode) => self.set(file, SetAttributes::mode(mode)),
            Step::Read(file, offset) => {
                let seen = self
                    .fs
                    .read(&who, self.file(file), offset.into(), 10_000)
                    .wait();
                seen.result
                    .map(|read| Shown::Data(read.data.concat(), read.eof))
            }
            Step::List(dir) => {
                let from = DirFrom {
                    cookie: 0,
                    verifier: 0,
                };
                let budget = DirBudget {
                    total: 1 << 20,
                    per_entry: DirBudget::BASE,
                    per_handle: 24,
                    names: usize::MAX,
                };
                let dir = self.file(dir);
                let seen = self.fs.read_directory(&who, dir, from, budget, true);
                seen.wait().result.map(|page| {
                    let mut names: Vec<_> = page.iter().map(|(name, _)| name.to_vec()).collect();
                    names.sort();
                    Shown::Names(names)
                })
            }
            Step::Restart => Ok(Shown::Done),
        }
    }

    fn set(&mut self, file: usize, set: SetAttributes) -> Result<Shown, Error> {
        let who = Identity::root();
        let done = self
            .fs
            .set_attributes(&who, self.file(file), set, None)
            .wait();
        done.result.map(|()| Shown::Done)
    }

    fn looks(&self) -> Vec<Result<Look, Error>> {
        let attributes = |file: &FileId| self.fs.attributes(*file).wait();
        let looks = self.files.iter().map(attributes);
        looks.map(|found| found.map(|found| look(&found))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_file_systems_do_the_same(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export");
        std::fs::create_dir(&path).unwrap();
        let open = || {
            let options = LocalFsOptions::default().with_state_dir(dir.path().join("state")).with_changes(Changes::Cached).with_open_files(3);
            LocalFs::open(&path, options).unwrap()
        };
        // To a file system that is not run by root nobody is root: no step takes a right from the
        // owner.
        let mut local = Some(Side::new(open()));
        let mut memory = Side::new(MemFs::new(64 << 20));
        let mode = SetAttributes::mode(0o777);
        memory.set(0, mode).unwrap();
        local.as_mut().unwrap().set(0, mode).unwrap();
        for step in &steps {
            if matches!(step, Step::Restart) {
                let files = local.take().map(|side| side.files).unwrap_or_default();
                local = Some(Side { fs: open(), files });
            }
            let local = local.as_mut().unwrap();
            prop_assert_eq!(local.run(step), memory.run(step), "{:?} (disk, memory)", step);
            prop_assert_eq!(local.looks(), memory.looks(), "after {:?} (disk, memory)", step);
        }
    }
}
