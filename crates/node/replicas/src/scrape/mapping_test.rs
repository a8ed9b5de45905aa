use proptest::prelude::*;

use super::*;
use crate::kind::ServerKind;

fn read(kind: ServerKind, page: &str) -> LoadReport {
    Mapping::of(kind).unwrap().read(page.as_bytes()).0
}

fn read_cache(kind: ServerKind, page: &str) -> CacheReport {
    Mapping::of(kind).unwrap().read(page.as_bytes()).1
}

#[test]
fn vllm_tells_the_size_of_its_cache_in_labels_and_what_was_found_there() {
    let page = r#"
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="2500",x="None"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="1500",x="None"} 1.0
vllm:prefix_cache_queries_total{engine="0"} 6.40e+02
vllm:prefix_cache_hits_total{engine="0"} 320.0
process_start_time_seconds 1.76e+09
"#;
    let expected = CacheReport {
        tokens: Some(64_000.0),
        queries: Some(640.0),
        hits: Some(320.0),
        started_s: Some(1.76e9),
    };
    assert_eq!(read_cache(ServerKind::Vllm, page), expected);
    for broken in [
        "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\n",
        "vllm:cache_config_info{num_gpu_blocks=\"10\"} 1.0\n",
        "vllm:cache_config_info{block_size=\"-16\",num_gpu_blocks=\"10\"} 1.0\n",
        "vllm:cache_config_info{block_size=\"inf\",num_gpu_blocks=\"10\"} 1.0\n",
    ] {
        assert_eq!(read_cache(ServerKind::Vllm, broken), CacheReport::default(), "{broken}");
    }
    let older = "vllm:gpu_prefix_cache_queries_total 7\nvllm:gpu_prefix_cache_hits_total 5\n";
    let report = read_cache(ServerKind::Vllm, older);
    assert_eq!((report.queries, report.hits), (Some(7.0), Some(5.0)));
}

#[test]
fn sglang_tells_the_size_of_its_cache_and_counts_what_was_found_there() {
    let page = r#"
sglang:max_total_num_tokens{model_name="m"} 441344.0
sglang:cache_hit_rate{model_name="m"} 0.97
sglang:prompt_tokens_total{is_streaming="true",model_name="m"} 8.0e+06
sglang:prompt_tokens_total{is_streaming="false",model_name="m"} 128902.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 5.0e+06
sglang:cached_tokens_total{cache_source="host",model_name="m"} 7.0
"#;
    let expected = CacheReport {
        tokens: Some(441_344.0),
        queries: Some(8_128_902.0),
        hits: Some(5_000_007.0),
        started_s: None,
    };
    assert_eq!(read_cache(ServerKind::Sglang, page), expected);
    let older = "sglang:prompt_tokens_total 70\nsglang:cached_tokens_total 50\n";
    let report = read_cache(ServerKind::Sglang, older);
    assert_eq!((report.queries, report.hits), (Some(70.0), Some(50.0)));
    let oldest = "sglang:prompt_tokens_total 70\nsglang:cache_hit_rate 0.5\n";
    assert_eq!(read_cache(ServerKind::Sglang, oldest).hits, None, "it is not counted there");
}

#[test]
fn vllm_counts_are_summed_over_engines_and_shares_averaged() {
    let page = r#"
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 8.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 32.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
"#;
    let expected = LoadReport {
        queued: Some(32.0),
        running: Some(12.0),
        kv_use: Some(0.375),
        ..LoadReport::default()
    };
    assert_eq!(read(ServerKind::Vllm, page), expected);
}

#[test]
fn older_names_count_where_the_newer_are_missing() {
    let old = "vllm:gpu_cache_usage_perc 0.7\n";
    assert_eq!(read(ServerKind::Vllm, old).kv_use, Some(0.7));
    let both = "vllm:gpu_cache_usage_perc 0.7\nvllm:kv_cache_usage_perc 0.1\n";
    assert_eq!(read(ServerKind::Vllm, both).kv_use, Some(0.1));
}

#[test]
fn the_other_text_servers_tell_queue_batch_and_cache() {
    let sglang = "sglang:num_queue_reqs{model_name=\"m\"} 2826.0\n\
                  sglang:num_running_reqs{model_name=\"m\"} 161.0\nsglang:token_usage{model_name=\"m\"} 0.28\n";
    let report = read(ServerKind::Sglang, sglang);
    assert_eq!(
        (report.queued, report.running, report.kv_use),
        (Some(2826.0), Some(161.0), Some(0.28))
    );

    let tgi =
        "tgi_queue_size 7\ntgi_batch_current_size 16\ntgi_batch_next_size_bucket{le=\"1\"} 4\n";
    let report = read(ServerKind::Tgi, tgi);
    assert_eq!((report.queued, report.running, report.kv_use), (Some(7.0), Some(16.0), None));

    let llama = "llamacpp:requests_processing 4\nllamacpp:requests_deferred 46\nllamacpp:kv_cache_usage_ratio 0.9\n";
    let report = read(ServerKind::LlamaCpp, llama);
    assert_eq!((report.queued, report.running, report.kv_use), (Some(46.0), Some(4.0), Some(0.9)));
}

#[test]
fn triton_tells_its_gpus_and_the_queue_of_whatever_backend_it_has() {
    let gpus = r#"
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.9
nv_gpu_utilization{gpu_uuid="GPU-2"} 0.3
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 3000000000.0
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 1000000000.0
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 8000000000.0
nv_gpu_memory_total_bytes{gpu_uuid="GPU-2"} 8000000000.0
nv_inference_pending_request_count{model="a",version="1"} 3
nv_inference_pending_request_count{model="b",version="1"} 2
"#;
    let expected = LoadReport {
        queued: Some(5.0),
        gpu_use: Some(0.6),
        gpu_memory_use: Some(0.25),
        ..LoadReport::default()
    };
    assert_eq!(read(ServerKind::Triton, gpus), expected);

    let llm = r#"
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 4
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4
"#;
    let report = read(ServerKind::Triton, &format!("{gpus}{llm}"));
    assert_eq!((report.queued, report.running, report.kv_use), (Some(4.0), Some(6.0), Some(0.4)));
}

