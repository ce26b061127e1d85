//! Output of the program that counts allocations.

use std::process::Command;

#[test]
fn allocations_of_a_null_are_counted_at_both_ends() {
    let done = Command::new(env!("CARGO_BIN_EXE_lab-counting"))
        .args(["self", "--count-allocations", "--only", "null"])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let counted: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    for end in ["client", "server"] {
        // The caller of a NULL may need memory now and then; no call needs twenty pieces.
        let each = counted["null"][end].as_f64().unwrap();
        assert!((0.0..20.0).contains(&each), "{end}: {each} of each NULL");
    }
    let client = counted["null"]["client"].as_f64().unwrap();
    assert!(client > 0.0, "a program that counts has counted something");
}
