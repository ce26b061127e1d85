//! Fingerprints of calls: calls with the same fingerprint count as the same call.

use nfs_proto::{NFS_PROGRAM, Procedure};
use oncrpc::xdr::{Error, Reader};
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

    /// Returns the fingerprint of a call: of its client, XID, procedure and user, and of all bytes
    /// of its arguments.
    ///
    /// A client is identified by its address without the port, and by its machine name, because
    /// several clients share an address behind NAT. The rest of the credential may change when a
    /// call is repeated.
    pub(super) fn of(&self, client: PeerGroup, call: &Call) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        client.hash(&mut hasher);
        hasher.write_u128(as_one([call.xid, call.prog, call.vers, call.proc]));
        match &call.cred {
            Credential::Sys(sys) => {
                let len = u32::try_from(sys.machine_name.len()).unwrap_or(u32::MAX);
                hasher.write_u128(as_one([sys.uid, sys.gid, len, 0]));
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

    /// Returns the identity of a call.
    pub(super) fn identity(&self, client: PeerGroup, call: &Call) -> Identity {
        let names = targets(call).unwrap_or_default();
        Identity {
            fingerprint: self.of(client, call),
            names: names.map(|target| target.map_or(0, |target| self.name(client, call, target))),
        }
    }

    fn name(&self, client: PeerGroup, call: &Call, (file, name): Target<'_>) -> u64 {
        let machine: &[u8] = match &call.cred {
            Credential::Sys(sys) => &sys.machine_name,
            Credential::None | Credential::Other { .. } => &[],
        };
        let mut hasher = SipHasher24::new_with_key(&self.key);
        client.hash(&mut hasher);
        let lens =
            [machine, file, name].map(|bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        hasher.write_u128(as_one([lens[0], lens[1], lens[2], 0]));
        for bytes in [machine, file, name] {
            hasher.write(bytes);
        }
        hasher.finish()
    }

    fn hasher_of_rest(&self) -> RawHasher<&[u8; SECRET]> {
        let secret = SecretBuffer::new(0, &self.secret);
        RawHasher::new(secret.expect("the secret has the size that XXH3 asks for"))
    }
}

/// Numbers as one: a piece costs the hash more than its bytes do.
fn as_one(words: [u32; 4]) -> u128 {
    words
        .into_iter()
        .fold(0, |all, word| all << 32 | u128::from(word))
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
