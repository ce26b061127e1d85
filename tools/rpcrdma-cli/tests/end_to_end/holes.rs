//! Holes of files that are copied.

use crate::running::{Served, ok};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Bytes of disk space that a file takes.
fn used(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// A file with some bytes at its beginning and in its middle.
fn with_holes(path: &Path, size: u64) {
    let file = File::create_new(path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", size / 2).unwrap();
    file.sync_all().unwrap();
    assert!(used(path) < MIB, "there are no holes here");
}

#[track_caller]
fn check_data(path: &Path, size: u64) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), size);
    let mut bytes = [1; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"begin\0\0\0\0\0");
    file.read_exact_at(&mut bytes, size / 2 - 2).unwrap();
    assert_eq!(&bytes, b"\0\0middle\0\0");
    file.read_exact_at(&mut bytes, size - 10).unwrap();
    assert_eq!(bytes, [0; 10]);
}

#[test]
fn holes_of_a_file_stay_holes_on_the_server() {
    let served = Served::new(&[]);
    // Larger than what could be sent while anybody waits for a test.
    let size = 3 << 30;
    let source = served.around.path().join("sparse");
    with_holes(&source, size);
    ok(&["put", source.to_str().unwrap(), &served.url("")]);
    let copy = served.dir.join("sparse");
    check_data(&copy, size);
    assert!(used(&copy) < MIB, "{} bytes are used", used(&copy));
}

#[test]
fn file_that_is_one_hole_stays_one() {
    let served = Served::new(&[]);
    let source = served.around.path().join("hole");
    let size = 3 << 30;
    File::create_new(&source).unwrap().set_len(size).unwrap();
    ok(&["put", source.to_str().unwrap(), &served.url("")]);
    let copy = served.dir.join("hole");
    assert_eq!(copy.metadata().unwrap().len(), size);
    assert!(used(&copy) < MIB);
}

#[test]
fn holes_of_a_file_of_the_server_stay_holes() {
    let served = Served::new(&[]);
    let size = 24 * MIB;
    with_holes(&served.dir.join("sparse"), size);
    let dest = tempfile::tempdir().unwrap();
    let copy = dest.path().join("copy");
    ok(&["get", &served.url("sparse"), copy.to_str().unwrap()]);
    check_data(&copy, size);
    assert!(used(&copy) < MIB, "{} bytes are used", used(&copy));
}

#[test]
fn holes_are_filled_if_the_user_says_never() {
    let served = Served::new(&[]);
    let size = 4 * MIB;
    let source = served.around.path().join("sparse");
    with_holes(&source, size);
    let never = ["--sparse", "never"];
    let put = ["put", source.to_str().unwrap(), &served.url("")];
    ok(&[&put[..], &never].concat());
    let copy = served.dir.join("sparse");
    check_data(&copy, size);
    assert!(used(&copy) >= size);

    std::fs::remove_file(&copy).unwrap();
    with_holes(&copy, size);
    let back = served.around.path().join("back");
    let get = ["get", &served.url("sparse"), back.to_str().unwrap()];
    ok(&[&get[..], &never].concat());
    check_data(&back, size);
    assert!(used(&back) >= size);
}

#[test]
fn zeros_become_holes_if_the_user_says_always() {
    let served = Served::new(&[]);
    let size = 4 * MIB;
    let mut data = vec![0; usize::try_from(size).unwrap()];
    data[..5].copy_from_slice(b"begin");
    let middle = data.len() / 2;
    data[middle..][..6].copy_from_slice(b"middle");
    let source = served.local("dense", &data);
    assert!(used(Path::new(&source)) >= size);
    let always = ["--sparse", "always"];
    ok(&[&["put", &source, &served.url("")][..], &always].concat());
    let copy = served.dir.join("dense");
    check_data(&copy, size);
    assert!(used(&copy) < MIB, "{} bytes are used", used(&copy));

    std::fs::write(&copy, &data).unwrap();
    let back = served.around.path().join("back");
    let get = ["get", &served.url("dense"), back.to_str().unwrap()];
    ok(&[&get[..], &always].concat());
    check_data(&back, size);
    assert!(used(&back) < MIB, "{} bytes are used", used(&back));
}

#[test]
fn zeros_that_take_space_stay_as_they_are_by_default() {
    let served = Served::new(&[]);
    let data = vec![0; 4 << 20];
    let source = served.local("dense", &data);
    ok(&["put", &source, &served.url("")]);
    let copy = served.dir.join("dense");
    assert!(used(&copy) >= 4 * MIB);
    let back = served.around.path().join("back");
    ok(&["get", &served.url("dense"), back.to_str().unwrap()]);
    assert!(used(&back) >= 4 * MIB);
}
