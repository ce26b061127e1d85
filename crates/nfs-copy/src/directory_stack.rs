//! Directories on the way down to what is copied.

use crate::error::Result;

/// Directories that were entered, each with what its owner needs of it.
#[derive(Debug)]
pub(crate) struct DirectoryStack<D> {
    entered: Vec<D>,
    /// Directories on the way down from one that could not be made, itself included: nothing in them is copied.
    without: usize,
}

impl<D> Default for DirectoryStack<D> {
    fn default() -> Self {
        Self {
            entered: Vec::new(),
            without: 0,
        }
    }
}

impl<D> DirectoryStack<D> {
    /// Whether the next directory is to be made. If it is not, it is on the way all the same.
    pub(crate) fn enters(&mut self) -> bool {
        if self.without > 0 {
            self.without += 1;
        }
        self.without == 0
    }

    /// A directory that was made, or could not be.
    ///
    /// # Errors
    ///
    /// Those that [end](crate::Error::ends) the copy.
    pub(crate) fn enter(&mut self, made: Result<D, Result<()>>) -> Result<()> {
        match made {
            Ok(dir) => self.entered.push(dir),
            Err(told) => {
                self.without = 1;
                told?;
            }
        }
        Ok(())
    }

    /// Leaves the last directory.
    pub(crate) fn leave(&mut self) {
        match self.without {
            0 => drop(self.entered.pop()),
            _ => self.without -= 1,
        }
    }

    /// Whether the last directory is there.
    pub(crate) fn is_there(&self) -> bool {
        self.without == 0
    }

    /// The last directory; none where the way begins.
    pub(crate) fn last(&self) -> Option<&D> {
        self.entered.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_copied_below_a_directory_that_could_not_be_made() {
        let mut way = DirectoryStack::default();
        assert!(way.is_there() && way.last().is_none());
        assert!(way.enters());
        way.enter(Ok(1)).unwrap();
        assert!(way.enters());
        way.enter(Err(Ok(()))).unwrap();
        assert!(!way.is_there());
        assert!(!way.enters(), "it is below");
        way.leave();
        assert!(!way.is_there());
        way.leave();
        assert!(way.is_there());
        assert_eq!(way.last(), Some(&1));
        way.leave();
        assert!(way.last().is_none());
    }
}
