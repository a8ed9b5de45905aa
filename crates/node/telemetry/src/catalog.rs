//! Every metric on the admin listener's `/metrics`: name, kind, labels and meaning, once for the
//! registry, the help text of the exposition and the page of metrics.

pub(crate) mod caches;
pub(crate) mod control;
pub(crate) mod dns;
pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod regions;
pub(crate) mod replicas;
pub(crate) mod requests;
mod spec;

use std::fmt::Write as _;

pub use self::spec::{MetricGroup, MetricKind, MetricSpec};

/// All groups, in the order of the page.
pub const GROUPS: [MetricGroup; 8] = [
    requests::GROUP,
    replicas::GROUP,
    regions::GROUP,
    caches::GROUP,
    limits::GROUP,
    control::GROUP,
    dns::GROUP,
    node::GROUP,
];

/// Returns docs/reference/metrics.md.
#[must_use]
pub fn reference() -> String {
    let mut page = include_str!("catalog/head.md").to_owned();
    for group in GROUPS {
        // A write to a string never fails.
        let _: std::fmt::Result = write!(
            page,
            "\n## {}\n\n| name | kind | labels | meaning | query |\n|---|---|---|---|---|\n",
            group.title
        );
        for metric in group.metrics {
            let (name, kind, labels) =
                (metric.name, metric.kind.as_str(), metric.labels.join(", "));
            let meaning = metric.described();
            let query = metric.query().replace('|', "\\|");
            let _: std::fmt::Result =
                writeln!(page, "| `{name}` | {kind} | {labels} | {meaning} | `{query}` |");
        }
    }
    page + "\n" + include_str!("catalog/tail.md")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> impl Iterator<Item = &'static MetricSpec> {
        GROUPS.into_iter().flat_map(|group| group.metrics)
    }

    #[test]
    fn names_are_distinct_and_say_their_unit_not_their_kind() {
        let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
        for name in names {
            assert!(name.starts_with("spillway_"), "{name}");
            let is_suffixed = ["_total", "_info", "_bucket"].iter().any(|end| name.ends_with(end));
            assert!(!is_suffixed, "{name}: the text format adds the suffix");
        }
    }

    #[test]
    fn a_query_names_its_metric() {
        for metric in all() {
            assert!(metric.query().contains(metric.name), "{}", metric.query());
        }
    }

    #[test]
    fn help_is_one_short_plain_sentence() {
        for metric in all() {
            let help = metric.help();
            assert!(!help.is_empty() && !help.contains('`') && !help.contains("]("), "{help}");
        }
    }

    #[test]
    fn the_page_of_metrics_is_what_the_code_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/metrics.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo xtask pages";
        assert!(written.trim_end() == reference().trim_end(), "{remedy}");
    }
}
