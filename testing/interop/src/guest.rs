//! One virtual machine, from power on to the script's status.
//!
//! The host's 127.0.0.1 is 10.0.2.2 to the guest; ports of the guest are reached through
//! forwards. Host and script talk in lines over a serial port: those that start with `@@` are for
//! the host, everything else goes to the log. The guest may be killed at any time, nothing in it
//! outlives it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::TestRun;
use super::image::Cpio;
use super::namespaces::Namespaces;
use super::packages::tool;
use programs::command::tail;

/// Memory of a guest in MiB: the initramfs, two files of 64 MiB, and room.
const MEMORY_MIB: u32 = 1024;

/// How long a machine may take from power on to the script, and how often that is tried. On a busy host
/// the emulated timers get lost now and then while the kernel sets them up, and then it waits for ever.
const UP_LIMIT: Duration = Duration::from_secs(120);
const BOOTS: usize = 4;

/// Files of `testing/interop/guest` that scripts may include.
const LIBRARIES: [&str; 7] = [
    "lib.sh",
    "load.sh",
    "locks.sh",
    "machine.sh",
    "ours.sh",
    "work.sh",
    "work4.sh",
];

/// Parameters of a guest's start.
#[derive(Default)]
pub(super) struct Boot<'a> {
    /// Names the machine in logs.
    pub(super) name: &'a str,
    /// A file of `testing/interop/tests`.
    pub(super) script: &'a str,
    /// Variables of the script.
    pub(super) environment: &'a [(&'a str, String)],
    /// A program of the host, which the guest has as `/lab/rpcrdma`.
    pub(super) program: Option<&'a Path>,
    /// Further files, with their names in the guest's `/lab`; all may be executed.
    pub(super) files: &'a [(&'a str, &'a Path)],
    /// Images of disks, which the guest has as `/dev/vda` and so on. What it writes is in the file when it is
    /// told so; the file is not synced, as the host does not crash.
    pub(super) disks: &'a [&'a Path],
    /// Ports of the host's 127.0.0.1 and the guest's ports behind them.
    pub(super) forwards: &'a [(u16, u16)],
    /// The name of another guest of the test. A cable joins the second network cards of both, whose addresses their
    /// scripts choose.
    pub(super) wired_to: Option<&'a str>,
    /// The namespaces in which it runs, so that their 127.0.0.1 is its host's.
    pub(super) within: Option<&'a Namespaces>,
    /// File for the traffic of the guest's network card.
    pub(super) capture: Option<PathBuf>,
    /// How long the script may take.
    pub(super) limit: Duration,
}

/// A running guest. Dropping it switches it off.
pub(super) struct Guest<'a> {
    run: &'a TestRun<'a>,
    machine: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// Lines that were taken in and are still to be looked at.
    pending: VecDeque<String>,
    /// Notes of the script, made with `@@note`.
    notes: Vec<String>,
    deadline: Instant,
    limit: Duration,
    /// The part of the test the script is at.
    step: String,
    console: PathBuf,
    qemu_log: PathBuf,
}

impl<'a> Guest<'a> {
    /// Switches a machine on, and waits until it is up.
    ///
    /// # Errors
    ///
    /// Files cannot be written, QEMU cannot be started, or the machine does not come up.
    pub(super) fn boot(run: &'a TestRun<'a>, boot: &Boot<'_>) -> Result<Self> {
        let initrd = write_initrd(run, boot)?;
        let mut attempt = 1;
        loop {
            let mut guest = Self::switch_on(run, boot, &initrd, attempt)?;
            match guest.expect("up") {
                Ok(_) => {
                    guest.deadline = Instant::now() + boot.limit;
                    guest.limit = boot.limit;
                    return Ok(guest);
                }
                Err(error) if attempt == BOOTS => return Err(error),
                Err(error) => {
                    let again = format!(
                        "the machine \"{}\" does not come up: once more; {error:#}",
                        boot.name
                    );
                    run.report.say(run.name, &again);
                }
            }
            attempt += 1;
        }
    }

