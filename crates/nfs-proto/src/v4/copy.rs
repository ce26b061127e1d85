//! Operations of minor version 2 on ranges of files: copies, holes, hints (RFC 7862 §15).

use crate::limits::{MAX_DATA, MAX_PATH, MAX_READ_PLUS_SEGMENTS};
use crate::v4::array::Array;
use crate::v4::bitmap::Bitmap;
use crate::v4::limits::{MAX_COPY_SERVERS, MAX_PATTERN};
use crate::v4::status::{Refused, Res, Status};
use crate::v4::types::{NetAddress, StateId, Time};
use crate::{Bytes, Stable, WriteVerifier};

xdr_struct! {
    /// Arguments of ALLOCATE and DEALLOCATE (RFC 7862 §15.1.1, §15.4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AllocateArgs {
        /// As in WRITE.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
    }
}

xdr_union! {
    /// A server (`netloc4`, RFC 7862 §4.7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum NetLocation<'a> ("netloc_type4") {
        /// By name.
        Name(Bytes<'a, MAX_PATH>) = 1,
        /// By URL.
        Url(Bytes<'a, MAX_PATH>) = 2,
        /// By address.
        Address(NetAddress<'a>) = 3,
    }
}

xdr_struct! {
    /// Arguments of COPY (RFC 7862 §15.2.1): from the saved file handle to the current one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyArgs<'a> {
        /// State of the source, as in READ.
        pub source_state: StateId,
        /// State of the destination, as in WRITE.
        pub destination_state: StateId,
        /// From this byte of the source on.
        pub source_offset: u64,
        /// To this byte of the destination.
        pub destination_offset: u64,
        /// Number of bytes; 0 means to the end of the source.
        pub count: u64,
        /// Whether bytes have to be copied in order.
        pub consecutive: bool,
        /// Whether the copy has to be complete before the reply.
        pub synchronous: bool,
        /// Servers of the source; none means this server.
        pub source_servers: Array<'a, NetLocation<'a>, MAX_COPY_SERVERS>,
    }
}

xdr_struct! {
    /// How a copy is made (`copy_requirements4`, RFC 7862 §15.2.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CopyRequirements {
        /// Bytes are copied in order.
        pub consecutive: bool,
        /// The copy is complete before the reply.
        pub synchronous: bool,
    }
}

xdr_struct! {
    /// Data written by the server (`write_response4`, RFC 7862 §15.2.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteResponse {
        /// State id of an operation that goes on; CB_OFFLOAD ends it.
        pub callback: Option<StateId>,
        /// Bytes written.
        pub count: u64,
        /// Stability of the data.
        pub committed: Stable,
        /// Changes when uncommitted data may have been lost.
        pub verifier: WriteVerifier,
    }
}

xdr_struct! {
    /// Result of COPY (RFC 7862 §15.2.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyOk {
        /// The data.
        pub response: WriteResponse,
        /// How it is copied.
        pub requirements: CopyRequirements,
    }
}

/// Result of COPY: `NFS4ERR_OFFLOAD_NO_REQS` says what the server can do (RFC 7862 §15.2.2).
pub type CopyRes =
    Result<CopyOk, Refused<CopyRequirements, { Status::OffloadNoRequirements as u32 }>>;

xdr_struct! {
    /// Arguments of COPY_NOTIFY (RFC 7862 §15.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyNotifyArgs<'a> {
        /// State of the source, as in READ.
        pub source_state: StateId,
        /// Server that will copy.
        pub destination: NetLocation<'a>,
    }
}

xdr_struct! {
    /// Result of COPY_NOTIFY (RFC 7862 §15.3.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyNotifyOk<'a> {
        /// Time within which the copy has to begin.
        pub lease_time: Time,
        /// State id for the copy.
        pub state: StateId,
        /// Servers from which it can be made.
        pub source_servers: Array<'a, NetLocation<'a>, MAX_COPY_SERVERS>,
    }
}

xdr_struct! {
    /// Arguments of OFFLOAD_CANCEL and OFFLOAD_STATUS (RFC 7862 §15.8.1, §15.9.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OffloadArgs {
        /// The operation that goes on.
        pub state: StateId,
    }
}

