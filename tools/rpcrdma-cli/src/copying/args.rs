//! Options of `get` and `put`.

use super::{Prints, Words};
use crate::failure::Usage;
use crate::modes::umask;
use crate::session::SessionArgs;
use anyhow::bail;
use clap::{Args, ValueEnum};
use nfs_copy::{Exclude, Options, PatternError, Sparse};

/// Options of copies.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories recursively. Symbolic links inside are copied, not followed; hard links
    /// between copied files are preserved
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Preserve mode (also set-user-ID, set-group-ID and sticky bits), times, and, if permitted,
    /// owner and group. Without it, new files get the permissions of the source, restricted by the
    /// umask, and replaced files keep theirs
    #[arg(short, long)]
    preserve: bool,

    /// Same as -rp, and copy FIFOs, sockets, and symbolic links that are named as sources as such
    #[arg(short, long)]
    archive: bool,

    /// Treat the destination as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,

    /// Do not overwrite existing files
    #[arg(short, long, conflicts_with = "update")]
    no_clobber: bool,

    /// Overwrite a file only if the source was modified later
    #[arg(short, long)]
    update: bool,

    /// Leave out what matches this pattern; repeatable
    ///
    /// As with rsync, a pattern is compared with the end of a path, in whole names: `*.o` and
    /// `target/debug` are left out in every directory. A pattern that begins with a slash is
    /// compared with the whole path, which begins with the name of the source: `/photos/old`. `*`
    /// and `?` do not match a slash, `**` does. A pattern that ends with a slash matches only
    /// directories.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,

    /// Remove from the destination what the source directory does not have
    ///
    /// This happens after everything has been copied, and not at all if part of the source could
    /// not be read. Excluded names stay. --dry-run shows what would be removed.
    #[arg(long)]
    delete: bool,

    /// Show what would be copied and removed; change nothing
    #[arg(long)]
    dry_run: bool,

    /// When copies get holes (ranges of zeros that take no space)
    ///
    /// `put` finds holes of local files without reading them. NFSv3 does not report holes: `get`
    /// reads the whole file, and skips blocks of zeros if the file takes less space on the server
    /// than its size.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    sparse: When,

    /// Keep a large incomplete file if the copy ends early, and continue the one that an earlier
    /// run with this option kept
    ///
    /// It is named .NAME.rpcrdma-NUMBER, beside the file. It is continued only if the source has
    /// the same inode, size and times. The last 32 MiB are copied again, because a crash can damage
    /// them, and the 1 MiB before those is compared. If the source changes during the copy, the
    /// copy fails. Files up to 32 MiB are copied as a whole.
    #[arg(long)]
    resume: bool,

    /// Print each file that is copied, left out or removed
    #[arg(short, long)]
    verbose: bool,

    /// Show neither progress nor a summary
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// When a copy has holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// At the holes of the source
    #[default]
    Auto,
    /// Wherever there are zeros
    Always,
    /// Nowhere
    Never,
}

impl From<When> for Sparse {
    fn from(when: When) -> Self {
        match when {
            When::Auto => Self::Auto,
            When::Always => Self::Always,
            When::Never => Self::Never,
        }
    }
}

impl CopyArgs {
    /// The options as those of the library.
    ///
    /// # Errors
    ///
    /// [`Usage`] for a pattern that is none.
    pub(crate) fn options(&self) -> anyhow::Result<Options> {
        let exclude = Exclude::new(&self.exclude).map_err(|error| {
            let PatternError { pattern, why } = error;
            Usage(match pattern {
                Some(pattern) => format!("--exclude {pattern}: {why}"),
                None => format!("--exclude: {why}"),
            })
        })?;
        Ok(Options {
            recursive: self.recursive || self.archive,
            preserves: self.preserve || self.archive,
            copies_links: self.archive,
            makes_special: self.archive,
            keeps_existing: self.no_clobber,
            updates: self.update,
            deletes: self.delete,
            dry_run: self.dry_run,
            sparse: self.sparse.into(),
            resumes: self.resume,
            exclude,
            umask: umask(),
            resolution: 1,
        })
    }

    /// Settings of what is printed, by a command that copies to standard output or not.
    pub(crate) fn prints(&self, to_stdout: bool) -> Prints {
        Prints {
            progress: !self.quiet && !self.dry_run,
            summary: self.verbose && !self.dry_run,
            lines: self.verbose || self.dry_run,
            to_stderr: to_stdout,
            words: match self.dry_run {
                true => Words::DryRun,
                false => Words::Copy,
            },
        }
    }

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
