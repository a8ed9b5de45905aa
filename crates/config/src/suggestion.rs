//! Finds the name that was most likely meant.

/// Names that other gateways have for what a policy does, and the policy.
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
    let plain = plain(given);
    // A unit or a plural that was left out is likelier than any other slip.
    let same = known.iter().find(|name| self::plain(name) == plain);
    let with_unit = || {
        let begins = |name: &&&str| {
            name.strip_prefix(&given.replace('-', "_")).is_some_and(|rest| rest.starts_with('_'))
        };
        let mut longer = known.iter().filter(begins);
        longer.next().filter(|_| longer.next().is_none())
    };
    let synonym = || {
        let (_, meant) = SYNONYMS.iter().find(|(name, _)| self::plain(name) == plain)?;
        known.iter().find(|name| *name == meant)
    };
    let near = || {
        let rated =
            known.iter().map(|name| (strsim::osa_distance(&plain, &self::plain(name)), name));
        let is_near = |distance: usize, name: &str| {
            distance <= (plain.len().max(name.len()) / 3).max(1) && distance < plain.len()
        };
        let (distance, name) = rated.min_by_key(|(distance, _)| *distance)?;
        is_near(distance, name).then_some(name)
    };
    same.or_else(with_unit).or_else(synonym).or_else(near).copied()
}

/// Removes what people spell in several ways: case, hyphens, and the plural.
fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(['-', ' '], "_");
    name.strip_suffix('s').map_or_else(|| name.clone(), ToOwned::to_owned)
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
        let keys = ["name", "url", "models", "weight", "idle_ms", "node", "replica", "pool"];
        for (given, meant) in [
            ("model", Some("models")),
            ("nam", Some("name")),
            ("nodes", Some("node")),
            ("weigth", Some("weight")),
            ("URL", Some("url")),
            ("idle", Some("idle_ms")),
            ("idle-ms", Some("idle_ms")),
            ("x", None),
            ("backend", None),
        ] {
            assert_eq!(nearest(given, &keys), meant, "{given}");
        }
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
