//! Options for exporting a directory.

use buffer::Pool;
use std::path::PathBuf;

/// Options for exporting a directory.
///
/// Start with the [default](Self::default) and change fields by their methods:
///
/// ```no_run
/// use nfs_server::{LocalFs, LocalFsOptions};
/// use std::path::PathBuf;
///
/// let options = LocalFsOptions::default()
///     .with_state_dir(PathBuf::from("/var/lib/example"))
///     .with_open_files(1024);
/// let directory = LocalFs::open("/data", options)?;
/// # Ok::<_, nfs_server::OpenError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalFsOptions {
    /// Directory for persistent state of all exports; see
    /// [`default_state_dir`](crate::default_state_dir). Without one,
    /// handles are valid until the server ends.
    pub state_dir: Option<PathBuf>,
    /// Pool for the memory of data.
    pub pool: Pool,
    /// When changes of names and attributes reach the disk.
    pub changes: Changes,
    /// How files are found from their handles.
    pub handles: Handles,
    /// Largest number of files kept open between calls, each with up to three descriptors. By
    /// default all exports together use a quarter of the process's descriptors. Clients of NFS version 4 hold at most three quarters
    /// of these files open.
    pub open_files: Option<usize>,
}

/// How files are found from their handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handles {
    /// By kernel handles, if the file system has them and this process may open them
    /// (`CAP_DAC_READ_SEARCH`); otherwise by a table.
    #[default]
    Auto,
    /// By a table of file locations, in the state directory.
    Table,
}

/// When a change of names or attributes reaches the disk. Data has its own rules: a WRITE names its
/// stability, and COMMIT makes data durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changes {
    /// Before the call is answered, as RFC 1813 §4.7 demands.
    #[default]
    Durable,
    /// When the kernel writes it back. A crash of the machine may undo changes that clients were
    /// told are done; a crash of the server does not.
    Cached,
}

impl LocalFsOptions {
    buffer::setters! {
        with_state_dir(state_dir: impl Into<Option<PathBuf>>),
        with_pool(pool: Pool),
        with_changes(changes: Changes),
        with_handles(handles: Handles),
        with_open_files(open_files: impl Into<Option<usize>>),
    }
}

impl Default for LocalFsOptions {
    fn default() -> Self {
        Self {
            state_dir: None,
            pool: Pool::new(32 << 20),
            changes: Changes::default(),
            handles: Handles::default(),
            open_files: None,
        }
    }
}
