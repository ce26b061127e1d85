//! Which text is meant by version two.

use std::fmt;
use std::str::FromStr;

/// What two ends mean by `rdma_vers` 2. No text about it became an RFC, and they differ in their
/// bytes, so it is a value of the configuration: both ends have to be told the same.
///
/// Another dialect has another transport header. It gets a module of its own beside
/// [`header`](super::header), and its name here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02.
    #[default]
    Cel01,
}

/// There is no dialect of that name here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no dialect {0:?} of version two; known is {known}", known = Dialect::Cel01)]
pub struct UnknownDialect(pub String);

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Cel01];

    /// The short name.
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
        assert!(error.to_string().contains("known is cel-01"), "{error}");
    }
}
