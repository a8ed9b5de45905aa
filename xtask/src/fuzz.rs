//! `cargo xtask fuzz`: gives the fuzz targets to libFuzzer for a bounded time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::command::{self, command, first_line};
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};

/// Folder with the kept inputs, a folder for each target.
const INPUTS: &str = "crates/lab/fuzz/inputs";
/// Compiler wrapper that adds coverage counters to crates of the workspace.
const WRAPPER: &str = "crates/lab/fuzz/instrument.sh";
/// Longest time for one input, in seconds. Parsers take milliseconds, also unoptimized.
const INPUT_S_MAX: u32 = 10;
/// Memory limit of a run in megabytes, its corpus included.
const RUN_MB_MAX: u32 = 1_024;
/// Longest generated input, in bytes.
const INPUT_BYTES_MAX: u32 = 4_096;

/// Shortest time of a target, in seconds, that is bounded by libFuzzer's clock alone.
const SECONDS_EXACT: u32 = 5;
/// Number of runs that replaces a second where the time is shorter.
const RUNS_EACH_SECOND: u32 = 3_000;

/// Runs `target`, or each target if None, for `seconds` in sum. Returns true if none failed.
pub(crate) fn run(root: &Path, target: Option<&str>, seconds: u32, json: bool) -> Result<bool> {
    let targets = targets(root, target)?;
    let mut report = Report::default();
    let built = report.step("build the instrumented targets", || {
        if first_line(&mut command(root, "c++ --version")).is_none() {
            bail!("a C++ compiler is missing: install it (Debian: apt-get install g++)");
        }
        // The whole workspace, and an example, so that features are those of the tests. Crates from
        // elsewhere are then shared with the tests.
        let line = "cargo build --locked --workspace --features spillway-fuzz/guided \
                    --bin spillway-fuzz --example test_features";
        let mut build = command(root, line);
        command::run(build.env("RUSTC_WORKSPACE_WRAPPER", root.join(WRAPPER)))?;
        Ok(CheckOutcome::Passed)
    });
    if built {
        let folder = Metadata::load(root)?.target_directory;
        let started = Instant::now();
        for (done, name) in targets.iter().enumerate() {
            // Time that a target leaves over goes to the targets after it.
            let left = f64::from(seconds) - started.elapsed().as_secs_f64();
            let part = (left / (targets.len() - done) as f64).max(1.0) as u32;
            report.step(name.clone(), || fuzz(root, &folder, name, part));
        }
    }
    report.finish(json)
}

/// Returns the names of all targets, or of the requested one.
fn targets(root: &Path, asked: Option<&str>) -> Result<Vec<String>> {
    let folder = root.join(INPUTS);
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    match asked {
        None => Ok(names),
        Some(asked) if names.iter().any(|name| name == asked) => Ok(vec![asked.to_owned()]),
        Some(asked) => bail!("there is no target {asked}; there are {}", names.join(", ")),
    }
}

/// Fuzzes one target. Inputs that libFuzzer finds stay in the target folder for the next run.
fn fuzz(root: &Path, folder: &Path, name: &str, seconds: u32) -> Result<CheckOutcome> {
    let corpus = folder.join("fuzz/corpus").join(name);
    let failed = folder.join("fuzz/failed").join(name);
    for folder in [&corpus, &failed] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut fuzzer = Command::new(folder.join("debug/spillway-fuzz"));
    fuzzer.current_dir(root).env("SPILLWAY_FUZZ_TARGET", name);
    fuzzer.args([&corpus, &root.join(INPUTS).join(name)]);
    fuzzer.arg(format!("-artifact_prefix={}/", failed.display()));
    fuzzer.arg(format!("-max_total_time={seconds}"));
    if seconds < SECONDS_EXACT {
        // libFuzzer looks at its clock about once a second, so a shorter part would take too long.
        fuzzer.arg(format!("-runs={}", seconds * RUNS_EACH_SECOND));
    }
    fuzzer.arg(format!("-timeout={INPUT_S_MAX}"));
    fuzzer.arg(format!("-rss_limit_mb={RUN_MB_MAX}"));
    fuzzer.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    fuzzer.args(["-print_final_stats=1", "-verbosity=0", "-print_funcs=0"]);
    command::run(&mut fuzzer).with_context(|| {
        format!("mend the parser and keep the input of {} in {INPUTS}/{name}", failed.display())
    })?;
    Ok(CheckOutcome::Passed)
}
