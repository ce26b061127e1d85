//! The description of version two in docs/xdr, the vectors beside it, and the messages in docs/design/version-two.md:
//! against the codec, and against each other. Those of ietf-07 have a codec and a description of their own.

mod fields;
mod ietf07;
mod xdr;

use buffer::Buffer;
use fields::fields;
use proptest::prelude::*;
use rpcrdma_proto::Design;
use rpcrdma_proto::limits::{MAX_CHARACTERISTICS, MAX_INVALIDATE_HANDLES};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, DesignBits, InvalidationDesigns, Oddities,
    ReceiveBufferSize, ReceiveSize, Registry, RequesterRemoteInvalidation, XcharId, XcharSpec,
    XcharSubset, XcharVal,
};
use rpcrdma_proto::v2::header::{
    self, Body, ChunkLists, Direction, Disposition, Header, Invalidate, Lists, RdmaError,
    ReadChunk, Segments, VERSION, WordLayout, WriteChunk, procedure,
};
use rpcrdma_proto::v2::operations::{
    InitXch, Operation, OperationError, ReqXch, RespXch, Supported, UpdXch,
};
use rpcrdma_proto::wire::private_data::{self, PrivateData};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use verbs::{Handle, Segment};
use xdr::{Description, Type};

const PAGE: &str = include_str!("../../../../docs/design/version-two.md");
const VECTORS: &str = include_str!("../../../../docs/xdr/vectors.json");
const DESCRIPTION: [&str; 3] = [
    include_str!("../../../../docs/xdr/rpcrdma_v2.x"),
    include_str!("../../../../docs/xdr/rpcrdma_v2_xchar.x"),
    include_str!("../../../../docs/xdr/rpcrdma_private_data.x"),
];

/// Constants that no type of the description uses, and the values that the codec has for them.
const LOOSE: [(&str, u64); 7] = [
    ("RDMA2_VERSION", VERSION as u64),
    ("RDMA2_MAX_INV_HANDLES", MAX_INVALIDATE_HANDLES as u64),
    ("XCHAR_MAX", MAX_CHARACTERISTICS as u64),
    ("XCHAR_SUBSET_WORDS", MAX_CHARACTERISTICS as u64 / 32),
    (
        "RPCRDMA1_PVT_FORMAT",
        private_data::FORMAT_IDENTIFIER as u64,
    ),
    ("RPCRDMA1_PVT_VERSION", private_data::VERSION as u64),
    ("RPCRDMA2_ANN_FORMAT", u32::from_be_bytes(*b"rpc2") as u64),
];

fn tokens() -> Vec<String> {
    DESCRIPTION.into_iter().flat_map(xdr::tokens).collect()
}

/// A message: how chunk lists are laid out, what it is or draws, and its octets.
struct Vector<'a> {
    layout: WordLayout,
    said: String,
    octets: Vec<u8>,
    /// The vector itself; null for a message of the page.
    more: &'a Value,
}

fn layout(name: &str) -> WordLayout {
    match name {
        "none" => WordLayout::None,
        "one" => WordLayout::One,
        "several" => WordLayout::Several,
        other => panic!("{other} is no layout"),
    }
}

/// The type of a message in the description.
fn type_of(layout: WordLayout) -> &'static str {
    match layout {
        WordLayout::None => "rpcrdma2_xprt_hdr",
        WordLayout::One => "rpcrdma2_xprt_hdr_one",
        WordLayout::Several => "rpcrdma2_xprt_hdr_several",
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("{key} of {value} is no text"))
}

fn parsed_vectors() -> Value {
    serde_json::from_str(VECTORS).expect("the vectors are JSON")
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().expect("an array")
}

fn vectors(all: &Value) -> Vec<Vector<'_>> {
    let vector = |more| Vector {
        layout: layout(text(more, "layout")),
        said: match more.get("draws") {
            Some(_) => format!("draws {}", text(more, "draws")),
            None => text(more, "is").to_owned(),
        },
        octets: octets(more),
        more,
    };
    of_dialect(all, None).map(vector).collect()
}

