//! Rewrites a request's path for its replica.

use std::borrow::Cow;

use http::request::Parts;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use spillway_protocol::{Endpoint, ErrorKind, GatewayError, Protocol, decode_name, lies_below};
use spillway_types::{ModelName, ModelVersion};
use spillway_view::{Route, RouteSpec};

/// Prefix of a model's name in KServe V2's paths.
const V2_MODELS: &str = "/v2/models/";
/// Characters to encode: all except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Model's name in a V2 path, with its replacement.
#[derive(Clone, Copy, Debug)]
pub struct Renamed<'a> {
    /// Name as the path has it, percent-encoded.
    encoded: &'a str,
    /// Name to put in its place.
    model: &'a str,
    /// Version to put behind the name, if any.
    version: Option<&'a str>,
}

impl<'a> Renamed<'a> {
    /// Returns the replacement; `None` if the path has this model already, and the version if any.
    pub fn of(
        endpoint: Endpoint<'a>,
        model: &'a ModelName,
        version: Option<&'a ModelVersion>,
    ) -> Option<Self> {
        let Endpoint::V2Model { model: encoded, version: in_path, .. } = endpoint else {
            return None;
        };
        let model = model.as_str();
        let version = version.filter(|_| in_path.is_none()).map(ModelVersion::as_str);
        let is_other = decode_name(encoded).as_deref() != Some(model);
        (is_other || version.is_some()).then_some(Self { encoded, model, version })
    }
}

/// Path prefix of a route at this gateway, and its replacement at replicas. Both without a slash at
/// the end, so that the rest begins with a new segment.
#[derive(Clone, Copy, Debug)]
pub struct Prefixes<'a> {
    here: &'a str,
    there: &'a str,
}

impl<'a> Prefixes<'a> {
    /// Returns the prefixes; `None` if replicas see paths unchanged.
    pub fn of(spec: &'a RouteSpec) -> Option<Self> {
        let (here, there) = (spec.path_prefix.as_deref()?, spec.replace_prefix.as_deref()?);
        Some(Self::new(here, there))
    }

    /// Returns the prefixes without a slash at their ends.
    pub fn new(here: &'a str, there: &'a str) -> Self {
        let bare = |prefix: &'a str| prefix.strip_suffix('/').unwrap_or(prefix);
        Self { here: bare(here), there: bare(there) }
    }

    fn replica_path(self, path: &str) -> String {
        let path = format!("{}{}", self.there, path.strip_prefix(self.here).unwrap_or(path));
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Returns the gateway's path for a replica's path `target`; `None` if the route does not lead
    /// there.
    pub fn client_path(self, target: &str) -> Option<String> {
        let path = &target[..target.find(['?', '#']).unwrap_or(target.len())];
        if !lies_below(path, self.there) {
            return None;
        }
        let rest = &target[self.there.len()..];
        let path = if self.here.is_empty() && !rest.starts_with('/') {
            format!("/{rest}")
        } else {
            format!("{}{rest}", self.here)
        };
        // Two slashes would begin the name of another server.
        (!path.starts_with("//")).then_some(path)
    }
}

/// Returns the path and query for the replica.
pub fn replica_path(
    head: &Parts,
    route: &Route,
    renamed: Option<Renamed<'_>>,
) -> Result<PathAndQuery, GatewayError> {
    let original = head.uri.path_and_query();
    let spec = &route.spec;
    let mut path = Cow::Borrowed(head.uri.path());
    if let Some(prefixes) = Prefixes::of(spec) {
        path = prefixes.replica_path(&path).into();
    }
    // Servers would redirect to the path without the slash, which loses bodies and keys of some
    // clients.
    let is_read = spec.path_prefix.is_none() || spec.protocol != Protocol::Raw;
    let bare = path
        .strip_suffix('/')
        .filter(|bare| is_read && !bare.is_empty() && Endpoint::classify(bare) != Endpoint::Other);
    if let Some(bare) = bare {
        path = bare.to_owned().into();
    }
    if let Some(Renamed { encoded, model, version }) = renamed
        && let Some(rest) = path.strip_prefix(V2_MODELS).and_then(|rest| rest.strip_prefix(encoded))
    {
        let version = version.map(|version| format!("/versions/{}", encoded_segment(version)));
        let version = version.unwrap_or_default();
        path = format!("{V2_MODELS}{}{version}{rest}", encoded_segment(model)).into();
    }
    match (path, original) {
        (Cow::Borrowed(_), Some(original)) => Ok(original.clone()),
        (path, original) => {
            let query = original.and_then(PathAndQuery::query);
            let text = query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"));
            PathAndQuery::try_from(text).map_err(|error| {
                let message = format!("the path can't be rewritten for the replica: {error}");
                GatewayError::new(ErrorKind::BadRequest, message)
            })
        }
    }
}

fn encoded_segment(name: &str) -> String {
    utf8_percent_encode(name, RESERVED).to_string()
}

#[cfg(test)]
#[path = "path_test.rs"]
mod tests;
