//! Random histories: of an object that is linearizable, and disturbed ones that the brute-force
//! checker judges too.

use std::sync::Mutex;

use fastrand::Rng;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::test_brute::is_linearizable;
use super::{
    Operation, OperationEnd, Recorder, Register, RegisterInput, RegisterOutput, SearchLimits,
    SearchVerdict, check,
};

type Op = Operation<&'static str, RegisterInput, RegisterOutput>;

const READ: RegisterInput = RegisterInput::Read;

fn judge(history: &[Op]) -> SearchVerdict<&'static str, Register> {
    check(&Register, history, SearchLimits::default())
}

/// Register that really is linearizable: operations under one lock, with pauses before and after.
#[derive(Default)]
struct Real(Mutex<(Option<u64>, u64)>);

impl Real {
    fn apply(&self, input: RegisterInput) -> RegisterOutput {
        let mut held = self.0.lock().unwrap();
        match input {
            RegisterInput::CompareAndSet { expected, .. } if held.1 != expected => {
                RegisterOutput::Mismatch
            }
            RegisterInput::Write(value) | RegisterInput::CompareAndSet { value, .. } => {
                // Versions grow by more than one, as in a log that other keys share.
                *held = (value, held.1 + 3);
                RegisterOutput::Written { version: Some(held.1) }
            }
            RegisterInput::Read => {
                RegisterOutput::Value { value: held.0, version: (held.1 > 0).then_some(held.1) }
            }
        }
    }
}

fn any_input(rng: &mut Rng, version: u64) -> RegisterInput {
    let value = (rng.u8(..10) > 0).then(|| rng.u64(..4));
    match rng.u8(..4) {
        0 | 1 => READ,
        2 => RegisterInput::Write(value),
        _ => RegisterInput::CompareAndSet { expected: version, value },
    }
}

#[test]
fn what_threads_did_to_a_real_register_is_linearizable() {
    let registers: Vec<Real> = (0..3).map(|_| Real::default()).collect();
    let recorder = Recorder::default();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (registers, recorder) = (&registers, &recorder);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(u64::from(client));
                let mut version = 0;
                for _ in 0..400 {
                    let key = rng.usize(..registers.len());
                    let input = any_input(&mut rng, version);
                    let pending = recorder.call(client, key, input);
                    let output = registers[key].apply(input);
                    if let RegisterOutput::Written { version: Some(new) }
                    | RegisterOutput::Value { version: Some(new), .. } = output
                    {
                        version = new;
                    }
                    match rng.u8(..50) {
                        0 if input != READ => pending.unknown(),
                        _ => pending.returned(output),
                    }
                }
            });
        }
    });
    let verdict = check(&Register, &recorder.into_history(), SearchLimits::default());
    assert!(verdict.is_linearizable(), "{verdict:?}");
}

/// Returns a history whose operations took effect in a random order that real time allows.
fn random_history(rng: &mut Rng, count: usize, clients: u32) -> Vec<Op> {
    let real = Real::default();
    let mut free_ns = vec![0; clients as usize];
    let mut planned: Vec<(u64, u64, u64, u32)> = (0..count)
        .map(|_| {
            let client = rng.u32(..clients);
            let call_ns = free_ns[client as usize] + rng.u64(1..10);
            let at_ns = call_ns + rng.u64(0..30);
            free_ns[client as usize] = at_ns + 1;
            (rng.u64(call_ns..=at_ns), call_ns, at_ns, client)
        })
        .collect();
    planned.sort_unstable();
    let mut version = 0;
    planned
        .into_iter()
        .map(|(_, call_ns, at_ns, client)| {
            let input = any_input(rng, version);
            let fate = rng.u8(..12);
            if fate == 0 {
                // The operation never arrived.
                return Op { client, key: "k", input, call_ns, end: OperationEnd::Unknown };
            }
            let output = real.apply(input);
            if let RegisterOutput::Written { version: Some(new) } = output {
                version = new;
            }
            match fate {
                1 => Op { client, key: "k", input, call_ns, end: OperationEnd::Unknown },
                _ => Op {
                    client,
                    key: "k",
                    input,
                    call_ns,
                    end: OperationEnd::Returned { at_ns, output },
                },
            }
        })
        .collect()
}

/// Returns the history with one answer or one time changed.
fn disturb(rng: &mut Rng, history: &mut [Op]) {
    if history.is_empty() {
        return;
    }
    let index = rng.usize(..history.len());
    let operation = &mut history[index];
    if let OperationEnd::Returned { at_ns, output } = &mut operation.end {
        match (rng.u8(..3), output) {
            (0, RegisterOutput::Value { value, .. }) => *value = Some(rng.u64(..4)),
            (0 | 1, RegisterOutput::Written { version: Some(version) }) => {
                *version = rng.u64(1..20);
            }
            _ => {
                let later_ns = rng.u64(..60);
                operation.call_ns += later_ns;
                *at_ns += later_ns;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_a_linearizable_object_did_is_linearizable(seed: u64, count in 0..200_usize) {
        let history = random_history(&mut Rng::with_seed(seed), count, 5);
        let verdict = judge(&history);
        prop_assert!(verdict.is_linearizable(), "{:?}", verdict);
    }

    #[test]
    fn small_histories_get_the_verdict_of_all_orders_tried(
        seed: u64, count in 0..8_usize, disturbances in 0..4_usize,
    ) {
        let mut rng = Rng::with_seed(seed);
        let mut history = random_history(&mut rng, count, 3);
        for _ in 0..disturbances {
            disturb(&mut rng, &mut history);
        }
        prop_assert_eq!(judge(&history).is_linearizable(), is_linearizable(&Register, &history));
    }

    #[test]
    fn a_counterexample_is_one_by_itself(seed: u64, count in 10..60_usize) {
        let mut rng = Rng::with_seed(seed);
        let mut history = random_history(&mut rng, count, 4);
        for _ in 0..3 {
            disturb(&mut rng, &mut history);
        }
        if let SearchVerdict::Violation(found) = judge(&history) {
            prop_assert!(found.operations.len() + found.settled <= history.len());
            prop_assert!(!found.starts.is_empty());
            // Without the last answer an order exists: nothing earlier was wrong.
            if found.settled == 0 {
                prop_assert!(!judge(&found.operations).is_linearizable(), "{}", found);
                let mut before = found.operations.clone();
                before[found.culprit].end = OperationEnd::Unknown;
                prop_assert!(judge(&before).is_linearizable(), "{}", found);
            }
        }
    }
}

#[test]
fn both_verdicts_are_common_among_disturbed_histories() {
    let mut verdicts = [0, 0];
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut history = random_history(&mut rng, 7, 3);
        disturb(&mut rng, &mut history);
        verdicts[usize::from(judge(&history).is_linearizable())] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 50), "{verdicts:?}");
}
