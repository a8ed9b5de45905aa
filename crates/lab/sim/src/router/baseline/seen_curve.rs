//! Curve of a cluster's time to first token over the requests in flight there, as it was seen.

use std::collections::VecDeque;

/// Observations that count, their age in milliseconds at most, and the fewest that are trusted:
/// `maxRequests`, `maxObservationAge` and `minRequests` of the observer.
const SEEN_MAX: usize = 100;
const AGE_MS_MAX: u64 = 180_000;
const SEEN_MIN: usize = 10;

/// Milliseconds for each entry of the history of the floor: `bucketDuration`.
const BUCKET_MS: u64 = 60_000;

/// Quantiles of the floor and of the two anchors, and of the samples around an anchor to both
/// sides.
const FLOOR: f64 = 0.1;
const LOW: f64 = 0.25;
const TYPICAL: f64 = 0.5;
const BAND: f64 = 0.1;

/// Requests in flight by which the anchors differ at least if both count: `minInflightGap`.
const GAP_MIN: f64 = 2.0;

/// Curve of llm-d's `latency-observer-producer-hub`, as `latency-observation-scorer-hub` reads it:
/// straight lines from the floor at no request in flight to the 25th and the 50th percentile of the
/// recent times at the number in flight that these met, and on from there.
///
/// The floor is the 10th percentile of the 10th percentiles of each minute. It is as old as it is in
/// the code; the anchors are those of the moment, where the code computes them each second.
#[derive(Debug, Default)]
pub(super) struct SeenCurve {
    seen: VecDeque<Seen>,
    /// Observations so far.
    count: usize,
    /// Times of the present minute, and its number.
    bucket: (u64, Vec<f64>),
    /// Floors of the minutes before.
    floors: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: u64,
    first_token_ms: f64,
    in_flight: f64,
}

impl SeenCurve {
    /// Adds the time to first token of a request that met so many others in flight.
    pub(super) fn see(&mut self, now_ms: u64, first_token_ms: f64, in_flight: u32) {
        if now_ms / BUCKET_MS != self.bucket.0 {
            let times = std::mem::take(&mut self.bucket.1);
            self.floors.extend(quantile(times, FLOOR));
            self.bucket.0 = now_ms / BUCKET_MS;
        }
        self.bucket.1.push(first_token_ms);
        self.count += 1;
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        let in_flight = f64::from(in_flight);
        self.seen.push_back(Seen { at_ms: now_ms, first_token_ms, in_flight });
    }

    /// Returns the predicted time to first token with so many requests in flight; `None` if too little
    /// was seen.
    pub(super) fn predict(&self, now_ms: u64, in_flight: u32) -> Option<f64> {
        let is_recent = |seen: &&Seen| seen.at_ms + AGE_MS_MAX >= now_ms;
        let mut recent: Vec<Seen> = self.seen.iter().filter(is_recent).copied().collect();
        if recent.len() < SEEN_MIN {
            return None;
        }
        recent.sort_by(|a, b| a.first_token_ms.total_cmp(&b.first_token_ms));
        let times = || recent.iter().map(|one| one.first_token_ms).collect::<Vec<_>>();
        let floor_ms = match quantile(self.floors.clone(), FLOOR) {
            Some(floor_ms) => floor_ms,
            None => quantile(times(), FLOOR)?,
        };
        let (low, typical) = (anchor(&recent, LOW), anchor(&recent, TYPICAL));
        let in_flight = f64::from(in_flight);
        if typical.0 <= 0.0 || typical.1 <= floor_ms {
            return Some(floor_ms);
        }
        let is_low_used =
            typical.0 - low.0 >= GAP_MIN && typical.1 > low.1 && low.1 > floor_ms && low.0 > 0.0;
        let from_floor = |end: (f64, f64)| line((0.0, floor_ms), end, in_flight);
        let predicted_ms = match (is_low_used, in_flight < low.0) {
            (true, true) => from_floor(low),
            (true, false) => line(low, typical, in_flight),
            (false, _) => from_floor(typical),
        };
        Some(predicted_ms.max(floor_ms))
    }
}

/// Returns the requests in flight around a quantile of sorted times, and the time there.
fn anchor(sorted: &[Seen], share: f64) -> (f64, f64) {
    let at = |share: f64| ((sorted.len() - 1) as f64 * share.clamp(0.0, 1.0)).round() as usize;
    let band = &sorted[at(share - BAND)..=at(share + BAND)];
    let in_flight = band.iter().map(|one| one.in_flight).sum::<f64>() / band.len() as f64;
    (in_flight, sorted[at(share)].first_token_ms)
}

/// Returns the height at `x` of the line through two points.
fn line((x0, y0): (f64, f64), (x1, y1): (f64, f64), x: f64) -> f64 {
    y0 + (x - x0) * (y1 - y0) / (x1 - x0)
}

fn quantile(mut times: Vec<f64>, share: f64) -> Option<f64> {
    times.sort_unstable_by(f64::total_cmp);
    let at = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a curve that saw each pair of requests in flight and milliseconds five times.
    fn curve(pairs: &[(u32, f64)]) -> SeenCurve {
        let mut curve = SeenCurve::default();
        for &(in_flight, ms) in pairs.iter().flat_map(|pair| [pair; 5]) {
            curve.see(0, ms, in_flight);
        }
        curve
    }

    #[test]
    fn a_curve_bends_at_the_low_anchor_and_goes_on_beyond_the_typical_one() {
        // Floor 100 ms, 25th percentile 200 at 4 in flight, 50th 400 at 8.
        let slow = (9, 900.0);
        let bend = [(0, 100.0), (4, 200.0), (4, 200.0), (8, 400.0), (8, 400.0), slow, slow, slow];
        let curve = curve(&bend);
        let at = |in_flight| curve.predict(1_000, in_flight).unwrap();
        assert_eq!((at(0), at(2), at(4)), (100.0, 150.0, 200.0));
        assert_eq!((at(8), at(12)), (400.0, 600.0));
    }

    #[test]
    fn anchors_at_one_load_are_one_line_from_the_floor() {
        let slow = (8, 900.0);
        let line = [(0, 100.0), (7, 200.0), (7, 200.0), (8, 400.0), (8, 400.0), slow, slow, slow];
        let curve = curve(&line);
        let at = |in_flight| curve.predict(1_000, in_flight).unwrap();
        assert_eq!((at(0), at(4), at(8)), (100.0, 250.0, 400.0));
    }

    #[test]
    fn few_or_old_observations_are_no_curve_and_the_floor_is_kept_for_good() {
        let mut curve = curve(&[(0, 100.0), (4, 200.0)]);
        assert!(curve.predict(1_000, 0).is_some());
        assert_eq!(curve.predict(AGE_MS_MAX + 1, 0), None);
        for _ in 0..10 {
            curve.see(AGE_MS_MAX, 700.0, 0);
        }
        assert_eq!(curve.predict(AGE_MS_MAX + 1, 0), Some(100.0));
        assert_eq!(SeenCurve::default().predict(0, 0), None);
    }
}
