use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;

fn overloaded() -> GatewayError {
    GatewayError::new(ErrorKind::Overloaded, "Too busy, \"really\".\nTry later.")
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Checks the event's name and its data, which must be one line.
#[track_caller]
fn check_event(flavour: EventFlavour, name: Option<&str>, data: Value) {
    let event = String::from_utf8(overloaded().event(flavour).to_vec()).unwrap();
    let mut lines = event.strip_suffix("\n\n").unwrap().lines();
    if let Some(name) = name {
        assert_eq!(lines.next(), Some(&*format!("event: {name}")));
    }
    let line = lines.next().unwrap();
    assert_eq!(parsed(line.strip_prefix("data: ").unwrap().as_bytes()), data);
    assert_eq!(lines.next(), None, "{event:?}");
}

#[test]
fn openai_clients_get_an_error_object_with_all_four_fields() {
    let error = GatewayError::new(ErrorKind::BadRequest, "No.").with_param("stream");
    let expected = json!({"error": {
        "message": "No.", "type": "invalid_request_error", "param": "stream", "code": "bad_request"
    }});
    assert_eq!(parsed(&error.body(Protocol::OpenAi)), expected);
    let expected = json!({"error": {
        "message": overloaded().message, "type": "overloaded_error", "param": null,
        "code": "overloaded"
    }});
    assert_eq!(parsed(&overloaded().body(Protocol::OpenAi)), expected);
}

#[test]
fn who_asks_for_too_much_gets_429_in_every_form() {
    let error = GatewayError::new(ErrorKind::RateLimited, "Too much.").with_shed("token_rate");
    assert_eq!(error.kind.status().as_u16(), 429);
    let expected = json!({"error": {
        "message": "Too much.", "type": "rate_limit_error", "param": null, "code": "rate_limited"
    }});
    assert_eq!(parsed(&error.body(Protocol::OpenAi)), expected);
    let expected = json!({"error": "Too much.", "code": "rate_limited"});
    assert_eq!(parsed(&error.body(Protocol::KServeV2)), expected);
    let trailers = crate::grpc::trailers_of(&error);
    let said = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!((said("grpc-status"), said("x-spillway-code")), (Some("8"), Some("rate_limited")));
    assert_eq!(said("x-spillway-shed-reason"), Some("token_rate"));
    assert!(said("grpc-status-details-bin").is_some(), "no RetryInfo");
}

#[test]
fn v2_clients_get_the_error_as_a_string() {
    let expected = json!({"error": overloaded().message, "code": "overloaded"});
    assert_eq!(parsed(&overloaded().body(Protocol::KServeV2)), expected);
}

#[test]
fn who_is_turned_away_for_load_is_told_when_to_come_again() {
    let delay = |error: GatewayError| error.retry_delay();
    assert_eq!(delay(overloaded()), Some(RETRY_DELAY));
    let seconds = Duration::from_secs(7);
    assert_eq!(delay(overloaded().with_retry_after(seconds)), Some(seconds));
    let longest = overloaded().with_retry_after(Duration::from_secs(3_600));
    assert_eq!(delay(longest), Some(RETRY_DELAY_MAX));
    for &kind in ErrorKind::ALL {
        let is_shed = [503, 429].contains(&kind.status().as_u16());
        assert_eq!(delay(GatewayError::new(kind, "no")).is_some(), is_shed, "{kind:?}");
    }
    let other = GatewayError::new(ErrorKind::DeadlineExceeded, "late");
    assert_eq!(delay(other.with_retry_after(seconds)), Some(seconds));
}

#[test]
fn anthropic_clients_get_their_own_object_and_types() {
    let error =
        json!({"type": "overloaded_error", "message": overloaded().message, "code": "overloaded"});
    let expected = json!({"type": "error", "error": error});
    assert_eq!(parsed(&overloaded().body(Protocol::Anthropic)), expected);
    for (kind, expected) in [
        (ErrorKind::BadRequest, "invalid_request_error"),
        (ErrorKind::KeyMissing, "authentication_error"),
        (ErrorKind::ModelNotAllowed, "permission_error"),
        (ErrorKind::ModelNotFound, "not_found_error"),
        (ErrorKind::BodyTooLarge, "request_too_large"),
        (ErrorKind::RateLimited, "rate_limit_error"),
        (ErrorKind::BudgetSpent, "rate_limit_error"),
        (ErrorKind::StreamCut, "api_error"),
        (ErrorKind::StreamStalled, "timeout_error"),
    ] {
        assert_eq!(kind.anthropic_type(), expected, "{kind:?}");
    }
}

#[test]
fn others_get_code_and_message() {
    let expected = json!({"error": {"code": "overloaded", "message": overloaded().message}});
    assert_eq!(parsed(&overloaded().body(Protocol::Raw)), expected);
}

#[test]
fn an_event_is_one_frame_in_the_streams_own_form() {
    let message = overloaded().message;
    let openai = parsed(&overloaded().body(Protocol::OpenAi));
    check_event(EventFlavour::OpenAi, None, openai);
    check_event(
        EventFlavour::Responses { sequence_number: 7 },
        Some("error"),
        json!({"type": "error", "code": "overloaded", "message": message, "param": null,
            "sequence_number": 7}),
    );
    check_event(EventFlavour::KServeV2, None, json!({"error": message, "code": "overloaded"}));
    check_event(
        EventFlavour::OpenAiNamed,
        Some("error"),
        parsed(&overloaded().body(Protocol::OpenAi)),
    );
    let anthropic = parsed(&overloaded().body(Protocol::Anthropic));
    check_event(EventFlavour::Anthropic, Some("error"), anthropic);
    let raw = json!({"error": {"code": "overloaded", "message": message}});
    check_event(EventFlavour::Raw, Some("error"), raw);
}

#[test]
fn codes_are_distinct_and_fit_in_a_header() {
    let codes: BTreeSet<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes.len(), ErrorKind::ALL.len());
    for code in codes {
        assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code}");
    }
}

