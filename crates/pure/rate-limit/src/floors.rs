//! Floors: the part of a limit that each node has permanently.

use std::collections::BTreeMap;

use spillway_types::{NodeName, RegionName};

use crate::fair::even;
use crate::{LimitKind, Units};

/// Part of a limit that is divided among regions permanently if the limit names no floors of its
/// own, in thousandths. A floor that its region does not use stays unused: with a tenth, one region
/// alone still gets more than nine tenths of the limit.
pub const FLOORS_PERMILLE_DEFAULT: u64 = 100;

/// Returns the floors of a limit: the units that each node may use in any case.
///
/// A region has the thousandths of `whole` that `permille` contains for it. If `permille` is empty,
/// all regions share [`FLOORS_PERMILLE_DEFAULT`] evenly, with at least one unit each where the
/// limit is at least twice the number of regions. Nodes of a region share its floor evenly, and the
/// first names get one more where a remainder is left. The floors sum up to at most the limit.
#[must_use]
pub fn floors(
    whole: [Option<u64>; 3],
    permille: &BTreeMap<RegionName, u16>,
    nodes: &BTreeMap<RegionName, Vec<NodeName>>,
) -> BTreeMap<NodeName, Units> {
    let mut floors: BTreeMap<NodeName, Units> = BTreeMap::new();
    for kind in LimitKind::ALL {
        let whole = whole[kind as usize].unwrap_or(0);
        let even_floor = even_floor(whole, nodes.len() as u64);
        for (region, nodes) in nodes {
            let floor = if permille.is_empty() {
                even_floor
            } else {
                let share = permille.get(region).copied().unwrap_or(0);
                (u128::from(whole) * u128::from(share) / 1_000) as u64
            };
            let part = even(floor, nodes.len());
            for (place, node) in nodes.iter().enumerate() {
                floors.entry(node.clone()).or_default()[kind] = part(place);
            }
        }
    }
    floors
}

fn even_floor(whole: u64, regions: u64) -> u64 {
    let regions = regions.max(1);
    let share = (u128::from(whole) * u128::from(FLOORS_PERMILLE_DEFAULT) / 1_000) as u64 / regions;
    let least = u64::from(whole >= 2 * regions);
    share.max(least)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(counts: &[usize]) -> BTreeMap<RegionName, Vec<NodeName>> {
        let region = |(place, count): (usize, &usize)| {
            let names = (0..*count).map(|node| format!("r{place}-n{node}").as_str().into());
            (format!("r{place}").as_str().into(), names.collect())
        };
        counts.iter().enumerate().map(region).collect()
    }

    fn of(whole: u64, permille: &[(&str, u16)], counts: &[usize]) -> Vec<u64> {
        let permille = permille.iter().map(|(region, share)| ((*region).into(), *share)).collect();
        let floors = floors([Some(whole), None, None], &permille, &nodes(counts));
        floors.values().map(|units| units[LimitKind::RequestRate]).collect()
    }

    #[test]
    fn regions_share_a_tenth_unless_somebody_says_otherwise() {
        assert_eq!(of(3_000, &[], &[1, 2]), [150, 75, 75]);
        assert_eq!(of(1_000, &[("r0", 500), ("r2", 111)], &[3, 1, 1]), [167, 167, 166, 0, 111]);
    }

    #[test]
    fn a_small_limit_still_has_a_floor_in_every_region() {
        assert_eq!(of(6, &[], &[2, 1, 1]), [1, 0, 1, 1]);
        assert_eq!(of(5, &[], &[1, 1, 1]), [0, 0, 0], "too small to be divided for ever");
    }

    proptest! {
        #[test]
        fn floors_never_make_more_than_the_limit(
            whole in prop_oneof![0u64..200, any::<u64>().prop_map(|whole| whole >> 24)],
            shares in prop::collection::vec(0u16..400, 0..4),
            counts in prop::collection::vec(1usize..5, 1..8),
        ) {
            let names: Vec<String> = (0..shares.len()).map(|place| format!("r{place}")).collect();
            let shares: Vec<_> = names.iter().map(String::as_str)
                .zip(shares.iter().scan(0, |sum, share| {
                    let share = (*share).min(1_000 - *sum);
                    *sum += share;
                    Some(share)
                })).collect();
            let sum: u128 = of(whole, &shares, &counts).into_iter().map(u128::from).sum();
            prop_assert!(sum <= u128::from(whole));
        }
    }
}
