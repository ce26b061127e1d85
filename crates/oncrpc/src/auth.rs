//! Credentials and verifiers (RFC 5531 §8.2, §10, Appendix A).

use crate::xdr::{Error, Reader, Writer, padded};
use smallvec::SmallVec;

/// Most bytes in the body of a credential or verifier (RFC 5531 §8.2).
pub const MAX_AUTH_BODY: u32 = 400;

/// Most bytes in the machine name of AUTH_SYS (RFC 5531 Appendix A).
pub const MAX_MACHINE_NAME: u32 = 255;

/// Most supplementary groups in AUTH_SYS (RFC 5531 Appendix A).
pub const MAX_GIDS: u32 = 16;

/// Flavour AUTH_NONE (RFC 5531 §10.1).
pub const AUTH_NONE: u32 = 0;

/// Flavour AUTH_SYS (RFC 5531 Appendix A).
pub const AUTH_SYS: u32 = 1;

/// A credential or verifier as it stands on the wire: a flavour, and a body whose meaning the
/// flavour decides (RFC 5531 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// Number of the flavour.
    pub flavour: u32,
    /// At most [`MAX_AUTH_BODY`] bytes.
    pub body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// AUTH_NONE with an empty body.
    pub const NONE: Self = Self {
        flavour: AUTH_NONE,
        body: &[],
    };

    /// Reads flavour and body.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] if the body exceeds [`MAX_AUTH_BODY`].
    #[inline]
    pub fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            flavour: r.u32()?,
            body: r.opaque(MAX_AUTH_BODY)?,
        })
    }

    /// Writes flavour and body.
    ///
    /// # Panics
    ///
    /// If the body exceeds [`MAX_AUTH_BODY`].
    pub fn write(self, w: &mut Writer) {
        assert!(
            self.body.len() <= MAX_AUTH_BODY as usize,
            "credentials are made within their limits"
        );
        w.u32(self.flavour);
        w.opaque(self.body);
    }
}

/// A parsed credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE: no identity (RFC 5531 §10.1).
    #[default]
    None,
    /// AUTH_SYS: Unix user and groups (RFC 5531 Appendix A).
    Sys(AuthSys),
    /// Any other flavour, passed through to the program.
    Other {
        /// Number of the flavour.
        flavour: u32,
        /// At most [`MAX_AUTH_BODY`] bytes.
        body: Box<[u8]>,
    },
}

impl Credential {
    /// Most bytes of a credential on the wire, flavour and length included.
    pub const MAX_LEN: usize = 8 + MAX_AUTH_BODY as usize;

    /// Parses a received credential.
    ///
    /// # Errors
    ///
    /// If the body is invalid for its flavour: the call must be denied with [`AuthStat::BadCred`].
    pub fn parse(auth: OpaqueAuth<'_>) -> Result<Self, AuthStat> {
        let mut parsed = Self::None;
        parsed.read(auth)?;
        Ok(parsed)
    }

    /// Becomes the credential that was received, without being moved: it is large.
    pub(crate) fn read(&mut self, auth: OpaqueAuth<'_>) -> Result<(), AuthStat> {
        *self = match auth.flavour {
            // RFC 5531 §10.1 recommends an empty body and gives no meaning to another.
            AUTH_NONE => Self::None,
            AUTH_SYS => Self::Sys(AuthSys::default()),
            flavour => Self::Other {
                flavour,
                body: auth.body.into(),
            },
        };
        match self {
            Self::Sys(sys) => sys.read(auth.body).map_err(|_| AuthStat::BadCred),
            Self::None | Self::Other { .. } => Ok(()),
        }
    }

    /// Writes the credential with its flavour and length.
    pub fn write(&self, w: &mut Writer) {
        match self {
            Self::None => OpaqueAuth::NONE.write(w),
            Self::Sys(sys) => {
                w.u32(AUTH_SYS);
                w.length(sys.body_len());
                sys.write_body(w);
            }
            Self::Other { flavour, body } => OpaqueAuth {
                flavour: *flavour,
                body,
            }
            .write(w),
        }
    }

    /// Number of the flavour.
    pub fn flavour(&self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys(_) => AUTH_SYS,
            Self::Other { flavour, .. } => *flavour,
        }
    }
}

/// The body of AUTH_SYS (RFC 5531 Appendix A). Nothing in it is authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Arbitrary number chosen by the caller's machine (`stamp`).
    pub stamp: u32,
    /// Name of the caller's machine, at most [`MAX_MACHINE_NAME`] bytes.
    pub machine_name: SmallVec<[u8; 64]>,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups, at most [`MAX_GIDS`].
    pub gids: SmallVec<[u32; 16]>,
}

