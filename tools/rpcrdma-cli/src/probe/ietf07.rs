//! Probes the peer's support for version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it.
//!
//! The first message of the connection says what we are (RDMA2_CONNPROP_FINAL). A peer of that draft says
//! what it is, in one message or in several, and each of its messages has credits. Others refuse the
//! first message with ERR_VERS, or take it for one of another draft.

use super::answer;
use super::conversation::{Conversation, NoAnswer};
use super::report::hex;
use super::version_two::{Property, Spoken, VersionTwo, other_draft};
use oncrpc::Chain;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::v2::header::HeaderView;
use rpcrdma_proto::v2::ietf07::{
    BodyView, PropertySet, ReverseSupport, VERSION, header_type, property,
};
use rpcrdma_proto::v2::{Dialect, Foreign};
use serde_json::Value;

/// Messages with properties that are listened to.
const MAX_MESSAGES: usize = 16;

/// Properties that are shown.
const MAX_SHOWN: usize = 64;

/// Asks all of it, as the first message of a connection.
pub(super) async fn look(talk: &mut Conversation, ours: PrivateData) -> VersionTwo {
    let size = |bytes: usize| u32::try_from(bytes).ok();
    talk.introduce(&PropertySet {
        max_send: size(ours.send.bytes()),
        receive_buffer: size(ours.receive.bytes()),
        ..PropertySet::default()
    });
    let mut spoken = Spoken {
        dialect: Dialect::Ietf07.name(),
        ..Spoken::default()
    };
    for at in 0..MAX_MESSAGES {
        let message = match talk.next_message().await {
            Ok(message) => message,
            Err(error) if at == 0 => return nothing(&error),
            Err(error) => {
                spoken.odd = Some(format!(
                    "its last properties are missing: {}",
                    Chain(&error)
                ));
                return VersionTwo::Spoken(spoken);
            }
        };
        match take(&message, &mut spoken) {
            Took::Some => {}
            Took::Last => return VersionTwo::Spoken(spoken),
            Took::Other(found) => return found,
        }
    }
    spoken.odd = Some("its properties do not end".to_owned());
    VersionTwo::Spoken(spoken)
}

fn nothing(error: &NoAnswer) -> VersionTwo {
    VersionTwo::Nothing {
        detail: Chain(error).to_string(),
    }
}

/// Kind of a message.
enum Took {
    /// Something of a peer that has more to say.
    Some,
    /// The last that it has to say.
    Last,
    /// None of this draft.
    Other(VersionTwo),
}

/// Adds what a message says.
fn take(message: &[u8], spoken: &mut Spoken) -> Took {
    if let Some((low, high)) = answer::supported(message) {
        return Took::Other(VersionTwo::ErrVers { low, high });
    }
    let header = match HeaderView::new(message) {
        Some(header) if header.version() == VERSION => header,
        Some(header) => {
            let (version, procedure) = (header.version(), header.procedure());
            let detail = format!("a message of version {version}, procedure {procedure}");
            return Took::Other(VersionTwo::Error { detail });
        }
        None => {
            let detail = format!("a message of {} bytes", message.len());
            return Took::Other(VersionTwo::Error { detail });
        }
    };
    if let Some(foreign) = Foreign::in_message(Dialect::Ietf07, message) {
        return Took::Other(other_draft(foreign));
    }
    // ietf-07 §4.2.1: they count from the first message, and one was sent.
    spoken.credits_granted = header.credits().saturating_sub(1);
    let htype = header.procedure();
    match BodyView::new(htype, &message[HeaderView::FIXED_LEN..]) {
        BodyView::Properties(view) => {
            let all = spoken.properties.get_or_insert_default();
            for value in &view.set.values {
                if all.len() < MAX_SHOWN {
                    all.push(shown(value.which, value.data));
                }
            }
            if let Some(error) = view.error {
                spoken.odd = Some(format!("its properties are malformed: {error}"));
                return Took::Last;
            }
            match htype {
                header_type::CONNPROP_FINAL => Took::Last,
                _ => Took::Some,
            }
        }
        BodyView::Grant => Took::Some,
        BodyView::Error(error) => {
            spoken.odd = Some(match error.code {
                Some(code) => format!("it answered RDMA2_CONNPROP_FINAL with error {code}"),
                None => "it answered RDMA2_CONNPROP_FINAL with an error without a code".to_owned(),
            });
            Took::Last
        }
        BodyView::Rpc(_) | BodyView::Part(_) | BodyView::Unknown => {
            spoken.odd = Some(format!("it answered with header type {htype}"));
            Took::Last
        }
    }
}

