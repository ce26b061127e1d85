//! POSIX access control lists (POSIX.1e, draft 17).

use super::Identity;

/// Subject of an entry, in the order of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclWho {
    /// The owner of the file.
    Owner,
    /// A user.
    User(u32),
    /// The group of the file.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The mask: an upper bound for users, groups and the owning group of the list.
    Mask,
    /// All others.
    Other,
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Subject of the entry.
    pub who: AclWho,
    /// Rights: read (4), write (2), execute (1).
    pub rights: u32,
}

/// A complete access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// In the order of [`AclWho`].
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Creates a list from entries in any order; `None` if they are not a valid list: the owner,
    /// the owning group and others need one entry each, no subject may have two, and named users or
    /// groups need a mask.
    pub fn new(mut entries: Vec<AclEntry>) -> Option<Self> {
        entries.sort_by_key(|entry| entry.who);
        let twice = entries.windows(2).any(|pair| pair[0].who == pair[1].who);
        let list = Self { entries };
        let needed: &[AclWho] = match list.names_somebody() {
            true => &[
                AclWho::Owner,
                AclWho::OwningGroup,
                AclWho::Mask,
                AclWho::Other,
            ],
            false => &[AclWho::Owner, AclWho::OwningGroup, AclWho::Other],
        };
        let all_there = needed.iter().all(|&who| list.rights(who).is_some());
        let possible = list.entries.iter().all(|entry| match entry.who {
            // -1 is not a valid id.
            AclWho::User(id) | AclWho::Group(id) => id != u32::MAX && entry.rights <= 7,
            AclWho::Owner | AclWho::OwningGroup | AclWho::Mask | AclWho::Other => entry.rights <= 7,
        });
        (!twice && all_there && possible).then_some(list)
    }

    /// Returns the list that is equivalent to a mode.
    pub fn of_mode(mode: u32) -> Self {
        let entry = |who, shift: u32| AclEntry {
            who,
            rights: mode >> shift & 7,
        };
        Self {
            entries: vec![
                entry(AclWho::Owner, 6),
                entry(AclWho::OwningGroup, 3),
                entry(AclWho::Other, 0),
            ],
        }
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns the rights in the entry of `who`.
    pub fn rights(&self, who: AclWho) -> Option<u32> {
        let entry = self.entries.iter().find(|entry| entry.who == who)?;
        Some(entry.rights)
    }

    /// Whether the list lets a caller do all of `want` with a file of this owner and group, as the kernel
    /// decides it (acl(5)).
    pub(crate) fn grants(&self, who: &Identity, (uid, gid): (u32, u32), want: u32) -> bool {
        let mask = self.rights(AclWho::Mask).unwrap_or(7);
        let all = |rights: u32| rights & want == want;
        if who.uid == uid {
            return self.rights(AclWho::Owner).is_some_and(all);
        }
        if let Some(rights) = self.rights(AclWho::User(who.uid)) {
            return all(rights & mask);
        }
        let mut of_groups = self.entries.iter().filter(|entry| match entry.who {
            AclWho::OwningGroup => who.in_group(gid),
            AclWho::Group(group) => who.in_group(group),
            AclWho::Owner | AclWho::User(_) | AclWho::Mask | AclWho::Other => false,
        });
        match of_groups.clone().next() {
            Some(_) => of_groups.any(|entry| all(entry.rights & mask)),
            None => self.rights(AclWho::Other).is_some_and(all),
        }
    }

    fn names_somebody(&self) -> bool {
        let named = |entry: &AclEntry| matches!(entry.who, AclWho::User(_) | AclWho::Group(_));
        self.entries.iter().any(named)
    }
}

/// The lists of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    /// The access list.
    pub access: Acl,
    /// The default list of a directory, from which new entries inherit theirs.
    pub default: Option<Acl>,
}

/// Change of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetAcl {
    /// Keep the list.
    #[default]
    Keep,
    /// Remove the list; without an access list the mode applies.
    Remove,
    /// Set the list.
    To(Acl),
}

/// Changes of both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAcls {
    /// The access list.
    pub access: SetAcl,
    /// The default list of a directory.
    pub default: SetAcl,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(who: AclWho, rights: u32) -> AclEntry {
        AclEntry { who, rights }
    }

    fn minimal() -> Vec<AclEntry> {
        Acl::of_mode(0o640).entries().to_vec()
    }

    #[test]
    fn entries_are_put_in_order() {
        let mut entries = minimal();
        entries.reverse();
        entries.push(entry(AclWho::Group(3), 7));
        entries.push(entry(AclWho::User(9), 4));
        entries.push(entry(AclWho::Mask, 6));
        entries.push(entry(AclWho::User(5), 2));
        let list = Acl::new(entries).unwrap();
        let order: Vec<AclWho> = list.entries().iter().map(|entry| entry.who).collect();
        assert_eq!(
            order,
            [
                AclWho::Owner,
                AclWho::User(5),
                AclWho::User(9),
                AclWho::OwningGroup,
                AclWho::Group(3),
                AclWho::Mask,
                AclWho::Other
            ]
        );
        assert_eq!(list.rights(AclWho::Owner), Some(6));
        assert_eq!(list.rights(AclWho::User(7)), None);
    }

    #[test]
    fn list_says_once_of_everybody_what_it_may_do() {
        let check = |more: &[AclEntry], valid: bool| {
            let list = Acl::new([minimal(), more.to_vec()].concat());
            assert_eq!(list.is_some(), valid, "{more:?}");
        };
        let mask = entry(AclWho::Mask, 7);
        check(&[], true);
        check(&[mask], true);
        check(&[entry(AclWho::User(1), 7), mask], true);
        check(&[entry(AclWho::User(1), 7)], false);
        check(&[entry(AclWho::Group(1), 7)], false);
        check(&[mask, mask], false);
        check(&[entry(AclWho::Other, 0)], false);
        let named = entry(AclWho::Group(1), 7);
        check(&[named, named, mask], false);
        check(&[entry(AclWho::User(u32::MAX), 7), mask], false);
        check(&[entry(AclWho::User(1), 8), mask], false);
        assert_eq!(Acl::new(Vec::new()), None);
        assert_eq!(Acl::new(minimal()[..2].to_vec()), None);
    }
}
