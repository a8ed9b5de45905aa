//! Measures the speed of the linearizability checker: 10,000 operations of 16 clients on one key,
//! on 10 and on 100.

#![expect(clippy::print_stdout, reason = "an example prints what it measures")]

use std::time::{Duration, Instant};

use fastrand::Rng;
use spillway_chaos::linear::{
    Model as _, Operation, OperationEnd, Register, RegisterInput, RegisterOutput, RegisterState,
    SearchLimits, Version, check,
};

const OPERATIONS: u64 = 10_000;
const CLIENTS: u32 = 16;
const RUNS: u64 = 5;

fn main() {
    for (keys, versions) in [(1, true), (100, true), (1, false), (10, false), (100, false)] {
        for unknown_percent in [0.0, 0.1, 1.0] {
            let mut times = Vec::new();
            let mut undecided = 0;
            for seed in 0..RUNS {
                let mut history = history(&mut Rng::with_seed(seed), keys, unknown_percent);
                if !versions {
                    history.iter_mut().for_each(forget_version);
                }
                let start = Instant::now();
                let limits =
                    SearchLimits { time: Duration::from_secs(10), ..SearchLimits::default() };
                let is_linearizable = check(&Register, &history, limits).is_linearizable();
                undecided += u64::from(!is_linearizable);
                times.push(start.elapsed());
            }
            times.sort_unstable();
            let median = times[times.len() / 2];
            let per_s = OPERATIONS as f64 / median.as_secs_f64();
            println!(
                "{keys} keys, versions {versions}, {unknown_percent} % unknown: {median:?} ({per_s:.0} operations/s), \
                 longest {:?}, undecided {undecided} of {RUNS}",
                times[times.len() - 1]
            );
        }
    }
}

/// Makes the history of clients that are always busy; each operation takes effect at a random
/// moment.
fn history(
    rng: &mut Rng,
    keys: u64,
    unknown_percent: f64,
) -> Vec<Operation<u64, RegisterInput, RegisterOutput>> {
    let mut free_ns = [0; CLIENTS as usize];
    let mut planned: Vec<(u64, u64, u64, u32)> = (0..OPERATIONS)
        .map(|number| {
            let client = (number % u64::from(CLIENTS)) as u32;
            let call_ns = free_ns[client as usize] + rng.u64(1..1_000);
            let at_ns = call_ns + rng.u64(10_000..200_000);
            free_ns[client as usize] = at_ns;
            (rng.u64(call_ns..=at_ns), call_ns, at_ns, client)
        })
        .collect();
    planned.sort_unstable();
    let first = RegisterState { value: None, version: Version::Told(0) };
    let mut states = vec![(first, 0); keys as usize];
    let mut noted = Vec::new();
    for (_, call_ns, at_ns, client) in planned {
        let key = rng.u64(..keys);
        let (state, version) = &mut states[key as usize];
        let value = Some(noted.len() as u64);
        let next = Some(*version + 1);
        let (input, output) = match rng.u8(..4) {
            0 | 1 => {
                let version = (*version > 0).then_some(*version);
                (RegisterInput::Read, RegisterOutput::Value { value: state.value, version })
            }
            2 => (RegisterInput::Write(value), RegisterOutput::Written { version: next }),
            _ => (
                RegisterInput::CompareAndSet { expected: *version, value },
                RegisterOutput::Written { version: next },
            ),
        };
        if let Some(after) = Register.step(state, &input, Some(&output)) {
            *state = after;
        }
        *version += u64::from(input != RegisterInput::Read);
        let end = match rng.f64() * 100.0 < unknown_percent {
            true => OperationEnd::Unknown,
            false => OperationEnd::Returned { at_ns, output },
        };
        noted.push(Operation { client, key, input, call_ns, end });
    }
    noted
}

/// Removes versions, as if the object reported none. A compare-and-set becomes a write.
fn forget_version(operation: &mut Operation<u64, RegisterInput, RegisterOutput>) {
    if let RegisterInput::CompareAndSet { value, .. } = operation.input {
        operation.input = RegisterInput::Write(value);
    }
    if let OperationEnd::Returned { output, .. } = &mut operation.end {
        match output {
            RegisterOutput::Value { version, .. } | RegisterOutput::Written { version } => {
                *version = None;
            }
            RegisterOutput::Mismatch => {}
        }
    }
}
