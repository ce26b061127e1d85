//! Configuration of one end, drawn from the input.

use super::owner::Budget;
use super::{MAX_CHUNK, peer};
use crate::hand::Hand;
use crate::script::Script;
use buffer::Pool;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::BackwardSupport;
use rpcrdma_proto::v2::operations::Supported;
use rpcrdma_proto::{
    Characteristics, Config, Design, InlineThreshold, PersistentArguments, PrivateData, Receives,
    Registration, Registrations, Role, Versions, Xids,
};
use std::ops::Range;
use verbs::{Invalidation, Limits};

/// First bytes of inputs that have version two in them. Few did before there was one.
const TWO: Range<u8> = 128..240;

/// Configuration of one end, and its surroundings.
pub(super) struct Setup {
    pub(super) config: Config,
    /// Private data of its peer.
    pub(super) peer: Option<PrivateData>,
    pub(super) hand: Hand,
    pub(super) budget: Budget,
    /// Whether items of Long calls and results of long replies go in chunks of their own.
    pub(super) mixed: bool,
}

/// Makes the configuration of an end, the private data of its peer, and the limits under it.
pub(super) fn setup(role: Role, script: &mut Script<'_>) -> Setup {
    let versions = versions(script);
    let mut config = Config {
        role,
        versions,
        dialect: Dialect::default(),
        xids: Xids::starting_at(1 << 31),
        own: private_data(script),
        characteristics: Characteristics::default(),
        credits: 1 + u32::from(script.byte() % 8),
        first_grant: 0,
        backward_credits: u32::from(script.byte() % 4),
        reserve_credit: script.one_in(4),
        max_chunk: MAX_CHUNK,
        max_segment: script.pick(&[0, 0, 4096, 5001]),
        registrations: Registrations::OF_CALLS,
        persistent: None,
        one_region: false,
        receives: Receives::Posted,
        pool: Pool::new(1 << 20),
    };
    let mixed = script.flag();
    let budget = Budget::new(script.pick(&[40_000, 1 << 20]));
    let peer = (!script.one_in(4)).then(|| private_data(script));
    let mut hand = Hand::new(script);
    // Not drawn itself, so that the scripts of the corpus mean what they meant.
    config.one_region = hand.limits.outstanding_reads == 3;
    if versions != Versions::One {
        of_version_two(script, &mut config, &mut hand.limits);
    }
    Setup {
        config,
        peer,
        hand,
        budget,
        mixed,
    }
}

fn versions(script: &mut Script<'_>) -> Versions {
    match script.peek() {
        Some(first) if TWO.contains(&first) => {
            script.byte();
            script.pick(&[Versions::Auto, Versions::Two])
        }
        Some(_) | None => Versions::One,
    }
}

/// Decides the values that matter only where version two may be spoken.
fn of_version_two(script: &mut Script<'_>, config: &mut Config, limits: &mut Limits) {
    let sizes = [1024, 8 << 10, 5 << 10, peer::LARGEST];
    let size = |script: &mut Script<'_>| InlineThreshold::at_most(script.pick(&sizes));
    config.characteristics = Characteristics {
        supported: match script.one_in(4) {
            true => script.pick(&Supported::ALL),
            false => Supported::All,
        },
        raise_to: size(script),
        largest: size(script),
        largest_sent: size(script),
        backward: script.pick(&[
            BackwardSupport::General,
            BackwardSupport::Inline,
            BackwardSupport::None,
        ]),
        designs: match script.below(8) {
            0 | 1 => Vec::new(),
            2 => Design::ALL.to_vec(),
            3 => vec![Design::Fixed],
            4 => vec![Design::PerCall],
            5 => vec![Design::PerCallSeveral],
            _ => vec![Design::InterCall],
        },
        remote_invalidation_by_version: script.one_in(8),
        ..Characteristics::default()
    };
    if script.one_in(4) {
        limits.remote_invalidation = Invalidation::None;
    }
    if script.one_in(4) {
        config.registrations = config.registrations.with(Registration::Persistent);
        config.persistent = Some(PersistentArguments {
            regions: 1 + script.below(3),
            bytes: script.pick(&[64, 4096]),
        });
    }
    let wanted = config.own.remote_invalidation;
    config.own.remote_invalidation = config.registrations.remote_invalidation(wanted, limits);
}

fn private_data(script: &mut Script<'_>) -> PrivateData {
    let size = |byte: u8| InlineThreshold::at_most(1024 * (1 + usize::from(byte % 6)));
    PrivateData {
        send: size(script.byte()),
        receive: size(script.byte()),
        remote_invalidation: script.flag(),
    }
}