/// A property, known or not, valid or not.
fn shown(id: u32, data: &[u8]) -> Property {
    let number = data.first_chunk().copied().map(u32::from_be_bytes);
    let (name, value) = match id {
        property::SBSIZ => ("Maximum Send Size", number.map(Value::from)),
        property::RBSIZ => ("Receive Buffer Size", number.map(Value::from)),
        property::RSSIZ => ("Maximum Segment Size", number.map(Value::from)),
        property::RCSIZ => ("Maximum Segment Count", number.map(Value::from)),
        property::BRS => ("Reverse-Direction Support", number.and_then(level)),
        property::HOSTAUTH => ("Host Authentication Message", None),
        _ => ("", None),
    };
    Property {
        id,
        name: Some(name).filter(|name| !name.is_empty()),
        value,
        bytes: hex(data),
    }
}

/// The name of a level of support, if it is one.
fn level(word: u32) -> Option<Value> {
    let level = ReverseSupport::from_word(word);
    let name = match level {
        ReverseSupport::None => "none",
        ReverseSupport::Simple => "simple",
        ReverseSupport::Continued => "continued",
        ReverseSupport::General => "general",
    };
    (level.word() == word).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// Findings in a sequence of messages.
    fn found(messages: &[&[u32]]) -> VersionTwo {
        let mut spoken = Spoken::default();
        for words in messages {
            if let Took::Other(found) = take(&message(words), &mut spoken) {
                return found;
            }
        }
        VersionTwo::Spoken(spoken)
    }

    #[test]
    fn properties_of_several_messages_are_shown_with_their_values() {
        let VersionTwo::Spoken(spoken) = found(&[
            &[
                7,
                2,
                9,
                header_type::CONNPROP_MIDDLE,
                2,
                2,
                4,
                8192,
                99,
                2,
                0x0102_0000,
            ],
            &[0, 2, 33, header_type::GRANT],
            &[
                8,
                2,
                65,
                header_type::CONNPROP_FINAL,
                3,
                5,
                4,
                2,
                5,
                4,
                7,
                1,
                0,
            ],
        ]) else {
            panic!("it is version two");
        };
        assert_eq!((spoken.credits_granted, &spoken.odd), (64, &None));
        let shown = spoken.properties.unwrap();
        let brief: Vec<_> = (shown.iter())
            .map(|p| (p.id, p.name.is_some(), p.value.clone(), p.bytes.as_str()))
            .collect();
        assert_eq!(
            brief,
            [
                (2, true, Some(json!(8192)), "00002000"),
                (99, false, None, "0102"),
                (5, true, Some(json!("continued")), "00000002"),
                (5, true, None, "00000007"),
                (1, true, None, ""),
            ]
        );
    }

    #[test]
    fn what_is_none_of_the_draft_is_shown_as_it_is() {
        let refused = found(&[&[7, 2, 32, header_type::ERROR, 1, 1, 1]]);
        assert_eq!(refused, VersionTwo::ErrVers { low: 1, high: 1 });
        let other = found(&[&[7, 2, 32, 5, 1, 1, 8, 0, 0]]);
        assert!(matches!(other, VersionTwo::OtherDraft { .. }), "{other:?}");
        let odd = |words: &[u32], expected: &str| match found(&[words]) {
            VersionTwo::Spoken(Spoken { odd, .. }) => assert_eq!(odd.as_deref(), Some(expected)),
            VersionTwo::Error { detail } => assert_eq!(detail, expected),
            other => panic!("{other:?}"),
        };
        odd(
            &[7, 2, 32, header_type::ERROR, 2],
            "it answered RDMA2_CONNPROP_FINAL with error 2",
        );
        odd(
            &[7, 2, 32, header_type::REPLY_INLINE, 0],
            "it answered with header type 13",
        );
        odd(
            &[7, 1, 32, 0, 0, 0, 0],
            "a message of version 1, procedure 0",
        );
        odd(&[7, 2], "a message of 8 bytes");
        match found(&[&[7, 2, 32, header_type::CONNPROP_FINAL, 2, 2, 400, 0]]) {
            VersionTwo::Spoken(Spoken { odd: Some(odd), .. }) => {
                assert!(odd.contains("malformed"), "{odd}");
            }
            other => panic!("{other:?}"),
        }
    }
}
