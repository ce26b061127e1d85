//! Facts of a machine that figures depend on.

use std::fmt;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use programs::cpu;
use serde_json::{Value, json};

/// A machine, real or virtual.
#[derive(Debug, PartialEq)]
pub(super) struct Machine {
    /// CPUs that a process can use.
    pub(super) cpus: usize,
    /// Their model.
    pub(super) model: String,
    /// The release of Linux.
    pub(super) kernel: String,
    pub(super) memory_mib: u64,
    /// CPUs that something else was using when it was looked at.
    pub(super) busy: f64,
}

/// How long it is looked at what else uses the CPUs.
const LOOK: Duration = Duration::from_secs(1);

/// From so many CPUs on in use by others, times are doubtful.
const DOUBTFUL: f64 = 0.25;

/// This machine.
///
/// # Errors
///
/// Linux does not tell.
pub(super) fn facts() -> Result<Machine> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
    let cpuinfo = read("/proc/cpuinfo")?;
    let before = cpu::of_machine()?;
    thread::sleep(LOOK);
    let after = cpu::of_machine()?;
    Ok(Machine {
        cpus: thread::available_parallelism()?.get(),
        busy: busy(&before, &after).context("the clock of the CPUs stands still")?,
        model: model(&cpuinfo).unwrap_or("unknown").to_owned(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        memory_mib: mebibytes(&read("/proc/meminfo")?, "MemTotal")?,
    })
}

/// Memory of this machine that can be used without swapping, in MiB.
pub(super) fn available_mib() -> Result<u64> {
    mebibytes(&fs::read_to_string("/proc/meminfo")?, "MemAvailable")
}

/// CPUs that were in use between two moments.
fn busy(before: &cpu::Machine, after: &cpu::Machine) -> Option<f64> {
    let (used, idle) = (after.used - before.used, after.idle - before.idle);
    (used + idle > 0.0).then(|| used / (used + idle) * after.cpus as f64)
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start().strip_prefix(':')?.trim())
}

fn mebibytes(meminfo: &str, name: &str) -> Result<u64> {
    let field = |line: &str| {
        let kib = line.strip_prefix(name)?.strip_prefix(':')?.trim();
        kib.strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let kib = meminfo.lines().find_map(field);
    Ok(kib.with_context(|| format!("no {name} in /proc/meminfo"))? >> 10)
}

impl Machine {
    pub(super) fn json(&self) -> Value {
        json!({
            "cpus": self.cpus,
            "cpu_model": self.model,
            "kernel": self.kernel,
            "memory_mib": self.memory_mib,
            "cpus_busy_before": self.busy,
        })
    }

    #[cfg(test)]
    pub(super) fn example() -> Self {
        Self {
            cpus: 2,
            model: "Example CPU".into(),
            kernel: "6.1.0".into(),
            memory_mib: 1024,
            busy: 0.0,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} CPUs ({}), {} MiB, Linux {}",
            self.cpus, self.model, self.memory_mib, self.kernel
        )?;
        if self.busy >= DOUBTFUL {
            write!(
                f,
                "\nOthers used {:.1} CPUs before it began: the figures are DOUBTFUL",
                self.busy
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_that_others_use_is_noticed() {
        let time = |used, idle| cpu::Machine {
            cpus: 2,
            used,
            idle,
        };
        let before = time(2.0, 10.0);
        assert_eq!(busy(&before, &time(2.5, 11.5)), Some(0.5));
        assert_eq!(busy(&before, &time(2.0, 12.0)), Some(0.0));
        assert_eq!(busy(&before, &before), None);
        let mut machine = Machine::example();
        assert!(!machine.to_string().contains("DOUBTFUL"));
        machine.busy = 0.5;
        assert!(machine.to_string().contains("0.5 CPUs"), "{machine}");
    }

    #[test]
    fn facts_are_read_from_the_tables_of_linux() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(model(cpuinfo), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:    2097152 kB\n";
        assert_eq!(mebibytes(meminfo, "MemAvailable").unwrap(), 2048);
        assert!(mebibytes(meminfo, "MemFree").is_err());
    }
}
