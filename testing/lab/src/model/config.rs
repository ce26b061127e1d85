//! Configuration of both ends.

use buffer::Pool;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{
    Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role, Versions,
    Xids,
};

/// Credits of a connection.
const CREDITS: u32 = 16;

/// An end of version two whose messages, and those of its peer, have up to `inline` bytes, with chunks of up to
/// `max_chunk` bytes and without remote invalidation.
pub(crate) fn config(role: Role, inline: InlineThreshold, max_chunk: usize) -> Config {
    Config {
        role,
        versions: Versions::Two,
        dialect: Dialect::default(),
        xids: Xids::starting_at(0x8000_0000),
        own: PrivateData {
            send: inline,
            receive: inline,
            remote_invalidation: false,
        },
        characteristics: Characteristics::default(),
        credits: CREDITS,
        first_grant: 0,
        backward_credits: 0,
        reserve_credit: false,
        max_chunk,
        max_segment: 0,
        registrations: Registrations::OF_CALLS,
        persistent: None,
        one_region: false,
        receives: Receives::Posted,
        pool: Pool::new(CREDITS as usize * max_chunk),
    }
}
