//! Path resolution through `..` and symbolic links.

use crate::again::Again;
use crate::path::{Last, components};
use crate::{Export, Fault, Node};
use nfs_proto::{FileType, Name};
use oncrpc::Transport;

/// Symbolic links that are followed in one path, as Linux does it.
const MAX_SYMLINKS: usize = 40;

impl<T: Transport + Send + Sync> Export<T> {
    /// Returns the object at a path, with its attributes. What is replaced on the way is looked up again.
    pub(crate) async fn find(&self, path: &[u8], last: Last) -> Result<Node, Fault> {
        let mut again = Again::default();
        loop {
            match self.find_once(path, last).await {
                Err(fault) if again.after(&fault) => {}
                found => return found,
            }
        }
    }

    /// Returns the object at a path. `..` goes back the way the path came, and never out of the export; an
    /// absolute symbolic link begins at the root of the export (RFC 2224 §6.2).
    pub(crate) async fn find_once(&self, path: &[u8], last: Last) -> Result<Node, Fault> {
        let mut way = vec![self.root()];
        let mut rest: Vec<Vec<u8>> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let dir = way.last().expect("the way begins at the root").handle;
            let node = self.lookup(dir, Name::new(&name)?).await?;
            let end = rest.is_empty() && last == Last::Keep;
            if node.attributes.file_type != FileType::Symlink || end {
                way.push(node);
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(Fault::TooManySymlinks);
            }
            let target = self.nfs().read_link(node.handle).await?;
            if target.starts_with(b"/") {
                way.truncate(1);
            }
            rest.extend(components(&target).rev().map(<[u8]>::to_vec));
        }
        Ok(way.pop().expect("the way begins at the root"))
    }

    /// Returns the object of a name in a directory, with its attributes.
    pub(crate) async fn lookup(
        &self,
        dir: nfs_proto::FileHandle,
        name: Name<'_>,
    ) -> Result<Node, Fault> {
        let (handle, attributes) = self.nfs().lookup(dir, name).await?;
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.nfs().get_attributes(handle).await?,
        };
        Ok(Node { handle, attributes })
    }
}
