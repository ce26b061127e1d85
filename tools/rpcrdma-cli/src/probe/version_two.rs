//! Probes the peer's support for RPC-over-RDMA version two as cel-01 and xcharext-02 have it.
//!
//! The first message of the connection says what we are (ROPT_INITXCH). Who speaks version one only
//! refuses it with ERR_VERS (RFC 8166 §4.5.1), and who speaks version two without characteristics
//! with RDMA2_ERR_INVAL_OPTION. Which operations a peer takes in beyond that is found out with two
//! that ask for nothing: a ROPT_UPDXCH with the value that we have told already, and a ROPT_REQXCH
//! without a wish.
//!
//! A design for remote invalidation that is agreed on adds a word to messages of calls, of which there
//! are none here.

use super::answer;
use super::conversation::{Conversation, Heard, NoAnswer};
use oncrpc::Chain;
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, Characteristic as _, DesignBits, InvalidationDesigns,
    ReceiveBufferSize, ReceiveSize, Registry, RequesterRemoteInvalidation, SpecView, SubsetView,
    XcharId, XcharVal, XcharValView,
};
use rpcrdma_proto::v2::header::{BodyView, ErrorView, HeaderView, VERSION, WordLayout, error_code};
use rpcrdma_proto::v2::operations::{
    InitXch, Operation, OperationFields, OperationView, ReqXch, UpdXch, code,
};
use rpcrdma_proto::v2::{Dialect, Foreign};
use rpcrdma_proto::{Design, PrivateData};
use serde::Serialize;
use serde_json::Value;

/// Outcome of a message of version two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum VersionTwo {
    /// It was refused: the peer supports these versions (RFC 8166 §4.5.1).
    ErrVers {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// A message of version two came back.
    Spoken(Spoken),
    /// A message of another draft of version two came back.
    OtherDraft {
        /// Evidence, in words.
        detail: String,
        /// The drafts that have it, if there are any.
        drafts: Option<&'static str>,
    },
    /// Something else came back.
    Error {
        /// Description of the outcome.
        detail: String,
    },
    /// Nothing came back.
    Nothing {
        /// Description of the outcome.
        detail: String,
    },
}

/// How a peer speaks version two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Spoken {
    /// The draft of version two (`v2::Dialect`).
    pub(super) dialect: &'static str,
    /// None where it has none, as in ietf-07.
    pub(super) characteristics: Option<Vec<Characteristic>>,
    /// Those that it takes in.
    pub(super) operations: Vec<&'static str>,
    /// Credits that the peer granted.
    pub(super) credits_granted: u32,
    /// Remote invalidation designs that were offered to the peer.
    pub(super) designs_offered: Vec<&'static str>,
    /// The one that it selected.
    pub(super) design_selected: Option<&'static str>,
    /// Properties that it announces in ietf-07, which has no characteristics.
    pub(super) properties: Option<Vec<Property>>,
    /// Fault of its announcement.
    pub(super) odd: Option<String>,
}

impl Default for Spoken {
    fn default() -> Self {
        Self {
            dialect: Dialect::default().name(),
            characteristics: None,
            operations: Vec::new(),
            credits_granted: 0,
            designs_offered: Vec::new(),
            design_selected: None,
            properties: None,
            odd: None,
        }
    }
}

/// Characteristic that a peer announces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Characteristic {
    /// Number of the characteristic.
    pub(super) id: u32,
    /// Its name, if it is known.
    pub(super) name: Option<&'static str>,
    /// If it is known and can be read.
    pub(super) value: Option<Value>,
    /// The value in hexadecimal digits.
    pub(super) bytes: String,
    /// Whether it will not change on this connection.
    pub(super) fixed: bool,
}

/// Property that a peer of ietf-07 announces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Property {
    /// Number of the property.
    pub(super) id: u32,
    /// Its name, if it is known.
    pub(super) name: Option<&'static str>,
    /// If it is known and can be read.
    pub(super) value: Option<Value>,
    /// The value in hexadecimal digits.
    pub(super) bytes: String,
}

