//! Requests whose bodies are not read for a prompt: routes of other protocols, and tensors.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method};
use http_body::Body;
use spillway_protocol::{GatewayError, Segments, V2Coding, V2Look, V2Watch, read_v2};
use spillway_transport::WireBody;
use spillway_upstream::RequestBody;
use spillway_view::Route;

use crate::cost::Cost;
use crate::fallback::Renaming;
use crate::flavour::Flavour;
use crate::intake::refuse_announced;
use crate::path::replica_path;
use crate::prepared::{Prepared, ReadBody, Routed};
use crate::surroundings::{Contents, Surroundings, refuse_encoding};
use crate::target::{NamePosition, ResolvedTarget, Target, Wanted};

/// Most bytes of JSON that a compressed body may expand to, or a few bytes could demand any amount
/// of work. Tensors behind the JSON are not expanded.
const EXPANDED_BYTES_MAX: u64 = 8 << 20;

impl Surroundings<'_> {
    /// Prepares a request of a route whose bodies are not read.
    pub async fn opaque(
        self,
        body: &mut WireBody,
        flavour: Flavour,
        route: Arc<Route>,
    ) -> Result<Prepared, GatewayError> {
        let (route, model, target) = if route.spec.default_model.is_some() {
            let wanted = Wanted::named(None, NamePosition::Route);
            let ResolvedTarget { route, model, mut target } = self.find(Some(route), wanted)?;
            target.allow_fallback(self, &route, &model, || Renaming::Nothing);
            (route, Some(model), target)
        } else {
            self.grant.check_unnamed()?;
            (route, None, Target::default())
        };
        let path = replica_path(self.head, &route, None)?;
        self.unread(body, flavour, Routed { route, model, target, path }).await
    }

    /// Prepares a request whose body is passed on unread.
    ///
    /// # Errors
    /// Returns an error if the body is too large or too slow.
    pub async fn unread(
        self,
        body: &mut WireBody,
        flavour: Flavour,
        routed: Routed,
    ) -> Result<Prepared, GatewayError> {
        let read = self.take_opaque(body, flavour, &routed.route).await?;
        self.prepared(routed, Contents::default(), flavour, read)
    }

    /// Buffers a body that is known to be short, so that it can be retried; streams any other. The
    /// JSON of a V2 request is read for its parameters, or scanned for them while it streams.
    async fn take_opaque(
        self,
        body: &mut WireBody,
        flavour: Flavour,
        route: &Route,
    ) -> Result<ReadBody, GatewayError> {
        let limits = self.gateway.door.limits();
        let mut body =
            refuse_announced(body.take(), &self.head.headers, limits.body_bytes_max).await?;
        let bytes = body.size_hint().exact();
        let is_v2 = flavour == Flavour::KServeV2;
        let generates = is_v2 && generates(self.head.uri.path());
        // Tensors may be compressed, and are passed on as they are.
        let coding = match is_v2 {
            true => v2_coding(&self.head.headers, generates)?,
            false => None,
        };
        let cost_of = |bytes| match coding {
            Some(_) => Cost::of_compressed(bytes),
            // Metadata of models: no model works.
            None if is_v2 && self.head.method == Method::GET => Cost::default(),
            None => Cost::of_unread(self.head, bytes),
        };
        let look = || {
            let watch = V2Watch::new(route.spec.engine_fields, self.json_bytes());
            V2Look::new(watch, coding, limits.body_bytes_max.min(EXPANDED_BYTES_MAX))
        };
        if !generates && bytes.is_none_or(|bytes| bytes > limits.buffered_bytes_max) {
            let body = RequestBody::streamed(body, limits, is_v2.then(look));
            let cost = cost_of(bytes);
            return Ok(ReadBody { body, cost, wait: Duration::ZERO, reservation: None });
        }
        let buffered = self.buffer(&mut body).await?;
        let mut cost = cost_of(Some(buffered.bytes.len() as u64));
        if coding.is_some() {
            look().look(&buffered.bytes)?;
        } else if is_v2 && !buffered.bytes.is_empty() {
            // Servers that generate text accept no tensors behind the JSON, whatever the header
            // says.
            let json_bytes = if generates { u64::MAX } else { self.json_bytes() };
            let json_bytes = usize::try_from(json_bytes).unwrap_or(usize::MAX);
            let facts = read_v2(&buffered.bytes[..buffered.bytes.len().min(json_bytes)])?;
            facts.engine_fields.check(route.spec.engine_fields)?;
            cost = cost.with_parameters(&facts);
        }
        let body = RequestBody::Buffered(Segments::from(buffered.bytes));
        Ok(ReadBody { body, cost, wait: buffered.wait, reservation: buffered.reservation })
    }

    /// Returns the number of JSON bytes of a V2 request: all of them, unless one valid header says
    /// that tensors follow.
    fn json_bytes(self) -> u64 {
        let mut lengths = self.head.headers.get_all("inference-header-content-length").iter();
        let length = lengths.next().filter(|_| lengths.next().is_none());
        length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(u64::MAX)
    }
}

/// Returns the compression of a V2 request's body; with `generates` it must have none.
///
/// # Errors
/// Returns an error for a compression that V2 servers do not expand.
fn v2_coding(headers: &HeaderMap, generates: bool) -> Result<Option<V2Coding>, GatewayError> {
    let Err(refusal) = refuse_encoding(headers) else { return Ok(None) };
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let only = values.next().filter(|_| values.next().is_none() && !generates);
    match only.map(|value| value.as_bytes().to_ascii_lowercase()).as_deref() {
        Some(b"gzip" | b"x-gzip") => Ok(Some(V2Coding::Gzip)),
        Some(b"deflate") => Ok(Some(V2Coding::Deflate)),
        _ => Err(refusal),
    }
}

/// Returns true for the V2 paths that generate text.
fn generates(path: &str) -> bool {
    let action = path.trim_end_matches('/').rsplit('/').next();
    matches!(action, Some("generate" | "generate_stream"))
}

#[cfg(test)]
#[path = "opaque_test.rs"]
mod tests;
