//! A run of cases against a Responder.

use crate::bed::Bed;
use crate::case::{Case, Test};
use crate::fixture::Fixture;
use crate::known::Known;
use crate::report::Report;
use crate::responder;
use crate::verdict::{Finding, Stop, Tested, Verdict};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::Provider;

/// Time of a case where every answer comes at once: some connections, and short waits for what must not come.
const USUAL: Duration = Duration::from_millis(250);

/// A Responder, and what of it is tested.
pub struct Responder {
    /// Provider of the connections.
    pub provider: Arc<dyn Provider>,
    /// Address of the Responder.
    pub address: SocketAddr,
    /// Whether it is reached by software iWARP, so that cases below RPC-over-RDMA can run over TCP.
    pub over_tcp: bool,
    /// How long each answer may take.
    pub patience: Duration,
    /// Files for the cases that need some.
    pub files: Option<Fixture>,
    /// Its cases.
    pub selection: Selection,
    /// Baseline.
    pub known: Known,
}

/// Something that a run tells while it goes on.
pub enum Told<'a> {
    /// A case begins.
    Begins(&'a Case),
    /// A case has ended.
    Ended(&'a Finding),
}

/// Nobody could be tested: there is no connection, or nothing answers.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NobodyThere(pub String);

/// All cases against Responders, in the order in which they run.
pub fn responder_cases() -> Vec<&'static Case> {
    responder::cases().collect()
}

/// The cases of a run, by patterns of their codes.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Patterns of cases that run; empty stands for all.
    pub only: Vec<String>,
    /// Patterns of cases that do not run, although `only` selects them.
    pub except: Vec<String>,
}

impl Selection {
    /// The cases that are selected, in their order.
    pub fn of(&self, cases: Vec<&'static Case>) -> Vec<&'static Case> {
        let is_selected = |case: &&Case| {
            (self.only.is_empty() || case.is_one_of(&self.only)) && !case.is_one_of(&self.except)
        };
        cases.into_iter().filter(is_selected).collect()
    }
}

/// How long a run of so many cases takes, if every answer comes at once.
pub fn estimate(cases: usize) -> Duration {
    USUAL * u32::try_from(cases).unwrap_or(u32::MAX)
}

impl Responder {
    /// The cases of the run.
    pub fn cases(&self) -> Vec<&'static Case> {
        self.selection.of(responder_cases())
    }

    /// Runs the cases, one after the other. After each, the Responder must serve a new connection.
    ///
    /// Blocks the thread, which must not belong to an asynchronous runtime. Each answer is waited for, and the first
    /// that does not come ends its case. A case ends in any case after 40 times the patience.
    ///
    /// # Errors
    ///
    /// If nobody is there at the beginning.
    pub fn run(self, mut tell: impl FnMut(Told<'_>)) -> Result<Report, NobodyThere> {
        let cases = self.cases();
        let Self {
            provider,
            address,
            over_tcp,
            patience,
            files,
            known,
            ..
        } = self;
        let bed = Bed::new(provider, address, over_tcp, patience, files);
        let bed = bed.map_err(|why| NobodyThere(format!("no event loop: {why}")))?;
        bed.look().map_err(NobodyThere)?;
        bed.log.take();
        let mut findings = Vec::new();
        let mut lost_after = None;
        for case in cases {
            tell(Told::Begins(case));
            let finding = match lost_after {
                None => judge(&bed, case, &mut lost_after),
                Some(code) => finding(
                    case,
                    Err(Stop::Error(format!(
                        "the Responder did not come back after {code}"
                    ))),
                    Duration::ZERO,
                ),
            };
            let finding = known.marked(finding);
            tell(Told::Ended(&finding));
            findings.push(finding);
        }
        Ok(Report::new(
            address.to_string(),
            "responder",
            findings,
            &known,
        ))
    }
}

/// Runs a case, and looks afterwards whether the Responder is alive.
fn judge(bed: &Bed, case: &'static Case, lost_after: &mut Option<&'static str>) -> Finding {
    let begun = Instant::now();
    bed.deadline.begin(bed.patience);
    let tested = match case.test {
        Test::Responder(test) => test(bed),
        Test::Requester(_) => Err(Stop::Skip("it is a case against Requesters".to_owned())),
    };
    let took = begun.elapsed();
    let exchange = bed.log.take();
    bed.deadline.begin(bed.patience);
    let alive = bed.is_alive();
    let tested = match alive {
        Ok(()) => tested,
        Err(stop) => {
            if !bed.comes_back() {
                *lost_after = Some(case.code);
            }
            Err(Stop::Fail(format!(
                "the Responder serves no new connection afterwards: {}",
                stop.why()
            )))
        }
    };
    bed.log.take();
    let mut finding = finding(case, tested, took);
    finding.exchange = exchange;
    finding
}

/// The finding for what came of a case.
pub(crate) fn finding(case: &'static Case, tested: Tested, took: Duration) -> Finding {
    let (verdict, why) = match tested {
        Ok(()) => (Verdict::Pass, String::new()),
        Err(Stop::Fail(why)) => (Verdict::Fail, why),
        Err(Stop::Skip(why)) => (Verdict::Skip, why),
        Err(Stop::Error(why)) => (Verdict::Error, why),
    };
    Finding {
        code: case.code,
        title: case.title,
        section: case.section,
        level: case.level,
        verdict,
        why,
        known: false,
        took_ms: took.as_secs_f64() * 1e3,
        exchange: Vec::new(),
    }
}
