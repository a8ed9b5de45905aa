//! Prints how often a guard rolls a candidate back, and after how many of its requests.
//!
//! `cargo run --release -p spillway-rollout --example power` takes some minutes and prints the
//! table of docs/measured/rollouts.md.
#![expect(clippy::print_stdout, clippy::expect_used, reason = "it prints a table, by fixed rules")]

use std::time::Duration;

use spillway_rollout::{ArmFigures, Guard, Judgement, Margins, RequestFacts};

/// Rollouts of a row about false alarms, and of another one.
const RUNS: [u64; 2] = [1_000, 200];
/// The candidate's requests in one rollout.
const REQUESTS: u64 = 2_000;
/// The candidate's requests between two looks of the guard, in the same order.
const LOOKS: [u64; 2] = [50, 10];
const MARGINS: Margins = Margins {
    failed: Some(0.01),
    first_token: Some(0.2),
    token_time: Some(0.2),
    tokens: Some(0.3),
};
const FALSE_ALARMS: f64 = 0.05;

/// How an arm behaves: share of failed requests, and factors of times and tokens.
#[derive(Clone, Copy, PartialEq)]
struct Arm {
    failed: f64,
    first_token: f64,
    token_time: f64,
    tokens: f64,
}

const USUAL: Arm = Arm { failed: 0.01, first_token: 1.0, token_time: 1.0, tokens: 1.0 };

/// What both arms go through during a rollout.
#[derive(Clone, Copy)]
enum Weather {
    Calm,
    /// Load doubles first tokens and back, and every tenth of the time one request in five fails.
    Changing,
}

fn request(arm: Arm, weather: Weather, at: f64, rng: &mut fastrand::Rng) -> RequestFacts {
    let (outage, load) = match weather {
        Weather::Calm => (0.0, 1.0),
        Weather::Changing => {
            let is_outage = (at * 10.0).fract() < 0.1;
            (if is_outage { 0.2 } else { 0.0 }, 1.5 + 0.5 * (at * std::f64::consts::TAU).sin())
        }
    };
    if rng.f64() < arm.failed + outage {
        return RequestFacts { has_failed: true, ..RequestFacts::default() };
    }
    // First tokens have heavy tails.
    let tail = (1.0 - rng.f64()).powf(-0.5);
    RequestFacts {
        has_failed: false,
        first_token: Some(Duration::from_secs_f64(0.1 * arm.first_token * load * tail)),
        token_time: Some(Duration::from_secs_f64(0.01 * arm.token_time * (0.5 + rng.f64()))),
        tokens: Some((300.0 * arm.tokens * rng.f64().powi(2)) as u64),
    }
}

/// Returns the candidate's requests until it was rolled back; `None` if it never was.
fn rolled_back_after(candidate: Arm, share: f64, weather: Weather, seed: u64) -> Option<u64> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let look = LOOKS[usize::from(candidate != USUAL)];
    let guard = Guard::new(MARGINS, FALSE_ALARMS, 4).expect("the rules are good");
    let (mut base, mut other) = (ArmFigures::default(), ArmFigures::default());
    while other.requests < REQUESTS {
        let at = other.requests as f64 / REQUESTS as f64;
        if rng.f64() >= share {
            base.record(request(USUAL, weather, at, rng));
            continue;
        }
        other.record(request(candidate, weather, at, rng));
        let is_look = other.requests % look == 0;
        if is_look && matches!(guard.judge(&base, &other), Judgement::Worse(_)) {
            return Some(other.requests);
        }
    }
    None
}

fn row(name: &str, candidate: Arm, share: f64, weather: Weather) {
    let runs = RUNS[usize::from(candidate != USUAL)];
    let all = (0..runs).map(|seed| rolled_back_after(candidate, share, weather, seed));
    let mut found: Vec<u64> = all.flatten().collect();
    found.sort_unstable();
    let at = |part: f64| {
        let index = (found.len() as f64 * part) as usize;
        found.get(index.min(found.len().saturating_sub(1))).map_or_else(String::new, u64::to_string)
    };
    let percent = 100.0 * found.len() as f64 / runs as f64;
    println!("| {name} | {:.0} % | {percent:.1} % | {} | {} |", 100.0 * share, at(0.5), at(0.9));
}

fn main() {
    println!("| candidate | its share | rolled back | requests (median) | requests (p90) |");
    println!("|---|--:|--:|--:|--:|");
    for share in [0.01, 0.1, 0.5] {
        row("like the baseline", USUAL, share, Weather::Calm);
        row("like the baseline, while all changes", USUAL, share, Weather::Changing);
        row("fails 5 % instead of 1 %", Arm { failed: 0.05, ..USUAL }, share, Weather::Calm);
        row("fails 20 %", Arm { failed: 0.2, ..USUAL }, share, Weather::Calm);
        row(
            "twice the time to the first token",
            Arm { first_token: 2.0, ..USUAL },
            share,
            Weather::Calm,
        );
        let both = Arm { first_token: 2.0, ..USUAL };
        row("twice the time, while all changes", both, share, Weather::Changing);
        row("1.5 times the time per token", Arm { token_time: 1.5, ..USUAL }, share, Weather::Calm);
        row("half the tokens", Arm { tokens: 0.5, ..USUAL }, share, Weather::Calm);
    }
}