#[test]
fn servers_without_a_queue_tell_what_they_have() {
    let mlserver = "rest_server_requests_in_progress{app_name=\"x\",method=\"POST\"} 3.0\n\
                    batch_request_queue_count 9\n";
    let expected = LoadReport { running: Some(3.0), ..LoadReport::default() };
    assert_eq!(read(ServerKind::MlServer, mlserver), expected);

    let torch = "GPUUtilization{Level=\"Host\",DeviceId=\"0\",Hostname=\"h\",} 80.0\n\
                 GPUMemoryUtilization{Level=\"Host\",DeviceId=\"0\",Hostname=\"h\",} 42.5\nQueueTime{Level=\"Host\",} 12.0\n";
    let report = read(ServerKind::TorchServe, torch);
    assert_eq!(
        (report.gpu_use, report.gpu_memory_use, report.pending),
        (Some(0.8), Some(0.425), None)
    );

    assert_eq!(Mapping::of(ServerKind::TfServing), None);
}

#[test]
fn dcgm_can_be_asked_for_some_of_the_gpus() {
    let page = r#"
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n1"} 100
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",Hostname="n1"} 0
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-a",Hostname="n1"} 1000
DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-b",Hostname="n1"} 4000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="n1"} 3000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b",Hostname="n1"} 0
"#;
    let all = Mapping::dcgm().read(page.as_bytes()).0;
    assert_eq!((all.gpu_use, all.gpu_memory_use), (Some(0.5), Some(0.375)));
    let one = Mapping::dcgm().with("gpu", "0").read(page.as_bytes()).0;
    assert_eq!((one.gpu_use, one.gpu_memory_use), (Some(1.0), Some(0.75)));
    let none = Mapping::dcgm().with("gpu", "7").read(page.as_bytes()).0;
    assert_eq!(none, LoadReport::default());
}

#[test]
fn own_mappings_come_from_the_config() {
    let text = r#"
[queued]
metrics = ['jobs{state="waiting"}']
[pending]
metrics = ["work_ms"]
scale = 0.001
[gpu_memory_use]
metrics = ["used"]
ratio_to = ["used", "free"]
[kv_use]
metrics = ["cache"]
combine = "mean"
"#;
    let mapping: Mapping = toml::from_str(text).unwrap();
    let page = "jobs{state=\"waiting\"} 2\njobs{state=\"done\"} 9\nwork_ms 1500\nused 1\nfree 3\ncache 0.2\ncache 0.4\n";
    let report = mapping.read(page.as_bytes()).0;
    assert_eq!((report.queued, report.pending), (Some(2.0), Some(1.5)));
    assert_eq!((report.gpu_memory_use, report.kv_use), (Some(0.25), Some(0.3)));
    assert!(toml::from_str::<Mapping>("[queue]\nmetrics = [\"a\"]").is_err());
    assert!(toml::from_str::<Mapping>("[queued]\nmetrics = [\"a{\"]").is_err());
}

#[test]
fn unknown_is_not_idle() {
    assert_eq!(read(ServerKind::Vllm, ""), LoadReport::default());
    assert_eq!(read(ServerKind::Vllm, "vllm:num_requests_waiting NaN\n").queued, None);
    assert_eq!(read(ServerKind::Vllm, "vllm:num_requests_waiting -1\n").queued, None);
    let half = "nv_gpu_memory_used_bytes 5\n";
    assert_eq!(read(ServerKind::Triton, half).gpu_memory_use, None);
    let empty = "nv_gpu_memory_used_bytes 0\nnv_gpu_memory_total_bytes 0\n";
    assert_eq!(read(ServerKind::Triton, empty).gpu_memory_use, None);
}

#[test]
fn shares_are_cut_and_numbers_beyond_any_meaning_dropped() {
    let page = "vllm:kv_cache_usage_perc 1.5\nvllm:num_requests_waiting 1e300\n";
    let report = read(ServerKind::Vllm, page);
    assert_eq!((report.kv_use, report.queued), (Some(1.0), None));
}

#[test]
fn a_huge_page_is_read_in_one_pass() {
    let mut page = String::new();
    for bucket in 0..40_000 {
        page.push_str(&format!(
            "vllm:e2e_request_latency_seconds_bucket{{le=\"{bucket}\",model_name=\"m\"}} {bucket}\n"
        ));
    }
    page.push_str("vllm:num_requests_waiting 3\n");
    assert!(page.len() > 2 << 20);
    assert_eq!(read(ServerKind::Vllm, &page).queued, Some(3.0));
}

proptest! {
    #[test]
    fn reports_are_finite_and_in_range_whatever_the_page(
        lines in proptest::collection::vec(("(vllm:(num_requests_(waiting|running)|kv_cache_usage_perc)|#|x)", "([{]a=\"b\"[}])?", any::<f64>()), 0..30)
    ) {
        let page: String = lines.iter().map(|(name, labels, value)| format!("{name}{labels} {value:?}\n")).collect();
        let report = read(ServerKind::Vllm, &page);
        for count in [report.queued, report.running].into_iter().flatten() {
            prop_assert!(count.is_finite() && count >= 0.0);
        }
        prop_assert!(report.kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
