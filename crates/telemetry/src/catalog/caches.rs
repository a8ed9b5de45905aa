//! Caches and speeds: metrics.

use super::spec::catalog;

catalog! {
    "Caches and speeds";

    /// How far predictions of the first token were off, `0.5` and `0.9` of the last few thousand
    /// streams.
    PREDICTION_ERROR = Gauge "spillway_prediction_error_seconds" [route, model, quantile];

    /// Error of predictions of the first token, as a part of the time that was seen.
    PREDICTION_ERROR_RATIO = Gauge "spillway_prediction_error_ratio" [route, model, quantile];

    /// Prompt tokens that were `expected` in the replica's cache, and that the reply `reported`;
    /// engines report them only if told to.
    CACHE_ESTIMATE = Counter "spillway_cache_estimate_tokens" [route, model, kind]
        shown by r#"sum by (model) (rate(spillway_cache_estimate_tokens_total{kind="expected"}[1h])) / sum by (model) (rate(spillway_cache_estimate_tokens_total{kind="reported"}[1h]))"#;

    /// Different blocks of prompts that have a record in the index: behind the first 64 blocks of a prompt
    /// not each has one.
    PREFIX_BLOCKS = Gauge "spillway_prefix_index_blocks" [];

    /// Records of blocks at replicas: a block at three replicas has three.
    PREFIX_PAIRS = Gauge "spillway_prefix_index_pairs" [];

    /// Bytes of the index.
    PREFIX_BYTES = Gauge "spillway_prefix_index_bytes" [];

    /// Records of blocks at replicas that were forgotten: to make room (`room`), or since a reply showed that
    /// they were gone, or a failed request that they never came there (`reply`).
    PREFIX_FORGOTTEN = Counter "spillway_prefix_forgotten" [why];

    /// Replicas whose blocks were all forgotten at once: they started anew.
    PREFIX_FLUSHES = Counter "spillway_prefix_flushes" [];

    /// Prompts looked up for a decision: `matched` if some replica had a block of it, else `none`.
    PREFIX_LOOKUPS = Counter "spillway_prefix_lookups" [result]
        shown by r#"sum(rate(spillway_prefix_lookups_total{result="matched"}[5m])) / sum(rate(spillway_prefix_lookups_total[5m]))"#;

    /// Feedback about caches and speeds that found its queue full.
    LEARNINGS_DROPPED = Counter "spillway_learnings_dropped" [];

    /// Replicas and models whose speed is learned.
    LATENCY_MODELS = Gauge "spillway_latency_models" [];

    /// KV events of engines that were read (docs/explanation/prefix-index.md).
    KV_EVENTS = Counter "spillway_kv_events" [];

    /// Times that such events were or may have been missed: a lost connection, a gap in their
    /// numbers, a message that can't be read.
    KV_EVENTS_MISSED = Counter "spillway_kv_events_missed" [];

    /// Replicas with `kv_events_port`: `live` if their events tell what they evict, `assumed` while
    /// they do not.
    KV_EVENTS_REPLICAS = Gauge "spillway_kv_events_replicas" [state]
        shown by "sum by (state) (spillway_kv_events_replicas)";

    /// Blocks of engines that are known by events.
    KV_EVENTS_BLOCKS = Gauge "spillway_kv_events_blocks" [];

    /// Messages about caches between the nodes of the region, by what became of them.
    PREFIX_SHARED = Counter "spillway_prefix_shared" [result];

    /// Bytes of them that were sent.
    PREFIX_SHARED_BYTES = Counter "spillway_prefix_shared_sent_bytes" [];

    /// Hot blocks of the region that all nodes know.
    HOT_BLOCKS = Gauge "spillway_hot_blocks" [region];

    /// Bytes of all of them.
    HOT_BYTES = Gauge "spillway_hot_size_bytes" [];

    /// Agreed changes of them that were carried out here.
    HOT_ENTRIES = Counter "spillway_hot_entries" [];

    /// Bytes of these changes.
    HOT_ENTRY_BYTES = Counter "spillway_hot_entry_bytes" [];

    /// Changes that this node proposed, by what became of them.
    HOT_PROPOSALS = Counter "spillway_hot_proposals" [result];

    /// Decisions between regions on routes that go by caches: `changed` if the request would have
    /// gone another way without what is known of other regions' caches, else `same`.
    HOT_DECISIONS = Counter "spillway_hot_decisions" [way];
}
