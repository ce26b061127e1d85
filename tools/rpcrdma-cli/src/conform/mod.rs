//! `rpcrdma conform`: conformance cases against a Responder, or against Requesters.
//!
//! The cases are in the crate `conform`. Here are the options, files for the cases in a directory of the server, and the
//! forms of output.

mod requester;
mod show;

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::failure::{self, Ended, Untested, Usage};
use crate::interrupt::{Interrupt, Interrupted};
use crate::session::{Session, SessionArgs};
use ::conform::{Case, Fixture, Known, NobodyThere, Report, Responder, Selection, Told, report};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use nfs_client::NfsUrl;
use nfs_copy::Of;
use printing::units::parse_duration;
use rpcrdma::any::Over;
use show::{Form, Show};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::spawn_blocking;

/// Check a peer against the texts of RPC-over-RDMA, case by case
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma conform 192.0.2.7
  rpcrdma conform --directory /export/scratch 192.0.2.7
  rpcrdma conform --only 'HDR-*,CRED-*' -v 192.0.2.7
  rpcrdma conform --except RDCH-03 192.0.2.7
  rpcrdma conform --write-known filer.known 192.0.2.7
  rpcrdma conform --known filer.known --tap 192.0.2.7
  rpcrdma conform --serve 0.0.0.0:20049
  rpcrdma conform --list

A case is a rule of a text: its code, section and requirement level are printed with the verdict. Nothing is \
written at the server but in the directory `rpcrdma-conform`, which is made below --directory and removed \
in the end. Without --directory, cases that need files are skipped. The server must answer a new connection after each \
case. docs/guide/conform.md tells how to read the output.

Exit codes: 0 no case failed that the baseline does not have, 1 one did, 2 wrong command line, 77 nothing \
could be tested: there is no connection.")]
pub(crate) struct ConformArgs {
    /// Server to test [default port: 20049]
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["list", "serve"],
        conflicts_with_all = ["serve"])]
    server: Option<Endpoint>,

    /// Wait for clients at this address, and test those. --mount-port serves MOUNT over TCP for them
    #[arg(long, value_name = "ADDRESS:PORT")]
    serve: Option<SocketAddr>,

    /// With --serve: start this command for each case, with the address in $RPCRDMA_HOST and
    /// $RPCRDMA_PORT, instead of waiting for clients that somebody else starts
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "serve",
        conflicts_with = "server"
    )]
    run: Option<String>,

    /// With --serve: longest wait for a client of each case
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = parse_duration,
        requires = "serve", conflicts_with = "server")]
    client_wait: Duration,

    /// Directory of the server in which cases may make files, by its path in an export
    #[arg(long, value_name = "PATH", conflicts_with = "serve")]
    directory: Option<String>,

    /// Run only these cases: codes, or their beginnings with `*`, comma-separated
    #[arg(long, value_name = "CODE[,CODE...]", value_delimiter = ',')]
    only: Vec<String>,

    /// Leave out these cases, such as one that a server does not survive
    #[arg(long, value_name = "CODE[,CODE...]", value_delimiter = ',')]
    except: Vec<String>,

    /// Baseline of expected failures: these do not count
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,

    /// Write the failures of this run to a baseline
    #[arg(long, value_name = "FILE")]
    write_known: Option<PathBuf>,

    /// Longest wait for each answer
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = parse_duration)]
    patience: Duration,

    /// List the cases and exit
    #[arg(long, conflicts_with = "json")]
    list: bool,

    /// Print messages and octets of cases that fail
    #[arg(short, long)]
    verbose: bool,

    /// Print TAP, version 13
    #[arg(long, conflicts_with = "json")]
    tap: bool,

    /// Print only one JSON object, at the end
    #[arg(long)]
    json: bool,

    /// Also write JUnit's XML to a file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,
}

/// Runs the command.
pub(crate) async fn run(args: ConformArgs) -> anyhow::Result<Ended> {
    args.check_patterns()?;
    if args.list {
        return args.print_list();
    }
    let known = args.baseline()?;
    let show = Show::new(args.form(), args.verbose);
    let report = match args.serve {
        Some(at) => args.test_requesters(at, known.clone(), show).await?,
        None => args.test_responder(known.clone(), show).await?,
    };
    if let Some(path) = &args.write_known {
        write(path, &known.updated(&report))?;
    }
    if let Some(path) = &args.junit {
        write(path, &report::junit(&report))?;
    }
    if !report.tested_anything() && report.unexpected() == 0 {
        bail!(Untested("no case came to a verdict".to_owned()));
    }
    Ok(match report.unexpected() {
        0 => Ended::Well,
        _ if args.write_known.is_some() => Ended::Well,
        _ => Ended::Partly,
    })
}

