//! Transport characteristics of a user's own (xcharext §6).

pub use rpcrdma_proto::v2::characteristics::{
    Characteristic, MayChange, RegisterError, ValueError, XcharId, XcharSpec, XcharVal,
};
pub use rpcrdma_proto::v2::session::ConfigError;

use rpcrdma_proto::Role;
use rpcrdma_proto::v2::characteristics::{InvalidationDesigns, Registry};
use rpcrdma_proto::v2::session::{self, Session};

/// Transport characteristics beside the standard ones, for connections of version two.
///
/// Each has a type that implements [`Characteristic`]. Both ends register those that they understand; a
/// value of one that the peer does not know is skipped there (xcharext §2.1). Where version one is
/// spoken nothing is said.
///
/// ```
/// use rpcrdma::characteristics::{Characteristic, CustomCharacteristics, ValueError, XcharId};
/// use rpcrdma::xdr::{Reader, Writer};
///
/// /// Number of the rack in which an end is.
/// enum Rack {}
///
/// impl Characteristic for Rack {
///     type Value = u32;
///     const ID: XcharId = XcharId(XcharId::FIRST_EXPERIMENTAL.0 + 100);
///     const NAME: &'static str = "Rack";
///     const XDR: &'static str = "uint32";
///     const FIXED: bool = true;
///
///     fn default() -> u32 {
///         0
///     }
///
///     fn parse(r: &mut Reader<'_>) -> Result<u32, ValueError> {
///         Ok(r.u32()?)
///     }
///
///     fn emit(value: &u32, w: &mut Writer) {
///         w.u32(*value);
///     }
/// }
///
/// # fn main() -> Result<(), rpcrdma::characteristics::CharacteristicError> {
/// let mine = CustomCharacteristics::default().with::<Rack>(&7)?;
/// let config = rpcrdma::ClientConfig::default()
///     .with_versions(rpcrdma::Versions::Auto)
///     .with_characteristics(mine);
/// # drop(config);
/// # Ok(())
/// # }
/// ```
///
/// What the peer has said is in [`ConnectionInfo`](crate::ConnectionInfo::peer_characteristics) of a
/// client and in [`ServerMonitor`](crate::ServerMonitor::peer_characteristics) of a server.
#[derive(Clone, Debug, Default)]
pub struct CustomCharacteristics {
    pub(crate) registry: Registry,
    pub(crate) values: XcharSpec,
}

/// Why a characteristic cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CharacteristicError {
    /// Its id is taken, or there are too many.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Its value is invalid, or all values together do not fit the first message of a connection
    /// (cel-01 §5).
    #[error(transparent)]
    Value(#[from] ConfigError),
}

impl CustomCharacteristics {
    /// Adds a characteristic that this end understands, without a value of its own.
    ///
    /// # Errors
    ///
    /// If its id is taken, or there are too many.
    pub fn understanding<C: Characteristic>(mut self) -> Result<Self, CharacteristicError> {
        // Its place in the registry is taken when a connection offers designs.
        if C::ID == InvalidationDesigns::ID {
            return Err(CharacteristicError::Register(RegisterError::Known {
                id: C::ID,
                name: InvalidationDesigns::NAME,
            }));
        }
        self.registry.register::<C>()?;
        Ok(self)
    }

    /// Adds a characteristic with the value that this end tells its peers.
    ///
    /// # Errors
    ///
    /// If its id is taken, there are too many, the value is invalid, or the values do not fit the first
    /// message of a connection.
    ///
    /// # Panics
    ///
    /// If the encoded value is longer than
    /// [`MAX_CHARACTERISTIC_LEN`](rpcrdma_proto::limits::MAX_CHARACTERISTIC_LEN), or has items by
    /// reference.
    pub fn with<C: Characteristic>(self, value: &C::Value) -> Result<Self, CharacteristicError> {
        let mut more = self.understanding::<C>()?;
        more.values.set::<C>(value);
        // What a client says is never shorter than what a server says.
        let config = session::Config {
            designs: rpcrdma_proto::Design::ALL.to_vec(),
            registry: more.registry.clone(),
            registered: more.values.clone(),
            ..session::Config::new(Role::Client)
        };
        Session::new(config)?;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::xdr::{Reader, Writer};

    /// So many bytes, under one of several ids.
    struct Bytes<const ID: u32>;

    impl<const ID: u32> Characteristic for Bytes<ID> {
        type Value = usize;
        const ID: XcharId = XcharId(ID);
        const NAME: &'static str = "Bytes";
        const XDR: &'static str = "opaque";
        const FIXED: bool = true;

        fn default() -> usize {
            0
        }

        fn parse(r: &mut Reader<'_>) -> Result<usize, ValueError> {
            Ok(r.remaining())
        }

        fn emit(value: &usize, w: &mut Writer) {
            w.fixed(&vec![1; *value]);
        }
    }

    #[test]
    fn ids_of_standard_characteristics_are_refused() {
        let none = CustomCharacteristics::default();
        let refused = |added: Result<CustomCharacteristics, _>| {
            matches!(added, Err(CharacteristicError::Register(_)))
        };
        assert!(refused(none.clone().with::<Bytes<1>>(&4)));
        let designs = Default::default();
        assert!(refused(none.clone().with::<InvalidationDesigns>(&designs)));
        let one = none.with::<Bytes<4_294_967_100>>(&4).unwrap();
        assert!(refused(one.understanding::<Bytes<4_294_967_100>>()));
    }

    #[test]
    fn values_that_do_not_fit_the_first_message_are_refused() {
        let too_long = |len: usize| {
            let added = CustomCharacteristics::default()
                .with::<Bytes<4_294_967_100>>(&400)
                .and_then(|one| one.with::<Bytes<4_294_967_101>>(&len));
            matches!(
                added.err(),
                Some(CharacteristicError::Value(ConfigError::TooLong(_)))
            )
        };
        assert!(!too_long(400));
        assert!(too_long(1000));
    }
}
