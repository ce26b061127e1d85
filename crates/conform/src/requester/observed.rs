//! Cases that look at the messages of a Requester whose work goes well.

use super::observation::{Call, Observed, Received};
use super::player::Player;
use super::stage::{IDLE, Stage};
use crate::bed::private_data;
use crate::case::Case;
use crate::message::chunk_len;
use crate::verdict::Level::{Must, Robustness};
use crate::verdict::{Tested, ensure, fail, skip};
use std::time::Duration;

/// Procedures of NFS version 3 (RFC 1813 §3.3).
const READ: u32 = 6;
const WRITE: u32 = 7;
const SYMLINK: u32 = 10;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;

pub(super) const CASES: &[Case] = &[
    Case::requester(
        "RPD-01",
        Must,
        "RFC 8797 §4",
        "private data of version 1 has eight octets, and its reserved bits are zero",
        private_data_is_well_formed,
    ),
    Case::requester(
        "RBASE-01",
        Must,
        "RFC 8166 §4.5, §4",
        "every message is a whole header in XDR, with whole words behind it",
        whole_words,
    ),
    Case::requester(
        "RBASE-02",
        Must,
        "RFC 8166 §4.2.1",
        "rdma_xid of every call is the XID of its RPC message",
        xids,
    ),
    Case::requester(
        "RBASE-03",
        Must,
        "RFC 8166 §4.2.4, §4.6.1, §4.6.2",
        "no RDMA_ERROR, RDMA_MSGP or RDMA_DONE is sent",
        procedures,
    ),
    Case::requester(
        "RBASE-04",
        Must,
        "RFC 8166 §4.2.4",
        "RDMA_NOMSG has a Position Zero Read chunk, and nothing behind its header",
        nomsg,
    ),
    Case::requester(
        "RBASE-05",
        Must,
        "RFC 8166 §3.3.1",
        "no more calls are unanswered than were granted",
        credits,
    ),
    Case::requester(
        "RBASE-06",
        Must,
        "RFC 8797 §4.2",
        "no message is longer than the Receive Size that the Responder announces",
        lengths,
    ),
    Case::requester(
        "RCHK-01",
        Must,
        "RFC 8166 §3.4.5",
        "every Position is a multiple of four",
        positions,
    ),
    Case::requester(
        "RCHK-02",
        Must,
        "RFC 8166 §6.1, RFC 8267 §4",
        "only data of WRITE and text of SYMLINK is in Read chunks, at its place",
        eligible,
    ),
    Case::requester(
        "RCHK-03",
        Must,
        "RFC 8166 §3.4.5.2",
        "a Read chunk has the length of its item, with or without roundup",
        read_lengths,
    ),
    Case::requester(
        "RCHK-04",
        Must,
        "RFC 8166 §4.5.3",
        "memory of every Read chunk can be read until its call is answered",
        readable,
    ),
    Case::requester(
        "RCHK-05",
        Must,
        "RFC 8166 §3.4.6",
        "the Write chunk of a READ has room for all that is asked for",
        write_room,
    ),
    Case::requester(
        "RCHK-06",
        Must,
        "RFC 8166 §4.3.3",
        "a Reply chunk is offered where a reply may be longer than the inline threshold",
        reply_chunk,
    ),
    Case::requester(
        "RCHK-07",
        Robustness,
        "RFC 8166 §4.3.2",
        "no Write chunk is offered for a reply without an eligible result",
        write_list,
    ),
];

/// Octets that the observed Responder takes in a message.
const RECEIVE_SIZE: usize = 4096;

/// Octets of a reply beside its result: header of the transport without chunks (RFC 8166 §4.2), and of RPC.
const HEADERS: u32 = 28 + 24;

/// Octets of the result of a READ beside the data: status, attributes, count, EOF and length (RFC 1813 §3.3.6).
const BESIDE_DATA: u32 = 4 + 88 + 4 + 4 + 4;

/// Octets of the result of a READDIR beside what its count is about: the status (RFC 1813 §3.3.16).
const BESIDE_ENTRIES: u32 = 4;

/// Most calls, and octets of all their streams, that are kept.
const MAX_KEPT: usize = 20_000;
const MAX_OCTETS: usize = 256 << 20;

/// Calls that are let wait for their answers, so that it is seen how many a Requester has in flight.
const HELD: usize = 4;

/// How long they are let wait for others.
const HELD_FOR: Duration = Duration::from_millis(2);

impl Observed {
    fn watch(stage: &Stage) -> Tested<Self> {
        let said = private_data(true, RECEIVE_SIZE);
        let player = stage.connection_saying(&said)?;
        let mut observed = Self {
            private_data: player.link.private_data.clone(),
            calls: Vec::new(),
            octets: 0,
            too_many: None,
        };
        let mut next = Some(player);
        while let Some(player) = next {
            observed.watch_one(player)?;
            next = stage.next_connection(&said)?;
        }
        stage.stop();
        if observed.calls.is_empty() {
            return skip("the Requester calls nothing");
        }
        Ok(observed)
    }

