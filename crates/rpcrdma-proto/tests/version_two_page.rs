//! The messages in docs/design/version-two.md, against the codec.

use buffer::Buffer;
use rpcrdma_proto::v2::characteristics::Registry;
use rpcrdma_proto::v2::header::{
    self, Body, Direction, Disposition, Header, RdmaError, VERSION, WordLayout, procedure,
};
use rpcrdma_proto::v2::operations::{Operation, Supported};

const PAGE: &str = include_str!("../../../docs/design/version-two.md");

/// A message of the page: how chunk lists are laid out, what it is said to be, and its bytes.
struct Vector<'a> {
    layout: WordLayout,
    said: &'a str,
    bytes: Vec<u8>,
}

fn vectors() -> Vec<Vector<'static>> {
    let blocks = PAGE.split("```words ").skip(1);
    let vector = |block: &'static str| {
        let (block, _) = block.split_once("```").expect("a block has an end");
        let (title, lines) = block.split_once('\n').expect("a title");
        let (layout, said) = title.split_once(' ').expect("a layout, and what it is");
        let words = lines.lines().flat_map(|line| {
            // Words of eight digits; the first of anything else begins a remark.
            let words = line.split_whitespace();
            words.map_while(|word| (word.len() == 8).then(|| u32::from_str_radix(word, 16).ok())?)
        });
        Vector {
            layout: match layout {
                "none" => WordLayout::None,
                "one" => WordLayout::One,
                "several" => WordLayout::Several,
                other => panic!("{other} is no layout"),
            },
            said,
            bytes: words.flat_map(u32::to_be_bytes).collect(),
        }
    };
    blocks.map(vector).collect()
}

/// What a message is, or what it draws.
fn name(vector: &Vector<'_>) -> String {
    let drawn = |disposition| match disposition {
        Disposition::Discard => "draws nothing".to_owned(),
        Disposition::ErrVers { .. } => "draws RDMA2_ERR_VERS".to_owned(),
        Disposition::BadHeader { .. } => "draws RDMA2_ERR_BAD_HEADER".to_owned(),
        Disposition::InvalOption { .. } => "draws RDMA2_ERR_INVAL_OPTION".to_owned(),
    };
    let (header, at) = match Header::parse(&vector.bytes, vector.layout) {
        Ok(parsed) => parsed,
        Err(error) => return drawn(error.disposition()),
    };
    let direction = match header.direction() {
        Direction::Call => "CALL",
        Direction::Reply => "REPLY",
    };
    match &header.body {
        Body::Msg(_) => format!("RDMA2_MSG {direction}"),
        Body::NoMsg(_) => format!("RDMA2_NOMSG {direction}"),
        Body::Error(error) => {
            let error = match error {
                RdmaError::Version { .. } => "RDMA2_ERR_VERS",
                RdmaError::BadHeader => "RDMA2_ERR_BAD_HEADER",
                RdmaError::InvalOption => "RDMA2_ERR_INVAL_OPTION",
            };
            format!("RDMA2_ERROR {direction} {error}")
        }
        Body::Optional(optional) => {
            let (rest, registry) = (&vector.bytes[at..], Registry::standard());
            let operation = match Operation::parse(optional, rest, Supported::All, &registry) {
                Ok((Operation::InitXch(_), _)) => "ROPT_INITXCH",
                Ok((Operation::ReqXch(_), _)) => "ROPT_REQXCH",
                Ok((Operation::RespXch(_), _)) => "ROPT_RESPXCH",
                Ok((Operation::UpdXch(_), _)) => "ROPT_UPDXCH",
                Err(error) => {
                    let (xid, credits) = (header.xid, header.credits);
                    return drawn(error.disposition(xid, credits, header.direction()));
                }
            };
            format!("RDMA2_OPTIONAL {direction} {operation}")
        }
    }
}

/// The bytes of a header, and those of what it says of an operation, made anew.
fn made(header: &Header) -> Vec<u8> {
    let mut out = Buffer::default();
    let (xid, credits) = (header.xid, header.credits);
    match &header.body {
        Body::Msg(lists) => header::emit(&mut out, procedure::MSG, xid, credits, lists),
        Body::NoMsg(lists) => header::emit(&mut out, procedure::NOMSG, xid, credits, lists),
        Body::Error(error) => header::emit_error(&mut out, xid, VERSION, credits, *error),
        Body::Optional(optional) => {
            let registry = Registry::standard();
            let parsed = Operation::parse(optional, &[], Supported::All, &registry);
            let (operation, _) = parsed.expect("it is not said to draw anything");
            operation.emit(&mut out, xid, credits, optional.direction);
        }
    }
    out.to_vec()
}

#[test]
fn messages_of_the_page_are_what_they_are_said_to_be() {
    let vectors = vectors();
    assert!(vectors.len() > 15, "only {} on the page", vectors.len());
    for vector in &vectors {
        assert_eq!(name(vector), vector.said, "{:02x?}", vector.bytes);
    }
}

#[test]
fn messages_of_the_page_are_made_as_they_stand_there() {
    let whole = vectors();
    let whole = whole
        .iter()
        .filter(|vector| !vector.said.starts_with("draws"));
    for vector in whole {
        let (header, at) = Header::parse(&vector.bytes, vector.layout).expect(vector.said);
        assert_eq!(made(&header), vector.bytes[..at], "{}", vector.said);
        let payload = &vector.bytes[at..];
        match header.body {
            // The RPC message begins with the same XID.
            Body::Msg(_) => assert_eq!(payload[..4], header.xid.to_be_bytes()),
            Body::NoMsg(_) | Body::Error(_) | Body::Optional(_) => assert!(payload.is_empty()),
        }
    }
}
