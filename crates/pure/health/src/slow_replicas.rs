//! Comparison of each replica's first tokens with those of others that serve one of its models.

use crate::report::{MemberReport, MemberState};

/// Ratio of a replica's average time to first token to the median of others from which on it is slow.
/// A node ejects one by itself from `slow_ratio` on, if there are three to compare.
const SLOW_RATIO: f32 = 3.0;
/// Milliseconds above that median below which no replica is slow: few milliseconds are chance.
const SLOW_MS: f32 = 50.0;

/// Fills in [`MemberReport::slower_than_ms`] of replicas whose models are known.
pub fn compare_first_tokens(members: &mut [MemberReport]) {
    let slower_than: Vec<Option<f32>> =
        members.iter().map(|member| slower_than_ms(member, members)).collect();
    for (member, slower_than_ms) in members.iter_mut().zip(slower_than) {
        member.slower_than_ms = slower_than_ms;
    }
}

fn slower_than_ms(member: &MemberReport, members: &[MemberReport]) -> Option<f32> {
    // One that an operator took out is known to be out, and one that is back has times of before.
    if !matches!(member.state, MemberState::Serving | MemberState::Trial | MemberState::Ejected) {
        return None;
    }
    let is_comparable = |other: &&MemberReport| {
        other.name != member.name
            && matches!(other.state, MemberState::Serving | MemberState::Ramping)
            && other.models.iter().any(|model| member.models.contains(model))
    };
    let others = members.iter().filter(is_comparable);
    let mut others_ms: Vec<f32> = others.filter_map(|other| other.latency_ms).collect();
    others_ms.sort_by(f32::total_cmp);
    // Of two the slower one: a single idle replica is no measure for those that work.
    let usual_ms = *others_ms.get(others_ms.len() / 2)?;
    // The average of a replica that is given nothing stays; the percentile is of the last seconds.
    let own_ms = member.latency_ms?.min(member.p99_ms?);
    (own_ms >= (usual_ms * SLOW_RATIO).max(usual_ms + SLOW_MS)).then_some(usual_ms)
}

#[cfg(test)]
mod tests {
    use spillway_types::ModelName;

    use super::*;
    use crate::test_fleet::fleet;

    fn of(name: &str, model: &str, latency_ms: Option<f32>) -> MemberReport {
        MemberReport {
            models: vec![ModelName::from(model)],
            latency_ms,
            p99_ms: latency_ms,
            state: MemberState::Serving,
            ..fleet(&[name]).report_of(name)
        }
    }

    /// Returns the median that the last replica is slower than.
    fn last(mut members: Vec<MemberReport>) -> Option<f32> {
        compare_first_tokens(&mut members);
        members.pop()?.slower_than_ms
    }

    fn beside_usual(member: MemberReport) -> Option<f32> {
        let usual = [of("a", "m", Some(40.0)), of("b", "m", Some(50.0)), of("c", "m", Some(60.0))];
        last(usual.into_iter().chain([member]).collect())
    }

    #[test]
    fn a_replica_is_slow_from_three_times_the_median_of_its_like_on() {
        assert_eq!(beside_usual(of("d", "m", Some(150.0))), Some(50.0));
        for member in [
            of("d", "m", Some(149.0)),
            // Another model may take longer, and nothing is known of one that no client asked.
            of("d", "other", Some(900.0)),
            of("d", "m", None),
            MemberReport { state: MemberState::Drained, ..of("d", "m", Some(900.0)) },
            // It was slow, and has had no request for a while.
            MemberReport { p99_ms: None, ..of("d", "m", Some(900.0)) },
        ] {
            assert_eq!(beside_usual(member), None);
        }
    }

    #[test]
    fn those_that_work_are_not_compared_with_one_that_idles_nor_by_few_milliseconds() {
        let idle =
            vec![of("a", "m", Some(20.0)), of("b", "m", Some(150.0)), of("c", "m", Some(160.0))];
        assert_eq!(last(idle), None);
        assert_eq!(last(vec![of("a", "m", Some(0.5)), of("b", "m", Some(2.0))]), None);
        assert_eq!(last(vec![of("a", "m", Some(90.0)), of("b", "m", Some(600.0))]), Some(90.0));
    }
}
