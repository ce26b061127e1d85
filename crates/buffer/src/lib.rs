//! Pooled, fixed-size memory that moves with the work.
//!
//! A [`Buffer`] is memory with exactly one owner. It is posted with a work request, is out of
//! reach until the completion brings it back, and returns to its [`Pool`] when it is dropped,
//! wherever that happens. [`Buffer::freeze`] turns it into shared, immutable [`Bytes`] without a
//! copy; the memory then returns when the last of them is dropped.
//!
//! This crate depends on neither RDMA, RPC nor sockets.
//!
//! # Example
//!
//! ```
//! use buffer::Pool;
//!
//! let pool = Pool::new(1 << 20);
//! let mut buffer = pool.take(4096);
//! buffer.extend_from_slice(b"hello");
//!
//! // Shared and immutable from here on, without a copy.
//! let shared = buffer.freeze();
//! let part = shared.slice(1..);
//! drop(shared);
//! assert_eq!(&part[..], b"ello");
//! assert_eq!(pool.stats().out, 4096);
//!
//! // The last reference returns the memory.
//! drop(part);
//! assert_eq!(pool.stats().out, 0);
//! assert_eq!(pool.stats().free, 4096);
//! ```

mod near;
mod pool;
mod setters;

pub use pool::{Lender, Pool, PoolStats};

use bytes::Bytes;
use smallvec::SmallVec;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A sequence of byte slices that is sent in order (gather list), each held by reference.
///
/// A gather list nearly always has one piece. Inline room for more would make messages and work
/// requests larger than what is moved in registers.
pub type Gather = SmallVec<[Bytes; 1]>;

/// Total length of all pieces in bytes.
#[inline]
pub fn gather_len(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

/// Initialised memory of a fixed capacity, of which the first [`len`](Self::len) bytes are data.
///
/// Dereferences to its data. The bytes between length and capacity are initialised but unspecified;
/// they are never sent to a peer.
pub struct Buffer {
    memory: Box<[u8]>,
    /// At most the length of the memory. With `u32` here, a work request with its buffer is moved in fewer registers.
    capacity: u32,
    len: u32,
    home: Option<Arc<pool::Home>>,
}

impl Buffer {
    /// Creates an empty buffer of this capacity in bytes, which belongs to no pool.
    ///
    /// # Panics
    ///
    /// If the capacity is 4 GiB or more.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity: small(capacity),
            memory: vec![0; capacity].into_boxed_slice(),
            len: 0,
            home: None,
        }
    }

    fn pooled(memory: Box<[u8]>, home: Arc<pool::Home>) -> Self {
        Self {
            capacity: small(memory.len()),
            memory,
            len: 0,
            home: Some(home),
        }
    }

    /// Capacity in bytes: the length up to which the buffer does not grow.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Lowers the capacity to this many bytes, for this use: a peer that may write to the buffer is not to write to all of
    /// a larger memory of a pool.
    #[must_use]
    pub fn limited(mut self, capacity: usize) -> Self {
        if capacity < self.capacity() {
            self.capacity = small(capacity);
            self.truncate(capacity);
        }
        self
    }

    /// Length of the data in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the buffer has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes the data; the capacity stays.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Declares the first `len` bytes to be data.
    ///
    /// # Panics
    ///
    /// If `len` is beyond the capacity.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "a buffer's data lies within its capacity"
        );
        self.len = small(len);
    }

    /// Shortens the data to `len` bytes, if it is longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.len = small(len);
        }
    }

    /// The memory up to the capacity, for a receive or a read to fill.
    #[inline]
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.capacity as usize]
    }

    /// The memory up to the capacity.
    #[inline]
    pub fn memory(&self) -> &[u8] {
        &self.memory[..self.capacity as usize]
    }

    /// All memory, also beyond a [lower](Self::limited) capacity: what stays when the buffer goes back to its pool.
    pub fn whole_memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Appends bytes, moving to larger memory (outside the pool) where they do not fit.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let end = self.len() + bytes.len();
        self.memory[self.len as usize..end].copy_from_slice(bytes);
        self.len = small(end);
    }

    /// Makes room for `additional` bytes behind the data.
    ///
    /// A buffer that grows leaves its pool. This is meant for rare messages that are larger than
    /// expected.
    #[inline]
    pub fn reserve(&mut self, additional: usize) {
        if additional > self.capacity() - self.len() {
            self.grow(additional);
        }
    }

    #[cold]
    fn grow(&mut self, additional: usize) {
        let capacity = (self.len() + additional).max(self.capacity() * 2);
        let mut larger = Self::with_capacity(capacity);
        larger.memory[..self.len()].copy_from_slice(self);
        larger.len = self.len;
        *self = larger;
    }

    /// Attaches something to the memory of a pool, in place of what was attached before.
    ///
    /// It stays with the memory when that goes back to its pool and is handed out again, and is dropped right before
    /// the memory is freed: for a registration of the memory with a device, which must not outlive it.
    ///
    /// # Errors
    ///
    /// If the memory belongs to no pool, the attachment comes back.
    pub fn attach<T: Send + 'static>(&self, attachment: T) -> Result<(), T> {
        match &self.home {
            Some(home) if !self.memory.is_empty() => {
                home.attach(&self.memory, Box::new(attachment));
                Ok(())
            }
            Some(_) | None => Err(attachment),
        }
    }

    /// The data as shared, immutable bytes, without a copy.
    ///
    /// This allocates the small shared count that [`Bytes`] needs (about 20 ns, measured beside a
    /// copy of 4 KiB at 97 ns), so it is for payload that moves by reference, not for headers.
    pub fn freeze(self) -> Bytes {
        if self.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(self)
    }
}

