//! The plan of a copy: what there is to do, and whether it goes together, found before anything is changed.

use super::decide::{Action, Conflict};
use super::error::{Error, Result};
use super::made_names::FoldedNames;
use super::options::Options;
use super::root::Root;
use super::tree::Tree;
use super::walk::{Step, Walk};
use nfs_proto::FileType;
use std::collections::HashSet;
use std::vec;

/// Steps that are kept; a tree with more is gone through a second time.
const MAX_STEPS: usize = 32_768;

/// Bytes of paths in the steps that are kept.
const MAX_STEP_BYTES: usize = 32 << 20;

/// Names that several directories have together, if their contents go into one.
const MAX_NAMES: usize = 65_536;

/// Paths that are compared where a destination does not tell all of them apart; of further ones, it is found out when
/// they are copied.
const MAX_FOLDED: usize = 1 << 20;

/// All that a copy has to do.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Files and symbolic links that are to be copied.
    pub(crate) files: u64,
    /// Bytes of those files.
    pub(crate) bytes: u64,
    /// Whether something does not go together, so that nothing is to be copied.
    pub(crate) conflicts: bool,
    /// Whether something of the source could not be read.
    pub(crate) is_partial: bool,
    /// All steps, unless there are too many.
    steps: Option<Vec<Step>>,
    /// Bytes of the paths in them.
    step_bytes: usize,
}

/// The steps of a copy, for the transfer.
pub(crate) enum Steps<'a> {
    Kept(vec::IntoIter<Step>),
    Walked(Walk<'a>),
}

/// Finds what gets one name.
struct Names {
    taken: HashSet<Vec<u8>>,
    /// Directories on the way down.
    depth: usize,
    /// How deep names are that may be taken twice.
    looked_at: usize,
}

impl Plan {
    /// Goes through all that is to be copied. What does not go together is told to `conflict`.
    ///
    /// # Errors
    ///
    /// Those of `conflict`.
    pub(crate) async fn make(
        dest: &Tree,
        options: &Options,
        roots: &[Root],
        mut conflict: impl AsyncFnMut(Error) -> Result<()>,
    ) -> Result<Self> {
        let mut plan = Self {
            steps: Some(Vec::new()),
            ..Self::default()
        };
        let mut names = Names {
            taken: HashSet::new(),
            depth: 0,
            looked_at: 0,
        };
        let mut folded = match dest.says_it_folds_case().await {
            true => Some(FoldedNames::by_case()),
            false => None,
        };
        let mut walk = Walk::new(dest, options, roots);
        while let Some(step) = walk.next().await {
            if roots.len() > 1
                && let Some((root, from, to)) = names.taken_twice(&step)
            {
                plan.conflicts = true;
                let from = roots[root].tree.show(from);
                conflict(Error::conflict(Conflict::Twice, from, dest.show(to))).await?;
            } else if let Some(folded) = &mut folded
                && let Some((root, from, to)) = named(&step)
                && folded.len() < MAX_FOLDED
                && !folded.insert(to)
            {
                plan.conflicts = true;
                let from = roots[root].tree.show(from);
                conflict(Error::conflict(Conflict::Folded, from, dest.show(to))).await?;
            }
            if let Some(error) = plan.add(step) {
                conflict(error).await?;
            }
        }
        Ok(plan)
    }

    /// Adds a step; returns why nothing is to be copied, if it says so.
    fn add(&mut self, step: Step) -> Option<Error> {
        match &step {
            Step::Enter(_) | Step::Leave => {}
            Step::Other(other) => match other.action {
                Action::Copy { .. } | Action::Make { .. } | Action::Write => {
                    self.files += 1;
                    if other.source.about.kind == FileType::Regular {
                        self.bytes = self.bytes.saturating_add(other.source.about.size);
                    }
                }
                Action::Skip(_) | Action::Refuse(_) | Action::Unsupported => {}
            },
            Step::Failed(_) => self.is_partial = true,
            Step::Conflict(_) => {
                self.conflicts = true;
                self.steps = None;
                let Step::Conflict(error) = step else {
                    return None;
                };
                return Some(error);
            }
        }
        if let Some(steps) = &mut self.steps {
            self.step_bytes += step.path_bytes();
            if steps.len() < MAX_STEPS && self.step_bytes <= MAX_STEP_BYTES {
                steps.push(step);
            } else {
                self.steps = None;
            }
        }
        None
    }