    /// Takes in all calls of a connection.
    fn watch_one(&mut self, mut player: Player<'_>) -> Tested {
        player.grant = u32::try_from(HELD).expect("it is small");
        let mut granted = 1;
        let mut open: Vec<Received> = Vec::new();
        loop {
            // Those that wait are answered when no other call comes.
            let limit = match open.is_empty() {
                true => IDLE,
                false => HELD_FOR,
            };
            match player.call_within(limit)? {
                Some(received) => {
                    let stream = player.stream(&received)?;
                    self.octets += stream.as_ref().map_or(0, Vec::len);
                    ensure(
                        self.calls.len() < MAX_KEPT && self.octets < MAX_OCTETS,
                        || "the Requester calls without an end".to_owned(),
                    )?;
                    open.push(received.clone());
                    self.calls.push(Call { received, stream });
                    if open.len() > granted {
                        self.too_many = Some((open.len(), granted));
                    }
                }
                None if open.is_empty() => return Ok(()),
                None => {
                    for call in std::mem::take(&mut open) {
                        player.answer(&call)?;
                        granted = HELD;
                    }
                }
            }
        }
    }

    fn of(stage: &Stage) -> Tested<&Self> {
        let watched = stage
            .observed
            .get_or_init(|| Self::watch(stage).map_err(|stop| stop.why()));
        match watched {
            Ok(observed) => Ok(observed),
            Err(why) => crate::verdict::error(format!(
                "the work of a Requester could not be watched: {why}"
            )),
        }
    }

    /// Holds each call against a rule, which says what is wrong with it.
    fn each(stage: &Stage, rule: impl Fn(&Call) -> Result<(), String>) -> Tested {
        for call in &Self::of(stage)?.calls {
            if let Err(why) = rule(call) {
                let bytes = &call.received.bytes;
                stage.log.came(&call.received.message, bytes);
                return fail(why);
            }
        }
        Ok(())
    }

    /// The same of calls that have what the rule is about: it says `None` of others.
    fn some(
        stage: &Stage,
        what: &str,
        rule: impl Fn(&Call) -> Option<Result<(), String>>,
    ) -> Tested {
        let observed = Self::of(stage)?;
        if observed.calls.iter().all(|call| rule(call).is_none()) {
            return skip(format!("the Requester made no call with {what}"));
        }
        Self::each(stage, |call| rule(call).unwrap_or(Ok(())))
    }
}

fn holds(is: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    match is {
        true => Ok(()),
        false => Err(why()),
    }
}

fn private_data_is_well_formed(stage: &Stage) -> Tested {
    let data = &Observed::of(stage)?.private_data;
    stage.log.came("private data", data);
    let found = data
        .windows(4)
        .position(|found| found == [0xf6, 0xab, 0x0e, 0x18]);
    let Some(at) = found else {
        return skip("the Requester sends no private data");
    };
    let Some(&[_, _, _, _, version, flags, ..]) = data[at..].first_chunk::<8>() else {
        return fail("it has fewer than eight octets");
    };
    ensure(version == 1, || format!("its version is {version}"))?;
    ensure(flags & 0xfe == 0, || format!("its flags are {flags:#010b}"))
}

fn whole_words(stage: &Stage) -> Tested {
    Observed::each(stage, |call| {
        let len = call.received.bytes.len();
        holds(len % 4 == 0 && len >= 28, || {
            format!("a message of {len} octets")
        })
    })
}

fn xids(stage: &Stage) -> Tested {
    Observed::each(stage, |call| {
        let Ok(stream) = &call.stream else {
            return Ok(());
        };
        let xid = stream.first_chunk().copied().map(u32::from_be_bytes);
        let rdma_xid = call.received.message.xid;
        holds(xid == Some(rdma_xid), || {
            format!("rdma_xid is {rdma_xid:#x}, and the call's is {xid:x?}")
        })
    })
}

fn procedures(stage: &Stage) -> Tested {
    Observed::each(stage, |call| {
        holds(call.lists().is_some(), || {
            format!("it sends {}", call.received.message)
        })
    })
}

fn nomsg(stage: &Stage) -> Tested {
    Observed::some(stage, "RDMA_NOMSG", |call| {
        let lists = call.lists().filter(|lists| lists.nomsg)?;
        let is_zero = |(position, _): &(u32, _)| *position == 0;
        Some(holds(
            lists.reads.iter().any(is_zero) && call.received.message.payload.is_empty(),
            || "the call is in no chunk, or not in it alone".to_owned(),
        ))
    })
}

fn credits(stage: &Stage) -> Tested {
    let observed = Observed::of(stage)?;
    match observed.too_many {
        Some((open, granted)) => fail(format!("{open} calls are unanswered of {granted}")),
        None => Ok(()),
    }
}

fn lengths(stage: &Stage) -> Tested {
    Observed::each(stage, |call| {
        let len = call.received.bytes.len();
        holds(len <= RECEIVE_SIZE, || format!("a message of {len} octets"))
    })
}

