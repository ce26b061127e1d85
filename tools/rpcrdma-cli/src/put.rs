//! `rpcrdma put`: copies files to a server.

use crate::copying::{CopyArgs, Copying, STREAM, in_words};
use crate::failure::{Ended, Usage};
use crate::session::{Session, parse_url};
use anyhow::{Context, bail};
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::{ServerTarget, Source, Stream};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use syscalls::{StandardStream, was_closed};

/// Copy files to a server
#[derive(Args, Debug)]
#[command(override_usage = "rpcrdma put [OPTIONS] <SOURCE>... <URL>")]
#[command(after_help = "Examples:
  rpcrdma put file nfs://127.0.0.1/
  rpcrdma put file nfs://127.0.0.1/other-name
  rpcrdma put -r photos notes.txt nfs://127.0.0.1/dir/
  tar -c photos | rpcrdma put - nfs://127.0.0.1/photos.tar
  rpcrdma put -r --exclude '*.tmp' photos nfs://127.0.0.1/
  rpcrdma put -rp --delete photos/. nfs://127.0.0.1/photos
  rpcrdma put -r --delete --dry-run a/. nfs://127.0.0.1/a
  rpcrdma put --resume disk.img nfs://127.0.0.1/images/
  rpcrdma put --sparse always disk.img nfs://127.0.0.1/

If URL is an existing directory, a source directory is copied into it; otherwise it becomes URL. \
DIRECTORY/. copies only the contents of a directory. Conflicts, such as a file where a directory \
is needed, are found before anything is copied; then nothing is.

A file gets its name when it is complete and on stable storage, replacing a file of that name. A \
symbolic link at URL is followed; a device or FIFO of the server is not replaced. An interrupted \
copy leaves no incomplete file if the server can be reached and allows changes. Incomplete files \
of a killed copy are removed by the next copy into the same directory when they are 24 hours \
old.

On a terminal, progress and a summary are shown. If the server does not answer for 5 seconds, a \
message says so; calls fail after --timeout. Ctrl-C, SIGTERM and SIGHUP clean up and end the \
command: a shell sees 130, 143 or 129.")]
pub(crate) struct PutArgs {
    /// Files and directories to copy (FIFOs and devices are read, - is standard input), then
    /// nfs://HOST[:PORT]/PATH of the destination: a file or a directory
    // One argument for both: of two, the parser takes no second source that begins with a hyphen, also behind `--`.
    #[arg(value_name = "SOURCE", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &PutArgs) -> anyhow::Result<Ended> {
    let (sources, url) = split_args(&args.paths)?;
    args.copy.check(sources.len())?;
    let options = args.copy.options()?;
    let is_stream = sources.iter().any(|source| source == STREAM);
    if is_stream {
        check_stdin(&args.copy, sources.len())?;
    }
    if sources.iter().any(|source| is_stdin(source)) {
        check_input().context("cannot read standard input")?;
    }
    let mut session = Session::new(&args.copy.session);
    let place = session.place(&url).await?;
    let target = ServerTarget::new(&place, sources.len()).await;
    let target = target.map_err(in_words)?;
    if !target.is_directory() && (sources.len() > 1 || place.url.path.ends_with(b"/")) {
        bail!(
            "{} is not a directory: make it with `rpcrdma mkdir`",
            place.url
        );
    }
    let target = match args.copy.no_target_directory {
        true => target.into_name(),
        false => target,
    };
    if is_stream && target.is_directory() {
        let url = &place.url;
        bail!(Usage(format!(
            "{url} is a directory: standard input needs a name in it, as in {}",
            url.join(b"NAME")
        )));
    }
    let sources: anyhow::Result<Vec<Source>> = sources.into_iter().map(source).collect();
    let sources = sources.context("cannot read standard input")?;
    let copying = Copying::begin(args.copy.prints(false))?;
    let copied = nfs_copy::put(options, copying.control(), sources, target).await;
    let ended = copying.end(copied).await?;
    session.close().await;
    Ok(ended)
}

/// Opens standard input, if it is the source.
fn source(path: PathBuf) -> anyhow::Result<Source> {
    if path != Path::new(STREAM) {
        return Ok(Source::Path(path));
    }
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(Source::Stream(Stream {
        file: input.into(),
        name: STREAM.to_owned(),
    }))
}

/// Sources to copy, and the destination: the last argument.
fn split_args(paths: &[OsString]) -> anyhow::Result<(Vec<PathBuf>, NfsUrl)> {
    match paths {
        [sources @ .., url] if !sources.is_empty() => {
            let sources = sources.iter().map(PathBuf::from);
            Ok((sources.collect(), parse_url(url)?))
        }
        _ => bail!(Usage(
            "a source and the URL of a destination are needed: `rpcrdma help put` shows examples"
                .to_owned()
        )),
    }
}

/// Standard input has neither a name nor attributes.
fn check_stdin(args: &CopyArgs, sources: usize) -> anyhow::Result<()> {
    if let Some(option) = args.not_for_streams() {
        bail!(Usage(format!(
            "{option} cannot be used with -, which is standard input"
        )));
    }
    if sources > 1 {
        bail!(Usage(
            "-, which is standard input, is the only source if it is one".to_owned()
        ));
    }
    Ok(())
}

/// Whether a source is standard input, by one of its names (proc_pid_fd(5)).
fn is_stdin(source: &Path) -> bool {
    let names = [STREAM, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    names.iter().any(|name| source == *name)
}

/// Checks that there is a standard input. One that was closed when the program began is not an empty one.
///
/// # Errors
///
/// If there is none.
fn check_input() -> io::Result<()> {
    match was_closed(StandardStream::Input) {
        true => Err(Errno::BADF.into()),
        false => Ok(()),
    }
}
