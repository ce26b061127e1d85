//! Options of `get` and `put`.

use super::exclude::Exclude;
use super::sparse::Sparse;
use crate::session::SessionArgs;
use clap::Args;
use rustix::fs::Mode;

/// Options of copies.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories with all that is in them; symbolic links in them are copied, not followed, and names of
    /// one file (hard links) are names of one copy
    #[arg(short, long)]
    pub(super) recursive: bool,

    /// Keep modes, with the set-user-ID, set-group-ID and sticky bits, times to the nanosecond, and
    /// owner and group where that is allowed. Otherwise files get the permissions of the source that
    /// the umask leaves
    #[arg(short, long)]
    pub(super) preserve: bool,

    /// Do not overwrite files that are there
    #[arg(short, long, conflicts_with = "update")]
    pub(super) no_clobber: bool,

    /// Overwrite a file only if that of the source was changed later
    #[arg(short, long)]
    pub(super) update: bool,

    /// Leave out what matches this pattern. May be given several times
    ///
    /// As with rsync: a pattern is compared with the end of a path, whole names at a time: `*.o` and
    /// `target/debug` are left out in every directory. With a slash at its beginning it is compared with
    /// the whole path, which begins with the name of what is copied: `/photos/old`. `*` and `?` stop at
    /// slashes, `**` does not. With a slash at its end it matches directories only.
    #[arg(long, value_name = "GLOB")]
    pub(super) exclude: Vec<String>,

    /// Remove at the destination what is not in a directory that is copied
    ///
    /// It is done after everything was copied, and not at all if the source could not be read in full.
    /// What is excluded stays. --dry-run shows what would be removed.
    #[arg(long, requires = "recursive")]
    pub(super) delete: bool,

    /// Show what would be copied and removed, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// When copies have holes, ranges of zeros that take no space: where the source has them, wherever there
    /// are zeros, or nowhere
    ///
    /// `put` finds holes of local files without reading them. NFS version 3 cannot tell where holes are: `get`
    /// reads all of a file, and leaves out blocks of zeros if it takes less space on the server than its size.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) sparse: Sparse,

    /// Keep a large file that is cut off, and go on with what an earlier run with this option has kept
    ///
    /// It is under a name like .NAME.rpcrdma-NUMBER beside the file. Only the same version of the source, by inode,
    /// size and times, is gone on with; the last 32 MiB are copied again, as a crash may have damaged them, and 1
    /// MiB before those is compared. If the source is changed while it is copied, the copy fails. Files up to 32
    /// MiB are copied as a whole.
    #[arg(long)]
    pub(super) resume: bool,

    /// Name each file that was copied, left out or removed
    #[arg(short, long)]
    pub(super) verbose: bool,

    /// Show neither progress nor a summary
    #[arg(short, long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

impl CopyArgs {
    /// The first of the options that make no sense with standard input and output, which have neither a name
    /// nor attributes.
    pub(crate) fn not_for_streams(&self) -> Option<&'static str> {
        let given = [
            (self.recursive, "--recursive"),
            (self.preserve, "--preserve"),
            (self.update, "--update"),
            (self.resume, "--resume"),
            (!self.exclude.is_empty(), "--exclude"),
            (self.dry_run, "--dry-run"),
        ];
        given
            .iter()
            .find(|(given, _)| *given)
            .map(|(_, name)| *name)
    }
}

/// What a copy is to do, and what not.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) recursive: bool,
    /// Whether modes, times and owners are kept.
    pub(crate) preserves: bool,
    /// Whether what is there stays as it is.
    pub(crate) keeps_existing: bool,
    /// Whether only what is older is replaced.
    pub(crate) updates: bool,
    pub(crate) deletes: bool,
    pub(crate) dry_run: bool,
    pub(crate) sparse: Sparse,
    /// Whether large files that are cut off are kept, and continued.
    pub(crate) resumes: bool,
    pub(crate) verbose: bool,
    pub(crate) quiet: bool,
    /// Whether the data goes to standard output.
    pub(crate) to_stdout: bool,
    pub(crate) exclude: Exclude,
    /// Permissions that new files do not get, unless they are kept.
    pub(crate) umask: u32,
    /// To what times at the destination are rounded, in nanoseconds.
    pub(crate) resolution: i128,
}

impl Options {
    /// # Errors
    ///
    /// [`Usage`](crate::failure::Usage) for a pattern that is none.
    pub(crate) fn new(args: &CopyArgs) -> anyhow::Result<Self> {
        Ok(Self {
            recursive: args.recursive,
            preserves: args.preserve,
            keeps_existing: args.no_clobber,
            updates: args.update,
            deletes: args.delete,
            dry_run: args.dry_run,
            sparse: args.sparse,
            resumes: args.resume,
            verbose: args.verbose,
            quiet: args.quiet,
            to_stdout: false,
            exclude: Exclude::new(&args.exclude)?,
            umask: umask(),
            resolution: 1,
        })
    }
}

#[cfg(test)]
impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            preserves: false,
            keeps_existing: false,
            updates: false,
            deletes: false,
            dry_run: false,
            sparse: Sparse::default(),
            resumes: false,
            verbose: false,
            quiet: false,
            to_stdout: false,
            exclude: Exclude::new(&[]).expect("no pattern is wrong"),
            umask: 0o022,
            resolution: 1,
        }
    }
}

/// The umask of this process. It can only be read by setting it: for that moment it leaves least.
fn umask() -> u32 {
    let all = Mode::from_raw_mode(0o077);
    let umask = rustix::process::umask(all);
    rustix::process::umask(umask);
    umask.as_raw_mode()
}
