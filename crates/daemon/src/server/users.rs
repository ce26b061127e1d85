//! The users with whose rights a server uses files, in words.

use super::local_users::Trust;
use super::plan::Plan;
use nfs_server::{Anonymous, Squash};

/// Describes the users with whose rights files are used; `for_callers` is whether the server acts for each caller.
pub(super) fn describe(plans: &[Plan], for_callers: bool, trust: &Trust) -> String {
    match for_callers {
        true => of_callers(plans, trust).to_owned(),
        false => {
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            of_one(plans, trust, uid, gid)
        }
    }
}

/// A server that does everything as the user who runs it.
fn of_one(plans: &[Plan], trust: &Trust, uid: u32, gid: u32) -> String {
    let why = match uid {
        0 => "the only user of this user namespace",
        _ => "run as root to act as each caller",
    };
    let mut rules = plans.iter().flat_map(|plan| &plan.clients);
    let mut idle = Vec::new();
    if rules.any(|rule| rule.options.anonymous != Anonymous::default()) {
        idle.push("anonuid and anongid");
    }
    if trust.manage_gids {
        idle.push("manage_gids");
    }
    let idle = match idle.is_empty() {
        true => String::new(),
        false => format!("; {} cannot have an effect", idle.join(" and ")),
    };
    format!("every caller acts as uid {uid}, gid {gid} ({why}){idle}")
}

/// A server that acts for its callers.
fn of_callers(plans: &[Plan], trust: &Trust) -> &'static str {
    let mut squashes = plans.iter().flat_map(|plan| &plan.clients);
    let first = squashes.next().map(|rule| rule.options.squash);
    let all_the_same = squashes.all(|rule| Some(rule.options.squash) == first);
    match first.filter(|_| all_the_same) {
        Some(Squash::RemoteRoot) if trust.trust_local => {
            "each caller as itself; root as nobody, of this machine too, because trust_local does not tell \
             who is root here"
        }
        Some(Squash::RemoteRoot) => {
            "each caller as itself; root of other machines as nobody (squash)"
        }
        Some(Squash::Root) => "each caller as itself; root as nobody (squash)",
        Some(Squash::All) => "every caller as nobody",
        Some(Squash::None) => "each caller as itself; root as root",
        None => "each caller as itself or as nobody, by export and machine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::plan::tests::plan;

    fn plans(squash: Squash) -> Vec<Plan> {
        let mut plan = plan("/srv", &["::1"], false);
        plan.clients[0].options.squash = squash;
        vec![plan]
    }

    #[test]
    fn local_root_is_nobody_where_every_user_here_is_believed() {
        let plans = plans(Squash::RemoteRoot);
        let known = of_callers(&plans, &Trust::default());
        assert!(
            known.contains("itself; root of other machines as nobody"),
            "{known}"
        );
        let unknown = of_callers(
            &plans,
            &Trust {
                trust_local: true,
                ..Trust::default()
            },
        );
        assert!(
            unknown.contains("root as nobody, of this machine too"),
            "{unknown}"
        );
    }

    #[test]
    fn options_without_effect_are_named() {
        let mut plans = plans(Squash::All);
        let said = of_one(&plans, &Trust::default(), 1000, 100);
        assert_eq!(
            said,
            "every caller acts as uid 1000, gid 100 (run as root to act as each caller)"
        );
        plans[0].clients[0].options.anonymous.uid = 7;
        let said = of_one(
            &plans,
            &Trust {
                manage_gids: true,
                ..Trust::default()
            },
            1000,
            100,
        );
        let says = "; anonuid and anongid and manage_gids cannot have an effect";
        assert!(said.ends_with(says), "{said}");
        let said = of_one(&plans, &Trust::default(), 0, 0);
        assert!(
            said.contains("the only user of this user namespace"),
            "{said}"
        );
        assert!(!said.contains("run as root"), "{said}");
    }
}
