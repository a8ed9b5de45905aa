//! KServe V2 and health checks over gRPC: the same model as over HTTP, which returns its inputs.

mod frame;
mod infer;
mod stream;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use prost::Message;
use tokio::time::Instant;

use super::ApiError;
use super::call::{ApiCall, read};
use super::reply::Reply;
use crate::body::ReplyBody;
use crate::kserve::{
    FlagResponse, HealthRequest, HealthResponse, InferRequest, ModelConfig, ModelConfigResponse,
    ModelMetadata, ModelRequest, ModelStatistics, ModelStatisticsResponse, ServerMetadata,
    TensorMetadata,
};

pub(crate) use frame::{CONTENT_TYPE, error_trailers};

/// Path prefix of the KServe V2 service.
const KSERVE: &str = "/inference.GRPCInferenceService/";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
/// Only version of every model, and its platform.
const VERSION: &str = "1";
const PLATFORM: &str = "spillway_emulator_identity";
/// Value of `SERVING` in `HealthCheckResponse`.
const SERVING: i32 = 1;

/// Returns true if a request is a gRPC call.
pub(crate) fn is_grpc(method: &Method, headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(CONTENT_TYPE.as_bytes()));
    // `application/grpc-web` is another protocol.
    method == Method::POST && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+')))
}

/// Returns true if a path calls a method that runs the model.
pub(crate) fn is_inference(path: &str) -> bool {
    matches!(path.strip_prefix(KSERVE), Some("ModelInfer" | "ModelStreamInfer"))
}

/// Answers a call within its client's deadline.
pub(crate) async fn answer(call: &ApiCall, body: Incoming) -> Reply {
    let deadline = deadline(&call.headers)?;
    // A stream counts as begun at once, since its requests have no tickets of their own.
    if call.path.strip_prefix(KSERVE) == Some("ModelStreamInfer") {
        call.start();
        return Ok(stream::reply(call, body, deadline));
    }
    let answered = async {
        let body = read(body, call.replica.body_bytes_max).await?;
        answer_unary(call, frame::message_in(body)?).await
    };
    let Some(deadline) = deadline else { return answered.await };
    tokio::time::timeout_at(deadline, answered).await.unwrap_or_else(|_| Err(ApiError::too_late()))
}

async fn answer_unary(call: &ApiCall, message: Bytes) -> Reply {
    if call.path == HEALTH_CHECK {
        let HealthRequest { service } = decode(message)?;
        return match service.as_str() {
            "" | "inference.GRPCInferenceService" => {
                Ok(frame::reply(&HealthResponse { status: SERVING }))
            }
            _ => Err(ApiError::not_found(format!("the service {service:?} is unknown"))),
        };
    }
    let unknown = || ApiError::unimplemented(format!("the method {} is unknown", call.path));
    let method = call.path.strip_prefix(KSERVE).ok_or_else(unknown)?;
    match method {
        "ServerLive" | "ServerReady" => Ok(frame::reply(&FlagResponse { is_so: true })),
        "ServerMetadata" => Ok(frame::reply(&ServerMetadata {
            name: "spillway-emulator".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: Vec::new(),
        })),
        "ModelInfer" => {
            let request: InferRequest = decode(message)?;
            Ok(frame::reply(&infer::infer(call, request).await?))
        }
        "ModelReady" | "ModelMetadata" | "ModelConfig" | "ModelStatistics" => {
            let request: ModelRequest = decode(message)?;
            check_model(call, &request.name, &request.version)?;
            Ok(answer_about_model(call, method, request.name))
        }
        _ => Err(unknown()),
    }
}

fn answer_about_model(call: &ApiCall, method: &str, name: String) -> Response<ReplyBody> {
    let (version, platform) = (VERSION.to_owned(), PLATFORM.to_owned());
    match method {
        "ModelMetadata" => frame::reply(&ModelMetadata {
            name,
            versions: vec![version],
            platform,
            inputs: vec![any_tensor("INPUT0")],
            outputs: vec![any_tensor("OUTPUT0")],
        }),
        "ModelConfig" => {
            frame::reply(&ModelConfigResponse { config: Some(ModelConfig { name, platform }) })
        }
        "ModelStatistics" => {
            let inference_count = call.replica.stats().finished;
            let stats = ModelStatistics { name, version, inference_count };
            frame::reply(&ModelStatisticsResponse { model_stats: vec![stats] })
        }
        _ => frame::reply(&FlagResponse { is_so: true }),
    }
}

fn any_tensor(name: &str) -> TensorMetadata {
    TensorMetadata { name: name.to_owned(), datatype: "FP32".to_owned(), shape: vec![-1] }
}

/// Returns an error if this replica does not serve the model in this version.
fn check_model(call: &ApiCall, model: &str, version: &str) -> Result<(), ApiError> {
    call.check_model(model).map_err(|_| {
        ApiError::not_found(format!("Request for unknown model: '{model}' is not found"))
    })?;
    if version.is_empty() || version == VERSION {
        return Ok(());
    }
    Err(ApiError::not_found(format!("model '{model}' has no version '{version}'")))
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, ApiError> {
    M::decode(message)
        .map_err(|error| ApiError::invalid(format!("the message can't be read: {error}"), None))
}

/// Returns the time at which the client stops waiting, from `grpc-timeout`; `None` without the
/// header.
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, ApiError> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let timeout = value.to_str().ok().and_then(parse_timeout);
    let malformed = || ApiError::invalid(format!("grpc-timeout is {value:?}"), None);
    timeout.map(|timeout| Some(Instant::now() + timeout)).ok_or_else(malformed)
}

fn parse_timeout(value: &str) -> Option<Duration> {
    let digits = value.get(..value.len().checked_sub(1)?)?;
    // gRPC allows eight digits.
    let number: u32 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    let unit = match &value[digits.len()..] {
        "H" => Duration::from_secs(3600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    unit.checked_mul(number)
}

/// Messages of a body that is still arriving.
struct Messages {
    body: Incoming,
    buffer: frame::Buffer,
}

impl Messages {
    fn new(body: Incoming, bytes_max: usize) -> Self {
        Self { body, buffer: frame::Buffer::new(bytes_max) }
    }

    /// Returns the next message; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(message) = self.buffer.pop()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                // Trailers of a client mean nothing here.
                Some(Ok(frame)) => self.buffer.push(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => {
                    let message = format!("the stream could not be read: {error}");
                    return Err(ApiError::invalid(message, None));
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    return Err(ApiError::invalid("the stream ends within a message", None));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_and_nonsense_is_refused() {
        assert_eq!(parse_timeout("3H"), Some(Duration::from_secs(10_800)));
        assert_eq!(parse_timeout("2M"), Some(Duration::from_secs(120)));
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_timeout("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse_timeout("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for value in ["", "S", "5", "5s", "100000000S", "-1S", "1.5S", "5Sö"] {
            assert_eq!(parse_timeout(value), None, "{value}");
        }
    }
}
