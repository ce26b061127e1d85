//! Tells the program which compiler made it: counts of instructions are compared only between programs of one compiler.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output();
    let version = version.expect("cargo has just found its compiler");
    let version = String::from_utf8_lossy(&version.stdout);
    println!("cargo::rustc-env=LAB_COMPILER={}", version.trim());
}
