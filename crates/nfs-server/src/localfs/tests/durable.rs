//! Syncs before a call is answered.

use super::*;
use crate::fs::{Changed, Reserve, SetXattr, XattrName};
use std::fs::{File, FileTimes};
use std::time::UNIX_EPOCH;

/// One that syncs its changes, also where files are only in memory.
fn durable() -> Export {
    let mut export = Export::new();
    export.restart_with(|opening| {
        opening.volume.memory = false;
        opening.changes = Changes::Durable;
    });
    export
}

/// How often the root was synced.
fn syncs_of_root(export: &Export) -> u64 {
    export.fs().layers.files.root().syncs.count()
}

fn create_that_finds_the_file_of_one_that_was_not_answered_syncs_its_name() {
    let unchecked = CreateHow::Unchecked(SetAttributes::default());
    let truncating = CreateHow::Unchecked(SetAttributes::size(0));
    let exclusive = CreateHow::Exclusive([0; 8], SetAttributes::default());
    for how in [unchecked, truncating, exclusive] {
        let export = durable();
        // As a server leaves it that was killed before it had synced.
        fs::write(export.path.join("f"), "").unwrap();
        let file = File::options().write(true).open(export.path.join("f"));
        file.unwrap()
            .set_times(
                FileTimes::new()
                    .set_accessed(UNIX_EPOCH)
                    .set_modified(UNIX_EPOCH),
            )
            .unwrap();
        let before = syncs_of_root(&export);
        let root = export.fs().root();
        let made = export.make_as(&Identity::root(), root, "f", Make::File(how));
        assert!(made.is_ok(), "{how:?}: {made:?}");
        assert!(syncs_of_root(&export) > before, "{how:?}");
    }
}

/// A change of a file, by what clients ask for.
type ChangeOf = fn(&LocalFs, FileId) -> Outcome<Changed<()>>;

fn attributes_and_space_of_a_file_are_synced() {
    let set: ChangeOf = |local, file| {
        let name = XattrName::new(b"name").unwrap();
        local.set_xattr(
            &Identity::root(),
            file,
            name,
            "value".into(),
            SetXattr::Either,
        )
    };
    let remove: ChangeOf = |local, file| {
        let name = XattrName::new(b"name").unwrap();
        local.remove_xattr(&Identity::root(), file, name)
    };
    let reserve: ChangeOf =
        |local, file| local.reserve(&Identity::root(), file, (0, 9), Reserve::Space);
    let free: ChangeOf =
        |local, file| local.reserve(&Identity::root(), file, (0, 9), Reserve::Nothing);
    let mut export = Export::new();
    for (changes, syncs) in [(Changes::Durable, 1), (Changes::Cached, 0)] {
        export.restart_with(|opening| {
            opening.volume.memory = false;
            // Syncs that many callers share are counted.
            opening.volume.syncs.journal = false;
            opening.changes = changes;
        });
        let local = export.fs();
        export.write("f", "data");
        let f = export.find("f").unwrap();
        let node = local.layers.handles.node(f, Pace::Patient).unwrap();
        for change in [set, remove, reserve, free] {
            let before = node.syncs.count();
            match change(local, f).wait().result {
                Ok(()) => assert_eq!(node.syncs.count() - before, syncs),
                Err(error) => assert_eq!(error, Error::NotSupported),
            }
        }
        let before = node.syncs.count();
        assert!(remove(local, f).wait().result.is_err());
        assert_eq!(node.syncs.count(), before, "what failed is not synced");
    }
}

in_both_ways! {
    attributes_and_space_of_a_file_are_synced
    create_that_finds_the_file_of_one_that_was_not_answered_syncs_its_name
}
