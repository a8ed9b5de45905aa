//! One node's part of a limit that all nodes of a region have together.

/// What another node of the region wants of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// Requests that it has there, and those that wait in it and could go there.
    pub wanted: u32,
    /// Whether its name comes before this node's: places that can't be divided go to the first.
    pub is_before: bool,
}

/// Requests that this node may have at a replica which may have `limit` from all nodes of the region,
/// where the others want so many: what they leave, but no less than a fair share.
///
/// Nobody has to be asked, so a node whose neighbours are idle feels nothing of them. What they began
/// since they told last is in excess, and so is what one has beyond its share in the moment that
/// another comes, until some of that has ended.
#[must_use]
pub fn own_part(limit: u32, others: &mut [Sharer]) -> u32 {
    others.sort_unstable_by_key(|other| other.wanted);
    let (mut left, mut nodes) = (limit, u32::try_from(others.len()).unwrap_or(u32::MAX - 1) + 1);
    let mut hungry = &*others;
    while let [first, rest @ ..] = hungry
        && first.wanted <= left / nodes
    {
        left -= first.wanted;
        nodes -= 1;
        hungry = rest;
    }
    let before = hungry.iter().filter(|other| other.is_before).count();
    let has_odd = before < (left % nodes) as usize;
    // One at least: or who comes last, where each of the others has one, would never get anything.
    (left / nodes + u32::from(has_odd)).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts of all nodes that want so many.
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
