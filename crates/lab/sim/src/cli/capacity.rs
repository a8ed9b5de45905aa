//! A capacity plan for regions whose busy hours follow the sun, checked in the simulator.

mod besides;
mod check;
mod plan;
mod report;

use std::cmp::Ordering;
use std::io::{self, Write};
use std::time::Instant;

use anyhow::{bail, ensure};
use spillway_sim::{DayCurve, Objective, PlannedRegion, Sizing, Trial, TrialFigures};

use super::batch;
use check::{Check, MEASURED_REPLICAS, SECONDS, WARM_UP_S};
pub(super) use plan::Plan;

/// Rates in requests a second of one replica that are tried.
const RATES_PER_S: [f64; 5] = [4.0, 4.5, 5.0, 5.5, 6.0];

/// Most regions of a plan: the loss of each is simulated.
const REGIONS_MAX: usize = 16;
/// Largest peak of a region in requests a second: each request is simulated.
const PEAK_MAX_PER_S: f64 = 1_000.0;

/// Prints the plan.
///
/// # Errors
///
/// Returns an error if the options don't fit each other, or if a run contradicts the plan.
pub(super) fn run(plan: &Plan) -> anyhow::Result<()> {
    let objective = Objective { first_token_ms: plan.good_ms, share: plan.share_percent / 100.0 };
    let rtt_ms = matrix(&plan.rtt_ms, plan.regions.len())?;
    let tried = match plan.replica_per_s {
        Some(_) => Vec::new(),
        None => measure(&objective, plan.seed),
    };
    let Some(replica_per_s) = plan.replica_per_s.or_else(|| best(&tried, &objective)) else {
        bail!("no rate that was tried meets the objective: give --replica-per-s, or ask for less");
    };
    let planned_per_s = replica_per_s * (1.0 - plan.headroom_percent / 100.0);
    let sizing = sizing(plan, &rtt_ms, planned_per_s)?;
    let checks = check(&sizing, &rtt_ms, &objective, plan.seed);
    let text = report::report(&sizing, &tried, &checks, &objective);
    writeln!(io::stdout().lock(), "{text}")?;
    // Only now: the report shows why the plan is wrong.
    let wrong = checks.iter().find(|one| one.figures.meets(&objective) != one.must_meet);
    if let Some(Check { name, figures, must_meet, .. }) = wrong {
        let what = if *must_meet { "the plan is too small" } else { "the plan is too large" };
        bail!("{what}: {name}: {:.1} % are good", figures.good_share * 100.0);
    }
    Ok(())
}

fn sizing(plan: &Plan, rtt_ms: &[Vec<f64>], replica_per_s: f64) -> anyhow::Result<Sizing> {
    let count = plan.regions.len();
    ensure!((2..=REGIONS_MAX).contains(&count), "a plan has 2 to {REGIONS_MAX} regions");
    ensure!(
        replica_per_s > 0.0,
        "a replica has to serve something: see --replica-per-s and --headroom-percent"
    );
    ensure!(
        plan.peaks.iter().all(|peak| *peak > 0.0 && *peak <= PEAK_MAX_PER_S),
        "--peaks are requests a second above 0, up to {PEAK_MAX_PER_S}"
    );
    ensure!(
        (0.0..100.0).contains(&plan.reserve_percent) && (0.0..=100.0).contains(&plan.night_percent),
        "--reserve-percent and --night-percent are percent"
    );
    ensure!(
        plan.peaks.len() == count && plan.utc_offsets.len() == count,
        "--peaks and --utc-offsets need one number for each of {count} regions"
    );
    let region = |at: usize| PlannedRegion {
        name: plan.regions[at].clone(),
        utc_offset_h: plan.utc_offsets[at],
        peak_per_s: plan.peaks[at],
    };
    let nearest = |from: usize| {
        let others = (0..count).filter(|to| *to != from);
        others.min_by(|a, b| rtt_ms[from][*a].total_cmp(&rtt_ms[from][*b])).unwrap_or(0)
    };
    Ok(Sizing {
        regions: (0..count).map(region).collect(),
        curve: DayCurve { peak_h: 15.0, night: plan.night_percent / 100.0 },
        replica_per_s,
        reserve: plan.reserve_percent / 100.0,
        stand_ins: (0..count).map(nearest).collect(),
    })
}