/// The messages of a dialect; those of cel-01 do not name it.
fn of_dialect<'a>(all: &'a Value, dialect: Option<&str>) -> impl Iterator<Item = &'a Value> {
    let messages = array(all, "messages").iter();
    messages.filter(move |message| message.get("dialect").and_then(Value::as_str) == dialect)
}

/// The octets of a vector.
fn octets(vector: &Value) -> Vec<u8> {
    let lines = array(vector, "octets").iter();
    let lines: Vec<_> = lines.map(|line| line.as_str().expect("digits")).collect();
    xdr::octets(&lines.concat())
}

/// A message of the page: the first word of its title, what it is or draws, and its octets.
type Block = (&'static str, &'static str, Vec<u8>);

/// The messages of the page. The first word of a title is a layout of cel-01, or the other dialect.
fn blocks() -> impl Iterator<Item = Block> {
    let blocks = PAGE.split("```words ").skip(1);
    blocks.map(|block| {
        let (block, _) = block.split_once("```").expect("a block has an end");
        let (title, lines) = block.split_once('\n').expect("a title");
        let (name, said) = title.split_once(' ').expect("a layout, and what it is");
        let words = lines.lines().flat_map(|line| {
            // Words of eight digits; the first of anything else begins a remark.
            let words = line.split_whitespace();
            words.map_while(|word| (word.len() == 8).then(|| u32::from_str_radix(word, 16).ok())?)
        });
        (name, said, words.flat_map(u32::to_be_bytes).collect())
    })
}

fn page() -> Vec<Vector<'static>> {
    let of_cel01 = blocks().filter(|(name, ..)| *name != Dialect::Ietf07.name());
    let vector = |(name, said, octets): Block| Vector {
        layout: layout(name),
        said: said.to_owned(),
        octets,
        more: &Value::Null,
    };
    of_cel01.map(vector).collect()
}

fn registry() -> Registry {
    let mut registry = Registry::standard();
    let registered = registry.register::<InvalidationDesigns>();
    registered.expect("its number is free");
    registry
}

fn operation(
    header: &Header,
    rest: &[u8],
) -> Option<Result<(Operation, Oddities), OperationError>> {
    match &header.body {
        Body::Optional(it) => Some(Operation::parse(it, rest, Supported::All, &registry())),
        Body::Msg(_) | Body::NoMsg(_) | Body::Error(_) => None,
    }
}

/// Name of a message, or of the answer it draws.
fn name(vector: &Vector<'_>) -> String {
    let drawn = |disposition| match disposition {
        Disposition::Discard => "draws nothing".to_owned(),
        Disposition::ErrVers { .. } => "draws RDMA2_ERR_VERS".to_owned(),
        Disposition::BadHeader { .. } => "draws RDMA2_ERR_BAD_HEADER".to_owned(),
        Disposition::InvalOption { .. } => "draws RDMA2_ERR_INVAL_OPTION".to_owned(),
    };
    let (header, at) = match Header::parse(&vector.octets, vector.layout) {
        Ok(parsed) => parsed,
        Err(error) => return drawn(error.disposition()),
    };
    let direction = match header.direction() {
        Direction::Call => "CALL",
        Direction::Reply => "REPLY",
    };
    let kind = match &header.body {
        Body::Msg(_) => "RDMA2_MSG",
        Body::NoMsg(_) => "RDMA2_NOMSG",
        Body::Error(_) => "RDMA2_ERROR",
        Body::Optional(_) => "RDMA2_OPTIONAL",
    };
    let detail = match (&header.body, operation(&header, &vector.octets[at..])) {
        (_, Some(Ok((Operation::InitXch(_), _)))) => " ROPT_INITXCH",
        (_, Some(Ok((Operation::ReqXch(_), _)))) => " ROPT_REQXCH",
        (_, Some(Ok((Operation::RespXch(_), _)))) => " ROPT_RESPXCH",
        (_, Some(Ok((Operation::UpdXch(_), _)))) => " ROPT_UPDXCH",
        (_, Some(Err(error))) => {
            return drawn(error.disposition(header.xid, header.credits, header.direction()));
        }
        (Body::Error(RdmaError::Version { .. }), None) => " RDMA2_ERR_VERS",
        (Body::Error(RdmaError::BadHeader), None) => " RDMA2_ERR_BAD_HEADER",
        (Body::Error(RdmaError::InvalOption), None) => " RDMA2_ERR_INVAL_OPTION",
        _ => "",
    };
    format!("{kind} {direction}{detail}")
}

