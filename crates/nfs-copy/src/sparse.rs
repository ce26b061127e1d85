//! Holes of files: ranges without data, which read as zeros and take no space.

/// Bytes of a block that becomes part of a hole if all of them are zero, at a multiple of this in the file: what
/// file systems allocate at least.
pub(crate) const BLOCK: usize = 4096;

/// When a copy has holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// As the source has holes.
    #[default]
    Auto,
    /// Wherever there are zeros.
    Always,
    /// Nowhere.
    Never,
}

impl Sparse {
    /// Whether blocks of zeros of a file that takes up `used` bytes of its `size` are left out, where the source
    /// does not tell what is a hole.
    pub(crate) fn leaves_out_zeros(self, used: u64, size: u64) -> bool {
        match self {
            Self::Auto => used < size,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// A range of bytes that are either all zero, or are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) is_hole: bool,
}

/// Divides data that stands at this offset of a file into what is written and what is left out.
pub(crate) fn runs(data: &[u8], offset: u64) -> impl Iterator<Item = Run<'_>> {
    // Up to where the blocks of the file begin.
    let past = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
    let mut rest = data;
    let mut first = BLOCK - past;
    std::iter::from_fn(move || {
        let mut len = 0;
        let mut is_hole = None;
        while len < rest.len() {
            let end = rest.len().min(len + std::mem::replace(&mut first, BLOCK));
            let zero = is_zero(&rest[len..end]);
            if *is_hole.get_or_insert(zero) != zero {
                // The block begins the next run.
                first = end - len;
                break;
            }
            len = end;
        }
        let (data, behind) = rest.split_at(len);
        rest = behind;
        is_hole.map(|is_hole| Run { data, is_hole })
    })
}

fn is_zero(block: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    // Data ends this at once, and zeros are compared many at a time.
    block == &ZEROS[..block.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &[u8], offset: u64, expected: &[(usize, bool)]) {
        let found: Vec<_> = runs(data, offset)
            .map(|run| (run.data.len(), run.is_hole))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(
            runs(data, offset)
                .map(|run| run.data)
                .collect::<Vec<_>>()
                .concat(),
            data
        );
    }

    #[test]
    fn runs_begin_and_end_with_blocks_of_the_file() {
        let mut data = vec![0; 4 * BLOCK];
        check(&data, 0, &[(4 * BLOCK, true)]);
        check(&data, 7, &[(4 * BLOCK, true)]);
        data[2 * BLOCK] = 1;
        check(
            &data,
            0,
            &[(2 * BLOCK, true), (BLOCK, false), (BLOCK, true)],
        );
        // The block with the byte begins where one of the file does.
        let runs = [(BLOCK - 1, true), (BLOCK, false), (BLOCK, true)];
        check(&data[BLOCK + 1..], 1, &runs);
        check(&data[BLOCK..][..BLOCK + 1], 0, &[(BLOCK, true), (1, false)]);
        check(&[], 5, &[]);
        check(&[1; 3], 5, &[(3, false)]);
        check(&[0; 3], u64::MAX - 2, &[(3, true)]);
    }

    #[test]
    fn zeros_are_left_out_of_files_that_have_holes() {
        assert!(Sparse::Auto.leaves_out_zeros(0, 1) && !Sparse::Auto.leaves_out_zeros(4096, 1));
        assert!(Sparse::Always.leaves_out_zeros(4096, 1));
        assert!(!Sparse::Never.leaves_out_zeros(0, 1));
    }
}