fn write(path: &PathBuf, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

impl ConformArgs {
    fn form(&self) -> Form {
        match (self.tap, self.json) {
            (true, _) => Form::Tap,
            (false, true) => Form::Json,
            (false, false) => Form::Text,
        }
    }

    /// The cases of this side, or of both where none is named.
    fn all_cases(&self) -> Vec<&'static Case> {
        match (self.serve, &self.server) {
            (Some(_), _) => ::conform::requester_cases(),
            (None, Some(_)) => ::conform::responder_cases(),
            (None, None) => [::conform::responder_cases(), ::conform::requester_cases()].concat(),
        }
    }

    fn check_patterns(&self) -> anyhow::Result<()> {
        let cases = self.all_cases();
        for (option, patterns) in [("--only", &self.only), ("--except", &self.except)] {
            for pattern in patterns {
                if !cases.iter().any(|case| case.is_selected_by(pattern)) {
                    bail!(Usage(format!(
                        "{option}: no case has the code {pattern} (`rpcrdma conform --list` lists them)"
                    )));
                }
            }
        }
        if self.selection().of(cases).is_empty() {
            bail!(Usage("--except leaves no case of --only".to_owned()));
        }
        Ok(())
    }

    fn selection(&self) -> Selection {
        Selection {
            only: self.only.clone(),
            except: self.except.clone(),
        }
    }

    fn print_list(&self) -> anyhow::Result<Ended> {
        let cases = self.selection().of(self.all_cases());
        show::list(&cases)?;
        Ok(Ended::Well)
    }

    fn baseline(&self) -> anyhow::Result<Known> {
        let Some(path) = &self.known else {
            return Ok(Known::default());
        };
        let name = path.display();
        let cases = [::conform::responder_cases(), ::conform::requester_cases()].concat();
        let text = fs::read_to_string(path).map_err(|why| Usage(format!("{name}: {why}")))?;
        Ok(Known::parse(&text, &cases).map_err(|why| Usage(format!("{name}: {why}")))?)
    }

    async fn test_responder(&self, known: Known, mut show: Show) -> anyhow::Result<Report> {
        let Some(server) = &self.server else {
            bail!(Usage("a server is to be named".to_owned()));
        };
        let interrupt = Interrupt::listen()?;
        let addresses = server.addresses().await;
        let addresses = addresses.map_err(|why| Untested(format!("{server}: {why:#}")))?;
        let Some(&address) = addresses.first() else {
            bail!(Untested(format!("{server}: {NO_ADDRESS}")));
        };
        let count = self.selection().of(self.all_cases()).len();
        show.begin(&server.to_string(), count, self.patience)?;
        let providers = self.session.connect.transport.providers()?;
        let (over, provider) = providers.reaching(address).await;
        let files = self.create_files(server).await?;
        let has_files = files.is_some();
        let responder = Responder {
            provider,
            address,
            over_tcp: over == Over::Software,
            patience: self.patience,
            files,
            selection: self.selection(),
            known,
        };
        let tested = shown(&interrupt, show, |tell| responder.run(tell)).await;
        if has_files {
            let removed = self.remove_files(server).await;
            removed.unwrap_or_else(|why| {
                failure::note(&format!("the files of the cases are left behind: {why:#}"));
            });
        }
        tested
    }

    fn url(server: &Endpoint, directory: &str) -> anyhow::Result<NfsUrl> {
        let url: NfsUrl = format!("nfs://{server}/").parse()?;
        let path = format!("/{}", directory.trim_matches('/')).into_bytes();
        Ok(NfsUrl { path, ..url })
    }

    async fn create_files(&self, server: &Endpoint) -> anyhow::Result<Option<Fixture>> {
        let Some(directory) = &self.directory else {
            return Ok(None);
        };
        let mut session = Session::new(&self.session);
        let place = session.place(&Self::url(server, directory)?).await?;
        let files = Fixture::create(&place.export, &place.path).await.of(&place);
        session.close().await;
        Ok(Some(files?))
    }

    async fn remove_files(&self, server: &Endpoint) -> anyhow::Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let mut session = Session::new(&self.session);
        let place = session.place(&Self::url(server, directory)?).await?;
        let removed = Fixture::remove(&place.export, &place.path).await.of(&place);
        session.close().await;
        Ok(removed?)
    }
}

/// Message of a run, from its thread.
enum Line {
    Begins(&'static str),
    Ended(Box<::conform::Finding>),
}

/// Runs cases on a thread of their own, and shows what they tell, until they have ended or the user interrupts.
async fn shown(
    interrupt: &Interrupt,
    mut show: Show,
    run: impl FnOnce(&mut dyn FnMut(Told<'_>)) -> Result<Report, NobodyThere> + Send + 'static,
) -> anyhow::Result<Report> {
    let (tell, mut told) = unbounded_channel();
    let running = spawn_blocking(move || {
        run(&mut |what| {
            let line = match what {
                Told::Begins(case) => Line::Begins(case.code),
                Told::Ended(finding) => Line::Ended(Box::new(finding.clone())),
            };
            // Nobody may listen any more, after an interrupt.
            let _ = tell.send(line);
        })
    });
    loop {
        tokio::select! {
            biased;
            signal = interrupt.signal() => return Err(Interrupted(signal).into()),
            line = told.recv() => match line {
                Some(Line::Begins(code)) => show.begins(code)?,
                Some(Line::Ended(finding)) => show.ended(&finding)?,
                None => break,
            },
        }
    }
    let report = running
        .await
        .map_err(|why| anyhow!("a case panicked: {why}"))?;
    let report = report.map_err(|NobodyThere(why)| Untested(why))?;
    show.end(&report)?;
    Ok(report)
}
