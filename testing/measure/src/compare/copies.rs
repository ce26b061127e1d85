//! `rpcrdma get` and `rpcrdma put` beside `cp`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::content;
use super::scratch;
use super::table::{Bounds, Row};
use crate::compared::Compared;
use programs::command;
use programs::server::Server;

/// How long one command may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Data to copy, direction, and rate.
struct Copy {
    name: &'static str,
    direction: Direction,
    /// A name in the export.
    what: &'static str,
    bounds: Bounds,
}

#[derive(Clone, Copy)]
enum Direction {
    Get,
    Put,
}

const FILE: &str = "file";
const TREE: &str = "tree";

const FILE_BOUNDS: Bounds = Bounds {
    must: 1.5,
    aim: 1.1,
};
const TREE_BOUNDS: Bounds = Bounds {
    must: 6.0,
    aim: 3.0,
};

const COPIES: [Copy; 4] = [
    Copy {
        name: "get 1 GiB",
        direction: Direction::Get,
        what: FILE,
        bounds: FILE_BOUNDS,
    },
    Copy {
        name: "put 1 GiB",
        direction: Direction::Put,
        what: FILE,
        bounds: FILE_BOUNDS,
    },
    Copy {
        name: "get -r 10,000 x 4 KiB",
        direction: Direction::Get,
        what: TREE,
        bounds: TREE_BOUNDS,
    },
    Copy {
        name: "put -r 10,000 x 4 KiB",
        direction: Direction::Put,
        what: TREE,
        bounds: TREE_BOUNDS,
    },
];

/// CRCs of frames, as the program has them by itself and without: for server and client.
const CRC: [(&str, &[&str]); 2] = [("CRC", &[]), ("no CRC", &["--no-crc"])];

/// Measures each selected copy, with CRCs and without.
///
/// # Errors
///
/// There is no room, a command fails or takes too long, or a copy is not like its original.
pub(super) fn measure(
    program: &Path,
    parent: &Path,
    rounds: usize,
    selects: &dyn Fn(&str) -> bool,
    say: &dyn Fn(&str),
) -> Result<Vec<Row>> {
    let scratch = scratch::make(parent)?;
    let place = Place::new(program, scratch.path())?;
    let mut rows = Vec::new();
    for (name, options) in CRC {
        let keeps = scratch.path().join("state").join(name);
        // Dropped, and so ended, before the scratch directory is removed.
        let server = Server::start(
            program,
            &place.export,
            &keeps,
            &[&["--squash", "none"], options].concat(),
        )?;
        for copy in &COPIES {
            let name = format!("{}, {name}", copy.name);
            if !selects(&name) {
                continue;
            }
            say(&name);
            let client = Client {
                place: &place,
                url: format!("nfs://{}", server.addr),
                options,
                copy,
            };
            rows.push(Row {
                times: client.compared(rounds).with_context(|| name.clone())?,
                name,
                beside: "cp",
                bounds: Some(copy.bounds),
            });
        }
    }
    scratch.close().context("cannot remove what was copied")?;
    Ok(rows)
}

/// Places of a comparison.
struct Place<'a> {
    program: &'a Path,
    /// File through which the output of commands passes.
    output: &'a Path,
    /// Has the originals, and what is put beside them.
    export: PathBuf,
    /// Destination of `get`.
    got: PathBuf,
    /// Destination of `cp`.
    beside: PathBuf,
}

/// The directory of the export that `put` copies to.
const INBOX: &str = "inbox";

impl<'a> Place<'a> {
    fn new(program: &'a Path, scratch: &'a Path) -> Result<Self> {
        let place = Self {
            program,
            output: scratch,
            export: scratch.join("export"),
            got: scratch.join("got"),
            beside: scratch.join("beside"),
        };
        fs::create_dir_all(place.export.join(INBOX))?;
        fs::create_dir(&place.got)?;
        fs::create_dir(&place.beside)?;
        content::make_file(&place.export.join(FILE)).context("cannot make the file")?;
        content::make_tree(&place.export.join(TREE)).context("cannot make the tree")?;
        Ok(place)
    }
}

/// One kind of copy from, or to, a running server.
struct Client<'a> {
    place: &'a Place<'a>,
    url: String,
    options: &'a [&'a str],
    copy: &'a Copy,
}

impl Client<'_> {
    /// Seconds of `cp` and ours, after a round that is not timed but checked.
    fn compared(&self, rounds: usize) -> Result<Compared> {
        self.ours(true)?;
        self.cp()?;
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let ours = self.ours(false)?;
            times.push((self.cp()?, ours));
        }
        Ok(Compared::of(&times))
    }

    /// Seconds of our command.
    fn ours(&self, check: bool) -> Result<f64> {
        let Copy {
            direction, what, ..
        } = *self.copy;
        let original = self.place.export.join(what);
        let recursive = recursive(what);
        let mut command = match direction {
            Direction::Get => {
                let mut get = self.rpcrdma("get");
                get.arg("-q");
                get.args(recursive).arg(format!("{}/{what}", self.url));
                get.arg(&self.place.got);
                get
            }
            Direction::Put => {
                let mut put = self.rpcrdma("put");
                put.arg("-q");
                put.args(recursive).arg(&original);
                put.arg(format!("{}/{INBOX}/", self.url));
                put
            }
        };
        let took = self.run(&mut command)?;
        if check {
            let folder = match direction {
                Direction::Get => self.place.got.clone(),
                Direction::Put => self.place.export.join(INBOX),
            };
            content::compare(&original, &folder.join(what))?;
        }
        match direction {
            Direction::Get => remove(&self.place.got.join(what))?,
            // By the server: it keeps files open for a while, and with them their memory.
            Direction::Put => {
                let mut rm = self.rpcrdma("rm");
                self.run(rm.arg("-r").arg(format!("{}/{INBOX}/{what}", self.url)))?;
            }
        }
        Ok(took)
    }

    /// Seconds of `cp`.
    fn cp(&self) -> Result<f64> {
        let Copy { what, .. } = *self.copy;
        let mut cp = Command::new("cp");
        cp.args(recursive(what)).arg(self.place.export.join(what));
        let took = self.run(cp.arg(&self.place.beside))?;
        remove(&self.place.beside.join(what))?;
        Ok(took)
    }

    fn rpcrdma(&self, command: &str) -> Command {
        let mut rpcrdma = Command::new(self.place.program);
        rpcrdma.arg(command).args(self.options);
        rpcrdma
    }

    fn run(&self, command: &mut Command) -> Result<f64> {
        let done = command::within(command, LIMIT, self.place.output)?;
        Ok(done.took.as_secs_f64())
    }
}

/// The option that a directory takes, and a file does not.
fn recursive(what: &str) -> Option<&'static str> {
    (what == TREE).then_some("-r")
}

fn remove(path: &Path) -> Result<()> {
    match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
    .with_context(|| format!("cannot remove {}", path.display()))
}
