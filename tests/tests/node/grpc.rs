//! Calls over gRPC: which are answered here, which are routed, and the form of errors.

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use prost::Message;
use spillway_emulator::Fault;
use spillway_emulator::kserve::{
    FlagResponse, HealthRequest, HealthResponse, InferRequest, InferResponse, ModelMetadata,
    ModelRequest, ServerMetadata,
};
use spillway_tests::{
    Call, CallServer, Client, OK, Page, Reply, Scripted, Setup, chat, emulator, eventually, full,
    get, spawn,
};

use crate::grpc_calls::{
    CONTENT_TYPE, KSERVE, call, check_refused, code, connect, emulated, ending, frame, infer,
    kserve, scripted, text, unframe, with,
};
use crate::retries::TURNS;

async fn fetch(client: &mut Client, method: &str, message: &impl Message) -> Reply {
    client.fetch(kserve(method, full(frame(message)))).await
}

fn one<M: Message + Default>(reply: &Reply) -> M {
    assert_eq!(code(reply), "0", "{:?}", ending(reply));
    let mut messages = unframe(&reply.body);
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn model(name: &str, version: &str) -> ModelRequest {
    ModelRequest { name: name.to_owned(), version: version.to_owned() }
}

#[tokio::test]
async fn the_node_answers_for_itself_without_a_replica() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let mut client = connect(&node).await;
    for method in ["ServerLive", "ServerReady"] {
        let FlagResponse { is_so } = one(&fetch(&mut client, method, &model("", "")).await);
        assert!(is_so, "{method}");
    }
    let metadata: ServerMetadata = one(&fetch(&mut client, "ServerMetadata", &model("", "")).await);
    assert_eq!(metadata.name, "spillway");
    assert!(server.is_alone());
    let requests = || Page::of(&node).sum("spillway_requests_total", &[]);
    eventually("metadata is counted and health is not", || requests() == 1.0).await;
}

#[tokio::test]
async fn health_is_known_of_the_services_that_are_served() {
    let route =
        "[[route]]\nname = \"own\"\npath_prefix = \"/my.pkg.Service\"\nprotocol = \"grpc\"\n";
    let server = CallServer::start().await;
    let node = scripted(Setup::new().table(route), "a", &server).start().await;
    let empty = Setup::new().start().await;
    let check = |service: &str| {
        let asked = HealthRequest { service: service.to_owned() };
        call("/grpc.health.v1.Health/Check", full(frame(&asked)))
    };
    let mut client = connect(&node).await;
    for service in ["", "inference.GRPCInferenceService", "grpc.health.v1.Health", "my.pkg.Service"]
    {
        let health: HealthResponse = one(&client.fetch(check(service)).await);
        assert_eq!(health.status, 1, "{service}");
    }
    assert_eq!(code(&client.fetch(check("other.Service")).await), "5");
    let health: HealthResponse = one(&connect(&empty).await.fetch(check("")).await);
    assert_eq!(health.status, 2, "a node without replicas can't serve");
    let ready: FlagResponse =
        one(&fetch(&mut connect(&empty).await, "ServerReady", &model("", "")).await);
    assert!(!ready.is_so);
    let watch = call("/grpc.health.v1.Health/Watch", full(frame(&HealthRequest::default())));
    check_refused(&client.fetch(watch).await, "12", "route_not_found");
}

#[tokio::test]
async fn calls_about_models_reach_a_replica_and_come_back_whole() {
    let emulator = emulator(2).await;
    let node = emulated(Setup::new(), &emulator).start().await;
    let mut client = connect(&node).await;
    let ready: FlagResponse = one(&fetch(&mut client, "ModelReady", &model("tiny", "1")).await);
    assert!(ready.is_so);
    let metadata: ModelMetadata =
        one(&fetch(&mut client, "ModelMetadata", &model("tiny", "")).await);
    assert_eq!(metadata.name, "tiny");
    for method in ["ModelConfig", "ModelStatistics"] {
        assert_eq!(code(&fetch(&mut client, method, &model("tiny", "")).await), "0", "{method}");
    }
    let data: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let reply = fetch(&mut client, "ModelInfer", &infer("tiny", &data)).await;
    assert!(reply.trailers.is_some());
    let response: InferResponse = one(&reply);
    assert_eq!(response.raw_output_contents, [Bytes::from(data)]);
    let version = fetch(&mut client, "ModelReady", &model("tiny", "9")).await;
    assert_eq!((code(&version), text(ending(&version), "x-spillway-code")), ("5", ""), "its own");
}

