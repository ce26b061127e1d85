//! Principals of clients.

use oncrpc::Credential;
use oncrpc::auth::MAX_AUTH_BODY;
use oncrpc::xdr::{Error, Reader, Writer};

/// Kinds of principals in records.
const NONE: u32 = 0;
const SYS: u32 = 1;
const OTHER: u32 = 2;

/// The caller, as its credential says: whoever made a client id is the only one who can replace or destroy it (RFC 8881 §18.35.4,
/// §18.50.3), or reclaim after a restart what it had (RFC 8881 §8.4.2.1.1).
///
/// Of AUTH_SYS only the user counts. The name of the machine says nothing that another could not say, too, and changes when a
/// machine gets its name after it has mounted something; then it would be refused until its lease has run out. Groups are not
/// who somebody is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::nfs4) enum Principal {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS: the user.
    Sys(u32),
    /// A flavour that the server does not know: the same octets are the same principal.
    Other { flavour: u32, body: Box<[u8]> },
}

impl Principal {
    /// Returns the principal of a credential.
    pub(in crate::nfs4) fn of(cred: &Credential) -> Self {
        match cred {
            Credential::None => Self::None,
            Credential::Sys(sys) => Self::Sys(sys.uid),
            Credential::Other { flavour, body } => Self::Other {
                flavour: *flavour,
                body: body.clone(),
            },
        }
    }

    /// Writes it to a record.
    pub(in crate::nfs4) fn write(&self, w: &mut Writer) {
        match self {
            Self::None => w.u32(NONE),
            Self::Sys(uid) => w.words([SYS, *uid]),
            Self::Other { flavour, body } => {
                w.words([OTHER, *flavour]);
                w.opaque(body);
            }
        }
    }

    /// Reads it from a record.
    ///
    /// # Errors
    ///
    /// It is no principal.
    pub(in crate::nfs4) fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            NONE => Self::None,
            SYS => Self::Sys(r.u32()?),
            OTHER => Self::Other {
                flavour: r.u32()?,
                body: r.opaque(MAX_AUTH_BODY)?.into(),
            },
            value => {
                let of = "principal";
                return Err(Error::NotInEnum { value, of });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::AuthSys;

    fn sys(uid: u32, gid: u32, machine: &[u8]) -> Principal {
        Principal::of(&Credential::Sys(AuthSys {
            stamp: gid,
            machine_name: machine.iter().copied().collect(),
            uid,
            gid,
            gids: [gid].into_iter().collect(),
        }))
    }

    fn other(flavour: u32, body: &[u8]) -> Principal {
        let body = body.into();
        Principal::of(&Credential::Other { flavour, body })
    }

    #[test]
    fn principal_of_auth_sys_is_its_user() {
        assert_eq!(sys(0, 0, b"localhost"), sys(0, 1, b"client"));
        assert_ne!(sys(0, 0, b"client"), sys(1, 0, b"client"));
        assert_ne!(sys(0, 0, b""), Principal::of(&Credential::None));
        assert_ne!(other(6, b"a"), other(6, b"b"));
        assert_ne!(other(6, b"a"), other(7, b"a"));
    }

    #[test]
    fn principal_is_read_as_it_was_written() {
        for principal in [Principal::None, sys(7, 8, b"x"), other(6, b"abc")] {
            let mut w = Writer::default();
            principal.write(&mut w);
            let payload = w.finish();
            let mut r = Reader::from(&payload);
            assert_eq!(Principal::parse(&mut r), Ok(principal));
            assert_eq!(r.remaining(), 0);
        }
    }
}
