//! Calls whose messages outgrow the Receives, agreements on the size of these, and phases of a run.

use crate::model::{Sizes, Workload};
use oncrpc::ReplyBound;
use serde::Serialize;
use smallvec::SmallVec;
use std::time::Duration;

/// The largest payload: a message with it has to fit the largest Receive that private data can express.
pub(super) const MAX_PAYLOAD: usize = 248 << 10;

/// Bytes of a call and of a reply before their data, about as in NFS.
const HEAD: usize = 120;

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Calls {
    /// Data in the reply that may move by a Write chunk.
    Read,
    /// A large reply without such data.
    Directory,
    /// Data in the call that may move by a Read chunk.
    Write,
}

impl Calls {
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Directory, Self::Write];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Directory => "directory",
            Self::Write => "write",
        }
    }

    /// Bytes of the largest message, its transport header included.
    pub(super) fn largest_message(self, payload: usize) -> usize {
        /// More than a transport header without chunks and the length of the data.
        const HEADER: usize = 64;
        HEADER + HEAD + payload.next_multiple_of(size_of::<u32>())
    }
}

/// How the sizes of Receives come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Agreement {
    /// Both ends have 4 KiB and do not ask for more.
    Fixed,
    /// The server asks for Receives as large as its replies, as that of this program does.
    Server,
    /// Each end asks the other.
    Both,
    /// Both ends begin with the size that negotiation comes to.
    Larger,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// Before anything is asked for.
    Before,
    /// From the request until the new sizes are in use.
    During,
    /// After that.
    After,
}

impl Agreement {
    pub(super) const ALL: [Self; 4] = [Self::Fixed, Self::Server, Self::Both, Self::Larger];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Server => "server",
            Self::Both => "both",
            Self::Larger => "larger",
        }
    }
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// Such calls, many at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) calls: Calls,
    pub(super) payload: usize,
    pub(super) depth: usize,
    pub(super) service: Duration,
}

impl Workload for Load {
    fn depth(&self) -> usize {
        self.depth
    }

    fn service(&self) -> Duration {
        self.service
    }

    fn sizes(&self, _: u64) -> Sizes {
        let plain = Sizes::plain(HEAD, HEAD);
        let data: SmallVec<[usize; 2]> = SmallVec::from_elem(self.payload, 1);
        match self.calls {
            Calls::Read => Sizes {
                results: data,
                bound: ReplyBound::new(HEAD + size_of::<u32>()).with_result(self.payload),
                ..plain
            },
            Calls::Directory => {
                let words = self.payload.next_multiple_of(size_of::<u32>());
                Sizes::plain(HEAD, HEAD + words)
            }
            Calls::Write => Sizes {
                arguments: data,
                ..plain
            },
        }
    }
}
