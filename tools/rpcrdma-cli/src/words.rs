//! Options whose values are words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rpcrdma_daemon::config::words::Word;

/// Parser of an option with a word.
pub(crate) fn word<T: Word>() -> impl TypedValueParser<Value = T> {
    let values = T::WORDS.iter().map(|named| {
        let value = PossibleValue::new(named.word);
        match named.about {
            "" => value,
            about => value.help(about),
        }
    });
    PossibleValuesParser::new(values).try_map(|text| {
        let named = T::WORDS.iter().find(|named| named.word == text);
        named
            .map(|named| named.value)
            .ok_or("it is none of the words")
    })
}
