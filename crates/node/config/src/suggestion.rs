//! Finds the name that was most likely meant.

/// Names that other gateways have for the behaviour of a policy, and the policy.
const SYNONYMS: [(&str, &str); 9] = [
    ("leastconn", "least_connections"),
    ("least_conn", "least_connections"),
    ("least_request", "least_connections"),
    ("least_requests", "least_connections"),
    ("ewma", "least_response_time"),
    ("latency", "predicted_latency"),
    ("p2c", "power_of_two"),
    ("prefix", "prefix_aware"),
    ("ring_hash", "consistent_hash"),
];

/// Returns the known name that is nearest to a given one; `None` if none is near.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = spillway_types::plain(given);
    let synonym = || {
        let is_given = |(name, _): &&(&str, &str)| spillway_types::plain(name) == plain;
        let (_, meant) = SYNONYMS.iter().find(is_given)?;
        known.iter().find(|name| *name == meant).copied()
    };
    let is_known = known.iter().any(|name| spillway_types::plain(name) == plain);
    let synonym = if is_known { None } else { synonym() };
    synonym.or_else(|| spillway_types::nearest(given, known))
}

/// Names at most this many in a message; the reference lists all.
const LISTED_MAX: usize = 8;

/// Returns a list of names, shortened if it is long.
pub(crate) fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(LISTED_MAX) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_found() {
        let policies = ["least_connections", "prefix_aware", "random", "round_robin"];
        for (given, meant) in [
            ("prefix-aware", Some("prefix_aware")),
            ("leastconn", Some("least_connections")),
            ("roundrobin", Some("round_robin")),
            ("Random", Some("random")),
            ("best", None),
        ] {
            assert_eq!(nearest(given, &policies), meant, "{given}");
        }
    }

    #[test]
    fn a_long_list_is_shortened() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a"; 8]), ["a"; 8].join(", "));
        assert_eq!(listed(&["a"; 10]), format!("{} and 2 more", ["a"; 8].join(", ")));
    }
}
