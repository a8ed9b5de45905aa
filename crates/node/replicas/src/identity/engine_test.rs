use super::*;
use crate::kind::ServerKind::{
    LlamaCpp, LlamaCppPython, MlServer, Ollama, Sglang, TfServing, Tgi, TorchServe, Triton, Vllm,
};

/// Answers of a server, each for one page; all other pages answer 404.
type Pages = &'static [(EnginePage, u16, &'static str)];

fn recognised(pages: Pages) -> Option<ServerKind> {
    EnginePage::ALL.into_iter().find_map(|page| {
        let found = pages.iter().find(|(known, ..)| *known == page);
        let (status, body) = found.map_or((404, r#"{"detail":"Not Found"}"#), |it| (it.1, it.2));
        page.kind(status, body.as_bytes())
    })
}

const VLLM_MODELS: &str = r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1763600000,
    "owned_by":"vllm","root":"./tiny","parent":null,"max_model_len":2048,"permission":[]},
    {"id":"tiny-lora","object":"model","created":1763600000,"owned_by":"vllm","root":"./lora",
    "parent":"tiny","permission":[]}]}"#;
const VLLM_METRICS: &str = "# HELP python_gc_objects_collected_total Objects collected during gc\n\
    # TYPE python_gc_objects_collected_total counter\n\
    python_gc_objects_collected_total{generation=\"0\"} 11862.0\n\
    # HELP vllm:num_requests_running Number of requests in model execution batches.\n\
    # TYPE vllm:num_requests_running gauge\n\
    vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0\n";
const LLAMA_MODELS: &str = r#"{"models":[{"name":"tiny.gguf","model":"tiny.gguf","type":"model",
    "capabilities":["completion"]}],"object":"list","data":[{"id":"tiny.gguf","object":"model",
    "created":1763600000,"owned_by":"llamacpp","meta":{"n_ctx_train":2048,"size":5500000}}]}"#;
const LLAMA_PROPS: &str = r#"{"default_generation_settings":{"n_ctx":2048,"params":{}},"total_slots":1,
    "model_path":"tiny.gguf","chat_template":"","build_info":"b11549-abc"}"#;
const SGLANG_MODELS: &str = r#"{"object":"list","data":[{"id":"meta/llama","object":"model",
    "created":1763600000,"owned_by":"sglang","root":"meta/llama","parent":null,"max_model_len":8192}]}"#;
const SGLANG_INFO: &str = r#"{"model_path":"meta/llama","tokenizer_path":"meta/llama","tp_size":1,
    "internal_states":[{"memory_usage":{}}],"version":"0.5.4"}"#;
const TGI_MODELS: &str = r#"{"object":"list","data":[{"id":"meta/llama","object":"model","created":0,
    "owned_by":"meta/llama"}]}"#;
const TGI_INFO: &str = r#"{"model_id":"meta/llama","model_sha":"abc","model_pipeline_tag":"text-generation",
    "max_concurrent_requests":128,"max_best_of":2,"max_stop_sequences":4,"max_input_tokens":4095,
    "max_total_tokens":4096,"validation_workers":2,"max_client_batch_size":4,
    "router":"text-generation-router","version":"3.3.4","sha":"abc","docker_label":"sha-abc"}"#;
const EMBEDDINGS_INFO: &str = r#"{"model_id":"BAAI/bge","model_sha":"abc","model_dtype":"float16",
    "model_type":{"embedding":{"pooling":"cls"}},"max_concurrent_requests":512,
    "max_input_length":512,"version":"1.8.0","sha":"abc","docker_label":"sha-abc"}"#;
const TRITON: &str = r#"{"name":"triton","version":"2.60.0","extensions":["classification","sequence",
    "model_repository","model_repository(unload_dependents)","schedule_policy","model_configuration",
    "system_shared_memory","cuda_shared_memory","binary_tensor_data","statistics","trace","logging"]}"#;
const NAMED_TRITON: &str = r#"{"name":"inference-7","version":"2.60.0","extensions":["classification",
    "model_repository","model_repository(unload_dependents)","statistics"]}"#;
const MLSERVER: &str = r#"{"name":"mlserver","version":"1.7.1","extensions":[]}"#;
const TORCHSERVE: &str = r#"{"openapi":"3.0.1","info":{"title":"TorchServe APIs",
    "description":"TorchServe is a flexible and easy to use tool","version":"0.12.0"},"paths":{}}"#;
/// TensorFlow Serving from 1.11 on, `ProcessModelStatusRequest` of its
/// `model_servers/http_rest_api_handler.cc`: a name is missing behind the path.
const TF_SERVING: &str = r#"{ "error": "Missing model name in request." }"#;
const TF_SERVING_PATH: &str = r#"{ "error": "Malformed request: GET /v1/models/" }"#;
/// Ollama 0.5: `openai/openai.go` (`toListCompletion`), `server/routes.go` (`/`, `/api/tags`).
const OLLAMA_MODELS: &str = r#"{"object":"list","data":[{"id":"llama3.2:latest","object":"model",
    "created":1763600000,"owned_by":"library"}]}"#;