fn positions(stage: &Stage) -> Tested {
    Observed::some(stage, "a Read chunk", |call| {
        let reads = &call.lists().filter(|lists| !lists.reads.is_empty())?.reads;
        Some(holds(
            reads.iter().all(|(position, _)| position % 4 == 0),
            || {
                format!(
                    "the Positions are {:?}",
                    reads.iter().map(|(at, _)| at).collect::<Vec<_>>()
                )
            },
        ))
    })
}

/// Segments that are not of a Position Zero Read chunk.
fn reduced(call: &Call) -> Option<(u32, u64)> {
    let lists = call.lists()?;
    let reads: Vec<_> = lists
        .reads
        .iter()
        .filter(|(position, _)| *position != 0)
        .collect();
    let (position, _) = reads.first()?;
    Some((
        *position,
        reads
            .iter()
            .map(|(_, segment)| u64::from(segment.length))
            .sum(),
    ))
}

fn eligible(stage: &Stage) -> Tested {
    Observed::some(stage, "a Read chunk for an argument", |call| {
        let (position, length) = reduced(call)?;
        let Some((procedure, _)) = call.nfs() else {
            return Some(Err(
                "an argument of another program is in a Read chunk".to_owned()
            ));
        };
        if !matches!(procedure, WRITE | SYMLINK) {
            return Some(Err(format!(
                "an argument of procedure {procedure} is in a Read chunk"
            )));
        }
        // Both have their item at the end.
        let whole = call.stream.as_ref().map_or(0, Vec::len) as u64;
        let due = whole.saturating_sub(length.next_multiple_of(4));
        Some(holds(u64::from(position) == due, || {
            format!("the Position is {position}, and {due} is the place of the item")
        }))
    })
}

fn read_lengths(stage: &Stage) -> Tested {
    Observed::some(stage, "data of a WRITE in a Read chunk", |call| {
        let (_, length) = reduced(call)?;
        let (procedure, arguments) = call.nfs()?;
        if procedure != WRITE {
            return None;
        }
        // Offset, count, stability, and the length of the data (RFC 1813 §3.3.7).
        let data = u64::from(*Call::behind_handle(&arguments)?.get(4)?);
        Some(holds(
            length == data || length == data.next_multiple_of(4),
            || format!("{length} octets are in the chunk, and the data has {data}"),
        ))
    })
}

fn readable(stage: &Stage) -> Tested {
    Observed::some(stage, "a Read chunk", |call| {
        call.lists().filter(|lists| !lists.reads.is_empty())?;
        Some(call.stream.as_ref().map(|_| ()).map_err(Clone::clone))
    })
}

fn write_room(stage: &Stage) -> Tested {
    Observed::some(stage, "a Write chunk for a READ", |call| {
        let (procedure, arguments) = call.nfs()?;
        let chunk = call
            .lists()?
            .writes
            .first()
            .filter(|chunk| !chunk.is_empty())?;
        if procedure != READ {
            return None;
        }
        let count = u64::from(*Call::behind_handle(&arguments)?.get(2)?);
        let room = chunk_len(chunk);
        Some(holds(room >= count, || {
            format!("the chunk has {room} octets, and {count} are asked for")
        }))
    })
}

fn reply_chunk(stage: &Stage) -> Tested {
    let announced = rpcrdma_proto::PrivateData::find(&Observed::of(stage)?.private_data);
    // The Responder sends as much as the Requester takes, and no more than it has announced.
    let threshold = announced.map_or(1024, |data| data.receive.bytes().min(4096));
    Observed::some(stage, "a reply that may be long", |call| {
        let (procedure, arguments) = call.nfs()?;
        let behind = Call::behind_handle(&arguments)?;
        let lists = call.lists()?;
        let may_come = match procedure {
            READ if lists.writes.is_empty() => {
                let data = behind.get(2)?.checked_next_multiple_of(4)?;
                data.checked_add(BESIDE_DATA)?
            }
            // Cookie and verifier have two words each; READDIRPLUS has two limits.
            READDIR => behind.get(4)?.checked_add(BESIDE_ENTRIES)?,
            READDIRPLUS => behind.get(5)?.checked_add(BESIDE_ENTRIES)?,
            _ => return None,
        };
        let may_come = may_come.saturating_add(HEADERS) as usize;
        if may_come <= threshold {
            return None;
        }
        Some(holds(lists.reply.is_some(), || {
            format!("{may_come} octets may come, {threshold} fit, and no Reply chunk is offered")
        }))
    })
}

fn write_list(stage: &Stage) -> Tested {
    Observed::some(stage, "arguments of NFS version 3", |call| {
        let (procedure, _) = call.nfs()?;
        // READ and READLINK have such a result.
        if matches!(procedure, READ | 5) {
            return None;
        }
        let lists = call.lists()?;
        Some(holds(lists.writes.is_empty(), || {
            format!("a Write chunk is offered for procedure {procedure}")
        }))
    })
}
