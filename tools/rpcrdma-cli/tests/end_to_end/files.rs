//! Commands that look at files and change them, beside those of coreutils.

use crate::coreutils::{ours, ours_with, theirs};
use crate::running::{Served, fails, text};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn df_has_the_columns_and_sizes_of_coreutils() {
    let served = Served::new(&[]);
    let url = served.url("");
    let words = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines();
        lines
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    // What is used changes while the test runs; the size does not.
    for (options, size) in [
        (&[][..], 1),
        (&["-k"], 1),
        (&["-h"], 1),
        (&["-H"], 1),
        (&["-i"], 1),
    ] {
        let shown = words(&ours(&[&["df"], options, &[&url]].concat()));
        let expected = words(&theirs(&served.dir, &[&["df"], options, &["."]].concat()));
        assert_eq!(shown[0], expected[0][..5], "{options:?}");
        assert_eq!(shown[1][0], url);
        assert_eq!(shown[1][size], expected[1][size], "{options:?}");
        assert_eq!(shown[1].len(), 5);
    }
    let both = ours(&["df", &url, &url]);
    assert_eq!(both.lines().count(), 3);
}

#[test]
fn df_of_what_is_not_there_shows_the_rest() {
    let served = Served::new(&[]);
    let (missing, url) = (served.url("missing"), served.url(""));
    let output = ours_with(&["df", &missing, &url], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).lines().count(), 2);
    assert_eq!(
        text(&output.stderr),
        format!("rpcrdma: {missing}: no such file or directory\n")
    );
}

#[test]
fn stat_shows_owners_by_name_and_times_in_the_time_zone() {
    let served = Served::new(&[]);
    let path = served.dir.join("file");
    fs::write(&path, "content").unwrap();
    let shown = ours(&["stat", &served.url("file")]);
    let format = ["stat", "-c", "%u:%g (%U:%G)|%y|%x|%z", "file"];
    for part in theirs(&served.dir, &format).trim_end().split('|') {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let line = ours(&["stat", "--json", &served.url("file")]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    let owner = theirs(&served.dir, &["stat", "-c", "%U", "file"]);
    assert_eq!(line["owner"], owner.trim_end());
    assert_eq!(line["uid"], fs::metadata(path).unwrap().uid());
    assert!(line["mtime"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn cat_prints_all_that_can_be_read() {
    let served = Served::new(&[]);
    for name in ["one", "two"] {
        fs::write(served.dir.join(name), format!("{name}\n")).unwrap();
    }
    let [one, missing, two] = ["one", "missing", "two"].map(|name| served.url(name));
    assert_eq!(ours(&["cat", &two, &one]), "two\none\n");
    let output = ours_with(&["cat", &one, &missing, &two], &[]);
    assert_eq!(text(&output.stdout), "one\ntwo\n");
    fails(
        &["cat", &one, &missing, &two],
        1,
        &format!("rpcrdma: {missing}: cannot read: no such file or directory\n"),
    );
}
