//! Mappings of known servers and exporters.
//!
//! Counts are summed over the series of a page (vLLM has one for each of its engines, Triton one
//! for each model), shares are averaged. The names come from the servers' documentation and source.

use crate::kind::ServerKind;
use crate::scrape::{AdapterMapping, FieldMapping, Mapping, Selector};

impl Mapping {
    /// Returns the mapping of a kind of server; `None` if its page has no number of its present
    /// load.
    #[must_use]
    pub fn of(kind: ServerKind) -> Option<Self> {
        match kind {
            ServerKind::Vllm => Some(vllm()),
            ServerKind::Sglang => Some(sglang()),
            ServerKind::Triton => Some(triton()),
            ServerKind::Tgi => Some(tgi()),
            ServerKind::LlamaCpp => Some(llamacpp()),
            ServerKind::MlServer => Some(mlserver()),
            ServerKind::TorchServe => Some(torchserve()),
            ServerKind::TfServing
            | ServerKind::Ollama
            | ServerKind::LlamaCppPython
            | ServerKind::Generic => None,
        }
    }

    /// Returns the mapping of NVIDIA's DCGM exporter, usually on port 9400 of the machine. The
    /// exporter reports all GPUs of the machine; use [`Mapping::with`] if replicas share one:
    /// `Mapping::dcgm().with("gpu", "0")`.
    #[must_use]
    pub fn dcgm() -> Self {
        let used = || named("DCGM_FI_DEV_FB_USED");
        Self {
            gpu_use: Some(FieldMapping::mean([named("DCGM_FI_DEV_GPU_UTIL")], 0.01)),
            gpu_memory_use: Some(FieldMapping::ratio(
                used(),
                [used(), named("DCGM_FI_DEV_FB_FREE")],
            )),
            ..Self::default()
        }
    }
}

fn vllm() -> Mapping {
    Mapping {
        queued: sum("vllm:num_requests_waiting"),
        running: sum("vllm:num_requests_running"),
        // The second name was used until mid-2025.
        kv_use: Some(FieldMapping::mean(
            [named("vllm:kv_cache_usage_perc"), named("vllm:gpu_cache_usage_perc")],
            1.0,
        )),
        // This gauge is always 1 and has the settings of the cache in its labels.
        cache_tokens: Some(FieldMapping::product(
            named("vllm:cache_config_info"),
            &["num_gpu_blocks", "block_size"],
        )),
        cache_queries: Some(FieldMapping::sum([
            named("vllm:prefix_cache_queries_total"),
            named("vllm:gpu_prefix_cache_queries_total"),
        ])),
        cache_hits: Some(FieldMapping::sum([
            named("vllm:prefix_cache_hits_total"),
            named("vllm:gpu_prefix_cache_hits_total"),
        ])),
        started_s: Some(FieldMapping::mean([named("process_start_time_seconds")], 1.0)),
        adapters: vec![
            // Newer versions list what is loaded; all of them name what has requests.
            AdapterMapping {
                metric: named("vllm:lora_adapter_loaded"),
                labels: vec!["adapter_name".into()],
                slots: None,
            },
            AdapterMapping {
                metric: named("vllm:lora_requests_info"),
                labels: vec!["running_lora_adapters".into(), "waiting_lora_adapters".into()],
                slots: Some("max_lora".into()),
            },
        ],
        ..Mapping::default()
    }
}

fn sglang() -> Mapping {
    Mapping {
        queued: sum("sglang:num_queue_reqs"),
        running: sum("sglang:num_running_reqs"),
        kv_use: mean("sglang:token_usage", 1.0),
        cache_tokens: sum("sglang:max_total_num_tokens"),
        // Both are counted when a request ends. Newer versions count hits by the place where they
        // were found. `sglang:cache_hit_rate` is of no use: it is the share of the last batch
        // alone, of any size, at a random moment.
        cache_queries: sum("sglang:prompt_tokens_total"),
        cache_hits: sum("sglang:cached_tokens_total"),
        started_s: mean("process_start_time_seconds", 1.0),
        ..Mapping::default()
    }
}

fn triton() -> Mapping {
    let request = |kind| named("nv_trt_llm_request_metrics").with("request_type", kind);
    let blocks =
        |kind| named("nv_trt_llm_kv_cache_block_metrics").with("kv_cache_block_type", kind);
    Mapping {
        // TensorRT-LLM counts its own queue, behind Triton's; other backends have only Triton's.
        queued: Some(FieldMapping::sum([
            request("waiting"),
            named("nv_inference_pending_request_count"),
        ])),
        running: Some(FieldMapping::sum([request("scheduled")])),
        kv_use: Some(FieldMapping::mean([blocks("fraction")], 1.0)),
        gpu_use: mean("nv_gpu_utilization", 1.0),
        gpu_memory_use: Some(FieldMapping::ratio(
            named("nv_gpu_memory_used_bytes"),
            [named("nv_gpu_memory_total_bytes")],
        )),
        ..Mapping::default()
    }
}

fn tgi() -> Mapping {
    Mapping {
        queued: sum("tgi_queue_size"),
        running: sum("tgi_batch_current_size"),
        ..Mapping::default()
    }
}

fn llamacpp() -> Mapping {
    Mapping {
        queued: sum("llamacpp:requests_deferred"),
        running: sum("llamacpp:requests_processing"),
        // Newer versions do not report this metric.
        kv_use: mean("llamacpp:kv_cache_usage_ratio", 1.0),
        ..Mapping::default()
    }
}

fn mlserver() -> Mapping {
    Mapping {
        // Requests waiting and running. The queues are histograms, which report the past.
        running: sum("rest_server_requests_in_progress"),
        ..Mapping::default()
    }
}

fn torchserve() -> Mapping {
    // `QueueTime` is how long the last request waited, at any time in the past: it is no load. The
    // metrics below are a minute old by default (metric_time_interval).
    Mapping {
        gpu_use: mean("GPUUtilization", 0.01),
        gpu_memory_use: mean("GPUMemoryUtilization", 0.01),
        ..Mapping::default()
    }
}

fn named(name: &str) -> Selector {
    Selector::named(name)
}

fn sum(name: &str) -> Option<FieldMapping> {
    Some(FieldMapping::sum([named(name)]))
}

fn mean(name: &str, scale: f64) -> Option<FieldMapping> {
    Some(FieldMapping::mean([named(name)], scale))
}
