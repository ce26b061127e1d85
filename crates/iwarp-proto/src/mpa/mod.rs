//! MPA connection setup (RFC 5044 §7.1, RFC 6581).

mod frame;
mod negotiate;

pub use frame::{
    Enhanced, Frame, FrameError, FrameReader, HeaderView, Kind, MAX_PRIVATE_DATA, NOT_NEGOTIATED,
    Revision, Rtr,
};
pub use negotiate::{
    Agreed, Initiator, MAX_DEPTH, Offer, REV1_ORD, Refusal, Requested, Responder, RtrMessage,
};
