//! Maps: regions and the network between them.

use std::f64::consts::{PI, TAU};

use serde::Deserialize;

/// Regions of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Map {
    /// Two regions on both sides of the Atlantic.
    Two,
    /// Three regions, as in the workloads of this project.
    #[default]
    Three,
    /// Six regions of three continents.
    Six,
    /// Fifty regions at points drawn by chance.
    Fifty,
}

impl Map {
    /// Returns the round-trip times in milliseconds between the regions, by their numbers.
    pub(super) fn rtt_ms(self) -> Vec<Vec<f64>> {
        match self {
            // The first two of the six.
            Self::Two => AWS_RTT_MS[..2].iter().map(|row| row[..2].to_vec()).collect(),
            Self::Three => crate::scenario::RTT_MS.iter().map(|row| row.to_vec()).collect(),
            Self::Six => AWS_RTT_MS.iter().map(|row| row.to_vec()).collect(),
            Self::Fifty => drawn_rtt_ms(50),
        }
    }
}

/// Median round-trip times in milliseconds between us-east-1, eu-central-1, ap-northeast-1,
/// us-west-2, ap-southeast-1 and eu-west-1 of AWS, as <https://www.cloudping.co> measured them;
/// means of both directions, and 0 within a region, where a path counts as a hop.
const AWS_RTT_MS: [[f64; 6]; 6] = [
    [0.0, 92.9, 149.6, 64.2, 219.3, 69.6],
    [92.9, 0.0, 227.3, 142.6, 160.8, 27.2],
    [149.6, 227.3, 0.0, 98.4, 70.7, 202.4],
    [64.2, 142.6, 98.4, 0.0, 160.5, 118.4],
    [219.3, 160.8, 70.7, 160.5, 0.0, 178.8],
    [69.6, 27.2, 202.4, 118.4, 178.8, 0.0],
];

/// Shortest and longest round-trip time between drawn points in milliseconds, about as between
/// regions of AWS.
const DRAWN_RTT_MS: [f64; 2] = [20.0, 250.0];

/// Returns round-trip times in milliseconds between points drawn on a globe, always the same ones:
/// they grow with the distance, so that a detour is never much quicker.
fn drawn_rtt_ms(regions: usize) -> Vec<Vec<f64>> {
    let mut rng = fastrand::Rng::with_seed(50);
    let mut point = || {
        let height = 2.0 * rng.f64() - 1.0;
        let (radius, angle) = ((1.0 - height * height).sqrt(), TAU * rng.f64());
        [radius * angle.cos(), radius * angle.sin(), height]
    };
    let points: Vec<[f64; 3]> = (0..regions).map(|_| point()).collect();
    let [shortest, longest] = DRAWN_RTT_MS;
    let rtt_ms = |a: usize, b: usize| {
        let cosine: f64 = points[a].iter().zip(&points[b]).map(|(a, b)| a * b).sum();
        let way = cosine.clamp(-1.0, 1.0).acos() / PI;
        if a == b { 0.0 } else { shortest + (longest - shortest) * way }
    };
    (0..regions).map(|a| (0..regions).map(|b| rtt_ms(a, b)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_is_as_long_in_both_directions_and_no_path_leads_nowhere() {
        for map in [Map::Two, Map::Three, Map::Six, Map::Fifty] {
            let rtt_ms = map.rtt_ms();
            for (a, row) in rtt_ms.iter().enumerate() {
                assert_eq!(row.len(), rtt_ms.len(), "{map:?}");
                for (b, &ms) in row.iter().enumerate() {
                    assert_eq!(ms, rtt_ms[b][a], "{map:?}: {a} and {b}");
                    assert_eq!(ms == 0.0, a == b, "{map:?}: {a} and {b}");
                }
            }
        }
    }
}
