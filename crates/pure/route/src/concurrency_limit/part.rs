//! Part of one node in a limit that all nodes of a region share.

/// Demand of another node of the region for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// Requests that the node has there, and requests that wait in the node and could go there.
    pub wanted: u32,
    /// True if the node's name comes before this node's: indivisible slots go to the first nodes.
    pub is_before: bool,
}

/// Returns the number of requests that this node may have at a replica with `limit` slots for all
/// nodes of the region: the slots that the `others` leave, but at least a fair share.
///
/// No node has to ask, so a node with idle neighbours loses nothing. The limit can be exceeded for
/// a while: by requests that other nodes began since their last report, and by requests beyond the
/// fair share when another node appears.
#[must_use]
pub fn own_part(limit: u32, others: &mut [Sharer]) -> u32 {
    others.sort_unstable_by_key(|other| other.wanted);
    let (mut left, mut nodes) = (limit, u32::try_from(others.len()).unwrap_or(u32::MAX - 1) + 1);
    // Max-min fairness: a node that wants no more than an equal part gets it, and the others share
    // the rest.
    let mut hungry = &*others;
    while let [first, rest @ ..] = hungry
        && first.wanted <= left / nodes
    {
        left -= first.wanted;
        nodes -= 1;
        hungry = rest;
    }
    let before = hungry.iter().filter(|other| other.is_before).count();
    // All nodes count the same order of names, so each slot goes to one of them.
    let has_odd = before < (left % nodes) as usize;
    // At least one: or the last node would never get a slot where each of the others has one.
    (left / nodes + u32::from(has_odd)).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the parts of all nodes that want these numbers.
    fn parts(limit: u32, wanted: &[u32]) -> Vec<u32> {
        let part = |own: usize| {
            let others = wanted.iter().enumerate().filter(|(other, _)| *other != own);
            let sharer =
                |(other, &wanted): (usize, &u32)| Sharer { wanted, is_before: other < own };
            own_part(limit, &mut others.map(sharer).collect::<Vec<_>>())
        };
        (0..wanted.len()).map(part).collect()
    }

    #[test]
    fn who_is_alone_has_it_all() {
        assert_eq!(own_part(32, &mut []), 32);
        assert_eq!(parts(32, &[0, 0, 0]), [32, 32, 32], "nobody wants any");
    }

    #[test]
    fn what_others_leave_is_for_whoever_wants_it() {
        assert_eq!(parts(32, &[90, 3, 5])[0], 24);
        assert_eq!(parts(32, &[90, 90, 2]), [15, 15, 10]);
    }

    #[test]
    fn odd_places_go_to_the_first_and_each_has_one_at_least() {
        assert_eq!(parts(11, &[90, 90, 90]), [4, 4, 3]);
        assert_eq!(parts(2, &[90, 90, 90, 90]), [1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn those_who_want_more_than_there_is_have_all_of_it_in_equal_parts(
            limit in 8_u32..500,
            wanted in prop::collection::vec(0_u32..200, 1..8),
        ) {
            let parts = parts(limit, &wanted);
            let used: u32 = parts.iter().zip(&wanted).map(|(part, wanted)| part.min(wanted)).sum();
            prop_assert_eq!(used, limit.min(wanted.iter().sum()));
            let kept_away = parts.iter().zip(&wanted).filter(|(part, wanted)| part < wanted);
            let least = kept_away.map(|(part, _)| *part).min().unwrap_or(u32::MAX);
            prop_assert!(parts.iter().zip(&wanted).all(|(part, &wanted)| (*part).min(wanted) <= least.saturating_add(1)));
        }
    }
}
