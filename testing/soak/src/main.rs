//! Plays the scenarios of the table, seed after seed, until the time is up or a checker finds a
//! violation.

use clap::Parser;
use soak::{Report, SCENARIOS, Scenario, Tally};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often the progress is shown.
const SHOWN: Duration = Duration::from_millis(500);

/// Plays clients and servers under faults, by seed.
#[derive(Parser)]
#[command(name = "soak")]
struct Options {
    /// Stop after so many seconds [default: 10, or none where --seeds is given]
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// Only these scenarios; may be given several times
    #[arg(long = "scenario", value_name = "NAME", value_parser = named)]
    scenarios: Vec<&'static Scenario>,
    /// Go on after a seed that shows something, and count them
    #[arg(long)]
    keep_going: bool,
    /// Say what happens
    #[arg(short, long)]
    verbose: bool,
    /// List the scenarios
    #[arg(long)]
    list: bool,
}

fn named(name: &str) -> Result<&'static Scenario, String> {
    soak::scenario(name).ok_or_else(|| {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        SCENARIOS
            .iter()
            .for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    }
    match Soak::new(&options).run() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

struct Soak<'a> {
    options: &'a Options,
    scenarios: Vec<&'static Scenario>,
    start: Instant,
    shown: Instant,
    runs: u64,
    failed: u64,
    tally: Tally,
    time: Duration,
}

impl<'a> Soak<'a> {
    fn new(options: &'a Options) -> Self {
        let start = Instant::now();
        Self {
            options,
            scenarios: match options.scenarios.is_empty() {
                true => SCENARIOS.iter().collect(),
                false => options.scenarios.clone(),
            },
            start,
            shown: start,
            runs: 0,
            failed: 0,
            tally: Tally::default(),
            time: Duration::ZERO,
        }
    }

    /// How many runs showed something.
    fn run(mut self) -> u64 {
        let Options { seconds, seeds, .. } = *self.options;
        let seconds = seconds.or_else(|| seeds.is_none().then_some(10));
        let until = seconds.map(Duration::from_secs);
        let mut seed = self.options.seed;
        loop {
            let played = seed - self.options.seed;
            let over = until.is_some_and(|until| self.start.elapsed() >= until);
            if over || seeds.is_some_and(|seeds| played >= seeds) {
                break;
            }
            for scenario in self.scenarios.clone() {
                self.play(scenario, seed);
                if self.failed > 0 && !self.options.keep_going {
                    return self.failed;
                }
            }
            seed += 1;
        }
        self.clear();
        println!("{}", self.summary(seed - self.options.seed));
        self.failed
    }

    fn play(&mut self, scenario: &Scenario, seed: u64) {
        let report = soak::run(scenario, seed, self.options.verbose);
        self.runs += 1;
        self.tally += report.tally;
        self.time += report.time;
        if self.options.verbose {
            let mut out = std::io::stdout().lock();
            for line in &report.lines {
                // Whoever does not want to read on closes it.
                if writeln!(out, "{line}").is_err() {
                    return;
                }
            }
            let (trace, tally) = (report.trace, report.tally);
            println!("{}, seed {seed}: {tally:?}, {trace:?}", scenario.name);
        }
        if !report.findings.is_empty() {
            self.failed += 1;
            self.clear();
            complain(scenario, seed, &report);
        }
        if std::io::stderr().is_terminal() && self.shown.elapsed() >= SHOWN {
            self.shown = Instant::now();
            eprint!("\r{}", self.summary(seed - self.options.seed));
        }
    }

    fn clear(&self) {
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    fn summary(&self, seeds: u64) -> String {
        let elapsed = self.start.elapsed().as_secs_f64();
        let Tally {
            calls,
            answered,
            cancelled,
            called_back,
            connections,
            restarts,
            invalidated,
            invalidated_between,
        } = self.tally;
        format!(
            "{seeds} seeds, {} runs in {elapsed:.1} s ({:.0}/s), {:.1} h of virtual time: {calls} calls \
             ({answered} answered, {cancelled} cancelled), {called_back} called back, {connections} connections, \
             {restarts} restarts, {invalidated} handles went with replies ({invalidated_between} of other calls); {} runs failed",
            self.runs,
            self.runs as f64 / elapsed.max(0.001),
            self.time.as_secs_f64() / 3600.0,
            self.failed,
        )
    }
}

fn complain(scenario: &Scenario, seed: u64, report: &Report) {
    let name = scenario.name;
    println!("scenario {name}, seed {seed}:");
    for finding in &report.findings {
        println!("  {finding}");
    }
    println!("  replay: cargo xtask soak --scenario {name} --seed {seed} --seeds 1 -v");
}
