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
use crate::router::NodePosition;

/// Requests that may wait in a region for SkyWalker-CH to send one there: of the values of the
/// other SkyWalkers the one nearest to the code's 10.
const HASH_WAITING_MAX: u32 = 8;

/// Published way to route.
#[derive(Debug)]
pub(super) struct Published {
    /// Names of the routers in each region and in one region for all; empty if the way is none
    /// there.
    pub(super) names: (&'static str, &'static str),
    /// Rule in one sentence.
    pub(super) about: &'static str,
    /// Paper or repository.
    pub(super) source: &'static str,
    /// Blocks that the way knows of.
    pub(super) knowledge: Knowledge,
    /// Makes the rule of a node at a position, whose replicas' caches hold so many tokens each.
    pub(super) rule: fn(&NodePosition, f32) -> Box<dyn Rule>,
}

macro_rules! ways {
    ($($names:tt $about:literal, $source:literal, $knowledge:ident,
        |$position:pat_param, $kv_tokens:pat_param| $rule:expr;)*) => {
        /// All ways, in the order of tables.
        pub(super) static WAYS: &[Published] = &[$(Published {
            names: $names,
            about: $about,
            source: $source,
            knowledge: Knowledge::$knowledge,
            rule: |$position, $kv_tokens| Box::new($rule),
        }),*];
    };
}

// The first version of GORGO decides in each region, the later ones in a central proxy.
ways! {
    ("random-local", "random-central")
        "any replica",
        "classical", Prompts, |_, _| Random;
    ("round-robin-local", "round-robin-central")
        "one replica after the other",
        "classical", Prompts, |_, _| RoundRobin;
    ("least-load-local", "least-load-central")
        "fewest requests in flight",
        "classical", Prompts, |_, _| LeastLoad;
    ("session-hash-local", "session-hash-central")
        "consistent hash of the session",
        "envoyproxy/envoy ring_hash", Prompts, |position, _| SessionHash::new(position.replicas);
    ("chwbl-local", "chwbl-central")
        "consistent hash of the session, loads up to 1.25 of the mean",
        "arXiv 1608.01350", Prompts, |position, _| BoundedHash::new(position.replicas);
    ("prequal-local", "prequal-central")
        "lowest latency of the replicas with few requests in flight",
        "arXiv 2312.10172", Prompts, |position, _| Prequal::new(position.replicas);
    ("sglang-local", "sglang-central")
        "longest match over 0.5, fewest requests if unbalanced by 32 and 1.0001",
        "sgl-project/sglang sgl-router", Prompts, |position, _| SgLang::first(position.replicas);
    ("sglang-2-local", "sglang-2-central")
        "longest match over 0.3, fewest requests if unbalanced by 64 and 1.5",
        "sgl-project/sglang sgl-router", Prompts, |position, _| SgLang::second(position.replicas);
    ("lmetric-local", "lmetric-central")
        "tokens to read times requests",
        "arXiv 2603.15202", Prompts, |_, _| LMetric;
    ("lmetric-replies-local", "lmetric-replies-central")
        "tokens to read times requests; reads KV events",
        "arXiv 2603.15202", Events, |_, _| LMetric;
    ("smetric-local", "smetric-central")
        "later turns where their conversation is if in time, else tokens to read times requests",
        "arXiv 2607.08565, vllm-project/router", Prompts, |position, _| SMetric::new(position.replicas);
    ("dynamo-local", "dynamo-central")
        "blocks to read plus blocks in use; reads KV events",
        "ai-dynamo/dynamo lib/kv-router", Events, |position, _| Dynamo::new(position.replicas);
    ("dynamo-pools", "dynamo-pools-central")
        "as dynamo for whole regions, then for replicas; reads KV events",
        "ai-dynamo/dynamo lib/llm/src/global_view, unreleased", Events, |position, kv_tokens| DynamoPools::new(position, kv_tokens);
    ("llm-d-local", "llm-d-central")
        "2 x queue, 2 x free KV, 3 x matched part",
        "llm-d/llm-d-router", Prompts, |_, _| LlmD;
    ("llm-d-precise-local", "llm-d-precise-central")
        "as llm-d; reads KV events",
        "llm-d/llm-d-router", Events, |_, _| LlmD;
    ("llm-d-hub", "")
        "region with the least first token by what was seen at its load, then as llm-d",
        "llm-d/llm-d-router latency-observation-scorer-hub, alpha", Prompts, |position, _| LlmDHub::new(position);
    ("preble-local", "preble-central")
        "longest match if over half, else least work of three minutes",
        "arXiv 2407.00023, WukLab/preble", Prompts, |position, _| Preble::new(position.replicas);
    ("gorgo", "gorgo-central")
        "network, reading and queue in milliseconds",
        "arXiv 2602.11688, atoniolo76/GORGO", Prompts, |position, _| Gorgo::new(position);
    ("gke", "")
        "own region up to a KV use of 60 %, then the nearest with room; in it as llm-d",
        "GKE multi-cluster Inference Gateway", Prompts, |_, _| Gke;
    ("skywalker-0", "")
        "longest match over 0.5 where nothing waits, at home first; others are kept",
        "arXiv 2505.24095, skypilot-org/skypilot", Prompts, |position, _| SkyWalker::tree(position, 0);
    ("skywalker-2", "")
        "longest match over 0.5 where nothing waits, at home first; others are kept",
        "arXiv 2505.24095, skypilot-org/skypilot", Prompts, |position, _| SkyWalker::tree(position, 2);
    ("skywalker-8", "")
        "longest match over 0.5 where nothing waits, at home first; others are kept",
        "arXiv 2505.24095, skypilot-org/skypilot", Prompts, |position, _| SkyWalker::tree(position, 8);
    ("skywalker-ch", "")
        "hash of the session where nothing waits, at home first; others are kept",
        "arXiv 2505.24095, skypilot-org/skypilot", Prompts, |position, _| SkyWalker::hash(position, HASH_WAITING_MAX);
}
