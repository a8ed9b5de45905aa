//! Status of gRPC calls: codes, the headers that carry them, and their equivalents of gateway
//! errors.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use super::method::speaks_grpc;
use super::wire::{put_bytes, put_number};
use crate::{CODE_HEADER, ErrorKind, GatewayError, SHED_REASON, lacks_model_by};

/// Header `grpc-status`: the code as a decimal number.
pub static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Header `grpc-message`: percent-encoded text.
pub static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Header `grpc-accept-encoding`: compressions that its sender can read.
pub static GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// Header with a `google.rpc.Status`, for details that have no header of their own.
static GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Type of the detail that carries a Retry-After.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// ASCII characters that `grpc-message` must encode; characters that are not ASCII are always
/// encoded.
const UNPRINTABLE: &AsciiSet = &CONTROLS.add(b'%');
/// Largest size of a message in bytes: a longer one could fill all of a client's room for headers.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "gRPC's own names, explained where it defines them")]
pub enum GrpcStatus {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcStatus {
    /// Returns the number of the status.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the status for one of the gateway's errors.
    #[must_use]
    pub fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadRequest | ErrorKind::BeyondLimit => Self::InvalidArgument,
            ErrorKind::KeyMissing | ErrorKind::KeyInvalid => Self::Unauthenticated,
            ErrorKind::ModelNotAllowed
            | ErrorKind::RegionNotAllowed
            | ErrorKind::OriginNotAllowed => Self::PermissionDenied,
            ErrorKind::ModelNotFound | ErrorKind::ResponseNotFound => Self::NotFound,
            ErrorKind::RouteNotFound
            | ErrorKind::MethodNotAllowed
            | ErrorKind::NotImplemented
            | ErrorKind::UnsupportedMediaType => Self::Unimplemented,
            ErrorKind::BodyTooLarge
            | ErrorKind::HeadersTooLarge
            | ErrorKind::Overloaded
            | ErrorKind::RateLimited
            | ErrorKind::BudgetSpent => Self::ResourceExhausted,
            ErrorKind::ClientClosed => Self::Cancelled,
            ErrorKind::Internal | ErrorKind::ReplicaBadResponse | ErrorKind::ReplicaRedirect => {
                Self::Internal
            }
            ErrorKind::ReplicaConnect
            | ErrorKind::ReplicaReset
            | ErrorKind::ReplicaDown
            | ErrorKind::EnginesDied
            | ErrorKind::StreamCut
            | ErrorKind::StreamStalled
            | ErrorKind::FirstByteTimeout
            | ErrorKind::KeyUnsure
            | ErrorKind::NodeShortage
            | ErrorKind::NoReplica => Self::Unavailable,
            ErrorKind::BodyTimeout | ErrorKind::DeadlineExceeded => Self::DeadlineExceeded,
        }
    }

    /// Returns the status for an HTTP reply that is no gRPC reply, from gRPC's own table.
    #[must_use]
    pub fn of_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

/// Returns the code in a reply's headers or trailers; `None` if there is none. A code that is no
/// number below 256 counts as "unknown".
#[must_use]
pub fn status_in(headers: &HeaderMap) -> Option<u8> {
    let code = headers.get(&GRPC_STATUS)?.to_str().ok().and_then(|text| text.parse().ok());
    Some(code.unwrap_or(GrpcStatus::Unknown as u8))
}

/// Returns true if the status in a reply's headers says that the server does not have `model`: gRPC
/// servers refuse a call with a reply that is nothing but a head.
#[must_use]
pub fn status_lacks_model(headers: &HeaderMap, model: &str) -> bool {
    // Older servers of Triton call it unavailable.
    let codes = [GrpcStatus::InvalidArgument, GrpcStatus::NotFound, GrpcStatus::Unavailable];
    let is_of_kind = |code| codes.into_iter().any(|known| known.code() == code);
    let message = headers.get(&GRPC_MESSAGE).filter(|_| status_in(headers).is_some_and(is_of_kind));
    message.is_some_and(|message| {
        let text = percent_decode(message.as_bytes()).decode_utf8_lossy();
        lacks_model_by(&text, model)
    })
}

