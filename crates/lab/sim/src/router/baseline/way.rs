//! Table of the baselines: names, sources and rules.

use super::driver::Knowledge;
use super::dynamo::Dynamo;
use super::dynamo_pools::DynamoPools;
use super::gke::Gke;
use super::gorgo::Gorgo;
use super::hash::{BoundedHash, SessionHash};
use super::llmd::LlmD;
use super::llmd_hub::LlmDHub;
use super::lmetric::LMetric;
use super::plain::{LeastLoad, Random, RoundRobin};
use super::preble::Preble;
use super::prequal::Prequal;
use super::rule::Rule;
use super::sglang::SgLang;
use super::skywalker::SkyWalker;
use super::smetric::SMetric;
use crate::router::Place;

/// Requests that may wait in a region for SkyWalker-CH to send one there: of the values of the
/// other SkyWalkers the one nearest to the code's 10.
const HASH_WAITING_MAX: u32 = 8;

/// Way to route, in whichever region the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Random,
    RoundRobin,
    LeastLoad,
    SessionHash,
    BoundedHash,
    Prequal,
    SgLang,
    SgLang2,
    LMetric,
    LMetricReplies,
    SMetric,
    Dynamo,
    DynamoPools,
    LlmD,
    LlmDPrecise,
    LlmDHub,
    Preble,
    Gorgo,
    Gke,
    /// With so many requests waiting in another region at most.
    SkyWalker(u32),
    SkyWalkerHash,
}

