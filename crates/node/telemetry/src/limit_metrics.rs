//! Metrics of limits on this node.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::limits;
use crate::register::{Labels, metric, registered, signed};

/// State of one kind of one limit on this node.
#[derive(Clone, Debug)]
pub struct LiveLimit {
    /// Subject of the limit: `global`, `tenant:NAME`, `model:NAME`, `key:ID`.
    pub limit: String,
    /// Unit of the limit: `requests_per_s`, `requests_per_min`, `tokens_per_min`, `concurrency`.
    pub kind: &'static str,
    /// Part of the limit that this node may use now.
    pub share: u64,
    /// Use on this node.
    pub used: u64,
    /// Use that is not charged yet: it is charged when there is room.
    pub debt: u64,
}

registered! {
    /// Metrics of limits; empty on a node that takes no part in a cluster.
    #[derive(Debug)]
    pub(crate) struct LimitMetrics {
        share: Family<Labels, Gauge> = metric(limits::LIMIT_SHARE),
        used: Family<Labels, Gauge> = metric(limits::LIMIT_USED),
        debt: Family<Labels, Gauge> = metric(limits::LIMIT_DEBT),
    }
}

impl LimitMetrics {
    /// Shows the limits in `live`; all others vanish.
    pub(crate) fn show(&self, live: &[LiveLimit]) {
        let families = [&self.share, &self.used, &self.debt];
        // Cleared first, so that removed limits vanish.
        families.iter().for_each(|family| {
            family.clear();
        });
        for limit in live {
            let labels = vec![("limit", limit.limit.clone()), ("kind", limit.kind.to_owned())];
            for (family, value) in families.iter().zip([limit.share, limit.used, limit.debt]) {
                family.get_or_create(&labels).set(signed(value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Metrics};

    #[test]
    fn a_limit_is_shown_as_long_as_there_is_one() {
        let metrics = Metrics::new(Vec::new());
        let limit = LiveLimit {
            limit: "tenant:acme".to_owned(),
            kind: "tokens_per_min",
            share: 700,
            used: 20,
            debt: 3,
        };
        let text = metrics.scrape(&Live { limits: vec![limit], ..Live::default() });
        for line in [
            r#"spillway_limit_share{limit="tenant:acme",kind="tokens_per_min"} 700"#,
            r#"spillway_limit_used{limit="tenant:acme",kind="tokens_per_min"} 20"#,
            r#"spillway_limit_debt{limit="tenant:acme",kind="tokens_per_min"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!metrics.scrape(&Live::default()).contains("acme"));
    }
}