    /// A machine that has [`UP_LIMIT`] to come up. The console of each attempt is kept.
    fn switch_on(
        run: &'a TestRun<'a>,
        boot: &Boot<'_>,
        initrd: &Path,
        attempt: usize,
    ) -> Result<Self> {
        let log_of = |kind: &str| run.logs.join(format!("{}{kind}.log", boot.name));
        let console = log_of(&format!("-console-{attempt}"));
        let qemu_log = log_of("-qemu");
        let mut network = String::from("user,id=net");
        for (host, guest) in boot.forwards {
            network += &format!(",hostfwd=tcp:127.0.0.1:{host}-:{guest}");
        }
        let kept = run.logs.join(format!("{}.pcap", boot.name));
        let capture = boot
            .capture
            .clone()
            .or_else(|| run.keep_captures.then_some(kept));
        let qemu = tool("qemu-system-x86_64");
        let mut qemu = match boot.within {
            Some(namespaces) => namespaces.enter(&qemu),
            None => qemu,
        };
        qemu.args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,la57=off",
            "-smp",
            "2",
        ])
        .args(["-m", &MEMORY_MIB.to_string()])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .arg("-kernel")
        .arg(&run.image.kernel)
        .arg("-initrd")
        .arg(initrd)
        .args([
            "-append",
            "console=ttyS0 oops=panic panic=-1 tsc=reliable no_timer_check mitigations=off",
        ])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args([
            "-chardev",
            "stdio,id=script,signal=off",
            "-serial",
            "chardev:script",
        ])
        .args(["-netdev", &network])
        .args(["-device", "virtio-net-pci,netdev=net,romfile="])
        .args(["-device", "virtio-rng-pci"]);
        for (number, disk) in boot.disks.iter().enumerate() {
            qemu.arg("-drive").arg(format!(
                "if=none,id=disk{number},format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file={}",
                disk.display()
            ));
            qemu.args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
        }
        if let Some(other) = boot.wired_to {
            qemu.args(cable(&run.work, boot.name, other));
            if run.keep_captures {
                let path = run.logs.join(format!("{}-cable.pcap", boot.name));
                let dump = format!(
                    "filter-dump,id=cable-dump,netdev=cable,file={}",
                    path.display()
                );
                qemu.args(["-object", &dump]);
            }
        }
        if let Some(path) = &capture {
            qemu.arg("-object").arg(format!(
                "filter-dump,id=dump,netdev=net,file={}",
                path.display()
            ));
        }
        let mut machine = qemu
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&qemu_log)?)
            .spawn()
            .context("cannot run qemu-system-x86_64")?;
        let input = machine.stdin.take().context("QEMU's input")?;
        let output = machine.stdout.take().context("QEMU's output")?;
        let lines = follow(output, File::create(log_of(""))?);
        Ok(Self {
            run,
            machine,
            input,
            lines,
            pending: VecDeque::new(),
            notes: Vec::new(),
            deadline: Instant::now() + UP_LIMIT,
            limit: UP_LIMIT,
            step: "boot".into(),
            console,
            qemu_log,
        })
    }

    /// Waits for the script to say `@@WORD`, and returns the rest of that line.
    ///
    /// # Errors
    ///
    /// The script ends or its time is over before it says so.
    pub(super) fn expect(&mut self, word: &str) -> Result<String> {
        loop {
            let line = self.next_line()?;
            let (said, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match said {
                _ if said == word => return Ok(rest.to_owned()),
                "step" => {
                    self.run.report.say(self.run.name, rest);
                    rest.clone_into(&mut self.step);
                }
                "fail" => bail!("in the guest, at \"{}\": {rest}", self.step),
                "status" => bail!(
                    "the guest's script ended with status {rest} at \"{}\"",
                    self.step
                ),
                _ => bail!("the guest said \"{line}\" where \"{word}\" was expected"),
            }
        }
    }

    /// Tells the script to do something, and waits until it has done it.
    ///
    /// # Errors
    ///
    /// It does not.
    pub(super) fn ask(&mut self, what: &str) -> Result<()> {
        self.tell(what)?;
        self.expect("done")?;
        Ok(())
    }

    /// Stops the machine where it is, until [`Guest::go_on`].
    ///
    /// # Errors
    ///
    /// QEMU is gone.
    pub(super) fn stand_still(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.machine), Signal::STOP)?)
    }

    /// Lets a machine go on that stands still.
    ///
    /// # Errors
    ///
    /// QEMU is gone.
    pub(super) fn go_on(&self) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.machine), Signal::CONT)?)
    }

    /// All that the script has noted so far. Notes may come at any time, between other lines.
    pub(super) fn notes(&mut self) -> &[String] {
        while let Ok(line) = self.lines.try_recv() {
            self.take_in(line);
        }
        &self.notes
    }

    /// The same, and forgets them.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        self.notes();
        std::mem::take(&mut self.notes)
    }

    /// Writes a line to the script.
    ///
    /// # Errors
    ///
    /// The machine is gone.
    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}")?;
        Ok(self.input.flush()?)
    }

    /// Waits for the end of the script, which must be a good one.
    ///
    /// # Errors
    ///
    /// The script failed or did not end in time.
    pub(super) fn finish(mut self) -> Result<()> {
        match self.expect("status")?.as_str() {
            "0" => Ok(()),
            status => bail!(
                "the guest's script ended with status {status} at \"{}\"",
                self.step
            ),
        }
    }

    fn take_in(&mut self, line: String) {
        match line.strip_prefix("note ") {
            Some(note) => self.notes.push(note.to_owned()),
            None => self.pending.push_back(line),
        }
    }

    /// The next line for the host that is no note, without its mark.
    fn next_line(&mut self) -> Result<String> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Ok(line);
            }
            let line = self.receive()?;
            self.take_in(line);
        }
    }

    fn receive(&self) -> Result<String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "not done after {} s, at \"{}\"",
                    self.limit.as_secs(),
                    self.step
                )
            }
            Err(RecvTimeoutError::Disconnected) => {
                let end = |path| {
                    tail(&String::from_utf8_lossy(
                        &fs::read(path).unwrap_or_default(),
                    ))
                };
                bail!(
                    "the guest died at \"{}\"\n{}{}",
                    self.step,
                    end(&self.qemu_log),
                    end(&self.console)
                )
            }
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // An error here means that the machine is off already.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

