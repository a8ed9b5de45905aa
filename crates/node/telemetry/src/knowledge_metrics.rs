//! Metrics of the prefix index and of learned speeds.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::catalog::caches;
use crate::register::{Labels, metric, raise, raise_each, registered, signed};

/// This node's knowledge of caches and speeds in its region, with counts of lookups and messages.
#[derive(Clone, Debug, Default)]
pub struct LiveKnowledge {
    /// Different blocks known at any replica.
    pub blocks: u64,
    /// Pairs of block and replica: a block that three replicas hold counts three times.
    pub pairs: u64,
    /// Size of the index in bytes.
    pub bytes: u64,
    /// Pairs of block and replica forgotten since start, by reason.
    pub forgotten: Vec<(&'static str, u64)>,
    /// Replicas whose blocks were all forgotten at once, since start.
    pub flushes: u64,
    /// Prompts looked up since start.
    pub lookups: u64,
    /// Of these, prompts with a block that some replica held.
    pub matched: u64,
    /// Lessons since start that were dropped because their queue was full.
    pub learnings_dropped: u64,
    /// Pairs of replica and model whose speed is learned.
    pub models: u64,
    /// KV events of engines read since start.
    pub kv_events: u64,
    /// Times since start that KV events were or may have been missed.
    pub kv_events_missed: u64,
    /// Replicas whose KV events are read, by the knowledge that they give.
    pub kv_replicas: Vec<(&'static str, u64)>,
    /// Blocks of engines that are known by KV events.
    pub kv_blocks: u64,
    /// Messages about caches between the region's nodes since start, by result.
    pub shared: Vec<(&'static str, u64)>,
    /// Bytes sent in such messages.
    pub shared_bytes: u64,
}

/// Hot prompts in the state of the cluster.
#[derive(Clone, Debug, Default)]
pub struct LiveHot {
    /// Hot blocks by region.
    pub blocks: Vec<(String, u64)>,
    /// Size of all hot blocks in bytes.
    pub bytes: u64,
    /// Entries of the log that changed hot blocks, since start.
    pub entries: u64,
    /// Bytes of those entries.
    pub entry_bytes: u64,
    /// Changes that this node proposed since start, by result.
    pub proposals: Vec<(&'static str, u64)>,
    /// Decisions between regions since start about prompts that are hot in some region.
    pub decisions: u64,
    /// Of these, decisions that knowledge of hot prompts changed.
    pub changed: u64,
}

registered! {
    /// Metrics of the prefix index, of learned speeds and of hot prompts.
    #[derive(Debug)]
    pub(crate) struct KnowledgeMetrics {
        blocks: Gauge = metric(caches::PREFIX_BLOCKS),
        pairs: Gauge = metric(caches::PREFIX_PAIRS),
        bytes: Gauge = metric(caches::PREFIX_BYTES),
        forgotten: Family<Labels, Counter> = metric(caches::PREFIX_FORGOTTEN),
        flushes: Counter = metric(caches::PREFIX_FLUSHES),
        lookups: Family<Labels, Counter> = metric(caches::PREFIX_LOOKUPS),
        learnings_dropped: Counter = metric(caches::LEARNINGS_DROPPED),
        models: Gauge = metric(caches::LATENCY_MODELS),
        kv_events: Counter = metric(caches::KV_EVENTS),
        kv_events_missed: Counter = metric(caches::KV_EVENTS_MISSED),
        kv_replicas: Family<Labels, Gauge> = metric(caches::KV_EVENTS_REPLICAS),
        kv_blocks: Gauge = metric(caches::KV_EVENTS_BLOCKS),
        shared: Family<Labels, Counter> = metric(caches::PREFIX_SHARED),
        shared_bytes: Counter = metric(caches::PREFIX_SHARED_BYTES),
        hot: HotMetrics = HotMetrics::new(),
    }
}

registered! {
    #[derive(Debug)]
    struct HotMetrics {
        blocks: Family<Labels, Gauge> = metric(caches::HOT_BLOCKS),
        bytes: Family<Labels, Gauge> = metric(caches::HOT_BYTES),
        entries: Counter = metric(caches::HOT_ENTRIES),
        entry_bytes: Counter = metric(caches::HOT_ENTRY_BYTES),
        proposals: Family<Labels, Counter> = metric(caches::HOT_PROPOSALS),
        decisions: Family<Labels, Counter> = metric(caches::HOT_DECISIONS),
    }
}

impl KnowledgeMetrics {
    pub(crate) fn show(&self, live: &LiveKnowledge, hot: Option<&LiveHot>) {
        self.blocks.set(signed(live.blocks));
        self.pairs.set(signed(live.pairs));
        self.bytes.set(signed(live.bytes));
        self.models.set(signed(live.models));
        self.kv_blocks.set(signed(live.kv_blocks));
        for (state, replicas) in &live.kv_replicas {
            let labels = vec![("state", (*state).to_owned())];
            self.kv_replicas.get_or_create(&labels).set(signed(*replicas));
        }
        raise(&self.kv_events, live.kv_events);
        raise(&self.kv_events_missed, live.kv_events_missed);
        raise(&self.flushes, live.flushes);
        raise(&self.learnings_dropped, live.learnings_dropped);
        raise(&self.shared_bytes, live.shared_bytes);
        raise_each(&self.forgotten, "why", &live.forgotten);
        raise_each(&self.shared, "result", &live.shared);
        let unmatched = live.lookups.saturating_sub(live.matched);
        raise_each(&self.lookups, "result", &[("matched", live.matched), ("none", unmatched)]);
        self.hot.show(hot);
    }
}

impl HotMetrics {
    fn show(&self, live: Option<&LiveHot>) {
        // Cleared first, so that regions without hot blocks vanish.
        self.blocks.clear();
        self.bytes.clear();
        let Some(live) = live else { return };
        for (region, blocks) in &live.blocks {
            let labels = vec![("region", region.clone())];
            self.blocks.get_or_create(&labels).set(signed(*blocks));
        }
        self.bytes.get_or_create(&Labels::new()).set(signed(live.bytes));
        raise(&self.entries, live.entries);
        raise(&self.entry_bytes, live.entry_bytes);
        raise_each(&self.proposals, "result", &live.proposals);
        let same = live.decisions.saturating_sub(live.changed);
        raise_each(&self.decisions, "way", &[("changed", live.changed), ("same", same)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Metrics};

    #[test]
    fn what_is_known_of_caches_is_shown() {
        let metrics = Metrics::new(Vec::new());
        let knowledge = LiveKnowledge {
            blocks: 5,
            pairs: 7,
            lookups: 9,
            matched: 4,
            learnings_dropped: 1,
            forgotten: vec![("evicted", 3)],
            ..LiveKnowledge::default()
        };
        let hot = LiveHot {
            blocks: vec![("eu".to_owned(), 11)],
            decisions: 6,
            changed: 2,
            ..LiveHot::default()
        };
        let mut live = Live { knowledge, hot: Some(hot), ..Live::default() };
        let text = metrics.scrape(&live);
        for line in [
            "spillway_prefix_index_blocks 5",
            "spillway_prefix_index_pairs 7",
            r#"spillway_prefix_lookups_total{result="matched"} 4"#,
            r#"spillway_prefix_lookups_total{result="none"} 5"#,
            "spillway_learnings_dropped_total 1",
            r#"spillway_prefix_forgotten_total{why="evicted"} 3"#,
            r#"spillway_hot_blocks{region="eu"} 11"#,
            r#"spillway_hot_decisions_total{way="changed"} 2"#,
            r#"spillway_hot_decisions_total{way="same"} 4"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        live.hot = None;
        let text = metrics.scrape(&live);
        assert!(!text.contains("spillway_hot_blocks{"), "{text}");
        let evicted = r#"spillway_prefix_forgotten_total{why="evicted"} 3"#;
        assert!(text.contains(evicted), "totals don't grow by being shown: {text}");
    }
}