/// Asks all of it, as the first message of a connection.
pub(super) async fn look(
    talk: &mut Conversation,
    ours: PrivateData,
    designs: &[Design],
) -> VersionTwo {
    let said = introduction(ours, designs);
    let said_designs = said.start.position(InvalidationDesigns::ID).is_some();
    let heard = talk.operate(&Operation::InitXch(said)).await;
    let mut known = Registry::standard();
    if said_designs {
        let registered = known.register::<InvalidationDesigns>();
        registered.expect("the text has no characteristic with its id");
    }
    let mut found = first_answer(&heard, &known);
    if let VersionTwo::Spoken(spoken) = &mut found
        && said_designs
    {
        spoken.designs_offered = designs.iter().map(|design| design.name()).collect();
    }
    if let VersionTwo::Spoken(spoken) = &mut found
        && spoken.characteristics.is_some()
    {
        spoken.operations.push("ROPT_INITXCH");
        if let Err(error) = look_at_operations(talk, ours, &mut spoken.operations).await {
            spoken.odd = Some(format!("to ROPT_REQXCH {error}"));
        }
    }
    found
}

/// We take in no calls of the peer.
fn introduction(ours: PrivateData, designs: &[Design]) -> InitXch {
    let usual = InitXch::default()
        .with::<ReceiveBufferSize>(&receive_size(ours))
        .with::<RequesterRemoteInvalidation>(&ours.remote_invalidation)
        .with::<BackwardRequestSupport>(&BackwardSupport::None);
    match DesignBits::offer(designs.iter().copied().collect()) {
        none if none == DesignBits::default() => usual,
        some => usual.with::<InvalidationDesigns>(&some),
    }
}

fn receive_size(ours: PrivateData) -> ReceiveSize {
    let bytes = u32::try_from(ours.receive.bytes()).ok();
    bytes.and_then(ReceiveSize::new).unwrap_or_default()
}

fn first_answer(heard: &Result<Heard, NoAnswer>, known: &Registry) -> VersionTwo {
    match heard {
        Ok(heard) => of_message(&heard.message, known),
        Err(NoAnswer::OtherDraft(foreign)) => other_draft(*foreign),
        Err(error @ NoAnswer::TimedOut(_)) => VersionTwo::Nothing {
            detail: format!("{error}; ietf-03 to ietf-07 take the offer for RDMA2_GRANT"),
        },
        Err(error @ NoAnswer::Closed(_)) => VersionTwo::Nothing {
            detail: Chain(error).to_string(),
        },
    }
}

pub(super) fn other_draft(foreign: Foreign) -> VersionTwo {
    VersionTwo::OtherDraft {
        detail: foreign.to_string(),
        drafts: foreign.drafts(),
    }
}

fn of_message(message: &[u8], known: &Registry) -> VersionTwo {
    if let Some((low, high)) = answer::supported(message) {
        return VersionTwo::ErrVers { low, high };
    }
    let Some(header) = HeaderView::new(message) else {
        return VersionTwo::Error {
            detail: format!("a message of {} bytes", message.len()),
        };
    };
    if header.version() != VERSION {
        return VersionTwo::Error {
            detail: format!(
                "a message of version {}, procedure {}",
                header.version(),
                header.procedure()
            ),
        };
    }
    if let Some(foreign) = Foreign::in_message(Dialect::Cel01, message) {
        return other_draft(foreign);
    }
    let mut spoken = Spoken {
        credits_granted: header.credits(),
        ..Spoken::default()
    };
    spoken.odd = match body(message) {
        Some(BodyView::Optional(optional)) => {
            let operation = optional.operation.unwrap_or_default();
            match OperationView::new(operation, optional.info) {
                Some(OperationView {
                    fields: OperationFields::InitXch { start, nochg },
                    error,
                    ..
                }) => {
                    let mut all = start.values.iter().filter_map(read_design);
                    spoken.design_selected = all.next();
                    spoken.characteristics = Some(characteristics(&start, &nochg, known));
                    error.map(|error| format!("its ROPT_INITXCH is malformed: {error}"))
                }
                _ => Some(format!(
                    "it answered ROPT_INITXCH with operation {operation}"
                )),
            }
        }
        Some(BodyView::Error(error)) if is_refusal(error) => None,
        Some(BodyView::Error(error)) => Some(match error.code {
            Some(code) => format!("it answered ROPT_INITXCH with error {code}"),
            None => "it answered ROPT_INITXCH with an error without a code".to_owned(),
        }),
        Some(BodyView::Chunks(_) | BodyView::Unknown) | None => {
            Some(format!("it answered with procedure {}", header.procedure()))
        }
    };
    VersionTwo::Spoken(spoken)
}

