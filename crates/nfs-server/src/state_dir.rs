//! Default directory of persistent state.

use nix::unistd::{Uid, User};
use std::path::PathBuf;

/// Returns the default state directory of this user: `$XDG_STATE_HOME/rpcrdma`, or
/// `~/.local/state/rpcrdma` in the home directory that `$HOME` or else the user database names; `None`
/// without a home directory.
pub fn default_state_dir() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home_of_user = || Some(User::from_uid(Uid::effective()).ok()??.dir);
    state_dir(variable, home_of_user)
}

fn state_dir(
    variable: impl Fn(&str) -> Option<PathBuf>,
    home_of_user: impl FnOnce() -> Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
    let home = || absolute(variable("HOME")).or_else(|| absolute(home_of_user()));
    absolute(variable("XDG_STATE_HOME"))
        .or_else(|| Some(home()?.join(".local/state")))
        .map(|state| state.join("rpcrdma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_in_the_home_that_the_environment_or_the_user_database_says() {
        let check = |variables: &[(&str, &str)], of_user: Option<&str>, expected: Option<&str>| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, path)| PathBuf::from(path))
            };
            let found = state_dir(variable, || of_user.map(PathBuf::from));
            assert_eq!(found, expected.map(PathBuf::from), "{variables:?}");
        };
        let (state, home) = (("XDG_STATE_HOME", "/s"), ("HOME", "/h"));
        check(&[state, home], Some("/u"), Some("/s/rpcrdma"));
        check(&[home], Some("/u"), Some("/h/.local/state/rpcrdma"));
        check(&[], Some("/u"), Some("/u/.local/state/rpcrdma"));
        check(&[("HOME", "")], Some("/u"), Some("/u/.local/state/rpcrdma"));
        check(&[("XDG_STATE_HOME", "s")], None, None);
        check(&[], None, None);
    }
}