/// The octets of a header with those of its operation, encoded anew.
fn made(header: &Header, operation: Option<&Operation>) -> Vec<u8> {
    let mut out = Buffer::default();
    let (xid, credits) = (header.xid, header.credits);
    match &header.body {
        Body::Msg(lists) => header::emit(&mut out, procedure::MSG, xid, credits, lists),
        Body::NoMsg(lists) => header::emit(&mut out, procedure::NOMSG, xid, credits, lists),
        Body::Error(error) => header::emit_error(&mut out, xid, VERSION, credits, *error),
        Body::Optional(optional) => {
            let operation = operation.expect("an RDMA2_OPTIONAL has an operation");
            operation.emit(&mut out, xid, credits, optional.direction);
        }
    }
    out.to_vec()
}

#[test]
fn vectors_are_what_they_are_said_to_be() {
    let all = parsed_vectors();
    for vector in vectors(&all) {
        assert_eq!(name(&vector), vector.said, "{}", vector.more["name"]);
    }
}

#[test]
fn valid_vectors_are_read_and_made_by_the_codec() {
    let all = parsed_vectors();
    let vectors = vectors(&all);
    let valid = vectors
        .iter()
        .filter(|vector| vector.more.get("draws").is_none());
    for Vector {
        layout,
        octets,
        more,
        ..
    } in valid
    {
        let name = &more["name"];
        let (header, at) = Header::parse(octets, *layout).expect("it is valid");
        let payload = &octets[at..];
        let operation = operation(&header, payload).map(|parsed| parsed.expect("it is valid"));
        let oddities = operation
            .as_ref()
            .map_or(Oddities::default(), |(_, odd)| *odd);
        let operation = operation.map(|(operation, _)| operation);
        let mut read = fields(&header, operation.as_ref());
        let mut said = more["fields"].clone();
        let ignored = more.get("ignored").map(|_| text(more, "ignored"));
        assert_eq!(
            oddities.trailing > 0,
            ignored == Some("xchv_data"),
            "{name}"
        );
        let is_masked = ignored == Some("optixch_nochg");
        assert_eq!(oddities.bits_for_nothing > 0, is_masked, "{name}");
        if is_masked {
            let nochg = "/rdma_body/rdma_optional/optinfo/initxch/optixch_nochg";
            for value in [&mut read, &mut said] {
                *value.pointer_mut(nochg).expect("a ROPT_INITXCH") = Value::Null;
            }
        } else {
            assert_eq!(made(&header, operation.as_ref()), octets[..at], "{name}");
        }
        assert_eq!(read, said, "{name}");
        match header.body {
            // The RPC message begins with the same XID.
            Body::Msg(_) => assert_eq!(payload[..4], header.xid.to_be_bytes(), "{name}"),
            Body::NoMsg(_) | Body::Error(_) | Body::Optional(_) => assert!(payload.is_empty()),
        }
    }
}

#[test]
fn layouts_are_those_of_the_designs() {
    let all = parsed_vectors();
    let mut designs = Vec::new();
    for (name, said) in all["layouts"].as_object().expect("layouts by name") {
        assert_eq!(text(said, "type"), type_of(layout(name)));
        for design in array(said, "designs") {
            let design: Design = design.as_str().expect("a name").parse().expect("a design");
            assert_eq!(WordLayout::of(Some(design)), layout(name), "{design:?}");
            designs.push(design);
        }
    }
    assert_eq!(designs.len(), Design::ALL.len());
}

