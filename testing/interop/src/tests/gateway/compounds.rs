//! COMPOUNDs with several results of some size, on the kernel's server over RDMA with our gateway in front of it:
//! what chunks the gateway offers for them decides what the server puts where, and whether it stays connected.

use anyhow::{Context, Result, bail, ensure};

use super::{ENTRIES, KernelServer};
use crate::TestRun;
use crate::compound::{Operations, Outcome, Session};
use crate::gateway::Place;

/// The link and the file that are read, in the root; the directory is made by the server's script.
const LINK: &str = "compound-link";
const FILE: &str = "compound-file";
const DIRECTORY: &str = "many";

/// Bytes of the text; no multiple of four, so that there is padding between it and what follows.
const TEXT: usize = 1001;

/// Bytes of one READ and of a listing: more than any Send carries, and the former no multiple of four either.
const COUNT: usize = 9_999;
const LISTING: u32 = 12_000;

/// Bytes of all names of a listing that does not fit a Send.
const NAMES: usize = 2_000;

/// COMPOUNDs for which Linux 6.12 returns other bytes for a READ that does not begin its pages, over TCP, too. For a READ before a
/// READDIR, 6.1 cuts its reply off, and counts it wrong: there is no such one here.
const WRONG_ON_6_12: [&str; 3] = [
    "READ, READ",
    "READDIR, READ",
    "READLINK, READDIR, READ, READ",
];

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, "")?;
    server.ready()?;
    let [tcp, rdma, mountd] = server.ports;
    let written = Written::make(tcp)?;
    let place = Place {
        name: "gateway",
        listen: "tcp",
        upstream: format!("rdma://127.0.0.1:{rdma}"),
        options: vec![format!("--upstream-mount={mountd}")],
        within: None,
    };
    let gateway = place.start(run)?;
    written.read_back(run, gateway.port)?;
    gateway.stop()?;
    server.stop()
}

/// Without a gateway, over TCP: tells a fault of the test or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, "")?;
    server.ready()?;
    let tcp = server.ports[0];
    Written::make(tcp)?.read_back(run, tcp)?;
    server.stop()
}

/// Data written without a gateway.
struct Written {
    text: Vec<u8>,
    data: Vec<u8>,
}

impl Written {
    fn make(port: u16) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(1);
        let text = std::iter::repeat_with(|| random.alphanumeric());
        let text: String = text.take(TEXT).collect();
        let written = Self {
            text: text.into(),
            data: std::iter::repeat_with(|| random.u8(..))
                .take(3 * COUNT)
                .collect(),
        };
        let mut session = Session::open(port, "writes")?;
        session.make_link(LINK, &written.text)?;
        session.make_file(FILE, &written.data)?;
        Ok(written)
    }

    /// Each in a COMPOUND of its own and one after the other on one connection, which all of them outlive.
    fn read_back(&self, run: &TestRun<'_>, port: u16) -> Result<()> {
        let text = || Outcome::Text(self.text.clone());
        let data = |at: usize| Outcome::Data(self.data[at..at + COUNT].to_vec());
        let start = Operations::default;
        let list = |operations: Operations| operations.at(DIRECTORY).readdir(LISTING);
        let count = u32::try_from(COUNT)?;
        let cases = [
            ("READ", start().at(FILE).read(0, count), vec![data(0)]),
            (
                "READLINK, READ",
                start().at(LINK).readlink().at(FILE).read(1, count),
                vec![text(), data(1)],
            ),
            (
                "READ, READLINK",
                start().at(FILE).read(2, count).at(LINK).readlink(),
                vec![data(2), text()],
            ),
            (
                "READ, READ",
                start().at(FILE).read(3, count).read(count, count),
                vec![data(3), data(COUNT)],
            ),
            (
                "READDIR, READ",
                list(start()).at(FILE).read(4, count),
                vec![data(4)],
            ),
            (
                "READLINK, READDIR, READ, READ",
                list(start().at(LINK).readlink())
                    .at(FILE)
                    .read(5, count)
                    .read(count, count),
                vec![text(), data(5), data(COUNT)],
            ),
            ("READ again", start().at(FILE).read(6, count), vec![data(6)]),
        ];
        let mut session = Session::open(port, "reads")?;
        for (what, operations, expected) in cases {
            run.report.say(run.name, what);
            let mut read = session.read(&operations).context(what)?;
            // How many entries are in a listing is for the server to say.
            read.retain(|outcome| !is_listing(outcome));
            ensure!(
                read.len() == expected.len(),
                "{what}: {} results",
                read.len()
            );
            let is_wrong = run.kernel == "6.12" && WRONG_ON_6_12.contains(&what);
            for (read, expected) in read.iter().zip(&expected) {
                match is_wrong {
                    true => same_size(read, expected),
                    false => same(read, expected),
                }
                .context(what)?;
            }
        }
        Ok(())
    }
}

/// Checks that a result is that of what was written.
fn same(read: &Outcome, expected: &Outcome) -> Result<()> {
    same_size(read, expected)?;
    ensure!(
        read == expected,
        "the bytes are not those that were written"
    );
    Ok(())
}

/// Checks that a result is of this kind and size.
fn same_size(read: &Outcome, expected: &Outcome) -> Result<()> {
    let (length, due) = match (read, expected) {
        (Outcome::Text(read), Outcome::Text(expected))
        | (Outcome::Data(read), Outcome::Data(expected)) => (read.len(), expected.len()),
        _ => bail!("another result is in its place"),
    };
    ensure!(length == due, "{length} bytes in place of {due}");
    Ok(())
}

/// Whether this is a listing of the directory, as far as one goes that does not fit a Send.
fn is_listing(outcome: &Outcome) -> bool {
    let Outcome::Names(names) = outcome else {
        return false;
    };
    let known = |name: &Vec<u8>| {
        let number = name.strip_prefix(b"entry-");
        let number = number.and_then(|number| str::from_utf8(number).ok()?.parse::<usize>().ok());
        number.is_some_and(|number| number < ENTRIES)
    };
    names.iter().map(Vec::len).sum::<usize>() > NAMES && names.iter().all(known)
}