fn body(message: &[u8]) -> Option<BodyView<'_>> {
    let header = HeaderView::new(message)?;
    let body = &message[HeaderView::FIXED_LEN..];
    Some(BodyView::new(header.procedure(), WordLayout::None, body))
}

/// Whether the operation is not supported (cel-01 §4.2.2).
fn is_refusal(error: ErrorView) -> bool {
    error.code == Some(error_code::INVAL_OPTION)
}

/// Characteristics that the peer announces, known or not, valid or not.
fn characteristics(
    start: &SpecView<'_>,
    nochg: &SubsetView,
    known: &Registry,
) -> Vec<Characteristic> {
    let is_fixed = |at: usize| {
        let word = nochg.words.get(at / 32).copied().unwrap_or_default();
        word >> (at % 32) & 1 != 0
    };
    let values = start.values.iter().enumerate();
    let shown = values.map(|(at, value): (usize, &XcharValView<'_>)| {
        let known = known.get(XcharId(value.which));
        Characteristic {
            id: value.which,
            name: known.map(|known| known.name()),
            value: known.and_then(|_| read(value)),
            bytes: super::report::hex(value.data),
            fixed: is_fixed(at),
        }
    });
    shown.collect()
}

/// The design that a value names, if it is that of the designs.
fn read_design(value: &XcharValView<'_>) -> Option<&'static str> {
    let value = XcharVal {
        which: XcharId(value.which),
        data: value.data.to_vec(),
    };
    let designs = value.read::<InvalidationDesigns>().ok()??;
    designs.answered().map(Design::name)
}

/// A value that is known, as a program reads it.
fn read(value: &XcharValView<'_>) -> Option<Value> {
    let value = XcharVal {
        which: XcharId(value.which),
        data: value.data.to_vec(),
    };
    let size = value.read::<ReceiveBufferSize>().ok()?;
    let invalidation = value.read::<RequesterRemoteInvalidation>().ok()?;
    let designs = value.read::<InvalidationDesigns>().ok()?;
    let backward = value.read::<BackwardRequestSupport>().ok()?;
    let backward = backward.map(|support| match support {
        BackwardSupport::None => "none",
        BackwardSupport::Inline => "inline",
        BackwardSupport::General => "general",
    });
    (size.map(|size| size.bytes().into()))
        .or(invalidation.map(Value::from))
        .or(backward.map(Value::from))
        .or(designs
            .and_then(DesignBits::answered)
            .map(|design| design.name().into()))
}

/// Adds the operations that the peer takes in, beyond the first.
async fn look_at_operations(
    talk: &mut Conversation,
    ours: PrivateData,
    operations: &mut Vec<&'static str>,
) -> Result<(), NoAnswer> {
    talk.tell(&Operation::UpdXch(UpdXch {
        now: XcharVal::of::<ReceiveBufferSize>(&receive_size(ours)),
        pendclr: false,
    }));
    let heard = talk.operate(&Operation::ReqXch(ReqXch::default())).await?;
    let answered = match body(&heard.message) {
        Some(BodyView::Optional(optional)) => optional.operation == Some(code::RESPXCH),
        _ => false,
    };
    if answered {
        // Whoever takes in the one answers with the other, and takes that in too (xcharext §4).
        operations.extend(["ROPT_REQXCH", "ROPT_RESPXCH"]);
    }
    // It is answered in the order in which it was sent, so that a refusal would be here.
    if talk.refusal().is_none() {
        operations.push("ROPT_UPDXCH");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_proto::header::{error_code as one, procedure};
    use rpcrdma_proto::v2::header::Direction;
    use serde_json::json;
    use verbs::Buffer;

    fn of(message: &[u8]) -> VersionTwo {
        of_message(message, &Registry::standard())
    }

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn refusal_is_understood_whichever_version_it_has() {
        for version in [1, 2] {
            let refusal = message(&[7, version, 32, procedure::ERROR, one::VERS, 1, 1]);
            assert_eq!(of(&refusal), VersionTwo::ErrVers { low: 1, high: 1 });
        }
    }

    #[test]
    fn version_two_without_characteristics_is_no_refusal() {
        let refusal = message(&[7, 2, 32, procedure::ERROR, error_code::INVAL_OPTION]);
        let expected = Spoken {
            credits_granted: 32,
            ..Spoken::default()
        };
        assert_eq!(of(&refusal), VersionTwo::Spoken(expected));
    }

    #[test]
    fn what_makes_no_sense_is_shown_as_it_is() {
        let odd = |words: &[u32], expected: &str| match of(&message(words)) {
            VersionTwo::Spoken(Spoken { odd, .. }) => assert_eq!(odd.as_deref(), Some(expected)),
            VersionTwo::Error { detail } => assert_eq!(detail, expected),
            other => panic!("{other:?}"),
        };
        odd(
            &[7, 2, 32, procedure::MSG, 1, 0, 0, 0],
            "it answered with procedure 0",
        );
        // ERR_VERS without its range.
        odd(
            &[7, 2, 32, procedure::ERROR, one::VERS, 1],
            "it answered ROPT_INITXCH with error 1",
        );
        odd(
            &[7, 2, 32, procedure::ERROR],
            "it answered ROPT_INITXCH with an error without a code",
        );
        odd(
            &[7, 1, 32, procedure::MSG, 0, 0, 0],
            "a message of version 1, procedure 0",
        );
        odd(&[7, 2], "a message of 8 bytes");
        odd(
            &[7, 2, 32, 5, 1, code::RESPXCH, 0],
            "it answered ROPT_INITXCH with operation 3",
        );
    }

    #[test]
    fn another_draft_is_named() {
        let check = |words: &[u32], detail: &str, drafts| {
            let expected = VersionTwo::OtherDraft {
                detail: detail.to_owned(),
                drafts,
            };
            assert_eq!(of(&message(words)), expected);
        };
        check(
            &[7, 2, 32, procedure::ERROR, 9],
            "error code 9 of cel-04 to cel-09 or ietf-00 to ietf-07",
            Some("cel-04 to cel-09 or ietf-00 to ietf-07"),
        );
        check(&[7, 2, 32, 77], "header type 77, which no draft has", None);
    }

    #[test]
    fn characteristics_are_shown_with_their_values() {
        let init = InitXch::default()
            .with::<ReceiveBufferSize>(&ReceiveSize::new(16384).unwrap())
            .with::<RequesterRemoteInvalidation>(&true)
            .with::<BackwardRequestSupport>(&BackwardSupport::General);
        let mut bytes = Buffer::default();
        Operation::InitXch(init).emit(&mut bytes, 7, 64, Direction::Reply);
        let VersionTwo::Spoken(spoken) = of(&bytes) else {
            panic!("it is version two");
        };
        assert_eq!((spoken.credits_granted, &spoken.odd), (64, &None));
        let shown = spoken.characteristics.unwrap();
        let brief: Vec<_> = (shown.iter())
            .map(|c| (c.id, c.value.clone(), c.bytes.as_str(), c.fixed))
            .collect();
        assert_eq!(
            brief,
            [
                (1, Some(json!(16384)), "00004000", false),
                (2, Some(json!(true)), "00000001", true),
                (3, Some(json!("general")), "00000002", true)
            ]
        );
    }

    #[test]
    fn malformed_introduction_is_shown_as_far_as_it_goes() {
        // Two values are announced, one of which is unknown, and the other cut off.
        let bytes = message(&[7, 2, 32, 5, 1, code::INITXCH, 16, 2, 99, 4, 5]);
        let VersionTwo::Spoken(spoken) = of(&bytes) else {
            panic!("it is version two");
        };
        assert!(spoken.odd.unwrap().contains("malformed"));
        let shown = spoken.characteristics.unwrap();
        assert_eq!((shown.len(), shown[0].id, shown[0].name), (1, 99, None));
    }
}
