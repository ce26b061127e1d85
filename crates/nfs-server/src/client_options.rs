//! Rules of an export: which clients are served, with which rights, and as which users.

use crate::access_list::{AccessList, Network};
use crate::fs::Identity;
use oncrpc::{AuthStat, Call, Caller, Credential};
use std::net::IpAddr;
use std::num::NonZeroU32;

/// User and group id of anonymous callers: `nobody` on most systems.
pub const ANONYMOUS: u32 = 65_534;

/// The user to which squashed callers and callers without a Unix identity are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Anonymous {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Default for Anonymous {
    fn default() -> Self {
        Self {
            uid: ANONYMOUS,
            gid: ANONYMOUS,
        }
    }
}

/// Squashing: which callers are mapped to the [`Anonymous`] user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Squash {
    /// Root and its group.
    #[default]
    Root,
    /// Root and its group, unless the caller is verified as root of this machine, who has full
    /// access to the files anyway.
    RemoteRoot,
    /// All callers.
    All,
    /// No callers, except those without a Unix identity.
    None,
}

/// Rights of a client on an export, and its user mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// Whether the client has read-only access.
    pub read_only: bool,
    /// Which of the client's callers are mapped to the anonymous user.
    pub squash: Squash,
    /// The anonymous user.
    pub anonymous: Anonymous,
}

impl ClientOptions {
    /// Maps the credential of a caller to an identity.
    pub fn identity(&self, credential: &Credential) -> Identity {
        let Anonymous { uid, gid } = self.anonymous;
        match (self.squash, credential) {
            (Squash::All, _) | (_, Credential::None | Credential::Other { .. }) => {
                Identity::new(uid, gid)
            }
            (squash, Credential::Sys(sys)) => {
                let squash = |id: u32, anonymous: u32| match id {
                    0 if squash != Squash::None => anonymous,
                    // -1 is not a valid id: chown(2) takes it as "do not change".
                    u32::MAX => anonymous,
                    id => id,
                };
                Identity {
                    uid: squash(sys.uid, uid),
                    gid: squash(sys.gid, gid),
                    groups: sys.gids.iter().map(|&id| squash(id, gid)).collect(),
                }
            }
        }
    }
}

/// A rule of an export: clients and their options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// Name of the clients for people, a network or a host name, which MOUNT lists.
    pub name: String,
    /// Addresses of the clients.
    pub networks: Vec<Network>,
    /// Options of the clients.
    pub options: ClientOptions,
}

/// The rules of an export.
///
/// Start with the [default](Self::default), which serves this machine read-write, and change fields by their
/// methods:
///
/// ```
/// use nfs_server::{AccessList, ExportOptions, Squash};
///
/// let networks = ["192.0.2.0/24".parse()?];
/// let options = ExportOptions::default()
///     .with_read_only(true)
///     .with_squash(Squash::All)
///     .with_allow(AccessList::new(networks));
/// # let _ = options;
/// # Ok::<_, nfs_server::NetworkError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// Whether the export is read-only, for clients of `allow`.
    pub read_only: bool,
    /// Which callers are mapped to the anonymous user, for clients of `allow`.
    pub squash: Squash,
    /// The anonymous user, for clients of `allow`.
    pub anonymous: Anonymous,
    /// Addresses that are served with the options above.
    pub allow: AccessList,
    /// Rules for clients with their own options. The first match counts, before `allow`.
    pub rules: Vec<ClientRule>,
    /// Number of the export in file handles, and of its file system in attributes. By default
    /// derived from its name.
    pub fsid: Option<NonZeroU32>,
}

impl ExportOptions {
    buffer::setters! {
        with_read_only(read_only: bool),
        with_squash(squash: Squash),
        with_anonymous(anonymous: Anonymous),
        with_allow(allow: AccessList),
        with_rules(rules: Vec<ClientRule>),
        with_fsid(fsid: impl Into<Option<NonZeroU32>>),
    }

    /// Returns the options for a client with this address, by the first matching rule; `None` if it
    /// is not served.
    pub fn for_client(&self, address: IpAddr) -> Option<ClientOptions> {
        let has = |rule: &&ClientRule| rule.networks.iter().any(|some| some.contains(address));
        match self.rules.iter().find(has) {
            Some(rule) => Some(rule.options),
            None => self.allow.allows(address).then_some(ClientOptions {
                read_only: self.read_only,
                squash: self.squash,
                anonymous: self.anonymous,
            }),
        }
    }

    /// Returns the options for a caller; `None` if its address is not served.
    pub(crate) fn for_caller(&self, caller: &Caller) -> Option<ClientOptions> {
        let mut options = self.for_client(caller.addr.ip())?;
        if options.squash == Squash::RemoteRoot {
            options.squash = match caller.local_uid {
                Some(0) => Squash::None,
                _ => Squash::Root,
            };
        }
        Some(options)
    }

    /// Returns the names of the clients that are served, for people.
    pub fn client_names(&self) -> impl Iterator<Item = String> {
        let rules = self.rules.iter().map(|rule| rule.name.clone());
        let allow = self.allow.networks().iter();
        rules.chain(allow.map(ToString::to_string))
    }
}