/// Returns the trailers for the client if a reply is no valid gRPC reply; `None` if it is one.
#[must_use]
pub fn reply_fault(status: StatusCode, headers: &HeaderMap) -> Option<HeaderMap> {
    let is_grpc = speaks_grpc(headers);
    if is_grpc && status == StatusCode::OK {
        return None;
    }
    // If a proxy set the HTTP status too, the replica's own status counts.
    if is_grpc && let Some(code) = headers.get(&GRPC_STATUS) {
        let mut trailers = HeaderMap::new();
        trailers.insert(GRPC_STATUS.clone(), code.clone());
        let message = headers.get(&GRPC_MESSAGE).cloned();
        trailers.extend(message.map(|message| (GRPC_MESSAGE.clone(), message)));
        return Some(trailers);
    }
    let message = format!("the replica's reply is not gRPC: HTTP status {}", status.as_u16());
    let mut trailers = trailers(GrpcStatus::of_http(status), &message);
    let code = HeaderValue::from_static(ErrorKind::ReplicaBadResponse.code());
    trailers.insert(CODE_HEADER.clone(), code);
    Some(trailers)
}

/// Returns the trailers for an error, as the end of a reply or as a whole reply.
#[must_use]
pub fn trailers_of(error: &GatewayError) -> HeaderMap {
    let status = GrpcStatus::of_error(error.kind);
    let mut trailers = trailers(status, &error.message);
    trailers.insert(CODE_HEADER.clone(), HeaderValue::from_static(error.kind.code()));
    if let Some(reason) = error.shed {
        trailers.insert(SHED_REASON.clone(), HeaderValue::from_static(reason));
    }
    // Tells the client to send the message again without compression.
    if error.kind == ErrorKind::UnsupportedMediaType {
        trailers.insert(GRPC_ACCEPT_ENCODING.clone(), HeaderValue::from_static("identity"));
    }
    if let Some(delay) = error.retry_delay()
        && let Ok(details) = HeaderValue::try_from(retry_details(status, &error.message, delay))
    {
        trailers.insert(GRPC_STATUS_DETAILS.clone(), details);
    }
    trailers
}

fn trailers(status: GrpcStatus, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS.clone(), HeaderValue::from(u16::from(status.code())));
    let encoded = utf8_percent_encode(shortened(message), UNPRINTABLE).to_string();
    // Only printable ASCII is left, which a header can hold.
    if let Ok(message) = HeaderValue::try_from(encoded) {
        trailers.insert(GRPC_MESSAGE.clone(), message);
    }
    trailers
}

/// Returns a `google.rpc.Status` with a `google.rpc.RetryInfo`, in base64 without padding.
fn retry_details(status: GrpcStatus, message: &str, delay: Duration) -> String {
    let mut duration = Vec::new();
    put_number(&mut duration, 1, delay.as_secs());
    put_number(&mut duration, 2, u64::from(delay.subsec_nanos()));
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    put_bytes(&mut any, 1, RETRY_INFO.as_bytes());
    put_bytes(&mut any, 2, &retry_info);
    let mut details = Vec::new();
    put_number(&mut details, 1, u64::from(status.code()));
    put_bytes(&mut details, 2, shortened(message).as_bytes());
    put_bytes(&mut details, 3, &any);
    STANDARD_NO_PAD.encode(details)
}

