//! Errors by their owner: the command line, the file, or the machine.

use std::fmt;

/// A command line that cannot be understood, or makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A wrong file: a service that is started again fails again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misconfigured(pub String);

/// Several errors at the same time.
#[derive(Debug)]
pub struct Several(Vec<anyhow::Error>);

impl Several {
    /// One error for these, of which there is one at least.
    pub(crate) fn of(mut errors: Vec<anyhow::Error>) -> anyhow::Error {
        match (errors.len(), errors.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                errors.extend(last);
                Self(errors).into()
            }
        }
    }

    /// The single errors that one stands for.
    pub fn parts(error: &anyhow::Error) -> &[anyhow::Error] {
        match error.downcast_ref::<Self>() {
            Some(Self(parts)) => parts,
            None => std::slice::from_ref(error),
        }
    }
}

/// The first error and the number of the others, as for a log.
impl fmt::Display for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => Ok(()),
            [first, rest @ ..] => {
                let count = rest.len();
                write!(f, "{first:#} (and {count} more: --check shows all)")
            }
        }
    }
}

impl std::error::Error for Several {}

/// Fails if there are errors.
///
/// # Errors
///
/// The one, or [`Several`].
pub fn check_none(errors: Vec<anyhow::Error>) -> anyhow::Result<()> {
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Several::of(errors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn several_errors_are_the_first_one_and_a_number_in_a_log() {
        check_none(Vec::new()).unwrap();
        let one = check_none(vec![anyhow!("one")]).unwrap_err();
        assert_eq!(one.to_string(), "one");
        assert_eq!(Several::parts(&one).len(), 1);
        let all = check_none(vec![anyhow!("one"), anyhow!("two")]).unwrap_err();
        assert_eq!(all.to_string(), "one (and 1 more: --check shows all)");
        assert_eq!(Several::parts(&all).len(), 2);
    }
}
