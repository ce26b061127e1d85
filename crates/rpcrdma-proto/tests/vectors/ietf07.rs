//! Vectors and description of ietf-07.

use crate::xdr::{self, Description, digits};
use crate::{any_lists, blocks, changes_that_matter, octets, of_dialect, parsed_vectors, text};
use buffer::Buffer;
use proptest::prelude::*;
use rpcrdma_proto::limits::{MAX_HOST_AUTH, MAX_PROPERTIES};
use rpcrdma_proto::v2::header::{Direction, Lists, ReadChunk, Segments, VERSION, WriteChunk};
use rpcrdma_proto::v2::ietf07::{
    Body, Disposition, Header, PropertySet, RdmaError, ReverseSupport,
};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use verbs::{Handle, Segment};

const DESCRIPTION: &str = include_str!("../../../../docs/xdr/rpcrdma_v2_ietf07.x");

fn vectors(all: &Value) -> impl Iterator<Item = &Value> {
    of_dialect(all, Some("ietf-07"))
}

/// Name of an error, which is that of its code in the description.
fn name_of(error: RdmaError) -> &'static str {
    match error {
        RdmaError::Version { .. } => "RDMA2_ERR_VERS",
        RdmaError::BadXdr => "RDMA2_ERR_BAD_XDR",
        RdmaError::BadPropval => "RDMA2_ERR_BAD_PROPVAL",
        RdmaError::InvalHtype => "RDMA2_ERR_INVAL_HTYPE",
        RdmaError::InvalCont => "RDMA2_ERR_INVAL_CONT",
        RdmaError::ReadChunks { .. } => "RDMA2_ERR_READ_CHUNKS",
        RdmaError::WriteChunks { .. } => "RDMA2_ERR_WRITE_CHUNKS",
        RdmaError::Segments { .. } => "RDMA2_ERR_SEGMENTS",
        RdmaError::WriteResource { .. } => "RDMA2_ERR_WRITE_RESOURCE",
        RdmaError::ReplyResource { .. } => "RDMA2_ERR_REPLY_RESOURCE",
        RdmaError::VersionMismatch => "RDMA2_ERR_VERS_MISMATCH",
        RdmaError::System => "RDMA2_ERR_SYSTEM",
    }
}

/// Name of a header type, and the name of its structure in the description.
fn names_of(body: &Body) -> (&'static str, &'static str) {
    match body {
        Body::Error(_) => ("RDMA2_ERROR", "rdma_error"),
        Body::Grant => ("RDMA2_GRANT", ""),
        Body::Properties { last: false, .. } => ("RDMA2_CONNPROP_MIDDLE", "rdma_connprop"),
        Body::Properties { last: true, .. } => ("RDMA2_CONNPROP_FINAL", "rdma_connprop"),
        Body::Call { external: true, .. } => ("RDMA2_CALL_EXTERNAL", "rdma_call_external"),
        Body::Call {
            external: false, ..
        } => ("RDMA2_CALL_INLINE", "rdma_call_inline"),
        Body::Reply { external: true, .. } => ("RDMA2_REPLY_EXTERNAL", "rdma_reply_external"),
        Body::Reply {
            external: false, ..
        } => ("RDMA2_REPLY_INLINE", "rdma_reply_inline"),
        Body::Part { direction, .. } => match direction {
            Direction::Call => ("RDMA2_CALL_MIDDLE", "rdma_call_middle"),
            Direction::Reply => ("RDMA2_REPLY_MIDDLE", "rdma_reply_middle"),
        },
    }
}

/// Name of a message, or of the answer it draws.
fn name(octets: &[u8]) -> String {
    match Header::parse(octets) {
        Ok((header, _)) => match header.body {
            Body::Error(error) => format!("RDMA2_ERROR {}", name_of(error)),
            body => names_of(&body).0.to_owned(),
        },
        Err(error) => match error.disposition() {
            Disposition::Discard => "draws nothing".to_owned(),
            Disposition::OtherVersion { .. } => "draws RDMA2_ERR_VERS".to_owned(),
            Disposition::Answer { error, .. } => format!("draws {}", name_of(error)),
        },
    }
}

