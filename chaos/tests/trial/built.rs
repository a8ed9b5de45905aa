//! The `spillway` program that tests run.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the program that `SPILLWAY_BIN` names, or builds it in the folder of this test.
pub(crate) fn spillway() -> PathBuf {
    let named = std::env::var_os("SPILLWAY_BIN").map(PathBuf::from);
    let folder = Path::new(env!("CARGO_BIN_EXE_spillway-chaos")).parent();
    named.unwrap_or_else(|| build(folder.unwrap()))
}

/// Builds `spillway` into cargo's folder `profile`. Of several tests at once, one builds and the
/// others wait.
fn build(profile: &Path) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--package", "spillway"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "spillway can't be built");
    profile.join("spillway")
}
