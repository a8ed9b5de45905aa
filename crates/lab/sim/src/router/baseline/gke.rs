//! Spill at a KV use of 60 %, as with GKE's gateways of several clusters.

use super::llmd::LlmD;
use super::rule::Rule;
use super::view::{Choice, View};

/// Mean share of KV in use up to which a region keeps its requests: the value that Google's guide
/// starts with (`maxUtilizationPercent: 60` on `gke.named_metrics.kv-cache`).
const KV_USE_MAX: f64 = 0.6;

/// Rule like that of GKE's multi-cluster Inference Gateway, whose code is not public: the own
/// region up to a mean KV use of 60 %, and beyond it the nearest region that is below. In a region the
/// gateway asks llm-d's endpoint picker, which decides by its defaults. The part of requests that leaves grows with the excess: with a use of `u`, `1 -
/// 0.6 / u`. Metrics come every 5 to 15 seconds in published set-ups; here they are as fresh as the
/// world's.
#[derive(Debug)]
pub(super) struct Gke;

impl Rule for Gke {
    fn choose(&mut self, view: &View<'_>, rng: &mut fastrand::Rng) -> Choice {
        let replicas = view.sight.replicas;
        let held: f64 = replicas.iter().map(|one| f64::from(one.signals.kv_use.value)).sum();
        let kv_use = held / replicas.len().max(1) as f64;
        let has_room = view.regions().iter().filter(|other| {
            other.report.is_some() && other.replicas > 0 && f64::from(other.kv_use) < KV_USE_MAX
        });
        let nearest = has_room.min_by(|a, b| a.rtt_ms.total_cmp(&b.rtt_ms));
        if let Some(other) = nearest.filter(|_| kv_use > KV_USE_MAX)
            && rng.f64() < 1.0 - KV_USE_MAX / kv_use
        {
            return Choice::Region(other.region);
        }
        LlmD.choose(view, rng)
    }
}