#[test]
fn messages_of_the_page_are_vectors() {
    let all = parsed_vectors();
    let (vectors, page) = (vectors(&all), page());
    assert!(page.len() > 15, "only {} on the page", page.len());
    for block in &page {
        let is_block =
            |vector: &&Vector<'_>| (vector.layout, &vector.octets) == (block.layout, &block.octets);
        let vector = vectors.iter().find(is_block);
        let vector = vector.unwrap_or_else(|| panic!("{:02x?} is no vector", block.octets));
        assert_eq!(vector.said, block.said, "{}", vector.more["name"]);
    }
}

#[test]
fn vectors_of_private_data_are_read() {
    let all = parsed_vectors();
    for vector in array(&all, "private_data") {
        let octets = xdr::octets(text(vector, "octets"));
        let found = PrivateData::locate(&octets).map(|(offset, found)| {
            json!({
                "offset": offset,
                "send": found.send.bytes(),
                "receive": found.receive.bytes(),
                "remote_invalidation": found.remote_invalidation,
            })
        });
        let announced = Dialect::announced(&octets).map(|dialect| json!(dialect.name()));
        let said = [&vector["fields"], &vector["announces"]];
        let read = [found, announced].map(Option::unwrap_or_default);
        assert_eq!(read.each_ref(), said, "{}", vector["name"]);
    }
}

/// The first difference between a description, the vectors and the codec.
fn difference(described: &Description, all: &Value) -> Result<(), String> {
    let constant = |name: &str| described.constants.get(name).map(|value| u64::from(*value));
    let designs = [
        ("XCHAR_DESIGN_FIXED", Design::Fixed),
        ("XCHAR_DESIGN_PER_CALL", Design::PerCall),
        ("XCHAR_DESIGN_PER_CALL_SEVERAL", Design::PerCallSeveral),
        ("XCHAR_DESIGN_INTER_CALL", Design::InterCall),
        ("XCHAR_DESIGN_PER_CALL_ALL", Design::PerCallAll),
    ];
    let designs = designs.map(|(name, design)| (name, DesignBits::answer(design).bits().into()));
    for (name, value) in LOOSE.into_iter().chain(designs) {
        if constant(name) != Some(value) {
            return Err(format!("{name} is not {value}"));
        }
    }
    for Vector {
        layout,
        octets,
        more,
        ..
    } in vectors(all)
    {
        let read = described.decode(type_of(layout), &octets);
        let read = read.map(|(fields, rest)| (fields, xdr::digits(rest)));
        let said = more.get("fields").map(|fields| {
            let payload = more.get("payload").map_or("", |_| text(more, "payload"));
            (fields.clone(), payload.to_owned())
        });
        if read != said {
            return Err(format!("{}: {read:?}", more["name"]));
        }
    }
    for vector in array(all, "private_data") {
        private_difference(described, vector)?;
    }
    Ok(())
}

