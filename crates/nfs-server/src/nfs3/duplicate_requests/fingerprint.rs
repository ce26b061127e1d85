//! Fingerprints of calls: calls with the same fingerprint count as the same call.

use nfs_proto::{NFS_PROGRAM, Procedure};
use oncrpc::xdr::{Error, Reader};
use oncrpc::{Call, Credential, PeerGroup};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::{Hash, Hasher};
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer};

/// Bytes of the arguments that are hashed with SipHash: all, for most calls. Of the rest, which is data of
/// a WRITE, samples are hashed with XXH3: to hash a megabyte would read all of it into the cache.
const HEAD: usize = 512;

/// Distance of the samples: the first bytes of each page, where databases and file systems have checksums
/// and sequence numbers of the page.
const SAMPLE_EVERY: usize = 4096;

/// Bytes of a sample, and bytes at the end of the arguments that are hashed, too. Linux hashes the first 256 bytes of
/// a call, and no others (`RC_CSUMLEN`).
const SAMPLE: usize = 64;

/// Bytes of a secret for XXH3.
const SECRET: usize = 192;

/// Secret keys of the hashes, so that no client can construct a call with the fingerprint of
/// another one.
pub(super) struct Fingerprints {
    key: [u8; 16],
    secret: [u8; SECRET],
}

/// Identity of a call.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    pub(super) fingerprint: u128,
    pub(super) names: Names,
}

/// Hashes of what a call changes, together with its client: a name in a directory, or a file; a RENAME
/// and a LINK change two. 0 is nothing.
pub(super) type Names = [u64; 2];

/// A directory and a name in it, or a file and nothing.
type Target<'a> = (&'a [u8], &'a [u8]);

impl Fingerprints {
    /// Fingerprints under random keys.
    pub(super) fn new() -> Self {
        let (mut key, mut secret) = ([0; 16], [0; SECRET]);
        // Without random keys the cache still works, except against malicious clients.
        let _ = getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut secret));
        Self { key, secret }
    }

    /// Returns the fingerprint of a call: of its client, XID, procedure and user, of the length of its arguments,
    /// and of their bytes, or samples of those behind [`HEAD`].
    ///
    /// A client is identified by its address without the port, and by its machine name, because
    /// several clients share an address behind NAT. The rest of the credential may change when a
    /// call is repeated.
    pub(super) fn of(&self, client: PeerGroup, call: &Call) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        client.hash(&mut hasher);
        for word in [call.xid, call.prog, call.vers, call.proc] {
            hasher.write_u32(word);
        }
        match &call.cred {
            Credential::Sys(sys) => {
                hasher.write_u32(sys.uid);
                hasher.write_u32(sys.gid);
                hasher.write_usize(sys.machine_name.len());
                hasher.write(&sys.machine_name);
            }
            Credential::None => {}
            Credential::Other { flavour, body } => {
                hasher.write_u32(*flavour);
                hasher.write(body);
            }
        }
        let len = call.args_len();
        let mut rest = (len > HEAD).then(|| self.hasher_of_rest());
        let mut at = 0;
        call.visit_args(|piece| {
            let (head, tail) = piece.split_at(piece.len().min(HEAD.saturating_sub(at)));
            hasher.write(head);
            if let Some(rest) = &mut rest {
                sample(tail, at + head.len(), len, |bytes| rest.write(bytes));
            }
            at += piece.len();
        });
        hasher.write_usize(len);
        if let Some(rest) = rest {
            hasher.write_u128(rest.finish_128());
        }
        hasher.finish128().as_u128()
    }

    /// Returns the identity of a call.
    pub(super) fn identity(&self, client: PeerGroup, call: &Call) -> Identity {
        let names = targets(call).unwrap_or_default();
        Identity {
            fingerprint: self.of(client, call),
            names: names.map(|target| target.map_or(0, |target| self.name(client, call, target))),
        }
    }

    fn name(&self, client: PeerGroup, call: &Call, target: Target<'_>) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        client.hash(&mut hasher);
        if let Credential::Sys(sys) = &call.cred {
            sys.machine_name.hash(&mut hasher);
        }
        target.hash(&mut hasher);
        hasher.finish()
    }

    fn hasher_of_rest(&self) -> RawHasher<&[u8; SECRET]> {
        let secret = SecretBuffer::new(0, &self.secret);
        RawHasher::new(secret.expect("the secret has the size that XXH3 asks for"))
    }
}

