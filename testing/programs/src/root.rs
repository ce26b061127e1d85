//! Path of the work tree.

use std::path::Path;

/// The root of the work tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate is in a folder of the work tree")
}
