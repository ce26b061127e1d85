//! File identifiers.

use std::fmt;

/// Identifies a file within its file system, for as long as the file exists.
///
/// Between 1 and 40 bytes that only the file system interprets. Clients get them within sealed
/// handles, so that they come back unchanged or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    len: u8,
    /// Zero behind `len`, so that equal ids are equal as values.
    bytes: [u8; FileId::MAX],
}

impl FileId {
    /// Largest length of an id in bytes; with format, export and code it makes a handle of 64
    /// bytes.
    pub const MAX: usize = 40;

    /// Creates an id from bytes; `None` if there are none, or more than [`MAX`](Self::MAX).
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let mut all = [0; Self::MAX];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            len: u8::try_from(bytes.len()).ok()?,
            bytes: all,
        })
    }

    /// Creates an id of 24 bytes from three words.
    pub fn of_words(words: [u64; 3]) -> Self {
        let mut all = [0; Self::MAX];
        for (place, word) in all.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Self {
            len: 24,
            bytes: all,
        }
    }

    /// Returns the three words of an id of 24 bytes.
    pub fn words(&self) -> Option<[u64; 3]> {
        let (words, rest) = self.as_bytes().as_chunks::<8>();
        let words: &[[u8; 8]; 3] = words.try_into().ok()?;
        rest.is_empty().then(|| words.map(u64::from_be_bytes))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileId(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_1_to_40_bytes() {
        assert_eq!(FileId::new(&[]), None);
        assert_eq!(FileId::new(&[7; 41]), None);
        for len in 1..=FileId::MAX {
            let bytes = vec![7; len];
            assert_eq!(FileId::new(&bytes).unwrap().as_bytes(), bytes);
        }
        assert_ne!(FileId::new(&[7]), FileId::new(&[7, 0]));
    }

    #[test]
    fn words_come_back() {
        let id = FileId::of_words([1, u64::MAX, 3]);
        assert_eq!(id.words(), Some([1, u64::MAX, 3]));
        assert_eq!(FileId::new(id.as_bytes()), Some(id));
        assert_eq!(FileId::new(&[0; 23]).unwrap().words(), None);
        assert_eq!(FileId::new(&[0; 32]).unwrap().words(), None);
        assert_eq!(
            format!("{:?}", FileId::new(&[1, 0xab]).unwrap()),
            "FileId(01ab)"
        );
    }
}