fn shortened(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
        headers.get(name)?.to_str().ok()
    }

    #[test]
    fn a_status_may_say_that_a_model_is_missing() {
        let lacks = |status: &'static str, message: &'static str| {
            let pairs = [(GRPC_STATUS.clone(), status), (GRPC_MESSAGE.clone(), message)];
            let pairs = pairs.map(|(name, text)| (name, HeaderValue::from_static(text)));
            status_lacks_model(&HeaderMap::from_iter(pairs), "m")
        };
        for status in ["3", "5", "14"] {
            assert!(lacks(status, "Request for unknown model: 'm' is not found"));
            assert!(lacks(status, "Model m%20not found"));
            assert!(!lacks(status, "Request for unknown model: 'other' is not found"));
            assert!(!lacks(status, "no connection"));
        }
        assert!(!lacks("0", "Model m not found") && !lacks("13", "Model m not found"));
        assert!(!status_lacks_model(&HeaderMap::new(), "m"));
    }

    #[test]
    fn every_error_has_its_code() {
        let table: Vec<String> = ErrorKind::ALL
            .iter()
            .map(|kind| format!("{} {}", GrpcStatus::of_error(*kind).code(), kind.code()))
            .collect();
        // Clients match on these: a change here is a breaking change.
        let expected = [
            "3 bad_request",
            "16 missing_api_key",
            "16 invalid_api_key",
            "7 model_not_allowed",
            "7 region_not_allowed",
            "7 origin_not_allowed",
            "5 model_not_found",
            "12 route_not_found",
            "5 response_not_found",
            "12 method_not_allowed",
            "4 body_timeout",
            "8 body_too_large",
            "12 unsupported_media_type",
            "8 headers_too_large",
            "12 not_implemented",
            "1 client_closed",
            "13 internal",
            "14 replica_connect",
            "14 replica_reset",
            "14 replica_down",
            "14 engines_died",
            "13 replica_bad_response",
            "13 replica_redirect",
            "14 stream_cut",
            "8 overloaded",
            "8 rate_limited",
            "8 budget_spent",
            "3 request_exceeds_limit",
            "14 no_replica",
            "14 key_unsure",
            "14 node_shortage",
            "14 first_byte_timeout",
            "14 stream_stalled",
            "4 deadline_exceeded",
        ];
        assert_eq!(table, expected);
    }

    #[test]
    fn a_message_is_encoded_and_read_back() {
        let error = GatewayError::new(ErrorKind::BadRequest, "100 % \"ö\"\r\n\u{7f}~");
        let trailers = trailers_of(&error);
        assert_eq!(text(&trailers, &GRPC_STATUS), Some("3"));
        assert_eq!(text(&trailers, &GRPC_MESSAGE), Some("100 %25 \"%C3%B6\"%0D%0A%7F~"));
        assert_eq!(text(&trailers, &CODE_HEADER), Some("bad_request"));
        assert_eq!(trailers.len(), 3);
    }

    #[test]
    fn an_endless_message_is_cut_between_characters() {
        let error = GatewayError::new(ErrorKind::Internal, "ö".repeat(MESSAGE_BYTES_MAX));
        let trailers = trailers_of(&error);
        assert_eq!(text(&trailers, &GRPC_MESSAGE).unwrap().len(), MESSAGE_BYTES_MAX * 3);
    }

    #[test]
    fn who_is_turned_away_learns_when_to_come_again() {
        let error = GatewayError::new(ErrorKind::Overloaded, "busy");
        let trailers = trailers_of(&error.with_retry_after(Duration::from_millis(2500)));
        let details = STANDARD_NO_PAD.decode(text(&trailers, &GRPC_STATUS_DETAILS).unwrap());
        // code 8, message, detail { type, RetryInfo { Duration { 2 s, 500,000,000 ns } } }
        let expected = [
            b"\x08\x08\x12\x04busy\x1A\x36\x0A\x28",
            RETRY_INFO.as_bytes(),
            b"\x12\x0A\x0A\x08\x08\x02\x10\x80\xCA\xB5\xEE\x01",
        ];
        assert_eq!(details.unwrap(), expected.concat());
    }

    #[test]
    fn nobody_else_gets_details_and_refused_encodings_say_what_is_read() {
        let unread = GatewayError::new(ErrorKind::UnsupportedMediaType, "no");
        let trailers = trailers_of(&unread);
        assert_eq!(text(&trailers, &GRPC_ACCEPT_ENCODING), Some("identity"));
        assert!(!trailers.contains_key(&GRPC_STATUS_DETAILS));
    }

    #[track_caller]
    fn check_reply(status: u16, headers: &[(&'static str, &'static str)], expected: Option<&str>) {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let fault = reply_fault(StatusCode::from_u16(status).unwrap(), &headers.collect());
        let code = fault.as_ref().and_then(|fault| text(fault, &GRPC_STATUS));
        assert_eq!(code, expected);
    }

    #[test]
    fn a_reply_that_is_not_grpc_is_translated() {
        let grpc = ("content-type", "application/grpc+proto");
        check_reply(200, &[grpc], None);
        check_reply(200, &[grpc, ("grpc-status", "5")], None);
        check_reply(200, &[("content-type", "text/html")], Some("2"));
        check_reply(200, &[], Some("2"));
        for (status, code) in [
            (400, "13"),
            (401, "16"),
            (403, "7"),
            (404, "12"),
            (429, "14"),
            (500, "2"),
            (502, "14"),
            (503, "14"),
            (504, "14"),
        ] {
            check_reply(status, &[("content-type", "text/html")], Some(code));
            check_reply(status, &[grpc], Some(code));
        }
        check_reply(503, &[grpc, ("grpc-status", "8")], Some("8"));
        check_reply(503, &[("grpc-status", "8")], Some("14"));
    }

    #[test]
    fn a_status_is_found_and_nonsense_is_unknown() {
        let status = |value: &'static str| {
            let pair = (GRPC_STATUS.clone(), HeaderValue::from_static(value));
            status_in(&[pair].into_iter().collect())
        };
        assert_eq!((status("0"), status("14"), status("16")), (Some(0), Some(14), Some(16)));
        assert_eq!((status("x"), status("-1"), status("300")), (Some(2), Some(2), Some(2)));
        assert_eq!(status_in(&HeaderMap::new()), None);
    }
}
