//! An echo service, which counts how often it executed each call.

use crate::dice::Dice;
use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::xdr;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Answer, Caller, Reply, ReplyBound, Service};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// Most bytes of one argument or result.
const MAX_ITEM: u32 = 1 << 18;

/// Most arguments or results of one call.
const MAX_ITEMS: u32 = 1000;

/// Bytes of the pattern that all data is cut from, at another offset for each call.
const PATTERN: usize = MAX_ITEM as usize + (1 << 16);

/// Sizes at which something changes: padding, inline sizes with and without headers, segments.
const SIZES: &[usize] = &[
    0, 1, 2, 3, 4, 5, 99, 500, 900, 976, 1000, 1021, 1024, 2000, 3900, 3948, 3996, 4000, 4052,
    4093, 4096, 4100, 8000, 8148, 8192, 8193, 20_001, 65_536, 100_003,
];

/// Sizes of one call, and how it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of each argument.
    pub args: Vec<usize>,
    /// Bytes of each result, and the bound that is told to the transport.
    pub results: Vec<(usize, usize)>,
    /// When it is answered.
    pub answer: How,
}

/// When a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// At once.
    Now,
    /// After so many milliseconds.
    After(u32),
    /// Never.
    Never,
}

/// Kinds of calls, and how likely each is.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Arguments and results, drawn from these.
    pub shapes: &'static [Kind],
    /// One call in so many is answered after a time of up to so many milliseconds.
    pub later: (u32, usize),
    /// One call in so many is never answered.
    pub never: u32,
}

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Neither arguments nor results.
    Null,
    /// Little of either: it goes inline.
    Inline,
    /// Arguments by Read chunks.
    Read,
    /// Results by Write chunks, used in whole, in part or not at all.
    Write,
    /// Both.
    Both,
    /// So many small arguments that the call is in a Position-Zero chunk.
    LongCall,
    /// So many small results that the reply is in the Reply chunk.
    LongReply,
    /// Results larger than there is room for: ERR_CHUNK, and the connection goes on.
    Outgrown,
}

/// All kinds that are answered.
pub const EVERY_KIND: &[Kind] = &[
    Kind::Null,
    Kind::Inline,
    Kind::Inline,
    Kind::Read,
    Kind::Write,
    Kind::Both,
    Kind::LongCall,
    Kind::LongReply,
    Kind::Outgrown,
];

impl Shape {
    /// One call of a mix.
    pub fn draw(dice: &mut Dice, mix: &Mix) -> Self {
        let kind = dice.of(mix.shapes);
        let mut shape = Self::of_kind(dice, kind);
        if dice.once_in(mix.never) {
            shape.answer = How::Never;
        } else if dice.once_in(mix.later.0) {
            let after = u32::try_from(dice.magnitude(mix.later.1)).expect("a short time");
            shape.answer = How::After(after);
        }
        shape
    }

    /// One with neither arguments nor results, answered at once.
    pub fn null() -> Self {
        Self {
            args: Vec::new(),
            results: Vec::new(),
            answer: How::Now,
        }
    }

    fn of_kind(dice: &mut Dice, kind: Kind) -> Self {
        let (mut args, mut results) = (Vec::new(), Vec::new());
        let small = |dice: &mut Dice| dice.within(0, 90);
        match kind {
            Kind::Null => {}
            Kind::Inline => {
                args = (0..dice.within(0, 2)).map(|_| small(dice)).collect();
                results = (0..dice.within(0, 2)).map(|_| exact(small(dice))).collect();
            }
            Kind::Read => args = several(dice),
            Kind::Write => results = bounded(dice),
            Kind::Both => (args, results) = (several(dice), bounded(dice)),
            Kind::LongCall => args = vec![dice.within(1, 60); dice.within(40, 300)],
            Kind::LongReply => results = vec![exact(dice.within(1, 60)); dice.within(40, 300)],
            Kind::Outgrown => results = vec![(MAX_ITEM as usize, dice.magnitude(20_000))],
        }
        Self {
            args,
            results,
            answer: How::Now,
        }
    }

    /// Whether there is no room for its reply.
    pub fn is_outgrown(&self) -> bool {
        self.results.iter().any(|(len, bound)| len > bound)
    }

    /// The call message.
    pub fn call(&self, xid: u32, id: u64) -> Payload {
        let mut w = Writer::new(Buffer::with_capacity(64));
        w.u32(xid);
        w.u32(0);
        w.u64(id);
        w.u32(match self.answer {
            How::Now => 0,
            How::Never => u32::MAX,
            How::After(milliseconds) => milliseconds + 1,
        });
        w.length(self.results.len());
        self.results.iter().for_each(|(len, _)| w.length(*len));
        items(&mut w, id, self.args.iter().copied());
        w.finish()
    }

    /// Bytes of its reply, if it is as large as its bound.
    pub fn reply_len(&self) -> usize {
        let padded = |len: usize| len.next_multiple_of(4);
        let results = self.results.iter().map(|(_, bound)| padded(*bound));
        self.bound().fixed + results.sum::<usize>()
    }

    /// The bound of its reply.
    pub fn bound(&self) -> ReplyBound {
        ReplyBound {
            fixed: 20 + 4 * self.results.len(),
            results: self.results.iter().map(|(_, bound)| *bound).collect(),
        }
    }

