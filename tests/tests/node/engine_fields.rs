//! Fields and headers by which clients could steer a model server.

use bytes::Bytes;
use h2::Reason;
use http::{HeaderValue, Method};
use spillway_emulator::kserve::{InferRequest, Parameter, ParameterValue};
use spillway_tests::{
    CallServer, Client, OK, RAW_ROUTE, Scripted, Setup, chat, full, message, post, streamed,
};

use crate::grpc_calls::{
    Stream, check_refused, code, connect, frame, infer, kserve, scripted, stream,
};

#[tokio::test]
async fn fields_that_steer_the_model_server_are_refused_unless_the_route_allows_them() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let route = "[[route]]\nname = \"llm\"\nallow_engine_fields = [\"priority\"]\n";
    let strict = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let allowing =
        Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").table(route).start().await;
    let serving = replica.serve(OK);
    for (field, value) in [
        ("priority", "-5"),
        ("request_id", "\"resp_1\""),
        ("kv_transfer_params", "{\"remote_host\":\"10.0.0.1\"}"),
        ("lora_path", "\"other\""),
        ("bootstrap_host", "\"10.0.0.1\""),
        ("data_parallel_rank", "3"),
        ("custom_logit_processor", "\"code\""),
        ("stream_interval", "100000"),
    ] {
        let ask = |node: &spillway_node::Node| {
            let request = chat("tiny", &format!(",\"{field}\":{value}"));
            Client::once(node.addresses()[0], request)
        };
        let refused = ask(&strict).await;
        assert_eq!(refused.status, 400, "{field}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], field);
        assert!(refused.text().contains("allow_engine_fields"), "{}", refused.text());
        let expected = if field == "priority" { 200 } else { 400 };
        assert_eq!(ask(&allowing).await.status, expected, "{field}");
        let null = chat("tiny", &format!(",\"{field}\":null"));
        assert_eq!(Client::once(strict.addresses()[0], null).await.status, 200, "{field}");
    }
    assert_eq!(serving.requests.count(), 9, "nothing that was refused reached the replica");
}

