//! Caches and speeds: metrics.

use super::spec::catalog;

catalog! {
    "Caches and speeds";

    /// Error of predictions of the time to first token, quantiles `0.5` and `0.9` of the last few
    /// thousand streams.
    PREDICTION_ERROR = Gauge "spillway_prediction_error_seconds" [route, model, quantile];

    /// Relative error of predictions of the time to first token, as a fraction of the measured
    /// time.
    PREDICTION_ERROR_RATIO = Gauge "spillway_prediction_error_ratio" [route, model, quantile];

    /// Cached prompt tokens: `expected` in the replica's cache, and `reported` in the reply;
    /// engines report them only if configured to.
    CACHE_ESTIMATE = Counter "spillway_cache_estimate_tokens" [route, model, kind]
        shown by r#"sum by (model) (rate(spillway_cache_estimate_tokens_total{kind="expected"}[1h])) / sum by (model) (rate(spillway_cache_estimate_tokens_total{kind="reported"}[1h]))"#;

    /// Distinct blocks of prompts with a record in the index: beyond the first 64 blocks of a
    /// prompt not every block has one.
    PREFIX_BLOCKS = Gauge "spillway_prefix_index_blocks" [];

    /// Records of blocks at replicas: a block at three replicas has three.
    PREFIX_PAIRS = Gauge "spillway_prefix_index_pairs" [];

    /// Memory of the index in bytes.
    PREFIX_BYTES = Gauge "spillway_prefix_index_bytes" [];

    /// Records of blocks at replicas that were dropped: to make room (`room`), or because a reply
    /// showed that the blocks were gone, or a failed request that they never got there (`reply`).
    PREFIX_FORGOTTEN = Counter "spillway_prefix_forgotten" [why];

    /// Times that all records of a replica were dropped at once because it had restarted.
    PREFIX_FLUSHES = Counter "spillway_prefix_flushes" [];

    /// Prompts looked up for a decision: `matched` if a replica had a block of the prompt, else
    /// `none`.
    PREFIX_LOOKUPS = Counter "spillway_prefix_lookups" [result]
        shown by r#"sum(rate(spillway_prefix_lookups_total{result="matched"}[5m])) / sum(rate(spillway_prefix_lookups_total[5m]))"#;

    /// Feedback about caches and speeds that was dropped because its queue was full.
    LEARNINGS_DROPPED = Counter "spillway_learnings_dropped" [];

    /// Pairs of replica and model whose speed is learned.
    LATENCY_MODELS = Gauge "spillway_latency_models" [];

    /// KV events of engines that were read (docs/explanation/prefix-index.md).
    KV_EVENTS = Counter "spillway_kv_events" [];

    /// Times that KV events were missed or may have been: a lost connection, a gap in their
    /// numbers, an unreadable message.
    KV_EVENTS_MISSED = Counter "spillway_kv_events_missed" [];

    /// Replicas with `kv_events_port`: `live` while their events report evictions, `assumed`
    /// otherwise.
    KV_EVENTS_REPLICAS = Gauge "spillway_kv_events_replicas" [state]
        shown by "sum by (state) (spillway_kv_events_replicas)";

    /// Blocks of engines that are known from events.
    KV_EVENTS_BLOCKS = Gauge "spillway_kv_events_blocks" [];

    /// Messages about caches between the nodes of the region, by result.
    PREFIX_SHARED = Counter "spillway_prefix_shared" [result];

    /// Bytes of such messages that were sent.
    PREFIX_SHARED_BYTES = Counter "spillway_prefix_shared_sent_bytes" [];

    /// Hot blocks of the region in the cluster's state.
    HOT_BLOCKS = Gauge "spillway_hot_blocks" [region];

    /// Bytes of all hot blocks.
    HOT_BYTES = Gauge "spillway_hot_size_bytes" [];

    /// Changes of hot blocks that were applied here.
    HOT_ENTRIES = Counter "spillway_hot_entries" [];

    /// Bytes of these changes.
    HOT_ENTRY_BYTES = Counter "spillway_hot_entry_bytes" [];

    /// Changes that this node proposed, by result.
    HOT_PROPOSALS = Counter "spillway_hot_proposals" [result];

    /// Decisions between regions on routes that consider caches: `changed` if the decision would
    /// have been different without knowledge of other regions' caches, else `same`.
    HOT_DECISIONS = Counter "spillway_hot_decisions" [way];
}
