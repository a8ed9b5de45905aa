//! Runner of fuzz targets: functions that give one input to a parser and panic when a property
//! fails.
//!
//! Each crate lists the targets of its own parsers in `fuzz::TARGETS`. They are compiled for tests
//! and under `cfg(fuzzing)` only, so that targets reach private parsers. [`check`] is the part for
//! tests: it replays the inputs in `inputs/` and then runs a bounded number of mutations. The
//! binary of this crate gives these targets to libFuzzer.

mod inputs;
mod mutation;

pub use inputs::{folder, read_inputs};
pub use mutation::mutate;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{env, fs};

/// Parser under test: a name that is unique in the project, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Mutations of each target in a test. All targets together take a few seconds.
const RUNS: u64 = 2_000;
/// Environment variable that replaces [`RUNS`].
const RUNS_VARIABLE: &str = "SPILLWAY_FUZZ_RUNS";
/// Environment variable that replaces [`SEED`].
const SEED_VARIABLE: &str = "SPILLWAY_FUZZ_SEED";
/// Seed of the mutations: fixed, so that a failure does not come and go.
const SEED: u64 = 0x5350_494c_4c57_4159;
/// Longest mutated input, in bytes.
const INPUT_BYTES_MAX: usize = 4_096;

/// Bytes that any parser may hold at a time, for an input of any length.
const HELD_BYTES_MIN: u64 = 1 << 20;
/// Further bytes that a parser may hold per byte of input. A map of small values costs most.
const HELD_BYTES_EACH: u64 = 512;

/// Runs `target` on one input and checks the peak of its memory.
///
/// # Panics
/// Panics if a property of the target fails, or it held more memory than its input justifies.
pub fn run_one((name, run): Target, input: &[u8]) {
    let held = allocation_counter::measure(|| run(input)).bytes_max;
    let limit = HELD_BYTES_MIN + HELD_BYTES_EACH * input.len() as u64;
    assert!(held <= limit, "{name} held {held} bytes for an input of {} bytes", input.len());
}

/// Replays the kept inputs of each target, then runs mutations of them from a fixed seed.
///
/// # Panics
/// Panics if an input makes a target panic. The message has the input and the way to keep it.
pub fn check(targets: &[Target]) {
    let runs = number(RUNS_VARIABLE).unwrap_or(RUNS);
    for target in targets {
        let kept = read_inputs(target.0);
        assert!(!kept.is_empty(), "{}: add a valid input as a seed", folder(target.0).display());
        for input in &kept {
            run_or_report(*target, input);
        }
        let mut dice = fastrand::Rng::with_seed(number(SEED_VARIABLE).unwrap_or(SEED));
        for _ in 0..runs {
            let input = mutate(&kept, INPUT_BYTES_MAX, &mut dice);
            run_or_report(*target, &input);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs an input. If that fails, writes the input to a temporary file and panics.
#[expect(clippy::panic, reason = "an assertion of tests")]
fn run_or_report(target: Target, input: &[u8]) {
    let Err(cause) = catch_unwind(AssertUnwindSafe(|| run_one(target, input))) else { return };
    let name = target.0;
    let path = env::temp_dir().join(format!("spillway-fuzz-{name}"));
    let written = fs::write(&path, input).is_ok();
    let mut hex = String::new();
    for byte in input.iter().take(512) {
        let _infallible = write!(hex, "{byte:02x}");
    }
    let place = if written { path.display().to_string() } else { "nowhere".to_owned() };
    // The message of a panic is a `String` if it was formatted, else a `&str`.
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("see above");
    let kept = folder(name);
    panic!(
        "{name} fails on an input of {} bytes, written to {place}: {said}. Mend the parser and keep \
         the input in {}. In hexadecimal: {hex}",
        input.len(),
        kept.display(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses_ff(input: &[u8]) {
        assert!(!input.contains(&0xff), "a byte that is not taken");
    }

    #[test]
    fn a_failing_input_is_reported_with_its_bytes_and_the_place_to_keep_it() {
        let cause = catch_unwind(|| run_or_report(("refuses_ff", refuses_ff), b"a\xff"));
        let said = cause.unwrap_err().downcast::<String>().unwrap();
        assert!(said.contains("refuses_ff fails on an input of 2 bytes"), "{said}");
        assert!(said.contains("a byte that is not taken") && said.ends_with("61ff"), "{said}");
        run_or_report(("refuses_ff", refuses_ff), b"a");
    }

    #[test]
    fn memory_beyond_what_the_input_justifies_is_a_failure() {
        fn greedy(input: &[u8]) {
            drop(std::hint::black_box(vec![0_u8; input.len() << 22]));
        }
        run_one(("greedy", greedy), b"");
        assert!(catch_unwind(|| run_one(("greedy", greedy), b"1")).is_err());
    }

    #[test]
    fn a_target_without_a_seed_is_refused() {
        assert!(catch_unwind(|| check(&[("no_such_target", refuses_ff)])).is_err());
    }
}
