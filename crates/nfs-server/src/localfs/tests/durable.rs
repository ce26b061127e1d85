//! Syncs before a call is answered.

use super::*;
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
    let exclusive = CreateHow::Exclusive([0; 8]);
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

in_both_ways! {
    create_that_finds_the_file_of_one_that_was_not_answered_syncs_its_name
}
