use spillway_protocol::Protocol;
use spillway_transport::Limits;
use spillway_types::Millis;
use spillway_upstream::{GrpcTarget, ReplicaProtocol};
use spillway_view::RouteSpec;

use super::*;
use crate::test_around::{Around, Asked, Pieces, Served, model, prefixed, run, sent};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Returns a message with a frame that names a model and a version.
fn message(model: &str, version: &str) -> Bytes {
    let mut fields = Vec::new();
    for (number, text) in
        [(1, model), (2, version)].into_iter().filter(|(_, text)| !text.is_empty())
    {
        fields.extend([number << 3 | 2, u8::try_from(text.len()).unwrap()]);
        fields.extend(text.as_bytes());
    }
    framed(&fields)
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

fn served(models: &[&str]) -> Served {
    let mut served = Served::models(models);
    for replica in &mut served.replicas {
        replica.protocol = ReplicaProtocol::Http2;
    }
    served
}

fn limited(limits: Limits) -> Around {
    Around::with_limits(served(&["a", "b"]).with_alias("best", "b"), limits)
}

fn around() -> Around {
    limited(Limits::default())
}

#[test]
fn a_call_is_grpc_over_http2_and_nothing_else() {
    let head = |version, content_type: &str| {
        let request = http::Request::post(INFER).version(version);
        let request = request.header("content-type", content_type).body(()).unwrap();
        request.into_parts().0
    };
    for (version, content_type, is_call) in [
        (Version::HTTP_2, "application/grpc", true),
        (Version::HTTP_2, "application/grpc+proto", true),
        (Version::HTTP_2, "application/grpc;x=y", true),
        (Version::HTTP_2, "application/grpc-web", false),
        (Version::HTTP_2, "application/json", false),
        (Version::HTTP_11, "application/grpc", false),
    ] {
        let head = head(version, content_type);
        assert_eq!(called(&head).is_some(), is_call, "{content_type} over {version:?}");
        let error = refuse_no_call(&head);
        assert_eq!(error.kind, ErrorKind::UnsupportedMediaType);
        let is_about_version = error.message.contains("HTTP/1.1");
        assert_eq!(is_about_version, speaks_grpc(&head.headers), "{}", error.message);
    }
}

#[test]
fn a_message_names_its_model_and_another_name_is_replaced() {
    let around = around();
    for (named, served_model) in [("a", "a"), ("best", "b")] {
        let prepared = around.prepared(Asked::call(INFER, message(named, "")));
        assert_eq!(model(&prepared), Some(served_model));
        assert_eq!((prepared.flavour, prepared.traffic()), (Flavour::Grpc, Traffic::Grpc));
        assert_eq!(prepared.path, INFER);
        let body = sent(&prepared).into_bytes();
        let Peek::Found(found) = read_model(&body) else { panic!("{body:?}") };
        assert_eq!((found.model, found.version), (served_model, ""));
    }
    assert_eq!(around.refused(Asked::call(INFER, message("c", ""))), ErrorKind::ModelNotFound);
}

#[test]
fn a_message_without_a_name_is_refused_whatever_is_served() {
    let only = Around::new(served(&["a"]));
    assert!(matches!(
        only.refused(Asked::call(INFER, message("", ""))),
        ErrorKind::ModelNotFound | ErrorKind::BadRequest
    ));
}

#[test]
fn bytes_that_are_no_single_message_are_refused() {
    let whole = message("a", "");
    let longer = [&whole[..], &whole[..]].concat();
    let compressed = [&[1][..], &whole[1..]].concat();
    let odd_head = [&[7][..], &whole[1..]].concat();
    for (case, body) in [
        ("nothing", Bytes::new()),
        ("a part of the frame's head", whole.slice(..3)),
        ("a part of the message", whole.slice(..whole.len() - 1)),
        ("two messages", longer.into()),
        ("a compressed message", compressed.into()),
        ("an unknown flag", odd_head.into()),
        ("a length beyond the message", framed(&[0x0a, 200, b'a'])),
        ("a name that is no text", framed(&[0x0a, 1, 0xff])),
    ] {
        let found = run(around().prepare(Asked::call(INFER, body)));
        assert!(found.is_err(), "{case}");
    }
}

#[test]
fn a_replica_that_speaks_no_grpc_gets_no_call() {
    let mut served = served(&["a", "b"]);
    served.replicas[0].protocol = ReplicaProtocol::Http1;
    served.replicas[0].grpc = None;
    let around = Around::new(served);
    assert_eq!(around.refused(Asked::call(INFER, message("a", ""))), ErrorKind::NoReplica);
    assert_eq!(model(&around.prepared(Asked::call(INFER, message("b", "")))), Some("b"));
    let over_http = Asked::post("/v2/models/a/infer", "{}");
    assert_eq!(model(&around.prepared(over_http)), Some("a"));
}

#[test]
fn a_stream_is_routed_by_its_first_message_however_that_is_cut() {
    let around = around();
    let whole = [&message("best", "")[..], &message("best", "")[..]].concat();
    let whole = Bytes::from(whole);
    for cut in 1..message("best", "").len() {
        let pieces = Pieces::of([whole.slice(..cut), whole.slice(cut..)]).unannounced();
        let prepared = around.prepared(Asked::call(STREAM, "").in_pieces(pieces));
        assert_eq!(model(&prepared), Some("b"), "cut at {cut}");
        assert!(matches!(prepared.body, RequestBody::Messages { .. }));
        assert!(prepared.cost.check().is_err(), "any number of messages may follow");
    }
    for (case, body) in [("nothing", &b""[..]), ("a part", &whole[..4]), ("odd", b"\x07\0\0\0\0")] {
        let asked = Asked::call(STREAM, Bytes::copy_from_slice(body));
        assert!(run(around.prepare(asked)).is_err(), "{case}");
    }
}

#[test]
fn a_stream_whose_first_message_is_late_ends_by_the_limit_that_is_over_first() {
    let late = || {
        let pieces = Pieces::of([message("a", "")]).unannounced().each_after_s(30);
        Asked::call(STREAM, "").in_pieces(pieces)
    };
    assert_eq!(model(&around().prepared(late())), Some("a"), "within the minute of a stall");
    assert_eq!(around().refused(late().with("grpc-timeout", "5S")), ErrorKind::DeadlineExceeded);
    let limits = Limits { stall_timeout_ms: Millis(10_000), ..Limits::default() };
    let around = limited(limits);
    assert_eq!(around.refused(late()), ErrorKind::BodyTimeout);
    assert_eq!(around.refused(late().with("grpc-timeout", "20S")), ErrorKind::BodyTimeout);
    assert_eq!(around.refused(late().with("grpc-timeout", "9S")), ErrorKind::DeadlineExceeded);
}

#[test]
fn methods_that_belong_to_one_server_or_to_none_are_refused() {
    for path in [
        "/inference.GRPCInferenceService/RepositoryModelLoad",
        "/inference.GRPCInferenceService/Other",
        "/grpc.health.v1.Health/Watch",
        "/my.Service/Call",
    ] {
        assert_eq!(around().refused(Asked::call(path, "")), ErrorKind::RouteNotFound, "{path}");
    }
}

#[test]
fn a_service_that_a_route_passes_on_is_not_read() {
    let with = |default: Option<&str>| {
        let default_model = default.map(Into::into);
        let route = RouteSpec { default_model, ..prefixed("/my.Service", Protocol::Grpc) };
        Around::new(served(&["a"]).with_route(route))
    };
    let call = || Asked::call("/my.Service/Call", "no message at all");
    assert_eq!(model(&with(None).prepared(call())), None);
    assert_eq!(model(&with(Some("a")).prepared(call())), Some("a"));
    assert_eq!(with(None).allow(&["a"]).refused(call()), ErrorKind::ModelNotAllowed);
    assert_eq!(with(Some("a")).allow(&["b"]).refused(call()), ErrorKind::ModelNotFound);
    let over_http = Asked::post("/my.Service/Call", "x");
    assert_eq!(with(None).refused(over_http), ErrorKind::UnsupportedMediaType);
}

#[test]
fn health_is_known_of_the_server_and_of_services_that_are_served() {
    let route = prefixed("/my.Service", Protocol::Grpc);
    let around = Around::new(served(&["a"]).with_route(route));
    let view = around.gateway.routing.view();
    for (service, is_known) in [
        ("", true),
        ("inference.GRPCInferenceService", true),
        ("grpc.health.v1.Health", true),
        ("my.Service", true),
        ("my.Service2", false),
        ("your.Service", false),
    ] {
        let body = if service.is_empty() { framed(&[]) } else { message(service, "") };
        let body = Pieces::of([body]).wire();
        let answer = local_message(&around.gateway, &view, GrpcMethod::HealthCheck, body);
        let kind = run(answer).err().map(|error| error.kind);
        // The health protocol has NOT_FOUND for it.
        assert_eq!(kind, (!is_known).then_some(ErrorKind::ModelNotFound), "{service}");
    }
}

#[test]
fn a_message_for_the_gateway_has_limits_of_size_and_time() {
    let around = around();
    let view = around.gateway.routing.view();
    let answer = |body: Pieces| {
        let answer = local_message(&around.gateway, &view, GrpcMethod::ServerLive, body.wire());
        run(answer).map_err(|error| error.kind)
    };
    let zeros = |bytes| Bytes::from(vec![0; bytes]);
    assert!(answer(Pieces::of([zeros(LOCAL_BYTES_MAX)])).is_ok());
    let longer = answer(Pieces::of([zeros(LOCAL_BYTES_MAX), zeros(1)]));
    assert_eq!(longer, Err(ErrorKind::BadRequest));
    let slow = Pieces::of([zeros(1), zeros(1)]);
    assert_eq!(answer(slow.each_after_s(6)), Err(ErrorKind::BodyTimeout));
}

#[test]
fn a_separate_address_for_grpc_gets_calls() {
    let mut served = served(&["a"]);
    served.replicas[0].protocol = ReplicaProtocol::Http1;
    served.replicas[0].grpc = Some(GrpcTarget { host: "127.0.0.1".to_owned(), port: 2, tls: None });
    let around = Around::new(served);
    assert_eq!(model(&around.prepared(Asked::call(INFER, message("a", "")))), Some("a"));
}
