//! Sealed file handles.
//!
//! A handle has 25 to 64 bytes: a format number, the export, the [`FileId`] of the file in its file
//! system, and a message authentication code (SipHash-2-4 with 128 bits) over all of that, under a
//! key of the server. Without the key nobody can make a handle, not even of a file with a known
//! inode number.

use crate::fs::FileId;
use crate::recent::Recent;
use nfs_proto::limits::MAX_HANDLE;
use nfs_proto::{FileHandle, Status};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, linkat, openat, unlinkat};
use rustix::io::Errno;
use siphasher::sip128::SipHasher24;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Bytes of a handle beside its [`FileId`].
pub(crate) const HANDLE_FRAME: usize = HEAD + CODE;

/// Bytes of format and export.
const HEAD: usize = 4 + 4;

/// Bytes of the authentication code.
const CODE: usize = 16;

/// First word of every handle: the version of the layout.
const FORMAT: u32 = 2;

/// Versions of the layout that other versions of this server use.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=255;

const _: () = assert!(HANDLE_FRAME + FileId::MAX == MAX_HANDLE as usize);

/// The key that seals file handles.
#[derive(Clone)]
pub struct HandleKey([u8; Self::LEN]);

thread_local! {
    /// Codes of handles that came last, by key and body.
    static RECENT_CODES: Recent<([u8; HandleKey::LEN], FileHandle), [u8; CODE]> = const { Recent::new() };
}

/// Why the key cannot be loaded or created.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum KeyError {
    #[error(
        "{path}: cannot use this key of file handles: {error} (choose another directory with --state-dir)"
    )]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{path}: it is not a key of {} bytes (remove it to go on; clients have to mount again)",
        HandleKey::LEN
    )]
    Length { path: PathBuf },
    #[error("the system has no random numbers for a key: {0}")]
    Random(getrandom::Error),
    #[error(
        "{path}: it belongs to uid {uid}, who can make file handles with it (remove it, or choose another directory with --state-dir)"
    )]
    Owner { path: PathBuf, uid: u32 },
    #[error(
        "{path}: it is no file of its own but a link or something else, where another can have put a key (remove it; clients have to mount again)"
    )]
    NoFile { path: PathBuf },
    #[error(
        "{path}: others than its owner have rights to it, and can make file handles with it (remove it; clients have to mount again)"
    )]
    Mode { path: PathBuf },
    #[error(
        "{path}: this directory belongs to uid {uid}, who can replace the key of file handles (choose another one with --state-dir)"
    )]
    DirectoryOwner { path: PathBuf, uid: u32 },
    #[error(
        "{path}: others than the owner of this directory can replace the key of file handles (chmod go-w, or choose another one with --state-dir)"
    )]
    DirectoryMode { path: PathBuf },
}

impl HandleKey {
    /// Bytes of a key.
    pub const LEN: usize = 16;

    /// Name of the file with the key in a state directory.
    const FILE: &'static str = "handle.key";

