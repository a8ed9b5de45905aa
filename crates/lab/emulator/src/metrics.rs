//! Metrics with vLLM's names and the true values of this engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use spillway_engine::{EngineConfig, Stats};

/// Buckets of vLLM's histogram of the time to first token, in seconds.
const FIRST_TOKEN_BUCKETS: [f64; 19] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
];
/// Buckets of vLLM's histogram of the time between tokens, in seconds.
const TOKEN_BUCKETS: [f64; 16] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Buckets of vLLM's histogram of the time of a whole request, in seconds.
const REQUEST_BUCKETS: [f64; 16] =
    [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0];

type Labels = Vec<(&'static str, String)>;

/// Metrics of one engine since its last crash.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    stats: Arc<Mutex<Stats>>,
    first_token_seconds: Histogram,
    token_seconds: Histogram,
    request_seconds: Histogram,
    requests: Family<Labels, Counter>,
}

impl Metrics {
    pub(crate) fn new(models: &[String], config: &EngineConfig) -> Self {
        let mut registry = Registry::default();
        // One engine serves all models of a replica; vLLM's label has the first one.
        let model = models.first().cloned().unwrap_or_default();
        let labels = [("model_name".into(), model.into()), ("engine".into(), "0".into())];
        let scope = registry.sub_registry_with_labels(labels.into_iter());

        let stats = Arc::new(Mutex::new(Stats::default()));
        scope.register_collector(Box::new(EngineCollector(Arc::clone(&stats))));
        let first_token_seconds = Histogram::new(FIRST_TOKEN_BUCKETS);
        let help = "Time to first token in seconds";
        scope.register("vllm:time_to_first_token_seconds", help, first_token_seconds.clone());
        let token_seconds = Histogram::new(TOKEN_BUCKETS);
        let help = "Time between two tokens in seconds";
        scope.register("vllm:inter_token_latency_seconds", help, token_seconds.clone());
        let request_seconds = Histogram::new(REQUEST_BUCKETS);
        let help = "Time from arrival to last token in seconds";
        scope.register("vllm:e2e_request_latency_seconds", help, request_seconds.clone());
        let requests = Family::default();
        scope.register("vllm:request_success", "Requests that ended, by reason", requests.clone());
        let cache_config = Family::<Labels, Gauge>::default();
        cache_config.get_or_create(&cache_config_labels(config)).set(1);
        let help = "Information of the LLMEngine CacheConfig";
        scope.register("vllm:cache_config_info", help, cache_config);

        Self { registry, stats, first_token_seconds, token_seconds, request_seconds, requests }
    }

    pub(crate) fn observe_first_token(&self, after: Duration) {
        self.first_token_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn observe_token(&self, after: Duration) {
        self.token_seconds.observe(after.as_secs_f64());
    }

    pub(crate) fn observe_request(&self, after: Duration) {
        self.request_seconds.observe(after.as_secs_f64());
    }

    /// Counts a request that ended for `reason`: stop, length or abort.
    pub(crate) fn count_request(&self, reason: &str) {
        self.requests.get_or_create(&vec![("finished_reason", reason.to_owned())]).inc();
    }

    /// Returns all metrics as OpenMetrics text, with the engine's figures from `stats`.
    pub(crate) fn render(&self, stats: Stats) -> String {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
        let mut page = String::new();
        if let Err(error) = encode(&mut page, &self.registry) {
            tracing::error!(%error, "the metrics could not be written");
        }
        page
    }
}

/// Collector that reads the engine's own counters at scrape time, so that nothing is counted twice.
#[derive(Debug)]
struct EngineCollector(Arc<Mutex<Stats>>);

impl Collector for EngineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = f64::from(stats.kv_blocks_used) / f64::from(stats.kv_blocks_total.max(1));
        let gauges = [
            ("vllm:num_requests_running", "Requests in the batch", f64::from(stats.running)),
            ("vllm:num_requests_waiting", "Requests waiting", f64::from(stats.waiting)),
            ("vllm:kv_cache_usage_perc", "KV cache usage; 1 means 100 percent", usage),
        ];
        for (name, help, value) in gauges {
            write_metric(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        let counters = [
            ("vllm:prefix_cache_queries", "Tokens looked up", stats.prefix_cache_queries_tokens),
            ("vllm:prefix_cache_hits", "Tokens found cached", stats.prefix_cache_hits_tokens),
            ("vllm:prompt_tokens", "Prefill tokens processed", stats.prompt_tokens),
            ("vllm:generation_tokens", "Generation tokens processed", stats.generation_tokens),
            ("vllm:num_preemptions", "Preemptions by the engine", stats.preemptions),
        ];
        for (name, help, value) in counters {
            write_metric(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        Ok(())
    }
}

fn write_metric(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), std::fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn cache_config_labels(config: &EngineConfig) -> Labels {
    vec![
        ("block_size", config.block_tokens.to_string()),
        ("num_gpu_blocks", config.kv_blocks.to_string()),
        ("enable_prefix_caching", "True".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> String {
        let metrics = Metrics::new(&["tiny".to_owned()], &EngineConfig::default());
        metrics.observe_first_token(Duration::from_millis(30));
        metrics.observe_token(Duration::from_millis(30));
        metrics.count_request("stop");
        metrics.render(Stats {
            running: 3,
            waiting: 2,
            kv_blocks_used: 25,
            kv_blocks_total: 100,
            prefix_cache_queries_tokens: 640,
            prefix_cache_hits_tokens: 320,
            preemptions: 4,
            prompt_tokens: 600,
            generation_tokens: 77,
            ..Stats::default()
        })
    }

    #[test]
    fn the_page_has_vllm_names_labels_and_the_true_values() {
        let page = page();
        let labels = r#"{model_name="tiny",engine="0"}"#;
        for (name, value) in [
            ("vllm:num_requests_running", "3.0"),
            ("vllm:num_requests_waiting", "2.0"),
            ("vllm:kv_cache_usage_perc", "0.25"),
            ("vllm:prefix_cache_queries_total", "640"),
            ("vllm:prefix_cache_hits_total", "320"),
            ("vllm:num_preemptions_total", "4"),
            ("vllm:prompt_tokens_total", "600"),
            ("vllm:generation_tokens_total", "77"),
            ("vllm:time_to_first_token_seconds_count", "1"),
            ("vllm:inter_token_latency_seconds_count", "1"),
        ] {
            let line = format!("{name}{labels} {value}\n");
            assert!(page.contains(&line), "{line} is missing in\n{page}");
        }
    }

    #[test]
    fn requests_are_counted_by_reason_and_the_cache_is_described() {
        let page = page();
        let success = r#"finished_reason="stop"} 1"#;
        assert!(page.contains(success), "{page}");
        assert!(page.contains(r#"block_size="16",num_gpu_blocks="2500""#), "{page}");
        assert!(page.contains(r#"le="0.04""#), "{page}");
    }
}
