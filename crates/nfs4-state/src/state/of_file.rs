//! The opens of one file, by what they may and deny.

use nfs_proto::v4::open::{ShareAccess, ShareDeny};

/// Opens with the same access and denial.
#[derive(Debug)]
struct Class {
    access: ShareAccess,
    deny: ShareDeny,
    opens: Vec<u32>,
}

/// A file that is open. Its opens are of twelve classes at most: what is in the way of one more is found without a look at those that are
/// not, however many there are.
#[derive(Debug, Default)]
pub(super) struct File {
    classes: Vec<Class>,
}

impl File {
    /// Enters an open, and returns its place.
    pub(super) fn insert(&mut self, open: u32, access: ShareAccess, deny: ShareDeny) -> usize {
        let is_it = |class: &Class| (class.access, class.deny) == (access, deny);
        let at = self.classes.iter().position(is_it).unwrap_or_else(|| {
            // Most files have one.
            self.classes.reserve_exact(1);
            self.classes.push(Class {
                access,
                deny,
                opens: Vec::new(),
            });
            self.classes.len() - 1
        });
        let opens = &mut self.classes[at].opens;
        opens.push(open);
        opens.len() - 1
    }

    /// Removes an open from its place. Returns the one that has its place now.
    pub(super) fn remove(
        &mut self,
        place: usize,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Option<u32> {
        let is_it = |class: &Class| (class.access, class.deny) == (access, deny);
        let at = self.classes.iter().position(is_it);
        let at = at.expect("an open is one of its file");
        let opens = &mut self.classes[at].opens;
        opens.swap_remove(place);
        let moved = opens.get(place).copied();
        if opens.is_empty() {
            self.classes.swap_remove(at);
        }
        moved
    }

    /// Returns the opens that are in the way of one (RFC 8881 §9.7).
    pub(super) fn conflicts(&self, access: u32, deny: u32) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter().filter(move |class| {
            class.deny.bits() & access != 0 || class.access.bits() & deny != 0
        });
        classes.flat_map(|class| class.opens.iter().copied())
    }

    /// Returns the number of opens that deny reading.
    pub(super) fn denying_reads(&self) -> usize {
        let classes = self.classes.iter();
        let denying = classes.filter(|class| class.deny.contains(ShareDeny::READ));
        denying.map(|class| class.opens.len()).sum()
    }

    /// Returns all opens.
    pub(super) fn opens(&self) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter();
        classes.flat_map(|class| class.opens.iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }
}