fn private_difference(described: &Description, vector: &Value) -> Result<(), String> {
    let octets = xdr::octets(text(vector, "octets"));
    let constant = |name: &str| described.constants[name];
    let find = |of: &str, is: &dyn Fn(&Value) -> bool| {
        let read = |at: usize| {
            described
                .decode(of, &octets[at..])
                .map(|(value, _)| (at, value))
        };
        (0..octets.len())
            .filter_map(read)
            .find(|(_, value)| is(value))
    };
    let parts = |value: &Value| xdr::octets(value["pvt_octets"].as_str().unwrap_or_default());
    let found = find("rpcrdma1_private_data", &|value| {
        let version = parts(value).first().map(|version| u32::from(*version));
        value["pvt_format"] == constant("RPCRDMA1_PVT_FORMAT")
            && version == Some(constant("RPCRDMA1_PVT_VERSION"))
    });
    let fields = found.and_then(|(offset, value)| {
        let [_, flags, send, receive] = parts(&value).try_into().ok()?;
        let bytes = |code: u8| (u32::from(code) + 1) * 1024;
        Some(json!({
            "offset": offset,
            "send": bytes(send),
            "receive": bytes(receive),
            "remote_invalidation": flags & 1 == 1,
        }))
    });
    let announced = |dialect: &str| {
        let found = find("rpcrdma2_announcement", &|value| {
            value["ann_format"] == constant("RPCRDMA2_ANN_FORMAT")
                && value["ann_dialect"] == constant(dialect)
        });
        found.is_some()
    };
    let dialects = [
        ("cel-01", "RPCRDMA2_ANN_CEL01"),
        ("ietf-07", "RPCRDMA2_ANN_IETF07"),
    ];
    let mut dialects = dialects.into_iter();
    let announced = dialects.find_map(|(name, dialect)| announced(dialect).then_some(name));
    let read = (fields.unwrap_or_default(), announced);
    let said = (vector["fields"].clone(), vector["announces"].as_str());
    let is_same = read == said;
    is_same
        .then_some(())
        .ok_or_else(|| format!("{}: {read:?}", vector["name"]))
}

#[test]
fn description_reads_the_vectors() {
    difference(&Description::parse(&tokens()), &parsed_vectors()).unwrap();
}

/// Neither a constant nor the order of two fields can change unnoticed.
#[test]
fn each_constant_and_the_order_of_fields_matter() {
    let all = parsed_vectors();
    let changes = changes_that_matter(&tokens(), |described| difference(described, &all));
    assert!(changes > 60, "only {changes} changes were tried");
}

/// Changes each constant of a description, and the order of any two adjacent fields; how many
/// changes there are. Each must make a difference.
fn changes_that_matter(
    tokens: &[String],
    difference: impl Fn(&Description) -> Result<(), String>,
) -> usize {
    let mut changes = 0;
    for at in 1..tokens.len() {
        if tokens[at - 1] != "=" {
            continue;
        }
        let mut changed = tokens.to_vec();
        // Far from all others, so that members of an enum stay different.
        changed[at] = "77".to_owned();
        let described = Description::parse(&changed);
        difference(&described).expect_err(&format!("{} can change", tokens[at - 2]));
        changes += 1;
    }
    let sizes = Description::parse(tokens).types.into_iter();
    let sizes: BTreeMap<_, _> = sizes
        .filter_map(|(name, of)| match of {
            Type::Struct(members) => Some((name, members.len())),
            Type::Enum(_) | Type::Union(..) | Type::Alias(_) => None,
        })
        .collect();
    for (name, size) in sizes {
        for second in 1..size {
            let mut described = Description::parse(tokens);
            if let Some(Type::Struct(members)) = described.types.get_mut(&name) {
                members.swap(second - 1, second);
            }
            difference(&described).expect_err(&format!("{name} can change its order"));
            changes += 1;
        }
    }
    changes
}

fn any_segments() -> impl Strategy<Value = Segments> {
    let segment = any::<(u32, u32, u64)>().prop_map(|(handle, length, offset)| Segment {
        handle: Handle(handle),
        length,
        offset,
    });
    prop::collection::vec(segment, 1..4).prop_map(Segments::from_vec)
}

fn any_lists() -> impl Strategy<Value = Lists> {
    let chunk = || any_segments().prop_map(|segments| WriteChunk { segments });
    let reads = prop::collection::btree_map(0..1000_u32, any_segments(), 0..4);
    let writes = prop::collection::vec(chunk(), 0..4);
    (reads, writes, prop::option::of(chunk())).prop_map(|(reads, writes, reply)| {
        let read = |(at, segments)| ReadChunk {
            position: at * 4,
            segments,
        };
        let reads = reads.into_iter().map(read).collect();
        Lists {
            reads,
            writes,
            reply,
        }
    })
}