#[test]
fn status_code_and_type_are_these_for_every_kind() {
    let table: Vec<String> = ErrorKind::ALL
        .iter()
        .map(|kind| format!("{} {} {}", kind.status().as_u16(), kind.code(), kind.openai_type()))
        .collect();
    // Clients and dashboards match on these: a change here is a breaking change.
    let expected = [
        "400 bad_request invalid_request_error",
        "401 missing_api_key invalid_request_error",
        "401 invalid_api_key invalid_request_error",
        "403 model_not_allowed invalid_request_error",
        "403 region_not_allowed invalid_request_error",
        "403 origin_not_allowed invalid_request_error",
        "404 model_not_found invalid_request_error",
        "404 route_not_found invalid_request_error",
        "404 response_not_found invalid_request_error",
        "405 method_not_allowed invalid_request_error",
        "408 body_timeout invalid_request_error",
        "413 body_too_large invalid_request_error",
        "415 unsupported_media_type invalid_request_error",
        "431 headers_too_large invalid_request_error",
        "501 not_implemented server_error",
        "499 client_closed invalid_request_error",
        "500 internal server_error",
        "502 replica_connect server_error",
        "502 replica_reset server_error",
        "502 replica_down server_error",
        "502 engines_died server_error",
        "502 replica_bad_response server_error",
        "502 replica_redirect server_error",
        "502 stream_cut server_error",
        "503 overloaded overloaded_error",
        "429 rate_limited rate_limit_error",
        "429 budget_spent insufficient_quota",
        "400 request_exceeds_limit invalid_request_error",
        "503 no_replica server_error",
        "503 key_unsure server_error",
        "503 node_shortage server_error",
        "504 first_byte_timeout server_error",
        "504 stream_stalled server_error",
        "504 deadline_exceeded server_error",
    ];
    assert_eq!(table, expected);
}

#[test]
fn it_displays_as_its_message() {
    assert_eq!(overloaded().to_string(), overloaded().message);
}