/// Returns the full matrix of round trips, from the pairs above the diagonal.
fn matrix(pairs: &[f64], count: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let needed = count * count.saturating_sub(1) / 2;
    ensure!(pairs.len() == needed, "--rtt-ms needs {needed} numbers for {count} regions");
    let position = |from: usize, to: usize| from * (2 * count - from - 1) / 2 + to - from - 1;
    let rtt_ms = |from: usize, to: usize| match from.cmp(&to) {
        Ordering::Less => pairs[position(from, to)],
        Ordering::Equal => 0.0,
        Ordering::Greater => pairs[position(to, from)],
    };
    let row = |from: usize| -> Vec<f64> { (0..count).map(|to| rtt_ms(from, to)).collect() };
    Ok((0..count).map(row).collect())
}

/// Measures one region by itself with rising rates of requests.
fn measure(objective: &Objective, seed: u64) -> Vec<(f64, TrialFigures)> {
    let trial = |rate: &f64| Trial {
        replicas: vec![MEASURED_REPLICAS],
        demands_per_s: vec![rate * MEASURED_REPLICAS as f64],
        rtt_ms: vec![vec![0.0]],
        warm_up_s: WARM_UP_S,
        seconds: SECONDS,
        seed,
    };
    let figures = run_all(&RATES_PER_S.iter().map(trial).collect::<Vec<_>>(), objective);
    RATES_PER_S.into_iter().zip(figures).collect()
}

/// Returns the highest rate up to which all rates meet the objective.
fn best(tried: &[(f64, TrialFigures)], objective: &Objective) -> Option<f64> {
    // A higher rate that meets the objective by chance does not count.
    tried.iter().take_while(|(_, figures)| figures.meets(objective)).map(|(rate, _)| *rate).last()
}

/// Runs the plan at the busiest hour, then with each region lost, then with one replica fewer.
fn check(sizing: &Sizing, rtt_ms: &[Vec<f64>], objective: &Objective, seed: u64) -> Vec<Check> {
    let replicas = sizing.replicas();
    let hour = sizing.curve.busiest_h(&sizing.regions);
    let whole = Trial {
        demands_per_s: sizing.curve.demands_per_s(&sizing.regions, hour),
        replicas: replicas.clone(),
        rtt_ms: rtt_ms.to_vec(),
        warm_up_s: WARM_UP_S,
        seconds: SECONDS,
        seed,
    };
    let mut planned = vec![("all regions".to_owned(), whole.clone(), true)];
    for lost in 0..replicas.len() {
        let name = &sizing.regions[lost].name;
        let trial = whole.without(lost, sizing.stand_ins[lost]);
        planned.push((format!("{name} lost"), trial, true));
    }
    // A plan that is right could spare no replica: each of these runs has to fail.
    for fewer in (0..replicas.len()).filter(|at| replicas[*at] > 1) {
        let mut less = whole.clone();
        less.replicas[fewer] -= 1;
        // A plan that holds every loss by arithmetic would not be refuted by a run.
        let Some(lost) = worst_loss(sizing, &less.replicas, fewer) else { continue };
        let [name, less_name] = [lost, fewer].map(|at| &sizing.regions[at].name);
        let trial = less.without(lost, sizing.stand_ins[lost]);
        planned.push((format!("{name} lost, one replica fewer in {less_name}"), trial, false));
    }
    let trials: Vec<Trial> = planned.iter().map(|(_, trial, _)| trial.clone()).collect();
    let figures = run_all(&trials, objective);
    let made = planned.into_iter().zip(figures).map(|((name, trial, must_meet), figures)| Check {
        name,
        demand_per_s: trial.demands_per_s.iter().sum(),
        replicas: trial.replicas,
        must_meet,
        figures,
    });
    made.collect()
}

/// Returns the region whose loss leaves least to the others, among those whose loss is too much.
fn worst_loss(sizing: &Sizing, replicas: &[usize], fewer: usize) -> Option<usize> {
    let lost = (0..replicas.len()).filter(|lost| *lost != fewer);
    lost.filter(|lost| !sizing.holds_without(replicas, *lost)).max_by_key(|lost| replicas[*lost])
}

/// Runs all trials, and returns the figures in their order.
#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn run_all(trials: &[Trial], objective: &Objective) -> Vec<TrialFigures> {
    let origin = Instant::now();
    batch::run_all(trials, |trial| trial.run(objective, origin))
}
