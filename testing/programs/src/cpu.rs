//! CPU time of processes and of this machine, as Linux counts it: in ticks, of 10 ms as a rule.

use std::fmt::Display;
use std::fs;

use anyhow::{Context, Result};

/// CPU time of all CPUs of this machine since it was booted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of CPUs.
    pub cpus: usize,
    /// Seconds in which a CPU was in use, also by interrupts.
    pub used: f64,
    /// Seconds in which a CPU was idle.
    pub idle: f64,
}

/// Seconds of CPU that all threads of a process have used, or that a thread of the kernel has: in user mode and in the
/// kernel. `self` is this process.
///
/// # Errors
///
/// There is no such process.
pub fn of_process(process: impl Display) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks_of_process(&stat).with_context(|| format!("no times of CPU in {path}"))?;
    Ok(seconds(ticks))
}

/// CPU time of this machine.
///
/// # Errors
///
/// Linux does not tell.
pub fn of_machine() -> Result<Machine> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse_machine(&stat).context("no times in /proc/stat")
}

fn ticks_of_process(stat: &str) -> Option<u64> {
    // The name of the program may have anything in it, but for what follows the last bracket.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

fn parse_machine(stat: &str) -> Option<Machine> {
    let lines = stat.lines().filter_map(|line| line.strip_prefix("cpu"));
    let (all, each): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(' '));
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two.
    let fields = all.first()?.split_whitespace().take(8);
    let fields: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let idle = fields.get(3)? + fields.get(4)?;
    Some(Machine {
        cpus: each.len(),
        used: seconds(fields.iter().sum::<u64>() - idle),
        idle: seconds(idle),
    })
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_process_is_that_in_user_mode_and_in_the_kernel() {
        let stat = "7 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(ticks_of_process(stat), Some(42));
        assert_eq!(ticks_of_process("7 (a) S 1 2 3"), None);
        assert!(of_process("self").unwrap() >= 0.0);
        assert!(of_process("none").is_err());
    }

    #[test]
    fn time_of_a_machine_is_that_of_all_cpus() {
        let stat = "cpu  100 100 50 1000 200 25 20 5 7 7\ncpu0 1 2 3\ncpu1 1 2 3\nintr 1\n";
        let machine = parse_machine(stat).unwrap();
        assert_eq!((machine.cpus, machine.used), (2, seconds(300)));
        assert_eq!(machine.idle, seconds(1200));
        assert_eq!(parse_machine("cpu 1 2"), None);
    }
}
