//! Transport characteristics, which each end announces (xcharext §2, §3).
//!
//! On the wire a characteristic is an [`XcharVal`]: an id, and opaque bytes that hold the XDR of
//! its value. The meaning of an id is a type that implements [`Characteristic`]; those of the draft
//! are [`ReceiveBufferSize`], [`RequesterRemoteInvalidation`] and [`BackwardRequestSupport`]. A
//! [`Registry`] has those that an end knows, and validates the values of a peer.
//!
//! # Adding one
//!
//! The five points of xcharext §6.1 are an id, an XDR type, what is announced, how it is used, and
//! how it may change:
//!
//! ```
//! use rpcrdma_proto::v2::characteristics::{Characteristic, MayChange, Registry, ValueError};
//! use rpcrdma_proto::v2::characteristics::{XcharId, XcharSpec};
//!
//! /// Calls that a server keeps waiting at most; a client that knows has no more on their way.
//! struct Queue;
//!
//! impl Characteristic for Queue {
//!     type Value = u32;
//!
//!     const ID: XcharId = XcharId(4_294_967_100);
//!     const NAME: &str = "Queue";
//!     const XDR: &str = "unsigned int";
//!     const FIXED: bool = false;
//!
//!     fn default() -> u32 {
//!         16
//!     }
//!
//!     fn parse(r: &mut oncrpc::xdr::Reader<'_>) -> Result<u32, ValueError> {
//!         Ok(r.u32()?)
//!     }
//!
//!     fn emit(value: &u32, w: &mut oncrpc::xdr::Writer) {
//!         w.u32(*value);
//!     }
//!
//!     fn may_change(_from: &u32, _to: &u32) -> MayChange {
//!         MayChange::Unasked
//!     }
//! }
//!
//! let mut registry = Registry::standard();
//! registry.register::<Queue>().expect("its id is free");
//!
//! let mut spec = XcharSpec::default();
//! assert_eq!(spec.get::<Queue>(), None);
//! spec.set::<Queue>(&32);
//! assert!(registry.check(&spec).is_ok());
//! assert_eq!(spec.get::<Queue>(), Some(32));
//! ```

mod designs;
mod model;
mod registry;
mod standard;
mod subset;
#[cfg(test)]
mod tests;
mod view;

pub use designs::{DesignBits, InvalidationDesigns};
pub use model::{SpecMalformed, XcharId, XcharSpec, XcharVal};
pub use registry::{Descriptor, Oddities, RegisterError, Registry, SpecError};
pub use standard::{
    BackwardRequestSupport, BackwardSupport, ReceiveBufferSize, ReceiveSize,
    RequesterRemoteInvalidation,
};
pub use subset::XcharSubset;
pub use view::{SpecView, SubsetView, XcharValView};

use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use std::fmt;

/// The definition of a characteristic: the points of xcharext §6.1 as far as a program can use
/// them.
pub trait Characteristic: 'static {
    /// Type of its values.
    type Value: Clone + PartialEq + fmt::Debug;

    /// The id.
    const ID: XcharId;

    /// Name, for people.
    const NAME: &'static str;

    /// XDR type, for people.
    const XDR: &'static str;

    /// Whether values never change, so that the characteristic belongs in `optixch_nochg`.
    const FIXED: bool;

    /// Returns the default, assumed for an end that does not announce it (xcharext §3).
    fn default() -> Self::Value;

    /// Decodes a value from the bytes of an [`XcharVal`]. Trailing bytes are ignored.
    ///
    /// # Errors
    ///
    /// If the bytes are too few or not a valid value. The whole message is then malformed (xcharext
    /// §2.1).
    fn parse(r: &mut Reader<'_>) -> Result<Self::Value, ValueError>;

    /// Encodes a value, without by-reference items.
    fn emit(value: &Self::Value, w: &mut Writer);

    /// Returns how an announced value may change to another. By default a [`FIXED`](Self::FIXED)
    /// one never changes, and others change whenever their owner likes.
    fn may_change(from: &Self::Value, to: &Self::Value) -> MayChange {
        let _ = (from, to);
        if Self::FIXED {
            MayChange::Never
        } else {
            MayChange::Unasked
        }
    }

    /// Whether the peer permits less with `to` than with `from`. Such a change counts even where
    /// [`FIXED`](Self::FIXED) or `optixch_nochg` excludes changes: permission that is withdrawn
    /// must not be used (xcharext §3.2). By default no value permits anything.
    fn withdraws(from: &Self::Value, to: &Self::Value) -> bool {
        let _ = (from, to);
        false
    }
}

/// How a value may change during a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayChange {
    /// It may not change; a request to change it is rejected.
    Never,
    /// It may change if the peer requests it.
    OnRequest,
    /// Its owner may change it at any time and then notifies the peer. The peer may request a
    /// change, too.
    Unasked,
}

/// Why bytes are not a valid value of a characteristic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The bytes are not valid XDR of its type.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
    /// The value is below the minimum.
    #[error("{value} is less than {least}")]
    TooSmall {
        /// The value in the message.
        value: u32,
        /// The minimum.
        least: u32,
    },
    /// The value is invalid for another reason, which the type knows.
    #[error("{0}")]
    Invalid(&'static str),
}
