//! The handle that a reply invalidates, and the handles that a received reply may invalidate.
//!
//! A Requester exposes memory for a call, and a Responder may invalidate one of its handles with
//! the Send that replies. The [designs](super::design) differ in who selects the handle.

use super::design::Design;
use crate::codec::Invalidate;
use crate::limits::MAX_SPARED;
use crate::wire::header::{Lists, WriteChunk};
use smallvec::SmallVec;
use verbs::{Handle, Handles};

/// Rule for replies in one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing is invalidated remotely.
    Never,
    /// Handles are selected by this design.
    By(Design),
}

/// Handles of this end that a reply of the peer may invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepts {
    /// No handle.
    Nothing,
    /// Any handle of the answered call, whichever it named: a Requester must be prepared for any,
    /// or none (reminv §3.2).
    OfCall,
    /// Also handles that other calls offer for reading.
    OfAnyCall,
}

/// Remote invalidation state of a call: named handles, and those already invalidated.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// Handles that the call named.
    pub(crate) named: Invalidate,
    /// The first handle of the header, if the design selects it (reminv §4.3).
    pub(crate) first: Option<Handle>,
    /// Handles that replies to other calls invalidated.
    pub(crate) spent: Vec<Handle>,
    /// Whether another call offered one of its handles at the same time. Then nothing of it is
    /// invalidated: an STag must be associated *only* with the XID of the reply (RFC 8797 §4.1).
    pub(crate) shared: bool,
}

/// The handles that a Responder invalidates with a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The handle, or several.
    pub(crate) handles: Option<Handles>,
    /// Whether the call named a handle that it does not offer, which must not be invalidated.
    pub(crate) foreign: bool,
}

impl Accepts {
    /// Returns the handles that a Requester accepts, given the agreed design, and whether it
    /// announced that all its handles may be invalidated.
    pub(crate) fn of(design: Option<Design>, all_may_go: bool) -> Self {
        match design {
            Some(Design::InterCall) => Self::OfAnyCall,
            Some(
                Design::PerVersion
                | Design::PerConnection
                | Design::Fixed
                | Design::PerCall
                | Design::PerCallSeveral
                | Design::PerCallAll,
            ) => Self::OfCall,
            None if all_may_go => Self::OfCall,
            None => Self::Nothing,
        }
    }
}

impl Rule {
    /// Returns the handles to invalidate with the reply to a call that offered these `lists` and
    /// named these handles, of which some are `spent` already. `most` is how many the provider
    /// invalidates with one Send. `of_others` finds a handle that another call no longer needs.
    pub(crate) fn take(
        self,
        offered: &Lists,
        said: Option<&Said>,
        most: usize,
        of_others: impl FnOnce() -> Option<Handle>,
    ) -> Taken {
        let (named, spent) = said.map_or((&[][..], &[][..]), |said| {
            (said.named.handles(), said.spent.as_slice())
        });
        let any = || {
            let mut all = written(offered).chain(read(offered));
            all.find(|handle| !spent.contains(handle))
        };
        let handle = match self {
            Self::Never => None,
            Self::By(Design::PerVersion | Design::PerConnection) => any(),
            Self::By(Design::Fixed) => said.and_then(|said| said.first),
            Self::By(Design::PerCall | Design::PerCallSeveral) => {
                return of_named(named, offered, 1);
            }
            Self::By(Design::PerCallAll) => return of_named(named, offered, most),
            Self::By(Design::InterCall) => any().or_else(of_others),
        };
        Taken {
            handles: handle.map(Handles::from),
            foreign: false,
        }
    }
}

/// Returns the first `most` named handles, where 0 is none (reminv §5.3), that the call offers. Each
/// once, because invalidating it twice would end the connection.
fn of_named(named: &[Handle], offered: &Lists, most: usize) -> Taken {
    let of_call = |handle| in_order(offered).any(|other| other == handle);
    let mut foreign = false;
    let mut found: SmallVec<[Handle; 4]> = SmallVec::new();
    for &handle in named.iter().filter(|&&handle| handle != Handle(0)) {
        if found.len() == most {
            break;
        }
        if !of_call(handle) {
            foreign = true;
        } else if !found.contains(&handle) {
            found.push(handle);
        }
    }
    Taken {
        handles: Handles::new(found),
        foreign,
    }
}

