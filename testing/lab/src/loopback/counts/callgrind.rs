//! Executed instructions of a process, as Valgrind's callgrind counts them.
//!
//! Its output names the object file before the costs of each address: `0x8d60 257 0 257`. The costs of a call, in the line behind
//! `calls=`, are those of the callee over again.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Data cache that is simulated, whatever the machine has: bytes, ways, bytes of a line.
const DATA_CACHE: &str = "32768,8,64";

/// Events of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Events {
    pub(super) instructions: u64,
    /// Conditional and indirect branches.
    pub(super) branches: u64,
    /// Loads and stores that the simulated data cache does not have the line of.
    pub(super) lines: u64,
}

impl Events {
    /// Events since an earlier count.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            branches: self.branches.saturating_sub(earlier.branches),
            lines: self.lines.saturating_sub(earlier.lines),
        }
    }

    fn add(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.branches += other.branches;
        self.lines += other.lines;
    }
}

/// Events of an object file, among the addresses of the file itself.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// Events of each address.
    pub(super) addresses: BTreeMap<u64, Events>,
    /// Function at each address. A C library has these names in a file of its own.
    pub(super) functions: BTreeMap<u64, String>,
}

/// Events of a process.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// By the path of the object file.
    pub(super) objects: BTreeMap<String, Object>,
    /// Calls of the functions that allocate.
    pub(super) allocations: u64,
}

/// Functions of the allocator that a request for memory begins with.
const ALLOCATE: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

/// A command under callgrind, whose profile goes to a file.
pub(super) fn command(program: &Path, output: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--dump-instr=yes",
            "--dump-line=no",
        ])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .args(["--cache-sim=yes", "--branch-sim=yes"])
        .args(["--I1=32768,8,64", "--LL=1048576,16,64"])
        .arg(format!("--D1={DATA_CACHE}"))
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(program);
    command
}

impl Profile {
    /// Reads a file of callgrind.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("valgrind wrote no {}", path.display()))?;
        Self::parse(&text)
            .with_context(|| format!("{} is not as callgrind writes it", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut profile = Self::default();
        let mut columns = Columns::default();
        let (mut object, mut function) = (String::new(), "");
        let (mut callee, mut is_of_callee) = ("", false);
        for line in text.lines() {
            if let Some(events) = line.strip_prefix("events: ") {
                columns = Columns::new(events)?;
            } else if let Some(path) = line.strip_prefix("ob=") {
                path.clone_into(&mut object);
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = name;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let many = calls
                    .split(' ')
                    .next()
                    .and_then(|many| many.parse::<u64>().ok());
                if ALLOCATE.contains(&callee) {
                    profile.allocations += many.context("the number of calls is one")?;
                }
                is_of_callee = true;
            } else if line.starts_with("0x") && !std::mem::take(&mut is_of_callee) {
                let (address, events) = columns.events(line)?;
                let object = profile.objects.entry(object.clone()).or_default();
                object.addresses.entry(address).or_default().add(events);
                object
                    .functions
                    .entry(address)
                    .or_insert_with(|| function.to_owned());
            }
        }
        ensure!(!profile.objects.is_empty(), "it counts nothing");
        Ok(profile)
    }

    /// Events of the calls by which this process made more than one that made fewer.
    pub(super) fn since(mut self, fewer: &Self) -> Self {
        for (path, object) in &mut self.objects {
            let Some(earlier) = fewer.objects.get(path) else {
                continue;
            };
            for (address, events) in &mut object.addresses {
                *events = events.since(earlier.addresses.get(address).copied().unwrap_or_default());
            }
        }
        self.allocations = self.allocations.saturating_sub(fewer.allocations);
        self
    }
}

/// Columns of events behind the address. Those at the end of a line that are zero are left out.
#[derive(Debug, Default)]
struct Columns {
    names: Vec<String>,
}

impl Columns {
    fn new(events: &str) -> Result<Self> {
        let names: Vec<_> = events.split(' ').map(str::to_owned).collect();
        for name in ["Ir", "Bc", "Bi", "D1mr", "D1mw"] {
            ensure!(
                names.iter().any(|is| is == name),
                "it does not count {name}"
            );
        }
        Ok(Self { names })
    }

    fn events(&self, line: &str) -> Result<(u64, Events)> {
        let mut fields = line.split(' ');
        let address = fields.next().and_then(|field| field.strip_prefix("0x"));
        let address = u64::from_str_radix(address.context("an address")?, 16)?;
        let mut events = Events::default();
        for (name, count) in self.names.iter().zip(fields) {
            let count: u64 = count.parse()?;
            match name.as_str() {
                "Ir" => events.instructions = count,
                "Bc" | "Bi" => events.branches += count,
                "D1mr" | "D1mw" => events.lines += count,
                _ => {}
            }
        }
        Ok((address, events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# callgrind format
positions: instr
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim

ob=/bin/program
fn=main
0x10 5
0x14 5 0 5 0 1 2 0 0 0 3 0 4
cob=/lib/libc.so.6
cfn=malloc
calls=7 0x900
0x14 9000 1 1
0x18 5
ob=/lib/libc.so.6
fn=malloc
0x900 7
";

    #[test]
    fn costs_of_an_address_are_its_own_and_not_those_of_its_callees() {
        let profile = Profile::parse(TEXT).expect("callgrind writes so");
        assert_eq!(profile.allocations, 7);
        let program = &profile.objects["/bin/program"].addresses;
        let all = Events {
            instructions: 5,
            branches: 7,
            lines: 3,
        };
        assert_eq!(program[&0x14], all);
        assert_eq!(
            (program[&0x10].instructions, program[&0x18].instructions),
            (5, 5)
        );
        let libc = &profile.objects["/lib/libc.so.6"];
        assert_eq!(libc.functions[&0x900], "malloc");
        assert_eq!(libc.addresses[&0x900].instructions, 7);
    }

    #[test]
    fn difference_of_two_runs_is_that_of_each_address() {
        let fewer = Profile::parse(TEXT).expect("callgrind writes so");
        let more = TEXT
            .replace("0x10 5", "0x10 25")
            .replace("calls=7", "calls=17");
        let more = Profile::parse(&more).expect("callgrind writes so");
        let between = more.since(&fewer);
        assert_eq!(between.allocations, 10);
        assert_eq!(
            between.objects["/bin/program"].addresses[&0x10].instructions,
            20
        );
        assert_eq!(
            between.objects["/bin/program"].addresses[&0x14],
            Events::default()
        );
    }

    #[test]
    fn text_without_counts_is_refused() {
        Profile::parse("").expect_err("there is nothing");
        Profile::parse("events: Ir Dr\n0x10 1\n").expect_err("there are no branches");
    }
}
