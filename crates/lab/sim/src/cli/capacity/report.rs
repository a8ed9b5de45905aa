//! Capacity plan as Markdown, for docs/guides/capacity.md.

use std::fmt::Write;

use spillway_engine::Profile;
use spillway_sim::{Objective, Sizing, TrialFigures};

use super::besides;
use super::check::{Check, MEASURED_REPLICAS, SECONDS, WARM_UP_S, WORK};

/// Mean milliseconds between two tokens that the arithmetic allows.
const STEP_MS: f64 = 200.0;

/// Returns the whole report; `tried` is empty if the operator gave the rate.
pub(super) fn report(
    sizing: &Sizing,
    tried: &[(f64, TrialFigures)],
    checks: &[Check],
    objective: &Objective,
) -> String {
    let parts = [
        one_replica(sizing, tried, objective),
        regions(sizing),
        runs(checks, objective),
        besides::table(sizing, checks),
    ];
    parts.concat().trim_end().to_owned()
}

fn one_replica(sizing: &Sizing, tried: &[(f64, TrialFigures)], objective: &Objective) -> String {
    let cost = Profile::L4.step_cost();
    let mut text = format!(
        "**One replica** (L4): {:.0} ms of work a request; by arithmetic {:.1} requests/s with steps of {STEP_MS:.0} ms.",
        WORK.seconds(&cost) * 1e3,
        WORK.rate_per_s(&cost, STEP_MS),
    );
    if tried.is_empty() {
        let _infallible =
            write!(text, " The plan was given {:.2} requests/s.\n\n", sizing.replica_per_s);
        return text;
    }
    let _infallible = write!(
        text,
        " In the simulator, {MEASURED_REPLICAS} replicas of one region, {SECONDS:.0} s after {WARM_UP_S:.0} s to warm up:\n\n\
         | requests/s a replica | first token within {:.0} ms | | p99 ms | cached |\n|--:|--:|---|--:|--:|\n",
        objective.first_token_ms,
    );
    for (rate, figures) in tried {
        let _infallible = writeln!(
            text,
            "| {rate:.2} | {:.1} % | {} | {:.0} | {:.1} % |",
            figures.good_share * 100.0,
            met(figures, objective),
            figures.p99_ms,
            figures.cached_share * 100.0,
        );
    }
    let _infallible =
        write!(text, "\nThe plan counts with {:.2} requests/s.\n\n", sizing.replica_per_s);
    text
}

fn regions(sizing: &Sizing) -> String {
    let (own, alone, plan) = (sizing.own_peaks(), sizing.without_spilling(), sizing.replicas());
    let hour = sizing.curve.busiest_h(&sizing.regions);
    let demands = sizing.curve.demands_per_s(&sizing.regions, hour);
    let mut text = format!(
        "**Replicas.** All regions together ask most at {hour:.0} UTC:\n\n\
         | region | peak requests/s | at {hour:.0} UTC | for its own peak | without spilling | plan |\n\
         |---|--:|--:|--:|--:|--:|\n"
    );
    for (at, region) in sizing.regions.iter().enumerate() {
        let _infallible = writeln!(
            text,
            "| {} | {:.1} | {:.1} | {} | {} | {} |",
            region.name, region.peak_per_s, demands[at], own[at], alone[at], plan[at]
        );
    }
    let peaks: f64 = sizing.regions.iter().map(|region| region.peak_per_s).sum();
    let sum = |replicas: &[usize]| replicas.iter().sum::<usize>();
    let _infallible = write!(
        text,
        "| together | {peaks:.1} | {:.1} | {} | {} | **{}** |\n\n",
        demands.iter().sum::<f64>(),
        sum(&own),
        sum(&alone),
        sum(&plan)
    );
    text
}

fn runs(checks: &[Check], objective: &Objective) -> String {
    let mut text = format!(
        "**In the simulator**, at that hour ({:.0} % within {:.0} ms is asked for):\n\n\
         | | requests/s | replicas | good | | p99 ms | served elsewhere |\n|---|--:|--:|--:|---|--:|--:|\n",
        objective.share * 100.0,
        objective.first_token_ms,
    );
    for check in checks {
        let replicas: Vec<String> = check.replicas.iter().map(ToString::to_string).collect();
        let _infallible = writeln!(
            text,
            "| {} | {:.1} | {} | {:.1} % | {} | {:.0} | {:.1} % |",
            check.name,
            check.demand_per_s,
            replicas.join(" + "),
            check.figures.good_share * 100.0,
            met(&check.figures, objective),
            check.figures.p99_ms,
            check.figures.forwarded_share * 100.0,
        );
    }
    text.push('\n');
    text
}

fn met(figures: &TrialFigures, objective: &Objective) -> &'static str {
    if figures.meets(objective) { "met" } else { "missed" }
}
