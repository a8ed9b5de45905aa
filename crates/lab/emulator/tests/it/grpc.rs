//! Tests of KServe V2 and health checks over gRPC.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use prost::Message;
use spillway_emulator::kserve::{
    FlagResponse, HealthRequest, HealthResponse, InferRequest, InferResponse, KserveContents,
    ModelConfigResponse, ModelMetadata, ModelRequest, ModelStatisticsResponse, Parameter,
    ParameterValue, RequestedOutput, ServerMetadata, StreamInferResponse, Tensor,
};
use spillway_emulator::{CallOutcome, Close, Fault, ReplicaHandle};

use crate::client::{Connection, PATIENCE, fast, slow, until};

const KSERVE: &str = "/inference.GRPCInferenceService/";
const TINY: ModelRequest = ModelRequest { name: String::new(), version: String::new() };

fn frame(message: &impl Message) -> Bytes {
    let length = u32::try_from(message.encoded_len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message.encode_to_vec()].concat().into()
}

fn unframe<M: Message + Default>(body: &mut Bytes) -> M {
    let flag = body.get_u8();
    let length = usize::try_from(body.get_u32()).unwrap();
    assert_eq!(flag, 0);
    M::decode(body.split_to(length)).unwrap()
}

/// Result of a call.
struct Called {
    body: Bytes,
    headers: HeaderMap,
    /// Trailers of the reply; its headers if the reply has nothing else.
    trailers: HeaderMap,
}

impl Called {
    fn code(&self) -> &str {
        self.trailers["grpc-status"].to_str().unwrap()
    }

    fn message<M: Message + Default>(mut self) -> M {
        assert_eq!(self.code(), "0", "{:?}", self.trailers);
        let message = unframe(&mut self.body);
        assert!(self.body.is_empty());
        message
    }

    fn messages(mut self) -> Vec<StreamInferResponse> {
        assert_eq!(self.code(), "0", "{:?}", self.trailers);
        let mut messages = Vec::new();
        while !self.body.is_empty() {
            messages.push(unframe(&mut self.body));
        }
        messages
    }
}