/// The length of a buffer as it is kept.
#[inline]
fn small(len: usize) -> u32 {
    u32::try_from(len).expect("a buffer has less than 4 GiB")
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            pool::give_back(std::mem::take(&mut self.memory), home);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[..self.len as usize]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len as usize]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        let len = small(bytes.len());
        Self {
            memory: bytes.into_boxed_slice(),
            capacity: len,
            len,
            home: None,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_grows_past_the_capacity_and_is_kept() {
        let mut buffer = Buffer::with_capacity(4);
        buffer.extend_from_slice(b"abc");
        buffer.extend_from_slice(b"defgh");
        assert_eq!(&*buffer, b"abcdefgh");
    }

    #[test]
    fn lower_capacity_is_for_one_use_of_pooled_memory() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(8192).limited(5000);
        assert_eq!((buffer.capacity(), buffer.memory().len()), (5000, 5000));
        assert_eq!(
            (buffer.memory_mut().len(), buffer.whole_memory_mut().len()),
            (5000, 8192)
        );
        drop(buffer);
        let buffer = pool.take(8192);
        assert_eq!((buffer.capacity(), pool.stats().misses), (8192, 1));
        assert_eq!(buffer.limited(10_000).capacity(), 8192, "it does not grow");
    }

    #[test]
    fn frozen_data_is_only_the_data() {
        let mut buffer = Buffer::with_capacity(8);
        buffer.memory_mut().fill(7);
        buffer.set_len(3);
        assert_eq!(&buffer.freeze()[..], [7, 7, 7]);
    }

    #[test]
    fn attachment_stays_with_pooled_memory_and_is_dropped_with_it() {
        let (pool, count) = (Pool::new(1 << 20), Arc::new(()));
        let buffer = pool.take(1 << 20);
        assert!(buffer.attach(Arc::clone(&count)).is_ok());
        drop(buffer);
        let (buffer, other) = (pool.take(1 << 20), pool.take(1 << 20));
        assert_eq!(Arc::strong_count(&count), 2);
        // There is room for one of them in the pool.
        drop(other);
        assert_eq!(Arc::strong_count(&count), 2);
        drop(buffer);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn attachment_is_dropped_with_its_pool() {
        let (pool, count) = (Pool::new(1 << 20), Arc::new(()));
        assert!(pool.take(1 << 20).attach(Arc::clone(&count)).is_ok());
        drop(pool);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn attachment_replaces_the_one_before() {
        let pool = Pool::new(1 << 20);
        let buffer = pool.take(4096);
        let first = Arc::new(());
        assert!(buffer.attach(Arc::clone(&first)).is_ok());
        assert!(buffer.attach(5_u8).is_ok());
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn nothing_is_attached_to_memory_of_no_pool() {
        assert_eq!(Buffer::with_capacity(4).attach(5_u8), Err(5));
        assert_eq!(Pool::new(0).take(0).capacity(), 4096);
    }

    #[test]
    #[should_panic(expected = "within its capacity")]
    fn data_cannot_lie_beyond_the_memory() {
        Buffer::with_capacity(4).set_len(5);
    }
}
