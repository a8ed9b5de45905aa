//! Limits that the rows must keep.

use std::fmt::Write;

use spillway_sim::Figures;

use super::Study;
use super::batch::Row;

/// Policy that has to keep the limits, router it is compared with, and policies it has to beat.
const OWN: &str = "predicted_latency";
const BEST: &str = "omniscient";
const LEAST_LOAD: [&str; 2] = ["least_connections", "least_loaded"];

/// Returns the list of limits, each with its result.
pub(super) fn limits(parts: &[(Study, Vec<Row>)]) -> String {
    let mut text = String::new();
    for (study, rows) in parts {
        match study {
            Study::Locality { .. } => locality(&mut text, rows),
            Study::Hot { .. } => hot(&mut text, rows),
            _ => {}
        }
    }
    text
}

fn locality(text: &mut String, rows: &[Row]) {
    let Some(best) = find(rows, BEST) else { return };
    let own: Vec<&Figures> =
        rows.iter().filter(|row| row.setup == OWN).map(|row| &row.figures).collect();
    let worst = |of: fn(&Figures) -> f64, pick: fn(f64, f64) -> f64| {
        own.iter().map(|figures| of(figures)).reduce(pick).unwrap_or(0.0)
    };
    let share = worst(|figures| figures.cached_share, f64::min) / best.cached_share * 100.0;
    let limit = "cached tokens, with 1 to 8 nodes a region, ≥ 95 % of what one router gets that knows everything";
    line(text, share >= 95.0, limit, &format!("{share:.1} %"));
    let skew = worst(Figures::work_skew, f64::max);
    line(text, skew <= 1.3, "work skew within a region ≤ 1.3", &format!("{skew:.2}"));
    // The rows come in the order of `NODES`: from one node a region to eight.
    let (Some(one), Some(many)) = (own.first(), own.last()) else { return };
    let fall = (1.0 - many.cached_share / one.cached_share) * 100.0;
    line(
        text,
        fall <= 2.0,
        "cached tokens fall by ≤ 2 % from 1 to 8 nodes",
        &format!("{fall:.1} %"),
    );
    let rise = (many.work_skew() / one.work_skew() - 1.0) * 100.0;
    line(text, rise <= 2.0, "work skew rises by ≤ 2 % from 1 to 8 nodes", &format!("{rise:.1} %"));
}

fn hot(text: &mut String, rows: &[Row]) {
    let Some(own) = find(rows, OWN) else { return };
    let skew = own.work_skew().max(own.request_skew());
    line(text, skew <= 1.5, "one hot prefix: skew ≤ 1.5", &format!("{skew:.2}"));
    for other in LEAST_LOAD {
        let Some(figures) = find(rows, other) else { continue };
        let (first, second) = (own.first_token_ms, figures.first_token_ms);
        let holds = first.p50 < second.p50 && first.p90 < second.p90;
        let seen = format!(
            "{:.0} and {:.0} ms against {:.0} and {:.0}",
            first.p50, first.p90, second.p50, second.p90
        );
        let limit = format!("one hot prefix: median and 90th percentile below those of {other}");
        line(text, holds, &limit, &seen);
    }
}

fn find<'a>(rows: &'a [Row], setup: &str) -> Option<&'a Figures> {
    rows.iter().find(|row| row.setup == setup).map(|row| &row.figures)
}

fn line(text: &mut String, holds: bool, limit: &str, seen: &str) {
    let word = if holds { "holds" } else { "DOES NOT HOLD" };
    let _infallible = writeln!(text, "- {word}: {limit}: {seen}");
}
