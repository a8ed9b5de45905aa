//! A metric as it is declared.

use spillway_types::continued;

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
    pub(super) meaning: &'static str,
    /// Names that a label has as values, where another declaration has them.
    pub(super) values: Option<LabelValues>,
    /// PromQL that shows it; `None` for the usual one of its kind.
    pub(super) query: Option<&'static str>,
}

/// Values of one label, from the declaration of its reasons.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelValues {
    /// Name of the label.
    pub(super) label: &'static str,
    /// Returns the name and the meaning of each value.
    pub(super) reasons: fn() -> Vec<(&'static str, &'static str)>,
    /// Section of docs/reference/ that has the meanings; `None` if the page of metrics has them.
    pub(super) section: Option<&'static str>,
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
    /// Metrics of the group.
    pub metrics: &'static [MetricSpec],
}

/// Declares the metrics of a group: doc comment, constant, kind, name, labels, the declaration and the
/// section that have the values of a label, and the query that shows the metric where the usual one of
/// its kind would not.
macro_rules! catalog {
    ($title:literal; $(
        $(#[doc = $doc:literal])+
        $metric:ident = $kind:ident $name:literal [$($label:ident),*]
            $(with $valued:ident of $values:ident $(in $section:literal)?)? $(shown by $query:literal)?;
    )+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) const $metric: super::spec::MetricSpec = super::spec::MetricSpec {
                name: $name,
                kind: super::spec::MetricKind::$kind,
                labels: &[$(stringify!($label)),*],
                meaning: concat!($($doc),+),
                values: super::spec::first(&[$(super::spec::LabelValues {
                    label: stringify!($valued),
                    reasons: || $values::ALL.map(|it| (it.name(), it.text())).to_vec(),
                    section: super::spec::first(&[$($section)?]),
                })?]),
                query: super::spec::first(&[$($query)?]),
            };
        )+

        /// Metrics of this file.
        pub(super) const GROUP: super::spec::MetricGroup =
            super::spec::MetricGroup { title: $title, metrics: &[$($metric),+] };
    };
}
pub(super) use catalog;

pub(super) const fn first<T: Copy>(given: &[T]) -> Option<T> {
    match given {
        [first, ..] => Some(*first),
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

    /// Returns the meaning for the page of metrics, with the values of its label.
    pub(super) fn described(&self) -> String {
        let meaning = self.meaning.trim().trim_end_matches('.');
        let Some(LabelValues { label, reasons, section }) = self.values else {
            return meaning.to_owned();
        };
        let shown = |(name, text): (&str, &str)| match section {
            Some(_) => format!("`{name}`"),
            None => format!("`{name}` ({})", continued(text)),
        };
        let shown: Vec<String> = reasons().into_iter().map(shown).collect();
        let link = section.map(|section| format!(" ([meanings]({section}))"));
        format!("{meaning}. `{label}`: {}{}", shown.join(", "), link.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: MetricKind, name: &'static str, labels: &'static [&'static str]) -> MetricSpec {
        MetricSpec { name, kind, labels, meaning: " Requests.", values: None, query: None }
    }

    #[test]
    fn a_query_fits_the_kind_of_the_metric_and_has_its_labels() {
        use MetricKind::{Counter, Gauge, Histogram, Info};
        for (kind, name, labels, expected) in [
            (Counter, "a", &[][..], "sum (rate(a_total[5m]))"),
            (Counter, "a", &["x", "y"], "sum by (x, y) (rate(a_total[5m]))"),
            (Gauge, "a_count", &[], "sum (a_count)"),
            (Gauge, "a_count", &["x"], "sum by (x) (a_count)"),
            // A sum of shares, ages or terms over nodes would say nothing.
            (Gauge, "a_ratio", &["x"], "max by (x) (a_ratio)"),
            (Gauge, "a_seconds", &[], "max (a_seconds)"),
            (Gauge, "a_term", &[], "max (a_term)"),
            (
                Histogram,
                "a_seconds",
                &[],
                "histogram_quantile(0.95, sum by (le) (rate(a_seconds_bucket[5m])))",
            ),
            (
                Histogram,
                "a_seconds",
                &["x"],
                "histogram_quantile(0.95, sum by (le, x) (rate(a_seconds_bucket[5m])))",
            ),
            (Info, "a", &["x"], "a_info"),
        ] {
            assert_eq!(spec(kind, name, labels).query(), expected);
        }
        let own = MetricSpec { query: Some("a == 0"), ..spec(Gauge, "a", &["x"]) };
        assert_eq!(own.query(), "a == 0");
    }

    #[test]
    fn help_is_the_first_part_of_the_meaning_without_markdown() {
        for (meaning, help) in [
            (" Requests.", "Requests"),
            (" Requests of `clients`. More about them.", "Requests of clients"),
            (" Requests: `sent`, or `lost`.", "Requests"),
            (" Requests; guests too.", "Requests"),
            (" Requests ([more](page.md)).", "Requests"),
            (" 1 if version 1.2 is used.", "1 if version 1.2 is used"),
        ] {
            let spec = MetricSpec { meaning, ..spec(MetricKind::Counter, "a", &[]) };
            assert_eq!(spec.help(), help, "{meaning}");
        }
    }

    #[test]
    fn the_page_has_the_values_of_a_label_or_a_link_to_their_meanings() {
        fn reasons() -> Vec<(&'static str, &'static str)> {
            vec![("a", "The first"), ("b", "The second")]
        }
        for (section, expected) in [
            (None, "Requests. `reason`: `a` (the first), `b` (the second)"),
            (Some("x.md#y"), "Requests. `reason`: `a`, `b` ([meanings](x.md#y))"),
        ] {
            let values = Some(LabelValues { label: "reason", reasons, section });
            let spec = MetricSpec { values, ..spec(MetricKind::Counter, "a", &["reason"]) };
            assert_eq!(spec.described(), expected);
        }
        assert_eq!(spec(MetricKind::Counter, "a", &[]).described(), "Requests");
    }
}
