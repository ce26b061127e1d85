//! Parsed messages as the values that the description in XDR has for them.

use crate::xdr::digits;
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, InvalidationDesigns, ReceiveBufferSize,
    RequesterRemoteInvalidation, XcharSpec, XcharSubset, XcharVal,
};
use rpcrdma_proto::v2::header::{
    Body, ChunkLists, Direction, Header, Invalidate, RdmaError, VERSION, WriteChunk,
};
use rpcrdma_proto::v2::operations::Operation;
use serde_json::{Value, json};
use verbs::Segment;

/// The fields of a message; `operation` is that of an RDMA2_OPTIONAL.
pub(crate) fn fields(header: &Header, operation: Option<&Operation>) -> Value {
    let body = match &header.body {
        Body::Msg(lists) => json!({"rdma_proc": "RDMA2_MSG", "rdma_chunks": chunks(lists)}),
        Body::NoMsg(lists) => json!({"rdma_proc": "RDMA2_NOMSG", "rdma_chunks": chunks(lists)}),
        Body::Error(error) => json!({"rdma_proc": "RDMA2_ERROR", "rdma_error": match error {
            RdmaError::Version { low, high } => json!({
                "rdma_err": "RDMA2_ERR_VERS",
                "rdma_vrange": {"rdma_vers_low": low, "rdma_vers_high": high},
            }),
            RdmaError::BadHeader => json!({"rdma_err": "RDMA2_ERR_BAD_HEADER"}),
            RdmaError::InvalOption => json!({"rdma_err": "RDMA2_ERR_INVAL_OPTION"}),
        }}),
        Body::Optional(optional) => json!({"rdma_proc": "RDMA2_OPTIONAL", "rdma_optional": {
            "rdma_optdir": direction(optional.direction),
            "rdma_opttype": optional.operation,
            "rdma_optinfo": digits(&optional.info),
            "optinfo": information(operation.expect("an RDMA2_OPTIONAL has an operation")),
        }}),
    };
    json!({
        "rdma_xid": header.xid,
        "rdma_vers": VERSION,
        "rdma_credit": header.credits,
        "rdma_body": body,
    })
}

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Call => "RDMA2_CALL",
        Direction::Reply => "RDMA2_REPLY",
    }
}

fn chunks(chunks: &ChunkLists) -> Value {
    let reads = chunks.lists.reads.iter().flat_map(|chunk| {
        let entry = |one| json!({"rdma_position": chunk.position, "rdma_target": segment(one)});
        chunk.segments.iter().map(entry)
    });
    let mut value = json!({
        "rdma_direction": direction(chunks.direction),
        "rdma_reads": reads.collect::<Vec<_>>(),
        "rdma_writes": chunks.lists.writes.iter().map(write_chunk).collect::<Vec<_>>(),
        "rdma_reply": chunks.lists.reply.as_ref().map(write_chunk),
    });
    match &chunks.invalidate {
        Invalidate::Unsaid => (),
        Invalidate::One(handle) => {
            value["rdma_inv_handle"] = json!(handle.map_or(0, |handle| handle.0));
        }
        Invalidate::Several(handles) => {
            value["rdma_inv_handles"] = handles.iter().map(|handle| handle.0).collect();
        }
    }
    value
}

fn write_chunk(chunk: &WriteChunk) -> Value {
    json!({"rdma_target": chunk.segments.iter().map(segment).collect::<Vec<_>>()})
}

fn segment(segment: &Segment) -> Value {
    json!({
        "rdma_handle": segment.handle.0,
        "rdma_length": segment.length,
        "rdma_offset": segment.offset,
    })
}

fn information(operation: &Operation) -> Value {
    match operation {
        Operation::InitXch(init) => json!({"initxch": {
            "optixch_start": set(&init.start),
            "optixch_nochg": subset(init.nochg),
        }}),
        Operation::ReqXch(request) => json!({"reqxch": {"optreqxch_want": set(&request.want)}}),
        Operation::RespXch(answer) => json!({"respxch": {
            "optrespxch_done": subset(answer.done),
            "optrespxch_rej": subset(answer.rejected),
            "optrespxch_pend": subset(answer.pending),
        }}),
        Operation::UpdXch(update) => json!({"updxch": {
            "optupdxch_now": characteristic(&update.now),
            "optupdxch_pendclr": update.pendclr,
        }}),
    }
}

fn set(spec: &XcharSpec) -> Value {
    spec.values().iter().map(characteristic).collect()
}

/// Up to the last word that is not zero.
fn subset(subset: XcharSubset) -> Value {
    let mut words = Vec::new();
    for position in subset.positions() {
        words.resize(position / 32 + 1, 0_u32);
        words[position / 32] |= 1 << (position % 32);
    }
    json!(words)
}

fn characteristic(value: &XcharVal) -> Value {
    let mut fields = json!({"xchv_which": value.which.0, "xchv_data": digits(&value.data)});
    let read = "a valid message has valid values";
    let known = if let Some(size) = value.read::<ReceiveBufferSize>().expect(read) {
        json!({"rbsiz": size.bytes()})
    } else if let Some(is_accepted) = value.read::<RequesterRemoteInvalidation>().expect(read) {
        json!({"reqreminv": is_accepted})
    } else if let Some(support) = value.read::<BackwardRequestSupport>().expect(read) {
        json!({"brs": match support {
            BackwardSupport::None => "BKREQSUP_NONE",
            BackwardSupport::Inline => "BKREQSUP_INLINE",
            BackwardSupport::General => "BKREQSUP_GENL",
        }})
    } else if let Some(designs) = value.read::<InvalidationDesigns>().expect(read) {
        json!({"designs": designs.bits()})
    } else {
        return fields;
    };
    fields["xchv_value"] = known;
    fields
}
