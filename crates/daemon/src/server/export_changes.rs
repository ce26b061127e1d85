//! Changes of exports by a reload.

use super::live_exports::names;
use super::plan::Plan;
use std::fmt;

/// Names of exports that came, went and changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExportChanges {
    added: Vec<String>,
    removed: Vec<String>,
    /// The directory, the rules or another option.
    changed: Vec<String>,
    same: usize,
}

impl ExportChanges {
    /// The changes from `before` to `after`.
    pub(super) fn new(before: &[Plan], after: &[Plan]) -> Self {
        let named = |plans: &'_ [Plan], name: &str| {
            let plan = plans.iter().find(|plan| plan.export.name == name);
            plan.cloned()
        };
        let mut replaced = Self::default();
        for plan in after {
            let name = plan.export.name.clone();
            match named(before, &name) {
                None => replaced.added.push(name),
                Some(old) if old.is_same(plan) => replaced.same += 1,
                Some(_) => replaced.changed.push(name),
            }
        }
        let gone = before.iter().map(|plan| &plan.export.name);
        let gone = gone.filter(|name| named(after, name).is_none());
        replaced.removed.extend(gone.cloned());
        replaced
    }
}

impl fmt::Display for ExportChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
        ];
        for (what, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "{what} {}; ", names(list.iter()))?;
        }
        write!(f, "{} as before", self.same)
    }
}
