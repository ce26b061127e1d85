//! Security of the fore channel (SECINFO, SECINFO_NO_NAME) and of the back channel.

use crate::limits::MAX_FLAVORS;
use crate::v4::array::Array;
use crate::v4::limits::{MAX_GSS_HANDLE, MAX_OID};
use crate::{Bytes, Filename, Wire};
use oncrpc::auth::{AUTH_NONE, AUTH_SYS, MAX_GIDS, MAX_MACHINE_NAME};
use oncrpc::xdr::{Error, Reader, Writer};

/// Flavor RPCSEC_GSS (RFC 2203 §5).
const RPCSEC_GSS: u32 = 6;

/// An object identifier (`sec_oid4`).
pub type Oid<'a> = Bytes<'a, MAX_OID>;

/// A handle of RPCSEC_GSS (`gsshandle4_t`).
pub type GssHandle<'a> = Bytes<'a, MAX_GSS_HANDLE>;

xdr_enum! {
    /// Protection by RPCSEC_GSS (`rpc_gss_svc_t`, RFC 2203 §5).
    pub enum GssService ("rpc_gss_svc_t") {
        /// Authentication only.
        None = 1,
        /// Integrity.
        Integrity = 2,
        /// Privacy.
        Privacy = 3,
    }
}

xdr_struct! {
    /// Arguments of SECINFO (RFC 8881 §18.29.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SecInfoArgs<'a> {
        /// Name in the current directory.
        pub name: Filename<'a>,
    }
}

xdr_enum! {
    /// Object that SECINFO_NO_NAME asks about (`secinfo_style4`, RFC 8881 §18.45.1).
    pub enum SecInfoStyle ("secinfo_style4") {
        /// The current file handle.
        CurrentHandle = 0,
        /// Its parent directory.
        Parent = 1,
    }
}

xdr_struct! {
    /// Mechanism of RPCSEC_GSS (`rpcsec_gss_info`, RFC 8881 §18.29.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GssInfo<'a> {
        /// Mechanism.
        pub oid: Oid<'a>,
        /// Quality of protection.
        pub qop: u32,
        /// Protection.
        pub service: GssService,
    }
}

/// A security flavor (`secinfo4`, RFC 8881 §18.29.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecInfo<'a> {
    /// RPCSEC_GSS.
    Gss(GssInfo<'a>),
    /// Any other flavor, by number.
    Flavor(u32),
}

impl<'a> Wire<'a> for SecInfo<'a> {
    const MAX: usize = 4 + GssInfo::MAX;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            RPCSEC_GSS => Self::Gss(Wire::parse(r)?),
            flavor => Self::Flavor(flavor),
        })
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Gss(info) => {
                w.u32(RPCSEC_GSS);
                info.write(w);
            }
            Self::Flavor(flavor) => w.u32(*flavor),
        }
    }
}

#[cfg(test)]
impl crate::tests::Sample for SecInfo<'_> {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        match rng.below(4) {
            0 => Self::Gss(crate::tests::Sample::sample(rng)),
            other => Self::Flavor([0, 1, 390_003][other - 1]),
        }
    }
}

xdr_struct! {
    /// Result of SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SecInfoOk<'a> {
        /// Flavors, the preferred one first.
        pub flavors: Array<'a, SecInfo<'a>, MAX_FLAVORS>,
    }
}

xdr_struct! {
    /// Credential of AUTH_SYS for callbacks (`authsys_parms`, RFC 5531 Appendix A).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SysCredential<'a> {
        /// Any number.
        pub stamp: u32,
        /// Name of the client.
        pub machine_name: Bytes<'a, MAX_MACHINE_NAME>,
        /// User.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Further groups.
        pub gids: Array<'a, u32, MAX_GIDS>,
    }
}

xdr_struct! {
    /// Security contexts for callbacks (`gss_cb_handles4`, RFC 8881 §18.33.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GssCallbackHandles<'a> {
        /// Protection.
        pub service: GssService,
        /// Handle of the context from the server.
        pub from_server: GssHandle<'a>,
        /// Handle of the context from the client.
        pub from_client: GssHandle<'a>,
    }
}

xdr_union! {
    /// Credential that the server may use for callbacks (`callback_sec_parms4`, RFC 8881 §18.33.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CallbackSecurity<'a> ("cb_secflavor") {
        /// AUTH_NONE.
        None = 0,
        /// AUTH_SYS.
        Sys(SysCredential<'a>) = 1,
        /// RPCSEC_GSS.
        Gss(GssCallbackHandles<'a>) = 6,
    }
}

const _: () = assert!(AUTH_NONE == 0 && AUTH_SYS == 1 && RPCSEC_GSS == 6);

/// Credentials for callbacks, from which the server chooses.
pub type CallbackSecurities<'a> = Array<'a, CallbackSecurity<'a>, MAX_FLAVORS>;

xdr_struct! {
    /// Arguments of BACKCHANNEL_CTL (RFC 8881 §18.33.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BackChannelCtlArgs<'a> {
        /// Program number of the callbacks.
        pub program: u32,
        /// Credentials for them.
        pub security: CallbackSecurities<'a>,
    }
}