fn request(path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::post(format!("http://emulator{path}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).unwrap()
}

async fn send(replica: &ReplicaHandle, request: Request<Full<Bytes>>) -> Response<Incoming> {
    Connection::open_h2(replica).await.send(request).await.unwrap()
}

async fn collect(response: Response<Incoming>) -> Called {
    let (head, body) = response.into_parts();
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-type"], "application/grpc");
    let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap();
    let trailers = body.trailers().cloned().unwrap_or_else(|| head.headers.clone());
    Called { body: body.to_bytes(), headers: head.headers, trailers }
}

async fn call(replica: &ReplicaHandle, path: &str, message: &impl Message) -> Called {
    collect(send(replica, request(path, &[], frame(message))).await).await
}

async fn kserve(replica: &ReplicaHandle, method: &str, message: &impl Message) -> Called {
    call(replica, &format!("{KSERVE}{method}"), message).await
}

fn tensor(name: &str, datatype: &str, shape: &[i64]) -> Tensor {
    let (name, datatype) = (name.to_owned(), datatype.to_owned());
    Tensor { name, datatype, shape: shape.to_vec(), ..Tensor::default() }
}

fn infer(data: &[u8]) -> InferRequest {
    InferRequest {
        model_name: "tiny".to_owned(),
        id: "42".to_owned(),
        inputs: vec![tensor("x", "UINT8", &[i64::try_from(data.len()).unwrap()])],
        raw_input_contents: vec![Bytes::copy_from_slice(data)],
        ..InferRequest::default()
    }
}

fn tokens(count: i64) -> InferRequest {
    let parameter = Parameter::from(ParameterValue::Int(count));
    let parameters = BTreeMap::from([("max_tokens".to_owned(), parameter)]);
    InferRequest { parameters, ..infer(b"prompt") }
}

fn model(name: &str, version: &str) -> ModelRequest {
    ModelRequest { name: name.to_owned(), version: version.to_owned() }
}

#[tokio::test]
async fn the_server_and_its_models_are_described() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for method in ["ServerLive", "ServerReady"] {
        let FlagResponse { is_so } = kserve(replica, method, &TINY).await.message();
        assert!(is_so, "{method}");
    }
    let server: ServerMetadata = kserve(replica, "ServerMetadata", &TINY).await.message();
    assert_eq!(server.name, "spillway-emulator");
    let tiny = model("tiny", "1");
    let metadata: ModelMetadata = kserve(replica, "ModelMetadata", &tiny).await.message();
    assert_eq!((&*metadata.name, metadata.inputs.len()), ("tiny", 1));
    let FlagResponse { is_so } = kserve(replica, "ModelReady", &tiny).await.message();
    assert!(is_so);
    let config: ModelConfigResponse = kserve(replica, "ModelConfig", &tiny).await.message();
    assert_eq!(config.config.unwrap().name, "tiny");
    for wrong in [model("huge", ""), model("tiny", "2")] {
        assert_eq!(kserve(replica, "ModelReady", &wrong).await.code(), "5", "{wrong:?}");
    }
    assert_eq!(kserve(replica, "Nothing", &TINY).await.code(), "12");
    assert_eq!(call(replica, "/my.Service/Call", &TINY).await.code(), "12");
    assert_eq!(replica.stats().received, 0, "none of these is inference");
    emulator.shutdown().await;
}

#[tokio::test]
async fn health_is_known_for_the_server_and_its_service() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for (service, code) in [("", "0"), ("inference.GRPCInferenceService", "0"), ("my.Service", "5")]
    {
        let asked = HealthRequest { service: service.to_owned() };
        let called = call(replica, "/grpc.health.v1.Health/Check", &asked).await;
        assert_eq!(called.code(), code, "{service}");
        if code == "0" {
            assert_eq!(called.message::<HealthResponse>().status, 1);
        }
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn tensors_come_back_as_they_went() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let raw: InferResponse = kserve(replica, "ModelInfer", &infer(&[1, 2, 3])).await.message();
    assert_eq!((&*raw.model_name, &*raw.id), ("tiny", "42"));
    assert_eq!(raw.outputs, [tensor("x", "UINT8", &[3])]);
    assert_eq!(raw.raw_output_contents, [Bytes::from_static(&[1, 2, 3])]);

    let contents = KserveContents { floats: vec![1.5, -2.0], ..KserveContents::default() };
    let floats = Tensor { contents: Some(contents), ..tensor("y", "FP32", &[2]) };
    let wanted = RequestedOutput { name: "z".to_owned(), ..RequestedOutput::default() };
    let typed = InferRequest {
        inputs: vec![floats.clone()],
        outputs: vec![wanted],
        raw_input_contents: Vec::new(),
        ..infer(&[])
    };
    let typed: InferResponse = kserve(replica, "ModelInfer", &typed).await.message();
    assert_eq!(typed.outputs, [Tensor { name: "z".to_owned(), ..floats }]);
    assert!(typed.raw_output_contents.is_empty());
    let statistics: ModelStatisticsResponse =
        kserve(replica, "ModelStatistics", &model("tiny", "")).await.message();
    assert_eq!(statistics.model_stats[0].inference_count, 2);
    emulator.shutdown().await;
}

#[tokio::test]
async fn bad_requests_are_refused_with_the_code_that_says_why() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let base = infer(&[1, 2]);
    let wrong = [
        ("5", InferRequest { model_name: "huge".to_owned(), ..base.clone() }),
        ("3", InferRequest { inputs: Vec::new(), ..base.clone() }),
        ("3", InferRequest { inputs: vec![tensor("x", "UINT8", &[9])], ..base.clone() }),
        ("3", InferRequest { inputs: vec![tensor("x", "UINT8", &[-2])], ..base.clone() }),
        ("3", InferRequest { inputs: vec![tensor("x", "WHAT", &[2])], ..base.clone() }),
        ("3", InferRequest { raw_input_contents: vec![Bytes::new(); 2], ..base.clone() }),
    ];
    for (code, request) in &wrong {
        assert_eq!(kserve(replica, "ModelInfer", request).await.code(), *code, "{request:?}");
    }
    let path = format!("{KSERVE}ModelInfer");
    let send_bytes = |bytes: Vec<u8>| async {
        collect(send(replica, request(&path, &[], bytes.into())).await).await
    };
    let compressed = send_bytes(vec![1, 0, 0, 0, 1, 9]).await;
    assert_eq!(
        (compressed.code(), &compressed.trailers["grpc-accept-encoding"]),
        ("12", &"identity".parse().unwrap())
    );
    for bytes in [vec![], vec![0, 0, 0], vec![0, 0, 0, 0, 2, 9], vec![0, 0, 0, 0, 1, 0xFF]] {
        assert_eq!(send_bytes(bytes.clone()).await.code(), "3", "{bytes:?}");
    }
    let late = request(&path, &[("grpc-timeout", "soon")], frame(&base));
    assert_eq!(collect(send(replica, late).await).await.code(), "3");
    let stats = replica.stats();
    assert_eq!((stats.received, stats.rejected), (12, 12));
    emulator.shutdown().await;
}

