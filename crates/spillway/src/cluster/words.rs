//! Plain words for the names that decisions have in logs, metrics and answers of the admin API.

/// Meanings of reasons and obstacles, worded to follow a name and a colon.
const REASONS: [(&str, &str); 50] = [
    ("only", "no other replica serves it"),
    ("drawn", "drawn by chance, as its policy does"),
    ("turn", "it is that replica's turn"),
    ("lighter_of_two", "of two drawn replicas it carries less"),
    ("lightest", "it carries least for its weight"),
    ("soonest", "it is expected to answer first"),
    ("cached", "it has more of the prompt in its cache"),
    ("adapter", "it has the adapter in memory"),
    ("preferred", "the request's key leads there"),
    ("session", "earlier requests of the session went there"),
    ("warming_up", "it warms up and gets its small share"),
    ("substitute", "the replicas looked at first were busy"),
    ("overflow", "no other replica can serve it in time"),
    ("room", "there is room here"),
    ("no_replica", "no replica here serves the model"),
    ("evacuated", "this region is evacuated"),
    ("outside_residency", "its residency rules do not allow it"),
    ("better", "waiting here costs more"),
    ("only_way", "this region could only turn it away"),
    ("none_better", "every other region costs as much or more"),
    ("nobody_else", "no other region can take it"),
    ("guest_without_room", "there is no room for another region's request"),
    ("queue_full", "the queue is full, and no other region shows room"),
    ("pushed_out", "a more urgent request took its place in a full queue"),
    ("waited", "it waited as long as the queue allows"),
    ("all_busy", "every replica has as many requests as it may have"),
    ("all_resting", "every replica asked to be left alone for now"),
    ("all_tried", "every replica was tried"),
    ("replica_busy", "every replica asked to be left alone for now"),
    ("slo", "the first token would come later than the route's objective everywhere"),
    ("late", "it would come after its deadline or the route's objective"),
    ("deadline_passed", "its deadline has passed"),
    ("nobody_in_reach", "no replica is in reach, here or in another region"),
    ("degraded", "few replicas are healthy, and more urgent requests need them"),
    ("request_rate", "a limit on requests is used up"),
    ("token_rate", "a limit on tokens is used up"),
    ("concurrency", "a limit on requests at a time is used up"),
    ("budget", "the budget of its tenant is spent"),
    ("connections", "too many connections are open"),
    ("memory", "too much memory is in use"),
    ("draining", "the node is about to stop"),
    ("tried", "it was tried before"),
    ("busy", "it has as many requests as it may have"),
    ("full", "no room is expected in its KV cache or queue"),
    ("too_large", "the request is larger than its KV cache"),
    ("not_chosen", "another one was better"),
    ("not_better", "it costs as much as waiting here, or more"),
    ("unreachable", "it can't be reached"),
    ("refused", "it refused the request"),
    ("resting", "it asked to be left alone for now"),
];

/// Meanings of the other obstacles of regions.
const CLOSED: [(&str, &str); 4] = [
    ("forwarded", "the request came from another region already"),
    ("drained", "its weight or its ramp is 0"),
    ("closed", "it says that it takes no requests of others"),
    ("rested", "chance left it out, by its weight and ramp"),
];

/// Meanings of the terms of a cost.
const TERMS: [(&str, &str); 11] = [
    ("floor", "answering a request without a prompt"),
    ("network", "the way there and back"),
    ("wait", "until its turn comes"),
    ("prefill", "reading the part of the prompt that is not cached there"),
    ("decode", "generating the reply"),
    ("stall", "delay of the replies that run there while the prompt is read"),
    ("crowding", "delay of others by one more request"),
    ("doubt", "load or state that is not known for sure"),
    ("price", "what the operator set on the region"),
    ("session", "value of staying at the session's replica, subtracted"),
    ("tie", "decides between nearly equal ones"),
];

/// Endings of requests, in words.
const ENDS: [(&str, &str); 7] = [
    ("complete", "the reply was passed on whole"),
    ("answered", "the gateway itself answered"),
    ("cancelled_before_reply", "its client left before a reply"),
    ("cancelled_in_reply", "its client left in the reply"),
    ("cut", "the reply broke off"),
    ("stalled", "the reply stopped"),
    ("deadline_passed", "its deadline passed in the reply"),
];

/// Outcomes of a second attempt beside the first.
const HEDGES: [(&str, &str); 3] = [
    ("won", "the second attempt began to reply first"),
    ("lost", "the first attempt began to reply first"),
    ("failed", "the second attempt failed, or no replica took it"),
];

/// Returns the meaning of a value of a record's field, as sentences have it; `None` for a field
/// without words, and for a value of a newer node.
pub(crate) fn of_value(field: &str, value: &str) -> Option<&'static str> {
    match field {
        "end" => find(&ENDS, value),
        "hedge" => find(&HEDGES, value),
        "left_out[].reason" => of_left_out(value),
        _ => of_reason(value),
    }
}

fn find(words: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    words.iter().find(|(known, _)| *known == name).map(|(_, words)| *words)
}

/// Reasons for leaving out a region that have no words elsewhere.
const LEFT_OUT: [(&str, &str); 2] = [
    ("no_model", "it reports no replica of the model"),
    ("circuit_open", "its circuit breaker is open"),
];

/// Returns the meaning of a reason for leaving out a region; `None` for a name of a newer node.
pub(super) fn of_left_out(name: &str) -> Option<&'static str> {
    find(&LEFT_OUT, name).or_else(|| of_reason(name))
}

/// Returns the meaning of a reason or an obstacle; `None` for a name of a newer node.
pub(super) fn of_reason(name: &str) -> Option<&'static str> {
    REASONS.iter().chain(&CLOSED).find(|(known, _)| *known == name).map(|(_, words)| *words)
}

/// Returns the meaning of a term of a cost, by its name without the unit.
pub(super) fn of_term(name: &str) -> Option<&'static str> {
    TERMS.iter().find(|(known, _)| *known == name).map(|(_, words)| *words)
}

/// Returns the position of a term among all terms: times come first, in chronological order.
pub(super) fn place_of_term(name: &str) -> usize {
    TERMS.iter().position(|(known, _)| *known == name).unwrap_or(TERMS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_region_that_is_not_considered_has_its_words() {
        for reason in spillway_types::LeftOutReason::ALL {
            assert!(of_left_out(reason.as_str()).is_some(), "{reason:?}");
        }
    }

    #[test]
    fn no_name_has_two_meanings() {
        let mut names: Vec<&str> = REASONS.iter().chain(&CLOSED).map(|(name, _)| *name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
