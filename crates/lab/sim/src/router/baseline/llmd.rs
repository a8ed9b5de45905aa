//! llm-d's default scorers: queue, KV use and prefix.

use super::rule::Rule;
use super::view::{Choice, View};

/// Weights of the default profile (llm-d/llm-d-router, `pkg/epp/config/loader/defaults.go`, as the
/// Gateway API Inference Extension before it).
const QUEUE_WEIGHT: f64 = 2.0;
const KV_WEIGHT: f64 = 2.0;
const PREFIX_WEIGHT: f64 = 3.0;

/// Rule of llm-d's endpoint picker without any configuration: the highest sum of weighted scores,
/// drawn among equals.
///
/// `queue-scorer` gives 1 to the shortest queue and 0 to the longest, by the last report; all have
/// 1 if they are equal. `kv-cache-utilization-scorer` gives the free part of the KV cache, and
/// `prefix-cache-scorer` the cached part of the prompt's blocks.
///
/// The picker asks the engines every 50 ms. Reports here are several times as old, and a central
/// picker's even more, so that one replica would look best to many requests in a row. For this, the
/// requests sent since the report count as waiting.
#[derive(Debug)]
pub(super) struct LlmD;

impl Rule for LlmD {
    fn choose(&mut self, view: &View<'_>, _rng: &mut fastrand::Rng) -> Choice {
        let queue = |replica: usize| {
            let sight = &view.sight.replicas[replica];
            let since = sight.started.saturating_sub(sight.signals.started_at);
            f64::from(sight.signals.queued.value) + since as f64
        };
        let longest = view.open().map(queue).fold(0.0, f64::max);
        let shortest = view.open().map(queue).fold(f64::INFINITY, f64::min);
        let score = |replica: usize| {
            let spread = longest - shortest;
            let queue = if spread > 0.0 { (longest - queue(replica)) / spread } else { 1.0 };
            let free = 1.0 - f64::from(view.sight.replicas[replica].signals.kv_use.value);
            let prefix = view.match_share(replica);
            QUEUE_WEIGHT * queue + KV_WEIGHT * free + PREFIX_WEIGHT * prefix
        };
        view.cheapest(view.open(), |replica| -score(replica)).map_or(Choice::Stay, Choice::Replica)
    }
}