#[tokio::test]
async fn each_request_of_a_stream_has_its_reply_or_its_error() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let wrong = InferRequest { model_name: "huge".to_owned(), ..infer(&[2]) };
    let stream = [frame(&infer(&[1])), frame(&wrong), frame(&infer(&[3]))].concat();
    let path = format!("{KSERVE}ModelStreamInfer");
    let called = collect(send(replica, request(&path, &[], stream.into())).await).await;
    let replies = called.messages();
    let data = |reply: &StreamInferResponse| {
        let response = reply.infer_response.clone().unwrap();
        (reply.error_message.is_empty(), response.raw_output_contents.concat())
    };
    let all: Vec<_> = replies.iter().map(data).collect();
    assert_eq!(all, [(true, vec![1]), (false, vec![]), (true, vec![3])]);
    assert!(replies[1].error_message.contains("huge"));
    let stats = until(replica, |stats| stats.finished == 1).await;
    assert_eq!((stats.received, stats.started), (1, 1), "a stream is one request");
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_request_for_tokens_has_a_reply_for_each() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let path = format!("{KSERVE}ModelStreamInfer");
    let stream = [frame(&tokens(5)), frame(&infer(&[1]))].concat();
    let replies = collect(send(replica, request(&path, &[], stream.into())).await).await.messages();
    assert_eq!(replies.len(), 6);
    let finals: Vec<bool> = replies[..5]
        .iter()
        .map(|reply| {
            let response = reply.infer_response.as_ref().unwrap();
            let flag = &response.parameters["triton_final_response"];
            flag.value == Some(ParameterValue::Bool(true))
        })
        .collect();
    assert_eq!(finals, [false, false, false, false, true]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_not_done_by_its_deadline_ends_there() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let timeout = [("grpc-timeout", "150m")];
    let big = infer(&vec![1; 40_000]);
    for (method, request_body) in [("ModelInfer", big), ("ModelStreamInfer", tokens(500))] {
        let asked = request(&format!("{KSERVE}{method}"), &timeout, frame(&request_body));
        let started = Instant::now();
        let called = collect(send(replica, asked).await).await;
        assert_eq!(called.code(), "4", "{method}");
        assert!(started.elapsed() >= Duration::from_millis(150));
    }
    until(replica, |stats| stats.running + stats.waiting == 0).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn leaving_a_stream_ends_the_work_on_it() {
    let emulator = slow(1).await;
    let replica = emulator.replica(0);
    let path = format!("{KSERVE}ModelStreamInfer");
    let mut connection = Connection::open_h2(replica).await;
    let asked = request(&path, &[], frame(&tokens(1000)));
    let mut response = connection.send(asked).await.unwrap();
    response.frame().await.unwrap().unwrap();
    drop(response);
    let stats = until(replica, |stats| stats.aborted == 1).await;
    assert_eq!((stats.received, stats.finished), (1, 0));
    until(replica, |stats| stats.running + stats.waiting == 0).await;
    emulator.shutdown().await;
}

#[tokio::test]
async fn faults_strike_here_too_and_are_counted_once() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    for (code, expected) in [(503, "14"), (500, "13"), (429, "8")] {
        let fault = Fault::Status { code, retry_after_s: Some(2), probability: 1.0 };
        replica.set_fault(fault).await.unwrap();
        for method in ["ModelInfer", "ModelStreamInfer"] {
            let called = kserve(replica, method, &infer(&[1])).await;
            assert_eq!(called.code(), expected, "{method}");
            assert_eq!(called.headers["grpc-retry-pushback-ms"], "2000");
        }
        let FlagResponse { is_so } = kserve(replica, "ServerReady", &TINY).await.message();
        assert!(is_so, "only inference fails");
    }
    assert_eq!(replica.stats().rejected, 6);

    let path = format!("{KSERVE}ModelStreamInfer");
    let cut = Fault::Cut { after_events: 2, close: Close::Reset };
    replica.set_fault(cut).await.unwrap();
    let mut response = send(replica, request(&path, &[], frame(&tokens(9)))).await;
    for _ in 0..2 {
        response.frame().await.unwrap().unwrap();
    }
    assert!(response.frame().await.unwrap().is_err(), "cut");
    until(replica, |stats| stats.aborted == 1).await;

    replica.set_fault(Fault::Stall { after_events: 2 }).await.unwrap();
    let mut response = send(replica, request(&path, &[], frame(&tokens(9)))).await;
    for _ in 0..2 {
        response.frame().await.unwrap().unwrap();
    }
    // wait: silence can only be watched for some time.
    let third = tokio::time::timeout(Duration::from_millis(200), response.frame()).await;
    assert!(third.is_err(), "stalled");
    let stats = replica.stats();
    assert_eq!(stats.received, stats.aborted + stats.rejected + stats.finished + 1);
    assert_eq!(stats.last_requests.last().map(|last| last.outcome), Some(CallOutcome::InFlight));
    drop(response);
    until(replica, |stats| stats.aborted == 2).await;
    emulator.shutdown().await;
}
