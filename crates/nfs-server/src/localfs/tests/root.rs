//! The root directory is removed, and made again.

use super::*;

fn root_to_mount(export: &Export) -> Result<FileId, Error> {
    export.fs().root_to_mount().wait()
}

fn directory_that_is_made_again_is_served_to_the_next_client_that_mounts() {
    let export = Export::new();
    export.write("old", "old");
    let (root, old) = (export.fs().root(), export.find("old").unwrap());
    assert_eq!(root_to_mount(&export), Ok(root));
    fs::remove_dir_all(&export.path).unwrap();
    assert_eq!(root_to_mount(&export), Err(Error::NotFound));
    fs::create_dir(&export.path).unwrap();
    export.write("d/new", "new");
    assert_eq!(export.stat(root), Err(Error::Stale));
    let said = crate::captured_log::captured_log(|| {
        for _ in 0..2 {
            let again = root_to_mount(&export).unwrap();
            assert_eq!(export.fs().root(), again);
        }
    });
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("was gone"), "{said}");
    let new = export.find("d/new").unwrap();
    assert_eq!(export.read(new).unwrap(), b"new");
    assert_eq!(export.stat(old), Err(Error::Stale));
    let is_now = fs::metadata(&export.path).unwrap();
    assert_eq!(
        export.fs().identity().unwrap(),
        (is_now.dev(), is_now.ino())
    );
}

fn root_that_is_there_is_mounted_at_once() {
    let export = Export::new();
    assert!(export.fs().root_to_mount().is_ready());
}

/// It may be another file system, or lead out of the export.
fn something_else_at_the_path_is_not_served() {
    let export = Export::new();
    fs::remove_dir(&export.path).unwrap();
    symlink(&export.outside, &export.path).unwrap();
    assert!(root_to_mount(&export).is_err());
    fs::remove_file(&export.path).unwrap();
    fs::write(&export.path, "a file").unwrap();
    assert!(root_to_mount(&export).is_err());
}

in_both_ways! {
    directory_that_is_made_again_is_served_to_the_next_client_that_mounts
    root_that_is_there_is_mounted_at_once
    something_else_at_the_path_is_not_served
}

by_path! {
    directory_that_is_made_again_is_served_to_the_next_client_that_mounts
}
