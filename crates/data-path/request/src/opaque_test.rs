use spillway_protocol::{EngineFields, ErrorKind, Protocol};
use spillway_transport::Limits;
use spillway_view::RouteSpec;

use super::*;
use crate::test_around::{Around, Asked, Pieces, Served, prefixed, run, sent};

const INFER: &str = "/v2/models/a/infer";
const GENERATE: &str = "/v2/models/a/generate";

fn around() -> Around {
    let limits = Limits { body_bytes_max: 10_000, buffered_bytes_max: 1_000, ..Limits::default() };
    Around::with_limits(Served::models(&["a"]), limits)
}

fn is_streamed(prepared: &Prepared) -> bool {
    matches!(prepared.body, RequestBody::Streamed { .. })
}

#[test]
fn a_short_body_is_kept_for_retries_and_a_long_or_unknown_one_is_streamed() {
    let around = around();
    let body = |bytes: usize| {
        let text = format!(r#"{{"inputs":[{}]}}"#, " ".repeat(bytes - 13));
        assert_eq!(text.len(), bytes);
        text
    };
    for (bytes, streams) in [(100, false), (1_000, false), (1_001, true), (10_000, true)] {
        let prepared = around.prepared(Asked::post(INFER, body(bytes)));
        assert_eq!(is_streamed(&prepared), streams, "{bytes} bytes");
        // Text is read whole: its parameters may come last.
        let prepared = around.prepared(Asked::post(GENERATE, body(bytes)));
        assert!(!is_streamed(&prepared), "{bytes} bytes");
    }
    let unannounced = Pieces::of([body(100).into()]).unannounced();
    assert!(is_streamed(&around.prepared(Asked::post(INFER, "").in_pieces(unannounced))));
    for path in [INFER, GENERATE] {
        assert_eq!(around.refused(Asked::post(path, body(10_001))), ErrorKind::BodyTooLarge);
    }
}

#[test]
fn parameters_that_steer_the_server_are_found_wherever_the_json_has_them() {
    let around = around();
    let refused = |asked: Asked| run(around.prepare(asked)).err().map(|error| error.kind);
    let bad = Some(ErrorKind::BadRequest);
    for (path, body, expected) in [
        (INFER, r#"{"inputs":[]}"#, None),
        (INFER, r#"{"parameters":{"priority":1},"inputs":[]}"#, bad),
        (INFER, r#"{"inputs":[],"parameters":{"x":1,"priority":1}}"#, bad),
        (INFER, r#"{"parameters":{"pri\u006frity":1}}"#, bad),
        // What is no JSON is for the server to refuse.
        (INFER, "no JSON", None),
        (INFER, "", None),
        (GENERATE, r#"{"text_input":"priority","parameters":{"max_tokens":5}}"#, None),
        (GENERATE, r#"{"text_input":"x","priority":1}"#, bad),
    ] {
        assert_eq!(refused(Asked::post(path, body)), expected, "{path} {body}");
    }
    let mut served = Served::models(&["a"]);
    served.routes[0].engine_fields = EngineFields::named("priority").unwrap();
    let open = Around::new(served);
    let body = r#"{"parameters":{"priority":1}}"#;
    assert_eq!(sent(&open.prepared(Asked::post(INFER, body))), body);
}

#[test]
fn tensors_behind_the_json_are_not_read_where_one_header_says_where_they_begin() {
    let around = around();
    let json = r#"{"inputs":[]}"#;
    let tensors = r#"{"parameters":{"priority":1}}"#;
    let name = "inference-header-content-length";
    let asked = |path: &str, lengths: &[&str]| {
        let asked = Asked::post(path, format!("{json}{tensors}"));
        lengths.iter().fold(asked, |asked, length| asked.with(name, length))
    };
    let is_served = |asked: Asked| run(around.prepare(asked)).is_ok();
    assert!(is_served(asked(INFER, &["13"])));
    for lengths in [&[][..], &["13", "13"], &["x"], &["-1"], &["99999999999999999999"]] {
        assert!(!is_served(asked(INFER, lengths)), "{lengths:?}");
    }
    // Servers that generate text accept no tensors, whatever the header says.
    assert!(!is_served(asked(GENERATE, &["13"])));
}

#[test]
fn a_compressed_body_is_expanded_to_be_checked_and_sent_as_it_came() {
    let deflated = |coding: &str, path: &str| {
        // Each is `{}`, compressed.
        let body: &[u8] = match coding {
            "gzip" | "x-gzip" | "GZIP" => {
                &[31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 174, 5, 0, 67, 191, 166, 163, 2, 0, 0, 0]
            }
            _ => &[120, 156, 171, 174, 5, 0, 1, 117, 0, 249],
        };
        Asked::post(path, bytes::Bytes::from_static(body)).with("content-encoding", coding)
    };
    let around = around();
    for coding in ["gzip", "x-gzip", "GZIP", "deflate"] {
        let prepared = around.prepared(deflated(coding, INFER));
        assert!(prepared.cost.check().is_err(), "{coding}: its tokens are not known");
        let refused = around.refused(deflated(coding, GENERATE));
        assert_eq!(refused, ErrorKind::UnsupportedMediaType, "{coding}");
    }
    for coding in ["br", "zstd", "gzip, gzip", "gzip, identity"] {
        let refused = around.refused(deflated(coding, INFER));
        assert_eq!(refused, ErrorKind::UnsupportedMediaType, "{coding}");
    }
    let twice = deflated("gzip", INFER).with("content-encoding", "gzip");
    assert_eq!(around.refused(twice), ErrorKind::UnsupportedMediaType);
    let plain = Asked::post(GENERATE, "{}").with("content-encoding", "identity");
    assert_eq!(sent(&around.prepared(plain)), "{}");
}

#[test]
fn metadata_of_a_model_costs_no_tokens_and_an_inference_its_length() {
    let around = around();
    let tokens = |asked: Asked| around.prepared(asked).cost.tokens(|| 1_000);
    assert_eq!(tokens(Asked::get("/v2/models/a")), 0);
    assert_eq!(tokens(Asked::get("/v2/models/a/ready")), 0);
    assert_eq!(tokens(Asked::post(INFER, " ".repeat(398) + "{}")), 1_100);
    let body = r#"{"text_input":"x","parameters":{"max_tokens":7}}"#;
    assert_eq!(tokens(Asked::post(GENERATE, body)), 7 + body.len().div_ceil(4) as u64);
}

#[test]
fn a_raw_route_passes_any_body_and_reads_none() {
    let raw = RouteSpec { replace_prefix: Some("/".to_owned()), ..prefixed("/r", Protocol::Raw) };
    let around = Around::new(Served::models(&["a"]).with_route(raw));
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
        let asked = Asked::new(method, "/r/x?y", r#"{"priority":1,"model":"none"}"#);
        let prepared = around.prepared(asked.with("content-encoding", "br"));
        assert_eq!(prepared.path, "/x?y", "{method}");
        assert_eq!(sent(&prepared), r#"{"priority":1,"model":"none"}"#);
        assert_eq!((prepared.flavour, prepared.inquiry.model), (Flavour::Raw, None));
    }
}

#[test]
fn the_last_part_of_a_path_tells_if_it_generates() {
    for (path, expected) in [
        ("/v2/models/a/generate", true),
        ("/v2/models/a/generate_stream", true),
        ("/v2/models/a/generate/", true),
        ("/v2/models/a/versions/1/generate", true),
        ("/v2/models/generate/infer", false),
        ("/v2/models/a/generates", false),
        ("/v2/models/a", false),
        ("/", false),
    ] {
        assert_eq!(generates(path), expected, "{path}");
    }
}