    /// Creates a key for this run: handles are invalid after a restart.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn random() -> Result<Self, KeyError> {
        let mut key = [0; Self::LEN];
        getrandom::fill(&mut key).map_err(KeyError::Random)?;
        Ok(Self(key))
    }

    /// Loads the key from a state directory. Creates the directory and the key if they are missing.
    ///
    /// # Errors
    ///
    /// If the key cannot be read or created, or another user can have it or replace it.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, KeyError> {
        if let Some(key) = Self::load(state_dir)? {
            return Ok(key);
        }
        let path = state_dir.join(Self::FILE);
        let failed = |error| KeyError::File {
            path: path.clone(),
            error,
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(failed)?;
        let directory = open_directory(state_dir, &path)?;
        Self::random()?.store(&directory).map_err(failed)?;
        // Another server that started at the same time may have stored its key.
        Self::read(&directory, &path)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// Loads the key from a state directory, if there is one.
    ///
    /// # Errors
    ///
    /// If the key cannot be read, or another user can have it or replace it.
    pub fn load(state_dir: &Path) -> Result<Option<Self>, KeyError> {
        let path = state_dir.join(Self::FILE);
        match open_directory(state_dir, &path) {
            Ok(directory) => Self::read(&directory, &path),
            Err(KeyError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn read(directory: &OwnedFd, path: &Path) -> Result<Option<Self>, KeyError> {
        let path = path.to_owned();
        // A FIFO would not be opened before it is written to.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(directory, Self::FILE, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(KeyError::NoFile { path }),
            opened => opened.map(File::from),
        };
        let looked_at = opened.and_then(|file| Ok((fstat(&file)?, file)));
        let (about, file) = looked_at.map_err(|errno| KeyError::File {
            path: path.clone(),
            error: errno.into(),
        })?;
        if !FileType::from_raw_mode(about.st_mode).is_file() {
            return Err(KeyError::NoFile { path });
        }
        if !is_trusted(about.st_uid, rustix::process::geteuid().as_raw()) {
            let uid = about.st_uid;
            return Err(KeyError::Owner { path, uid });
        }
        if about.st_mode & 0o077 != 0 {
            return Err(KeyError::Mode { path });
        }
        let mut bytes = Vec::new();
        let all = file.take(Self::LEN as u64 + 1).read_to_end(&mut bytes);
        match (all, bytes.try_into()) {
            (Err(error), _) => Err(KeyError::File { path, error }),
            (Ok(_), Ok(key)) => Ok(Some(Self(key))),
            (Ok(_), Err(_)) => Err(KeyError::Length { path }),
        }
    }

    fn store(&self, directory: &OwnedFd) -> io::Result<()> {
        let mut unique = [0; 8];
        getrandom::fill(&mut unique).map_err(|_| io::ErrorKind::Unsupported)?;
        let new = format!("handle.{:016x}", u64::from_ne_bytes(unique));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(&self.0)?;
        file.sync_all()?;
        // The link makes the complete file appear, and replaces no other key.
        let linked = linkat(directory, &new, directory, Self::FILE, AtFlags::empty());
        unlinkat(directory, &new, AtFlags::empty())?;
        match linked {
            Err(Errno::EXIST) => {}
            linked => linked?,
        }
        // Without the sync, a crash of the machine could lose the key, and with it all handles
        // sealed by then.
        Ok(rustix::fs::fsync(directory)?)
    }

    /// Seals the handle of a file in an export.
    pub(crate) fn seal(&self, export: u32, file: FileId) -> FileHandle {
        let mut bytes = [0; MAX_HANDLE as usize];
        let file = file.as_bytes();
        let body = HEAD + file.len();
        bytes[..4].copy_from_slice(&FORMAT.to_be_bytes());
        bytes[4..HEAD].copy_from_slice(&export.to_be_bytes());
        bytes[HEAD..body].copy_from_slice(file);
        let code = self.code(&bytes[..body]);
        bytes[body..body + CODE].copy_from_slice(&code);
        FileHandle::new(&bytes[..body + CODE]).expect("a file id has at most 40 bytes")
    }

    /// Opens a handle that was sealed with this key: returns the number of the export and the file.
    ///
    /// # Errors
    ///
    /// [`Status::Stale`] for what can have been a handle under another key or of another version of
    /// this server; [`Status::BadHandle`] for what never was one (RFC 1813 §2.6).
    pub(crate) fn open(&self, handle: &[u8]) -> Result<(u32, FileId), Status> {
        let (body, code) = handle.split_last_chunk::<CODE>().ok_or(Status::BadHandle)?;
        let (format, rest) = body.split_first_chunk().ok_or(Status::BadHandle)?;
        let (export, file) = rest.split_first_chunk().ok_or(Status::BadHandle)?;
        let format = u32::from_be_bytes(*format);
        let file = FileId::new(file).ok_or(Status::BadHandle)?;
        if !FORMATS.contains(&format) {
            return Err(Status::BadHandle);
        }
        // Compared as one number: the time taken does not depend on where the codes differ.
        let differs = u128::from_ne_bytes(*code) ^ u128::from_ne_bytes(self.code_again(body));
        if differs != 0 || format != FORMAT {
            return Err(Status::Stale);
        }
        Ok((u32::from_be_bytes(*export), file))
    }

    /// Like [`code`](Self::code), for the body of a handle that a client has sent: most come again and again. What is remembered is
    /// the right code, whatever the client's was, so that this one is compared in each call.
    fn code_again(&self, body: &[u8]) -> [u8; CODE] {
        let (words, _) = body.as_chunks();
        let number = words.iter().fold(0, |sum: u64, word| {
            sum.wrapping_add(u64::from_ne_bytes(*word))
        });
        RECENT_CODES.with(|recent| {
            let again = recent.answer(number, |(key, other)| *key == self.0 && **other == *body);
            again.unwrap_or_else(|| {
                let code = self.code(body);
                // The body of a handle is shorter than a handle.
                if let Some(body) = FileHandle::new(body) {
                    recent.remember(number, (self.0, body), code);
                }
                code
            })
        })
    }

    fn code(&self, body: &[u8]) -> [u8; CODE] {
        // Hashed in one call: an incremental hasher buffers partial words and costs twice as much.
        SipHasher24::new_with_key(&self.0).hash(body).as_bytes()
    }
}

/// Opens a state directory in which no other user can replace the key, which is at `path`. The way to it
/// may have links, as that of systemd's DynamicUser= has.
fn open_directory(state_dir: &Path, path: &Path) -> Result<OwnedFd, KeyError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, state_dir, flags, Mode::empty());
    let looked_at = opened.and_then(|directory| Ok((fstat(directory.as_fd())?, directory)));
    let (about, directory) = looked_at.map_err(|errno| KeyError::File {
        path: path.into(),
        error: errno.into(),
    })?;
    let path = state_dir.to_owned();
    if !is_trusted(about.st_uid, rustix::process::geteuid().as_raw()) {
        let uid = about.st_uid;
        return Err(KeyError::DirectoryOwner { path, uid });
    }
    match about.st_mode & 0o022 {
        0 => Ok(directory),
        _ => Err(KeyError::DirectoryMode { path }),
    }
}