/// Flavour of Kerberos and the like (RFC 2203 §4).
const RPCSEC_GSS: u32 = 6;

/// Flavour that asks for TLS (RFC 9289 §7.1).
const AUTH_TLS: u32 = 7;

/// Returns why a call is denied for the flavour of its credential, which this server may not support.
/// Its caller is not mapped to the anonymous user: it would believe that its protection works.
pub(crate) fn denial(call: &Call) -> Option<AuthStat> {
    let Credential::Other { flavour, .. } = call.cred else {
        return None;
    };
    match (flavour, call.proc) {
        // RFC 2203 §5.2.3.2: the creation of a context is a call of NULL. One that is answered with success
        // has results.
        (RPCSEC_GSS, 0) => Some(AuthStat::RejectedCred),
        // RFC 1813 §2.3, RFC 5531 §8: NULL takes any flavour. RFC 9289 §4.1: without STARTTLS in the
        // verifier, the client sends no TLS.
        (_, 0) => None,
        // RFC 9289 §4.1.
        (AUTH_TLS, _) => Some(AuthStat::BadCred),
        _ => Some(AuthStat::TooWeak),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::AuthSys;

    fn identity(squash: Squash, credential: &Credential) -> Identity {
        let options = ClientOptions {
            squash,
            ..ClientOptions::default()
        };
        options.identity(credential)
    }

    #[test]
    fn squashing_replaces_the_configured_users() {
        let root = Credential::Sys(AuthSys {
            gids: [0, 5].into_iter().collect(),
            ..AuthSys::default()
        });
        let user = Credential::Sys(AuthSys {
            uid: 1000,
            gid: 100,
            ..AuthSys::default()
        });
        let nobody = Identity::new(ANONYMOUS, ANONYMOUS);
        let none = Credential::Sys(AuthSys {
            uid: u32::MAX,
            gid: u32::MAX,
            ..AuthSys::default()
        });
        assert_eq!(identity(Squash::None, &none), nobody);
        assert_eq!(identity(Squash::Root, &none), nobody);
        let squashed = identity(Squash::Root, &root);
        assert_eq!((squashed.uid, squashed.gid), (ANONYMOUS, ANONYMOUS));
        assert_eq!(squashed.groups.as_slice(), [ANONYMOUS, 5]);
        assert_eq!(identity(Squash::Root, &user), Identity::new(1000, 100));
        assert_eq!(identity(Squash::All, &user), nobody);
        assert!(identity(Squash::None, &root).is_root());
        assert_eq!(identity(Squash::None, &Credential::None), nobody);
    }

    #[test]
    fn anonymous_user_is_the_one_of_the_rule() {
        let options = ClientOptions {
            squash: Squash::All,
            anonymous: Anonymous { uid: 7, gid: 8 },
            ..ClientOptions::default()
        };
        assert_eq!(options.identity(&Credential::None), Identity::new(7, 8));
        let root = Credential::Sys(AuthSys::default());
        let squash = Squash::Root;
        assert_eq!(
            ClientOptions { squash, ..options }.identity(&root),
            Identity::new(7, 8)
        );
    }

    #[test]
    fn root_of_this_machine_is_root_where_only_that_of_others_is_squashed() {
        let options = ExportOptions::default().with_squash(Squash::RemoteRoot);
        let root = Credential::Sys(AuthSys::default());
        let check = |local_uid, is_root| {
            let mut caller = Caller::new("127.0.0.1:700".parse().unwrap());
            caller.local_uid = local_uid;
            let options = options.for_caller(&caller).unwrap();
            assert_eq!(options.identity(&root).is_root(), is_root, "{local_uid:?}");
        };
        check(Some(0), true);
        check(Some(1000), false);
        check(None, false);
        let unresolved = options.for_client("127.0.0.1".parse().unwrap()).unwrap();
        assert!(!unresolved.identity(&root).is_root());
    }

    #[test]
    fn first_rule_with_the_address_decides() {
        let rule = |network: &str, read_only| ClientRule {
            name: network.to_owned(),
            networks: vec![network.parse().unwrap()],
            options: ClientOptions {
                read_only,
                ..ClientOptions::default()
            },
        };
        let options = ExportOptions::default()
            .with_allow(AccessList::new(["10.0.0.0/8".parse().unwrap()]))
            .with_rules(vec![rule("10.1.2.3", false), rule("10.1.0.0/16", true)]);
        let read_only = |address: &str| {
            let client = options.for_client(address.parse().unwrap());
            client.map(|client| client.read_only)
        };
        assert_eq!(read_only("10.1.2.3"), Some(false));
        assert_eq!(read_only("::ffff:10.1.9.9"), Some(true));
        assert_eq!(read_only("10.9.9.9"), Some(false), "by the list");
        assert_eq!(read_only("127.0.0.1"), None);
        let names: Vec<String> = options.client_names().collect();
        assert_eq!(names, ["10.1.2.3", "10.1.0.0/16", "10.0.0.0/8"]);
    }
}
