//! Fair division of a limit that several nodes share.

/// Want of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// Slots that the node has work for.
    pub(crate) wanted: u32,
    /// True if the node has had no work for some time.
    pub(crate) is_idle: bool,
}

/// Divides `limit` among nodes by what each wants. Nodes with the same knowledge get the same
/// result.
///
/// First, nodes that want something get one place each. Second, every node that is not idle has
/// one, so that none has to ask before its next request. Third, all get what they want, then one
/// more, those with least first. Fourth, idle nodes have one each; the rest goes evenly to all.
/// Among equals, the earlier in the list comes first. With fewer slots than nodes with work, the
/// last ones get nothing; claims take turns then.
pub(crate) fn fair(limit: u32, wants: &[Want]) -> Vec<u32> {
    let mut parts = vec![0; wants.len()];
    let mut left = limit;
    let busy = |want: &Want, cap| if want.is_idle { 0 } else { cap };
    let steps: [&dyn Fn(&Want) -> u32; 5] = [
        // One slot for each node with work.
        &|want| want.wanted.min(1),
        // One slot for each node that is not idle.
        &|want| busy(want, 1),
        // As many slots as each node has work for.
        &|want| busy(want, want.wanted.max(1)),
        // One spare slot.
        &|want| busy(want, want.wanted.saturating_add(1)),
        // One slot for idle nodes, too.
        &|want| want.wanted.saturating_add(1),
    ];
    for step in steps {
        let caps: Vec<u32> = wants.iter().map(step).collect();
        left = level(&mut parts, &caps, left);
    }
    divide(&mut parts, left);
    parts
}

/// Raises the lowest parts first, each up to its cap. Returns what is left over.
fn level(parts: &mut [u32], caps: &[u32], mut left: u32) -> u32 {
    while left > 0 {
        let open = || (0..parts.len()).filter(|i| parts[*i] < caps[*i]);
        let Some(lowest) = open().map(|i| parts[i]).min() else { break };
        let group: Vec<usize> = open().filter(|i| parts[*i] == lowest).collect();
        // Up to the next part above, or to the first cap.
        let next = open().map(|i| parts[i]).filter(|part| *part > lowest).min();
        let cap = group.iter().map(|i| caps[*i]).min().unwrap_or(lowest);
        let rise = next.map_or(cap, |next| next.min(cap)) - lowest;
        let width = u32::try_from(group.len()).unwrap_or(u32::MAX);
        let each = rise.min(left / width);
        // Too few are left for one each: the first in the list get one.
        if each == 0 {
            group.iter().take(left as usize).for_each(|i| parts[*i] += 1);
            return 0;
        }
        group.iter().for_each(|i| parts[*i] += each);
        left -= each * width;
    }
    left
}

/// Divides what is left evenly among all.
fn divide(parts: &mut [u32], left: u32) {
    let Ok(width) = u32::try_from(parts.len()) else { return };
    if width == 0 {
        return;
    }
    // The first in the list get one more from the remainder.
    let first = (left % width) as usize;
    for (place, part) in parts.iter_mut().enumerate() {
        *part += left / width + u32::from(place < first);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fair(limit: u32, wanted: &[u32]) -> Vec<u32> {
        let wants: Vec<Want> =
            wanted.iter().map(|wanted| Want { wanted: *wanted, is_idle: false }).collect();
        super::fair(limit, &wants)
    }

    /// Divides as [`fair`] does, for nodes of which those that want nothing are idle.
    fn fair_of_idle(limit: u32, wanted: &[u32]) -> Vec<u32> {
        let want = |wanted: &u32| Want { wanted: *wanted, is_idle: *wanted == 0 };
        super::fair(limit, &wanted.iter().map(want).collect::<Vec<_>>())
    }

    #[test]
    fn idle_nodes_leave_all_to_one_that_has_work_for_it() {
        assert_eq!(fair_of_idle(12, &[40, 0, 0]), [12, 0, 0]);
        assert_eq!(fair_of_idle(3, &[0, 0, 5]), [0, 0, 3]);
        assert_eq!(fair_of_idle(12, &[10, 0, 0]), [11, 1, 0]);
        assert_eq!(fair_of_idle(12, &[2, 0, 0]), [6, 3, 3], "what nobody wants is shared evenly");
        assert_eq!(fair_of_idle(12, &[0, 0, 0]), [4, 4, 4]);
        assert_eq!(fair_of_idle(12, &[40, 1, 0]), [11, 1, 0], "who wants one has one");
    }

    #[test]
    fn idle_nodes_share_evenly() {
        assert_eq!(fair(12, &[0, 0, 0]), [4, 4, 4]);
        assert_eq!(fair(13, &[0, 0, 0]), [5, 4, 4]);
        assert_eq!(fair(7, &[0]), [7]);
        assert!(fair(7, &[]).is_empty());
    }

    #[test]
    fn a_busy_node_gets_what_others_do_not_need() {
        assert_eq!(fair(12, &[40, 0, 0]), [10, 1, 1]);
        assert_eq!(fair(12, &[0, 3, 40]), [1, 3, 8]);
        assert_eq!(fair(8, &[3, 5]), [3, 5]);
        assert_eq!(fair(9, &[3, 5]), [4, 5]);
    }

    #[test]
    fn busy_nodes_share_evenly() {
        assert_eq!(fair(12, &[40, 40, 40]), [4, 4, 4]);
        assert_eq!(fair(12, &[40, 40, 3]), [5, 4, 3]);
        assert_eq!(fair(12, &[40, 40, 1]), [6, 5, 1]);
        assert_eq!(fair(14, &[40, 40, 40]), [5, 5, 4]);
    }

    #[test]
    fn what_nobody_wants_is_shared_evenly() {
        assert_eq!(fair(30, &[10, 0, 1]), [17, 6, 7]);
    }

    #[test]
    fn if_there_is_not_one_for_each_those_with_work_come_first() {
        assert_eq!(fair(2, &[0, 5, 0, 5]), [0, 1, 0, 1]);
        assert_eq!(fair(1, &[5, 5]), [1, 0]);
        assert_eq!(fair(0, &[5, 0]), [0, 0]);
    }

    proptest! {
        #[test]
        fn the_limit_is_used_up_and_never_passed(
            limit in 0_u32..100_000,
            wanted in prop::collection::vec(0_u32..90_000, 1..12),
        ) {
            prop_assert_eq!(fair(limit, &wanted).iter().sum::<u32>(), limit);
        }

        #[test]
        fn nobody_who_lacks_something_has_less_than_another(
            limit in 0_u32..1_000,
            wanted in prop::collection::vec(0_u32..300, 1..12),
        ) {
            let parts = fair(limit, &wanted);
            let most = parts.iter().max().copied().unwrap();
            for (part, wanted) in parts.iter().zip(&wanted) {
                prop_assert!(part >= wanted || most <= *part + 1, "{:?}", parts);
            }
        }
    }
}