/// First port of [`free_ports`]: below the ports that Linux gives to sockets that ask for none, which another test may
/// be given at any time (`net.ipv4.ip_local_port_range`).
const FIRST_PORT: u16 = 12_000;
const LAST_PORT: u16 = 31_999;

/// Ports of the host's loopback interface that were free a moment ago: QEMU cannot choose one itself and say which.
/// Each is returned once only, so tests that run at the same time have ports of their own.
///
/// # Errors
///
/// There is none.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    let mut ports = [0; N];
    for port in &mut ports {
        *port = loop {
            let port = NEXT.fetch_add(1, Ordering::Relaxed);
            ensure!(port <= LAST_PORT, "no port of 127.0.0.1 is free");
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                break port;
            }
        };
    }
    Ok(ports)
}

/// QEMU's arguments for the end of a cable to another machine: Unix datagrams, which QEMU keeps back while the other one
/// does not take them. A frame that is sent while the other one is off is lost.
fn cable(work: &Path, name: &str, other: &str) -> [String; 4] {
    let socket = |name: &str| work.join(format!("{name}.cable")).display().to_string();
    let address = 1 + u8::from(name > other);
    [
        "-netdev".to_owned(),
        format!(
            "dgram,id=cable,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            socket(name),
            socket(other)
        ),
        "-device".to_owned(),
        format!("virtio-net-pci,netdev=cable,romfile=,mac=52:54:00:00:00:{address:02}"),
    ]
}

/// The image's archive and, behind it, one with `/init`, the script, its variables and its program.
fn write_initrd(run: &TestRun<'_>, boot: &Boot<'_>) -> Result<PathBuf> {
    let interop = programs::root().join("testing/interop");
    let read = |name: &str| {
        let path = interop.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let environment: String = boot
        .environment
        .iter()
        .map(|(name, value)| format!("{name}='{value}'\n"))
        .collect();
    let path = run.work.join(format!("{}.initrd", boot.name));
    fs::copy(&run.image.initramfs, &path)?;
    let mut archive = Cpio::new(File::options().append(true).open(&path)?);
    archive.file("init", 0o755, &read(&format!("guest/{}", run.image.init))?)?;
    for library in LIBRARIES {
        let content = read(&format!("guest/{library}"))?;
        archive.file(&format!("lab/{library}"), 0o644, &content)?;
    }
    archive.file(
        "lab/script",
        0o644,
        &read(&format!("tests/{}", boot.script))?,
    )?;
    let program = boot.program.map(|program| ("rpcrdma", program));
    for (name, file) in program.iter().chain(boot.files) {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        archive.file(&format!("lab/{name}"), 0o755, &content)?;
    }
    archive.file("lab/env", 0o644, environment.as_bytes())?;
    archive.finish()?;
    Ok(path)
}

/// Writes what the script says to `log`, with the time, and passes on what is for the host.
fn follow(output: impl Read + Send + 'static, mut log: File) -> Receiver<String> {
    let (sender, lines) = channel();
    let start = Instant::now();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            // A log that cannot be written shows in the test that needs it.
            let _ = writeln!(log, "{:7.2} {line}", start.elapsed().as_secs_f64());
            if let Some(rest) = line.strip_prefix("@@")
                && sender.send(rest.to_owned()).is_err()
            {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn marked_lines_reach_the_host_and_all_lines_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let said: &[u8] = b"plain\n@@step one two\r\n@@status 0\n";
        let lines: Vec<_> = follow(said, File::create(&path).unwrap()).iter().collect();
        assert_eq!(lines, ["step one two", "status 0"]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    }

    #[test]
    fn ends_of_a_cable_are_the_same_sockets_and_have_their_own_addresses() {
        let ends =
            [("a", "b"), ("b", "a")].map(|(name, other)| cable(Path::new("/w"), name, other));
        assert!(
            ends[0][1].ends_with("local.path=/w/a.cable,remote.type=unix,remote.path=/w/b.cable")
        );
        assert!(
            ends[1][1].ends_with("local.path=/w/b.cable,remote.type=unix,remote.path=/w/a.cable")
        );
        assert_ne!(ends[0][3], ends[1][3]);
    }

    #[test]
    fn free_ports_differ() {
        let first: [u16; 3] = free_ports().unwrap();
        let second: [u16; 3] = free_ports().unwrap();
        let all: BTreeSet<u16> = first.into_iter().chain(second).collect();
        assert_eq!(all.len(), 6);
    }
}