fn made(header: &Header) -> Vec<u8> {
    let mut out = Buffer::default();
    header.emit(&mut out);
    out.to_vec()
}

/// The fields of a header by the names of the description, which has these constants.
fn fields(described: &Description, header: &Header) -> Value {
    let constant = |name: &str| described.constants[name];
    let (name, of) = names_of(&header.body);
    let content = match &header.body {
        Body::Grant => None,
        Body::Error(error) => Some(error_fields(constant(name_of(*error)), *error)),
        Body::Properties { set, .. } => Some(json!({"rdma_props": properties(described, set)})),
        Body::Call {
            external,
            invalidate,
            lists,
        } => Some(call(*external, *invalidate, lists)),
        Body::Reply { external, lists } => {
            let mut reply = json!({"rdma_writes": writes(&lists.writes)});
            if *external {
                reply["rdma_reply"] = json!(lists.reply.as_ref().map(write_chunk));
            }
            Some(reply)
        }
        Body::Part { remaining, .. } => Some(json!({"rdma_remaining": remaining})),
    };
    let mut body = json!({"rdma_htype": constant(name)});
    if let Some(content) = content {
        body[of] = content;
    }
    json!({
        "rdma_xid": header.xid,
        "rdma_vers": VERSION,
        "rdma_credit": header.credits,
        "rdma_body": body,
    })
}

fn error_fields(code: u32, error: RdmaError) -> Value {
    let mut fields = json!({"rdma_err": code});
    match error {
        RdmaError::Version { low, high } => {
            fields["rdma_vrange"] = json!({"rdma_vers_low": low, "rdma_vers_high": high});
        }
        RdmaError::ReadChunks { max } | RdmaError::WriteChunks { max } => {
            fields["rdma_max_chunks"] = json!(max);
        }
        RdmaError::Segments { max } => fields["rdma_max_segments"] = json!(max),
        RdmaError::WriteResource { chunk, needed } => {
            let index = chunk.map_or(0, NonZeroU32::get);
            fields["rdma_writeres"] =
                json!({"rdma_chunk_index": index, "rdma_length_needed": needed});
        }
        RdmaError::ReplyResource { needed } => fields["rdma_length_needed"] = json!(needed),
        RdmaError::BadXdr
        | RdmaError::BadPropval
        | RdmaError::InvalHtype
        | RdmaError::InvalCont
        | RdmaError::VersionMismatch
        | RdmaError::System => {}
    }
    fields
}

fn properties(described: &Description, set: &PropertySet) -> Value {
    let constant = |name: &str| described.constants[name];
    let number = |id: &str, arm: &str, value: Option<u32>| {
        let value = value?;
        Some(json!({
            "rdma_which": constant(id),
            "rdma_data": digits(&value.to_be_bytes()),
            "rdma_value": {arm: value},
        }))
    };
    let level = set.reverse.map(|level| match level {
        ReverseSupport::None => constant("RDMA2_RVRSDIR_NONE"),
        ReverseSupport::Simple => constant("RDMA2_RVRSDIR_SIMPLE"),
        ReverseSupport::Continued => constant("RDMA2_RVRSDIR_CONT"),
        ReverseSupport::General => constant("RDMA2_RVRSDIR_GENL"),
    });
    let auth = set.host_auth.as_ref().map(|auth| {
        let len = u32::try_from(auth.len()).expect("short");
        let mut data = len.to_be_bytes().to_vec();
        data.extend_from_slice(auth);
        data.resize(data.len().next_multiple_of(4), 0);
        json!({
            "rdma_which": constant("RDMA2_PROPID_HOSTAUTH"),
            "rdma_data": digits(&data),
            "rdma_value": {"hostauth": digits(auth)},
        })
    });
    let all = [
        number("RDMA2_PROPID_SBSIZ", "sbsiz", set.max_send),
        number("RDMA2_PROPID_RBSIZ", "rbsiz", set.receive_buffer),
        number("RDMA2_PROPID_RSSIZ", "rssiz", set.max_segment_size),
        number("RDMA2_PROPID_RCSIZ", "rcsiz", set.max_segments),
        number("RDMA2_PROPID_BRS", "brs", level),
        auth,
    ];
    all.into_iter().flatten().collect()
}

