//! Meanings of the names that decisions have in answers of the admin API, as they follow a colon.

use spillway_node::ReasonKind;
use spillway_types::continued;

/// Returns the meaning of a reason of the first kind that knows it; `None` for a name of a newer node.
pub(crate) fn meaning(kinds: &[ReasonKind], name: &str) -> Option<String> {
    kinds.iter().find_map(|kind| kind.text_of(name)).map(continued)
}

/// Returns the meaning of a reason, or its name if a newer node gave it.
pub(crate) fn worded(kind: ReasonKind, name: &str) -> String {
    meaning(&[kind], name).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_worded_as_its_kind_has_it() {
        let late = |kind| worded(kind, "late");
        assert_ne!(late(ReasonKind::Shed), late(ReasonKind::RegionObstacle));
        assert!(late(ReasonKind::Shed).starts_with("the deadline"));
        assert_eq!(worded(ReasonKind::Shed, "full_moon"), "full_moon");
    }

    #[test]
    fn the_first_kind_that_knows_a_name_words_it() {
        let kinds = [ReasonKind::RegionObstacle, ReasonKind::ReplicaObstacle];
        assert_eq!(meaning(&kinds, "busy"), meaning(&kinds[1..], "busy"));
        assert_eq!(meaning(&kinds, "full"), meaning(&kinds[..1], "full"));
        assert_eq!(meaning(&kinds, "full_moon"), None);
    }
}
