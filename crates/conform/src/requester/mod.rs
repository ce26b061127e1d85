//! Cases against Requesters, and the run of them.

mod disturbed;
mod observation;
mod observed;
mod player;
mod setup;
pub(crate) mod stage;

use crate::case::{Case, Test};
use crate::known::Known;
use crate::report::Report;
use crate::run::{NobodyThere, Selection, Told, finding};
use crate::verdict::{Finding, Stop};
use oncrpc::Service;
use stage::{Over, Stage};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::Provider;
use verbs_iwarp::Iwarp;

pub use stage::{ByHand, Driver, EXPORT, Workload};

/// All cases against Requesters, in the order in which they run.
pub fn requester_cases() -> Vec<&'static Case> {
    [observed::CASES, disturbed::CASES, setup::CASES]
        .into_iter()
        .flatten()
        .collect()
}

/// A Responder that waits for Requesters, and what of them is tested.
pub struct Requester {
    stage: Stage,
    selection: Selection,
    known: Known,
}

impl Requester {
    /// Listens over software iWARP. Each answer may take `patience`, and each connection `connects_within`.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened on.
    pub fn over_software(
        iwarp: Iwarp,
        at: SocketAddr,
        patience: Duration,
        connects_within: Duration,
        driver: Box<dyn Driver>,
    ) -> Result<Self, NobodyThere> {
        Self::over(Over::Software(iwarp), at, patience, connects_within, driver)
    }

    /// Listens over another provider, where cases below RPC-over-RDMA are skipped.
    ///
    /// # Errors
    ///
    /// If the address cannot be listened on.
    pub fn over_provider(
        provider: Arc<dyn Provider>,
        at: SocketAddr,
        patience: Duration,
        connects_within: Duration,
        driver: Box<dyn Driver>,
    ) -> Result<Self, NobodyThere> {
        let over = Over::Provider(provider);
        Self::over(over, at, patience, connects_within, driver)
    }

    fn over(
        over: Over,
        at: SocketAddr,
        patience: Duration,
        connects_within: Duration,
        driver: Box<dyn Driver>,
    ) -> Result<Self, NobodyThere> {
        let stage = Stage::new(over, at, patience, connects_within, driver);
        Ok(Self {
            stage: stage.map_err(NobodyThere)?,
            selection: Selection::default(),
            known: Known::default(),
        })
    }

    /// The cases of the run, and a baseline.
    #[must_use]
    pub fn with(self, selection: Selection, known: Known) -> Self {
        Self {
            selection,
            known,
            ..self
        }
    }

    /// NFS version 3 and MOUNT for the files of the cases, to be served over TCP too: some clients ask MOUNT there.
    pub fn service(&self) -> Arc<dyn Service> {
        Arc::clone(&self.stage.service)
    }

    /// The cases of the run.
    pub fn cases(&self) -> Vec<&'static Case> {
        self.selection.of(requester_cases())
    }

    /// Runs the cases, one after the other. Each has a connection of its own, or more; those that only look share one.
    ///
    /// Blocks the thread, which must not belong to an asynchronous runtime.
    ///
    /// # Errors
    ///
    /// If no Requester connects for the first case.
    pub fn run(self, mut tell: impl FnMut(Told<'_>)) -> Result<Report, NobodyThere> {
        let cases = self.cases();
        let Self { stage, known, .. } = self;
        let mut findings = Vec::new();
        for case in cases {
            tell(Told::Begins(case));
            let finding = known.marked(judge(&stage, case));
            if findings.is_empty() && finding.verdict == crate::Verdict::Error {
                return Err(NobodyThere(finding.why));
            }
            tell(Told::Ended(&finding));
            findings.push(finding);
        }
        let address = stage.address.to_string();
        Ok(Report::new(address, "requester", findings, &known))
    }
}

fn judge(stage: &Stage, case: &'static Case) -> Finding {
    let begun = Instant::now();
    stage.begin_case();
    let tested = match case.test {
        Test::Requester(test) => test(stage),
        Test::Responder(_) => Err(Stop::Skip("it is a case against Responders".to_owned())),
    };
    stage.stop();
    stage.drop_waiting();
    let mut finding = finding(case, tested, begun.elapsed());
    finding.exchange = stage.log.take();
    finding
}