    /// The steps again.
    pub(crate) fn steps<'a>(
        &mut self,
        dest: &'a Tree,
        options: &'a Options,
        roots: &'a [Root],
    ) -> Steps<'a> {
        match self.steps.take() {
            Some(steps) => Steps::Kept(steps.into_iter()),
            None => Steps::Walked(Walk::new(dest, options, roots)),
        }
    }
}

impl Steps<'_> {
    /// The next step; nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Step> {
        match self {
            Self::Kept(steps) => steps.next(),
            Self::Walked(walk) => walk.next().await,
        }
    }
}

/// The root, the path and the destination of what gets a name.
fn named(step: &Step) -> Option<(usize, &[u8], &[u8])> {
    match step {
        Step::Enter(inside) if !inside.is_contents => {
            Some((inside.root, &inside.source.path, &inside.to))
        }
        Step::Other(other) => match other.action {
            Action::Copy { .. } | Action::Make { .. } | Action::Write | Action::Skip(_) => {
                Some((other.root, &other.source.path, &other.to))
            }
            Action::Refuse(_) | Action::Unsupported => None,
        },
        Step::Enter(_) | Step::Leave | Step::Conflict(_) | Step::Failed(_) => None,
    }
}

impl Names {
    /// The root, the path and the destination of what gets a name that something else gets too.
    fn taken_twice<'s>(&mut self, step: &'s Step) -> Option<(usize, &'s [u8], &'s [u8])> {
        let (root, source, to) = match step {
            Step::Enter(inside) => {
                let depth = self.depth;
                self.depth += 1;
                if depth == 0 {
                    self.looked_at = usize::from(inside.is_contents);
                }
                if depth != self.looked_at || inside.is_contents && depth == 0 {
                    return None;
                }
                (inside.root, &inside.source.path, &inside.to)
            }
            Step::Leave => {
                self.depth -= 1;
                return None;
            }
            Step::Other(other) => {
                if self.depth == 0 {
                    self.looked_at = 0;
                }
                if self.depth != self.looked_at {
                    return None;
                }
                (other.root, &other.source.path, &other.to)
            }
            Step::Conflict(_) | Step::Failed(_) => return None,
        };
        let is_new = self.taken.len() < MAX_NAMES && self.taken.insert(to.clone());
        (!is_new).then_some((root, source, to))
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::super::root::Target;
    use super::super::walk::Other;
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// A plan of a copy between two local directories, with the conflicts in it.
    async fn plan(
        sources: &[(&Path, Option<&str>)],
        dest: &Path,
        options: &Options,
    ) -> (Plan, Vec<String>) {
        let mut roots = Vec::new();
        for (source, name) in sources {
            let source = source.as_os_str().as_bytes();
            let source = Tree::Local.follow(source).await.unwrap().unwrap();
            let target = Target::new(&Tree::Local, dest.as_os_str().as_bytes(), 1).await;
            let name = name.map(str::as_bytes);
            let root = target.unwrap().root((Tree::Local, source), name).await;
            roots.push(root.unwrap());
        }
        let mut conflicts = Vec::new();
        let told = async |error: Error| {
            conflicts.push(error.to_string());
            Ok(())
        };
        let plan = Plan::make(&Tree::Local, options, &roots, told).await;
        (plan.unwrap(), conflicts)
    }

    fn recursive() -> Options {
        Options {
            recursive: true,
            ..Options::default()
        }
    }

    /// A directory with files of these names, each of three bytes.
    fn with_files(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "abc").unwrap();
        }
        dir
    }

    #[tokio::test]
    async fn what_is_to_be_copied_is_counted() {
        let source = with_files(&["a", "b/c", "b/d.o", "skipped"]);
        std::os::unix::fs::symlink("a", source.path().join("link")).unwrap();
        let dest = with_files(&["tree/skipped"]);
        let options = Options {
            keeps_existing: true,
            exclude: crate::exclude::Exclude::new(&["*.o".to_owned()]).unwrap(),
            ..recursive()
        };
        let sources = [(source.path(), Some("tree"))];
        let (plan, conflicts) = plan(&sources, dest.path(), &options).await;
        assert!(conflicts.is_empty() && !plan.conflicts && !plan.is_partial);
        assert_eq!((plan.files, plan.bytes), (3, 6));
        // Two directories, what is in them, and what is left out as it is there.
        assert_eq!(plan.steps.unwrap().len(), 2 * 2 + 3 + 1);
        assert_eq!(fs::read_dir(dest.path().join("tree")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn steps_with_long_paths_are_not_kept() {
        let source = with_files(&["file"]);
        let sources = [(source.path(), Some("tree"))];
        let dest = tempfile::tempdir().unwrap();
        let (mut plan, _) = plan(&sources, dest.path(), &recursive()).await;
        let step = |bytes| {
            let path = vec![b'x'; bytes];
            let about = source.path().join("file").symlink_metadata().unwrap();
            Step::Other(Box::new(Other {
                root: 0,
                source: Entry::local(path.clone(), &about),
                to: path,
                there: None,
                replaced: None,
                action: Action::Copy { replaces: false },
            }))
        };
        assert!(plan.add(step(1000)).is_none() && plan.steps.is_some());
        assert!(plan.add(step(MAX_STEP_BYTES / 2)).is_none() && plan.steps.is_none());
    }

    #[tokio::test]
    async fn all_conflicts_are_found() {
        let source = with_files(&["file", "dir/file", "dir/other"]);
        let dest = with_files(&["tree/dir", "tree/file/x"]);
        let sources = [(source.path(), Some("tree"))];
        let (plan, conflicts) = plan(&sources, dest.path(), &recursive()).await;
        assert!(plan.conflicts && plan.steps.is_none());
        assert_eq!(conflicts.len(), 2, "{conflicts:?}");
        assert!(
            conflicts[0].contains("/dir, which is a file"),
            "{conflicts:?}"
        );
        assert!(
            conflicts[1].contains("cannot replace the directory"),
            "{conflicts:?}"
        );
    }

    #[tokio::test]
    async fn names_that_two_sources_would_get_are_found() {
        let (one, two) = (with_files(&["a", "b/x"]), with_files(&["b/y", "c"]));
        let dest = tempfile::tempdir().unwrap();
        let (a, b, c) = (
            one.path().join("a"),
            one.path().join("b"),
            two.path().join("c"),
        );
        let found = async |sources: &[(&Path, Option<&str>)]| {
            plan(sources, dest.path(), &recursive()).await.1.len()
        };
        assert_eq!(found(&[(&a, Some("a")), (&c, Some("c"))]).await, 0);
        assert_eq!(found(&[(&a, Some("a")), (&c, Some("a"))]).await, 1);
        // What is in both is in b.
        assert_eq!(found(&[(one.path(), None), (two.path(), None)]).await, 1);
        assert_eq!(found(&[(one.path(), None), (&c, Some("c"))]).await, 0);
        assert_eq!(found(&[(one.path(), None), (&c, Some("a"))]).await, 1);
        // Deeper names are those of other directories.
        assert_eq!(found(&[(one.path(), None), (&b, Some("x"))]).await, 0);
        assert_eq!(found(&[(&a, Some("x")), (one.path(), Some("d"))]).await, 0);
    }

    #[tokio::test]
    async fn directory_is_not_copied_into_itself() {
        let source = with_files(&["a/b/file"]);
        let (a, b) = (source.path().join("a"), source.path().join("a/b"));
        for dest in [&a, &b] {
            let sources = [(&*a, Some("new"))];
            let (plan, conflicts) = plan(&sources, dest, &recursive()).await;
            assert!(plan.conflicts);
            assert!(conflicts[0].contains("into itself"), "{conflicts:?}");
        }
        let (_, conflicts) = plan(&[(&a, Some("a"))], source.path(), &recursive()).await;
        assert!(conflicts[0].contains("one and the same"), "{conflicts:?}");
        let (plan, _) = plan(&[(&a, Some("beside"))], source.path(), &recursive()).await;
        assert!(!plan.conflicts);
    }

    #[tokio::test]
    async fn directory_without_recursion_leaves_the_plan_partial() {
        let source = with_files(&["file"]);
        let dest = tempfile::tempdir().unwrap();
        let sources = [(source.path(), Some("tree"))];
        let (plan, _) = plan(&sources, dest.path(), &Options::default()).await;
        assert!(plan.is_partial && !plan.conflicts);
        assert_eq!(plan.files, 0);
    }
}
