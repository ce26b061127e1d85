//! Code that `get` and `put` share.

use crate::failure::Ended;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::session::SessionArgs;
use clap::Args;

/// Options of copies.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// Copy directories with all that is in them
    #[arg(short, long)]
    recursive: bool,

    /// Show no progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) session: SessionArgs,
}

/// What a copy needs on its way, and how it went so far.
pub(crate) struct Copy {
    pub(crate) recursive: bool,
    pub(crate) interrupt: Interrupt,
    pub(crate) progress: Progress,
    pub(crate) ended: Ended,
}

impl Copy {
    /// A copy that begins. From now on an interrupt does not end the process by itself.
    pub(crate) fn new(args: &CopyArgs) -> anyhow::Result<Self> {
        Ok(Self {
            recursive: args.recursive,
            interrupt: Interrupt::listen()?,
            progress: Progress::new(!args.quiet),
            ended: Ended::Well,
        })
    }

    /// As [`Ended::check`], without tearing the bar.
    ///
    /// # Errors
    ///
    /// Those that concern the whole command.
    pub(crate) fn check(&mut self, part: anyhow::Result<()>) -> anyhow::Result<()> {
        let ended = &mut self.ended;
        self.progress.suspend(|| ended.check(part))
    }
}