fn any_spec() -> impl Strategy<Value = XcharSpec> {
    let unknown = prop::collection::btree_map(
        4..u32::MAX - 1000,
        prop::collection::vec(any::<u8>(), 0..20),
        0..40,
    );
    let known = (1024..u32::MAX, any::<bool>(), 0..7_usize);
    (unknown, known, any::<[bool; 4]>()).prop_map(|(unknown, (size, flag, pick), has)| {
        let mut spec = XcharSpec::default();
        for (which, data) in unknown {
            spec.put(XcharVal {
                which: XcharId(which),
                data,
            });
        }
        let levels = [
            BackwardSupport::None,
            BackwardSupport::Inline,
            BackwardSupport::General,
        ];
        if has[0] {
            spec.set::<ReceiveBufferSize>(&ReceiveSize::new(size).expect("1024 at least"));
        }
        if has[1] {
            spec.set::<RequesterRemoteInvalidation>(&flag);
        }
        if has[2] {
            spec.set::<BackwardRequestSupport>(&levels[pick % 3]);
        }
        if has[3] {
            spec.set::<InvalidationDesigns>(&DesignBits::answer(Design::ALL[pick % 6]));
        }
        spec
    })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    (any_spec(), any::<[u128; 3]>(), any::<bool>(), 0..4).prop_map(|(spec, bits, flag, kind)| {
        let subset = |bits: u128, below: usize| -> XcharSubset {
            (0..below).filter(|at| bits >> at & 1 == 1).collect()
        };
        let [done, rejected, pending] = bits.map(|bits| subset(bits, MAX_CHARACTERISTICS));
        match (kind, spec.values().first().cloned()) {
            (0, _) => Operation::InitXch(InitXch {
                nochg: subset(bits[0], spec.len()),
                start: spec,
            }),
            (1, _) => Operation::ReqXch(ReqXch { want: spec }),
            (2, Some(now)) => Operation::UpdXch(UpdXch { now, pendclr: flag }),
            _ => Operation::RespXch(RespXch {
                done,
                rejected,
                pending,
            }),
        }
    })
}

/// A header in some layout, with its operation if it has one.
fn any_message() -> impl Strategy<Value = (Header, Option<Operation>, WordLayout)> {
    let words = any::<(u32, u32, bool, u32, u32)>();
    let handles = prop::collection::vec(any::<u32>(), 0..=MAX_INVALIDATE_HANDLES);
    let parts = (words, any_lists(), any_operation(), handles, 0..3, 0..6);
    parts.prop_map(
        |((xid, credits, is_call, low, high), lists, operation, handles, form, kind)| {
            let direction = if is_call {
                Direction::Call
            } else {
                Direction::Reply
            };
            let handles: Vec<_> = handles.into_iter().map(Handle).collect();
            let invalidate = match form {
                0 => Invalidate::Unsaid,
                1 => Invalidate::One(handles.first().copied()),
                _ => Invalidate::Several(handles),
            };
            let layout = invalidate.layout();
            let chunks = ChunkLists {
                direction,
                invalidate,
                lists,
            };
            let (body, operation) = match kind {
                0 => (Body::Msg(chunks), None),
                1 => (Body::NoMsg(chunks), None),
                2 => (Body::Error(RdmaError::Version { low, high }), None),
                3 => (Body::Error(RdmaError::BadHeader), None),
                4 => (Body::Error(RdmaError::InvalOption), None),
                _ => (
                    Body::Optional(operation.to_optional(direction)),
                    Some(operation),
                ),
            };
            (Header { xid, credits, body }, operation, layout)
        },
    )
}

proptest! {
    #[test]
    fn description_reads_what_the_codec_makes((header, operation, layout) in any_message()) {
        let octets = made(&header, operation.as_ref());
        let described = Description::parse(&tokens());
        let read = described.decode(type_of(layout), &octets);
        prop_assert_eq!(read, Some((fields(&header, operation.as_ref()), &[][..])));
    }
}
