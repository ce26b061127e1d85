//! Transfer sizes and depth.

use crate::window::Window;
use nfs_proto::limits::{MAX_DATA, MAX_DIRECTORY_REPLY};
use nfs_proto::results;
use oncrpc::Transport;
use std::time::Duration;

/// Bytes of a READ or WRITE unless the user wants others.
const IO_SIZE: u32 = 1 << 20;

/// Bytes of a READ or WRITE where the server gives no limit.
const IO_SIZE_UNKNOWN: u32 = 8192;

/// Bytes of data in flight for one file: it bounds the memory of a stream.
const IN_FLIGHT: usize = 16 << 20;

/// Calls that are never too many.
const MOST_CALLS: usize = 1024;

/// Bytes of a READDIRPLUS reply: between these two, whatever the server prefers.
const LIST_SIZES: std::ops::RangeInclusive<u32> = 32 << 10..=256 << 10;

/// Sizes of READs and WRITEs, and how many are in flight at a time.
///
/// Start with those that an export [has](crate::Export::tuning) and change fields by their methods:
///
/// ```
/// use nfs_client::{Export, Tuning};
/// use oncrpc::Transport;
///
/// fn few_large_calls<T: Transport + Send + Sync>(export: Export<T>) -> Export<T> {
///     let tuning = export.tuning().with_read_size(1 << 20).with_depth(4);
///     export.with_tuning(tuning)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Bytes of one READ.
    pub read_size: u32,
    /// Bytes of one WRITE.
    pub write_size: u32,
    /// Largest number of calls in flight for one file or tree; limited by the transport
    /// ([`Transport::depth`]).
    pub depth: usize,
    /// Largest number of data bytes in flight for one file, over all its READs or WRITEs. One call
    /// is always allowed.
    pub in_flight: usize,
    /// Duration of a call without data, measured when the export is opened. If it is short, fewer
    /// bytes than [`in_flight`](Self::in_flight) are in flight, at least 4 MiB if allowed.
    pub round_trip: Duration,
    /// Bytes to write before a COMMIT. They are kept until then, to be written again if the server
    /// lost them.
    pub uncommitted: usize,
    /// Bytes of one READDIRPLUS reply.
    pub list_size: u32,
}

impl Tuning {
    buffer::setters! {
        with_read_size(read_size: u32),
        with_write_size(write_size: u32),
        with_depth(depth: usize),
        with_in_flight(in_flight: usize),
        with_round_trip(round_trip: Duration),
        with_uncommitted(uncommitted: usize),
        with_list_size(list_size: u32),
    }

    /// Chooses sizes for a server with this FSINFO: transfers of 1 MiB if the server supports it,
    /// and 16 MiB in flight. Assumes a long round trip.
    pub fn new(info: &results::FsInfo) -> Self {
        let io = |max: u32| match max {
            0 => IO_SIZE_UNKNOWN,
            max => max.min(IO_SIZE),
        };
        Self {
            read_size: io(info.read_max),
            write_size: io(info.write_max),
            depth: MOST_CALLS,
            in_flight: IN_FLIGHT,
            round_trip: Duration::MAX,
            uncommitted: 32 << 20,
            list_size: info
                .dir_preferred
                .clamp(*LIST_SIZES.start(), *LIST_SIZES.end()),
        }
    }

    /// The same within what the server and the protocol allow: nothing is 0 or beyond a limit.
    #[must_use]
    pub(crate) fn within(self, info: &results::FsInfo) -> Self {
        let io = |size: u32, max: u32| match max {
            0 => size.clamp(1, MAX_DATA),
            max => size.clamp(1, max.min(MAX_DATA)),
        };
        Self {
            read_size: io(self.read_size, info.read_max),
            write_size: io(self.write_size, info.write_max),
            depth: self.depth.clamp(1, MOST_CALLS),
            in_flight: self.in_flight,
            round_trip: self.round_trip,
            uncommitted: self.uncommitted.max(1),
            list_size: self.list_size.clamp(1024, MAX_DIRECTORY_REPLY),
        }
    }

    /// Calls that may be in flight now for one file, each with this many bytes of data.
    pub(crate) fn depth_of(
        &self,
        bytes: u32,
        window: &Window,
        transport: &impl Transport,
    ) -> usize {
        self.depth(transport)
            .min(window.bytes() / bytes.max(1) as usize)
            .max(1)
    }

    /// Calls that may be in flight now.
    pub(crate) fn depth(&self, transport: &impl Transport) -> usize {
        self.depth.min(transport.depth()).max(1)
    }
}
