//! gRPC calls: read as far as routing needs, or answered by the gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::Version;
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use spillway_protocol::grpc::{
    GrpcMethod, MODEL_BYTES_MAX, MessageError, Messages, ModelRef, Peek, Serving, check_parameters,
    health_answer, health_service, peek_model, read_model, rewrite_model, server_flag_answer,
    server_metadata_answer, speaks_grpc,
};
use spillway_protocol::{Echo, Endpoint, ErrorKind, GatewayError, Segments};
use spillway_transport::{UploadPace, WireBody};
use spillway_types::ModelName;
use spillway_upstream::{MessageBody, RequestBody, Traffic};
use spillway_view::{Route, View};
use tokio::time::timeout;

use crate::asked_timeout::asked_timeout;
use crate::cost::Cost;
use crate::fallback::Renaming;
use crate::flavour::Flavour;
use crate::gateway::Gateway;
use crate::path::replica_path;
use crate::prepared::{Prepared, ReadBody, Routed};
use crate::surroundings::{Contents, Surroundings};
use crate::target::{NamePosition, ResolvedTarget, Target, Wanted};

/// Most bytes of a message that the gateway answers itself: the longest contains a service name.
const LOCAL_BYTES_MAX: usize = 4 << 10;

/// Returns the method of a gRPC call; `None` if the request is none. HTTP/1.1 has no gRPC: it lacks
/// trailers that clients can rely on.
pub fn called(head: &Parts) -> Option<Endpoint<'static>> {
    let is_call = head.version == Version::HTTP_2 && speaks_grpc(&head.headers);
    is_call.then(|| Endpoint::Grpc(GrpcMethod::classify(head.uri.path())))
}

/// Returns the error for a request on a gRPC path that came over HTTP/1.1 or has another content
/// type.
pub fn refuse_no_call(head: &Parts) -> GatewayError {
    let message = if speaks_grpc(&head.headers) {
        "gRPC needs HTTP/2, and this request came over HTTP/1.1"
    } else {
        "this path takes gRPC only: content-type application/grpc over HTTP/2"
    };
    GatewayError::new(ErrorKind::UnsupportedMediaType, message)
}

/// Returns the message that answers a method which needs no replica.
///
/// # Errors
/// Returns an error if the message can't be read, or names an unknown service.
pub async fn local_message(
    gateway: &Gateway,
    view: &View,
    method: GrpcMethod,
    body: WireBody,
) -> Result<Bytes, GatewayError> {
    let bound = gateway.door.limits().head_timeout;
    // Read to the end even if unused: a client may not expect an answer before that.
    let body = timeout(bound, Limited::new(body, LOCAL_BYTES_MAX).collect());
    let body = body.await.map_err(|_| UploadPace::new(bound).too_slow())?;
    let body = body.map_err(|error| malformed(&error.to_string()))?.to_bytes();
    Ok(match method {
        GrpcMethod::ServerReady => server_flag_answer(gateway.is_ready_with(view)),
        GrpcMethod::ServerMetadata => server_metadata_answer("spillway", env!("CARGO_PKG_VERSION")),
        GrpcMethod::HealthCheck => {
            let service = health_service(&body);
            check_service(view, service.ok_or_else(|| malformed("unreadable"))?)?;
            let is_ready = gateway.is_ready_with(view);
            health_answer(if is_ready { Serving::Serving } else { Serving::NotServing })
        }
        _ => server_flag_answer(true),
    })
}

/// Checks that the health of this service is known: the server's, or that of a built-in or routed
/// service.
fn check_service(view: &View, service: &str) -> Result<(), GatewayError> {
    let is_passed_on = || view.prefixed_route(&format!("/{service}")).is_some();
    if service.is_empty() || GrpcMethod::knows_service(service) || is_passed_on() {
        return Ok(());
    }
    let message = format!("the service {:?} is not served here", Echo(service));
    // The health protocol requires NOT_FOUND here, where a call would get UNIMPLEMENTED.
    Err(GatewayError::new(ErrorKind::ModelNotFound, message))
}

impl Prepared {
    /// Returns the kind of connection that the request needs.
    pub fn traffic(&self) -> Traffic {
        if self.flavour == Flavour::Grpc { Traffic::Grpc } else { Traffic::Http }
    }
}