    /// Compares a reply with what was asked for.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self, xid: u32, id: u64, reply: &Payload) -> Result<(), String> {
        let mut r = Reader::from(reply);
        let head = (r.u32(), r.u32(), r.u64(), r.u32());
        let count = u32::try_from(self.results.len()).expect("few results");
        if head != (Ok(xid), Ok(1), Ok(id), Ok(count)) {
            return Err(format!("a reply that begins with {head:?}"));
        }
        for (index, (len, _)) in self.results.iter().enumerate() {
            let item = r.item(MAX_ITEM).map_err(|error| error.to_string())?;
            compare(id, index, *len, &item.to_vec())?;
        }
        r.finish().map_err(|error| error.to_string())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brief = |sizes: &[usize]| match sizes {
            [first, .., last] if sizes.len() > 4 => format!("{} of {first}..{last}", sizes.len()),
            few => format!("{few:?}"),
        };
        let results: Vec<_> = self.results.iter().map(|(len, _)| *len).collect();
        let (args, results) = (brief(&self.args), brief(&results));
        write!(f, "{args} for {results}, {:?}", self.answer)
    }
}

fn exact(len: usize) -> (usize, usize) {
    (len, len)
}

fn size(dice: &mut Dice) -> usize {
    let size = dice.of(SIZES);
    // Now and then near it.
    size + dice.of(&[0, 0, 0, 1, 2, 3])
}

/// Mostly one, sometimes several.
fn several(dice: &mut Dice) -> Vec<usize> {
    let many = dice.of(&[1, 1, 1, 2, 3, 5]);
    (0..many).map(|_| size(dice)).collect()
}

/// Results that fill what is offered for them, or part of it, or nothing.
fn bounded(dice: &mut Dice) -> Vec<(usize, usize)> {
    let of_size = |dice: &mut Dice, bound: usize| match dice.below(4) {
        0 => (dice.within(0, bound), bound),
        1 => (0, bound),
        _ => exact(bound),
    };
    let sizes = several(dice);
    sizes
        .into_iter()
        .map(|bound| of_size(dice, bound))
        .collect()
}

/// Bytes that differ from place to place, and from call to call.
fn data(id: u64, index: usize, len: usize) -> Bytes {
    static PLACES: LazyLock<Bytes> = LazyLock::new(|| {
        let byte = |i: usize| (i.wrapping_mul(7) ^ (i / 251) ^ (i / 65_521)) & 0xff;
        let bytes = (0..PATTERN).map(|i| u8::try_from(byte(i)).expect("one byte"));
        bytes.collect()
    });
    let key =
        id.wrapping_mul(31).wrapping_add(index as u64 * 977) % (PATTERN - MAX_ITEM as usize) as u64;
    let begin = usize::try_from(key).expect("within the pattern");
    PLACES.slice(begin..begin + len)
}

fn items(w: &mut Writer, id: u64, sizes: impl ExactSizeIterator<Item = usize>) {
    w.length(sizes.len());
    for (index, len) in sizes.enumerate() {
        w.item(Gather::from_elem(data(id, index, len), 1));
    }
}

fn compare(id: u64, index: usize, len: usize, found: &[u8]) -> Result<(), String> {
    if found == data(id, index, len) {
        return Ok(());
    }
    let begins = found.iter().zip(data(id, index, len));
    let at = begins.take_while(|(a, b)| **a == *b).count();
    let found = found.len();
    Err(format!(
        "item {index} of {len} bytes came with {found}, other ones from {at} on"
    ))
}

/// The service.
#[derive(Default)]
pub struct Echo {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    executed: HashMap<u64, u32>,
    wrong: Vec<String>,
}

impl Echo {
    /// How often a call was executed.
    pub fn executed(&self, id: u64) -> u32 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.executed.get(&id).copied().unwrap_or(0)
    }

    /// Faults of calls.
    pub fn wrong(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wrong.clone()
    }

    fn take(&self, call: &Payload) -> (How, Payload) {
        let (id, read) = read(call);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.executed.entry(id).or_default() += 1;
        match read {
            Ok((xid, how, results)) => {
                let mut w = Writer::new(Buffer::with_capacity(64));
                w.u32(xid);
                w.u32(1);
                w.u64(id);
                items(&mut w, id, results.into_iter());
                (how, w.finish())
            }
            Err(wrong) => {
                state.wrong.push(format!("call {id:#x}: {wrong}"));
                (How::Never, Payload::default())
            }
        }
    }
}

type Asked = (u32, How, Vec<usize>);

fn read(call: &Payload) -> (u64, Result<Asked, String>) {
    let mut r = Reader::from(call);
    let mut id = 0;
    let mut read = || -> Result<Asked, xdr::Error> {
        let xid = r.u32()?;
        r.u32()?;
        id = r.u64()?;
        let how = match r.u32()? {
            0 => How::Now,
            u32::MAX => How::Never,
            after => How::After(after - 1),
        };
        let results = r.vec(MAX_ITEMS, |r| r.u32())?;
        Ok((
            xid,
            how,
            results.into_iter().map(|len| len as usize).collect(),
        ))
    };
    let asked = match read() {
        Ok(asked) => asked,
        Err(error) => return (id, Err(error.to_string())),
    };
    let mut args = || -> Result<(), String> {
        let args = r.vec(MAX_ITEMS, |r| r.item(MAX_ITEM).map(|arg| arg.to_vec()));
        for (index, arg) in args.map_err(|error| error.to_string())?.iter().enumerate() {
            compare(id, index, arg.len(), arg)?;
        }
        Ok(())
    };
    let args = args();
    let end = r.finish().map_err(|error| error.to_string());
    (id, args.and(end).map(|()| asked))
}

/// The service as a server holds it.
pub struct Shared(pub Arc<Echo>);

impl Service for Shared {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        let (how, reply) = self.0.take(&call);
        match how {
            How::Now => Answer::message(reply),
            How::Never => Answer::Now(Reply::Nothing),
            How::After(milliseconds) => Answer::Later(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
                Reply::Message(reply)
            })),
        }
    }
}
