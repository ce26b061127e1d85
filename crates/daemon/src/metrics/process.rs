//! Resources of the process, under the names that clients of Prometheus use (`process_*`).
//!
//! The kernel has the values in /proc/self (proc_pid_stat(5)). A value that cannot be read is left out.

use super::families::Families;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::sync::OnceLock;

/// Resources in use, at one moment.
#[derive(Debug, PartialEq)]
struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    /// Seconds between the boot of the machine and the start of the process.
    started_after_boot: f64,
}

impl Process {
    /// Parses /proc/self/stat; `None` if it is not as documented.
    fn parse(stat: &str, ticks: f64, page: u64) -> Option<Self> {
        // The name of the program can contain anything.
        let (_, behind_name) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        // Fields are counted from 1, and the first two are gone.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
            threads: field(20)?,
            started_after_boot: field(22)? as f64 / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)?.saturating_mul(page),
        })
    }

    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ticks = clock_ticks_per_second() as f64;
        Self::parse(&stat, ticks, page_size() as u64)
    }
}

/// Returns when the machine started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    // The file has a line for each CPU and more, and this never changes.
    static BOOT: OnceLock<Option<f64>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        line.trim().parse().ok()
    })
}

/// Returns the number of open file descriptors.
fn open_files() -> Option<usize> {
    // One of them is that of the directory.
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    Some(entries.count().saturating_sub(1))
}

impl Families {
    /// Adds resources of the process.
    pub(crate) fn process_resources(&mut self) {
        if let Some(process) = Process::read() {
            self.process_counter(
                "cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
                process.cpu_seconds,
            );
            self.process_gauge(
                "resident_memory_bytes",
                "Resident memory size in bytes.",
                process.resident_bytes as f64,
            );
            self.process_gauge(
                "virtual_memory_bytes",
                "Virtual memory size in bytes.",
                process.virtual_bytes as f64,
            );
            self.process_gauge(
                "threads",
                "Number of threads of the process.",
                process.threads as f64,
            );
            if let Some(boot) = boot_time() {
                self.process_gauge(
                    "start_time_seconds",
                    "Start time of the process since unix epoch in seconds.",
                    boot + process.started_after_boot,
                );
            }
        }
        if let Some(open) = open_files() {
            let help = "Number of open file descriptors.";
            self.process_gauge("open_fds", help, open as f64);
        }
        // Without a limit, there is nothing to come near to.
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            let help = "Maximum number of open file descriptors.";
            self.process_gauge("max_fds", help, limit as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn fields_are_counted_behind_the_name_of_the_program() {
        let stat =
            "7 (a (b) 1 2) S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 9 18 500 4096000 25 0 0";
        let process = Process {
            cpu_seconds: 2.0,
            resident_bytes: 25 * 4096,
            virtual_bytes: 4_096_000,
            threads: 9,
            started_after_boot: 5.0,
        };
        assert_eq!(Process::parse(stat, 100.0, 4096), Some(process));
        assert_eq!(Process::parse("7 (a) S 1 2", 100.0, 4096), None);
    }

    #[test]
    fn this_process_has_started_before_now() {
        let process = Process::read().unwrap();
        assert!(process.resident_bytes > 0 && process.virtual_bytes >= process.resident_bytes);
        assert!(process.threads > 0 && open_files().unwrap() > 2);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let started = boot_time().unwrap() + process.started_after_boot;
        // The time of the boot is in whole seconds.
        assert!(started < now.as_secs_f64() + 1.0, "{started}");
    }
}