xdr_struct! {
    /// Result of OFFLOAD_STATUS (RFC 7862 §15.9.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OffloadStatusOk {
        /// Bytes copied.
        pub count: u64,
        /// Status of the operation, if it has ended.
        pub complete: Option<Res<()>>,
    }
}

xdr_struct! {
    /// Arguments of IO_ADVISE (RFC 7862 §15.5.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoAdviseArgs {
        /// As in READ.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; 0 means to the end of the file.
        pub count: u64,
        /// Hints, by number.
        pub hints: Bitmap,
    }
}

xdr_struct! {
    /// Result of IO_ADVISE (RFC 7862 §15.5.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoAdviseOk {
        /// The hints that the server follows.
        pub hints: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of READ_PLUS (RFC 7862 §15.10.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadPlusArgs {
        /// As in READ.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Most bytes of data.
        pub count: u32,
    }
}

xdr_struct! {
    /// Data of a file (`data4`, RFC 7862 §15.10.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DataSegment<'a> {
        /// From this byte on.
        pub offset: u64,
        /// The bytes. Not DDP-eligible (RFC 8267 §6.1 names READ alone).
        pub data: Bytes<'a, MAX_DATA>,
    }
}

xdr_struct! {
    /// A hole in a file (`data_info4`, RFC 7862 §15.10.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Hole {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
    }
}

xdr_union! {
    /// A segment of a file (`read_plus_content`, RFC 7862 §15.10.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Segment<'a> ("data_content4") {
        /// Data.
        Data(DataSegment<'a>) = 0,
        /// A hole.
        Hole(Hole) = 1,
    }
}

xdr_struct! {
    /// Result of READ_PLUS (RFC 7862 §15.10.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReadPlusOk<'a> {
        /// Whether the file ends after these segments.
        pub eof: bool,
        /// The segments, in order.
        pub segments: Array<'a, Segment<'a>, MAX_READ_PLUS_SEGMENTS>,
    }
}

xdr_enum! {
    /// Content to look for (`data_content4`, RFC 7862 §15.11.1).
    pub enum SeekTo ("data_content4") {
        /// Data.
        Data = 0,
        /// A hole.
        Hole = 1,
    }
}

xdr_struct! {
    /// Arguments of SEEK (RFC 7862 §15.11.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SeekArgs {
        /// As in READ.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Content.
        pub to: SeekTo,
    }
}

xdr_struct! {
    /// Result of SEEK (RFC 7862 §15.11.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SeekOk {
        /// Whether the file ends before such content.
        pub eof: bool,
        /// Offset of the content.
        pub offset: u64,
    }
}

xdr_struct! {
    /// Blocks with a pattern (`app_data_block4`, RFC 7862 §8.1.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DataBlocks<'a> {
        /// Offset of the first block.
        pub offset: u64,
        /// Bytes of a block.
        pub block_size: u64,
        /// Number of blocks.
        pub block_count: u64,
        /// Offset of the number in a block; all ones is nowhere.
        pub number_offset: u64,
        /// Number of the first block.
        pub first_number: u32,
        /// Offset of the pattern in a block.
        pub pattern_offset: u64,
        /// The pattern.
        pub pattern: Bytes<'a, MAX_PATTERN>,
    }
}

xdr_struct! {
    /// Arguments of WRITE_SAME (RFC 7862 §15.12.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteSameArgs<'a> {
        /// As in WRITE.
        pub state: StateId,
        /// Data that must be on stable storage before the reply.
        pub stable: Stable,
        /// The data.
        pub blocks: DataBlocks<'a>,
    }
}

xdr_struct! {
    /// Arguments of CLONE (RFC 7862 §15.13.1): from the saved file handle to the current one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloneArgs {
        /// State of the source, as in READ.
        pub source_state: StateId,
        /// State of the destination, as in WRITE.
        pub destination_state: StateId,
        /// From this byte of the source on.
        pub source_offset: u64,
        /// To this byte of the destination.
        pub destination_offset: u64,
        /// Number of bytes; 0 means to the end of the source.
        pub count: u64,
    }
}