fn call(external: bool, invalidate: Option<Handle>, lists: &Lists) -> Value {
    let (call_chunk, items) = lists.reads.split_at(external.into());
    let mut call = json!({
        "rdma_inv_handle": invalidate.map_or(0, |handle| handle.0),
        "rdma_reads": reads(items),
        "rdma_provisional_writes": writes(&lists.writes),
        "rdma_provisional_reply": lists.reply.as_ref().map(write_chunk),
    });
    if external {
        call["rdma_call"] = reads(call_chunk);
    }
    call
}

fn reads(chunks: &[ReadChunk]) -> Value {
    let segments = chunks.iter().flat_map(|chunk| {
        let entry = |one| json!({"rdma_position": chunk.position, "rdma_target": segment(one)});
        chunk.segments.iter().map(entry)
    });
    segments.collect()
}

fn writes(chunks: &[WriteChunk]) -> Value {
    chunks.iter().map(write_chunk).collect()
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

fn description() -> Description {
    Description::parse(&xdr::tokens(DESCRIPTION))
}

#[test]
fn vectors_are_what_they_are_said_to_be() {
    let all = parsed_vectors();
    assert!(vectors(&all).count() >= 25);
    for vector in vectors(&all) {
        let said = match vector.get("draws") {
            Some(_) => format!("draws {}", text(vector, "draws")),
            None => text(vector, "is").to_owned(),
        };
        assert_eq!(name(&octets(vector)), said, "{}", vector["name"]);
    }
}

#[test]
fn valid_vectors_are_read_and_made_by_the_codec() {
    let all = parsed_vectors();
    let described = description();
    for vector in vectors(&all).filter(|vector| vector.get("draws").is_none()) {
        let name = &vector["name"];
        let octets = octets(vector);
        let (header, at) = Header::parse(&octets).expect("it is valid");
        let mut said = vector["fields"].clone();
        // Of other sets something is lost: a value without octets, an unknown property, or octets
        // behind a value.
        if let Some(properties) = said.pointer_mut("/rdma_body/rdma_connprop/rdma_props") {
            let properties = properties.as_array_mut().expect("an array");
            properties.retain(|property| !property["rdma_value"].is_null());
        }
        let is_whole = said == vector["fields"] && vector.get("ignored").is_none();
        if is_whole {
            assert_eq!(fields(&described, &header), said, "{name}");
            assert_eq!(made(&header), octets[..at], "{name}");
        }
        let payload = &octets[at..];
        match header.body {
            Body::Call {
                external: false, ..
            }
            | Body::Reply {
                external: false, ..
            }
            | Body::Part { .. } => {
                let begins = payload.starts_with(&header.xid.to_be_bytes());
                assert_eq!(begins, vector.get("follows").is_none(), "{name}");
            }
            Body::Call { .. }
            | Body::Reply { .. }
            | Body::Error(_)
            | Body::Grant
            | Body::Properties { .. } => assert!(payload.is_empty(), "{name}"),
        }
    }
}

#[test]
fn messages_of_the_page_are_vectors() {
    let all = parsed_vectors();
    let mut types = std::collections::BTreeSet::new();
    for (_, said, block) in blocks().filter(|(dialect, ..)| *dialect == "ietf-07") {
        let vector = vectors(&all).find(|vector| octets(vector) == block);
        let vector = vector.unwrap_or_else(|| panic!("{block:02x?} is no vector"));
        assert_eq!(name(&block), said, "{}", vector["name"]);
        types.extend(said.split(' ').next());
    }
    // Each of the ten header types, and what draws an answer.
    assert_eq!(types.len(), 10 + 1, "{types:?}");
}

/// Vectors of which a receiver ignores something, or that have a property without octets.
#[test]
fn odd_sets_are_read_as_the_text_says() {
    let all = parsed_vectors();
    let set = |name: &str| {
        let mut vectors = vectors(&all);
        let vector = vectors.find(|vector| vector["name"] == format!("ietf-07: {name}"));
        let octets = octets(vector.expect("it is there"));
        match Header::parse(&octets).expect("valid").0.body {
            Body::Properties { set, .. } => set,
            other => panic!("{other:?}"),
        }
    };
    let with = |receive_buffer, reverse| PropertySet {
        receive_buffer,
        reverse,
        ..PropertySet::default()
    };
    let none = Some(ReverseSupport::None);
    let default = set("property without octets, which is the default");
    assert_eq!(default, with(Some(4096), none));
    let skipped = set("unknown properties, which are skipped");
    assert_eq!(skipped, with(Some(8192), None));
    let ignored = set("octets behind a value, which are ignored");
    assert_eq!(ignored, with(Some(8192), None));
    let level = set("level of reverse-direction support that is not defined");
    assert_eq!(level, with(None, none));
}

/// The first difference between a description and the vectors.
fn difference(described: &Description, all: &Value) -> Result<(), String> {
    // Constants that no type of the description uses, and the values that the codec has for them.
    let loose = [
        ("RDMA2_VERSION", VERSION),
        ("RDMA2_RVRSDIR_NONE", ReverseSupport::None.word()),
        ("RDMA2_RVRSDIR_SIMPLE", ReverseSupport::Simple.word()),
        ("RDMA2_RVRSDIR_CONT", ReverseSupport::Continued.word()),
        ("RDMA2_RVRSDIR_GENL", ReverseSupport::General.word()),
        (
            "RDMA2_MAX_PROPERTIES",
            u32::try_from(MAX_PROPERTIES).expect("few"),
        ),
        ("RDMA2_MAX_HOSTAUTH", MAX_HOST_AUTH),
    ];
    for (name, value) in loose {
        if described.constants.get(name) != Some(&value) {
            return Err(format!("{name} is not {value}"));
        }
    }
    for vector in vectors(all) {
        let octets = octets(vector);
        let read = described.decode("rpcrdma2_xprt_hdr", &octets);
        let read = read.map(|(fields, rest)| (fields, digits(rest)));
        let said = vector.get("fields").map(|fields| {
            let payload = vector
                .get("payload")
                .map_or("", |_| text(vector, "payload"));
            (fields.clone(), payload.to_owned())
        });
        if read != said {
            return Err(format!("{}: {read:?}", vector["name"]));
        }
        // The error that a vector is or draws is that of its code.
        if let Some(fields) = said.map(|(fields, _)| fields)
            && let Some(error) = vector.get("is").and_then(Value::as_str)
            && let Some(error) = error.strip_prefix("RDMA2_ERROR ")
            && fields["rdma_body"]["rdma_error"]["rdma_err"] != described.constants[error]
        {
            return Err(format!("{} is not {error}", vector["name"]));
        }
        let fixed = described.decode("rpcrdma2_hdr_prefix", &octets);
        let (Some((fixed, _)), Some(fields)) = (fixed, vector.get("fields")) else {
            continue;
        };
        let same = json!({"rdma_start": {
            "rdma_xid": fields["rdma_xid"],
            "rdma_vers": fields["rdma_vers"],
            "rdma_credit": fields["rdma_credit"],
            "rdma_htype": fields["rdma_body"]["rdma_htype"],
        }});
        if fixed != same {
            return Err(format!("{}: {fixed}", vector["name"]));
        }
        if let Some(is) = vector.get("is").and_then(Value::as_str) {
            let htype = is.split(' ').next().unwrap_or_default();
            if described.constants[htype] != fields["rdma_body"]["rdma_htype"] {
                return Err(format!("{} is not {htype}", vector["name"]));
            }
        }
    }
    Ok(())
}

#[test]
fn description_reads_the_vectors() {
    difference(&description(), &parsed_vectors()).unwrap();
}

/// Neither a constant nor the order of two fields can change unnoticed.
#[test]
fn each_constant_and_the_order_of_fields_matter() {
    let all = parsed_vectors();
    let tokens = xdr::tokens(DESCRIPTION);
    let changes = changes_that_matter(&tokens, |described| difference(described, &all));
    assert!(changes > 50, "only {changes} changes were tried");
}

#[test]
fn vectors_have_every_header_type_and_error() {
    let all = parsed_vectors();
    let have: Vec<_> = vectors(&all)
        .filter_map(|vector| vector.get("is")?.as_str())
        .flat_map(|is| is.split(' '))
        .collect();
    let described = description();
    let is_one = |name: &str| {
        let of_types = !name.starts_with("RDMA2_ERR_") && described.constants[name] >= 4;
        let others = ["RDMA2_PROPID", "RDMA2_MAX", "RDMA2_RVRSDIR"];
        let is_other = others.iter().any(|other| name.starts_with(other));
        !is_other && (name.starts_with("RDMA2_ERR_") || of_types)
    };
    let wanted: Vec<_> = described
        .constants
        .keys()
        .filter(|name| is_one(name))
        .collect();
    assert_eq!(wanted.len(), 10 + 12, "{wanted:?}");
    for name in wanted {
        assert!(have.contains(&name.as_str()), "no vector is {name}");
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let numbers = any::<(u32, u32, u32, u32, bool)>();
    let auth = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    let set = (any::<[Option<u32>; 4]>(), prop::option::of(0..4_u32), auth);
    (numbers, set, any_lists(), 0..16_usize).prop_map(
        |((xid, credits, one, other, flag), (values, level, host_auth), mut lists, kind)| {
            let [max_send, receive_buffer, max_segment_size, max_segments] = values;
            let set = PropertySet {
                max_send,
                receive_buffer,
                max_segment_size,
                max_segments,
                reverse: level.map(ReverseSupport::from_word),
                host_auth,
            };
            let errors = [
                RdmaError::Version {
                    low: one,
                    high: other,
                },
                RdmaError::ReadChunks { max: one },
                RdmaError::WriteChunks { max: one },
                RdmaError::Segments { max: one },
                RdmaError::WriteResource {
                    chunk: NonZeroU32::new(one),
                    needed: other,
                },
                RdmaError::ReplyResource { needed: one },
                RdmaError::System,
            ];
            let direction = if flag {
                Direction::Call
            } else {
                Direction::Reply
            };
            let body = match kind {
                0..7 => Body::Error(errors[kind]),
                7 => Body::Part {
                    direction,
                    remaining: one,
                },
                8 | 9 => Body::Properties { last: flag, set },
                10..13 => {
                    lists.reads.clear();
                    let external = lists.reply.is_some();
                    Body::Reply { external, lists }
                }
                _ => {
                    lists.reads.retain(|chunk| chunk.position != 0);
                    if flag {
                        let segment = Segment {
                            handle: Handle(other),
                            length: one,
                            offset: 8,
                        };
                        let segments = Segments::from_elem(segment, 2);
                        let chunk = ReadChunk {
                            position: 0,
                            segments,
                        };
                        lists.reads.insert(0, chunk);
                    }
                    Body::Call {
                        external: flag,
                        invalidate: NonZeroU32::new(one).map(|handle| Handle(handle.get())),
                        lists,
                    }
                }
            };
            Header { xid, credits, body }
        },
    )
}

proptest! {
    #[test]
    fn description_reads_what_the_codec_makes(header in any_header()) {
        let octets = made(&header);
        let described = description();
        let read = described.decode("rpcrdma2_xprt_hdr", &octets);
        prop_assert_eq!(read, Some((fields(&described, &header), &[][..])));
    }
}
