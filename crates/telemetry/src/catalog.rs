//! Every metric on the admin listener's `/metrics`: name, kind, labels and meaning, once for the
//! registry, the help text of the exposition and the page of metrics.

mod caches;
mod control;
mod dns;
mod limits;
mod node;
mod regions;
mod replicas;
mod requests;

use std::fmt::Write as _;

pub(crate) use self::caches::*;
pub(crate) use self::control::*;
pub(crate) use self::dns::*;
pub(crate) use self::limits::*;
pub(crate) use self::node::*;
pub(crate) use self::regions::*;
pub(crate) use self::replicas::*;
pub(crate) use self::requests::*;

/// A metric as it is registered and documented.
#[derive(Clone, Copy, Debug)]
pub struct MetricSpec {
    /// Name without the suffix that its kind gets in the text.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Names of its labels, in the order of their columns.
    pub labels: &'static [&'static str],
    /// Meaning in Markdown, from its doc comment.
    meaning: &'static str,
    /// PromQL that shows it; `None` for the usual one of its kind.
    query: Option<&'static str>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A count that only rises; `_total` in the text.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Counts of values by bounds; `_bucket`, `_sum` and `_count` in the text.
    Histogram,
    /// Facts as labels of a 1; `_info` in the text.
    Info,
}

/// Metrics of one subject.
#[derive(Clone, Copy, Debug)]
pub struct MetricGroup {
    /// Heading on the page.
    pub title: &'static str,
    /// Its metrics.
    pub metrics: &'static [MetricSpec],
}

/// All groups, in the order of the page.
pub const GROUPS: [MetricGroup; 8] = [
    REQUESTS_GROUP,
    REPLICAS_GROUP,
    REGIONS_GROUP,
    CACHES_GROUP,
    LIMITS_GROUP,
    CONTROL_GROUP,
    DNS_GROUP,
    NODE_GROUP,
];

/// Declares the metrics of a group: doc comment, constant, kind, name, labels, and the query that
/// shows it where the usual one of its kind would not.
macro_rules! catalog {
    ($group:ident = $title:literal; $(
        $(#[doc = $doc:literal])+
        $metric:ident = $kind:ident $name:literal [$($label:ident),*] $(shown by $query:literal)?;
    )+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) const $metric: super::MetricSpec = super::MetricSpec {
                name: $name,
                kind: super::MetricKind::$kind,
                labels: &[$(stringify!($label)),*],
                meaning: concat!($($doc),+),
                query: super::first(&[$($query)?]),
            };
        )+

        /// Metrics of this file.
        pub(crate) const $group: super::MetricGroup =
            super::MetricGroup { title: $title, metrics: &[$($metric),+] };
    };
}
use catalog;

const fn first(queries: &[&'static str]) -> Option<&'static str> {
    match queries {
        [query, ..] => Some(query),
        [] => None,
    }
}

impl MetricSpec {
    /// Returns the help text of the exposition: the first part of the meaning, without Markdown.
    pub(crate) fn help(&self) -> String {
        let plain = self.meaning.trim().replace('`', "");
        let end = [". ", ": ", "; ", " ("].iter().filter_map(|end| plain.find(end)).min();
        plain[..end.unwrap_or(plain.len())].trim_end_matches('.').to_owned()
    }

    /// Returns PromQL that shows the metric.
    #[must_use]
    pub fn query(&self) -> String {
        let name = self.name;
        let by = |more: &[&str]| {
            let labels = [more, self.labels].concat().join(", ");
            if labels.is_empty() { String::new() } else { format!(" by ({labels})") }
        };
        match (self.query, self.kind) {
            (Some(query), _) => query.to_owned(),
            (None, MetricKind::Counter) => format!("sum{} (rate({name}_total[5m]))", by(&[])),
            (None, MetricKind::Histogram) => {
                let rate = format!("rate({name}_bucket[5m])");
                format!("histogram_quantile(0.95, sum{} ({rate}))", by(&["le"]))
            }
            (None, MetricKind::Gauge) if self.is_level() => format!("max{} ({name})", by(&[])),
            (None, MetricKind::Gauge) => format!("sum{} ({name})", by(&[])),
            (None, MetricKind::Info) => format!("{name}_info"),
        }
    }

    /// Returns true for times, shares and states, whose sum over nodes says nothing.
    fn is_level(&self) -> bool {
        ["_seconds", "_ratio", "_trust", "_ramp", "_load", "_index", "_term", "_voters"]
            .iter()
            .any(|end| self.name.ends_with(end))
    }
}

impl MetricKind {
    /// Returns the name in the exposition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// Returns docs/reference/metrics.md.
#[must_use]
pub fn reference() -> String {
    let mut page = include_str!("catalog/head.md").to_owned();
    for group in GROUPS {
        // A write to a string never fails.
        let _: std::fmt::Result = write!(
            page,
            "\n## {}\n\n| name | kind | labels | what it says | to look at it |\n|---|---|---|---|---|\n",
            group.title
        );
        for metric in group.metrics {
            let (name, kind, labels) =
                (metric.name, metric.kind.as_str(), metric.labels.join(", "));
            let meaning = metric.meaning.trim().trim_end_matches('.');
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
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        let remedy = "run: cargo run -- reference metrics > docs/reference/metrics.md";
        assert!(written.trim_end() == reference().trim_end(), "{remedy}");
    }
}