impl AuthSys {
    /// Reads the body of a credential.
    ///
    /// # Errors
    ///
    /// If it is not a well-formed body, or more follows it.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut sys = Self::default();
        sys.read(body)?;
        Ok(sys)
    }

    /// Reads a body into an empty value.
    fn read(&mut self, body: &[u8]) -> Result<(), Error> {
        let mut r = Reader::new(body);
        self.stamp = r.u32()?;
        let name = r.string(MAX_MACHINE_NAME)?;
        self.machine_name.extend_from_slice(name);
        [self.uid, self.gid] = r.words()?;
        for _ in 0..r.length(MAX_GIDS)? {
            self.gids.push(r.u32()?);
        }
        r.finish()
    }

    /// Bytes of the body.
    ///
    /// # Panics
    ///
    /// If the name or the groups exceed their limits.
    fn body_len(&self) -> usize {
        assert!(
            self.machine_name.len() <= MAX_MACHINE_NAME as usize
                && self.gids.len() <= MAX_GIDS as usize,
            "AUTH_SYS credentials are made within their limits"
        );
        20 + padded(self.machine_name.len()) + 4 * self.gids.len()
    }

    fn write_body(&self, w: &mut Writer) {
        w.u32(self.stamp);
        w.opaque(&self.machine_name);
        w.u32(self.uid);
        w.u32(self.gid);
        w.length(self.gids.len());
        for &gid in &self.gids {
            w.u32(gid);
        }
    }
}

/// Why authentication failed (`auth_stat`, RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[derive(thiserror::Error)]
pub enum AuthStat {
    #[error("no reason (AUTH_OK)")]
    Ok,
    #[error("the credential is malformed (AUTH_BADCRED)")]
    BadCred,
    #[error("the client must begin a new session (AUTH_REJECTEDCRED)")]
    RejectedCred,
    #[error("the verifier is malformed (AUTH_BADVERF)")]
    BadVerf,
    #[error("the verifier expired or was replayed (AUTH_REJECTEDVERF)")]
    RejectedVerf,
    #[error("the flavour is too weak for this server (AUTH_TOOWEAK)")]
    TooWeak,
    #[error("the response verifier is bogus (AUTH_INVALIDRESP)")]
    InvalidResp,
    #[error("reason unknown (AUTH_FAILED)")]
    Failed,
    #[error("Kerberos error (AUTH_KERB_GENERIC)")]
    KerbGeneric,
    #[error("the credential expired (AUTH_TIMEEXPIRE)")]
    TimeExpire,
    #[error("problem with the ticket file (AUTH_TKT_FILE)")]
    TktFile,
    #[error("the authenticator cannot be decoded (AUTH_DECODE)")]
    Decode,
    #[error("wrong net address in the ticket (AUTH_NET_ADDR)")]
    NetAddr,
    #[error("no credentials for the user (RPCSEC_GSS_CREDPROBLEM)")]
    GssCredProblem,
    #[error("problem with the context (RPCSEC_GSS_CTXPROBLEM)")]
    GssCtxProblem,
    #[error("reason {0}")]
    Other(u32),
}

/// The values of `auth_stat` in their order from 0.
const AUTH_STATS: [AuthStat; 15] = [
    AuthStat::Ok,
    AuthStat::BadCred,
    AuthStat::RejectedCred,
    AuthStat::BadVerf,
    AuthStat::RejectedVerf,
    AuthStat::TooWeak,
    AuthStat::InvalidResp,
    AuthStat::Failed,
    AuthStat::KerbGeneric,
    AuthStat::TimeExpire,
    AuthStat::TktFile,
    AuthStat::Decode,
    AuthStat::NetAddr,
    AuthStat::GssCredProblem,
    AuthStat::GssCtxProblem,
];

impl From<u32> for AuthStat {
    /// Numbers not listed in RFC 5531 are kept: IANA hands out more of them.
    fn from(value: u32) -> Self {
        AUTH_STATS
            .get(value as usize)
            .copied()
            .unwrap_or(Self::Other(value))
    }
}

