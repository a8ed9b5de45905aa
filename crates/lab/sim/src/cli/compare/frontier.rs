//! Frontier of cost and time: what GPUs and egress cost an hour, and the 95th percentile for that.

use spillway_sim::{Row, Standing};

use super::experiments::Part;
use super::tables::{spillways, table};
use super::topics::{by_gpus, locals};
use crate::cli::tables::Table;

/// Price of an hour of one L4, in dollars: g6.xlarge of AWS, on demand in us-east-1
/// (<https://aws.amazon.com/ec2/pricing/on-demand/>).
pub(super) const GPU_DOLLARS_PER_H: f64 = 0.8048;
/// Price of a gigabyte from one region to another, in dollars: AWS, from its regions in the United
/// States and Europe (the same page).
pub(super) const EGRESS_DOLLARS_PER_GB: f64 = 0.02;
/// Series of the best baseline of all.
pub(super) const BEST: &str = "best baseline";
/// Series of the best baseline that never leaves a region.
pub(super) const WITHIN: &str = "best within regions";

/// Router with a number of GPUs: its cost and its goodput.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Name of the router, or of the kind of baselines of which it is the best by the 95th percentile.
    pub(super) series: String,
    /// Name of the router.
    pub(super) router: String,
    pub(super) gpus: f64,
    /// Dollars an hour for GPUs and egress.
    pub(super) dollars_per_h: f64,
    /// Dollars an hour for egress alone.
    pub(super) egress_dollars_per_h: f64,
    pub(super) goodput_per_s: f64,
    pub(super) p95_ms: f64,
}

impl Point {
    fn of(series: &str, row: &Row) -> Self {
        let mean = &row.mean;
        let egress_gb_per_h = mean.egress_bytes_per_s * 3_600.0 / 1e9;
        let egress_dollars_per_h = egress_gb_per_h * EGRESS_DOLLARS_PER_GB;
        Self {
            series: series.to_owned(),
            router: row.contender.clone(),
            gpus: mean.gpus,
            dollars_per_h: mean.gpus * GPU_DOLLARS_PER_H + egress_dollars_per_h,
            egress_dollars_per_h,
            goodput_per_s: mean.goodput_per_s,
            p95_ms: mean.p95_ms,
        }
    }

    /// Returns true if no other point costs less or as much and is faster, or is as fast for less.
    pub(super) fn is_on_frontier(&self, all: &[Self]) -> bool {
        !all.iter().any(|other| {
            let is_no_worse =
                other.dollars_per_h <= self.dollars_per_h && other.p95_ms <= self.p95_ms;
            let is_better = other.dollars_per_h < self.dollars_per_h || other.p95_ms < self.p95_ms;
            is_no_worse && is_better
        })
    }

    /// Returns dollars for a thousand requests within the objective.
    fn dollars_per_thousand_good(&self) -> f64 {
        self.dollars_per_h / 3.6 / self.goodput_per_s.max(1e-9)
    }
}

/// Returns the points of the experiment with more and fewer GPUs, from fewest to most.
pub(super) fn points(parts: &[Part]) -> Vec<Point> {
    by_gpus(parts).iter().flat_map(of_standing).collect()
}

fn of_standing(standing: &Standing) -> Vec<Point> {
    let fastest = locals(standing).min_by(|a, b| a.mean.p95_ms.total_cmp(&b.mean.p95_ms));
    let best = standing.best_p95.as_deref().and_then(|name| standing.row(name));
    let baselines = [(WITHIN, fastest), (BEST, best)];
    let baselines = baselines.into_iter().filter_map(|(series, row)| Some(Point::of(series, row?)));
    baselines.chain(spillways(standing).map(|row| Point::of(&row.contender, row))).collect()
}

/// Returns the table of all points.
pub(super) fn frontier(points: &[Point]) -> Table {
    let line = |point: &Point| {
        let is_baseline = point.series != point.router;
        let name = if is_baseline {
            format!("{}: {}", point.series, point.router)
        } else {
            point.router.clone()
        };
        vec![
            format!("{:.0}", point.gpus),
            name,
            format!("{:.3}", point.dollars_per_h),
            format!("{:.3}", point.egress_dollars_per_h / point.dollars_per_h * 100.0),
            format!("{:.0}", point.p95_ms),
            format!("{:.2}", point.goodput_per_s),
            format!("{:.3}", point.dollars_per_thousand_good()),
            if point.is_on_frontier(points) { "yes" } else { "" }.to_owned(),
        ]
    };
    let head =
        ["GPUs", "router", "$/h", "egress %", "p95 ms", "goodput/s", "$/1,000 good", "frontier"];
    table("Cost against p95", &head, points.iter().map(line).collect())
}

/// Returns the explanation of the table.
pub(super) fn about(points: &[Point]) -> String {
    let share = |point: &Point| point.egress_dollars_per_h / point.dollars_per_h * 100.0;
    let most = points.iter().map(share).fold(0.0, f64::max);
    format!(
        "What the worlds of the tables before cost an hour: each GPU ${GPU_DOLLARS_PER_H} (an L4 of \
         AWS on demand, g6.xlarge in us-east-1), each gigabyte that leaves a region \
         ${EGRESS_DOLLARS_PER_GB} ([price list](https://aws.amazon.com/ec2/pricing/on-demand/)). \
         Baselines are the best by p95. `frontier` marks the points that no other beats: none is as \
         cheap and faster, or as fast and cheaper. Gateways are not counted. Egress is {most:.3} % \
         of the cost at most, with 4 bytes a token; streams of events are larger.\n\n![Cost against p95](frontier.svg)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(dollars_per_h: f64, p95_ms: f64) -> Point {
        Point {
            series: "spillway".to_owned(),
            router: "spillway".to_owned(),
            gpus: 9.0,
            dollars_per_h,
            egress_dollars_per_h: 0.0,
            goodput_per_s: 1.0,
            p95_ms,
        }
    }

    #[test]
    fn points_that_another_beats_are_not_on_the_frontier() {
        let all = [
            point(1.0, 500.0),
            // As cheap and slower, dearer and as fast, dearer and slower.
            point(1.0, 501.0),
            point(1.1, 500.0),
            point(2.0, 600.0),
            // Dearer and faster, twice.
            point(3.0, 400.0),
            point(3.0, 400.0),
        ];
        let frontier: Vec<bool> = all.iter().map(|one| one.is_on_frontier(&all)).collect();
        assert_eq!(frontier, [true, false, false, false, true, true]);
    }

    #[test]
    fn cost_is_that_of_gpus_and_of_what_leaves_a_region() {
        let mean = spillway_sim::Score {
            gpus: 10.0,
            // 3.6 GB an hour.
            egress_bytes_per_s: 1e6,
            goodput_per_s: 2.0,
            ..Default::default()
        };
        let row = Row {
            contender: "gke".to_owned(),
            role: spillway_sim::Role::Baseline,
            mean,
            goodput: None,
            p95: None,
            token_p95: None,
        };
        let point = Point::of(BEST, &row);
        assert!((point.egress_dollars_per_h - 0.072).abs() < 1e-9, "{point:?}");
        assert!((point.dollars_per_h - 8.12).abs() < 1e-9, "{point:?}");
        // 7,200 good requests an hour.
        assert!((point.dollars_per_thousand_good() - 8.12 / 7.2).abs() < 1e-9);
    }
}
