//! Random values from a seed.

use crate::args::{CreateHow, Node};
use crate::mount::{MountStatus, Mounted};
use crate::*;

/// A small generator (splitmix64): a failure is repeated with its seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    /// Bytes of any length up to `limit`, often short, and often that long.
    fn bytes(&mut self, limit: usize) -> &'static [u8] {
        static BYTES: [u8; 4096] = {
            let mut bytes = [1u8; 4096];
            let mut at = 1;
            while at < bytes.len() {
                bytes[at] = bytes[at - 1].wrapping_mul(5).wrapping_add(3);
                at += 1;
            }
            bytes
        };
        let limit = limit.min(BYTES.len());
        let len = match self.below(8) {
            0 => limit,
            1 => self.below(limit + 1),
            _ => self.below(limit.min(40)),
        };
        let at = self.below(BYTES.len() - len + 1);
        &BYTES[at..at + len]
    }
}

pub(crate) trait Sample {
    fn sample(rng: &mut Rng) -> Self;
}

macro_rules! sample {
    ($($ty:ty: |$rng:ident| $value:expr;)*) => {
        $(impl Sample for $ty {
            fn sample($rng: &mut Rng) -> Self {
                $value
            }
        })*
    };
}

sample! {
    (): |_rng| ();
    bool: |rng| rng.below(2) == 1;
    u32: |rng| (rng.next() >> 32) as u32;
    u64: |rng| rng.next();
    FileId: |rng| FileId(rng.next());
    Cookie: |rng| Cookie(rng.next());
    CookieVerifier: |rng| CookieVerifier(rng.next().to_be_bytes());
    CreateVerifier: |rng| CreateVerifier(rng.next().to_be_bytes());
    WriteVerifier: |rng| WriteVerifier(rng.next().to_be_bytes());
    Access: |rng| Access::from_bits_retain(u32::sample(rng));
    FsProperties: |rng| FsProperties::from_bits_retain(u32::sample(rng));
    FileHandle: |rng| FileHandle::new(rng.bytes(64)).unwrap();
    Data<'_>: |rng| rng.bytes(4096).into();
    Path<'_>: |rng| rng.bytes(4096).into();
    SetTime: |rng| match rng.below(3) {
        0 => SetTime::DontChange,
        1 => SetTime::ServerTime,
        _ => SetTime::ClientTime(Sample::sample(rng)),
    };
    CreateHow: |rng| match rng.below(3) {
        0 => CreateHow::Unchecked(Sample::sample(rng)),
        1 => CreateHow::Guarded(Sample::sample(rng)),
        _ => CreateHow::Exclusive(Sample::sample(rng)),
    };
    // The outside implementation cannot write the other types.
    Node: |rng| match rng.below(4) {
        0 => Node::Character(Sample::sample(rng), Sample::sample(rng)),
        1 => Node::Block(Sample::sample(rng), Sample::sample(rng)),
        2 => Node::Socket(Sample::sample(rng)),
        _ => Node::Fifo(Sample::sample(rng)),
    };
    acl::AclMask: |rng| acl::AclMask::from_bits_retain(u32::sample(rng));
    acl::AclList: |rng| acl::AclList {
        count: Sample::sample(rng),
        entries: (0..[0, 4, 1024][rng.below(3)]).map(|_| Sample::sample(rng)).collect(),
    };
    Mounted: |rng| Mounted {
        handle: Sample::sample(rng),
        flavors: (0..rng.below(4)).map(|_| Sample::sample(rng)).collect(),
    };
    Result<Mounted, MountStatus>: |rng| match rng.below(2) {
        0 => Err(Sample::sample(rng)),
        _ => Ok(Sample::sample(rng)),
    };
}

impl<const LIMIT: u32> Sample for Bytes<'_, LIMIT> {
    fn sample(rng: &mut Rng) -> Self {
        Bytes::new(rng.bytes(LIMIT as usize)).unwrap()
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(rng: &mut Rng) -> Self {
        bool::sample(rng).then(|| T::sample(rng))
    }
}

impl<T: Sample, const LIMIT: u32> Sample for List<T, LIMIT> {
    fn sample(rng: &mut Rng) -> Self {
        List((0..rng.below(5)).map(|_| T::sample(rng)).collect())
    }
}

impl<T: Sample, F: Sample> Sample for Result<T, Failed<F>> {
    fn sample(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Err(Failed::new(Sample::sample(rng), F::sample(rng))),
            _ => Ok(T::sample(rng)),
        }
    }
}
