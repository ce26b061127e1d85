//! Dialects of version two.

use std::fmt;
use std::str::FromStr;

/// A dialect of version two: the draft that defines `rdma_vers` 2. None became an RFC, and they
/// differ on the wire, so the dialect is configuration: both ends need the same.
///
/// Another dialect has another transport header. It would get a module beside
/// [`header`](super::header), and a variant here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02.
    #[default]
    Cel01,
}

/// The name is not that of a known dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0:?} of version two; known: {known}", known = Dialect::Cel01)]
pub struct UnknownDialect(pub String);

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 1] = [Self::Cel01];

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cel01 => "cel-01",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        let mut all = Self::ALL.into_iter();
        all.find(|dialect| dialect.name() == name)
            .ok_or_else(|| UnknownDialect(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_are_known_by_their_names() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.to_string().parse(), Ok(dialect));
        }
        let error = "ietf-07".parse::<Dialect>().expect_err("not built");
        assert!(error.to_string().contains("known: cel-01"), "{error}");
    }
}
