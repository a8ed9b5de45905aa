//! Errors as replies, in the forms of OpenAI, Anthropic, KServe V2 and gRPC.

use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::json;

use super::error::ApiError;
use super::grpc;
use super::reply::{json, with_type};
use crate::body::ReplyBody;

impl ApiError {
    /// Returns the response in the form of `/v1` endpoints.
    pub(crate) fn into_openai(self) -> Response<ReplyBody> {
        self.respond(&self.openai_body())
    }

    /// Returns the response in the form of Anthropic's API.
    pub(crate) fn into_anthropic(self, request_id: &str) -> Response<ReplyBody> {
        let mut body = self.anthropic_body();
        body["request_id"] = request_id.into();
        let mut response = self.respond(&body);
        if let Ok(id) = HeaderValue::from_str(request_id) {
            response.headers_mut().insert("request-id", id);
        }
        response
    }

    /// Returns the response in the form of `/v2` endpoints.
    pub(crate) fn into_v2(self) -> Response<ReplyBody> {
        self.respond(&json!({ "error": self.message }))
    }

    /// Returns the response in the form of gRPC: trailers without a message.
    pub(crate) fn into_grpc(self) -> Response<ReplyBody> {
        let mut response = with_type(ReplyBody::whole(""), grpc::CONTENT_TYPE);
        let retry_after_s = self.retry_after_s;
        response.headers_mut().extend(self.into_trailers());
        if let Some(seconds) = retry_after_s {
            let pushback_ms = HeaderValue::from(seconds.saturating_mul(1000));
            response.headers_mut().insert("grpc-retry-pushback-ms", pushback_ms);
        }
        response
    }

    /// Returns the gRPC trailers that end a stream with this error.
    pub(crate) fn into_trailers(self) -> HeaderMap {
        grpc::error_trailers(self.status, &self.message)
    }

    fn respond(&self, body: &serde_json::Value) -> Response<ReplyBody> {
        let mut response = json(self.status, body);
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
