//! Fingerprints of calls: calls with the same fingerprint count as the same call.

use oncrpc::{Call, Credential, PeerGroup};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::{Hash, Hasher};
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer};

/// Bytes of the arguments that are hashed with SipHash: all, for most calls. The rest, such as the
/// data of a WRITE, is hashed with XXH3, which takes a tenth of the time.
const HEAD: usize = 512;

/// Bytes of a secret for XXH3.
const SECRET: usize = 192;

/// Secret keys of the hashes, so that no client can construct a call with the fingerprint of
/// another one.
pub(super) struct Fingerprints {
    key: [u8; 16],
    secret: [u8; SECRET],
}

impl Fingerprints {
    /// Fingerprints under random keys.
    pub(super) fn new() -> Self {
        let (mut key, mut secret) = ([0; 16], [0; SECRET]);
        // Without random keys the cache still works, except against malicious clients.
        let _ = getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut secret));
        Self { key, secret }
    }

    /// Returns the fingerprint of a call: of its client, XID, procedure and user, and of all bytes
    /// of its arguments.
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
        let (mut len, mut left) = (0, HEAD);
        let mut rest = None;
        call.visit_args(|piece| {
            len += piece.len();
            let (head, tail) = piece.split_at(piece.len().min(left));
            hasher.write(head);
            left -= head.len();
            if !tail.is_empty() {
                rest.get_or_insert_with(|| self.hasher_of_rest())
                    .write(tail);
            }
        });
        hasher.write_usize(len);
        if let Some(rest) = rest {
            hasher.write_u128(rest.finish_128());
        }
        hasher.finish128().as_u128()
    }

    fn hasher_of_rest(&self) -> RawHasher<&[u8; SECRET]> {
        let secret = SecretBuffer::new(0, &self.secret);
        RawHasher::new(secret.expect("the secret has the size that XXH3 asks for"))
    }
}