/// Passes the sampled bytes of a piece to `hash`: a piece that begins at `at` of arguments of `len` bytes. How the arguments are
/// cut into pieces makes no difference.
fn sample(piece: &[u8], at: usize, len: usize, mut hash: impl FnMut(&[u8])) {
    let end = at + piece.len();
    let last = len.saturating_sub(SAMPLE);
    // Each byte at most once, in order: of pages only those before the last ones.
    for page in (at / SAMPLE_EVERY * SAMPLE_EVERY..end.min(last)).step_by(SAMPLE_EVERY) {
        let bytes = page.max(at)..(page + SAMPLE).min(end).min(last);
        if !bytes.is_empty() {
            hash(&piece[bytes.start - at..bytes.end - at]);
        }
    }
    if last.max(at) < end {
        hash(&piece[last.max(at) - at..]);
    }
}

/// Reads what a call changes.
fn targets(call: &Call) -> Result<[Option<Target<'_>>; 2], Error> {
    fn file<'a>(r: &mut Reader<'a>) -> Result<Option<Target<'a>>, Error> {
        Ok(Some((r.opaque(u32::MAX)?, &[])))
    }
    fn name<'a>(r: &mut Reader<'a>) -> Result<Option<Target<'a>>, Error> {
        Ok(Some((r.opaque(u32::MAX)?, r.opaque(u32::MAX)?)))
    }
    let mut r = call.args();
    let procedure = match call.prog {
        NFS_PROGRAM => Procedure::try_from(call.proc).unwrap_or(Procedure::Null),
        // SETACL of NFSACL.
        _ => Procedure::SetAttr,
    };
    Ok(match procedure {
        Procedure::SetAttr | Procedure::Write => [file(&mut r)?, None],
        Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir => [name(&mut r)?, None],
        Procedure::Rename => [name(&mut r)?, name(&mut r)?],
        Procedure::Link => [file(&mut r)?, name(&mut r)?],
        _ => [None, None],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Sampled bytes of arguments that come in pieces of these lengths.
    fn sampled(args: &[u8], head: usize, pieces: &[usize]) -> Vec<u8> {
        let (mut sampled, mut at) = (Vec::new(), head);
        let mut pieces = pieces.iter().copied();
        while at < args.len() {
            let piece = pieces.next().unwrap_or(args.len()).min(args.len() - at);
            sample(&args[at..at + piece], at, args.len(), |bytes| {
                sampled.extend(bytes)
            });
            at += piece;
        }
        sampled
    }

    proptest! {
        #[test]
        fn samples_do_not_depend_on_pieces(len in HEAD..40_000usize, pieces in vec(1..9_000usize, 0..20)) {
            let args: Vec<u8> = (0..=250).cycle().take(len).collect();
            prop_assert_eq!(sampled(&args, HEAD, &[]), sampled(&args, HEAD, &pieces));
        }
    }

    #[test]
    fn first_bytes_of_each_page_and_the_last_ones_are_sampled() {
        let len = 3 * SAMPLE_EVERY;
        let changes = |at: usize| {
            let before = vec![0; len];
            let mut after = before.clone();
            after[at] = 1;
            sampled(&before, HEAD, &[]) != sampled(&after, HEAD, &[])
        };
        for at in [
            SAMPLE_EVERY,
            SAMPLE_EVERY + SAMPLE - 1,
            2 * SAMPLE_EVERY,
            len - SAMPLE,
            len - 1,
        ] {
            assert!(changes(at), "{at}");
        }
        for at in [
            HEAD,
            SAMPLE_EVERY - 1,
            SAMPLE_EVERY + SAMPLE,
            len - SAMPLE - 1,
        ] {
            assert!(!changes(at), "{at}");
        }
    }
}
