//! Decisions taken from the bytes of an input, in order.
//!
//! Where they are used up every decision is the first of its choices, so that all inputs come to
//! an end, and a shorter input is a shorter story.

use std::borrow::Cow;

/// The decisions that are left.
pub(crate) struct Script<'a>(&'a [u8]);

/// Numbers at which something changes.
const EDGES: [u32; 12] = [
    0,
    1,
    3,
    4,
    16,
    0x7fff_ffff,
    0x8000_0000,
    0x1000_0000,
    u32::MAX - 3,
    u32::MAX - 1,
    u32::MAX,
    0x0100_0000,
];

impl<'a> Script<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether no decision is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, which is taken by nobody yet.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// One of so many.
    pub(crate) fn below(&mut self, choices: usize) -> usize {
        match choices {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % choices,
            _ => self.word() as usize % choices,
        }
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// True for one in so many.
    pub(crate) fn one_in(&mut self, choices: usize) -> bool {
        choices > 0 && self.below(choices) == choices - 1
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number that is small, at an edge, or any.
    pub(crate) fn number(&mut self) -> u32 {
        match self.byte() {
            small @ 0..128 => small.into(),
            edge @ 128..192 => EDGES[usize::from(edge) % EDGES.len()],
            192..224 => u32::from(u16::from_be_bytes([self.byte(), self.byte()])),
            224.. => self.word(),
        }
    }

    /// The same of 64 bits.
    pub(crate) fn long(&mut self) -> u64 {
        match self.byte() {
            small @ 0..128 => small.into(),
            128..160 => u64::MAX - u64::from(self.byte()),
            160.. => u64::from(self.number()) << 32 | u64::from(self.number()),
        }
    }

    /// The next bytes, as many as are wanted and left.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A stretch of bytes of a length that is taken from the script too.
    pub(crate) fn some(&mut self, most: usize) -> &'a [u8] {
        let len = self.below(most + 1);
        self.take(len)
    }

    /// Everything that is left, as it is or made into something: most bytes as they are would
    /// never get beyond the first words.
    pub(crate) fn rest_or(&mut self, make: impl FnOnce(&mut Self) -> Vec<u8>) -> Cow<'a, [u8]> {
        match self.byte() {
            0 => Cow::Borrowed(self.rest()),
            _ => Cow::Owned(make(self)),
        }
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