#[tokio::test]
async fn an_alias_is_replaced_in_the_message_and_nothing_else_changes() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("aliases.short = \"tiny\"");
    let node = scripted(setup, "a", &server).start().await;
    let asked = InferRequest { id: "7".to_owned(), ..infer("short", &[1, 2, 3]) };
    for (sent, expected) in [(asked.clone(), "tiny"), (infer("tiny", &[4]), "tiny")] {
        let mut client = connect(&node).await;
        let request = kserve("ModelInfer", full(frame(&sent)));
        let waiting = spawn(async move { client.fetch(request).await });
        let mut call = server.call().await;
        let got = call.message().await.expect("a message");
        assert_eq!(got == frame(&sent), sent.model_name == "tiny", "untouched without an alias");
        let got: Vec<InferRequest> = unframe(&got);
        assert_eq!(got, [InferRequest { model_name: expected.to_owned(), ..sent }]);
        assert_eq!(call.message().await, None);
        call.reply(frame(&InferResponse::default()));
        assert_eq!(code(&waiting.await.expect("a reply")), "0");
    }
}

#[tokio::test]
async fn versions_and_fallbacks_are_put_into_the_message() {
    let mut server = CallServer::start().await;
    let lines =
        "protocol = \"http2\"\nmodels = [\"resnet\"]\nversions = { resnet = [\"1\", \"2\"] }";
    let url = format!("http://{}", server.address);
    let dead = format!("http://{}", Scripted::refusing());
    let setup = Setup::new().set("fallback.big = [\"resnet\"]").replica_with("a", &url, lines);
    let dead_lines = "protocol = \"http2\"\nmodels = [\"big\"]";
    // A route of its own for the model that can't serve; the other's has a replica without gRPC.
    let http = Scripted::start().await.serve(OK);
    let setup =
        setup.table("[[route]]\nname = \"big\"\nmodels = [\"big\"]\n[[route]]\nname = \"rest\"\n");
    let url = format!("http://{}", http.address);
    let setup = setup.replica_with("http1", &url, "models = [\"resnet\"]");
    let node = setup.replica_with("dead", &dead, dead_lines).start().await;
    let versioned = |model: &str, version: &str| InferRequest {
        model_version: version.to_owned(),
        ..infer(model, &[1])
    };
    for (sent, expected) in [
        (versioned("resnet", "2"), versioned("resnet", "2")),
        (versioned("resnet@2", ""), versioned("resnet", "2")),
        (versioned("big", ""), versioned("resnet", "")),
        (versioned("big", ""), versioned("resnet", "")),
        (versioned("big", ""), versioned("resnet", "")),
        (versioned("big", ""), versioned("resnet", "")),
    ] {
        let mut client = connect(&node).await;
        let request = kserve("ModelInfer", full(frame(&sent)));
        let (reply, ()) = tokio::join!(client.fetch(request), async {
            let mut call = server.call().await;
            let got: Vec<InferRequest> = unframe(&call.message().await.expect("a message"));
            assert_eq!(got, [expected]);
            call.reply(frame(&InferResponse::default()));
        });
        assert_eq!(code(&reply), "0");
    }
    assert_eq!(http.requests.count(), 0);
    let unknown = fetch(&mut connect(&node).await, "ModelInfer", &versioned("resnet", "9")).await;
    check_refused(&unknown, "5", "model_not_found");
}

#[tokio::test]
async fn errors_of_the_gateway_are_statuses_without_a_body() {
    let mut server = CallServer::start().await;
    let setup = Setup::new().set("limits.body_bytes_max = 1000");
    let node = scripted(setup, "a", &server).start().await;
    let mut client = connect(&node).await;
    let unknown = fetch(&mut client, "ModelInfer", &infer("huge", &[1])).await;
    check_refused(&unknown, "5", "model_not_found");
    assert!(text(ending(&unknown), "grpc-message").contains("huge"));
    check_refused(&fetch(&mut client, "ModelInfer", &infer("", &[1])).await, "3", "bad_request");
    let large = fetch(&mut client, "ModelInfer", &infer("tiny", &[1; 2000])).await;
    check_refused(&large, "8", "body_too_large");
    for bytes in
        [&[][..], &[0, 0], &[0, 0, 0, 0, 2, 0x0A], &[0, 0, 0, 0, 1, 0xFF], &[7, 0, 0, 0, 0]]
    {
        let reply = client.fetch(kserve("ModelInfer", full(bytes.to_vec()))).await;
        check_refused(&reply, "3", "bad_request");
    }
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let reply = client.fetch(kserve(method, full(vec![1, 0, 0, 0, 1, 7]))).await;
        check_refused(&reply, "12", "unsupported_media_type");
        assert_eq!(text(ending(&reply), "grpc-accept-encoding"), "identity");
    }
    for method in ["RepositoryIndex", "RepositoryModelLoad", "SystemSharedMemoryStatus", "What"] {
        let reply = fetch(&mut client, method, &model("tiny", "")).await;
        check_refused(&reply, "12", "route_not_found");
    }
    let other = client.fetch(call("/my.Service/Call", full(Bytes::new()))).await;
    check_refused(&other, "12", "route_not_found");
    assert!(server.is_alone());
}

