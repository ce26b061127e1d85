//! Cases against Responders.

mod base;
mod credits;
mod ddp;
mod header;
mod ietf07;
mod invalidation;
mod mpa;
mod nfs;
mod private_data;
mod read_chunks;
mod reply_chunks;
mod results;
mod two;
mod two_operations;
mod write_chunks;

use crate::case::Case;

/// All cases, in the order in which they run.
pub(crate) fn cases() -> impl Iterator<Item = &'static Case> {
    [
        base::CASES,
        credits::CASES,
        header::CASES,
        read_chunks::CASES,
        write_chunks::CASES,
        reply_chunks::CASES,
        nfs::CASES,
        private_data::CASES,
        invalidation::CASES,
        mpa::CASES,
        ddp::CASES,
        two::CASES,
        two_operations::CASES,
        ietf07::CASES,
        ietf07::calls::CASES,
    ]
    .into_iter()
    .flatten()
}