impl Surroundings<'_> {
    /// Prepares a call of a known method.
    pub async fn call(self, body: WireBody, method: GrpcMethod) -> Result<Prepared, GatewayError> {
        match method {
            GrpcMethod::Model => self.unary_call(body).await,
            GrpcMethod::ModelStream => self.stream_call(body).await,
            GrpcMethod::Refused(why) => Err(GatewayError::new(ErrorKind::RouteNotFound, why)),
            _ => {
                let message = format!("no route passes on {}", Echo(self.head.uri.path()));
                Err(GatewayError::new(ErrorKind::RouteNotFound, message))
            }
        }
    }

    /// Prepares a call with one message, which is kept and can be sent again.
    async fn unary_call(self, mut body: WireBody) -> Result<Prepared, GatewayError> {
        let buffered = self.buffer(&mut body).await?;
        let named = found(read_model(&buffered.bytes))?;
        let ResolvedTarget { route, model, mut target } = self.find_model(named).await?;
        target.allow_fallback(self, &route, &model, || Renaming::Message {
            original: buffered.bytes.clone(),
        });
        check_parameters(&buffered.bytes, route.spec.engine_fields)?;
        let cost = Cost::of_unread(self.head, Some(buffered.bytes.len() as u64));
        let version = new_version(named, &target);
        // A message that has the right names already is passed on unchanged.
        let segments = if named.model == model.as_str() && version.is_none() {
            Segments::from(buffered.bytes)
        } else {
            rewrite_model(&buffered.bytes, model.as_str(), version)
        };
        let read = ReadBody {
            body: RequestBody::Buffered(segments),
            cost,
            wait: buffered.wait,
            reservation: buffered.reservation,
        };
        let path = replica_path(self.head, &route, None)?;
        let routed = Routed { route, model: Some(model), target, path };
        self.prepared(routed, Contents::default(), Flavour::Grpc, read)
    }

    /// Prepares a streaming call, whose client may wait for replies before it sends more: routed by
    /// the beginning of its first message.
    async fn stream_call(self, mut body: WireBody) -> Result<Prepared, GatewayError> {
        let started = Instant::now();
        let limits = self.gateway.door.limits();
        let asked = asked_timeout(&self.head.headers)?;
        let stall = limits.stall_timeout_ms.duration();
        let seen =
            match timeout(asked.map_or(stall, |asked| asked.min(stall)), first_bytes(&mut body))
                .await
            {
                Ok(seen) => seen?,
                Err(_) if asked.is_some_and(|asked| asked <= stall) => {
                    let message = "the deadline passed before the first message came";
                    return Err(GatewayError::new(ErrorKind::DeadlineExceeded, message));
                }
                Err(_) => return Err(UploadPace::new(stall).too_slow()),
            };
        let wait = started.elapsed();
        let named = found(peek_model(&seen))?;
        let ResolvedTarget { route, model, target } = self.find_model(named).await?;
        let version = new_version(named, &target);
        let bytes_max = limits.body_bytes_max;
        let messages = if !self.grant.models.is_all() {
            // Each later message names a model again, which must be allowed too.
            Messages::renaming(bytes_max, named.model, model.as_str(), version).or_refused()
        } else if named.model == model.as_str() && version.is_none() {
            Messages::new(bytes_max)
        } else {
            Messages::renaming(bytes_max, named.model, model.as_str(), version)
        };
        let mut messages = messages.refusing_parameters_but(route.spec.engine_fields);
        messages.push(seen.clone())?;
        let found = (route, Some(model), target);
        self.streamed(body, messages, found, wait)
    }

    /// Prepares a call of a service that a route passes on unread.
    pub fn passed_call(self, body: WireBody, route: &Arc<Route>) -> Result<Prepared, GatewayError> {
        let route = Arc::clone(route.over_grpc());
        let found = if route.spec.default_model.is_some() {
            let wanted = Wanted {
                name: None,
                version: None,
                user: None,
                stored_at: None,
                position: NamePosition::Route,
            };
            let ResolvedTarget { route, model, target } = self.find(Some(route), wanted)?;
            (route, Some(model), target)
        } else {
            self.grant.check_unnamed()?;
            (route, None, Target::default())
        };
        let messages = Messages::new(self.gateway.door.limits().body_bytes_max);
        self.streamed(body, messages, found, Duration::ZERO)
    }

    fn streamed(
        self,
        body: WireBody,
        messages: Messages,
        (route, model, target): (Arc<Route>, Option<ModelName>, Target),
        body_wait: Duration,
    ) -> Result<Prepared, GatewayError> {
        let (body, half) = MessageBody::new(
            body,
            messages,
            self.gateway.door.limits().stall_timeout_ms.duration(),
        );
        let read = ReadBody {
            body: RequestBody::Messages { body: Some(Box::new(body)), half: Some(half) },
            cost: Cost::of_stream(),
            wait: body_wait,
            reservation: None,
        };
        let path = replica_path(self.head, &route, None)?;
        let routed = Routed { route, model, target, path };
        self.prepared(routed, Contents::default(), Flavour::Grpc, read)
    }

    async fn find_model(self, named: ModelRef<'_>) -> Result<ResolvedTarget, GatewayError> {
        let (name, version) = (some(named.model), some(named.version));
        let wanted =
            Wanted { name, version, user: None, stored_at: None, position: NamePosition::Message };
        self.look_for(None, wanted).await
    }
}

/// Reads until the first message's model is known, or as many bytes as may be examined.
async fn first_bytes(body: &mut WireBody) -> Result<Bytes, GatewayError> {
    let mut seen = Bytes::new();
    while peek_model(&seen) == Peek::NeedMore && seen.len() < MODEL_BYTES_MAX {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| malformed(&error.to_string()))?;
        let piece = frame.into_data().unwrap_or_default();
        seen = if seen.is_empty() {
            piece
        } else {
            let mut both = BytesMut::from(seen);
            both.extend_from_slice(&piece);
            both.freeze()
        };
    }
    Ok(seen)
}

fn found(peek: Peek<'_>) -> Result<ModelRef<'_>, GatewayError> {
    match peek {
        Peek::Found(found) => Ok(found),
        Peek::Compressed => Err(MessageError::Compressed.into()),
        Peek::NeedMore | Peek::Malformed => Err(MessageError::Malformed.into()),
    }
}

/// Returns the version to write into a message, if it differs from the message's own.
fn new_version<'t>(named: ModelRef<'_>, target: &'t Target) -> Option<&'t str> {
    let version = target.version().map(|version| version.as_str());
    version.filter(|version| *version != named.version)
}

fn some(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn malformed(why: &str) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, format!("the message can't be read: {why}"))
}

#[cfg(test)]
#[path = "grpc_test.rs"]
mod tests;