#[tokio::test]
async fn parameters_of_v2_are_refused_in_short_requests_and_in_long_ones() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let _serving = replica.serve(OK);
    let tensor = "1.25,".repeat(400_000);
    for (action, body) in [
        ("generate", r#"{"text_input":"x","priority":1}"#.to_owned()),
        ("generate", r#"{"text_input":"x","parameters":{"priority":1}}"#.to_owned()),
        ("infer", r#"{"inputs":[],"parameters":{"priority":1}}"#.to_owned()),
        (
            "infer",
            format!(r#"{{"inputs":[{{"data":[{tensor}1]}}],"parameters":{{"priority":1}}}}"#),
        ),
    ] {
        let request = post(&format!("/v2/models/tiny/{action}"), body);
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.status, 400, "{action}: {}", reply.text());
        assert!(reply.text().contains("priority"), "{}", reply.text());
    }
    let long = format!(r#"{{"inputs":[{{"data":[{tensor}1]}}],"parameters":{{"x":1}}}}"#);
    let reply = Client::once(node.addresses()[0], post("/v2/models/tiny/infer", long)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// `{"inputs":[],"parameters":{"priority":1}}`, as gzip and as zlib make it, and `{"inputs":[]}`.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\xca\xcc\x2b\x28\x2d\x29\x56\xb2\x8a\x8e\
    \xd5\x51\x2a\x48\x2c\x4a\xcc\x4d\x2d\x49\x2d\x02\xf2\xab\x95\x0a\x8a\x32\xf3\x8b\x32\x4b\
    \x2a\x95\xac\x0c\x6b\x6b\x01\xf2\x1a\x33\xc0\x29\x00\x00\x00";
const ZLIB: &[u8] =
    b"\x78\x9c\xab\x56\xca\xcc\x2b\x28\x2d\x29\x56\xb2\x8a\x8e\xd5\x51\x2a\x48\x2c\x4a\xcc\x4d\
    \x2d\x49\x2d\x02\xf2\xab\x95\x0a\x8a\x32\xf3\x8b\x32\x4b\x2a\x95\xac\x0c\x6b\x6b\x01\x35\
    \xa2\x0e\xd9";
const PLAIN: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\xca\xcc\x2b\x28\x2d\x29\x56\xb2\x8a\x8e\
    \xad\x05\x00\xa2\x00\xa9\xa6\x0d\x00\x00\x00";

#[tokio::test]
async fn compression_hides_no_parameters_and_is_allowed_to_tensors() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let serving = replica.serve(OK);
    let path = "/v2/models/tiny/infer";
    let node = &node;
    let ask = async |coding: &'static str, body: &'static [u8], is_streamed: bool| {
        let (sender, pieces) = streamed();
        sender.try_send(Bytes::from_static(body)).expect("room for a piece");
        let body = if is_streamed { pieces } else { full(body) };
        drop(sender);
        let mut request = message(Method::POST, path, "application/json", body);
        let headers = request.headers_mut();
        headers.insert("content-encoding", HeaderValue::from_static(coding));
        Client::once(node.addresses()[0], request).await
    };
    for is_streamed in [false, true] {
        for (status, coding, body) in [
            (400, "gzip", GZIP),
            (400, "X-GZIP", GZIP),
            (400, "deflate", ZLIB),
            (400, "gzip", ZLIB),
            (415, "gzip, gzip", GZIP),
            (415, "br", GZIP),
            (200, "gzip", PLAIN),
        ] {
            let reply = ask(coding, body, is_streamed).await;
            assert_eq!(reply.status, status, "{coding} {is_streamed}: {}", reply.text());
        }
    }
    assert_eq!(serving.requests.count(), 2);
}

#[tokio::test]
async fn no_header_hides_parameters_from_the_gateway() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let serving = replica.serve(OK);
    let ask = |action: &str, headers: &[(&'static str, &'static str)]| {
        let body = r#"{"text_input":"x","parameters":{"priority":1}}"#;
        let mut request = post(&format!("/v2/models/tiny/{action}"), body);
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        Client::once(node.addresses()[0], request)
    };
    let length = "inference-header-content-length";
    // Endpoints that generate text read all of the body.
    for (status, action, headers) in [
        (400, "generate", &[(length, "0")][..]),
        (400, "generate_stream", &[(length, "2")]),
        (400, "infer", &[(length, "0"), (length, "46")]),
        (400, "infer", &[(length, "many")]),
        (415, "generate_stream", &[("content-encoding", "gzip")]),
        (415, "generate", &[("content-encoding", "identity, deflate")]),
    ] {
        let reply = ask(action, headers).await;
        assert_eq!(reply.status, status, "{action} {headers:?}: {}", reply.text());
    }
    assert_eq!(serving.requests.count(), 0);
}

#[tokio::test]
async fn fields_of_uploads_and_parameters_of_calls_are_looked_at() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let serving = replica.serve(OK);
    for (field, status) in [("priority", 400), ("language", 200)] {
        let body = format!(
            "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ntiny\r\n\
             --X\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n1\r\n--X--\r\n"
        );
        let kind = "multipart/form-data; boundary=X";
        let form = message(Method::POST, "/v1/audio/transcriptions", kind, full(body));
        let reply = Client::once(node.addresses()[0], form).await;
        assert_eq!(reply.status, status, "{field}: {}", reply.text());
    }
    assert_eq!(serving.requests.count(), 1);
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let parameters = [("priority".to_owned(), Parameter::from(ParameterValue::Int(1)))].into();
    let steering = InferRequest { parameters, ..infer("tiny", &[1]) };
    let reply = connect(&node).await.fetch(kserve("ModelInfer", full(frame(&steering)))).await;
    assert_eq!(code(&reply), "3");
    assert!(server.is_alone());
}

#[tokio::test]
async fn a_model_that_stands_in_takes_no_more_than_its_own_route_allows() {
    let small = Scripted::start().await.serve(OK);
    let route = |name: &str, model: &str, lines: &str| {
        format!("[[route]]\nname = \"{name}\"\nmodels = [\"{model}\"]\n{lines}\n")
    };
    let refusing = format!("http://{}", Scripted::refusing());
    let node = Setup::new()
        .set("fallback.big = [\"small\"]")
        .replica_with("a", &refusing, "models = [\"big\"]")
        .replica_with("b", &format!("http://{}", small.address), "models = [\"small\"]")
        .table(route("one", "big", "allow_engine_fields = [\"priority\"]"))
        .table(route("two", "small", ""))
        .start()
        .await;
    assert_eq!(Client::once(node.addresses()[0], chat("big", "")).await.status, 200);
    let reply = Client::once(node.addresses()[0], chat("big", ",\"priority\":1")).await;
    assert_ne!(reply.status, 200, "{}", reply.text());
    assert_eq!(small.requests.count(), 1);
}

#[tokio::test]
async fn headers_that_steer_the_model_server_do_not_reach_it() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new()
        .replica_with("one", &url, "models = [\"tiny\"]\n")
        .table(RAW_ROUTE)
        .start()
        .await;
    let serving = replica.serve(OK);
    for path in ["/v1/chat/completions", "/raw/generate"] {
        let mut request = chat("tiny", "");
        *request.uri_mut() = path.parse().expect("a path");
        for name in ["x-data-parallel-rank", "x-override-priority", "x-prefiller-host-port"] {
            request.headers_mut().insert(name, HeaderValue::from_static("7"));
        }
        request.headers_mut().insert("x-other", HeaderValue::from_static("7"));
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 200);
        let head = serving.requests.last().head.to_lowercase();
        assert!(!head.contains("rank") && !head.contains("override") && !head.contains("prefill"));
        assert!(head.contains("x-other: 7"), "{head}");
    }
}

