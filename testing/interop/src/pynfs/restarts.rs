//! Restarts of the server that the suite asks for, by a script that it calls.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow};
use programs::server::Server;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// The request at the end of the suite, after which there is none.
const END: &str = "end";

/// Two pipes with names, and the script that asks through one and waits for the answer of the other.
pub(super) struct Restarts {
    ask: PathBuf,
    answer: PathBuf,
    helper: PathBuf,
}

impl Restarts {
    /// Makes pipes and script in a folder.
    ///
    /// # Errors
    ///
    /// They cannot be made.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let [ask, answer, helper] = ["ask", "answer", "helper"].map(|name| folder.join(name));
        for pipe in [&ask, &answer] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .with_context(|| pipe.display().to_string())?;
        }
        let script = format!(
            "#!/bin/sh\necho \"$1\" >'{}' && read -r _ <'{}'\n",
            ask.display(),
            answer.display()
        );
        fs::write(&helper, script)?;
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            ask,
            answer,
            helper,
        })
    }

    /// The script.
    pub(super) fn helper(&self) -> &Path {
        &self.helper
    }

    /// Does something while the script kills the server and starts it again.
    ///
    /// # Errors
    ///
    /// Those of both.
    pub(super) fn during<T>(
        &self,
        server: Server,
        start: impl FnMut() -> Result<Server> + Send,
        what: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        thread::scope(|scope| {
            let restarting = scope.spawn(|| self.restart(server, start));
            let done = what();
            fs::write(&self.ask, END)?;
            let restarted = restarting.join();
            restarted.map_err(|_| anyhow!("the thread of restarts panicked"))??;
            done
        })
    }

    /// Restarts the server as often as it is asked for, and ends it at the end.
    fn restart(&self, server: Server, mut start: impl FnMut() -> Result<Server>) -> Result<()> {
        let mut server = Some(server);
        let mut failed = None;
        // A pipe is open to be read once somebody writes.
        while fs::read_to_string(&self.ask)?.trim() != END {
            drop(server.take());
            match start() {
                Ok(started) => server = Some(started),
                Err(error) => failed = Some(error),
            }
            if let Err(error) = fs::write(&self.answer, "done\n") {
                failed = Some(error.into());
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn script_returns_once_what_it_asked_for_was_done() {
        let folder = tempfile::tempdir().unwrap();
        let restarts = Restarts::new(folder.path()).unwrap();
        let asked = thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let asked = fs::read_to_string(&restarts.ask).unwrap();
                fs::write(&restarts.answer, "done\n").unwrap();
                asked
            });
            let status = Command::new(restarts.helper()).arg("reboot").status();
            assert!(status.unwrap().success());
            asked.join().unwrap()
        });
        assert_eq!(asked, "reboot\n");
    }
}