impl Way {
    pub(super) const ALL: [Self; 23] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastLoad,
        Self::SessionHash,
        Self::BoundedHash,
        Self::Prequal,
        Self::SgLang,
        Self::SgLang2,
        Self::LMetric,
        Self::LMetricReplies,
        Self::SMetric,
        Self::Dynamo,
        Self::DynamoPools,
        Self::LlmD,
        Self::LlmDPrecise,
        Self::LlmDHub,
        Self::Preble,
        Self::Gorgo,
        Self::Gke,
        Self::SkyWalker(0),
        Self::SkyWalker(2),
        Self::SkyWalker(8),
        Self::SkyWalkerHash,
    ];

    /// Returns the names in each region and in one place for all regions, if the way is one there.
    pub(super) fn names(self) -> (Option<&'static str>, Option<&'static str>) {
        let both = |local, central| (Some(local), Some(central));
        match self {
            Self::Random => both("random-local", "random-central"),
            Self::RoundRobin => both("round-robin-local", "round-robin-central"),
            Self::LeastLoad => both("least-load-local", "least-load-central"),
            Self::SessionHash => both("session-hash-local", "session-hash-central"),
            Self::BoundedHash => both("chwbl-local", "chwbl-central"),
            Self::Prequal => both("prequal-local", "prequal-central"),
            Self::SgLang => both("sglang-local", "sglang-central"),
            Self::SgLang2 => both("sglang-2-local", "sglang-2-central"),
            Self::LMetric => both("lmetric-local", "lmetric-central"),
            Self::LMetricReplies => both("lmetric-replies-local", "lmetric-replies-central"),
            Self::SMetric => both("smetric-local", "smetric-central"),
            Self::Dynamo => both("dynamo-local", "dynamo-central"),
            Self::DynamoPools => both("dynamo-pools", "dynamo-pools-central"),
            Self::LlmD => both("llm-d-local", "llm-d-central"),
            Self::LlmDPrecise => both("llm-d-precise-local", "llm-d-precise-central"),
            Self::LlmDHub => (Some("llm-d-hub"), None),
            Self::Preble => both("preble-local", "preble-central"),
            // The first version decides in each region, the later ones in a central proxy.
            Self::Gorgo => both("gorgo", "gorgo-central"),
            Self::Gke => (Some("gke"), None),
            Self::SkyWalker(0) => (Some("skywalker-0"), None),
            Self::SkyWalker(2) => (Some("skywalker-2"), None),
            Self::SkyWalker(_) => (Some("skywalker-8"), None),
            Self::SkyWalkerHash => (Some("skywalker-ch"), None),
        }
    }

    /// Returns the rule in one sentence.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Random => "any replica",
            Self::RoundRobin => "one replica after the other",
            Self::LeastLoad => "fewest requests in flight",
            Self::SessionHash => "consistent hash of the session",
            Self::BoundedHash => "consistent hash of the session, loads up to 1.25 of the mean",
            Self::Prequal => "lowest latency of the replicas with few requests in flight",
            Self::SgLang => {
                "longest match over 0.5, fewest requests if unbalanced by 32 and 1.0001"
            }
            Self::SgLang2 => "longest match over 0.3, fewest requests if unbalanced by 64 and 1.5",
            Self::LMetric => "tokens to read times requests",
            Self::LMetricReplies => "tokens to read times requests; reads KV events",
            Self::Dynamo => "blocks to read plus blocks in use; reads KV events",
            Self::SMetric => {
                "later turns where their conversation is if in time, else tokens to read times requests"
            }
            Self::DynamoPools => "as dynamo for whole regions, then for replicas; reads KV events",
            Self::LlmD => "2 x queue, 2 x free KV, 3 x matched part",
            Self::LlmDPrecise => "as llm-d; reads KV events",
            Self::LlmDHub => {
                "region with the least first token by what was seen at its load, then as llm-d"
            }
            Self::Preble => "longest match if over half, else least work of three minutes",
            Self::Gorgo => "network, reading and queue in milliseconds",
            Self::Gke => {
                "own region up to a KV use of 60 %, then the nearest with room; in it as llm-d"
            }
            Self::SkyWalker(_) => {
                "longest match over 0.5 where nothing waits, at home first; others are kept"
            }
            Self::SkyWalkerHash => {
                "hash of the session where nothing waits, at home first; others are kept"
            }
        }
    }

    /// Returns the paper or repository.
    pub(super) fn source(self) -> &'static str {
        match self {
            Self::Random | Self::RoundRobin | Self::LeastLoad => "classical",
            Self::SessionHash => "envoyproxy/envoy ring_hash",
            Self::BoundedHash => "arXiv 1608.01350",
            Self::Prequal => "arXiv 2312.10172",
            Self::SgLang | Self::SgLang2 => "sgl-project/sglang sgl-router",
            Self::LMetric | Self::LMetricReplies => "arXiv 2603.15202",
            Self::SMetric => "arXiv 2607.08565, vllm-project/router",
            Self::Dynamo => "ai-dynamo/dynamo lib/kv-router",
            Self::DynamoPools => "ai-dynamo/dynamo lib/llm/src/global_view, unreleased",
            Self::LlmD | Self::LlmDPrecise => "llm-d/llm-d-router",
            Self::LlmDHub => "llm-d/llm-d-router latency-observation-scorer-hub, alpha",
            Self::Preble => "arXiv 2407.00023, WukLab/preble",
            Self::Gorgo => "arXiv 2602.11688, atoniolo76/GORGO",
            Self::Gke => "GKE multi-cluster Inference Gateway",
            Self::SkyWalker(_) | Self::SkyWalkerHash => "arXiv 2505.24095, skypilot-org/skypilot",
        }
    }

    /// Returns the blocks that the way knows of.
    pub(super) fn knowledge(self) -> Knowledge {
        match self {
            Self::LMetricReplies | Self::Dynamo | Self::DynamoPools | Self::LlmDPrecise => {
                Knowledge::Events
            }
            _ => Knowledge::Prompts,
        }
    }

    /// Returns the rule of a node at `place`, whose replicas' caches hold `kv_tokens` tokens each.
    pub(super) fn rule(self, place: &Place, kv_tokens: f32) -> Box<dyn Rule> {
        match self {
            Self::Random => Box::new(Random),
            Self::RoundRobin => Box::new(RoundRobin),
            Self::LeastLoad => Box::new(LeastLoad),
            Self::SessionHash => Box::new(SessionHash::new(place.replicas)),
            Self::BoundedHash => Box::new(BoundedHash::new(place.replicas)),
            Self::Prequal => Box::new(Prequal::new(place.replicas)),
            Self::SgLang => Box::new(SgLang::first(place.replicas)),
            Self::SgLang2 => Box::new(SgLang::second(place.replicas)),
            Self::LMetric | Self::LMetricReplies => Box::new(LMetric),
            Self::SMetric => Box::new(SMetric::new(place.replicas)),
            Self::Dynamo => Box::new(Dynamo::new(place.replicas)),
            Self::DynamoPools => Box::new(DynamoPools::new(place, kv_tokens)),
            Self::LlmD | Self::LlmDPrecise => Box::new(LlmD),
            Self::LlmDHub => Box::new(LlmDHub::new(place)),
            Self::Preble => Box::new(Preble::new(place.replicas)),
            Self::Gorgo => Box::new(Gorgo::new(place)),
            Self::Gke => Box::new(Gke),
            Self::SkyWalker(waiting_max) => Box::new(SkyWalker::tree(place, waiting_max)),
            Self::SkyWalkerHash => Box::new(SkyWalker::hash(place, HASH_WAITING_MAX)),
        }
    }
}
