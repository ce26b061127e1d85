//! Options of `get` and `put`.

use super::exclude::Exclude;
use super::sparse::Sparse;
use crate::failure::Usage;
use crate::modes::umask;
use crate::session::SessionArgs;
use anyhow::bail;
use clap::Args;

/// Options of copies.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories recursively. Symbolic links inside are copied, not followed; hard links
    /// between copied files are preserved
    #[arg(short, long, visible_short_alias = 'R')]
    pub(super) recursive: bool,

    /// Preserve mode (also set-user-ID, set-group-ID and sticky bits), times, and, if permitted,
    /// owner and group. Without it, new files get the permissions of the source, restricted by the
    /// umask, and replaced files keep theirs
    #[arg(short, long)]
    pub(super) preserve: bool,

    /// Same as -rp, and copy FIFOs, sockets, and symbolic links that are named as sources as such
    #[arg(short, long)]
    pub(super) archive: bool,

    /// Treat the destination as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    pub(super) no_target_directory: bool,

    /// Do not overwrite existing files
    #[arg(short, long, conflicts_with = "update")]
    pub(super) no_clobber: bool,

    /// Overwrite a file only if the source was modified later
    #[arg(short, long)]
    pub(super) update: bool,

    /// Leave out what matches this pattern; repeatable
    ///
    /// As with rsync, a pattern is compared with the end of a path, in whole names: `*.o` and
    /// `target/debug` are left out in every directory. A pattern that begins with a slash is
    /// compared with the whole path, which begins with the name of the source: `/photos/old`. `*`
    /// and `?` do not match a slash, `**` does. A pattern that ends with a slash matches only
    /// directories.
    #[arg(long, value_name = "GLOB")]
    pub(super) exclude: Vec<String>,

    /// Remove from the destination what the source directory does not have
    ///
    /// This happens after everything has been copied, and not at all if part of the source could
    /// not be read. Excluded names stay. --dry-run shows what would be removed.
    #[arg(long)]
    pub(super) delete: bool,

    /// Show what would be copied and removed; change nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// When copies get holes (ranges of zeros that take no space)
    ///
    /// `put` finds holes of local files without reading them. NFSv3 does not report holes: `get`
    /// reads the whole file, and skips blocks of zeros if the file takes less space on the server
    /// than its size.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) sparse: Sparse,

    /// Keep a large incomplete file if the copy ends early, and continue the one that an earlier
    /// run with this option kept
    ///
    /// It is named .NAME.rpcrdma-NUMBER, beside the file. It is continued only if the source has
    /// the same inode, size and times. The last 32 MiB are copied again, because a crash can damage
    /// them, and the 1 MiB before those is compared. If the source changes during the copy, the
    /// copy fails. Files up to 32 MiB are copied as a whole.
    #[arg(long)]
    pub(super) resume: bool,

    /// Print each file that is copied, left out or removed
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
            (self.archive, "--archive"),
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
    /// Whether a symbolic link that is named as a source is copied, and not what it leads to.
    pub(crate) copies_links: bool,
    /// Whether FIFOs and sockets are made again.
    pub(crate) makes_special: bool,
    /// Whether the destination is the new name, even if it is a directory.
    pub(crate) is_name: bool,
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

impl CopyArgs {
    /// Checks the options, and the number of sources.
    ///
    /// # Errors
    ///
    /// [`Usage`] if they do not go together.
    pub(crate) fn check(&self, sources: usize) -> anyhow::Result<()> {
        if self.delete && !self.recursive && !self.archive {
            bail!(Usage("--delete needs --recursive or --archive".to_owned()));
        }
        if self.no_target_directory && sources > 1 {
            bail!(Usage("-T takes one source".to_owned()));
        }
        Ok(())
    }
}

impl Options {
    /// # Errors
    ///
    /// [`Usage`](crate::failure::Usage) for a pattern that is none.
    pub(crate) fn new(args: &CopyArgs) -> anyhow::Result<Self> {
        Ok(Self {
            recursive: args.recursive || args.archive,
            preserves: args.preserve || args.archive,
            copies_links: args.archive,
            makes_special: args.archive,
            is_name: args.no_target_directory,
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

/// No options, and the usual umask.
impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            preserves: false,
            copies_links: false,
            makes_special: false,
            is_name: false,
            keeps_existing: false,
            updates: false,
            deletes: false,
            dry_run: false,
            sparse: Sparse::default(),
            resumes: false,
            verbose: false,
            quiet: false,
            to_stdout: false,
            exclude: Exclude::default(),
            umask: 0o022,
            resolution: 1,
        }
    }
}