#[tokio::test]
async fn only_http2_carries_grpc_and_others_are_told_so() {
    let server = CallServer::start().await;
    let route = "[[route]]\nname = \"own\"\npath_prefix = \"/my.Service\"\nprotocol = \"grpc\"\n";
    let node = scripted(Setup::new().table(route), "a", &server).start().await;
    let body = || full(frame(&infer("tiny", &[1])));
    for request in [kserve("ModelInfer", body()), call("/my.Service/Call", body())] {
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.code()), (415, Some("unsupported_media_type")));
        assert!(reply.text().contains("HTTP/2"), "{}", reply.text());
    }
    let reply = connect(&node).await.fetch(get("/my.Service/Call")).await;
    assert_eq!((reply.status, reply.code()), (415, Some("unsupported_media_type")));
}

#[tokio::test]
async fn without_a_replica_that_speaks_it_grpc_is_unavailable() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("http1", replica.address).start().await;
    let reply = fetch(&mut connect(&node).await, "ModelInfer", &infer("tiny", &[1])).await;
    check_refused(&reply, "14", "no_replica");
    assert!(text(ending(&reply), "grpc-message").contains("gRPC"));
    let node = Setup::new()
        .replica_with("dead", &format!("http://{}", Scripted::refusing()), "protocol = \"http2\"")
        .start()
        .await;
    let reply = fetch(&mut connect(&node).await, "ModelInfer", &infer("tiny", &[1])).await;
    check_refused(&reply, "14", "replica_connect");
}

#[tokio::test]
async fn who_is_turned_away_for_load_is_told_when_to_come_again() {
    let mut server = CallServer::start().await;
    let url = format!("http://{}", server.address);
    let lines = "protocol = \"http2\"\nconnections_max = 1";
    let setup = Setup::new().set("spill.queue_max = 0");
    let node = setup.replica_with("a", &url, lines).start().await;
    let mut first = connect(&node).await;
    let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let waiting = spawn(async move { first.fetch(request).await });
    let mut held = server.call().await;
    let reply = fetch(&mut connect(&node).await, "ModelInfer", &infer("tiny", &[1])).await;
    check_refused(&reply, "8", "overloaded");
    let details = text(ending(&reply), "grpc-status-details-bin");
    assert!(!details.is_empty() && !details.ends_with('='), "{details}");
    let http = Client::once(node.addresses()[0], chat("tiny", "")).await;
    // Nothing has ended there yet: what such a reply usually takes, spread by chance.
    let wait = http.header("retry-after").expect("a time");
    let wait_s: u64 = wait.parse().expect("seconds");
    assert!(http.code() == Some("overloaded") && (1..=60).contains(&wait_s), "{wait}");
    held.reply(frame(&InferResponse::default()));
    assert_eq!(code(&waiting.await.expect("a reply")), "0");
}

#[tokio::test]
async fn an_unreachable_or_refusing_replica_is_passed_over() {
    for refuses in [true, false] {
        let mut alive = CallServer::start().await;
        let mut refusing = CallServer::start().await;
        let address = if refuses { refusing.address } else { Scripted::refusing() };
        let url = format!("http://{address}");
        let setup = Setup::new().table(TURNS);
        let setup = setup.replica_with("dead", &url, "protocol = \"http2\"");
        let node = scripted(setup, "alive", &alive).start().await;
        spawn(async move {
            loop {
                refusing.call().await.reset(Reason::REFUSED_STREAM);
            }
        });
        let mut client = connect(&node).await;
        for _ in 0..4 {
            let request = kserve("ModelInfer", full(frame(&infer("tiny", &[5]))));
            let (reply, ()) = tokio::join!(client.fetch(request), async {
                let mut call = alive.call().await;
                let got: Vec<InferRequest> = unframe(&call.message().await.expect("a message"));
                assert_eq!(got, [infer("tiny", &[5])], "the whole message once more");
                call.reply(frame(&InferResponse::default()));
            });
            assert_eq!(code(&reply), "0");
        }
        let retries = || Page::of(&node).sum("spillway_retries_total", &[("cause", "unsent")]);
        eventually("retries are counted", || retries() == 2.0).await;
    }
}