/// Returns the handles that a call offered for reading, once all were read: the call can spare them
/// as long as one is left for its own reply. A call with many `spent` handles has none to spare,
/// which bounds the search.
pub(crate) fn spare(offered: &Lists, spent: &[Handle]) -> impl Iterator<Item = Handle> {
    let left = in_order(offered).filter(|handle| !spent.contains(handle));
    let several = spent.len() < MAX_SPARED && left.clone().nth(1).is_some();
    read(offered).filter(move |handle| several && !spent.contains(handle))
}

/// Returns the number of segments that a call offers.
pub(crate) fn segments(offered: &Lists) -> usize {
    let reads = offered.reads.iter().map(|chunk| chunk.segments.len());
    let writes = offered.writes.iter().chain(&offered.reply);
    let writes = writes.map(|chunk| chunk.segments.len());
    reads.chain(writes).sum()
}

/// Whether two calls offer a handle in common; `None` if that takes more than
/// [`MAX_SHARED_COMPARISONS`](crate::limits::MAX_SHARED_COMPARISONS) to find out, of which `left` remain.
pub(crate) fn share_a_handle(one: &Lists, other: &Lists, left: &mut usize) -> Option<bool> {
    *left = left.checked_sub(segments(one) * segments(other))?;
    Some(in_order(one).any(|handle| in_order(other).any(|of_other| of_other == handle)))
}

/// Returns the bytes that a call offers with a handle.
pub(crate) fn bytes_of(offered: &Lists, handle: Handle) -> u64 {
    let reads = offered.reads.iter().map(|chunk| &chunk.segments);
    let writes = offered.writes.iter().chain(&offered.reply);
    let segments = reads.chain(writes.map(|chunk| &chunk.segments)).flatten();
    let of_handle = segments.filter(|segment| segment.handle == handle);
    of_handle.map(|segment| u64::from(segment.length)).sum()
}

/// Returns the handles of a call: those of the Read list in the order of `offered`, then those of
/// the Write list and the Reply chunk.
pub(crate) fn in_order(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    read(offered).chain(written(offered))
}

/// Returns the handles that a call offers for reading. A segment without bytes does not count,
/// because its handle may name no memory, and to invalidate that would end the connection.
fn read(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    let chunks = offered.reads.iter().map(|chunk| &chunk.segments);
    chunks.flatten().filter(|s| s.length > 0).map(|s| s.handle)
}

