//! Which handle goes with a reply: the designs of draft-cel-nfsv4-reminv-design-03 ("reminv") §4.
//!
//! A Requester exposes memory for a call, and a Responder may kill one of its handles with the Send
//! that replies. The designs differ in who says which, and in what has to be on the wire for that.
//! Version one knows one of them, [`Design::PerConnection`] (RFC 8797 §4.1).

use crate::header::{Lists, WriteChunk};
use crate::limits::MAX_SPARED;
use crate::v2::header::Invalidate;
use verbs::Handle;

/// Who says which handle goes, and how: a design of reminv §4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Design {
    /// Whoever speaks this version allows it: nothing is announced (reminv §4.1).
    PerVersion,
    /// Each end announces once whether it allows it (reminv §4.2).
    PerConnection,
    /// The first handle of a call, and no other (reminv §4.3).
    Fixed,
    /// Each call names the one handle that may go, or none (reminv §4.4, §5.3).
    PerCall,
    /// Each call names the handles of which one may go (reminv §4.5).
    PerCallSeveral,
    /// Also one that another call exposes to be read, when it has been read (reminv §4.6).
    InterCall,
}

/// Who selects the handle (reminv §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The protocol does.
    FixedProtocol,
    /// The Responder does, among all there are: so all of them have to allow it.
    RespondersChoice,
    /// The Requester does, and so can expose memory that must not be invalidated.
    RequestersChoice,
}

impl Design {
    /// All of them, in the order of reminv §4.
    pub const ALL: [Self; 6] = [
        Self::PerVersion,
        Self::PerConnection,
        Self::Fixed,
        Self::PerCall,
        Self::PerCallSeveral,
        Self::InterCall,
    ];

    /// Its name in tables and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerVersion => "per_version",
            Self::PerConnection => "per_connection",
            Self::Fixed => "fixed",
            Self::PerCall => "per_call",
            Self::PerCallSeveral => "per_call_several",
            Self::InterCall => "inter_call",
        }
    }

    /// Who selects the handle.
    pub fn selection(self) -> Selection {
        match self {
            Self::Fixed => Selection::FixedProtocol,
            Self::PerVersion | Self::PerConnection | Self::InterCall => Selection::RespondersChoice,
            Self::PerCall | Self::PerCallSeveral => Selection::RequestersChoice,
        }
    }

    /// Whether a Requester may expose memory on the same connection that must not be invalidated
    /// remotely: only if it is the one who selects (reminv §2.3).
    pub fn tolerates_persistent(self) -> bool {
        match self.selection() {
            Selection::RequestersChoice => true,
            Selection::FixedProtocol | Selection::RespondersChoice => false,
        }
    }
}

impl std::fmt::Display for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// No design has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such design; there are {}", Design::ALL.map(Design::name).join(", "))]
pub struct UnknownDesign;

impl std::str::FromStr for Design {
    type Err = UnknownDesign;

    /// The design with this [name](Self::name).
    fn from_str(name: &str) -> Result<Self, UnknownDesign> {
        let mut all = Self::ALL.into_iter();
        all.find(|design| design.name() == name)
            .ok_or(UnknownDesign)
    }
}

/// A set of designs: what an end can do, or is ready to agree to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Designs(u32);

impl Designs {
    /// None.
    pub const NONE: Self = Self(0);

    /// Those of these bits that we know: bit 0 is [`Design::PerVersion`], bit 5
    /// [`Design::InterCall`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Design::ALL.map(bit).iter().sum::<u32>())
    }

    /// One bit for each of them.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The same and one more.
    #[must_use]
    pub fn with(self, design: Design) -> Self {
        Self(self.0 | bit(design))
    }

    /// Whether this one is among them.
    pub fn has(self, design: Design) -> bool {
        self.0 & bit(design) != 0
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The only one, if there is exactly one.
    pub fn only(self) -> Option<Design> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }

    /// Each of them, in the order of reminv §4.
    pub fn iter(self) -> impl Iterator<Item = Design> {
        Design::ALL
            .into_iter()
            .filter(move |&design| self.has(design))
    }
}

impl FromIterator<Design> for Designs {
    fn from_iter<I: IntoIterator<Item = Design>>(designs: I) -> Self {
        designs.into_iter().fold(Self::NONE, Self::with)
    }
}

fn bit(design: Design) -> u32 {
    1 << design as u32
}

/// What holds for the replies in one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing is invalidated remotely.
    Never,
    /// As this design has it.
    By(Design),
}

/// Which handles of ours may come with a reply of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepts {
    /// None.
    Nothing,
    /// Any of the call that is answered, whatever it named: reminv §3.2 has a Requester be prepared
    /// for any, or none.
    OfCall,
    /// Those too that other calls offer to be read.
    OfAnyCall,
}

/// What the headers of a call say about remote invalidation, and what became of its handles.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// What the call named.
    pub(crate) named: Invalidate,
    /// Handles that went with the replies to other calls.
    pub(crate) spent: Vec<Handle>,
}

/// What a Responder takes along with a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The handle.
    pub(crate) handle: Option<Handle>,
    /// Whether the call named one that it does not offer. That is not ours to kill.
    pub(crate) foreign: bool,
}

impl Accepts {
    /// What a Requester takes that said in its version of the protocol whether each of its handles
    /// may go, with this design agreed upon.
    pub(crate) fn of(design: Option<Design>, all_may_go: bool) -> Self {
        match design {
            Some(Design::InterCall) => Self::OfAnyCall,
            Some(
                Design::PerVersion
                | Design::PerConnection
                | Design::Fixed
                | Design::PerCall
                | Design::PerCallSeveral,
            ) => Self::OfCall,
            None if all_may_go => Self::OfCall,
            None => Self::Nothing,
        }
    }
}