/// Returns the client's view of a reply that `script` makes.
async fn replied(script: impl FnOnce(Call)) -> Reply {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let mut client = connect(&node).await;
    let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let (reply, ()) = tokio::join!(client.fetch(request), async {
        script(server.call().await);
    });
    reply
}

#[tokio::test]
async fn headers_trailers_and_replies_that_are_only_a_head_stay_as_they_are() {
    let reply = replied(|mut call| {
        let head = Response::builder().header("x-custom-bin", "AAEC").header("x-plain", "1");
        call.begin_with(head.body(()).expect("a head"));
        call.send(frame(&InferResponse::default()));
        let pairs = [
            ("grpc-status", "5"),
            ("grpc-message", "no%20such"),
            ("x-last-bin", "AwQ"),
            ("x-spillway-code", "overloaded"),
        ];
        let pairs = pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        call.end_with(HeaderMap::from_iter(pairs));
    })
    .await;
    assert_eq!((reply.header("x-custom-bin"), reply.header("x-plain")), (Some("AAEC"), Some("1")));
    let trailers = reply.trailers.as_ref().expect("trailers");
    assert_eq!((text(trailers, "grpc-status"), text(trailers, "x-last-bin")), ("5", "AwQ"));
    assert_eq!(text(trailers, "grpc-message"), "no%20such");
    assert_eq!(text(trailers, "x-spillway-code"), "", "only the gateway says that");
    assert_eq!(unframe::<InferResponse>(&reply.body), [InferResponse::default()]);

    let reply = replied(|call| {
        let head =
            Response::builder().header("grpc-status", "9").header("grpc-message", "not%20now");
        call.answer_with(head.body(()).expect("a head"));
    })
    .await;
    assert!(reply.trailers.is_none() && reply.body.is_empty());
    assert_eq!((code(&reply), reply.header("grpc-message")), ("9", Some("not%20now")));
}

#[tokio::test]
async fn a_reply_that_is_no_grpc_is_translated() {
    for (status, content_type, expected) in
        [(200, "text/html", "2"), (503, "text/html", "14"), (404, "text/plain", "12")]
    {
        let reply = replied(|mut call| {
            let head = Response::builder().status(status).header("content-type", content_type);
            call.begin_with(head.body(()).expect("a head"));
            call.send("<html>");
            call.end_silently();
        })
        .await;
        check_refused(&reply, expected, "replica_bad_response");
        assert!(reply.body.is_empty());
    }
}

#[tokio::test]
async fn what_a_replica_is_told_beside_the_message() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let mut client = connect(&node).await;
    let request = kserve("ModelInfer", full(frame(&infer("tiny", &[1]))));
    let request = with(with(request, "x-token-bin", "AAEC"), "authorization", "Bearer secret");
    let request = with(request, "grpc-accept-encoding", "gzip");
    let ((), reply) = tokio::join!(
        async {
            let mut call = server.call().await;
            assert_eq!(call.header("te"), Some("trailers"));
            assert_eq!(call.header("content-type"), Some(CONTENT_TYPE));
            assert_eq!(call.header("x-token-bin"), Some("AAEC"));
            assert_eq!(call.header("grpc-accept-encoding"), Some("gzip"));
            assert_eq!((call.header("authorization"), call.header("grpc-timeout")), (None, None));
            assert_eq!(call.head.uri.path(), format!("{KSERVE}ModelInfer"));
            let authority = call.head.uri.authority().map(ToString::to_string);
            assert_eq!(authority, Some(server.address.to_string()));
            call.reply(frame(&InferResponse::default()));
        },
        client.fetch(request)
    );
    assert_eq!(code(&reply), "0");
}

#[tokio::test]
async fn a_replica_s_own_status_is_passed_on_and_not_retried() {
    let emulator = emulator(2).await;
    let node = emulated(Setup::new().table(TURNS), &emulator).start().await;
    let fault = Fault::Status { code: 503, retry_after_s: None, probability: 1.0 };
    emulator.replica(0).set_fault(fault).await.expect("a fault");
    let mut client = connect(&node).await;
    let mut failed = 0;
    for _ in 0..6 {
        let reply = fetch(&mut client, "ModelInfer", &infer("tiny", &[1])).await;
        match code(&reply) {
            "0" => {}
            "14" => failed += 1,
            other => panic!("{other}"),
        }
        assert_eq!(text(ending(&reply), "x-spillway-code"), "");
    }
    assert_eq!(failed, 3);
    let [first, second] = [0, 1].map(|index| emulator.replica(index).stats());
    assert_eq!((first.received, first.rejected, second.finished), (3, 3, 3));
}