impl From<AuthStat> for u32 {
    fn from(stat: AuthStat) -> Self {
        match stat {
            AuthStat::Ok => 0,
            AuthStat::BadCred => 1,
            AuthStat::RejectedCred => 2,
            AuthStat::BadVerf => 3,
            AuthStat::RejectedVerf => 4,
            AuthStat::TooWeak => 5,
            AuthStat::InvalidResp => 6,
            AuthStat::Failed => 7,
            AuthStat::KerbGeneric => 8,
            AuthStat::TimeExpire => 9,
            AuthStat::TktFile => 10,
            AuthStat::Decode => 11,
            AuthStat::NetAddr => 12,
            AuthStat::GssCredProblem => 13,
            AuthStat::GssCtxProblem => 14,
            AuthStat::Other(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn round_trip(credential: &Credential) -> Result<Credential, AuthStat> {
        let mut w = Writer::default();
        credential.write(&mut w);
        let payload = w.finish();
        let mut r = Reader::from(&payload);
        let auth = OpaqueAuth::parse(&mut r).unwrap();
        r.finish().unwrap();
        Credential::parse(auth)
    }

    /// A body with this many groups and bytes of name, whatever the limits say.
    fn body(name: usize, gids: usize) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(1);
        w.opaque(&vec![b'n'; name]);
        w.u32(0);
        w.u32(0);
        w.length(gids);
        (0..gids).for_each(|_| w.u32(5));
        w.finish().head().to_vec()
    }

    #[test]
    fn name_and_groups_are_limited() {
        assert!(AuthSys::parse(&body(255, 0)).is_ok());
        assert!(AuthSys::parse(&body(0, 16)).is_ok());
        assert_eq!(
            AuthSys::parse(&body(256, 0)).unwrap_err(),
            Error::TooLong {
                len: 256,
                limit: 255
            }
        );
        assert_eq!(
            AuthSys::parse(&body(0, 17)).unwrap_err(),
            Error::TooLong { len: 17, limit: 16 }
        );
    }

    #[test]
    fn groups_of_a_usual_caller_need_no_heap() {
        let sys = AuthSys::parse(&body(64, 16)).unwrap();
        assert!(!sys.gids.spilled());
        assert!(!sys.machine_name.spilled());
    }

    #[test]
    fn bytes_behind_the_groups_are_refused() {
        let mut long = body(3, 2);
        long.extend([0; 4]);
        assert_eq!(
            Credential::parse(OpaqueAuth {
                flavour: AUTH_SYS,
                body: &long
            }),
            Err(AuthStat::BadCred)
        );
    }

    #[test]
    fn bodies_past_the_limit_are_refused() {
        let mut w = Writer::default();
        w.u32(6);
        w.opaque(&[0; 401]);
        let payload = w.finish();
        assert_eq!(
            OpaqueAuth::parse(&mut Reader::from(&payload)),
            Err(Error::TooLong {
                len: 401,
                limit: 400
            })
        );
    }

    #[test]
    #[should_panic(expected = "within their limits")]
    fn body_past_the_limit_is_not_written() {
        let body = vec![0; 401].into();
        let _ = round_trip(&Credential::Other { flavour: 6, body });
    }

    #[test]
    #[should_panic(expected = "within their limits")]
    fn more_groups_than_there_can_be_are_not_written() {
        let gids = vec![5; 17].into();
        let _ = round_trip(&Credential::Sys(AuthSys {
            gids,
            ..AuthSys::default()
        }));
    }

    #[test]
    fn every_auth_stat_keeps_its_number() {
        for value in (0..20).chain([u32::MAX]) {
            assert_eq!(u32::from(AuthStat::from(value)), value);
        }
        assert_eq!(AuthStat::from(14), AuthStat::GssCtxProblem);
        assert_eq!(AuthStat::from(15), AuthStat::Other(15));
    }

    proptest! {
        #[test]
        fn credentials_round_trip(
            stamp: u32,
            name in vec(any::<u8>(), 0..=255),
            uid: u32,
            gid: u32,
            gids in vec(any::<u32>(), 0..=16),
            flavour in 2u32..,
            other in vec(any::<u8>(), 0..=400),
        ) {
            let sys = Credential::Sys(AuthSys {
                stamp,
                machine_name: name.into(),
                uid,
                gid,
                gids: gids.into(),
            });
            let other = Credential::Other { flavour, body: other.into() };
            for credential in [sys, other, Credential::None] {
                prop_assert_eq!(round_trip(&credential).unwrap(), credential);
            }
        }

        #[test]
        fn no_body_makes_the_parser_panic(flavour in 0u32..4, body in vec(any::<u8>(), 0..=400)) {
            let _ = Credential::parse(OpaqueAuth { flavour, body: &body });
        }
    }
}