#[tokio::test]
async fn two_requests_of_the_same_id_have_different_ones_at_the_replica() {
    let replica = Scripted::start().await;
    let url = format!("http://{}", replica.address);
    let node = Setup::new().replica_with("one", &url, "models = [\"tiny\"]\n").start().await;
    let serving = replica.serve(OK);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut request = chat("tiny", "");
        request.headers_mut().insert("x-request-id", HeaderValue::from_static("mine"));
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!(reply.header("x-request-id"), Some("mine"));
        let head = serving.requests.last().head;
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("an id");
        assert!(id.starts_with("mine-"), "{id}");
        ids.push(id.to_owned());
    }
    assert_ne!(ids[0], ids[1]);
}

/// A message with a tensor of a few kilobytes and a parameter of this name.
fn with_parameter(name: &str) -> Bytes {
    let parameter = Parameter::from(ParameterValue::Int(1));
    let parameters = [(name.to_owned(), parameter)].into();
    frame(&InferRequest { parameters, ..infer("tiny", &[7; 5_000]) })
}

#[tokio::test]
async fn parameters_of_grpc_are_refused_in_calls_and_in_every_message_of_a_stream() {
    let mut server = CallServer::start().await;
    let route = "[[route]]\nname = \"llm\"\nallow_engine_fields = [\"priority\"]\n";
    let node = scripted(Setup::new().table(route), "a", &server).start().await;
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let call = kserve(method, full(with_parameter("request_id")));
        check_refused(&connect(&node).await.fetch(call).await, "3", "bad_request");
    }
    assert!(server.is_alone(), "nothing of it has reached the replica");
    for has_begun in [false, true] {
        let first = with_parameter("top_k");
        let mut stream = Stream::open(&node, &mut server, stream, first.clone()).await;
        assert_eq!(stream.call.message().await, Some(first));
        let allowed = with_parameter("priority");
        stream.say(allowed.clone()).await;
        assert_eq!(stream.call.message().await, Some(allowed));
        if has_begun {
            stream.call.begin();
        }
        for piece in with_parameter("Lora_Path").chunks(9) {
            // Once the call is refused the rest is not read.
            if stream
                .messages
                .as_ref()
                .expect("open")
                .send(Bytes::copy_from_slice(piece))
                .await
                .is_err()
            {
                break;
            }
        }
        assert_eq!(stream.call.was_reset().await, Reason::CANCEL, "no whole message came");
        check_refused(&stream.collect().await, "3", "bad_request");
    }
    let mut stream = Stream::open(&node, &mut server, stream, with_parameter("top_k")).await;
    stream.call.reply(Bytes::new());
    assert_eq!(code(&stream.collect().await), "0");
}
