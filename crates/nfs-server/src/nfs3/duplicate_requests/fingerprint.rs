//! Fingerprints of calls: two calls with the same one are the same call.

use oncrpc::{Call, Credential, PeerGroup};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::{Hash, Hasher};
use twox_hash::xxhash3_128::{RawHasher, SecretBuffer};

/// Bytes of the arguments that go through SipHash: all of most calls. What is beyond, as the data of a
/// WRITE, goes through XXH3, which takes a tenth of the time.
const HEAD: usize = 512;

/// Bytes of a secret for XXH3.
const SECRET: usize = 192;

/// The keys under which calls are hashed, unknown to clients, so that none can make a call that is taken
/// for another.
pub(super) struct Fingerprints {
    key: [u8; 16],
    secret: [u8; SECRET],
}

impl Fingerprints {
    /// Fingerprints under random keys.
    pub(super) fn new() -> Self {
        let (mut key, mut secret) = ([0; 16], [0; SECRET]);
        // Without randomness the cache still works among clients that mean well.
        let _ = getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut secret));
        Self { key, secret }
    }

    /// The fingerprint of a call: of its client, XID and procedure, of who makes it, and of every byte of
    /// its arguments.
    ///
    /// The client is its address, without port, and the name of its machine: several share an address
    /// behind a translating router. What else the credential says may change when a call is repeated.
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
