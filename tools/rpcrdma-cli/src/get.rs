//! `rpcrdma get`: copies files from a server.

use crate::copying::{CopyArgs, Copying, STREAM, in_words};
use crate::failure::{Ended, Usage};
use crate::output;
use crate::session::{Session, parse_url};
use crate::show;
use anyhow::bail;
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::{Destination, LocalTarget, Stream};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Copy files from a server
#[derive(Args, Debug)]
#[command(override_usage = "rpcrdma get [OPTIONS] <URL>... [DEST]")]
#[command(after_help = "Examples:
  rpcrdma get nfs://127.0.0.1/file
  rpcrdma get nfs://127.0.0.1/file other-name
  rpcrdma get -r nfs://127.0.0.1/a nfs://127.0.0.1/b dir/
  rpcrdma get nfs://127.0.0.1/backup.tar - | tar -t
  rpcrdma get -r --exclude '*.tmp' nfs://127.0.0.1/photos .
  rpcrdma get -rp --delete nfs://127.0.0.1/photos/. photos
  rpcrdma get -r --delete --dry-run nfs://127.0.0.1/a/. a
  rpcrdma get --resume nfs://127.0.0.1/disk.img images/
  rpcrdma get --sparse always nfs://127.0.0.1/disk.img .

If DEST is an existing directory, a source directory is copied into it; otherwise it becomes \
DEST. URL/. copies only the contents of a directory. Conflicts, such as a file where a directory \
is needed, are found before anything is copied; then nothing is.

A file gets its name when it is complete, replacing a file of that name. A symbolic link at DEST \
is followed; a device or FIFO named as DEST is written to. An interrupted copy leaves no \
incomplete file. Incomplete files of a killed copy are removed by the next copy into the same \
directory when they are 24 hours old.

On a terminal, progress and a summary are shown. If the server does not answer for 5 seconds, a \
message says so; calls fail after --timeout. Ctrl-C, SIGTERM and SIGHUP clean up and end the \
command: a shell sees 130, 143 or 129.")]
pub(crate) struct GetArgs {
    /// nfs://HOST[:PORT]/PATH of files, then the destination: a file, a directory, or - for
    /// standard output [default: .]
    #[arg(value_name = "URL", required = true)]
    paths: Vec<OsString>,

    #[command(flatten)]
    copy: CopyArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<Ended> {
    let (urls, dest) = sources(&args.paths)?;
    args.copy.check(urls.len())?;
    let options = args.copy.options()?;
    let to_stdout = dest == Path::new(STREAM);
    if to_stdout {
        check_stdout(&args.copy, &urls)?;
    }
    let path = dest.as_os_str().as_bytes();
    let target = match to_stdout {
        true => None,
        false => Some(
            LocalTarget::new(&dest, urls.len())
                .await
                .map_err(in_words)?,
        ),
    };
    if target.as_ref().is_some_and(|target| !target.is_directory())
        && (urls.len() > 1 || path.ends_with(b"/"))
    {
        bail!("{} is not a directory", show::path(&dest));
    }
    let target = match args.copy.no_target_directory {
        true => target.map(LocalTarget::into_name),
        false => target,
    };
    let dest = match target {
        Some(target) => Destination::Target(target),
        None => Destination::Stream(Stream {
            file: output::file()?,
            name: STREAM.to_owned(),
        }),
    };
    let mut session = Session::new(&args.copy.session);
    let copying = Copying::begin(args.copy.prints(to_stdout))?;
    let copied = nfs_copy::get(options, copying.control(), &mut session, (&urls, dest)).await;
    let ended = copying.end(copied).await?;
    session.close().await;
    Ok(ended)
}

/// Standard output has neither a name nor attributes, and no two files.
fn check_stdout(args: &CopyArgs, urls: &[NfsUrl]) -> anyhow::Result<()> {
    if let Some(option) = args.not_for_streams() {
        bail!(Usage(format!(
            "{option} cannot be used with -, which is standard output"
        )));
    }
    if urls.len() > 1 {
        bail!(Usage(
            "only one file can be copied to -, which is standard output: print several with \
             `rpcrdma cat`"
                .to_owned()
        ));
    }
    Ok(())
}

/// Sources to copy, and the destination: the last argument, if it is no URL.
fn sources(paths: &[OsString]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
    let is_url = |path: &OsString| {
        let begin = path.as_bytes().get(..6);
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(b"nfs://"))
    };
    let (urls, dest) = match paths {
        [urls @ .., dest] if !is_url(dest) => (urls, PathBuf::from(dest)),
        urls => (urls, PathBuf::from(".")),
    };
    if urls.is_empty() {
        bail!(Usage(
            "there is nothing to get: no argument is an nfs:// URL".to_owned()
        ));
    }
    let urls = urls.iter().map(|url| parse_url(url));
    Ok((urls.collect::<Result<_, _>>()?, dest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(paths: &[&str]) -> anyhow::Result<(Vec<NfsUrl>, PathBuf)> {
        sources(&paths.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn argument_that_is_no_url_is_the_destination() {
        let (urls, dest) = args(&["nfs://h/a", "NFS://h/b", "c"]).unwrap();
        assert_eq!((urls.len(), dest), (2, PathBuf::from("c")));
        let (urls, dest) = args(&["nfs://h/a"]).unwrap();
        assert_eq!((urls.len(), dest), (1, PathBuf::from(".")));
        for bad in [
            &["a"][..],
            &["a", "b"],
            &["nfs://h/a", "b", "c"],
            &["nfs:///"],
        ] {
            let error = args(bad).unwrap_err();
            assert!(error.downcast_ref::<Usage>().is_some(), "{bad:?}: {error}");
        }
    }
}
