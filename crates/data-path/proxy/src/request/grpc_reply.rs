//! Replies to gRPC calls that the gateway makes itself.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use spillway_protocol::grpc::{GrpcMethod, GrpcStatus, status_in, trailers_of};
use spillway_protocol::{CODE_HEADER, Endpoint, FailureCause, GatewayError, known_code};
use spillway_request::gateway::Gateway;
use spillway_request::grpc::local_message;
use spillway_request::methods::check_method;
use spillway_transport::WireBody;
use spillway_view::View;

use crate::relay::ReplyBody;
use crate::request::record::RequestRecord;

static GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Turns an error into a reply that has only a head.
pub(crate) fn refusal(error: &GatewayError, mut record: RequestRecord) -> Response<ReplyBody> {
    record.refused(error);
    record.refused_with(error.message.clone());
    trailers_only(trailers_of(error), &mut record)
}

/// Returns the reply that replaces a replica's reply which was not gRPC.
pub(crate) fn translated(trailers: HeaderMap, mut record: RequestRecord) -> Response<ReplyBody> {
    record.answered(StatusCode::BAD_GATEWAY.as_u16());
    record.failed(code_in(&trailers));
    trailers_only(trailers, &mut record)
}

/// Returns the code of a failed call by its head or trailers, of which only gateways set a code.
pub(crate) fn code_in(headers: &HeaderMap) -> &'static str {
    let named = headers.get(&CODE_HEADER).and_then(|code| known_code(code.to_str().ok()?));
    named.unwrap_or_else(|| FailureCause::ReplicaError.code())
}

fn trailers_only(trailers: HeaderMap, record: &mut RequestRecord) -> Response<ReplyBody> {
    if let Some(code) = status_in(&trailers) {
        record.grpc_status(code);
    }
    let mut response = Response::new(ReplyBody::full(Bytes::new()));
    *response.headers_mut() = trailers;
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC.clone());
    response
}

/// Answers a method that needs no replica.
pub(crate) async fn answer(
    gateway: &Gateway,
    view: &View,
    (head, method): (&Parts, GrpcMethod),
    body: WireBody,
    mut record: RequestRecord,
) -> Response<ReplyBody> {
    if let Err(error) = check_method(Endpoint::Grpc(method), &head.method) {
        return refusal(&error, record);
    }
    // All other local methods are health checks, which leave no outcome.
    if method != GrpcMethod::ServerMetadata {
        record.forget();
    }
    match local_message(gateway, view, method, body).await {
        Ok(message) => {
            record.answered(StatusCode::OK.as_u16());
            record.grpc_status(GrpcStatus::Ok.code());
            let mut response = Response::new(ReplyBody::message(message));
            response.headers_mut().insert(header::CONTENT_TYPE, GRPC.clone());
            response
        }
        Err(error) => refusal(&error, record),
    }
}