/// Whether the owner of a file is trusted: the user who runs the server, or root.
pub(crate) fn is_trusted(owner: u32, own: u32) -> bool {
    owner == 0 || owner == own
}

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file() -> FileId {
        FileId::of_words([1, u64::MAX, 3])
    }

    #[test]
    fn handle_opens_to_what_was_sealed() {
        let key = HandleKey([7; 16]);
        for len in [1, 10, FileId::MAX] {
            let file = FileId::new(&vec![0xff; len]).unwrap();
            let handle = key.seal(0xdead_beef, file);
            assert_eq!(handle.len(), 24 + len);
            assert_eq!(key.open(&handle), Ok((0xdead_beef, file)));
        }
    }

    #[test]
    fn handle_with_any_bit_changed_is_refused() {
        let key = HandleKey([7; 16]);
        let handle = key.seal(1, file());
        for bit in 0..handle.len() * 8 {
            let mut forged = handle.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(key.open(&forged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn handle_is_refused_also_if_the_right_one_came_before() {
        let (key, other_key) = (HandleKey([7; 16]), HandleKey([8; 16]));
        let handle = key.seal(1, file());
        for bit in 0..handle.len() * 8 {
            for _ in 0..2 {
                assert_eq!(key.open(&handle), Ok((1, file())));
                assert_eq!(other_key.open(&handle), Err(Status::Stale));
            }
            let mut forged = handle.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            for _ in 0..2 {
                assert!(key.open(&forged).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn handles_of_other_keys_and_formats_are_stale() {
        let key = HandleKey([7; 16]);
        let handle = key.seal(1, file());
        assert_eq!(HandleKey([8; 16]).open(&handle), Err(Status::Stale));
        assert_eq!(key.open(&handle[..47]), Err(Status::Stale));
        assert_eq!(key.open(&[&handle[..], &[0]].concat()), Err(Status::Stale));
        // As servers before sealed them, and one to come may.
        for format in [1, 3] {
            let mut other = handle.to_vec();
            other[3] = format;
            let code = key.code(&other[..32]);
            other[32..].copy_from_slice(&code);
            assert_eq!(key.open(&other), Err(Status::Stale));
        }
    }

    #[test]
    fn what_never_was_a_handle_is_bad() {
        let key = HandleKey([7; 16]);
        let handle = key.seal(1, FileId::new(&[1]).unwrap());
        for len in 0..handle.len() {
            assert_eq!(key.open(&handle[..len]), Err(Status::BadHandle), "{len}");
        }
        assert_eq!(
            key.open(&[&handle[..], &[0; 40]].concat()),
            Err(Status::BadHandle)
        );
        assert_eq!(key.open(&[0xa5; 32]), Err(Status::BadHandle));
        assert_eq!(key.open(&[0; 32]), Err(Status::BadHandle));
    }

    #[test]
    fn code_is_that_of_the_published_vector() {
        // SipHash-2-4 with 128 bits: key 00..0f, message empty and 00 (vectors_sip128 of the
        // reference implementation).
        let key = HandleKey(std::array::from_fn(|at| u8::try_from(at).unwrap()));
        let empty = 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128;
        let one = 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128;
        assert_eq!(key.code(&[]), empty.to_be_bytes());
        assert_eq!(key.code(&[0]), one.to_be_bytes());
    }

    #[test]
    fn state_of_root_and_of_the_server_is_trusted_and_of_no_other_user() {
        assert!(is_trusted(0, 1000) && is_trusted(1000, 1000) && is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
    }

    #[test]
    fn key_is_the_same_after_a_restart_and_nobody_elses_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("new/state");
        assert!(HandleKey::load(&state).unwrap().is_none());
        let first = HandleKey::load_or_create(&state).unwrap();
        let second = HandleKey::load_or_create(&state).unwrap();
        assert_eq!(first.0, second.0);
        let mode = std::fs::metadata(state.join(HandleKey::FILE)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1);
    }

    /// A state directory with a key.
    fn with_key() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        HandleKey::load_or_create(dir.path()).unwrap();
        let path = dir.path().join(HandleKey::FILE);
        (dir, path)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn key_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, path) = with_key();
        std::os::unix::fs::chown(&path, Some(1001), None).unwrap();
        let error = HandleKey::load_or_create(dir.path()).unwrap_err();
        assert!(
            matches!(error, KeyError::Owner { uid: 1001, .. }),
            "{error}"
        );
    }

    #[test]
    fn key_in_a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, _) = with_key();
        std::os::unix::fs::chown(dir.path(), Some(1001), None).unwrap();
        let error = HandleKey::load(dir.path()).unwrap_err();
        let is_refused = matches!(error, KeyError::DirectoryOwner { uid: 1001, .. });
        assert!(is_refused, "{error}");
    }

    #[test]
    fn key_that_others_can_replace_or_use_is_refused() {
        let (dir, path) = with_key();
        for mode in [0o770, 0o707, 0o1777] {
            set_mode(dir.path(), mode);
            let error = HandleKey::load_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, KeyError::DirectoryMode { .. }), "{error}");
        }
        set_mode(dir.path(), 0o755);
        for mode in [0o640, 0o604, 0o620] {
            set_mode(&path, mode);
            let error = HandleKey::load(dir.path()).unwrap_err();
            assert!(matches!(error, KeyError::Mode { .. }), "{error}");
        }
        set_mode(&path, 0o600);
        assert!(HandleKey::load(dir.path()).unwrap().is_some());
    }

    #[test]
    fn link_to_a_file_is_no_key() {
        let (dir, path) = with_key();
        let known = dir.path().join("known");
        std::fs::rename(&path, &known).unwrap();
        std::os::unix::fs::symlink(&known, &path).unwrap();
        let refused = || HandleKey::load_or_create(dir.path()).unwrap_err();
        assert!(matches!(refused(), KeyError::NoFile { .. }));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert!(matches!(refused(), KeyError::NoFile { .. }));
        std::fs::remove_file(&path).unwrap();
        let kind = FileType::Fifo;
        rustix::fs::mknodat(CWD, &path, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(matches!(refused(), KeyError::NoFile { .. }));
    }

    #[test]
    fn state_directory_may_be_reached_by_a_link() {
        let (dir, _) = with_key();
        let around = tempfile::tempdir().unwrap();
        let link = around.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(HandleKey::load(&link).unwrap().is_some());
    }

    #[test]
    fn damaged_key_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(HandleKey::FILE), b"short").unwrap();
        let error = HandleKey::load_or_create(dir.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("handle.key") && error.contains("remove it"),
            "{error}"
        );
    }
}