const OLLAMA_NO_MODELS: &str = r#"{"object":"list","data":null}"#;
const OLLAMA_TAGS: &str = r#"{"models":[{"name":"llama3.2:latest","model":"llama3.2:latest",
    "modified_at":"2026-11-20T10:00:00Z","size":2019393189,"digest":"a80c4f17acd5","details":
    {"parent_model":"","format":"gguf","family":"llama","parameter_size":"3.2B"}}]}"#;
/// llama-cpp-python 0.3: `get_models` of its `llama_cpp/server/app.py`.
const LLAMA_CPP_PYTHON_MODELS: &str = r#"{"object":"list","data":[{"id":"/models/tiny.gguf",
    "object":"model","owned_by":"me","permissions":[]}]}"#;
const MINE: &str = r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"me"}]}"#;
const LIST_OF_A_GATEWAY: &str = r#"{"object":"list","data":[{"id":"tiny","object":"model","created":0,
    "owned_by":"spillway","root":"tiny","parent":null}]}"#;
const V2_OF_A_GATEWAY: &str =
    r#"{"name":"spillway","version":"0.1.0","extensions":["binary_tensor_data"]}"#;

#[test]
fn servers_are_recognised_by_their_pages() {
    use EnginePage::{
        ApiDescription, GetServerInfo, Info, Metrics, Models, Props, Root, ServerInfo, Tags, V2,
    };
    let table: &[(Pages, Option<ServerKind>)] = &[
        (&[(Models, 200, VLLM_MODELS), (Metrics, 200, VLLM_METRICS)], Some(Vllm)),
        // Paths below /v1 need a key that the gateway does not have.
        (&[(Models, 401, r#"{"error":"Unauthorized"}"#), (Metrics, 200, VLLM_METRICS)], Some(Vllm)),
        (&[(Models, 200, VLLM_MODELS)], Some(Vllm)),
        (&[(Models, 200, LLAMA_MODELS)], Some(LlamaCpp)),
        (&[(Props, 200, LLAMA_PROPS)], Some(LlamaCpp)),
        (&[(Metrics, 200, "# TYPE llamacpp:requests_deferred gauge\n")], Some(LlamaCpp)),
        (&[(Models, 200, SGLANG_MODELS)], Some(Sglang)),
        (&[(ServerInfo, 200, SGLANG_INFO)], Some(Sglang)),
        (&[(GetServerInfo, 200, SGLANG_INFO)], Some(Sglang)),
        (&[(Metrics, 200, "sglang:num_running_reqs{tp_rank=\"0\"} 0.0\n")], Some(Sglang)),
        (&[(Models, 200, TGI_MODELS), (Info, 200, TGI_INFO)], Some(Tgi)),
        (&[(Metrics, 200, "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n")], Some(Tgi)),
        (&[(V2, 200, TRITON)], Some(Triton)),
        (&[(V2, 200, NAMED_TRITON)], Some(Triton)),
        (&[(V2, 200, MLSERVER)], Some(MlServer)),
        (&[(ApiDescription, 200, TORCHSERVE)], Some(TorchServe)),
        (&[(Models, 400, TF_SERVING)], Some(TfServing)),
        (&[(Models, 400, TF_SERVING_PATH)], Some(TfServing)),
        (&[(Models, 404, TF_SERVING)], None),
        (&[(Models, 200, OLLAMA_MODELS), (Root, 200, "Ollama is running")], Some(Ollama)),
        (&[(Models, 200, OLLAMA_NO_MODELS), (Root, 200, "Ollama is running")], Some(Ollama)),
        (&[(Models, 200, OLLAMA_MODELS), (Tags, 200, OLLAMA_TAGS)], Some(Ollama)),
        (&[(Tags, 200, r#"{"models":[]}"#), (Root, 200, "<html>Ollama is running")], None),
        (&[(Models, 200, LLAMA_CPP_PYTHON_MODELS)], Some(LlamaCppPython)),
        (&[(Models, 200, MINE)], None),
        (&[(Info, 200, EMBEDDINGS_INFO)], None),
        (&[(Models, 200, LIST_OF_A_GATEWAY), (V2, 200, V2_OF_A_GATEWAY)], None),
        (&[(Models, 200, "<html>"), (Metrics, 200, "<html>vllm: yes"), (V2, 200, "[]")], None),
        (&[(Metrics, 404, VLLM_METRICS)], None),
        (&[], None),
    ];
    for (pages, expected) in table {
        assert_eq!(recognised(pages), *expected, "{pages:?}");
    }
}