impl Rule {
    /// The handle to take along with the reply to a call that offered these `lists` and named these
    /// handles, of which some are `spent` already. `of_others` finds one that another call does not
    /// need any more.
    pub(crate) fn take(
        self,
        offered: &Lists,
        said: Option<&Said>,
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
            Self::By(Design::Fixed) => in_order(offered).next(),
            Self::By(Design::PerCall | Design::PerCallSeveral) => return one_of(named, offered),
            Self::By(Design::InterCall) => any().or_else(of_others),
        };
        Taken {
            handle,
            foreign: false,
        }
    }
}

/// The first of the named handles, 0 being none (reminv §5.3), if it is one that the call offers.
fn one_of(named: &[Handle], offered: &Lists) -> Taken {
    let of_call = |handle| in_order(offered).any(|other| other == handle);
    let mut taken = Taken::default();
    for &handle in named.iter().filter(|&&handle| handle != Handle(0)) {
        if of_call(handle) {
            taken.handle = Some(handle);
            break;
        }
        taken.foreign = true;
    }
    taken
}

/// The handles that a call offers to be read, if all of that has been read: it can do without one of
/// them as long as another is left for its own reply.
/// A call of which many are `spent` has none, so that these are looked through in no time.
pub(crate) fn spare(offered: &Lists, spent: &[Handle]) -> impl Iterator<Item = Handle> {
    let left = in_order(offered).filter(|handle| !spent.contains(handle));
    let several = spent.len() < MAX_SPARED && left.clone().nth(1).is_some();
    read(offered).filter(move |handle| several && !spent.contains(handle))
}

/// Segments that a call offers.
pub(crate) fn segments(offered: &Lists) -> usize {
    let reads = offered.reads.iter().map(|chunk| chunk.segments.len());
    let writes = offered.writes.iter().chain(&offered.reply);
    let writes = writes.map(|chunk| chunk.segments.len());
    reads.chain(writes).sum()
}

/// Octets that a call offers behind a handle.
pub(crate) fn octets_of(offered: &Lists, handle: Handle) -> u64 {
    let reads = offered.reads.iter().map(|chunk| &chunk.segments);
    let writes = offered.writes.iter().chain(&offered.reply);
    let segments = reads.chain(writes.map(|chunk| &chunk.segments)).flatten();
    let of_handle = segments.filter(|segment| segment.handle == handle);
    of_handle.map(|segment| u64::from(segment.length)).sum()
}

/// The handles of a call in the order of its header.
pub(crate) fn in_order(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    read(offered).chain(written(offered))
}

/// The handles that a call offers to be read. A segment without octets may have no memory behind its
/// handle, so it does not count: to kill what is not there would be the end of the connection.
fn read(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    let chunks = offered.reads.iter().map(|chunk| &chunk.segments);
    chunks.flatten().filter(|s| s.length > 0).map(|s| s.handle)
}

/// Those that it offers to be written to.
fn written(offered: &Lists) -> impl Iterator<Item = Handle> + Clone {
    let chunks = offered.writes.iter().chain(&offered.reply);
    let segments = chunks.flat_map(|WriteChunk { segments }| segments);
    segments.filter(|s| s.length > 0).map(|s| s.handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{ReadChunk, Segments};
    use verbs::Segment;

    /// One chunk of each handle, and one without octets before them.
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
        let said = Said {
            named: Invalidate::Several(named.iter().copied().map(Handle).collect()),
            spent: Vec::new(),
        };
        let expected = Taken {
            handle: expected.map(Handle),
            foreign,
        };
        assert_eq!(
            rule.take(offered, Some(&said), || Some(Handle(7))),
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
    fn handle_of_another_call_goes_only_if_there_is_none_of_this_one() {
        let rule = Rule::By(Design::InterCall);
        check(rule, &lists(&[], &[], None), &[], Some(7), false);
        let others = Design::ALL.into_iter().filter(|&d| d != Design::InterCall);
        for design in others {
            check(Rule::By(design), &lists(&[], &[], None), &[], None, false);
        }
    }

    #[test]
    fn sets_of_designs_keep_what_we_know() {
        let all: Designs = Design::ALL.into_iter().collect();
        assert_eq!(Designs::from_bits(u32::MAX), all);
        assert_eq!(all.bits(), 0b11_1111);
        assert!(all.iter().eq(Design::ALL));
        assert_eq!(all.only(), None);
        assert_eq!(Designs::NONE.only(), None);
        let some = Designs::NONE.with(Design::Fixed).with(Design::PerCall);
        assert_eq!(
            some.and(Designs::from_bits(0b1000)).only(),
            Some(Design::PerCall)
        );
        assert!(some.has(Design::Fixed) && !some.has(Design::InterCall));
    }

    #[test]
    fn designs_are_found_by_their_names_alone() {
        for design in Design::ALL {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        let none = "none".parse::<Design>().unwrap_err().to_string();
        assert!(
            none.ends_with(
                "per_version, per_connection, fixed, per_call, per_call_several, inter_call"
            ),
            "{none}"
        );
    }

    #[test]
    fn persistent_registrations_need_a_requester_who_selects() {
        let tolerant = Design::ALL.into_iter().filter(|d| d.tolerates_persistent());
        assert!(tolerant.eq([Design::PerCall, Design::PerCallSeveral]));
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
