//! `cargo xtask pynfs`: the NFSv4.1 suite of pynfs against the program, over TCP and through a gateway over RDMA.
//!
//! Nothing of the suite is part of this project. Who runs it names a work tree of it in which `setup.py build` has run.

mod restarts;
mod results;

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::restarts::Restarts;
use self::results::{Known, Results};
use super::{build_program, empty_folder};
use programs::command::{Ended, ended_within, tail};
use programs::gateway::Gateway;
use programs::server::Server;

/// Cases that are expected to fail, from the root of the work tree.
const KNOWN: &str = "testing/interop/pynfs-4.1.known";

/// Name of the export.
const EXPORT: &str = "/export";

/// How long the suite may take: all of it is about 3 minutes, and with clients by the hundred more.
const LIMIT: Duration = Duration::from_secs(3600);

/// Options of `cargo xtask pynfs`.
#[derive(Args)]
#[command(
    after_help = "The suite needs python with the modules ply and xdrlib3, and is built once:
  git clone https://github.com/kofemann/pynfs && python3 -m venv venv
  venv/bin/pip install setuptools ply xdrlib3
  (cd pynfs && PATH=$PWD/../venv/bin:$PATH && python setup.py build)
  PATH=$PWD/venv/bin:$PATH cargo xtask pynfs --suite pynfs"
)]
pub struct Options {
    /// Work tree of pynfs in which `setup.py build` has run
    #[arg(long, value_name = "DIR")]
    suite: PathBuf,
    /// Minor version
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    minor: u8,
    /// Run it over TCP [default, unless --rdma is given]
    #[arg(long)]
    tcp: bool,
    /// Run it through a gateway over RDMA
    #[arg(long)]
    rdma: bool,
    /// Run cases whose dependencies have failed, too
    #[arg(long)]
    force: bool,
    /// Lease of the server: the suite waits for the ends of leases; a thousand clients (REBT2c, 3c and 4c) want 180s
    #[arg(long, value_name = "TIME", default_value = "10s")]
    lease: String,
    /// Further option of `rpcrdma serve`, as --server-option=--strict (may be given again)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    server_option: Vec<String>,
    /// Python with the modules that the suite needs
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
    /// Test this program instead of building the one in the work tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Flags and codes of the suite, which leaves out those with `no` before them
    #[arg(value_name = "TEST", default_value = "all")]
    tests: Vec<String>,
}

/// Runs the suite, and prints what failed.
///
/// # Errors
///
/// The suite or the program does not run, a case failed that is not expected to, or one passed that is.
pub fn run(options: &Options) -> Result<()> {
    let known = programs::root().join(KNOWN);
    let known = fs::read_to_string(&known).with_context(|| known.display().to_string())?;
    let known = Known::read(&known).with_context(|| KNOWN.to_owned())?;
    let suite = options.suite.canonicalize().context("no such suite")?;
    let suite = suite.join("nfs4.1");
    ensure!(
        suite.join("testserver.py").is_file(),
        "{} has no testserver.py",
        suite.display()
    );
    let program = match &options.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => build_program()?,
    };
    let runs = [
        ("tcp", options.tcp || !options.rdma),
        ("rdma", options.rdma),
    ];
    let mut unexpected = 0;
    for (over, _) in runs.into_iter().filter(|(_, wanted)| *wanted) {
        let run = Run {
            options,
            suite: &suite,
            program: &program,
            logs: empty_folder("logs", &format!("pynfs-{over}"))?,
            work: empty_folder("work", &format!("pynfs-{over}"))?,
        };
        println!(
            "pynfs over {over}: its output is in {}",
            run.logs.join("stdout").display()
        );
        let results = run.over(over == "rdma")?;
        fs::remove_dir_all(&run.work)?;
        print!("{}", results.describe(&known));
        unexpected += results.unexpected(&known).count();
    }
    match unexpected {
        0 => Ok(()),
        count => bail!("{count} cases have another result than {KNOWN} says"),
    }
}

/// One run of the suite.
struct Run<'a> {
    options: &'a Options,
    /// Folder of `testserver.py`.
    suite: &'a Path,
    program: &'a Path,
    /// Output of the suite, and logs.
    logs: PathBuf,
    /// The exported directory, and the state of the server.
    work: PathBuf,
}

impl Run<'_> {
    /// Runs the suite over TCP, or through a gateway over RDMA.
    fn over(&self, rdma: bool) -> Result<Results> {
        let server = self.serve(None)?;
        let tcp = server.tcp.context("the server does not listen over TCP")?;
        let ports = (server.addr, tcp);
        let gateway = match rdma {
            true => Some(Gateway::over_tcp(self.program, server.addr, &self.logs)?),
            false => None,
        };
        let at = gateway.as_ref().map_or(tcp, |gateway| gateway.addr);
        let restarts = Restarts::new(&self.work)?;
        let ended = restarts.during(
            server,
            || self.serve(Some(ports)),
            || self.test(at, restarts.helper()),
        )?;
        let results = Results::read(&ended.stdout, ended.took);
        if results.is_empty() || !ended.is_success() {
            bail!(
                "the suite did not come to its end:\n{}{}",
                tail(&ended.stdout),
                tail(&ended.stderr)
            );
        }
        Ok(results)
    }

    /// Starts the server: at these ports, that it had before, or at any.
    fn serve(&self, at: Option<(SocketAddrV4, SocketAddrV4)>) -> Result<Server> {
        let any = SocketAddrV4::new([127, 0, 0, 1].into(), 0);
        let (rdma, tcp) = at.unwrap_or((any, any));
        let folder = self.work.join("exported");
        fs::create_dir_all(&folder)?;
        let tcp = tcp.to_string();
        // The suite claims to be root and others, from this machine.
        let mut options = vec!["--tcp", &*tcp, "--trust-local", "--squash", "none"];
        options.extend(["--lease", &self.options.lease]);
        options.extend(self.options.server_option.iter().map(String::as_str));
        let export = format!("{EXPORT}={}", folder.display());
        Server::start_at(self.program, Path::new(&export), &self.logs, rdma, &options)
    }

    /// Runs the suite to its end.
    fn test(&self, at: SocketAddrV4, helper: &Path) -> Result<Ended> {
        let mut command = Command::new(&self.options.python);
        command
            .args(["-B", "-u", "testserver.py"])
            .arg(format!("{at}{EXPORT}"))
            .arg(format!("--minorversion={}", self.options.minor))
            .args(["--maketree", "--showomit", "-v"])
            .args(["--uid=0", "--gid=0"])
            .arg(format!(
                "--json={}",
                self.logs.join("results.json").display()
            ))
            .arg(format!("--serverhelper={}", helper.display()))
            .args(self.options.force.then_some("--force"))
            .args(&self.options.tests)
            .current_dir(self.suite);
        ended_within(&mut command, LIMIT, &self.logs)
    }
}
