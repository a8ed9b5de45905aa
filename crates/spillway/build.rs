//! Names the build: by `SPILLWAY_BUILD` where packages are made, else by the commit. Leaves symbols out of
//! release builds.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SPILLWAY_BUILD");
    // Grows with each commit and each checkout. Watched only where it is there: a missing file would
    // build this crate each time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    let named = std::env::var("SPILLWAY_BUILD").ok().filter(|name| !name.is_empty());
    let build = named.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=SPILLWAY_BUILD={}", build.as_deref().unwrap_or("unknown"));

    // Cargo forgets `strip = "symbols"` of a profile for a package with a level of its own. Only profile
    // `release` has this level here and no tables of lines.
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("OPT_LEVEL", "1") && is("DEBUG", "false") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}

/// Returns what git prints; `None` where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