/// Returns the handles that a call offers for writing.
fn written(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    let chunks = offered.writes.iter().chain(&offered.reply);
    let segments = chunks.flat_map(|WriteChunk { segments }| segments);
    segments.filter(|s| s.length > 0).map(|s| s.handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::{ReadChunk, Segments};
    use verbs::Segment;

    /// One chunk of each handle, and one without bytes before them.
    fn chunks(handles: &[u32]) -> Vec<Segments> {
        let segment = |handle, length| Segment {
            handle: Handle(handle),
            length,
            offset: 0,
        };
        let all = handles.iter().map(|&handle| segment(handle, 100));
        let all = [segment(99, 0)].into_iter().chain(all);
        all.map(|segment| Segments::from_elem(segment, 1)).collect()
    }

    fn lists(reads: &[u32], writes: &[u32], reply: Option<u32>) -> Lists {
        let read = |segments| ReadChunk {
            position: 0,
            segments,
        };
        let reply = reply.map(|handle| chunks(&[handle]).remove(1));
        Lists {
            reads: chunks(reads).into_iter().map(read).collect(),
            writes: chunks(writes)
                .into_iter()
                .map(|segments| WriteChunk { segments })
                .collect(),
            reply: reply.map(|segments| WriteChunk { segments }),
        }
    }

    #[track_caller]
    fn check(rule: Rule, offered: &Lists, named: &[u32], expected: Option<u32>, foreign: bool) {
        let expected: Vec<u32> = expected.into_iter().collect();
        check_all(rule, offered, named, &expected, foreign);
    }

    /// Checks a rule on a transport whose Send can invalidate three handles.
    #[track_caller]
    fn check_all(rule: Rule, offered: &Lists, named: &[u32], expected: &[u32], foreign: bool) {
        let said = Said {
            named: Invalidate::Several(named.iter().copied().map(Handle).collect()),
            first: in_order(offered).next(),
            ..Said::default()
        };
        let expected = Taken {
            handles: Handles::new(expected.iter().copied().map(Handle)),
            foreign,
        };
        assert_eq!(
            rule.take(offered, Some(&said), 3, || Some(Handle(7))),
            expected
        );
    }

    #[test]
    fn nothing_is_taken_where_nothing_was_agreed() {
        check(Rule::Never, &lists(&[1], &[2], Some(3)), &[1], None, false);
    }

    #[test]
    fn responder_prefers_what_it_wrote_to() {
        for design in [Design::PerVersion, Design::PerConnection, Design::InterCall] {
            let check = |offered, expected| {
                check(Rule::By(design), &offered, &[], Some(expected), false);
            };
            check(lists(&[1], &[2], Some(3)), 2);
            check(lists(&[1], &[], Some(3)), 3);
            check(lists(&[1], &[], None), 1);
        }
    }

    #[test]
    fn fixed_protocol_takes_the_first_in_the_order_of_the_header() {
        let check = |offered, expected| {
            check(Rule::By(Design::Fixed), &offered, &[], expected, false);
        };
        check(lists(&[1], &[2], Some(3)), Some(1));
        check(lists(&[], &[2, 4], Some(3)), Some(2));
        check(lists(&[], &[], Some(3)), Some(3));
        check(lists(&[], &[], None), None);
    }

    #[test]
    fn requester_says_which_and_zero_is_none() {
        for design in [Design::PerCall, Design::PerCallSeveral] {
            let offered = lists(&[1], &[2], Some(3));
            let check = |named: &[u32], expected, foreign| {
                check(Rule::By(design), &offered, named, expected, foreign);
            };
            check(&[], None, false);
            check(&[0], None, false);
            check(&[3], Some(3), false);
            check(&[1], Some(1), false);
            check(&[2, 3], Some(2), false);
            // Of another call, or without memory behind it.
            check(&[7], None, true);
            check(&[99], None, true);
            check(&[7, 3], Some(3), true);
        }
    }

    #[test]
    fn all_named_handles_of_the_call_go_each_once_and_as_many_as_can() {
        let offered = lists(&[1, 4], &[2], Some(3));
        let check = |named: &[u32], expected: &[u32], foreign| {
            check_all(
                Rule::By(Design::PerCallAll),
                &offered,
                named,
                expected,
                foreign,
            );
        };
        check(&[], &[], false);
        check(&[0], &[], false);
        check(&[3, 1], &[3, 1], false);
        check(&[1, 1, 0, 2, 1], &[1, 2], false);
        check(&[1, 2, 3, 4], &[1, 2, 3], false);
        // Of another call, or without memory behind it.
        check(&[7, 99], &[], true);
        check(&[7, 3, 99, 4], &[3, 4], true);
    }

    #[test]
    fn handle_of_another_call_goes_only_if_there_is_none_of_this_one() {
        let rule = Rule::By(Design::InterCall);
        check(rule, &lists(&[], &[], None), &[], Some(7), false);
        let others = Design::ALL.into_iter().filter(|&d| d != Design::InterCall);
        for design in others {
            check(Rule::By(design), &lists(&[], &[], None), &[], None, false);
        }
    }

    #[test]
    fn call_spares_some_of_its_handles_and_keeps_one() {
        let check = |offered: u32, spent: usize, expected: Option<u32>| {
            let handles: Vec<u32> = (0..offered).collect();
            let gone: Vec<Handle> = handles.iter().copied().map(Handle).take(spent).collect();
            let next = spare(&lists(&handles, &[], None), &gone).next();
            assert_eq!(next, expected.map(Handle), "{spent} of {offered}");
        };
        check(1, 0, None);
        check(2, 0, Some(0));
        check(2, 1, None);
        check(20, MAX_SPARED - 1, Some(7));
        check(20, MAX_SPARED, None);
    }
}
